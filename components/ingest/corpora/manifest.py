"""JSON lines as NVIDIA NeMo reads and writes them, an utterance a line: a manifest.

https://docs.nvidia.com/nemo-framework/user-guide/latest/nemotoolkit/asr/datasets.html. Voxline's
own manifests are such files too. Every `*.jsonl` and `*manifest*.json` below the root is read; the name of the file is
the split (`train.jsonl`, `test_manifest.json`) unless the line has a `split`.
"""

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from voxline.components.ingest.corpus import Corpus, CorpusEntry
from voxline.data.json_codec import is_seconds, parse_json
from voxline.data.manifest import REJECTS_FILE, UTTERANCE_KEYS
from voxline.errors import WorkError
from voxline.rejects import Reason, Reject


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every line of every manifest.

    Raises:
      WorkError: there is no manifest.
    """
    manifests = [path for path in corpus.find(".jsonl", ".json") if _is_manifest(path)]
    if not manifests:
        raise WorkError(f"{corpus.root}: no manifest (*.jsonl or *manifest*.json) in this folder; check corpus.format")
    for path in manifests:
        # Paths are relative to the manifest; offset, speaker and id may be absent, other keys are kept:
        #   {"audio_filepath": "talk/1.wav", "duration": 3.2, "text": "good morning", "offset": 61.5, "accent": "us"}
        name, folder, split = str(path), path.parent.as_posix(), path.stem
        for number, line in corpus.read_lines(name):
            yield _entry(line, f"{name}:{number}", folder, split)


def _is_manifest(path: PurePosixPath) -> bool:
    name = path.name.lower()
    return (name.endswith(".jsonl") and name != REJECTS_FILE) or (name.endswith(".json") and "manifest" in name)


def _entry(line: str, source: str, folder: str, file_split: str) -> CorpusEntry | Reject:
    try:
        values = _parse(line)
    except (ValueError, RecursionError) as error:
        return Reject(source, Reason.BAD_ENTRY, f"{source}: not a line of JSON ({error})")
    if not isinstance(values, dict):
        return Reject(source, Reason.BAD_ENTRY, f"{source}: a mapping is accepted, not {type(values).__name__}")
    get = values.get
    id, audio, text, speaker, split = get("id"), get("audio_filepath"), get("text"), get("speaker"), get("split")
    offset, duration = get("offset"), get("duration")
    # Nearly all lines pass this fast check; the others are checked value by value.
    plain = type(id) is type(audio) is type(text) is type(speaker) is type(split) is str and audio
    if not (plain and _is_seconds(offset) and _is_seconds(duration)) and (fault := _fault(values, source)):
        return fault
    return CorpusEntry(
        "" if id is None else str(id),
        str(audio),
        str(text),
        "" if speaker is None else str(speaker),
        split or file_split,
        folder,
        float(offset or 0),
        None if duration is None else float(duration),
        None,
        source,
        {} if values.keys() <= _KNOWN else {key: value for key, value in values.items() if key not in _KNOWN},
    )


def _parse(line: str) -> Any:
    """Decodes a line; also one with NaN or half a surrogate pair, so that its reject has its id and names the value."""
    try:
        return parse_json(line)
    except ValueError:
        return json.loads(line)


def _fault(values: dict[str, Any], source: str) -> Reject | None:
    """Checks the values of a line one by one."""
    id = values.get("id")
    named = str(id) if id not in (None, "") else source
    if values.get("text") is None:
        return Reject(named, Reason.TRANSCRIPT_MISSING, f"{source}: no `text`")
    faults = [
        f"`{key}` is {values.get(key)!r}, {accepted}" for key, accepted, fits in _CHECKS if not fits(values.get(key))
    ]
    return Reject(named, Reason.BAD_ENTRY, f"{source}: {'; '.join(faults)}") if faults else None


def _is_seconds(value: Any) -> bool:
    return value is None or is_seconds(value)


def _is_name(value: Any) -> bool:
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


_KNOWN = frozenset(UTTERANCE_KEYS)
_CHECKS = (
    ("id", "a text or a whole number is accepted", _is_name),
    ("audio_filepath", "a path is accepted", lambda value: isinstance(value, str) and value != ""),
    ("text", "a text is accepted", lambda value: isinstance(value, str)),
    ("speaker", "a text or a whole number is accepted", _is_name),
    ("split", "a text is accepted", lambda value: value is None or isinstance(value, str)),
    ("offset", "seconds from 0 on are accepted", _is_seconds),
    ("duration", "seconds from 0 on are accepted", _is_seconds),
)

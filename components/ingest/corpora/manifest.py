"""A JSONL manifest, as NVIDIA NeMo reads and writes it: a line of JSON an utterance.

https://docs.nvidia.com/nemo-framework/user-guide/latest/nemotoolkit/asr/datasets.html. Our own manifests
are such files too. Every `*.jsonl` and `*manifest*.json` below the root is read; the file's name is
the split's (`train.jsonl`, `test_manifest.json`) unless the line has a `split`.
"""

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from components.ingest.corpus import Corpus, Entry
from components.speech.errors import WorkError
from components.speech.utterances import FIELDS, REJECTS, Reason, Reject, is_seconds


def entries(corpus: Corpus) -> Iterator[Entry | Reject]:
    """Every line of every manifest.

    Raises:
      WorkError: there is no manifest.
    """
    manifests = [path for path in corpus.visible(".jsonl", ".json") if _is_manifest(path)]
    if not manifests:
        raise WorkError(f"{corpus.root}: no manifest (*.jsonl or *manifest*.json) in this folder; check corpus.format")
    yield from corpus.closed_doors()
    for path in manifests:
        # Paths are relative to the manifest; offset, speaker and id may be absent, other keys are kept:
        #   {"audio_filepath": "talk/1.wav", "duration": 3.2, "text": "good morning", "offset": 61.5, "accent": "us"}
        for number, line in corpus.lines(str(path)):
            yield _entry(line, path, f"{path}:{number}")


def _is_manifest(path: PurePosixPath) -> bool:
    name = path.name.lower()
    return (name.endswith(".jsonl") and name != REJECTS) or (name.endswith(".json") and "manifest" in name)


def _entry(line: str, path: PurePosixPath, source: str) -> Entry | Reject:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Reject(source, Reason.BAD_ENTRY, f"{source}: not a line of JSON ({error})")
    if not isinstance(values, dict):
        return Reject(source, Reason.BAD_ENTRY, f"{source}: a mapping is accepted, this is {type(values).__name__}")
    id, text = values.get("id"), values.get("text")
    named = str(id) if id not in (None, "") else source
    if text is None:
        return Reject(named, Reason.TRANSCRIPT_MISSING, f"{source}: no `text`")
    faults = [
        f"`{key}` is {values.get(key)!r}, {accepted}" for key, accepted, fits in _CHECKS if not fits(values.get(key))
    ]
    if faults:
        return Reject(named, Reason.BAD_ENTRY, f"{source}: {'; '.join(faults)}")
    duration, speaker, split = values.get("duration"), values.get("speaker"), values.get("split")
    return Entry(
        id="" if id is None else str(id),
        audio=values["audio_filepath"],
        text=text,
        speaker="" if speaker is None else str(speaker),
        split=str(split) if split else path.stem,
        beside=path.parent.as_posix(),
        offset=float(values.get("offset") or 0),
        duration=None if duration is None else float(duration),
        source=source,
        extra={key: value for key, value in values.items() if key not in FIELDS},
    )


def _is_seconds(value: Any) -> bool:
    return value is None or is_seconds(value)


def _is_name(value: Any) -> bool:
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


_CHECKS = (
    ("id", "a text or a whole number is accepted", _is_name),
    ("audio_filepath", "a path is accepted", lambda value: isinstance(value, str) and value != ""),
    ("text", "a text is accepted", lambda value: isinstance(value, str)),
    ("speaker", "a text or a whole number is accepted", _is_name),
    ("split", "a text is accepted", lambda value: value is None or isinstance(value, str)),
    ("offset", "seconds from 0 on are accepted", _is_seconds),
    ("duration", "seconds from 0 on are accepted", _is_seconds),
)

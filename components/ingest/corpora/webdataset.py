"""WebDataset: tars of samples, the files of a sample side by side under one name, as many trainers stream them.

https://github.com/webdataset/webdataset. Every `*.tar` (or `.tar.gz`) below the root is a shard; the split is its name
without the number (`train-000012.tar`), or else the name of its folder. A sample is a recording and its text:

    ann-0001.flac
    ann-0001.txt     good morning
    ann-0001.json    {"text": "good morning", "speaker": "ann", "duration": 3.2}     instead of the .txt, or beside it

A sample without an id of its own is named by its key; where an earlier shard has that key, by shard and key
(`train-000001/0007`). So ids, and splits drawn by them, stay when a shard is added after the others. The keys of the
JSON may have any of the usual names (`USUAL_COLUMNS`); a `.txt` wins over its text, which is kept as `json_text`.
Shards are unpacked into the store, each once.
"""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from voxline.components.ingest.corpora.manifest import LineReader
from voxline.components.ingest.corpora.text_files import other_form
from voxline.components.ingest.corpus import AUDIO_EXTENSIONS, Corpus, CorpusEntry
from voxline.data.json_codec import parse_json
from voxline.errors import WorkError
from voxline.rejects import Reason, Reject

SHARD_EXTENSIONS = (".tar", ".tar.gz", ".tgz")
_MAX_TEXT_BYTES = 1 << 20
_SPLIT = re.compile(r"(.*?)[-_.]*[\d{}.]*")


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every sample of every shard that has a recording or a text.

    Raises:
      WorkError: there is no shard, or no sample.
    """
    shards = list(corpus.find(*SHARD_EXTENSIONS))
    if not shards:
        raise WorkError(f"{corpus.path}: no shard (*.tar) in this folder; check corpus.format")

    # The recording is found by its extension, whatever the JSON says; a `start` there is one in a longer recording.
    columns = corpus.settings.columns
    read_line = LineReader(
        columns.model_copy(update={"audio_filepath": "", "offset": columns.offset or "offset"}), describe=True
    )
    shard_of: dict[int, int] = {}  # the first shard with a key, by the key's hash
    samples = 0

    for number, shard in enumerate(shards):
        # The files of a sample need not be next to each other in the tar.
        files = sorted(map(Path, corpus.unpack(str(shard))), key=lambda file: (_key(file), file.name))
        for key, members in itertools.groupby(files, key=_key):
            sample = {file.name.partition(".")[2].lower(): file for file in members}
            audio = next((sample[extension[1:]] for extension in AUDIO_EXTENSIONS if extension[1:] in sample), None)
            if audio or {"txt", "json"} & sample.keys():
                samples += 1
                first = shard_of.setdefault(hash(corpus.default_id(key)), number) == number
                prefix = "" if first else f"{shard.parent.joinpath(_stem(shard))}/"
                yield _entry(corpus, sample, audio, shard, read_line, prefix)
                continue

            # Neither: a note of the publisher, or a recording whose name has a further dot.
            for file in sample.values():
                if file.suffix.lower() in AUDIO_EXTENSIONS:
                    name = corpus.default_id(str(file))
                    detail = f"{shard}:{name}: its extension begins at the first dot of the name; rename it to have one"
                    yield Reject(name, Reason.BAD_ENTRY, detail)
    if not samples:
        raise WorkError(f"{corpus.path}: no sample with a recording or a text in {len(shards):,} shards")


def _stem(shard: PurePosixPath) -> str:
    return shard.name.partition(".tar")[0].partition(".tgz")[0]


def _key(file: Path) -> str:
    """Returns the key that a sample's files share: the path up to the first dot of the name."""
    return str(file.parent / file.name.partition(".")[0])


def _entry(
    corpus: Corpus,
    sample: dict[str, Path],
    audio: Path | None,
    shard: PurePosixPath,
    read_line: LineReader,
    prefix: str,
) -> CorpusEntry | Reject:
    """
    Args:
      prefix: of the id, where it has none of its own.
    """
    any_file = next(iter(sample.values()))
    key = corpus.default_id(_key(any_file))
    name = prefix + key
    source = f"{shard}:{key}"

    if audio is None:
        return Reject(name, Reason.MISSING_FILE, f"{source}: only {', '.join(sorted(sample))}, no recording")

    values: dict[str, Any] = {}
    try:
        if "json" in sample:
            values = parse_json(_read(sample["json"]))
            if not isinstance(values, dict):
                raise ValueError("its JSON is no mapping")
        if "txt" in sample:
            if "text" in values:
                values["json_text"] = values["text"]
            values["text"] = _read(sample["txt"]).strip()
            if form := other_form(values["text"]):
                raise ValueError(f"its .txt is {form}, and no transcript: {' '.join(values['text'].split())[:60]!r}")
    except (ValueError, RecursionError) as error:
        return Reject(name, Reason.BAD_ENTRY, f"{source}: {error}")

    # The JSON may have an id of its own; where the recording is, it cannot know.
    split = _SPLIT.fullmatch(_stem(shard))
    folder_split = shard.parent.name or corpus.name
    values = {"id": name} | values | {"audio_filepath": str(audio)}
    return read_line.entry(values, source, "", (split[1] if split else "") or folder_split)


def _read(file: Path) -> str:
    if file.stat().st_size > _MAX_TEXT_BYTES:
        raise ValueError(f"a .{file.name.partition('.')[2]} of {file.stat().st_size:,} bytes is no transcript")
    return file.read_text(encoding="utf-8-sig")

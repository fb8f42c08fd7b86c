"""NeMo's tarred datasets: manifests whose recordings are in tars (`audio_0.tar`, `audio_1.tar`, …) beside them.

https://docs.nvidia.com/nemo-framework/user-guide/latest/nemotoolkit/asr/datasets.html#tarred-datasets. Every folder
with such tars is a dataset:

    train/audio_0.tar, audio_1.tar, …       the recordings, without folders
    train/tarred_audio_manifest.json        {"audio_filepath": "1.wav", "duration": 3.2, "text": "…", "shard_id": 0}
    train/sharded_manifests/manifest_0.json the same lines, a file a tar; read where the one manifest is absent

The name of the folder is the split unless a line has a `split`. Tars are unpacked into the store, each once.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from voxline.components.ingest.corpora.manifest import LineReader
from voxline.components.ingest.corpus import Corpus, CorpusEntry
from voxline.errors import WorkError
from voxline.rejects import Reason, Reject

MANIFEST = "tarred_audio_manifest.json"

_TAR = re.compile(r".*?(\d+)\.tar")
_SHARD = re.compile(r".*manifest.*?(\d+)\.jsonl?")
_PART = re.compile(r"-sub\d+$")


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every line of every dataset.

    Raises:
      WorkError: there is no numbered tar, or no manifest beside one.
    """
    tars: dict[PurePosixPath, dict[int, PurePosixPath]] = {}
    for path in corpus.find(".tar"):
        if number := _TAR.fullmatch(path.name):
            tars.setdefault(path.parent, {})[int(number[1])] = path
    if not tars:
        raise WorkError(f"{corpus.path}: no numbered tar (audio_0.tar) in this folder; check corpus.format")

    manifests = [path for path in corpus.find(".json", ".jsonl") if "manifest" in path.name.lower()]
    for folder, shards in tars.items():
        lists = [path for path in manifests if path == folder / MANIFEST]
        lists = lists or [path for path in manifests if folder in (path.parent, path.parent.parent)]
        if not lists:
            raise WorkError(
                f"{corpus.root / folder}: tars without a manifest ({MANIFEST}) beside them; check corpus.format"
            )
        yield from _dataset(corpus, folder, shards, lists)


def _dataset(
    corpus: Corpus, folder: PurePosixPath, shards: dict[int, PurePosixPath], manifests: list[PurePosixPath]
) -> Iterator[CorpusEntry | Reject]:
    # NeMo finds a recording by its name without folder and extension, and so do we. The names of one tar are in memory
    # at a time: a manifest is mostly in the order of the tars.
    members: dict[int, dict[str, str]] = {}
    read_line = LineReader(corpus.settings.columns, describe=True)
    for path in manifests:
        in_name = _SHARD.fullmatch(path.name)
        for number, line in corpus.read_lines(str(path)):
            source = f"{path}:{number}"
            entry = read_line(line, source, "", folder.name or corpus.name)
            if isinstance(entry, Reject):
                yield entry
                continue

            shard = entry.extra.pop("shard_id", int(in_name[1]) if in_name else None)
            if not isinstance(shard, int) or shard not in shards:
                shard_list = ", ".join(map(str, sorted(shards)[:20]))
                yield Reject(
                    entry.audio, Reason.BAD_ENTRY, f"{source}: shard_id is {shard!r}; there are tars {shard_list}"
                )
                continue

            if shard not in members:
                members = {shard: _by_name(corpus, corpus.unpack(str(shards[shard])))}

            # NeMo's scripts flatten folders into the name, and append -sub<n> to a line that is a part of a recording.
            stem = PurePosixPath(entry.audio.replace("/", "_")).stem
            files = members[shard]
            names = (entry.audio, stem, PurePosixPath(entry.audio).stem, _PART.sub("", stem))
            file = next((files[name] for name in names if name in files), "")
            if not file:
                detail = f"{source}: {shards[shard]} has no recording {entry.audio}, or several that its name may mean"
                yield Reject(entry.id or entry.audio, Reason.MISSING_FILE, detail)
                continue

            entry.audio = file
            yield entry


def _by_name(corpus: Corpus, files: list[str]) -> dict[str, str]:
    """The files of a tar by their names in it, and by those without folder and extension; "" for one of several."""
    stems: dict[str, str] = {}
    for file in files:
        stem = PurePosixPath(file).stem
        stems[stem] = "" if stem in stems else file
    return stems | {corpus.default_id(file): file for file in files}

"""Lhotse's cuts: JSON lines, gzipped or not, a cut a line; as icefall and NeMo 2 read and write them.

https://lhotse.readthedocs.io/en/latest/cuts.html. Every `*cuts*.jsonl(.gz)` below the root is read, or every
`*.jsonl(.gz)` where none is called so. Each supervision of a MonoCut is an utterance. The split is what follows `cuts_`
in the name of the file (`librispeech_cuts_train-clean-100.jsonl.gz`), or else its name. Cuts that mix or pad others,
and recordings that are commands, URLs or changed in speed or sound, are rejected. Of a recording of several channels,
that of the cut is the utterance.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from voxline.audio.containers import CHANNEL_KEY
from voxline.components.ingest.corpus import Corpus, CorpusEntry
from voxline.data.json_codec import is_seconds, parse_json
from voxline.data.manifest import UTTERANCE_KEYS
from voxline.errors import WorkError
from voxline.rejects import Reason, Reject

EXTENSIONS = (".jsonl", ".jsonl.gz")


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every supervision of every cut.

    Raises:
      WorkError: no file holds cuts.
    """
    files = list(corpus.find(*EXTENSIONS))
    files = [path for path in files if "cuts" in path.name.lower()] or files
    if not files:
        raise WorkError(f"{corpus.path}: no cuts (*cuts*.jsonl.gz) in this folder; check corpus.format")

    for path in files:
        for number, line in corpus.read_lines(str(path)):
            source = f"{path}:{number}"
            try:
                cut = parse_json(line)
            except (ValueError, RecursionError) as error:
                yield Reject(source, Reason.BAD_ENTRY, f"{source}: not a line of JSON ({error})")
                continue
            if number == 1 and not (isinstance(cut, dict) and {"supervisions", "tracks"} & cut.keys()):
                raise WorkError(f"{corpus.root / path}: its first line is not a cut of Lhotse; check corpus.format")
            yield from _cut(corpus, cut, path, source)


def _cut(corpus: Corpus, cut: Any, path: PurePosixPath, source: str) -> Iterator[CorpusEntry | Reject]:
    # {"id": "c1", "start": 0.0, "duration": 3.2, "channel": 0, "type": "MonoCut",
    #  "supervisions": [{"id": "s1", "recording_id": "r1", "start": 0.0, "duration": 3.2, "channel": 0,
    #                    "text": "good morning", "speaker": "ann", "language": "English", "custom": {…}}],
    #  "recording": {"id": "r1", "sources": [{"type": "file", "channels": [0], "source": "audio/1.flac"}],
    #                "sampling_rate": 16000, "num_samples": 51200, "duration": 3.2}, "custom": {…}}
    if not isinstance(cut, dict):
        yield Reject(source, Reason.BAD_ENTRY, f"{source}: a mapping is accepted, not {type(cut).__name__}")
        return

    named = str(cut.get("id") or source)
    try:
        if fault := _fault(cut):
            yield Reject(named, Reason.BAD_ENTRY, f"{source}: {fault}")
            return

        if not cut["supervisions"]:
            yield Reject(named, Reason.TRANSCRIPT_MISSING, f"{source}: the cut has no supervision")
        for supervision in cut["supervisions"]:
            yield _supervision(corpus, cut, supervision, path, source)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        yield Reject(named, Reason.BAD_ENTRY, f"{source}: not a cut of Lhotse ({type(error).__name__}: {error})")


def _fault(cut: dict[str, Any]) -> str:
    """Explains why a cut cannot be read; empty where it can."""
    if (kind := cut.get("type", "MonoCut")) != "MonoCut":
        return f"a {kind}; only cuts of one recording (MonoCut) are accepted: write the audio and make new cuts of it"
    if not cut.get("recording"):
        return "the cut has no recording, only features perhaps; make cuts from the recordings"

    sources = cut["recording"]["sources"]
    if len(sources) != 1 or sources[0]["type"] != "file":
        kinds = ", ".join(repr(item["type"]) for item in sources)
        return f"its recording is {kinds or 'nothing'} ({str(sources)[:80]}); one file is accepted, no command is run"

    # Resampling keeps the times, and convert resamples by itself.
    changes = [str(item["name"]) for item in cut["recording"].get("transforms") or []]
    if moved := [name for name in changes if name != "Resample"]:
        return (
            f"its recording is changed by {', '.join(moved)}, which is not done here; give the cuts before that, or "
            "save the changed audio (CutSet.save_audios)"
        )

    if cut["channel"] not in sources[0]["channels"]:
        return f"channel {cut['channel']!r}, and the recording has {sources[0]['channels']!r}"
    if not all(is_seconds(value) for value in (cut["start"], cut["duration"])):
        return f"start {cut['start']!r}, duration {cut['duration']!r}; seconds from 0 on are accepted"
    return ""


def _supervision(
    corpus: Corpus, cut: dict[str, Any], supervision: dict[str, Any], path: PurePosixPath, source: str
) -> CorpusEntry | Reject:
    id = str(supervision["id"])
    text = supervision.get("text")
    start = supervision["start"]
    duration = supervision["duration"]

    if not isinstance(text, str):
        return Reject(id, Reason.TRANSCRIPT_MISSING, f"{source}: the supervision has no text")
    if not (is_seconds(start) and is_seconds(duration)):
        return Reject(id, Reason.BAD_ENTRY, f"{source}: start {start!r}, duration {duration!r} within the cut")

    recording = cut["recording"]
    audio = recording["sources"][0]["source"]
    channels = recording["sources"][0]["channels"]
    if (channel := supervision.get("channel", cut["channel"])) != cut["channel"]:
        detail = f"{source}: the supervision is of channel {channel!r}, its cut of {cut['channel']!r}"
        return Reject(id, Reason.BAD_ENTRY, detail)
    extra = {key: supervision[key] for key in ("language", "gender") if supervision.get(key)}
    for custom in (cut.get("custom"), supervision.get("custom")):
        extra |= custom or {}

    # Paths are relative to the folder in which a recipe ran: that of the cuts, or the root.
    relative_to = "" if corpus.has(audio) else path.parent.as_posix()

    # By its place among the channels: convert counts those of the file.
    if len(channels) > 1:
        extra[CHANNEL_KEY] = channels.index(channel)
    elif channel and (count := corpus.count_channels(audio, relative_to)) > 1:
        # A file of its own for the second side has one channel, however it is counted.
        detail = f"{source}: its recording has channel {channel!r} alone, and {audio} has {count}; list them all"
        return Reject(id, Reason.BAD_ENTRY, detail)

    # A supervision is relative to the cut, and the cut to the recording. One as long as the recording has its duration
    # too: the file may be another one than the manifest describes.
    offset = round(cut["start"] + start, 6)  # of 2.7 + 0.5, 3.2 is meant
    return CorpusEntry(
        id=id,
        audio=audio,
        text=text,
        speaker=str(supervision.get("speaker") or ""),
        split=str(extra.pop("split", "")) or _split(path),
        relative_to=relative_to,
        offset=offset,
        duration=duration,
        source=source,
        extra={f"corpus_{key}" if key in UTTERANCE_KEYS else key: value for key, value in extra.items()},
    )


def _split(path: PurePosixPath) -> str:
    """The split that a file's name says.

    >>> _split(PurePosixPath("data/librispeech_cuts_dev-clean.jsonl.gz")), _split(PurePosixPath("cuts.jsonl"))
    ('dev-clean', 'cuts')
    """
    stem = path.name.partition(".jsonl")[0]
    return stem.rpartition("cuts_")[2] if "cuts_" in stem else stem

"""Kaldi data folders: `wav.scp` and `text`, and optionally `segments`, `utt2spk`, `spk2utt`, `spk2gender` and
`reco2file_and_channel`. Where `utt2spk` and `spk2utt` differ, the former is read, as Kaldi's own tools do.

https://kaldi-asr.org/doc/data_prep.html. Every folder below the root with a `wav.scp` is read; the name of the folder
is the split (`data/train`, `data/test`). Absolute paths, as most recipes write them, are accepted below the root and
below `corpus.audio_roots`. A channel is the fifth field of `segments`, counted from 0; or the side of a recording in
`reco2file_and_channel` (A or B), unless a recipe has cut the sides apart into files of one channel. Shell commands in
`wav.scp` (`sph2pipe a.sph |`) are never run: their utterances are rejected.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from voxline.audio.containers import CHANNEL_KEY, parse_channel
from voxline.components.ingest.corpus import Corpus, CorpusEntry
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.rejects import Reason, Reject

SORTED = 3
"""Utterances from which on their order tells that a table is sorted."""

_MARK = re.compile(r"[\d_-]")

Table = dict[str, tuple[str, str]]
"""By the first word of a line: the rest of the line, and the file and line number."""


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every utterance of every data folder.

    Raises:
      WorkError: there is no `wav.scp`.
    """
    folders = [path.parent for path in corpus.find("wav.scp") if path.name == "wav.scp"]
    if not folders:
        raise WorkError(f"{corpus.root}: no wav.scp in this folder; check corpus.format")
    for folder in folders:
        yield from _folder(corpus, folder)


@dataclasses.dataclass(frozen=True, slots=True)
class _Span:
    """The part of a recording that is an utterance."""

    recording: str
    source: str
    offset: float = 0.0
    duration: float | None = None
    channel: str = ""


def _folder(corpus: Corpus, folder: PurePosixPath) -> Iterator[CorpusEntry | Reject]:
    repeated: list[Reject] = []

    # Each table has a line for each utterance, recording or speaker:
    #   wav.scp     talk-1 audio/talk 1.wav
    #   text        ann-talk-1-a GOOD MORNING
    #   segments    ann-talk-1-a talk-1 0.50 3.20
    #   utt2spk     ann-talk-1-a ann
    #   spk2gender  ann f
    #   reco2file_and_channel  talk-1 talk A
    names = ("wav.scp", "text", "segments", "utt2spk", "spk2gender", "reco2file_and_channel")
    wavs, texts, segments, speakers, sexes, sides = (_table(corpus, folder / name, repeated) for name in names)
    disputed: dict[str, str] = {}
    if corpus.has(str(folder / "spk2utt")):
        listed = _listed_speakers(_table(corpus, folder / "spk2utt", repeated))
        disputed = {
            id: " and ".join(name for name, _ in named)
            for id, named in listed.items()
            if len(named) > 1 and id not in speakers
        }
        if speakers and (contradictions := _describe_contradictions(speakers, listed)):
            print_status(f"{folder / 'spk2utt'}: {contradictions}")
        speakers = {id: named[0] for id, named in listed.items()} | speakers
    if speakers and (unnamed := [id for id in texts if id not in speakers]):
        print_status(
            f"{folder / 'utt2spk'}: {len(unnamed):,} of {len(texts):,} utterances have no speaker: {unnamed[0]}"
        )
    shared = Counter(wav for wav, _ in wavs.values())
    yield from repeated

    # Without segments, each recording is one utterance with its own id.
    spans: dict[str, _Span] = {}
    if corpus.has(str(folder / "segments")):
        for id, (line, source) in segments.items():
            span = _span(line, source)
            if span is None:
                detail = f"{source}: {line!r}; accepted: recording, start and end in seconds, and a channel"
                yield Reject(id, Reason.BAD_ENTRY, detail)
                texts.pop(id, None)
            else:
                spans[id] = span
    else:
        spans = {id: _Span(id, source) for id, (_, source) in wavs.items()}

    cut = _cut_texts(corpus, folder / "text", spans)
    for id, span in spans.items():
        if id not in texts:
            yield Reject(id, Reason.TRANSCRIPT_MISSING, f"{span.source}: {folder / 'text'} has no line for it")
            continue

        # What is left of the transcripts in the end has no recording.
        text, text_source = texts.pop(id)
        if id in cut:
            detail = f"{text_source}: its text seems to go on in the next line, {cut[id]!r}; write it in one line"
            yield Reject(id, Reason.BAD_ENTRY, detail)
            continue
        wav, source = wavs.get(span.recording, ("", span.source))
        if not wav:
            yield Reject(id, Reason.MISSING_FILE, f"{source}: wav.scp has no file for recording {span.recording}")
            continue

        if fault := _fault(wav):
            yield Reject(id, Reason.BAD_ENTRY, f"{source}: {wav!r} is {fault}")
            continue

        # Most recipes cut the sides apart in wav.scp: only where they did not, a side is a channel.
        side, _ = sides.get(span.recording, ("", ""))
        channel = span.channel
        base_folder = _base_folder(corpus, folder, wav)
        if side and not channel and (shared[wav] > 1 or corpus.count_channels(wav, base_folder) > 1):
            channel = side.split()[-1]
        if channel and parse_channel(channel) is None:
            yield Reject(id, Reason.BAD_ENTRY, f"{source}: a side {channel!r} of {wav!r}; A or B is accepted")
            continue
        speaker, place = speakers.get(id, ("", ""))
        if id in disputed:
            yield Reject(id, Reason.BAD_ENTRY, f"{place}: {disputed[id]} for the speaker; one is accepted")
            continue
        if len(speaker.split()) > 1:
            yield Reject(id, Reason.BAD_ENTRY, f"{place}: {speaker[:80]!r} for a speaker; one word is accepted")
            continue
        sex, _ = sexes.get(speaker, ("", ""))
        yield CorpusEntry(
            id=id,
            audio=wav,
            text=text,
            speaker=speaker,
            split=folder.name or corpus.name,
            relative_to=base_folder,
            offset=span.offset,
            duration=span.duration,
            source=source,
            extra=({"sex": sex.upper()} if sex else {}) | ({CHANNEL_KEY: channel} if channel else {}),
        )

    for id, (_, source) in texts.items():
        yield Reject(id, Reason.MISSING_FILE, f"{source}: a transcript without a recording in wav.scp or segments")


def _table(corpus: Corpus, path: PurePosixPath, repeated: list[Reject]) -> Table:
    """Reads a table; empty where its file is absent. Later lines with the same name go to `repeated`."""
    table: Table = {}
    if not corpus.has(str(path)):
        return table
    for number, line in corpus.read_lines(str(path)):
        name, *value = line.split(maxsplit=1)
        source = f"{path}:{number}"
        if name in table:
            repeated.append(Reject(name, Reason.DUPLICATE_ID, f"{source}: {name} is already in {table[name][1]}"))
        else:
            table[name] = (value[0].strip() if value else "", source)
    return table


def _listed_speakers(table: Table) -> dict[str, list[tuple[str, str]]]:
    """The speakers, by utterance, of the lines of `spk2utt` that have it, each with its file and line number."""
    listed: dict[str, list[tuple[str, str]]] = {}
    for speaker, (ids, source) in table.items():
        for id in dict.fromkeys(ids.split()):
            listed.setdefault(id, []).append((speaker, source))
    return listed


def _describe_contradictions(speakers: Table, listed: dict[str, list[tuple[str, str]]]) -> str:
    """Tells what `spk2utt` says otherwise than `utt2spk`, with counts and examples; empty if it says the same."""
    other = [id for id, (speaker, _) in speakers.items() if id in listed and [speaker] != [n for n, _ in listed[id]]]
    unlisted = [id for id in speakers if id not in listed]
    further = [id for id in listed if id not in speakers]
    remarks = []
    if other:
        names = " and ".join(name for name, _ in listed[other[0]])
        remarks.append(
            f"{len(other):,} of {len(speakers):,} utterances have another speaker than in utt2spk, which is read: "
            f"{other[0]} is of {names}, and of {speakers[other[0]][0]} there"
        )
    if unlisted:
        remarks.append(f"{len(unlisted):,} utterances of utt2spk are not in it: {unlisted[0]}")
    if further:
        remarks.append(f"{len(further):,} utterances are in it and not in utt2spk, and read from it: {further[0]}")
    return "; ".join(remarks)


def _cut_texts(corpus: Corpus, path: PurePosixPath, ids: Collection[str]) -> dict[str, str]:
    """The utterances whose text seems to go on in the next line, by id, with that line.

    Such a line begins with no utterance's id, but neither does one whose recording was left out. Kaldi sorts its
    tables, so that a word is out of place; and most ids have a digit or a hyphen.
    """
    if not corpus.has(str(path)):
        return {}
    lines = [(line.split(maxsplit=1)[0], line.strip()[:60]) for _, line in corpus.read_lines(str(path))]
    known = [id for id, _ in lines if id in ids]
    are_sorted = len(known) >= SORTED and all(id <= later for id, later in itertools.pairwise(known))
    are_marked = all(map(_MARK.search, known))

    # From the last line on: a line is in place between the utterances before and behind it.
    cut: dict[str, str] = {}
    behind = itertools.accumulate(reversed(lines), lambda later, line: line[0] if line[0] in ids else later, initial="")
    before = ""
    for (id, line), later in zip(lines, reversed([*behind][:-1]), strict=True):
        if id in ids:
            before = id
            continue
        is_in_place = before < id and (not later or id < later)
        if before and ((are_sorted and not is_in_place) or (are_marked and not _MARK.search(id))):
            cut.setdefault(before, line)
    return cut


def _span(line: str, source: str) -> _Span | None:
    try:
        recording, start, end, *more = line.split()
        channel = more[0] if more else ""
        if len(more) > 1 or (more and parse_channel(channel) is None):
            return None
        offset = float(start)
        until = float(end)
    except ValueError:
        return None
    if not 0 <= offset < float("inf") or not (until == -1 or offset < until < float("inf")):
        return None
    # Kaldi writes -1 for "to the end". Rounding keeps 3.2 - 0.5 from being 2.7000000000000002.
    return _Span(recording, source, offset, None if until == -1 else round(until - offset, 6), channel)


def _fault(wav: str) -> str:
    if wav.endswith("|") or wav.startswith("|"):
        return "a command, and commands are never run; run it yourself, and name the file that it writes"
    if wav == "-":
        return "the standard input; name a file"
    stem, _, offset = wav.rpartition(":")
    if stem and offset.isdecimal():
        return "an offset in a Kaldi archive; copy the recordings to files, as in: wav-copy scp:wav.scp ..."
    return ""


def _base_folder(corpus: Corpus, folder: PurePosixPath, wav: str) -> str:
    """Kaldi's paths are relative to the folder in which its recipe runs: the root, or else the data folder."""
    return "" if corpus.has(PurePosixPath(wav).as_posix()) else folder.as_posix()

"""THCHS-30: 30 hours of Mandarin, read by 40 students in a quiet office, 16 kHz WAV.

By Dong Wang, Xuewei Zhang and Zhiyong Zhang, https://www.openslr.org/18, Apache License 2.0:

    data_thchs30/data/A11_0.wav
    data_thchs30/data/A11_0.wav.trn       hanzi, pinyin and phones, a line each
    data_thchs30/train/A11_0.wav.trn      a link into data/, or a file with the path: ../data/A11_0.wav.trn
    doc/trans/train.syllable.txt          A11_000 lv4 shi4 …   (and the hanzi in train.word.txt)

The root may be any folder above these. A .trn takes precedence over doc/trans. The folders train, dev and test are the
splits; without them, the names of the lists in doc/trans. The text is the hanzi, with spaces between words;
`corpus.text_key: pinyin` takes the syllables instead, and the manifest has both as `hanzi` and `pinyin`. The
publisher's archive has links, which Voxline does not unpack: unpack it with tar, and give the folder.
"""

import dataclasses
import posixpath
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from voxline.components.ingest.corpus import Corpus, CorpusEntry, recordings_by_name
from voxline.errors import WorkError
from voxline.rejects import Reason, Reject

SPLITS = ("train", "dev", "cv", "test")
TRANSCRIPT = ".wav.trn"

# A11_0.wav in one place is A11_000 in another, and A2_7 is A02_007.
_NUMBERED = re.compile(r"(?P<group>[A-Za-z]+)0*(?P<speaker>\d+)_0*(?P<number>\d+)")
_LIST = re.compile(r"(?P<split>\w+)\.(?P<kind>syllable|word)\.txt")


@dataclasses.dataclass(slots=True)
class _Parts:
    """One utterance, collected from the files that have parts of it."""

    id: str
    audio: str = ""
    hanzi: str = ""
    pinyin: str = ""
    phones: str = ""
    source: str = ""
    splits: set[str] = dataclasses.field(default_factory=set)
    listed: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    faults: list[str] = dataclasses.field(default_factory=list)


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every utterance that has a recording or a transcript; rejects those without both.

    Raises:
      WorkError: there is neither a .wav.trn nor a list of syllables.
    """
    utterances: dict[str, _Parts] = {}
    transcripts = list(corpus.find(TRANSCRIPT))
    lists = [(path, name) for path in corpus.find(".txt") if (name := _LIST.fullmatch(path.name))]
    if not transcripts and not lists:
        raise WorkError(f"{corpus.root}: no {TRANSCRIPT} and no *.syllable.txt in this folder; check corpus.format")

    # Transcripts first, as they win over the lists.
    for path in transcripts:
        _read_transcript(corpus, path, _parts_of(utterances, path.name[: -len(TRANSCRIPT)], path))
    for path, name in lists:
        _read_list(corpus, path, name["split"], name["kind"], utterances)

    for audio in recordings_by_name(corpus).values():
        parts = _parts_of(utterances, audio.stem, audio)
        if not parts.audio or audio.parent.name not in SPLITS:  # data/ has the recording, train/ a link to it
            parts.audio = audio.as_posix()

    for parts in utterances.values():
        yield _entry(parts)


def _parts_of(utterances: dict[str, _Parts], id: str, path: PurePosixPath | None = None) -> _Parts:
    """The parts of the utterance with an id, whatever the padding of its numbers; adds the split of the path."""
    numbered = _NUMBERED.fullmatch(id)
    name = "{group}{speaker}_{number}".format(**numbered.groupdict()) if numbered else id
    parts = utterances.setdefault(name, _Parts(name))
    if path and path.parent.name in SPLITS:
        parts.splits.add(path.parent.name)
    return parts


def _read_transcript(corpus: Corpus, path: PurePosixPath, parts: _Parts) -> None:
    try:
        lines = [line.strip() for line in corpus.read_text(str(path)).split("\n")]
    except WorkError as error:
        parts.faults.append(str(error))
        return

    while lines and not lines[-1]:
        lines.pop()

    # A copy without links has the link's target as a text in its place; data/ has the words.
    if len(lines) == 1 and lines[0].endswith(".trn"):
        target = posixpath.normpath((path.parent / lines[0]).as_posix())
        if target not in corpus.files:
            parts.faults.append(f"{path}: leads to {lines[0]}, which does not exist")
        return

    # A11_0.wav.trn:
    #   绿 是 阳春 烟 景
    #   lv4 shi4 yang2 chun1 yan1 jing3
    #   l v4 sh ix4 ii iang2 ch un1 ii ian1 j ing3
    # Without any line nobody speaks, which convert accepts or rejects.
    lines = lines or ["", ""]
    if len(lines) not in (2, 3):
        parts.faults.append(f"{path}: {len(lines)} lines; accepted: hanzi, pinyin and phones, a line each")
        return

    texts = (lines[0], lines[1], lines[2] if len(lines) == 3 else "")
    if parts.source and texts != (parts.hanzi, parts.pinyin, parts.phones):
        parts.faults.append(f"{path}: other words than in {parts.source}")
    parts.hanzi, parts.pinyin, parts.phones = texts
    parts.source = str(path)


def _read_list(corpus: Corpus, path: PurePosixPath, split: str, kind: str, utterances: dict[str, _Parts]) -> None:
    # train.syllable.txt:  A11_000 lv4 shi4 yang2 chun1 yan1 jing3
    for number, line in corpus.read_lines(str(path)):
        id, *texts = line.split(maxsplit=1)
        text = texts[0] if texts else ""
        parts = _parts_of(utterances, id)
        if (kind, split) in parts.listed:
            parts.faults.append(f"{path}:{number}: {id} is in this list twice")

        parts.listed.add((kind, split))

        if not parts.source.endswith(".trn"):
            parts.source = parts.source or f"{path}:{number}"
            if kind == "word":
                parts.hanzi = text.strip()
            else:
                parts.pinyin = text.strip()


def _entry(parts: _Parts) -> CorpusEntry | Reject:
    splits = parts.splits or {split for _, split in parts.listed}
    if len(splits) > 1:
        parts.faults.append(f"{parts.id} is in {' and in '.join(sorted(splits))}; one split is accepted")

    if parts.faults:
        return Reject(parts.id, Reason.BAD_ENTRY, "; ".join(parts.faults))
    if not parts.source:
        return Reject(parts.id, Reason.TRANSCRIPT_MISSING, f"{parts.audio}: no {TRANSCRIPT} and no list has its words")

    texts = {"hanzi": parts.hanzi, "pinyin": parts.pinyin, "phones": parts.phones}
    return CorpusEntry(
        id=parts.id,
        audio=parts.audio or f"{parts.id}.wav",
        text=parts.hanzi or parts.pinyin,
        speaker=parts.id.partition("_")[0],
        split="".join(splits) or "data",
        source=parts.source,
        extra={key: text for key, text in texts.items() if text or not (parts.hanzi or parts.pinyin)},
    )

"""THCHS-30: 30 hours of Mandarin, read by 40 students in a quiet office, 16 kHz WAV.

By Dong Wang, Xuewei Zhang and Zhiyong Zhang, https://www.openslr.org/18, Apache License 2.0:

    data_thchs30/data/A11_0.wav
    data_thchs30/data/A11_0.wav.trn       hanzi, pinyin and phones, a line each
    data_thchs30/train/A11_0.wav.trn      a link into data/, or a file that holds the way: ../data/A11_0.wav.trn
    doc/trans/train.syllable.txt          A11_000 lv4 shi4 …   (and train.word.txt with the hanzi)

The root may be any folder above these. What stands in a .trn wins over doc/trans. The folders train, dev and test
are the splits; without them, the names of the lists in doc/trans. The text is the hanzi, words parted by spaces as
there; `corpus.text: pinyin` takes the syllables instead, and both stay as `hanzi` and `pinyin`. The publisher's
archive holds links, which are not unpacked here: unpack it with tar, and give the folder.
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
class _Spoken:
    """What the corpus has of one utterance, put together from its several places."""

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
    """Every recording, and every transcript, whether or not it has its other half.

    Raises:
      WorkError: there is neither a .wav.trn nor a list of syllables.
    """
    spoken: dict[str, _Spoken] = {}
    transcripts = list(corpus.visible(TRANSCRIPT))
    lists = [(path, name) for path in corpus.visible(".txt") if (name := _LIST.fullmatch(path.name))]
    if not transcripts and not lists:
        raise WorkError(f"{corpus.root}: no {TRANSCRIPT} and no *.syllable.txt in this folder; check corpus.format")
    yield from corpus.closed_doors()
    for path in transcripts:
        _read_transcript(corpus, path, _of(spoken, path.name[: -len(TRANSCRIPT)], path))
    for path, name in lists:
        _read_list(corpus, path, name["split"], name["kind"], spoken)
    for audio in recordings_by_name(corpus).values():
        one = _of(spoken, audio.stem, audio)
        if (
            not one.audio or audio.parent.name not in SPLITS
        ):  # the same recording stands in data/ and, linked, in train/
            one.audio = audio.as_posix()
    for one in spoken.values():
        yield _entry(one)


def _of(spoken: dict[str, _Spoken], id: str, path: PurePosixPath | None = None) -> _Spoken:
    """The utterance of that id, however its numbers are padded; notes the split where the folder is one."""
    numbered = _NUMBERED.fullmatch(id)
    name = "{group}{speaker}_{number}".format(**numbered.groupdict()) if numbered else id
    one = spoken.setdefault(name, _Spoken(name))
    if path and path.parent.name in SPLITS:
        one.splits.add(path.parent.name)
    return one


def _read_transcript(corpus: Corpus, path: PurePosixPath, one: _Spoken) -> None:
    try:
        lines = [line.strip() for line in corpus.text(str(path)).split("\n")]
    except WorkError as error:
        one.faults.append(str(error))
        return
    while lines and not lines[-1]:
        lines.pop()
    if len(lines) == 1 and lines[0].endswith(".trn"):
        led_to = posixpath.normpath((path.parent / lines[0]).as_posix())
        if led_to not in corpus.files:
            one.faults.append(f"{path}: leads to {lines[0]}, which is not there")
        return
    # A11_0.wav.trn:
    #   绿 是 阳春 烟 景
    #   lv4 shi4 yang2 chun1 yan1 jing3
    #   l v4 sh ix4 ii iang2 ch un1 ii ian1 j ing3
    if len(lines) not in (2, 3):
        one.faults.append(f"{path}: {len(lines)} lines; accepted: hanzi, pinyin and phones, a line each")
        return
    found = (lines[0], lines[1], lines[2] if len(lines) == 3 else "")
    if one.source and found != (one.hanzi, one.pinyin, one.phones):
        one.faults.append(f"{path}: other words than in {one.source}")
    one.hanzi, one.pinyin, one.phones = found
    one.source = str(path)


def _read_list(corpus: Corpus, path: PurePosixPath, split: str, kind: str, spoken: dict[str, _Spoken]) -> None:
    # train.syllable.txt:  A11_000 lv4 shi4 yang2 chun1 yan1 jing3
    for number, line in corpus.lines(str(path)):
        id, text, *_ = *line.split(maxsplit=1), ""
        one = _of(spoken, id)
        if (kind, split) in one.listed:
            one.faults.append(f"{path}:{number}: {id} stands in this list twice")
        one.listed.add((kind, split))
        if not one.source.endswith(".trn"):
            one.source = one.source or f"{path}:{number}"
            if kind == "word":
                one.hanzi = text.strip()
            else:
                one.pinyin = text.strip()


def _entry(one: _Spoken) -> CorpusEntry | Reject:
    splits = one.splits or {split for _, split in one.listed}
    if len(splits) > 1:
        one.faults.append(f"{one.id} stands in {' and in '.join(sorted(splits))}; one split is accepted")
    if one.faults:
        return Reject(one.id, Reason.BAD_ENTRY, "; ".join(one.faults))
    if not one.source:
        return Reject(one.id, Reason.TRANSCRIPT_MISSING, f"{one.audio}: no {TRANSCRIPT} and no list has its words")
    if not (one.hanzi or one.pinyin):
        return Reject(one.id, Reason.TRANSCRIPT_MISSING, f"{one.source}: it is empty")
    texts = {"hanzi": one.hanzi, "pinyin": one.pinyin, "phones": one.phones}
    return CorpusEntry(
        id=one.id,
        audio=one.audio or f"{one.id}.wav",
        text=one.hanzi or one.pinyin,
        speaker=one.id.partition("_")[0],
        split="".join(splits) or "data",
        source=one.source,
        extra={key: text for key, text in texts.items() if text},
    )

"""LJSpeech: 24 hours of one voice reading seven non-fiction books of 1884 to 1964, 22.05 kHz WAV.

By Keith Ito and Linda Johnson, https://keithito.com/LJ-Speech-Dataset, public domain. Many corpora for
synthesis copy its layout:

    LJSpeech-1.1/metadata.csv
    LJSpeech-1.1/wavs/LJ001-0001.wav

The root may be that folder or one above it. The corpus does not name the speaker, so the name of the folder does. An
id up to its last hyphen is a section of a book (LJ001), and counts as a split of the corpus:
`splits: {test: [LJ001], dev: [LJ002], train: [LJ00[3-9], LJ0[1-5]?]}`; or split by utterance.

Others write other fields, which the first lines of a table tell apart: two fields, as Coqui's guide does (id|text);
a path for the id; Piper's path|speaker|text; CSS10's four fields, the last a length; a third field that is no reading
of the second, but a length, a speaker, an emotion, a language or phonemes. The text is then the second field, and the
third is kept. A third field that spells the second in other letters, such as romanized Hindi, is the text.
"""

import collections
import dataclasses
import difflib
import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePosixPath

from voxline.components.ingest.corpus import (
    AUDIO_EXTENSIONS,
    Corpus,
    CorpusEntry,
    cut_text,
    is_like_a_name,
    normalized_name,
    recordings_by_name,
)
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.rejects import Reason, Reject

METADATA = "metadata.csv"
WAVS = "wavs"
SAMPLE = 200
"""Lines of a table by which its fields are distinguished."""
FEW = 5
"""Lines from which on the names of a table are known by their shape."""
MOST = 0.9
"""Share of these lines that have what a field is taken for."""
ALIKE = 0.5
"""Likeness of two fields (0 to 1) from which on one may be a reading of the other; numbers are read out."""
AGREEING = 0.8
"""Share of first letters of words that have one letter in another script, if that is a transliteration."""
MOST_COMPARED = 500
"""Characters of a field that are compared: the time grows with their square."""

SPLIT = "split"
LABELS = {
    "language": (
        "af am ar as az be bg bn bs ca cs cy da de el en eo es et eu fa fi fil fr ga gl gu ha he hi hr hu hy id ig is "
        "it ja jv ka kk km kn ko ku ky lb lo lt lv mg mi mk ml mn mr ms mt my ne nl no nb nn oc pa pl ps pt ro ru rw "
        "sd si sk sl sn so sq sr sv sw ta te tg th ti tk tl tr tt ug uk ur uz vi wo xh yi yo yue zh zu deu eng fra spa "
        "ita por nld rus cmn zho jpn kor ara hin tur pol ukr vie tha arabic chinese czech danish dutch english finnish "
        "french german greek hebrew hindi hungarian indonesian italian japanese korean mandarin norwegian persian "
        "polish portuguese romanian russian spanish swedish thai turkish ukrainian vietnamese 中文 英文 普通话 粤语"
    ),
    "emotion": (
        "neutral calm happy happiness joy joyful sad sadness angry anger fear fearful scared disgust disgusted "
        "surprise surprised excited frustrated bored boredom sleepy sleepiness tired amused amusement contempt whisper "
        "shouting cheerful friendly serious hopeful terrified unfriendly narration conversational 中性 中立 平静 开心 "
        "高兴 快乐 悲伤 难过 伤心 愤怒 生气 惊讶 害怕 恐惧 厌恶"
    ),
    SPLIT: "train training dev development val valid validation test testing eval evaluation holdout",
    "sex": "m f male female man woman 男 女",
    "rating": (
        "good bad ok okay fair poor excellent great perfect best clean noisy clear unclear quiet loud valid invalid "
        "accepted rejected pass fail passed failed yes no true false high medium low 好 坏 良 差"
    ),
}
"""Values of a field that is no text and no speaker, in small letters, without a country; by the key that keeps it."""

_NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)?")
_SYLLABLES = re.compile(r"(?:(?:[zcs]h|[kgsztdnhbpmyrwjfvclqx]{1,2}y?)?[aeiouv]{1,3}(?:n(?![aeiou])|ng|r)?)+|[nmr]")
"""Of pinyin and romaji, where vowels follow nearly every consonant."""
_ARPABET = re.compile(
    r"(?=.*[AEIOU][A-Z][0-2])"
    r"(?:[\s{},.!?;:-]*(?:[AEIOU][A-Z][0-2]?|[BDFGKLMNPRSTVWYZ]|CH|DH|HH|JH|NG|SH|TH|ZH|sp|sil|SIL)(?![A-Za-z0-9]))+[\s{},.!?;:-]*"
)
"""Of CMUdict: HH AH0 L OW1, also in braces."""
_IPA = re.compile("[ˈˌːɐɑɒɔəɚɛɜɡɣɪɫɹɾʁʃʊʌʒʔθðŋæ]")


@dataclasses.dataclass(frozen=True)
class Fields:
    """The places of a line's values, counted from 0.

    Attributes:
      count: fields of a line.
      raw: of the text as printed, which is kept; None: there is none.
      speaker: None: the name of the folder.
      split: None: the id up to its last hyphen.
      extra: key of the manifest's line → the place of its value.
    """

    count: int
    text: int
    raw: int | None = None
    speaker: int | None = None
    split: int | None = None
    extra: dict[str, int] = dataclasses.field(default_factory=dict)


LJSPEECH = Fields(count=3, text=2, raw=1)


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every line of every metadata.csv, and rejects every recording next to one that no line names.

    Raises:
      WorkError: there is no metadata.csv, or the third field of one is no text, and nothing else that is known.
    """
    tables = [path for path in corpus.find(METADATA) if path.name == METADATA]
    if not tables:
        raise WorkError(f"{corpus.root}: no {METADATA} in this folder; check corpus.format")
    recordings = recordings_by_name(corpus)
    named: set[str] = set()

    for table in tables:
        sample = [_split(line) for _, line in itertools.islice(corpus.read_lines(str(table)), SAMPLE)]
        fields = tell_fields(sample, f"{corpus.root / table}")
        whole = [values[0] for values in sample if len(values) == fields.count]
        shapes = set(map(_shape, whole)) if len(whole) >= FEW else set()
        last: CorpusEntry | Reject | None = None
        for number, line in corpus.read_lines(str(table)):
            entry = _entry(line, fields, corpus, table, recordings, f"{table}:{number}")
            if isinstance(entry, CorpusEntry):
                named.add(normalized_name(PurePosixPath(entry.audio).with_suffix("")))
            else:
                named.add(normalized_name(_stem(table, entry.id, recordings)))

            # The last field of a line is whole, also where a line feed within it has cut it.
            if last and _goes_on(line, fields, table, recordings, shapes):
                last = cut_text(last, line)
            if last:
                yield last
            last = entry
        if last:
            yield last

    # Only beside a table: other folders may hold recordings that are not of this layout.
    folders = {table.parent / WAVS for table in tables}
    for name, audio in recordings.items():
        if name not in named and audio.parent in folders:
            detail = f"{audio}: no line of {audio.parents[1] / METADATA} names it"
            yield Reject(audio.stem, Reason.TRANSCRIPT_MISSING, detail)


def _goes_on(
    line: str, fields: Fields, table: PurePosixPath, recordings: dict[str, PurePosixPath], shapes: Collection[str]
) -> bool:
    """True if a line seems to be the rest of the one before: it has too few fields, and names no recording.

    Args:
      shapes: of the table's ids; empty: not known.
    """
    values = _split(line)
    if len(values) >= fields.count or (is_like_a_name(line) and (not shapes or _shape(values[0]) in shapes)):
        return False
    names = {values[0] or "/", re.split(r"[\t,;]", values[0])[0] or "/"}  # perhaps with another separator
    return not any(normalized_name(_stem(table, name, recordings)) in recordings for name in names)


def _shape(name: str) -> str:
    """What names of a series have in common: LJ001-0002 is A9-9."""
    return re.sub(r"\d+", "9", re.sub(r"[^\W\d_]+", "A", name))


def tell_fields(rows: Sequence[Sequence[str]], table: str) -> Fields:
    """Tells what the fields of a table are, by its first lines, and says so where they are not LJSpeech's.

    Args:
      table: for messages.

    Raises:
      WorkError: the third field is neither a reading of the second nor anything that is known.
    """
    counts = [len(row) for row in rows]
    count = max(set(counts), key=lambda count: (counts.count(count), count)) if counts else LJSPEECH.count
    rows = [row for row in rows if len(row) == count]

    if count == 2:
        print_status(f"{table}: two fields, an id and a text")
        return Fields(count=2, text=1)
    if rows and count == 1:
        _refuse_separator(rows, table)
    if rows and count == 4 and (fields := _tell_four(rows, table)):
        return fields
    if rows and count > 3:
        raise WorkError(
            f"{table}: {count} fields, such as {'|'.join(rows[0])[:80]!r}; an id, a text and its reading are "
            "accepted, and a length or a speaker behind them; give the table a header that names its columns, and "
            "corpus.format csv"
        )
    return _tell_three(rows, table) if rows and count == 3 else LJSPEECH


def _tell_four(rows: Sequence[Sequence[str]], table: str) -> Fields | None:
    """Tells the first three fields as if they were all, and the last by itself; None if the last is nothing known."""
    # The last field first: it is none of the three that LJSpeech has.
    values = [row[3] for row in rows]
    label = "length" if _most(rows, 3, _NUMBER.fullmatch) else _label(values)
    if label != "length" and (len(rows) == 1 or not (label or _are_names(values))):
        return None
    print_status(f"{table}: four fields, the last {_what(label)}")
    fields = dataclasses.replace(_tell_three([row[:3] for row in rows], table), count=4)
    if label == SPLIT:
        return dataclasses.replace(fields, split=3)
    if label:
        return dataclasses.replace(fields, extra={**fields.extra, label: 3})
    if fields.speaker is not None:
        raise WorkError(
            f"{table}: two fields may be the speaker, {rows[0][fields.speaker]!r} and {values[0]!r}; give the table a "
            "header that names its columns, and corpus.format csv"
        )
    return dataclasses.replace(fields, speaker=3)


def _what(label: str) -> str:
    if label == SPLIT:
        return "the split"
    return f"{'a' if label == 'length' else 'of the'} {label}, which is kept" if label else "a speaker"


def _tell_three(rows: Sequence[Sequence[str]], table: str) -> Fields:
    seconds = [row[1] for row in rows]
    thirds = [row[2] for row in rows]

    # Piper's speakers may be numbers. Those that are read out have as many readings, or a few more.
    numbered = _most(rows, 1, _NUMBER.fullmatch) and not _most(rows, 2, _NUMBER.fullmatch)
    if numbered and ((_are_names(seconds) and len(set(thirds)) >= 2 * len(set(seconds))) or _are_spoken_by(rows)):
        print_status(f"{table}: the fields are a path, a speaker and a text, as Piper writes them")
        return Fields(count=3, text=2, speaker=1)

    # These have some letters of the text.
    if _most(rows, 2, _ARPABET.fullmatch):
        print_status(
            f"{table}: the third field has phonemes of CMUdict; they are kept, and the second field is the text"
        )
        return Fields(count=3, text=1, extra={"phonemes": 2})

    # A reading in other letters, such as pinyin or kana, cannot be compared; other letters are a translation.
    alike = [
        _are_alike(*pair) if _scripts(pair[0]) == _scripts(pair[1]) else _spells(*pair)
        for pair in zip(seconds, thirds, strict=True)
        if all(pair)
    ]
    if not any(thirds) or (alike and sum(alike) >= ALIKE * len(alike)):
        return LJSPEECH
    if _transliterates(seconds, thirds):
        print_status(
            f"{table}: the third field spells the second in other letters, and is the text, as the reading of LJSpeech "
            "is; to read the second, give the table a header that names its columns, and corpus.format csv"
        )
        return LJSPEECH
    if _most(rows, 2, _NUMBER.fullmatch):
        print_status(f"{table}: the third field is a number and no text; it is kept, and the second is the text")
        return Fields(count=3, text=1, extra={"length": 2})
    if _most(rows, 2, _IPA.search):
        print_status(f"{table}: the third field has phonemes; they are kept, and the second field is the text")
        return Fields(count=3, text=1, extra={"phonemes": 2})

    # Of one row nobody can tell; commands of a word each are no labels.
    if label := _label(thirds) if len(rows) > 1 and len(set(thirds)) < len(set(seconds)) else "":
        print_status(f"{table}: the third field is the {label}; it is kept, and the second is the text")
        return Fields(count=3, text=1, split=2) if label == SPLIT else Fields(count=3, text=1, extra={label: 2})
    if label := _label(seconds) if len(rows) > 1 and len(set(seconds)) < len(set(thirds)) else "":
        print_status(f"{table}: the second field is the {label}; it is kept, and the third is the text")
        return Fields(count=3, text=2, split=1) if label == SPLIT else Fields(count=3, text=2, extra={label: 1})

    # A speaker is a name without spaces, of which there are far fewer than texts.
    if _are_names(seconds) and len(set(seconds)) < len(set(thirds)):
        print_status(f"{table}: the fields are a path, a speaker and a text, as Piper writes them")
        return Fields(count=3, text=2, speaker=1)
    if _are_names(thirds) and len(set(thirds)) < len(set(seconds)):
        print_status(f"{table}: the third field is a speaker, and the second the text")
        return Fields(count=3, text=1, speaker=2)
    if not alike:
        return LJSPEECH
    example = next(
        row for row, is_alike in zip((row for row in rows if all(row[1:])), alike, strict=True) if not is_alike
    )
    raise WorkError(
        f"{table}: the third field should be a reading of the second, and it is {example[2][:80]!r} for "
        f"{example[1][:80]!r}; give the table a header that names its columns, and corpus.format csv"
    )


def _refuse_separator(rows: Sequence[Sequence[str]], table: str) -> None:
    """Refuses a table most of whose lines have another separator, as spreadsheets write them, and no bar.

    Raises:
      WorkError: they have.
    """
    for separator, name in (("\t", "a tab"), (";", "a semicolon"), (",", "a comma")):
        if _most(rows, 0, lambda line, separator=separator: separator in line):  # type: ignore[misc]
            raise WorkError(
                f"{table}: its lines have no | between their fields, but {name}: {rows[0][0][:80]!r}; give it a first "
                "line that names its columns, such as path and text, and corpus.format csv"
            )


def _most(rows: Sequence[Sequence[str]], place: int, has: Callable[[str], object]) -> bool:
    return sum(bool(has(row[place])) for row in rows) >= MOST * len(rows)


def _are_alike(text: str, reading: str) -> bool:
    """True if one may be a reading of the other: the same letters for the most part, or numbers that are read out."""
    printed, spoken = ("".join(filter(str.isalpha, value[:MOST_COMPARED].lower())) for value in (text, reading))
    if not spoken or printed == spoken:
        return printed == spoken and not (reading.isdecimal() and text != reading)
    # A number has fewer letters than its words; a speaker's name has fewer than a text.
    if re.search(r"(?<!\w)\d", text) and not re.search(r"[\d_]", reading) and len(spoken) >= len(printed):
        return True
    return difflib.SequenceMatcher(None, printed, spoken, autojunk=False).ratio() >= ALIKE


def _spells(text: str, reading: str) -> bool:
    """True if a reading may spell out a text of ideographs or digits: in kana, hangul or bopomofo, pinyin or romaji.

    >>> _spells("你好吗", "ni3 hao3 ma5"), _spells("電車が来た", "densha ga kita"), _spells("你好", "Good day.")
    (True, True, False)
    """
    if not re.search("[\u3400-\u9fff]", text):
        # Numbers are read out in any letters.
        return bool(re.search(r"\d", text)) and not re.search(r"\d", reading)
    letters = re.sub(r"[\W\d_]+", "", reading)
    if re.fullmatch("[\u3040-\u30ff\u3100-\u312f\uac00-\ud7af]+", letters):
        return True
    plain = "".join(
        letter for letter in unicodedata.normalize("NFD", reading.lower()) if not unicodedata.combining(letter)
    )
    return all(map(_SYLLABLES.fullmatch, re.findall(r"[^\W\d_]+", plain)))


def _transliterates(texts: Sequence[str], readings: Sequence[str]) -> bool:
    """True if readings in another script have the words of the texts: as many, whose first letters go together.

    >>> _transliterates(["да нет", "дом на небе", "не да"], ["da net", "dom na nebe", "ne da"])
    True
    >>> _transliterates(["да нет", "дом на небе", "не да"], ["yes no", "a house above", "not yes"])
    False
    """
    pairs = [pair for pair in zip(texts, readings, strict=True) if all(pair) and _scripts(pair[0]) != _scripts(pair[1])]
    initials: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    alike = 0
    for text, reading in pairs:
        words, spelled = (
            [next(filter(str.isalpha, word)) for word in value.lower().split() if any(map(str.isalpha, word))]
            for value in (text, reading)
        )
        if len(words) == len(spelled):
            alike += 1
            for first, other in zip(words, spelled, strict=True):
                initials[first][other] += 1

    # A letter that is there once agrees with any; names of a few speakers agree with all.
    repeated = [others for others in initials.values() if others.total() > 1]
    others = {letter for counts in initials.values() for letter in counts}
    agreeing = sum(max(counts.values()) for counts in repeated)
    is_consistent = repeated and agreeing >= AGREEING * sum(counts.total() for counts in repeated)
    return bool(is_consistent) and alike >= MOST * len(pairs) and len(others) * 2 >= len(initials) >= 2


def _scripts(text: str) -> tuple[bool, bool]:
    """Whether most letters of a text are Latin, and whether it has ideographs, which kana and hangul may read out."""
    letters = [character for character in text if character.isalpha()]
    is_latin = sum(character < "\u0370" for character in letters) * 2 >= len(letters)
    return is_latin, any("\u3400" <= character <= "\u9fff" for character in letters)


def _are_names(values: Sequence[str]) -> bool:
    """True if most are single words, each of several lines."""
    words = [value for value in values if value and not re.search(r"\s", value)]
    return len(words) >= MOST * len(values) and len(set(words)) <= max(1, len(words) / 2)


def _are_spoken_by(rows: Sequence[Sequence[str]]) -> bool:
    """True if a second field that is there again has another third field each time: a speaker, and no number."""
    thirds: dict[str, list[str]] = collections.defaultdict(list)
    for row in rows:
        thirds[row[1]].append(row[2].lower())
    repeated = [texts for texts in thirds.values() if len(texts) > 1]
    return bool(repeated) and all(len({*texts}) == len(texts) and " " in "".join(texts) for texts in repeated)


def _label(values: Sequence[str]) -> str:
    """The key of values that are all emotions, languages or sexes; empty if they are something else.

    >>> _label(["de_DE", "en"]), _label(["Happy", "neutral"]), _label(["F", "m"]), _label(["ann", "bob"])
    ('language', 'emotion', 'sex', '')
    """
    # A language may have a country behind it.
    words = {re.sub(r"[-_]([a-z]{2,4}|\d{3})$", "", value.strip().lower()) for value in values}
    return next((label for label, values_ in LABELS.items() if words <= {*values_.split()}), "")


def _split(line: str) -> list[str]:
    return [field.strip() for field in line.split("|")]


def _entry(
    line: str,
    fields: Fields,
    corpus: Corpus,
    table: PurePosixPath,
    recordings: dict[str, PurePosixPath],
    source: str,
) -> CorpusEntry | Reject:
    # An id, the text as printed and the text as read, separated by | and never quoted:
    #   LJ001-0007|the earliest book printed, about 1455,|the earliest book printed, about fourteen fifty-five,
    values = _split(line)
    name = values[0]
    if len(values) != fields.count or not name:
        # Without any | the first field is the whole line, not an id.
        detail = f"{source}: {len(values)} fields in {line[:80]!r}, the table has {fields.count}"
        accepted = "" if fields != LJSPEECH else "; accepted: id|text|normalized text, separated by |"
        return Reject((name if len(values) > 1 else "") or source, Reason.BAD_ENTRY, detail + accepted)

    stem = _stem(table, name, recordings)
    folders = (table.parent / WAVS, table.parent)
    id = next((stem.relative_to(folder).as_posix() for folder in folders if stem.is_relative_to(folder)), name)
    text = values[fields.text]
    # Without any text nobody speaks, which convert accepts or rejects; a reading alone was forgotten.
    if not text and fields.raw is not None and values[fields.raw]:
        place = "third field, the normalized text," if fields == LJSPEECH else "text"
        return Reject(id, Reason.TRANSCRIPT_MISSING, f"{source}: the {place} is empty")

    extra = {key: values[place] for key, place in fields.extra.items()}
    if fields.raw is not None:
        extra = {"raw": values[fields.raw], **extra}
    return CorpusEntry(
        id=id,
        audio=recordings.get(normalized_name(stem), PurePosixPath(f"{stem}.wav")).as_posix(),
        text=text,
        speaker=(values[fields.speaker] if fields.speaker is not None else "") or table.parent.name or corpus.name,
        split=id.rpartition("-")[0] if fields.split is None else values[fields.split],
        source=source,
        extra=extra,
    )


def _stem(table: PurePosixPath, name: str, recordings: dict[str, PurePosixPath]) -> PurePosixPath:
    """The path of a recording without its ending, however the table names it: a.wav, ./wavs/a, C:\\voice\\wavs\\a.wav.

    It is in `wavs`, unless the recording is where the table says, beside it.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    path = path.with_suffix("") if path.suffix.lower() in AUDIO_EXTENSIONS else path

    # What is above the folder is another machine's.
    folders = path.parts[:-1]
    if WAVS in folders:
        path = path.relative_to(PurePosixPath(*folders[: len(folders) - folders[::-1].index(WAVS)]))

    stem = table.parent / WAVS / path
    beside = table.parent / path
    if normalized_name(stem) not in recordings and normalized_name(beside) in recordings:
        return beside
    return stem

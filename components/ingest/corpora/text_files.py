"""A text beside each recording, as people keep their own recordings, and as VCTK, LibriTTS and TIMIT come.

    1.wav, 1.txt                                                          side by side (or 1.lab)
    wav48_silence_trimmed/p225/p225_001_mic1.flac, txt/p225/p225_001.txt  VCTK: two trees
    train-clean-100/103/1241/103_1241_000000_000001.wav, .normalized.txt  LibriTTS; .original.txt is kept as `raw`

A text in another tree has the path of its recording but for one folder; a text in a folder of recordings belongs to
that folder alone. The speaker is the folder with whose name that of the recording begins, or else its folder; a folder
train, dev or test is the split. A text with times, such as subtitles or labels, is a reject. Both microphones of VCTK
are utterances: split it by speaker, so that one of a pair is not tested on what the other was trained on.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from voxline.components.ingest.corpus import Corpus, CorpusEntry, normalized_name, recordings_by_name
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.rejects import Reason, Reject

ENDINGS = (".normalized.txt", ".txt", ".lab")
"""Of a text; the first is preferred where a recording has several."""
ORIGINAL = ".original.txt"
SAMPLE = 200
"""Texts by which samples in front of the words are seen."""
MOST = 0.9
"""Share of these that have them."""
MOST_LINES = 3
"""Of a .lab; more are a label of each sound, as speech synthesis has them."""

_FORMS = {
    "subtitles (SRT or WebVTT), with times": r"WEBVTT|(?s:.*?)(?:\d+:)?\d+:\d+[.,]\d+\s*-->",
    "lyrics with times (LRC)": r"(?:\s*\[[a-z]+:[^\]\n]*\]\n)*\s*\[\d+:\d+(?:[.:]\d+)?\]",
    "segments with times (STM or CTM)": (
        r"(?:;;[^\n]*\n)*\S+[ \t]+\w+[ \t]+(?:\S+[ \t]+)?\d+\.\d+[ \t]+\d+\.\d+[ \t]+\S"
    ),
    "a TextGrid of Praat": r'\s*(?:File type = )?"ooTextFile',
    "JSON": r'\s*(?:\{\s*"[^"\n]*"\s*:|\[\s*\{\s*")',
    "a document of XML or HTML": r"\s*<(?:\?xml|!doctype|html|body|annotation|trans|tt)\b",
    "a document in RTF": r"\{\\rtf",
    "a transcript of CHAT, with headers and who speaks": r"\s*@(?:UTF8|Begin|PID:|Window:|Languages:)",
}
_KEYS = r"(?:text|transcript(?:ion)?|sentence|speaker|utterance|id|file|audio|duration|language|gender|age)\s?[:=]"
_WHO = r"(?:unknown )?(?:speaker|participant|interviewe[re]r?|moderator|host|guest|agent|customer|caller)\b"
_FORMS |= {
    "fields with names": rf"\s*#\s?\w+\s?[:=][^\n]*\n|\s*{_KEYS}[^\n]*\n\s*{_KEYS}",
    "who speaks, and when": (
        rf"\s*{_WHO}[ _#]?(?:\d{{1,3}}|[a-z])?:?\s+[\[(]?(?:\d{{1,2}}:)?\d{{1,2}}:\d\d[\])]?[^\S\n]*\n"
    ),
}
_NO_TEXTS = {form: re.compile(pattern, re.IGNORECASE) for form, pattern in _FORMS.items()}
"""What a text file may hold besides a transcript, by its beginning; it has times or marks that nobody speaks."""
_CLOCKED = re.compile(r"\s*[\[(<]?(?:\d+:)?\d+:\d\d(?:[.,]\d+)?[\])>]?[\s:-]")
"""A time in front of a line; several such lines are no transcript."""
_LABELLED = re.compile(r"\s*\d+[.,]\d+\s+\d+[.,]\d+(?:\s|$)")
"""A line of a label track."""
_FREQUENCIES = re.compile(r"\\\s+[-\d]")

_MICROPHONE = re.compile(r"_mic\d$")
_SAMPLES = re.compile(r"\d+\s+\d+\s+(?=\S)")
"""TIMIT: `0 46797 She had your dark suit`."""
_SPLIT = re.compile(
    r"(?:train|dev|valid|test|eval)(?:ing|elopment|idation|ation|uation|_?sets?|_?data)?(?:[\W\d_].*)?", re.IGNORECASE
)
_SESSION = re.compile(
    r"(?:session|sess|ses|chapter|chap|take|part|day|week|visit|round|disc|disk|cd|tape|volume|vol|batch|section|scene|"
    r"story|book|set|run|block|list|rec)s?[\W_]*\d*[a-z]?|\d{4}[-_.]?\d\d[-_.]?\d\d.*",
    re.IGNORECASE,
)
"""Folders of a speaker's recordings."""
_NO_SPEAKER = re.compile(r"(wavs?|audio|clips?|data|recordings?|txt|texts?|transcripts?|wav\d+.*|flac)", re.IGNORECASE)
_NO_TEXT = re.compile(
    r"(readme|licen[cs]e|copying|notes?|changelog|speakers?|.*[-_]info|index|metadata)", re.IGNORECASE
)
"""Names of files about a corpus."""

Key = tuple[int, str]
"""The place of the folder that is left out of a path, and the rest."""


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every recording with its text, and rejects recordings and texts that are alone.

    Raises:
      WorkError: no recording has a text.
    """
    recordings = recordings_by_name(corpus)
    texts = _texts(corpus)
    # A text among recordings is of one of these: ann/1.txt is not what bob says in bob/1.wav.
    with_recordings = {PurePosixPath(stem).parent for stem in recordings}
    in_trees = _in_trees([name for name in texts if PurePosixPath(name).parent not in with_recordings])
    with_both = {PurePosixPath(stem).parent for stem in recordings if _beside(stem, texts)}
    used = Counter[str]()
    pairs: list[tuple[PurePosixPath, list[str]]] = []
    for stem, audio in recordings.items():
        names = _texts_of(stem, texts, {} if PurePosixPath(stem).parent in with_both else in_trees)
        used.update(names)
        pairs.append((audio, names))
    if not used:
        raise WorkError(f"{corpus.root}: no text (*.txt, *.lab) has the name of a recording; check corpus.format")

    drop_samples = _begin_with_samples(corpus, [texts[names[0]] for _, names in pairs if names])
    # Folders of the same name in those of several speakers: ann/a/1.wav, bob/a/1.wav.
    outer: dict[str, set[str]] = {}
    for audio in recordings.values():
        for folder, name in itertools.pairwise(_speaker_folders(audio)):
            outer.setdefault(name, set()).add(folder)
    shared = frozenset(name for name, folders in outer.items() if len(folders) > 1 and not _SESSION.fullmatch(name))
    if names := sorted(shared):
        print_status(
            f"{corpus.root}: folders with the name {names[0]!r} are in several: numbers are taken for sessions of a "
            "speaker, and other names for speakers"
        )

    for audio, names in pairs:
        if not names:
            yield Reject(str(audio), Reason.TRANSCRIPT_MISSING, f"{audio}: no text has its name")
        elif len(names) > 1:
            several = ", ".join(str(texts[name]) for name in names[:3])
            yield Reject(str(audio), Reason.BAD_ENTRY, f"{audio}: {len(names)} texts have its name: {several}")
        else:
            yield _entry(corpus, audio, texts[names[0]], drop_samples, shared)

    # A text without a recording lies where others have one; notes about the corpus do not count.
    folders = {texts[name].parent for name in used}
    for name, path in texts.items():
        if not used[name] and path.parent in folders and not _NO_TEXT.fullmatch(PurePosixPath(name).name):
            yield Reject(str(path), Reason.MISSING_FILE, f"{path}: no recording has its name")


def _texts(corpus: Corpus) -> dict[str, PurePosixPath]:
    """The texts by path without ending."""
    texts: dict[str, PurePosixPath] = {}
    for ending in reversed(ENDINGS):
        for path in corpus.find(ending):
            if not path.name.lower().endswith((ORIGINAL, ".trans.txt")):
                texts[normalized_name(path.parent / path.name[: -len(ending)])] = path
    # `a.normalized.txt` ends in .txt too.
    return {name: path for name, path in texts.items() if not name.lower().endswith(".normalized")}


def _in_trees(names: Iterable[str]) -> dict[Key, list[str]]:
    """The texts by path without ending and without one of its folders."""
    in_trees: dict[Key, list[str]] = {}
    for name in names:
        for key in _without_a_folder(PurePosixPath(name)):
            in_trees.setdefault(key, []).append(name)
    return in_trees


def _without_a_folder(stem: PurePosixPath) -> Iterator[Key]:
    folders = stem.parts[:-1]
    for place in range(len(folders)):
        yield place, "/".join((*folders[:place], *folders[place + 1 :], stem.name))


def _texts_of(stem: str, texts: dict[str, PurePosixPath], in_trees: dict[Key, list[str]]) -> list[str]:
    """The texts of a recording: the one beside it, or else those whose path differs in one folder."""
    if name := _beside(stem, texts):
        return [name]
    for name in _stems(stem):
        if others := [other for key in _without_a_folder(PurePosixPath(name)) for other in in_trees.get(key, ())]:
            return list(dict.fromkeys(others))
    return []


def _beside(stem: str, texts: dict[str, PurePosixPath]) -> str:
    """The text in the folder of a recording; empty without one."""
    return next((name for name in _stems(stem) if name in texts), "")


def _stems(stem: str) -> Iterable[str]:
    """The names that a recording's text may have: its own, and that without the microphone."""
    return dict.fromkeys((stem, _MICROPHONE.sub("", stem)))


def _begin_with_samples(corpus: Corpus, paths: list[PurePosixPath]) -> bool:
    """True if the texts begin with the first and the last sample, as in TIMIT; it is said then."""
    texts = []
    for path in [path for path in paths if path.suffix.lower() != ".lab"][:SAMPLE]:
        try:
            texts.append(corpus.read_text(str(path)))
        except WorkError:
            continue  # it becomes a reject
    texts = [text for text in texts if not other_form(text)]
    has = bool(texts) and sum(bool(_SAMPLES.match(text)) for text in texts) >= MOST * len(texts)
    if has:
        print_status(f"{corpus.root}: texts begin with two numbers, as TIMIT's do; they are left out")
    return has


def _entry(
    corpus: Corpus, audio: PurePosixPath, path: PurePosixPath, drop_samples: bool, shared: frozenset[str]
) -> CorpusEntry | Reject:
    """
    Args:
      shared: names of folders that are in several.
    """
    source = str(path)
    original = path.with_name(path.name[: -len(ENDINGS[0])] + ORIGINAL)
    has_original = path.name.lower().endswith(ENDINGS[0]) and corpus.has(str(original))
    try:
        text = corpus.read_text(source)
        extra = {"raw": " ".join(corpus.read_text(str(original)).split())} if has_original else {}
    except WorkError as error:
        return Reject(str(audio), Reason.BAD_ENTRY, str(error))
    if path.suffix.lower() == ".lab" and len(text.split("\n")) > MOST_LINES:
        return Reject(str(audio), Reason.BAD_ENTRY, f"{source}: times of sounds, as it seems; a transcript is accepted")
    if form := other_form(text, path.suffix.lower() == ".lab"):
        detail = (
            f"{source}: {form}, and no transcript: {' '.join(text.split())[:60]!r}; write the words alone, or a "
            "manifest with a line of text, offset and duration (in seconds) for each part"
        )
        return Reject(str(audio), Reason.BAD_ENTRY, detail)
    if drop_samples:
        text = _SAMPLES.sub("", text, count=1)

    # A sentence may be wrapped over several lines.
    return CorpusEntry(
        id=audio.with_suffix("").as_posix(),
        audio=str(audio),
        text=" ".join(text.split()),
        speaker=_speaker(audio, shared),
        split=next((folder for folder in audio.parts[:-1] if _SPLIT.fullmatch(folder)), corpus.name),
        source=source,
        extra=extra,
    )


def other_form(text: str, is_label: bool = False) -> str:
    """The form of a file that is no transcript; empty if it may be one.

    Args:
      is_label: it ends in .lab.

    >>> other_form("1\\n00:00:00,000 --> 00:00:01,500\\nGood day.\\n")
    'subtitles (SRT or WebVTT), with times'
    >>> other_form("0.00\\t1.00\\tgood\\n1.00\\t2.00\\tday\\n"), other_form("7:30 is when we go")
    ('labels with times, as Audacity writes them', '')
    """
    for form, pattern in _NO_TEXTS.items():
        if pattern.match(text):
            return form

    # A label track has times in front of each line; of a text, a first word may be a time.
    lines = [line for line in text.split("\n") if line.strip()]
    # Audacity writes the frequencies of a selection below its times, behind a backslash.
    if lines and all(_LABELLED.match(line) for line in lines if not _FREQUENCIES.match(line)):
        return "labels with times, as Audacity writes them"
    # One such line may be TIMIT's, with samples in front of a sentence.
    if (is_label or len(lines) > 1) and all(map(_SAMPLES.match, lines)):
        return "labels with times, as HTK and TIMIT have them"
    clocked = [line for line in lines if _CLOCKED.match(line)]
    return "lines with times" if len(clocked) > 1 and len(clocked) * 2 >= len(lines) else ""


def _speaker_folders(audio: PurePosixPath) -> list[str]:
    return [name for name in audio.parts[:-1] if not _SPLIT.fullmatch(name) and not _NO_SPEAKER.fullmatch(name)]


def _speaker(audio: PurePosixPath, shared: frozenset[str] = frozenset()) -> str:
    """The folder with whose name the recording's begins (103 of 103/1241/103_1241_000000.wav), or else its folder.

    >>> _speaker(PurePosixPath("103/1241/103_1241_000000.wav")), _speaker(PurePosixPath("ann/1.wav"))
    ('103', 'ann')
    >>> _speaker(PurePosixPath("train/1.wav")), _speaker(PurePosixPath("wavs/1.wav"))
    ('', '')
    >>> [_speaker(PurePosixPath(name)) for name in ("ann/session1/1.wav", "ann/2024-05-01/1.wav", "devon/1.wav")]
    ['ann', 'ann', 'devon']
    """
    folders = _speaker_folders(audio)
    begins = [name for name in folders if re.match(rf"{re.escape(name)}[-_.]", audio.name)]

    # A session is one of the speaker in whose folder it is.
    while len(folders) > 1 and (_SESSION.fullmatch(folders[-1]) or (folders[-1].isdecimal() and folders[-1] in shared)):
        folders.pop()
    return begins[0] if begins else folders[-1] if folders else ""

"""A corpus on disk: which files it has, and how a format reads its tables.

A corpus format receives a `Corpus` and yields a `CorpusEntry` for each utterance that the corpus names, or a `Reject`
for a line that it cannot read. Whether the audio file exists, inside the corpus and whole, is checked later for all
formats alike (staging.py).
"""

import codecs
import dataclasses
import functools
import io
import os
import re
import time
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from voxline.components.ingest.file_index import LINK, REGULAR, FileIndex, IndexedFile, contains_path, scan_files
from voxline.components.ingest.settings import CorpusSettings
from voxline.errors import SettingsError, WorkError
from voxline.progress import print_status
from voxline.rejects import BadAudioError, Reason, Reject
from voxline.store.size_limits import BoundedGzip, SizeLimitError, iter_bounded_lines, open_regular

if TYPE_CHECKING:
    from voxline.components.ingest.archives import UnpackFunction

AUDIO_EXTENSIONS = (".flac", ".wav", ".ogg", ".opus", ".mp3", ".m4a", ".aac", ".wma", ".webm")
"""Extensions of recordings; the first is preferred where one recording exists in two formats."""

MAX_TEXT_CHARACTERS = 1_000_000
"""Of a text that is read as a whole, such as the transcript of one recording."""


@dataclasses.dataclass(slots=True)  # not frozen: creating frozen ones takes a tenth of the whole step
class CorpusEntry:
    """An utterance as its corpus names it; its audio is not checked yet.

    Attributes:
      id: empty where the corpus has none; it is then derived from the path and the offset.
      audio: path of the recording, relative to `relative_to` (or absolute).
      text: the transcript, unchanged.
      split: the corpus' own name of the split ("train-clean-100"), empty where it has none.
      relative_to: folder of the corpus that `audio` is relative to.
      offset: seconds into the recording at which the utterance begins.
      duration: seconds; None: to the end of the recording.
      size: bytes that the file should have; None where the corpus does not say.
      source: the file and line that names it ("train.jsonl:12"), for messages.
      extra: further keys of the manifest's line.
    """

    id: str
    audio: str
    text: str
    speaker: str = ""
    split: str = ""
    relative_to: str = ""
    offset: float = 0.0
    duration: float | None = None
    size: int | None = None
    source: str = ""
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


def whole_recording(entry: "CorpusEntry | Reject") -> "CorpusEntry | Reject":
    """The entry to the end of its recording; the duration that it had is kept beside."""
    if isinstance(entry, Reject) or entry.duration is None:
        return entry
    return dataclasses.replace(entry, duration=None, extra={**entry.extra, "corpus_duration": entry.duration})


def cut_text(entry: "CorpusEntry | Reject", rest: str) -> "Reject":
    """A reject for an entry whose text a line feed has cut; one that is rejected already stays so.

    Args:
      rest: the next line.
    """
    if isinstance(entry, Reject):
        return entry
    detail = f"{entry.source}: its text seems to go on in the next line, {rest.strip()[:60]!r}; write it in one line"
    return Reject(entry.id or entry.audio, Reason.BAD_ENTRY, detail)


def is_like_a_name(line: str) -> bool:
    """True for the name of a recording rather than words: one word of letters, and of digits or marks of a path.

    >>> is_like_a_name("LJ001-0002"), is_like_a_name("clips/a"), is_like_a_name("parts."), is_like_a_name("at 8")
    (True, True, False, False)
    """
    return _NAME.fullmatch(line.strip()) is not None


_NAME = re.compile(r"(?=.*[^\W\d_])(?=.*[\d_/\\])\S+")

OLD_ENCODINGS = ("windows-1252", "windows-1250", "windows-1251", "gb18030", "shift_jis", "euc_kr")
"""Of tables that spreadsheets and older corpora have, as Python and iconv name them."""
COMPARED_FORMATS = 20
"""Recordings in two formats whose lengths are compared."""
UNLIKE_SECONDS = 0.5
"""By which these may differ: an encoder adds some samples."""
_READ_BEFORE = 40
_READ_AFTER = 60
_ISO_2022 = re.compile(r"\x1b\$[@AB()]")
"""The escape to two bytes a character, in Japanese, Chinese and Korean; all bytes are those of ASCII."""
_NUMBER = re.compile(r"[-+]?\d+([.,:]\d+)*%?")
_BRACKETS = re.compile(
    r"\[[^\]\[]{1,40}\]|<[^<>]{1,40}>|\([^()]{1,40}\)|\{[^{}]{1,40}\}|（[^（）]{1,40}）|【[^【】]{1,40}】"
    r"|⟨[^⟨⟩]{1,40}⟩|〔[^〔〕]{1,40}〕"
)
_LABELLED = 40
_LABEL = re.compile(
    r"(?:(?i:speaker|spk|agent|customer|caller|callee|operator|interviewer|interviewee|host|guest|doctor|patient|"
    r"teacher|student|male|female|man|woman|sprecher(?:in)?|locuteur|locutrice|hablante|спикер|диктор)[ _-]?\w{0,3}"
    r"|(?:说话人|发言人|话者|客服|客户|主持人|嘉宾|話者)[ _-]?\w{0,3}"
    r"|[A-Z][0-9]{0,2}|[A-Z][A-Z .'-]{1,24}[0-9]{0,3}) ?(?::(?=\s|$)|：)|>>+"
)
"""Who speaks, in front of a text: `SPEAKER 1:`, `A:`, `DR. JONES:`, `说话人1：`, `>>`."""
_LINE_NUMBER = re.compile(r"(?:\(\d{1,4}\)|\d{1,4}[.)])\s(?=\D)")
_CUE = re.compile(r"\[?(?:00:\d\d|\d{1,2}:\d\d:\d\d)(?:[.,]\d{1,3})?\]?\s")
"""A number, or a time, in front of a text."""
_CODE = re.compile(r"[\d_.]")
_NAME_LABEL = re.compile(r"[^\W\d_]{2,20}(?: [^\W\d_]{2,20})?:(?=\s)")
_OF_CODE = re.compile(r"""(b'|b"|=").*['"]""")
"""Bytes of Python and formulas of Excel, which are no text."""
_NO_NAMES = re.compile(
    "note|question|answer|warning|example|remember|first|second|third|result|reminder|tip|fact|quote|update|edit|also|"
    "however|plus|problem|solution|conclusion|summary|step|reason|title|subject|date|time|place",
    re.IGNORECASE,
)
"""Words that begin a sentence with a colon."""
_PLACEHOLDERS = frozenset((
    "na", "none", "nil", "n.a.", "n. a.", "null", "nan", "unknown", "empty", "blank", "missing", "no text", "todo",
    "tbd", "xxx", "untranscribed", "transcript", "text", "sentence", "无", "空", "无文本", "未知",
))  # fmt: skip
"""Texts that may stand for none, in small letters; a person may say some of them."""


def text_doubt(text: str, speaker: str, path: str, id: str) -> str:
    """The reason to doubt a text: "number", "speaker", "path", "placeholder", or its words in brackets and the label of
    who speaks; empty if there is none.

    Several of these are lines, each once, the label first.

    >>> (
    ...     text_doubt("44", "ann", "a/1.wav", ""),
    ...     text_doubt("Ann", "ann", "a/1.wav", ""),
    ...     text_doubt("1", "", "a/1.wav", ""),
    ... )
    ('number', 'speaker', 'number')
    >>> text_doubt("a/1.wav", "", "wavs/a/1.wav", ""), text_doubt("so (laughs) it", "", "1.wav", "")
    ('path', '(laughs)')
    >>> text_doubt("SPEAKER 1: go [on]", "", "1.wav", ""), text_doubt("Ann: go", "ann", "1.wav", "")
    ('speaker 1:\\n[on]', 'ann:')
    >>> [text_doubt(text, "", "a/utt_0.wav", "") for text in ("John: go", "utt_0 go on", "utt_0", "none", "Note: go")]
    ['john:', 'id:', 'path', 'placeholder', '']
    >>> text_doubt("b'go on'", "", "1.wav", ""), text_doubt('="007"', "", "1.wav", "")
    ("b'…'", '="…"')
    """
    if not text:
        return ""
    if _NUMBER.fullmatch(text):
        return "number"
    if speaker and text.lower() == speaker.lower():
        return "speaker"
    if text == id or (text.lower().endswith(AUDIO_EXTENSIONS) and not re.search(r"\s", text)):
        return "path"

    # Of a recording of one word, the name may be the word: yes.wav.
    file = path.rpartition("/")[2]
    names = [name for name in (id, file, file.rpartition(".")[0]) if len(name) > 2 and _CODE.search(name)]
    first, _, rest = text.partition(" ")
    if first.rstrip(":,;|\t") in names:
        return "id:" if rest else "path"
    if text.lower() in _PLACEHOLDERS:
        return "placeholder"
    doubts = [label] if (label := _speaker_label(text, speaker)) else []
    if text[0] in "(0123456789[" and (_LINE_NUMBER.match(text) or _CUE.match(text)):
        doubts.append("number:" if _LINE_NUMBER.match(text) else "time:")
    if code := _OF_CODE.fullmatch(text):
        doubts.append(f"{code[1]}…{code[1][-1]}")
    if any(bracket in text for bracket in "[<({（【⟨〔"):
        doubts += dict.fromkeys(tag.lower() for tag in _BRACKETS.findall(text))
    return "\n".join(doubts)


def _speaker_label(text: str, speaker: str) -> str:
    """The label in front of a text, in small letters; empty without one."""
    begin = text[:_LABELLED]
    if ":" not in begin and "：" not in begin and not begin.startswith(">>"):
        return ""
    if label := _LABEL.match(begin):
        return label[0].lower()
    if (label := _NAME_LABEL.match(begin)) and label[0].istitle() and not _NO_NAMES.fullmatch(label[0][:-1]):
        return label[0].lower()
    name, colon, _ = begin.partition(":")
    return f"{name.lower()}:" if colon and speaker and name.strip().lower() == speaker.lower() else ""


class UnusableEntryError(Exception):
    """An entry that becomes a reject: its recording is missing, say, or its values make no sense."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Corpus:
    """The files of a corpus, listed once.

    Attributes:
      root: real path of the folder.
      name: the folder's (or the archive's) own name; LibriSpeech's split where the root is a split.
      settings: the section `corpus` of the config.
      table: the name of the one file in the root that is read, where `corpus.uri` is a file; else empty. The folder is
        then not listed: recordings are looked up as the table names them.
      store: folder of all steps' outputs on this machine; archives within the corpus are unpacked there.
      audio_roots: folders outside the root in which recordings are accepted too (`corpus.audio_roots`), absolute.
      listed_at: start of the listing, in ns since 1970.
      external_symlinks: targets of folders that are links out of the corpus, by path; they are never entered.
      searched: whether a file was looked for that is not in the listing as a table spells it.
      reads_recordings: whether an entry depends on a recording itself, as on a size that a table states.
    """

    def __init__(
        self,
        root: Path | str,
        name: str = "",
        exclude: Path | str | None = None,
        before_listing: Callable[[], object] | None = None,
        settings: CorpusSettings | None = None,
        table: str = "",
    ) -> None:
        """Lists the folder.

        Args:
          exclude: the store; it is not listed, where it is inside the corpus.
          before_listing: is called before the listing, which then waits until the files are first needed.
        """
        self.root = Path(os.path.realpath(root))
        self.name = name or self.root.name
        self.settings = settings or CorpusSettings()
        self.table = table

        # Roots are absolute, as tables name recordings below them; links are resolved only for comparisons.
        self.store = Path(exclude).absolute() if exclude is not None else None
        self.audio_roots = [str(Path(root_).expanduser().absolute()) for root_ in self.settings.audio_roots]

        self.external_symlinks: dict[str, str] = {}
        self.searched = False
        self.reads_recordings = False
        self.listed_at = 0
        self._real_audio_roots = [os.path.realpath(root_) for root_ in self.audio_roots]

        self._before_listing = before_listing
        if before_listing is None:
            self.files  # noqa: B018 - a folder that cannot be listed fails here

    @functools.cached_property
    def files(self) -> FileIndex:
        """The files by path relative to the root, in order of the path."""
        if self._before_listing:
            self._before_listing()
        self.listed_at = time.time_ns()
        if self.table:
            files = FileIndex(())
            files.add(self.table, str(self.root / self.table))
            return files

        skipped = os.path.realpath(self.store) if self.store else None
        return FileIndex(scan_files(str(self.root), skipped, self.external_symlinks, self._real_audio_roots))

    @property
    def path(self) -> Path:
        """The folder that is read, or the one file."""
        return self.root / self.table

    def accepted_folders(self) -> list[str]:
        """Absolute paths of the folders in which recordings are accepted."""
        unpacked = [str(self.store / "unpacked")] if self.store else []
        return [str(self.root), *self.audio_roots, *unpacked]

    @property
    def may_lead_outside(self) -> bool:
        """Returns whether its tables may name files that the listing does not have: they decide the result too."""
        return bool(self.table or self.audio_roots)

    def added_key_parts(self) -> dict[str, Any]:
        """Returns what identifies files that its tables name and the listing lacks; empty where there are none."""
        digest = self.files.added_digest(str(self.store or ""))
        return {"added": digest} if digest else {}

    def key_parts(self) -> dict[str, Any]:
        """Returns what identifies this corpus: its path, and each file's path, size and times."""
        return {
            "root": escape_surrogates(str(self.root)),
            "name": escape_surrogates(self.name),
            "external_symlinks": sorted(
                escape_surrogates(f"{path} {target}") for path, target in self.external_symlinks.items()
            ),
            "listing": self.files.digest(times=True),
        }

    def archive_key_parts(self, archive: str) -> dict[str, Any]:
        """Returns what identifies a corpus from an archive: its hash, wherever and whenever it was unpacked."""
        return {"archive": archive, "name": escape_surrogates(self.name), "listing": self.files.digest(times=False)}

    def find(self, *suffixes: str) -> Iterator[PurePosixPath]:
        """Yields the relative paths that end so, in order, without hidden ones (`.git/`, `._x.flac`, `__MACOSX/`).

        Args:
          suffixes: in lower case; the case of a path does not matter.

        Raises:
          SettingsError: `corpus.uri` is a file with another ending.
        """
        if self.table:
            if not self.table.lower().endswith(suffixes):
                raise SettingsError(
                    f"corpus.uri is the file {self.root / self.table}; as corpus.format {self.settings.format!r} a "
                    f"file that ends in {', '.join(suffixes)} is accepted, or a folder"
                )
            yield PurePosixPath(self.table)
            return
        endings = tuple(os.fsencode(suffix) for suffix in suffixes)
        for path in self.files.paths():
            if path.lower().endswith(endings) and not _is_hidden(path):
                yield PurePosixPath(os.fsdecode(path))

    def find_audio(self) -> Iterator[PurePosixPath]:
        """Yields the paths of recordings, by their extension."""
        return self.find(*AUDIO_EXTENSIONS)

    def has(self, path: str) -> bool:
        """Returns whether the corpus has a file at this path, relative to the root; also one that `locate` refuses."""
        # A table alone has no listing: whether the file exists shows when it is looked up.
        if path in self.files or not self.table:
            return path in self.files
        try:
            self.locate(path)
        except UnusableEntryError as unusable:
            return unusable.reason is not Reason.MISSING_FILE
        return True

    def locate(self, path: str, relative_to: str = "") -> tuple[str, IndexedFile]:
        """Finds a file that the corpus names: its path relative to the root, and the file.

        The path is absolute for a recording below one of `audio_roots`. The Unicode form (a name typed as NFC and
        stored as NFD) and the case of the extension may differ.

        Raises:
          UnusableEntryError: the file is absent, not a regular file, or outside the corpus and the audio roots.
        """
        located = path if relative_to in ("", ".") else f"{relative_to}/{path}"
        file = self.files.get(located)
        if file is None or file.kind != REGULAR:  # rarely
            located, file = self._search(path, relative_to)
        return located, file

    def count_channels(self, path: str, relative_to: str = "") -> int:
        """The channels of a recording that the corpus names; 0 for one that cannot be opened, and is rejected later."""
        if header := self._header(path, relative_to):
            return int(header.channels)

        # ffmpeg opens what libsndfile does not.
        from voxline.audio.decoding import read_header

        try:
            located, _ = self.locate(path, relative_to)
            return read_header(self.root / located).channels
        except (UnusableEntryError, OSError, BadAudioError):
            return 0

    def sample_rate(self, path: str, relative_to: str = "") -> int:
        """The sample rate of a recording in Hz; 0 as of `count_channels`."""
        header = self._header(path, relative_to)
        return header.samplerate if header else 0

    def seconds(self, path: str) -> float:
        """The length of a recording by its header; 0.0 as of `count_channels`."""
        header = self._header(path, "")
        return header.frames / header.samplerate if header else 0.0

    def _header(self, path: str, relative_to: str) -> Any:
        import soundfile

        self.reads_recordings = True
        try:
            located, _ = self.locate(path, relative_to)
            return soundfile.info(self.root / located)
        except (UnusableEntryError, OSError, soundfile.SoundFileError):
            return None

    def default_id(self, path: str) -> str:
        """The id of a recording that the corpus gives none: its path relative to the root.

        Below an audio root it is relative to that root's parent, so that it stays when both move:
        `clips/a.wav` for `/data/clips/a.wav` where `/data/clips` is the root. In an archive it is the member's name.
        """
        if not path.startswith("/"):
            return path
        if self.store and contains_path(unpacked := str(self.store / "unpacked"), path):
            return path[len(unpacked) :].split("/", 3)[3]  # /<key>/files/<member>

        # The innermost of the roots, where one is inside another.
        root = max(
            (audio_root for audio_root in self.audio_roots if contains_path(audio_root, path)), key=len, default="/"
        )
        return os.path.relpath(path, os.path.dirname(root))

    def unpack(self, path: str, unpack: "UnpackFunction | None" = None, kind: str = "") -> list[str]:
        """Unpacks an archive within the corpus into the store, unless that was done.

        Memory does not grow with the archive, and no member leaves its folder. Its content names the folder, so a
        release that adds archives costs what is in these.

        Args:
          unpack, kind: see `archives.unpack_archive`.

        Returns:
          Absolute paths of its files, sorted.

        Raises:
          WorkError: see `archives.unpack_archive`.
        """
        from voxline.components.ingest.archives import unpack_archive  # not at the top: few corpora have archives

        if self.store is None:
            raise WorkError(
                f"{self.root / path}: an archive within a corpus is unpacked into the store, and there is none"
            )

        folder, _ = unpack_archive(
            self.root / self.locate(path)[0],
            self.store,
            max_bytes=self.settings.max_unpacked_gigabytes * 1e9,
            max_files=self.settings.max_unpacked_files,
            unpack=unpack,
            kind=kind,
        )

        return sorted(os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)

    def read_lines(self, path: str) -> Iterator[tuple[int, str]]:
        """Yields the lines of a UTF-8 text that are not blank, with numbers from 1, without BOM and line ends.

        Raises:
          WorkError: the file cannot be read as UTF-8, or has no line feeds but carriage returns alone.
        """
        for number, line in enumerate(self.iter_text(path, newline="\n"), start=1):
            if number == 1 and not line.endswith("\n") and "\r" in line.rstrip("\r"):
                raise WorkError(
                    f"{self.root / path}: its lines end in carriage returns alone, as on old Macs; convert it, as in: "
                    "tr '\\r' '\\n' < OLD > NEW"
                )
            if line.strip():
                yield number, line.removesuffix("\n").removesuffix("\r")

    def read_text(self, path: str) -> str:
        """Reads a small text as a whole; raises as `read_lines` does, and if it is too long."""
        lines = []
        characters = 0
        for line in self.iter_text(path, newline="\n"):
            characters += len(line)
            if characters > MAX_TEXT_CHARACTERS:
                raise WorkError(f"{self.root / path}: more than the {MAX_TEXT_CHARACTERS:,} characters that are read")
            lines.append(line)
        return "".join(lines)

    def iter_text(self, path: str, newline: str) -> Iterator[str]:
        """Yields the lines of a UTF-8 text, gzipped or not, with their ends unchanged; raises as `read_lines` does.

        Args:
          newline: as in `open`.
        """
        # A BOM is dropped, and `newline` decides whether a carriage return within a line ends it.
        try:
            file = self.root / self.locate(path)[0]
            raw = BoundedGzip(file) if path.lower().endswith(".gz") else open_regular(file)
            encoding = _encoding(file)
            with raw, io.TextIOWrapper(raw, encoding=encoding, newline=newline) as text:
                for _, line in iter_bounded_lines(text, self.root / path):
                    if _ISO_2022.search(line):
                        raise OSError(
                            "it has the escapes of ISO-2022; convert it, as in: iconv -f iso-2022-jp -t utf-8 OLD > NEW"
                        )
                    yield line
        except SizeLimitError as error:
            raise WorkError(str(error)) from None
        except UnicodeDecodeError as error:
            position = _first_invalid_byte(file, error)
            raise WorkError(
                f"{self.root / path}: not UTF-8 (byte {position}); convert it from the encoding that reads right here: "
                f"{_readings(file, position)}, as in: iconv -f ENCODING -t utf-8 OLD > NEW (or copy it again, if the "
                "copy was cut short)"
            ) from None
        except (EOFError, zlib.error) as error:
            raise WorkError(f"{self.root / path}: damaged ({error}); copy or download it again") from None
        except (UnusableEntryError, OSError) as error:
            raise WorkError(f"{self.root / path}: cannot be read ({error})") from None

    def _search(self, path: str, relative_to: str) -> tuple[str, IndexedFile]:
        """Locates a file whose path is spelled otherwise, leads through a link, or outside."""
        self.searched = True

        # As it is spelled, or in another Unicode form; below the root, or absolute below an audio root.
        root = str(self.root)
        joined = os.path.normpath(os.path.join(root, relative_to, path))
        located: str | None = self._indexed_path(os.path.relpath(joined, root)) if contains_path(root, joined) else None
        if located is None and joined in self.files:
            located = joined

        if located is None and (respelled := self._respelled(path, relative_to)):
            located = respelled

        if located is None:
            # The corpus may name it through a link: /data/corpus/a.wav where /data is a link to /mnt.
            try:
                real = os.path.realpath(joined)
            except ValueError:
                raise UnusableEntryError(Reason.BAD_ENTRY, f"{path!r} is not a path: it holds a zero byte") from None

            if contains_path(root, real):
                located = self._indexed_path(os.path.relpath(real, root))
                if located is None and self.table:
                    located = self._add_unlisted(os.path.relpath(real, root))
            elif self._accepts(real):
                located = joined if self.files.add(joined, joined) else None
            else:
                raise UnusableEntryError(
                    Reason.OUTSIDE_CORPUS,
                    f"{path} leads to {real}, outside the corpus {root}; list a folder above it in corpus.audio_roots",
                )

        # The checks that hold for every spelling: it exists, leads nowhere outside, and is a regular file.
        if located is None or (file := self.files[located]).size < 0:
            where = f" (from {relative_to}/)" if relative_to else ""
            raise UnusableEntryError(Reason.MISSING_FILE, f"{path}{where} is not in the corpus {root}")
        if file.kind & LINK:
            real = os.path.realpath(self.root / located)
            if not contains_path(root, real) and not self._accepts(real):
                raise UnusableEntryError(
                    Reason.OUTSIDE_CORPUS,
                    f"{located} is a link to {real}, outside the corpus {root}; list a folder above it in "
                    "corpus.audio_roots",
                )

        if not file.kind & REGULAR:
            raise UnusableEntryError(Reason.BAD_ENTRY, f"{located} is a pipe, socket or device, not a file")
        return located, file

    def _respelled(self, path: str, relative_to: str) -> str | None:
        """A recording that is named as Windows does, with backslashes, or without its ending."""
        name = path if "/" in path else path.replace("\\", "/")
        endings = ("", *AUDIO_EXTENSIONS) if PurePosixPath(name).suffix.lower() not in AUDIO_EXTENSIONS else ("",)
        root = str(self.root)
        for ending in endings if not self.table else ():
            joined = os.path.normpath(os.path.join(root, relative_to, name + ending))
            if contains_path(root, joined) and (located := self._indexed_path(os.path.relpath(joined, root))):
                return located
        return None

    def _accepts(self, real: str) -> bool:
        """Returns whether a real path outside the root is below an audio root, or was unpacked from the corpus."""
        return any(contains_path(os.path.realpath(folder), real) for folder in self.accepted_folders())

    def _add_unlisted(self, path: str) -> str | None:
        """Adds a file of a root that is not listed, in whichever Unicode form it has there."""
        for form in dict.fromkeys((path, *(unicodedata.normalize(form, path) for form in ("NFC", "NFD")))):
            if self.files.add(form, str(self.root / form)):
                return form
        return None

    def _indexed_path(self, path: str) -> str | None:
        return path if path in self.files else self.files.find_equivalent(path)


FormatReader = Callable[[Corpus], Iterator[CorpusEntry | Reject]]
"""A corpus format: it yields what the corpus names, in a fixed order."""


def _is_hidden(path: bytes) -> bool:
    return any(part.startswith(b".") or part == b"__MACOSX" for part in path.split(b"/"))


def _encoding(file: Path) -> str:
    """UTF-8, or UTF-16 by its byte order mark, as spreadsheets save "Unicode text".

    Raises:
      OSError: the text is UTF-16 or UTF-32 without a mark: every character of English is beside a zero byte.
    """
    with BoundedGzip(file) if file.suffix.lower() == ".gz" else open_regular(file) as raw:
        start = raw.read(64)
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # One zero byte alone is a damaged text.
    if (zeros := start.count(0)) > 1:
        name = f"utf-{16 if zeros <= len(start) / 2 else 32}{'be' if start[0] == 0 else 'le'}"
        raise OSError(
            f"it has zero bytes, as {name.upper()} has; convert it, as in: iconv -f {name} -t utf-8 OLD > NEW"
        )
    return "utf-8-sig"


def _first_invalid_byte(file: Path, error: UnicodeDecodeError) -> int:
    """Its position in the file; the error counts from the chunk that Python was reading."""
    try:
        if file.suffix.lower() != ".gz":
            file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as whole:
        return whole.start
    return error.start  # the file has changed meanwhile


def _readings(file: Path, position: int) -> str:
    """The words at a byte as old encodings read them: only a person can tell which of them are words."""
    if file.suffix.lower() == ".gz":
        return ", ".join(OLD_ENCODINGS)
    with open(file, "rb") as data:
        data.seek(max(0, position - _READ_BEFORE))
        context = data.read(_READ_BEFORE + _READ_AFTER)
    before, after = context[: min(position, _READ_BEFORE)], context[min(position, _READ_BEFORE) :]
    # From the separator or space before to the end of the line: a cut may fall within a character.
    begin = re.search(rb"[^\s|,;]*$", before)
    words = (begin[0] if begin else b"") + after.split(b"\n")[0]
    readings = []
    for encoding in OLD_ENCODINGS:
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(words)  # a character that is cut at the end waits
        except UnicodeDecodeError:
            continue
        readings.append(f"{encoding} {text[:20].partition(' ')[0]!r}")
    return ", ".join(readings) or ", ".join(OLD_ENCODINGS)


def escape_surrogates(text: str) -> str:
    """A file name may be any bytes; hashes and JSON need Unicode."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def recordings_by_name(corpus: Corpus) -> dict[str, PurePosixPath]:
    """Recordings by their paths without extension (see `normalized_name`); of two formats, the preferred one."""
    recordings: dict[str, PurePosixPath] = {}
    again: list[tuple[PurePosixPath, PurePosixPath]] = []  # the one that is read, and the other
    for path in corpus.find_audio():
        name = normalized_name(path.with_suffix(""))
        other = recordings.get(name)
        if other is None or _preference(path) < _preference(other):
            recordings[name] = path
        if other is not None:
            again.append((recordings[name], path if recordings[name] == other else other))
    if again:
        _tell_formats(corpus, again)
    return recordings


def _tell_formats(corpus: Corpus, again: Sequence[tuple[PurePosixPath, PurePosixPath]]) -> None:
    """Says that recordings are there in two formats, and whether some of them are not the same recording."""
    unlike = ""
    for pair in again[:COMPARED_FORMATS]:
        seconds = [corpus.seconds(str(path)) for path in pair]
        if all(seconds) and abs(seconds[0] - seconds[1]) > UNLIKE_SECONDS:
            unlike = (
                f"; {pair[0]} has {seconds[0]:.2f} s and {pair[1]} {seconds[1]:.2f} s, so that they are not the same"
            )
            break
    first, other = again[0]
    print_status(
        f"{corpus.root}: {len(again):,} recordings are there in two formats, such as {first} and {other}; the first is "
        f"read{unlike}"
    )


def normalized_name(path: PurePosixPath) -> str:
    """The path in NFC: a name may be typed in one Unicode form and stored in another."""
    return unicodedata.normalize("NFC", str(path))


def _preference(path: PurePosixPath) -> int:
    return AUDIO_EXTENSIONS.index(path.suffix.lower())

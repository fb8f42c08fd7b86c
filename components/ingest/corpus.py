"""A corpus on disk: which files it has, and how a format reads its tables.

A module in `corpora/` receives a `Corpus` and yields a `CorpusEntry` for each utterance that the corpus names, or a
`Reject` for a line that it cannot read. Whether the audio file exists, inside the corpus and whole, is checked later
for all formats alike (staging.py).
"""

import dataclasses
import functools
import os
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from voxline.components.ingest.file_index import LINK, REGULAR, FileIndex, IndexedFile, contains_path, scan_files
from voxline.errors import WorkError
from voxline.rejects import Reason

AUDIO_EXTENSIONS = (".flac", ".wav", ".ogg", ".opus", ".mp3", ".m4a", ".aac", ".wma", ".webm")
"""Extensions of recordings; the first is preferred where one recording exists in two formats."""


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


class UnusableEntryError(Exception):
    """An entry that becomes a reject: its recording is missing, say, or its values make no sense."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class Corpus:
    """The files of a corpus, listed once.

    Attributes:
      root: real path of the folder.
      name: the folder's (or the archive's) own name; LibriSpeech's split where the root is a split.
      listed_at: start of the listing, in ns since 1970.
      external_symlinks: targets of folders that are links out of the corpus, by path; they are never entered.
    """

    def __init__(
        self,
        root: Path | str,
        name: str = "",
        exclude: Path | str | None = None,
        before_listing: Callable[[], object] | None = None,
    ) -> None:
        """Lists the folder.

        Args:
          exclude: a folder that is not listed: a store may be inside the corpus.
          before_listing: is called before the listing, which then waits until the files are first needed.
        """
        self.root = Path(os.path.realpath(root))
        self.name = name or self.root.name
        self.external_symlinks: dict[str, str] = {}
        self.listed_at = 0
        self._skipped = os.path.realpath(exclude) if exclude is not None else None
        self._before_listing = before_listing
        if before_listing is None:
            self.files  # noqa: B018 - a folder that cannot be listed fails here

    @functools.cached_property
    def files(self) -> FileIndex:
        """By path relative to the root, in order of the path."""
        if self._before_listing:
            self._before_listing()
        self.listed_at = time.time_ns()
        return FileIndex(scan_files(str(self.root), self._skipped, self.external_symlinks))

    def key_parts(self) -> dict[str, Any]:
        """What identifies this corpus: its path, and each file's path, size and times."""
        return {
            "root": escape_surrogates(str(self.root)),
            "name": escape_surrogates(self.name),
            "external_symlinks": sorted(
                escape_surrogates(f"{path} {target}") for path, target in self.external_symlinks.items()
            ),
            "listing": self.files.digest(times=True),
        }

    def archive_key_parts(self, archive: str) -> dict[str, Any]:
        """What identifies a corpus from an archive: the hash of the archive, wherever and whenever it was unpacked."""
        return {"archive": archive, "name": escape_surrogates(self.name), "listing": self.files.digest(times=False)}

    def find(self, *suffixes: str) -> Iterator[PurePosixPath]:
        """Yields the relative paths that end so, in order, without hidden ones (`.git/`, `._x.flac`, `__MACOSX/`).

        Args:
          suffixes: in lower case; the case of a path does not matter.
        """
        wanted = tuple(os.fsencode(suffix) for suffix in suffixes)
        for path in self.files.paths():
            if path.lower().endswith(wanted) and not _is_hidden(path):
                yield PurePosixPath(os.fsdecode(path))

    def find_audio(self) -> Iterator[PurePosixPath]:
        """Yields the paths of recordings, by their extension."""
        return self.find(*AUDIO_EXTENSIONS)

    def locate(self, path: str, relative_to: str = "") -> tuple[str, IndexedFile]:
        """Finds a file that the corpus names: its path relative to the root, and the file.

        The Unicode form (a name typed as NFC and stored as NFD) and the case of the extension may differ.

        Raises:
          UnusableEntryError: the file is absent, not a regular file, or outside the corpus.
        """
        located = path if relative_to in ("", ".") else f"{relative_to}/{path}"
        file = self.files.get(located)
        if file is None or file.kind != REGULAR:  # rarely
            located, file = self._search(path, relative_to)
        return located, file

    def read_lines(self, path: str) -> Iterator[tuple[int, str]]:
        """Yields the lines of a UTF-8 text that are not blank, with numbers from 1, without BOM and line ends.

        Raises:
          WorkError: the file cannot be read as UTF-8.
        """
        for number, line in enumerate(self.iter_text(path, newline="\n"), start=1):
            if line.strip():
                yield number, line.removesuffix("\n").removesuffix("\r")

    def read_text(self, path: str) -> str:
        """Reads a small text as a whole; raises as `read_lines` does."""
        return "".join(self.iter_text(path, newline="\n"))

    def iter_text(self, path: str, newline: str) -> Iterator[str]:
        """Yields the lines of a UTF-8 text with their ends unchanged; raises as `read_lines` does.

        Args:
          newline: as in `open`.
        """
        try:
            file = self.root / self.locate(path)[0]
            with open(file, encoding="utf-8-sig", newline=newline) as opened:
                yield from opened
        except UnicodeDecodeError as error:
            raise WorkError(
                f"{self.root / path}: not UTF-8 (byte {_first_invalid_byte(file, error)}); convert it, as in: "
                f"iconv -f latin1 -t utf-8 OLD > NEW (or copy it again, if the copy was cut short)"
            ) from None
        except (UnusableEntryError, OSError) as error:
            raise WorkError(f"{self.root / path}: cannot be read ({error})") from None

    def _search(self, path: str, relative_to: str) -> tuple[str, IndexedFile]:
        """As `locate`, where the path is spelled otherwise than the file's, or leads through a link."""
        joined = os.path.normpath(os.path.join(self.root, relative_to, path))
        located = self._indexed_path(os.path.relpath(joined, self.root))
        if located is None:
            # The corpus may name it through a link: /data/corpus/a.wav where /data is a link to /mnt.
            try:
                real = os.path.realpath(joined)
            except ValueError:
                raise UnusableEntryError(Reason.BAD_ENTRY, f"{path!r} is not a path: it holds a zero byte") from None
            if not contains_path(str(self.root), real):
                raise UnusableEntryError(
                    Reason.OUTSIDE_CORPUS, f"{path} leads to {real}, outside the corpus {self.root}"
                )
            located = self._indexed_path(os.path.relpath(real, self.root))
        if located is None or (file := self.files[located]).size < 0:
            where = f" (from {relative_to}/)" if relative_to else ""
            raise UnusableEntryError(Reason.MISSING_FILE, f"{path}{where} is not in the corpus {self.root}")
        if file.kind & LINK and not contains_path(str(self.root), real := os.path.realpath(self.root / located)):
            raise UnusableEntryError(
                Reason.OUTSIDE_CORPUS, f"{located} is a link to {real}, outside the corpus {self.root}"
            )
        if not file.kind & REGULAR:
            raise UnusableEntryError(Reason.BAD_ENTRY, f"{located} is a pipe, socket or device, not a file")
        return located, file

    def _indexed_path(self, path: str) -> str | None:
        return path if path in self.files else self.files.find_equivalent(path)


def _is_hidden(path: bytes) -> bool:
    return any(part.startswith(b".") or part == b"__MACOSX" for part in path.split(b"/"))


def _first_invalid_byte(file: Path, error: UnicodeDecodeError) -> int:
    """Its position in the file; the error counts from the chunk that Python was reading."""
    try:
        file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as whole:
        return whole.start
    return error.start  # the file has changed meanwhile


def escape_surrogates(text: str) -> str:
    """A file name may be any bytes; hashes and JSON need Unicode."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def recordings_by_name(corpus: Corpus) -> dict[str, PurePosixPath]:
    """Recordings by their paths without extension (see `normalized_name`); of two formats, the preferred one."""
    recordings: dict[str, PurePosixPath] = {}
    for path in corpus.find_audio():
        name = normalized_name(path.with_suffix(""))
        other = recordings.get(name)
        if other is None or _preference(path) < _preference(other):
            recordings[name] = path
    return recordings


def normalized_name(path: PurePosixPath) -> str:
    """The path in NFC: a name may be typed in one Unicode form and stored in another."""
    return unicodedata.normalize("NFC", str(path))


def _preference(path: PurePosixPath) -> int:
    return AUDIO_EXTENSIONS.index(path.suffix.lower())

"""A corpus as it lies on disk: what is in the folder, and how its files and tables are read.

A module in `corpora/` gets a `Corpus` and yields an `CorpusEntry` for each utterance that the corpus names,
or a `Reject` for one that it names and does not have. Whether an audio file is really there, inside the
corpus and whole is checked in one place, after it, for all of them.
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
from voxline.rejects import Reason, Reject

AUDIO_EXTENSIONS = (".flac", ".wav", ".ogg", ".opus", ".mp3", ".m4a", ".aac", ".wma", ".webm")
"""What may hold a recording, the preferred first where one recording lies there in two formats."""


@dataclasses.dataclass(slots=True)  # not frozen: of a large corpus that would be a tenth of all work
class CorpusEntry:
    """An utterance as its corpus names it; nothing about its audio has been checked yet.

    Attributes:
      id: empty where the corpus has none; then it is made of the path and the offset.
      audio: path of the recording, relative to `beside` (or absolute).
      text: the transcript as it stands there.
      split: the corpus' own name of the split ("train-clean-100"), empty where it has none.
      beside: folder that `audio` is relative to, itself relative to the corpus.
      offset: seconds into the recording at which the utterance begins.
      duration: seconds, where the corpus says; None: to the end of the recording.
      size: bytes that the file should have, where the corpus says.
      source: the file and line that names it ("train.jsonl:12"), for messages.
      extra: whatever else the corpus says of it; becomes further keys of the manifest's line.
    """

    id: str
    audio: str
    text: str
    speaker: str = ""
    split: str = ""
    beside: str = ""
    offset: float = 0.0
    duration: float | None = None
    size: int | None = None
    source: str = ""
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


class UnusableEntryError(Exception):
    """A path that the corpus names and that cannot be read from it."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class Corpus:
    """A folder, listed once.

    Attributes:
      root: its real path.
      name: the folder's (or the archive's) own name; LibriSpeech's split where the root is a split.
      files: by path relative to the root, in order of the path.
      listed_at: when that began, in ns since 1970.
      outward: folders that are links out of the corpus, by path: never entered.
    """

    def __init__(
        self,
        root: Path | str,
        name: str = "",
        without: Path | str | None = None,
        before_listing: Callable[[], object] | None = None,
    ) -> None:
        """Lists the folder, but for what lies under `without` (a store may stand inside the corpus).

        With `before_listing` it is listed when it is first looked into, after that was called.
        """
        self.root = Path(os.path.realpath(root))
        self.name = name or self.root.name
        self.outward: dict[str, str] = {}
        self.listed_at = 0
        self._skipped = os.path.realpath(without) if without is not None else None
        self._before_listing = before_listing
        if before_listing is None:
            self.files  # noqa: B018 - what cannot be listed is told now

    @functools.cached_property
    def files(self) -> FileIndex:
        if self._before_listing:
            self._before_listing()
        self.listed_at = time.time_ns()
        return FileIndex(scan_files(str(self.root), self._skipped, self.outward))

    def named_by(self) -> dict[str, Any]:
        """What names this corpus: where it is and each file's path, size and times."""
        return {
            "root": escape_surrogates(str(self.root)),
            "name": escape_surrogates(self.name),
            "outward": sorted(escape_surrogates(f"{path} {target}") for path, target in self.outward.items()),
            "listing": self.files.name(times=True),
        }

    def named_by_content_of(self, archive: str) -> dict[str, Any]:
        """What names a corpus that was unpacked: the archive's content, wherever and whenever it was unpacked."""
        return {"archive": archive, "name": escape_surrogates(self.name), "listing": self.files.name(times=False)}

    def visible(self, *endings: str) -> Iterator[PurePosixPath]:
        """The relative paths that end so, but for hidden ones (`.git/`, `._x.flac`, `__MACOSX/`), in order.

        Args:
          endings: in small letters; the case of a path does not matter.
        """
        wanted = tuple(os.fsencode(ending) for ending in endings)
        for path in self.files.paths():
            if path.lower().endswith(wanted) and not _is_hidden(path):
                yield PurePosixPath(os.fsdecode(path))

    def recordings(self) -> Iterator[PurePosixPath]:
        """The visible files whose extension says audio."""
        return self.visible(*AUDIO_EXTENSIONS)

    def closed_doors(self) -> Iterator[Reject]:
        """A reject for each folder that is a link out of the corpus: what lies behind it is not read."""
        for path, target in sorted(self.outward.items()):
            detail = f"{path} is a link to {target}, outside the corpus; copy it in, or point corpus.uri there"
            yield Reject(path, Reason.OUTSIDE_CORPUS, detail)

    def locate(self, path: str, beside: str = "") -> tuple[str, IndexedFile]:
        """The relative path under which a file that the corpus names is listed, and the file.

        Unicode forms (a name typed as NFC and stored as NFD) and the extension's case may differ.

        Raises:
          NotFoundError: it is absent, no regular file, or outside the corpus.
        """
        found = path if beside in ("", ".") else f"{beside}/{path}"  # of tens of thousands, nearly all are
        file = self.files.get(found)
        if file is None or file.kind != REGULAR:
            found, file = self._searched(path, beside)
        return found, file

    def lines(self, path: str) -> Iterator[tuple[int, str]]:
        """The lines of a UTF-8 text (a BOM and CRLF are taken off), numbered from 1, blank ones left out.

        Raises:
          WorkError: the file cannot be read as UTF-8.
        """
        for number, line in enumerate(self.pieces(path, newline="\n"), start=1):
            if line.strip():
                yield number, line.removesuffix("\n").removesuffix("\r")

    def text(self, path: str) -> str:
        """A small text as a whole; errors as of `lines`."""
        return "".join(self.pieces(path, newline="\n"))

    def pieces(self, path: str, newline: str) -> Iterator[str]:
        """The lines of a UTF-8 text with their ends, which are not changed; errors as of `lines`.

        Args:
          newline: what ends a line, as `open` has it.
        """
        try:
            file = self.root / self.locate(path)[0]
            with open(file, encoding="utf-8-sig", newline=newline) as opened:
                yield from opened
        except UnicodeDecodeError as error:
            raise WorkError(
                f"{self.root / path}: not UTF-8 (byte {_first_odd_byte(file, error)}); convert it, as in: "
                f"iconv -f latin1 -t utf-8 OLD > NEW (or copy it again, if that broke off there)"
            ) from None
        except (UnusableEntryError, OSError) as error:
            raise WorkError(f"{self.root / path}: cannot be read ({error})") from None

    def _searched(self, path: str, beside: str) -> tuple[str, IndexedFile]:
        """The same where the path is not simply the file's, or that is no plain file."""
        joined = os.path.normpath(os.path.join(self.root, beside, path))
        found = self._listed(os.path.relpath(joined, self.root))
        if found is None:
            # The corpus may name it through a link: /data/corpus/a.wav where /data is a link to /mnt.
            try:
                real = os.path.realpath(joined)
            except ValueError:
                raise UnusableEntryError(Reason.BAD_ENTRY, f"{path!r} is no path: it holds a zero byte") from None
            if not contains_path(str(self.root), real):
                raise UnusableEntryError(
                    Reason.OUTSIDE_CORPUS, f"{path} leads to {real}, outside the corpus {self.root}"
                )
            found = self._listed(os.path.relpath(real, self.root))
        if found is None or (file := self.files[found]).size < 0:
            where = f" (from {beside}/)" if beside else ""
            raise UnusableEntryError(Reason.MISSING_FILE, f"{path}{where} is not in the corpus {self.root}")
        if file.kind & LINK and not contains_path(str(self.root), real := os.path.realpath(self.root / found)):
            raise UnusableEntryError(
                Reason.OUTSIDE_CORPUS, f"{found} is a link to {real}, outside the corpus {self.root}"
            )
        if not file.kind & REGULAR:
            raise UnusableEntryError(Reason.BAD_ENTRY, f"{found} is a pipe, socket or device, no file")
        return found, file

    def _listed(self, path: str) -> str | None:
        return path if path in self.files else self.files.by_form(path)


def _is_hidden(path: bytes) -> bool:
    return any(part.startswith(b".") or part == b"__MACOSX" for part in path.split(b"/"))


def _first_odd_byte(file: Path, error: UnicodeDecodeError) -> int:
    """Where in the file it is; the error counts from wherever Python had read to."""
    try:
        file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as whole:
        return whole.start
    return error.start  # it has changed meanwhile


def escape_surrogates(text: str) -> str:
    """File names may be any bytes; hashes and JSON take none but Unicode."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def recordings_by_name(corpus: Corpus) -> dict[str, PurePosixPath]:
    """Every recording by its path without extension (see `normalized_name`); of two formats of one, the preferred."""
    found: dict[str, PurePosixPath] = {}
    for path in corpus.recordings():
        name = normalized_name(path.with_suffix(""))
        other = found.get(name)
        if other is None or _preference(path) < _preference(other):
            found[name] = path
    return found


def normalized_name(path: PurePosixPath) -> str:
    """In NFC: a name may be typed in one Unicode form and stored in another."""
    return unicodedata.normalize("NFC", str(path))


def _preference(path: PurePosixPath) -> int:
    return AUDIO_EXTENSIONS.index(path.suffix.lower())

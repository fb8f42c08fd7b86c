"""Unpacks the archive of a corpus, which is not trusted.

No member may leave the folder, be a link or a device, or appear twice; the bytes written count against stated limits,
whatever the headers say. The folder appears whole or not at all. Its name is the hash of the archive's content, so an
archive is unpacked once, whatever its path and name.
"""

import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Self, cast

from voxline.errors import WorkError
from voxline.progress import Progress, print_status
from voxline.settings import Settings
from voxline.store.files import remove_unfinished, write_text
from voxline.store.hashing import hash_file, hash_value
from voxline.store.step_cache import cached_step

ARCHIVE_EXTENSIONS = (".tar", ".tar.gz", ".tgz", ".zip")

_CHUNK = 1 << 20
_LONGEST_HEADER = 1 << 20
"""Bytes of an extended header (a long name, a comment): tarfile reads it into memory at once."""
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # zipfile: an unknown compression method
    ValueError,
)
_WOULD_LEAVE = "would leave the folder: its path must be relative, with / and without .."
_NOT_A_FILE = "is a link, a pipe or a device; only files and folders are accepted"


def archive_stem(path: Path) -> str:
    """The archive's name without its extension.

    >>> archive_stem(Path("dev-clean-2.tar.gz"))
    'dev-clean-2'
    """
    extension = max((e for e in ARCHIVE_EXTENSIONS if path.name.lower().endswith(e)), key=len)
    return path.name[: -len(extension)]


def unpack_archive(
    archive: Path,
    store: Path,
    *,
    max_bytes: float,
    max_files: int,
    unpack: "UnpackFunction | None" = None,
    kind: str = "",
) -> tuple[Path, str]:
    """Unpacks an archive below `<store>/unpacked/`, unless an earlier run did.

    Args:
      unpack: writes the members of an archive that is neither a tar nor a zip.
      kind: names what it writes; part of the folder's name.

    Returns:
      The folder that holds the members, and the hash of the archive's content.

    Raises:
      WorkError: the archive is damaged, too large, or has a member that is refused; nothing of it is kept.
    """
    # Named by content, so that an archive which was moved or renamed is not unpacked again.
    content = _content_hash(archive, store)
    named_by = {"archive": content, **({"kind": kind} if kind else {})}
    unpack = unpack or (_unpack_zip if archive.name.lower().endswith(".zip") else _unpack_tar)
    with cached_step(store, "unpacked", Settings(), named_by) as work:  # unpacked again if it was deleted
        folder = work.folder / "files"
        unfinished = work.folder / "unfinished"
        if work.reused:
            return folder, content

        for left_by_a_killed_run in (unfinished, folder):
            shutil.rmtree(left_by_a_killed_run, ignore_errors=True)

        print_status(f"ingest: unpacking {archive.name}")
        unfinished.mkdir(parents=True)
        try:
            writer = MemberWriter(archive, unfinished, max_bytes, max_files)
            unpack(archive, writer)
        except WorkError:
            shutil.rmtree(unfinished)
            raise
        except _DAMAGED as error:
            shutil.rmtree(unfinished)
            raise WorkError(f"{archive}: damaged ({error}); copy or download it again") from None
        except OSError as error:
            shutil.rmtree(unfinished)
            raise WorkError(f"{archive}: cannot be unpacked into {store}: {error}") from None

        os.sync()  # once for all of them: the files must be on the disk before the marker
        unfinished.rename(folder)
        work.counts.update(files=writer.members, bytes=writer.bytes)
        work.outputs["files"] = "files"
        work.unverified = ("files",)  # a corpus: the manifest has the hash of each recording, and convert compares it
    return folder, content


class MemberWriter:
    """Writes members into a folder, and refuses unsafe ones."""

    def __init__(self, archive: Path, folder: Path, max_bytes: float, max_files: int) -> None:
        self.archive = archive
        self.folder = folder
        self.max_bytes = max_bytes
        self.max_files = max_files
        self.members = self.bytes = 0
        self._progress = Progress("MB of the archive", total=archive.stat().st_size // 1_000_000)

    def refuse(self, member: str, why: str) -> WorkError:
        return WorkError(f"{self.archive}: member {member!r} {why}; nothing of it was kept")

    def target(self, member: str) -> Path:
        """The file of a member, inside the folder."""
        self.members += 1
        if self.members > self.max_files:
            raise self.refuse(member, f"exceeds the limit of {self.max_files:,} files (corpus.max_unpacked_files)")

        path = PurePosixPath(member)
        if path.is_absolute() or ".." in path.parts or "\\" in member or "\0" in member:
            raise self.refuse(member, _WOULD_LEAVE)
        return self.folder / path

    def make_folder(self, member: str) -> None:
        self.target(member).mkdir(parents=True, exist_ok=True)

    def write(self, member: str, source: IO[bytes], size: int) -> None:
        """Writes a file, `size` bytes by its header."""
        target = self.target(member)
        count = 0
        target.parent.mkdir(parents=True, exist_ok=True)

        try:
            with open(target, "xb") as file:
                while chunk := source.read(_CHUNK):
                    count += len(chunk)
                    self.count(member, len(chunk))
                    file.write(chunk)
        except FileExistsError:
            raise self.refuse(member, "appears twice") from None

        if count != size:
            raise self.refuse(member, f"has {count:,} bytes, its header says {size:,}")

    def count(self, member: str, size: int) -> None:
        """Counts unpacked bytes."""
        self.bytes += size
        if self.bytes > self.max_bytes:
            limit = f"{self.max_bytes / 1e9:g} GB (corpus.max_unpacked_gigabytes)"
            raise self.refuse(member, f"exceeds the limit of {limit}")

    def show(self, read: int) -> None:
        """Shows progress: bytes of the archive that have been read."""
        if megabytes := read // 1_000_000 - self._progress.done:
            self._progress.advance(megabytes)


UnpackFunction = Callable[[Path, MemberWriter], None]


def _unpack_tar(archive: Path, writer: MemberWriter) -> None:
    class Header(tarfile.TarInfo):
        """tarfile stops silently at a damaged header or the end of the file, so this notes the end marker."""

        ended = False

        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
            Header.ended = len(buf) == tarfile.BLOCKSIZE and not any(buf)
            header = super().frombuf(buf, encoding, errors)
            if header.type not in tarfile.REGULAR_TYPES and header.size > _LONGEST_HEADER:
                raise writer.refuse(header.name, f"has a header of {header.size:,} bytes")
            return header

    # Read as a stream, so that memory does not grow with the archive, and nothing is sought in it.
    with open(archive, "rb") as packed, _decompressed(packed) as stream:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=Header) as tar:
            for member in tar:
                if not (member.isreg() or member.isdir()):
                    raise writer.refuse(member.name, _NOT_A_FILE)
                if member.isdir():
                    writer.make_folder(member.name)
                else:
                    try:
                        tarfile.data_filter(member, str(writer.folder))
                    except tarfile.FilterError:
                        raise writer.refuse(member.name, _WOULD_LEAVE) from None
                    writer.write(member.name, _content(tar, member), member.size)
                writer.show(packed.tell())
        if not Header.ended:
            raise WorkError(f"{archive}: damaged after {writer.members:,} members; copy or download it again")
        # The rest is padding; reading it makes gzip compare its checksum.
        while tail := stream.read(_CHUNK):
            writer.count("the padding at its end", len(tail))


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(member)
    if content is None:
        raise tarfile.ReadError(f"no content in {member.name}")
    return content


def _decompressed(packed: IO[bytes]) -> IO[bytes]:
    is_gzip = packed.read(2) == b"\x1f\x8b"
    packed.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=packed)) if is_gzip else packed


def _unpack_zip(archive: Path, writer: MemberWriter) -> None:
    read = 0
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            # The upper half of the attributes is the mode where the archive was made on Unix; 0 elsewhere.
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise writer.refuse(member.filename, _NOT_A_FILE)
            if member.flag_bits & 1:
                raise writer.refuse(member.filename, "is encrypted; unpack the archive yourself and give the folder")

            if member.is_dir():
                writer.make_folder(member.filename)
            else:
                with file.open(member) as source:
                    writer.write(member.filename, source, member.file_size)

            read += member.compress_size
            writer.show(read)


def _content_hash(archive: Path, store: Path) -> str:
    """The hash of the archive's bytes, cached so that the next run does not read 60 GB for it."""
    status = archive.stat()
    state = [os.path.realpath(archive), status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    cached = Path(store) / "unpacked" / "hashes" / hash_value(state)
    if not cached.is_file():
        remove_unfinished(cached.parent)
        write_text(cached, hash_file(archive))
    return cached.read_text(encoding="utf-8")

"""Reads files that may be hostile: sizes are checked before anything is read, unpacked or parsed.

  text = read_bounded(path, MAX_JSON_BYTES)
  for number, line in iter_bounded_lines(file, path):
  with BoundedGzip(path) as file:

A device or a FIFO has no size and may have no end, so only regular files are read.
"""

import errno
import functools
import gzip
import io
import itertools
import math
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, AnyStr, NamedTuple, Protocol, TypeVar

from voxline.errors import WorkError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_JSON_BYTES = 64 << 20
"""Of a JSON document. A model.json has kilobytes, the marker of a step with 100,000 files some megabytes."""
FILE_BUFFER = 1 << 16
"""Bytes that are read or written at a time. Python takes what the file system says, mostly 4,096."""
MAX_LINE_BYTES = 4 << 20
"""Of a line of a manifest, of rejects or of text: the transcript of 24 hours has a megabyte."""
MAX_ARRAYS = 100_000
"""In one .npz file: the checkpoint of a VITS has 2,279, that of a larger Whisper more."""
Line = TypeVar("Line", bytes, str, covariant=True)
_CHUNK = 1 << 20
_MAX_HEADER = 10_000
_ARRAY_HEADER = re.compile(
    rb"\{ *'descr': *'(?P<dtype>[<>|=]?[A-Za-z][0-9]*(\[[0-9]*[A-Za-z]+\])?)', *"
    rb"'fortran_order': *(?P<fortran>True|False), *"
    rb"'shape': *\((?P<shape>[0-9]{0,20}(, *[0-9]{1,20}){0,63},?)\),? *\} *\n?"
)
"""Of an array of numbers or texts, as `numpy.lib.format` writes it: `{'descr': '<f4', ..., 'shape': (3, 4), }`."""
MAX_UNPACKING = 100
"""Bytes that one packed byte may become. Tables and text become 3 to 10; deflate reaches 1,032."""
MIN_UNPACKED = 16 << 20
"""Bytes that any packed file may become, however well they were packed."""


class SupportsReadline(Protocol[Line]):
    """A file that is open for reading."""

    def readline(self, size: int, /) -> Line:
        """The next line, or its first `size` bytes."""


class SizeLimitError(WorkError, ValueError):
    """A file is larger than accepted, or has no size. A ValueError too: where damage is handled, so is this."""


def open_regular(path: Path | str) -> IO[bytes]:
    """Opens a regular file for reading.

    Raises:
      OSError: it cannot be opened, or is a folder.
      SizeLimitError: it is a device, a FIFO or a socket. Nothing was read of it.
    """
    # Opened first and then looked at: the file cannot be exchanged in between.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would wait for its writer
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return open(descriptor, "rb", FILE_BUFFER)

    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise SizeLimitError(f"{path}: a device, FIFO or socket; a regular file is accepted, so write it to one first")


def read_bounded(path: Path | str, limit: int = MAX_JSON_BYTES) -> bytes:
    """Reads a whole file.

    Raises:
      OSError: it cannot be read.
      SizeLimitError: it is not a regular file, or larger than the limit in bytes.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size

        # One byte more than accepted: a file that grows while it is read is noticed.
        data = file.read(limit + 1) if size <= limit else b""
    if max(size, len(data)) > limit:
        raise SizeLimitError(f"{path}: {max(size, len(data)):,} bytes; at most {limit:,} are accepted")
    return data


def iter_bounded_lines(
    file: SupportsReadline[AnyStr], path: Path | str, limit: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, AnyStr]]:
    """Yields the lines of an open file with their numbers from 1. Memory does not grow with the file.

    Args:
      path: names the file in messages.
      limit: bytes of a line, its end included; characters of one, where the file is open as text.

    Raises:
      SizeLimitError: a line is longer; names its number.
    """
    # `readline` with a limit returns a part of a longer line, which then is too long.
    for number, line in enumerate(itertools.takewhile(len, iter(functools.partial(file.readline, limit + 1), None)), 1):
        if len(line) > limit:
            unit = "bytes" if isinstance(line, bytes) else "characters"
            raise SizeLimitError(
                f"{path}:{number}: a line of more than {limit:,} {unit}; shorter lines are accepted, so split it or "
                "leave the utterance out"
            )
        yield number, line


def unpacked_limit(packed: int) -> int:
    """The bytes that a packed file of some size may become.

    >>> unpacked_limit(1_000), unpacked_limit(10_000_000)
    (16777216, 1000000000)
    """
    return max(MIN_UNPACKED, MAX_UNPACKING * packed)


class BoundedGzip(gzip.GzipFile):
    """A gzip file for reading that ends with an error where it becomes too large.

    Raises:
      OSError: it cannot be opened.
      SizeLimitError: it is not a regular file, or becomes more than `unpacked_limit` bytes.
    """

    def __init__(self, path: Path | str) -> None:
        self._packed_file = open_regular(path)
        self._source = str(path)
        self._packed_bytes = os.fstat(self._packed_file.fileno()).st_size
        self._unpacked_bytes = 0
        self.limit = unpacked_limit(self._packed_bytes)
        super().__init__(fileobj=self._packed_file, mode="rb")

    def read(self, size: int | None = -1) -> bytes:
        # Without a size, `read` would unpack everything before it could be counted.
        return self._counted(super().read(self.limit + 1 if size is None or size < 0 else size))

    def read1(self, size: int = -1) -> bytes:
        return self._counted(super().read1(size))

    def readline(self, size: int | None = -1) -> bytes:
        return self._counted(super().readline(self.limit + 1 if size is None or size < 0 else size))

    def close(self) -> None:
        # The file was opened here, so gzip does not close it.
        super().close()
        self._packed_file.close()

    def _counted(self, data: bytes) -> bytes:
        self._unpacked_bytes += len(data)
        if self._unpacked_bytes > self.limit:
            raise SizeLimitError(
                f"{self._source}: {self._packed_bytes:,} bytes become more than {self.limit:,}; unpack it with gzip if "
                "you trust it, and give the unpacked file"
            )
        return data


def unpack_bounded(data: bytes, source: str) -> bytes:
    """Unpacks the bytes of a gzip file.

    Raises:
      OSError, EOFError: it is damaged.
      SizeLimitError: it becomes more than `unpacked_limit` bytes.
    """
    limit = unpacked_limit(len(data))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        # One byte more than accepted says enough.
        unpacked = file.read(limit + 1)
    if len(unpacked) > limit:
        raise SizeLimitError(f"{source}: {len(data):,} bytes become more than {limit:,}; that is no table of ours")
    return unpacked


def load_npz(path: Path | str, limit: int | None = None) -> "dict[str, npt.NDArray[Any]]":
    """Reads the arrays of a .npz file. Their sizes come from its directory and their headers, before they are read.

    Args:
      limit: bytes of all arrays together; None: `unpacked_limit` of the file's size.

    Raises:
      OSError: it cannot be read.
      SizeLimitError: it is not a regular file, or becomes too large.
      ValueError: it is damaged, or holds Python objects.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)

            # Sizes from the archive's directory, which are checked again when each array is read.
            packed = os.fstat(file.fileno()).st_size
            accepted = unpacked_limit(packed) if limit is None else limit
            if size > accepted or len(members) > MAX_ARRAYS:
                raise SizeLimitError(
                    f"{path}: {len(members):,} arrays of {size:,} bytes in a file of {packed:,}; at most "
                    f"{MAX_ARRAYS:,} arrays of {accepted:,} bytes are accepted"
                )
            arrays = {}
            for member in members:
                with archive.open(member) as content:
                    arrays[member.filename.removesuffix(".npy")] = _read_array(content, member.file_size, path)
            return arrays
    except (EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: not a .npz file, or damaged ({error})") from None


def load_npy(source: Path | str | bytes, name: str = "array") -> "npt.NDArray[Any]":
    """Reads an array: a .npy file, or the bytes of one, which the array then shares: it is read-only.

    Args:
      name: names the bytes in messages.

    Raises:
      OSError: the file cannot be read.
      ValueError: it is damaged, holds Python objects, or its header states another size than it has.
    """
    if isinstance(source, bytes):
        return _share_array(source, name)
    with open_regular(source) as file:
        return _read_array(file, os.fstat(file.fileno()).st_size, source)


def _share_array(data: bytes, name: str) -> "npt.NDArray[Any]":
    import numpy as np

    head = _read_array_head(file := io.BytesIO(data), len(data), name)
    if len(data) != file.tell() + head.bytes:
        raise _other_size(name, head)
    return head.shaped(np.frombuffer(data, np.uint8, offset=file.tell()) if head.bytes else np.empty(0, np.uint8))


def _read_array(file: IO[bytes], size: int, path: Path | str) -> "npt.NDArray[Any]":
    """Reads an array in numpy's format whose header and data take `size` bytes."""
    import numpy as np

    # Filled as the bytes arrive: a header alone must not claim the memory.
    head = _read_array_head(file, size, path)
    flat = np.empty(head.bytes, np.uint8)
    filled = 0
    while filled < head.bytes and (data := file.read(min(head.bytes - filled, _CHUNK))):
        flat[filled : filled + len(data)] = np.frombuffer(data, np.uint8)
        filled += len(data)
    if filled < head.bytes or file.read(1):
        raise _other_size(path, head)
    return head.shaped(flat)


class _ArrayHead(NamedTuple):
    """What the head of an array says.

    Attributes:
      bytes: of its data.
    """

    dtype: "np.dtype[Any]"
    shape: tuple[int, ...]
    fortran: bool
    bytes: int

    def shaped(self, flat: "npt.NDArray[np.uint8]") -> "npt.NDArray[Any]":
        """The array of some data."""
        return flat.view(self.dtype).reshape(self.shape, order="F" if self.fortran else "C")


def _other_size(path: Path | str, head: _ArrayHead) -> ValueError:
    return ValueError(f"{path}: the head of an array states {head.bytes:,} bytes, and more or fewer follow it")


def _read_array_head(file: IO[bytes], size: int, path: Path | str) -> _ArrayHead:
    """Reads the head of an array in numpy's format; head and data take `size` bytes.

    numpy's reader of headers is not used: it parses them as Python, and CPython's parser keeps its depth for the whole
    process, so another thread that parses makes it fail now and then ("AST constructor recursion depth mismatch").
    """
    import numpy as np

    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{path}: an array of version {version} of numpy's format; 1.0 and 2.0 are accepted")

    length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
    header = _ARRAY_HEADER.fullmatch(file.read(min(length, _MAX_HEADER)))
    if header is None:
        raise ValueError(f"{path}: the head of an array does not state its type and shape as numpy's writer does")
    shape = tuple(int(size) for size in header["shape"].replace(b",", b" ").split())
    fortran = header["fortran"] == b"True"
    try:
        dtype = np.dtype(header["dtype"].decode())
    except TypeError as error:
        raise ValueError(f"{path}: an array of a type that numpy does not have ({error})") from None
    if dtype.hasobject:
        raise ValueError(f"{path}: an array of Python objects, which only a pickle holds; plain numbers are accepted")

    stated = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or stated > size:
        raise ValueError(f"{path}: the head of an array states {stated:,} bytes, and {size:,} are there")
    return _ArrayHead(dtype, shape, fortran, stated)

"""Compiled templates, kept beside Python's own byte code: to compile those of a page takes as long as to write it."""

import contextlib
import importlib.util
import marshal
import sys
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from voxline.store.files import atomic_write
from voxline.store.hashing import hash_bytes


class CompiledTemplates(jinja2.BytecodeCache):
    """A cache of templates in the folder of this module's byte code; without one, where Python writes none.

    A file begins with the hash of the template's source, the versions of Python's byte code and of Jinja, the options
    of the environment, and the hash of what follows; with others it is compiled again. It is byte code, and no pickle.
    """

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
            header, _, code = _file(bucket).read_bytes().partition(b"\n")
            if header == _header(bucket, code):
                bucket.code = marshal.loads(code)  # noqa: S302 - as Python loads its own byte code, from the same folder

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode or bucket.code is None:
            return
        with contextlib.suppress(OSError), atomic_write(_file(bucket), durable=False) as file:  # read-only here
            code = marshal.dumps(bucket.code)
            file.write(_header(bucket, code) + b"\n" + code)


def _header(bucket: Bucket, code: bytes) -> bytes:
    options = bucket.environment
    # Another Python reads this one's byte code without an error, and ends by SIGSEGV where it runs it.
    python = importlib.util.MAGIC_NUMBER.hex()
    values = [
        python,
        jinja2.__version__,
        options.autoescape,
        options.trim_blocks,
        options.lstrip_blocks,
        options.undefined,
        hash_bytes(code),
    ]
    return f"{bucket.checksum} {values!r}".encode()


def _file(bucket: Bucket) -> Path:
    name = f"{bucket.key}.{sys.implementation.cache_tag}.jinja"
    return Path(importlib.util.cache_from_source(__file__)).with_name(name)

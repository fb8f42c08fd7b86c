"""Compiled templates, kept beside Python's own byte code: to compile those of a page takes as long as to write it."""

import contextlib
import importlib.util
import sys
from pathlib import Path

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from voxline.store.files import atomic_write


class CompiledTemplates(BytecodeCache):
    """A cache of templates in the folder of this module's byte code; without one, where Python writes none.

    Jinja compares the hash of a template's source, and the versions of Jinja and Python, before it uses one.
    """

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError), open(_file(bucket), "rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        with contextlib.suppress(OSError), atomic_write(_file(bucket), durable=False) as file:  # read-only here
            bucket.write_bytecode(file)


def _file(bucket: Bucket) -> Path:
    return Path(importlib.util.cache_from_source(__file__)).with_name(f"{bucket.key}.jinja")

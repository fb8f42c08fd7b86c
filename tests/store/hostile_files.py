"""Reads hostile files, each in a process with little memory and time, and prints what happened as JSON.

python -m tests.store.hostile_files FOLDER
"""

import gzip
import json
import os
import resource
import signal
import struct
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from voxline.data.manifest import read_manifest
from voxline.data.tfrecord import read_tfrecords
from voxline.errors import VoxlineError
from voxline.inference.ngram import NgramModel
from voxline.pipelines.config.load import read_yaml
from voxline.store.files import read_json
from voxline.store.size_limits import BoundedGzip, iter_bounded_lines, load_npy

SECONDS = 30
"""Processor time of a case; without limits they took more than 60 s, or all memory."""
MEMORY = 512 << 20
"""Bytes that a case may take beyond what its process has when it starts."""
ARPA = "\\data\\\nngram 1=1\n\n\\1-grams:\n"


def written(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def sparse(path: Path, size: int) -> Path:
    path.touch()
    os.truncate(path, size)
    return path


def empty_orders(count: int) -> str:
    counts = "".join(f"ngram {order}={int(order == 1)}\n" for order in range(1, count + 1))
    sections = "".join(f"\\{order}-grams:\n" + "-1 a\n" * (order == 1) for order in range(1, count + 1))
    return f"\\data\\\n{counts}\n{sections}\\end\\\n"


def gzip_bomb(path: Path, block: bytes, head: bytes = ARPA.encode()) -> Path:
    """The block 1,000 times: gzip files after each other are one."""
    return written(path, gzip.compress(head) + gzip.compress(block) * 1_000)


def npz_bomb(path: Path) -> Path:
    """640 MB of zeros in 3 MB."""
    zeros = bytes(1 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("words.npy", "w") as file:
            np.lib.format.write_array(file, np.frombuffer(b"<unk>\n<s>\n</s>", np.uint8))
        with archive.open("grams_1.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<i4", "fortran_order": False, "shape": (160 << 20, 1)}
            )
            for _ in range(640):
                file.write(zeros)
    return path


def npz_with_a_false_header(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive, archive.open("words.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (1 << 40,)})
        file.write(b"<unk>")
    return path


def record_with_length(path: Path, length: int) -> Path:
    from voxline.data.tfrecord import _masked

    head = struct.pack("<Q", length)
    return written(path, head + struct.pack("<I", _masked(head)) + b"x" * 20)


CASES: dict[str, Callable[[Path], Any]] = {
    "yaml_entries": lambda path: read_yaml(written(path, "a:\n" + "- 1\n" * 750_000)),
    "yaml_entries_of_a_megabyte": lambda path: read_yaml(written(path, "a:\n" + "- 1\n" * 240_000)),
    "yaml_anchors": lambda path: read_yaml(written(path, "".join(f"- &x{i} 1\n" for i in range(80_000)))),
    "yaml_scalar": lambda path: read_yaml(written(path, "name: " + "a" * 50_000_000)),
    "yaml_open_brackets": lambda path: read_yaml(written(path, "[" * 900_000)),
    "yaml_nested_lists": lambda path: read_yaml(written(path, "- " * 400_000)),
    "yaml_device": lambda _: read_yaml(Path("/dev/zero")),
    "yaml_fifo": lambda path: read_yaml(fifo(path)),
    "arpa_empty_orders": lambda path: NgramModel.read_arpa(written(path, empty_orders(3_000))),
    "arpa_counts": lambda path: NgramModel.read_arpa(written(path, ARPA.replace("=1", f"={10**17}"))),
    "arpa_line": lambda path: NgramModel.read_arpa(sparse(path, 1 << 31)),
    "arpa_gzip_line": lambda path: NgramModel.read_arpa(gzip_bomb(path.with_suffix(".gz"), b"a" * 1_000_000)),
    "arpa_gzip_blank_lines": lambda path: NgramModel.read_arpa(gzip_bomb(path.with_suffix(".gz"), b"\n" * 1_000_000)),
    "arpa_gzip_comments": lambda path: NgramModel.read_arpa(
        gzip_bomb(path.with_suffix(".gz"), b"#\n" * 100_000, head=b"")
    ),
    "arpa_gzip_repeats": lambda path: NgramModel.read_arpa(
        gzip_bomb(path.with_suffix(".gz"), b"-1 a\n" * 100_000, head=ARPA.replace("=1", "=2000000").encode())
    ),
    "gzip_lines": lambda path: list(iter_bounded_lines(BoundedGzip(gzip_bomb(path, b"a" * 99_999 + b"\n")), path)),
    "arpa_fifo": lambda path: NgramModel.read_arpa(fifo(path)),
    "npz_bomb": lambda path: NgramModel.load(npz_bomb(path)),
    "npz_header": lambda path: NgramModel.load(npz_with_a_false_header(path)),
    "npy_header": lambda path: load_npy(
        written(
            path,
            b"\x93NUMPY\x01\x00v\x00"
            + f"{{'descr':'<i4','fortran_order':False,'shape':({1 << 40},)}}".ljust(117).encode()
            + b"\n",
        )
    ),
    "manifest_line": lambda path: read_manifest(sparse(path, 1 << 31)),
    "manifest_fifo": lambda path: read_manifest(fifo(path)),
    "json_size": lambda path: read_json(sparse(path, 1 << 31)),
    "json_depth": lambda path: read_json(written(path, "[" * 1_000_000)),
    "json_device": lambda _: read_json(Path("/dev/zero")),
    "tfrecord_length": lambda path: list(read_tfrecords(record_with_length(path, 2**60))),
    "tfrecord_length_that_wraps": lambda path: list(read_tfrecords(record_with_length(path, 2**64 - 16))),
}


def attempt(read: Callable[[Path], Any], path: Path) -> dict[str, Any]:
    """What reading a file came to, in a process of its own."""
    receiver, sender = os.pipe()
    process = os.fork()
    if not process:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.alarm(3 * SECONDS)  # for what waits, such as the writer of a FIFO
        try:
            read(path)
            outcome = {"error": "", "message": ""}
        except (VoxlineError, ValueError) as error:
            outcome = {"error": "refused", "message": str(error)}
        except BaseException as error:
            outcome = {"error": type(error).__name__, "message": str(error)}
        os.write(sender, json.dumps(outcome).encode())
        os._exit(0)
    os.close(sender)
    started = time.monotonic()
    answer = b"".join(iter(lambda: os.read(receiver, 65_536), b""))
    os.close(receiver)
    _, status = os.waitpid(process, 0)
    return {**json.loads(answer or "{}"), "status": status, "seconds": round(time.monotonic() - started, 2)}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print(json.dumps({name: attempt(read, folder / name) for name, read in CASES.items()}))

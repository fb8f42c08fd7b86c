"""Makes an installed folder small and reproducible: no tests, no C; byte code; one timestamp on every file.

    SOURCE_DATE_EPOCH=1767225600 python3 tidy.py FOLDER     an image's
    python3 tidy.py --strip FOLDER                          an environment of `make setup`: nothing but the removal

Byte code is validated by the hash of its source instead of the file's time, and not checked at run time: it is
reproducible, and a read-only image need not compile at each start.
"""

import compileall
import os
import shutil
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

UNUSED_FOLDERS = ("tensorflow/include", "pyarrow/include", "numpy/_core/include", "onnx/backend/test")
"""C headers, a fifth of TensorFlow's unpacked size, and ONNX's tests for those who write a runtime."""
C_SOURCES = (".c", ".cc", ".h", ".hpp")

INSTALL_RECORDS = ("uv_cache.json", "direct_url.json")


def tidy(folder: Path, epoch: int) -> None:
    """Removes what a running step never opens, compiles the rest, and sets the time and the mode of every file."""
    strip(folder)
    for packages in folder.rglob("site-packages"):
        for metadata in packages.glob("*.dist-info"):
            _remove_install_records(metadata)
    for path in sorted(folder.rglob("__pycache__")):
        shutil.rmtree(path)
    compileall.compile_dir(
        folder,
        quiet=2,
        workers=0,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        stripdir=folder,
        prependdir="/",  # tracebacks name the path in the image
    )
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def strip(folder: Path) -> None:
    """Removes what no running process opens: headers and sources in C, and the tests of packages."""
    for packages in folder.rglob("site-packages"):
        for name in UNUSED_FOLDERS:
            shutil.rmtree(packages / name, ignore_errors=True)
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            continue
        if path.name == "tests" and path.is_dir():
            shutil.rmtree(path)
        elif path.suffix in C_SOURCES and path.is_file():
            path.unlink()


def _remove_install_records(metadata: Path) -> None:
    """Removes the files that record when and from where a package was installed, and their entries in RECORD."""
    for name in INSTALL_RECORDS:
        (metadata / name).unlink(missing_ok=True)
    record = metadata / "RECORD"
    if record.is_file():
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        record.write_text(
            "".join(line for line in lines if not line.split(",")[0].endswith(INSTALL_RECORDS)), encoding="utf-8"
        )


if __name__ == "__main__":
    if sys.argv[1] == "--strip":
        strip(Path(sys.argv[2]))
    else:
        tidy(Path(sys.argv[1]), int(os.environ["SOURCE_DATE_EPOCH"]))

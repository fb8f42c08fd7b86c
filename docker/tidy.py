"""Makes an installed folder small and repeatable: no tests, no headers; compiled once; one time on every file.

    SOURCE_DATE_EPOCH=1767225600 python3 tidy.py FOLDER

Byte code is named by the hash of its source and never checked again: a file's time does not get into it, and a
read-only image need not compile at each start.
"""

import compileall
import os
import shutil
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

LEFT_OUT = ("tensorflow/include", "pyarrow/include", "numpy/_core/include")
"""Headers, for those who compile against a library: a fifth of what TensorFlow unpacks to."""

INSTALLATION = ("uv_cache.json", "direct_url.json")


def tidy(folder: Path, epoch: int) -> None:
    """Removes what a running step never opens, compiles the rest, and gives everything one time and plain modes."""
    for packages in folder.rglob("site-packages"):
        for name in LEFT_OUT:
            shutil.rmtree(packages / name, ignore_errors=True)
        for about in packages.glob("*.dist-info"):
            _forget_the_installation(about)
    for found in sorted(folder.rglob("*")):
        if found.name in ("tests", "__pycache__") and found.is_dir() and not found.is_symlink():
            shutil.rmtree(found)
    compileall.compile_dir(
        folder,
        quiet=2,
        workers=0,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        stripdir=folder,
        prependdir="/",  # tracebacks name the file where it will lie
    )
    for found in (folder, *folder.rglob("*")):
        if not found.is_symlink():
            found.chmod(0o755 if found.is_dir() or os.access(found, os.X_OK) else 0o644)
        os.utime(found, (epoch, epoch), follow_symlinks=False)


def _forget_the_installation(about: Path) -> None:
    """Removes what says when, and from which folder, a package was installed; from the list of its files too."""
    for name in INSTALLATION:
        (about / name).unlink(missing_ok=True)
    record = about / "RECORD"
    if record.is_file():
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        record.write_text(
            "".join(line for line in lines if not line.split(",")[0].endswith(INSTALLATION)), encoding="utf-8"
        )


if __name__ == "__main__":
    tidy(Path(sys.argv[1]), int(os.environ["SOURCE_DATE_EPOCH"]))

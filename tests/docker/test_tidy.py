"""What tidy.py leaves of an installed folder, and that it leaves the same each time."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

TIDY = Path(__file__).parent.parent.parent / "docker" / "tidy.py"
EPOCH = 1_767_225_600


def installed(root: Path) -> Path:
    """A folder as an installer leaves it, with a package, its tests, headers and records."""
    packages = root / "opt" / "voxline" / "lib" / "python3.11" / "site-packages"
    files = {
        "speech/__init__.py": "def fail():\n    raise ValueError('told')\n",
        "speech/tests/test_speech.py": "pass\n",
        "speech/__pycache__/__init__.cpython-311.pyc": "stale",
        "tensorflow/include/tensor.h": "int x;\n",
        "speech/fast.c": "int x;\n",
        "speech-1.dist-info/direct_url.json": "{}",
        "speech-1.dist-info/uv_cache.json": "{}",
        "speech-1.dist-info/METADATA": "Name: speech\n",
        "speech-1.dist-info/RECORD": "speech/__init__.py,,\nspeech-1.dist-info/uv_cache.json,sha256=ab,2\n",
    }
    for name, text in files.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text, encoding="utf-8")
    (packages / "speech" / "__init__.py").chmod(0o600)
    (packages / "link").symlink_to("speech")
    return packages


def tidy(root: Path) -> None:
    subprocess.run([sys.executable, TIDY, root], env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}, check=True)


def state(root: Path) -> dict[str, tuple[int, int, str]]:
    """Path → mode, time and hash of everything in a folder."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            int(path.lstat().st_mtime),
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(root.rglob("*"))
    }


def test_files_that_no_step_opens_are_removed(tmp_path: Path) -> None:
    packages = installed(tmp_path)
    tidy(tmp_path)
    left = {path.name for path in (*packages.glob("speech/*"), *packages.glob("speech-1.dist-info/*"))}
    assert left == {"__init__.py", "__pycache__", "METADATA", "RECORD"}
    assert (packages / "speech-1.dist-info" / "RECORD").read_text(encoding="utf-8") == "speech/__init__.py,,\n"
    assert not (packages / "tensorflow" / "include").exists()


def test_an_environment_loses_the_same_and_is_otherwise_as_it_was(tmp_path: Path) -> None:
    packages = installed(tmp_path)
    before = state(packages / "speech-1.dist-info")
    subprocess.run([sys.executable, TIDY, "--strip", tmp_path], check=True)
    assert {path.name for path in packages.glob("speech/*")} == {"__init__.py", "__pycache__"}
    assert not (packages / "tensorflow" / "include").exists()
    assert (packages / "speech" / "__pycache__" / "__init__.cpython-311.pyc").read_text() == "stale"
    assert state(packages / "speech-1.dist-info") == before


def test_every_file_has_the_same_time_and_a_plain_mode(tmp_path: Path) -> None:
    installed(tmp_path)
    tidy(tmp_path)
    found = state(tmp_path)
    assert {time for _, time, _ in found.values()} == {EPOCH}
    assert {mode & 0o777 for path, (mode, _, _) in found.items() if not (tmp_path / path).is_symlink()} == {
        0o644,
        0o755,
    }


def test_folders_installed_at_different_times_become_identical(tmp_path: Path) -> None:
    for name in ("one", "two"):
        packages = installed(tmp_path / name)
        if name == "two":
            os.utime(packages / "speech" / "__init__.py", (1, 1))
        tidy(tmp_path / name)
    assert state(tmp_path / "one") == state(tmp_path / "two")


def test_byte_code_is_used_without_checking_its_source(tmp_path: Path) -> None:
    packages = installed(tmp_path)
    tidy(tmp_path)
    (packages / "speech" / "__init__.py").write_text("", encoding="utf-8")
    sys.path.insert(0, str(packages))
    try:
        import speech  # type: ignore[import-not-found]

        with pytest.raises(ValueError, match="told"):
            speech.fail()
    finally:
        sys.path.remove(str(packages))
        sys.modules.pop("speech", None)

"""The wheel, which is what an image holds of our code: all of it, and nothing else."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from voxline.pipelines.images import context_files

ROOT = Path(__file__).parent.parent.parent
LEFT_BEHIND = ("components/id_rsa", "voxline/report/key.json", "pipelines/.netrc", "pipelines/notes.txt")


def test_the_wheel_has_our_code_and_no_stray_key(tmp_path: Path) -> None:
    ours = [name for name in context_files(ROOT) if not name.startswith("docker/")]
    for name in (*ours, *LEFT_BEHIND, "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        if name in ours:
            (tmp_path / name).unlink()
            shutil.copy(ROOT / name, tmp_path / name, follow_symlinks=False)
    building = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path / "wheel"]
    subprocess.run(building, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    links = {name for name in ours if (ROOT / name).is_symlink()}
    assert links == {"voxline/components", "voxline/configs", "voxline/pipelines"}
    code = set(ours) - links - {"LICENSE", "pyproject.toml"}
    assert held == {name if name.startswith("voxline/") else f"voxline/{name}" for name in code}

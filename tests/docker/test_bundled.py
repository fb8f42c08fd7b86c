"""The bill of materials names the decoders that wheels bundle; they say themselves what they are."""

import json
import re
import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import pytest
import soundfile

BUNDLED = Path(__file__).parents[2] / "docker" / "bundled.py"


def add(sbom: Path, packages: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, BUNDLED, sbom, packages], capture_output=True, text=True, check=False)


@pytest.fixture
def sbom(tmp_path: Path) -> Path:
    file = tmp_path / "sbom.cdx.json"
    listed = {"type": "library", "name": "soundfile", "version": "0.14.0", "bom-ref": "soundfile==0.14.0"}
    file.write_text(json.dumps({"bomFormat": "CycloneDX", "components": [listed]}), encoding="utf-8")
    return file


def test_ffmpeg_and_libsndfile_are_named_as_they_name_themselves(sbom: Path) -> None:
    done = add(sbom, Path(soundfile.__file__).parent)
    assert done.returncode == 0, done.stderr
    document = json.loads(sbom.read_text(encoding="utf-8"))
    found = {one["name"]: one for one in document["components"]}
    ffmpeg = subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-version"], capture_output=True, text=True, check=True)
    said = re.match(r"ffmpeg version n?([\d.]+)", ffmpeg.stdout)
    assert said
    assert found["ffmpeg"]["version"] == said[1]
    assert found["libsndfile"]["version"] == soundfile.__libsndfile_version__
    assert found["libsndfile"]["cpe"].startswith(f"cpe:2.3:a:libsndfile_project:libsndfile:{said_by_library()}:")
    assert found.keys() == {"soundfile", "ffmpeg", "libsndfile", "libflac", "libvorbis", "libopus", "lame", "mpg123"}
    assert {one["ref"] for one in document["dependencies"]} == {
        one["bom-ref"] for one in document["components"] if one["name"] != "soundfile"
    }


def said_by_library() -> str:
    return str(soundfile.__libsndfile_version__)


def test_a_library_without_a_version_stops_the_build(sbom: Path, tmp_path: Path) -> None:
    library = tmp_path / "packages" / "_soundfile_data" / "libsndfile_x86_64.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"no version")
    done = add(sbom, tmp_path / "packages")
    assert done.returncode != 0
    assert "libsndfile_x86_64.so: it does not say the version of libsndfile" in done.stderr

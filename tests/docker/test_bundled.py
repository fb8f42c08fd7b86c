"""The bill of materials names what wheels bundle, as it names itself, and no part has a licence that nobody knows."""

import json
import re
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import pytest
import soundfile

BUNDLED = Path(__file__).parents[2] / "docker" / "bundled.py"


def add(sbom: Path, packages: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, BUNDLED, sbom, packages], capture_output=True, text=True, check=False)


@pytest.fixture
def sbom(tmp_path: Path) -> Path:
    file = tmp_path / "sbom.cdx.json"
    listed = {
        "type": "library",
        "name": "soundfile",
        "version": "0.14.0",
        "bom-ref": "soundfile==0.14.0",
        "licenses": [{"license": {"id": "BSD-3-Clause"}}],
    }
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
    assert found.keys() == {
        "soundfile",
        "ffmpeg",
        "espeak-ng",
        "libsndfile",
        "libflac",
        "libvorbis",
        "libopus",
        "lame",
        "mpg123",
    }
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


@pytest.mark.parametrize(
    ("licenses", "told"),
    [
        ([], "madeup: no licence is stated"),
        ([{"license": {"id": "AGPL-3.0-only"}}], "madeup: AGPL-3.0-only"),
        ([{"license": {"id": "GPL-3.0-or-later"}}], "madeup: GPL-3.0-or-later"),
        ([{"expression": "MIT OR SSPL-1.0"}], "madeup: SSPL-1.0"),
        ([{"license": {"name": "License :: Other/Proprietary License"}}], "madeup: LicenseRef-Proprietary"),
        ([{"license": {"name": "as is, for friends"}}], "madeup: as is, for friends"),
        ([{"license": {"id": "MIT"}}, {"license": {"name": "License :: DFSG approved"}}], ""),
    ],
)
def test_a_licence_that_nobody_looked_at_stops_the_build(
    sbom: Path, tmp_path: Path, licenses: list[dict[str, Any]], told: str
) -> None:
    document = json.loads(sbom.read_text(encoding="utf-8"))
    document["components"].append({"type": "library", "name": "madeup", "version": "1", "licenses": licenses})
    sbom.write_text(json.dumps(document), encoding="utf-8")
    done = add(sbom, tmp_path)
    assert (done.returncode == 0, told in done.stderr) == (not told, True), done.stderr


def test_each_package_of_an_image_has_a_licence_that_is_known() -> None:
    """Of those that are installed here; the others stop the build of their image."""
    module = runpy.run_path(str(BUNDLED))
    installed = {canonical(package.metadata["Name"]): package for package in metadata.distributions()}
    faults, seen = [], set()
    for lock in sorted(BUNDLED.parent.glob("*/requirements.lock")):
        for name in re.findall(r"^([a-z0-9._-]+)==", lock.read_text(encoding="utf-8"), flags=re.MULTILINE):
            if (package := installed.get(canonical(name))) is None:
                continue
            seen.add(name)
            # As cyclonedx-py writes them.
            text = package.metadata.get("License") or ""
            expression = package.metadata.get("License-Expression") or (
                text if re.fullmatch(r"\S+( (AND|OR) \S+)+", text) else ""
            )
            classifiers = [line for line in package.metadata.get_all("Classifier") or [] if line.startswith("License")]
            licenses: list[dict[str, Any]] = [{"license": {"name": line}} for line in classifiers]
            licenses += [{"expression": expression}] if expression else []
            identifiers = {identifier.lower(): identifier for identifier in module["ACCEPTED"]}
            stated = identifiers.get(text.lower())
            licenses += [{"license": {"id": stated}}] if stated else []
            faults.append(module["check_licence"]({"name": package.metadata["Name"], "licenses": licenses}))
    assert len(seen) > 100
    assert "; ".join(filter(None, faults)) == ""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()

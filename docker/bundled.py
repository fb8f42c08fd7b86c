"""Adds what Python packages bundle without naming it to a bill of materials: the decoders of strangers' recordings.

    python3 bundled.py SBOM SITE_PACKAGES

A list of Python packages does not name the static ffmpeg in imageio-ffmpeg, nor libsndfile and the codecs in soundfile.
Scanners look them up by their CPE. libogg, in the same file, has no version among its bytes, so it is not listed.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SNDFILE = "_soundfile_data/libsndfile*.so*"
BUNDLED = {
    "ffmpeg": ("imageio_ffmpeg/binaries/ffmpeg-*", "ffmpeg:ffmpeg", None),
    "libsndfile": (SNDFILE, "libsndfile_project:libsndfile", rb"libsndfile-(\d+\.\d+(?:\.\d+)?)"),
    "libflac": (SNDFILE, "flac_project:flac", rb"libFLAC (\d+\.\d+(?:\.\d+)?)"),
    "libvorbis": (SNDFILE, "xiph.org:libvorbis", rb"libVorbis (\d+\.\d+(?:\.\d+)?)"),
    "libopus": (SNDFILE, "opus-codec:opus", rb"libopus (\d+\.\d+(?:\.\d+)?)"),
    "lame": (SNDFILE, "lame_project:lame", rb"LAME ?(\d+\.\d+(?:\.\d+)?)"),
    # The string of mpg123_distversion, then the first of its error messages.
    "mpg123": (SNDFILE, "mpg123:mpg123", rb"(\d+\.\d+\.\d+)\0A generic mpg123 error"),
}
"""Name → the file that holds it, vendor and product of its CPE, and where its bytes say the version; None: the name of
the file says it."""


def components(packages: Path) -> Iterator[dict[str, Any]]:
    """What is bundled in a folder of installed packages, as components of CycloneDX.

    Raises:
      SystemExit: a file is there, and does not say its version.
    """
    for name, (pattern, cpe, says) in BUNDLED.items():
        for file in sorted(packages.glob(pattern)):
            content = file.read_bytes()
            found = re.search(says, content) if says else re.search(rb"-v(\d+(?:\.\d+)+)", file.name.encode())
            if not found:
                raise SystemExit(f"{file}: it does not say the version of {name}; correct BUNDLED in docker/bundled.py")
            version = found[1].decode()
            where = file.relative_to(packages).as_posix()
            yield {
                "type": "library",
                "bom-ref": f"bundled:{name}@{version}",
                "name": name,
                "version": version,
                "cpe": f"cpe:2.3:a:{cpe}:{version}:*:*:*:*:*:*:*",
                "purl": f"pkg:generic/{name}@{version}",
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
                "properties": [{"name": "voxline:bundled-in", "value": where}],
            }


def add(sbom: Path, packages: Path) -> None:
    """Adds the components to the file, and what depends on nothing to its dependencies."""
    document = json.loads(sbom.read_text(encoding="utf-8"))
    for one in components(packages):
        document.setdefault("components", []).append(one)
        document.setdefault("dependencies", []).append({"ref": one["bom-ref"]})
    sbom.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    add(Path(sys.argv[1]), Path(sys.argv[2]))

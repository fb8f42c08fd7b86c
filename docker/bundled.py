"""Completes a bill of materials: what Python packages bundle without naming it, and the licence of each part.

    python3 bundled.py SBOM SITE_PACKAGES [BASE_LIST]

A list of Python packages does not name the static ffmpeg in imageio-ffmpeg, espeak-ng in espeakng-loader, nor
libsndfile and the codecs in soundfile. Scanners look them up by their CPE. libogg, in soundfile's file, has no version
among its bytes, so it is not listed.

BASE_LIST is what `debian.py` wrote of the base's packages, whose licences it has looked at.

A part with a licence that nobody has looked at, or with none, stops the build. The GPL is accepted of two programs, and
what is not free of the libraries of accelerators.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SNDFILE = "_soundfile_data/libsndfile*.so*"
ESPEAK = "espeakng_loader/libespeak-ng.so.1.*"
BUNDLED = {
    "ffmpeg": ("imageio_ffmpeg/binaries/ffmpeg-*", "ffmpeg:ffmpeg", "GPL-3.0-or-later", None),
    "espeak-ng": (ESPEAK, "espeak-ng:espeak-ng", "GPL-3.0-or-later", rb"\0(\d+\.\d+(?:\.\d+)?)\0"),
    "libsndfile": (SNDFILE, "libsndfile_project:libsndfile", "LGPL-2.1-or-later", rb"libsndfile-(\d+\.\d+(?:\.\d+)?)"),
    "libflac": (SNDFILE, "flac_project:flac", "BSD-3-Clause", rb"libFLAC (\d+\.\d+(?:\.\d+)?)"),
    "libvorbis": (SNDFILE, "xiph.org:libvorbis", "BSD-3-Clause", rb"libVorbis (\d+\.\d+(?:\.\d+)?)"),
    "libopus": (SNDFILE, "opus-codec:opus", "BSD-3-Clause", rb"libopus (\d+\.\d+(?:\.\d+)?)"),
    "lame": (SNDFILE, "lame_project:lame", "LGPL-2.0-or-later", rb"LAME ?(\d+\.\d+(?:\.\d+)?)"),
    # The string of mpg123_distversion, then the first of its error messages.
    "mpg123": (SNDFILE, "mpg123:mpg123", "LGPL-2.1-only", rb"(\d+\.\d+\.\d+)\0A generic mpg123 error"),
}
"""Name → the file that holds it, vendor and product of its CPE, its licence, and where its bytes say the version; None:
the name of the file says it."""

ACCEPTED = frozenset({
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "ISC", "LGPL-2.0-or-later",
    "LGPL-2.1-only", "LGPL-2.1-or-later", "LLVM-exception", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0",
    "Python-2.0", "Unlicense", "Zlib",
})  # fmt: skip
"""Identifiers of SPDX."""
COPYLEFT = {"ffmpeg": "GPL-3.0-or-later", "espeak-ng": "GPL-3.0-or-later", "espeakng-loader": "GPL-3.0-or-later"}
"""Programs, and the package that does nothing but carry one."""
PROPRIETARY = (("nvidia-", "LicenseRef-NVIDIA-Proprietary"), ("libtpu", "LicenseRef-Google-Cloud-Terms"))
"""Of packages whose name begins so: of the images for accelerators alone."""
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Other/Proprietary License": "LicenseRef-Proprietary",
    "Python Software Foundation License": "PSF-2.0",
}
"""Of PyPI, for packages that name no identifier."""
STATED = {
    "antlr4-python3-runtime": "BSD-3-Clause",
    "espeakng-loader": COPYLEFT["espeakng-loader"],
    "google-cloud-aiplatform": "Apache-2.0",
    "google-cloud-bigquery": "Apache-2.0",
    "keras": "Apache-2.0",
    "kfp-kubernetes": "Apache-2.0",
    "kfp-pipeline-spec": "Apache-2.0",
    "kfp-server-api": "Apache-2.0",
    "namex": "Apache-2.0",
    "protobuf": "BSD-3-Clause",
    "voxline": "Apache-2.0",
}
"""Licences that the packages' own metadata says in words, or not at all: read in their source repositories."""


def components(packages: Path) -> Iterator[dict[str, Any]]:
    """What is bundled in a folder of installed packages, as components of CycloneDX.

    Raises:
      SystemExit: a file is there, and does not say its version.
    """
    for name, (pattern, cpe, licence, says) in BUNDLED.items():
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
                "licenses": [{"license": {"id": licence}}],
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
                "properties": [{"name": "voxline:bundled-in", "value": where}],
            }


def licences(component: dict[str, Any]) -> set[str]:
    """Identifiers of the licences of a component, and words for which there is none.

    >>> sorted(licences({"name": "a", "licenses": [{"expression": "(MIT OR Apache-2.0) AND Zlib"}]}))
    ['Apache-2.0', 'MIT', 'Zlib']
    """
    package = component["name"].lower().replace("_", "-")
    for beginning, identifier in PROPRIETARY:
        if package.startswith(beginning):
            return {identifier}
    stated = STATED.get(package)
    identifiers = {stated} if stated else set()
    for choice in component.get("licenses", []):
        words = re.split(r"\s+(?:AND|OR|WITH)\s+|[()\s]+", choice.get("expression", ""))
        license = choice.get("license", {})
        name = license.get("name", "").split(" :: ")[-1]
        # Debian's judgement names no licence.
        if name and name != "DFSG approved":
            words.append(CLASSIFIERS.get(name, name))
        identifiers |= {word for word in (*words, license.get("id", "")) if word}
    return identifiers


def check_licence(component: dict[str, Any]) -> str:
    """Says what is wrong with the licence of a component; empty if nothing is."""
    name = component["name"]
    identifiers = licences(component)
    proprietary = {identifier for beginning, identifier in PROPRIETARY if name.startswith(beginning)}
    strange = identifiers - ACCEPTED - {COPYLEFT.get(name)} - proprietary
    if strange:
        return f"{name}: {', '.join(sorted(strange))}"
    return "" if identifiers else f"{name}: no licence is stated"


def add(sbom: Path, packages: Path, base: Path | None = None) -> None:
    """Adds the components to the file, and what depends on nothing to its dependencies.

    Args:
      base: the list of the base's packages.

    Raises:
      SystemExit: a licence is not accepted; or see `components`.
    """
    document = json.loads(sbom.read_text(encoding="utf-8"))
    for component in components(packages):
        document.setdefault("components", []).append(component)
        document.setdefault("dependencies", []).append({"ref": component["bom-ref"]})

    # Scanners and readers want an identifier for each part.
    for component in document.get("components", []):
        if not component.get("licenses") and (identifiers := licences(component)):
            component["licenses"] = [{"license": {"id": identifier}} for identifier in sorted(identifiers)]
    if faults := list(filter(None, map(check_licence, document.get("components", [])))):
        raise SystemExit(f"look at these licences, then add them to docker/bundled.py: {'; '.join(faults)}")

    # Programs under the GPL are accepted of the base: Debian's own list has been checked by its own rule.
    for component in json.loads(base.read_text(encoding="utf-8")) if base else ():
        document["components"].append(component)
        document.setdefault("dependencies", []).append({"ref": component["bom-ref"]})
    sbom.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    add(*map(Path, sys.argv[1:]))

"""Lists the packages of an image's base with their licences, for its bill of materials.

    python3 debian.py ROOT LIST

The packages are those of dpkg in a root folder, and the licences those that their copyright files state, in Debian's
machine-readable form (DEP-5): of everything in a package's sources, so a program under one licence may have several.
Names that SPDX has become its identifiers; others are kept as Debian writes them. Packages whose file is prose are in
`PROSE`.

A licence that nobody has looked at, or a package without any, stops the build, as a Python package's does. A base
without dpkg is no Debian: the list is empty, and a line says so. The Python of the base is in the list if dpkg did not
install it.
"""

import json
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

STATUS = "var/lib/dpkg/status"
COPYRIGHT = "usr/share/doc/{}/copyright"
OWN_PYTHON = "usr/local/bin/python3"

SPDX = {
    "0bsd": "0BSD", "apache-2": "Apache-2.0", "artistic": "Artistic-1.0-Perl", "artistic-2": "Artistic-2.0",
    "beerware": "Beerware", "bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause",
    "bsd-4-clause": "BSD-4-Clause", "bsd-4-clause-uc": "BSD-4-Clause-UC", "bsl-1": "BSL-1.0",
    "cc-by-3.0": "CC-BY-3.0", "cc0-1.0": "CC0-1.0", "core-math": "MIT", "curl": "curl", "expat": "MIT",
    "fsfap": "FSFAP", "fsful": "FSFUL", "fsfullr": "FSFULLR", "isc": "ISC", "latex2e": "Latex2e", "mit": "MIT",
    "mit/x11": "X11", "ms-pl": "MS-PL", "sleepycat": "Sleepycat", "unicode-dfs-2016": "Unicode-DFS-2016", "x11": "X11",
    "zlib": "Zlib",
}  # fmt: skip
"""Debian's name in small letters, without ".0" → the identifier."""
FAMILY = re.compile(
    r"(GPL-[123]\.0|LGPL-2\.[01]|LGPL-3\.0|GFDL-1\.[123]-no-invariants)-(or-later|only)|MPL-(1\.[01]|2\.0)"
)
"""Identifiers of SPDX that `VERSIONED` becomes."""
VERSIONED = re.compile(r"(L?GPL|GFDL|MPL)(?:-NIV)?(?:-v?(\d(?:\.\d)?))?(\+|-or-later|-only)?", re.IGNORECASE)
"""GPL-2+, LGPL-2.1, GFDL-NIV-1.3+, MPL-2.0; without a version any."""
EXCEPTION = re.compile(r"[- ]with[- ].*|(?<=[\d+])-[a-z].*exception.*", re.IGNORECASE)
"""More than a licence permits."""
REVIEWED = re.compile(
    r"BSD[-_].*|ISC-.*|MIT-.*|permissive.*|__auto_permissive__|public-domain.*|PD(-.*)?|SDBM-public-domain|verbatim|none"
    r"|Artistic-dist|BSLA|BZIP|Carnegie|DEC|DONT-CHANGE-THE-GPL|FSF-manpages|GAP|IBM|Inner-Net|Kazlib|noderivs|PCRE"
    r"|Autoconf|config-h|HSIEH-.*|ISC\+IBM|probably-PD|RFC-Reference|RRA-KEEP-THIS-NOTICE|same-as-rest-of-.*|TinySCHEME"
    r"|REGCOMP|SMAIL-GPL|SunPro|TCL-like|TEXT-TABS|Unicode|Univ-Coimbra",
    re.IGNORECASE,
)
"""Names that SPDX lacks, of Debian 12 and 13: permissive ones, of texts that may not be changed (noderivs, verbatim:
the licences' own; RFC-Reference), and the GPL by another name (DONT-CHANGE-THE-GPL, SMAIL-GPL)."""
PROSE = {
    "debian-archive-keyring": ("GPL-2.0-or-later",),
    "gcc": ("GPL-3.0-or-later WITH GCC-exception-3.1",),
    "glibc": ("LGPL-2.1-or-later",),
    "gnutls28": ("LGPL-2.1-or-later",),
    "krb5": ("MIT",),
    "libselinux": ("public-domain",),
    "libtasn1": ("LGPL-2.1-or-later",),
    "libxcrypt": ("LGPL-2.1-or-later",),
}
"""Sources without their version → licences, read in files that no program can read."""


def components(root: Path) -> Iterator[dict[str, Any]]:
    """The packages of a root folder, as components of CycloneDX.

    Raises:
      SystemExit: names the licences that nobody has looked at, and packages without any.
    """
    packages = list(_installed(root))
    files = {package["Package"]: root / COPYRIGHT.format(package["Package"]) for package in packages}

    # Slim images lack the links by which packages of one source share a file.
    by_source: dict[str, Path] = {}
    for package in packages:
        if files[package["Package"]].is_file():
            by_source.setdefault(_source(package), files[package["Package"]])

    faults = []
    for package in packages:
        name = package["Package"]
        file = files[name] if files[name].is_file() else by_source.get(_source(package))
        licences = package_licences(package, file)
        strange = sorted(licence for licence in licences if not is_reviewed(licence))
        faults += [f"{name}: {licence}" for licence in strange] or ([] if licences else [f"{name}: none is stated"])
        yield _component(package, sorted(licences))
    if faults:
        raise SystemExit(f"look at these licences of the base, then add them to docker/debian.py: {'; '.join(faults)}")

    # An image of Python brings one that dpkg does not know.
    if (root / OWN_PYTHON).exists():
        version = platform.python_version()
        yield {
            "type": "library", "bom-ref": f"base:python@{version}", "name": "python", "version": version,
            "cpe": f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*", "purl": f"pkg:generic/python@{version}",
            "licenses": [{"license": {"id": "Python-2.0"}}],
        }  # fmt: skip


def package_licences(package: dict[str, str], file: Path | None) -> set[str]:
    """Identifiers of SPDX, and names of Debian's where there is none; empty if nothing is stated."""
    stated = set() if file is None else parse_copyright(file.read_text(encoding="utf-8", errors="replace"))
    return stated or set(PROSE.get(re.sub(r"-\d+(\.\d+)*$", "", _source(package)), ()))


def parse_copyright(text: str) -> set[str]:
    """The licences of a copyright file; empty if it is prose.

    >>> text = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\\n\\nFiles: *\\nLicense: "
    >>> sorted(parse_copyright(text + "GPL-2+ with OpenSSL exception or Expat, and BSD-3-clause\\n"))
    ['BSD-3-Clause', 'GPL-2.0-or-later', 'MIT']
    >>> parse_copyright("It is under the GNU GPL.")
    set()
    """
    if not re.search(r"^Format(-Specification)?: .*(copyright-format|dep5)", text, re.MULTILINE | re.IGNORECASE):
        return set()
    expressions = re.findall(r"^License:[ \t]*(\S.*)$", text, re.MULTILINE | re.IGNORECASE)
    return {
        spdx_or_name(name)
        for expression in expressions
        for name in re.split(r",?\s+(?:and/or|and|or)\s+|,\s*", expression.strip(), flags=re.IGNORECASE)
        if name
    }


def spdx_or_name(name: str) -> str:
    """The identifier of a licence by Debian's name for it, or that name.

    >>> [spdx_or_name(name) for name in ("GPL-2+", "LGPL-2.1", "GFDL-NIV-1.3+", "GPL-3+-autoconf-exception", "Sun RPC")]
    ['GPL-2.0-or-later', 'LGPL-2.1-only', 'GFDL-1.3-no-invariants-or-later', 'GPL-3.0-or-later', 'Sun RPC']
    """
    bare = EXCEPTION.sub("", name.strip())
    if versioned := VERSIONED.fullmatch(bare.replace("-no-invariant", "")):
        family, version, later = versioned.groups()
        any_later = later in ("+", "-or-later") or version is None
        version = version or {"LGPL": "2.0", "GFDL": "1.1"}.get(family.upper(), "1.0")  # the first that there was
        number = version if "." in version else f"{version}.0"
        if family.upper() == "MPL":
            return f"MPL-{number}"
        # Debian accepts the GFDL without invariant sections only.
        invariants = "-no-invariants" if family.upper() == "GFDL" else ""
        return f"{family.upper()}-{number}{invariants}-{'or-later' if any_later else 'only'}"
    return SPDX.get(re.sub(r"(?<=\d)\.0$", "", bare.lower()), SPDX.get(bare.lower(), name.strip()))


def is_reviewed(licence: str) -> bool:
    """Returns whether somebody has looked at a licence, by its identifier or by Debian's name."""
    prose = {stated for licences in PROSE.values() for stated in licences}
    return _is_identifier(licence) or licence in prose or bool(REVIEWED.fullmatch(licence))


def _is_identifier(licence: str) -> bool:
    return licence in SPDX.values() or bool(FAMILY.fullmatch(licence))


def _installed(root: Path) -> Iterator[dict[str, str]]:
    """The fields of each package that is installed; nothing where there is no dpkg."""
    file = root / STATUS
    if not file.is_file():
        print(f"{file}: no such file; the bill will not name the packages of this base", file=sys.stderr)
        return
    for paragraph in file.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            yield fields


def _source(package: dict[str, str]) -> str:
    # "gcc-14 (14.2.0-19)", where its version differs from the package's
    return package.get("Source", package["Package"]).split()[0]


def _component(package: dict[str, str], licences: list[str]) -> dict[str, Any]:
    name, version, architecture = package["Package"], package["Version"], package["Architecture"]
    return {
        "type": "library",
        "bom-ref": f"deb:{name}@{version}",
        "name": name,
        "version": version,
        # A plus sign in the address of a package means a space to some readers.
        "purl": f"pkg:deb/debian/{quote(name)}@{quote(version, safe=':')}?arch={architecture}",
        "licenses": [{"license": {"id" if _is_identifier(licence) else "name": licence}} for licence in licences],
        "properties": [{"name": "voxline:base-source", "value": _source(package)}],
    }


def write_list(root: Path, file: Path) -> None:
    """Writes the components as JSON."""
    file.write_text(json.dumps(list(components(root)), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_list(Path(sys.argv[1]), Path(sys.argv[2]))

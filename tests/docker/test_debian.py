"""The bill of materials has the base's packages, with the licences that Debian states, and stops at a strange one."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCKER = Path(__file__).parents[2] / "docker"
DEP5 = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nCopyright: 1990 a\n"

SLIM = """
apt base-passwd bash bsdutils ca-certificates coreutils dash debconf debianutils diffutils dpkg findutils
gcc-12-base gpgv grep gzip hostname init-system-helpers libacl1 libapt-pkg6.0 libattr1 libaudit1 libblkid1
libbz2-1.0 libc-bin libc6 libcap2 libcom-err2 libcrypt1 libdb5.3 libexpat1 libffi8 libgcc-s1 libgmp10
libgnutls30 libgssapi-krb5-2 libhogweed6 libidn2-0 libk5crypto3 libkeyutils1 libkrb5-3 liblz4-1 liblzma5 libmd0
libmount1 libncursesw6 libnettle8 libnsl2 libp11-kit0 libpam0g libpcre2-8-0 libreadline8 libseccomp2 libselinux1
libsqlite3-0 libssl3 libstdc++6 libsystemd0 libtasn1-6 libtinfo6 libtirpc3 libudev1 libuuid1 libxxhash0 libzstd1
login mawk mount ncurses-base netbase passwd perl-base sed sysvinit-utils tar tzdata util-linux zlib1g
""".split()  # noqa: SIM905 - as a paragraph it can be read
"""Packages of the slim images of Python on Debian 12, most of which any Debian has."""


def listed(root: Path) -> "tuple[subprocess.CompletedProcess[str], dict[str, dict[str, object]]]":
    """Runs the program; returns how it ended, and the components by name."""
    file = root / "base.json"
    command = [sys.executable, str(DOCKER / "debian.py"), str(root), str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    components = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return ended, {component["name"]: component for component in components}


def installed(root: Path, name: str, copyright_file: str = "", *, source: str = "", version: str = "1.0-2") -> None:
    """Adds a package to a root folder as dpkg and its package do."""
    status = root / "var" / "lib" / "dpkg" / "status"
    status.parent.mkdir(parents=True, exist_ok=True)
    with status.open("a") as file:
        file.write(f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\n")
        file.write((f"Source: {source}\n" if source else "") + f"Version: {version}\nDescription: a\n License: b\n\n")
    if copyright_file:
        (root / "usr/share/doc" / name).mkdir(parents=True)
        (root / "usr/share/doc" / name / "copyright").write_text(copyright_file, encoding="utf-8")


def names(component: dict[str, object]) -> list[str]:
    licences: list[dict[str, dict[str, str]]] = component["licenses"]  # type: ignore[assignment]
    return [text for licence in licences for text in licence["license"].values()]


def test_the_licences_are_debians_as_spdx_names_them(tmp_path: Path) -> None:
    text = DEP5 + "License: GPL-2+ or Expat\n The text\n License: of no matter\n\nFiles: b\nLicense: public-domain\n"
    installed(tmp_path, "libb", text)
    ended, components = listed(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert names(components["libb"]) == ["GPL-2.0-or-later", "MIT", "public-domain"]
    assert components["libb"]["licenses"] == [
        {"license": {"id": "GPL-2.0-or-later"}}, {"license": {"id": "MIT"}}, {"license": {"name": "public-domain"}},
    ]  # fmt: skip
    assert components["libb"]["purl"] == "pkg:deb/debian/libb@1.0-2?arch=amd64"


def test_identifiers_are_of_spdxs_own_list(tmp_path: Path) -> None:
    """A bill with another one is not valid; `packaging` has the list."""
    spdx = pytest.importorskip("packaging.licenses._spdx").LICENSES
    stated = "GPL GPL-1+ GPL-2 GPL-3+ LGPL LGPL-2+ LGPL-2.1 LGPL-3 GFDL GFDL-1.2+ GFDL-NIV-1.3 MPL MPL-1.1 MPL-2.0"
    installed(tmp_path, "liba", DEP5 + f"License: {', '.join(stated.split())}\n")
    ended, components = listed(tmp_path)
    assert ended.returncode == 0, ended.stderr
    licences: list[dict[str, dict[str, str]]] = components["liba"]["licenses"]  # type: ignore[assignment]
    assert len(licences) > 10
    assert [licence for licence in licences if licence["license"].get("id", "").lower() not in spdx] == []


def test_versions_are_written_as_addresses_of_packages_have_them(tmp_path: Path) -> None:
    """As the rules of https://github.com/package-url/purl-spec write a plus sign."""
    installed(tmp_path, "libstdc++6", DEP5 + "License: GFDL\n", version="1:14.2~rc1+b1-2")
    ended, components = listed(tmp_path)
    assert ended.returncode == 0, ended.stderr
    purl = "pkg:deb/debian/libstdc%2B%2B6@1:14.2~rc1%2Bb1-2?arch=amd64"
    assert components["libstdc++6"]["purl"] == purl
    # The earliest that SPDX has.
    assert names(components["libstdc++6"]) == ["GFDL-1.1-no-invariants-or-later"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (DEP5 + "License: GPL-2.1+\n", "liba: GPL-2.1-or-later"),
        (DEP5 + "License: SSPL-1.0\n", "liba: SSPL-1.0"),
        (DEP5 + "License: AGPL-3+\n", "liba: AGPL-3+"),
        (DEP5 + "License: Expat and for-friends\n", "liba: for-friends"),
        ("You may do what you like.\n", "liba: none is stated"),
        ("", "liba: none is stated"),
    ],
)
def test_a_licence_that_nobody_looked_at_stops_the_build(tmp_path: Path, text: str, told: str) -> None:
    installed(tmp_path, "liba", text)
    ended, components = listed(tmp_path)
    assert ended.returncode != 0
    assert f"then add them to docker/debian.py: {told}" in ended.stderr
    assert components == {}


def test_packages_of_one_source_share_its_file_and_removed_ones_are_left_out(tmp_path: Path) -> None:
    installed(tmp_path, "liba-common", DEP5 + "License: ISC\n", source="a (1.0)")
    installed(tmp_path, "liba1", source="a")
    installed(tmp_path, "libgcc-s1", "Prose.\n", source="gcc-14")
    status = tmp_path / "var/lib/dpkg/status"
    status.write_text(status.read_text() + "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n")
    ended, components = listed(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert {name: names(component) for name, component in components.items()} == {
        "liba-common": ["ISC"], "liba1": ["ISC"], "libgcc-s1": ["GPL-3.0-or-later WITH GCC-exception-3.1"],
    }  # fmt: skip


def test_a_base_of_another_system_is_said(tmp_path: Path) -> None:
    ended, components = listed(tmp_path)
    assert (ended.returncode, components) == (0, {})
    assert "the bill will not name the packages of this base" in ended.stderr


def test_the_list_ends_in_the_bill_and_its_licences_are_not_judged_as_pythons(tmp_path: Path) -> None:
    installed(tmp_path, "bash", DEP5 + "License: GPL-3+\n")
    assert listed(tmp_path)[0].returncode == 0
    sbom = tmp_path / "sbom.json"
    sbom.write_text(json.dumps({"bomFormat": "CycloneDX", "components": []}))
    command: list[str | Path] = [
        sys.executable,
        DOCKER / "bundled.py",
        sbom,
        tmp_path / "packages",
        tmp_path / "base.json",
    ]
    subprocess.run(command, check=True)
    bill = json.loads(sbom.read_text())
    assert [component["name"] for component in bill["components"]] == ["bash"]
    assert bill["dependencies"] == [{"ref": "deb:bash@1.0-2"}]


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="no Debian")
def test_a_slim_debian_is_listed_whole(tmp_path: Path) -> None:
    """Of this machine's packages those that such an image has, by dpkg's own list of them."""
    form = "${binary:Package}\t${Version}\t${source:Package}\t${db:Status-Abbrev}\n"
    asked = subprocess.run(["dpkg-query", "-W", "-f", form, *SLIM], capture_output=True, text=True, check=False).stdout
    rows = [line.split("\t") for line in asked.splitlines()]
    here = {name.partition(":")[0]: (version, source) for name, version, source, state in rows if state[:2] == "ii"}
    if not Path("/usr/share/doc/bash/copyright").exists():
        pytest.skip("this Debian has no copyright files")
    for name, (version, source) in here.items():
        copyright_file = Path("/usr/share/doc", name, "copyright").read_text(encoding="utf-8", errors="replace")
        installed(tmp_path, name, copyright_file, source=source, version=version)
    ended, components = listed(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert {name: component["version"] for name, component in components.items()} == {
        name: version for name, (version, _) in here.items()
    }
    assert len(components) > 40
    assert "GPL-3.0-or-later" in names(components["bash"])
    assert "LGPL-2.1-or-later" in names(components["libc6"])

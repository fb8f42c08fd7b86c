"""What an extra of the project installs, by this environment; and processes that have no more than that.

Requirements are read in pyproject.toml, and those of packages in their metadata.
"""

import functools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
GOOGLE = {"google-cloud-storage", "google-cloud-aiplatform"}
SHARED = {"google", "_distutils_hack", "pkg_resources", "setuptools"}
"""Modules of which several packages have parts."""
BUILDS = {"tensorflow-cpu": "tensorflow", "tensorflow": "tensorflow-cpu"}

_BLOCKED = """
import json, os, sys

absent = set(json.loads(os.environ["ABSENT_MODULES"]))

class Without:
    def __init__(self, finder):
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._finder, name)

    def find_spec(self, name, *arguments):
        hidden = name.partition(".")[0] in absent or ".".join(name.split(".")[:2]) in absent
        return None if hidden else self._finder.find_spec(name, *arguments)

sys.meta_path[:] = map(Without, sys.meta_path)
"""
"""A module `sitecustomize`, which Python imports at its start: of processes that the process starts, too."""


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def project() -> dict[str, list[str]]:
    """Extra → its requirements; "" is the core."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": table["dependencies"], **table["optional-dependencies"]}


@functools.cache
def closure(*extras: str) -> frozenset[str]:
    """The packages of the core with these extras, by their normalized names."""
    waiting = [Requirement(line) for extra in ("", *extras) for line in project()[extra]]
    held: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = normalized(requirement.name)
        for extra in ("", *requirement.extras):
            if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                continue
            if (name, extra) in held:
                continue
            held.add((name, extra))
            lines = project()[extra] if name == "voxline" else _requires(name)
            for parsed in map(Requirement, lines):
                # A marker that names an extra holds for that extra alone.
                if parsed.marker is None or parsed.marker.evaluate({"extra": extra}):
                    parsed.marker = None
                    waiting.append(parsed)
    return frozenset(name for name, _ in held)


@functools.cache
def _requires(name: str) -> list[str]:
    for build in (name, BUILDS.get(name, name)):
        try:
            return requires(build) or []
        except PackageNotFoundError:
            continue
    return []


def absent_modules(held: Collection[str]) -> list[str]:
    """Top-level modules of this environment that an environment with these packages alone does not have."""
    names = {*held, *(BUILDS[name] for name in held if name in BUILDS), "voxline"}
    return [
        module
        for module, packages in packages_distributions().items()
        if module not in SHARED and names.isdisjoint(map(normalized, packages))
    ]


def run_with(
    held: frozenset[str], code: str, *arguments: str, folder: Path, environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Runs a program in a process that can import no other packages of ours, in a folder."""
    start = folder / "blocked"
    start.mkdir(exist_ok=True)
    (start / "sitecustomize.py").write_text(_BLOCKED, encoding="utf-8")
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("VOXLINE_", "KF_"))}
    given = {
        "ABSENT_MODULES": json.dumps([*absent_modules(held), *(["google.cloud"] if not held & GOOGLE else [])]),
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join((str(start), str(ROOT))),
    }
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**inherited, **given, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )

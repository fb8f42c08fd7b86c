"""Which code produced a result: the git revision, and the versions of packages."""

import functools
import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

REVISION_VARIABLE = "VOXLINE_REVISION"
"""Names the git revision where there is no repository, as in an image."""

_BUILDS = {"tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-tpu")}
"""Package → the distributions that bring it."""


def git_revision() -> str | None:
    """The commit of the code that runs, with `+changes` if files differ from it; None if it is not known.

    A repository is asked once in a process: its modules are those of that moment.
    """
    return os.environ.get(REVISION_VARIABLE) or _describe_repository()


@functools.cache
def _describe_repository() -> str | None:
    git, root = shutil.which("git"), Path(__file__).resolve().parents[1]
    if git is None or not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(  # noqa: S603 - fixed arguments
            [git, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (subprocess.SubprocessError, OSError):
        return None
    return described.stdout.strip() or None


def package_versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions of those packages that are installed; of `tensorflow` that of any build of it."""
    versions = {package: _version(package) for package in packages}
    return {package: version for package, version in versions.items() if version is not None}


@functools.cache
def _version(package: str) -> str | None:
    for build in _BUILDS.get(package, (package,)):
        try:
            return importlib.metadata.version(build)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None

"""Which code produced a result: the git revision, and the versions of packages."""

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

REVISION_VARIABLE = "VOXLINE_REVISION"
"""Names the git revision where there is no repository, as in an image."""


def git_revision() -> str | None:
    """The commit of the code that runs, with `+changes` if files differ from it; None if it is not known."""
    named = os.environ.get(REVISION_VARIABLE)
    if named:
        return named
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
    """The versions of those packages that are installed."""
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions

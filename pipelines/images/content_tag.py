"""The tag of the container images: a name for what goes into them, so that the same tag is always the same code.

What goes in is what .dockerignore lets through, and the base. One tag serves every image: a compiled
pipeline names one registry and one tag.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from voxline.errors import SettingsError

IGNORE_FILE = ".dockerignore"
_WILDCARD = re.compile(r"[*?]")


def content_tag(root: Path, base: str = "") -> str:
    """The version and twelve digits of a hash: `0.1.0-3f9c1d2e4b5a`; never a number that YAML would read as one.

    Args:
      root: the project's folder.
      base: the base image, where it is not the Dockerfile's own.
    """
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    content = hashlib.sha256(base.encode())
    for path in context_files(root):
        file = root / path
        held = str(file.readlink()).encode() if file.is_symlink() else file.read_bytes()
        digest = hashlib.sha256(held).hexdigest()
        content.update(f"\n{digest} {path}".encode())
    return f"{version}-{content.hexdigest()[:12]}"


def context_files(root: Path) -> list[str]:
    """The files that .dockerignore lets into a build, by path below `root`, in order.

    Raises:
      SettingsError: the file is no allow-list of plain paths.
    """
    rules = list(_rules(root / IGNORE_FILE))
    files = {
        file.relative_to(root).as_posix()
        for allowed, pattern in rules
        if allowed and not _WILDCARD.search(pattern)
        for file in _walk(root / pattern)
    }
    return sorted(path for path in files if _is_included(path, rules))


def _rules(file: Path) -> Iterator[tuple[bool, str]]:
    """Each line as (let in?, pattern)."""
    folders: list[str] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        allowed = pattern.startswith("!")
        pattern = pattern.removeprefix("!").strip("/")
        if re.search(r"[\[\\]", pattern):
            raise SettingsError(f"{file}, line {number}: {line!r}: of wildcards only *, ** and ? are understood")
        if allowed and not _WILDCARD.search(pattern):
            folders.append(f"{pattern}/")
        elif allowed and not pattern.startswith(tuple(folders)):
            # Docker's classic builder does not look for such a file in a folder that it passes over.
            raise SettingsError(
                f"{file}, line {number}: {line!r}: let the folder in by its path first, and then a kind"
            )
        yield allowed, pattern


def _walk(place: Path) -> Iterator[Path]:
    if place.is_dir() and not place.is_symlink():
        for entry in sorted(place.iterdir()):
            yield from _walk(entry)
    elif place.is_symlink() or place.exists():
        yield place


def _is_included(path: str, rules: list[tuple[bool, str]]) -> bool:
    """Docker's rule: the last line that matches the path, or a folder above it, decides."""
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    let_in = True
    for allowed, pattern in rules:
        if any(_regex(pattern).fullmatch(place) for place in above):
            let_in = allowed
    return let_in


def _regex(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stay within a name; `**` crosses folders.

    >>> bool(_regex("**/*.pyc").fullmatch("a/b/c.pyc")), bool(_regex("*.pyc").fullmatch("a/c.pyc"))
    (True, False)
    """
    wildcards = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(wildcards.get(piece, re.escape(piece)) for piece in pieces))

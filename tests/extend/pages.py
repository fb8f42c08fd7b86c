"""Carries out a page of docs/extend from its text."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

_BLOCK = re.compile(r"(?:^`(?P<file>[\w./-]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def copy_tree(folder: Path) -> Path:
    """A copy of what the package consists of."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "voxline", "components", "pipelines", "configs", "pyproject.toml"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def carry_out(page: str, folder: Path, package: Path = ROOT) -> str:
    """Writes the files of a page, makes its changes, runs its commands, and returns what they print.

    Args:
      folder: where its files go and its commands run.
      package: the root that `voxline` is imported from.

    Raises:
      AssertionError: a command fails, a text to change is not there, or the output lacks what the page shows.
    """
    text = (ROOT / "docs/extend" / page).read_text(encoding="utf-8")
    blocks = list(_blocks(text))
    assert [kind for kind, _, _ in blocks].count("sh") >= 1
    for kind, file, content in blocks:
        if kind == "diff":
            _change(folder / file, content)
        elif kind not in ("sh", "text"):
            assert file, f"{page}: a block has no file name above it: {content[:60]!r}"
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(content, encoding="utf-8")
    printed = ""
    for kind, _, content in blocks:
        if kind == "sh":
            for line in content.splitlines():
                printed += _run(shlex.split(line), folder, package)
        elif kind == "text":
            for line in content.splitlines():
                assert line in printed, (line, printed[-3000:])
    return printed


def _blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Kind, file and content of each block; a diff without a file is of the file before it."""
    file = ""
    for match in _BLOCK.finditer(text):
        file = match["file"] or (file if match["kind"] == "diff" else "")
        yield match["kind"], file, match["text"]


def _change(file: Path, diff: str) -> None:
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    after = "".join(line[1:] for line in lines if not line.startswith("-"))
    content = file.read_text(encoding="utf-8")
    assert content.count(before) == 1, f"{file.name} has {content.count(before)} times: {before}"
    file.write_text(content.replace(before, after), encoding="utf-8")


def _run(words: list[str], folder: Path, package: Path) -> str:
    site = folder / ".site"
    python = [sys.executable]
    program = {"voxline": [*python, "-m", "voxline"], "pip": [*python, "-m", "pip"], "python": python}[words[0]]
    if words[0] == "pip":
        words = [*words, "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    ended = subprocess.run(
        [*program, *words[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(site)]), "PYTHONSAFEPATH": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ended.returncode == 0, f"{shlex.join(words)}\n{ended.stdout[-4000:]}"
    return ended.stdout

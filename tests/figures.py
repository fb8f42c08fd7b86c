"""Prints the figures of docs/architecture.md: python -m tests.figures [MODULE...]

Modules that are named get a line on how many of ours each may load, directly or through others.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import grimp

OURS = ("voxline", "components", "pipelines")
STEPS = ("ingest", "convert", "extract", "train", "evaluate", "push", "publish")
REACH = ("audio.wav", "data.shards", "registry.registry", *(f"components.{step}.step" for step in STEPS))
_BLANK = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def main() -> None:
    """Prints a line for each figure."""
    root = Path(__file__).parent.parent
    listed = subprocess.run(["git", "ls-files", "-z", *OURS], cwd=root, capture_output=True, text=True, check=True)
    files = {name: (root / name).read_text() for name in listed.stdout.split("\0") if name.endswith(".py")}
    outside = [text for name, text in files.items() if not name.startswith("voxline/store/")]
    print(f"{sum(not name.endswith('__init__.py') for name in files):6,d}  modules (`__init__.py` not counted)")
    print(f"{sum(len(text.splitlines()) for text in files.values()):6,d}  lines")
    print(f"{sum(map(code_lines, files.values())):6,d}  of these code, neither blank, comment nor docstring")
    local = sum(bool(re.search(r"store\.(bucket_cache|localize) import", text)) for text in outside)
    print(f"{local:6,d}  modules outside the storage code that handle the local copy of a bucket")
    print(f"{sum(text.count('is_remote(') for text in outside):6,d}  calls outside it that ask whether one is remote")
    print(f"{sum('gs://' in text for text in files.values()):6,d}  modules that mention gs://")
    graph = grimp.build_graph("voxline")
    for offered in graph.find_modules_directly_imported_by("voxline"):  # lazily, when a name is used
        graph.remove_import(importer="voxline", imported=offered)
    for module in sys.argv[1:] or [f"voxline.{name}" for name in REACH]:
        print(f"{len(graph.find_upstream_modules(module)):6,d}  reached by {module}")


def code_lines(text: str) -> int:
    """The lines of a module that hold code.

    >>> code_lines('"A docstring."\\n\\n# A comment.\\nTEXT = "no docstring"\\n')
    1
    """
    prose = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _BLANK:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - prose)


if __name__ == "__main__":
    main()

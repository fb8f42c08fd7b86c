"""Prints the figures of docs/architecture.md: python -m tests.figures [MODULE...]

Modules that are named get a line on how many of ours each may load, directly or through others.
"""

import ast
import io
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import grimp

OURS = ("voxline", "components", "pipelines")
FAMILIES = ("asr", "conversion", "intents", "tts", "vocoder")
STEPS = ("ingest", "convert", "extract", "train", "evaluate", "push", "publish")
REACH = ("audio.wav", "data.shards", "registry.registry", *(f"components.{step}.step" for step in STEPS))
_BLANK = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_PRAGMA = re.compile(r"# (noqa|type:|fmt:)")
_HOUSE_WORDS = {"one", "found", "made", "known", "wanted", "heard", "asked", "given", "now", "kept", "told"}
UNTYPED = re.compile(r'about\["|about\.get\(|metrics\["|(?<!self\.)metrics\.get\(')

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Prints a line for each figure."""
    files = {name: (ROOT / name).read_text() for name in listed(*OURS) if name.endswith(".py")}
    trees = {name: ast.parse(text) for name, text in files.items()}
    for value, what in (*size(files, trees), *writing(files, trees), *families(), *surface(files)):
        print(f"{value:>8}  {what}")
    outside = [text for name, text in files.items() if not name.startswith("voxline/store/")]
    local = sum(bool(re.search(r"store\.(bucket_cache|localize) import", text)) for text in outside)
    print(f"{local:8,d}  modules outside the storage code that handle the local copy of a bucket")
    print(f"{sum(text.count('is_remote(') for text in outside):8,d}  calls outside it that ask whether one is remote")
    print(f"{sum('gs://' in text for text in files.values()):8,d}  modules that mention gs://")
    graph = grimp.build_graph("voxline")
    for offered in graph.find_modules_directly_imported_by("voxline"):  # lazily, when a name is used
        graph.remove_import(importer="voxline", imported=offered)
    for module in sys.argv[1:] or [f"voxline.{name}" for name in REACH]:
        print(f"{len(graph.find_upstream_modules(module)):8,d}  reached by {module}")


def listed(*folders: str) -> list[str]:
    """The files of folders that git has."""
    command = ["git", "ls-files", "-z", *folders]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in output.split("\0") if name and (ROOT / name).exists()]


def size(files: dict[str, str], trees: dict[str, ast.Module]) -> Iterator[tuple[str, str]]:
    """Modules, lines, and how long both and functions are."""
    modules = sorted(len(text.splitlines()) for name, text in files.items() if not name.endswith("__init__.py"))
    functions = sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    yield f"{len(modules):,}", "modules (`__init__.py` not counted)"
    yield f"{sum(len(text.splitlines()) for text in files.values()):,}", "lines"
    yield f"{sum(map(code_lines, files.values())):,}", "of these code, neither blank, comment nor docstring"
    of_steps = sum(len(text.splitlines()) for name, text in files.items() if name.startswith("components/"))
    yield f"{of_steps:,}", "lines of components/"
    for name, lengths in (("module", modules), ("function", functions)):
        late = lengths[len(lengths) * 95 // 100]
        yield f"{statistics.median(lengths):g}/{late}/{lengths[-1]}", f"lines of a {name}: median, 95%, longest"


def writing(files: dict[str, str], trees: dict[str, ast.Module]) -> Iterator[tuple[str, str]]:
    """Comments, parallel assignments, names, docstrings."""
    thousands = sum(len(text.splitlines()) for text in files.values()) / 1000
    comments = sum(
        token.type == tokenize.COMMENT and not _PRAGMA.match(token.string)
        for text in files.values()
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    tuples = sum(
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        and len(node.targets[0].elts) == len(node.value.elts)
        for node in nodes
    )
    bound = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    bound += [node.arg for node in nodes if isinstance(node, ast.arg)]
    words = sum(name in _HOUSE_WORDS for name in bound)
    yield f"{comments / thousands:.1f}", "comments a thousand lines"
    yield f"{tuples / thousands:.1f}", "assignments `a, b = x, y` a thousand lines"
    yield (
        f"{words / len(bound):.1%}",
        f"of the names bound are pronouns or participles ({', '.join(sorted(_HOUSE_WORDS))})",
    )
    yield (
        str(sum(len(UNTYPED.findall(text)) for text in files.values())),
        "subscripts of model.json and metrics.json without a type",
    )


def families() -> Iterator[tuple[str, str]]:
    """What the family intents occupies, and what families import from one another."""
    touched = [
        name
        for name in listed(*OURS)
        if name.endswith(".py")
        and not name.endswith("__init__.py")
        and re.search(r"\bintents?\b|Intents", (ROOT / name).read_text())
    ]
    folders = {str(Path(name).parent) for name in touched}
    own = [name for name in touched if name.startswith("voxline/families/intents/")]
    yield f"{len(touched)}/{len(folders)}", "modules/folders that say intent, intents or Intents"
    yield f"{len(own)}/{len({str(Path(name).parent) for name in own})}", "of these in the family's own folder"
    pairs = set()
    for name in listed("voxline/families"):
        family = name.split("/")[2]
        if family not in FAMILIES or not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("voxline.families."):
                other = (node.module or "").split(".")[2]
                if other in FAMILIES and other != family:
                    pairs |= {(family, node.module, alias.name) for alias in node.names}
    yield str(len(pairs)), "names that one family imports from another"
    page = ROOT / "docs/extend/step.md"
    diffs = re.findall(r"^`([\w./-]+)`:\s+```diff", page.read_text() if page.exists() else "", re.MULTILINE)
    yield str(len(set(diffs))), "existing files that a new step changes (docs/extend/step.md)"


def surface(files: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Settings, commands and words that somebody has to answer for."""
    import typer

    from voxline.pipelines.cli.main import app

    def count(command: object) -> int:
        return sum(map(count, commands.values())) if (commands := getattr(command, "commands", {})) else 1

    reference = (ROOT / "docs/config.md").read_text()
    yield str(len(re.findall(r"^\| `[\w.]+` \|", reference, re.MULTILINE))), "settings in docs/config.md"
    yield str(count(typer.main.get_command(app))), "commands"
    pages = [name for name in listed("docs") if name.endswith(".md")]
    yield str(sum(name.startswith("docs/decisions/0") for name in pages)), "decision pages"
    yield f"{sum(len((ROOT / name).read_text().split()) for name in pages):,}", "words of docs"


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

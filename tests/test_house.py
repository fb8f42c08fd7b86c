"""The rules of the house that no linter knows: names, the size of modules, and how densely code is written."""

import ast
import graphlib
import importlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import grimp
import pytest

from tests.conftest import ROOT
from tests.figures import UNTYPED
from tests.training.mutations import MUTATIONS

ROLES = {"run", "main", "entries"}
"""Names that stand for a role: a step's entry point, a program's, a corpus format's."""

MOST_LINES = 700
"""A subject that is whole may be as long as this; most are far shorter."""
FEW_LINES = 60
SMALL_ON_PURPOSE = {"__init__", "component", "step", "settings", "families", "beam"}
"""Faces, steps, KFP signatures, settings, tables; and modules that keep a heavy import out of their neighbor."""


def modules() -> Iterator[tuple[str, Path]]:
    """Each module of the product with its file."""
    for top in ("voxline", "components", "pipelines"):
        for file in sorted((ROOT / top).rglob("*.py")):
            path = file.relative_to(ROOT).with_suffix("")
            if top != "voxline" or path.parts[1:2] not in (("components",), ("pipelines",)):
                yield ".".join(path.parts if top == "voxline" else ("voxline", *path.parts)), file


def test_no_public_name_means_two_things() -> None:
    defined = defaultdict(set)
    for module, file in modules():
        if file.stem == "component":
            continue  # a component bears the name of its step, in each family
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                defined[node.name].add(module)
    twice = [f"{name}: {sorted(where)}" for name, where in defined.items() if len(where) > 1 and name not in ROLES]
    assert twice == []


def test_a_small_module_serves_more_than_one_neighbor() -> None:
    """A short module with one importer belongs in that module: each file costs its reader a door."""
    graph = grimp.build_graph("voxline")
    lonely = {}
    for module, file in modules():
        source = file.read_text(encoding="utf-8")
        lines = source.count("\n")
        if not module.startswith(("voxline.components.", "voxline.pipelines.")) or ".corpora." in module:
            continue  # the library is for everybody; a corpus format is a module by rule
        if lines < FEW_LINES and file.stem not in SMALL_ON_PURPOSE and "if __name__" not in source:
            importers = graph.find_modules_that_directly_import(module)
            if len(importers) == 1:
                lonely[module] = (lines, *importers)
    assert lonely == {}


def test_no_two_modules_need_each_other() -> None:
    """Neither through others, nor by an import within a function or for type checkers alone."""
    graph = grimp.build_graph("voxline")
    ours = graph.modules - {"voxline"}  # the face imports what it offers when it is used
    needed = {module: graph.find_modules_directly_imported_by(module) & ours for module in ours}
    graphlib.TopologicalSorter(needed).prepare()  # raises CycleError, which names the circle


def test_no_module_is_too_long_to_read_at_once() -> None:
    lengths = {module: file.read_text(encoding="utf-8").count("\n") for module, file in modules()}
    assert {name: count for name, count in lengths.items() if count > MOST_LINES} == {}


def test_no_recipe_builds_the_source_of_another_project() -> None:
    """Go builds modules by version and hash, from folders of ours with a `go.mod`. Nothing clones or unpacks code."""
    for file in (ROOT / "tests").rglob("*.go"):
        assert (file.parent / "go.sum").is_file(), f"{file} has no module of its own: it would be laid into another's"
    recipes = [ROOT / "Makefile", ROOT / ".ci" / "run", *(ROOT / "tests").rglob("*.py"), *(ROOT / "docker").rglob("*")]
    cloning = re.compile(r"git[\"', ]+clone\b|shared/kubeflow|KUBEFLOW_SOURCES")
    texts = {file: file.read_text(encoding="utf-8") for file in recipes if file.is_file() and file != Path(__file__)}
    assert [file for file, text in texts.items() if cloning.search(text)] == []


def test_tests_that_only_make_test_kubeflow_collects_can_be_imported() -> None:
    """Else a class that got another name would break them unseen."""
    for file in sorted((ROOT / "tests" / "kubeflow").glob("*.py")):
        importlib.import_module(f"tests.kubeflow.{file.stem}")


def test_the_faults_of_make_mutations_are_written_for_the_code_as_it_is() -> None:
    """Otherwise only a run of all faults, which takes minutes, would show that one does not apply."""
    texts = {fault.file: (ROOT / fault.file).read_text(encoding="utf-8") for fault in MUTATIONS}
    assert [fault.name for fault in MUTATIONS if texts[fault.file].count(fault.old) != 1] == []


def test_onnx_runtime_is_imported_in_one_place() -> None:
    """`import_onnxruntime` turns its telemetry off first."""
    files = [file for _, file in modules()] + sorted((ROOT / "benchmarks").rglob("*.py"))
    importers = [
        file.stem for file in files if re.search(r"^\s*(import|from) onnxruntime\b", file.read_text("utf-8"), re.M)
    ]
    assert importers == ["onnx_model"]


def test_model_json_and_metrics_json_are_read_by_their_types() -> None:
    """A misspelt key is then an error of the type checker, and not a KeyError at the end of a run."""
    untyped = [
        f"{module}:{number}: {line.strip()}"
        for module, file in modules()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if UNTYPED.search(line)
    ]
    assert untyped == [], "use ModelInfo, EvaluationInfo, or a family's own types in details.py"


class Air(NamedTuple):
    """How densely code is written.

    Attributes:
      comments: a thousand lines, without those for linters.
      tuples: assignments of several values to as many names (`a, b = x, y`), a thousand lines.
      vague_names: percent of bound names and parameters that are in `VAGUE_NAMES`.
      vague_openings: percent of docstrings of classes and functions that begin with a word of `VAGUE_OPENINGS`.
    """

    comments: float
    tuples: float
    vague_names: float
    vague_openings: float


TARGET = Air(comments=25, tuples=3, vague_names=1, vague_openings=4)
AIR = {
    "voxline/families": Air(30, 3, 2.2, 8),
    "voxline/families/*/networks": TARGET,
    "voxline/training": TARGET,
    "voxline/audio": Air(46, 1.6, 0.5, 3),
    "voxline/beam": Air(30, 3, 1, 4),
    "voxline/data": Air(36, 1, 0.5, 1),
    "voxline/feedback": Air(43, 1.5, 0.5, 1),
    "voxline/forecast": Air(60, 1, 0.5, 1),
    "voxline/inference": Air(38, 1.1, 0.5, 1),
    "voxline/metrics": Air(39, 1.8, 0.5, 4),
    "voxline/notify": Air(30, 1, 0.5, 3),
    "voxline/operations": Air(45, 1, 0.5, 1),
    "voxline/registry": Air(36, 1, 0.5, 1),
    "voxline/report": Air(35, 1, 0.5, 1),
    "voxline/serving": Air(41, 1, 0.5, 1),
    "voxline/store": Air(35, 1, 0.5, 1),
    "voxline/text": Air(42, 1, 0.5, 2),
    "components/convert": Air(35, 1, 0.5, 1),
    "components/demo_corpus": Air(32, 1, 0.5, 1),
    "components/extract": Air(45, 1, 0.5, 1),
    "components/forecast": Air(40, 1, 0.5, 1),
    "components/ingest": Air(33, 1, 0.5, 1),
    "components/language": Air(50, 1, 0.5, 1),
    "components/publish": Air(27, 1, 0.5, 1),
    "components/push": Air(27, 0.5, 0.5, 4),
    "components/train": Air(45, 1, 0.5, 1),
    "components/validate": Air(33, 1, 0.5, 1),
    "components": Air(30, 1.5, 0.7, 3.5),
    "pipelines/cli": Air(35, 0.5, 0.5, 1),
    "pipelines/cluster": Air(40, 0.5, 0.5, 1),
    "pipelines/config": Air(35, 0.5, 0.5, 1),
    "pipelines/local": Air(45, 0.5, 0.5, 1),
    "pipelines/search": Air(34, 0.5, 0.5, 1),
    "pipelines/*.py": Air(33, 0.5, 0.5, 1),
    "pipelines": Air(36, 0.5, 0.5, 1),
}
"""By folder, the least comments and the most of the others: better figures become the bound, worse ones fail."""

VAGUE_NAMES = {
    "one", "found", "told", "made", "heard", "asked", "given", "kept", "mine", "theirs", "ours", "wanted", "what",
    "about", "gone", "others", "both", "each", "its", "their", "rest", "said", "old", "came", "written", "tried",
    "chosen", "now", "known",
}  # fmt: skip
"""Pronouns and participles, which say nothing of a value; the field has a noun for it."""
VAGUE_OPENINGS = {
    "What", "Whether", "Which", "Where", "Why", "How", "Who", "Of", "As", "For", "From", "With", "By", "In", "To", "On",
    "Until", "At",
}  # fmt: skip
"""Relative clauses and prepositions; a docstring begins with a verb or a noun."""
COMMENT = re.compile(r"^(?: *|.*[^ ]  )#(?!!| *(?:noqa|type:|fmt:|pragma))", re.MULTILINE)
"""A line that is a comment, or code with one behind it, as the formatter sets it; not one for linters."""


def measure_air(files: Iterable[Path]) -> Air:
    lines = comments = tuples = 0
    names: list[str] = []
    openings: list[str] = []
    for file in files:
        source = file.read_text(encoding="utf-8")
        lines += source.count("\n")
        comments += len(COMMENT.findall(source))
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Assign(targets=[ast.Tuple(), *_], value=ast.Tuple()):
                    tuples += 1
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    names.append(name)
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    openings += (ast.get_docstring(node) or "").split()[:1]

    vague_names = sum(name in VAGUE_NAMES for name in names)
    vague_openings = sum(word.strip(":,.") in VAGUE_OPENINGS for word in openings)
    return Air(
        1_000 * comments / lines,
        1_000 * tuples / lines,
        100 * vague_names / len(names),
        100 * vague_openings / len(openings),
    )


@pytest.mark.parametrize("folder", AIR)
def test_code_has_air(folder: str) -> None:
    bound = AIR[folder]
    rooms = ROOT.glob(folder)
    air = measure_air(file for room in rooms for file in (sorted(room.rglob("*.py")) if room.is_dir() else [room]))
    assert air.comments >= bound.comments, f"{folder}: {air}"
    assert all(figure <= most for figure, most in zip(air[1:], bound[1:], strict=True)), f"{folder}: {air}"


def test_every_folder_of_the_library_has_a_bound() -> None:
    paths = [file.relative_to(ROOT).parts for _, file in modules()]
    rooms = {f"voxline/{parts[1]}" for parts in paths if parts[0] == "voxline" and len(parts) > 2}
    assert rooms - AIR.keys() == set()

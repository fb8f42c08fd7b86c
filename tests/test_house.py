"""The rules of the house that no linter knows: names and the size of modules."""

import ast
import graphlib
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp

from tests.conftest import ROOT

ROLES = {"run", "main", "entries"}
"""Names that stand for a role: a step's entry point, a program's, a corpus format's."""

MOST_LINES = 450
LARGE_ON_PURPOSE = {"beam_kernel"}
"""One function, compiled as a whole."""
FEW_LINES = 60
SMALL_ON_PURPOSE = {"__init__", "component", "settings", "families", "beam"}
"""Faces, KFP signatures, settings, tables; and modules that keep a heavy import out of their neighbor."""


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
    assert {
        name: n for name, n in lengths.items() if n > MOST_LINES and name.split(".")[-1] not in LARGE_ON_PURPOSE
    } == {}


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


def test_onnx_runtime_is_imported_in_one_place() -> None:
    """`import_onnxruntime` turns its telemetry off first."""
    files = [file for _, file in modules()] + sorted((ROOT / "benchmarks").rglob("*.py"))
    importers = [
        file.stem for file in files if re.search(r"^\s*(import|from) onnxruntime\b", file.read_text("utf-8"), re.M)
    ]
    assert importers == ["onnx_model"]

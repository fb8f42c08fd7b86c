"""Heavy targets: they count what ran, and fail where a promise of theirs was not tried."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.promises import ALLOW, PROMISES

SKIPPED = "import pytest\n\n@pytest.mark.skip(reason='no engine answers')\ndef test_a():\n    pass\n\ntest_b = test_a\n"
PASSED = "def test_c():\n    pass\n"


def run(folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.promises", "--promise", "test-containers"]
    command += ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder), *arguments, str(folder)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", ALLOW))}
    values = {**clean, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    return subprocess.run(command, env=values, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tests of an engine that is missing: the images are skipped, and what says why passes."""
    containers = tmp_path / "containers"
    containers.mkdir()
    (containers / "test_images.py").write_text(SKIPPED)
    (containers / "test_graph.py").write_text(f"import pytest\npytest.importorskip('no_such_engine')\n{PASSED}")
    (containers / "test_engine.py").write_text(PASSED)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "two-processes"])
def test_a_target_that_ran_nothing_of_its_promise_fails_and_says_why(folder: Path, processes: tuple[str, ...]) -> None:
    ended = run(folder, *processes)
    assert ended.returncode == 1
    assert "test-containers: ran 1 of 4 tests" in ended.stdout
    assert "test-containers: skipped 2: no engine answers" in ended.stdout
    assert "could not import 'no_such_engine'" in ended.stdout
    assert f"nothing ran of the images, the graph in them: so it fails; {ALLOW}=1 allows it" in ended.stdout


def test_skipping_may_be_allowed(folder: Path) -> None:
    ended = run(folder, **{ALLOW: "1"})
    assert ended.returncode == 0
    assert f"allowed by {ALLOW}=1" in ended.stdout
    assert run(folder, **{ALLOW: "0"}).returncode == 1


def test_a_promise_is_kept_by_one_test_that_ran_even_if_others_were_skipped(folder: Path) -> None:
    (folder / "containers" / "test_graph.py").write_text(PASSED)
    assert run(folder).returncode == 1
    with (folder / "containers" / "test_images.py").open("a") as file:
        file.write(PASSED)
    ended = run(folder)
    assert ended.returncode == 0
    assert "test-containers: ran 3 of 5 tests" in ended.stdout
    assert "nothing ran" not in ended.stdout


def test_a_test_that_failed_still_fails_the_target(folder: Path) -> None:
    (folder / "containers" / "test_engine.py").write_text("def test_c():\n    assert False\n")
    assert run(folder, **{ALLOW: "1"}).returncode == 1


def test_a_target_without_any_test_fails(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 1


@pytest.mark.parametrize(("environment", "status"), [({}, 1), ({ALLOW: "1"}, 0)])
def test_a_recipe_that_cannot_start_its_tests_fails_likewise(environment: dict[str, str], status: int) -> None:
    clean = {name: value for name, value in os.environ.items() if name != ALLOW}
    command = [sys.executable, "-m", "tests.promises", "test-buckets", "no Go here"]
    ended = subprocess.run(command, cwd=ROOT, env={**clean, **environment}, capture_output=True, text=True, check=False)
    assert ended.returncode == status
    assert "test-buckets: ran nothing: no Go here" in ended.stderr


def test_every_heavy_target_has_a_promise_and_every_promise_a_test() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = dict(re.findall(r"^(test-(?!all:)[a-z-]+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    assert recipes.keys() == PROMISES.keys()
    assert [target for target, recipe in recipes.items() if "$(HEAVY) $@" not in recipe] == []
    tests = [
        f"{file.relative_to(ROOT)}::{node.name}[{'s3' if 'storage' in ast.unparse(node.args) else ''}]"
        for file in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    patterns = {pattern for promises in PROMISES.values() for pattern in promises.values()}
    assert {pattern for pattern in patterns if not any(re.search(pattern, test) for test in tests)} == set()


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (["PARENT=somewhere", "AUDIO=absent.wav"], "AUDIO=absent.wav is not a file"),
        (["WHISPER=absent", "PY=false"], "PARENT=folder, as the Hub has it, or PARENT=hf://openai/whisper-tiny.en@"),
    ],
)
def test_the_demo_of_people_says_at_once_what_is_missing(variables: list[str], told: str) -> None:
    ended = subprocess.run(
        ["make", "READY=", *variables, "demo-people"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


def test_each_promise_of_security_has_a_test_that_is_not_slow() -> None:
    """`make test` leaves the slow tests out, and still tries each promise that needs no engine."""
    promises = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## Promises")[2]
    files = set(re.findall(r"tests/[a-z0-9_/]*test_[a-z0-9_]+\.py", promises))
    assert len(files) > 20
    only_slow = []
    for file in sorted(files):
        module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        tests = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
        marks = [[ast.unparse(decorator) for decorator in test.decorator_list] for test in tests]
        if all("pytest.mark.slow" in names for names in marks):
            only_slow.append(file)
    assert only_slow == []

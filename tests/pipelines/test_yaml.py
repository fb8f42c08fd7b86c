"""YAML as a person means it, and `--set`."""

from pathlib import Path
from typing import Any

import pytest

from voxline.errors import SettingsError
from voxline.pipelines.config.load import apply_assignments, read_yaml


def document(folder: Path, text: str) -> dict[str, Any]:
    file = folder / "run.yaml"
    file.write_text(text, encoding="utf-8")
    return read_yaml(file)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("3.5", 3.5),
        (".5", 0.5),
        ("16_000", 16000),
        ("-7", -7),
        ("2026-11-20", "2026-11-20"),
        ("12:30", "12:30"),
        ("007", "007"),
        ("true", True),
        ("no", "no"),
        ("on", "on"),
        ("~", None),
        ("", None),
        ("[0.9, 1, 1.1]", [0.9, 1, 1.1]),
        ("'é'", "é"),
    ],
)
def test_values_have_their_yaml_types(tmp_path: Path, text: str, value: Any) -> None:
    found = document(tmp_path, f"key: {text}\n")["key"]
    assert (found, type(found)) == (value, type(value))


def test_a_key_given_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"run\.yaml:4: .*'epochs' is given twice, first on line 2"):
        document(tmp_path, "train:\n  epochs: 3\n  seed: 1\n  epochs: 4\n")


def test_text_that_is_not_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"run\.yaml:3: cannot be read as YAML"):
        document(tmp_path, "train:\n  epochs: [3\n")


BOMB = "\n".join(["- &a0 [x, x]", *(f"- &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, "more than 10,000 values"),
        ("train: &train {model: *train}", "more than 10,000 values"),
        ("train: " + "[" * 5_000, "nested too deeply"),
        ("? [a]\n: b", "a key must be a word"),
        ("train: {epochs: !!int many}", "'many' is not of type int"),
        ("train: {epochs: " + "9" * 5_000 + "}", "is not of type int"),
        ("push: {smoke_test: !!bool perhaps}", "'perhaps' is not of type bool"),
    ],
    ids=["bomb", "circle", "deep", "list as key", "int", "digits", "bool"],
)
def test_yaml_that_is_unsafe_or_too_large_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SettingsError, match=r"^\S+run\.yaml.*: cannot be read as YAML: ") as refused:
        document(tmp_path, text)
    assert told in str(refused.value)
    assert len(str(refused.value)) < 500


def test_an_alias_may_be_used(tmp_path: Path) -> None:
    found = document(tmp_path, "evaluate: {slices: &by [accent]}\npush: {slices: *by}\n")
    assert found["push"] == {"slices": ["accent"]}


def test_a_yaml_tag_cannot_run_code(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read as YAML"):
        document(tmp_path, f"name: !!python/object/apply:os.mkdir ['{tmp_path / 'made'}']\n")
    assert not (tmp_path / "made").exists()


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.yaml: no such file"):
        read_yaml(tmp_path / "absent.yaml")


def test_assignments_override_the_document_without_changing_it() -> None:
    before = {"train": {"epochs": 5, "seed": 1}}
    after, keys = apply_assignments(before, ["train.epochs=3", "train.model.units=8", "corpus.uri=a: b = c"])
    assert after == {"train": {"epochs": 3, "seed": 1, "model": {"units": 8}}, "corpus": {"uri": "a: b = c"}}
    assert keys == {"train.epochs", "train.model.units", "corpus.uri"}
    assert before == {"train": {"epochs": 5, "seed": 1}}


@pytest.mark.parametrize("assignment", ["train.epochs", "=3", "train..epochs=3", ".epochs=3"])
def test_an_assignment_without_a_key_or_a_value_is_refused(assignment: str) -> None:
    with pytest.raises(SettingsError, match=r"write it as section\.key=value"):
        apply_assignments({}, [assignment])


def test_an_assignment_below_a_plain_value_is_refused() -> None:
    with pytest.raises(SettingsError, match="'train' is 5, which has no keys under it"):
        apply_assignments({"train": 5}, ["train.epochs=3"])

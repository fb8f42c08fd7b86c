"""After an erasure, a model that never knew the speaker replaces the one that did; or it is said what still serves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.push.test_add_a_family import word_count, write_model
from tests.push.test_anchor import Night, night, registry
from voxline.registry.anchor import current_anchor
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, TrainingData

__all__ = ["night", "registry", "word_count"]
pytestmark = pytest.mark.usefixtures(word_count.__name__)

Push = Callable[..., dict[str, Any]]


@pytest.fixture
def push_trained(night: Night, tmp_path: Path) -> Push:
    """Pushes a model that is off by so much, and that has a list of what it was trained on."""

    def pushed(offset: float, erased: int = 0) -> dict[str, Any]:
        folder = tmp_path / f"model-{offset:g}"
        model = folder if folder.exists() else write_model(folder, offset)
        TrainingData("dataset", "rows", erased, []).write(model / TRAINED_ON)
        return night(offset)

    return pushed


def erase(registry: Registry, version: int, utterances: int) -> None:
    """Does to a version what a purge does: the list loses the lines, and counts them."""
    TrainingData("dataset", "rows", utterances, []).write(registry.folder / str(version) / TRAINED_ON)


def test_a_clean_model_is_judged_by_the_version_that_did_not_know_the_speaker(
    push_trained: Push, registry: Registry
) -> None:
    assert push_trained(0.5)["version"] == 1
    assert push_trained(0.3)["version"] == 2
    erase(registry, 2, 4)

    # Worse than version 1 by more than the margin of 0.1: refused, and the first thing that is said is what serves.
    refused = push_trained(0.65)
    assert not refused["pushed"]
    assert refused["reasons"][0].startswith(
        "version 2, still in production, was trained on 4 utterances of a speaker who was erased since; train again "
        "without the speaker, or go back to version 1 (voxline models rollback counter --to 1 --registry "
    )
    assert refused["heading"].startswith("Not pushed: version 2, still in production")
    assert "against version 1 (0.5), as measured; +0.1 is accepted" in refused["reasons"][1]

    # Within the margin of version 1, and far worse than version 2, which has to go.
    accepted = push_trained(0.55)
    assert accepted["version"] == 3, accepted["reasons"]
    assert current_anchor(registry) == 3
    assert not registry.folder.joinpath("looks.jsonl").read_text().count("\n") > 1  # of the push of version 2


def test_a_model_that_knows_the_speaker_too_is_judged_as_ever(push_trained: Push, registry: Registry) -> None:
    assert push_trained(0.5)["pushed"]
    assert push_trained(0.3)["pushed"]
    erase(registry, 2, 4)
    refused = push_trained(0.45, erased=4)
    assert "still in production" in refused["reasons"][0]
    assert any(check["name"].endswith("against the model in service") for check in refused["checks"])
    again = push_trained(0.3, erased=4)
    assert again["reasons"][1:] == ["already in service as version 2"]
    assert "still in production" in again["reasons"][0]


def test_without_a_clean_version_the_one_in_service_is_the_measure(push_trained: Push, registry: Registry) -> None:
    assert push_trained(0.5)["pushed"]
    erase(registry, 1, 4)
    refused = push_trained(0.65)
    assert "train again without the speaker" in refused["reasons"][0]
    assert "rollback" not in refused["reasons"][0]
    accepted = push_trained(0.58)
    assert accepted["pushed"], accepted["reasons"]
    assert [check["status"] for check in accepted["checks"] if check["name"] == "after an erasure"] == ["not checked"]


def test_what_a_purge_took_from_a_parent_is_in_its_child_too() -> None:
    parent = TrainingData("before", "rows", 4, [])
    assert TrainingData("after", "rows", 0, []).with_ancestors(parent).purged == 4
    assert TrainingData("after", "rows", 1, []).with_ancestors(None).purged == 1

"""After an erasure, a model that never knew the speaker replaces the one that did; or it is said what still serves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.push.test_add_a_family import word_count, write_model
from tests.push.test_anchor import Night, night, registry
from voxline.errors import WorkError
from voxline.notify.event import Erasure, RunEvent, RunIdentity
from voxline.notify.prometheus import samples, write_textfile
from voxline.notify.settings import NotifySettings
from voxline.registry.anchor import current_anchor, name_anchor
from voxline.registry.erasures import PURGES_FILE, erased_in, erasure_warning, salted_hash
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, TrainingData

__all__ = ["night", "registry", "word_count"]
pytestmark = pytest.mark.usefixtures(word_count.__name__)

Push = Callable[..., dict[str, Any]]


@pytest.fixture
def push_trained(night: Night, tmp_path: Path) -> Push:
    """Pushes a model that is off by so much, and that has a list of what it was trained on."""

    def pushed(offset: float, erased: int = 0, trained: TrainingData | None = None, **settings: Any) -> dict[str, Any]:
        folder = tmp_path / f"model-{offset:g}"
        model = folder if folder.exists() else write_model(folder, offset)
        (trained or TrainingData("dataset", "rows", erased, [])).write(model / TRAINED_ON)
        return night(offset, **settings)

    return pushed


def erase(registry: Registry, version: int, utterances: int, speaker: str = "gone") -> None:
    """Does to a version what a purge does: the list loses the lines, and counts them; and the purge is recorded."""
    TrainingData("dataset", "rows", utterances, []).write(registry.folder / str(version) / TRAINED_ON)
    record = {"salt": "00ff", "speaker": salted_hash(speaker, "00ff")}
    with open(Path(registry.root) / PURGES_FILE, "a") as file:
        file.write(json.dumps(record) + "\n")


def check_of(verdict: dict[str, Any], name: str) -> dict[str, Any]:
    (check,) = (check for check in verdict["checks"] if check["name"] == name)
    return dict(check)


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
    assert current_anchor(registry) == 1

    # Comparisons since the erasure are counted by themselves, and need the confidence of all looks.
    told = check_of(accepted, "words miscounted, against version 1, after an erasure")["detail"]
    assert (
        "with 99.17% confidence (comparison 2 since the erasure) at most +0.05; +0.2 is accepted: 2 times 0.1" in told
    )


def test_margins_do_not_add_up_over_erasures(push_trained: Push, registry: Registry) -> None:
    """Each successor may be a margin worse than the best before the first erasure, not than the last successor."""
    assert push_trained(0.5)["pushed"]
    erase(registry, 1, 4)
    assert push_trained(0.58)["version"] == 2
    erase(registry, 2, 3, "another")
    refused = push_trained(0.66)
    assert "+0.16 against version 1 (0.5), as measured; +0.1 is accepted" in refused["reasons"][1]
    told = check_of(refused, "after an erasure")["detail"]
    assert "no worse than version 1, the best one until now, since none is known that did not know" in told
    assert push_trained(0.59)["version"] == 3
    assert current_anchor(registry) == 1


@pytest.mark.parametrize("by_config", [False, True])
def test_the_anchor_that_a_person_chose_is_the_measure(push_trained: Push, registry: Registry, by_config: bool) -> None:
    assert push_trained(0.5)["pushed"]
    assert push_trained(0.3)["pushed"]
    erase(registry, 2, 4)
    settings = {"anchor": "2"} if by_config else {}
    if not by_config:
        name_anchor(registry, 2)
    refused = push_trained(0.45, **settings)
    assert "+0.15 against version 2 (0.3), as measured; +0.1 is accepted" in refused["reasons"][1]
    told = check_of(refused, "after an erasure")["detail"]
    assert "version 2, the anchor that a person chose, though it may know the speaker" in told
    if not by_config:
        name_anchor(registry, None)
    assert push_trained(0.45)["version"] == 3


def test_a_model_of_which_nobody_can_tell_does_not_count_as_clean(push_trained: Push, registry: Registry) -> None:
    """A training that ran on during the purge, or in another store, has a list that the purge did not see."""
    assert push_trained(0.5)["pushed"]
    assert push_trained(0.3)["pushed"]
    erase(registry, 2, 4)
    line = {"id": "gone-1", "split": "train", "speaker": "gone"}
    content = {"audio_hash": "9f", "offset": 0.0, "duration": 1.0, "text_hash": "07"}
    unseen = TrainingData("dataset", "rows", 0, [{**line, **content}])
    refused = push_trained(0.45, trained=unseen)
    assert refused["reasons"][1] == "after an erasure: it was trained on 1 utterances of an erased speaker too"
    assert "judged as any other" in check_of(refused, "after an erasure")["detail"]

    # In the registry it counts as one that knows the speaker, whatever its list says was removed.
    unseen.write(registry.folder / "1" / TRAINED_ON)
    assert erased_in(registry, 1) == 1

    (Path(registry.root) / PURGES_FILE).unlink()
    refused = push_trained(0.45)
    assert "has no purges.jsonl, so nobody can tell whether its list names an erased speaker" in refused["reasons"][1]


@pytest.mark.parametrize("torn", ['{"salt": "00ff", "spea', '{"salt": "no salt", "speaker": "9f"}', "{}"])
def test_a_damaged_record_of_purges_hides_no_erasure(push_trained: Push, registry: Registry, torn: str) -> None:
    """What a purge removed is counted in the version's own list; a new model waits until the record is mended."""
    assert push_trained(0.5)["pushed"]
    erase(registry, 1, 4)
    with open(Path(registry.root) / PURGES_FILE, "a") as file:
        file.write(torn)
    assert erased_in(registry, 1) == 4
    assert "version 1, still in production, was trained on 4 utterances" in erasure_warning(registry)
    with pytest.raises(WorkError, match=r"purges\.jsonl: damaged .*; restore it from a backup"):
        push_trained(0.45)


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
    assert check_of(accepted, "after an erasure")["status"] == "not checked"


def test_what_is_still_in_production_is_told_to_all_receivers(push_trained: Push, registry: Registry) -> None:
    assert push_trained(0.5)["pushed"]
    unchanged = RunEvent(RunIdentity("counting", "nightly", "counter"), "unchanged", "Nothing has changed", 0.0)
    assert unchanged.with_erasure(Erasure.find(registry.root, "counter")) == unchanged
    assert unchanged.succeeded
    erase(registry, 1, 4)
    told = unchanged.with_erasure(Erasure.find(registry.root, "counter"))
    assert told.reason.startswith("version 1, still in production, was trained on 4 utterances of a speaker who was")
    assert told.reason.endswith("train again without the speaker; Nothing has changed")
    assert told.with_erasure(Erasure.find(registry.root, "counter")).reason == told.reason
    assert (told.to_dict()["succeeded"], told.to_dict()["erased_in_production"]) == (False, 4)
    gauges = {sample.gauge: sample.value for sample in samples(told, NotifySettings())}
    assert gauges["voxline_erased_in_production"] == 4
    assert "voxline_last_success_timestamp_seconds" not in gauges


def test_what_nobody_can_tell_is_no_zero(push_trained: Push, registry: Registry, tmp_path: Path) -> None:
    assert push_trained(0.5)["pushed"]
    erase(registry, 1, 4)
    (registry.folder / "1" / TRAINED_ON).unlink()
    unchanged = RunEvent(RunIdentity("counting", "nightly", "counter"), "unchanged", "Nothing has changed", 0.0)
    told = unchanged.with_erasure(Erasure.find(registry.root, "counter"))
    assert told.to_dict()["erased_in_production"] is None

    # Of the run before, the textfile has a number.
    textfile = tmp_path / "runs.prom"
    receivers = NotifySettings(textfile=str(textfile))
    write_textfile(unchanged, receivers, requests.Session())
    assert "voxline_erased_in_production{" in textfile.read_text()
    write_textfile(told, receivers, requests.Session())
    (line,) = (line for line in textfile.read_text().splitlines() if line.startswith("voxline_erased_in_production"))
    assert line.endswith(" NaN")

    # Nobody was erased, so a model without a list knows no such speaker.
    (Path(registry.root) / PURGES_FILE).unlink()
    assert Erasure.find(registry.root, "counter").utterances == 0


def test_a_clean_candidate_is_the_remedy(push_trained: Push, registry: Registry) -> None:
    assert push_trained(0.5)["pushed"]
    assert push_trained(0.4)["pushed"]
    erase(registry, 2, 4)
    assert "or go back to version 1 (voxline models rollback counter --to 1" in erasure_warning(registry)
    registry.promote(1, "candidate")
    assert "put version 1, the candidate, into service (voxline models promote counter --reg" in erasure_warning(
        registry
    )


def test_what_a_purge_took_from_a_parent_is_in_its_child_too() -> None:
    parent = TrainingData("before", "rows", 4, [])
    assert TrainingData("after", "rows", 0, []).with_ancestors(parent).purged == 4
    assert TrainingData("after", "rows", 1, []).with_ancestors(None).purged == 1

"""The anchor: the best version so far, or one that a person names, which keeps margins from adding up."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.push.test_add_a_family import WordCountEvaluateSettings, WordCountPushSettings, word_count, write_model
from tests.tone_asr_model import write_corpus
from voxline.components.evaluate.champion import ModelVersion, stored_results
from voxline.components.evaluate.step import REVISION as EVALUATE_REVISION
from voxline.components.evaluate.step import run as evaluate
from voxline.components.push.gate import Status
from voxline.components.push.step import run as push
from voxline.errors import SettingsError, WorkError
from voxline.metrics.catalog import CATALOG, Metric
from voxline.metrics.evaluation import Evaluation
from voxline.pipelines.cli.main import app
from voxline.registry.anchor import current_anchor, name_anchor
from voxline.registry.registry import Registry

pytestmark = pytest.mark.usefixtures(word_count.__name__)
SENTENCES = [("ada", "one two"), ("ben", "three")] * 20
MARGIN = 0.1
"""`max_regression.count_error` of the settings; a model's error is its offset."""

Night = Callable[..., dict[str, Any]]


@pytest.fixture
def night(tmp_path: Path) -> Night:
    """Evaluates and pushes a model that is off by so much, and returns the verdict."""
    corpora: dict[int, Path] = {}

    def judged(offset: float, sentences: int = len(SENTENCES), **settings: Any) -> dict[str, Any]:
        folder = tmp_path / f"model-{offset:g}"
        model = folder if folder.exists() else write_model(folder, offset)
        if sentences not in corpora:
            chosen = (SENTENCES * 2)[:sentences]
            corpora[sentences] = write_corpus(tmp_path / f"corpus-{sentences}", chosen)
        places = tmp_path / "registry", tmp_path / "store"
        evaluating = WordCountEvaluateSettings.of(settings, bootstrap_samples=100)
        evaluation = evaluate(model, corpora[sentences], *places, evaluating)
        output = push(model, evaluation.folder, *places, WordCountPushSettings(max_slice_regression={}))
        verdict: dict[str, Any] = json.loads(output.path("verdict").read_text())
        return verdict

    return judged


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry", "counter")


def anchor_check(verdict: dict[str, Any]) -> tuple[Status, str]:
    (check,) = (check for check in verdict["checks"] if check["name"].endswith("the anchor"))
    return check["status"], check["detail"]


@pytest.mark.parametrize("grows", [False, True], ids=["the same test split", "a test split that grows every night"])
def test_nightly_pushes_that_are_each_slightly_worse_stop_at_two_margins(
    night: Night, registry: Registry, grows: bool
) -> None:
    pushed = []
    for number in range(9):
        offset = 0.5 + 0.06 * number
        if night(offset, len(SENTENCES) + number * grows)["pushed"]:
            pushed.append(offset)
    assert pushed[-1] == pytest.approx(0.5 + 3 * 0.06)  # the next one would be 0.24 worse than the first
    assert current_anchor(registry) == 1
    assert pushed[-1] - pushed[0] <= 2 * MARGIN


def test_without_an_anchor_margins_add_up(night: Night) -> None:
    assert all(night(0.5 + 0.06 * number, anchor="none")["pushed"] for number in range(8))


def test_a_better_model_becomes_the_anchor_and_a_rollback_restores_the_one_before(
    night: Night, registry: Registry
) -> None:
    first = night(0.5)
    assert [check["status"] for check in first["checks"] if "service" in check["name"]] == ["not checked"]
    status, detail = anchor_check(night(0.4))
    assert (status, current_anchor(registry)) == ("not checked", 2)
    assert "version 1, the model in service, is the anchor itself" in detail
    night(0.45)
    assert current_anchor(registry) == 2
    assert anchor_check(night(0.42))[0] == "passed"
    registry.rollback(to=1)
    assert current_anchor(registry) == 1
    night(0.55)
    assert current_anchor(registry) == 1


def test_a_person_names_the_anchor(night: Night, registry: Registry, tmp_path: Path) -> None:
    for offset in (0.5, 0.4, 0.45):
        assert night(offset)["pushed"]
    command = ["models", "anchor", "counter", "--registry", str(tmp_path / "registry")]

    def anchor(*more: str) -> str:
        result = CliRunner().invoke(app, [*command, *more])
        assert result.exit_code == 0, result.output
        return result.output.strip()

    assert anchor() == "counter: the anchor is version 2, the best so far; version 3 is in service"
    assert anchor("--version", "1") == "counter: the anchor is version 1, named; version 3 is in service"
    assert night(0.54)["pushed"]  # within two margins of 0.5, not of 0.4; and within one of 0.45
    assert current_anchor(registry) == 1
    assert anchor("--best") == "counter: the anchor is version 2, the best so far; version 4 is in service"
    with pytest.raises(WorkError, match="no version 9; existing: 1, 2, 3, 4"):
        name_anchor(registry, 9)
    with pytest.raises(SettingsError, match=r"'anchor' is '9'; .*has the versions 1, 2, 3, 4"):
        night(0.3, anchor="9")


def test_a_damaged_name_of_an_anchor_is_told_with_its_remedy(night: Night, registry: Registry) -> None:
    night(0.5)
    for content, told in (("no JSON", "damaged; name the anchor again"), ('{"version": 7}', "names version 7")):
        (registry.folder / "anchor.json").write_text(content)
        with pytest.raises(WorkError, match=f"anchor.json: {told}"):
            night(0.4)


def test_an_anchor_whose_evaluation_lacks_a_metric_is_measured_again(night: Night, registry: Registry) -> None:
    for offset in (0.5, 0.56):
        assert night(offset)["pushed"]
    file = registry.path(1) / "evaluation" / "utterances.jsonl"  # as a release wrote it that measured less
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line["metrics"] = {"of_old": line["metrics"].popitem()[1]}
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    verdict = night(0.6)
    assert verdict["pushed"], verdict["reasons"]
    assert anchor_check(verdict)[0] == "passed"


def test_what_another_revision_measured_of_an_anchor_does_not_count(night: Night, registry: Registry) -> None:
    assert night(0.5)["pushed"]
    kept = Evaluation.read(registry.path(1) / "evaluation")
    anchor = ModelVersion(registry.model, 1, kept.digest, registry.path(1))
    of = (anchor, kept.test_fingerprint, kept.info.auxiliary_models)
    assert stored_results(*of, EVALUATE_REVISION)
    assert stored_results(*of, EVALUATE_REVISION + 1) is None


@pytest.mark.parametrize("kind", ["max_regression", "max_relative_slice_regression"])
def test_a_margin_that_a_config_gives_must_be_measured(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    other = (Metric("other", "something else", ("word_count",)),)
    CATALOG.register(other, "another family")
    request.addfinalizer(lambda: CATALOG.unregister("another family"))
    corpus, places = write_corpus(tmp_path / "corpus", SENTENCES), (tmp_path / "registry", tmp_path / "store")
    model = write_model(tmp_path / "model", 0.5)
    evaluation = evaluate(model, corpus, *places, WordCountEvaluateSettings(bootstrap_samples=100)).folder
    with pytest.raises(SettingsError, match=rf"'{kind}\.other' is a metric that evaluate did not measure"):
        push(model, evaluation, *places, WordCountPushSettings.of({kind: {"other": 0.1}}))


def test_a_better_model_pushed_since_the_evaluation_stays_the_anchor(tmp_path: Path, registry: Registry) -> None:
    """Two runs at once: both evaluate against version 1, the better one is pushed first."""
    corpus, places = write_corpus(tmp_path / "corpus", SENTENCES), (tmp_path / "registry", tmp_path / "store")
    settings = WordCountEvaluateSettings(bootstrap_samples=100)
    models = {offset: write_model(tmp_path / f"model-{offset}", offset) for offset in (0.5, 0.3, 0.35)}

    def judge(offset: float, evaluation: Path) -> None:
        verdict = push(models[offset], evaluation, *places, WordCountPushSettings(max_slice_regression={}))
        assert json.loads(verdict.path("verdict").read_text())["pushed"]

    judge(0.5, evaluate(models[0.5], corpus, *places, settings).folder)
    both = {offset: evaluate(models[offset], corpus, *places, settings).folder for offset in (0.3, 0.35)}
    for offset, folder in both.items():
        judge(offset, folder)
    assert current_anchor(registry) == 2

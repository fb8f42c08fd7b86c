"""Our evaluations as TFMA's: it reads what we export, and its validation is the gate's verdict."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.evaluations import evaluation_info
from tests.push.conftest import Judge
from tests.push.conftest import corpus as corpus
from tests.push.conftest import judge as judge  # fixtures
from tests.tfx.conftest import Ran
from tests.tone_asr_model import MakeAsrModel
from voxline.components.push.gate import Opponent, check_regression, check_slice_regression
from voxline.components.push.limits import check_limits
from voxline.families.asr.settings import AsrPushSettings
from voxline.metrics.bootstrap import Bootstrap, BootstrapInfo, SumAndWeight
from voxline.metrics.evaluation import (
    METRICS_FILE,
    UTTERANCES_FILE,
    Evaluation,
    RegisteredModel,
    UtteranceResult,
    write_results,
)
from voxline.metrics.summaries import summarize_results, summarize_slices
from voxline.store.files import write_json

PROGRAM = """
import json, sys
from pathlib import Path
import tensorflow_model_analysis as tfma
from voxline.components.push.model_analysis import export_to_tfma
from voxline.families.asr.settings import AsrPushSettings
from voxline.metrics.evaluation import Evaluation

def validation(folder):
    result = tfma.load_validation_result(str(folder))
    failures = [
        [part.slice_key.single_slice_keys[0].bytes_value.decode() if part.slice_key.single_slice_keys else "",
         failure.metric_key.name]
        for part in result.metric_validations_per_slice for failure in part.failures
    ]
    return {"ok": result.validation_ok, "failures": failures}

for case in sorted(Path(sys.argv[1]).iterdir()):
    evaluation = Evaluation.read(case)
    settings = AsrPushSettings.of(json.loads((case / "settings.json").read_text()))
    checks = json.loads((case / "checks.json").read_text())
    export_to_tfma(evaluation, case / "gate", settings, checks)
    export_to_tfma(evaluation, case / "alone", settings)
    read = tfma.load_eval_result(str(case / "gate"), model_name="candidate")
    wer = {str(key[0][1]) if key else "": values[""][""]["wer"]["doubleValue"] for key, values in read.slicing_metrics}
    print(json.dumps({"case": case.name, "wer": wer, **{mode: validation(case / mode) for mode in ("gate", "alone")}}))
"""

BOOTSTRAP = Bootstrap(samples=500)
SPEAKERS = ("ada", "ben", "zoë", "kim")
WORDS = 8


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and the one in service, by how many words of a thousand each gets wrong; of zoë's, another number.

    Attributes:
      utterances: of the test split.
      paired: share of the other's errors that the new model makes too.
    """

    service: float
    candidate: float
    of_zoe: float
    utterances: int
    paired: float = 0.8
    seed: int = 0

    @property
    def name(self) -> str:
        return "-".join(str(value) for value in dataclasses.astuple(self))


CASES = [
    Case(service, service + worse, service + worse + of_zoe, utterances, seed=seed)
    for seed, utterances in enumerate((60, 400, 2000))
    for service in (0, 40, 280)
    for worse in (-20, 0, 8, 40)
    for of_zoe in (0, 120)
    if service + worse >= 0 and (utterances > 60 or not of_zoe)
]
"""Better, equal, slightly worse and worse models, some near the limit of 30%, some worse for one speaker alone."""


def results_of(case: Case) -> list[UtteranceResult]:
    """The errors of both models; the new one repeats most of the other's."""
    choose = random.Random(f"{case.seed}")
    results = []
    for number in range(case.utterances):
        speaker = SPEAKERS[number % 3]
        wanted = (case.of_zoe if speaker == "zoë" else case.candidate) / 1000
        before = after = 0
        for _ in range(WORDS):
            luck = choose.random()
            fails_before = luck < case.service / 1000
            again = luck < wanted if choose.random() < case.paired else choose.random() < wanted
            before += fails_before
            after += again
        results.append(
            UtteranceResult(
                f"{number:05d}", speaker, 2.0, {"speaker": speaker}, {"wer": SumAndWeight(after, WORDS)},
                {"wer": SumAndWeight(before, WORDS)},
            )
        )  # fmt: skip
    return results


def worse_by_chance() -> list[UtteranceResult]:
    """A model as good as the one in service, with six errors more in the few recordings of one speaker: 12, was 6."""
    results = results_of(Case(40, 40, 40, 2000, seed=7))
    for number, result in enumerate(results[::100]):
        after = {"wer": SumAndWeight(int(number >= 8), WORDS)}
        before = {"wer": SumAndWeight(int(number < 6), WORDS)}
        results[100 * number] = UtteranceResult(result.id, "kim", 2.0, {"speaker": "kim"}, after, before)
    return results


def judged(results: list[UtteranceResult], folder: Path) -> dict[str, Any]:
    """Writes an evaluation with what the gate says of it; returns its verdict and its checks."""
    whole = summarize_results(results, BOOTSTRAP)
    info = evaluation_info(
        bootstrap=BootstrapInfo.of(BOOTSTRAP),
        utterances=whole.utterances,
        seconds=whole.seconds,
        # No slice has a speed, of which there may be a limit all the same.
        metrics={**whole.metrics, "rtf": msgspec.structs.replace(whole.metrics["wer"], value=0.2, comparison=None)},
        slices=summarize_slices(results, {"speaker": SPEAKERS}, BOOTSTRAP),
        champion=RegisteredModel(name="asr", version=1, digest="c"),
    )
    folder.mkdir(parents=True)
    write_json(folder / METRICS_FILE, info.to_dict())
    write_results(folder / UTTERANCES_FILE, results)
    evaluation = Evaluation.read(folder)

    settings = AsrPushSettings(slices=["speaker"], limits={"wer": 0.3, "rtf": 0.5})
    service = Opponent("the model in service", 1, {result.id: result.champion or {} for result in results}, look=1)
    checks = check_limits(evaluation, settings) + check_regression(evaluation, service, settings)
    checks += check_slice_regression(evaluation, service, settings)
    write_json(folder / "settings.json", settings.plain())
    write_json(folder / "checks.json", [check.to_dict() for check in checks])
    return {
        "passed": all(check.passed is not False for check in checks),
        "checks": {check.name: check for check in checks},
        "values": {
            "": evaluation.value("wer"),
            **{name: summary.metrics["wer"].value for name, summary in info.slices["speaker"].items()},
        },
    }


def test_a_version_is_exported_by_the_command(
    make_asr_model: MakeAsrModel, judge: Judge, ran: Ran, tmp_path: Path
) -> None:
    judge(make_asr_model({"four": "five"}))
    assert judge(make_asr_model({}))["pushed"]
    place = f"{tmp_path}/registry/asr@2", "--to", "tfma", "-o", str(tmp_path / "out")
    ran("", "python3", "-m", "voxline", "models", "export", *place)
    program = (
        "import sys, tensorflow_model_analysis as tfma; print(tfma.load_validation_result(sys.argv[1]).validation_ok)"
    )
    assert ran("", "python3", "-c", program, str(tmp_path / "out")).stdout.splitlines()[-1] == "True"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, ran: Ran) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The gate's verdict on each case, and what TFMA says of it."""
    folder = tmp_path_factory.mktemp("cases")
    planted = {case.name: results_of(case) for case in CASES} | {"worse-by-chance": worse_by_chance()}
    verdicts = {name: judged(results, folder / name) for name, results in planted.items()}
    lines = [json.loads(line) for line in ran("", "python3", "-c", PROGRAM, str(folder)).stdout.splitlines()]
    assert {line["case"] for line in lines} == verdicts.keys()
    return [(verdicts[line["case"]], line) for line in lines]


def test_tfma_accepts_what_the_gate_accepts(compared: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    assert len(compared) >= 50
    assert {gate["passed"] for gate, _ in compared} == {True, False}
    assert [line["case"] for gate, line in compared if gate["passed"] is not line["gate"]["ok"]] == []
    for gate, line in compared:
        failed = {f"gate: {name}" for name, check in gate["checks"].items() if check.passed is False}
        named = {name for _, name in line["gate"]["failures"]}
        assert named - {"wer"} == failed, line["case"]


def test_tfma_reads_our_values_in_every_slice(compared: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    for gate, line in compared:
        assert line["wer"] == pytest.approx(gate["values"]), line["case"]


def test_without_the_verdict_tfma_differs_where_the_gate_asks_for_confidence(
    compared: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    """TFMA compares values as measured: it accepts what may be worse, and refuses a slice that is worse by chance."""
    whole, in_slices = "word error rate, against the model in service", "word error rate, in slices"
    lenient = [(gate, line) for gate, line in compared if line["alone"]["ok"] and not gate["passed"]]
    strict = [(gate, line) for gate, line in compared if gate["passed"] and not line["alone"]["ok"]]
    print(f"TFMA alone: of {len(compared)}, accepts {len(lenient)} that the gate refuses, refuses {len(strict)} others")
    assert lenient
    assert strict
    for gate, line in lenient:
        check = gate["checks"][whole]
        assert check.difference <= check.limit < check.measured, line["case"]
        assert all(other.passed is not False for name, other in gate["checks"].items() if name != whole), line["case"]
    for gate, line in strict:
        assert gate["checks"][in_slices].passed, line["case"]
        assert all(slice_name for slice_name, _ in line["alone"]["failures"]), line["case"]

"""metrics.json has a type: what cannot be read is refused by the file and the key."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.evaluations import evaluation_info, metric_info
from voxline.errors import WorkError
from voxline.families.asr.details import AsrDetails, AsrSmokeTest
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.evaluation import METRICS_FILE, UTTERANCES_FILE, Evaluation, UtteranceResult, write_results
from voxline.store.files import write_json
from voxline.store.versioned_json import to_json_values


def write_evaluation(folder: Path, **values: Any) -> Path:
    """An evaluation of one utterance; `values` are JSON values that take the place of right ones."""
    write_results(folder / UTTERANCES_FILE, [UtteranceResult("a", "ada", 1.0, {}, {"wer": SumAndWeight(0, 3)})])
    info = evaluation_info(utterances=1, metrics={"wer": metric_info(0.0, 0.0, 0.7)})
    content = info.to_dict() | values
    write_json(folder / METRICS_FILE, {name: value for name, value in content.items() if value is not ...})
    return folder


def test_what_is_written_is_read(tmp_path: Path) -> None:
    smoke_test = {"id": "a", "reference": "one", "text": "two"}
    evaluation = Evaluation.read(write_evaluation(tmp_path, smoke_test=smoke_test, of_a_later_release=1))
    assert evaluation.info.metrics["wer"].interval.high == 0.7
    assert evaluation.info.champion is None
    assert evaluation.smoke_test(AsrSmokeTest).text == "two"


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"slices": ...}, "`slices`"),
        ({"seconds": "long"}, r"\$\.seconds"),
        ({"metrics": {"wer": {"value": 0.1}}}, r"`measured` - at `\$\.metrics"),
        ({"champion": {"name": "asr", "version": "3", "digest": "d"}}, r"\$\.champion\.version"),
        ({"model": {"digest": "d", "name": "asr", "about": {"name": "asr"}}}, r"`family` - at `\$\.model\.about"),
    ],
)
def test_a_damaged_file_is_refused_by_the_key(tmp_path: Path, values: dict[str, Any], key: str) -> None:
    with pytest.raises(WorkError, match=rf"metrics\.json: .*{key}.*run evaluate again"):
        Evaluation.read(write_evaluation(tmp_path, **values))


def test_damaged_details_of_a_family_are_refused_by_the_key(tmp_path: Path) -> None:
    evaluation = Evaluation.read(write_evaluation(tmp_path, details={"words": {}}, smoke_test=None))
    with pytest.raises(WorkError, match=r"metrics\.json: details: .*`characters`.*run evaluate again"):
        evaluation.details(AsrDetails)
    with pytest.raises(WorkError, match=r"smoke_test: Expected `object`, got `null`; run evaluate again"):
        evaluation.smoke_test(AsrSmokeTest)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metrics": [1]}, r"utterance 'a': metrics \[1\]"),
        ({"metrics": {"wer": ["1", 5]}}, r"utterance 'a': metric 'wer' \['1', 5\]"),
        ({"metrics": {"wer": [1]}}, r"utterance 'a': metric 'wer' \[1\]"),
        ({"metrics": {"wer": 1}}, r"utterance 'a': metric 'wer' 1"),
        ({"metrics": {"wer": [True, 5]}}, r"utterance 'a': metric 'wer' \[True, 5\]"),
        ({"metrics": {"wer": [float("nan"), 5]}}, r"utterance 'a': metric 'wer' \[nan, 5\]"),
        ({"champion": {"wer": [0, "5"]}}, r"utterance 'a': metric 'wer' \[0, '5'\]"),
        ({"anchor": "none"}, r"utterance 'a': metrics 'none'"),
        ({"slices": ["ada"]}, r"utterance 'a': slices \['ada'\]"),
        ({"slices": {"speaker": ["ada"]}}, r"utterance 'a': .* \('a', 'ada', \['ada'\]\)"),
        ({"metrics": {"wer": [10**400, 5]}}, r"utterance 'a': metric 'wer'"),
        ({"duration": "1 s"}, r"utterance 'a': duration '1 s'"),
    ],
)
def test_a_damaged_line_is_refused_by_the_utterance(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    file = write_evaluation(tmp_path) / UTTERANCES_FILE
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | values), encoding="utf-8")
    with pytest.raises(WorkError, match=rf"damaged .*{message}.*run evaluate again"):
        Evaluation.read(tmp_path)


def test_a_metric_that_a_line_lacks_is_named(tmp_path: Path) -> None:
    write_evaluation(tmp_path, utterances=2)
    lines = [
        UtteranceResult("a", "ada", 1.0, {}, {"wer": SumAndWeight(0, 3)}),
        UtteranceResult("b", "ada", 1.0, {}, {"cer": SumAndWeight(0, 3)}),
    ]
    write_results(tmp_path / UTTERANCES_FILE, lines)
    with pytest.raises(WorkError, match="word error rate is absent in the line of utterance 'b'"):
        Evaluation.read(tmp_path).check_figures()


def test_a_fault_names_the_metric_and_whether_another_version_wrote_it(tmp_path: Path) -> None:
    metrics = {"cer": to_json_values(metric_info(0.0, 0.0, 0.7)), "wer": {"value": 0.1}}
    with pytest.raises(WorkError, match=r'`measured` - at `\$\.metrics\["wer"\]`; it is damaged: run evaluate again'):
        Evaluation.read(write_evaluation(tmp_path, metrics=metrics))
    with pytest.raises(WorkError, match=r"`; Voxline 0\.0\.1 wrote it: run evaluate again"):
        Evaluation.read(write_evaluation(tmp_path, metrics=metrics, voxline="0.0.1"))

    # The same name in two slicings: the path leads to the faulty one.
    sound = {"utterances": 1, "seconds": 1.0, "metrics": {"wer": metrics["cer"]}}
    slices = {"speaker": {"ada": sound}, "duration": {"0-2 s": sound, "2-4 s": sound | {"metrics": metrics}}}
    with pytest.raises(WorkError, match=r'\$\.slices\["duration"\]\["2-4 s"\]\.metrics\["wer"\]`'):
        Evaluation.read(write_evaluation(tmp_path, slices=slices))


@pytest.mark.parametrize("number", [True, 1.0, "1"])
def test_a_format_must_be_a_whole_number(tmp_path: Path, number: object) -> None:
    with pytest.raises(WorkError, match=rf"metrics\.json: format {number!r} is not a whole number"):
        Evaluation.read(write_evaluation(tmp_path, format=number))


@pytest.mark.parametrize(
    ("bootstrap", "key"),
    [
        ({}, "`confidence`"),
        ({"samples": 0}, r"\$\.bootstrap\.samples"),
        ({"samples": 2.5}, r"\$\.bootstrap\.samples"),
        ({"confidence": 1.0}, r"\$\.bootstrap\.confidence"),
        ({"seed": -1}, r"\$\.bootstrap\.seed"),
        ({"min_speakers": 0}, r"\$\.bootstrap\.min_speakers"),
    ],
)
def test_a_damaged_bootstrap_is_refused(tmp_path: Path, bootstrap: dict[str, Any], key: str) -> None:
    sound = {"confidence": 0.95, "samples": 100, "seed": 0, "min_speakers": 10}
    values = sound | bootstrap if bootstrap else {}
    with pytest.raises(WorkError, match=rf"metrics\.json: .*{key}.*run evaluate again"):
        Evaluation.read(write_evaluation(tmp_path, bootstrap=values))


def test_damaged_details_are_refused_where_reports_read_them(tmp_path: Path) -> None:
    edits = {"substitutions": 0, "deletions": 0, "insertions": 0, "length": 3}
    lists = {"confusions": [], "missed_words": [], "worst_by_loss": []}
    details = {"words": edits, "characters": edits, **lists, "language_model": {"order": "3"}}
    info = Evaluation.read(write_evaluation(tmp_path, details=details)).info
    with pytest.raises(WorkError, match=r"metrics\.json: details\.language_model: .*`\$\.order`; run evaluate again"):
        _ = info.family_details(AsrDetails).language_model_info
    info = Evaluation.read(write_evaluation(tmp_path, details={"words": {}})).info
    with pytest.raises(WorkError, match=r"metrics\.json: details: .*; run evaluate again"):
        info.family_details(AsrDetails)

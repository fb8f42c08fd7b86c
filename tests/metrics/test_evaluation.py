"""metrics.json has a type: what cannot be read is refused by the file and the key."""

from pathlib import Path
from typing import Any

import pytest

from tests.evaluations import evaluation_info, metric_info
from voxline.errors import WorkError
from voxline.families.asr.details import AsrDetails, AsrSmokeTest
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.evaluation import METRICS_FILE, UTTERANCES_FILE, Evaluation, UtteranceResult, write_results
from voxline.store.files import write_json


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

"""Training/serving skew by TFX's data validation itself, beside our measure of the same recordings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tfx.conftest import Ran
from voxline.feedback.skew import RecordingFeatures, chance_distances, measure_distances
from voxline.metrics.divergence import VALUES

PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
from voxline.components.validate.tfdv import engine
from voxline.components.validate.tfdv.plan import skew_by_tfdv
from voxline.feedback.skew import RecordingFeatures

name, measure = skew_by_tfdv()
tfdv, anomalies = engine.tfdv, []
validate = tfdv.validate_statistics
def watched(*arguments, **named):
    result = validate(*arguments, **named)
    anomalies.extend(sorted(result.anomaly_info))
    return result
tfdv.validate_statistics = watched

cases = json.loads(Path(sys.argv[1]).read_text())
for case in cases:
    sides = [
        RecordingFeatures({key: np.array(values) for key, values in numbers.items()}, tokens, people)
        for numbers, tokens, people in case["sides"]
    ]
    anomalies.clear()
    distances = measure(*sides, case["allowed"])
    print(json.dumps({"by": name, "distances": distances, "anomalies": anomalies}))
"""

WORDS = [f"word{number}" for number in range(VALUES + 60)]
"""More than are compared."""


def side(
    seed: int, count: int, *, seconds: float = 4.0, level: float = -28.0, high: float = -35.0
) -> RecordingFeatures:
    random = np.random.default_rng(seed)
    common = 1 / np.arange(1, len(WORDS) + 1)
    return RecordingFeatures(
        {
            "duration": random.gamma(4.0, seconds / 4, count),
            "labels": random.integers(4, 60, count).astype(float),
            "level": random.normal(level, 4.0, count),
            "speech": np.ones(count),
            "4000-6000 Hz": np.maximum(random.normal(high, 3.0, count), -90.0),
        },
        [[str(word) for word in random.choice(WORDS, 8, p=common / common.sum())] for _ in range(count)],
        [f"s{number % 40}" for number in range(count)],
    )


TRAINING = side(0, 1500)
SERVINGS = {
    "equal": side(1, 300),
    "few": side(2, 40),
    "telephone": side(3, 300, seconds=9.0, level=-14.0, high=-110.0),
    "louder": side(4, 80, level=-18.0),
}
PLANTED = {"telephone": {"duration", "level", "4000-6000 Hz"}, "louder": {"level"}, "equal": set(), "few": set()}


@pytest.fixture(scope="module")
def measured(ran: Ran, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By case: what TFDV measured and complained about, what we measured, and what was allowed."""
    cases = []
    for serving in SERVINGS.values():
        chance = chance_distances(TRAINING, serving)
        sides = [
            [{name: values.tolist() for name, values in one.numbers.items()}, one.tokens, one.people]
            for one in (TRAINING, serving)
        ]
        cases.append({"sides": sides, "allowed": {name: 0.1 + distance for name, distance in chance.items()}})
    file: Path = tmp_path_factory.mktemp("skew") / "cases.json"
    file.parent.chmod(0o755)
    file.write_text(json.dumps(cases))
    ended = ran("validate", "python3", "-c", PROGRAM, str(file), flags=[f"--volume={file.parent}:{file.parent}"])
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {
        name: {**by_tfdv, "ours": measure_distances(TRAINING, serving, case["allowed"]), "allowed": case["allowed"]}
        for (name, serving), by_tfdv, case in zip(SERVINGS.items(), found, cases, strict=True)
    }


@pytest.mark.parametrize("case", SERVINGS)
def test_tfdv_tells_what_was_planted_and_nothing_else(measured: dict[str, dict[str, Any]], case: str) -> None:
    assert measured[case]["by"].startswith("TFDV 1.")
    assert set(measured[case]["anomalies"]) == PLANTED[case]


@pytest.mark.parametrize("case", SERVINGS)
def test_our_measure_is_tfdvs(measured: dict[str, dict[str, Any]], case: str) -> None:
    """TFDV sketches the quantiles, which shows where there are few clips; ours is of all values."""
    found = measured[case]
    accepted = 0.02 if len(SERVINGS[case]) >= 300 else 0.05
    furthest = max(abs(found["ours"][feature] - distance) for feature, distance in found["distances"].items())
    print(f"{case}: at most {furthest:.3f} from TFDV's")
    assert found["ours"].keys() == found["distances"].keys()
    for feature, distance in found["distances"].items():
        assert found["ours"][feature] == pytest.approx(distance, abs=accepted), feature
    skewed = {feature for feature, distance in found["ours"].items() if distance > found["allowed"][feature]}
    assert skewed == set(found["anomalies"])

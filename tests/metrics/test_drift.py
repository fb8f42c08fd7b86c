"""Alarms: against SciPy, their share where nothing has changed, and what they find."""

import numpy as np
import pytest
import scipy.stats

from voxline.metrics.drift import find_shifts

RANDOM = np.random.default_rng(1)


def sample(count: int, shift: float = 0.0, columns: int = 8) -> dict[str, list[float]]:
    values = RANDOM.standard_normal((count, columns))
    values[:, 0] += shift
    return {f"s{index}": list(column) for index, column in enumerate(values.T)}


def test_the_effect_is_that_of_mann_and_whitney_with_ties() -> None:
    before, now = RANDOM.integers(0, 5, 80).astype(float), RANDOM.integers(1, 7, 50).astype(float)
    (shift,) = find_shifts({"s": list(before)}, {"s": list(now)}, [""] * 80)
    u = scipy.stats.mannwhitneyu(now, before).statistic
    assert shift.probability == pytest.approx(u / (80 * 50))
    assert shift.drifted


def test_the_p_value_of_one_statistic_is_that_of_a_permutation_test() -> None:
    before, now = RANDOM.standard_normal(40), RANDOM.standard_normal(30) + 0.4
    (shift,) = find_shifts({"s": list(before)}, {"s": list(now)}, [""] * 40, permutations=4000)
    expected = scipy.stats.mannwhitneyu(now, before).pvalue
    assert shift.p_value == pytest.approx(expected, rel=0.25)


def test_false_alarms_are_held_over_all_statistics_together() -> None:
    adjusted = [
        min(one.p_value for one in find_shifts(sample(60), sample(30), [""] * 60, permutations=200)) for _ in range(200)
    ]
    share = np.mean(np.array(adjusted) <= 0.05)
    assert share <= 0.09, "200 draws, of which 5% may be below: 9% is three deviations more"
    assert share >= 0.01, "and not for lack of power"


def test_a_shift_is_found_and_named_and_a_small_one_is_none_with_many_clips() -> None:
    shifts = find_shifts(sample(300), sample(100, shift=1.0), [""] * 300)
    assert [one.name for one in shifts if one.drifted] == ["s0"]
    assert shifts[0].probability > 0.7
    small = find_shifts(sample(5000), sample(5000, shift=0.15), [""] * 5000, permutations=200)
    assert min(one.p_value for one in small) < 0.01
    assert not any(one.drifted for one in small)
    few = find_shifts(sample(300), sample(5, shift=0.5), [""] * 300)
    assert not any(one.drifted for one in few)


def test_what_speakers_differ_by_is_no_alarm() -> None:
    speakers = [f"p{index % 6}" for index in range(300)]
    levels = {f"p{index}": 4.0 * index for index in range(6)}
    before = [levels[speaker] + RANDOM.standard_normal() for speaker in speakers]
    now = list(16.0 + RANDOM.standard_normal(100))
    assert find_shifts({"level": before}, {"level": now}, [""] * 300)[0].drifted
    assert not find_shifts({"level": before}, {"level": now}, speakers)[0].drifted


def test_a_rate_of_three_points_more_is_an_alarm_and_missing_values_are_none() -> None:
    before, now = [0.0] * 2000, [1.0] * 80 + [0.0] * 920
    assert find_shifts({"empty": before}, {"empty": now}, [""] * 2000, rates=["empty"], permutations=500)[0].drifted
    assert not find_shifts({"empty": before}, {"empty": now}, [""] * 2000, permutations=500)[0].drifted
    nothing = [float("nan")] * 3
    assert find_shifts({"c": [1.0, 2.0, 3.0]}, {"c": nothing}, [""] * 3) == []


def test_a_new_caller_is_no_alarm_though_most_clips_are_of_one() -> None:
    random, alarms = np.random.default_rng(3), {"unknown": 0, "known": 0}
    for _ in range(20):
        before = random.standard_normal(40).repeat(5) + 0.5 * random.standard_normal(200)
        now = random.standard_normal(3).repeat([50, 5, 5]) + 0.5 * random.standard_normal(60)
        for name, callers in (("unknown", ()), ("known", ["p-1"] * 50 + ["p-2"] * 5 + ["p-3"] * 5)):
            old = [str(index // 5) for index in range(200)]
            (shift,) = find_shifts({"level": list(before)}, {"level": list(now)}, old, callers, permutations=200)
            alarms[name] += shift.drifted
    assert alarms["unknown"] > 5, "a caller may be far from the middle"
    assert alarms["known"] <= 1

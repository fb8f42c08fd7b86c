"""The learning rate schedule, early stopping, and the choice of the best weights."""

import dataclasses
import json

import hypothesis
import numpy as np
from hypothesis import strategies as st

from voxline.families.asr.settings import AsrTrainSettings
from voxline.training.optimizer import learning_rate
from voxline.training.settings import StopSettings
from voxline.training.task import ValidationResult, best_results, should_stop_early
from voxline.training.trainer import TrainState


def looks(*wers: float, steps: int = 100) -> list[ValidationResult]:
    return [ValidationResult(epoch, epoch * steps, (wer, wer)) for epoch, wer in enumerate(wers, start=1)]


def test_the_rate_rises_to_its_peak_and_falls_to_its_share() -> None:
    settings = AsrTrainSettings(learning_rate=0.01, warm_up_steps=100, final_rate_share=0.1)
    rates = [learning_rate(settings, step, 1_000) for step in range(1_000)]
    assert rates[:100] == sorted(rates[:100])
    assert max(rates) == rates[99] == 0.01
    assert rates[99:] == sorted(rates[99:], reverse=True)
    assert 0.001 <= rates[-1] < 0.00101


def test_a_run_shorter_than_its_warm_up_still_reaches_the_peak() -> None:
    settings = AsrTrainSettings(learning_rate=0.01, warm_up_steps=100)
    assert max(learning_rate(settings, step, 30) for step in range(30)) == 0.01


def test_no_patience_never_stops() -> None:
    assert not should_stop_early(AsrTrainSettings(), looks(*[0.5] * 50))


def test_stops_after_patience_validations_without_improvement() -> None:
    settings = AsrTrainSettings(warm_up_steps=50, patience=3, earliest_stop_epoch=1)
    assert not should_stop_early(settings, looks(0.5, 0.4, 0.4, 0.4))
    assert should_stop_early(settings, looks(0.5, 0.4, 0.4, 0.4, 0.41))
    assert not should_stop_early(settings, looks(0.5, 0.4, 0.4, 0.4, 0.3))


def test_changes_below_min_improvement_do_not_count_but_add_up() -> None:
    settings = AsrTrainSettings(warm_up_steps=50, patience=2, earliest_stop_epoch=1, min_improvement=0.01)
    assert should_stop_early(settings, looks(0.5, 0.495, 0.494))
    assert not should_stop_early(settings, looks(0.5, 0.495, 0.489))


def test_never_stops_before_the_earliest_epoch_or_by_validations_in_the_warm_up() -> None:
    assert not should_stop_early(
        AsrTrainSettings(warm_up_steps=50, patience=2, earliest_stop_epoch=6), looks(*[1.0] * 5)
    )
    assert should_stop_early(AsrTrainSettings(warm_up_steps=50, patience=2, earliest_stop_epoch=6), looks(*[1.0] * 6))
    settings = AsrTrainSettings(patience=2, earliest_stop_epoch=1, warm_up_steps=300)
    assert not should_stop_early(settings, looks(*[1.0] * 5))
    assert should_stop_early(settings, looks(*[1.0] * 6))


def mozilla_stops(losses: list[float], steps: int, mean: float, deviation: float) -> bool:
    """The rule of DeepSpeech 0.4, in numpy as there."""
    if len(losses) < steps:
        return False
    newest, others = losses[-1], np.array(losses[-steps:-1])
    flat = abs(newest - np.mean(others)) < mean and np.std(others) < deviation
    return bool(newest > np.max(others) or flat)


def by_loss(*losses: float, wer: float = 0.5) -> list[ValidationResult]:
    return [ValidationResult(n, 100 * n, (wer, loss), {"loss": loss}) for n, loss in enumerate(losses, start=1)]


@hypothesis.given(
    st.lists(st.floats(0, 4), max_size=12), st.integers(3, 6), st.floats(0, 1), st.floats(0, 1), st.integers(0, 3)
)
@hypothesis.example([0.0, 1.0, 0.0, 0.5], 4, 0.5, 0.5, 0)  # a sample's deviation would be 0.58
def test_the_rule_by_dev_loss_is_that_of_deepspeech(
    losses: list[float], steps: int, mean: float, deviation: float, warm_up: int
) -> None:
    stop = StopSettings(rule="dev_loss", validations=steps, mean=mean, deviation=deviation)
    settings = AsrTrainSettings(stop=stop, warm_up_steps=100 * warm_up, earliest_stop_epoch=1)
    others = losses[warm_up:][-steps:-1]
    if others:  # numpy sums in another order
        distances = np.std(others) - deviation, abs(losses[-1] - np.mean(others)) - mean
        hypothesis.assume(np.abs(distances).min() > 1e-9)
    expected = mozilla_stops(losses[warm_up:], steps, mean, deviation)
    assert should_stop_early(settings, by_loss(*losses)) == expected


def test_the_rule_by_dev_loss_ignores_patience_and_holds_after_a_resume() -> None:
    settings = AsrTrainSettings(patience=1, warm_up_steps=50, earliest_stop_epoch=1, stop=StopSettings(rule="dev_loss"))
    falling = by_loss(90, 60, 40, 30, 25)
    assert not should_stop_early(settings, falling)
    rising = [*falling, *by_loss(26)]
    assert not should_stop_early(settings, rising)
    flat = by_loss(25.1, 25.3, 24.9, 25.2)
    assert should_stop_early(settings, flat)
    assert not should_stop_early(settings.model_copy(update={"earliest_stop_epoch": 5}), flat)
    saved = json.loads(json.dumps(dataclasses.asdict(TrainState(validations=flat))))
    assert should_stop_early(settings, TrainState.of(saved).validations)


def test_the_best_result_has_the_lowest_wer_then_the_lowest_loss_then_is_the_first() -> None:
    found = [
        ValidationResult(n, 10 * n, (wer, loss))
        for n, wer, loss in ((1, 0.2, 1.0), (2, 0.1, 3.0), (3, 0.1, 2.0), (4, 0.1, 2.0))
    ]
    assert best_results(found) == [found[2]]
    assert best_results(found, 3) == [found[2], found[3], found[1]]
    assert best_results([]) == []


def test_without_a_dev_split_the_last_weights_count_and_nothing_stops() -> None:
    blind = [ValidationResult(epoch, 10 * epoch, None) for epoch in range(1, 9)]
    assert best_results(blind, 3) == [blind[-1]]
    assert not should_stop_early(AsrTrainSettings(warm_up_steps=50, patience=1, earliest_stop_epoch=1), blind)


def test_the_inverse_square_root_is_that_of_the_transformer() -> None:
    settings = AsrTrainSettings(learning_rate=1e-3, warm_up_steps=4_000, schedule="inverse_square_root")
    for step in (1, 100, 4_000, 11_060, 200_000):
        paper = 1e-3 * 4_000**0.5 * min(step * 4_000**-1.5, step**-0.5)
        assert abs(learning_rate(settings, step - 1, 300_000) / paper - 1) < 1e-9

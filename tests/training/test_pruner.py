"""The paired test by which a search stops trials: its p, its false stops over all looks, and what it reads."""

import dataclasses
import itertools
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from voxline.training.pruner import PairedPruner, PrunedError, worse_p_value, write_errors
from voxline.training.task import ValidationResult

Floats = npt.NDArray[np.float64]
EPOCHS = 9
UTTERANCES = 120


@dataclasses.dataclass
class Series:
    """Errors of each utterance after each epoch [epochs, utterances], of trainings that hear the same dev."""

    seed: int
    stays: float = 0.7
    """Share of what an utterance's error does by chance that it does after the next epoch too."""

    def __post_init__(self) -> None:
        self.chance = np.random.default_rng(self.seed)
        self.difficulty = self.chance.gamma(1.0, 0.15, UTTERANCES)

    def training(self, factor: float = 1.0) -> Floats:
        """Errors out of six words; a factor of 1.5 makes half as many again."""
        own = self.chance.normal(size=UTTERANCES)
        rows = []
        for epoch in range(EPOCHS):
            own = np.sqrt(self.stays) * own + np.sqrt(1 - self.stays) * self.chance.normal(size=UTTERANCES)
            share = np.clip(factor * self.difficulty * (1 + 2.0 * 0.6**epoch), 0, 0.95)
            rows.append(stats.binom.ppf(stats.norm.cdf(own), 6, share))
        return np.array(rows)


def stopped(pruner: PairedPruner, trial: Floats, rival: Floats) -> bool:
    """Whether the training is stopped at any look."""
    return any(pruner.stops(worse_p_value(trial[epoch - 1], rival[epoch - 1], draws=500)) for epoch in pruner.looks)


def test_the_p_value_is_that_of_all_signs() -> None:
    """Against every choice of signs, counted."""
    chance = np.random.default_rng(0)
    for _ in range(5):
        trial, rival = chance.integers(0, 4, (2, 9))
        gaps = (trial - rival).astype(float)
        sums = [np.dot(signs, gaps) for signs in itertools.product((-1, 1), repeat=9)]
        exact = np.mean(np.array(sums) >= gaps.sum() - 1e-9)
        assert worse_p_value(trial, rival) == pytest.approx(exact, abs=0.012)
    assert worse_p_value([1.0, 2.0], [1.0, 2.0]) == 1.0


@pytest.mark.slow
def test_a_training_as_good_as_its_rival_is_rarely_stopped_at_any_look() -> None:
    """Of 250 simulated pairs at most 5% are stopped, at six looks each."""
    pruner = PairedPruner(Path(), 0.95, EPOCHS)
    assert pruner.looks == [3, 4, 5, 6, 7, 8]
    count = 0
    for seed in range(250):
        pair = Series(seed)
        count += stopped(pruner, pair.training(), pair.training())
    assert count <= 0.05 * 250
    each_look = sum(
        any(worse_p_value(t, r, draws=200) <= 0.05 for t, r in zip(trial[2:8], rival[2:8], strict=True))
        for trial, rival in ((pair.training(), pair.training()) for pair in map(Series, range(60)))
    )
    assert each_look > 0.08 * 60, "without a share of 1 - confidence for each look it would be more"


@pytest.mark.slow
def test_a_rival_that_is_the_best_of_six_by_luck_raises_it_little() -> None:
    """The stated rate is that against a rival that was chosen beforehand. The best of equals is better than it is."""
    count = 0
    for seed in range(100):
        group = Series(1000 + seed)
        rival = min((group.training() for _ in range(6)), key=lambda errors: float(errors[-1].sum()))
        count += stopped(PairedPruner(Path(), 0.95, EPOCHS), group.training(), rival)
    assert count <= 0.08 * 100


def test_a_training_that_is_worse_is_stopped() -> None:
    """Half as many errors again: four in five are stopped; twice as many: all but a few, and at the first look."""
    pruner, first = PairedPruner(Path(), 0.95, EPOCHS), 0
    found = {1.5: 0, 2.0: 0}
    for seed in range(40):
        pair = Series(2000 + seed)
        rival = pair.training()
        for factor in found:
            trial = pair.training(factor)
            found[factor] += stopped(pruner, trial, rival)
            first += factor == 2.0 and worse_p_value(trial[2], rival[2], draws=500) <= 0.05 / 6
    assert found[1.5] >= 32
    assert found[2.0] >= 39
    assert first >= 36


def test_a_pruner_reads_the_errors_of_the_same_epoch_and_the_same_utterances(tmp_path: Path) -> None:
    rival, trial = tmp_path / "rival", tmp_path / "trial" / "logs"
    good, bad = ({f"u{at}": float(errors) for at in range(60)} for errors in (0, 1))
    write_errors(rival / "logs", 3, good)
    write_errors(rival / "logs", 5, dict(reversed(good.items())))
    write_errors(rival / "logs", 6, {**good, "another": 0.0})
    for epoch in range(1, EPOCHS + 1):
        write_errors(trial, epoch, good if epoch == 3 else bad)
    pruner = PairedPruner(rival, 0.95, EPOCHS)

    def check(epoch: int) -> None:
        pruner.check(trial, ValidationResult(epoch, 10 * epoch, (0.5, 1.0), {"wer": 0.5}))

    for epoch in (1, 2, 3, 4, 6, 7, 8, 9):  # too early; equal; no errors of the rival; other utterances; the last
        check(epoch)
    with pytest.raises(PrunedError, match="stopped after epoch 5: 60 errors on dev, the best trial 0") as error:
        check(5)
    assert (error.value.epoch, error.value.metrics) == (5, {"steps": 50, "epochs": 5, "dev_wer": 0.5})


def test_only_trials_have_a_pruner(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "VOXLINE_PRUNER" not in os.environ
    assert PairedPruner.from_environment(6, 1) is None
    monkeypatch.setenv("VOXLINE_PRUNER", '{"rival": "/store/train/0f3c", "confidence": 0.9}')
    made = PairedPruner.from_environment(6, 2)
    assert made is not None
    assert made.looks == [2, 4]

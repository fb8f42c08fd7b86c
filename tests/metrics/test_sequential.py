"""The sequential test: its formula, false alarms over a whole run that is looked at after each request, and power."""

import math

import numpy as np
import pytest

from voxline.metrics.sequential import BETS, SequentialTest, mean_harm

ALPHA, MARGIN = 0.05, 0.02
Floats = np.ndarray


def evidence(values: Floats, chosen: Floats, share: float, margin: float, *, harm: bool) -> Floats:
    """K after each request, [runs, requests]: the formula in numpy, with every quantity written out.

    Args:
      values: [runs, requests].
      chosen: bool, likewise.
    """
    production = np.where(chosen, 0.0, values)
    before = np.cumsum(production, axis=1) - production
    counts = np.cumsum(~chosen, axis=1) - ~chosen
    baseline = np.divide(before, counts, out=np.zeros_like(before), where=counts > 0)
    difference = (values - baseline) * np.where(chosen, 1 / share, -1 / (1 - share))
    corners = np.stack([(y - baseline) * w for y in (0, 1) for w in (1 / share, -1 / (1 - share))])
    capital = np.zeros_like(values)
    for bet in BETS:
        if harm:
            factor = 1 + bet * (difference - margin) / (margin - corners.min(axis=0))
        else:
            factor = 1 + bet * (margin - difference) / (corners.max(axis=0) - margin)
        capital += np.exp(np.minimum(np.cumsum(np.log(factor), axis=1), 700)) / len(BETS)
    return capital


def draw(
    runs: int, requests: int, share: float, worse: dict[str, float], seed: int
) -> tuple[dict[str, Floats], Floats]:
    """Values of four measures that depend on each other, and drift during a run; `worse` is added in the candidate."""
    random = np.random.default_rng(seed)
    chosen = random.random((runs, requests)) < share
    hardness = random.random((runs, requests)) * np.linspace(0.2, 1, requests)

    def event(name: str, rate: float) -> Floats:
        return (random.random((runs, requests)) < hardness * rate + chosen * worse.get(name, 0.0)).astype(float)

    errors = np.clip(
        hardness * 0.3 + random.normal(0, 0.05, (runs, requests)) + chosen * worse.get("errors", 0.0), 0, 1
    )
    return {
        "failed": event("failed", 0.02),
        "slow": event("slow", 0.2),
        "empty": event("empty", 0.1),
        "errors": errors,
    }, chosen


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_the_evidence_is_the_formulas(share: float) -> None:
    measures, chosen = draw(3, 300, share, {"empty": 0.1}, 1)
    for values in measures.values():
        for run in range(3):
            test = SequentialTest(MARGIN)
            for value, arm in zip(values[run], chosen[run], strict=True):
                test.observe(float(value), share, chosen=bool(arm))
            for harm, found in ((True, test.harm_evidence), (False, test.safe_evidence)):
                expected = evidence(values[run : run + 1], chosen[run : run + 1], share, MARGIN, harm=harm)[0, -1]
                assert math.isclose(found, expected, rel_tol=1e-9)
            assert test.candidate.mean == pytest.approx(values[run][chosen[run]].mean())


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_an_equal_candidate_is_hardly_ever_rolled_back_however_often_one_looks(share: float) -> None:
    runs = 400
    measures, chosen = draw(runs, 1500, share, {}, 2)
    total = sum(evidence(values, chosen, share, MARGIN, harm=True) for values in measures.values()) / len(measures)
    rolled_back = (total.max(axis=1) >= 1 / ALPHA).mean()
    assert rolled_back <= ALPHA + 2 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def test_one_at_the_margin_is_neither_rolled_back_nor_called_safe() -> None:
    """The hardest case of both tests: the difference is the margin exactly."""
    runs, share = 400, 0.2
    random = np.random.default_rng(3)
    chosen = random.random((runs, 1500)) < share
    values = (random.random((runs, 1500)) < 0.1 + MARGIN * chosen).astype(float)
    for harm in (True, False):
        wrong = (evidence(values, chosen, share, MARGIN, harm=harm).max(axis=1) >= 1 / ALPHA).mean()
        assert wrong <= ALPHA + 2 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


@pytest.mark.parametrize(
    ("worse", "share", "requests"),
    [({"failed": 1.0}, 0.1, 100), ({"failed": 0.2}, 0.1, 600), ({"empty": 0.3}, 0.1, 500), ({"errors": 0.1}, 0.5, 300)],
)
def test_a_worse_candidate_is_rolled_back_soon(worse: dict[str, float], share: float, requests: int) -> None:
    measures, chosen = draw(200, requests, share, worse, 4)
    total = sum(evidence(values, chosen, share, MARGIN, harm=True) for values in measures.values()) / len(measures)
    assert (total.max(axis=1) >= 1 / ALPHA).mean() >= 0.9


def test_a_good_candidate_is_called_safe_in_the_end() -> None:
    measures, chosen = draw(100, 4000, 0.5, {}, 5)
    safe = np.min([evidence(values, chosen, 0.5, 0.05, harm=False) for values in measures.values()], axis=0)
    assert (safe.max(axis=1) >= 1 / ALPHA).mean() >= 0.9


def test_servers_that_share_the_requests_know_as_much_as_the_sum_of_their_evidence() -> None:
    measures, chosen = draw(2, 400, 0.2, {"empty": 0.2}, 6)
    servers = []
    for run in range(2):
        servers.append(SequentialTest(MARGIN))
        for value, arm in zip(measures["empty"][run], chosen[run], strict=True):
            servers[-1].observe(float(value), 0.2, chosen=bool(arm))
    both = SequentialTest.merged([SequentialTest.of(one.plain()) for one in servers])
    assert both.candidate.count == int(chosen.sum())
    assert both.harm == pytest.approx([a + b for a, b in zip(servers[0].harm, servers[1].harm, strict=True)])
    assert both.harm_evidence > max(one.harm_evidence for one in servers) > 1


def test_the_evidence_of_several_measures_is_their_mean() -> None:
    quiet, loud = SequentialTest(MARGIN), SequentialTest(MARGIN)
    for _ in range(5000):
        loud.observe(1.0, 0.5, chosen=True)
    assert (quiet.harm_evidence, quiet.is_measured, quiet.candidate.mean) == (1.0, False, None)
    assert loud.harm_evidence > 1e300
    assert mean_harm([quiet, quiet, quiet, loud]) == pytest.approx(loud.harm_evidence / 4)


def test_a_damaged_state_is_refused() -> None:
    plain = SequentialTest(MARGIN).plain()
    for wrong in ({"harm": [0.0]}, {"safe": [math.nan] * len(BETS)}, {"candidate": "x"}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            SequentialTest.of(plain | wrong)

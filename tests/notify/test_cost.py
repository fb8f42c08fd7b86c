"""What a run cost: hours, energy, money, and money for each point won; what is not known is absent."""

import threading
from pathlib import Path
from typing import Any

import pytest

from voxline.errors import SettingsError
from voxline.notify.cost import CostSettings, Reserved, RunCost, cost_phrases
from voxline.notify.event import StepRecord
from voxline.pipelines.local.energy import JOULES_PER_KWH, metered_energy

PRICES = CostSettings(cpu_hour=0.05, accelerator_hour=2.0, currency="EUR", budget=10)
VERDICT = {
    "checks": [
        {"name": "word error rate", "measured": 0.1},
        {"name": "word error rate, against the anchor", "metric": "wer", "difference": 0.2},
        {"name": "word error rate, against the model in service", "metric": "wer", "difference": -0.005},
    ]
}


def steps() -> list[StepRecord]:
    extract = StepRecord("extract", "succeeded", seconds=3600, cpu_seconds=7200)
    train = StepRecord("train", "succeeded", seconds=1800, cpu_seconds=3600, counts={"accelerators": 4})
    train.metrics = {"epochs": 6.0}
    return [extract, train]


def test_on_one_machine_processor_time_is_paid_for_and_the_time_of_the_devices_that_trained() -> None:
    cost = RunCost.of(steps(), PRICES, verdict=VERDICT, like="ab")
    assert cost == RunCost(3.0, 2.0, None, 3 * 0.05 + 2 * 2.0, "EUR", "wer", 0.5, 6, "ab")
    assert cost.per_point == pytest.approx(4.15 / 0.5)
    assert cost_phrases(cost.to_dict()) == [
        "3 CPU-hours", "2 accelerator-hours", "4.15 EUR", "8.30 EUR for each point of wer won",
    ]  # fmt: skip


def test_on_a_cluster_what_pods_reserve_is_paid_for_while_they_run() -> None:
    pods = {"extract": Reserved(4), "train": Reserved(16, 8)}
    cost = RunCost.of(steps(), PRICES, reserved=pods)
    assert (cost.cpu_hours, cost.accelerator_hours) == (4 + 8, 4.0)
    assert cost.amount == pytest.approx(12 * 0.05 + 4 * 2)
    # The workers of a training have a template of their own: what they reserve is not known.
    assert RunCost.of(steps(), PRICES, reserved={"extract": Reserved(4)}).amount is None


def test_a_training_that_was_reused_used_no_devices() -> None:
    extract, train = steps()
    train.reused = True
    cost = RunCost.of([extract, train], PRICES)
    assert (cost.accelerator_hours, cost.epochs) == (0.0, None)


@pytest.mark.parametrize(
    ("prices", "verdict", "absent"),
    [
        ({}, VERDICT, ("amount", "currency", "per_point")),
        ({"cpu_hour": 0.05}, VERDICT, ("amount", "per_point")),  # devices without a price
        ({"cpu_hour": 0.05, "accelerator_hour": 1}, {"checks": []}, ("points", "per_point", "metric")),
        ({"cpu_hour": 0.05, "accelerator_hour": 1}, None, ("points", "energy_kwh")),
    ],
)
def test_what_is_not_known_is_absent(prices: dict[str, Any], verdict: dict[str, Any] | None, absent: Any) -> None:
    known = RunCost.of(steps(), CostSettings.of(prices), verdict=verdict).to_dict()
    assert known.keys().isdisjoint(absent)
    assert known["cpu_hours"] == 3.0


def test_points_that_were_lost_have_no_price() -> None:
    worse = {"checks": [{**VERDICT["checks"][2], "difference": 0.004}]}
    cost = RunCost.of(steps(), PRICES, verdict=worse)
    assert (cost.points, cost.per_point) == (-0.4, None)


def test_a_budget_without_a_price_is_refused() -> None:
    with pytest.raises(SettingsError, match="budget is set, and no price; give cpu_hour, accelerator_hour or both"):
        CostSettings.of({"budget": 5}, "cost")


def counter(root: Path, zone: str, name: str, value: int) -> Path:
    folder = root / zone
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text("10000000\n")
    (folder / "energy_uj").write_text(f"{value}\n")
    return folder / "energy_uj"


def test_energy_is_the_sum_of_packages_and_memory_and_counters_start_again(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    package = counter(tmp_path, "intel-rapl:0", "package-0", 9_000_000)
    memory = counter(tmp_path, "intel-rapl:0:1", "dram", 1_000)
    counter(tmp_path, "intel-rapl:0:0", "core", 5)  # a part of the package
    counter(tmp_path, "intel-rapl:1", "psys", 5)  # of the whole platform, the package included
    with metered_energy(tmp_path, seconds=3600) as energy:
        package.write_text("2000000")
        memory.write_text("501000")
        assert energy() == pytest.approx((3.0 + 0.5) / JOULES_PER_KWH)
        package.write_text("3000000")
        assert energy() == pytest.approx(4.5 / JOULES_PER_KWH)
        memory.unlink()
        assert energy() is None
    assert set(threading.enumerate()) <= threads


def test_a_machine_without_counters_tells_no_energy(tmp_path: Path) -> None:
    (tmp_path / "intel-rapl:0").mkdir()
    for root in (tmp_path, tmp_path / "none"):
        with metered_energy(root) as energy:
            assert energy() is None

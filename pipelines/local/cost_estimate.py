"""The time and the money that a run will take: a range, its source, and the refusal by a budget.

The time of a step is that of earlier runs in the history with the same settings of train (`RunConfig.cost_digest`).
Where there are none, some steps of the training are timed on this machine, or on a cluster the limits of its pods say
what it takes at most. An estimate is never one number: the ranges below are wide on purpose.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from voxline.errors import SettingsError, VoxlineError
from voxline.notify.cost import Reserved, format_money
from voxline.notify.history import FOLDER, Run, read_runs
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.graphs import steps_until
from voxline.pipelines.local.plan import PlannedStep, plan_run
from voxline.pipelines.steps import STEPS
from voxline.store.objects import open_store

LATEST = 200
"""Runs of a history that are looked at."""
RUNS = 5
"""Of those, the last ones like the planned run that count."""
AS_MEASURED = 0.75, 1.5
"""Of the shortest and the longest time measured: the corpus grows, and machines differ from night to night."""
WORKING = tuple(name for name, step in STEPS.items() if not step.never_reused)
"""Steps that take time; the others look at what these wrote."""
AS_TIMED = 0.5, 2.0
"""Of the time that a few steps tell: validations, checkpoints and batches of other lengths are not in them."""


class Spread(NamedTuple):
    """The ends between which a value is expected."""

    low: float
    high: float

    def times(self, factors: tuple[float, float]) -> "Spread":
        return Spread(self.low * factors[0], self.high * factors[1])


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The time that a step is expected to take; hours of cores and of accelerators are paid for."""

    hours: Spread
    cpu_hours: Spread
    accelerator_hours: Spread


@dataclasses.dataclass(frozen=True)
class CostEstimate:
    """The sum of what the steps of a run are expected to take.

    Attributes:
      steps: those whose time is known.
      basis: what the times come from.
      missing: the steps whose time is not known, and why; empty: all are known.
      amount: money; None without a price.
    """

    steps: Mapping[str, StepTime]
    basis: str
    missing: str = ""
    amount: Spread | None = None
    currency: str = ""

    @property
    def hours(self) -> Spread:
        return self._sum(lambda step: step.hours)

    @property
    def cpu_hours(self) -> Spread:
        return self._sum(lambda step: step.cpu_hours)

    @property
    def accelerator_hours(self) -> Spread:
        return self._sum(lambda step: step.accelerator_hours)

    def _sum(self, select: Callable[[StepTime], Spread]) -> Spread:
        parts = [select(step) for step in self.steps.values()]
        return Spread(sum(part.low for part in parts), sum(part.high for part in parts))

    def priced(self, config: RunConfig) -> "CostEstimate":
        """Adds the money that it is by the prices of a config."""
        ends = [
            config.cost.amount(cpu, device) for cpu, device in zip(self.cpu_hours, self.accelerator_hours, strict=True)
        ]
        if not self.steps or None in ends:
            return self
        # The amount of no hours is 0.
        low, high = (end or 0.0 for end in ends)
        return dataclasses.replace(self, amount=Spread(low, high), currency=config.cost.currency)

    @property
    def lines(self) -> list[str]:
        """The estimate in words, for the terminal."""
        if not self.steps:
            return [f"estimate   not known: {self.missing}"]
        # Money comes last: it follows from the hours.
        phrases = [_describe_hours(self.hours), f"{_describe(self.cpu_hours)} CPU-hours"]
        if self.accelerator_hours.high:
            phrases.append(f"{_describe(self.accelerator_hours)} accelerator-hours")
        if self.amount:
            phrases.append(f"{_describe(self.amount)} {self.currency}")
        lines = [f"estimate   {', '.join(phrases)}; {self.basis}"]
        return [*lines, f"           without {self.missing}"] if self.missing else lines

    def to_dict(self, name: str) -> dict[str, Any] | None:
        """The estimate of a step as JSON values; None if its time is not known."""
        step = self.steps.get(name)
        return {**{part: list(ends) for part, ends in step.__dict__.items()}, "from": self.basis} if step else None


def estimate_run(
    config: RunConfig, planned: Sequence[PlannedStep], history: str, *, timing: bool = True
) -> CostEstimate:
    """Estimates a run on this machine.

    Args:
      config: with all locations set.
      planned: its steps.
      history: location of the runs before; empty: none is kept.
      timing: whether some steps of the training are timed where no run before tells what it takes.
    """
    waiting = [step for step in planned if step.action != "reuse"]
    if not any(step.name in WORKING for step in waiting):
        return CostEstimate({}, "", "every step finds its work done")
    # A step that depends on others may be reused, and take nothing.
    least = {step.name: 0.0 if step.action == "depends" else 1.0 for step in waiting}
    runs = _runs_like(config, history, on_cluster=False)
    measured = {name: time for name in least if (time := _measured_time(config, name, runs, None))}
    if measured:
        times = {name: _scaled(time, (least[name], 1.0)) for name, time in measured.items()}
        basis = f"from {_count(len(runs), 'run')} like it"
        unknown = ", ".join(name for name in least if name not in measured and name in WORKING)
        return CostEstimate(times, basis, f"{unknown}, which these did not do" if unknown else "").priced(config)

    # Nothing like it ran, so only the training can be known.
    if "train" not in least:
        return CostEstimate({}, "", "nothing like it ran here before")
    if not timing:
        return CostEstimate({}, "", "nothing like it ran here before; --timing times some steps of the training")
    from voxline.pipelines.local.training_time import time_run  # NumPy, and TensorFlow later

    # The sample is made of what the steps before have done already.
    outputs = {kind: step.output for step in planned for kind in STEPS[step.name].outputs if step.name != "train"}
    manifest = next((step.output for step in planned if step.name == "ingest"), "")
    try:
        timed = time_run(config, outputs.get("dataset", ""), manifest)
    except (VoxlineError, OSError) as error:
        return CostEstimate({}, "", str(error).splitlines()[0])

    # The clock may have stood still for other programs; the processor's own did not.
    hours = Spread(timed.total, timed.total).times((least["train"] / 3600, 1 / 3600))
    cores = Spread(timed.alone, timed.alone).times((least["train"] / 3600, 1 / 3600))
    training = StepTime(hours, cores, hours.times((timed.accelerators, timed.accelerators)))
    untimed = ", ".join(name for name in least if name != "train" and name in WORKING)
    basis = f"from {_count(timed.timed, 'step')} of the training timed here, half to twice their time"
    return CostEstimate({"train": _scaled(training, AS_TIMED)}, basis, untimed).priced(config)


def estimate_submission(config: RunConfig) -> CostEstimate:
    """Estimates a run on a cluster by its history; else by the limits of its pods, which end it at the latest."""
    steps = steps_until(config.pipeline, optional=config.optional_steps())
    reserved = config.reserved(steps)
    if missing := [name for name in steps if name not in reserved]:
        unpriced = f"{', '.join(missing)}, whose workers have a template of their own"
    else:
        unpriced = ""

    # Only what ran on the cluster says how long its pods take.
    runs = _runs_like(config, config.notify.history, on_cluster=True)
    times = {name: time for name in reserved if (time := _measured_time(config, name, runs, reserved[name]))}
    if "train" in times or (times and "train" not in steps):
        unknown = ", ".join(name for name in reserved if name not in times)
        missing_steps = "; ".join(filter(None, [unknown, unpriced]))
        return CostEstimate(times, f"from {_count(len(runs), 'run')} like it", missing_steps).priced(config)

    # Limits are days long: they mean something only in money.
    if not config.cost.has_price:
        return CostEstimate({}, "", "nothing like it ran before, or notify.history cannot be read here")
    basis = "by timeout_hours and retries of each step and cluster.deadline_hours, as nothing like it ran before"
    return CostEstimate(_limits(config, reserved), basis, unpriced).priced(config)


def _limits(config: RunConfig, reserved: Mapping[str, Reserved]) -> dict[str, StepTime]:
    """The most that each step may take: its attempts have a time, and the run a deadline (on KFP 2.17)."""
    cost = config.cost
    rates = {
        name: pod.cores * cost.cpu_hour + pod.accelerators * cost.accelerator_hour for name, pod in reserved.items()
    }
    times: dict[str, StepTime] = {}
    left = config.cluster.deadline_hours or math.inf

    # A deadline leaves the most to pay if the dearest steps take all of their time.
    for name in sorted(rates, key=lambda step: -rates[step]):
        # A further attempt has the same time again.
        placement = config.cluster.steps.for_step(name)
        most = min(placement.timeout_hours * (1 + placement.retries), left)
        left -= most
        hours = Spread(0.0, most)
        pod = reserved[name]
        times[name] = StepTime(hours, hours.times((0.0, pod.cores)), hours.times((0.0, pod.accelerators)))
    return times


def refuse_above_budget(estimate: CostEstimate, config: RunConfig) -> str:
    """Refuses a run that may cost more than its budget; does nothing without one.

    Returns:
      A remark: why the budget cannot be checked, or what the estimate leaves out; else empty.

    Raises:
      SettingsError: with the estimate and the budget.
    """
    budget, currency = config.cost.budget, config.cost.currency
    if budget and estimate.amount and estimate.amount.high > budget:
        raise SettingsError(
            f"cost.budget is {format_money(budget, currency)}, and this run is estimated at "
            f"{_describe(estimate.amount)} {currency} ({estimate.basis}); nothing was started. Raise cost.budget, or "
            "lower what it takes, such as train.epochs"
        )
    if not budget or (estimate.amount and not estimate.missing):
        return ""
    if estimate.amount:
        return f"cost.budget is {format_money(budget, currency)}, and the estimate is without {estimate.missing}"
    # Nothing is refused for what nobody can know, but it is said.
    reason = estimate.missing or "cost has no price of all that it uses"
    return f"cost.budget is {format_money(budget, currency)} and is not checked: {reason}"


def check_budget(config: RunConfig, run_dir: Path, until: str, force: Sequence[str], history: str) -> str:
    """The same before a run on this machine, which is planned and estimated only if there is a budget."""
    if not config.cost.budget:
        return ""
    # A night without news costs nothing worth a timing.
    planned = plan_run(config, run_dir, until=until, force=force)
    if all(step.action == "reuse" or step.name not in WORKING for step in planned):
        return ""
    return refuse_above_budget(estimate_run(config, planned, history), config)


def history_location(config: RunConfig) -> str:
    """The location of the history of runs on this machine; empty if there is none."""
    root = config.history_root()
    return config.notify.history or ((open_store(root) / FOLDER).uri if root else "")


def _runs_like(config: RunConfig, history: str, *, on_cluster: bool) -> list[Run]:
    """The last runs of a history that had the same settings of train, in the same place."""
    if not history:
        return []
    try:
        runs = read_runs(history, name=config.name, latest=LATEST)
    except (VoxlineError, OSError):  # none yet, or a bucket that this machine cannot read
        return []
    # The digest says that a run had the same settings of train, on the same kind of pod.
    like = config.cost_digest(on_cluster=on_cluster)
    same = [run for run in runs if (run.get("cost") or {}).get("like") == like]
    # A night on which nothing was new says nothing about the time of the work.
    return [run for run in same if _did_work(run)][-RUNS:]


def _did_work(run: Run) -> bool:
    names = [step["name"] for step in run["steps"] if not step["reused"] and step["status"] == "succeeded"]
    return any(name in WORKING for name in names)


def _measured_time(config: RunConfig, name: str, runs: Sequence[Run], pod: Reserved | None) -> StepTime | None:
    """The time that a step took in earlier runs; None if none of them did its work.

    Args:
      pod: what it reserves on a cluster; None on this machine, where processor time is counted.
    """
    # One entry for each run in which the step did its work.
    hours: list[Spread] = []
    cpu_hours: list[Spread] = []
    devices: list[Spread] = []
    for run in runs:
        for step in run["steps"]:
            if step["name"] != name or step["reused"] or step["status"] != "succeeded":
                continue
            ratio = _epochs_ratio(config, run) if name == "train" else (1.0, 1.0)

            # Cores are paid for while a pod has them, and on this machine while they work.
            took = step["seconds"] / 3600
            hours.append(Spread(took, took).times(ratio))
            cores = took * pod.cores if pod else step.get("cpu_seconds", 0.0) / 3600
            cpu_hours.append(Spread(cores, cores).times(ratio))
            accelerators = pod.accelerators if pod else step["counts"].get("accelerators", 0)
            devices.append(hours[-1].times((accelerators, accelerators)))
    if not hours:
        return None
    return StepTime(*(_widest(parts).times(AS_MEASURED) for parts in (hours, cpu_hours, devices)))


def _widest(ranges: Sequence[Spread]) -> Spread:
    return Spread(min(time.low for time in ranges), max(time.high for time in ranges))


def _epochs_ratio(config: RunConfig, run: Run) -> tuple[float, float]:
    """Planned epochs by those of a run; fewer may be enough where training stops early."""
    train: Any = config.section("train")
    epochs = (run.get("cost") or {}).get("epochs")
    # A history of before has no epochs: then they are taken to be the same.
    ratio = train.epochs / epochs if epochs else 1.0
    stops_early = train.patience or train.stop.rule == "dev_loss"
    return (min(1.0, ratio) if stops_early else ratio), ratio


def _scaled(time: StepTime, factors: tuple[float, float]) -> StepTime:
    return StepTime(time.hours.times(factors), time.cpu_hours.times(factors), time.accelerator_hours.times(factors))


def _count(number: int, noun: str) -> str:
    # `report.plural` has NumPy with it, which a client does not have.
    return f"{number} {noun}{'s' * (number != 1)}"


def _describe_hours(hours: Spread) -> str:
    if hours.high >= 2:
        return f"{_describe(hours)} h"
    minutes = hours.times((60, 60))
    return f"{_describe(minutes)} min" if minutes.high >= 2 else f"{_describe(minutes.times((60, 60)))} s"


def _describe(ends: Spread) -> str:
    """Both ends with two digits.

    >>> _describe(Spread(0.123, 0.4567)), _describe(Spread(0, 1234.0))
    ('0.12 to 0.46', 'at most 1,200')
    """
    low, high = (_two_digits(end) for end in ends)
    return f"{low} to {high}" if ends.low else f"at most {high}"


def _two_digits(value: float) -> str:
    # More digits would say more than is known.
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:.2g}"

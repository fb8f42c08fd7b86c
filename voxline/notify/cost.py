"""The cost of a run: hours of processors and accelerators, energy, money, and money per point of its metric won.

Nothing here is assumed. Money needs a price (the section `cost` of a config), energy a machine that tells it, and a
point won a model in service that the gate compared with. What is not known is absent.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Self

import pydantic

from voxline.settings import Settings

IN_SERVICE = "against the model in service"
"""End of the name of a comparison in push's verdict; after an erasure none is counted as won."""


class StepUse(Protocol):
    """The attributes of `event.StepRecord` that its cost depends on."""

    name: str
    seconds: float
    cpu_seconds: float
    reused: bool
    counts: dict[str, int]
    metrics: dict[str, float]


class CostSettings(Settings):
    """Prices of what a run uses, and the most that it may cost. Without a price nothing is said about money."""

    cpu_hour: float = pydantic.Field(
        0.0,
        ge=0,
        description="price of a core for an hour: on a cluster of those that a pod reserves, on this machine of "
        "processor time; 0: not known",
    )
    accelerator_hour: float = pydantic.Field(
        0.0, ge=0, description="price of a GPU or TPU chip for an hour; 0: not known"
    )
    currency: str = pydantic.Field("USD", pattern=r"^[A-Z]{3}$", description="of the prices, by ISO 4217, such as EUR")
    budget: float = pydantic.Field(
        0.0,
        ge=0,
        description="most that a run may cost, in the currency: one whose estimate may exceed it is refused before it "
        "starts; 0: no limit",
    )

    @pydantic.model_validator(mode="after")
    def _a_budget_needs_a_price(self) -> Self:
        if self.budget and not self.has_price:
            raise ValueError("budget is set, and no price; give cpu_hour, accelerator_hour or both")
        return self

    @property
    def has_price(self) -> bool:
        return bool(self.cpu_hour or self.accelerator_hour)

    def amount(self, cpu_hours: float, accelerator_hours: float) -> float | None:
        """The price of some hours; None if the price of some of them is not known."""
        if not self.has_price or (accelerator_hours and not self.accelerator_hour):
            return None
        return cpu_hours * self.cpu_hour + accelerator_hours * self.accelerator_hour


@dataclasses.dataclass(frozen=True)
class Reserved:
    """The cores and accelerators that the pod of a step reserves, which are paid for while it runs."""

    cores: float
    accelerators: int = 0


@dataclasses.dataclass(frozen=True)
class RunCost:
    """The use that the steps of a run made of processors and accelerators, and its price.

    Attributes:
      cpu_hours: of cores: those that pods reserve × their time; on one machine, processor time.
      accelerator_hours: of GPUs or TPU chips × the time of the steps that had them.
      energy_kwh: of the processors and the memory of the machine; None if it does not tell.
      amount: in the currency; None without a price, or if a part of what was used is not known.
      metric: by which points were won; empty: nothing was compared.
      points: percentage points by which the model was measured better than the one in service; negative: worse.
      epochs: of the training in this run; None if there was none.
      like: digest of the settings on which the time depends. Runs with the same digest predict each other.
    """

    cpu_hours: float
    accelerator_hours: float = 0.0
    energy_kwh: float | None = None
    amount: float | None = None
    currency: str = ""
    metric: str = ""
    points: float | None = None
    epochs: int | None = None
    like: str = ""

    @classmethod
    def of(
        cls,
        steps: Iterable[StepUse],
        prices: CostSettings,
        *,
        reserved: Mapping[str, Reserved] | None = None,
        like: str = "",
        energy_kwh: float | None = None,
        verdict: Mapping[str, Any] | None = None,
    ) -> "RunCost":
        """The cost of some steps.

        Args:
          reserved: step → what its pod reserves, on a cluster; a step that is absent has pods that are not known.
          verdict: the content of push's verdict.json.
        """
        cpu_seconds = accelerator_seconds = 0.0
        complete = True
        epochs = None
        for step in steps:
            # Processor time here, the pod's reservation on a cluster.
            if reserved is None:
                cpu_seconds += step.cpu_seconds
                accelerator_seconds += 0.0 if step.reused else step.seconds * step.counts.get("accelerators", 0)
            elif step.name in reserved:
                cpu_seconds += step.seconds * reserved[step.name].cores
                accelerator_seconds += step.seconds * reserved[step.name].accelerators
            else:
                complete = False

            # Later runs with more epochs take so many times as long.
            trained = dict(step.metrics) if step.name == "train" and not step.reused else {}
            epochs = int(trained["epochs"]) if "epochs" in trained else epochs

        cpu_hours = cpu_seconds / 3600
        accelerator_hours = accelerator_seconds / 3600
        amount = prices.amount(cpu_hours, accelerator_hours) if complete else None
        metric, points = points_won(verdict) if verdict else ("", None)
        currency = "" if amount is None else prices.currency
        return cls(cpu_hours, accelerator_hours, energy_kwh, amount, currency, metric, points, epochs, like)

    @property
    def per_point(self) -> float | None:
        """Money for each point won; None if none was won, or its price is not known."""
        if self.amount is None or self.points is None or self.points <= 0:
            return None
        return self.amount / self.points

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without what is not known."""
        values = {**dataclasses.asdict(self), "per_point": self.per_point}
        # A price is not known to more digits.
        rounded = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in values.items()}
        return {name: value for name, value in rounded.items() if value not in (None, "")}


def points_won(verdict: Mapping[str, Any]) -> tuple[str, float | None]:
    """The headline metric in which a model was compared with the one in service, and percentage points won in it.

    >>> check = {"name": "word error rate, against the model in service", "metric": "wer", "difference": -0.004}
    >>> points_won({"checks": [check]})
    ('wer', 0.4)
    """
    from voxline.metrics.catalog import CATALOG  # it imports numpy, which a client does not have

    # Positive differences are worse, whichever direction of the metric is better.
    for check in verdict.get("checks", []):
        if check.get("difference") is None or not check["name"].endswith(IN_SERVICE):
            continue
        metric = CATALOG.find(check["metric"])
        if metric and metric.headline and metric.unit == "%":
            return metric.name, round(-100 * check["difference"], 6)
    return "", None


def cost_phrases(cost: Mapping[str, Any] | None) -> list[str]:
    """Describes a run's cost, from `RunCost.to_dict`, a phrase for each thing that is known.

    >>> cost_phrases({"cpu_hours": 0.11, "accelerator_hours": 0.0, "amount": 0.0044, "currency": "EUR"})
    ['0.11 CPU-hours', '0.0044 EUR']
    """
    if not cost:
        return []
    phrases = [
        f"{cost['cpu_hours']:,.2g} CPU-hours" if cost["cpu_hours"] < 10 else f"{cost['cpu_hours']:,.0f} CPU-hours"
    ]
    if cost.get("accelerator_hours"):
        phrases.append(f"{cost['accelerator_hours']:,.3g} accelerator-hours")
    if "energy_kwh" in cost:
        phrases.append(f"{cost['energy_kwh']:,.3g} kWh")
    if "amount" in cost:
        phrases.append(format_money(cost["amount"], cost["currency"]))
    if "per_point" in cost:
        phrases.append(f"{format_money(cost['per_point'], cost['currency'])} for each point of {cost['metric']} won")
    return phrases


def format_money(amount: float, currency: str) -> str:
    """An amount of at least two digits.

    >>> format_money(0.00443, "EUR"), format_money(1234.5, "EUR")
    ('0.0044 EUR', '1,234.50 EUR')
    """
    return f"{amount:,.2f} {currency}" if amount >= 1 or not amount else f"{amount:.2g} {currency}"


def reserved_from(values: Mapping[str, Sequence[float]]) -> dict[str, Reserved]:
    """Reads step → [cores, accelerators], as a pod gets it."""
    return {step: Reserved(float(cores), int(accelerators)) for step, (cores, accelerators) in values.items()}

"""Settings of push: how good a model must be to go into service."""

from typing import Annotated, Any, ClassVar, Literal

import pydantic
from pydantic_core import InitErrorDetails, PydanticCustomError

from voxline.data.licences import checked_licence
from voxline.metrics.catalog import CATALOG, family_metrics
from voxline.settings import Settings

MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
# `wer: 30`, meant as 30%, would let any model pass, so both are refused above these.
MAX_SHARE = 10
"""Highest limit of a share: insertions can take an error rate above 1."""
MAX_MARGIN = 1
"""Widest margin of a share."""

MARGINS = (
    ("max_regression", "max_relative_regression"),
    ("max_slice_regression", "max_relative_slice_regression"),
)
Margin = Annotated[float, pydantic.Field(ge=0)]
LIMITS = "highest accepted value of a metric; lowest, if higher is better"
REGRESSION = (
    "how much worse than the model in service a metric may be, in its own unit (of a share, 0.01 is 1 point); "
    "the larger of this and max_relative_regression counts, and one that a config gives alone counts alone"
)
RELATIVE = "the same as a share of the value of the model in service (0.1: 2.0% may become 2.2%)"
SLICE_REGRESSION = "max_regression for any one slice"
SLICE_RELATIVE = "max_relative_regression for any one slice"
SLICES = "slicings to judge; evaluate must report by each of them"


class PushSettings(Settings):
    """The requirements on a model.

    Any metric of the family may be a key of `limits` and of the margins. A config adds to their defaults.
    """

    family: ClassVar[str]
    judge: ClassVar[tuple[tuple[str, ...], str]] = ((), "")
    """The metrics by any of which something independent judges a model, and what a model without them lacks."""

    limits_by: ClassVar[str] = ""
    """The slicing of which each slice is held to the limits too; empty: the whole alone."""

    model_name: str = pydantic.Field(..., pattern=MODEL_NAME, description="the model's name in the registry")
    limits: dict[str, float] = pydantic.Field({}, description=LIMITS)
    max_regression: dict[str, Margin] = pydantic.Field({}, description=REGRESSION)
    max_relative_regression: dict[str, Margin] = pydantic.Field({}, description=RELATIVE)
    max_slice_regression: dict[str, Margin] = pydantic.Field({}, description=SLICE_REGRESSION)
    max_relative_slice_regression: dict[str, Margin] = pydantic.Field({}, description=SLICE_RELATIVE)
    anchor_margins: float = pydantic.Field(
        2.0,
        ge=1,
        le=100,
        description="how many times these margins a model may be worse than the anchor, the best version so far or the "
        "one that `voxline models anchor` names: so margins do not add up over many pushes",
    )
    confidence: float = pydantic.Field(
        0.95,
        ge=0.5,
        lt=1,
        description="required to accept a model as no worse overall, and to count a slice as worse; what is left, the "
        "models that are compared with one version in service share",
    )
    slices: list[str] = pydantic.Field([], description=SLICES)
    min_slice_utterances: int = pydantic.Field(20, ge=1, description="smaller slices are not judged")
    below_parent: Literal["refuse", "warn"] = pydantic.Field(
        "refuse",
        description="what becomes of a model that is worse than the public one that it started from was before, by "
        "more than these margins: refused, or pushed with a warning",
    )
    licences: list[str] = pydantic.Field(
        [],
        description="accepted licences of data and parents, such as [CC0-1.0, CC-BY-4.0, Apache-2.0]: a model with any "
        "other behind it is refused, one that is not stated too; empty: no rule",
    )
    smoke_test: bool = pydantic.Field(
        True, description="load the model in a fresh process and repeat one output that evaluate recorded"
    )
    smoke_test_seconds: float = pydantic.Field(180.0, gt=0, le=3600, description="longest time for the smoke test")
    allow_rolled_back: bool = pydantic.Field(False, description="push a model that was rolled back before")
    promote: Literal["production", "candidate"] = pydantic.Field(
        "production",
        description="alias of a model that passes: production, so that callers get it; or candidate, which waits for "
        "`voxline models promote`",
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _alone_counts_alone(cls, values: Any) -> Any:
        """Takes the default of one kind of margin away where a config gives only the other kind for a metric."""
        if not isinstance(values, dict):
            return values
        values = dict(values)
        for kinds in MARGINS:
            margins = [values.get(kind, {}) for kind in kinds]
            if not all(isinstance(margin, dict) for margin in margins):
                return values  # of another type, which the fields refuse by name

            # A margin of 0 takes the default's place: `margin` takes the larger of the two kinds.
            for kind, own, other in zip(kinds, margins, reversed(margins), strict=True):
                default = cls.model_fields[kind].default
                zeros = {name: 0.0 for name in other if name not in own and name in default}
                if zeros:
                    values[kind] = {**zeros, **own}
        return values

    @pydantic.field_validator("licences")
    @classmethod
    def _check_licences(cls, licences: list[str]) -> list[str]:
        if not all(licences):
            raise ValueError("an empty licence would accept what states none; name the licences that are accepted")
        return [checked_licence(licence) for licence in licences]

    @pydantic.field_validator("limits", *(kind for kinds in MARGINS for kind in kinds))
    @classmethod
    def _known_metrics(cls, values: dict[str, Any], field: pydantic.ValidationInfo) -> dict[str, Any]:
        name = str(field.field_name)
        accepted = [
            metric.name
            for metric in family_metrics(cls.family)
            if metric.better != "neither" and (metric.comparable or name == "limits")
        ]
        most = MAX_SHARE if name == "limits" else MAX_MARGIN

        # Other units, such as dB, have no natural largest value.
        faults = {}
        for key, value in values.items():
            if key not in accepted:
                faults[key] = f"no metric {key}; accepted: {', '.join(accepted)}"
            elif "relative" in name and value > MAX_MARGIN:
                faults[key] = f"{key} is a share of the other model's value (0.1 is 10%); 0 to {MAX_MARGIN} is accepted"
            elif "relative" not in name and CATALOG[key].unit == "%" and not 0 <= value <= most:
                faults[key] = f"{key} is a share (1 is 100%); 0 to {most:g} is accepted"

        # Each under its own key, so that the message says which file or --set has it.
        if faults:
            lines = [
                InitErrorDetails(
                    type=PydanticCustomError("metric", "{fault}", {"fault": fault}), loc=(key,), input=values[key]
                )
                for key, fault in faults.items()
            ]
            raise pydantic.ValidationError.from_exception_data(cls.__name__, lines)

        # A config adds to the defaults, it does not replace them: a limit that it does not name still holds.
        return {**cls.model_fields[name].default, **values}

    def margin(self, metric: str, value: float, *, in_slice: bool = False) -> float:
        """The margin of a metric in its own unit: how much worse than the other model's value it may be."""
        absolute, relative = (getattr(self, kind).get(metric, 0.0) for kind in MARGINS[in_slice])
        return float(max(absolute, relative * abs(value)))

    def describe_margin(self, metric: str, *, in_slice: bool = False) -> str:
        """The settings of a margin, as a config spells them.

        >>> from voxline.families.asr.settings import AsrPushSettings
        >>> AsrPushSettings().describe_margin("wer")
        'the larger of 10% (max_relative_regression.wer) and 0.50 points (max_regression.wer)'
        """
        absolute, relative = MARGINS[in_slice]
        texts = []
        if share := getattr(self, relative).get(metric, 0.0):
            texts.append(f"{100 * share:g}% ({relative}.{metric})")
        if (number := getattr(self, absolute).get(metric, 0.0)) or not texts:
            texts.append(f"{CATALOG[metric].format_difference(number).lstrip('+')} ({absolute}.{metric})")
        return f"the larger of {' and '.join(texts)}" if len(texts) > 1 else texts[0]

    def compared_metrics(self, *, in_slice: bool = False) -> list[str]:
        """The metrics that have a margin."""
        return list(dict.fromkeys(key for kind in MARGINS[in_slice] for key in getattr(self, kind)))

    def asked_for(self) -> list[tuple[str, str]]:
        """The limits and margins that a config has beyond the defaults: (setting, metric)."""
        kinds = ("limits", *(kind for pair in MARGINS for kind in pair))
        fields = type(self).model_fields
        return [(kind, key) for kind in kinds for key in getattr(self, kind) if key not in fields[kind].default]

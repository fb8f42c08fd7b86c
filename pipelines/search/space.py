"""The space of a search: the settings that vary, each with its range, from a YAML file.

train.learning_rate: {log: [1.0e-4, 1.0e-2]}
train.weight_decay: {linear: [0, 0.01]}
train.warm_up_steps: {integer: [20, 400]}
train.batch_size: {log_integer: [8, 64]}
train.model.units: [48, 96, 128]
"""

import dataclasses
import json
import math
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.errors import SettingsError
from voxline.pipelines.config.keys import Values, get_key, set_key
from voxline.pipelines.config.load import load_config, read_yaml
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.graphs import steps_of
from voxline.pipelines.steps import STEPS
from voxline.settings import merge

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

KINDS = ("log", "linear", "integer", "log_integer", "choice")
FIXED = {
    "train.name": "it is the model's name",
    "train.seed": "a search runs the winner with other seeds by itself",
    "train.workers": "it does not change the result",
    "language.kind": "give the config a language model, or none",
}
"""Key, or section → why a search does not vary it."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The values that one setting may have.

    Attributes:
      key: dotted, such as train.learning_rate.
      kind: one of `KINDS`.
      values: the lowest and the highest, both included; of a choice all of them, which are any JSON values.
    """

    key: str
    kind: str
    values: tuple[Any, ...]

    @property
    def is_log(self) -> bool:
        return self.kind in ("log", "log_integer")

    @property
    def is_integer(self) -> bool:
        return self.kind in ("integer", "log_integer")

    def distribution(self) -> "BaseDistribution":
        """The same for Optuna, whose choices are texts: those of `encode`."""
        from optuna import distributions

        if self.kind == "choice":
            return distributions.CategoricalDistribution([self.encode(value) for value in self.values])
        low, high = self.values
        kind = distributions.IntDistribution if self.is_integer else distributions.FloatDistribution
        return kind(low, high, log=self.is_log)

    def encode(self, value: Any) -> Any:
        """A value as Optuna has it."""
        if self.kind != "choice":
            return value
        own = self.values[self.values.index(value)]  # 0 for a config's 0.0
        return json.dumps(own, sort_keys=True, ensure_ascii=False)

    def decode(self, value: Any) -> Any:
        """A value as a config has it; a real number with six digits, which a person can copy."""
        if self.kind == "choice":
            return json.loads(value)
        return value if self.is_integer else min(max(float(f"{value:.6g}"), self.values[0]), self.values[1])

    def __contains__(self, value: object) -> bool:
        if self.kind == "choice":
            # For Python, True equals 1; for a config they are two values.
            equal = [choice for choice in self.values if value == choice]
            return any(isinstance(value, bool) is isinstance(choice, bool) for choice in equal)
        kinds = int if self.is_integer else int | float
        return isinstance(value, kinds) and not isinstance(value, bool) and self.values[0] <= value <= self.values[1]

    @property
    def size(self) -> float:
        """The number of values; of real numbers infinite."""
        if self.kind == "choice":
            return len(self.values)
        return self.values[1] - self.values[0] + 1 if self.is_integer else math.inf

    def position(self, value: Any) -> float:
        """The place of a value in the range, from 0 to 1.

        >>> round(Range("train.learning_rate", "log", (1e-4, 1e-2)).position(1e-3), 6)
        0.5
        """
        if self.kind == "choice":
            return self.values.index(value) / max(len(self.values) - 1, 1)
        low, high, value = (math.log(number) if self.is_log else number for number in (*self.values, value))
        return float((value - low) / (high - low)) if high > low else 0.5

    def at(self, share: float) -> Any:
        """The value at a share of the range, from 0 to below 1. Choices have equal parts of it.

        >>> Range("train.learning_rate", "log", (1e-4, 1e-2)).at(0.5)
        0.001
        >>> [Range("train.batch_size", "choice", (8, 16, 32)).at(share) for share in (0.0, 0.5, 0.99)]
        [8, 16, 32]
        """
        if self.kind == "choice":
            return self.values[int(share * len(self.values))]

        # A whole number has the part of the range that rounds to it, so the ends get as much as the others.
        low, high = self.values
        margin = 0.5 if self.is_integer else 0.0
        begin, end = (math.log(bound) if self.is_log else bound for bound in (low - margin, high + margin))
        value = begin + share * (end - begin)
        value = math.exp(value) if self.is_log else value

        # Rounding, and the logarithm and back, may step over an end.
        return min(max(round(value), low), high) if self.is_integer else self.decode(value)

    def plain(self) -> dict[str, list[Any]]:
        """The range as in the file."""
        return {self.kind: list(self.values)}


class Space:
    """The ranges of a search, in the order of the file.

    Args:
      source: its name, for messages.

    Raises:
      SettingsError: a line for each fault, with its key.
    """

    def __init__(self, ranges: Mapping[str, Any], source: str = "space") -> None:
        self.ranges: list[Range] = []
        faults = []
        for key, description in _flatten(ranges).items():
            try:
                self.ranges.append(_range(key, description))
            except SettingsError as error:
                faults.append(f"{source}: {error}")

        if not ranges:
            faults.append(
                f"{source}: it is empty; give a setting and its range, train.learning_rate: {{log: [1e-4, 1e-2]}}"
            )

        # `train.model` as a choice of whole sections, and `train.model.units`: the one would overwrite the other.
        for setting in self.ranges:
            inner = next((other for other in self.ranges if other.key.startswith(f"{setting.key}.")), None)
            if inner:
                faults.append(f"{source}: {setting.key} and {inner.key}: one holds the other; leave out one of them")

        if faults:
            raise SettingsError("\n".join(faults))
        self.source = source

    @classmethod
    def read(cls, file: Path) -> "Space":
        """Reads a YAML file; keys are dotted or nested, as in a config."""
        return cls(read_yaml(file), str(file))

    def __getitem__(self, key: str) -> Range:
        return next(setting for setting in self.ranges if setting.key == key)

    def plain(self) -> dict[str, Any]:
        return {setting.key: setting.plain() for setting in self.ranges}

    def distributions(self) -> "dict[str, BaseDistribution]":
        return {setting.key: setting.distribution() for setting in self.ranges}

    @property
    def size(self) -> int:
        """The number of combinations; a very large one where a setting is a real number."""
        return int(min(math.prod(setting.size for setting in self.ranges), sys.maxsize))

    def stratified(self, count: int, seed: int, own: Values | None = None) -> list[Values]:
        """Settings that cover each range: a Latin hypercube (McKay, Beckman and Conover 1979).

        Each range is cut into `count` equal parts, and each part has the value of one of the settings.

        Args:
          own: the first of the settings, which the others leave its parts to.
        """
        # A column for each setting: one value from each of its parts, in random order.
        chance = random.Random(seed)
        columns: list[list[Any]] = []
        for setting in self.ranges:
            parts = list(range(count))
            if own is not None:
                parts.remove(min(int(setting.position(own[setting.key]) * count), count - 1))
            chance.shuffle(parts)
            columns.append([setting.at((part + chance.random()) / count) for part in parts])

        keys = [setting.key for setting in self.ranges]
        drawn = [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]
        return [*([] if own is None else [own]), *drawn]

    def sections(self) -> set[str]:
        """The sections of the config that vary."""
        return {setting.key.partition(".")[0] for setting in self.ranges}

    def values_of(self, config: RunConfig) -> Values | None:
        """The config's own value of each setting; None if one is not within its range."""
        values = config.plain()
        own = {setting.key: get_key(values, setting.key) for setting in self.ranges}
        return own if all(own[setting.key] in setting for setting in self.ranges) else None

    def check(self, config: RunConfig) -> None:
        """Refuses a space that does not suit a config: each end of each range must be a value that the config takes.

        Raises:
          SettingsError: a line for each fault, with its key.
        """
        faults = []
        sections = list(dict.fromkeys(STEPS[step].config_section for step in model_steps(config.pipeline)))
        for setting in self.ranges:
            section = setting.key.partition(".")[0]
            place = f"{self.source}: {setting.key}"
            fixed = next((why for key, why in FIXED.items() if f"{setting.key}.".startswith(f"{key}.")), "")
            if section not in sections:
                names = " and ".join(f"{name}.*" for name in sections)
                faults.append(f"{place}: {names} can vary; data is prepared once, before the search")
            elif fixed:
                faults.append(f"{place} cannot vary: {fixed}")
            elif section == "language" and "language" not in config.optional_steps():
                faults.append(f"{place}: the config has no language model; set language.kind to ngram")
            else:
                faults += self._refused(config, setting)

        if faults:
            raise SettingsError("\n".join(faults))

    @property
    def varies_decoding(self) -> bool:
        """True if settings of a step after train vary, so that a trial runs that step too."""
        return not self.sections() <= {"train"}

    def refuse_decoding(self, option: str) -> None:
        """Refuses settings of decoding where a trial is a training alone.

        Raises:
          SettingsError: naming the option and the keys.
        """
        if keys := ", ".join(setting.key for setting in self.ranges if not setting.key.startswith("train.")):
            raise SettingsError(f"{option}: {keys}: a trial is a training, so only train.* can vary")

    def _refused(self, config: RunConfig, setting: Range) -> list[str]:
        """A line for each value at the ends of a range that the config does not take."""
        # The ends are enough: what a config accepts of a number is an interval. All choices are ends.
        faults = []
        for value in setting.values:
            try:
                load_config(with_settings(config, {setting.key: value}), pipeline=config.pipeline)
            except SettingsError as error:
                faults.append(f"{self.source}: {setting.key}: {value!r}: {str(error).splitlines()[0]}")
        return faults


def model_steps(pipeline: str) -> list[str]:
    """The steps that make a pipeline's model: train, and those that add to it. A search may vary their settings.

    >>> model_steps("asr")
    ['train', 'export', 'language']
    """
    return [step for step in steps_of(pipeline) if "model" in STEPS[step].outputs]


def with_settings(config: RunConfig, settings: Mapping[str, Any]) -> Values:
    """A document for `load_config`: a config with other values of some settings.

    The keys that follow from others are left out, so that they follow again.
    """
    document = config.plain()
    for key in config.derived_values():
        *sections, last = key.split(".")
        inner = get_key(document, ".".join(sections)) if sections else document
        inner.pop(last, None)
    document = merge(document, nested(settings))
    for key, value in settings.items():
        if isinstance(value, dict):  # a whole section, such as another kind of model
            set_key(document, key, value)
    return document


def nested(settings: Mapping[str, Any]) -> Values:
    """Settings by dotted keys as sections.

    >>> nested({"train.epochs": 3, "train.model.units": 96})
    {'train': {'epochs': 3, 'model': {'units': 96}}}
    """
    document: Values = {}
    for key, value in settings.items():
        set_key(document, key, value)
    return document


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Ranges by dotted keys; a mapping that does not name a kind of range is a section."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and not set(value) <= set(KINDS):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _range(key: str, description: Any) -> Range:
    accepted = "accepted: [a, b, …], or one of {log: [low, high]}, linear, integer, log_integer, {choice: [a, b, …]}"

    # A list is short for {choice: list}.
    kind = ""
    values: Any = None
    if isinstance(description, list):
        kind = "choice"
        values = description
    elif isinstance(description, dict) and len(description) == 1:
        ((kind, values),) = description.items()
    if kind not in KINDS or not isinstance(values, list) or "." not in key:
        raise SettingsError(f"{key}: {description!r}; {accepted}")

    # As JSON, which is how Optuna and the file of a trial have a choice; YAML's dates are not JSON.
    if kind == "choice":
        try:
            texts = [json.dumps(value, sort_keys=True) for value in values]
        except TypeError:
            raise SettingsError(f"{key}: {values!r}; put dates in quotation marks") from None
        if len(values) < 2 or len(set(texts)) < len(texts):
            raise SettingsError(f"{key}: {values!r}; two or more different values are accepted")
        return Range(key, kind, tuple(values))
    return Range(key, kind, _ends(key, kind, values))


def _ends(key: str, kind: str, values: Sequence[Any]) -> tuple[Any, ...]:
    integer = kind in ("integer", "log_integer")
    right = len(values) == 2 and all(
        isinstance(value, int if integer else int | float) and not isinstance(value, bool) for value in values
    )
    if not right or not all(map(math.isfinite, values)) or not values[0] < values[1]:
        whole = "whole numbers" if integer else "numbers"
        raise SettingsError(f"{key}: {kind}: {list(values)!r}; two {whole}, the lower one first, are accepted")
    if kind.startswith("log") and values[0] <= 0:
        raise SettingsError(f"{key}: {kind}: {list(values)!r}; a logarithmic range begins above 0")
    return tuple(values) if integer else tuple(map(float, values))

"""Parts of a network, named by the paths of its weights: which are frozen, and how fast the others learn.

A part is the beginning of weights' names (`weight_names`), component by component:

  classifier                  the weights under classifier/
  blocks/0-2                  those of the first three blocks: a range of numbers, both ends included
  blocks/*/attention/query    those of the queries of every block: * is any one component
"""

import contextlib
import functools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from voxline.errors import SettingsError
from voxline.training.settings import LoraSettings, TrainSettings
from voxline.training.weight_names import weight_names

RANGE = re.compile(r"(\d+)-(\d+)")
ANY = "*"
MAX_NAMED = 10
"""New symbols that a message names."""


class TrainedParts:
    """Which weights of an exported model are trained, at which rates, and from which step on.

    Weights that are frozen become no variables of an optimizer. Those that rest while the head is trained do, and are
    left out of its steps. Variables of auxiliary models have no part's name: they train in every step, at the full
    rate.

    Args:
      model: the one that is exported, with its `normalizations`; its frozen weights become untrainable.
      auxiliary_models: further ones with normalizations.
      settings: of them `freeze`, `lora` and `rates`.

    Attributes:
      low_rank_kernels: those of `lora.parts`; they stay trainable.

    Raises:
      SettingsError: the model has no such part, or all of it is frozen, or a part of `lora` has no kernel.
    """

    def __init__(self, model: Any, auxiliary_models: Sequence[Any], settings: TrainSettings) -> None:
        self._model = model
        self._norms = [norm for each in (model, *auxiliary_models) for norm in each.normalizations]
        self._rates = settings.rates
        self._resting: set[int] = set()
        self._frozen: set[str] = set()
        self.low_rank_kernels: list[Any] = []
        if settings.lora.rank:
            self._freeze_but(settings.lora)
        elif settings.freeze:
            self._freeze(settings.freeze)

    @functools.cached_property
    def names(self) -> dict[int, str]:
        """The names of the exported model's weights, by the id of each."""
        return {id(weight): name for weight, name in zip(self._model.weights, weight_names(self._model), strict=True)}

    @property
    def trained_count(self) -> int:
        """Number of parameters that are trained, without the factors of low-rank kernels."""
        low_rank = {id(kernel) for kernel in self.low_rank_kernels}
        trained = [variable for variable in self._model.trainable_variables if id(variable) not in low_rank]
        return sum(math.prod(variable.shape) for variable in trained)

    def rates(self, variables: Sequence[Any]) -> list[float]:
        """The factor of each variable's learning rate."""
        if not self._rates:
            return [1.0] * len(variables)
        check_parts("train.rates", self._rates, list(self.names.values()))
        return [rate_of(self.names.get(id(variable), ""), self._rates) for variable in variables]

    def train_head_first(self, names: Collection[str]) -> None:
        """Lets all weights but those of these names rest while the head is trained.

        Raises:
          SettingsError: none of them is trained.
        """
        head = {number for number, name in self.names.items() if name in names}
        if not any(id(variable) in head for variable in self._model.trainable_variables):
            raise SettingsError(
                "train.start.head_epochs: the model to start from has all weights that are trained, so there is no "
                "head to train first; take over fewer parts (train.start.keep), freeze less, or set it to 0"
            )
        self._resting = self.names.keys() - head

    def train_auxiliary_first(self) -> None:
        """Lets all weights of the exported model rest while auxiliary models train."""
        self._resting = set(self.names)

    def resting(self, of_head: bool) -> Collection[int]:
        """The ids of variables that a step leaves out.

        Args:
          of_head: whether it trains the head alone.
        """
        return self._resting if of_head else ()

    def moving_norms(self, of_head: bool) -> list[Any]:
        """The layers whose moving statistics a step moves."""
        asleep = self.resting(of_head)
        return [
            norm for norm in self._norms if not getattr(norm, "frozen", False) and id(norm.moving_mean) not in asleep
        ]

    def moving(self, of_head: bool) -> list[Any]:
        """Statistics that no layer moves itself: an accepted step does."""
        norms = self.moving_norms(of_head)
        return [statistic.value for norm in norms for statistic in (norm.moving_mean, norm.moving_variance)]

    @contextlib.contextmanager
    def frozen(self, of_head: bool) -> Iterator[None]:
        """Within it, the normalizations that rest use their moving statistics."""
        awake = self.moving_norms(of_head)
        resting = [norm for norm in self.moving_norms(False) if norm not in awake]
        for norm in resting:
            norm.frozen = True
        try:
            yield
        finally:
            for norm in resting:
                norm.frozen = False

    def check_random(self, names: Iterable[str]) -> None:
        """Refuses weights that are random, and would stay so.

        Args:
          names: of the weights that no model gave.

        Raises:
          SettingsError: some of them are frozen.
        """
        frozen = [name for name in names if name in self._frozen]
        if frozen:
            raise SettingsError(
                f"train.start: {', '.join(list_parts(frozen))} is left random, and train.freeze or train.lora freezes "
                "it, so that it would never be trained; freeze less, or name it in train.lora.also"
            )

    def check_new_symbols(self, names: Iterable[str], symbols: Sequence[str]) -> None:
        """Refuses symbols that the model to start from does not know, where nothing would teach them.

        Args:
          names: of the weights with an entry for each symbol.
          symbols: the new ones.

        Raises:
          SettingsError: such weights are frozen, or LoRA alone updates them.
        """
        low_rank = {self.names[id(kernel)] for kernel in self.low_rank_kernels}
        untaught = [name for name in names if name in self._frozen or name in low_rank]
        if symbols and untaught:
            more = f" and {len(symbols) - MAX_NAMED:,} more" if len(symbols) > MAX_NAMED else ""
            new = ", ".join(map(repr, symbols[:MAX_NAMED])) + more
            raise SettingsError(
                f"train.start: the model to start from does not know {new}, and train.freeze or train.lora keeps "
                f"{', '.join(list_parts(untaught))} from learning new symbols; do not freeze it, name it in "
                "train.lora.also, or write the transcripts with the symbols that it knows"
            )

    def _freeze(self, parts: Sequence[str]) -> None:
        check_parts("train.freeze", parts, list(self.names.values()))
        self._freeze_names([name for name in self.names.values() if is_part(name, parts)])
        if not self._model.trainable_variables:
            raise SettingsError(
                f"train.freeze: {', '.join(parts)} are all of the network, so nothing is left to train; it has "
                f"{', '.join(list_parts(self.names.values()))}"
            )

    def _freeze_but(self, lora: LoraSettings) -> None:
        names = list(self.names.values())
        check_parts("train.lora.parts", lora.parts, names)
        check_parts("train.lora.also", lora.also, names)

        # What is trained as a whole has no need of factors.
        for variable in self._model.weights:
            name = self.names[id(variable)]
            is_kernel = variable.trainable and len(variable.shape) > 1
            if is_kernel and is_part(name, lora.parts) and not is_part(name, lora.also):
                self.low_rank_kernels.append(variable)

        kernels = {self.names[id(kernel)] for kernel in self.low_rank_kernels}
        if empty := [part for part in lora.parts if not any(is_part(name, [part]) for name in kernels)]:
            raise SettingsError(
                f"train.lora.parts: {', '.join(map(repr, empty))}: no kernel, a weight of two or more dimensions, is "
                "there, or it is in train.lora.also"
            )
        self._freeze_names([name for name in names if name not in kernels and not is_part(name, lora.also)])

    def _freeze_names(self, frozen: Iterable[str]) -> None:
        self._frozen = set(frozen)
        for variable in self._model.weights:
            if self.names[id(variable)] in self._frozen:
                variable.trainable = False

        # A normalization is frozen with its statistics.
        for norm in self._model.normalizations:
            norm.frozen = self.names[id(norm.moving_mean)] in self._frozen


def is_part(name: str, parts: Iterable[str]) -> bool:
    """True if a weight belongs to one of the parts.

    >>> [is_part(f"blocks/{number}/kernel", ["blocks/0-2", "classifier"]) for number in (2, 3)]
    [True, False]
    >>> is_part("blocks/3/attention/query/kernel", ["blocks/*/attention"]), is_part("blocks_2/kernel", ["blocks"])
    (True, False)
    """
    components = name.split("/")
    return any(_begins_with(components, part.split("/")) for part in parts)


def check_parts(setting: str, parts: Iterable[str], names: Sequence[str]) -> None:
    """Refuses parts that a network does not have; of a range, both ends must be there.

    Args:
      setting: the key that names the parts.
      names: of the network's weights.

    Raises:
      SettingsError: naming the absent parts, and those that the network has.
    """
    absent = [part for part in parts if not all(_names_some(each, names) for each in [part, *_ends(part)])]
    if absent:
        raise SettingsError(
            f"{setting}: {', '.join(map(repr, absent))}: the network has no such part; it has "
            f"{', '.join(list_parts(names))}"
        )


def list_parts(names: Iterable[str]) -> list[str]:
    """The parts at the top of a network, and those with numbers, as ranges.

    >>> list_parts(["front/kernel", "blocks/0/kernel", "blocks/1/kernel", "norms/2/beta", "classifier/bias"])
    ['front', 'blocks/0-1', 'norms/2', 'classifier']
    >>> list_parts(["encoder/norm/beta", "encoder/blocks/0/kernel", "encoder/blocks/1/kernel"])
    ['encoder', 'encoder/blocks/0-1']
    """

    # Numbers of each part, in the order of the weights; [] of a part without any.
    numbers: dict[str, list[int]] = {}
    for name in names:
        components = name.split("/")
        number = next((index for index, component in enumerate(components) if component.isdigit()), None)
        of_part = numbers.setdefault("/".join(components[: number or 1]), [])
        if number:
            of_part.append(int(components[number]))

    return [
        part + (f"/{min(own)}" if own else "") + (f"-{max(own)}" if own and max(own) > min(own) else "")
        for part, own in numbers.items()
    ]


def rate_of(name: str, rates: Mapping[str, float]) -> float:
    """The factor of a weight's learning rate: that of the longest part that it belongs to, 1 of none.

    The longest has the most components, and of these the most letters.

    >>> rates = {"classifier": 1.0, "blocks/3": 0.3, "blocks": 0.1}
    >>> [rate_of(name, rates) for name in ("blocks/2/kernel", "blocks/3/kernel", "front/kernel")]
    [0.1, 0.3, 1.0]
    """
    parts = [part for part in rates if is_part(name, [part])]
    return rates[max(parts, key=lambda part: (part.count("/"), len(part)))] if parts else 1.0


def _begins_with(components: Sequence[str], part: Sequence[str]) -> bool:
    return len(part) <= len(components) and all(map(_fits, part, components))


def _fits(pattern: str, component: str) -> bool:
    numbers = RANGE.fullmatch(pattern)
    if numbers and component.isdigit():
        return int(numbers[1]) <= int(component) <= int(numbers[2])
    return pattern in (ANY, component)


def _ends(part: str) -> list[str]:
    """The part with each range replaced by its first number, and by its last."""
    return [RANGE.sub(rf"\{group}", part) for group in (1, 2)]


def _names_some(part: str, names: Iterable[str]) -> bool:
    return any(is_part(name, [part]) for name in names)

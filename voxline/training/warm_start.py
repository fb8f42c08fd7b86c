"""Warm start: the weights of an earlier model, by name and shape, and those of its output symbol by symbol.

An exported model keeps its weights in the SavedModel's `variables/`, a table of tensors that is read without running
the model's graph; `model.json` has their names, and the mean and deviation that they expect of the features. A
training that starts from them keeps these statistics too: the network's first output is then that of its parent. The
optimizer starts afresh. docs/decisions/0063-warm-start.md
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.progress import print_status
from voxline.registry.parents import Parent
from voxline.settings import changed_settings
from voxline.training.published_weights import read_published
from voxline.training.settings import StartSettings

if TYPE_CHECKING:
    from voxline.training.task import TrainingTask

Array = npt.NDArray[Any]
Symbols = Sequence[str]
"""The symbols of a model, in the order of their weights; the CTC blank is the empty string."""

MOVING = ("moving_mean", "moving_variance")
"""Names of weights that are statistics: they are carried as they are, never shrunk."""
MAX_NAMED = 4
"""Settings or weights that a message names."""


@dataclasses.dataclass(frozen=True)
class ParentWeights:
    """What a parent gives its child.

    Attributes:
      label: names the parent in messages.
      about: its `model.json`.
      arrays: its weights in their order.
      names: of each; empty for a model that was exported before `model.json` had them.
      folder: the exported model; None of published weights.
      published: whether they are those of a file, which tells of its settings what its shapes tell.
    """

    label: str
    about: dict[str, Any]
    arrays: list[Array]
    names: list[str]
    folder: Path | None = None
    published: bool = False

    @property
    def mean_and_deviation(self) -> tuple[list[float], list[float]] | None:
        """Of the features that the weights expect; None of a model that was exported before `model.json` had them."""
        normalization = self.about.get("normalization")
        return (normalization["mean"], normalization["deviation"]) if normalization else None

    def by_name(self, names: Sequence[str]) -> dict[str, Array]:
        """The weights by name; where it has no names, they are those of a model with as many weights."""
        if self.names:
            return dict(zip(self.names, self.arrays, strict=True))
        return dict(zip(names, self.arrays, strict=True)) if len(names) == len(self.arrays) else {}


def read_parent(parent: Parent) -> ParentWeights:
    """Reads the weights of a model whose bytes were checked. Its graph does not run.

    Raises:
      WorkError: the model is damaged.
    """
    if parent.ancestor.is_published:
        named = read_published(parent)
        return ParentWeights(parent.label, parent.about, list(named.values()), list(named), published=True)
    folder = parent.load_folder()
    arrays = read_exported_weights(folder)
    names = parent.about.get("weights") or []
    if names and len(names) != len(arrays):
        raise WorkError(f"{folder}: model.json names {len(names)} weights, and there are {len(arrays)}")
    return ParentWeights(parent.label, parent.about, arrays, names, folder)


def read_exported_weights(folder: Path) -> list[Array]:
    """The weights of an exported model, in the order in which model.json names them.

    Raises:
      WorkError: the model is damaged.
    """
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
        keys = reader.get_variable_to_shape_map()
        count = sum(key.startswith("weights/") for key in keys)
        return [reader.get_tensor(f"weights/{index}/.ATTRIBUTES/VARIABLE_VALUE") for index in range(count)]
    except (tf.errors.OpError, ValueError, KeyError) as error:
        raise WorkError(f"{folder}/variables: not the weights of an exported model ({error})") from None


def with_normalization_of(dataset: Dataset, parent: ParentWeights) -> Dataset:
    """The dataset with the mean and deviation of the features that the parent's weights expect.

    Raises:
      SettingsError: the parent was trained on other features; the message names the settings.
    """
    theirs, ours = parent.about["features"], dataset.features.plain()
    if differing := changed_settings({"extract": {"features": theirs}}, {"extract": {"features": ours}}):
        raise SettingsError(
            f"train.start: {parent.label} was trained on other features: {_name_differences(differing)}; set the same, "
            "or start from another model"
        )
    if parent.mean_and_deviation is None:
        print_status(
            f"train: {parent.label} was exported without the mean and deviation of its features; those of this dataset "
            "take their place"
        )
        return dataset
    mean, deviation = parent.mean_and_deviation
    return dataclasses.replace(dataset, mean=mean, deviation=deviation)


def start_from(task: "TrainingTask", parent: ParentWeights) -> None:
    """Sets a task's weights to those of a parent; what is not kept stays random.

    Raises:
      SettingsError: a weight that is kept has another shape; the message names the settings that differ.
    """
    start, symbols = task.settings.start, task.dataset.alphabet.symbols
    names = task.module.weight_names()
    fresh = task.module.weights()
    keys = dict(zip(names, fresh, strict=True))
    kept = _kept_names(start, names, task.decoder_parts)
    if kept:
        _check_functions(task, parent)
    known = list(parent.about["alphabet"])
    placed = any(task.symbol_axis(name) is not None for name in names)
    if known != list(symbols) and task.decoder_parts and not placed:
        raise SettingsError(
            f"train.start: {parent.label} has another alphabet, and this network does not say which weights belong to "
            "a symbol: its output layer must be the attribute `classifier` (docs/extend/ctc-model.md)"
        )
    theirs = parent.by_name(names)
    weights, strange = dict(fresh), []
    for name in kept:
        axis = task.symbol_axis(name)
        blank = [""] if axis == -1 else []
        value = theirs.get(name)
        if value is not None and axis is not None and _fits(value, fresh[keys[name]], axis):
            before, now = [*known, *blank], [*symbols, *blank]
            value = carry_symbols(value, fresh[keys[name]], axis, before, now, start.new_symbols)
        if value is None or value.shape != fresh[keys[name]].shape:
            strange.append(name)
            continue
        if not name.endswith(MOVING):
            value = start.shrink * value + (1 - start.shrink) * fresh[keys[name]]
        weights[keys[name]] = value.astype(fresh[keys[name]].dtype)
    unused = sorted(theirs.keys() - set(names)) if start.keep == "all" else []
    if strange or unused:
        raise SettingsError(_describe_misfit(task, parent, [*strange, *unused]))
    task.module.load_weights(weights)
    task.parent_model = parent.folder
    note = _symbols_in_words(known, symbols, start)
    if left := dict.fromkeys(_part_of(name) for name in names if name not in set(kept)):
        note += f"; left random: {', '.join(left)}"
    print_status(f"train: starts from {parent.label}: {len(kept):,} of {len(names):,} weights{note}")


def _check_functions(task: "TrainingTask", parent: ParentWeights) -> None:
    """Refuses weights whose shapes fit, and whose network computes something else with them."""
    if not task.function_settings:
        return
    model: Any = task.settings.model  # type: ignore[attr-defined]
    theirs = parent.about["settings"].get("model", {})
    if theirs.get("kind") != model.plain().get("kind"):
        return  # neither names nor shapes fit
    # What a model.json of before does not name, its network did by default.
    defaults = dict(type(model)())
    before, now = (
        {f"train.model.{name}": _read_setting({**defaults, **values}, name) for name in task.function_settings}
        for values in (theirs, dict(model))
    )
    if differing := changed_settings(before, now):
        raise SettingsError(
            f"train.start: with the same weights the network of {parent.label} computes something else: "
            f"{_name_differences(differing)}; set the same, or start from another model"
        )


def _read_setting(model: Mapping[str, Any], name: str) -> Any:
    """A setting's value, None where this kind of network has none; `a.b` is the list of b in the list a."""
    first, _, rest = name.partition(".")
    value = model.get(first)
    return [list(dict(one)[rest]) for one in value] if rest and value is not None else value


def _fits(value: Array, fresh: Array, axis: int) -> bool:
    """Whether both have the same shape but for the axis of symbols."""
    shapes = [list(array.shape) for array in (value, fresh)]
    for shape in shapes:
        del shape[axis]
    return value.ndim == fresh.ndim and shapes[0] == shapes[1]


def carry_symbols(
    value: Array,
    fresh: Array,
    axis: int,
    known: Symbols,
    symbols: Symbols,
    new: Literal["mean", "zero", "random"] = "mean",
) -> Array:
    """The weights of symbols, each taken from the same symbol of the parent.

    Args:
      value, fresh: the parent's weights and random ones; they have as many entries along `axis` as there are symbols.
      known: the parent's symbols.
      symbols: those of the new model.
      new: what a symbol gets that the parent did not know: the mean over the parent's symbols (not the blank), zero, or
        the random weights.

    >>> parent, fresh = np.array([[1.0, 3.0, 9.0]]), np.array([[0.1, 0.2, 0.3, 0.4]])
    >>> carry_symbols(parent, fresh, -1, ["a", "b", ""], ["b", "é", "a", ""]).tolist()
    [[3.0, 2.0, 1.0, 9.0]]
    """
    theirs, result = np.moveaxis(value, axis, 0), np.moveaxis(fresh, axis, 0).copy()
    rows = dict(zip(known, theirs, strict=True))
    mean = np.mean([row for symbol, row in rows.items() if symbol], axis=0)
    for index, symbol in enumerate(symbols):
        if symbol in rows:
            result[index] = rows[symbol]
        elif new != "random":
            result[index] = mean if new == "mean" else 0.0
    return np.moveaxis(result, 0, axis)


def _kept_names(start: StartSettings, names: Sequence[str], decoder_parts: Sequence[str]) -> list[str]:
    if start.keep == "all":
        return list(names)
    if start.keep == "encoder":
        return [name for name in names if not _is_part(name, decoder_parts)]
    if absent := [part for part in start.keep if not any(_is_part(name, [part]) for name in names)]:
        parts = ", ".join(dict.fromkeys(name.partition("/")[0] for name in names))
        raise SettingsError(
            f"train.start.keep: {', '.join(map(repr, absent))}: the network has no such part; it has {parts}"
        )
    return [name for name in names if _is_part(name, start.keep)]


def _part_of(name: str) -> str:
    """
    >>> _part_of("before/0/kernel"), _part_of("recurrent/cell/bias"), _part_of("classifier/bias")
    ('before/0', 'recurrent', 'classifier')
    """
    first, *rest = name.split("/")
    return f"{first}/{rest[0]}" if rest and rest[0].isdigit() else first


def _is_part(name: str, parts: Sequence[str]) -> bool:
    return any(f"{name}/".startswith(f"{part}/") for part in parts)


def _describe_misfit(task: "TrainingTask", parent: ParentWeights, names: Sequence[str]) -> str:
    theirs, ours = parent.about["settings"]["model"], task.settings.plain()["model"]
    if parent.published:
        ours = {name: value for name, value in ours.items() if name in theirs}
    differing = changed_settings({"train": {"model": theirs}}, {"train": {"model": ours}})
    what = _name_differences(differing) if differing else f"other weights ({_shorten(names)})"
    return (
        f"train.start: the network of {parent.label} does not fit: {what}; set the same, or take over fewer parts "
        "(train.start.keep)"
    )


def _name_differences(differing: Sequence[tuple[str, str, str]]) -> str:
    return _shorten([f"{key} is {ours or 'not set'}, there {theirs or 'not set'}" for key, theirs, ours in differing])


def _shorten(texts: Sequence[str]) -> str:
    more = len(texts) - MAX_NAMED
    return ", ".join(texts[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _symbols_in_words(known: Symbols, symbols: Symbols, start: StartSettings) -> str:
    new, gone = ([one for one in a if one not in b] for a, b in ((symbols, known), (known, symbols)))
    note = f"; new symbols ({start.new_symbols}): {_list_symbols(new)}" if new else ""
    return note + (f"; symbols that it no longer has: {_list_symbols(gone)}" if gone else "")


def _list_symbols(symbols: Symbols) -> str:
    """
    >>> _list_symbols(["d", "é"]), _list_symbols(["d", "the", "ing", "er", "on"])
    ("'dé'", "'d', 'the', 'ing', 'er' and 1 more")
    """
    return repr("".join(symbols)) if max(map(len, symbols)) == 1 else _shorten([repr(one) for one in symbols])

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

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.inference.model_info import ModelInfo
from voxline.progress import print_status
from voxline.registry.parents import Parent
from voxline.settings import changed_settings
from voxline.text.alphabet import name_characters, quote_text
from voxline.text.public_tokenizer import PublicTokenizer
from voxline.training.parts import check_parts, is_part
from voxline.training.settings import StartSettings

if TYPE_CHECKING:
    from voxline.training.task import TrainingTask

Array = npt.NDArray[Any]
Symbols = Sequence[str]
"""The symbols of a model, in the order of their weights; the CTC blank is the empty string."""

MOVING = ("moving_mean", "moving_variance")
"""Names of weights that are statistics: they are carried as they are, never shrunk."""
MARK = "\0"
"""Begins the name of a row that is no symbol of a text: `TrainingTask.marks`."""
MAX_NAMED = 4
"""Settings or weights that a message names."""


@dataclasses.dataclass(frozen=True)
class ParentWeights:
    """Weights of a parent, and their description.

    Attributes:
      label: names the parent in messages.
      info: its `model.json`.
      arrays: its weights in their order.
      names: of each; empty for a model that was exported before `model.json` had them.
      folder: the exported model; None of published weights.
      tokenizer: by which it spells; None of a model that spells by its alphabet.
      published: whether they are those of a file, which tells of its settings what its shapes tell.
    """

    label: str
    info: ModelInfo
    arrays: list[Array]
    names: list[str]
    folder: Path | None = None
    published: bool = False
    tokenizer: PublicTokenizer | None = None

    @property
    def mean_and_deviation(self) -> tuple[list[float], list[float]] | None:
        """Statistics of the features that the weights expect; None if the parent's `model.json` does not have them."""
        normalization = self.info.normalization
        return (normalization.mean, normalization.deviation) if normalization else None

    def by_name(self, names: Sequence[str]) -> dict[str, Array]:
        """Weights by name; without names of its own, a parent gets those of a model with as many weights."""
        if self.names:
            return dict(zip(self.names, self.arrays, strict=True))
        return dict(zip(names, self.arrays, strict=True)) if len(names) == len(self.arrays) else {}


def read_parent(parent: Parent) -> ParentWeights:
    """Reads the weights of a model whose bytes were checked. Its graph does not run.

    Raises:
      WorkError: the model is damaged.
    """
    if parent.read_weights is not None:
        named = parent.read_weights()
        tokenizer = parent.info.read_tokenizer(parent.load_folder())
        return ParentWeights(
            parent.label, parent.info, list(named.values()), list(named), published=True, tokenizer=tokenizer
        )

    # The bytes were checked against the digest when the parent was found.
    folder = parent.load_folder()
    arrays = read_exported_weights(folder)
    names = parent.info.weights
    if names and len(names) != len(arrays):
        raise WorkError(f"{folder}: model.json names {len(names)} weights, and there are {len(arrays)}")

    return ParentWeights(parent.label, parent.info, arrays, names, folder, tokenizer=parent.info.read_tokenizer(folder))


def read_exported_weights(folder: Path, part: str = "weights") -> list[Array]:
    """The weights of an exported model, in the order in which model.json names them.

    Args:
      part: attribute of the exported module that lists them.

    Raises:
      WorkError: the model is damaged.
    """
    import tensorflow as tf

    try:
        # A table of tensors: no code of the parent runs.
        reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
        keys = reader.get_variable_to_shape_map()
        count = sum(key.startswith(f"{part}/") for key in keys)
        return [reader.get_tensor(f"{part}/{index}/.ATTRIBUTES/VARIABLE_VALUE") for index in range(count)]
    except (tf.errors.OpError, ValueError, KeyError) as error:
        raise WorkError(f"{folder}/variables: not the weights of an exported model ({error})") from None


def read_named_weights(info: ModelInfo, folder: Path) -> dict[str, Array]:
    """The weights of an exported model by the names in its model.json; errors as of `read_exported_weights`."""
    arrays = read_exported_weights(folder)
    if len(arrays) != len(info.weights):
        raise WorkError(f"{folder}: model.json names {len(info.weights)} weights, and there are {len(arrays)}")
    return dict(zip(info.weights, arrays, strict=True))


def with_normalization_of(dataset: Dataset, parent: ParentWeights) -> Dataset:
    """The dataset with the mean and deviation of the features that the parent's weights expect.

    Raises:
      SettingsError: the parent was trained on other features; the message names the settings.
    """

    # Weights expect the features that they were trained on, and their statistics.
    parent_features = _in_samples(parent.info.features, parent.label)
    own_features = _in_samples(dataset.features.plain(), "extract.features")
    if differing := changed_settings(
        {"extract": {"features": parent_features}}, {"extract": {"features": own_features}}
    ):
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


def _in_samples(features: dict[str, Any], name: str) -> dict[str, Any]:
    """Settings of features with window and hop as whole samples, in seconds, however a config has rounded them.

    Raises:
      SettingsError: they are no settings of features; `name` is where they are.
    """
    own = FeatureSettings.of(dict(features), name)
    if own.kind == "waveform":
        return own.plain()
    rate = own.sample_rate
    return own.plain() | {"window_seconds": own.win_length / rate, "hop_seconds": own.hop_length / rate}


def with_tokenizer_of(
    dataset: Dataset, parent: ParentWeights, start: StartSettings, output_kind: str = "ctc"
) -> Dataset:
    """The dataset with its texts spelled by the parent's tokenizer, if it has one and its output layer is kept.

    Args:
      output_kind: of the training (`TrainSettings.output_kind`): a parent of another one has another output layer.

    Raises:
      SettingsError: a transcript has a character for which the tokenizer has no piece.
    """
    tokenizer = parent.tokenizer
    if tokenizer is None or start.keep != "all" or parent.info.kind != output_kind:
        return dataset

    # Most alphabets have no such character; only otherwise the transcripts are read.
    missing = set(tokenizer.unknown(dataset.alphabet.characters))
    for row in dataset.rows() if missing else ():
        if found := missing.intersection(row.text):
            raise SettingsError(
                f"train.start: {parent.label} has no piece for {name_characters(''.join(sorted(found)))}, which is in "
                f"the transcript of {row.id}: {quote_text(row.text)}; correct the transcripts, or train an output "
                "layer for their alphabet (train.start.keep: encoder)"
            )

    return dataclasses.replace(dataset, alphabet=tokenizer)


def start_from(task: "TrainingTask", parent: ParentWeights) -> None:
    """Sets a task's weights to those of a parent; what is not kept stays random.

    Raises:
      SettingsError: a weight that is kept has another shape; the message names the settings that differ.
    """
    start = task.settings.start
    symbols = task.dataset.alphabet.symbols

    # Names and fresh weights of the new network.
    names = task.module.weight_names()
    fresh = task.module.weights()
    keys = dict(zip(names, fresh, strict=True))
    parent_weights = parent.by_name(names)
    kept_names = _kept_names(start, names, task.decoder_parts)
    # A public model may have no output layer of this kind, such as Whisper's encoder under CTC.
    if parent.published and not any(is_part(name, task.decoder_parts) for name in parent_weights):
        kept_names = [name for name in kept_names if not is_part(name, task.decoder_parts)]
    if kept_names:
        _check_functions(task, parent)

    # Weights of symbols are carried over one by one, if the network says which they are.
    parent_symbols = list(parent.info.alphabet)
    symbols_have_axis = any(task.symbol_axis(name) is not None for name in names)
    if parent_symbols != list(symbols) and task.decoder_parts and not symbols_have_axis:
        raise SettingsError(
            f"train.start: {parent.label} has another alphabet, and this network does not say which weights belong to "
            "a symbol: its output layer must be the attribute `classifier` (docs/extend/ctc-model.md)"
        )

    of_symbols = [name for name in kept_names if task.symbol_axis(name) is not None]
    if parent_symbols:
        known = set(parent_symbols)
        task.new_symbols = [symbol for symbol in symbols if symbol not in known]
        task.module.parts.check_new_symbols(of_symbols, task.new_symbols)

    # Each weight that is kept: by name, and by symbol where it has an axis of symbols.
    weights = dict(fresh)
    misfits = []
    for name in kept_names:
        axis = task.symbol_axis(name)
        marks = [""] if axis == -1 else [f"{MARK}{number}" for number in range(task.marks)]
        value = task.adapt_weight(name, parent_weights.get(name), fresh[keys[name]], parent.info)
        if value is not None and axis is not None and _fits(value, fresh[keys[name]], axis):
            old_symbols = [*parent_symbols, *marks]
            new_symbols = [*symbols, *marks]
            value = carry_symbols(value, fresh[keys[name]], axis, old_symbols, new_symbols, start.new_symbols)
        if value is None or value.shape != fresh[keys[name]].shape:
            misfits.append(name)
            continue

        # Shrink and perturb (Ash and Adams 2020); statistics are no weights.
        if not name.endswith(MOVING):
            value = start.shrink * value + (1 - start.shrink) * fresh[keys[name]]
        weights[keys[name]] = value.astype(fresh[keys[name]].dtype)

    # A weight without a place is as bad as one that is missing.
    without_use = parent_weights.keys() - set(names)
    unused = sorted(name for name in without_use if start.keep == "all" and not is_part(name, task.unused_parts))
    if misfits or unused:
        raise SettingsError(_describe_misfit(task, parent, [*misfits, *unused]))

    random_names = [name for name in names if name not in set(kept_names)]
    task.module.start_with(weights, random_names)
    task.parent_model = parent.folder
    if start.head_epochs:
        task.module.train_head_first(random_names, sum(map(task.train.steps_of, range(start.head_epochs))))

    task.take_over(parent_weights)

    # One line for the console.
    note = _symbols_in_words(parent_symbols, symbols, start)
    if random_parts := dict.fromkeys(_part_of(name) for name in random_names):
        note += f"; left random: {', '.join(random_parts)}"

    print_status(f"train: starts from {parent.label}: {len(kept_names):,} of {len(names):,} weights{note}")


def _check_functions(task: "TrainingTask", parent: ParentWeights) -> None:
    """Refuses weights whose shapes fit, and whose network computes something else with them."""
    if not task.function_settings:
        return

    model: Any = task.settings.model  # type: ignore[attr-defined]

    # Settings that change what the same weights compute, such as an activation.
    parent_model = parent.info.model_settings
    if parent_model.get("kind") != model.plain().get("kind"):
        return  # neither names nor shapes fit

    # A setting that an older model.json does not name had its default.
    defaults = dict(type(model)())
    parent_settings, new_settings = (
        {f"train.model.{name}": _read_setting({**defaults, **values}, name) for name in task.function_settings}
        for values in (parent_model, dict(model))
    )
    if differing := changed_settings(parent_settings, new_settings):
        raise SettingsError(
            f"train.start: with the same weights the network of {parent.label} computes something else: "
            f"{_name_differences(differing)}; set the same, or start from another model"
        )


def _read_setting(model: Mapping[str, Any], name: str) -> Any:
    """A setting's value, None where this kind of network has none; `a.b` is the list of b in the list a."""
    first, _, subkey = name.partition(".")
    value = model.get(first)
    if subkey and value is not None:
        return [list(dict(item)[subkey]) for item in value]
    return list(value) if isinstance(value, tuple) else value  # as JSON has it


def _fits(value: Array, fresh: Array, axis: int) -> bool:
    """True if both have the same shape but for the axis of symbols."""
    shapes = [list(array.shape) for array in (value, fresh)]
    for shape in shapes:
        del shape[axis]
    return value.ndim == fresh.ndim and shapes[0] == shapes[1]


def carry_symbols(
    value: Array,
    fresh: Array,
    axis: int,
    parent_symbols: Symbols,
    symbols: Symbols,
    new: Literal["mean", "zero", "random"] = "mean",
) -> Array:
    """The weights of symbols, each taken from the same symbol of the parent.

    Args:
      value, fresh: the parent's weights and random ones; they have as many entries along `axis` as there are symbols.
      parent_symbols: the parent's symbols.
      symbols: those of the new model.
      new: what a symbol gets that the parent did not know: the mean over the parent's symbols (not the blank), zero, or
        the random weights.

    >>> parent, fresh = np.array([[1.0, 3.0, 9.0]]), np.array([[0.1, 0.2, 0.3, 0.4]])
    >>> carry_symbols(parent, fresh, -1, ["a", "b", ""], ["b", "é", "a", ""]).tolist()
    [[3.0, 2.0, 1.0, 9.0]]
    """

    # The axis of symbols first.
    parent_rows = np.moveaxis(value, axis, 0)
    result = np.moveaxis(fresh, axis, 0).copy()
    rows = dict(zip(parent_symbols, parent_rows, strict=True))

    # The blank is no symbol that could be spelled.
    mean = np.mean([row for symbol, row in rows.items() if symbol and not symbol.startswith(MARK)], axis=0)
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
        return [name for name in names if not is_part(name, decoder_parts)]
    check_parts("train.start.keep", start.keep, names)
    return [name for name in names if is_part(name, start.keep)]


def _part_of(name: str) -> str:
    """
    >>> _part_of("before/0/kernel"), _part_of("recurrent/cell/bias"), _part_of("classifier/bias")
    ('before/0', 'recurrent', 'classifier')
    """
    first, *deeper = name.split("/")
    return f"{first}/{deeper[0]}" if deeper and deeper[0].isdigit() else first


def _describe_misfit(task: "TrainingTask", parent: ParentWeights, names: Sequence[str]) -> str:
    parent_model = parent.info.model_settings
    own_model = task.settings.plain()["model"]
    if parent.published:
        own_model = {name: value for name, value in own_model.items() if name in parent_model}
    differing = changed_settings({"train": {"model": parent_model}}, {"train": {"model": own_model}})
    difference = _name_differences(differing) if differing else f"other weights ({_shorten(names)})"
    return (
        f"train.start: the network of {parent.label} does not fit: {difference}; set the same, or take over fewer "
        "parts (train.start.keep)"
    )


def _name_differences(differing: Sequence[tuple[str, str, str]]) -> str:
    return _shorten(
        [
            f"{key} is {own_value or 'not set'}, there {parent_value or 'not set'}"
            for key, parent_value, own_value in differing
        ]
    )


def _shorten(texts: Sequence[str]) -> str:
    more = len(texts) - MAX_NAMED
    return ", ".join(texts[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _symbols_in_words(parent_symbols: Symbols, symbols: Symbols, start: StartSettings) -> str:
    if not parent_symbols:  # a public model without an output layer of symbols
        return ""
    new, dropped = (
        [symbol for symbol in these if symbol not in those]
        for these, those in ((symbols, parent_symbols), (parent_symbols, symbols))
    )
    note = f"; new symbols ({start.new_symbols}): {_list_symbols(new)}" if new else ""
    return note + (f"; symbols that it no longer has: {_list_symbols(dropped)}" if dropped else "")


def _list_symbols(symbols: Symbols) -> str:
    """
    >>> _list_symbols(["d", "é"]), _list_symbols(["d", "the", "ing", "er", "on"])
    ("'dé'", "'d', 'the', 'ing', 'er' and 1 more")
    """
    return repr("".join(symbols)) if max(map(len, symbols)) == 1 else _shorten([repr(symbol) for symbol in symbols])

"""The weights of public models: their names and layouts in the Hub's safetensors files, and in our networks.

  weights = read_weights(model, expand(WHISPER_ENCODER, blocks=4))     # by our names, in our layouts

One table for each network, used in both directions. `{n}` in a name counts blocks. Our names are those of
`training.weight_names`.
"""

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from voxline.errors import SettingsError, WorkError
from voxline.families.asr.networks.settings import Wav2Vec2Settings
from voxline.registry.hub import ADAPTER_FILE, HubModel

Array = npt.NDArray[Any]
Layout = Literal["same", "dense", "conv1d", "conv2d", "depthwise1d", "depthwise2d", "pointwise", "weight_norm"]

AXES: dict[Layout, tuple[int, ...]] = {
    "same": (),
    "dense": (1, 0),  # [out, in] → [in, out]
    "conv1d": (2, 1, 0),  # [out, in / groups, taps] → [taps, in / groups, out]
    "conv2d": (2, 3, 1, 0),  # [out, in, height, width] → [height, width, in, out]
    "depthwise1d": (2, 0, 1),  # [channels, 1, taps] → [taps, channels, 1]
    "depthwise2d": (2, 3, 0, 1),  # [channels, 1, height, width] → [height, width, channels, 1]
    "pointwise": (2, 1, 0),  # [out, in, 1] → [in, out]: a convolution of one tap, a dense layer of ours
    "weight_norm": (2, 1, 0),  # as conv1d, after its two tensors are merged
}
"""Layout → the axes of PyTorch's array in the order of ours; none: the same order."""

WEIGHT_NORM = (
    ("{name}.weight_g", "{name}.weight_v"),
    ("{name}.parametrizations.weight.original0", "{name}.parametrizations.weight.original1"),
)
"""Names of magnitude [1, 1, taps] and direction [out, in / groups, taps] of a kernel with weight norm (Salimans and
Kingma 2016), in files of older and newer versions of PyTorch. Files are written with the first, which both read."""


@dataclasses.dataclass(frozen=True)
class WeightName:
    """One weight, or one of each block.

    Attributes:
      hub: its name in the safetensors file.
      ours: its name in our network.
      layout: how its axes differ. `weight_norm` is a kernel `{name}.weight` that the file has as two tensors.
      optional: files may lack it; the network then keeps its initial value.
    """

    hub: str
    ours: str
    layout: Layout = "same"
    optional: bool = False


def dense(hub: str, ours: str, *, bias: bool = True) -> list[WeightName]:
    """The weights of a dense layer."""
    kernel = WeightName(f"{hub}.weight", f"{ours}/kernel", "dense")
    return [kernel, WeightName(f"{hub}.bias", f"{ours}/bias")] if bias else [kernel]


def norm(hub: str, ours: str) -> list[WeightName]:
    """The weights of a layer norm."""
    return [WeightName(f"{hub}.weight", f"{ours}/gamma"), WeightName(f"{hub}.bias", f"{ours}/beta")]


def _convolution(hub: str, ours: str, layout: Layout, *, bias: bool = True) -> list[WeightName]:
    kernel = WeightName(f"{hub}.weight", f"{ours}/kernel", layout)
    return [kernel, WeightName(f"{hub}.bias", f"{ours}/bias")] if bias else [kernel]


def _whisper_block(hub: str, ours: str, *, cross_attention: bool = False) -> list[WeightName]:
    attentions = {"self_attn": "attention"} | ({"encoder_attn": "cross_attention"} if cross_attention else {})
    rows = []
    for theirs, name in attentions.items():
        rows += norm(f"{hub}.{theirs}_layer_norm", f"{ours}/{name}_norm")
        rows += dense(f"{hub}.{theirs}.q_proj", f"{ours}/{name}/query")
        rows += dense(f"{hub}.{theirs}.k_proj", f"{ours}/{name}/key", bias=False)
        rows += dense(f"{hub}.{theirs}.v_proj", f"{ours}/{name}/value")
        rows += dense(f"{hub}.{theirs}.out_proj", f"{ours}/{name}/output_projection")

    rows += norm(f"{hub}.final_layer_norm", f"{ours}/feed_forward_norm")
    rows += dense(f"{hub}.fc1", f"{ours}/wide")
    return rows + dense(f"{hub}.fc2", f"{ours}/narrow")


WHISPER_ENCODER: list[WeightName] = [
    WeightName("model.encoder.conv1.weight", "encoder/convolutions/0/kernel", "conv1d"),
    WeightName("model.encoder.conv1.bias", "encoder/convolutions/0/bias"),
    WeightName("model.encoder.conv2.weight", "encoder/convolutions/1/kernel", "conv1d"),
    WeightName("model.encoder.conv2.bias", "encoder/convolutions/1/bias"),
    WeightName("model.encoder.embed_positions.weight", "encoder/positions"),
    *_whisper_block("model.encoder.layers.{n}", "encoder/blocks/{n}"),
    *norm("model.encoder.layer_norm", "encoder/norm"),
]
"""Whisper's encoder (Radford et al. 2022)."""
WHISPER_DECODER: list[WeightName] = [
    WeightName("model.decoder.embed_tokens.weight", "decoder/embedding"),
    WeightName("model.decoder.embed_positions.weight", "decoder/positions"),
    *_whisper_block("model.decoder.layers.{n}", "decoder/blocks/{n}", cross_attention=True),
    *norm("model.decoder.layer_norm", "decoder/norm"),
]
"""Whisper's decoder; its output layer is the embedding."""


def fastconformer(*, attention_bias: bool = True, convolution_bias: bool = True) -> list[WeightName]:
    """FastConformer with CTC (Rekesh et al. 2023), as transformers' ParakeetForCTC has it."""
    layer = "encoder.layers.{n}"
    block = "blocks/{n}"
    attention = {"bias": attention_bias}
    gated = f"{layer}.conv.pointwise_conv1", f"{block}/convolution/gated"
    depthwise = f"{layer}.conv.depthwise_conv", f"{block}/convolution/depthwise"
    pointwise = f"{layer}.conv.pointwise_conv2", f"{block}/convolution/pointwise"

    return [
        *_convolution("encoder.subsampling.layers.0", "convolution", "conv2d"),
        *_convolution("encoder.subsampling.layers.2", "depthwise/0", "depthwise2d"),
        *_convolution("encoder.subsampling.layers.3", "pointwise/0", "conv2d"),
        *_convolution("encoder.subsampling.layers.5", "depthwise/1", "depthwise2d"),
        *_convolution("encoder.subsampling.layers.6", "pointwise/1", "conv2d"),
        *dense("encoder.subsampling.linear", "projection"),
        *norm(f"{layer}.norm_feed_forward1", f"{block}/first/norm"),
        *dense(f"{layer}.feed_forward1.linear1", f"{block}/first/widen", **attention),
        *dense(f"{layer}.feed_forward1.linear2", f"{block}/first/narrow", **attention),
        *norm(f"{layer}.norm_self_att", f"{block}/attention/norm"),
        *dense(f"{layer}.self_attn.q_proj", f"{block}/attention/query", **attention),
        *dense(f"{layer}.self_attn.k_proj", f"{block}/attention/key", **attention),
        *dense(f"{layer}.self_attn.v_proj", f"{block}/attention/value", **attention),
        *dense(f"{layer}.self_attn.relative_k_proj", f"{block}/attention/position", bias=False),
        *dense(f"{layer}.self_attn.o_proj", f"{block}/attention/output_projection", **attention),
        WeightName(f"{layer}.self_attn.bias_u", f"{block}/attention/content_bias"),
        WeightName(f"{layer}.self_attn.bias_v", f"{block}/attention/position_bias"),
        *norm(f"{layer}.norm_conv", f"{block}/convolution/norm"),
        *_convolution(*gated, "pointwise", bias=convolution_bias),
        *_convolution(*depthwise, "depthwise1d", bias=convolution_bias),
        *norm(f"{layer}.conv.norm", f"{block}/convolution/batch_norm"),
        WeightName(f"{layer}.conv.norm.running_mean", f"{block}/convolution/batch_norm/moving_mean"),
        WeightName(f"{layer}.conv.norm.running_var", f"{block}/convolution/batch_norm/moving_variance"),
        *_convolution(*pointwise, "pointwise", bias=convolution_bias),
        *norm(f"{layer}.norm_feed_forward2", f"{block}/second/norm"),
        *dense(f"{layer}.feed_forward2.linear1", f"{block}/second/widen", **attention),
        *dense(f"{layer}.feed_forward2.linear2", f"{block}/second/narrow", **attention),
        *norm(f"{layer}.norm_out", f"{block}/norm"),
        *_convolution("ctc_head", "classifier", "pointwise"),
    ]


def wav2vec2_names(settings: Wav2Vec2Settings, prefix: str, *, head: bool = True) -> list[WeightName]:
    """The weights of wav2vec 2.0, XLS-R, MMS and HuBERT, whose settings say which there are.

    Args:
      prefix: "wav2vec2." or "hubert." in models with CTC; empty in files of the network below the output layer.
      head: with the output layer, which models that are pre-trained only lack.
    """
    names = [WeightName(f"{prefix}masked_spec_embed", "mask", optional=True)]

    for number in range(len(settings.channels)):
        hub = f"{prefix}feature_extractor.conv_layers.{number}"
        ours = f"convolutions/{number}"
        names.append(WeightName(f"{hub}.conv.weight", f"{ours}/convolution/kernel", "conv1d"))
        if settings.convolution_bias:
            names.append(WeightName(f"{hub}.conv.bias", f"{ours}/convolution/bias"))
        if settings.convolution_norm == "layer" or number == 0:
            names += norm(f"{hub}.layer_norm", f"{ours}/norm")

    if settings.projection_norm:
        names += norm(f"{prefix}feature_projection.layer_norm", "projection_norm")

    block = f"{prefix}encoder.layers.{{n}}"
    adapter = [
        *norm(f"{block}.adapter_layer.norm", "blocks/{n}/adapter/norm"),
        *dense(f"{block}.adapter_layer.linear_1", "blocks/{n}/adapter/narrow"),
        *dense(f"{block}.adapter_layer.linear_2", "blocks/{n}/adapter/wide"),
    ]
    names += [
        *dense(f"{prefix}feature_projection.projection", "projection"),
        WeightName(f"{prefix}encoder.pos_conv_embed.conv.weight", "positions/kernel", "weight_norm"),
        WeightName(f"{prefix}encoder.pos_conv_embed.conv.bias", "positions/bias"),
        *norm(f"{prefix}encoder.layer_norm", "norm"),
        *dense(f"{block}.attention.q_proj", "blocks/{n}/attention/query"),
        *dense(f"{block}.attention.k_proj", "blocks/{n}/attention/key"),
        *dense(f"{block}.attention.v_proj", "blocks/{n}/attention/value"),
        *dense(f"{block}.attention.out_proj", "blocks/{n}/attention/output_projection"),
        *norm(f"{block}.layer_norm", "blocks/{n}/attention_norm"),
        *dense(f"{block}.feed_forward.intermediate_dense", "blocks/{n}/wide"),
        *dense(f"{block}.feed_forward.output_dense", "blocks/{n}/narrow"),
        *norm(f"{block}.final_layer_norm", "blocks/{n}/feed_forward_norm"),
        *(adapter if settings.adapter else []),
        *(dense("lm_head", "classifier") if head else []),
    ]
    return expand(names, settings.layers)


def expand(table: Sequence[WeightName], blocks: int) -> list[WeightName]:
    """The table with a row for each block in place of `{n}`."""
    return [
        dataclasses.replace(row, hub=row.hub.replace("{n}", str(number)), ours=row.ours.replace("{n}", str(number)))
        for row in table
        for number in range(blocks if "{n}" in row.hub else 1)
    ]


RANKS: dict[Layout, int] = {layout: len(axes) for layout, axes in AXES.items() if axes}
"""Layout → dimensions of the array."""


def to_our_layout(value: Array, layout: Layout) -> Array:
    """An array of PyTorch in our layout."""
    turned = np.ascontiguousarray(value.transpose(AXES[layout])) if AXES[layout] else value
    return turned[0] if layout == "pointwise" else turned


def to_hub_layout(value: Array, layout: Layout) -> Array:
    """An array of ours in PyTorch's layout."""
    if layout == "pointwise":
        value = value[None]
    return np.ascontiguousarray(value.transpose(np.argsort(AXES[layout]))) if AXES[layout] else value


def merge_weight_norm(magnitude: Array, direction: Array) -> Array:
    """The kernel [out, in, taps] of a convolution with weight norm over its last axis: magnitude · v / |v|."""
    merged: Array = direction * (magnitude / np.maximum(_tap_norms(direction), np.finfo(np.float32).tiny))
    return merged


def split_weight_norm(kernel: Array) -> tuple[Array, Array]:
    """Magnitude and direction of a kernel [out, in, taps]. The direction is the kernel itself."""
    return _tap_norms(kernel), kernel


def _tap_norms(kernel: Array) -> Array:
    """[1, 1, taps]"""
    norms: Array = np.sqrt(np.sum(np.square(kernel, dtype=np.float64), axis=(0, 1), keepdims=True))
    return norms.astype(np.float32)


def read_weights(model: HubModel, names: Iterable[WeightName], language: str = "") -> dict[str, Array]:
    """Weights of a public model by our names, float32, in our layouts; without the optional ones that it lacks.

    Args:
      language: of MMS, such as "fra": adapters and output layer are those of `adapter.fra.safetensors`.

    Raises:
      SettingsError: there are no adapters for the language.
      WorkError: a weight is absent, is no number of floating point, or is not finite; or a file is damaged.
    """
    rows = list(names)
    files = tensor_files(model, language)
    parts = {row.hub: _tensors_of(row, files) for row in rows}
    tensors = read_tensors(model, [name for row in rows for name in parts[row.hub]], files)

    weights = {}
    for row in rows:
        values = [tensors[name] for name in parts[row.hub]]
        if values:
            _check_shapes(row, values, model)
            value = merge_weight_norm(*values) if row.layout == "weight_norm" else values[0]
            weights[row.ours] = to_our_layout(value, row.layout)

    return weights


def _check_shapes(row: WeightName, values: Sequence[Array], model: HubModel) -> None:
    """Refuses arrays that no layer of their kind has; sizes are compared with the network's later."""
    shapes = [value.shape for value in values]
    whole = all(len(shape) == RANKS.get(row.layout, len(shape)) for shape in shapes)
    if whole and row.layout == "pointwise":
        whole = shapes[0][-1] == 1
    if whole and row.layout == "weight_norm":
        whole = shapes[0] == (1, 1, shapes[1][-1])
    if not whole:
        raise WorkError(
            f"{model.folder}: {row.hub} has the shape {', '.join(map(str, shapes))}, which no layer of its kind has; "
            f"get {model.label} again"
        )


def tensor_files(model: HubModel, language: str = "") -> dict[str, Path]:
    """The safetensors file of each tensor, by the Hub's names; arguments and errors as of `read_weights`."""
    # By the index, if there is one: a further copy elsewhere does not count.
    located = model.weight_files()
    files = dict.fromkeys(_names_in(located[""], model), located[""]) if "" in located else located
    if not language:
        return files

    path = model.folder / ADAPTER_FILE.format(language=language)
    if not path.is_file():
        languages = sorted(file.name.split(".")[1] for file in model.folder.glob(ADAPTER_FILE.format(language="*")))
        raise SettingsError(
            f"{model.label}: no {path.name}; adapters for these languages are here: {', '.join(languages) or 'none'}"
        )
    return files | dict.fromkeys(_names_in(path, model), path)


def read_tensors(model: HubModel, names: Sequence[str], files: Mapping[str, Path]) -> dict[str, Array]:
    """Tensors by the Hub's names, float32, in PyTorch's layouts."""
    by_file: dict[Path, list[str]] = {}
    for name in names:
        if name not in files:
            raise WorkError(f"{model.folder}: without {name}; weights of another network, or of another version of it")
        by_file.setdefault(files[name], []).append(name)

    tensors = {}
    for path, of_file in by_file.items():
        with _opened(path, model) as file:
            for name in of_file:
                tensors[name] = _finite(file.get_tensor(name), name, path)
    return tensors


def _tensors_of(row: WeightName, present: Container[str]) -> list[str]:
    """Names of the tensors that a file has for a weight; none if it lacks an optional one."""
    if row.layout == "weight_norm":
        name = row.hub.removesuffix(".weight")
        for pair in WEIGHT_NORM:
            names = [part.format(name=name) for part in pair]
            if all(part in present for part in names):
                return names
    return [] if row.optional and row.hub not in present else [row.hub]


def _names_in(path: Path, model: HubModel) -> list[str]:
    with _opened(path, model) as file:
        return list(file.keys())


@contextmanager
def _opened(path: Path, model: HubModel) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            yield file
    except (SafetensorError, TypeError, KeyError, OSError) as error:
        raise WorkError(f"{path}: not a safetensors file, or damaged ({error}); get {model.label} again") from None


def _finite(value: Array, name: str, path: Path) -> Array:
    # bfloat16 is a type of ml_dtypes, whose kind numpy does not know.
    if value.dtype.kind != "f" and value.dtype.name != "bfloat16":
        raise WorkError(f"{path}: {name} is {value.dtype}; numbers of floating point are accepted")
    value = value.astype(np.float32)
    if not np.isfinite(value).all():
        raise WorkError(f"{path}: {name} has values that are not finite numbers; get the file again")
    return value


def write_weights(path: Path, weights: Mapping[str, Array], names: Iterable[WeightName]) -> None:
    """Writes weights of ours as a safetensors file with the Hub's names and layouts."""
    from safetensors.numpy import save

    from voxline.store.files import atomic_write

    tensors: dict[str, Array] = {}
    for row in names:
        value = to_hub_layout(np.asarray(weights[row.ours]), row.layout)
        if row.layout == "weight_norm":
            parts = [part.format(name=row.hub.removesuffix(".weight")) for part in WEIGHT_NORM[0]]
            tensors |= dict(zip(parts, split_weight_norm(value), strict=True))
        else:
            tensors[row.hub] = value

    with atomic_write(path) as file:
        file.write(save(tensors, {"format": "pt"}))

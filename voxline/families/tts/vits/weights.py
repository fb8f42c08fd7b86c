"""The weights of VITS: their names in our network, in the Hub's layout and in Piper's graphs.

Both have PyTorch's arrays. A public voice has one embedding for symbols, blank and ends; ours has rows for the symbols
of the alphabet, then those three.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from voxline.families.tts.vits.settings import VitsSettings
from voxline.training.upsampling_settings import UpsamplingSettings

Array = npt.NDArray[np.float32]

EMBEDDING = "encoder/embedding"
SPEAKERS = "speakers"
POSTERIOR = "posterior"
"""Before the names of weights that only training has, among those of a public voice."""
SHIFT = "durations/shift"
LOG_SCALE = "durations/log_scale"


@dataclasses.dataclass(frozen=True)
class Module:
    """A layer with its weights.

    Attributes:
      ours: its name in our network.
      hub: in the Hub's layout.
      piper: in Piper's graphs, as the names of its nodes have it.
      kind: "convolution" along time, "dense" (a convolution of one tap), "depthwise", "norm", or "table": one array,
        whose name in Piper's graphs has points.
      bias: whether the file has a bias; ours is then zero.
      weight_norm: whether the Hub's file has magnitude and direction of the kernel.
    """

    ours: str
    hub: str
    piper: str
    kind: str = "convolution"
    bias: bool = True
    weight_norm: bool = False


def modules(settings: VitsSettings) -> Iterator[Module]:
    """The layers of a network, but for the embedding, and the shift and scale of stochastic durations."""
    # The text encoder: attention, and two convolutions.
    piper_encoder = "enc_p/encoder"
    for n in range(settings.layers):
        ours = f"encoder/blocks/{n}"
        hub = f"text_encoder.encoder.layers.{n}"
        for name, letter in {"query": "q", "key": "k", "value": "v", "output_projection": "o"}.items():
            projection = "out_proj" if letter == "o" else f"{letter}_proj"
            piper = f"{piper_encoder}/attn_layers.{n}/conv_{letter}"
            yield Module(f"{ours}/attention/{name}", f"{hub}.attention.{projection}", piper, "dense")
        for name, letter in (("keys", "k"), ("values", "v")):
            piper = f"enc_p.encoder.attn_layers.{n}.emb_rel_{letter}"
            yield Module(f"{ours}/attention/distance_{name}", f"{hub}.attention.emb_rel_{letter}", piper, "table")
        yield Module(f"{ours}/attention_norm", f"{hub}.layer_norm", f"{piper_encoder}/norm_layers_1.{n}", "norm")
        yield Module(f"{ours}/wide", f"{hub}.feed_forward.conv_1", f"{piper_encoder}/ffn_layers.{n}/conv_1")
        yield Module(f"{ours}/narrow", f"{hub}.feed_forward.conv_2", f"{piper_encoder}/ffn_layers.{n}/conv_2")
        yield Module(f"{ours}/norm", f"{hub}.final_layer_norm", f"{piper_encoder}/norm_layers_2.{n}", "norm")
    yield Module("encoder/statistics", "text_encoder.project", "enc_p/proj", "dense")

    yield from _stochastic(settings) if settings.durations == "stochastic" else _fixed(settings)

    # Piper has a layer between two flows that turns the values around.
    for n in range(settings.flows):
        ours = f"flows/{n}"
        hub = f"flow.flows.{n}"
        piper = f"flow/flows.{2 * n}"
        yield Module(f"{ours}/before", f"{hub}.conv_pre", f"{piper}/pre", "dense")
        for i in range(settings.flow_layers):
            gated = f"{ours}/wavenet/gated/{i}"
            yield Module(gated, f"{hub}.wavenet.in_layers.{i}", f"{piper}/enc/in_layers.{i}", weight_norm=True)
            mixed = f"{ours}/wavenet/mixed/{i}"
            their_mixed = f"{hub}.wavenet.res_skip_layers.{i}", f"{piper}/enc/res_skip_layers.{i}"
            yield Module(mixed, *their_mixed, "dense", weight_norm=True)
        if settings.speakers:
            speaker = f"{ours}/wavenet/speaker"
            yield Module(speaker, f"{hub}.wavenet.cond_layer", f"{piper}/enc/cond_layer", "dense", weight_norm=True)
        yield Module(f"{ours}/shift", f"{hub}.conv_post", f"{piper}/post", "dense")

    yield from decoder_modules(settings)
    if settings.speakers:
        yield Module("decoder/speaker", "decoder.cond", "dec/cond")


def posterior_modules(settings: VitsSettings, count: int) -> Iterator[Module]:
    """The layers of `VitsPosterior` with so many convolutions, in the Hub's layout; Piper's graphs lack them.

    The shift and scale of `posterior_tables` are not among them.
    """
    yield Module("encoder/before", "posterior_encoder.conv_pre", "", "dense")
    for n in range(count):
        hub = "posterior_encoder.wavenet"
        yield Module(f"encoder/wavenet/gated/{n}", f"{hub}.in_layers.{n}", "", weight_norm=True)
        yield Module(f"encoder/wavenet/mixed/{n}", f"{hub}.res_skip_layers.{n}", "", "dense", weight_norm=True)
    if settings.speakers:
        yield Module("encoder/wavenet/speaker", "posterior_encoder.wavenet.cond_layer", "", "dense", weight_norm=True)
    yield Module("encoder/statistics", "posterior_encoder.conv_proj", "", "dense")
    if settings.durations != "stochastic":
        return

    yield Module("durations/before", "duration_predictor.post_conv_pre", "", "dense")
    yield from _dilated("durations/convolutions", "duration_predictor.post_conv_dds", "", settings)
    yield Module("durations/after", "duration_predictor.post_conv_proj", "", "dense")
    flows = {f"durations/flows/{n}": f"post_flows.{n + 1}" for n in range(settings.duration_flows + 1)}
    for ours, hub in {**flows, "durations/spline": "flows.1"}.items():
        hub = f"duration_predictor.{hub}"
        yield Module(f"{ours}/before", f"{hub}.conv_pre", "", "dense")
        yield from _dilated(f"{ours}/convolutions", f"{hub}.conv_dds", "", settings)
        yield Module(f"{ours}/knots", f"{hub}.conv_proj", "", "dense")


def posterior_tables(settings: VitsSettings) -> dict[str, str]:
    """Shift and scale of the flow of `VitsPosterior` by our names, and their names in the Hub's layout."""
    if settings.durations != "stochastic":
        return {}
    hub = "duration_predictor.post_flows.0"
    return {SHIFT: f"{hub}.translate", LOG_SCALE: f"{hub}.log_scale"}


def decoder_modules(settings: UpsamplingSettings) -> Iterator[Module]:
    """The layers of HiFi-GAN's generator, which has a bias in its last layer by itself and none in a VITS."""
    yield Module("decoder/first", "decoder.conv_pre", "dec/conv_pre")
    for n in range(len(settings.upsample_rates)):
        yield Module(f"decoder/upsampling/{n}", f"decoder.upsampler.{n}", f"dec/ups.{n}")
        # Residual blocks are numbered through, over all layers.
        for k, dilations in enumerate(settings.residual_dilations):
            block = f"resblocks.{n * len(settings.residual_kernels) + k}"
            for d in range(len(dilations)):
                ours = f"decoder/residuals/{n}/{k}"
                if settings.residual_block == "single":
                    yield Module(f"{ours}/dilated/{d}", f"decoder.{block}.convs.{d}", f"dec/{block}/convs.{d}")
                    continue
                yield Module(f"{ours}/dilated/{d}", f"decoder.{block}.convs1.{d}", f"dec/{block}/convs1.{d}")
                yield Module(f"{ours}/undilated/{d}", f"decoder.{block}.convs2.{d}", f"dec/{block}/convs2.{d}")
    yield Module("decoder/last", "decoder.conv_post", "dec/conv_post", bias=False)


def _stochastic(settings: VitsSettings) -> Iterator[Module]:
    ours = "durations"
    hub = "duration_predictor"
    piper = "dp"
    yield Module(f"{ours}/before", f"{hub}.conv_pre", f"{piper}/pre", "dense")
    yield Module(f"{ours}/after", f"{hub}.conv_proj", f"{piper}/proj", "dense")
    yield from _dilated(f"{ours}/convolutions", f"{hub}.conv_dds", f"{piper}/convs", settings)
    for n in range(settings.duration_flows):
        # The first spline of a training has no part in speech, and Piper has layers between that turn the values.
        flow = f"{ours}/flows/{n}"
        hub_flow = f"{hub}.flows.{n + 2}"
        piper_flow = f"{piper}/flows.{2 * n + 3}"
        yield Module(f"{flow}/before", f"{hub_flow}.conv_pre", f"{piper_flow}/pre", "dense")
        yield from _dilated(f"{flow}/convolutions", f"{hub_flow}.conv_dds", f"{piper_flow}/convs", settings)
        yield Module(f"{flow}/knots", f"{hub_flow}.conv_proj", f"{piper_flow}/proj", "dense")
    if settings.speakers:
        yield Module(f"{ours}/speaker", f"{hub}.cond", f"{piper}/cond", "dense")


def _dilated(ours: str, hub: str, piper: str, settings: VitsSettings) -> Iterator[Module]:
    for n in range(settings.duration_layers):
        yield Module(f"{ours}/depthwise/{n}", f"{hub}.convs_dilated.{n}", f"{piper}/convs_sep.{n}", "depthwise")
        yield Module(f"{ours}/pointwise/{n}", f"{hub}.convs_pointwise.{n}", f"{piper}/convs_1x1.{n}", "dense")
        yield Module(f"{ours}/first_norms/{n}", f"{hub}.norms_1.{n}", f"{piper}/norms_1.{n}", "norm")
        yield Module(f"{ours}/second_norms/{n}", f"{hub}.norms_2.{n}", f"{piper}/norms_2.{n}", "norm")


def _fixed(settings: VitsSettings) -> Iterator[Module]:
    for n in (1, 2):
        yield Module(f"durations/convolutions/{n - 1}", f"duration_predictor.conv_{n}", f"dp/conv_{n}")
        yield Module(f"durations/norms/{n - 1}", f"duration_predictor.norm_{n}", f"dp/norm_{n}", "norm")
    yield Module("durations/last", "duration_predictor.proj", "dp/proj", "dense")
    if settings.speakers:
        yield Module("durations/speaker", "duration_predictor.cond", "dp/cond", "dense")


def from_pytorch(kernel: Array, kind: str) -> Array:
    """A kernel of PyTorch in our layout; transposed convolutions turn as the others do.

    Raises:
      ValueError: it has other dimensions.
    """
    if kind == "table":
        return kernel.reshape(kernel.shape[-2:])
    if kind == "dense" and kernel.ndim == 2:  # a linear layer
        return np.ascontiguousarray(kernel.T)
    if kernel.ndim != 3 or (kind == "dense" and kernel.shape[2] != 1):
        raise ValueError(f"a kernel of the shape {kernel.shape}")
    if kind == "depthwise":  # [channels, 1, taps]
        return np.ascontiguousarray(kernel[:, 0].T)
    # [out, in, taps] → [taps, in, out]; of transposed ones [in, out, taps] → [taps, out, in]
    turned = np.ascontiguousarray(kernel.transpose(2, 1, 0))
    return turned[0] if kind == "dense" else turned


def merge_norm_of_outputs(magnitude: Array, direction: Array) -> Array:
    """The kernel [out, in, taps] of a convolution with weight norm for each output: magnitude · v / |v|."""
    norms = np.sqrt(np.sum(np.square(direction, dtype=np.float64), axis=(1, 2), keepdims=True))
    return (direction * (magnitude / np.maximum(norms, np.finfo(np.float32).tiny))).astype(np.float32)

"""Piper's voices: an ONNX graph, and a JSON file beside it with the sample rate, the language and the symbols.

  piper = open_piper_voice(Path("en_US-joe-medium.onnx"))
  piper.settings, piper.symbols, piper.sample_rate
  piper.read_weights()                             # by our names, in our layouts

Weights are the constants of the graph. PyTorch's exporter names most of them after their layers, and the others are
found by the nodes that take them: a node's name has its layer. Piper's graphs have no posterior encoder and no
discriminators, so a training that starts here lacks both. The graph does not run.
"""

import dataclasses
import functools
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxline.errors import SettingsError, WorkError
from voxline.families.tts.vits.settings import VitsSettings
from voxline.families.tts.vits.weights import (
    EMBEDDING,
    LOG_SCALE,
    SHIFT,
    SPEAKERS,
    Array,
    Module,
    from_pytorch,
    modules,
)
from voxline.store.files import read_json
from voxline.store.hashing import hash_file, hash_value
from voxline.store.size_limits import read_bounded

if TYPE_CHECKING:
    from onnx import NodeProto

SUFFIX = ".onnx"
CARD_FILES = ("MODEL_CARD", "README.md")
"""Names of a voice's card, next to it."""
BLANK, BEGIN, END = "_", "^", "$"
"""The symbol between all others, and those of the ends."""
MAX_GRAPH_BYTES = 1 << 30
MAX_CARD_BYTES = 1 << 20
MAX_LICENCE = 100
ESPEAK = "espeak"


@dataclasses.dataclass(frozen=True)
class PiperVoice:
    """A voice on this machine.

    Attributes:
      file: the graph.
      config: the JSON file beside it.
      settings: of the network, by the shapes of its weights.
      symbols: phonemes, a code point each.
      rows: of the embedding: those of the symbols, then of blank, begin and end.
      sample_rate: in Hz.
      language: of espeak-ng, such as "en-us".
      licence: as the card beside it states it; empty if there is none.
      speakers: names of the rows of the speaker table, by speaker_id_map, or their numbers; [] without a table.
    """

    file: Path
    config: dict[str, Any]
    settings: VitsSettings
    symbols: str
    rows: list[int]
    sample_rate: int
    language: str
    licence: str
    speakers: list[str]

    @property
    def name(self) -> str:
        """`en_US-joe-medium`."""
        return self.file.name.removesuffix(SUFFIX)

    def digest(self) -> str:
        """The hash of both files; the card does not count."""
        return hash_value([["graph", hash_file(self.file)], ["config", hash_file(_config_file(self.file))]])

    def read_weights(self) -> dict[str, Array]:
        """The weights by our names, float32, in our layouts.

        Raises:
          WorkError: one is absent, or of another shape.
        """
        graph = _Constants.read(self.file)
        weights = {EMBEDDING: graph.table(graph.embedding)[self.rows]}
        if self.settings.speakers:
            weights[SPEAKERS] = graph.table(graph.speakers)
        if self.settings.durations == "stochastic":
            weights |= graph.shift_and_scale()
        for layer in modules(self.settings):
            weights |= graph.weights_of(layer)
        return weights


def is_piper_voice(location: str) -> bool:
    """True if `train.start.model` or an import names a Piper voice: a graph with its JSON file beside it.

    >>> is_piper_voice("tts@production")
    False
    """
    return location.endswith(SUFFIX) and _config_file(Path(location)).is_file()


def open_piper_voice(file: Path, speaker: int = 0) -> PiperVoice:
    """Opens a voice.

    Args:
      speaker: whose voice it has, of several.

    Raises:
      SettingsError: it reads no phonemes of espeak-ng, or the speaker is unknown.
      WorkError: a file is damaged, or the graph is no VITS of a form that is known.
    """
    path = _config_file(file)
    try:
        config = read_json(path)
        sample_rate = int(config["audio"]["sample_rate"])
        inference = dict(config.get("inference", {}))
        kind = str(config.get("phoneme_type", ESPEAK))
        language = str(config["espeak"]["voice"])
        ids = {str(symbol): [int(n) for n in numbers] for symbol, numbers in config["phoneme_id_map"].items()}
        marks = [ids[mark][0] for mark in (BLANK, BEGIN, END)]
        scales = {ours: float(inference[theirs]) for theirs, ours in _SCALES.items() if theirs in inference}
        names = {int(row): str(name) for name, row in dict(config.get("speaker_id_map") or {}).items()}
    except (OSError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise WorkError(f"{path}: not the JSON file of a Piper voice ({error!r}); get the voice again") from None
    if kind != ESPEAK or config.get("vowel_clusters"):
        raise SettingsError(
            f"{path}: phoneme_type is {kind!r}{', with vowel_clusters' * bool(config.get('vowel_clusters'))}; voices "
            "that read phonemes of espeak-ng, one code point each, are accepted"
        )

    # One number for each code point; what else the map has, no text gets.
    symbols = {symbol: numbers[0] for symbol, numbers in ids.items() if len(symbol) == len(numbers) == 1}
    phonemes = sorted((symbol for symbol in symbols if symbol not in (BLANK, BEGIN, END)), key=symbols.__getitem__)
    rows = [*(symbols[symbol] for symbol in phonemes), *marks]
    graph = _Constants.read(file)
    settings = VitsSettings.of({**graph.sizes(), **scales, "speaker": speaker}, source=str(file))
    embedded = len(graph.table(graph.embedding))
    if not phonemes or min(rows) < 0 or max(rows) >= embedded:
        raise WorkError(f"{path}: phoneme_id_map has numbers beyond the {embedded} symbols of {file.name}")

    speakers = [unicodedata.normalize("NFC", names.get(row, str(row))) for row in range(settings.speakers)]
    if len(set(speakers)) < len(speakers):
        speakers = [str(row) for row in range(settings.speakers)]
    licence = _licence(file.parent)
    return PiperVoice(file, config, settings, "".join(phonemes), rows, sample_rate, language, licence, speakers)


_SCALES = {"noise_scale": "noise", "length_scale": "length", "noise_w": "duration_noise"}


def _config_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.json")


def publishers_card(folder: Path) -> str:
    """The card beside a public model; empty if there is none that is text."""
    for name in CARD_FILES:
        try:
            return read_bounded(folder / name, MAX_CARD_BYTES).decode("utf-8")
        except (OSError, ValueError):
            continue
    return ""


def _licence(folder: Path) -> str:
    """The licence of `* License: CC0` in the card."""
    for line in publishers_card(folder).splitlines():
        key, _, value = line.strip("*- \t").partition(":")
        if key.strip().lower() in ("license", "licence") and value.strip().isprintable():
            return unicodedata.normalize("NFC", " ".join(value.split()))[:MAX_LICENCE]
    return ""


class _Constants:
    """The constants of a graph, by the layers that use them."""

    def __init__(self, file: Path, constants: Mapping[str, Any], nodes: "Mapping[str, NodeProto]") -> None:
        self.file = file
        self.constants = constants
        self.nodes = nodes

    @classmethod
    @functools.lru_cache(2)
    def read(cls, file: Path) -> "_Constants":
        import onnx

        try:
            graph = onnx.load_model_from_string(read_bounded(file, MAX_GRAPH_BYTES)).graph
            constants = {tensor.name: tensor for tensor in graph.initializer}
        except Exception as error:  # of protobuf, one of several
            raise WorkError(f"{file}: not an ONNX graph ({str(error)[:200]}); get the voice again") from None
        return cls(file, constants, {node.name: node for node in graph.node})

    def table(self, name: str) -> Array:
        """A constant, float32."""
        from onnx import numpy_helper

        if name not in self.constants:
            raise self._unknown(f"no constant {name!r}")
        tensor = self.constants[name]
        try:
            value = numpy_helper.to_array(tensor)
        except Exception as error:  # data elsewhere, or too few bytes
            raise self._unknown(f"{name}: {error}") from None
        if value.dtype.kind != "f" or not np.isfinite(value).all():
            raise self._unknown(f"{name} is {value.dtype}, or has values that are not finite")
        return np.asarray(value, np.float32)

    @property
    def embedding(self) -> str:
        return self._input("/enc_p/emb/Gather", 0)

    @property
    def speakers(self) -> str:
        return self._input("/emb_g/Gather", 0)

    def shift_and_scale(self) -> dict[str, Array]:
        """Those of the last step of durations: (z - m) · exp(-logs), whose factor may be a constant."""
        shift = self.table("dp.flows.0.m").reshape(-1)
        if "dp.flows.0.logs" in self.constants:
            return {SHIFT: shift, LOG_SCALE: self.table("dp.flows.0.logs").reshape(-1)}
        factor = next((n for n in self.nodes["/dp/flows.0/Mul"].input if n in self.constants), "")
        return {SHIFT: shift, LOG_SCALE: -np.log(self.table(factor)).reshape(-1)}

    def weights_of(self, layer: Module) -> dict[str, Array]:
        """Kernel and bias of a layer by our names, or its one table."""
        name = layer.piper.replace("/", ".")
        if layer.kind == "table":
            return {layer.ours: from_pytorch(self.table(name), layer.kind)}
        if layer.kind == "norm":
            return {f"{layer.ours}/{part}": self.table(f"{name}.{part}") for part in ("gamma", "beta")}
        node = self.convolution(layer.piper)
        kernel = self.table(node.input[1])
        try:
            ours = from_pytorch(kernel, layer.kind)
        except ValueError as error:
            raise self._unknown(f"{layer.piper} has {error}") from None
        bias = self.table(node.input[2]) if len(node.input) > 2 else np.zeros(ours.shape[-1], np.float32)
        return {f"{layer.ours}/kernel": ours, f"{layer.ours}/bias": bias}

    def convolution(self, layer: str) -> "NodeProto":
        """The node of a convolution, or of a transposed one."""
        node = self.nodes.get(f"/{layer}/Conv") or self.nodes.get(f"/{layer}/ConvTranspose")
        if node is None:
            raise self._unknown(f"no convolution {layer}")
        return node

    def shape(self, layer: str) -> tuple[int, ...]:
        """Of a convolution's kernel, as PyTorch has it."""
        name = self.convolution(layer).input[1]
        if name not in self.constants:
            raise self._unknown(f"no constant {name!r}")
        return tuple(self.constants[name].dims)

    def sizes(self) -> dict[str, Any]:
        """The settings of the network that shapes and attributes of its convolutions tell."""
        units = self.table(self.embedding).shape[1]
        distances = self.table("enc_p.encoder.attn_layers.0.emb_rel_k").shape
        wide = self.shape("enc_p/encoder/ffn_layers.0/conv_1")
        gated = self.shape("flow/flows.0/enc/in_layers.0")
        sizes = {
            "units": units,
            "heads": units // distances[-1],
            "window": distances[-2] // 2,
            "layers": self.count("enc_p/encoder/attn_layers.{}/conv_q"),
            "feed_forward": wide[0],
            "kernel": wide[2],
            "latent": self.shape("enc_p/proj")[0] // 2,
            "flows": self.count("flow/flows.{}/pre", 2),
            "flow_layers": self.count("flow/flows.0/enc/in_layers.{}"),
            "flow_kernel": gated[2],
            **self._duration_sizes(),
            **self._decoder_sizes(),
        }
        if "/emb_g/Gather" in self.nodes:
            speakers, values = self.table(self.speakers).shape
            sizes |= {"speakers": speakers, "speaker_units": values}
        return sizes

    def _duration_sizes(self) -> dict[str, Any]:
        if self._has("dp/conv_1"):
            channels, _, kernel = self.shape("dp/conv_1")
            return {"durations": "fixed", "duration_channels": channels, "duration_kernel": kernel}
        # Splines are the layers 3, 5, …; between them values change places, and the first one is not in the graph.
        flows = self.count("dp/flows.{}/pre", 2, 3)
        return {
            "durations": "stochastic",
            "duration_kernel": self.shape("dp/convs/convs_sep.0")[2],
            "duration_layers": self.count("dp/convs/convs_sep.{}"),
            "duration_flows": flows,
            "duration_bins": (self.shape("dp/flows.3/proj")[0] + 1) // 3,
        }

    def _decoder_sizes(self) -> dict[str, Any]:
        upsampling = [f"dec/ups.{n}" for n in range(self.count("dec/ups.{}"))]
        double = self._has("dec/resblocks.0/convs1.0")
        name = "convs1" if double else "convs"
        kernels = self.count(f"dec/resblocks.{{}}/{name}.0") // len(upsampling)
        blocks = [f"dec/resblocks.{n}/{name}" for n in range(kernels)]
        return {
            "channels": self.shape("dec/conv_pre")[0],
            "upsample_rates": [self._attribute(layer, "strides") for layer in upsampling],
            "upsample_kernels": [self.shape(layer)[2] for layer in upsampling],
            "residual_block": "double" if double else "single",
            "residual_kernels": [self.shape(f"{block}.0")[2] for block in blocks],
            "residual_dilations": [
                [self._attribute(f"{block}.{n}", "dilations") for n in range(self.count(f"{block}.{{}}"))]
                for block in blocks
            ],
        }

    def count(self, layer: str, step: int = 1, first: int = 0) -> int:
        """Layers of a numbered name, such as "dec/ups.{}".

        Raises:
          WorkError: there is none.
        """
        count = 0
        while self._has(layer.format(first + count * step)):
            count += 1
        if not count:
            raise self._unknown(f"no convolution {layer.format(first)}")
        return count

    def _has(self, layer: str) -> bool:
        return any(f"/{layer}/{op}" in self.nodes for op in ("Conv", "ConvTranspose"))

    def _attribute(self, layer: str, name: str) -> int:
        values = {attribute.name: attribute.ints for attribute in self.convolution(layer).attribute}
        return int(values[name][0]) if values.get(name) else 1

    def _input(self, node: str, place: int) -> str:
        if node not in self.nodes:
            raise self._unknown(f"no node {node}")
        return str(self.nodes[node].input[place])

    def _unknown(self, what: str) -> WorkError:
        return WorkError(
            f"{self.file}: {what}; not a VITS as Piper exports it. Voices of piper_train and of piper1-gpl are accepted"
        )

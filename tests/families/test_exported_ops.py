"""The exports of every network use the ops that loading a model allows, and no others; their weights are untrained."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorflow.python.saved_model.loader_impl import parse_saved_model

from tests.training.tones import tiny_asr_settings, tiny_tts_settings
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.families.asr.export import export_asr
from voxline.families.asr.networks.settings import MODELS, build_ctc_model
from voxline.families.conversion.settings import ConversionTrainSettings
from voxline.families.conversion.task import ConversionTask, Converter
from voxline.families.intents.settings import IntentsTrainSettings
from voxline.families.intents.task import Classifiers, IntentsTask, Vocabulary
from voxline.families.tts.export import export_tts
from voxline.families.tts.settings import SharpenSettings
from voxline.families.tts.sharpening import build_sharpener
from voxline.families.tts.train_module import NETWORKS, build_tts_model
from voxline.families.tts.vits.export import export_published_vits
from voxline.families.tts.vits.parents import open_public_voice
from voxline.families.vocoder.networks.settings import HifiganSettings, VocosSettings, WaveGlowSettings
from voxline.families.vocoder.settings import VocoderTrainSettings
from voxline.families.vocoder.task import VocoderTask
from voxline.families.vocoder.train_module import build_vocoder
from voxline.inference.saved_model import ALLOWED_OPS, check_graph
from voxline.text.alphabet import Alphabet

Export = Callable[[Path], None]

FEATURES = FeatureSettings(sample_rate=8_000, mels=20, hop_seconds=0.008, window_seconds=0.032)


def dataset_of(features: FeatureSettings) -> Dataset:
    """A dataset without utterances, which is all that an export reads."""
    bins = features.bins
    return Dataset("tones", "tones", features, Alphabet("abcd "), [0.1] * bins, [1.5] * bins, {}, {}, [])


def weights_of(model: Any) -> dict[str, Any]:
    return {f"model/{index}": weight.numpy() for index, weight in enumerate(model.weights)}


def recognizer(features: FeatureSettings = FEATURES, export: Any = None, **model: Any) -> Export:
    """A recognizer; `model` are settings of its network."""

    def write(folder: Path) -> None:
        settings = tiny_asr_settings(model=model, export=export or {})
        dataset = dataset_of(features)
        network = build_ctc_model(settings.model, dataset, seed=1, precision="float32", portable=True)
        export_asr(folder, settings, dataset, weights_of(network), {})

    return write


def voice(kind: str, features: FeatureSettings = FEATURES, *, sharpened: bool = False, **changes: Any) -> Export:
    """A voice; `changes` are settings of its training."""

    def write(folder: Path) -> None:
        settings = tiny_tts_settings(kind, **changes)
        dataset = dataset_of(features)
        weights = weights_of(build_tts_model(settings, dataset, portable=True))
        sharpener = build_sharpener(SharpenSettings(kind="gan", channels=2, blocks=1), 1) if sharpened else None
        export_tts(folder, settings, dataset, weights, {"best_step": 1}, sharpener)

    return write


def vocoder(features: FeatureSettings = FEATURES, **model: Any) -> Export:
    """A vocoder; `model` are settings of its network."""

    def write(folder: Path) -> None:
        task: Any = SimpleNamespace(settings=VocoderTrainSettings.of({"model": model}), dataset=dataset_of(features))
        VocoderTask.export(task, folder, weights_of(build_vocoder(task.settings, task.dataset, "float32")), {})

    return write


def intents(**model: Any) -> Export:
    """A classifier of texts and its baseline; `model` are settings of its network."""

    def write(folder: Path) -> None:
        sizes = {"embedding": 8, "units": [6, 4], "capsules": 2, "capsule_size": 3, "rounds": 2}
        settings = IntentsTrainSettings.of({"model": sizes | model})
        vocabulary = Vocabulary(["on", "off", "light"], ["lights", "music"])
        task: Any = SimpleNamespace(settings=settings, dataset=dataset_of(FEATURES), vocabulary=vocabulary)
        IntentsTask.export(task, folder, weights_of(Classifiers(settings, vocabulary, "float32")), {})

    return write


def converter() -> Export:
    """A converter of voices."""

    def write(folder: Path) -> None:
        settings = ConversionTrainSettings.of(
            {
                "attributes": [{"field": "sex"}],
                "model": {"channels": 2, "layers": 2, "units": 8},
                "segment_frames": 16,
            }
        )
        attributes = SimpleNamespace(sizes=[2], values={"sex": ["F", "M"]})
        task: Any = SimpleNamespace(settings=settings, dataset=dataset_of(FEATURES), attributes=attributes)
        ConversionTask.export(task, folder, weights_of(Converter(settings, FEATURES.bins, 2)), {})

    return write


def public_voice(folder: Path) -> None:
    """A VITS of the Hub, as it comes."""
    export_published_vits(folder, open_public_voice(str(Path(__file__).parent / "networks" / "hub" / "vits")))


SIZES_OF_VOCODERS: dict[str, dict[str, Any]] = {
    "vocos": {"channels": 8, "hidden": 12, "layers": 1},
    "hifigan": {
        "channels": 4,
        "upsample_rates": [16],
        "upsample_kernels": [32],
        "istft_hop": 4,
        "residual_kernels": [3],
        "residual_dilations": [[1, 3]],
    },
    "waveglow": {"flows": 2, "group": 4, "early_every": 1, "layers": 2, "channels": 4},
}
LINEAR = FeatureSettings(
    sample_rate=8_000, mels=20, kind="mel_and_linear", preemphasis=0.97, reference_db=20, floor_db=-100
)
PROSODY = FEATURES.model_copy(update={"kind": "mel_and_prosody"})
SMALL_TACOTRON = {"encoder_bank": 1, "postnet_bank": 1, "decoder_layers": 1, "encoder_gru": 4, "highways": 1}

EXPORTS: dict[str, Export] = {
    "deepspeech": recognizer(kind="deepspeech"),
    "deepspeech2": recognizer(kind="deepspeech2", export={"frequency_warps": [0.9, 1]}),
    "conformer": recognizer(kind="conformer", top_db=40),
    "fastconformer": recognizer(FeatureSettings(kind="nemo_mel"), kind="fastconformer"),
    "whisper": recognizer(FeatureSettings(kind="whisper"), kind="whisper", layers=1, units=16, heads=2),
    "wav2vec2": recognizer(FeatureSettings(kind="waveform"), kind="wav2vec2"),
    "tacotron": voice("tacotron", LINEAR, model=SMALL_TACOTRON, griffin_lim={"iterations": 2, "power": 1.5}),
    "tacotron2": voice("tacotron2"),
    "fastspeech": voice("fastspeech", PROSODY, sharpened=True, model={"pitch": True}),
    "vits": public_voice,
    **{kind: vocoder(kind=kind, **sizes) for kind, sizes in SIZES_OF_VOCODERS.items()},
    "intents": intents(sentence_words=4),
    "attgan": converter(),
}
"""An export of each network, with the settings that bring further ops."""

NOT_IN_OUR_EXPORTS = {
    "Any": "computes on its inputs alone, as All does",
    "OneHot": "computes on its inputs alone, and Keras uses it for integer labels",
    "PartitionedCall": "a call of a function that has no weights",
    "ResourceGather": "rows of a weight, as an embedding reads them",
    "StringStrip": "computes on its inputs alone; a recognizer may cut spaces off its text with it",
}
"""Allowed all the same, with the reason."""


def ops_of(folder: Path) -> set[str]:
    """All ops of a SavedModel, in its graph and its functions."""
    [graph] = parse_saved_model(str(folder)).meta_graphs
    bodies = [graph.graph_def.node, *(function.node_def for function in graph.graph_def.library.function)]
    return {node.op for body in bodies for node in body}


@pytest.fixture(scope="module")
def ops_by_network() -> dict[str, set[str]]:
    """Of each network that has been exported."""
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("network", EXPORTS)
def test_an_export_uses_ops_that_loading_allows(
    network: str, tmp_path: Path, ops_by_network: dict[str, set[str]]
) -> None:
    EXPORTS[network](tmp_path / "model")
    check_graph(tmp_path / "model")
    ops_by_network[network] = ops_of(tmp_path / "model")


@pytest.mark.slow
def test_no_op_is_allowed_that_no_export_uses(ops_by_network: dict[str, set[str]]) -> None:
    if set(ops_by_network) != set(EXPORTS):
        pytest.skip("needs the exports of all networks, which the tests above make")
    used = set[str]().union(*ops_by_network.values())
    assert ALLOWED_OPS - used == set(NOT_IN_OUR_EXPORTS)


def test_every_network_is_exported_here() -> None:
    vocoders = {kind.model_fields["kind"].default for kind in (VocosSettings, HifiganSettings, WaveGlowSettings)}
    assert {*MODELS, *NETWORKS, *vocoders} <= set(EXPORTS)

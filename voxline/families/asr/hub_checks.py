"""Compares a folder for the Hub with the exported model that it comes from, before it has its name.

Our own reader opens the folder as it opens any public model, and a network of its settings and weights hears a
recording: the one on which the gate repeated the model, if it is still there, else noise.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr import frontend
from voxline.families.asr.networks.settings import MODELS, WhisperSettings, build_ctc_model
from voxline.families.asr.networks.whisper import Whisper
from voxline.families.asr.public_parents import open_public_parent
from voxline.families.asr.published_export import arrays_of, export_asr_again
from voxline.families.asr.settings import AsrExportForm
from voxline.families.asr.token_search import search_tokens
from voxline.inference.model_info import ATTENTION, ModelInfo
from voxline.inference.saved_model import SignatureSpec, call_signature, load_saved_model
from voxline.inference.waveforms import read_waveform
from voxline.metrics.evaluation import CLIP_FILE
from voxline.registry.parents import Parent
from voxline.registry.registry import EVALUATION
from voxline.settings import changed_settings
from voxline.store.scratch import scratch_root
from voxline.text.alphabet import Alphabet
from voxline.text.whisper_tokenizer import SearchRules, WhisperTokenizer
from voxline.training.warm_start import ParentWeights, read_parent

Array = npt.NDArray[Any]

TOLERANCE = 1e-4
"""Of logits, as a share of the largest; of the mean log probability of a text's tokens."""
NOISE_SECONDS = 2.0


def check_folder(hub: Path, model: Path, info: ModelInfo) -> None:
    """Refuses a folder that does not compute what the exported model does.

    Args:
      hub: as `transformers` would load it.
      model, info: the exported model, which was judged.

    Raises:
      SettingsError: its features are not those that a public model has.
      WorkError: the folder cannot be read, or computes something else.
    """
    parent = open_public_parent(str(hub))
    ours, theirs = info.features, parent.info.features
    if changed := changed_settings({"extract": {"features": theirs}}, {"extract": {"features": ours}}):
        raise SettingsError(
            f"{info.name}: its features are not those of public models, which `transformers` computes: "
            f"{', '.join(f'{key} is {value}, there {public}' for key, public, value in changed)}; train with those of "
            "the parent"
        )

    waveform = judged_recording(model, info.sample_rate)
    weights = read_parent(parent)
    compare = _compare_texts if info.kind == ATTENTION else _compare_logits
    with _in_float32(model, info) as exported:
        difference = compare(parent, weights, exported, info, waveform)
    if difference:
        raise WorkError(f"{model}: the folder for the Hub was not written: read again, {difference}")


@contextlib.contextmanager
def _in_float32(model: Path, info: ModelInfo) -> Iterator[Path]:
    """The exported model; of one that computes in half precision, its weights exported again in float32."""
    export = info.settings.get("export", {})
    if export.get("precision", "float32") == "float32":
        yield model
        return
    # Its logits are off by hundredths of the largest, and would hide a weight in the wrong place.
    form = AsrExportForm.of({"export": {"frequency_warps": export.get("frequency_warps", [])}})
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        export_asr_again(model, form, Path(scratch) / "model")
        yield Path(scratch) / "model"


def judged_recording(model: Path, sample_rate: int) -> Array:
    """A recording of the evaluation beside a model, float32 [samples]; noise if there is none."""
    clip = model / EVALUATION / CLIP_FILE
    if clip.is_file():
        samples: Array = read_waveform(clip, sample_rate)
        return samples
    draw = np.random.default_rng(0)
    return (0.1 * draw.standard_normal(int(NOISE_SECONDS * sample_rate))).astype(np.float32)


def _features_of(waveform: Array, parent: Parent) -> tuple[Any, Any]:
    settings = FeatureSettings.of(parent.info.features)
    return frontend.graph_features(tf.constant(waveform[None]), tf.constant([len(waveform)]), settings)


def _compare_logits(parent: Parent, weights: ParentWeights, model: Path, info: ModelInfo, waveform: Array) -> str:
    """What differs, in words; empty if nothing does."""
    # Capitals without small letters are read as small ones.
    symbols = [symbol.lower() for symbol in parent.info.alphabet]
    if symbols != [symbol.lower() for symbol in info.alphabet]:
        return f"it has the symbols {''.join(symbols)[:60]!r}, and the model {''.join(info.alphabet)[:60]!r}"

    features = FeatureSettings.of(parent.info.features)
    mean, deviation = [0.0] * features.bins, [1.0] * features.bins
    dataset = Dataset("", "", features, Alphabet(parent.info.alphabet), mean, deviation, {}, {}, [])
    settings = MODELS[parent.info.model_settings["kind"]].settings.of(parent.info.model_settings)
    network = build_ctc_model(settings, dataset, seed=0, precision="float32", portable=True)
    for index, variable in enumerate(network.weights):
        variable.assign(arrays_of(network, weights)[f"model/{index}"])
    logits, frames = network(*_features_of(waveform, parent))

    spec = SignatureSpec(("waveforms", "lengths"), ("logits", "frames"))
    kept, signatures = load_saved_model(model, {"logits": spec})
    expected = call_signature(
        signatures["logits"], model, waveforms=waveform[None], lengths=np.array([len(waveform)], np.int32)
    )
    del kept
    if expected["frames"].tolist() != np.asarray(frames).tolist():
        return f"it has {np.asarray(frames)[0]} output frames for a recording, and the model {expected['frames'][0]}"
    largest = float(np.max(np.abs(np.asarray(logits) - expected["logits"])))
    allowed = TOLERANCE * max(1.0, float(np.max(np.abs(expected["logits"]))))
    return "" if largest <= allowed else f"its logits differ by up to {largest:.2g} ({allowed:.2g} is allowed)"


def _compare_texts(parent: Parent, weights: ParentWeights, model: Path, info: ModelInfo, waveform: Array) -> str:
    """As `_compare_logits`, for a decoder: its text, and the mean log probability of its tokens."""
    prompt = info.model_settings.get("prompt", {})
    settings = WhisperSettings.of({**parent.info.model_settings, "head": "decoder", "prompt": prompt})
    tokenizer = cast(WhisperTokenizer, weights.tokenizer).with_prompt(settings.prompt.language, settings.prompt.task)
    network = Whisper(settings, bins=FeatureSettings.of(parent.info.features).bins)
    arrays = arrays_of(network, weights)
    for index, variable in enumerate(network.weights):
        variable.assign(arrays[f"model/{index}"])
    # The frames of the last samples reach beyond them.
    longest = 2 * settings.positions - 3
    waveform = waveform[: longest * FeatureSettings.of(parent.info.features).hop_length]
    encoded, mask = network.encode(*_features_of(waveform, parent))
    rules = SearchRules.of(tokenizer, settings.tokens)
    tokens, scores, _ = search_tokens(network.decoder, encoded, mask, rules)
    text = b"".join(tokenizer.pieces.get(token, b"") for token in np.asarray(tokens)[0, 0].tolist())

    spec = SignatureSpec(("waveforms", "lengths"), ("text", "scores"))
    kept, signatures = load_saved_model(model, {"transcribe": spec})
    expected = call_signature(
        signatures["transcribe"], model, waveforms=waveform[None], lengths=np.array([len(waveform)], np.int32)
    )
    del kept
    score, expected_score = float(np.asarray(scores)[0, 0]), float(expected["scores"][0])
    if text != expected["text"][0] or abs(score - expected_score) > TOLERANCE * max(1.0, abs(expected_score)):
        return (
            f"it writes {text.decode(errors='replace')[:60]!r} ({score:.5f}), and the model "
            f"{expected['text'][0].decode(errors='replace')[:60]!r} ({expected_score:.5f})"
        )
    return ""

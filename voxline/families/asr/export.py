"""The exported ASR model: waveforms in, text out, with features, network and decoding in the graph.

Both signatures, `transcribe` and `logits`, take waveforms float32 [batch, samples], in [-1, 1] at `sample_rate`, and
lengths int32 [batch].
"""

import importlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from voxline.audio import feature_settings
from voxline.audio import features as audio_features
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.families.asr import augmentation, frontend
from voxline.families.asr.networks import settings as models
from voxline.families.asr.networks.ctc_model import CtcModel
from voxline.families.asr.networks.settings import MODELS, WHOLE_UTTERANCE, CtcModelSettings, build_ctc_model
from voxline.families.asr.settings import AsrTrainSettings
from voxline.inference.model_info import OutputFrames
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.saved_model import read_model_info
from voxline.inference.streaming_graph import STREAM_FILE
from voxline.store.hashing import hash_file, hash_value
from voxline.text.alphabet import Alphabet
from voxline.text.public_tokenizer import PublicTokenizer
from voxline.training import ctc, layers
from voxline.training.checkpoints import Arrays
from voxline.training.ctc import best_path
from voxline.training.export import model_info, write_exported, write_with_graph_of
from voxline.training.layers import Tensor
from voxline.training.weight_names import weight_names

WAVEFORM_SIGNATURE = (
    tf.TensorSpec([None, None], tf.float32, name="waveforms"),
    tf.TensorSpec([None], tf.int32, name="lengths"),
)


class AsrGraph(tf.Module):  # type: ignore[misc]
    """Features, network and greedy decoding as one graph.

    Args:
      frequency_warps: stretches of the bins over which the probabilities are averaged, as in vocal tract length
        perturbation (Jaitly and Hinton 2013) at recognition; none: the features as they are.
    """

    def __init__(
        self, model: CtcModel, features: FeatureSettings, alphabet: Alphabet, frequency_warps: Sequence[float] = ()
    ) -> None:
        super().__init__()
        self._features = features
        self._warps = frontend.warp_matrices(frequency_warps, features.bins) if frequency_warps else None
        # Behind a function, so that the SavedModel holds weights and signatures but no Keras objects.
        self._network: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda *inputs: model(*inputs)
        self.weights = [variable.value for variable in model.weights]
        self._symbols = tf.constant([*alphabet.symbols, ""])

    @tf.function(input_signature=WAVEFORM_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
    def logits(self, waveforms: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """logits float32 [batch, frames, symbols + 1], the blank last; frames int32 [batch], the real ones."""

        # [batch, samples] → [batch, frames, bins] → [batch, output frames, symbols + 1]
        features, frames = frontend.graph_features(waveforms, lengths, self._features)
        if self._warps is None:
            logits, frames = self._network(features, frames)
            return {"logits": logits, "frames": frames}

        # All warps in one batch; their probabilities are averaged in the log domain.
        count = len(self._warps)
        warped = tf.concat([tf.matmul(features, matrix) for matrix in self._warps], 0)
        logits, frames = self._network(warped, tf.tile(frames, [count]))
        log_probabilities = tf.stack(tf.split(tf.nn.log_softmax(logits), count))
        return {
            "logits": tf.reduce_logsumexp(log_probabilities, 0) - math.log(count),
            "frames": tf.split(frames, count)[0],
        }

    @tf.function(input_signature=WAVEFORM_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
    def transcribe(self, waveforms: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """text string [batch]; log_probabilities float32 [batch, frames, symbols + 1]; frames int32 [batch]."""

        # Greedy decoding. Serving decodes with a beam search from the log probabilities.
        outputs = self.logits(waveforms, lengths)
        labels = best_path(outputs["logits"], outputs["frames"])
        # -1, no label, becomes the empty string after the symbols.
        letters = tf.gather(self._symbols, tf.where(labels < 0, tf.size(self._symbols) - 1, labels))
        return {
            "text": tf.strings.reduce_join(letters, axis=1),
            "log_probabilities": tf.nn.log_softmax(outputs["logits"]),
            "frames": outputs["frames"],
        }


def export_asr(
    folder: Path,
    settings: AsrTrainSettings,
    dataset: Dataset,
    weights: Arrays,
    training: dict[str, Any],
    parent: Path | None = None,
) -> None:
    """Writes the exported model, whole or not at all; with an ONNX graph of the network if the settings want one.

    Args:
      weights: as `TrainModule.weights` returned them.
      training: what model.json says about the training: steps, dev WER, ….
      parent: the exported model that the training started from, if any; its graph is used if this one would be equal.
    """
    extra: dict[str, Any] = {"graph": graph_key(settings, dataset)}
    if settings.model.time_stride != WHOLE_UTTERANCE:
        extra["output_frames"] = _output_frames(settings.model, dataset.features)

    # Tracing and saving a graph takes seconds; a daily retraining has the graph of its parent.
    parent_info = read_model_info(parent) if parent else None
    files = _tokenizer(dataset.alphabet)
    has_graph = parent_info is not None and parent_info.graph == extra["graph"]
    if parent and parent_info and has_graph and settings.export.onnx == "none":
        info = model_info("ctc", settings, dataset, training, parent_info.weights, **extra)
        write_with_graph_of(parent, folder, list(weights.values()), info, files)
        return

    # Without cuDNN kernels, so that the graph runs on any machine.
    precision = settings.export.precision
    model = build_ctc_model(settings.model, dataset, seed=settings.seed, precision=precision, portable=True)
    for index, variable in enumerate(model.weights):
        variable.assign(weights[f"model/{index}"])

    if settings.export.onnx != "none":
        from voxline.families.asr.onnx import export_onnx

        files[ONNX_FILE] = export_onnx(model, dataset.features, dataset.mean, dataset.deviation, settings.export.onnx)

    if settings.export.streaming:
        from voxline.families.asr.onnx_stream import export_stream

        files[STREAM_FILE] = export_stream(model, dataset.features, dataset.mean, dataset.deviation)

    info = model_info("ctc", settings, dataset, training, weight_names(model), **extra)
    if parent and has_graph:
        write_with_graph_of(parent, folder, list(weights.values()), info, files)
        return

    module = AsrGraph(model, dataset.features, dataset.alphabet, settings.export.frequency_warps)
    signatures = {"transcribe": module.transcribe, "logits": module.logits, "serving_default": module.transcribe}
    write_exported(folder, module, signatures, info, files)


def graph_key(settings: AsrTrainSettings, dataset: Dataset) -> str:
    """Hash of all that the graph is traced from, code and versions included: equal if the graphs are."""

    # Each module whose code ends up in the graph.
    network = importlib.import_module(MODELS[settings.model.kind].network.partition(":")[0])
    traced = (network, layers, models, frontend, augmentation, audio_features, feature_settings, ctc)
    files = [Path(__file__), *(Path(str(module.__file__)) for module in traced)]
    return hash_value(
        {
            "code": sorted(hash_file(file) for file in files),
            "versions": [tf.__version__, keras.__version__],
            "model": settings.model.plain(),
            "precision": settings.export.precision,
            "frequency_warps": settings.export.frequency_warps,
            "features": dataset.features.plain(),
            "alphabet": dataset.alphabet.symbols,
            "normalization": [list(dataset.mean), list(dataset.deviation)],
        }
    )


def _output_frames(settings: CtcModelSettings, features: FeatureSettings) -> OutputFrames:
    """Times of the network's output frames: seconds from one to the next, and the start of the first one."""

    # The first frame is around the center of what its convolutions see, which begins before the first sample by the
    # padding.
    hop = features.hop_length / features.sample_rate
    center = (settings.window_frames - 1) / 2 - settings.padding
    return OutputFrames(seconds=settings.time_stride * hop, start=(center - settings.time_stride / 2) * hop)


def _tokenizer(alphabet: Alphabet) -> dict[str, bytes]:
    """The file by which a public model spells, for the model's folder."""
    return {alphabet.file: alphabet.content} if isinstance(alphabet, PublicTokenizer) else {}

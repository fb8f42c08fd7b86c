"""An exported voice: text in, mels and a waveform out; read without any of the model's code, as it ships.

TensorFlow is imported when a `Synthesizer` is made, and not before; nor is numpy.
"""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError, WorkError
from voxline.inference.int8_decoder import Int8Decoder
from voxline.inference.saved_model import (
    SignatureSpec,
    batches_by_length,
    call_signature,
    exported_folder,
    load_saved_model,
    read_model_json,
)
from voxline.inference.text_limits import TextLimits, quote_text
from voxline.text.alphabet import Alphabet

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.text.frontend import FrontendOutput

    Array = npt.NDArray[np.float32]


TEACHER_FORCED_SIGNATURES = {
    "teacher_forced": SignatureSpec(("symbols", "lengths", "features", "frames"), ("mels", "alignments", "mel_l1"))
}
FULL_SIGNATURES = {
    "synthesize": SignatureSpec(
        ("symbols", "lengths"), ("mels", "frames", "alignments", "waveforms", "samples", "hit_limit")
    ),
}
SPLIT_SIGNATURES = {
    "encode": SignatureSpec(("symbols", "lengths"), ("memory", "keys")),
    "refine": SignatureSpec(("before", "frames"), ("mels", "frames", "waveforms", "samples")),
}
"""What stands around a decoder of 8 bits."""
DECODERS = ("float32", "int8")
TTS_KEYS = ("reading", "max_steps", "reduction")
"""Keys that the model.json of a voice has beside those of every model."""


@dataclasses.dataclass(frozen=True)
class SynthesisResult:
    """One text, spoken.

    Attributes:
      symbols: what the voice read.
      mels: float32 [frames, mels], in the units of its features.
      alignment: float32 [steps, symbols].
      waveform: float32 [samples] at the voice's sample rate.
      hit_limit: the voice did not come to an end by itself.
    """

    symbols: str
    mels: "Array"
    alignment: "Array"
    waveform: "Array"
    hit_limit: bool


@dataclasses.dataclass(frozen=True)
class TeacherForcedResult:
    """One text as the voice foretells each frame from the recorded ones before it.

    Attributes:
      mels: float32 [frames, mels].
      alignment: float32 [steps, symbols].
      mel_l1: mean |error| over frames and bins, in the units of the features.
    """

    mels: "Array"
    alignment: "Array"
    mel_l1: float


class Synthesizer:
    """An exported voice, ready to speak.

    Attributes:
      about: what `model.json` says.
      alphabet: the symbols that it reads.
      features: of its mels.
      sample_rate: Hz of its waveforms.
      seconds: spent in free-running synthesis so far, waveforms included; loading and warming up left out.
      audio_seconds: spoken so far.

    Raises:
      WorkError: the model is damaged, or is no voice.
    """

    def __init__(self, model: Path | str, *, batch_size: int = 16, batch_symbols: int = 4_000) -> None:
        self.folder = exported_folder(model)
        self.about = read_model_json(self.folder)
        missing = [key for key in TTS_KEYS if key not in self.about]
        if missing:
            is_no = f"a model of the kind {self.about['kind']!r}, without {' and '.join(missing)}, is no voice"
            raise WorkError(f"{self.folder}: {is_no}; give one that voxline run tts made")
        self.alphabet = Alphabet(self.about["alphabet"])
        self.features = FeatureSettings.of(self.about["features"], str(self.folder))
        self.sample_rate = int(self.about["sample_rate"])
        self.batch_size, self.batch_symbols = batch_size, batch_symbols
        self._speakable = TextLimits(self.alphabet)
        self._decoder = self._decoder_beside()
        contracts = (FULL_SIGNATURES if self._decoder is None else SPLIT_SIGNATURES) | TEACHER_FORCED_SIGNATURES
        self._model, self._signatures = load_saved_model(self.folder, contracts)
        self.seconds = self.audio_seconds = 0.0
        self._speak([self.alphabet.symbols[-1:]])  # the first call pays for building the graph
        self.seconds = self.audio_seconds = 0.0

    def read(self, text: str) -> "FrontendOutput":
        """What the voice reads for a text, as its training read it.

        Raises:
          SettingsError: there is nothing to say, it is too long, or holds what the voice cannot read.
        """
        from voxline.text.frontend import apply_frontend
        from voxline.text.settings import FrontendSettings, UnsupportedText

        self._speakable.check_text(text)
        try:
            found = apply_frontend(" ".join(text.split()), FrontendSettings.of(self.about["reading"], str(self.folder)))
        except UnsupportedText as unreadable:
            raise SettingsError(f"the text {quote_text(text)} cannot be read: {unreadable}") from None
        self._speakable.check_symbols(found.symbols, text)
        self._speakable.check_length(found.symbols, text)
        return found

    def synthesise(self, texts: Sequence[str]) -> list[SynthesisResult]:
        """Reads the texts and speaks them, in their order; nothing is spoken where one of them cannot be read."""
        return self.speak([self.read(text).symbols for text in texts])

    def speak(self, symbols: Sequence[str]) -> list[SynthesisResult]:
        """Speaks what was read already (the `text` of a converted manifest), in its order and however long.

        Raises:
          SettingsError: as `check`.
        """
        for text in symbols:
            self.check(text)
        spoken: list[SynthesisResult | None] = [None] * len(symbols)
        for batch in self._batches(symbols):
            for index, one in zip(batch, self._speak([symbols[index] for index in batch]), strict=True):
                spoken[index] = one
        return [one for one in spoken if one is not None]

    def teacher_forced(self, symbols: Sequence[str], features: Sequence["Array"]) -> list[TeacherForcedResult]:
        """What the voice foretells of recordings, in their order.

        Args:
          symbols: what was read.
          features: float32 [frames, bins] each, of the recordings.
        """
        for text in symbols:
            self.check(text)
        forced: list[TeacherForcedResult | None] = [None] * len(symbols)
        for batch in self._batches(symbols):
            chosen = [symbols[index] for index in batch], [features[index] for index in batch]
            for index, one in zip(batch, self._force(*chosen), strict=True):
                forced[index] = one
        return [one for one in forced if one is not None]

    def check(self, symbols: str) -> None:
        """Refuses what was read and cannot be spoken.

        Raises:
          SettingsError: it holds nothing to say, or what the voice cannot read.
        """
        self._speakable.check_symbols(symbols, symbols)

    def _batches(self, symbols: Sequence[str]) -> list[list[int]]:
        found = batches_by_length([len(text) for text in symbols], self.batch_symbols)
        size = self.batch_size
        return [batch[start : start + size] for batch in found for start in range(0, len(batch), size)]

    def _speak(self, symbols: Sequence[str]) -> list[SynthesisResult]:
        import numpy as np

        labels, lengths = self._labels(symbols)
        start = time.perf_counter()
        found = self._said(labels, lengths)
        self.seconds += time.perf_counter() - start
        self.audio_seconds += float(found["samples"].sum()) / self.sample_rate
        spoken = []
        for row, text in enumerate(symbols):
            frames, samples = int(found["frames"][row]), int(found["samples"][row])
            mels, waveform = found["mels"][row, :frames], found["waveforms"][row, :samples]
            alignment = found["alignments"][row, : self._steps(frames), : len(text)]
            if not all(np.isfinite(given).all() for given in (mels, waveform, alignment)):
                raise self._not_finite(text)
            spoken.append(SynthesisResult(text, mels, alignment, waveform, bool(found["hit_limit"][row])))
        return spoken

    def _decoder_beside(self) -> Int8Decoder | None:
        """The decoder where it is no part of the SavedModel."""
        kind = self.about.get("decoder", "float32")
        if kind not in DECODERS:
            raise WorkError(
                f"{self.folder}: a decoder of the kind {kind!r}, this Voxline knows {' and '.join(DECODERS)}; run it "
                "with the version that trained the voice"
            )
        return Int8Decoder(self.folder) if kind == "int8" else None

    def _said(self, labels: "npt.NDArray[np.int32]", lengths: "npt.NDArray[np.int32]") -> dict[str, Any]:
        """What the signature `synthesize` gives, or would give if the decoder were a part of it."""
        if self._decoder is None:
            return call_signature(self._signatures["synthesize"], self.folder, symbols=labels, lengths=lengths)
        encoded = call_signature(self._signatures["encode"], self.folder, symbols=labels, lengths=lengths)
        decoded = self._decoder.decode(encoded, lengths, int(self.about["max_steps"]))
        found = call_signature(self._signatures["refine"], self.folder, before=decoded.before, frames=decoded.frames)
        return {**found, "alignments": decoded.alignments, "hit_limit": decoded.hit_limit}

    def _force(self, symbols: Sequence[str], features: Sequence["Array"]) -> list[TeacherForcedResult]:
        import numpy as np

        labels, lengths = self._labels(symbols)
        frames = np.array([len(one) for one in features], np.int32)
        padded = np.zeros((len(features), int(frames.max()), features[0].shape[1]), np.float32)
        for row, one in zip(padded, features, strict=True):
            row[: len(one)] = one
        inputs = {"symbols": labels, "lengths": lengths, "features": padded, "frames": frames}
        found = call_signature(self._signatures["teacher_forced"], self.folder, **inputs)
        forced = []
        for place, text in enumerate(symbols):
            count, error = int(frames[place]), float(found["mel_l1"][place])
            mels, alignment = found["mels"][place, :count], found["alignments"][place]
            if not (np.isfinite(mels).all() and np.isfinite(error)):
                raise self._not_finite(text)
            forced.append(TeacherForcedResult(mels, alignment[: self._steps(count), : len(text)], error))
        return forced

    def _not_finite(self, text: str) -> WorkError:
        return WorkError(f"{self.folder}: what it speaks for {quote_text(text)} is not finite; train it again")

    def _steps(self, frames: int) -> int:
        """Decoder steps behind so many frames."""
        return -(-frames // int(self.about["reduction"]))

    def _labels(self, symbols: Sequence[str]) -> tuple["npt.NDArray[np.int32]", "npt.NDArray[np.int32]"]:
        """Indices int32 [batch, symbols], padded by 0 (counts tell what is real), and counts int32 [batch]."""
        import numpy as np

        lengths = np.array([len(text) for text in symbols], np.int32)
        labels = np.zeros((len(symbols), int(lengths.max())), np.int32)
        for row, text in zip(labels, symbols, strict=True):
            row[: len(text)] = self.alphabet.encode(text)
        return labels, lengths

"""An exported recognizer with a decoder, which writes tokens: greedy or beam search by SavedModel or ONNX Runtime.

It hears 30 seconds at a time; `Recognizer` cuts a longer recording at pauses. Words have times by the attention to
the encodings (`token_times`), and a text one confidence: the geometric mean of the probabilities of its tokens.
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
from voxline.text.whisper_tokenizer import WITHOUT_SPACES, SearchRules, WhisperTokenizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.inference.ctc_alignment import AlignedWord
    from voxline.inference.onnx_decoder import FoundText
    from voxline.inference.token_times import SpokenTokens

SIGNATURES = {
    "transcribe": SignatureSpec(("waveforms", "lengths"), ("text", "scores", "counts")),
    "beam_search": SignatureSpec(("waveforms", "lengths", "beams"), ("texts", "scores", "counts")),
}
TIMED = {
    "align": SignatureSpec(
        ("waveforms", "lengths", "beams"),
        ("texts", "scores", "counts", "pieces", "log_probabilities", "attention"),
    )
}
"""Not of models of earlier releases, whose words have no times."""
FRAMES_PER_POSITION = 2


@dataclasses.dataclass(frozen=True, slots=True)
class WrittenText:
    """A text as the decoder wrote it.

    Attributes:
      score: the log probability of all its tokens together, in nats.
      tokens: how many these are, the end included.
      words: with their times in seconds; empty where none were wanted.
    """

    text: str
    score: float
    tokens: int
    words: "tuple[AlignedWord, ...]" = ()

    @property
    def confidence(self) -> float | None:
        """The geometric mean of the tokens' probabilities; None without a text."""
        return math.exp(self.score / self.tokens) if self.text else None

    def later(self, seconds: float) -> "WrittenText":
        """The same text of a part that begins so much after its recording."""
        words = (dataclasses.replace(word, start=word.start + seconds, end=word.end + seconds) for word in self.words)
        return dataclasses.replace(self, words=tuple(words))


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
        self._features = FeatureSettings.of(info.features)
        self.window = _longest(self._features, info.model_settings["positions"])
        self._rate = info.sample_rate
        self._spaced = info.model_settings.get("prompt", {}).get("language") not in WITHOUT_SPACES
        self._folder = folder
        self._n_best = n_best
        self._beams = max(beams, n_best)
        self._graphs: OnnxTokenSearch | None = None
        # Times need to know where the prompt ends.
        tokenizer = cast(WhisperTokenizer, info.read_tokenizer(folder))
        self._prompt = len(tokenizer.prompt)
        if engine == "onnx":
            network = info.model_settings
            self._pieces = tokenizer.pieces
            rules = SearchRules.of(tokenizer, network["tokens"])
            self._graphs = OnnxTokenSearch(folder, rules, network["token_positions"], threads)
        else:
            self._model, self._signatures = load_saved_model(folder, SIGNATURES, TIMED)

    def __call__(
        self, waveforms: "npt.NDArray[np.float32]", lengths: "npt.NDArray[np.int32]", *, times: bool = False
    ) -> list[list[WrittenText]]:
        """The texts of each row, the most probable first.

        Args:
          waveforms: float32 [batch, samples], in [-1, 1], at most `window` samples.
          lengths: int32 [batch], samples.
          times: the best text of each row has words with times.

        Raises:
          WorkError: the model fails on them.
        """
        import numpy as np

        if self._graphs is not None:
            return self._by_graphs(self._graphs, waveforms, lengths, times)

        beams = np.int32(self._beams)
        if times and "align" in self._signatures:
            outputs = self._call("align", waveforms=waveforms, lengths=lengths, beams=beams)
            return [
                self._with_words(texts, self._spoken(outputs, row), int(lengths[row]))
                for row, texts in enumerate(self._texts(outputs))
            ]
        if self._beams > 1:
            return self._texts(self._call("beam_search", waveforms=waveforms, lengths=lengths, beams=beams))

        outputs = self._call("transcribe", waveforms=waveforms, lengths=lengths)
        outputs["texts"] = outputs["text"]
        return self._texts({name: values[:, None] for name, values in outputs.items()})

    def _texts(self, outputs: dict[str, Any]) -> list[list[WrittenText]]:
        # Of each row [beams]: texts, means over tokens, tokens.
        rows = zip(outputs["texts"], outputs["scores"].tolist(), outputs["counts"].tolist(), strict=True)
        return [
            [
                WrittenText(_plain(text), mean * count, count)
                for text, mean, count in zip(texts[: self._n_best], means, counts, strict=False)
            ]
            for texts, means, counts in rows
        ]

    def _spoken(self, outputs: dict[str, Any], row: int) -> "SpokenTokens":
        from voxline.inference.token_times import SpokenTokens

        # The end token and what follows write nothing.
        pieces = [piece for piece in outputs["pieces"][row].tolist() if piece]
        count = len(pieces)
        attention = outputs["attention"][row, :, : self._prompt + count + 1]
        return SpokenTokens(pieces, outputs["log_probabilities"][row, :count].tolist(), attention, self._prompt)

    def _by_graphs(self, graphs: OnnxTokenSearch, waveforms: Any, lengths: Any, times: bool) -> list[list[WrittenText]]:
        from voxline.inference.token_times import SpokenTokens

        memories = graphs.encode(waveforms, lengths)
        rows = []
        for row, found in enumerate(graphs.search(memories, self._beams)):
            texts = [self._written(text) for text in found[: self._n_best]]
            if times and found[0].tokens:
                tokens = found[0].tokens
                attention = graphs.align(memories, row, tokens)
                pieces = [self._pieces[token] for token in tokens]
                spoken = SpokenTokens(pieces, found[0].log_probabilities[: len(tokens)], attention, self._prompt)
                texts = self._with_words(texts, spoken, int(lengths[row]))
            rows.append(texts)
        return rows

    def _written(self, text: "FoundText") -> WrittenText:
        pieces = b"".join(self._pieces[token] for token in text.tokens)
        return WrittenText(_plain(pieces), text.mean * text.count, text.count)

    def _with_words(self, texts: list[WrittenText], spoken: "SpokenTokens", samples: int) -> list[WrittenText]:
        """The texts with the words of the best one."""
        from voxline.inference.token_times import time_words

        frames = -(-self._features.count_frames(samples) // FRAMES_PER_POSITION)
        seconds = FRAMES_PER_POSITION * self._features.hop_length / self._rate
        words = time_words(spoken, frames, seconds, spaced=self._spaced)
        return [dataclasses.replace(texts[0], words=tuple(words)), *texts[1:]]

    def _call(self, name: str, **inputs: Any) -> dict[str, Any]:
        return call_signature(self._signatures[name], self._folder, **inputs)


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
    WrittenText(text='One two. Three.', score=-1.25, tokens=6, words=())
    """
    written = [part for part in parts if part.text]
    texts = " ".join(part.text for part in written)
    words = tuple(word for part in written for word in part.words)
    return WrittenText(texts, math.fsum(part.score for part in written), sum(part.tokens for part in written), words)


def needs_ctc(folder: Path, what: str) -> SettingsError:
    """The error for something that a model with a decoder has not."""
    return SettingsError(
        f"{folder}: {what} needs the output of a CTC model for each frame, and this model's decoder writes tokens; "
        "train one with a CTC head (train.model.head: ctc)"
    )


def _plain(text: bytes) -> str:
    """A text with single spaces; bytes that are no whole character become a mark."""
    return " ".join(text.decode("utf-8", "replace").split())

"""An exported vocoder: mels in, a waveform out.

  vocoder = Vocoder("runs/demo-tts/registry/vocoder/1")
  (waveform,) = vocoder.vocode([mels])            # float32 [samples] at vocoder.sample_rate
  for chunk in vocoder.stream([mels]): ...        # the same, 100 ms at a time

Griffin-Lim does the same without a model (`voxline.audio.griffin_lim.features_to_waveform`). A vocoder with an ONNX
graph beside it is run by ONNX Runtime; TensorFlow is imported for others.
"""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError, WorkError
from voxline.inference.model_info import ModelInfo
from voxline.inference.onnx_model import Engine, OnnxGraph, choose_engine
from voxline.inference.saved_model import (
    SignatureSpec,
    batches_by_length,
    call_signature,
    exported_folder,
    load_saved_model,
    read_model_info,
    require_family,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]

NOT_STREAMING = ("waveglow",)
"""Kinds of vocoders that make whole utterances only."""
ONNX_BATCH_FRAMES = 1_000
"""The largest batch for ONNX Runtime: each op writes its whole output, which in larger batches leaves the cache."""
VOCODER_SIGNATURES = {"vocode": SignatureSpec(("mels", "frames"), ("waveforms", "samples"))}
SAMPLE = "sample"
SAMPLING_SIGNATURES = {
    SAMPLE: SignatureSpec((*VOCODER_SIGNATURES["vocode"].inputs, "sigma", "denoiser"), ("waveforms", "samples"))
}
"""Of a WaveGlow, whose noise and denoiser are inputs."""


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How a WaveGlow makes waveforms, in place of its own settings; None: as these have it.

    Attributes:
      sigma: standard deviation of the noise.
      denoiser: share of the network's own tone that is subtracted.
    """

    sigma: float | None = None
    denoiser: float | None = None

    @property
    def is_own(self) -> bool:
        return self.sigma is None and self.denoiser is None

    def inputs(self, info: ModelInfo, folder: Path) -> dict[str, Any]:
        """The inputs of the signature `sample`.

        Raises:
          SettingsError: the vocoder is no WaveGlow.
        """
        import numpy as np

        if info.kind != "waveglow":
            raise SettingsError(
                f"{folder}: sigma and denoiser are of a WaveGlow, and this vocoder is of the kind {info.kind!r}"
            )
        own = info.model_settings
        sigma = own["sampling_sigma"] if self.sigma is None else self.sigma
        denoiser = own["denoiser"] if self.denoiser is None else self.denoiser
        return {"sigma": np.float32(sigma), "denoiser": np.float32(denoiser)}


OWN_SAMPLING = Sampling()


class Vocoder:
    """An exported vocoder, loaded.

    Args:
      model: an exported model's folder, or a version's folder in a registry.
      batch_frames: most frames in one batch, padding included; with ONNX Runtime 1,000 at most.
      engine: that runs the network; "auto": ONNX Runtime if the model has an ONNX graph, else TensorFlow.
      threads: of ONNX Runtime for one batch; None: one for each core.
      sampling: of a WaveGlow, in place of its own.

    Attributes:
      info: the contents of `model.json`.
      engine: "onnx" or "tensorflow".
      features: of the mels that it reads.
      sample_rate: of its waveforms, in Hz.
      seconds: spent in `vocode` so far, loading and warming up excluded.
      audio_seconds: made so far.

    Raises:
      WorkError: the model is damaged, or of another family.
      SettingsError: `sampling` is given, and it is no WaveGlow, or one that an earlier Voxline exported.
    """

    def __init__(
        self,
        model: Path | str,
        *,
        batch_frames: int = 4_000,
        engine: Engine = "auto",
        threads: int | None = None,
        sampling: Sampling = OWN_SAMPLING,
    ) -> None:
        import numpy as np

        self.folder = exported_folder(model)
        self.info = read_model_info(self.folder)
        require_family(self.info, "vocoder", self.folder)
        self.features = FeatureSettings.of(self.info.features, str(self.folder))
        self.sample_rate = self.info.sample_rate
        self.engine = choose_engine(self.folder, engine)
        chosen = {} if sampling.is_own else sampling.inputs(self.info, self.folder)
        if self.engine == "onnx":
            spec = VOCODER_SIGNATURES["vocode"]
            self._call: Callable[..., dict[str, Any]] = OnnxGraph(self.folder, spec, "a vocoder", threads)
            batch_frames = min(batch_frames, ONNX_BATCH_FRAMES)
        else:
            self._model, signatures = load_saved_model(self.folder, VOCODER_SIGNATURES, SAMPLING_SIGNATURES)
            if not sampling.is_own and SAMPLE not in signatures:
                raise SettingsError(
                    f"{self.folder}: an earlier Voxline exported it, whose sigma and denoiser are fixed; export it "
                    "again (voxline models export --sigma, --denoiser)"
                )
            name = "vocode" if sampling.is_own else SAMPLE
            self._call = functools.partial(call_signature, signatures[name], self.folder, **chosen)
        self.batch_frames = batch_frames
        self.seconds = self.audio_seconds = 0.0
        self.vocode([np.zeros((2, self.features.mels), np.float32)])  # the first call builds the graph
        self.seconds = self.audio_seconds = 0.0

    def vocode(self, mels: Sequence["Array"]) -> list["Array"]:
        """Waveforms float32 [(frames - 1) · hop] of mels float32 [frames, mels], in order.

        Raises:
          WorkError: the model fails on them, or makes samples that are not finite.
        """
        import numpy as np

        waveforms: dict[int, Array] = {}
        long = [index for index, frames in enumerate(mels) if len(frames) > 1]  # one frame has no samples yet
        for batch in batches_by_length([len(mels[index]) for index in long], self.batch_frames):
            rows = [long[index] for index in batch]
            waveforms.update(zip(rows, self._vocode([mels[row] for row in rows]), strict=True))
        return [waveforms.get(index, np.zeros(0, np.float32)) for index in range(len(mels))]

    @property
    def streams(self) -> bool:
        """True if `stream` can be called; a WaveGlow and an old model cannot."""
        return self.info.kind not in NOT_STREAMING and self.info.context_frames is not None

    def stream(
        self, mels: Iterable["Array"], *, chunk_seconds: float = 0.1, longest_seconds: float | None = None
    ) -> Iterator["Array"]:
        """The waveform of one utterance in chunks, each as soon as its mels are there.

        Put together they are what `vocode` makes of all mels: each chunk is computed with the frames around it that its
        samples depend on. So it takes the frames that come after it too: `context_frames` in model.json.

        Args:
          mels: float32 [frames, mels] each, the pieces of an utterance in their order, of any number of frames.
          chunk_seconds: length of a chunk, to the nearest hop; the last one is shorter.
          longest_seconds: each chunk is twice as long as the one before, and so long at most, which costs less; None:
            all are of one length.

        Raises:
          WorkError: the model cannot stream, does not say on how many frames a sample depends, or fails.
        """
        if self.info.kind in NOT_STREAMING:
            raise WorkError(
                f"{self.folder}: the vocoder is a {self.info.kind}, whose samples depend on more than a second of "
                "speech around them and on the noise of their place, so its speech cannot be cut in chunks; use vocode"
            )
        context = self.info.context_frames
        if context is None:
            raise WorkError(
                f"{self.folder}: model.json has no context_frames, so its speech cannot be cut in chunks; an earlier "
                "Voxline exported it: run train again"
            )

        hop = self.features.hop_length
        lengths = [max(round(seconds * self.sample_rate / hop), 1) for seconds in (chunk_seconds, longest_seconds or 0)]
        return vocode_in_chunks(lambda chunk: self._vocode([chunk])[0], mels, lengths, context=context, hop=hop)

    def check_features(self, features: FeatureSettings, source: str) -> None:
        """Refuses mels of other settings, which would sound wrong, at another pitch or not like speech at all.

        Args:
          features: of the mels to vocode.
          source: whose they are, for the message.

        Raises:
          SettingsError: names the settings that differ.
        """
        check_same_mels(self.features, features, str(self.folder), source)

    def _vocode(self, mels: Sequence["Array"]) -> list["Array"]:
        # padded float32 [batch, longest, mels], frames int32 [batch]
        import numpy as np

        frames = np.array([len(mel) for mel in mels], np.int32)
        padded = np.zeros((len(mels), int(frames.max()), self.features.mels), np.float32)
        for row, mel in zip(padded, mels, strict=True):
            row[: len(mel)] = mel
        start = time.perf_counter()
        outputs = self._call(mels=padded, frames=frames)
        self.seconds += time.perf_counter() - start
        self.audio_seconds += float(outputs["samples"].sum()) / self.sample_rate
        waveforms: list[Array] = [
            waveform[:count] for waveform, count in zip(outputs["waveforms"], outputs["samples"], strict=True)
        ]
        if not all(np.isfinite(waveform).all() for waveform in waveforms):
            raise WorkError(f"{self.folder}: it makes samples that are not finite; train the vocoder again")
        return waveforms


def vocode_in_chunks(
    vocode: Callable[["Array"], "Array"], mels: Iterable["Array"], lengths: Sequence[int], *, context: int, hop: int
) -> Iterator["Array"]:
    """Vocodes an utterance in chunks, each as soon as the frames that it depends on are there.

    Args:
      vocode: mels [frames, mels] to a waveform [(frames - 1) · hop].
      mels: the pieces of the utterance, [frames, mels] each.
      lengths: of the first chunk in frames, and of the longest: each is twice as long as the one before, but at least
        as long as the first.
      context: frames on each side that a sample depends on.
    """
    import numpy as np

    # held [frames, mels]: the frames from `first` on; `done` is the frame up to which samples were returned.
    length, longest = lengths
    held = np.zeros((0, 0), np.float32)
    first = 0
    done = 0
    whole = False
    for piece in itertools.chain(mels, [None]):
        whole = piece is None
        if piece is not None:
            held = np.concatenate([held, piece]) if len(held) else piece
        while (end := _end_of_chunk(done + length, first + len(held), context, whole)) > done:
            # The samples of `end` depend on `context` frames behind it, and on that frame itself.
            waveform = vocode(held[: end + context + 1 - first])
            yield waveform[(done - first) * hop : (end - first) * hop]
            done = end
            # The next chunk may be longer: the listener has this one to hear.
            length = max(length, min(2 * length, longest))
            # Frames behind the next chunk's context are never needed again.
            start = max(end - context, 0)
            held = held[start - first :]
            first = start


def _end_of_chunk(end: int, frames: int, context: int, whole: bool) -> int:
    """The frame where a chunk may end: the wanted one, if the frames after it are there, or the last one of all."""
    return min(end, frames - 1) if whole else end if frames > end + context else 0


def check_same_mels(features: FeatureSettings, vocoder_features: FeatureSettings, vocoder: str, source: str) -> None:
    """Refuses mels of other settings than a vocoder's.

    Args:
      vocoder, source: which vocoder, and whose mels they are, for the message.

    Raises:
      SettingsError: names the settings that differ.
    """
    # Compared as conventions, not as settings: a default and the same value written out are equal.
    own = mel_conventions(features)
    conventions = mel_conventions(vocoder_features)
    differing = [
        f"extract.features.{name} {own.get(name, 'none')}, not {conventions.get(name, 'none')}"
        for name in dict.fromkeys((*own, *conventions))
        if own.get(name) != conventions.get(name)
    ]
    if differing:
        raise SettingsError(
            f"{vocoder}: this vocoder reads mels of other settings than {source} has: it has {'; '.join(differing)}. "
            "Give a vocoder of the same settings, or train one (voxline run vocoder)"
        )


def mel_conventions(features: FeatureSettings) -> dict[str, Any]:
    """All that mels depend on, by the names of the settings; defaults that follow from others are filled in.

    >>> mel_conventions(FeatureSettings())["highest_hz"], mel_conventions(FeatureSettings())["fft_size"]
    (8000.0, 512)
    """
    rate = features.sample_rate

    # In seconds and Hz, as they are heard, and not as the settings spell them.
    values: dict[str, Any] = {
        "kind": "log_mel" if features.kind == "mel_and_prosody" else features.kind,
        "sample_rate": rate,
        "window_seconds": features.win_length / rate,
        "hop_seconds": features.hop_length / rate,
        "fft_size": features.n_fft,
        "mels": features.mels,
        "lowest_hz": features.lowest_hz,
        "highest_hz": rate / 2 if features.highest_hz is None else features.highest_hz,
    }

    # Each kind has a scale of its own.
    if features.kind == "mel_and_linear":
        names = {"preemphasis": features.preemphasis_factor, "reference_db": features.reference_db}
        return {**values, **names, "floor_db": features.floor_db}
    return {
        **values,
        "spectrum": "magnitude" if features.uses_magnitude else "power",
        "log_floor": features.log_floor,
    }

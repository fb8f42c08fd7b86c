"""Test utterances joined into long recordings: what a recognizer makes of pauses.

A model may write single utterances without an error, and words into the pauses between them: it was trained on none.
Three recordings have the same utterances and pauses of the same lengths, which are digital silence, noise, or the room
tone of the utterances themselves.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voxline.components.evaluate.speech import read_utterance
from voxline.families.asr.details import JoinedInfo, JoinedKind
from voxline.metrics.wer import count_word_edits, sum_edits

if TYPE_CHECKING:
    from voxline.data.manifest import Utterance
    from voxline.inference.recognizer import Recognizer

Array = npt.NDArray[Any]
KINDS = ("silence", "noise", "room tone")
PAUSE_SECONDS = (0.3, 3.0)
"""Least and most; their logarithms are uniform."""
NOISE_DB = -60.0
"""Of full scale, of white noise."""
FRAME = 512
"""Samples of which the spectrum of room tone is measured."""
EDGE_SECONDS = 0.1
"""At both ends of a pause; a word may be timed a little late."""


def measure_joined(
    recognizer: "Recognizer", utterances: "Sequence[Utterance]", seconds: float, spell: Callable[[str], str]
) -> JoinedInfo | None:
    """Transcribes some utterances one by one, and joined with pauses. The same ones each time.

    Args:
      seconds: of speech in a recording.
      spell: changes references and hypotheses before errors are counted.

    Returns:
      None with fewer than two utterances.

    Raises:
      WorkError: a recording cannot be read.
    """
    random = np.random.default_rng(0)
    spoken = sorted((utterance for utterance in utterances if utterance.text), key=lambda utterance: utterance.id)
    chosen: list[Utterance] = []
    for index in random.permutation(len(spoken)):
        if len(chosen) >= 2 and sum(utterance.duration for utterance in chosen) >= seconds:
            break
        chosen.append(spoken[index])
    if len(chosen) < 2:
        return None

    rate = recognizer.sample_rate
    waveforms = [read_utterance(utterance, rate) for utterance in chosen]
    references = [spell(utterance.text) for utterance in chosen]
    single = [spell(text) for text in recognizer.transcribe_waveforms(waveforms)]

    # One pause more than utterances: a recording begins and ends with one.
    least, most = np.log(PAUSE_SECONDS)
    lengths = np.round(np.exp(random.uniform(least, most, len(waveforms) + 1)) * rate).astype(int)
    kinds = []
    for kind in KINDS:
        pauses = [_pause(kind, length, waveforms, random) for length in lengths]
        pieces = [piece for pair in zip(pauses, waveforms, strict=False) for piece in pair]
        (transcript,) = recognizer.recognize_waveforms([np.concatenate([*pieces, pauses[-1]])])
        (edits,) = count_word_edits([" ".join(references)], [spell(transcript.text)])

        # [pauses] seconds at which each begins
        spans = lengths / rate
        begins = np.concatenate([[0.0], np.cumsum(spans[:-1] + np.array(list(map(len, waveforms))) / rate)])
        centers = np.array([(word.start + word.end) / 2 for word in transcript.words])[:, None]
        within = (centers > begins + EDGE_SECONDS) & (centers < begins + spans - EDGE_SECONDS)
        kinds.append(JoinedKind(kind, edits, int(within.sum()), float(spans.sum())))

    edits = sum_edits(count_word_edits(references, single))
    return JoinedInfo(len(chosen), sum(utterance.duration for utterance in chosen), edits, kinds)


def _pause(kind: str, samples: int, waveforms: Sequence[Array], random: np.random.Generator) -> Array:
    if kind == "silence":
        return np.zeros(samples, np.float32)
    white = random.standard_normal(samples)
    if kind == "noise":
        return (white * 10 ** (NOISE_DB / 20)).astype(np.float32)

    # White noise with the mean spectrum of the quietest tenth of the utterances, at its level.
    spectrum, level = _room_tone(waveforms)
    shaped = np.fft.rfft(white)
    shaped *= np.interp(np.linspace(0, 1, len(shaped)), np.linspace(0, 1, len(spectrum)), spectrum)
    tone = np.fft.irfft(shaped, samples)
    return (tone * (level / max(float(np.sqrt(np.mean(tone**2))), 1e-12))).astype(np.float32)


def _room_tone(waveforms: Sequence[Array]) -> tuple[Array, float]:
    """The magnitudes of the quietest tenth of all frames that are not digital silence [bins], and their RMS."""
    # [frames, samples]
    frames = np.concatenate([waveform[: len(waveform) // FRAME * FRAME].reshape(-1, FRAME) for waveform in waveforms])
    powers = np.mean(frames.astype(np.float64) ** 2, axis=1)
    frames = frames[powers > 1e-9]
    if not len(frames):
        return np.ones(FRAME // 2 + 1), 10 ** (NOISE_DB / 20)
    quiet = frames[np.argsort(np.mean(frames.astype(np.float64) ** 2, axis=1))[: max(1, len(frames) // 10)]]
    magnitudes = np.sqrt(np.mean(np.abs(np.fft.rfft(quiet * np.hanning(FRAME), axis=1)) ** 2, axis=0))
    return magnitudes, float(np.sqrt(np.mean(quiet.astype(np.float64) ** 2)))

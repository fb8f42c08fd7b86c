"""The synthesiser: what it says is there from the first sound to the last, and comes out the same each time."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from voxline.components.demo_corpus.acoustics import trim_silence
from voxline.components.demo_corpus.espeak import EspeakVoice, speak
from voxline.errors import WorkError

TEXTS = ["turn the kitchen lights off", "six apples", "tea"]


@pytest.mark.parametrize("variant", ["m3", "f2"])
def test_the_same_texts_give_the_same_samples_at_another_time_of_day(variant: str) -> None:
    """Breathy voices such as f2 draw random numbers, whose seed is the time unless it is set."""
    first, _ = speak(EspeakVoice("en-us", variant), TEXTS)
    time.sleep(1.1)
    second, _ = speak(EspeakVoice("en-us", variant), TEXTS)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_pitch_and_rate_are_heard() -> None:
    (plain,), rate = speak(EspeakVoice("en", "m1"), TEXTS[:1])
    (slow,), _ = speak(EspeakVoice("en", "m1", rate=120), TEXTS[:1])
    (high,), _ = speak(EspeakVoice("en", "m1", pitch=90), TEXTS[:1])
    assert len(slow) > 1.2 * len(plain)
    assert _fundamental(high, rate) > 1.2 * _fundamental(plain, rate)


@pytest.mark.parametrize(("language", "text"), [("cmn", "你好"), ("cmn-latn-pinyin", "ni3 hao3")])
def test_mandarin_is_spoken_from_hanzi_and_from_pinyin(language: str, text: str) -> None:
    (samples,), rate = speak(EspeakVoice(language), [text])
    assert 0.3 < len(samples) / rate < 1.5


def test_trimming_keeps_the_soft_sounds_at_both_ends_of_speech() -> None:
    for samples in speak(EspeakVoice("en-gb-scotland", "f4"), ["five off", "six minutes", "heating list"])[0]:
        rate = 22050
        kept = trim_silence(samples, rate)
        assert len(samples) - 0.5 * rate < len(kept) < len(samples) + 0.2 * rate
        assert np.sum(kept**2) > (1 - 1e-6) * np.sum(samples**2)
        sounding = np.flatnonzero(np.abs(kept) > 0.002 * np.abs(kept).max())
        assert sounding[0] >= 0.1 * rate - 1
        assert len(kept) - sounding[-1] >= 0.1 * rate


@pytest.mark.parametrize(
    ("voice", "message"),
    [
        (EspeakVoice("narnian"), "no language 'narnian'"),
        (EspeakVoice("en-us", "m99"), "no variant 'm99'; there are .*f1"),
    ],
)
def test_an_unknown_voice_is_refused_by_name(voice: EspeakVoice, message: str) -> None:
    with pytest.raises(WorkError, match=message):
        speak(voice, TEXTS)


def test_a_text_without_a_word_is_named() -> None:
    with pytest.raises(WorkError, match=r"is silent for '…'"):
        speak(EspeakVoice("en-us"), ["yes", "…"])


def test_it_speaks_where_the_path_to_its_data_is_too_long_for_espeak(tmp_path: Path) -> None:
    import espeakng_loader

    import voxline.components.demo_corpus.espeak_process as script

    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    shutil.copytree(Path(espeakng_loader.__file__).parent, deep / "espeakng_loader")
    assert len(str(deep)) > script._MAX_DATA_PATH
    spoken = subprocess.run(
        [sys.executable, script.__file__],
        input=b'{"voice": "en-us+f3", "rate": 175, "pitch": 50, "pitch_range": 50, "constant_hz": 0, "texts": ["yes"]}',
        env={"PYTHONPATH": str(deep)},
        capture_output=True,
        check=True,
    )
    assert len(spoken.stdout) > 10_000


def _fundamental(samples: np.ndarray, rate: int) -> float:
    """Hz, by the highest peak of the autocorrelation between 60 and 500 Hz; the median over frames of 50 ms."""
    size = rate // 20
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    loud = frames[np.square(frames).mean(1) > 0.1 * np.square(samples).mean()]
    spectra = np.fft.rfft(loud - loud.mean(1, keepdims=True), 2 * size)
    correlation = np.fft.irfft(np.abs(spectra) ** 2)[:, rate // 500 : rate // 60]
    return float(rate / np.median(correlation.argmax(1) + rate // 500))

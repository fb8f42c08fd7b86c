"""Trimming and loudness normalization: the range that is kept, the new loudness, and no clipping."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.convert.conftest import RATE, good_flac, manifest_of, utterance
from voxline.audio.loudness import integrated_loudness
from voxline.audio.wav import read_wav
from voxline.components.convert.decode_log import PROSODY
from voxline.components.convert.jobs import Shaping
from voxline.components.convert.recording import apply_shaping
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
from voxline.data.manifest import Utterance, read_manifest, read_rejects
from voxline.errors import SettingsError

TRIMMED: dict[str, Any] = {"trim_db": 40, "trim_keep_seconds": 0.1}


def take(before: float, sound: float, after: float, level: float = 0.3, floor: float = 1e-4) -> np.ndarray:
    """Noise of `sound` seconds in fainter noise, float32."""
    rng = np.random.default_rng(1)
    parts = [
        rng.normal(0, scale, round(seconds * RATE)) for seconds, scale in _parts(before, sound, after, level, floor)
    ]
    return np.concatenate(parts).clip(-1, 1).astype(np.float32)


def _parts(before: float, sound: float, after: float, level: float, floor: float) -> list[tuple[float, float]]:
    return [(before, floor), (sound, level), (after, floor)]


def as_pcm(samples: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)


def converted(tmp_path: Path, samples: np.ndarray, **changes: Any) -> Utterance:
    soundfile.write(tmp_path / "a.wav", as_pcm(samples), RATE)
    manifest = manifest_of(tmp_path / "in", [utterance(tmp_path / "a.wav")])
    [out] = read_manifest(run(manifest, tmp_path / "store", ConvertSettings.of({**changes})).folder)
    return out


# Trimming


@pytest.mark.parametrize("level", [0.3, 0.003])
def test_silence_is_trimmed_relative_to_the_recordings_own_level(tmp_path: Path, level: float) -> None:
    samples = take(0.5, 1.0, 0.8, level, floor=level / 1000)
    out = converted(tmp_path, samples, silence_db=-90, **TRIMMED)
    assert out.duration == pytest.approx(1.2, abs=0.021)
    assert out.measured["trimmed_seconds"] == pytest.approx(1.1, abs=0.021)
    pcm, _ = read_wav(Path(out.audio_filepath))
    start = round((0.5 - 0.1) * RATE)
    np.testing.assert_array_equal(pcm, as_pcm(samples)[start:][: len(pcm)])


def test_no_silence_is_added(tmp_path: Path) -> None:
    out = converted(tmp_path, take(0.03, 0.5, 0.0), **TRIMMED)
    assert (out.duration, out.measured["trimmed_seconds"]) == (0.53, 0)


def test_pauses_between_words_stay() -> None:
    samples = np.concatenate([take(0.4, 0.3, 0.6), take(0.4, 0.3, 0.4)])
    kept, _ = apply_shaping(samples, RATE, Shaping(40, 0.1))
    assert len(kept) / RATE == pytest.approx(0.3 + 1.0 + 0.3 + 0.2, abs=0.021)


def test_a_click_at_the_edge_is_trimmed() -> None:
    samples = take(0.5, 1.0, 0.5, floor=0)
    samples[100] = 0.02
    kept, _ = apply_shaping(samples, RATE, Shaping(40, 0.0))
    assert len(kept) / RATE == pytest.approx(1.0, abs=0.021)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3000), st.floats(1, 100), st.floats(0, 1), st.integers(0, 9))
def test_trimming_keeps_the_loudest_sample(length: int, trim_db: float, keep: float, seed: int) -> None:
    samples = np.random.default_rng(seed).normal(0, 0.1, length).astype(np.float32)
    kept, _ = apply_shaping(samples, RATE, Shaping(trim_db, keep))
    assert 0 < len(kept) <= length
    assert np.abs(kept).max() == np.abs(samples).max() or trim_db < 20


# Loudness


@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100, 48_000])
def test_a_sine_of_997_hz_has_the_loudness_that_the_recommendation_gives_it(rate: int) -> None:
    sine = np.sin(2 * np.pi * 997 * np.arange(3 * rate) / rate).astype(np.float32)
    assert integrated_loudness(sine, rate) == pytest.approx(-3.01, abs=0.05)
    assert integrated_loudness(sine * np.float32(0.1), rate) == pytest.approx(-23.01, abs=0.05)


def test_quiet_blocks_do_not_count() -> None:
    """EBU Tech 3341, case 3: -36, -23 and -36 dB, 10, 60 and 10 s; the relative gate keeps the middle."""
    levels = np.repeat([-36.0, -23.0, -36.0], [10 * 8_000, 60 * 8_000, 10 * 8_000])
    sine = np.sin(2 * np.pi * 1_000 * np.arange(len(levels)) / 8_000) * 10 ** (levels / 20)
    assert integrated_loudness(sine.astype(np.float32), 8_000) == pytest.approx(-23.0 - 3.01, abs=0.1)


@pytest.mark.parametrize("seconds", [0.35, 0.6, 4.0])
def test_the_loudness_is_that_of_ffmpeg(tmp_path: Path, seconds: float) -> None:
    rng = np.random.default_rng(4)
    bursts = np.abs(np.sin(np.arange(round(seconds * 48_000)) / 15_000)) ** 3
    samples = (0.2 * rng.normal(size=len(bursts)) * bursts).clip(-1, 1).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", np.tile(samples, 1 if seconds >= 0.4 else 30), 48_000, subtype="FLOAT")
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-hide_banner",
        "-i",
        tmp_path / "a.wav",
        "-af",
        "ebur128",
        "-f",
        "null",
        "-",
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    measured = float(re.findall(r"I:\s+(-?[\d.]+) LUFS", told)[-1])
    assert integrated_loudness(samples, 48_000) == pytest.approx(measured, abs=0.15 if seconds >= 0.4 else 1.0)


@pytest.mark.parametrize("level", [0.002, 0.05, 0.2])
@pytest.mark.parametrize("seconds", [0.2, 2.0])
@pytest.mark.parametrize("rate", [16_000, 22_050])
def test_every_recording_gets_the_target_loudness(level: float, seconds: float, rate: int) -> None:
    samples = as_pcm(take(0.0, seconds, 0.0, level))
    shaped, done = apply_shaping(samples, rate, Shaping(loudness_lufs=-26))
    assert integrated_loudness(shaped, rate) == pytest.approx(-26, abs=0.05)
    assert done["loudness_lufs"] == -26
    before = integrated_loudness((samples / 32768).astype(np.float32), rate)
    assert done["gain_db"] == pytest.approx(-26 - before, abs=0.01)


def test_no_peak_is_clipped_to_reach_the_target_loudness(tmp_path: Path) -> None:
    samples = take(0.2, 1.0, 0.2, level=0.01)
    samples[5_000] = 0.9
    out = converted(tmp_path, samples, loudness_lufs=-10)
    pcm, _ = read_wav(Path(out.audio_filepath))
    assert out.measured["peak_db"] == pytest.approx(-1.0, abs=0.01)
    assert out.measured["clipped_share"] == 0
    assert out.measured["loudness_lufs"] < -20, "it is not what was asked for, and says so"
    gain = 10 ** (-1 / 20) / samples[5_000]
    np.testing.assert_allclose(pcm / 32768, samples * gain, atol=6e-5)


# As a step


def test_a_silent_recording_is_rejected_before_normalization(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "faint.wav", take(0, 1, 0, level=0.0002), RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "zeros.wav", np.zeros(RATE), RATE)
    good_flac(tmp_path / "good.flac")
    names = ("faint.wav", "zeros.wav", "good.flac")
    manifest = manifest_of(tmp_path / "in", [utterance(tmp_path / name) for name in names])
    chosen = ConvertSettings.of({"loudness_lufs": -23, "max_reject_share": 0.9, **TRIMMED})
    work = run(manifest, tmp_path / "store", chosen)
    assert {one.id: str(one.reason) for one in read_rejects(work.path("rejects"))} == {
        "faint.wav": "silent",
        "zeros.wav": "silent",
    }


def test_what_is_left_after_trimming_may_be_too_short(tmp_path: Path) -> None:
    for name, seconds in (("click.wav", 0.02), ("word.wav", 0.5)):
        soundfile.write(tmp_path / name, take(0.5, seconds, 0.5), RATE)
    manifest = manifest_of(tmp_path / "in", [utterance(tmp_path / name) for name in ("click.wav", "word.wav")])
    chosen = ConvertSettings.of({"max_reject_share": 0.9, "trim_db": 40, "trim_keep_seconds": 0.01})
    work = run(manifest, tmp_path / "store", chosen)
    assert [(one.id, str(one.reason)) for one in read_rejects(work.path("rejects"))] == [("click.wav", "too_short")]


@pytest.mark.slow
def test_each_shaping_has_its_own_wav(tmp_path: Path) -> None:
    samples = take(0.5, 1.0, 0.5)
    wavs = [
        converted(tmp_path, samples, **changes)
        for changes in ({}, {"trim_keep_seconds": 0.3}, {"trim_db": 30}, {"trim_db": 40}, {"loudness_lufs": -23})
    ]
    assert wavs[0].audio_hash == wavs[1].audio_hash, "what is kept matters only where something is trimmed"
    assert len({one.audio_hash for one in wavs}) == 4
    assert not {"trimmed_seconds", "gain_db", "loudness_lufs"} & set(wavs[0].measured)
    np.testing.assert_array_equal(read_wav(Path(wavs[0].audio_filepath))[0], as_pcm(samples))


def test_a_shaped_wav_without_a_log_line_is_made_again(tmp_path: Path) -> None:
    changes = {"loudness_lufs": -23, **TRIMMED}
    first = converted(tmp_path, take(0.5, 1.0, 0.5), **changes)
    for lost in [*tmp_path.glob("store/wavs/log/*.jsonl"), *tmp_path.glob("store/convert/*/done.json")]:
        lost.unlink()
    assert converted(tmp_path, take(0.5, 1.0, 0.5), **changes) == first


@pytest.mark.parametrize(
    ("changes", "message"), [({"trim_db": -40}, "'trim_db' is -40"), ({"loudness_lufs": 3}, "'loudness_lufs' is 3")]
)
def test_impossible_shaping_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ConvertSettings.of(changes)


def test_the_sixteen_recordings_of_ljspeech_come_out_trimmed_and_equally_loud(real_data: Path, tmp_path: Path) -> None:
    files = sorted((real_data / "LJSpeech-1.1/wavs").glob("*.wav"))
    manifest = manifest_of(tmp_path / "in", [utterance(file) for file in files])
    chosen = ConvertSettings.of({"sample_rate": 22_050, "loudness_lufs": -23, **TRIMMED})
    out = read_manifest(run(manifest, tmp_path / "store", chosen).folder)
    assert len(out) == 16
    for one, file in zip(out, files, strict=True):
        assert one.measured["loudness_lufs"] == pytest.approx(-23, abs=0.01)
        assert one.measured["peak_db"] < -1
        whole = soundfile.info(file).duration
        assert one.duration == pytest.approx(whole - float(one.measured["trimmed_seconds"]), abs=1e-3)
        assert 0 <= one.measured["trimmed_seconds"] < 0.5, "its publisher trimmed it already"


# Prosody


@pytest.mark.slow
def test_prosody_is_measured_on_demand_and_known_wavs_are_not_decoded_again(tmp_path: Path) -> None:
    """A hum of 125 Hz with its harmonics, between pauses."""
    hum = sum(np.sin(2 * np.pi * 125 * order * np.arange(RATE) / RATE) / order for order in range(1, 9)) / 5
    samples = np.concatenate([np.zeros(RATE // 2), hum, np.zeros(RATE // 4)])
    plain = converted(tmp_path, samples)
    wanted = {"onset_seconds", "offset_seconds", "speech_db", "voiced_share", "f0_hz", "f0_low_hz", "f0_high_hz"}
    assert not wanted & plain.measured.keys()
    [measured] = read_manifest(run(tmp_path / "in", tmp_path / "store", ConvertSettings(prosody=True)).folder)
    assert {name: measured.measured[name] for name in plain.measured} == plain.measured
    assert wanted <= measured.measured.keys()
    assert (measured.audio_filepath, measured.digest()) == (plain.audio_filepath, plain.digest())
    found = measured.measured
    assert found["onset_seconds"] == pytest.approx(0.5, abs=0.02)
    assert found["offset_seconds"] == pytest.approx(1.5, abs=0.02)
    assert found["f0_hz"] == pytest.approx(125, rel=0.01)
    assert found["voiced_share"] > 0.9
    assert found["speech_db"] == pytest.approx(20 * np.log10(np.sqrt(np.mean(hum**2))), abs=0.1)


@pytest.mark.slow
def test_a_run_without_prosody_finds_what_it_measured_and_one_with_it_measures_once(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path / "in", [_noise(tmp_path, seed) for seed in range(3)])
    counts = []
    for number, wanted in enumerate((False, True, False, True)):
        step = run(manifest, tmp_path / "store", ConvertSettings(prosody=wanted, min_seconds=0.1 + number / 100))
        counts.append(step.counts["decoded"])
        assert all(("onset_seconds" in one.measured) is wanted for one in read_manifest(step.folder))
    assert counts == [3, 0, 0, 0]
    logs = (tmp_path / "store/wavs/log").glob("*.jsonl")
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    assert sorted(line.get("prosody", False) for line in lines) == [False] * 3 + [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize("first", [False, True])
def test_prosody_neither_decodes_shaped_recordings_again_nor_loses_what_decoding_found(
    tmp_path: Path, first: bool
) -> None:
    """Zeros in the middle of an MP3 are a note of its decoder, which its WAV does not hold."""
    source, file = tmp_path / "source.wav", tmp_path / "damaged.mp3"
    soundfile.write(source, np.sin(np.arange(3 * RATE) / 10) * np.linspace(0, 0.5, 3 * RATE), RATE)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", source, "-write_xing", "0", "-b:a", "64k", file]
    subprocess.run(command, check=True)
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 200] = bytes(200)
    file.write_bytes(data)
    manifest = manifest_of(tmp_path / "in", [utterance(file)])
    shaped = {"trim_db": 30.0, "loudness_lufs": -23.0}
    found = []
    for wanted in (first, not first):
        step = run(manifest, tmp_path / "store", ConvertSettings.model_validate({"prosody": wanted, **shaped}))
        assert step.counts["decoded"] == (wanted is first)
        [line] = read_manifest(step.folder)
        assert {"decoder_notes", "trimmed_seconds", "gain_db"} <= line.measured.keys()
        assert (line.measured.keys() >= set(PROSODY)) is wanted
        assert bool(line.measured.keys() & set(PROSODY)) is wanted
        found.append({name: value for name, value in line.measured.items() if name not in PROSODY})
    assert found[0] == found[1]


def _noise(folder: Path, seed: int) -> Utterance:
    good_flac(folder / f"{seed}.flac", seed)
    return utterance(folder / f"{seed}.flac")

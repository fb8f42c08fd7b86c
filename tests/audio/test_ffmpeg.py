"""Formats that only ffmpeg reads are decoded with the wheel's binary; no other format reaches it."""

import subprocess
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import soundfile

from voxline.audio.containers import ffmpeg_must_decode, identify
from voxline.audio.decoding import decode_audio, load_audio, read_header
from voxline.audio.ffmpeg import ENCODINGS, write_encoded
from voxline.pipelines.cli.synthesis import OUTPUT_EXTENSIONS
from voxline.rejects import BadAudioError, Reason

RATE = 16_000


def encode(path: Path, *options: str) -> Path:
    """One second at 440 Hz, encoded with the wheel's ffmpeg."""
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        "sine=440:d=1:r=48000",
        *options,
        path,
    ]
    subprocess.run(command, check=True)
    return path


@pytest.mark.parametrize("suffix", ["m4a", "mp4", "aac", "wma", "webm", "mka"])
def test_a_tone_comes_through_unchanged(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = encode(tmp_path / f"tone, ü -y.{suffix}")
    monkeypatch.setenv("PATH", "")  # neither ffmpeg nor ffprobe to be found
    with pytest.raises(soundfile.LibsndfileError):
        soundfile.info(path)
    samples = load_audio(path, RATE)
    assert len(samples) == pytest.approx(RATE, abs=RATE // 10)
    assert read_header(path).seconds == pytest.approx(1, abs=0.1)
    spectrum = np.abs(np.fft.rfft(samples[2_000:12_000] * np.hanning(10_000)))
    assert np.argmax(spectrum) * RATE / 10_000 == pytest.approx(440, abs=2)


def test_a_segment_of_an_m4a(tmp_path: Path) -> None:
    path = encode(tmp_path / "tone.m4a")
    np.testing.assert_array_equal(decode_audio(path, 0.25, 0.5).samples, decode_audio(path).samples[12_000:36_000])


@pytest.mark.parametrize("kept", [0.5, 0.95])
@pytest.mark.parametrize("options", [[], ["-movflags", "+faststart"]])
def test_a_truncated_m4a_is_rejected_not_shortened(tmp_path: Path, kept: float, options: list[str]) -> None:
    content = encode(tmp_path / "tone.m4a", *options).read_bytes()
    path = tmp_path / "cut.m4a"
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(BadAudioError) as caught:
        decode_audio(path)
    assert caught.value.reason is Reason.TRUNCATED


@pytest.mark.parametrize(
    "start",
    [
        b"\x1aE\xdf\xa3",
        b"\x00\x00\x00\x1cftypM4A ",
        b"#!AMR\n",
        b"\x30\x26\xb2\x75\x8e\x66\xcf\x11",
        b"\xff\xf1\x60\x40",
    ],
)
def test_garbage_behind_a_familiar_beginning_is_a_stated_fault(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "take"
    path.write_bytes(start + np.random.default_rng(4).bytes(2_000))
    with pytest.raises(BadAudioError):
        decode_audio(path)


def test_a_playlist_cannot_make_ffmpeg_read_another_file(tmp_path: Path) -> None:
    encode(tmp_path / "secret.m4a")
    for text in (
        f"#EXTM3U\n#EXTINF:1,\n{tmp_path}/secret.m4a\n",
        f"ffconcat version 1.0\nfile {tmp_path}/secret.m4a\n",
    ):
        path = tmp_path / "innocent.m4a"
        path.write_text(text)
        with pytest.raises(BadAudioError) as caught:
            decode_audio(path)
        assert caught.value.reason is Reason.UNREADABLE


def test_what_libsndfile_reads_never_goes_to_ffmpeg(tmp_path: Path) -> None:
    for form in ("WAV", "FLAC", "OGG", "MP3", "AIFF", "RF64"):
        path = tmp_path / "take"
        soundfile.write(path, np.zeros(4_000), RATE, format=form)
        start = path.read_bytes()[:64]
        assert not ffmpeg_must_decode(identify(start), start)


@pytest.mark.parametrize("suffix", sorted(ENCODINGS))
def test_a_waveform_is_written_in_the_format_of_its_name(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    rate = 22_050
    tone = np.round(10_000 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)).astype(np.int16)
    path = tmp_path / f"ü 1{suffix}"
    write_encoded(path, tone, rate)
    heard = load_audio(path, rate)
    assert len(heard) == pytest.approx(rate, abs=rate // 10)
    spectrum = np.abs(np.fft.rfft(heard[2_000:18_000] * np.hanning(16_000)))
    assert np.argmax(spectrum) * rate / 16_000 == pytest.approx(440, abs=2)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_the_command_offers_these_formats() -> None:
    assert set(OUTPUT_EXTENSIONS) == {".wav", *ENCODINGS}

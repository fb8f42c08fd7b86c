"""Decoding intact recordings: exact samples, whole or in part; mixing to mono and conversion to 16 bits."""

import contextlib
import subprocess
import tracemalloc
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from voxline.audio.decoding import Segment, decode_audio, decode_segments, load_audio, read_header, resample, to_mono
from voxline.audio.wav import to_int16
from voxline.rejects import BadAudioError, Reason

RATE = 16_000


def tone(seconds: float = 1.0, hertz: float = 440.0, rate: int = RATE) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def test_librispeech_comes_out_bit_by_bit(real_data: Path) -> None:
    files = sorted((real_data / "LibriSpeech").rglob("*.flac"))
    assert len(files) == 10
    for file in files:
        recording = decode_audio(file)
        expected, rate = soundfile.read(file, dtype="int16")
        assert recording.sample_rate == rate == read_header(file).sample_rate
        assert read_header(file).frames == len(expected)
        np.testing.assert_array_equal(to_int16(to_mono(recording.samples)), expected)


@pytest.mark.parametrize(
    ("form", "subtype"), [("FLAC", "PCM_16"), ("WAV", "PCM_16"), ("WAV", "FLOAT"), ("OGG", "VORBIS")]
)
def test_a_segment_is_the_same_samples_as_in_the_whole(tmp_path: Path, form: str, subtype: str) -> None:
    path = tmp_path / "take"
    soundfile.write(path, tone(3), RATE, format=form, subtype=subtype)
    part = decode_audio(path, offset=1.25, duration=0.5).samples
    np.testing.assert_array_equal(part, decode_audio(path).samples[20_000:28_000])
    np.testing.assert_array_equal(decode_audio(path, offset=2.5).samples, decode_audio(path).samples[40_000:])


def test_a_segment_of_a_long_flac_costs_no_decoding_of_the_rest(tmp_path: Path) -> None:
    """Damage outside the segment goes unnoticed, since those bytes are not decoded."""
    path = tmp_path / "long.flac"
    soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, 60 * RATE), RATE)
    content = bytearray(path.read_bytes())
    at = len(content) * 5 // 6
    content[at : at + 2_000] = bytes(2_000)
    path.write_bytes(content)
    assert len(decode_audio(path, offset=5, duration=1).samples) == RATE
    with pytest.raises(BadAudioError):
        decode_audio(path)


@pytest.mark.parametrize("suffix", ["flac", "mp3"])
def test_segments_are_not_kept_when_they_have_been_given(tmp_path: Path, suffix: str) -> None:
    """One is sought, the other is read from its start; an hour in minutes takes the memory of some minutes."""
    noise = 0.1 * np.random.default_rng(0).standard_normal(200 * 8_000).astype(np.float32)
    soundfile.write(tmp_path / f"a.{suffix}", noise, 8_000)
    segments = [Segment(4.0 * number, 4.0) for number in range(49)]
    tracemalloc.start()
    try:
        count = sum(1 for _ in decode_segments(tmp_path / f"a.{suffix}", segments, 8_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == len(segments)
    assert peak < noise.nbytes / 3


@pytest.mark.parametrize(("offset", "duration"), [(2.5, 1.0), (1.5, 1.0)])
def test_a_segment_past_the_end_is_a_bad_entry(tmp_path: Path, offset: float, duration: float) -> None:
    path = tmp_path / "take.wav"
    soundfile.write(path, tone(2), RATE)
    with pytest.raises(BadAudioError, match="recording ends at 2 s") as caught:
        decode_audio(path, offset, duration)
    assert caught.value.reason is Reason.BAD_ENTRY


def test_a_duration_rounded_by_a_manifest_loses_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "take.flac"
    soundfile.write(path, tone(1.2345), RATE)
    assert len(decode_audio(path, 0.0, 1.23).samples) == read_header(path).frames == round(1.2345 * RATE)


def test_channels_are_averaged(tmp_path: Path) -> None:
    left, right = tone(0.5, 300), tone(0.5, 500)
    path = tmp_path / "stereo.flac"
    soundfile.write(path, np.stack([left, right], axis=1), RATE)
    mixed = to_int16(to_mono(decode_audio(path).samples))
    np.testing.assert_allclose(mixed, 32768 * (left + right) / 2, atol=1.01)


def test_24_bits_are_rounded_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "deep.wav"
    soundfile.write(path, np.array([255, 128, 127, -129, -255], np.int32) << 8, RATE, subtype="PCM_24")
    assert to_int16(to_mono(decode_audio(path).samples)).tolist() == [1, 0, 0, -1, -1]


@given(arrays.arrays(np.int16, st.integers(1, 50)))
def test_16_bits_survive_the_way_through_floats(samples: np.ndarray) -> None:
    np.testing.assert_array_equal(to_int16(resample(samples, RATE, RATE)), samples)


def test_beyond_full_scale_is_clipped_not_wrapped() -> None:
    assert to_int16(np.array([1.5, -1.5, 0.99999, 1.0], np.float32)).tolist() == [32767, -32768, 32767, 32767]


def test_resampling_keeps_what_fits_and_removes_what_would_alias(tmp_path: Path) -> None:
    for hertz, expected in ((1_000, 0.5), (7_000, 0.5), (9_000, 0.0), (15_000, 0.0)):
        path = tmp_path / f"{hertz}.wav"
        soundfile.write(path, tone(1, hertz, 44_100), 44_100)
        middle = load_audio(path, RATE)[2_000:-2_000]
        assert np.sqrt(2 * np.mean(middle**2)) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize("form", ["OGG", "MP3", "AIFF", "CAF", "AU", "W64"])
def test_other_formats_that_libsndfile_reads(tmp_path: Path, form: str) -> None:
    path = tmp_path / "take"
    soundfile.write(path, tone(1), RATE, format=form)
    assert len(load_audio(path, RATE)) == RATE


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_samples_that_are_no_numbers_are_unreadable(tmp_path: Path, bad: float) -> None:
    path = tmp_path / "take.wav"
    soundfile.write(path, np.append(tone(0.1), bad), RATE, subtype="FLOAT")
    with pytest.raises(BadAudioError, match="1 samples are NaN or infinite") as caught:
        decode_audio(path)
    assert caught.value.reason is Reason.UNREADABLE


@pytest.mark.parametrize("name", ["noise.wav", "noise.flac", "noise.mp3", "noise.m4a", "noise"])
def test_bytes_that_are_no_audio_are_unreadable_whatever_their_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(np.random.default_rng(3).bytes(5_000))
    for read in (decode_audio, read_header):
        with pytest.raises(BadAudioError) as caught:
            read(tmp_path / name)
        assert caught.value.reason is Reason.UNREADABLE


def test_float_samples_far_beyond_full_scale_are_unreadable_not_a_square_wave(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "int.wav", np.array([3.0, -20_000.0] * 99, np.float32), 16_000, subtype="FLOAT")
    with pytest.raises(BadAudioError, match="reach 20000") as caught:
        decode_audio(tmp_path / "int.wav")
    assert caught.value.reason is Reason.UNREADABLE


@pytest.mark.parametrize("rate", [999, 10_000_001, 2**31 - 1])
def test_a_rate_that_no_recorder_has_is_a_damaged_header(tmp_path: Path, rate: int) -> None:
    path = tmp_path / "take.wav"
    soundfile.write(path, tone(0.1), RATE)
    content = bytearray(path.read_bytes())
    content[24:28] = rate.to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(BadAudioError, match=r"the header says .* Hz; 1,000 to 10,000,000 are accepted"):
        load_audio(path, RATE)


def test_a_missing_file_and_an_empty_one_have_different_reasons(tmp_path: Path) -> None:
    (tmp_path / "empty.flac").touch()
    soundfile.write(tmp_path / "header.wav", np.zeros(0), RATE)
    reasons = {}
    for name in ("absent.wav", "empty.flac", "header.wav"):
        with pytest.raises(BadAudioError) as caught:
            decode_audio(tmp_path / name)
        reasons[name] = caught.value.reason
    assert reasons == {
        "absent.wav": Reason.MISSING_FILE,
        "empty.flac": Reason.EMPTY_AUDIO,
        "header.wav": Reason.EMPTY_AUDIO,
    }


@given(st.binary(max_size=300), st.sampled_from([b"", b"fLaC", b"RIFF\x00\x01\x00\x00WAVE", b"ID3", b"RF64????WAVE"]))
def test_any_bytes_are_audio_or_a_stated_fault(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes, head: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "anything"
    path.write_bytes(head + tail)
    for read in (decode_audio, read_header):
        with contextlib.suppress(BadAudioError):  # anything else would stop a run
            read(path)


@pytest.mark.parametrize("name", ["take.raw", "take.RAW", "take.pcm"])
def test_samples_without_a_header_are_unreadable_and_the_fault_names_the_settings(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes((3_000 * tone(0.2)).astype("<i2").tobytes())
    for read in (decode_audio, read_header):
        with pytest.raises(BadAudioError, match=r"corpus\.raw\.sample_rate") as caught:
            read(tmp_path / name)
        assert caught.value.reason is Reason.UNREADABLE


def test_a_wav_that_is_named_raw_is_a_wav(tmp_path: Path) -> None:
    with open(tmp_path / "take.raw", "wb") as file:
        soundfile.write(file, tone(0.2), RATE, format="WAV")
    assert read_header(tmp_path / "take.raw").frames == 3_200


@pytest.mark.parametrize("seconds", [0.5, 3, 20])
def test_an_mp3_that_was_appended_to_another_is_not_left_out(seconds: float, tmp_path: Path) -> None:
    """The Xing header of the first states the length of the first."""
    soundfile.write(tmp_path / "one.mp3", np.random.default_rng(1).normal(0, 0.1, round(seconds * RATE)), RATE)
    content = (tmp_path / "one.mp3").read_bytes()
    (tmp_path / "two.mp3").write_bytes(2 * content)
    (tmp_path / "tagged.mp3").write_bytes(content + b"TAG" + bytes(125))
    assert read_header(tmp_path / "one.mp3").seconds == pytest.approx(seconds, abs=0.01)
    assert read_header(tmp_path / "tagged.mp3").seconds == pytest.approx(seconds, abs=0.01)
    assert len(load_audio(tmp_path / "two.mp3", RATE)) == pytest.approx(2 * seconds * RATE, abs=0.2 * RATE)


@pytest.mark.parametrize("form", ["flac", "ogg", "opus", "m4a", "wma", "au", "caf", "w64"])
def test_recordings_that_were_joined_are_not_heard_in_part(form: str, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "tone.wav", tone(1), RATE)
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", tmp_path / "tone.wav"]
    subprocess.run([*ffmpeg, tmp_path / f"one.{form}"], check=True)
    assert len(load_audio(tmp_path / f"one.{form}", RATE)) == pytest.approx(RATE, abs=2_100)
    path = tmp_path / f"two.{form}"
    path.write_bytes(2 * (tmp_path / f"one.{form}").read_bytes())
    with pytest.raises(BadAudioError, match=r"another recording begins at byte [\d,]+, where the first has ended"):
        decode_audio(path)
    with pytest.raises(BadAudioError, match="another recording begins"):
        load_audio(path, RATE)


@pytest.mark.parametrize("form", ["NIST", "AIFF", "AU", "CAF", "W64"])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_file_that_its_header_says_is_longer_is_truncated(form: str, share: float, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "take", tone(1), RATE, format=form, subtype="PCM_16")
    assert read_header(tmp_path / "take").frames == RATE
    content = (tmp_path / "take").read_bytes()
    (tmp_path / "take").write_bytes(content[: round(share * len(content))])
    with pytest.raises(BadAudioError, match="the header says") as caught:
        read_header(tmp_path / "take")
    assert caught.value.reason is Reason.TRUNCATED


@pytest.mark.parametrize("form", ["NIST", "VOC", "PAF"])
def test_a_second_header_is_not_heard_as_sound(form: str, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "one", tone(1), RATE, format=form, subtype="PCM_16")
    assert len(load_audio(tmp_path / "one", RATE)) == RATE
    (tmp_path / "two").write_bytes(2 * (tmp_path / "one").read_bytes())
    with pytest.raises(BadAudioError, match="another recording begins"):
        load_audio(tmp_path / "two", RATE)


def test_an_mp3_whose_header_states_frames_and_no_bytes_is_heard_whole(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "one.mp3", np.random.default_rng(1).normal(0, 0.1, 3 * RATE), RATE)
    content = bytearray((tmp_path / "one.mp3").read_bytes())
    tag = next(place for name in (b"Xing", b"Info") if (place := content.find(name)) > 0)
    assert content[tag + 7] & 3 == 3
    content[tag + 7] &= ~2  # the fields behind move up
    del content[tag + 12 : tag + 16]
    content[tag + 100 : tag + 100] = bytes(4)
    (tmp_path / "one.mp3").write_bytes(content)
    assert len(load_audio(tmp_path / "one.mp3", RATE)) == pytest.approx(3 * RATE, abs=0.1 * RATE)
    (tmp_path / "two.mp3").write_bytes(2 * content)
    assert len(load_audio(tmp_path / "two.mp3", RATE)) == pytest.approx(6 * RATE, abs=0.2 * RATE)
    (tmp_path / "cut.mp3").write_bytes(content[: len(content) // 2])
    with pytest.raises(BadAudioError, match="the header says") as caught:
        load_audio(tmp_path / "cut.mp3", RATE)
    assert caught.value.reason is Reason.TRUNCATED


def test_a_picture_between_two_mp3s_does_not_end_the_recording(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    soundfile.write(tmp_path / "one.mp3", random.normal(0, 0.1, 20 * RATE), RATE)
    content, size = (tmp_path / "one.mp3").read_bytes(), 200_000
    tag = b"ID3\4\0\0" + bytes(size >> bits & 127 for bits in (21, 14, 7, 0)) + random.bytes(size)
    (tmp_path / "two.mp3").write_bytes(content + tag + content)
    assert len(load_audio(tmp_path / "two.mp3", RATE)) == pytest.approx(40 * RATE, abs=0.2 * RATE)

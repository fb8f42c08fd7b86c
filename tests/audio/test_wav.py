"""Truncated WAVs are detected by their sizes; written WAVs are plain and are read back bit by bit."""

import os
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from voxline.audio.decoding import decode_audio, read_header
from voxline.audio.wav import check_wav_complete, read_wav, wav_header, write_wav
from voxline.rejects import BadAudioError, Reason

RATE = 16_000


def wav_bytes(
    samples: np.ndarray, *, riff_size: int | None = None, data_size: int | None = None, more: bytes = b""
) -> bytes:
    data = samples.astype("<i2").tobytes()
    form = struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    return (
        b"RIFF"
        + struct.pack("<I", 36 + len(data) + len(more) if riff_size is None else riff_size)
        + b"WAVEfmt "
        + form
        + b"data"
        + struct.pack("<I", len(data) if data_size is None else data_size)
        + data
        + more
    )


SAMPLES = np.arange(-500, 500, dtype=np.int16)


def reason_of(path: Path) -> Reason:
    with pytest.raises(BadAudioError) as caught:
        decode_audio(path)
    return caught.value.reason


@pytest.mark.parametrize(
    ("form", "endian"), [("WAV", "LITTLE"), ("WAV", "BIG"), ("WAVEX", "LITTLE"), ("RF64", "LITTLE")]
)
def test_a_truncated_wav_is_rejected_not_shortened(tmp_path: Path, form: str, endian: str) -> None:
    path = tmp_path / "take.wav"
    soundfile.write(path, SAMPLES, RATE, format=form, endian=endian)
    assert len(decode_audio(path).samples) == len(SAMPLES)
    content = path.read_bytes()
    for kept in (len(content) - 1, len(content) - 1_000, content.index(b"data") + 8, content.index(b"fmt ") + 6):
        path.write_bytes(content[:kept])
        assert reason_of(path) is Reason.TRUNCATED, kept


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000])
def test_a_wav_from_a_pipe_is_read_to_its_end(tmp_path: Path, size: int) -> None:
    path = tmp_path / "take.wav"
    path.write_bytes(wav_bytes(SAMPLES, riff_size=min(size + 36, 0xFFFFFFFF), data_size=size))
    np.testing.assert_array_equal(decode_audio(path).samples[:, 0], SAMPLES)


def test_a_recorder_stopped_before_it_finished_its_header_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "take.wav"
    path.write_bytes(wav_bytes(SAMPLES, riff_size=0, data_size=0))
    assert reason_of(path) is Reason.TRUNCATED


def test_chunks_after_the_samples_are_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "take.wav"
    more = b"LIST" + struct.pack("<I", 4) + b"INFO"
    path.write_bytes(wav_bytes(SAMPLES, more=more))
    assert len(decode_audio(path).samples) == len(SAMPLES)
    path.write_bytes(wav_bytes(SAMPLES[:0], more=more))
    assert reason_of(path) is Reason.EMPTY_AUDIO


@pytest.mark.parametrize(
    ("channels", "bits", "frame", "second", "is_read"),
    [
        (2, 16, 2, 2 * RATE, False),  # samples of one channel
        (1, 16, 4, 4 * RATE, True),  # as Recorder.js writes one
        (1, 8, 2, 2 * RATE, False),
        (1, 24, 4, 4 * RATE, False),
        (1, 24, 4, 0, False),
        (1, 16, 2, 2 * RATE, True),
        (1, 12, 2, 2 * RATE, True),
        (2, 16, 2, 4 * RATE, True),  # two against one
        (1, 16, 0, 0, True),
        (1, 16, 2, 7, True),
    ],
)
@pytest.mark.parametrize("order", "<>")
def test_a_header_that_contradicts_itself_is_unreadable(
    channels: int, bits: int, frame: int, second: int, is_read: bool, order: str, tmp_path: Path
) -> None:
    path = tmp_path / "take.wav"
    data = SAMPLES.astype(f"{order}i2").tobytes()
    form = struct.pack(f"{order}IHHIIHH", 16, 1, channels, RATE, second, frame, bits)
    body = b"WAVEfmt " + form + b"data" + struct.pack(f"{order}I", len(data)) + data
    path.write_bytes((b"RIFF" if order == "<" else b"RIFX") + struct.pack(f"{order}I", len(body)) + body)
    if is_read:
        assert len(decode_audio(path).samples) == len(SAMPLES) // channels
        return
    with pytest.raises(BadAudioError, match=f"says {channels} channels of {bits} bits, and {frame} bytes") as caught:
        decode_audio(path)
    assert caught.value.reason is Reason.UNREADABLE


@pytest.mark.parametrize(
    ("kind", "channels", "bits", "frame", "second", "remark"),
    [
        (1, 1, 16, 2, 2 * RATE, ""),
        (1, 1, 16, 2, 16_000, "header: 16000 Hz, and 16000 bytes a second, as of 8000 Hz"),
        (1, 2, 16, 4, 2 * RATE, "header: 16000 Hz, and 32000 bytes a second, as of 8000 Hz"),
        (1, 1, 16, 2, 88_200, "header: 16000 Hz, and 88200 bytes a second, as of 44100 Hz"),
        (1, 2, 16, 2, 4 * RATE, "header: 2 channels of 16 bits, and 2 bytes for a sample of each"),
        (1, 1, 16, 2, 0, ""),
        (1, 1, 16, 4, 4 * RATE, ""),  # Recorder.js
        (1, 1, 16, 2, 2 * RATE + 3, ""),
        (7, 1, 8, 1, 2 * RATE, "header: 16000 Hz, and 32000 bytes a second, as of 32000 Hz"),
    ],
)
def test_a_header_of_two_sample_rates_is_read_with_a_remark(
    kind: int, channels: int, bits: int, frame: int, second: int, remark: str, tmp_path: Path
) -> None:
    path = tmp_path / "take.wav"
    data = SAMPLES.astype("<i2").tobytes()
    form = struct.pack("<IHHIIHH", 16, kind, channels, RATE, second, frame, bits)
    body = b"WAVEfmt " + form + b"data" + struct.pack("<I", len(data)) + data
    path.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)
    assert read_header(path).remark == remark
    assert decode_audio(path).notes == remark
    assert read_header(path).sample_rate == RATE


@pytest.mark.parametrize(("bits", "frame", "is_read"), [(8, 1, True), (16, 1, True), (16, 2, False)])
def test_mu_law_has_a_byte_for_a_sample(bits: int, frame: int, is_read: bool, tmp_path: Path) -> None:
    path = tmp_path / "take.wav"
    form = struct.pack("<IHHIIHH", 16, 7, 1, RATE, RATE * frame, frame, bits)
    body = b"WAVEfmt " + form + b"data" + struct.pack("<I", 8_000) + bytes(range(250)) * 32
    path.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)
    if is_read:
        assert len(decode_audio(path).samples) == 8_000
    else:
        assert reason_of(path) is Reason.UNREADABLE


def test_a_wav_without_samples_chunk_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "take.wav"
    path.write_bytes(wav_bytes(SAMPLES[:0])[:36].replace(b"$\0\0\0WAVE", b"\x1c\0\0\0WAVE"))
    assert reason_of(path) is Reason.UNREADABLE


@given(arrays.arrays(np.int16, st.integers(0, 200)), st.sampled_from([8_000, 16_000, 44_100]))
def test_a_written_wav_is_read_back_by_us_and_by_soundfile(
    tmp_path_factory: pytest.TempPathFactory, samples: np.ndarray, rate: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.wav"
    write_wav(path, samples, rate)
    assert path.stat().st_size == 44 + 2 * len(samples)
    read, read_rate = read_wav(path)
    np.testing.assert_array_equal(read, samples)
    assert read_rate == rate
    with wave.open(os.fspath(path)) as theirs:
        assert (theirs.getnchannels(), theirs.getsampwidth(), theirs.getframerate()) == (1, 2, rate)
        assert theirs.readframes(1_000) == samples.astype("<i2").tobytes()


def test_a_wav_of_ours_that_was_cut_is_not_read_back(tmp_path: Path) -> None:
    path = tmp_path / "take.wav"
    write_wav(path, SAMPLES, RATE)
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(BadAudioError):
        read_wav(path)


def test_an_rf64_that_ends_inside_its_sizes_is_truncated(tmp_path: Path) -> None:
    (tmp_path / "take.wav").write_bytes(b"RF64\xff\xff\xff\xffWAVEds64\x1c\0\0\0\1\2")
    assert reason_of(tmp_path / "take.wav") is Reason.TRUNCATED


def test_a_rate_that_is_none_is_unreadable_and_is_not_resampled(tmp_path: Path) -> None:
    content = bytearray(wav_bytes(SAMPLES))
    content[24:28] = struct.pack("<I", 1)
    (tmp_path / "take.wav").write_bytes(content)
    assert reason_of(tmp_path / "take.wav") is Reason.UNREADABLE


NOISE = np.random.default_rng(0).integers(-3_000, 3_000, 8_000).astype("<i2").tobytes()


def write_claiming(path: Path, samples: int, behind: bytes = b"") -> Path:
    """A WAV whose header says so many samples, with all of `NOISE` and further bytes behind it."""
    path.write_bytes(wav_header(samples, 8_000) + NOISE + behind)
    return path


@pytest.mark.parametrize("samples", [1, 4_800, 7_900])
def test_samples_behind_those_of_the_header_are_told(samples: int, tmp_path: Path) -> None:
    """Field case F14."""
    with pytest.raises(
        BadAudioError, match=rf"says {2 * samples:,} bytes of samples, and {16_000 - 2 * samples:,} that"
    ):
        check_wav_complete(write_claiming(tmp_path / "a.wav", samples))


@pytest.mark.parametrize(
    "behind",
    [
        b"",
        b"\0",
        b"\0" * 4_000,
        b"LIST" + struct.pack("<I", 26) + b"INFOISFT" + bytes(18),
        b"id3 " + struct.pack("<I", 101) + bytes(102) + b"cue " + struct.pack("<I", 4) + bytes(4),
        b"ID3\x04" + bytes(500),
        b"TAG" + b"x" * 125,
        b"\xff\x01junk",
    ],
)
def test_chunks_tags_and_padding_may_follow(behind: bytes, tmp_path: Path) -> None:
    check_wav_complete(write_claiming(tmp_path / "a.wav", 8_000, behind))


def test_a_chunk_that_reaches_beyond_the_file_is_none(tmp_path: Path) -> None:
    file = write_claiming(tmp_path / "a.wav", 8_000, b"data" + struct.pack("<I", 10**6) + bytes(range(200)))
    with pytest.raises(BadAudioError, match="no chunk names"):
        check_wav_complete(file)


def test_a_chunk_of_metadata_is_no_samples_whatever_its_size_says(tmp_path: Path) -> None:
    file = write_claiming(tmp_path / "a.wav", 8_000, b"LIST" + struct.pack("<I", 500) + b"INFO" + bytes(range(200)))
    check_wav_complete(file)

    # 8 bits, and an odd number of samples without the byte that should follow them.
    whole = tmp_path / "b.wav"
    soundfile.write(whole, np.zeros(201), 8_000, subtype="PCM_U8", format="WAV")
    content = whole.read_bytes()
    at = content.index(b"data") + 8
    whole.write_bytes(content[: at + 201] + b"LIST" + struct.pack("<I", 100) + b"INFO" + b"x" * 96)
    check_wav_complete(whole)


def test_a_second_wav_behind_the_first_is_not_lost_in_silence(tmp_path: Path) -> None:
    second = write_claiming(tmp_path / "b.wav", 8_000, b"").read_bytes()
    with pytest.raises(BadAudioError, match="no chunk names"):
        check_wav_complete(write_claiming(tmp_path / "a.wav", 8_000, second))

"""A FLAC is intact, or the error says what is wrong; it never becomes silence or noise."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from voxline.audio.decoding import decode_audio, read_header
from voxline.audio.flac import NO_MD5, read_stream_info
from voxline.rejects import BadAudioError, Reason

RATE = 16_000
STREAM_INFO = 8
"""Offset of STREAMINFO's content."""


@pytest.fixture
def flac(tmp_path: Path) -> Path:
    path = tmp_path / "take.flac"
    soundfile.write(path, np.random.default_rng(1).normal(0, 0.1, 3 * RATE), RATE)
    return path


def reason_of(path: Path) -> Reason:
    with pytest.raises(BadAudioError) as caught:
        decode_audio(path)
    return caught.value.reason


@pytest.mark.parametrize("kept", [4, 20, 41, 42, 60, 90, 0.01, 0.3, 0.9, -100, -3, -1])
def test_a_truncated_flac_is_rejected_not_zero_filled(flac: Path, kept: float) -> None:
    content = flac.read_bytes()
    flac.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    assert reason_of(flac) is Reason.TRUNCATED


def test_a_real_flac_cut_anywhere_is_truncated(real_data: Path, tmp_path: Path) -> None:
    content = next((real_data / "LibriSpeech").rglob("*.flac")).read_bytes()
    path = tmp_path / "cut.flac"
    for kept in np.linspace(50, len(content) - 1, 23).astype(int):
        path.write_bytes(content[:kept])
        assert reason_of(path) is Reason.TRUNCATED, kept


def test_damage_in_the_middle_is_unreadable_and_no_truncation(flac: Path) -> None:
    content = bytearray(flac.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(40)
    flac.write_bytes(content)
    assert reason_of(flac) is Reason.UNREADABLE


@pytest.mark.parametrize("padding", [0, 3, 70_000])
def test_frames_of_another_rate_than_the_header_are_unreadable(flac: Path, padding: int) -> None:
    content = bytearray(flac.read_bytes())
    block = STREAM_INFO - 4
    length = int.from_bytes(content[block + 1 : block + 4], "big")
    content[block] = 0  # not the last block of metadata
    content[STREAM_INFO + length : STREAM_INFO + length] = b"\x01" + padding.to_bytes(3, "big") + bytes(padding)
    flac.write_bytes(content)
    assert read_header(flac).sample_rate == RATE
    doubled = int.from_bytes(content[18:22], "big") + (RATE << 12)
    content[18:22] = doubled.to_bytes(4, "big")
    flac.write_bytes(content)
    with pytest.raises(BadAudioError, match="its header says 32,000 Hz and its frames 16,000 Hz") as caught:
        decode_audio(flac)
    assert caught.value.reason is Reason.UNREADABLE


@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_the_md5_of_every_width_is_checked(tmp_path: Path, subtype: str, channels: int) -> None:
    path = tmp_path / "take.flac"
    soundfile.write(path, np.random.default_rng(2).normal(0, 0.1, (5_000, channels)), RATE, subtype=subtype)
    assert read_stream_info(path).md5 != NO_MD5
    assert decode_audio(path).samples.shape == (5_000, channels)
    content = bytearray(path.read_bytes())
    content[STREAM_INFO + 18] ^= 1
    path.write_bytes(content)
    assert reason_of(path) is Reason.MD5_MISMATCH


def test_an_md5_that_was_never_set_is_not_compared(flac: Path) -> None:
    content = bytearray(flac.read_bytes())
    content[STREAM_INFO + 18 : STREAM_INFO + 34] = NO_MD5
    flac.write_bytes(content)
    assert len(decode_audio(flac).samples) == 3 * RATE


def test_a_flac_from_a_pipe_that_does_not_say_its_length_is_read_whole(flac: Path) -> None:
    expected = decode_audio(flac).samples
    content = bytearray(flac.read_bytes())
    content[STREAM_INFO + 13] &= 0xF0
    content[STREAM_INFO + 14 : STREAM_INFO + 18] = bytes(4)
    flac.write_bytes(content)
    assert read_stream_info(flac).frames == 0
    np.testing.assert_array_equal(decode_audio(flac).samples, expected)
    np.testing.assert_array_equal(decode_audio(flac, 1.0, 0.5).samples, expected[RATE : RATE * 3 // 2])
    assert read_header(flac).seconds == 3


def test_a_header_that_promises_hours_claims_no_memory(flac: Path) -> None:
    content = bytearray(flac.read_bytes())
    content[STREAM_INFO + 13] |= 0x0F
    flac.write_bytes(content)
    assert read_header(flac).frames > 2**35
    assert reason_of(flac) is Reason.TRUNCATED

"""Decoding strangers' recordings in processes with limits: the same samples, and no file takes more than it may."""

import json
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from tests.audio.hostile import children, encode, greedy_m4a, resident, slow_reads, wide_flac
from tests.waiting import wait_until
from voxline.audio import decode_pool
from voxline.audio.decode_pool import DecodeLimits, DecodePool
from voxline.audio.decoding import Segment, decode_segments, load_audio, resample
from voxline.cancellation import Cancellation, WorkCancelledError
from voxline.rejects import BadAudioError, Reason

RATE = 16_000
LIMITS = DecodeLimits(max_seconds=10.0)


@pytest.fixture(scope="module")
def decoders() -> Iterator[DecodePool]:
    with DecodePool(LIMITS) as pool:
        yield pool


@pytest.mark.parametrize("name", ["a.flac", "a.wav", "a.m4a", "a.mp3"])
def test_a_worker_returns_the_samples_of_this_process(decoders: DecodePool, tmp_path: Path, name: str) -> None:
    path = encode(tmp_path / name, "sine=440:duration=2:sample_rate=44100", "-ac", "2")
    np.testing.assert_array_equal(decoders.load_audio(path, RATE), load_audio(path, RATE))
    assert decoders.read_seconds(path) == pytest.approx(2.0, abs=0.1)


def test_segments_are_those_of_this_process(decoders: DecodePool, tmp_path: Path) -> None:
    path = encode(tmp_path / "a.m4a", "sine=440:duration=3")
    wanted = [Segment(0.0, 1.0), Segment(9.0, 1.0), Segment(1.5, None)]
    here = dict(decode_segments(path, wanted, RATE))
    there = dict(decoders.decode_segments(path, wanted, RATE))
    assert {index: str(fault) for index, fault in there.items() if isinstance(fault, BadAudioError)} == {
        index: str(fault) for index, fault in here.items() if isinstance(fault, BadAudioError)
    }
    for index in (0, 2):
        expected, samples = here[index], there[index]
        assert not isinstance(expected, BadAudioError)
        np.testing.assert_array_equal(samples, resample(expected.samples, RATE, RATE))


def test_faults_of_a_recording_are_those_of_this_process(decoders: DecodePool, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no audio" * 100)
    for name in ("text", "absent"):
        with pytest.raises(BadAudioError) as here:
            load_audio(tmp_path / name, RATE)
        with pytest.raises(BadAudioError) as there:
            decoders.load_audio(tmp_path / name, RATE)
        assert str(there.value) == str(here.value)


def test_many_channels_at_a_high_rate_are_refused_by_the_header(decoders: DecodePool, tmp_path: Path) -> None:
    path = wide_flac(tmp_path / "wide.flac", 2.0)
    expected = "10,485,600 samples or more (2 s, 655,350 Hz, 8 channels); at most 1,920,000 are decoded"
    with pytest.raises(BadAudioError) as caught:
        decoders.load_audio(path, RATE)
    assert (caught.value.reason, caught.value.detail) == (Reason.TOO_LONG, expected)
    with pytest.raises(BadAudioError, match="at most 1,000 are decoded"):
        load_audio(path, RATE, max_samples=1_000)


def test_decoding_stops_where_a_header_states_no_length(decoders: DecodePool, tmp_path: Path) -> None:
    path = wide_flac(tmp_path / "wide.flac", 2.0)
    data = bytearray(path.read_bytes())
    data[21] &= 0xF0  # the 36 bits of STREAMINFO that hold the number of samples
    data[22:26] = bytes(4)
    path.write_bytes(data)
    with pytest.raises(BadAudioError, match="at most 1,920,000 are decoded"):
        decoders.load_audio(path, RATE)
    wide = encode(tmp_path / "wide.mka", "anullsrc=r=192000:cl=7.1", "-t", "3", "-c:a", "flac")  # by ffmpeg
    with pytest.raises(BadAudioError, match="at most 1,920,000 are decoded"):
        decoders.load_audio(wide, RATE)


def test_a_table_of_packets_takes_no_memory(decoders: DecodePool, tmp_path: Path) -> None:
    """Of 80 million packets, for which ffmpeg would take 2.9 GB."""
    path = greedy_m4a(tmp_path / "a.m4a", 80_000_000)
    assert path.stat().st_size < 30_000
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            for child in children():
                for process in (child, *children(child)):
                    peak = max(peak, resident(process))

    watcher = threading.Thread(target=watch)
    watcher.start()
    for load in (decoders.load_audio, load_audio):
        with pytest.raises(BadAudioError):
            load(path, RATE)
    done.set()
    watcher.join()
    assert peak < 300e6


def test_a_decoder_that_takes_too_long_is_ended_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_reads(tmp_path, monkeypatch)
    path = encode(tmp_path / "a.flac", "sine=440:duration=1")
    with DecodePool(DecodeLimits(10.0, decode_seconds=1.0)) as pool:
        with pytest.raises(BadAudioError, match="not decoded within 1 s, which is the limit"):
            pool.load_audio(path, RATE)
        monkeypatch.undo()
        assert len(pool.load_audio(path, RATE)) == RATE


@pytest.mark.slow
def test_processor_time_is_limited_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'voxline.audio.decode_pool' in sys.orig_argv:\n"
        "    import soundfile\n"
        "    def spin(*_, **__):\n"
        "        while True: pass\n"
        "    soundfile.SoundFile.read = spin\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    poll = Connection.poll
    monkeypatch.setattr(Connection, "poll", lambda pipe, _: poll(pipe, None))  # waits for ever
    path = encode(tmp_path / "a.flac", "sine=440:duration=1")
    with (
        DecodePool(DecodeLimits(10.0, decode_seconds=1.0)) as pool,
        pytest.raises(BadAudioError, match="takes more than 1 s of processor time"),
    ):
        pool.load_audio(path, RATE)


def test_memory_of_a_worker_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'voxline.audio.decode_pool' in sys.orig_argv:\n"
        "    import soundfile\n"
        "    soundfile.SoundFile.read = lambda *_, **__: bytearray(1 << 30)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = encode(tmp_path / "a.flac", "sine=440:duration=1")
    with DecodePool(LIMITS) as pool, pytest.raises(BadAudioError, match="needs more memory than the 130 MB") as caught:
        pool.load_audio(path, RATE)
    assert caught.value.reason == Reason.OUT_OF_MEMORY


def test_cancelled_work_ends_its_decoder_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_reads(tmp_path, monkeypatch)
    path = encode(tmp_path / "a.flac", "sine=440:duration=1")
    cancellation, ended = Cancellation(), threading.Event()

    def work(pool: DecodePool) -> None:
        with pytest.raises(WorkCancelledError), cancellation.active():
            pool.load_audio(path, RATE)
        ended.set()

    with DecodePool(LIMITS) as pool:
        before = children()
        thread = threading.Thread(target=work, args=(pool,))
        thread.start()
        wait_until(lambda: len(children()) > len(before), "a worker")
        time.sleep(0.5)
        cancellation.cancel()
        assert ended.wait(20)
        thread.join()
        assert children() == before
        monkeypatch.undo()
        assert len(pool.load_audio(path, RATE)) == RATE


def taken_over(monkeypatch: pytest.MonkeyPatch) -> tuple[decode_pool._Decoder, Connection]:
    """A decoder, and the end of its pipe on which a test sends what a worker of ours never would."""
    decoder = decode_pool._Decoder()
    ours, theirs = multiprocessing.Pipe()
    monkeypatch.setattr(decoder, "_pipe", ours)
    return decoder, theirs


def test_a_message_that_is_too_long_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that a hostile recording controls might send this: `-1`, and a length of one tebibyte."""
    decoder, theirs = taken_over(monkeypatch)
    os.write(theirs.fileno(), struct.pack("!iQ", -1, 1 << 40))
    with pytest.raises(BadAudioError, match="decoding it"):
        decoder._receive(10)


def test_a_message_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a message arrives, and the decoder, whose end would close the pipe, continues."""
    decoder, theirs = taken_over(monkeypatch)
    monkeypatch.setattr(decoder._process, "kill", theirs.close)
    os.write(theirs.fileno(), struct.pack("!i", 100) + b"x" * 50)
    with pytest.raises(BadAudioError, match="decoding it"):
        decoder._receive(0.2)


def test_an_answer_that_is_repeated_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that a hostile recording controls might answer for ever."""
    decoder, theirs = taken_over(monkeypatch)
    monkeypatch.setattr(decoder, "_send", lambda request: None)
    for _ in range(2):
        theirs.send_bytes(json.dumps({"index": 0, "reason": Reason.SILENT, "detail": ""}).encode())
    with pytest.raises(BadAudioError, match="something else than samples"):
        list(decoder.decode({"sample_rate": RATE}, 1, LIMITS))


def test_an_idle_worker_that_was_killed_loses_no_recording(tmp_path: Path) -> None:
    path = encode(tmp_path / "a.flac", "sine=440:duration=1")
    with DecodePool(LIMITS) as pool:
        before = set(children())
        pool.load_audio(path, RATE)
        (worker,) = set(children()) - before
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: pool._idle[0].has_ended, "its end")
        assert len(pool.load_audio(path, RATE)) == RATE


def test_workers_and_ffmpeg_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    """In the middle of a decode: the worker's ffmpeg waits for a FIFO, and would do so for ever."""
    script = (
        "import sys\n"
        "from voxline.audio import ffmpeg\n"
        "from voxline.audio.decode_pool import DecodePool\n"
        "DecodePool().load_audio(sys.argv[1], 16000)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'voxline.audio.decode_pool' in sys.orig_argv:\n"
        "    from voxline.audio import ffmpeg\n"
        f"    ffmpeg.find_ffmpeg = lambda: {str(tmp_path / 'ffmpeg')!r}\n"
    )
    (tmp_path / "ffmpeg").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "ffmpeg").chmod(0o755)
    path = encode(tmp_path / "a.m4a", "sine=440:duration=1")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])}
    parent = subprocess.Popen([sys.executable, "-c", script, str(path)], env=environment)
    wait_until(lambda: any(children(worker) for worker in children(parent.pid)), "ffmpeg")
    (worker,) = children(parent.pid)
    (ffmpeg,) = children(worker)
    parent.kill()
    parent.wait()
    wait_until(lambda: not (is_running(worker) or is_running(ffmpeg)), "the end of the worker and its ffmpeg")


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False

"""Long recordings: bounded memory, one decode for all segments, limits. And recordings without a header."""

import json
import resource
import subprocess
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import soundfile

from tests.convert.conftest import manifest_of, utterance
from tests.convert.zoo import RATE, speech
from voxline.audio.decoding import BadAudioError, decode_audio, load_audio
from voxline.audio.process_pool import map_in_processes
from voxline.audio.wav import read_wav
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run as ingest
from voxline.data.manifest import Utterance, read_manifest, read_rejects


def _peak_megabytes(path: str) -> tuple[str, float, float]:
    """The reason why a recording is rejected, and the most memory that this process and its decoder ever had."""
    try:
        load_audio(path, RATE, max_seconds=60)
        reason = ""
    except BadAudioError as fault:
        reason = str(fault.reason)
    # Not ru_maxrss for this process: Linux counts the process that started it, too.
    own = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1_024
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1_024
    return reason, own, children


@pytest.mark.slow
def test_hours_of_silence_in_a_small_file_cost_no_memory_and_are_too_long(tmp_path: Path) -> None:
    """Each would take 345 MB as samples."""
    files = [tmp_path / "silence.mka", tmp_path / "silence.flac"]
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error"]
    silence = ["-f", "lavfi", "-i", "anullsrc=r=48000:cl=stereo", "-t", "1800", "-c:a", "flac"]
    subprocess.run([*ffmpeg, *silence, "-compression_level", "0", files[0]], check=True)
    subprocess.run([*ffmpeg, "-i", files[0], "-c", "copy", files[1]], check=True)
    content = bytearray(files[1].read_bytes())
    content[21] &= 0xF0
    content[22:26] = bytes(4)  # the length is not stated, as in a FLAC that was streamed
    files[1].write_bytes(content)
    results = dict(map_in_processes(_peak_megabytes, [str(file) for file in files], 1, 3_600))
    for reason, own, decoder in results.values():
        assert (reason, own < 200, decoder < 200) == ("too_long", True, True)


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """20 s in an m4a, whose length ingest does not know."""
    soundfile.write(tmp_path / "talk.wav", speech(20), RATE)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", tmp_path / "talk.wav", tmp_path / "talk.m4a"]
    subprocess.run(command, check=True)
    soundfile.write(tmp_path / "good.wav", speech(1), RATE)
    return tmp_path / "talk.m4a"


def segments_of(talk: Path) -> list[Utterance]:
    """Segments of a talk, in no order, some of which overlap; the last two lie beyond its end, or exceed it."""
    times = [(6.0, 2.0), (0.0, 1.5), (7.0, 3.0), (3.25, 0.5), (18.0, 2.05), (0.5, 12.0), (25.0, 1.0), (19.5, 1.0)]
    return [utterance(talk, id=f"{start:g}", offset=start, duration=length) for start, length in times]


@pytest.fixture
def decodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each start of ffmpeg, in whatever process."""
    count = tmp_path / "decodes"
    script = tmp_path / "ffmpeg"
    script.write_text(f'#!/bin/sh\necho 1 >> "{count}"\nexec "{imageio_ffmpeg.get_ffmpeg_exe()}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(script))
    return count


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["processes", "FnApiRunner"])
def test_segments_of_a_recording_are_cut_from_one_decode(
    talk: Path, tmp_path: Path, decodes: Path, runner: str
) -> None:
    whole = decode_audio(talk).samples[:, 0]
    decodes.unlink()
    manifest = manifest_of(tmp_path / "in", segments_of(talk))
    settings = ConvertSettings(max_reject_share=1, runner=runner, beam_from_megabytes=0, workers=2)
    work = run(manifest, tmp_path / "store", settings)
    assert decodes.read_text() == "1\n"
    assert {one.id: str(one.reason) for one in read_rejects(work.folder)} == {"25": "bad_entry", "19.5": "bad_entry"}
    converted = list(read_manifest(work.folder))
    assert len(converted) == 6
    lengths = {one.id: one.duration for one in segments_of(talk)}
    for one in converted:
        start, length = float(one.id) * RATE, lengths[one.id] * RATE
        np.testing.assert_array_equal(
            read_wav(Path(one.audio_filepath))[0], whole[round(start) : round(start + length)]
        )
    for number, wav in enumerate(sorted((tmp_path / "store" / "wavs").glob("??/*.wav"))):
        if number % 2:
            wav.unlink()  # as if a run had been killed
    assert run(manifest, tmp_path / "store", settings).counts == work.counts | {"decoded": 3}
    assert decodes.read_text() == "1\n1\n", "what is gone is decoded again, at once"


def test_no_segment_of_a_damaged_recording_is_kept(talk: Path, tmp_path: Path) -> None:
    """ffmpeg leaves the damaged part out, which moves all that follows."""
    content = bytearray(talk.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 300] = bytes(300)
    talk.write_bytes(content)
    manifest = manifest_of(tmp_path / "in", [utterance(tmp_path / "good.wav"), *segments_of(talk)])
    work = run(manifest, tmp_path / "store", ConvertSettings(max_reject_share=1))
    rejects = list(read_rejects(work.folder))
    assert len(rejects) == 8
    assert {str(one.reason) for one in rejects} == {"unreadable"}
    assert len(list((tmp_path / "store" / "wavs").glob("??/*.wav"))) == 1


@pytest.mark.slow
def test_a_recording_that_needs_too_much_memory_is_the_only_one_lost(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "long.wav", np.tile(speech(1), 600), RATE)
    soundfile.write(tmp_path / "short.wav", speech(1), RATE)
    manifest = manifest_of(tmp_path / "in", [utterance(tmp_path / "long.wav"), utterance(tmp_path / "short.wav")])
    settings = ConvertSettings(max_reject_share=1, max_seconds=3_600, worker_memory_megabytes=30)
    work = run(manifest, tmp_path / "store", settings)
    [reject] = read_rejects(work.folder)
    assert (reject.id, str(reject.reason)) == ("long.wav", "out_of_memory")
    assert "convert.worker_memory_megabytes allows 30 MB" in reject.detail
    assert run(manifest, tmp_path / "store", settings).reused
    for limit, rejects, reused in ((20, 1, True), (1_024, 0, False), (0, 0, True)):
        changed = settings.model_copy(update={"worker_memory_megabytes": limit})
        again = run(manifest, tmp_path / "store", changed)
        assert (again.key, again.counts["rejects"], again.reused) == (work.key, rejects, reused)


@pytest.mark.slow
def test_more_seconds_are_decoded_where_an_earlier_limit_stopped(talk: Path, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path / "in", [utterance(talk), utterance(tmp_path / "good.wav")])
    for limit, rejected in ((5, 1), (3, 1), (30, 0)):
        work = run(manifest, tmp_path / "store", ConvertSettings(max_reject_share=1, max_seconds=limit))
        assert work.counts["rejects"] == rejected
        assert all(one.reason == "too_long" for one in read_rejects(work.folder))


@pytest.mark.slow
@pytest.mark.parametrize(("sample_format", "dtype"), [("s16le", "<i2"), ("s16be", ">i2"), ("f32le", "<f4")])
def test_recordings_without_a_header_are_read_where_the_config_describes_them(
    tmp_path: Path, sample_format: str, dtype: str
) -> None:
    samples = speech(1)
    values = samples if dtype == "<f4" else np.rint(32_768 * samples)
    (tmp_path / "corpus").mkdir()
    for name in ("a.raw", "b.PCM"):
        (tmp_path / "corpus" / name).write_bytes(values.astype(dtype).tobytes())
    soundfile.write(tmp_path / "corpus" / "good.wav", speech(2), RATE)
    lines = [{"audio_filepath": name, "text": "hello", "split": "train"} for name in ("a.raw", "b.PCM", "good.wav")]
    (tmp_path / "corpus" / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    corpus = {"uri": str(tmp_path / "corpus"), "format": "manifest", "split": {"by": "utterance", "dev": 0, "test": 0}}
    described = {"sample_rate": RATE, "sample_format": sample_format}
    for raw, count in (({}, 0), (described, 2), ({**described, "sample_rate": 2 * RATE}, 2)):
        read = ingest(tmp_path / "store", CorpusSettings.of({**corpus, "raw": raw}))
        work = run(read.folder, tmp_path / "store", ConvertSettings(max_reject_share=1))
        assert (work.counts["utterances"], work.counts["rejects"]) == (count + 1, 2 - count)
        for one in read_manifest(work.folder):
            if one.id == "good.wav":
                continue
            heard, _ = read_wav(Path(one.audio_filepath))
            assert len(heard) * raw["sample_rate"] == pytest.approx(len(samples) * RATE, abs=RATE)
            assert raw["sample_rate"] != RATE or np.abs(heard - 32_768 * samples).max() <= 1
            assert "raw_format" not in one.extra
        assert all("corpus.raw.sample_rate" in one.detail for one in read_rejects(work.folder))

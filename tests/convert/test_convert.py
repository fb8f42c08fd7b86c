"""convert on real files: every utterance is output or reject, and nothing is done twice."""

import hashlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.convert.conftest import RECORDINGS, TRANSCRIPTS, good_flac, manifest_of, speech, utterance
from voxline.audio.wav import read_wav
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
from voxline.data.manifest import NEGATIVE, Utterance, read_manifest, read_rejects
from voxline.errors import SettingsError, WorkError

SETTINGS = ConvertSettings(max_reject_share=1.0, max_seconds=10, workers=2)


def test_every_kind_of_bad_recording_is_a_reject_with_its_reason(recordings: Path, tmp_path: Path) -> None:
    utterances = [utterance(recordings / name) for name in RECORDINGS]
    utterances += [utterance(recordings / "good.flac", text, id=repr(text)) for text in TRANSCRIPTS]
    work = run(manifest_of(tmp_path / "in", utterances), tmp_path / "store", SETTINGS)
    expected = {name: reason for name, (reason, _) in RECORDINGS.items()}
    expected |= {repr(text): reason for text, reason in TRANSCRIPTS.items()}
    rejects = read_rejects(work.folder)
    assert {reject.id: reject.reason for reject in rejects} == {name: why for name, why in expected.items() if why}
    assert [out.id for out in read_manifest(work.folder)] == [name for name, why in expected.items() if not why]
    assert all(reject.detail for reject in rejects)
    assert work.counts["utterances"] + work.counts["rejects"] == len(utterances)
    details = {reject.id: reject.detail for reject in rejects}
    assert "'ï' (U+00EF" in details["'naïve 7'"]
    assert "'7' (U+0037" in details["'naïve 7'"]


@given(st.lists(st.tuples(st.sampled_from(sorted(RECORDINGS)), st.sampled_from(["Yes", *TRANSCRIPTS])), min_size=1))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_utterance_is_output_or_reject(
    recordings: Path, tmp_path_factory: pytest.TempPathFactory, chosen: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("in")
    store = tmp_path_factory.getbasetemp() / "one store"
    utterances = [utterance(recordings / name, text, id=str(n)) for n, (name, text) in enumerate(chosen)]
    manifest_of(folder, utterances)
    try:
        work = run(folder, store, SETTINGS)
        done = work.folder
    except WorkError as error:  # all of them are bad
        done = Path(str(error).rpartition("all of them: ")[2]).parent
    kept, rejected = read_manifest(done), read_rejects(done)
    assert Counter([u.id for u in kept] + [r.id for r in rejected]) == Counter(u.id for u in utterances)
    assert all(read_wav(Path(u.audio_filepath))[1] == 16_000 for u in kept)


def test_librispeech_is_converted_bit_for_bit(real_data: Path, tmp_path: Path) -> None:
    files = sorted((real_data / "LibriSpeech").rglob("*.flac"))
    work = run(manifest_of(tmp_path / "in", map(utterance, files)), tmp_path / "store", ConvertSettings())
    converted = read_manifest(work.folder)
    assert [out.id for out in converted] == [file.name for file in files]
    for file, out in zip(files, converted, strict=True):
        samples, rate = read_wav(Path(out.audio_filepath))
        expected, _ = soundfile.read(file, dtype="int16")
        np.testing.assert_array_equal(samples, expected)
        assert out.duration == len(expected) / rate
        assert out.text == "hello"
        assert Path(out.audio_filepath).stem == out.audio_hash


def test_measurements_describe_the_wav(tmp_path: Path) -> None:
    samples = np.concatenate([np.zeros(8_000), np.tile([0.5, -0.5], 3_600), np.ones(800)])
    soundfile.write(tmp_path / "a.wav", samples, 16_000)
    work = run(manifest_of(tmp_path / "in", [utterance(tmp_path / "a.wav")]), tmp_path / "store", SETTINGS)
    [out] = read_manifest(work.folder)
    pcm, _ = read_wav(Path(out.audio_filepath))
    assert out.measured == {
        "peak_db": 0.0,
        "rms_db": round(10 * np.log10((7_200 * 0.25 + 800) / 16_000), 2),
        "clipped_share": 0.05,
        "silence_share": 0.5,
        "pcm_hash": hashlib.md5(pcm.tobytes(), usedforsecurity=False).hexdigest(),
    }


def test_equal_samples_have_the_same_pcm_hash_in_any_format(tmp_path: Path) -> None:
    samples = np.random.default_rng(3).integers(-9_000, 9_000, 16_000).astype(np.int16)
    soundfile.write(tmp_path / "a.flac", samples, 16_000)
    soundfile.write(tmp_path / "b.wav", samples, 16_000)
    soundfile.write(tmp_path / "c.flac", np.stack([samples, samples], axis=1), 16_000)
    soundfile.write(tmp_path / "d.flac", samples, 16_000, subtype="PCM_24")
    soundfile.write(tmp_path / "e.flac", samples[::-1], 16_000)
    manifest = manifest_of(tmp_path, [utterance(file) for file in sorted(tmp_path.glob("*.*"))])
    work = run(manifest, tmp_path / "store", SETTINGS)
    names = [one.measured["pcm_hash"] for one in read_manifest(work.folder)]
    assert names[:4] == [hashlib.md5(samples.tobytes(), usedforsecurity=False).hexdigest()] * 4
    assert names[4] != names[0]


def test_each_segment_of_a_recording_has_its_own_wav(tmp_path: Path) -> None:
    samples = speech(3)
    soundfile.write(tmp_path / "long.flac", samples, 16_000)
    source = utterance(tmp_path / "long.flac", duration=1.0)
    segments = [source.replace(id=f"{n}", offset=float(n)) for n in range(3)]
    work = run(manifest_of(tmp_path / "in", segments), tmp_path / "store", SETTINGS)
    whole, _ = soundfile.read(tmp_path / "long.flac", dtype="int16")
    pieces = [read_wav(Path(out.audio_filepath))[0] for out in read_manifest(work.folder)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    assert all(out.offset == 0 and out.duration == 1 for out in read_manifest(work.folder))


class TestWorkIsNotDoneTwice:
    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Path:
        folder = tmp_path / "corpus"
        folder.mkdir()
        for n in range(5):
            good_flac(folder / f"{n}.flac", seed=n)
        (folder / "5.flac").write_bytes(b"noise")
        return folder

    def convert(self, corpus: Path, text: str = "Hello", **more: object) -> dict[str, int]:
        files = sorted(corpus.glob("*.flac"))
        manifest = manifest_of(corpus.parent / "in", [utterance(file, text) for file in files])
        work = run(manifest, corpus.parent / "store", SETTINGS.model_copy(update=more))
        return {"decoded": work.counts["decoded"], "utterances": work.counts["utterances"], "reused": work.reused}

    def test_the_same_work_is_found_done(self, corpus: Path) -> None:
        assert self.convert(corpus) == {"decoded": 6, "utterances": 5, "reused": False}
        assert self.convert(corpus)["reused"]
        assert self.convert(corpus, workers=1)["reused"], "the number of processes is not part of the key"

    def test_a_corrected_transcript_costs_no_audio_work_even_with_the_sources_gone(self, corpus: Path) -> None:
        self.convert(corpus)
        wavs = {file: file.stat().st_mtime_ns for file in (corpus.parent / "store" / "wavs").rglob("*.wav")}
        assert self.convert(corpus, "Bye") == {"decoded": 0, "utterances": 5, "reused": False}
        assert {file: file.stat().st_mtime_ns for file in wavs} == wavs

    def test_other_limits_cost_no_audio_work(self, corpus: Path) -> None:
        self.convert(corpus)
        assert self.convert(corpus, min_seconds=0.9)["decoded"] == 0
        assert self.convert(corpus, silence_db=-50.0)["utterances"] == 5

    def test_a_changed_recording_is_the_only_one_decoded(self, corpus: Path) -> None:
        self.convert(corpus)
        good_flac(corpus / "3.flac", seed=99)
        assert self.convert(corpus) == {"decoded": 1, "utterances": 5, "reused": False}

    def test_a_renamed_or_touched_recording_is_not_decoded(self, corpus: Path) -> None:
        self.convert(corpus)
        (corpus / "3.flac").rename(corpus / "new name.flac")
        os.utime(corpus / "1.flac", (1, 1))
        assert self.convert(corpus)["decoded"] == 0

    def test_the_same_recording_twice_is_decoded_once(self, corpus: Path) -> None:
        shutil.copy(corpus / "0.flac", corpus / "copy.flac")
        assert self.convert(corpus) == {"decoded": 6, "utterances": 6, "reused": False}

    def test_another_rate_is_another_wav(self, corpus: Path) -> None:
        self.convert(corpus)
        assert self.convert(corpus, sample_rate=8_000)["decoded"] == 6
        assert len(list((corpus.parent / "store" / "wavs").rglob("*.wav"))) == 10

    def test_a_wav_that_is_gone_or_cut_is_made_again(self, corpus: Path) -> None:
        self.convert(corpus)
        gone, cut, *_ = (corpus.parent / "store" / "wavs").rglob("*.wav")
        whole = cut.read_bytes()
        gone.unlink()
        cut.write_bytes(whole[:1_000])
        assert self.convert(corpus, "Bye")["decoded"] == 2
        assert gone.is_file()
        assert cut.read_bytes() == whole

    def test_finished_work_whose_wavs_or_manifest_are_gone_is_not_reused(self, corpus: Path) -> None:
        self.convert(corpus)
        store = corpus.parent / "store"
        gone, cut, *_ = sorted((store / "wavs").rglob("*.wav"))
        gone.unlink()
        cut.write_bytes(cut.read_bytes()[:-2])
        assert self.convert(corpus) == {"decoded": 2, "utterances": 5, "reused": False}
        [manifest] = (store / "convert").glob("*/manifest.jsonl")
        manifest.unlink()
        assert self.convert(corpus) == {"decoded": 0, "utterances": 5, "reused": False}
        assert self.convert(corpus)["reused"]

    def test_a_log_cut_short_by_a_kill_is_passed_over_and_continued(self, corpus: Path) -> None:
        self.convert(corpus)
        [log] = (corpus.parent / "store" / "wavs" / "log").glob("*.jsonl")
        log.write_bytes(log.read_bytes()[:-30])
        [done] = (corpus.parent / "store" / "convert").glob("*/done.json")
        done.unlink()
        again = self.convert(corpus)
        assert again["utterances"] == 5
        assert again["decoded"] <= 1
        assert sum(line.startswith(b'{"wav"') and line.endswith(b"}}") for line in log.read_bytes().splitlines()) >= 4


def test_a_recording_that_changed_since_ingest_stops_the_step_and_says_what_to_do(tmp_path: Path) -> None:
    for n in range(3):
        good_flac(tmp_path / f"{n}.flac", seed=n)
    manifest = manifest_of(tmp_path / "in", [utterance(tmp_path / f"{n}.flac") for n in range(3)])
    good_flac(tmp_path / "1.flac", seed=9)
    with pytest.raises(WorkError, match=r"1 recordings changed .* run ingest again.*1\.flac"):
        run(manifest, tmp_path / "store", SETTINGS)
    assert not list((tmp_path / "store").rglob("done.json"))


def test_a_recording_that_the_system_cannot_read_stops_the_step_by_its_id(tmp_path: Path) -> None:
    unreadable = Utterance("take-1", "/proc/self/mem", 1.0, "Hello.")
    with pytest.raises(WorkError, match=r"take-1: /proc/self/mem cannot be read \(.+\); fix"):
        run(manifest_of(tmp_path, [unreadable]), tmp_path / "store", SETTINGS)


def test_a_missing_recording_that_comes_back_is_converted(tmp_path: Path) -> None:
    for n in range(2):
        good_flac(tmp_path / f"{n}.flac", seed=n)
    manifest = manifest_of(tmp_path / "in", [utterance(tmp_path / f"{n}.flac") for n in range(2)])
    (tmp_path / "1.flac").rename(tmp_path / "elsewhere")
    assert run(manifest, tmp_path / "store", SETTINGS).counts["rejects"] == 1
    (tmp_path / "elsewhere").rename(tmp_path / "1.flac")
    assert run(manifest, tmp_path / "store", SETTINGS).counts["rejects"] == 0


def test_too_many_rejects_fail_the_step_and_leave_the_list(recordings: Path, tmp_path: Path) -> None:
    names = ["good.flac", "good.wav", "noise.flac"]
    manifest = manifest_of(tmp_path / "in", [utterance(recordings / name) for name in names])
    with pytest.raises(WorkError, match="1 of 3 utterances were rejected") as caught:
        run(manifest, tmp_path / "store", ConvertSettings(max_reject_share=0.3))
    assert read_rejects(Path(str(caught.value).rpartition("all of them: ")[2]))[0].id == "noise.flac"


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"alphabet": "aab"}, "'alphabet' is 'aab'.*repeated: 'a'"),
        ({"min_seconds": 5, "max_seconds": 2}, r"min_seconds \(5\) must be below max_seconds \(2\)"),
        ({"sample_rat": 8000}, "did you mean 'sample_rate'"),
    ],
)
def test_settings_that_cannot_work_are_refused(given_: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ConvertSettings.of(json.dumps(given_), "convert")


def test_float_samples_beyond_full_scale_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peaks = {"loud": 1.5, "full": 1.0, "quiet": 0.5}
    for name, peak in peaks.items():
        samples = speech()
        soundfile.write(tmp_path / f"{name}.wav", samples * peak / np.abs(samples).max(), 16_000, subtype="FLOAT")
    manifest = manifest_of(tmp_path / "in", [utterance(tmp_path / f"{name}.wav", "Hello.") for name in peaks])
    work = run(manifest, tmp_path / "store", SETTINGS)
    assert work.counts["clipped"] == 1
    assert "1 of 3 utterances have float samples beyond full scale" in capsys.readouterr().out
    assert [out.measured.get("clipped_from") for out in read_manifest(work.folder)] == [1.5, None, None]


def test_recordings_in_which_nobody_speaks_are_accepted_within_a_share(tmp_path: Path) -> None:
    utterances = []
    for number in range(10):
        good_flac(tmp_path / f"{number}.flac", seed=number)
        utterances.append(utterance(tmp_path / f"{number}.flac", "" if number < 2 else "Hello."))
    manifest = manifest_of(tmp_path / "in", utterances)
    enough = SETTINGS.model_copy(update={"max_negative_share": 0.2})
    work = run(manifest, tmp_path / "store", enough)
    assert work.counts["negatives"] == 2
    converted = read_manifest(work.path("manifest"))
    assert [one.text for one in converted] == ["", "", *8 * ["hello"]]
    assert [one.extra.get(NEGATIVE) for one in converted] == [True, True, *8 * [None]]

    with pytest.raises(WorkError, match=r"2 of 10 utterances \(20\.0%\) have no transcript, at most 10\.0%"):
        run(manifest, tmp_path / "store", SETTINGS.model_copy(update={"max_negative_share": 0.1}))
    with pytest.raises(WorkError, match=r"2 of 10"):
        run(manifest, tmp_path / "store", SETTINGS.model_copy(update={"max_reject_share": 0.1}))


def test_counts_of_lines_that_are_reused_stay(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "loud.wav", 1.5 * speech() / np.abs(speech()).max(), 16_000, subtype="FLOAT")
    good_flac(tmp_path / "good.flac")

    # Several pieces of lines, of which the second run changes the last.
    texts = ["" if number % 10 == 0 else "Hello." for number in range(300)]
    names = ["loud.wav" if number % 7 == 0 else "good.flac" for number in range(300)]
    utterances = [
        utterance(tmp_path / name, text).replace(id=f"u{number:03}")
        for number, (name, text) in enumerate(zip(names, texts, strict=True))
    ]
    some = SETTINGS.model_copy(update={"max_negative_share": 0.2})
    run(manifest_of(tmp_path / "first", utterances), tmp_path / "store", some)

    corrected = [*utterances[:-1], utterances[-1].replace(text="Good-bye.")]
    manifest = manifest_of(tmp_path / "second", corrected)
    refreshed = run(manifest, tmp_path / "store", some)
    fresh = run(manifest, tmp_path / "another", some)
    expected = {"utterances": 300, "negatives": 30, "clipped": 43}
    assert {name: refreshed.counts[name] for name in expected} == expected
    assert {name: fresh.counts[name] for name in expected} == expected
    assert refreshed.path("manifest").read_bytes() == fresh.path("manifest").read_bytes()

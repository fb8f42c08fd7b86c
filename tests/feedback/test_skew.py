"""Training/serving skew: a telephone is named, the training data itself is not, and neither is a single caller."""

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import Result
from typer.testing import CliRunner

from tests.feedback.judged_model import Samples, push_judged, sentences
from voxline.audio.decoding import resample
from voxline.audio.profile import audio_profile
from voxline.data.manifest import Utterance, write_manifest
from voxline.errors import SettingsError, WorkError
from voxline.feedback.captures import CapturedClip, CaptureStore
from voxline.feedback.skew import SKEW_THRESHOLDS, RecordingFeatures, chance_distances, measure_skew
from voxline.pipelines.cli.main import app
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, TrainingData

RATE = 16_000
SPEAKERS = 6
WIDE = ["4000-6000 Hz", "6000-8000 Hz"]


def spoken(words: list[str], seed: int, gain: float = 1.0) -> Samples:
    """Noise in bursts like syllables, a third of a second for each word, between pauses; its spectrum falls."""
    random = np.random.default_rng(seed)
    count = int(RATE * (0.3 * len(words) + 0.3 * random.random() + 0.2))
    noise = np.convolve(random.standard_normal(count + 2), [0.5, 0.3, 0.2], "valid")
    bursts = 0.001 + np.abs(np.sin(2 * np.pi * 1.7 * np.arange(count) / RATE)) ** 3
    level = gain * 0.08 * random.uniform(0.7, 1.4)
    return np.clip(level * noise * bursts, -1, 1).astype(np.float32)


def telephone(samples: Samples) -> Samples:
    """What is left of a recording after a line of 8 kHz."""
    return resample(resample(samples, RATE, 8_000), 8_000, RATE).astype(np.float32)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with a version in service, beside the 300 recordings that it was trained on and 20 that it was not."""
    folder = tmp_path_factory.mktemp("skew")
    push_judged(folder / "registry", folder / "model", {})
    utterances = []
    (folder / "wavs").mkdir()
    for number, words in enumerate(sentences(320, seed=3)):
        # Half of the speakers are loud.
        samples = spoken(words, number, gain=3.0 if number % 2 else 1.0)
        file = folder / "wavs" / f"{number}.wav"
        soundfile.write(file, samples, RATE, subtype="PCM_16")
        speaker = f"s{number % SPEAKERS}"
        seconds = len(samples) / RATE
        utterances.append(
            Utterance(f"u{number}", str(file), seconds, " ".join(words), speaker, "train", audio_hash=f"{number:08x}")
        )
    write_manifest(folder / "manifest.jsonl", utterances)
    lines = [
        {"id": one.id, "split": "train", "speaker": one.speaker, "audio_hash": one.audio_hash, "offset": 0.0,
         "duration": one.duration, "text_hash": ""}
        for one in utterances[:300]
    ]  # fmt: skip
    TrainingData("d", "r", 0, lines).write(folder / "registry" / "asr" / "1" / TRAINED_ON)
    return folder


def kept(root: Path, location: Path, texts: list[list[str]], waveforms: list[Samples], speaker: str = "") -> None:
    """What `serve --capture` would have kept."""
    registry, store = Registry(root / "registry", "asr"), CaptureStore(location)
    store.prepare()
    for number, (words, samples) in enumerate(zip(texts, waveforms, strict=True)):
        file = io.BytesIO()
        soundfile.write(file, samples, RATE, format="FLAC", subtype="PCM_16")
        clip = CapturedClip(
            f"capture-{number:016x}", "asr", 1, registry.event(1).digest, "2026-11-23T18:00:00Z", "2999-01-01",
            "yes", len(samples) / RATE, " ".join(words), 0.9, [], "",
            **dataclasses.asdict(audio_profile(samples, RATE)), speaker=speaker,
        )  # fmt: skip
        store.write(clip, file.getvalue())


def run(root: Path, captures: Path, *more: str) -> Result:
    command = ["watch", "asr", "--registry", str(root / "registry"), "--captures", str(captures)]
    return CliRunner().invoke(app, [*command, "--train", str(root / "manifest.jsonl"), *more])


def test_the_trainings_own_kind_of_audio_is_no_skew(root: Path, tmp_path: Path) -> None:
    texts = sentences(120, seed=9)
    gains = [3.0 if number % 2 else 1.0 for number in range(120)]
    kept(root, tmp_path, texts, [spoken(words, 1000 + at, gains[at]) for at, words in enumerate(texts)])
    skew = json.loads(run(root, tmp_path, "--json").output)["skew"]
    assert (skew["clips"], skew["recordings"], skew["trained_on"], skew["measured_by"]) == (120, 300, 300, "Voxline")
    assert skew["skewed"] == []
    assert {feature["feature"] for feature in skew["features"]} == set(SKEW_THRESHOLDS)
    assert {feature["measure"] for feature in skew["features"]} == {"Jensen-Shannon", "L-infinity"}


def test_a_telephone_louder_and_longer_is_told_by_name(root: Path, tmp_path: Path) -> None:
    texts = [[*words, *more] for words, more in zip(sentences(60, seed=9), sentences(60, seed=10), strict=True)]
    kept(root, tmp_path / "c", texts, [telephone(spoken(words, 1000 + at, 9)) for at, words in enumerate(texts)])
    page = tmp_path / "skew.html"
    result = run(root, tmp_path / "c", "--json", "--report", str(page))
    assert result.exit_code == 3, result.output
    skew = json.loads(result.output)["skew"]
    assert {"duration", "labels", "level", *WIDE} <= set(skew["skewed"])
    assert "tokens" not in skew["skewed"]
    written = page.read_text(encoding="utf-8")
    assert "Skew of" in written
    assert "4000-6000 Hz (dB): median" in written
    assert "seven" not in written, "words of callers, which expire"
    table = run(root, tmp_path / "c").output
    assert "60 clips, beside 300 of 300 recordings of the training (Voxline)" in table
    assert [line for line in table.splitlines() if line.startswith("4000-6000 Hz ")][-1].endswith("skewed")


def test_one_clip_of_nothing_is_no_skew(root: Path, tmp_path: Path) -> None:
    """One that is far from all others widens the histograms of the others."""
    texts = sentences(80, seed=9)
    waveforms = [spoken(words, 1000 + at, 3.0 if at % 2 else 1) for at, words in enumerate(texts)]
    waveforms[7] = np.zeros(30 * RATE, np.float32)
    kept(root, tmp_path, texts, waveforms)
    assert measure_skew(root / "registry", "asr", tmp_path, root / "manifest.jsonl").skewed == []


def test_other_words_are_told(root: Path, tmp_path: Path) -> None:
    texts = [["goodbye", *words[1:]] for words in sentences(60, seed=9)]
    kept(root, tmp_path, texts, [spoken(words, 1000 + at, 3.0 if at % 2 else 1) for at, words in enumerate(texts)])
    skewed = measure_skew(root / "registry", "asr", tmp_path, root / "manifest.jsonl").skewed
    assert "tokens" in skewed
    assert "level" not in skewed


def test_one_loud_caller_is_no_skew_and_sixty_are(root: Path, tmp_path: Path) -> None:
    """Half of the speakers are loud, so one loud caller is nothing new; sixty of sixty are."""
    texts = sentences(60, seed=9)
    waveforms = [spoken(words, 1000 + at, 3.0) for at, words in enumerate(texts)]
    levels = {}
    for speaker in ("p-7", ""):
        kept(root, tmp_path / f"c{speaker}", texts, waveforms, speaker)
        skew = measure_skew(root / "registry", "asr", tmp_path / f"c{speaker}", root / "manifest.jsonl")
        levels[speaker] = next(feature for feature in skew.features if feature.feature == "level")
    assert levels["p-7"].distance == levels[""].distance
    assert not levels["p-7"].skewed
    assert levels[""].skewed


@pytest.mark.parametrize(("speakers", "low", "high"), [([""], 0.0, 0.15), (["a"], 0.0, 0.15), (["a", "b"], 0.3, 1.0)])
def test_one_caller_is_one_speaker_of_the_training(speakers: list[str], low: float, high: float) -> None:
    """Of a training of one speaker, or of nobody in particular, a caller may have any recording."""
    random = np.random.default_rng(0)
    people = [speakers[row % len(speakers)] for row in range(400)]
    levels = np.array([random.normal(-30 + 20 * (person == "b"), 2) for person in people])
    training = RecordingFeatures({"level": levels}, [["a"]] * 400, people)
    serving = RecordingFeatures({"level": levels[:60]}, [["a"]] * 60, ["p-7"] * 60)
    assert low <= chance_distances(training, serving)["level"] <= high


def test_a_threshold_is_set_by_feature(root: Path, tmp_path: Path) -> None:
    texts = sentences(60, seed=9)
    kept(root, tmp_path, texts, [spoken(words, 1000 + at, 3.0) for at, words in enumerate(texts)])
    assert run(root, tmp_path, "--skew-threshold", "level=0.8", "--skew-threshold", "snr=0.8").output.endswith(
        "no skew\n"
    )
    for wrong, expected in (
        ("loudness=0.2", "--skew-threshold loudness: no feature; accepted: duration, labels"),
        ("level=2", r"--skew-threshold level=2: above 0 to 1 is accepted (bits)"),
        ("tokens=0", "(a difference of shares)"),
        ("level", "a feature and a number are accepted"),
    ):
        refused = run(root, tmp_path, "--skew-threshold", wrong)
        assert isinstance(refused.exception, SettingsError)
        assert expected in str(refused.exception)


def test_the_data_of_another_training_is_refused(root: Path, tmp_path: Path) -> None:
    texts = sentences(40, seed=9)
    kept(root, tmp_path / "c", texts, [spoken(words, at) for at, words in enumerate(texts)])
    line = (root / "manifest.jsonl").read_text().splitlines()[310]
    (tmp_path / "other.jsonl").write_text(line + "\n")
    with pytest.raises(SettingsError, match="version 1 of asr was trained on none of these 1 utterances"):
        measure_skew(root / "registry", "asr", tmp_path / "c", tmp_path / "other.jsonl")
    (tmp_path / "test.jsonl").write_text(line.replace('"train"', '"test"') + "\n")
    with pytest.raises(SettingsError, match="no utterances of the split train"):
        measure_skew(root / "registry", "asr", tmp_path / "c", tmp_path / "test.jsonl")


def test_a_recording_that_is_gone_is_named(root: Path, tmp_path: Path) -> None:
    texts = sentences(40, seed=9)
    kept(root, tmp_path / "c", texts, [spoken(words, at) for at, words in enumerate(texts)])
    line = json.loads((root / "manifest.jsonl").read_text().splitlines()[0])
    (tmp_path / "moved.jsonl").write_text(json.dumps(line | {"audio_filepath": "gone.wav"}) + "\n")
    with pytest.raises(WorkError, match=r"--train: utterance u0: .*gone\.wav"):
        measure_skew(root / "registry", "asr", tmp_path / "c", tmp_path / "moved.jsonl")


def test_few_clips_say_nothing_and_many_are_sampled(root: Path, tmp_path: Path) -> None:
    texts = sentences(40, seed=9)
    waveforms = [telephone(spoken(words, at)) for at, words in enumerate(texts)]
    kept(root, tmp_path / "few", texts[:29], waveforms[:29])
    few = run(root, tmp_path / "few", "--report", str(tmp_path / "few.html"))
    assert (few.exit_code, few.output.splitlines()[-1]) == (0, "too few clips to measure a skew")
    assert "Too few clips" in (tmp_path / "few.html").read_text()
    kept(root, tmp_path / "many", texts, waveforms)
    sampled = measure_skew(root / "registry", "asr", tmp_path / "many", root / "manifest.jsonl", count=35)
    assert (sampled.clips, sampled.recordings, sampled.trained_on) == (35, 35, 300)
    assert set(WIDE) <= set(sampled.skewed)


def test_numbers_that_differ_by_their_last_bit_are_equal(root: Path, tmp_path: Path) -> None:
    """Letters over seconds of one tempo: such a range has no room for buckets."""
    texts = sentences(40, seed=9)
    waveforms = [spoken(words, at)[: 1120 * len("".join(words))] for at, words in enumerate(texts)]
    waveforms = [
        np.resize(samples, 1120 * len("".join(words))) for samples, words in zip(waveforms, texts, strict=True)
    ]
    rates = {len("".join(words)) / (len(samples) / RATE) for samples, words in zip(waveforms, texts, strict=True)}
    assert len(rates) > 1
    assert max(rates) - min(rates) < 1e-12
    kept(root, tmp_path / "c", texts, waveforms)
    page = tmp_path / "skew.html"
    result = run(root, tmp_path / "c", "--json", "--report", str(page))
    assert result.exit_code == 3, result.output
    assert "speaking_rate" in json.loads(result.output)["skew"]["skewed"]
    assert page.exists()


def test_a_damaged_clip_is_named(root: Path, tmp_path: Path) -> None:
    texts = sentences(40, seed=9)
    kept(root, tmp_path, texts, [spoken(words, at) for at, words in enumerate(texts)])
    (damaged,) = tmp_path.rglob(f"capture-{7:016x}.flac")
    damaged.write_bytes(b"fLaC")
    with pytest.raises(WorkError, match=f"the recording of capture-{7:016x} is damaged"):
        measure_skew(root / "registry", "asr", tmp_path, root / "manifest.jsonl")


def test_options_of_the_skew_need_the_training(root: Path, tmp_path: Path) -> None:
    command = ["watch", "asr", "--registry", str(root / "registry"), "--captures", str(tmp_path), "--report", "a.html"]
    refused = CliRunner().invoke(app, command)
    assert "give --train, the data of the training" in str(refused.exception)

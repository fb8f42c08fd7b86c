"""Independent judges of a voice: a public recognizer, the speaker encoder, and Silero VAD, each with a stand-in."""

import json
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from onnx import TensorProto, helper

from tests.evaluate.test_evaluate_tts import corpus as corpus  # a fixture
from tests.evaluate.test_evaluate_tts import publish
from tests.families.tts.test_enrolment import write_wheel
from tests.tone_asr_model import RATE, WORDS, MakeAsrModel
from tests.tone_tts_model import MakeTtsModel
from voxline.audio.speaker_encoder import ENCODER_RATE, SpeakerEncoder
from voxline.components.evaluate.judges import (
    SpeakerJudge,
    VoiceActivityJudge,
    VoiceJudges,
    find_judge,
    load_silero,
)
from voxline.components.evaluate.step import run
from voxline.components.push.step import run as push
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError
from voxline.families.tts.settings import TtsEvaluateSettings, TtsPushSettings
from voxline.families.tts.synthesize import SynthesisRecord, _add_round_trip
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.evaluation import Evaluation
from voxline.metrics.wer import count_word_edits

Waveform = npt.NDArray[np.float32]

ALONE = TtsEvaluateSettings(
    bootstrap_samples=200, f0_utterances=0, mos_utterances=0, sample_utterances=1, worst_utterances=1
)
GATE = TtsPushSettings(smoke_test=False, min_slice_utterances=5)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wheel(tmp_path_factory.mktemp("wheel") / "encoder.whl")


@pytest.fixture(scope="module")
def silero(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Silero VAD's inputs and outputs, in its wheel; loud is speech."""
    nodes = [
        helper.make_node("Abs", ["input"], ["level"]),
        helper.make_node("ReduceMax", ["level"], ["loudest"], axes=[1], keepdims=1),
        helper.make_node("Mul", ["loudest", "gain"], ["scaled"]),
        helper.make_node("Clip", ["scaled", "zero", "one"], ["output"]),
        helper.make_node("Identity", ["state"], ["stateN"]),
    ]
    constants = {"gain": 10.0, "zero": 0.0, "one": 1.0}
    graph = helper.make_graph(
        nodes,
        "vad",
        [
            helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, "samples"]),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, 1, 128]),
            helper.make_tensor_value_info("sr", TensorProto.INT64, []),
        ],
        [
            helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1]),
            helper.make_tensor_value_info("stateN", TensorProto.FLOAT, [2, 1, 128]),
        ],
        [helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file = tmp_path_factory.mktemp("wheel") / "silero_vad-6.2.3-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("silero_vad/data/silero_vad.onnx", model.SerializeToString())
    return file


def hum(hertz: float, seconds: float, seed: int) -> Waveform:
    """A voice of so many hertz, with its harmonics and some noise; float32 [samples] of `ENCODER_RATE`."""
    random = np.random.default_rng(seed)
    times = np.arange(round(seconds * ENCODER_RATE)) / ENCODER_RATE
    pitch = hertz * (1 + 0.01 * np.sin(2 * np.pi * 3 * times + random.uniform(0, 6)))
    phase = 2 * np.pi * np.cumsum(pitch) / ENCODER_RATE
    voice = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 12))
    return np.asarray(0.1 * voice + 0.005 * random.standard_normal(len(times)), np.float32)


def record(folder: Path, voices: dict[str, float], count: int = 6) -> list[Utterance]:
    """So many recordings of each speaker, whose voice is of so many hertz."""
    utterances = []
    for speaker, hertz in voices.items():
        for number in range(count):
            name = f"{speaker}-{number}"
            samples = hum(hertz, 1.5 + 0.2 * number, number)
            soundfile.write(folder / f"{name}.wav", samples, ENCODER_RATE, subtype="FLOAT")
            audio = str(folder / f"{name}.wav")
            utterances.append(
                Utterance(name, audio, len(samples) / ENCODER_RATE, "a" * (number + 1), speaker, "test", "")
            )
    return utterances


def judged(judge: SpeakerJudge, utterances: list[Utterance], hertz: float) -> dict[str, float]:
    """The metrics of speech by a voice of so many hertz, over all utterances."""
    rows = [judge.measure(utterance, hum(hertz, 2.0, 50 + n), ENCODER_RATE) for n, utterance in enumerate(utterances)]
    return {name: sum(row[name].sum for row in rows) / sum(row[name].weight for row in rows) for name in rows[0]}


def test_the_speech_of_another_speaker_is_not_of_the_speaker(encoder: Path, tmp_path: Path) -> None:
    recorded = record(tmp_path, {"low": 110.0, "high": 260.0})
    judge = SpeakerJudge(encoder, recorded, 30, ENCODER_RATE)
    assert judge.recorded_same_speaker == 1
    low = recorded[:6]
    own, other = (judged(judge, low, hertz) for hertz in (110.0, 260.0))
    assert own["same_speaker_rate"] == 1
    assert other["same_speaker_rate"] == 0
    assert own["speaker_likeness"] > other["speaker_likeness"] + 0.05
    assert own["speaker_likeness_share"] == pytest.approx(1, abs=0.1)
    assert other["speaker_likeness_share"] < own["speaker_likeness_share"]


def test_of_one_speaker_the_rarest_recordings_are_the_measure(encoder: Path, tmp_path: Path) -> None:
    recorded = record(tmp_path, {"low": 110.0})
    judge = SpeakerJudge(encoder, recorded, 30, ENCODER_RATE)
    assert judge.recorded_same_speaker == pytest.approx(5 / 6)  # one of six is below their 5th percentile
    assert judged(judge, recorded, 260.0)["same_speaker_rate"] == 0
    assert judged(judge, recorded, 110.0)["same_speaker_rate"] > 0.5


def test_a_likeness_is_the_cosine_with_the_mean_of_the_other_recordings(encoder: Path, tmp_path: Path) -> None:
    recorded = record(tmp_path, {"low": 110.0}, count=3)
    heard = SpeakerEncoder(encoder)
    first, second, third = (
        heard.embed(soundfile.read(utterance.audio_filepath, dtype="float32")[0], ENCODER_RATE)
        for utterance in recorded
    )
    mean = (second + third) / 2
    expected = first @ mean / np.linalg.norm(mean)
    judge = SpeakerJudge(encoder, recorded, 30, ENCODER_RATE)
    samples = soundfile.read(recorded[0].audio_filepath, dtype="float32")[0]
    values = judge.measure(recorded[0], samples, ENCODER_RATE)
    assert values["speaker_likeness"].sum == pytest.approx(expected, abs=1e-5)
    assert values["speaker_likeness_share"].sum == pytest.approx(values["speaker_likeness_share"].weight, abs=1e-5)


def test_one_recording_is_compared_with_itself_and_has_no_ceiling(encoder: Path, tmp_path: Path) -> None:
    recorded = record(tmp_path, {"low": 110.0}, count=1)
    judge = SpeakerJudge(encoder, recorded, 30, ENCODER_RATE)
    assert judge.recorded_likeness is None
    values = judge.measure(recorded[0], hum(110.0, 2.0, 9), ENCODER_RATE)
    assert 0 < values["speaker_likeness"].sum <= 1
    assert values["same_speaker_rate"].weight == values["speaker_likeness_share"].weight == 0


def test_speech_without_a_sample_is_judged(encoder: Path, silero: Path, tmp_path: Path) -> None:
    (recorded,) = record(tmp_path, {"low": 110.0}, count=1)
    nothing = np.zeros(0, np.float32)
    assert np.isfinite(
        SpeakerJudge(encoder, [recorded], 5, RATE).measure(recorded, nothing, RATE)["speaker_likeness"].sum
    )
    values = VoiceActivityJudge(silero).measure(recorded, hum(110.0, 1.0, 1), nothing, ENCODER_RATE)
    assert values["speech_share"].sum == values["trailing_silence"].sum == 0


@pytest.mark.parametrize("seconds", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("rate", [16_000, 22_050])
def test_silence_at_the_end_is_measured(seconds: float, rate: int, silero: Path) -> None:
    judge = VoiceActivityJudge(silero)
    spoken = np.sin(2 * np.pi * 200 * np.arange(rate) / rate).astype(np.float32)
    extent = judge.extent(np.concatenate([spoken, np.zeros(round(seconds * rate), np.float32)]), rate)
    assert extent.trailing_seconds == pytest.approx(seconds, abs=0.04)
    assert extent.share == pytest.approx(1 / (1 + seconds), abs=0.04)


def test_what_has_no_speech_is_silence_to_its_end(silero: Path) -> None:
    extent = VoiceActivityJudge(silero).extent(np.zeros(48_000, np.float32), 16_000)
    assert (extent.share, extent.trailing_seconds) == (0, 3)


def test_a_judge_that_is_absent_or_another_file_is_named_with_the_command(tmp_path: Path, encoder: Path) -> None:
    assert find_judge("speaker_encoder", "") is None
    with pytest.raises(SettingsError, match=r"evaluate\.speaker_encoder: .* is not here; pip download --no-deps R"):
        find_judge("speaker_encoder", str(tmp_path / "no.whl"))
    with pytest.raises(SettingsError, match=r"evaluate\.voice_activity: .*; pip download .* silero-vad==6\.2\.3"):
        find_judge("voice_activity", str(tmp_path / "no.whl"))
    (tmp_path / "text.whl").write_text("no zip")
    for file in (encoder, tmp_path / "text.whl"):
        with pytest.raises(SettingsError, match=r"no wheel of silero-vad .*pip download --no-deps silero-vad"):
            load_silero(file)


def test_a_voice_is_judged_by_all_of_them(
    corpus: Path,
    encoder: Path,
    silero: Path,
    make_asr_model: MakeAsrModel,
    make_tts_model: MakeTtsModel,
    tmp_path: Path,
) -> None:
    registry = tmp_path / "registry"
    publish(registry, "own", make_asr_model())
    publish(registry, "whisper", make_asr_model({"eight": "two"}))
    settings = TtsEvaluateSettings.of(
        ALONE.plain(),
        round_trip_recognizer="own",
        public_recognizer="whisper",
        speaker_encoder=str(encoder),
        voice_activity=str(silero),
        likeness_utterances=4,
    )
    work = run(make_tts_model(), corpus, registry, tmp_path / "store", settings)
    evaluation = Evaluation.read(work.folder)
    metrics = json.loads(work.path("metrics").read_text())
    details = metrics["details"]
    eights = sum("8" in row.details["text"] for row in evaluation.results)
    assert work.metrics["round_trip_wer"] == 0 < work.metrics["public_wer"]
    assert work.metrics["public_wer_added"] == 0
    assert work.metrics["recognizer_agreement"] == pytest.approx(1 - eights / 24)
    assert work.metrics["recognizer_disagreement"] == pytest.approx(work.metrics["public_wer"], abs=1e-6)
    assert details["recorded_public_wer"] == pytest.approx(work.metrics["public_wer"], abs=1e-6)
    assert details["recorded_agreement"] == pytest.approx(1 - eights / 24)
    assert details["recorded_disagreement"] == pytest.approx(details["recorded_public_wer"])
    assert metrics["metrics"]["speaker_likeness"]["measured"] == 4
    assert work.metrics["speaker_likeness"] == pytest.approx(details["recorded_likeness"], abs=0.2)
    assert work.metrics["speech_share"] == pytest.approx(1, abs=0.1)
    assert work.metrics["trailing_silence"] == pytest.approx(details["recorded_trailing_silence"], abs=0.05)
    auxiliary = metrics["auxiliary_models"]
    assert auxiliary["speaker_encoder"]["digest"] == SpeakerEncoder(encoder).digest
    assert auxiliary["voice_activity"]["name"] == "silero-vad"
    page = work.path("report").read_text()
    for part in ("the public recognizer", "Both write the same for", "Speaker and pauses", "likeness to the speaker"):
        assert part in page
    assert "hear different words" not in page  # they disagree about the recordings too

    # The file's bytes are in the key, and not where it is.
    moved = shutil.copyfile(silero, tmp_path / "moved.whl")
    assert run(make_tts_model(), corpus, registry, tmp_path / "store", settings.model_copy(
        update={"voice_activity": str(moved)})).reused  # fmt: skip
    moved.write_bytes(moved.read_bytes() + b"\0" * 8)
    assert not run(make_tts_model(), corpus, registry, tmp_path / "store", settings.model_copy(
        update={"voice_activity": str(moved)})).reused  # fmt: skip


def test_a_recognizer_that_hears_what_it_expects_is_named(
    corpus: Path, make_asr_model: MakeAsrModel, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    """It writes "three" for what the voice says instead, an eight, which few recordings have."""
    registry = tmp_path / "registry"
    publish(registry, "own", make_asr_model({"eight": "three"}))
    publish(registry, "whisper", make_asr_model())
    both: dict[str, Any] = {"round_trip_recognizer": "own", "public_recognizer": "whisper"}
    settings = TtsEvaluateSettings.of(ALONE.plain(), **both)
    work = run(make_tts_model(says={"3": "8"}), corpus, registry, tmp_path / "store", settings)
    assert work.metrics["round_trip_wer"] < 0.05 < 0.1 < work.metrics["public_wer"]
    assert work.metrics["public_wer_added"] == work.metrics["public_wer"]  # it hears each recording as it is
    page = work.path("report").read_text()
    assert "The recognizers hear different words" in page
    assert "trust the public one" in page
    assert "says little of the voice" not in page
    assert "By the public recognizer:" in page


def test_one_recognizer_is_not_asked_twice() -> None:
    with pytest.raises(SettingsError, match="public_recognizer: 'own' is the round_trip_recognizer too"):
        TtsEvaluateSettings.of({"round_trip_recognizer": "own", "public_recognizer": "own"})


def test_a_recognizer_that_hears_no_recording_says_little(
    corpus: Path, make_asr_model: MakeAsrModel, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    registry = tmp_path / "registry"
    publish(registry, "deaf", make_asr_model(dict.fromkeys(WORDS[:6], "eight")))
    settings = TtsEvaluateSettings.of(ALONE.plain(), public_recognizer="deaf")
    work = run(make_tts_model(), corpus, registry, tmp_path / "store", settings)
    assert work.metrics["public_wer"] > 0.5
    assert work.metrics["public_wer_added"] == 0
    assert "so that it says little of the voice" in work.path("report").read_text()


def test_a_recording_for_which_the_recognizer_loops_counts_no_more_than_its_words() -> None:
    said = Utterance("a", "", 1.0, "one two", "", "test", "")
    recognizer: Any = SimpleNamespace(reference=lambda utterance: utterance.text, count_errors=count_word_edits)
    judges = VoiceJudges(public_recognizer=recognizer, recorded_texts={"a": "one " * 100})
    record = SynthesisRecord({}, {})
    _add_round_trip(record, judges, said, {"public_hypothesis": "one three"})
    assert record.metrics["public_wer"] == SumAndWeight(1, 2)
    assert record.metrics["public_wer_added"] == SumAndWeight(-1, 2)


def test_the_public_recognizer_alone_judges_whether_a_voice_is_understood(
    corpus: Path, make_asr_model: MakeAsrModel, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    registry = tmp_path / "registry"
    publish(registry, "whisper", make_asr_model())
    settings = TtsEvaluateSettings.of(ALONE.plain(), public_recognizer="whisper")

    def verdict(voice: Path) -> dict[str, Any]:
        evaluation = run(voice, corpus, registry, tmp_path / "store", settings)
        assert "round_trip_wer" not in evaluation.metrics
        pushed = push(voice, evaluation.folder, registry, tmp_path / "store", GATE)
        values: dict[str, Any] = json.loads(pushed.path("verdict").read_text())
        return values

    mush = verdict(make_tts_model(says=dict(zip("01234567", "12345670", strict=True))))
    assert not mush["pushed"]
    assert "limits.public_wer" in " ".join(mush["reasons"])
    good = verdict(make_tts_model())
    assert good["heading"] == "Pushed as version 1"
    card = (registry / "tts" / "1" / "model_card.md").read_text()
    assert "Version 1 of the ASR model `whisper` transcribed the synthesized speech" in card

"""Vocoders are measured beside Griffin-Lim, gated, pushed, rolled back, and used by voices of the same features."""

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import voxline
from tests.closeness import assert_close
from tests.tone_tts_model import FEATURES, MakeTtsModel, write_tts_corpus
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.components.evaluate.step import run as evaluate
from voxline.components.export.step import run as export
from voxline.components.push.step import run as push
from voxline.errors import SettingsError, WorkError
from voxline.families.tts.settings import TtsTrainSettings
from voxline.families.vocoder.settings import VocoderEvaluateSettings, VocoderPushSettings
from voxline.inference.saved_model import CURVES_FILE, model_digest
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.vocoder import Vocoder
from voxline.pipelines.cli.synthesis import synthesize_to_file
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, TrainingData, read_training_data
from voxline.store.files import write_json

MakeVocoder = Callable[..., Path]
MEASURED = VocoderEvaluateSettings(
    bootstrap_samples=200, griffin_lim_iterations=1, f0_utterances=0, mos_utterances=0, sample_utterances=1,
    worst_utterances=1,
)  # fmt: skip
GATE = VocoderPushSettings(smoke_test=False, min_slice_utterances=2)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tts_corpus(tmp_path_factory.mktemp("voice"), [f"{n % 8}{(n * 3) % 8}5612." for n in range(8)])


@pytest.fixture(scope="module")
def make_vocoder(tmp_path_factory: pytest.TempPathFactory) -> MakeVocoder:
    """Builds an exported vocoder that is Griffin-Lim in a graph, of so many iterations: the fewer, the worse.

    The tests share the folders and only read them.
    """
    import tensorflow as tf

    from voxline.families.tts.griffin_lim import reconstruct_waveforms

    @functools.cache
    def make(iterations: int, features: FeatureSettings = FEATURES) -> Path:
        folder = tmp_path_factory.mktemp("train") / "model"
        graph = tf.Module()

        def vocode(mels: Any, frames: Any) -> dict[str, Any]:
            waveforms, samples = reconstruct_waveforms(mels, frames, features, iterations)
            return {"waveforms": waveforms, "samples": samples}

        specs = tf.TensorSpec([None, None, features.mels], tf.float32), tf.TensorSpec([None], tf.int32)
        graph.vocode = tf.function(vocode, input_signature=specs, autograph=False)
        tf.saved_model.save(graph, str(folder), signatures={"vocode": graph.vocode})
        about = {
            "format": 1, "name": "vocoder", "family": "vocoder", "kind": "vocos", "alphabet": "ab", "provenance": {},
            "settings": {"epochs": iterations}, "dataset": {"key": "k"},
            "sample_rate": features.sample_rate, "features": features.plain(),
        }  # fmt: skip
        (folder / "model.json").write_text(json.dumps(about))
        return folder

    return make


@pytest.mark.slow
def test_a_vocoder_is_measured_gated_and_rolled_back(corpus: Path, make_vocoder: MakeVocoder, tmp_path: Path) -> None:
    places = tmp_path / "registry", tmp_path / "store"
    good, bad = make_vocoder(12), make_vocoder(2)

    def judge(model: Path, gate: VocoderPushSettings) -> tuple[dict[str, Any], dict[str, Any]]:
        evaluation = evaluate(model, corpus, *places, MEASURED)
        report = evaluation.path("report").read_text()
        assert "Beside Griffin-Lim" in report
        assert report.count("<audio") == 6
        output = push(model, evaluation.folder, *places, gate)
        return json.loads(evaluation.path("metrics").read_text()), json.loads(output.path("verdict").read_text())

    metrics, verdict = judge(good, GATE.model_copy(update={"smoke_test": True}))
    assert verdict["pushed"], verdict["reasons"]
    assert any("vocoded the mels: " in check["detail"] for check in verdict["checks"])
    values, beside = metrics["metrics"], metrics["details"]["griffin_lim"]
    assert values["log_stft_reduction"]["value"] > 0.02
    assert values["log_stft"]["value"] - beside["log_stft"]["value"] == pytest.approx(beside["log_stft"]["difference"])
    assert beside["log_stft"]["interval"]["high"] < 0
    assert {"spectral_convergence", "mel_distance", "rtf"} <= values.keys()
    assert 0 < values["estoi"]["value"] < 1
    assert values["estoi"]["measured"] == 8
    gain = values["estoi"]["value"] - beside["estoi"]["value"]
    assert values["estoi_gain"]["value"] == pytest.approx(gain)
    _, verdict = judge(bad, GATE)
    for name in ("log_stft", "estoi"):
        assert any(f"(max_regression.{name})" in reason for reason in verdict["reasons"]), verdict["reasons"]
    versions = Registry(places[0], "vocoder")
    assert "--vocoder <registry>/vocoder/1" in (versions.path(1) / "model_card.md").read_text()
    assert judge(bad, VocoderPushSettings.of(
        {"smoke_test": False, "max_regression": {"log_stft": 90, "estoi": 1}, "max_slice_regression": {"log_stft": 90}}
    ))[1]["pushed"]  # fmt: skip
    assert versions.rollback(1, "hoarse").copy_of == 1
    assert model_digest(versions.path(3)) == model_digest(good)


@pytest.mark.slow
def test_a_vocoder_is_measured_on_the_mels_of_a_voice(
    corpus: Path, make_vocoder: MakeVocoder, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    """The voice is one whose mels are all 3 higher, in natural logarithms: 26 dB. It reads F0 too; no vocoder does."""
    registry, voice = Registry(tmp_path / "registry", "loud"), make_tts_model(smear=3.0, kind="mel_and_prosody")
    chosen = MEASURED.model_copy(update={"voice": "loud", "mos_utterances": 1})
    with pytest.raises(SettingsError, match=r"evaluate\.voice is 'loud', and .*loud holds no version"):
        evaluate(make_vocoder(1), corpus, tmp_path / "registry", tmp_path / "store", chosen)
    with registry.locked(), registry.publishing(voice, model_digest(voice), "push"):
        pass
    evaluation = evaluate(make_vocoder(1), corpus, tmp_path / "registry", tmp_path / "store", chosen)
    metrics = json.loads(evaluation.path("metrics").read_text())
    assert metrics["auxiliary_models"]["voice"]["digest"] == model_digest(voice)
    assert metrics["metrics"]["mel_distance"]["value"] == pytest.approx(3 * 20 / np.log(10), abs=8)
    assert metrics["metrics"]["dnsmos"]["measured"] == 1
    assert {"value", "difference", "interval"} <= metrics["details"]["griffin_lim"]["dnsmos"].keys()
    assert "version 1 of the voice loud, teacher-forced" in evaluation.path("report").read_text()


def test_mels_of_other_settings_are_refused_by_name(make_vocoder: MakeVocoder) -> None:
    vocoder = Vocoder(make_vocoder(1))
    vocoder.check_features(FEATURES.model_copy(update={"context": 3, "fft_size": FEATURES.n_fft}), "the voice")
    vocoder.check_features(FEATURES.model_copy(update={"kind": "mel_and_prosody"}), "the voice")
    other = FEATURES.model_copy(update={"mels": 40, "highest_hz": 3_000.0})
    with pytest.raises(
        SettingsError, match=r"the voice has: .*extract\.features\.mels 20, not 40; .*highest_hz .*3000"
    ):
        vocoder.check_features(other, "the voice")


@pytest.mark.slow
def test_a_voice_speaks_through_a_vocoder_of_its_features(
    make_vocoder: MakeVocoder, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    voice, vocoder = make_tts_model(mute="8"), make_vocoder(1)
    synthesizer = voxline.load_synthesizer(voice, vocoder)
    spoken, mute = synthesizer.synthesize(["12.", "8"])
    slow = synthesizer.speak('<speak><prosody rate="50%">12.</prosody><break time="1s"/></speak>').waveform
    assert len(slow) - synthesizer.sample_rate == pytest.approx(2 * len(spoken.waveform), rel=0.02)
    assert_close(spoken.waveform, Vocoder(vocoder).vocode([spoken.mels])[0], relative_to_peak=1e-3)
    assert len(mute.waveform) == 0
    assert synthesize_to_file(tmp_path / "said.wav", "12.", voice, vocoder)[0].endswith("Hz")
    assert (tmp_path / "said.wav").is_file()
    with pytest.raises(SettingsError, match=r"extract\.features\.hop_seconds 0\.01, not 0\.0"):
        Synthesizer(voice, vocoder=make_vocoder(1, FEATURES.model_copy(update={"hop_seconds": 0.01})))
    with pytest.raises(WorkError, match=r"family 'tts'.*'vocoder' is accepted here"):
        Synthesizer(voice, vocoder=voice)


def test_waveforms_are_those_of_each_row_alone(make_vocoder: MakeVocoder) -> None:
    vocoder = Vocoder(make_vocoder(1), batch_frames=50)
    random = np.random.default_rng(0)
    mels = [compute_features(random.standard_normal(n).astype(np.float32), FEATURES) for n in (900, 2_500, 1_000)]
    for one, waveform in zip(mels, vocoder.vocode(mels), strict=True):
        assert len(waveform) == FEATURES.count_samples(len(one))
        assert_close(waveform, vocoder.vocode([one])[0], relative_to_peak=1e-3)
    assert vocoder.audio_seconds > 0


@pytest.mark.slow
def test_a_voice_ships_with_its_vocoder(
    make_vocoder: MakeVocoder, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    registry, features = tmp_path / "registry", FEATURES.model_copy(update={"hop_seconds": 0.01})
    digests = []
    for exported in (make_vocoder(1), make_vocoder(2, features)):
        model = Path(shutil.copytree(exported, tmp_path / "vocoders" / exported.parent.name))
        of_vocoder = TrainingData("k", "r", 0, [line_of("b", "mara")])
        of_vocoder.write(model / TRAINED_ON)
        versions, digest = Registry(registry, "vocoder"), model_digest(model)
        with versions.locked(), versions.publishing(model, digest, "push") as (_, incoming):
            of_vocoder.write(incoming / TRAINED_ON)
        digests.append(digest)
    trained = tmp_path / "store" / "train" / "k"
    voice = Path(shutil.copytree(make_tts_model(), trained / "model"))
    about = json.loads((voice / "model.json").read_text())
    write_json(voice / "model.json", {**about, "settings": {"export": {"decoder": "float32"}}})
    TrainingData("k", "r", 0, [line_of("a", "anna")]).write(voice / TRAINED_ON)
    write_json(trained / CURVES_FILE, {"train": [], "dev": []})
    before = model_digest(voice)

    chosen = TtsTrainSettings.of({"export": {"vocoder": "vocoder@1"}})
    assert chosen.key_values() == TtsTrainSettings().key_values()
    shipped = export(trained, tmp_path / "store", chosen, registry)
    (shipped.folder / "done.json").unlink()  # as if it had been killed before the last write
    shipped = export(trained, tmp_path / "store", chosen, registry)
    assert export(trained, tmp_path / "store", chosen, registry).reused
    assert (shipped.folder / CURVES_FILE).read_bytes() == (trained / CURVES_FILE).read_bytes()
    folder = shipped.path("model")
    assert json.loads((folder / "model.json").read_text())["vocoder"]["digest"] == digests[0]
    assert model_digest(folder / "vocoder") == digests[0]
    heard = read_training_data((folder / TRAINED_ON).read_bytes(), "")
    assert [line["speaker"] for line in heard.utterances] == ["anna", "mara"]
    assert (model_digest(voice), read_training_data((voice / TRAINED_ON).read_bytes(), "").utterances) == (
        before, [line_of("a", "anna")]
    )  # fmt: skip
    spoken = Synthesizer(folder).synthesize("12.")
    assert_close(spoken.waveform, Vocoder(make_vocoder(1)).vocode([spoken.mels])[0], relative_to_peak=1e-3)
    (folder / "vocoder" / "saved_model.pb").write_bytes(b"another")
    assert model_digest(folder) != before != model_digest(shipped.path("model"))
    other_features = TtsTrainSettings.of({"export": {"vocoder": "vocoder@production"}})
    with pytest.raises(SettingsError, match=r"\.export\.vocoder: vocoder@2: .*this voice has: .*hop_seconds 0\.01"):
        export(trained, tmp_path / "store", other_features, registry)
    with pytest.raises(SettingsError, match=r"\.export\.vocoder is .* of the family 'tts'; 'vocoder' is accepted"):
        export(trained, tmp_path / "store", TtsTrainSettings.of({"export": {"vocoder": str(voice)}}), registry)


def line_of(name: str, speaker: str) -> dict[str, Any]:
    return {"id": name, "split": "train", "speaker": speaker, "audio_hash": name, "offset": 0.0, "duration": 1.0,
            "text_hash": "t"}  # fmt: skip

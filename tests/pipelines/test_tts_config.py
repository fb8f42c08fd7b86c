"""The config of a TTS run: its defaults, its derived values, and its errors."""

from pathlib import Path

import pytest

from voxline.errors import SettingsError
from voxline.families.tts.networks.settings import Tacotron2Settings, TacotronSettings
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig

SMALLEST = "pipeline: tts\nname: small\ncorpus: {uri: recordings}\n"


def config(folder: Path, text: str = "", *assignments: str) -> RunConfig:
    file = folder / "run.yaml"
    file.write_text(SMALLEST + text, encoding="utf-8")
    chosen = load_config(file, assignments)
    assert chosen.pipeline == "tts"
    return chosen


def test_tts_has_its_own_defaults(tmp_path: Path) -> None:
    chosen = config(tmp_path)
    assert (chosen.corpus.format, chosen.convert.frontend.kind, chosen.convert.alphabet) == (
        "ljspeech",
        "english",
        "english_speech",
    )
    assert chosen.train.name == chosen.evaluate.model_name == chosen.push.model_name == "tts"


def test_the_wheel_of_the_speaker_encoder_is_relative_to_its_file_and_must_be_where_pods_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    key = "train.fastspeech.speaker_encoder"
    text = "train: {model: {kind: fastspeech}, fastspeech: {speaker_encoder: wheels/encoder.whl}}\n"
    chosen = config(tmp_path, text)
    assert chosen.locations()[key] == str(tmp_path / "wheels" / "encoder.whl")
    assert chosen.unmounted_paths()[key] == str(tmp_path / "wheels" / "encoder.whl")
    assert config(tmp_path, text, f"{key}=mine.whl").locations()[key] == str(tmp_path / "elsewhere" / "mine.whl")
    in_bucket = config(tmp_path, text, f"{key}=gs://speech/encoder.whl")
    assert in_bucket.locations()[key] == "gs://speech/encoder.whl"
    assert key not in in_bucket.unmounted_paths()
    assert key not in config(tmp_path).locations()
    judges = config(tmp_path, "evaluate: {speaker_encoder: a.whl, voice_activity: b.whl}\n").locations()
    assert judges["evaluate.speaker_encoder"] == str(tmp_path / "a.whl")
    assert judges["evaluate.voice_activity"] == str(tmp_path / "b.whl")


def test_tts_accepts_one_speaker_and_skips_the_ctc_check(tmp_path: Path) -> None:
    checks = config(tmp_path, "validate: {silence: {threshold: 0.5}}\n").validate_
    for check in (checks.ctc_feasibility, checks.speaker_overlap, checks.dominant_speaker):
        assert check.severity == "off"
    assert checks.silence.threshold == 0.5
    assert config(tmp_path, "validate: {speaker_overlap: {severity: error}}\n").validate_.speaker_overlap.severity == (
        "error"
    )


def test_the_dataset_records_the_text_frontend(tmp_path: Path) -> None:
    chosen = config(tmp_path, "convert: {frontend: {kind: mandarin, sandhi: false}}\n")
    assert chosen.extract.frontend == chosen.convert.frontend
    assert chosen.extract.alphabet == chosen.convert.alphabet == "pinyin_speech"
    with pytest.raises(SettingsError, match=r"'extract\.frontend' is .*, but 'convert\.frontend' makes it"):
        config(tmp_path, "extract: {frontend: {kind: pinyin}}\n")


def test_the_network_is_chosen_by_its_kind(tmp_path: Path) -> None:
    linear = "extract: {features: {kind: mel_and_linear}}\n"
    assert isinstance(config(tmp_path, "train: {model: {kind: tacotron}}\n" + linear).train.model, TacotronSettings)
    assert isinstance(config(tmp_path, "train: {model: {reduction: 3}}\n").train.model, Tacotron2Settings)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("train: {model: {kind: tacotron3}}", r"run\.yaml: 'train\.model\.kind' is 'tacotron3'; accepted: 'tacotron',"),
        (
            "train: {model: {reductoin: 3}}",
            r"run\.yaml: unknown key 'train\.model\.reductoin'; did you mean 'train",
        ),
        ("train: {model: {reduction: 0}}", r"run\.yaml: 'train\.model\.reduction' is 0; "),
        ("train: {model: {reduction: true}}", r"run\.yaml: 'train\.model\.reduction' is 'true'; "),
        (
            "train: {reduction_schedule: [{step: 0, reductoin: 2}]}",
            r"unknown key 'train\.reduction_schedule\.0\.reductoin'; did you ",
        ),
        ("reduction: 3", r"run\.yaml: unknown key 'reduction'; did you mean 'train\.model\.reduction'\?"),
        ("push: {limit: {mcd: 5}}", r"run\.yaml: unknown key 'push\.limit'; did you mean 'push\.limits'\?"),
        ("push: {limits: {wer: 0.1}}", r"run\.yaml: 'push\.limits\.wer' is 0\.1; no metric wer; accepted: round_trip_"),
        ("push: {limits: 0.1}", r"run\.yaml: 'push\.limits' is 0\.1; a mapping of keys to values is accepted"),
        (
            "evaluate: {listener: asr}",
            r"run\.yaml: unknown key 'evaluate\.listener'; known here: .*round_trip_recognizer",
        ),
    ],
)
def test_an_error_names_the_key_for_every_kind_of_model(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        config(tmp_path, text)


@pytest.mark.parametrize(
    ("kind", "features", "wrong"),
    [
        ("fastspeech, pitch: true", "log_mel", r"pitch is true, .* features are log_mel; set .* 'mel_and_prosody'$"),
        ("tacotron2", "mel_and_prosody", r"which predicts log_mel, .* are mel_and_prosody; set .*kind to 'log_mel'$"),
        ("tacotron", "log_mel", r"which predicts mel_and_linear, .* set extract\.features\.kind to 'mel_and_linear'$"),
        ("fastspeech", "mel_and_prosody", ""),
    ],
)
def test_features_that_the_network_cannot_learn_are_refused_before_they_are_computed(
    tmp_path: Path, kind: str, features: str, wrong: str
) -> None:
    text = f"train: {{model: {{kind: {kind}}}}}\nextract: {{features: {{kind: {features}}}}}\n"
    if not wrong:
        assert config(tmp_path, text).extract.features.kind == features
        return
    with pytest.raises(SettingsError, match=wrong):
        config(tmp_path, text)


def test_a_missing_round_trip_recognizer_is_refused_before_training(tmp_path: Path) -> None:
    chosen = config(tmp_path, "evaluate: {round_trip_recognizer: nobody}\n").with_default_folders(tmp_path)
    with pytest.raises(
        SettingsError, match=r"evaluate\.round_trip_recognizer is 'nobody', but .*registry/nobody has no version"
    ):
        chosen.check_registry()
    public = config(tmp_path, "evaluate: {public_recognizer: whisper}\n").with_default_folders(tmp_path)
    with pytest.raises(SettingsError, match=r"evaluate\.public_recognizer is 'whisper', but .*whisper has no version"):
        public.check_registry()
    listening = "train: {model: {kind: tacotron2}, sharpen: {kind: gan, recognizer: nobody@production}}\n"
    with pytest.raises(SettingsError, match=r"train\.sharpen\.recognizer is 'nobody', but .*nobody has no version"):
        config(tmp_path, listening).with_default_folders(tmp_path).check_registry()


def test_a_config_of_another_pipeline_is_refused_naming_the_right_command(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(SMALLEST, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"'pipeline' is 'tts', but the command names 'asr'; write tts in place of"):
        load_config(file, pipeline="asr")


def test_the_effective_config_starts_the_same_run_again(tmp_path: Path) -> None:
    first = config(tmp_path, "convert: {sample_rate: 22050}\ntrain: {reduction_schedule: [{step: 0, reduction: 1}]}\n")
    again = tmp_path / "again" / "config.yaml"
    again.parent.mkdir()
    again.write_text(first.to_yaml(), encoding="utf-8")
    assert load_config(again) == first


def test_drafts_train_recognizers_alone(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"drafts train recognizers alone \(asr\); --set corpus\.pseudo\.uri="):
        config(tmp_path, "", "corpus.pseudo.uri=drafts")

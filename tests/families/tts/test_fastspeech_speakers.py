"""FastSpeech of several speakers: the row of the table against numpy, who is heard by F0, and what a parent gives."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
import soundfile
import tensorflow as tf

from tests.closeness import assert_close
from tests.families.networks.test_against_numpy import dense, exact, layer_norm
from tests.families.tts.test_fastspeech import convnext, predictor
from tests.training.tones import LETTERS, TTS_SIZES, ToneUtterance, tiny_tts_settings, write_dataset
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.evaluate.step import run as evaluate
from voxline.components.train.step import run
from voxline.data.manifest import Utterance, write_manifest
from voxline.errors import SettingsError, WorkError
from voxline.families.tts.export import export_tts
from voxline.families.tts.family import TtsFamily
from voxline.families.tts.networks.fastspeech import FastSpeech
from voxline.families.tts.networks.settings import FastSpeechSettings
from voxline.families.tts.settings import TtsEvaluateSettings, TtsExportForm, TtsTrainSettings
from voxline.families.tts.speakers import speakers_of, with_speakers
from voxline.families.tts.task import TtsTask
from voxline.inference.saved_model import read_model_info
from voxline.inference.synthesizer import Synthesizer
from voxline.training.batches import Batches
from voxline.training.export import TrainedModel
from voxline.training.warm_start import ParentWeights, read_named_weights, start_from
from voxline.training.weight_names import weight_names

Array = npt.NDArray[Any]

PITCHES = {"ann": 400.0, "bob": 250.0}
"""Hz of each speaker's voice."""
SOUND = FeatureSettings(sample_rate=8_000, mels=40, window_seconds=0.064, hop_seconds=0.016)
"""With mels narrow enough to tell the two voices apart."""


def say(text: str, hertz: float, random: np.random.Generator) -> npt.NDArray[np.float32]:
    """Each letter is a tenth of a second of the speaker's tone, with a weaker one of its own and silence after it."""
    parts = []
    for letter in text:
        time = np.arange(int(random.uniform(600, 900))) / SOUND.sample_rate
        own = 0.25 * np.sin(2 * np.pi * 1_000 * 1.4 ** LETTERS.index(letter) * time)
        parts += [0.5 * np.sin(2 * np.pi * hertz * time) + own, np.zeros(int(random.uniform(300, 500)))]
    waveform = np.concatenate(parts)
    return (waveform + 0.003 * random.standard_normal(len(waveform))).astype(np.float32)


def f0(waveform: Array) -> float:
    """Hz of the strongest partial below those of the letters."""
    spectrum = np.abs(np.fft.rfft(waveform, 16_384))
    frequencies = np.fft.rfftfreq(16_384, 1 / SOUND.sample_rate)
    return float(frequencies[np.where((frequencies > 100) & (frequencies < 700), spectrum, 0).argmax()])


def make_spoken(train: int, dev: int, pitches: Mapping[str, float] = PITCHES) -> list[ToneUtterance]:
    """Sayings of one to four letters, by speakers in turn."""
    names = sorted(pitches, reverse=True)
    random = np.random.default_rng(3)
    spoken = []
    for number in range(train + dev):
        split = "train" if number < train else "dev"
        name = names[number % len(names)]
        text = "".join(random.choice(list(LETTERS), random.integers(1, 5)))
        spoken.append(ToneUtterance(f"{split}-{number:03}", text, split, say(text, pitches[name], random), name))
    return spoken


FEW = make_spoken(8, 2)


def tiny(**changes: Any) -> TtsTrainSettings:
    return tiny_tts_settings("fastspeech", **{"evaluate_steps": 0, "griffin_lim": {"iterations": 20}, **changes})


@pytest.fixture(scope="module")
def network() -> FastSpeech:
    table = {"speakers": 3, "speaker_units": 4, "speaker": 2}
    settings = FastSpeechSettings.of({**TTS_SIZES["fastspeech"], **table})
    model = FastSpeech(settings, symbols=6, bins=4, mels=4, mean=[0.1] * 4, deviation=[2.0] * 4)
    random = np.random.default_rng(6)
    for weight in model.weights:
        weight.assign(random.standard_normal(weight.shape) * (1.2 if weight.ndim == 1 else 0.5))
    # Some frames a symbol: an exponential of more would show rounding.
    model.duration.last.kernel.assign(0.2 * model.duration.last.kernel)
    model.duration.last.bias.assign([1.5])
    return model


LABELS = np.array([[3, 0, 5, 5, 1], [2, 4, 1, 0, 0], [3, 0, 5, 5, 1]])
COUNTS = np.array([5, 3, 5])


def test_the_speakers_row_is_added_to_the_encoded_text_as_numpy_adds_it(network: FastSpeech) -> None:
    """Durations, energy and frames all follow from it."""
    spoken = network.synthesize(LABELS, COUNTS, max_steps=100_000, speakers=np.array([1, 0, 2]))
    for index, (labels, count, row) in enumerate(zip(LABELS, COUNTS, [1, 0, 2], strict=True)):
        encoded = exact(network.embedding.embeddings)[labels[:count]]
        for block in network.encoder:
            encoded = convnext(encoded, block)
        encoded = encoded + exact(network.speakers)[row] @ exact(network.speaker.kernel) + exact(network.speaker.bias)

        durations = np.maximum(np.round(np.exp(predictor(encoded, network.duration))), 1).astype(int)
        path = np.repeat(np.arange(count), durations)
        whole = durations[path]
        before = np.arange(len(path)) - np.searchsorted(path, path)
        place = np.stack([(before + 0.5) / whole, np.log1p(before), np.log1p(whole - before - 1)], axis=-1)
        energy = predictor(encoded, network.energy)
        x = (encoded + dense(energy[:, None], network.louder))[path] + dense(place, network.place)
        for block in network.decoder:
            x = convnext(x, block)
        wanted = dense(layer_norm(x, network.last_norm), network.spectrum)
        assert int(spoken.frames[index]) == len(path)
        assert_close(spoken.mels[index, : len(path)], wanted, relative_to_peak=1e-4)
        assert not np.asarray(spoken.mels[index, len(path) :]).any()


def test_a_row_of_a_batch_of_several_speakers_gives_what_it_gives_alone(network: FastSpeech) -> None:
    features = np.random.default_rng(9).standard_normal((3, 31, 4)).astype(np.float32)
    frames = np.array([31, 17, 24])
    rows = np.array([1, 0, 2])
    together = network.align(LABELS, COUNTS, features, frames, speakers=rows)
    assert together.predicted_energy is not None
    for row, (count, length) in enumerate(zip(COUNTS, frames, strict=True)):
        only = slice(row, row + 1)
        alone = network.align(
            LABELS[only, :count], COUNTS[only], features[only, :length], frames[only], speakers=rows[only]
        )
        assert alone.predicted_energy is not None
        assert_close(together.output.mels[row, :length], alone.output.mels[0], relative_to_peak=1e-5)
        assert_close(together.log_durations[row, :count], alone.log_durations[0], relative_to_peak=1e-5)
        assert_close(together.predicted_energy[row, :count], alone.predicted_energy[0], relative_to_peak=1e-5)


def test_without_an_answer_the_speaker_of_the_settings_speaks(network: FastSpeech) -> None:
    own = network.synthesize(LABELS, COUNTS, max_steps=1_000)
    named = network.synthesize(LABELS, COUNTS, max_steps=1_000, speakers=np.array([2, 2, 2]))
    np.testing.assert_array_equal(own.mels, named.mels)
    others = network.synthesize(LABELS, COUNTS, max_steps=1_000, speakers=np.array([0, 1, 1]))
    assert np.asarray(own.frames).tolist() != np.asarray(others.frames).tolist()


def test_a_table_leaves_the_other_weights_and_the_key_of_one_speaker_as_they_are() -> None:
    shared: dict[str, Any] = {"symbols": 6, "bins": 4, "mels": 4, "mean": [0.0] * 4, "deviation": [1.0] * 4}
    plain = FastSpeech(FastSpeechSettings.of(TTS_SIZES["fastspeech"]), **shared)
    table = FastSpeechSettings.of({**TTS_SIZES["fastspeech"], "speakers": 2, "speaker_units": 4})
    of_several = FastSpeech(table, **shared)
    weights = dict(zip(weight_names(of_several), of_several.weights, strict=True))
    for name, weight in zip(weight_names(plain), plain.weights, strict=True):
        np.testing.assert_array_equal(weight, weights.pop(name))
    assert weights.keys() == {"speakers", "speaker/kernel", "speaker/bias"}
    assert not {"speakers", "speaker_units", "speaker"} & FastSpeechSettings().key_values().keys()
    assert "fastspeech" not in tiny().key_values()


def test_who_speaks_is_of_every_utterance_or_one_voice_is_asked_for(tmp_path: Path) -> None:
    nameless = [dataclasses.replace(FEW[0], speaker=""), *FEW[1:]]
    stranger = [dataclasses.replace(each, speaker="eve") if each.split == "dev" else each for each in FEW]
    cases = [
        (nameless, r"1 utterances have no speaker, such as train-000, .*train\.fastspeech\.speakers: one"),
        (stranger, r"dev or test has speakers who are not in train: eve"),
    ]
    for number, (spoken, said) in enumerate(cases):
        dataset = write_dataset(tmp_path / str(number), spoken, how=SOUND)
        with pytest.raises(WorkError, match=said):
            speakers_of(dataset, tiny())
        assert speakers_of(dataset, tiny(fastspeech={"speakers": "one"})) == []
        assert speakers_of(dataset, tiny_tts_settings("tacotron2")) == []

    # Who is in the table is in the step's key; one speaker changes none.
    several = write_dataset(tmp_path / "several", FEW, how=SOUND)
    single = write_dataset(tmp_path / "one", [dataclasses.replace(each, speaker="ann") for each in FEW], how=SOUND)
    assert TtsFamily().training_inputs(tiny(), several).keys() == {"speakers"}
    assert TtsFamily().training_inputs(tiny(), single) == {}
    with pytest.raises(SettingsError, match=r"speakers is 5, and the corpus has 2: ann, bob"):
        with_speakers(tiny(model={"speakers": 5, "speaker_units": 4}), ["ann", "bob"])


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("fastspeech", {"model": {"speakers": 2}}, "speakers is 2, and speaker_units is 0; set both"),
        ("fastspeech", {"model": {"speaker": 1}}, "speaker is 1, and there are 1, numbered from 0"),
        ("tacotron2", {"fastspeech": {"speakers": "one"}}, "fastspeech is about a model of the kind fastspeech"),
        ("tacotron2", {"model": {"speakers": 2}}, r"speakers.*not a setting|speakers"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(kind: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        tiny_tts_settings(kind, **changes)


@pytest.fixture(scope="module")
def spoken() -> list[ToneUtterance]:
    return make_spoken(160, 12)


@pytest.fixture(scope="module")
def trained(spoken: list[ToneUtterance], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A voice of both, of a corpus of both, with no setting about speakers but the width of a row."""
    folder = tmp_path_factory.mktemp("several")
    dataset = write_dataset(folder / "store" / "dataset", spoken, how=SOUND)
    settings = tiny(model={"speaker_units": 8}, epochs=6)
    return run(dataset.folder, folder / "store", settings).path("model")


@pytest.fixture(scope="module")
def voice(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported again with an ONNX graph."""
    folder = tmp_path_factory.mktemp("graph") / "model"
    form = TtsExportForm.of({"export": {"onnx": "float32"}, "griffin_lim": {"iterations": 20}})
    TtsFamily().export_again(trained, form, folder)
    return folder


def heard(voice: Path, engine: Literal["tensorflow", "onnx"] = "onnx") -> dict[str, float]:
    """Hz in which a voice says a text as each of its speakers."""
    synthesizer = Synthesizer(voice, engine=engine)
    results = synthesizer.synthesize_symbols(["abcd"] * 2, list(PITCHES))
    return dict(zip(PITCHES, (f0(result.waveform) for result in results), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["tensorflow", "onnx"])
def test_each_speaker_is_heard_at_their_own_pitch(engine: Literal["tensorflow", "onnx"], voice: Path) -> None:
    info = read_model_info(voice)
    assert info.speakers == ["ann", "bob"]
    assert (info.model_settings["speakers"], info.model_settings["speaker_units"]) == (2, 8)
    assert heard(voice, engine) == pytest.approx(PITCHES, rel=0.1)


@pytest.mark.slow
def test_both_engines_and_a_mixed_batch_say_the_same(voice: Path, trained: Path) -> None:
    graph, plain = Synthesizer(voice), Synthesizer(trained)
    assert (graph.engine, plain.engine) == ("onnx", "tensorflow")
    texts = ["abcd", "da", "c"]
    together = plain.synthesize_symbols(texts, ["bob", "ann", ""])
    for text, name, result, mels in zip(
        texts, ["bob", "ann", "ann"], together, plain.mels(texts, ["bob", "ann", ""]), strict=True
    ):
        (alone,) = graph.synthesize_symbols([text], [name])
        assert_close(alone.mels, result.mels, relative_to_peak=1e-4)
        assert_close(mels, result.mels, relative_to_peak=1e-5)

    # Clients that know of no speakers get the first one.
    default = tf.saved_model.load(str(voice)).signatures["serving_default"]
    answer = default(symbols=tf.constant([[0, 1, 2, 3]]), lengths=tf.constant([4]))
    (own,) = plain.synthesize_symbols(["abcd"], ["ann"])
    assert_close(answer["mels"][0], own.mels, relative_to_peak=1e-4)
    with pytest.raises(SettingsError, match=r"no speaker 'eve'; it speaks as ann, bob"):
        graph.synthesize_symbols(["abcd"], ["eve"])


def write_recordings(folder: Path, spoken: Sequence[ToneUtterance]) -> Path:
    """A converted corpus whose test split are these."""
    utterances = []
    for each in spoken:
        file = folder / f"{each.id}.wav"
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, each.waveform, SOUND.sample_rate)
        length = len(each.waveform) / SOUND.sample_rate
        utterances.append(Utterance(each.id, str(file), length, each.text, each.speaker, "test", f"hash of {each.id}"))
    write_manifest(folder / "manifest.jsonl", utterances)
    return folder


@pytest.mark.slow
def test_evaluation_judges_each_speaker_and_hears_that_two_are_exchanged(
    voice: Path, trained: Path, spoken: list[ToneUtterance], tmp_path: Path
) -> None:
    corpus = write_recordings(tmp_path / "corpus", [each for each in spoken if each.split == "dev"])
    parts = TrainedModel.read(trained)
    settings = TtsTrainSettings.of(parts.info.settings)
    exchanged = tmp_path / "exchanged"
    export_tts(exchanged, settings, parts.dataset, parts.weights, parts.training, speakers=["bob", "ann"])
    (exchanged / "trained_on.jsonl").unlink(missing_ok=True)
    assert heard(exchanged, "tensorflow") == pytest.approx({"ann": 250, "bob": 400}, rel=0.1)

    quick = TtsEvaluateSettings.of(
        {"slices": ["speaker"], "f0_utterances": 12, "f0_min": 150, "f0_max": 600, "mos_utterances": 0,
         "bootstrap_samples": 100, "sample_utterances": 0, "worst_utterances": 0}
    )  # fmt: skip
    distances = {}
    for name, folder in (("right", voice), ("exchanged", exchanged)):
        work = evaluate(folder, corpus, tmp_path / "registry", tmp_path / "store", quick)
        slices = json.loads(work.path("metrics").read_text())["slices"]["speaker"]
        assert {speaker: of["utterances"] for speaker, of in slices.items()} == {"ann": 6, "bob": 6}
        for speaker, of in slices.items():
            for metric in ("mel_l1", "mcd"):
                distances[name, speaker, metric] = of["metrics"][metric]["value"]
    for speaker in PITCHES:
        for metric in ("mel_l1", "mcd"):
            assert distances["exchanged", speaker, metric] > 1.3 * distances["right", speaker, metric]


def as_parent(folder: Path) -> ParentWeights:
    info = read_model_info(folder)
    named = read_named_weights(info, folder)
    return ParentWeights("parent", info, list(named.values()), list(named), folder)


@pytest.mark.slow
def test_a_voice_of_one_speaker_is_at_first_the_voice_of_everybody(tmp_path: Path) -> None:
    single = write_dataset(tmp_path / "one", [dataclasses.replace(each, speaker="ann") for each in FEW], how=SOUND)
    parent_task = TtsTask(tiny(), single)
    assert parent_task.speakers == []
    folder = tmp_path / "parent"
    export_tts(folder, parent_task.settings, single, parent_task.module.weights(), {"best_step": 1})
    task = TtsTask(tiny(model={"speaker_units": 4}), write_dataset(tmp_path / "several", FEW, how=SOUND))
    assert task.speakers == ["ann", "bob"]
    start_from(task, as_parent(folder))
    labels = np.array([[0, 1, 2, 3]] * 2)
    counts = np.array([4, 4])
    ours = task.module.model.synthesize(labels, counts, max_steps=99, speakers=np.array([0, 1]))
    its = parent_task.module.model.synthesize(labels, counts, max_steps=99)
    np.testing.assert_array_equal(ours.mels, its.mels)


@pytest.mark.slow
def test_rows_go_by_name_and_a_new_speaker_begins_as_the_mean(trained: Path, tmp_path: Path) -> None:
    parent = as_parent(trained)
    rows = parent.by_name([])["speakers"]
    others = write_dataset(tmp_path / "others", make_others(), how=SOUND)
    task = TtsTask(tiny(model={"speaker_units": 8}), others)
    assert task.speakers == ["bob", "eve"]
    start_from(task, parent)
    np.testing.assert_allclose(task.module.model.speakers, [rows[1], rows.mean(axis=0)], rtol=1e-6)
    batch = next(Batches(others, "train", batch_size=8, speakers=task.speakers).epoch(0))
    said_by = {each.id: each.speaker for each in make_others()}
    assert [task.speakers[row] for row in np.asarray(batch.speakers)] == [said_by[name] for name in batch.ids]

    # A parent whose model.json names no rows, as one of a public table, gives none of them away.
    nameless = msgspec.structs.replace(parent.info, speakers=[])
    adapted = task.adapt_weight("speakers", rows, rows, nameless)
    assert adapted is not None
    np.testing.assert_allclose(adapted, [rows.mean(axis=0)] * 2, rtol=1e-6)


def make_others() -> list[ToneUtterance]:
    return [dataclasses.replace(each, speaker={"ann": "eve"}.get(each.speaker, "bob")) for each in FEW]


@pytest.mark.slow
def test_the_command_says_a_text_as_the_speaker_asked_for(voice: Path, tmp_path: Path) -> None:
    from voxline.pipelines.cli.synthesis import synthesize_to_file

    for name, hertz in PITCHES.items():
        synthesize_to_file(tmp_path / f"{name}.wav", "abcd", voice, speaker=name)
        assert f0(soundfile.read(tmp_path / f"{name}.wav")[0]) == pytest.approx(hertz, rel=0.1)

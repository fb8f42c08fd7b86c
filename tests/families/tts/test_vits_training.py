"""Training VITS: its losses, its two phases, what it takes from a voice, and the voice that it exports."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
import soundfile
import tensorflow as tf
import yaml

from tests.closeness import assert_close
from tests.conftest import ROOT
from tests.families.tts.test_vits import SMALL, write_piper_voice
from tests.training.tones import FEATURES, LETTERS, ToneUtterance, make_utterances, write_dataset
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.export.step import run as export
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.tts.family import TtsFamily
from voxline.families.tts.settings import TtsTrainSettings
from voxline.families.tts.speakers import speakers_of, with_speakers
from voxline.families.tts.vits.task import VitsTask
from voxline.families.tts.vits.train_module import VitsTrainModule, _padded_length, frame_log_probabilities
from voxline.families.tts.vits.weights import EMBEDDING
from voxline.inference.pace import Pace
from voxline.inference.saved_model import read_model_info
from voxline.inference.synthesizer import Synthesizer
from voxline.pipelines.config.load import load_config
from voxline.training.batches import LENGTHS, padded_length
from voxline.training.segments import WaveformBatches
from voxline.training.train_module import Shape
from voxline.training.trainer import Trainer
from voxline.training.warm_start import read_named_weights

Array = npt.NDArray[Any]

HOP = FEATURES.hop_length
SPOKEN = make_utterances(8, 2, seed=3)
SIZES = {
    "kind": "vits", "units": 12, "layers": 1, "feed_forward": 16, "latent": 8, "flows": 2, "flow_layers": 1,
    "duration_flows": 1, "duration_layers": 1, "duration_bins": 4, "channels": 16, "upsample_rates": [16, 8],
    "upsample_kernels": [32, 16], "residual_kernels": [3], "residual_dilations": [[1]], "residual_block": "single",
}  # fmt: skip
HOW = {
    "posterior_layers": 2,
    "posterior_steps": 2,
    "posterior_rate": 2e-3,
    "segment_frames": 8,
    "discriminators": {"periods": [3], "width": 0.01},
}
ONE = tf.distribute.get_strategy()


def settings(**changes: Any) -> TtsTrainSettings:
    defaults: dict[str, Any] = {
        "model": SIZES, "vits": HOW, "batch_size": 4, "epochs": 2, "strategy": "one", "evaluate_steps": 0,
        "warm_up_steps": 0, "validation_utterances": 2, "max_seconds": 2.0, "learning_rate": 2e-3, "clip_norm": 1e3,
    }  # fmt: skip
    return TtsTrainSettings.of({**defaults, **changes})


def make_dataset(folder: Path, how: FeatureSettings = FEATURES, spoken: list[ToneUtterance] = SPOKEN) -> Dataset:
    """A dataset with its recordings in the store, where convert writes them."""
    dataset = write_dataset(folder / "store" / "dataset", spoken, how=how)
    for utterance, file in zip(spoken, dataset.recordings([each.id for each in spoken]), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, utterance.waveform, how.sample_rate, subtype="FLOAT")
    return dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("tones"))


@pytest.fixture(scope="module")
def module(dataset: Dataset) -> VitsTrainModule:
    """One for all tests: its graph takes half a minute to build."""
    return VitsTrainModule(settings(vits={**HOW, "posterior_steps": 8}), dataset, ONE)


def train_batches(dataset: Dataset, **options: Any) -> WaveformBatches:
    return WaveformBatches(dataset, "train", batch_size=4, seed=1, shuffled=True, **options)


def test_batches_are_the_whole_hops_of_recordings_that_are_long_enough(dataset: Dataset) -> None:
    waveforms = {each.id: each.waveform for each in SPOKEN}
    for batch in train_batches(dataset).epoch(0):
        for row, name in enumerate(batch.ids):
            count = len(waveforms[name]) // HOP
            assert batch.frames[row] == count
            np.testing.assert_array_equal(batch.features[row, :count].reshape(-1), waveforms[name][: count * HOP])
            assert not batch.features[row, count:].any()
    longest = max(len(each.text) for each in SPOKEN)
    short = train_batches(dataset, needed_frames=lambda symbols: 10_000 if symbols == longest else 1)
    assert set(short.infeasible) == {each.id for each in SPOKEN if len(each.text) == longest and each.split == "train"}


def test_the_networks_layers_meet_few_shapes(dataset: Dataset) -> None:
    """TensorFlow keeps code and buffers for each of them: hundreds of lengths once took gigabytes."""
    lengths = np.arange(1, 2_001)
    padded = np.array([padded_length(length) for length in lengths.tolist()])
    assert len(set(padded.tolist())) <= 48
    assert np.all(padded >= lengths)
    assert np.all(padded - lengths < np.maximum(8, lengths / 8))
    for length in (1, 63, 64, 65, 1_000, 245_760, 245_761):
        assert int(_padded_length(tf.constant(length))) == padded_length(length)
    for batch in [*train_batches(dataset).epoch(0), train_batches(dataset).read(np.array([1]))]:
        for size in (batch.features.shape[1], batch.labels.shape[1]):
            assert size in LENGTHS


@pytest.mark.slow
def test_one_graph_takes_batches_of_any_lengths_and_rows(dataset: Dataset, module: VitsTrainModule) -> None:
    module.head_steps = 0
    batches = train_batches(dataset)
    lengths = set()
    for rows in range(1, 9):
        batch = batches.read(np.arange(rows) % batches.utterances)
        lengths.add((batch.features.shape[:2], batch.labels.shape[1]))
        assert module.train_step(batch, 1e-4, 20).accepted
        module.run_eval(batch)
        module.speak(batch, 20 + rows)
    assert len(lengths) > 4
    graphs = [module._train_graph(Shape(None), module.graph_key(20), False), module._speech_graph]
    graphs.append(module._eval_graph(Shape(None), module.graph_key(0)))
    assert [graph.experimental_get_tracing_count() for graph in graphs] == [1, 1, 1]


def test_frames_are_as_likely_as_normal_distributions_say() -> None:
    random = np.random.default_rng(2)
    latent = random.normal(size=(2, 5, 3)).astype(np.float32)
    mean, log_deviation = random.normal(size=(2, 2, 4, 3)).astype(np.float32)
    ours = frame_log_probabilities(tf.constant(latent), tf.constant(mean), tf.constant(log_deviation))
    z, m, s = latent[:, :, None], mean[:, None], log_deviation[:, None]
    theirs = -0.5 * np.log(2 * np.pi) - s - 0.5 * np.square((z - m) / np.exp(s))
    np.testing.assert_allclose(ours, theirs.sum(-1), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_losses_fall_and_a_step_follows_from_what_a_checkpoint_holds(dataset: Dataset, module: VitsTrainModule) -> None:
    batch = next(train_batches(dataset).epoch(0))
    results = [module.train_step(batch, 2e-3, step) for step in range(12)]
    assert all(result.accepted for result in results)
    assert set(results[0].losses) == {"mel", "kl", "duration", "adversarial", "feature_matching", "discriminator"}
    for name in ("mel", "kl", "discriminator"):
        assert results[-1].losses[name] < results[0].losses[name]

    # What a killed run restores, and then repeats; without the discriminators it would be another step.
    state = module.state()
    expected = module.train_step(batch, 2e-3, 12)
    ended = module.state()
    module.restore(state)
    assert module.train_step(batch, 2e-3, 12) == expected
    for name, value in module.state().items():
        np.testing.assert_array_equal(ended[name], value)


@pytest.mark.slow
def test_the_voice_rests_while_its_posterior_learns_from_its_own_speech(
    dataset: Dataset, module: VitsTrainModule
) -> None:
    batch = next(train_batches(dataset).epoch(0))
    module.learn_posterior_first()
    before = module.state()
    results = [module.train_step(batch, 0.0, step) for step in range(8)]  # it has a rate of its own
    after = module.state()
    assert set(results[0].losses) == {"posterior", "duration"}
    assert results[-1].losses["posterior"] < results[0].losses["posterior"]
    for name, value in before.items():
        if name.startswith(("model/", "discriminators/")):
            np.testing.assert_array_equal(after[name], value)
    assert any(not np.array_equal(before[name], after[name]) for name in before if name.startswith("auxiliary/"))
    assert module.graph_key(8) == (False, True)


def test_the_voices_rate_warms_up_when_its_posterior_has_learned(dataset: Dataset, tmp_path: Path) -> None:
    """Adam's first steps are as long as the rate says, and the discriminators are random then."""
    task = VitsTask(settings(warm_up_steps=4), dataset)
    assert Trainer(task, tmp_path / "nothing").head_steps == 0
    task.take_over({})
    trainer = Trainer(task, tmp_path / "voice")
    assert trainer.head_steps == HOW["posterior_steps"]

    # Nor is the parent's own speech a validation that a later one has to beat.
    trainer.state.step = 1
    assert not trainer._validation_due(epoch_ended=True)
    trainer.state.step = HOW["posterior_steps"] + 1
    assert trainer._validation_due(epoch_ended=True)
    too_short = VitsTask(settings(epochs=1, vits={**HOW, "posterior_steps": 1_000}), dataset)
    too_short.take_over({})
    with pytest.raises(SettingsError, match=r"train\.epochs is 1, .* first 1,000 \(train\.vits\.posterior_steps\)"):
        Trainer(too_short, tmp_path / "short")

    # In the key: the same settings once began the voice at the whole rate.
    start = {"model": "voice.onnx"}
    assert TtsFamily().training_inputs(settings(start=start), dataset).keys() == {
        "alignment",
        "batches",
        "posterior",
        "warm_up",
    }


def test_the_posterior_learns_from_speech_as_noisy_as_the_voices_latent_is(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Speech for a listener has less noise: what learned from it gave recordings too small a deviation."""

    class HeardError(Exception):
        pass

    def imagine(*arguments: Any, scales: Array, **options: Any) -> None:
        raise HeardError(scales.tolist())

    module = VitsTrainModule(
        settings(model={**SIZES, "noise": 0.5, "length": 1.5, "duration_noise": 0.25}), dataset, ONE
    )
    monkeypatch.setattr(module.model, "imagine", imagine)
    tensors = module._to_tensors(next(train_batches(dataset).epoch(0)))[0]
    with pytest.raises(HeardError, match=r"\[1\.0, 1\.5, 1\.0\]"):
        module._posterior_losses(tensors, tf.zeros([2], tf.int32))


@pytest.mark.slow
def test_a_row_scores_in_a_batch_what_it_scores_alone(dataset: Dataset) -> None:
    model = {**SIZES, "durations": "fixed"}  # the noise of stochastic ones depends on the batch
    module = VitsTrainModule(settings(model=model), dataset, ONE)
    batches = train_batches(dataset)
    rows = np.concatenate(batches.plan(0))[:3]
    together = dict(module.run_eval(batches.read(rows)))
    for number, row in enumerate(rows):
        ((_, alone),) = module.run_eval(batches.read(np.array([row])))
        for name, value in alone.items():
            assert_close(together[number][name], value, relative_to_peak=1e-3)


@pytest.mark.slow
def test_the_step_exports_a_voice_that_speaks_and_starts_another(dataset: Dataset, tmp_path: Path) -> None:
    output = run(dataset.folder, tmp_path, settings())
    info = read_model_info(output.path("model"))
    assert (info.family, info.kind, info.alphabet) == ("tts", "vits", LETTERS)
    exported = export(output.folder, tmp_path, settings(export={"onnx": "float32"})).path("model")
    graph = Synthesizer(exported)
    assert graph.engine == "onnx"
    plain = Synthesizer(output.path("model"))
    (spoken,) = plain.synthesize_symbols(["abcd"])
    assert_close(graph.synthesize_symbols(["abcd"])[0].waveform, spoken.waveform, relative_to_peak=1e-3)

    child = run(dataset.folder, tmp_path, settings(start={"model": str(output.path("model"))}, epochs=2))
    start = read_model_info(child.path("model")).start
    assert start is not None
    assert start.ancestors[0]["digest"]


def of_speakers(*names: str) -> list[ToneUtterance]:
    return [dataclasses.replace(each, speaker=names[n % len(names)]) for n, each in enumerate(SPOKEN)]


@pytest.mark.slow
def test_a_corpus_of_several_speakers_makes_a_voice_that_speaks_as_each_of_them(tmp_path: Path) -> None:
    how = {**HOW, "posterior_steps": 0, "discriminators": {"start_step": -1}}
    model = {**SIZES, "durations": "fixed", "speaker_units": 4}
    quick = {"model": model, "vits": how, "epochs": 1, "batch_size": 8, "export": {"onnx": "float32"}}
    several = make_dataset(tmp_path / "several", spoken=of_speakers("bob", "ann"))
    output = run(several.folder, tmp_path, settings(**quick))
    exported = export(output.folder, tmp_path, settings(**quick)).path("model")
    info = read_model_info(exported)
    assert info.speakers == ["ann", "bob"]
    assert (info.model_settings["speakers"], info.model_settings["speaker_units"]) == (2, 4)
    graph, plain = Synthesizer(exported), Synthesizer(output.path("model"), pace=Pace(0, 100))
    assert (graph.engine, plain.engine) == ("onnx", "tensorflow")
    texts = ["abcd", "dcba"]
    both = plain.synthesize_symbols(texts, ["bob", "ann"])
    for text, name, spoken in zip(texts, ["bob", "ann"], both, strict=True):
        (alone,) = graph.synthesize_symbols([text], [name])
        assert_close(alone.waveform, spoken.waveform, relative_to_peak=1e-3)
    (other,) = plain.synthesize_symbols(["abcd"], ["ann"])
    shorter = min(len(other.waveform), len(both[0].waveform))
    distance = np.abs(other.waveform[:shorter] - both[0].waveform[:shorter]).max()
    assert distance > 0.05 * np.abs(other.waveform).max()
    np.testing.assert_array_equal(plain.synthesize_symbols(["abcd"])[0].waveform, other.waveform)
    with pytest.raises(SettingsError, match=r"no speaker 'eve'; it speaks as ann, bob"):
        plain.synthesize_symbols(["abcd"], ["eve"])

    # A row moves with its name; a new speaker begins as the mean of those known, and who is gone has no row.
    rows = read_named_weights(info, exported)["speakers"]
    others = make_dataset(tmp_path / "others", spoken=of_speakers("eve", "bob"))
    task = VitsTask(settings(**quick), others)
    assert task.speakers == ["bob", "eve"]
    fresh = np.ones((2, 4), np.float32)
    adapted = task.adapt_weight("speakers", rows, fresh, info)
    np.testing.assert_array_equal(adapted, [rows[1], rows.mean(axis=0)])
    batch = task.train.read(np.arange(4))
    names = [task.speakers[row] for row in np.asarray(batch.speakers)]
    assert names == [{each.id: each.speaker for each in of_speakers("eve", "bob")}[name] for name in batch.ids]

    # To a voice without a table nothing is added for a speaker at first.
    plain_info = msgspec.structs.replace(info, settings={"model": SIZES}, speakers=[])
    assert task.adapt_weight("speakers", None, fresh, plain_info) is fresh
    assert not np.any(task.adapt_weight("decoder/speaker/kernel", None, fresh, plain_info))
    assert task.adapt_weight("decoder/first/kernel", None, fresh, plain_info) is None


def test_who_speaks_must_be_known_of_every_utterance(tmp_path: Path) -> None:
    dev = [each for each in SPOKEN if each.split == "dev"]
    train = [each for each in of_speakers("ann", "bob") if each.split == "train"]
    cases: list[tuple[list[ToneUtterance], str]] = [
        ([dataclasses.replace(train[0], speaker=""), *train[1:]], r"1 utterances have no speaker, such as train-000"),
        ([*train, dataclasses.replace(dev[0], speaker="eve")], r"dev or test has speakers who are not in train: eve"),
        ([*train, dataclasses.replace(dev[0], split="test", speaker="eve")], r"dev or test has speakers .*: eve"),
    ]
    for number, (spoken, said) in enumerate(cases):
        dataset = make_dataset(tmp_path / str(number), spoken=spoken)
        with pytest.raises(WorkError, match=said):
            speakers_of(dataset, settings())
        assert speakers_of(dataset, settings(vits={**HOW, "speakers": "one"})) == []

    # Who is in the table is in the step's key: the same dataset and settings once made one voice of all.
    several = make_dataset(tmp_path / "several", spoken=train)
    assert TtsFamily().training_inputs(settings(), several).keys() == {"batches", "speakers"}
    assert TtsFamily().training_inputs(settings(vits={**HOW, "speakers": "one"}), several).keys() == {"batches"}
    with pytest.raises(SettingsError, match=r"speakers is 5, and the corpus has 2: ann, bob"):
        with_speakers(settings(model={**SIZES, "speakers": 5, "speaker_units": 4}), ["ann", "bob"])


@pytest.mark.slow
def test_a_piper_voice_gives_all_that_it_has_symbol_by_symbol(tmp_path: Path, capfd: Any) -> None:
    """It lacks the posterior, and "a", "b" and "c", which no text has; "d" is a row of its own."""
    file, weights = write_piper_voice(tmp_path / "voice")
    how = FeatureSettings.of({"sample_rate": 8_000, "hop_seconds": SMALL.hop / 8_000, "window_seconds": 0.004}, "test")
    spoken = [dataclasses.replace(each, text="d" * len(each.text)) for each in SPOKEN]
    dataset = make_dataset(tmp_path, how, spoken)
    how_long: dict[str, Any] = {"epochs": 2, "learning_rate": 1e-10}
    how_long |= {"freeze": ["encoder/blocks", "encoder/statistics", "durations"], "rates": {"encoder": 0.01}}
    values = settings(model=SMALL.plain(), start={"model": str(file)}, vits={**HOW, "posterior_steps": 2}, **how_long)
    output = run(dataset.folder, tmp_path, values)
    said = capfd.readouterr().out
    assert "the first 2 steps train the posterior encoder alone" in said
    assert "aligned 8 utterances of train by the parent's speech" in said
    assert "starts from tiny" in said
    assert "new symbols (mean): 'abc'" in said

    # Two steps of four are the posterior's, and at such a rate two more change little: the voice is as it came.
    info = read_model_info(output.path("model"))
    own = read_named_weights(info, output.path("model"))
    for name, value in weights.items():
        if name != EMBEDDING:  # a scale is in Piper's file as its inverse
            np.testing.assert_allclose(own[name], value, rtol=1e-4, atol=1e-6)
    symbols = list(dict.fromkeys("həlˈoʊ wɜːld,.!t"))
    rows = weights[EMBEDDING]
    np.testing.assert_allclose(own[EMBEDDING][LETTERS.index("d")], rows[symbols.index("d")], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(own[EMBEDDING][-3:], rows[-3:], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(own[EMBEDDING][0], rows[:-3].mean(0), rtol=1e-5, atol=1e-6)


def test_the_config_of_the_docs_is_accepted(tmp_path: Path) -> None:
    page = (ROOT / "docs/voices.md").read_text(encoding="utf-8")
    (block,) = (text for text in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "vits" in text)
    given = {"pipeline": "tts", "name": "joe", "corpus": {"uri": str(tmp_path)}}
    config: Any = load_config({**given, **yaml.safe_load(block)})
    features = config.extract.features
    assert (features.hop_length, features.win_length, features.fft_bins) == (256, 1024, 513)
    config.train.check_features(features)
    assert (config.train.model.hop, config.train.learning_rate) == (256, 2e-4)


def test_what_vits_cannot_learn_by_is_refused_by_name(dataset: Dataset) -> None:
    for changes, said in [
        ({"griffin_lim": {"iterations": 3}}, "griffin_lim are about mels"),
        ({"export": {"onnx": "int8"}}, r"export\.onnx is int8"),
        ({"teacher_forcing": {"to_share": 0.5}}, "teacher_forcing are about a decoder"),
        ({"xla": True}, "alignment that vits learns by"),
        ({"model": {"kind": "fastspeech"}}, r"model\.kind is 'fastspeech'; leave it out"),
    ]:
        with pytest.raises(SettingsError, match=said):
            settings(**changes)
    other = settings(model={**SIZES, "upsample_rates": [4, 4], "upsample_kernels": [8, 8]})
    with pytest.raises(SettingsError, match=r"make 16 samples of a frame, and extract\.features\.hop_seconds is 128"):
        other.check_features(dataset.features)
    defaults = TtsFamily().config_defaults({"train": {"model": {"kind": "vits"}}})
    assert defaults["train"]["learning_rate"] == 2e-4
    assert "learning_rate" not in TtsFamily().config_defaults({})["train"]
    started = TtsFamily().config_defaults({"train": {"start": {"model": "joe@1"}}})
    assert started["validate"]["unseen_characters"] == {"severity": "warning"}
    assert "unseen_characters" not in TtsFamily().config_defaults({})["validate"]

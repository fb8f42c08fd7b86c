"""The sharpener of a voice: its norm, its network, its critic, its training, and the voice that ships with it."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import scipy.ndimage
import scipy.signal
import soundfile
import tensorflow as tf

from tests.closeness import assert_close
from tests.training.tones import (
    FEATURES,
    TTS_SIZES,
    make_utterances,
    tiny_asr_settings,
    tiny_tts_settings,
    write_dataset,
)
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.components.export.step import run as export
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError
from voxline.families.asr.networks.deepspeech2 import DeepSpeech2
from voxline.families.tts import sharpened_voice
from voxline.families.tts.listener import Listener, fit_listener
from voxline.families.tts.networks.fastspeech import FastSpeech
from voxline.families.tts.networks.settings import FastSpeechSettings
from voxline.families.tts.networks.sharpener import Sharpener, SwitchableNorm
from voxline.families.tts.onnx import export_onnx_voice
from voxline.families.tts.settings import GriffinLimSettings, SharpenTrainSettings, TtsTrainSettings
from voxline.families.tts.sharpening import SharpenTask, SharpenTrainModule
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.saved_model import model_digest
from voxline.inference.synthesizer import Synthesizer
from voxline.metrics.sharpness import change_over_time, sharpness
from voxline.registry.training_data import TRAINED_ON, read_training_data, training_data_of
from voxline.training.export import model_info, write_exported
from voxline.training.segments import PairBatches, split_pairs
from voxline.training.train_module import BatchTensors
from voxline.training.trainer import Trainer
from voxline.training.weight_names import weight_names

SPOKEN = make_utterances(12, 4, seed=5)
FRAMES = 16
GAN = {
    "kind": "gan", "channels": 2, "blocks": 1, "critic_channels": 2, "critic_units": 4, "segment_frames": FRAMES,
    "batch_size": 4, "epochs": 2, "learning_rate": 1e-3, "evaluate_steps": 0,
}  # fmt: skip
HEARD = FeatureSettings(sample_rate=8_000, mels=12, window_seconds=0.025, hop_seconds=0.010, spectrum="magnitude")
"""Features of the recognizer that listens: those of the voice are `FEATURES`."""


def randomize(model: Any, seed: int = 1) -> None:
    random = np.random.default_rng(seed)
    for weight in model.weights:
        variance = "variance" in weight.path
        weight.assign(random.uniform(0.5, 2, weight.shape) if variance else 0.4 * random.standard_normal(weight.shape))


def voice_settings(**changes: Any) -> TtsTrainSettings:
    small = {"model": {"encoder_layers": 1, "decoder_layers": 1}, "griffin_lim": GriffinLimSettings().plain()}
    return tiny_tts_settings("fastspeech", **{**small, "epochs": 1, "evaluate_steps": 0, **changes})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    made = write_dataset(tmp_path_factory.mktemp("tones") / "store" / "dataset", SPOKEN)
    for utterance, file in zip(SPOKEN, made.recordings([each.id for each in SPOKEN]), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, utterance.waveform, FEATURES.sample_rate, subtype="FLOAT")
    return made


def write_recognizer(folder: Path, dataset: Dataset, kind: str = "deepspeech2", seed: int = 1) -> Path:
    """A recognizer that nobody runs: two convolutions with random weights, and their statistics."""
    convolutions = [{"channels": 3, "kernel": [5, 3], "stride": [2, 2]}, {"channels": 2, "kernel": [3, 5]}]
    settings = tiny_asr_settings(
        model={"kind": kind, **({"convolutions": convolutions} if kind == "deepspeech2" else {})}
    )
    heard = np.concatenate([compute_features(each.waveform, HEARD) for each in SPOKEN])
    about = dataclasses.replace(dataset, features=HEARD, mean=heard.mean(0).tolist(), deviation=heard.std(0).tolist())
    module, names = tf.Module(), []
    if kind == "deepspeech2":
        network = DeepSpeech2(settings.model, mean=about.mean, deviation=about.deviation, classes=5, portable=True)
        randomize(network, seed)
        module.weights = [tf.Variable(weight) for weight in network.weights]
        names = weight_names(network)
    write_exported(folder, module, {}, model_info("ctc", settings, about, {}, names))
    heard_by_it = training_data_of(dataset)
    line = {**heard_by_it.utterances[0], "id": "heard", "audio_hash": "heard"}
    dataclasses.replace(heard_by_it, utterances=[line]).write(folder / TRAINED_ON)
    return folder


@pytest.fixture(scope="module")
def recognizer(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recognizer(tmp_path_factory.mktemp("recognizer") / "model", dataset)


@pytest.fixture(scope="module")
def gan(recognizer: Path) -> dict[str, Any]:
    return {**GAN, "recognizer": str(recognizer)}


@pytest.fixture(scope="module")
def pairs(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> PairBatches:
    """Recorded mels, and the same blurred along both axes in place of a voice's."""
    folder = tmp_path_factory.mktemp("mels")
    batches = PairBatches(dataset, "train", FRAMES, batch_size=4, seed=1, shuffled=True)
    for row in range(batches.utterances):
        blurred = scipy.ndimage.gaussian_filter(batches.example(row).features[:, : dataset.features.mels], 1.0)
        np.save(folder / f"{row}.npy", blurred)
    batches.voice_mels = folder
    return batches


@pytest.fixture(scope="module")
def module(dataset: Dataset, recognizer: Path, pairs: PairBatches, gan: dict[str, Any]) -> SharpenTrainModule:
    """One for all tests: tracing its step takes seconds."""
    chosen = SharpenTrainSettings.of_voice(voice_settings(sharpen=gan))
    made = SharpenTrainModule(chosen, dataset, tf.distribute.get_strategy(), recognizer)
    assert made.listener is not None
    fit_listener(made.listener, dataset, pairs, made.mean, made.deviation)
    return made


@pytest.fixture(scope="module")
def untrained(module: SharpenTrainModule) -> dict[str, Any]:
    """The state of `module` before its first step."""
    return {name: np.copy(value) for name, value in module.state().items()}


@pytest.fixture(scope="module")
def traced_once(module: SharpenTrainModule, untrained: dict[str, Any]) -> Iterator[None]:
    """Each task trains `module` from its first step, as in a process that has just started."""

    def build_module(task: SharpenTask) -> SharpenTrainModule:
        again = SharpenTrainModule(task.settings, task.dataset, task.strategy, task._recognizer)
        assert np.array_equal(again.mean, module.mean)
        assert np.array_equal(again.deviation, module.deviation)
        assert again.settings == module.settings
        module.restore(again.state())
        assert all(np.array_equal(untrained[name], value) for name, value in module.state().items())
        return module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharpenTask, "build_module", build_module)
        yield


def switchable_norm(x: Any, frames: list[int], norm: SwitchableNorm, training: bool) -> Any:
    """Luo et al. 2019, equations 3 to 5, row by row over real frames, in float64."""
    real = [row[:count].astype(np.float64) for row, count in zip(x, frames, strict=True)]
    together = np.concatenate([row.reshape(-1, x.shape[-1]) for row in real])
    batch = (together.mean(0), together.var(0))
    if not training:
        batch = (norm.moving_mean.numpy(), norm.moving_variance.numpy())
    w, v = (np.exp(each.numpy()) / np.exp(each.numpy()).sum() for each in (norm.mean_logits, norm.variance_logits))
    found = []
    for row in real:
        mean = w[0] * row.mean((0, 1)) + w[1] * row.mean() + w[2] * batch[0]
        variance = v[0] * row.var((0, 1)) + v[1] * row.var() + v[2] * batch[1]
        found.append(norm.gamma.numpy() * (row - mean) / np.sqrt(variance + norm.epsilon) + norm.beta.numpy())
    return found, batch


@pytest.mark.parametrize("training", [True, False])
def test_switchable_norm_mixes_statistics_of_real_frames(training: bool) -> None:
    random, frames = np.random.default_rng(2), [7, 4, 1]
    x = (3 * random.standard_normal((3, 7, 5, 4)) + random.standard_normal(4)).astype(np.float32)
    norm = SwitchableNorm()
    norm.build((None, None, 5, 4))
    randomize(norm)
    real = (np.arange(7) < np.array(frames)[:, None])[..., None, None]
    garbage = np.where(real, x, np.float32(np.nan))
    made = norm(garbage, real, training=training).numpy()
    wanted, statistics = switchable_norm(x, frames, norm, training)
    for row, values in enumerate(wanted):
        assert_close(made[row, : frames[row]], values, relative_to_peak=2e-5)
    if training:
        for ours, theirs in zip(norm.batch_statistics, statistics, strict=True):
            assert_close(ours, theirs, relative_to_peak=1e-6)


@pytest.mark.slow
def test_a_row_gives_what_it_gives_alone() -> None:
    model = Sharpener(channels=2, blocks=1)
    randomize(model)
    mels = np.random.default_rng(3).standard_normal((3, 11, 6)).astype(np.float32)
    frames = np.array([11, 6, 1], np.int32)
    made = model(mels, frames).numpy()
    assert np.abs(made - mels)[0].max() > 0.1
    for row, count in enumerate(frames):
        alone = model(mels[row : row + 1, :count], frames[row : row + 1]).numpy()[0]
        assert_close(made[row, :count], alone, relative_to_peak=1e-5)
        assert not made[row, count:].any()


@pytest.mark.slow
def test_the_onnx_graph_of_a_voice_sharpens_as_the_network() -> None:
    random = np.random.default_rng(4)
    settings = FastSpeechSettings.of(TTS_SIZES["fastspeech"])
    statistics = {"mean": random.normal(-3, 1, 5).tolist(), "deviation": random.uniform(0.5, 2, 5).tolist()}
    voice, sharpener = FastSpeech(settings, symbols=9, bins=5, mels=5, **statistics), Sharpener(channels=2, blocks=1)
    randomize(sharpener)
    voice.duration.last.bias.assign([1.6])
    labels, counts = random.integers(0, 9, (3, 11)).astype(np.int32), np.array([11, 4, 1], np.int32)
    output = voice.synthesize(labels, counts, max_steps=40, noise=(7, 0), reduction=1)
    assert len({int(count) % 4 for count in output.frames}) > 1
    wanted = voice.denormalize(sharpener(output.mels, output.frames)).numpy()
    graph = export_onnx_voice(voice, max_steps=40, reduction=1, noise=(7, 0), sharpener=sharpener)
    mels, frames, _, _ = onnxruntime.InferenceSession(graph).run(None, {"symbols": labels, "lengths": counts})
    for row, count in enumerate(frames):
        assert_close(mels[row, :count], wanted[row, :count], relative_to_peak=1e-5)
        assert not mels[row, count:].any()


def test_a_pair_has_one_place_of_both(dataset: Dataset, pairs: PairBatches) -> None:
    mels = dataset.features.mels
    recorded = {pairs.example(row).id: pairs.example(row).features[:, :mels] for row in range(pairs.utterances)}
    for batch in pairs.epoch(0):
        for name, smoothed, sharp in zip(batch.ids, *split_pairs(batch.features, mels), strict=True):
            whole = recorded[name]
            (first,) = (n for n in range(max(len(whole) - FRAMES, 0) + 1) if np.array_equal(whole[n], sharp[0]))
            wanted = scipy.ndimage.gaussian_filter(whole, 1.0)[first : first + FRAMES]
            np.testing.assert_array_equal(smoothed[: len(wanted)], wanted)


@pytest.mark.slow
def test_the_penalty_is_the_critics_gradient(dataset: Dataset, pairs: PairBatches, module: SharpenTrainModule) -> None:
    """By finite differences at the mels between recorded and sharpened ones."""
    batch = next(pairs.epoch(0))
    mels, noise = dataset.features.mels, np.array([1, 0], np.int32)
    tensors = BatchTensors(batch.features, batch.frames, batch.labels, batch.counts)
    # Normalized as the module's statistics say.
    mean, deviation = (np.asarray(each, np.float32)[:mels] for each in (dataset.mean, dataset.deviation))
    smoothed, recorded = ((part - mean) / deviation for part in split_pairs(batch.features, mels))
    compute = tf.function(lambda: module.compute_losses(tensors, noise, {}, None), autograph=False)
    terms = {name: value.numpy() for name, value in compute().items()}
    made = module.model(smoothed, np.full(4, FRAMES), training=True).numpy()
    share = tf.random.stateless_uniform([4, 1, 1], noise).numpy()
    between = share * recorded + (1 - share) * made
    wanted = []
    for row in range(4):
        step = 1e-2 * np.eye(FRAMES * mels, dtype=np.float32).reshape(-1, FRAMES, mels)
        beside = np.repeat(smoothed[row : row + 1], len(step), axis=0)
        up, down = (module.critic(between[row] + sign * step, beside).numpy() for sign in (1, -1))
        gradient = (up.astype(np.float64) - down) / 2e-2
        wanted.append(10 * (np.sqrt(np.sum(gradient**2)) - 1) ** 2)
    judged = {"made": module.critic(made, smoothed).numpy(), "recorded": module.critic(recorded, smoothed).numpy()}
    np.testing.assert_allclose(terms["critic"] - judged["made"] + judged["recorded"], wanted, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(terms["adversarial"], -judged["made"], rtol=1e-5)
    content = module.settings.content * np.abs(made - recorded).mean((1, 2))
    np.testing.assert_allclose(terms["content"], content, rtol=1e-4)
    scaled = [(each * deviation + mean) / deviation.mean() for each in (made, recorded)]
    detail = level = 0
    for axis in (1, 2):
        one, other = (np.abs(np.diff(each, axis=axis)) for each in scaled)
        detail = detail + np.square(one - other).mean((1, 2))
        level = level + np.square(one.mean(1) - other.mean(1)).mean(1)
    np.testing.assert_allclose(terms["detail"], module.settings.detail * detail, rtol=1e-4)
    np.testing.assert_allclose(terms["level"], module.settings.level * level, rtol=1e-4)
    assert module.listener is not None
    heard = [heard_by(module.listener, each) for each in (made, recorded)]
    perceptual = sum(np.square(one - other).mean((1, 2, 3)) for one, other in zip(*heard, strict=True))
    np.testing.assert_allclose(terms["perceptual"], module.settings.perceptual * perceptual, rtol=1e-3)


def heard_by(listener: Listener, mels: Any) -> list[Any]:
    """What the recognizer's convolutions make of normalized mels, in float64 and by scipy's correlation."""
    ratio = HEARD.hop_length / FEATURES.hop_length
    places = np.arange(int((mels.shape[1] - 1) / ratio + 1e-9) + 1) * ratio
    frames = np.arange(mels.shape[1])
    network, found = listener._network, []
    for row in np.asarray(mels, np.float64):
        around = [np.stack([np.interp(places + shift, frames, band) for band in row.T], axis=1) for shift in (-1, 0, 1)]
        x = np.concatenate(around, axis=1) @ listener.matrix + listener.bias
        x = ((x - network.normalize._shift) * network.normalize._scale)[..., None]
        row_found = []
        for block in network.convolutions:
            kernel, norm = block.convolution.kernel.numpy(), block.norm
            borders = [((size - 1) // 2, size // 2) for size in kernel.shape[:2]]
            x = np.pad(x, [borders[0], borders[1], (0, 0)])
            y = np.stack([
                sum(scipy.signal.correlate(x[..., i], kernel[..., i, o], "valid") for i in range(x.shape[2]))
                for o in range(kernel.shape[3])
            ], axis=-1)[:: block.settings.stride[0], :: block.settings.stride[1]]  # fmt: skip
            gamma, beta, mean, variance = (
                each.numpy() for each in (norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance)
            )
            x = np.clip(gamma * (y - mean) / np.sqrt(variance + norm.epsilon) + beta, 0, block.ceiling)
            row_found.append(x)
        found.append(row_found)
    return [np.stack(each) for each in zip(*found, strict=True)]


def test_a_recognizer_hears_the_recording_in_a_voices_mels(module: SharpenTrainModule, dataset: Dataset) -> None:
    """Of recordings that the map was not fitted on."""
    listener, mels = module.listener, dataset.features.mels
    assert listener is not None
    assert listener.explained > 0.9
    unseen, wanted, found = SPOKEN[-4:], [], []
    for each in unseen:
        normal = (compute_features(each.waveform, FEATURES)[:, :mels] - module.mean) / module.deviation
        read = listener.read(tf.constant(normal[None], tf.float32)).numpy()[0]
        wanted.append(compute_features(each.waveform, HEARD)[: len(read)])
        found.append(read[: len(wanted[-1])])
    apart, whole = np.concatenate(found) - np.concatenate(wanted), np.concatenate(wanted)
    assert np.square(apart).sum() < 0.15 * np.square(whole - whole.mean(0)).sum()


def test_a_recognizer_without_such_convolutions_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    other = write_recognizer(tmp_path / "model", dataset, "conformer")
    with pytest.raises(SettingsError, match=r"train\.sharpen\.recognizer: .*'conformer'; 'deepspeech2' is accepted"):
        Listener(other, FEATURES)


@pytest.mark.slow
def test_a_step_that_is_not_finite_changes_nothing_and_a_restored_module_repeats(
    pairs: PairBatches, module: SharpenTrainModule, untrained: dict[str, Any]
) -> None:
    batches = list(pairs.epoch(0))
    module.restore(untrained)
    before = module.state()
    assert module.train_step(batches[0], 1e-3, 0).accepted
    saved = module.state()
    assert any(not np.array_equal(before[name], saved[name]) for name in before if name.startswith("critic"))
    assert any(not np.array_equal(before[name], saved[name]) for name in before if name.startswith("model"))
    broken = dataclasses.replace(batches[1], features=batches[1].features * np.float32(np.nan))
    assert not module.train_step(broken, 1e-3, 1).accepted
    assert all(np.array_equal(saved[name], value) for name, value in module.state().items())
    first = module.train_step(batches[1], 1e-3, 1)
    after = module.state()
    module.restore(saved)
    assert module.train_step(batches[1], 1e-3, 1) == first
    assert all(np.array_equal(after[name], value) for name, value in module.state().items())


@pytest.fixture(scope="module")
def voices(
    dataset: Dataset, gan: dict[str, Any], traced_once: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, Path]:
    """The store, and the models of a voice without and with a sharpener."""
    store = tmp_path_factory.mktemp("store")
    plain = run(dataset.folder, store, voice_settings())
    written = (plain.path("model") / "saved_model.pb").stat().st_mtime_ns
    sharpened = run(dataset.folder, store, voice_settings(sharpen=gan))
    assert not sharpened.reused
    assert sharpened.folder != plain.folder
    assert (plain.path("model") / "saved_model.pb").stat().st_mtime_ns == written  # the voice was not trained again
    copied = tmp_path_factory.mktemp("elsewhere") / "model"
    shutil.copytree(gan["recognizer"], copied)
    for same in (gan["recognizer"], str(copied)):  # its bytes are in the key, not where they are
        assert run(dataset.folder, store, voice_settings(sharpen={**gan, "recognizer": same})).reused
    assert {"sharpener_score", "sharpener_sharpness", "sharpener_change", "dev_mel_dtw"} <= sharpened.metrics.keys()
    assert list((sharpened.path("logs") / "sharpening").iterdir())
    return store, plain.path("model"), sharpened.path("model")


def exported_sharpener(model: Path) -> list[Any]:
    """The weights of a voice's sharpener."""
    reader = tf.train.load_checkpoint(str(model / "variables" / "variables"))
    count = sum(name.startswith("sharpener_weights/") for name in reader.get_variable_to_shape_map())
    return [reader.get_tensor(f"sharpener_weights/{index}/.ATTRIBUTES/VARIABLE_VALUE") for index in range(count)]


@pytest.mark.slow
def test_a_voice_ships_with_its_sharpener(
    dataset: Dataset, gan: dict[str, Any], voices: tuple[Path, Path, Path]
) -> None:
    _, plain, sharpened = voices
    about = json.loads((sharpened / "model.json").read_text())
    before = json.loads((plain / "model.json").read_text())
    assert about["settings"]["sharpen"]["kind"] == "gan"
    assert before["settings"]["sharpen"]["kind"] == "none"
    assert about["provenance"]["trained"]["sharpener"]["steps"] == 6
    listed = read_training_data((sharpened / TRAINED_ON).read_bytes(), "")
    assert [line["id"] for line in listed.utterances if line.get("inherited")] == ["heard"]
    assert about["settings"]["sharpen"]["recognizer"] == gan["recognizer"]
    assert about["provenance"]["trained"]["sharpener"]["recognizer"]["digest"] == model_digest(gan["recognizer"])
    assert {name for name in about if about[name] != before[name]} <= {"settings", "provenance"}
    sharpener = Sharpener(channels=2, blocks=1)
    for weight, value in zip(sharpener.weights, exported_sharpener(sharpened), strict=True):
        weight.assign(value)
    mean, deviation = np.asarray(dataset.mean, np.float32), np.asarray(dataset.deviation, np.float32)
    texts = [each.text for each in SPOKEN[:3]]
    form = TtsTrainSettings.of({**voice_settings(sharpen=gan).plain(), "export": {"onnx": "float32"}})
    with_graph = export(sharpened, voices[0], form).path("model")
    smooth, sharp, by_onnx = (
        Synthesizer(folder, engine=engine).synthesize_symbols(texts)
        for folder, engine in ((plain, "tensorflow"), (sharpened, "tensorflow"), (with_graph, "onnx"))
    )
    for one, other, third in zip(smooth, sharp, by_onnx, strict=True):
        wanted = sharpener((one.mels[None] - mean) / deviation, np.array([len(one.mels)])).numpy()[0] * deviation + mean
        assert np.abs(wanted - one.mels).max() > 1e-3
        assert_close(other.mels, wanted, relative_to_peak=1e-3)
        assert_close(third.mels, wanted, relative_to_peak=1e-3)
    assert (with_graph / ONNX_FILE).is_file()
    for weight, value in zip(exported_sharpener(sharpened), exported_sharpener(with_graph), strict=True):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.slow
def test_a_killed_training_resumes_to_the_same_weights(
    dataset: Dataset, voices: tuple[Path, Path, Path], gan: dict[str, Any], traced_once: None, tmp_path: Path
) -> None:
    chosen = SharpenTrainSettings.of_voice(voice_settings(sharpen=gan))

    def task() -> SharpenTask:
        return SharpenTask(chosen, dataset, voices[1], tmp_path / "mels", Path(gan["recognizer"]))

    def killed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trainer(task(), tmp_path / "killed", killed).fit()
    resumed = Trainer(task(), tmp_path / "killed").fit()
    assert [each.step for each in resumed.state.validations] == [3, 6]
    whole = exported_sharpener(voices[2])
    assert len(whole) == len(resumed.weights)
    assert all(np.array_equal(resumed.weights[f"model/{index}"], value) for index, value in enumerate(whole))


@pytest.mark.slow
def test_another_recognizer_costs_another_training(
    dataset: Dataset,
    voices: tuple[Path, Path, Path],
    gan: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = write_recognizer(tmp_path / "model", dataset, seed=2)

    def train(*given: Any) -> None:
        raise RuntimeError(f"trained with {given[-1].location}")

    monkeypatch.setattr(sharpened_voice, "_sharpen", train)
    with pytest.raises(RuntimeError, match=r"trained with .*model"):
        run(dataset.folder, voices[0], voice_settings(sharpen={**gan, "recognizer": str(other)}))


@pytest.mark.slow
def test_training_sharpens_what_is_blurred(
    dataset: Dataset, pairs: PairBatches, module: SharpenTrainModule, untrained: dict[str, Any]
) -> None:
    module.restore(untrained)
    for epoch in range(30):
        for step, batch in enumerate(pairs.epoch(epoch)):
            assert module.train_step(batch, 2e-3 * (1 - epoch / 30), epoch * pairs.steps + step).accepted
    batch = next(pairs.epoch(0))
    smoothed, recorded = split_pairs(batch.features, dataset.features.mels)
    made = np.stack([out["mels"] for _, out in module.run_eval(batch)])
    for measure in (sharpness, change_over_time):
        before, after, wanted = (sum(map(measure, mels)) for mels in (smoothed, made, recorded))
        assert before < 0.8 * wanted
        assert abs(after - wanted) < 0.7 * abs(before - wanted)


def test_a_voice_of_linear_spectra_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"tacotron makes its waveforms of a linear spectrum; set sharpen\.kind to none"
    ):
        tiny_tts_settings("tacotron", sharpen={"kind": "gan"})


def test_the_voices_key_does_not_know_its_sharpener() -> None:
    plain, sharpened = voice_settings(), voice_settings(sharpen=GAN)
    assert plain.key_values() == sharpened.key_values()
    assert sharpened.of_voice_alone() == plain
    deeper = voice_settings(sharpen={**GAN, "blocks": 2})
    assert len({str(SharpenTrainSettings.of_voice(each).key_values()) for each in (sharpened, deeper)}) == 2


def test_the_pod_that_launched_workers_trains_a_sharpener_alone() -> None:
    launching = voice_settings(sharpen=GAN, strategy="multi_worker", workers={"count": 2})
    assert SharpenTrainSettings.of_voice(launching).strategy == "auto"
    assert SharpenTrainSettings.of_voice(voice_settings(sharpen=GAN, strategy="mirrored")).strategy == "mirrored"

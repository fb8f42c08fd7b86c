"""FastSpeech: alignment against all paths one by one, durations learned without a teacher, no skip and no loop; pitch
against F0 averaged symbol by symbol.
"""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
import tensorflow as tf
from scipy.special import erf

from tests.closeness import assert_close
from tests.families.networks.test_against_numpy import convolve, dense, exact, layer_norm, relu
from tests.training.tones import FEATURES, TTS_SIZES, make_utterances, tiny_tts_settings, write_dataset
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError
from voxline.families.tts.export import export_tts
from voxline.families.tts.networks.fastspeech import FastSpeech
from voxline.families.tts.networks.monotonic_alignment import best_path_alignment, forward_sum_loss
from voxline.families.tts.networks.settings import FastSpeechSettings
from voxline.families.tts.settings import ExportSettings
from voxline.families.tts.train_module import TtsTrainModule, build_tts_model
from voxline.inference.synthesizer import Synthesizer
from voxline.metrics.attention import compute_attention_metrics
from voxline.training.batches import Batches

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(5)


def all_paths(log_probabilities: Array) -> dict[tuple[int, ...], float]:
    """Each monotonic path [frames] from the first symbol to the last, and its log probability."""
    frames, symbols = log_probabilities.shape
    paths = {}
    for moves in itertools.combinations(range(1, frames), symbols - 1):
        path = tuple(np.searchsorted(moves, range(frames), side="right").tolist())
        paths[path] = float(log_probabilities[range(frames), path].sum())
    return paths


def test_the_sum_over_paths_and_the_best_path_are_those_of_all_paths() -> None:
    sizes = [(7, 4), (5, 5), (6, 1)]
    values = RANDOM.normal(-2, 1.5, (3, 7, 5)).astype(np.float32)
    frames, counts = (np.array(part, np.int32) for part in zip(*sizes, strict=True))
    given = tf.constant(values)
    with tf.GradientTape() as tape:
        tape.watch(given)
        losses = forward_sum_loss(given, frames, counts)
    gradient, best = tape.gradient(losses, given).numpy(), best_path_alignment(given, frames, counts).numpy()
    for row, (longest, symbols) in enumerate(sizes):
        paths = all_paths(values[row, :longest, :symbols].astype(np.float64))
        total = np.logaddexp.reduce(list(paths.values()))
        assert float(losses[row]) == pytest.approx(-total / longest, rel=1e-4)
        posterior, wanted = np.zeros((7, 5)), np.zeros((7, 5))
        for path, weight in paths.items():
            posterior[range(longest), path] += np.exp(weight - total)
        wanted[range(longest), max(paths, key=paths.__getitem__)] = 1
        assert_close(gradient[row], -posterior / longest, relative_to_peak=1e-4)
        np.testing.assert_array_equal(best[row], wanted)


def raw_prosody(frames: int, seed: int) -> Array:
    """log F0 (0 where unvoiced), voicing and energy, float32 [frames, 3], in runs of five frames."""
    random = np.random.default_rng(seed)
    voiced = np.repeat(random.random(-(-frames // 5)) < 0.6, 5)[:frames]
    log_f0 = np.where(voiced, np.log(120) + 0.2 * random.standard_normal(frames), 0)
    return np.stack([log_f0, voiced, random.uniform(-60, -10, frames)], axis=1).astype(np.float32)


TRAINING_SPLIT = raw_prosody(2_000, 1).astype(np.float64)


@pytest.fixture(scope="module")
def network() -> FastSpeech:
    model = FastSpeech(
        FastSpeechSettings.of({**TTS_SIZES["fastspeech"], "pitch": True}),
        symbols=6,
        bins=7,
        mels=4,
        mean=[0.1] * 4 + TRAINING_SPLIT.mean(0).tolist(),
        deviation=[2.0] * 4 + TRAINING_SPLIT.std(0).tolist(),
    )
    for weight in model.weights:
        weight.assign(RANDOM.standard_normal(weight.shape) * (1.2 if weight.ndim == 1 else 0.5))
    return model


def convnext(x: Array, block: Any) -> Array:
    """Liu et al. 2022, with the exact GELU."""
    kernel, left = exact(block.convolution.kernel)[..., 0], (block.convolution.kernel_size[0] - 1) // 2
    padded = np.pad(x, ((left, left), (0, 0)))
    y = sum(kernel[tap] * padded[tap : tap + len(x)] for tap in range(len(kernel))) + exact(block.convolution.bias)
    y = dense(layer_norm(y, block.norm), block.widen)
    return x + exact(block.scale) * dense(y * 0.5 * (1 + erf(y / np.sqrt(2))), block.narrow)


def convolutions(x: Array, stack: Any) -> Array:
    """With ReLU between them."""
    for index, layer in enumerate(stack):
        x = convolve(relu(x) if index else x, exact(layer.kernel)) + exact(layer.bias)
    return x


def predictor(x: Array, layer: Any) -> Array:
    for convolution, norm in zip(layer.convolutions, layer.norms, strict=True):
        x = layer_norm(relu(convolutions(x, [convolution])), norm)
    return dense(x, layer.last)[:, 0]


def symbol_pitch(prosody: Array, path: Array, count: int) -> Array:
    """Symbol by symbol: the mean over its voiced frames, between those around it if it has none."""
    heard = TRAINING_SPLIT[TRAINING_SPLIT[:, 1] == 1, 0]
    means = {}
    for symbol in range(count):
        voiced = prosody[(path == symbol) & (prosody[:, 1] == 1), 0]
        if len(voiced):
            means[symbol] = (voiced.mean() - heard.mean()) / heard.std()
    return np.interp(range(count), list(means), list(means.values())) if means else np.zeros(count)


def test_the_network_equals_numpy_with_the_same_weights(network: FastSpeech) -> None:
    """Badlani et al. 2021, equation 1, with a Gaussian around the diagonal; Ren et al. 2021, section 2, with energy;
    Lancucki 2021, section 2.2.
    """
    labels, count, frames = np.array([3, 0, 5, 5, 1]), 5, 13
    mels, prosody = np.random.default_rng(8).standard_normal((frames, 4)), raw_prosody(frames, 9)
    features = np.concatenate([mels, network.normalize(np.pad(prosody, ((0, 0), (4, 0))))[:, 4:]], 1, dtype=np.float32)
    made = network.align(labels[None], np.array([count]), features[None], np.array([frames]))
    embedded, aligner = exact(network.embedding.embeddings)[labels], network.aligner
    keys, queries = convolutions(embedded, aligner.text), convolutions(mels, aligner.speech)
    scores = -0.0005 * np.square(queries[:, None] - keys).sum(-1)
    scores -= np.logaddexp.reduce(scores, axis=1, keepdims=True)
    read, gone = ((np.arange(size) + 0.5) / size for size in (count, frames))
    scores -= np.square(gone[:, None] - read) / (2 * network.settings.prior**2)
    assert_close(made.log_alignment[0], scores, relative_to_peak=1e-5)
    paths = all_paths(scores)
    path = np.array(max(paths, key=paths.__getitem__))
    durations = np.bincount(path, minlength=count)
    np.testing.assert_array_equal(made.durations[0], durations)
    energy = np.array([mels[path == symbol].mean() for symbol in range(count)])
    assert_close(made.energy[0], energy, relative_to_peak=1e-5)
    pitch = symbol_pitch(prosody, path, count)
    assert_close(made.pitch[0], pitch, relative_to_peak=1e-4)
    encoded = embedded
    for block in network.encoder:
        encoded = convnext(encoded, block)
    assert_close(made.log_durations[0], predictor(encoded, network.duration), relative_to_peak=1e-5)
    assert_close(made.predicted_energy[0], predictor(encoded, network.energy), relative_to_peak=1e-4)
    assert_close(made.predicted_pitch[0], predictor(encoded, network.pitch), relative_to_peak=1e-4)
    x = (encoded + dense(energy[:, None], network.louder) + dense(pitch[:, None], network.higher))[path]
    whole, before = durations[path], np.arange(frames) - np.searchsorted(path, path)
    place = [(before + 0.5) / whole, np.log1p(before), np.log1p(whole - before - 1)]
    x = x + dense(np.stack(place, axis=-1), network.place)
    for block in network.decoder:
        x = convnext(x, block)
    wanted = dense(layer_norm(x, network.last_norm), network.spectrum)
    assert_close(made.output.mels[0], wanted, relative_to_peak=1e-4)


def test_durations_of_synthesis_are_the_exponents_of_what_is_predicted(network: FastSpeech) -> None:
    labels = np.array([[3, 0, 5, 5, 1]])
    encoded = network._encode(network.embedding(labels), np.array([5]), None)
    wanted = np.maximum(np.round(np.exp(exact(network.duration(encoded, np.array([5])))[0])), 1)
    made = network.synthesize(labels, np.array([5]), max_steps=100_000)
    np.testing.assert_array_equal(made.alignment[0].numpy().sum(axis=0), wanted)


def test_no_text_is_skipped_or_repeated_whatever_the_weights(network: FastSpeech) -> None:
    labels, counts = RANDOM.integers(0, 6, (5, 30)), np.array([30, 1, 7, 22, 13])
    spoken = network.synthesize(labels, counts, max_steps=100_000)
    assert not spoken.hit_limit.numpy().any()
    for row, count in enumerate(counts):
        frames = int(spoken.frames[row])
        path = np.asarray(spoken.alignment[row, :frames])
        order = path.argmax(axis=1)
        assert (path.sum(axis=1) == 1).all()
        assert (order[0], order[-1]) == (0, count - 1)
        assert set(np.diff(order).tolist()) <= {0, 1}
        assert not np.asarray(spoken.mels[row, frames:]).any()
    most = int(np.median(spoken.frames))
    cut = network.synthesize(labels, counts, max_steps=most)
    np.testing.assert_array_equal(cut.hit_limit, np.asarray(spoken.frames) > most)
    np.testing.assert_array_equal(cut.frames, np.minimum(spoken.frames, most))


@pytest.mark.slow
def test_a_row_of_a_padded_batch_gives_what_it_gives_alone(network: FastSpeech) -> None:
    labels, counts, frames = RANDOM.integers(0, 6, (2, 9)), np.array([9, 5]), np.array([31, 17])
    features = RANDOM.standard_normal((2, 31, network.bins)).astype(np.float32)
    together, alone = (
        network.align(labels[rows, :symbols], counts[rows], features[rows, :longest], frames[rows])
        for rows, symbols, longest in ((slice(2), 9, 31), (slice(1, 2), 5, 17))
    )
    np.testing.assert_array_equal(together.durations[1, :5], alone.durations[0])
    assert together.durations.numpy().sum(axis=1).tolist() == [31, 17]
    assert_close(together.output.mels[1, :17], alone.output.mels[0], relative_to_peak=1e-5)
    assert_close(together.log_durations[1, :5], alone.log_durations[0], relative_to_peak=1e-5)
    assert_close(together.pitch[1, :5], alone.pitch[0], relative_to_peak=1e-5)
    spoken, one = (network.synthesize(labels[rows, :n], counts[rows], max_steps=99) for rows, n in (
        (slice(2), 9), (slice(1, 2), 5)))  # fmt: skip
    length = int(one.frames[0])
    assert int(spoken.frames[1]) == length
    assert_close(spoken.mels[1, :length], one.mels[0], relative_to_peak=1e-5)


@pytest.mark.parametrize("voiced_frames", [[], [3], [0, 1, 2, 11, 12], list(range(13))])
def test_symbols_without_voice_have_the_pitch_between_their_neighbors(
    network: FastSpeech, voiced_frames: list[int]
) -> None:
    path = np.repeat(np.arange(6), [2, 3, 1, 4, 2, 1])
    prosody = raw_prosody(13, 4)
    prosody[:, 1] = np.isin(np.arange(13), voiced_frames)
    prosody[:, 0] = np.where(prosody[:, 1] > 0, np.log(120) + np.linspace(-0.5, 0.5, 13), 0)
    features = network.normalize(np.pad(prosody, ((0, 0), (4, 0)))[None])
    found = network.symbol_pitch(features, np.eye(6, dtype=np.float32)[path][None])
    assert_close(found[0], symbol_pitch(prosody, path, 6), relative_to_peak=1e-4)


def test_pitch_is_part_of_what_a_voice_says(network: FastSpeech) -> None:
    """A predictor that says one standard deviation more moves the input of the decoder by the weights of pitch."""
    labels, counts = np.array([[3, 0, 5, 5, 1]]), np.array([5])
    before = network.synthesize(labels, counts, max_steps=100)
    bias = network.pitch.last.bias
    bias.assign_add([1.0])
    after = network.synthesize(labels, counts, max_steps=100)
    bias.assign_add([-1.0])
    np.testing.assert_array_equal(after.frames, before.frames)
    assert np.abs(after.mels - before.mels).max() > 0.1


def test_a_network_for_pitch_refuses_frames_without_it() -> None:
    with pytest.raises(ValueError, match=r"frames of 4 bins, 4 .*: 3 more, log_f0, voicing, energy, .*mel_and_prosody"):
        FastSpeech(FastSpeechSettings(pitch=True), symbols=6, bins=4, mels=4, mean=[0.0] * 4, deviation=[1.0] * 4)


def test_pitch_and_the_features_of_a_dataset_must_suit_each_other(pitched: Dataset, tones: Dataset) -> None:
    with pytest.raises(SettingsError, match=r"train\.model\.pitch .* features are log_mel; set .* 'mel_and_prosody'"):
        build_tts_model(tiny_tts_settings("fastspeech", model={"pitch": True}), tones)
    with pytest.raises(SettingsError, match=r"'tacotron2', .* features are mel_and_prosody; set .*kind to 'log_mel'$"):
        build_tts_model(tiny_tts_settings("tacotron2"), pitched)
    assert build_tts_model(tiny_tts_settings("fastspeech"), pitched).pitch is None


def test_only_a_voice_with_pitch_has_it_in_its_key() -> None:
    assert "pitch" not in FastSpeechSettings().key_values()
    assert FastSpeechSettings(pitch=True).key_values()["pitch"] is True


@pytest.fixture(scope="module")
def pitched(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The tones, with the F0 of their frames."""
    how = FEATURES.model_copy(update={"kind": "mel_and_prosody"})
    return write_dataset(tmp_path_factory.mktemp("pitched") / "dataset", make_utterances(160, 24), how=how)


@pytest.fixture(scope="module")
def module(pitched: Dataset) -> TtsTrainModule:
    settings = tiny_tts_settings("fastspeech", model={"pitch": True})
    return TtsTrainModule(settings, pitched, tf.distribute.get_strategy())


@pytest.mark.slow
def test_durations_are_learned_from_the_recordings_alone(module: TtsTrainModule, pitched: Dataset) -> None:
    """A letter of the tones is its tone and its breath: between 0.11 and 0.18 seconds."""
    batches = Batches(pitched, "train", batch_size=8, seed=1, shuffled=True)
    steps = [module.train_step(batch, 0.01, step) for step, batch in enumerate(
        batch for epoch in range(4) for batch in batches.epoch(epoch))]  # fmt: skip
    assert all(step.accepted for step in steps)
    assert set(steps[0].losses) == {"mel", "alignment", "duration", "energy", "pitch"}
    assert steps[-1].losses["mel"] < 0.6 * steps[0].losses["mel"]
    assert steps[-1].losses["duration"] < 0.3 * steps[0].losses["duration"]
    assert steps[-1].losses["pitch"] < 0.5 * steps[0].losses["pitch"]
    dev = next(Batches(pitched, "dev", batch_size=8).epoch(0))
    made = module.model.align(dev.labels, dev.counts, module.model.normalize(dev.features), dev.frames)
    learned = np.concatenate([made.durations[row, :count] for row, count in enumerate(dev.counts)])
    assert 0.1 <= np.median(learned) * FEATURES.hop_seconds <= 0.2
    assert learned.max() * FEATURES.hop_seconds < 0.3
    spoken = module.synthesize(dev, 100, 400)
    assert np.abs(spoken.frames / dev.frames - 1).max() < 0.3


@pytest.fixture(scope="module")
def exported(module: TtsTrainModule, pitched: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train") / "model"
    settings = module.settings.model_copy(update={"export": ExportSettings(onnx="float32")})
    export_tts(folder, settings, pitched, module.weights(), {"best_step": 1})
    return folder


@pytest.mark.slow
def test_a_voice_with_an_onnx_graph_speaks_without_tensorflow(exported: Path) -> None:
    code = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "from voxline.pipelines.cli.synthesis import synthesize_to_file; from pathlib import Path\n"
        "print(synthesize_to_file(Path(sys.argv[2]), 'abcd', Path(sys.argv[1]))[0])"
    )
    wav = exported.parent / "speech.wav"
    ran = subprocess.run([sys.executable, "-c", code, exported, wav], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    samples, rate = soundfile.read(wav)
    spoken = Synthesizer(exported, engine="tensorflow").synthesize("abcd")
    assert (len(samples), rate) == (len(spoken.waveform), FEATURES.sample_rate)
    assert np.abs(np.fft.rfft(samples[:400])).argmax() == np.abs(np.fft.rfft(spoken.waveform[:400])).argmax()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["tensorflow", "onnx"])
def test_the_export_speaks_and_is_teacher_forced(
    exported: Path, engine: Literal["tensorflow", "onnx"], module: TtsTrainModule, pitched: Dataset
) -> None:
    voice = Synthesizer(exported, engine=engine)
    dev = next(Batches(pitched, "dev", batch_size=4).epoch(0))
    ours = module.synthesize(dev, 1, voice.info.max_steps)
    mels = np.asarray(module.denormalize(ours)[0])
    for row, (result, alone) in enumerate(zip(voice.synthesize_symbols(dev.texts), voice.mels(dev.texts), strict=True)):
        assert_close(result.mels, mels[row, : ours.frames[row]], relative_to_peak=1e-5)
        assert_close(alone, result.mels, relative_to_peak=1e-5)
        assert len(result.waveform) == pitched.features.count_samples(len(result.mels))
        attention = compute_attention_metrics(result.alignment)
        assert (attention.skips, attention.repeats, attention.coverage) == (0, 0, 1.0)
    features = [each[:frames] for each, frames in zip(dev.features, dev.frames, strict=True)]
    for result, given in zip(voice.teacher_forced(dev.texts, features), features, strict=True):
        wanted = given[:, pitched.features.mel_columns]
        assert result.mels.shape == wanted.shape
        assert result.mel_l1 == pytest.approx(np.abs(result.mels - wanted).mean(), rel=1e-3)


@pytest.mark.parametrize(
    "idle",
    [
        {"guided_attention": {"weight": 0.3}},
        {"teacher_forcing": {"to_share": 0.5}},
        {"loss": {"stop": 2.0}},
    ],
)
def test_settings_of_attention_are_refused_by_name(idle: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=rf"{next(iter(idle))}.* fastspeech has none; leave them out"):
        tiny_tts_settings("fastspeech", **idle)
    with pytest.raises(SettingsError, match=r"XLA cannot compile .* fastspeech .*; set xla to false"):
        tiny_tts_settings("fastspeech", xla=True)

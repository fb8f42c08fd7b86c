"""VITS against `transformers`: small models of random weights that the tests keep; and its ONNX graphs against it.

`make oracles` writes them again: benchmarks/peers/vits_transformers.py.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from tests.families.networks.pytorch_oracle import write_hub_models
from voxline.families.tts.vits.durations import forward_spline, inverse_spline
from voxline.families.tts.vits.hub import hub_letters, hub_settings, read_hub_posterior, read_hub_weights
from voxline.families.tts.vits.network import Vits, VitsOutput
from voxline.families.tts.vits.onnx import export_onnx_piper, export_onnx_vits
from voxline.families.tts.vits.posterior import VitsPosterior
from voxline.inference.synthesizer import WINDOW
from voxline.registry.hub import open_hub_model
from voxline.training.weight_names import weight_names

HUB = Path(__file__).parent / "hub"
TEXTS = ("a bad one", "be")
SILENT = np.array([0.0, 1.0, 0.0], np.float32)
MAX_FRAMES = 400

Array = npt.NDArray[Any]


def public_vits(name: str) -> tuple[Vits, list[str], dict[str, Array]]:
    """The network with the weights of the model, its letters, and what `transformers` made of `TEXTS`."""
    write_hub_models("vits_transformers.py")
    model = open_hub_model(str(HUB / name), "train.start.model", weights=True)
    settings = hub_settings(model)
    letters, rows = hub_letters(model)
    weights = read_hub_weights(model, settings, rows)
    network = Vits(settings, symbols=len(letters))
    names = weight_names(network)
    assert set(names) == set(weights)
    for weight_name, variable in zip(names, network.weights, strict=True):
        variable.assign(weights[weight_name])
    with np.load(HUB / name / "outputs.npz", allow_pickle=False) as outputs:
        return network, letters, {key: outputs[key] for key in outputs.files}


def public_posterior(name: str, network: Vits) -> VitsPosterior:
    """What training adds to the network, with the weights of the same model."""
    model = open_hub_model(str(HUB / name), "train.start.model", weights=True)
    weights = read_hub_posterior(model, network.settings)
    sizes = {"bins": model.config["spectrogram_bins"], "count": model.config["posterior_encoder_num_wavenet_layers"]}
    posterior = VitsPosterior(network.settings, **sizes)
    names = weight_names(posterior)
    assert set(names) == set(weights)
    for weight_name, variable in zip(names, posterior.weights, strict=True):
        variable.assign(weights[weight_name])
    return posterior


def symbols_of(letters: list[str]) -> tuple[Array, Array]:
    counts = np.array([len(text) for text in TEXTS], np.int32)
    symbols = np.zeros((len(TEXTS), counts.max()), np.int32)
    for row, text in zip(symbols, TEXTS, strict=True):
        row[: len(text)] = [letters.index(letter) for letter in text]
    return symbols, counts


@pytest.mark.parametrize("name", ["vits", "vits-fixed-speakers"])
def test_texts_sound_as_transformers_lets_them_sound(name: str) -> None:
    """Both texts in one batch, each as it is alone."""
    network, letters, theirs = public_vits(name)
    symbols, counts = symbols_of(letters)

    output: VitsOutput = network.speak(symbols, counts, max_frames=MAX_FRAMES)

    for row in range(len(TEXTS)):
        log_durations = theirs[f"log_durations/{row}"]
        waveform = theirs[f"waveform/{row}"]
        own = output.waveforms[row].numpy()
        np.testing.assert_allclose(output.log_durations[row].numpy()[: len(log_durations)], log_durations, atol=1e-4)
        assert int(output.frames[row]) * network.settings.hop == len(waveform)
        np.testing.assert_allclose(own[: len(waveform)], waveform, atol=1e-4)
        assert not own[len(waveform) :].any()
        assert output.durations[row].numpy().sum() == int(output.frames[row])


@pytest.mark.parametrize("name", ["vits", "vits-fixed-speakers"])
def test_onnx_graphs_compute_what_the_network_computes(name: str) -> None:
    """Ours with noise and other rates, Piper's without noise, and ours where it is cut off."""
    network, letters, _ = public_vits(name)
    symbols, counts = symbols_of(letters)
    rates = np.linspace(0.5, 2.0, symbols.size).reshape(symbols.shape).astype(np.float32)
    scales = np.array([0.6, 1.5, 0.7], np.float32)
    graph = _session(export_onnx_vits(network, MAX_FRAMES))
    short = _session(export_onnx_vits(network, 3))
    piper = _session(export_onnx_piper(network, {"comment": "piper"}))

    for row, count in enumerate(counts):
        text, rate = symbols[row : row + 1, :count], rates[row : row + 1, :count]
        output = network.speak(text, counts[row : row + 1], max_frames=MAX_FRAMES, rates=rate, scales=scales)
        values = graph.run(None, {"symbols": text, "rates": rate, "scales": scales})
        names = [node.name for node in graph.get_outputs()]
        ours = dict(zip(names, values, strict=True))
        np.testing.assert_allclose(ours["waveforms"], output.waveforms, atol=1e-4)
        np.testing.assert_array_equal(ours["durations"], output.durations)
        assert ours["samples"] == output.waveforms.shape[1]
        assert not ours["hit_limit"]
        cut = dict(zip(names, short.run(None, {"symbols": text, "rates": rate, "scales": scales}), strict=True))
        assert cut["hit_limit"]
        assert cut["frames"] == 3

        ids, rows = network.with_marks(text, counts[row : row + 1])
        silent = network.speak(text, counts[row : row + 1], max_frames=MAX_FRAMES, scales=SILENT)
        inputs = {"input": ids.numpy().astype(np.int64), "input_lengths": rows.numpy().astype(np.int64)}
        (heard,) = piper.run(None, {**inputs, "scales": SILENT})
        assert heard.shape[:3] == (1, 1, 1)
        np.testing.assert_allclose(heard[0, 0], silent.waveforms, atol=1e-4)
    assert piper.get_modelmeta().custom_metadata_map == {"comment": "piper"}


@pytest.mark.parametrize("name", ["vits", "vits-fixed-speakers", "vits-speakers"])
def test_windows_of_a_text_are_what_it_is_as_a_whole(name: str) -> None:
    """All that a window gives is of the whole text, but its samples."""
    network, letters, _ = public_vits(name)
    symbols, counts = symbols_of(letters)
    text = symbols[:1, : counts[0]]
    several = "speakers" in name
    graph = _session(export_onnx_vits(network, MAX_FRAMES, several_speakers=several))
    inputs = {"symbols": text, "rates": np.full(text.shape, 0.1, np.float32), "scales": np.ones(3, np.float32)}
    if several:
        inputs["speakers"] = np.array([1], np.int32)
    whole, *others = graph.run(None, inputs)
    hop = network.settings.hop
    frames = whole.shape[1] // hop
    assert frames > 100  # more than a window and what it needs around it

    assert [value.name for value in graph.get_overridable_initializers()] == [WINDOW]
    for first, count in ((0, 1), (0, 7), (1, 9), (50, 11), (frames - 3, 3), (frames - 1, 1), (frames - 2, 9)):
        heard, *same = graph.run(None, {**inputs, WINDOW: np.array([first, count])})
        samples = whole[:, first * hop : (first + count) * hop]
        assert heard.shape == samples.shape
        np.testing.assert_allclose(heard, samples, atol=1e-6)
        for value, of_whole in zip(same, others, strict=True):
            np.testing.assert_array_equal(value, of_whole)


@pytest.mark.parametrize("name", ["vits-speakers", "vits-fixed-speakers"])
def test_each_row_of_a_batch_has_its_own_speaker_as_in_transformers(name: str) -> None:
    network, letters, theirs = public_vits(name)
    symbols, counts = symbols_of(letters)
    speakers = np.array([2, 1], np.int32)
    how: dict[str, Any] = {"max_frames": 1_000, "scales": SILENT}
    output: VitsOutput = network.speak(symbols, counts, speakers=speakers, **how)
    graph = _session(export_onnx_vits(network, 1_000, several_speakers=True))
    piper = _session(export_onnx_piper(network, {}, several_speakers=True))

    for row, count in enumerate(counts):
        waveform = theirs[f"waveform/{row}/{speakers[row]}"]
        np.testing.assert_allclose(output.waveforms[row].numpy()[: len(waveform)], waveform, atol=1e-4)
        assert int(output.frames[row]) * network.settings.hop == len(waveform)

        text = symbols[row : row + 1, :count]
        inputs = {"symbols": text, "rates": np.ones(text.shape, np.float32), "scales": SILENT}
        heard, *_ = graph.run(None, {**inputs, "speakers": speakers[row : row + 1]})
        np.testing.assert_allclose(heard[0], waveform, atol=1e-4)
        ids, rows = network.with_marks(text, counts[row : row + 1])
        inputs = {"input": ids.numpy().astype(np.int64), "input_lengths": rows.numpy().astype(np.int64)}
        (heard,) = piper.run(None, {**inputs, "scales": SILENT, "sid": speakers[row : row + 1].astype(np.int64)})
        np.testing.assert_allclose(heard[0, 0, 0], waveform, atol=1e-4)


@pytest.mark.parametrize("name", ["vits", "vits-fixed-speakers", "vits-speakers"])
def test_training_computes_what_transformers_computes(name: str) -> None:
    """The posterior encoder, the flow forwards and back, and the likelihood of durations; the second row is shorter."""
    network, _, theirs = public_vits(name)
    posterior = public_posterior(name, network)
    frames = np.array([13, 9], np.int32)
    speaker = None
    if network.speakers is not None:
        speaker = np.asarray(network.speakers)[network.settings.speaker][None, None]

    mean, deviation = posterior(theirs["training/spectrogram"], frames, speaker)
    latent = theirs["training/latent"]
    flowed = network.to_text(latent, frames, speaker)
    np.testing.assert_allclose(mean, theirs["training/posterior/mean"], atol=1e-4)
    np.testing.assert_allclose(deviation, theirs["training/posterior/deviation"], atol=1e-4)
    np.testing.assert_allclose(flowed, theirs["training/flow"], atol=1e-4)
    np.testing.assert_allclose(network.to_voice(flowed, frames, speaker), latent, atol=1e-4)

    if posterior.durations is not None:
        text, durations, drawn = (theirs[f"training/{key}"] for key in ("text", "durations", "drawn"))
        counts = np.array([7, 5], np.int32)
        likelihood = posterior.durations.negative_log_likelihood(
            network.durations, text, counts, durations, drawn, speaker
        )
        np.testing.assert_allclose(likelihood, theirs["training/likelihood"], rtol=1e-4)


def test_a_spline_forwards_and_back_is_the_identity_and_its_slope_that_of_differences() -> None:
    random = np.random.default_rng(3)
    widths, heights = random.normal(size=(2, 400, 10)).astype(np.float32)
    slopes = random.normal(size=(400, 9)).astype(np.float32)
    x = np.linspace(-7, 7, 400, dtype=np.float32)

    y, log_slope = forward_spline(x, widths, heights, slopes, 5.0)

    np.testing.assert_allclose(inverse_spline(y, widths, heights, slopes, 5.0), x, atol=1e-4)
    step = np.float32(5e-4)
    after, before = (forward_spline(x + each, widths, heights, slopes, 5.0)[0] for each in (step, -step))
    within = np.abs(x) < 4.99
    np.testing.assert_allclose(np.exp(log_slope)[within], ((after - before) / (2 * step))[within], rtol=0.02, atol=0.01)
    assert (np.asarray(log_slope)[~within] == 0).all()
    np.testing.assert_array_equal(np.asarray(y)[~within], x[~within])


def _session(graph: bytes) -> Any:
    return onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])

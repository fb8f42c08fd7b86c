"""Streamed audio gives what the whole utterance gives, however it is cut."""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.causal_model import babble, export_causal_model
from tests.closeness import assert_close
from tests.families.asr import test_onnx_export
from tests.tone_asr_model import RATE as CAUSAL_RATE
from tests.tone_asr_model import _about
from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.export_checks import check_streaming
from voxline.families.asr.networks.deepspeech import DeepSpeech
from voxline.families.asr.networks.deepspeech2 import DeepSpeech2
from voxline.families.asr.networks.settings import (
    ConformerSettings,
    ConvolutionSettings,
    DeepSpeech2Settings,
    DeepSpeechSettings,
)
from voxline.families.asr.onnx import export_onnx
from voxline.families.asr.onnx_stream import export_stream
from voxline.inference.recognizer import Recognizer
from voxline.inference.streaming import RecognitionStream
from voxline.inference.streaming_graph import CallSchedule, StreamingGraph, WindowStage

SYMBOLS = test_onnx_export.ALPHABET.symbols
RATE = 8_000
EVEN = ConvolutionSettings(channels=3, kernel=(4, 6), stride=(2, 2)), ConvolutionSettings(channels=3, kernel=(1, 3))
FORMS = {
    "gru": (
        DeepSpeech2,
        DeepSpeech2Settings(units=8, directions="forward", lookahead=3),
        FeatureSettings(mels=20, sample_rate=RATE),
    ),
    "lstm": (
        DeepSpeech2,
        DeepSpeech2Settings(
            units=6, rnn="lstm", directions="forward", rnn_batch_norm=True, convolutions=EVEN, padding=0
        ),
        FeatureSettings(kind="linear", sample_rate=RATE, window_seconds=0.016, hop_seconds=0.016),
    ),
    "simple": (
        DeepSpeech2,
        DeepSpeech2Settings(
            units=6, rnn="simple", rnn_activation="clipped_relu", directions="forward", lookahead=1, relu_clip=1.5
        ),
        FeatureSettings(kind="mfcc", coefficients=5, mels=20, context=2, sample_rate=RATE),
    ),
    "deepspeech": (
        DeepSpeech,
        DeepSpeechSettings(units=8, context=3, padding=2),
        FeatureSettings(kind="mfcc", coefficients=8, mels=20, sample_rate=RATE),
    ),
}


@functools.cache
def exported(form: str) -> tuple[Path, Any]:
    """A folder with both graphs of a network, and a session of the one for whole utterances."""
    model, features, mean, deviation = test_onnx_export.network(FORMS[form], seed=3)
    waveform = audio(2 * RATE)
    inputs = {"waveforms": waveform[None], "lengths": np.array([len(waveform)], np.int32)}
    values = onnxruntime.InferenceSession(export_onnx(model, features, mean, deviation)).run(None, inputs)[0][0]
    bias = model.classifier.bias.numpy()
    bias[-1] += np.median(values[:, :-1].max(axis=1) - values[:, -1])  # half of the frames are blank
    model.classifier.bias.assign(bias)
    folder = Path(tempfile.mkdtemp(prefix="voxline-test-"))
    whole = export_onnx(model, features, mean, deviation)
    (folder / "model.onnx").write_bytes(whole)
    (folder / "stream.onnx").write_bytes(export_stream(model, features, mean, deviation))
    (folder / "saved_model.pb").write_bytes(b"")
    (folder / "model.json").write_text(json.dumps({**_about("none"), "alphabet": SYMBOLS, "sample_rate": RATE}))
    return folder, onnxruntime.InferenceSession(whole, providers=["CPUExecutionProvider"])


def audio(samples: int, seed: int = 0) -> np.ndarray:
    """Tones that change, so that frames differ."""
    draw = np.random.default_rng(seed)
    steps = np.repeat(draw.uniform(0.05, 2.5, samples // 400 + 1), 400)[:samples]
    return (0.4 * np.sin(np.cumsum(steps))).astype(np.float32)


def stream(form: str, waveform: np.ndarray, cuts: list[int], chunk_ms: float = 100.0) -> tuple[str, np.ndarray, str]:
    """The text and the log-probabilities of a recording that arrives in parts, and its last partial text."""
    made = RecognitionStream(
        StreamingGraph(exported(form)[0]), RATE, SYMBOLS, None, lambda text, values, *_: (text, values), None, chunk_ms
    )
    partial = ""
    for part in np.split(waveform, sorted(cuts)):
        partial = made.feed(part).text
    return (*made.finish(), partial)  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data(), samples=st.integers(0, RATE), chunk_ms=st.sampled_from([10.0, 60.0, 200.0]))
def test_any_cut_gives_what_the_whole_utterance_gives(
    form: str, data: st.DataObject, samples: int, chunk_ms: float
) -> None:
    waveform = audio(samples, seed=samples)
    cuts = data.draw(st.lists(st.integers(0, samples), max_size=12))
    text, values, partial = stream(form, waveform, cuts, chunk_ms)
    whole = exported(form)[1].run(None, {"waveforms": waveform[None], "lengths": np.array([samples], np.int32)})[0][0]
    assert values.shape == whole.shape
    assert_close(values, whole, relative_to_peak=1e-5)
    again, same, _ = stream(form, waveform, [], chunk_ms)
    assert (text, same.tobytes()) == (again, values.tobytes()), "the parts are of no account, to the bit"
    assert text.startswith(partial)


@pytest.mark.slow
def test_a_beam_search_and_the_words_are_those_of_the_whole_recording() -> None:
    recognizer = Recognizer(exported("gru")[0], hot_words={"badge": 2.0})
    waveform = audio(2 * RATE, seed=8)
    live = recognizer.stream()
    for part in np.array_split(waveform, 37):
        partial = live.feed(part)
    transcript, whole = live.finish(), recognizer.recognize(waveform, RATE)
    assert (transcript.text, partial.seconds) == (whole.text, 2.0)
    assert [one.word for one in transcript.words] == [one.word for one in whole.words]
    assert_close([one.start for one in transcript.words], [one.start for one in whole.words], relative_to_peak=1e-6)


def test_subwords_are_streamed_as_they_are_decoded(tmp_path: Path) -> None:
    symbols = (" ", "ab", "a", "b", "ba", "aab", "bb")
    recognizer = Recognizer(export_causal_model(tmp_path / "model", symbols=symbols))
    waveform = babble(3 * CAUSAL_RATE, seed=4)
    whole = recognizer.recognize(waveform, CAUSAL_RATE)
    (values,) = recognizer.log_probabilities([waveform])
    assert {1, 4, 5, 6} & set(values.argmax(axis=1).tolist())
    stream = recognizer.stream()
    for start in range(0, len(waveform), 700):
        partial = stream.feed(waveform[start : start + 700])
    assert whole.text.startswith(partial.text)
    found = stream.finish()
    assert found.text == whole.text
    assert [one.word for one in found.words] == [one.word for one in whole.words]


def test_silence_and_a_click_have_no_text() -> None:
    recognizer = Recognizer(exported("gru")[0])
    live = recognizer.stream()
    assert live.feed(np.zeros(RATE, np.int16)).text == ""
    assert live.finish().note == "no speech"
    short = recognizer.stream()
    short.feed(np.ones(10, np.float32))
    assert short.finish().note == "too short"
    with pytest.raises(SettingsError, match="finished"):
        short.feed(np.zeros(1, np.float32))


def test_the_latency_is_what_the_network_needs() -> None:
    """Sound beyond the lookahead changes nothing in frames that are out; sound within it does."""
    made = RecognitionStream(StreamingGraph(exported("gru")[0]), RATE, SYMBOLS, None, lambda *_: None, None, 10.0)  # type: ignore[arg-type,return-value]
    # 12.5 ms of the window, 2 and 3 · 2 frames of the convolutions, 3 · 3 of the row convolution
    assert made.latency.lookahead_ms == pytest.approx(12.5 + 10 * (2 + 6 + 9))
    assert made.latency.chunk_ms == pytest.approx(30)
    wide = CallSchedule.of(made._graph.stages, 4, RATE)
    assert wide.latency_seconds == pytest.approx(wide.lookahead_seconds + 3 * 0.03)


@given(
    stages=st.lists(
        st.tuples(st.integers(1, 7), st.integers(1, 3), st.integers(0, 4)).map(
            lambda one: WindowStage(max(one[0], one[1]), one[1], (max(one[0], one[1]) - 1) // 2 + one[2], 2 * one[2])
        ),
        min_size=1,
        max_size=4,
    ),
    step=st.integers(1, 5),
    samples=st.integers(0, 300),
)
def test_every_call_gives_frames_and_all_frames_come_once(stages: list[WindowStage], step: int, samples: int) -> None:
    """The schedule against a simulation that counts."""
    stages = [WindowStage(4, 2, 2, 1), *stages]
    schedule = CallSchedule.of(stages, step, 100)
    fed, kept, made = 0, [stage.left for stage in stages], [0] * len(stages)

    def call(count: int, flush: list[int]) -> int:
        for index, stage in enumerate(stages):
            kept[index] += count + flush[index]
            count = (kept[index] - stage.taps) // stage.stride + 1
            assert count > 0, "a stage without work: ONNX Runtime refuses empty convolutions"
            kept[index] -= count * stage.stride
            assert kept[index] >= 0
            made[index] += count
        return count

    calls = 0
    while samples >= schedule.first_samples + calls * schedule.step_samples:
        count = schedule.step_samples if calls else schedule.feed_samples
        assert call(count, [0] * len(stages)) == (schedule.step_frames if calls else schedule.first_frames)
        fed, calls = fed + count, calls + 1
    flush, inputs = [], samples
    for stage in stages:
        flush.append(stage.flush(inputs))
        inputs = stage.total(inputs)
    call(samples - fed, flush)
    assert made[-1] == inputs


def test_a_stream_that_is_asked_in_between_goes_on_as_if_it_was_not() -> None:
    recognizer = Recognizer(exported("deepspeech")[0])
    waveform = audio(4 * RATE, seed=5)
    asked, alone = recognizer.stream(endpoint_ms=30), recognizer.stream(endpoint_ms=30)
    assert asked.so_far().text == ""
    found, expected = [], []
    for part in np.array_split(waveform, 29):
        partial = asked.feed(part)
        so_far = asked.so_far()
        assert so_far.text == partial.text
        assert "".join(word.word for word in so_far.words) == partial.text.replace(" ", "")
        found += partial.segments
        expected += alone.feed(part).segments
    found.append(asked.finish())
    expected.append(alone.finish())
    assert len(found) > 2
    assert found == expected


def test_endpoints_cut_the_text_and_not_the_network() -> None:
    recognizer = Recognizer(exported("deepspeech")[0])
    waveform = audio(4 * RATE, seed=5)
    whole = recognizer.stream()
    whole.feed(waveform)
    text = whole.finish().text
    live = recognizer.stream(endpoint_ms=30)
    segments = list(live.feed(waveform).segments)
    segments.append(live.finish())
    assert len(segments) > 2
    assert "".join(one.text for one in segments).replace(" ", "") == text.replace(" ", "")
    starts = [word.start for one in segments for word in one.words]
    assert starts == sorted(starts)
    assert starts[-1] <= 4
    with pytest.raises(SettingsError, match="endpoint_ms is 0"):
        recognizer.stream(endpoint_ms=0)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (DeepSpeech2Settings(), "train.model.directions 'concatenated'.*set it to forward"),
        (ConformerSettings(), "'conformer' sees the whole utterance.*accepted: deepspeech, deepspeech2"),
        (
            DeepSpeech2Settings(
                directions="forward", convolutions=(ConvolutionSettings(kernel=(1, 5), stride=(2, 2)),)
            ),
            "train.model.convolutions.0 skips frames",
        ),
    ],
)
def test_a_network_that_is_not_causal_is_refused(model: Any, told: str) -> None:
    with pytest.raises(SettingsError, match=f"train.export.streaming: .*{told}"):
        check_streaming(model, FeatureSettings())


def test_a_model_without_a_streaming_graph_says_why(tmp_path: Path) -> None:
    folder = exported("gru")[0]
    for name in ("model.onnx", "saved_model.pb"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    about = json.loads((folder / "model.json").read_text())
    for network, told in (
        ({"kind": "deepspeech2", "directions": "summed"}, "its layers also read backward.*directions: summed"),
        ({"kind": "deepspeech"}, "no streaming graph beside the model"),
        (
            {"kind": "deepspeech2", "directions": "forward", "top_db": 50.0},
            r"cannot stream: levels are relative .*top_db: 50\); train one with top_db 0 and train.export.streaming",
        ),
        (
            {"kind": "deepspeech2", "directions": "summed", "pooling": "utterance"},
            r"directions: summed\), and .*pooling: utterance\); .*directions forward, a lookahead, pooling none and",
        ),
    ):
        (tmp_path / "model.json").write_text(json.dumps({**about, "settings": {"model": network}}))
        with pytest.raises(SettingsError, match=told):
            Recognizer(tmp_path).stream()
    (tmp_path / "stream.onnx").write_bytes((folder / "model.onnx").read_bytes())
    with pytest.raises(WorkError, match=r"stream.onnx: not a streaming graph"):
        Recognizer(tmp_path).stream()

"""A recognizer transcribes paths and arrays, and says what it accepts."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from tests.tone_asr_model import BLOCK, RATE, MakeAsrModel, export_onnx_tones, render_words
from tests.tone_tts_model import MakeTtsModel
from voxline.cancellation import Cancellation, WorkCancelledError
from voxline.errors import SettingsError, WorkError
from voxline.inference.alignment import align_recording
from voxline.inference.ctc_alignment import text_loss
from voxline.inference.recognizer import Recognizer
from voxline.inference.token_decoder import WrittenText
from voxline.inference.transcript import DecodedWaveform, join_decoded
from voxline.inference.waveforms import read_waveform
from voxline.text.alphabet import Alphabet


@pytest.fixture(scope="module")
def recognizer(make_asr_model: MakeAsrModel) -> Recognizer:
    return Recognizer(make_asr_model())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_onnx_tones(tmp_path_factory.mktemp("tones") / "model")


def test_texts_come_back_in_the_order_of_the_recordings(make_asr_model: MakeAsrModel) -> None:
    sentences = ["eight", "one two three four five", "", "zero seven", "six"]
    recognizer = Recognizer(make_asr_model(), batch_seconds=0.5)
    waveforms = [render_words(sentence.split()) if sentence else np.zeros(0, np.float32) for sentence in sentences]
    assert recognizer.transcribe(waveforms) == sentences
    assert recognizer.audio_seconds == pytest.approx(0.9)
    assert recognizer.seconds > 0


def test_a_file_at_another_rate_and_in_stereo_is_transcribed(recognizer: Recognizer, tmp_path: Path) -> None:
    file = tmp_path / "a b é.flac"
    samples = soxr.resample(render_words(["three", "one"]), RATE, 44_100)
    soundfile.write(file, np.stack([samples, samples], axis=1), 44_100)
    waveform = read_waveform(file, RATE)
    assert waveform.dtype == np.float32
    assert len(waveform) == 2 * RATE // 10
    assert recognizer.transcribe(file) == "three one"
    assert recognizer.transcribe([file, str(file)]) == ["three one"] * 2


def test_an_array_is_scaled_and_resampled(recognizer: Recognizer, capsys: pytest.CaptureFixture[str]) -> None:
    samples = render_words(["three", "one"])
    assert recognizer.transcribe(soxr.resample(samples, RATE, 44_100), sample_rate=44_100) == "three one"
    assert recognizer.transcribe(samples.astype(np.float64), sample_rate=RATE) == "three one"
    assert capsys.readouterr().out == ""
    assert recognizer.transcribe((samples * 32767).astype(np.int16)) == "three one"
    assert "16,000 Hz, the model's, is assumed" in capsys.readouterr().out
    assert recognizer.transcribe(samples) == "three one"
    assert capsys.readouterr().out == ""


def test_words_have_times_and_confidences(recognizer: Recognizer) -> None:
    """A word lasts 0.1 s in 8 frames, of which it takes as many as it has letters; a blank parts the two "e"s."""
    transcript = recognizer.recognize(render_words(["six", "three", "two"]), sample_rate=RATE)
    assert transcript.text == "six three two" == recognizer.transcribe(render_words(["six", "three", "two"]), RATE)
    spans = [(word.word, round(word.start, 4), round(word.end, 4)) for word in transcript.words]
    assert spans == [("six", 0.0, 0.0375), ("three", 0.1, 0.175), ("two", 0.2, 0.2375)]
    sure = 0.9 + 0.1 / 29  # what the model gives to each symbol that it outputs
    assert [word.confidence for word in transcript.words] == pytest.approx([sure] * 3, abs=1e-6)
    assert transcript.confidence == pytest.approx(sure, abs=1e-6)
    assert (transcript.seconds, transcript.note) == (pytest.approx(0.3), "")


def test_a_recording_without_speech_has_no_text(recognizer: Recognizer) -> None:
    """A model makes up a text for anything; this one hears a word in a single loud sample."""
    one_sample, silence = np.full(1, 0.9, np.float32), np.full(RATE, 9e-5, np.float32)
    assert recognizer.transcribe_waveforms([one_sample]) == ["eight"]
    recordings = [one_sample, silence, render_words(["two"])]
    assert recognizer.transcribe(recordings, sample_rate=RATE) == ["", "", "two"]
    transcripts = recognizer.recognize(recordings, sample_rate=RATE)
    assert [transcript.note for transcript in transcripts] == ["too short", "no speech", ""]
    assert [transcript.text for transcript in transcripts] == ["", "", "two"]


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        (np.zeros(4, np.int32), "dtype int32"),
        (np.zeros(4, bool), "dtype bool"),
        (np.zeros((9, 2), np.float32), r"shape \(9, 2\); average its channels first"),
        (np.zeros((1, 9), np.float32), r"shape \(1, 9\); accepted"),
        (np.float32(1), "audio is float32"),
        ([0.0, 0.5], "audio is float"),
        (np.full(4, 12_000.0), r"reaches 12000, so it is not scaled to \[-1, 1\]"),
        (np.array([0.0, np.nan]), "not finite"),
    ],
)
def test_an_array_of_another_kind_is_refused_in_words(recognizer: Recognizer, audio: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        recognizer.transcribe(audio, sample_rate=RATE)
    assert "accepted: a path, or a numpy array [samples], mono" in str(refused.value)


def test_a_sample_rate_of_zero_is_refused(recognizer: Recognizer) -> None:
    with pytest.raises(SettingsError, match="sample_rate is 0; a number of Hz above 0"):
        recognizer.transcribe(render_words(["one"]), sample_rate=0)


def test_a_file_that_is_not_audio_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.wav").write_text("not audio")
    for name in ("notes.wav", "absent.wav"):
        with pytest.raises(WorkError, match=name):
            read_waveform(tmp_path / name, RATE)


def test_a_tts_model_is_refused(make_tts_model: MakeTtsModel) -> None:
    with pytest.raises(WorkError, match=r"family 'tts' \(tacotron2\), 'asr' is accepted here; give a model that"):
        Recognizer(make_tts_model())


def test_a_word_that_is_found_in_the_padding_ends_no_earlier_than_it_begins(tmp_path: Path) -> None:
    folder = export_onnx_tones(tmp_path / "model")
    about = json.loads((folder / "model.json").read_bytes())
    about["output_frames"] = {"start": 0.16, "seconds": 0.0125}  # the second word: 0.26 to 0.2975 seconds
    (folder / "model.json").write_text(json.dumps(about), encoding="utf-8")
    words = Recognizer(folder).recognize(render_words(["one", "two"]), RATE).words
    assert [(one.word, round(one.start, 4), round(one.end, 4)) for one in words] == [
        ("one", 0.16, 0.1975),
        ("two", 0.2, 0.2),
    ]


def test_a_saved_model_aligns_as_its_graph_does(recognizer: Recognizer, tmp_path: Path) -> None:
    lines = ["one two three four", "five eight", "seven six six one"]
    pause = np.zeros(RATE // 2, np.float32)
    soundfile.write(tmp_path / "a.wav", np.concatenate([pause, *(render_words(one.split()) for one in lines)]), RATE)
    graph = Recognizer(export_onnx_tones(tmp_path / "model"))
    ours, theirs = (align_recording(one, tmp_path / "a.wav", lines).utterances for one in (recognizer, graph))
    assert (recognizer.engine, [one.text for one in ours]) == ("tensorflow", lines)
    assert [(one.start, one.end) for one in ours] == [(one.start, one.end) for one in theirs]


def with_pauses(*sentences: str, seconds: float = 1.0) -> np.ndarray:
    """Sentences in noise at -60 dB of full scale, with pauses before, between and after them.

    A sentence begins with half a block too quiet for a word. With as much of the pause before it, which a part keeps, a
    word begins where the network's blocks do.
    """
    pause = np.zeros(round(seconds * RATE), np.float32)
    before = np.concatenate([pause[BLOCK // 2 :], 0.2 * render_words(["zero"])[: BLOCK // 2]])
    pieces = [piece for sentence in sentences for piece in (before, render_words(sentence.split()))]
    samples = np.concatenate([*pieces, pause])
    return samples + np.random.default_rng(0).normal(0, 1e-3, len(samples)).astype(np.float32)


def test_a_recording_is_cut_at_pauses_and_its_words_keep_their_times(model: Path) -> None:
    """Field case F5."""
    samples = with_pauses("one two three", "four", "five six")
    recognizer = Recognizer(model)
    transcript = recognizer.recognize(samples, RATE)
    assert transcript.text == "one two three four five six" == recognizer.transcribe(samples, RATE)
    starts = [word.start for word in transcript.words]
    assert starts == pytest.approx([1.0, 1.1, 1.2, 2.3, 3.4, 3.5], abs=0.05)
    assert (transcript.seconds, transcript.note) == (4.6, "")

    # Most of the pauses is not heard at all, unless nothing is cut.
    whole = Recognizer(model, pauses="off")
    assert whole.transcribe(samples, RATE) == transcript.text
    assert recognizer.audio_seconds == pytest.approx(2 * (0.6 + 3 * 0.15), abs=0.1)
    assert whole.audio_seconds == pytest.approx(4.6)


SENTENCES = ("one two three four five six", "seven", "two two", "eight", "three four five six seven", "one", "six six")


def test_tell_takes_the_text_so_far_between_batches(model: Path) -> None:
    """Short parts are decoded first, so that a batch holds little padding; texts come in order nevertheless."""
    samples = with_pauses(*SENTENCES)
    recognizer = Recognizer(model, batch_seconds=0.5)
    told: list[str] = []
    (transcript,) = recognizer.recognize_waveforms([samples], told.append)
    assert transcript == Recognizer(model, batch_seconds=0.5).recognize_waveforms([samples])[0]
    assert transcript.text == " ".join(SENTENCES)
    assert len(told) > 2
    assert told == sorted(set(told), key=len)
    assert told[0].startswith(SENTENCES[0])
    assert all(transcript.text.startswith(text) and text != transcript.text for text in told)

    told.clear()
    recognizer.recognize_waveforms([with_pauses("one two")], told.append)
    assert told == []
    with pytest.raises(ValueError, match="2 waveforms"):
        recognizer.recognize_waveforms([samples, samples], told.append)


class WindowDecoder:
    """Writes what a CTC model hears, in windows as a decoder has them."""

    window = 3 * RATE // 2

    def __init__(self, listener: Recognizer) -> None:
        self.listener = listener

    def __call__(self, waveforms: np.ndarray, lengths: np.ndarray, *, times: bool) -> list[list[WrittenText]]:
        rows = [row[:length] for row, length in zip(waveforms, lengths, strict=True)]
        return [[WrittenText(text, -0.5, 1)] for text in self.listener.transcribe_waveforms(rows)]


def test_a_decoder_tells_of_each_window(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = with_pauses(*SENTENCES)
    recognizer = Recognizer(model)
    monkeypatch.setattr(recognizer, "_decoder", WindowDecoder(Recognizer(model)))
    recognizer.batch_seconds = 1.5
    told: list[str] = []
    (transcript,) = recognizer.recognize_waveforms([samples], told.append)
    assert transcript.text == " ".join(SENTENCES) == recognizer.recognize_waveforms([samples])[0].text
    assert len(told) > 3
    assert told == sorted(set(told), key=len)
    assert all(transcript.text.startswith(text) and text != transcript.text for text in told)


@pytest.mark.parametrize("has_decoder", [False, True])
def test_work_that_nobody_waits_for_ends_between_batches(
    model: Path, monkeypatch: pytest.MonkeyPatch, has_decoder: bool
) -> None:
    recognizer = Recognizer(model, batch_seconds=0.5)
    if has_decoder:
        monkeypatch.setattr(recognizer, "_decoder", WindowDecoder(Recognizer(model)))
    batches: list[int] = []
    pad = recognizer._padded
    monkeypatch.setattr(recognizer, "_padded", lambda waveforms: batches.append(len(waveforms)) or pad(waveforms))
    cancellation = Cancellation()
    told: list[str] = []

    def leave(text: str) -> None:
        told.append(text)
        cancellation.cancel()

    with pytest.raises(WorkCancelledError), cancellation.active():
        recognizer.recognize_waveforms([with_pauses(*SENTENCES)], leave)
    assert (len(told), len(batches)) == (1, 1)


def test_the_parts_of_a_recording_have_one_output(model: Path) -> None:
    samples = with_pauses("one two", "three")
    recognizer = Recognizer(model)
    (decoded,) = recognizer.decode_waveforms([samples])
    assert (decoded.text, decoded.greedy, decoded.parts) == ("one two three", "one two three", 2)
    assert recognizer.confidence(decoded, 3.3) == pytest.approx(
        recognizer.recognize(samples, RATE).confidence, abs=1e-3
    )


def test_the_loss_of_parts_has_a_space_where_they_were_cut() -> None:
    alphabet = Alphabet(" ab")
    certain = np.log(np.array([[1e-6, 1, 1e-6, 1e-6], [1e-6, 1e-6, 1, 1e-6]], np.float32))  # [labels, symbols + 1]
    parts = [DecodedWaveform(text, text, row[None]) for text, row in zip("ab", certain, strict=True)]
    joined = join_decoded(parts, alphabet)
    assert (joined.text, joined.log_probabilities.shape) == ("a b", (3, 4))
    assert text_loss(joined.log_probabilities, "a b", alphabet)[0] == pytest.approx(math.log(2), abs=1e-4)


def test_alternatives_of_parts_are_those_of_the_recording(model: Path) -> None:
    transcript = Recognizer(model, n_best=3).recognize(with_pauses("one two", "three"), RATE)
    assert len(transcript.alternatives) == 3
    assert transcript.alternatives[0].text == transcript.text == "one two three"
    assert sum(alternative.confidence for alternative in transcript.alternatives) == pytest.approx(1)


def test_a_long_silence_is_no_speech_and_noise_is_heard(model: Path) -> None:
    recognizer = Recognizer(model)
    silent = recognizer.recognize(np.zeros(30 * RATE, np.float32), RATE)
    assert (silent.text, silent.note, silent.seconds) == ("", "no speech", 30.0)
    noisy = recognizer.recognize(with_pauses(seconds=30.0), RATE)
    assert (noisy.text, noisy.note) == ("", "")

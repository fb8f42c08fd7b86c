"""A synthesizer speaks what its model can read, and says why it refuses anything else."""

import io
import json
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import soundfile

from tests.closeness import assert_close
from tests.serving.test_server import Served, push
from tests.tone_asr_model import BLOCK, RATE, WORDS, MakeAsrModel, render_words
from tests.tone_tts_model import FEATURES, FRAMES, MakeTtsModel, add_onnx_graph
from voxline.audio.features import compute_features
from voxline.errors import SettingsError, WorkError
from voxline.inference.pace import Pace
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.text_encoder import MAX_SYMBOLS, MAX_TEXT_CHARACTERS, EncodedSentence, TextEncoder
from voxline.pipelines.cli.synthesis import read_text_argument
from voxline.serving.refusals import RefusedError
from voxline.serving.speech import SpeechRequest, synthesize_speech


@pytest.fixture(scope="module")
def voice(make_tts_model: MakeTtsModel) -> Synthesizer:
    return Synthesizer(make_tts_model(endless="8"), batch_size=2)


def test_texts_are_spoken_in_their_order_each_as_long_as_itself(voice: Synthesizer) -> None:
    texts = ["0123456.", "1", "22 .", "8"]
    spoken = voice.synthesize(texts)
    assert [one.symbols for one in spoken] == texts
    assert [len(one.mels) for one in spoken] == [FRAMES * len(text) for text in texts]
    assert [len(one.waveform) for one in spoken] == [BLOCK * len(text) for text in texts]
    assert [one.alignment.shape for one in spoken] == [(len(text), len(text)) for text in texts]
    assert [one.hit_limit for one in spoken] == [False, False, False, True]
    assert np.allclose(spoken[1].waveform, render_words(["one"]))
    assert voice.audio_seconds >= 1.4
    assert voice.seconds > 0


def test_breaks_are_exact_silence_in_the_sound(voice: Synthesizer) -> None:
    spoken = voice.speak('<speak><break time="100ms"/>1<break time="37ms"/>2 8<break strength="weak"/></speak>')
    one, two = voice.synthesize(["1", "2 8"])
    silences = [np.zeros(samples, np.float32) for samples in (1_600, 592, 8_000)]
    wanted = [silences[0], one.waveform, silences[1], two.waveform, silences[2]]
    assert_close(spoken.waveform, np.concatenate(wanted), relative_to_peak=1e-6)
    assert spoken.hit_limit  # of the 8
    np.testing.assert_array_equal(voice.speak("22 .").waveform, voice.synthesize("22 .").waveform)
    assert len(voice.speak('<speak><break time="1s"/></speak>').waveform) == RATE


def test_a_long_text_is_spoken_sentence_by_sentence_with_the_pauses_of_ssml(voice: Synthesizer) -> None:
    text = "12 3. 4 5. 6.\n\n7 1."
    parts = list(voice.stream(text))
    assert [part.pieces for part in parts] == [1, 0, 1, 0, 1, 0, 1]
    assert [len(part.waveform) for part in parts[1::2]] == [RATE // 2, RATE // 2, RATE]
    assert [len(part.waveform) for part in parts[::2]] == [BLOCK * symbols for symbols in (5, 4, 2, 4)]
    whole = voice.speak(text)
    assert (whole.pieces, whole.hit_limit) == (4, False)
    assert_close(whole.waveform, np.concatenate([part.waveform for part in parts]), relative_to_peak=1e-6)


def test_a_sentence_that_is_too_long_loses_nothing(voice: Synthesizer) -> None:
    for text in ("12 " * 700, "1" * 2_500, "123-4" + "56 7 -" * 300):
        sentences = [item for item in voice.text.encode_speech(text) if isinstance(item, EncodedSentence)]
        assert all(len(one.symbols) <= MAX_SYMBOLS for one in sentences)
        assert "".join(one.symbols for one in sentences).replace(" ", "") == text.replace(" ", "")
    with pytest.raises(SettingsError, match=rf"too long: 600,000 characters; at most {MAX_TEXT_CHARACTERS:,} char"):
        voice.speak("1. 2 " * 120_000)


@pytest.mark.slow
def test_one_sentence_is_in_memory_at_a_time(voice: Synthesizer) -> None:
    tracemalloc.start()
    try:
        total = sum(len(part.waveform) for part in voice.stream("12 3. " * 200))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total > 180 * RATE // 2
    assert peak < 4 * total / 10


def test_a_sentence_whose_end_is_not_reached_is_halved(voice: Synthesizer, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = voice._decode

    def limited(text: dict[str, Any], *, with_audio: bool) -> dict[str, Any]:
        outputs = decode(text, with_audio=with_audio)
        return {**outputs, "hit_limit": outputs["hit_limit"] | (text["lengths"] > 6)}

    monkeypatch.setattr(voice, "_decode", limited)
    spoken = voice.speak("1234 5671 2 345")
    assert (spoken.pieces, spoken.hit_limit) == (3, False)
    parts = [one.waveform for one in voice.synthesize(["1234", "5671", "2 345"])]
    assert_close(spoken.waveform, np.concatenate(parts), relative_to_peak=1e-6)
    endless = voice.speak("1234 5671 8 345")
    assert (endless.pieces, endless.hit_limit) == (1, True)
    assert len(endless.waveform) == 15 * BLOCK


def test_speech_that_stops_at_once_or_goes_on_is_named(make_tts_model: MakeTtsModel) -> None:
    """Field case U2: "OK" of 0.0 s was done."""
    voice = Synthesizer(make_tts_model(mute="8"), batch_size=2)
    assert [result.pace_fault for result in voice.synthesize(["1234", "8", "12 8"])] == ["", "too_short", "too_short"]
    spoken = voice.speak("123. 8.")
    assert (spoken.pace_fault, spoken.hit_limit, spoken.is_whole) == ("too_short", False, False)
    assert voice.about(spoken).startswith("the model stopped before its text was said: less than 0.02 s a symbol")
    assert voice.about(voice.speak("123.")) == ""

    # A digit takes 0.1 s, however long the pause that SSML asks for, and at whatever rate.
    slow = Synthesizer(make_tts_model(mute="8"), pace=Pace(0.0, 0.01))
    assert slow.synthesize("1" * 20).pace_fault == ""
    assert slow.synthesize("1" * 30).pace_fault == "too_long"
    assert voice.speak('<speak>1<break time="5s"/><prosody rate="50%">234</prosody></speak>').is_whole
    quick = Synthesizer(make_tts_model(mute="8"), pace=Pace(0.2, 0.3))
    assert quick.speak("1234").pace_fault == "too_short"
    with pytest.raises(SettingsError, match=r"seconds a symbol: from 0.5 to 0.3"):
        Pace(0.5, 0.3)


def test_a_voice_that_stops_at_once_is_no_answer_to_a_request(make_tts_model: MakeTtsModel) -> None:
    voice = Synthesizer(make_tts_model(mute="8"))
    with pytest.raises(RefusedError, match="stopped before its text was said") as refused:
        synthesize_speech(voice, SpeechRequest("voice", "8", "wav"))
    assert refused.value.status == 500
    assert synthesize_speech(voice, SpeechRequest("voice", "12", "wav"))[1] == 0.2


def read_digits(mels: np.ndarray, rates: Sequence[float]) -> str:
    """What is said in the middle of each symbol that takes the time of its rate, by the nearest tone."""
    tones = np.stack([compute_features(render_words([word]), FEATURES)[FRAMES // 2] for word in WORDS])
    lengths = FRAMES / np.array(rates)
    middles = np.cumsum(lengths) - lengths * (1 - FRAMES // 2 / FRAMES)
    return "".join(str(np.square(tones - mels[round(middle)]).sum(-1).argmin()) for middle in middles)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["tensorflow", "onnx"])
@pytest.mark.parametrize(("percent", "times"), [(50, 2), (80, 1.25), (200, 0.5)])
def test_a_rate_scales_the_time_of_its_words_and_they_are_still_read(
    engine: Literal["tensorflow", "onnx"], percent: int, times: float, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    folder = add_onnx_graph(Path(shutil.copytree(make_tts_model(), tmp_path / "voice")))
    voice = Synthesizer(folder, engine=engine)
    document = f'<speak>77<prosody rate="{percent}%">2255</prosody>11</speak>'
    (item,) = voice.text.encode_speech(document)
    assert isinstance(item, EncodedSentence)
    (result,) = voice._at_rates([item], "")
    assert item.rates == (1, 1, *[percent / 100] * 4, 1, 1)
    assert read_digits(result.mels, item.rates) == "77225511"
    assert result.alignment.shape == (8, 8)  # of the usual rate: a step for each symbol
    np.testing.assert_array_equal(result.alignment, np.eye(8))
    spoken = voice.speak(document).waveform
    assert len(spoken) == pytest.approx(BLOCK * (4 + 4 * times), rel=0.1)
    assert not np.array_equal(spoken, voice.speak("<speak>77225511</speak>").waveform)


def test_a_voice_in_onnx_speaks_ssml_without_tensorflow(make_tts_model: MakeTtsModel, tmp_path: Path) -> None:
    folder = add_onnx_graph(Path(shutil.copytree(make_tts_model(), tmp_path / "voice")))
    code = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "from voxline.pipelines.cli.synthesis import synthesize_to_file; from pathlib import Path\n"
        'text = \'<speak>1<break time="1s"/><prosody rate="50%">2345</prosody></speak>\'\n'
        "print(synthesize_to_file(Path(sys.argv[2]), text, Path(sys.argv[1]))[0])"
    )
    wav = tmp_path / "speech.wav"
    ran = subprocess.run([sys.executable, "-c", code, folder, wav], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    samples, rate = soundfile.read(wav)
    assert rate == RATE
    first = (FRAMES - 1) * BLOCK // FRAMES
    assert samples[first - 100 : first].any()
    assert not samples[first : first + RATE].any()
    assert samples[first + RATE : first + RATE + 400].any()
    assert len(samples) == pytest.approx(RATE + 9 * BLOCK, rel=0.1)


def test_each_frame_of_a_recording_is_predicted(make_tts_model: MakeTtsModel) -> None:
    recordings = [np.ones((FRAMES * 3 + 2, 20), np.float32), np.ones((FRAMES, 20), np.float32)]
    first, second = Synthesizer(make_tts_model(smear=0.5)).teacher_forced(["123.", "1"], recordings)
    assert first.mels.shape == (17, 20)
    assert first.alignment.shape == (4, 4)
    assert second.mels.shape == (5, 20)
    assert first.mel_l1 == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the text is empty"),
        (" \n\t ", "the text is empty"),
        ("?! … .", r"holds no letter and no digit"),
        ("12\x073", r"control character U\+0007 at position 3"),
        ("12\u200b3", r"control character U\+200B at position 3"),
        ("123 привет", r"'п' \(U\+043F CYRILLIC SMALL LETTER PE\)"),
        ("12☃", "'☃' .*SNOWMAN"),
        ("1" * (MAX_SYMBOLS + 1), r"1,001 symbols; at most 1,000 symbols are synthesized at once; split it into"),
        ("1" * 10_000, r"10,000 characters.*at most 1,000 symbols"),
    ],
)
def test_what_cannot_be_spoken_is_refused_by_name(voice: Synthesizer, text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as refused:
        voice.synthesize(["12.", text])
    assert len(str(refused.value)) < 700


def test_the_longest_text_and_line_breaks_are_spoken(voice: Synthesizer) -> None:
    longest = voice.synthesize("1" * MAX_SYMBOLS)
    assert len(longest.symbols) == MAX_SYMBOLS
    assert voice.text.encode("1\n 2").symbols == "1 2"


def test_symbols_of_a_manifest_are_spoken_whatever_their_length(voice: Synthesizer) -> None:
    (spoken,) = voice.synthesize_symbols(["1" * (MAX_SYMBOLS + 1)])
    assert len(spoken.waveform) == BLOCK * (MAX_SYMBOLS + 1)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_text_on_standard_input_may_begin_with_a_byte_order_mark(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{mark}12 3.\r\n".encode())))
    assert read_text_argument("-") == "12 3."


def test_a_text_is_refused_from_model_json_alone(make_tts_model: MakeTtsModel, tmp_path: Path) -> None:
    for name in ("model.json", "saved_model.pb"):
        shutil.copy(make_tts_model() / name, tmp_path)
    assert TextEncoder.of_model(tmp_path).encode("1 2.").symbols == "1 2."
    with pytest.raises(SettingsError, match="'☃'"):
        TextEncoder.of_model(tmp_path).encode("12☃")


def test_a_model_of_another_family_or_without_a_key_is_named(
    make_asr_model: MakeAsrModel, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    with pytest.raises(WorkError, match=r"family 'asr' \(ctc\), 'tts' is accepted here"):
        Synthesizer(make_asr_model())
    folder = Path(shutil.copytree(make_asr_model(), tmp_path / "mixed"))
    shutil.copy(make_tts_model() / "model.json", folder)
    with pytest.raises(WorkError, match="no signature 'synthesize'"):
        Synthesizer(folder)
    about = json.loads((folder / "model.json").read_text())
    del about["max_steps"]
    (folder / "model.json").write_text(json.dumps(about))
    with pytest.raises(WorkError, match=r"model\.json has no max_steps; run train again"):
        Synthesizer(folder)


def test_a_registry_is_not_a_model_and_the_message_says_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "registry" / "tts" / "1").mkdir(parents=True)
    with pytest.raises(WorkError, match=r"registry: no saved_model\.pb and no model\.json, .* give <registry>/<model>"):
        Synthesizer(tmp_path / "registry")


@pytest.mark.slow
def test_openais_own_client_gets_speech(make_tts_model: MakeTtsModel, tmp_path: Path) -> None:
    import openai

    model = make_tts_model(endless="8")
    registry = push(tmp_path / "registry", model, name="voice")
    served = Served(tmp_path / "registry", names=("voice",))
    try:
        client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
        answer = client.audio.speech.create(model="voice", voice="any", input="3-1", response_format="wav")
        samples, rate = soundfile.read(io.BytesIO(answer.content), dtype="float32")
        assert rate == RATE
        assert_close(samples, Synthesizer(model).synthesize("3-1").waveform, relative_to_peak=1e-4)
        assert answer.response.headers["x-voxline-digest"] == registry.event(1).digest
        pcm = client.audio.speech.create(model="voice", voice="any", input="3-1", response_format="pcm").content
        assert len(pcm) == 2 * len(samples)
        cut = client.audio.speech.create(model="voice", voice="any", input="12 3. 4 5.", response_format="pcm").content
        assert len(cut) == 2 * (RATE // 2 + 9 * BLOCK)
        compressed = client.audio.speech.create(model="voice", voice="any", input="3-1").content  # mp3, its default
        assert len(soundfile.read(io.BytesIO(compressed))[0]) >= len(samples)
        marked = '<speak>3<break time="1s"/>1</speak>'
        ssml = client.audio.speech.create(model="voice", voice="any", input=marked, response_format="pcm").content
        assert len(ssml) == 2 * (RATE + 2 * BLOCK)
        for change, told in (
            ({"input": "<speak>3\n<emphasis/></speak>"}, "line 2: <emphasis> is not understood"),
            ({"input": "3 x"}, "x"),
            ({"input": ""}, "a text of 1 to 4,096 characters"),
            ({"response_format": "aac"}, "'aac': mp3, opus, flac, wav, pcm is accepted"),
            ({"speed": 2.0}, "a voice has one speed"),
        ):
            wanted: dict[str, Any] = {"model": "voice", "voice": "any", "input": "3", **change}
            with pytest.raises(openai.BadRequestError, match=told):
                client.audio.speech.create(**wanted)
        with pytest.raises(
            openai.InternalServerError, match=r"did not stop within its 120 decoder steps .*another wording"
        ):
            client.audio.speech.create(model="voice", voice="any", input="3 8")
        with pytest.raises(openai.BadRequestError, match="voice is a voice; this route takes a recognizer"):
            client.audio.transcriptions.create(model="voice", file=("a.wav", answer.content))
        with pytest.raises(openai.APIStatusError) as large:
            client.audio.speech.create(model="voice", voice="any", input="3" * 70_000)
        assert large.value.status_code == 413
    finally:
        served.stop()

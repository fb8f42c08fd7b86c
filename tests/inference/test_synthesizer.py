"""An exported voice speaks what it can read, and says of all else why it does not."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.spoken_tones import BLOCK, MakeModel, speak
from tests.spoken_voice import FRAMES, MakeVoice
from voxline.errors import SettingsError, WorkError
from voxline.inference.saved_model import Recognizer
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.text_limits import MAX_SYMBOLS
from voxline.pipelines.cli.models import read_text_argument


@pytest.fixture(scope="module")
def voice(make_voice: MakeVoice) -> Synthesizer:
    return Synthesizer(make_voice(endless="8"), batch_size=2)


def test_texts_are_spoken_in_their_order_each_as_long_as_itself(voice: Synthesizer) -> None:
    texts = ["0123456.", "1", "22 .", "8"]
    spoken = voice.synthesise(texts)
    assert [one.symbols for one in spoken] == texts
    assert [len(one.mels) for one in spoken] == [FRAMES * len(text) for text in texts]
    assert [len(one.waveform) for one in spoken] == [BLOCK * len(text) for text in texts]
    assert [one.alignment.shape for one in spoken] == [(len(text), len(text)) for text in texts]
    assert [one.hit_limit for one in spoken] == [False, False, False, True]
    assert np.allclose(spoken[1].waveform, speak(["one"]))
    assert voice.audio_seconds >= 1.4
    assert voice.seconds > 0


def test_a_recording_is_foretold_frame_by_frame(make_voice: MakeVoice) -> None:
    recordings = [np.ones((FRAMES * 3 + 2, 20), np.float32), np.ones((FRAMES, 20), np.float32)]
    first, second = Synthesizer(make_voice(smear=0.5)).teacher_forced(["123.", "1"], recordings)
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
        ("12\x073", r"control character U\+0007 at place 3"),
        ("12\u200b3", r"control character U\+200B at place 3"),
        ("123 привет", r"'п' \(U\+043F CYRILLIC SMALL LETTER PE\)"),
        ("12☃", "'☃' .*SNOWMAN"),
        ("1" * (MAX_SYMBOLS + 1), r"1,001 symbols, and at most 1,000 symbols are spoken at once; part it into"),
        ("1" * 10_000, r"10,000 characters.*at most 1,000 symbols"),
    ],
)
def test_what_cannot_be_spoken_is_refused_by_name(voice: Synthesizer, text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as refused:
        voice.synthesise(["12.", text])
    assert len(str(refused.value)) < 700


def test_the_longest_text_and_line_breaks_are_spoken(voice: Synthesizer) -> None:
    (longest,) = voice.synthesise(["1" * MAX_SYMBOLS])
    assert len(longest.symbols) == MAX_SYMBOLS
    assert voice.read("1\n 2").symbols == "1 2"


def test_what_was_recorded_is_spoken_however_long(voice: Synthesizer) -> None:
    (spoken,) = voice.speak(["1" * (MAX_SYMBOLS + 1)])
    assert len(spoken.waveform) == BLOCK * (MAX_SYMBOLS + 1)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_text_on_standard_input_may_begin_with_a_byte_order_mark(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{mark}12 3.\r\n".encode())))
    assert read_text_argument("-") == "12 3."


def test_a_voice_transcribes_nothing(make_voice: MakeVoice) -> None:
    with pytest.raises(WorkError, match=r"a voice \(tacotron2\), which transcribes nothing; give a recogniser"):
        Recognizer(make_voice())


def test_a_model_that_is_no_voice_or_lost_a_key_is_named(
    make_model: MakeModel, make_voice: MakeVoice, tmp_path: Path
) -> None:
    with pytest.raises(WorkError, match=r"'ctc', without reading and max_steps and reduction, is no voice"):
        Synthesizer(make_model())
    folder = Path(shutil.copytree(make_model(), tmp_path / "mixed"))
    shutil.copy(make_voice() / "model.json", folder)
    with pytest.raises(WorkError, match="no signature 'synthesize'"):
        Synthesizer(folder)


def test_a_whole_registry_is_no_model_and_the_way_into_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "registry" / "tts" / "1").mkdir(parents=True)
    with pytest.raises(WorkError, match=r"registry: no saved_model\.pb and no model\.json, .* give <registry>/<model>"):
        Synthesizer(tmp_path / "registry")

"""Written transcripts keep the times of their words, and end sentences at pauses."""

import time

import pytest

from voxline.errors import SettingsError
from voxline.inference.ctc_alignment import AlignedWord
from voxline.inference.transcript import Alternative, Transcript
from voxline.inference.written_transcript import WritingChoices, write_transcript, written_form


def written(transcript: Transcript, itn: str = "", *, punctuate: bool = False) -> Transcript:
    return write_transcript(transcript, WritingChoices(itn, punctuate))


def heard(text: str, *pauses: int, words: list[str] | None = None) -> Transcript:
    """A word a second, 0.9 s long, with a second of silence behind the words at some places."""
    spoken = words or text.split()
    starts = [place + sum(pause < place for pause in pauses) for place in range(len(spoken))]
    timed = [AlignedWord(word, start, start + 0.9, 0.5) for word, start in zip(spoken, starts, strict=True)]
    return Transcript(text, timed, 0.5, starts[-1] + 1.0, alternatives=(Alternative(text, 1.0),))


def test_a_written_word_has_the_time_of_what_it_stands_for() -> None:
    answer = written(heard("it cost three dollars and fifty cents today"), "en")
    assert answer.text == answer.alternatives[0].text == "it cost $3.50 today"
    assert [(word.word, word.start, word.end) for word in answer.words] == [
        ("it", 0, 0.9), ("cost", 1, 1.9), ("$3.50", 2, 6.9), ("today", 7, 7.9),
    ]  # fmt: skip
    assert all(word.confidence == pytest.approx(0.5) for word in answer.words)


def test_hanzi_between_two_spaces_are_written_one_by_one() -> None:
    """As a recognizer of hanzi gives them: one word, which has no space."""
    answer = written(heard("我七点三十分买 app", words=["我七点三十分买", "app"]), "zh")
    assert answer.text == "我7:30买 app"
    assert [word.word for word in answer.words] == ["我", "7:30", "买", "app"]
    assert (answer.words[0].start, answer.words[2].end) == (0.0, pytest.approx(answer.words[3].start, abs=0.5))


def test_hanzi_are_joined_without_spaces() -> None:
    answer = written(heard("我七点三十分买 app", words=[*"我七点三十分买", "app"]), "zh", punctuate=True)
    assert answer.text == "我7:30买 app."
    assert [word.word for word in answer.words] == ["我", "7:30", "买", "app."]
    assert (answer.words[1].start, answer.words[1].end) == (1, 5.9)


def test_sentences_end_at_pauses() -> None:
    transcript = heard("at seven p m i'll call anna on monday it's late", 3, 8)
    assert written(transcript, "en", punctuate=True).text == "At 7 p.m. I'll call anna on Monday. It's late."
    assert written(transcript, punctuate=True).text == "At seven p m. I'll call anna on monday. It's late."


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("你好", "你好。"),
        ("यह क्या है", "यह क्या है।"),
        ("สวัสดี", "สวัสดี"),
        ("გამარჯობა", "გამარჯობა."),
        ("iyi ışık", "İyi ışık."),
        ("élan vital", "Élan vital."),
        ("He said so. why", "He said so. why"),  # the model punctuates
        ("", ""),
    ],
)
def test_marks_are_those_of_the_script(text: str, written: str) -> None:
    assert written_form(text, WritingChoices(punctuate=True)) == written


def test_a_text_without_a_time_for_each_word_is_written_too() -> None:
    transcript = Transcript("Twenty five dollars, please.", [], None, 2.0)
    assert written(transcript, "en", punctuate=True).text == "$25, please."
    assert written(Transcript("", [], None, 1.0, "no speech"), "en", punctuate=True).text == ""


def test_other_languages_and_values_are_named() -> None:
    with pytest.raises(SettingsError, match="itn: 'de'; en, zh is accepted"):
        written(heard("zwei"), "de")
    with pytest.raises(SettingsError, match="punctuate: 'often'; true or false is accepted"):
        WritingChoices.of_texts({"punctuate": "often"}, WritingChoices())
    default = WritingChoices("en", punctuate=True)
    assert WritingChoices.of_texts({}, default) == default
    assert WritingChoices.of_texts({"itn": "", "punctuate": "False"}, default) == WritingChoices()


def test_the_time_grows_as_the_length_of_the_text() -> None:
    def seconds(unit: str, itn: str, count: int) -> float:
        begin = time.process_time()
        written_form(unit * count, WritingChoices(itn, punctuate=True))
        return time.process_time() - begin

    for unit in ("twenty one ", "a hundred ", "five ", "word ", "ten to ", "ten dollars to ", "one thousand ", "b "):
        assert any(seconds(unit, "en", 8_000) < 24 * max(seconds(unit, "en", 1_000), 0.01) for _ in range(3)), unit
    for unit in ("一十点", "一", "一点", "百分之一", "一分之"):
        assert any(seconds(unit, "zh", 8_000) < 24 * max(seconds(unit, "zh", 1_000), 0.01) for _ in range(3)), unit

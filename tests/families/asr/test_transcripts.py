"""The spelling that `voxline config init` chooses for transcripts, and the language model for their words."""

import pytest

from voxline.families.asr.transcripts import choose_language_model, choose_spelling
from voxline.text.alphabet import Alphabet
from voxline.text.frontend import apply_frontend
from voxline.text.settings import FrontendSettings


@pytest.mark.parametrize(
    ("texts", "kind", "alphabet"),
    [
        (["Good morning!", "it's me"], None, None),
        (["at 7:30 am", "two cats"], "english_transcript", None),
        (["Tom & Jerry", "5% off"], "english_transcript", None),
        (["het is 7 uur", "de man van het huis"], None, " 7adehimnrstuv"),
        (["今天很好", "买 2 个 APP"], "mandarin_transcript", " ap个买二今天好很"),
        (["Привет, мир", "как дела?"], None, " авдеиклмпрт"),
        (["今日はいい天気です", "ありがとう"], None, " あいうがすでとはり今天日気"),
        (["안녕하세요", "네"], None, " 네녕세안요하"),
        (["नमस्ते दुनिया", "क्या"], None, " कतदनमयसािुे्"),
    ],
)
def test_each_language_has_a_frontend_and_its_letters(texts: list[str], kind: str, alphabet: str) -> None:
    """Field case F9: the config that is proposed has them."""
    spelling = choose_spelling(texts * 10)
    assert spelling.settings.get("frontend", {}).get("kind") == kind
    assert spelling.settings.get("alphabet") == alphabet
    assert spelling.lost == 0

    # As convert will write them.
    letters = Alphabet.from_name(alphabet or "english")
    for text, expected in zip(texts, spelling.texts, strict=False):
        symbols = apply_frontend(
            text, FrontendSettings.of(spelling.settings.get("frontend", {})), alphabet or ""
        ).symbols
        assert symbols == expected
        assert letters.unknown(symbols) == ""


def test_odd_characters_are_named_and_left_out_while_few_utterances_are_lost() -> None:
    odd = ["дa war er", "eine ♥ Liebe", "das ² ist"]
    spelling = choose_spelling([*["die Größe", "das Haus war leer"] * 150, *odd])
    assert not set("д♥²") & set(spelling.settings["alphabet"])
    assert spelling.lost == 3
    said = "\n".join(spelling.findings)
    assert "'д' (U+0434 CYRILLIC SMALL LETTER DE), a letter of another script (cyrillic), in 1 utterance" in said
    assert "'♥' (U+2665 BLACK HEART SUIT), no letter, in 1 utterance, such as 'eine ♥ Liebe': left out" in said
    assert "'²' (U+00B2 SUPERSCRIPT TWO), a digit, in 1 utterance" in said
    assert "warning    3 of 303 utterances become rejects by their transcripts" in said


def test_a_character_of_many_utterances_is_kept_and_named() -> None:
    spelling = choose_spelling(["er hat 7 Äpfel", "die Größe", "das Haus"] * 20)
    assert "7" in spelling.settings["alphabet"]
    assert spelling.lost == 0
    (line,) = [line for line in spelling.findings if "DIGIT SEVEN" in line]
    assert line.endswith("a digit, in 20 utterances, such as 'er hat 7 Äpfel': kept, or too many would be lost")


def test_a_control_character_is_never_in_an_alphabet() -> None:
    assert "\x07" not in choose_spelling(["über\x07all", "öde"] * 5).settings["alphabet"]


@pytest.mark.parametrize(
    ("texts", "model"),
    [
        (["ein haus", "das haus", "ein haus"], {"kind": "ngram"}),
        (["ein haus", "das haus", "ganz andere worte"], {"kind": "ngram", "open_vocabulary": True}),
        (["今天很好", "我很好", "今天好"], {"kind": "ngram"}),
        (["今日はいい天気です", "ありがとう", "そうです"], {"kind": "ngram"}),
    ],
)
def test_a_language_model_allows_other_words_where_train_lacks_many(texts: list[str], model: dict[str, object]) -> None:
    assert choose_language_model(texts, ["train", "train", "dev"])[0] == model


@pytest.mark.parametrize("letters", ["şș", "ţț", "يی", "كک", "əә"])
def test_two_spellings_of_one_letter_are_named(letters: str) -> None:
    texts = [f"a{letters[0]}a", f"o{letters[1]}o", f"u{letters[1]}u"]
    lines = [line for line in choose_spelling(texts, "xx").findings if "one letter in two spellings" in line]
    assert len(lines) == 1
    assert f"'{letters[0]}' (U+{ord(letters[0]):04X}" in lines[0]
    assert " in 1 and " in lines[0]
    assert not any("two spellings" in line for line in choose_spelling([texts[0]], "xx").findings)

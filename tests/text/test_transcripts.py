"""Transcripts of any language keep their letters, and lose what is no letter."""

import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxline.text.alphabet import Alphabet, UnsupportedText, split_words
from voxline.text.frontend import apply_frontend, part_symbols
from voxline.text.settings import FrontendKind, FrontendSettings
from voxline.text.transcripts import normalize_transcript

LATIN = " abcdefghijklmnopqrstuvwxyz"


def read_languages() -> dict[str, tuple[str, list[str]]]:
    """Language → its letters, and sentences with the punctuation of its own orthography."""
    languages = {}
    for block in (Path(__file__).parent / "languages.txt").read_text(encoding="utf-8").strip().split("\n\n"):
        first, *sentences = block.split("\n")
        language, _, letters = first.partition(": ")
        languages[language] = (f" {letters}", sentences)
    return languages


LANGUAGES = read_languages()
CATEGORIES = ("Ps", "Pe", "Pi", "Pf", "Pd", "Po", "Cf")
MARKS = "".join(chr(code) for code in range(0x80, 0x3100) if unicodedata.category(chr(code)) in CATEGORIES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_with_its_own_punctuation_is_accepted(language: str) -> None:
    """Field cases F7, and F8 (Turkish): all lines are accepted."""
    letters, sentences = LANGUAGES[language]
    alphabet = Alphabet.from_name(letters)
    for sentence in sentences:
        symbols = apply_frontend(sentence, FrontendSettings(), alphabet.characters).symbols
        assert alphabet.unknown(symbols) == "", sentence
        assert symbols == " ".join(symbols.split()) != ""
        assert letters_of(symbols) == letters_of(lower(sentence, alphabet.characters)), sentence


AROUND = (
    *(
        "“{}”",
        "({})",
        "{} …",
        "- {}",
        "—{}",
        "«{}»",
        "‹{}›",
        "„{}“",
        "\ufeff{}",
        "『{}』",
        "_{}_",
        "[{}]",
        "¿{}?",
        "{}。",
    ),
    *("'{}'", "‘{}’", "<i>{}</i>", "&quot;{}&quot;"),
)


@pytest.mark.parametrize("language", LANGUAGES)
def test_marks_around_a_text_change_no_letter_of_it(language: str) -> None:
    letters, sentences = LANGUAGES[language]
    for sentence in sentences:
        symbols = apply_frontend(sentence, FrontendSettings(), letters).symbols
        for form in AROUND:
            assert apply_frontend(form.format(sentence), FrontendSettings(), letters).symbols == symbols, form


def lower(text: str, letters: str) -> str:
    folded = unicodedata.normalize("NFKC" if "カ" in letters else "NFC", text)
    return (folded.replace("I", "ı") if "ı" in letters else folded).replace("İ", "i").lower()


def letters_of(text: str) -> str:
    """Letters and the marks that belong to them, without those that stretch a line."""
    return "".join(
        character
        for character in text
        if unicodedata.category(character)[0] in "LMN" and character not in "\u0640\u02bb\u02bc\u2019"
    )


THAI = [("\u0e40\u0e40", "\u0e41"), ("\u0e4d\u0e32", "\u0e33")] + [
    (f"\u0e4d{tone}\u0e32", f"{tone}\u0e33") for tone in "\u0e48\u0e49\u0e4a\u0e4b"
]
"""Two signs side by side are one letter."""


@settings(max_examples=300, deadline=None)
@given(data=st.data(), language=st.sampled_from(["de", "tr", "ru", "el", "hi", "fa", "he", "th", "ja", "vi"]))
def test_no_letter_is_changed_by_what_stands_around_it(data: st.DataObject, language: str) -> None:
    """Whatever marks of Unicode stand between the letters of an alphabet, the letters stay as they are."""
    letters = Alphabet.from_name(LANGUAGES[language][0]).characters
    text = data.draw(st.text(st.sampled_from(letters.replace(" ", "") + " " * 5 + MARKS), max_size=40))
    symbols = normalize_transcript(text, letters)
    meant = unicodedata.normalize("NFC", text).replace("र्\u200d", "ऱ्")  # the joiner makes it another letter
    sides = [only_letters(side, letters) for side in (symbols, meant)]
    for apart, letter in THAI if language == "th" else ():
        sides = [side.replace(apart, letter) for side in sides]
    assert sides[0] == sides[1]
    assert normalize_transcript(symbols, letters) == symbols


def only_letters(text: str, letters: str) -> str:
    """The letters of an alphabet and their marks, taken apart."""
    own = set(unicodedata.normalize("NFD", letters)) - {" "}
    kept = "".join(letter for letter in unicodedata.normalize("NFD", text) if letter in own)
    return unicodedata.normalize("NFD", kept)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=30))
def test_any_text_is_normalized_once(text: str) -> None:
    symbols = normalize_transcript(text)
    assert normalize_transcript(symbols) == symbols == " ".join(symbols.split())
    assert unicodedata.is_normalized("NFC", symbols)


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("[noise]", ""),
        ("(laughter) close the [background noise] door", "close the door"),
        ("close the <noise> door", "close the door"),
        ("close {Breath} the [throat-clearing] door", "close the door"),
        ("the [old] door (again)", "the old door again"),  # brackets of prose
        ("close [crosstalk 00:12:34] the [music, 1:02] door", "close the door"),
        ("[phone ringing] close {chuckles} the door. (Wind)", "close the door"),
        ("the sound (wind) of the sea", "the sound wind of the sea"),
        ("+noise+ close *cough* the #hum# door, *really*", "close the door *really*"),
        ("<v Anna>close</v> <i>the</i><br/>door <00:01:02.000>again", "close the door again"),
        ("[00:12] close the door [1:02:03.5]", "close the door"),
        ("（笑）close (笑声) the【背景音乐】door [Geräusch]", "close the door"),
        ("CLOSE <COMMA> THE DOOR <PERIOD>", "close the door"),
        ("close [laughter-the] door (( again ))", "close the door again"),
        ("press the button (click) and hold", "press the button click and hold"),
        ("(music) hello (cough) there. (Beep) bye (music)", "hello there bye"),
        ("she said 'wait' and 'tis 'cause he's my friends' dog", "she said wait and 'tis 'cause he's my friends' dog"),
        ("'Wait,' she said. ''Go!''", "wait she said go"),
        ("rock 'n' roll, the ’90s", "rock 'n' roll the '90s"),
        ("‚so‘ ‹so› ‛so’ ＇so＇", "so so so so"),
        ("ＡＢＣ so\u00adft zero\u200bwidth \ufeffmark \u200eleft", "abc soft zerowidth mark left"),
        (">> JOHN: close the door. >> yes, JOHN: no", "close the door yes john no"),
        ("see [our page](https://a.com/b) [again] (soon)", "see our page again soon"),
        ("Vitamin C 'boosts' immunity, plan D 'was' a failure", "vitamin c boosts immunity plan d was a failure"),
        ("the Model T 'Tin Lizzie', plan C ' was ' bad", "the model t tin lizzie plan c was bad"),
        ("plan C 'cause I forgot, rock ' n ' roll", "plan c 'cause i forgot rock n roll"),
        ("what?no way, where?when?how?", "what no way where when how"),
        ("Are you ok?yes, is that Peter?yes", "are you ok yes is that peter yes"),
        ("go to youtube.com/watch?v=abc", "go to youtube com watch v=abc"),
        ("http://a.com/x?q=1", "http a com x q=1"),
        ("50% of it & 3 @ home", "50% of it & 3 @ home"),  # signs that are spoken are no punctuation
    ],
)
def test_marks_quotes_and_tags(written: str, spoken: str) -> None:
    """Field cases F6, F7 and F17."""
    assert apply_frontend(written, FrontendSettings(), Alphabet.from_name("english").characters).symbols == spoken


UZBEK = f"{LATIN}ʻʼ"


@pytest.mark.parametrize(
    ("written", "letters", "spoken"),
    [
        ("O‘zbek tog‘ va ma’no", UZBEK, "oʻzbek togʻ va maʼno"),
        ("O'zbek, 'ma'no'", UZBEK, "oʻzbek maʼno"),
        ("ʼáádóó hózhóʼ, yáʼátʼééh", f"{LATIN}áóéʼ", "ʼáádóó hózhóʼ yáʼátʼééh"),
        ("‘ʻO ka ʻōlelo’", f"{LATIN}ōʻ", "ʻo ka ʻōlelo"),
        ("'Ebda ta' 'il u 'l", f"{LATIN}'", "ebda ta 'il u 'l"),  # ambiguous: the first two may be a quote
        ("'one 'two' three' 'im", f"{LATIN}'", "one two three 'im"),
        ("သူ၏ စာ။", "", "သူ၏ စာ"),
        ("เเม่ค้า นํ้าใจ เอเชีย", "", "แม่ค้า น้ำใจ เอเชีย"),  # a vowel typed as two letters
        ("col•legi col‧legi • so", "", "collegi collegi so"),
        ("葛\U000e0100城, ᠮ\u180bᠭ᠊", "", "葛城 ᠮᠭ"),
        ("50﹪ ⁊", "", "50% ⁊"),
        ("ᏣᎳᎩ", " ᏣᎳᎩ", "ᏣᎳᎩ"),
        ('צה"ל', ' צהל"', 'צה"ל'),
    ],
)
def test_what_is_a_letter_is_decided_by_the_alphabet(written: str, letters: str, spoken: str) -> None:
    assert normalize_transcript(written, letters) == spoken
    assert normalize_transcript(spoken, letters) == spoken


@pytest.mark.parametrize(
    ("joined", "letter", "without"),
    [
        ("അവന്\u200d", "അവൻ", "അവന്"),  # he; to him
        ("അവള്\u200d മലര്\u200d പാല്\u200d കണ്\u200d", "അവൾ മലർ പാൽ കൺ", "അവള് മലര് പാല് കണ്"),
        ("എൻ്റെ", "എന്റെ", "എൻറെ"),
        ("হঠাত্\u200d", "হঠাৎ", "হঠাত্"),
        ("दर्\u200dया", "दऱ्या", "दर्या"),  # valleys; the ocean
        ("র\u200c্যাব", "র\u200d্যাব", "র্যাব"),
    ],
)
def test_a_joiner_that_makes_another_letter_is_never_lost(joined: str, letter: str, without: str) -> None:
    """Both spellings are one text, and neither is the text without the joiner."""
    assert normalize_transcript(joined) == normalize_transcript(letter) == letter
    assert normalize_transcript(without) == without != letter
    old = "".join(set(joined)) + "\u200d "
    if "\u200c" not in joined and "ൻ" not in joined:  # an alphabet of before Unicode had the letters
        assert normalize_transcript(letter, old) == normalize_transcript(joined, old) == joined


@pytest.mark.parametrize(
    ("written", "letters", "spoken"),
    [
        ("ئه\u200cم هه\u200cیه", "ئەمهی", "ئەم هەیه"),  # Kurdish
        ("به\u200cخانه", "", "بهخانه"),  # Persian: the same word
        ("ශ්\u200dරී", "", "ශ්රී"),  # the form alone
        ("ශ්\u200dරී", "ශ්රී\u200d", "ශ්\u200dරී"),
        ("शक्\u200dति उद्\u200cयान", "", "शक्ति उद्यान"),
        ("ᠬᠠᠷ\u180eᠠ a\u180eb", "", "ᠬᠠᠷ\u180eᠠ ab"),
        ("ខ្ញុំ\u200bទៅ ผม\u200bรัก ກ\u200bຂ က\u200bခ བོད\u200bསྐད", "", "ខ្ញុំ ទៅ ผม รัก ກ ຂ က ခ བོད སྐད"),
        ("ក\u200b្ក 你\u200b好 zero\u200bwidth", "", "ក្ក 你好 zerowidth"),
        ("ខ្ញុំ\u200bទៅ", "ខញុំទៅ្\u200b", "ខ្ញុំ\u200bទៅ"),
        ("كلمة\u06ddكلمة \u0600", "", "كلمة كلمة \u0600"),
    ],
)
def test_invisible_characters_go_where_they_mean_nothing(written: str, letters: str, spoken: str) -> None:
    """A space of no width is the end of a word in the scripts that use it so, and a stray elsewhere."""
    assert normalize_transcript(written, letters and f"{letters} ") == spoken
    assert normalize_transcript(spoken, letters and f"{letters} ") == spoken


@pytest.mark.parametrize(
    ("written", "kept", "spoken"),
    [
        ("Pi is 3.14, not 4.", ".", "pi is 3.14 not 4"),
        ("-5 or –5 or (-5)", "-–", "-5 or –5 or -5"),
        ("10:30, 1,000", ":,", "10:30 1,000"),
        ("5-6 and 5 – 6, then 7 - well", "-–", "5-6 and 5 – 6 then 7 well"),
        (".5 and -.5 ...5", ".-", ".5 and -.5 5"),
        ("1/2, 1e-5, 5'10\" tall, 3·5", "/-'\"·", "1/2 1e-5 5'10\" tall 3·5"),
        ("٣٫٥", "٫", "٣٫٥"),
        ("COVID-19, x-5: route 66.", "", "covid 19 x 5 route 66"),
    ],
)
def test_an_alphabet_with_digits_loses_no_mark_of_a_number(written: str, kept: str, spoken: str) -> None:
    letters = f"{LATIN}0123456789٣٥"
    assert normalize_transcript(written, letters) == spoken
    assert set(Alphabet.from_name(letters).unknown(spoken)) == set(kept)  # a reject that names them


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from("05 a.,:-–/'·(\u00ad"), max_size=12))
def test_two_numbers_of_different_marks_are_never_one_text(text: str) -> None:
    letters = f"{LATIN}0123456789"
    symbols = normalize_transcript(text, letters)
    assert normalize_transcript(symbols, letters) == symbols
    visible = text.replace("\u00ad", "")
    for mark in re.findall(r"(?<=[05])[.,:/·–-](?=[05])|(?<![^ ])[-–](?=[05])", text if visible == text else ""):
        assert mark in symbols


def test_the_symbol_of_noises_is_no_letter() -> None:
    with pytest.raises(ValueError, match="'N' is a letter, which words have too"):
        FrontendSettings(tag_symbol="N")


def test_a_noise_may_be_a_symbol_of_its_own() -> None:
    how = FrontendSettings(tag_symbol="#", tags=["noise", "bark"])
    letters = Alphabet.from_name(LATIN + "'#").characters
    assert apply_frontend("Close [noise] the (bark) door (cough)", how, letters).symbols == "close # the # door cough"
    listed = FrontendSettings(tags=["click"])
    assert apply_frontend("press the button (click) and hold", listed).symbols == "press the button and hold"


def test_every_string_in_brackets_may_be_a_tag() -> None:
    written = "[door slams] so [hesi [x] tation] what (laughs) (it seems) {aside}"
    square = FrontendSettings(tags=["[*]"])
    assert apply_frontend(written, square).symbols == "so what it seems aside"
    assert apply_frontend(written, FrontendSettings(tags=["[*]", "(*)", "{*}"])).symbols == "so what"
    assert (
        apply_frontend("门【关门】开了", FrontendSettings(kind="mandarin_transcript", tags=["【*】"])).symbols
        == "门开了"
    )
    assert apply_frontend("[Door-Slams] so [x]", FrontendSettings(tags=["Door-slams"])).symbols == "so x"
    letters = Alphabet.from_name(LATIN + "#").characters
    assert apply_frontend("so [x] it", FrontendSettings(tags=["[*]"], tag_symbol="#"), letters).symbols == "so # it"
    with pytest.raises(UnsupportedText, match="nobody understood"):
        apply_frontend("so [unintelligible] it", square)
    assert apply_frontend("[name] hello [location]", square).symbols == "hello"
    with pytest.raises(UnsupportedText, match=r"<name> in .* is no word that was said"):
        apply_frontend("[name] hello <name>", square)
    assert apply_frontend("[" * 50_000 + "]" * 50_000 + "so", square).symbols == "so"
    with pytest.raises(
        ValueError, match=r"'\[noise\]' has brackets; give the name alone, such as noise, or one of \[\*\]"
    ):
        FrontendSettings(tags=["[noise]"])


@pytest.mark.parametrize("kind", ["transcript", "english_transcript", "mandarin_transcript"])
@pytest.mark.parametrize(
    "text",
    [
        "open the <unk> door",
        "open [inaudible] door",
        "(unintelligible)",
        "open [inaudible 00:05:11] door",
        "open [indiscernible] door",
        "open (( )) door",
        "[speaking foreign language]",
    ],
)
def test_speech_that_nobody_understood_is_a_reject(kind: str, text: str) -> None:
    """Its words are missing: a model would learn that they are silence."""
    with pytest.raises(UnsupportedText, match="stands for speech that nobody understood"):
        apply_frontend(text, FrontendSettings.of({"kind": kind}))


@pytest.mark.parametrize("kind", ["english_transcript", "mandarin_transcript"])
def test_an_unknown_tag_is_no_speech(kind: str) -> None:
    """English would read "less than enter greater than"."""
    how = FrontendSettings.of({"kind": kind})
    with pytest.raises(UnsupportedText, match="<enter> in 'press <enter> now' is a tag"):
        apply_frontend("press <enter> now", how)
    assert apply_frontend("3 < 4", FrontendSettings(kind="english_transcript")).symbols == "three less than four"


def test_signs_are_removed_on_request_unless_the_alphabet_has_them() -> None:
    arabic = LANGUAGES["ar"][0]
    how = FrontendSettings(remove_marks=["vowel_signs", "stress_marks"])
    assert apply_frontend("أينَ الكتابُ؟", how, arabic).symbols == "أين الكتاب"
    assert apply_frontend("أينَ", how, arabic + "َ").symbols == "أينَ"
    assert apply_frontend("За́мок и замо́к, ёлка", how, LANGUAGES["ru"][0]).symbols == "замок и замок ёлка"
    assert apply_frontend("café ò", how, LATIN + "é").symbols == "café o"
    assert apply_frontend("За́мок", FrontendSettings(), LANGUAGES["ru"][0]).symbols == "за\u0301мок"  # not in silence


def test_letters_that_nfc_takes_apart_are_symbols_once() -> None:
    """Field case F16."""
    alphabet = Alphabet.from_name(" अकखगजडढफ\u0958\u0959\u095a\u095b\u095c\u095d\u095e")
    assert alphabet.characters == " अकखगजडढफ\u093c"
    assert alphabet.unknown(normalize_transcript("\u0958ख", alphabet.characters)) == ""


def test_languages_without_spaces_are_counted_in_characters() -> None:
    """Field case F15."""
    assert split_words("สวัสดี ok") == [*"สวัสดี", "ok"]
    assert split_words("カナとかな") == [*"カナとかな"]
    assert split_words("안녕 하세요") == ["안녕", "하세요"]


@pytest.mark.parametrize("kind", ["transcript", "english_transcript"])
@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("about_1 that, high_school", "about that high school"),
        ("so %uh yes %Um", "so uh yes um"),
        ("hello !SIL there", "hello there"),
        ("word[noise] here (laughs)", "word here"),
        ("[laughter-yes] ok (he said)", "yes ok he said"),
    ],
)
def test_marks_of_transcribers_are_no_words(written: str, spoken: str, kind: FrontendKind) -> None:
    assert apply_frontend(written, FrontendSettings(kind=kind)).symbols == spoken


UNHEARD = """
[it's/its] fine|a w[hat]- did|note[1] here|the word(s)|!UNK here|so /unintelligible/ yes|so xxx yes|the *** one|a __ b
(?) yes|%hesitation I
""".strip().replace("\n", "|")


@pytest.mark.parametrize("kind", ["transcript", "english_transcript"])
@pytest.mark.parametrize("text", UNHEARD.split("|"))
def test_what_a_transcriber_left_out_is_refused(text: str, kind: FrontendKind) -> None:
    with pytest.raises(UnsupportedText, match=r"nobody understood|letters of a word in brackets"):
        apply_frontend(text, FrontendSettings(kind=kind))


@pytest.mark.parametrize("text", ["&John said", "#metoo", "~A ~B", "%word", "f*** you"])
def test_a_sign_before_an_english_word_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedText, match="more than one reading"):
        apply_frontend(text, FrontendSettings(kind="english_transcript"))


KICHE = " abchijklmnopqrtuwxyz'"


@pytest.mark.parametrize("kind", ["english", "english_phonemes", "phonemes", "mandarin", "pinyin"])
def test_a_voice_speaks_no_words_that_were_taken_out(kind: FrontendKind) -> None:
    for apply in (apply_frontend, part_symbols):
        with pytest.raises(UnsupportedText, match="no word that was said"):
            apply("[NAME_1] hello", FrontendSettings(kind=kind))


LOST = "my card is XXXX|I am [NAME_1]|<|en|> Hello|Die T?r ist zu|I don?t|Gr??e|n?he|Fran?ais"


@pytest.mark.parametrize("text", re.split(r"(?<!<)\|(?!>)", LOST))
@pytest.mark.parametrize("kind", ["transcript", "english_transcript"])
def test_words_that_were_taken_out_and_lost_letters_are_refused(text: str, kind: FrontendKind) -> None:
    with pytest.raises(UnsupportedText, match=r"nobody understood|no word that was said|lacks letters"):
        apply_frontend(text, FrontendSettings(kind=kind), f"{LATIN}'ü<>|")


def test_elisions_that_were_taken_apart_are_joined() -> None:
    said = apply_frontend("L ' homme qu ' il a , ' vrai ' , it 's , ils ont", FrontendSettings(), f"{LATIN}'")
    assert said.symbols == "l'homme qu'il a vrai it's ils ont"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("je n ' ai pas , l ' été d ' une amie", "je n'ai pas l'été d'une amie"),
        ("presqu ' île , quelqu ' un", "presqu'île quelqu'un"),
        ("un ' altra dell ' arte", "un'altra dell'arte"),
        ("do n't , I ca n't , I 'm , don ' t", "don't i can't i'm don't"),
        ("o ' clock , ma ' am , y ' all , O ' Neill", "o'clock ma'am y'all o'neill"),
        # Words of their own, and quotes.
        ("Het is 's morgens koud in 's-Hertogenbosch", "het is 's morgens koud in 's hertogenbosch"),
        ("Ik heb 'm en 't gezien, zo 'n dag", "ik heb 'm en 't gezien zo 'n dag"),
        ("the 'Model T' is old, 'vitamin C' is good", "the model t is old vitamin c is good"),
    ],
)
def test_elisions_are_joined_and_no_word_beside_them(text: str, words: str) -> None:
    assert apply_frontend(text, FrontendSettings(), f"{LATIN}é'").symbols == words


def test_apostrophes_that_are_letters_are_no_quotes() -> None:
    """The glottal stop of K'iche' begins and ends words."""
    text = "K'o jun 'ixoq ri' nim."
    with pytest.raises(UnsupportedText, match=r"'ixoq ri' in .* set frontend.apostrophes"):
        apply_frontend(text, FrontendSettings(), KICHE)
    for other in ("ri aqan 'ixoq ri' chqe", "le i'a 'ua ma' nei"):
        with pytest.raises(UnsupportedText, match=r"set frontend.apostrophes"):
            apply_frontend(other, FrontendSettings(), f"{LATIN}'")
    letters = FrontendSettings(apostrophes="letters")
    assert apply_frontend(text, letters, KICHE).symbols == "k'o jun 'ixoq ri' nim"
    assert apply_frontend("’ixoq, ri’!", letters, KICHE.replace("'", "ʼ")).symbols == "ʼixoq riʼ"


@pytest.mark.parametrize(
    ("text", "letters", "words"),
    [
        ("he said 'don't go', didn't he", f"{LATIN}'", "he said don't go didn't he"),
        ("O'Neill's 'fine day', o'er rock'n'roll", f"{LATIN}'", "o'neill's fine day o'er rock'n'roll"),
        ("c'est 'la vie' qu'il aime aujourd'hui", f"{LATIN}'", "c'est la vie qu'il aime aujourd'hui"),
        ("dell'arte 'e un'altra' ch'io", f"{LATIN}'", "dell'arte e un'altra ch'io"),
        ("k'o jun nim", KICHE, "k'o jun nim"),
        ("the Nasdaq 'crash', BBQ 'ribs'", f"{LATIN}'", "the nasdaq crash bbq ribs"),
        ("‘dogs’ and ‘yes’, the boys’ toys", f"{LATIN}'", "dogs and yes the boys' toys"),
        ("'The boys' toys,' he said", f"{LATIN}'", "the boys' toys he said"),
        ("'yes' of the boys' choir", f"{LATIN}'", "yes of the boys' choir"),
        ("‘L’acqua è fredda!’ 'D'accord', 'l hemm", f"{LATIN}è'", "l'acqua è fredda d'accord 'l hemm"),
        ("_‘Hello,’ he said_, '\"go\" he said'", f"{LATIN}'", "hello he said go he said"),
        ("'The boys' toys'", f"{LATIN}'", "the boys' toys"),
        ("'she said 'go' loudly'", f"{LATIN}'", "she said go loudly"),
        ("'Tis the dogs' bed, ''tis true'", f"{LATIN}'", "'tis the dogs' bed 'tis true"),
        ("my IQ is 'high', FAQ 'page'", f"{LATIN}'", "my iq is high faq page"),
        ("the QR 'code', she reads 'GQ' daily", f"{LATIN}'", "the qr code she reads gq daily"),
        ("Tariq said 'hello', 'ixoq ri' nim", f"{LATIN}'", "tariq said hello ixoq ri nim"),
        ("'quite fine', ma'am, ne'er 'in Iraq' o'er", f"{LATIN}'", "quite fine ma'am ne'er in iraq o'er"),
    ],
)
def test_quotes_beside_elisions_go(text: str, letters: str, words: str) -> None:
    assert apply_frontend(text, FrontendSettings(), letters).symbols == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("he said 'yes', ‘dogs’ and ‘cats’", "he said yes dogs and cats"),
        ("the answer is 'this'.", "the answer is this"),
        ("‘The boys’ toys,’ he said", "the boys' toys he said"),
        ("the Joneses’ house, rock 'n' roll, pull 'em", "the joneses' house rock 'n' roll pull 'em"),
        ("'90s kids' toys, 'Round the boys' camp", "nineties kids' toys 'round the boys' camp"),
        ("'I am 5' tall', a 6' board", "i am five tall a six board"),
    ],
)
def test_quotes_behind_words_that_end_in_s_go_in_english(text: str, words: str) -> None:
    assert apply_frontend(text, FrontendSettings(kind="english_transcript")).symbols == words


@pytest.mark.parametrize("kind", ["transcript", "english_transcript"])
@pytest.mark.parametrize(
    "code",
    [
        "SIL",
        "NSN",
        "SPN",
        "_NOISE_",
        "$NOISE",
        "!EXH",
        "&-um",
        "&=laughs",
        "hm@i",
        "hm@i.",
        "[: cat]",
        "[=! sings]",
        "[* m]",
        "[//]",
        "+...",
        "(0.5)",
        "(.5)",
    ],
)
def test_marks_of_transcribers_without_brackets_are_no_words(kind: FrontendKind, code: str) -> None:
    """Of Kaldi and HTK, and of CHAT (https://talkbank.org/0info/manuals/CHAT.html): "and um", "go slash slash on"."""
    with pytest.raises(UnsupportedText, match="transcriber's mark"):
        apply_frontend(f"so go {code}", FrontendSettings(kind=kind))


@pytest.mark.parametrize(
    "text", ["silk R&D", "ann@x.com", "A+ and B+", "a (b) c", "sil var", "SILK", "SIL International", "SIL 4"]
)
def test_words_that_look_like_marks_stay(text: str) -> None:
    assert apply_frontend(text, FrontendSettings(kind="transcript")).symbols

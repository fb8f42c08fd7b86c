"""The text frontend: turns a text into the symbols that a model reads, and into the words that a listener should hear.

convert applies it to the corpus, and a TTS model applies the same frontend to each text that it speaks.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Collection
from importlib.metadata import version

from voxline.text.alphabet import EmptyText, UnsupportedText, quote_text
from voxline.text.apostrophes import join_apostrophes, letters_or_quotes
from voxline.text.settings import FrontendKind, FrontendSettings
from voxline.text.transcripts import (
    broken_word,
    decode_entities,
    lost_letter,
    normalize_transcript,
    not_understood,
    redacted,
    replace_tags,
    transcription_code,
    twice_encoded,
    unknown_tag,
)

__all__ = ["EmptyText", "FrontendOutput", "UnsupportedText", "apply_frontend"]

REVISION = 36
"""Increase it when our own rules change the symbols of any text."""

LANGUAGES: dict[str, FrontendKind] = {
    "en": "english_transcript",
    "zh": "mandarin_transcript",
}
"""Language → the kind that normalizes its transcripts for ASR; other languages use "transcript"."""
_OF_TRANSCRIPTS: tuple[FrontendKind, ...] = ("transcript", *LANGUAGES.values())

_HANZI = r"[\u3007\u3400-\u9fff]"
_MANDARIN_MARKS = str.maketrans(dict.fromkeys("“”‘’\"'「」『』《》〈〉【】·~～", " ") | {"℃": "°C"})

_LIBRARIES: dict[FrontendKind, tuple[str, ...]] = {
    "transcript": (),
    "english_transcript": ("inflect",),
    "mandarin_transcript": (),
    "english": ("inflect",),
    "english_phonemes": ("inflect", "espeakng-loader"),
    "phonemes": ("espeakng-loader",),
    "mandarin": ("pypinyin",),
    "pinyin": ("pypinyin",),
}


@dataclasses.dataclass(frozen=True)
class FrontendOutput:
    """The frontend's output for a text.

    Attributes:
      symbols: the model input, Unicode NFC, one code point a symbol; of the kind "phonemes" NFD.
      normalized_text: the words to hear, lower case, without punctuation; for Mandarin, syllables with tone digits.
    """

    symbols: str
    normalized_text: str


def apply_frontend(text: str, settings: FrontendSettings, letters: str = "") -> FrontendOutput:
    """Applies the frontend to a text.

    Args:
      letters: of the model's alphabet, which "transcript" goes by (`normalize_transcript`); empty: not known.

    >>> apply_frontend("Well, THEN!", FrontendSettings())
    FrontendOutput(symbols='well then', normalized_text='well then')

    Raises:
      UnsupportedText: some characters have no sound in this kind of frontend.
      EmptyText: the text has no words.
    """
    text = _decode(text)

    # ASR: words alone.
    is_transcript = settings.kind in _OF_TRANSCRIPTS
    if is_transcript and (unheard := not_understood(text)):
        raise UnsupportedText(f"{unheard} in {quote_text(text)} stands for speech that nobody understood")
    if settings.kind != "as_is":
        _refuse_redacted(text, settings.tags if is_transcript else ())
    # What is named as a sound has its place.
    has_code = is_transcript and transcription_code(text)
    if has_code and (code := transcription_code(_replace_tags(text, settings, ""))):
        raise UnsupportedText(
            f"{code} in {quote_text(text)} is a transcriber's mark and no word; take it out, or put a sound in "
            "brackets, as in [noise]"
        )
    if is_transcript and (piece := lost_letter(text)):
        raise UnsupportedText(
            f"{piece} in {quote_text(text)} lacks letters that its encoding did not have; export it as UTF-8"
        )
    if settings.kind == "transcript":
        spoken = _replace_tags(text, settings, settings.tag_symbol)
        has_quotes = settings.apostrophes == "quotes"
        if has_quotes and (piece := letters_or_quotes(spoken, letters)):
            raise UnsupportedText(
                f"{piece} in {quote_text(text)} may be in quotes, or have apostrophes that are letters; for these, set "
                "frontend.apostrophes to letters"
            )
        words = normalize_transcript(
            spoken, letters + settings.tag_symbol if letters else "", settings.remove_marks, has_quotes=has_quotes
        )
        return FrontendOutput(words, words)
    if settings.kind in LANGUAGES.values():
        text = _replace_tags(text, settings, "")
        # English has words for its brackets: "less than".
        if tag := unknown_tag(text):
            raise UnsupportedText(f"{tag} in {quote_text(text)} is a tag; if it is a sound, name it in frontend.tags")
        words = normalize_spoken(text, settings.kind)
        return FrontendOutput(words, words)
    if settings.kind == "as_is":
        text = unicodedata.normalize("NFC", text)
        return FrontendOutput(text, text)

    # TTS: words with their marks.
    if settings.kind in ("mandarin", "pinyin"):
        return _mandarin(text, settings)
    if settings.kind == "phonemes":
        from voxline.text.phonemes import phonemize_language

        return FrontendOutput(phonemize_language(text, settings.language), normalize_transcript(text))
    from voxline.text.english import english_words, normalize_english
    from voxline.text.phonemes import phonemize

    words = normalize_english(text)
    return FrontendOutput(words if settings.kind == "english" else phonemize(words), english_words(words))


def _refuse_redacted(text: str, tags: Collection[str]) -> None:
    if piece := redacted(text, tags):
        raise UnsupportedText(f"{piece} in {quote_text(text)} is no word that was said, or stands for some")


def _replace_tags(text: str, settings: FrontendSettings, symbol: str) -> str:
    spoken = replace_tags(text, settings.tags, symbol)
    if piece := broken_word(spoken):
        raise UnsupportedText(f"{piece} in {quote_text(text)} has letters of a word in brackets; write what is said")
    return spoken


def _decode(text: str) -> str:
    if piece := twice_encoded(text):
        raise UnsupportedText(
            f"{piece!r} in {quote_text(text)} is of a text in UTF-8 that was read in another encoding; read it as UTF-8"
        )
    return decode_entities(text)


def part_symbols(text: str, settings: FrontendSettings) -> str:
    """The symbols of a part of a sentence, without the marks that `apply_frontend` adds or removes at the ends.

    >>> part_symbols(", well THEN", FrontendSettings(kind="english")), part_symbols(".", FrontendSettings())
    (', well then', '')

    Raises:
      UnsupportedText: some characters have no sound in this kind of frontend.
    """
    if settings.kind not in (*_OF_TRANSCRIPTS, "as_is"):
        _refuse_redacted(text, ())
    if settings.kind == "mandarin":
        from voxline.text.mandarin import hanzi_to_pinyin

        return hanzi_to_pinyin(text, settings.sandhi, settings.lexicon, whole=False)
    if settings.kind == "pinyin":
        from voxline.text.pinyin import normalize_pinyin

        return normalize_pinyin(text, whole=False)
    if settings.kind == "phonemes":
        from voxline.text.phonemes import part_phonemes

        return part_phonemes(text, settings.language)
    if settings.kind in ("english", "english_phonemes"):
        from voxline.text.english import normalize_english
        from voxline.text.phonemes import phonemize

        words = normalize_english(text, whole=False)
        return words if settings.kind == "english" else phonemize(words)
    try:
        return apply_frontend(text, settings).symbols
    except EmptyText:
        return ""


def phoneme_symbols(phonemes: str, alphabet: str, settings: FrontendSettings, *, is_possessive: bool = False) -> str:
    """The symbols of a pronunciation.

    Args:
      alphabet: "ipa" for english_phonemes, "pinyin" for mandarin and pinyin; "": that of the frontend.
      is_possessive: the English word has 's behind it, which is added.

    >>> phoneme_symbols("chóng", "pinyin", FrontendSettings(kind="mandarin"))
    'chong2'

    Raises:
      UnsupportedText: the frontend has no phonemes, or those of another alphabet; or a sound does not exist.
    """
    # Letters cannot be pronounced as phonemes: only these kinds have an alphabet of sounds.
    own = {"english_phonemes": "ipa", "phonemes": "ipa", "mandarin": "pinyin", "pinyin": "pinyin"}.get(settings.kind)
    if own is None:
        raise UnsupportedText(
            f"this voice reads letters, no phonemes (its text frontend is {settings.kind}); write <sub alias> with a "
            "spelling that sounds right, or train a voice with convert.frontend.kind english_phonemes"
        )
    if (alphabet or own) not in (own, f"x-{own}"):
        raise UnsupportedText(f"the alphabet {alphabet!r} is not this voice's; {own} is accepted")
    if settings.kind == "phonemes":
        return unicodedata.normalize("NFD", " ".join(phonemes.split()))
    if own == "ipa":
        from voxline.text.phonemes import add_possessive, normalize_ipa

        return add_possessive(normalize_ipa(phonemes)) if is_possessive else normalize_ipa(phonemes)
    from voxline.text.pinyin import normalize_pinyin, pinyin_syllables

    return pinyin_syllables(normalize_pinyin(phonemes))


def normalize_spoken(text: str, kind: FrontendKind) -> str:
    """A transcript as it is spoken, for ASR: docs/text-normalization.md has the convention.

    English: lower-case ASCII letters, apostrophes and single spaces. Mandarin: hanzi without spaces, and other letters
    in lower case as they are, a space on each side. A second application changes nothing.

    >>> normalize_spoken("Dr. Smith paid $3.50 at 7:30 on the 21st.", "english_transcript")
    'doctor smith paid three dollars and fifty cents at seven thirty on the twenty first'
    >>> normalize_spoken("我7:30花了12.5元, 买2个APP！", "mandarin_transcript")
    '我七点三十分花了十二点五元买两个 app'

    Raises:
      UnsupportedText: a number has more than one reading; English: some characters have no sound, or there are no
        words.
    """
    text = _decode(text)
    if kind == "english_transcript":
        from voxline.text.english import english_words, normalize_english

        return english_words(normalize_english(join_apostrophes(text)))
    for _ in range(4):  # a mark that is removed may join what was apart
        before = text
        text = _spell_out_mandarin(text)
        if text == before:
            break
    return text


def _spell_out_mandarin(text: str) -> str:
    from voxline.text.mandarin_numbers import expand_mandarin_numbers, fold_mandarin

    # Numbers have a part of their meaning from marks that elsewhere are none, such as the point of 5·12.
    expanded = expand_mandarin_numbers(fold_mandarin(text)).translate(_MANDARIN_MARKS)
    words = normalize_transcript(expanded).replace("'", " ")

    # A space between hanzi and letters, none between two hanzi.
    apart = re.sub(rf"(?<={_HANZI})(?=[a-z])|(?<=[a-z])(?={_HANZI})", " ", words)
    return " ".join(re.sub(rf"(?<={_HANZI}) (?={_HANZI})", "", apart).split())


def _mandarin(text: str, settings: FrontendSettings) -> FrontendOutput:
    from voxline.text.mandarin import hanzi_to_pinyin
    from voxline.text.pinyin import normalize_pinyin, pinyin_syllables

    symbols = (
        hanzi_to_pinyin(text, settings.sandhi, settings.lexicon)
        if settings.kind == "mandarin"
        else normalize_pinyin(text)
    )
    return FrontendOutput(symbols, pinyin_syllables(symbols))


def frontend_version(settings: FrontendSettings) -> dict[str, int | str]:
    """The versions that the frontend's output depends on; empty if the text stays as it is.

    >>> frontend_version(FrontendSettings(kind="as_is"))
    {}
    >>> sorted(frontend_version(FrontendSettings(kind="mandarin")))
    ['pypinyin', 'revision']
    """
    # A library's version changes what it pronounces, so it is a part of the key.
    libraries = _LIBRARIES.get(settings.kind)
    return {} if libraries is None else {"revision": REVISION, **{name: version(name) for name in libraries}}

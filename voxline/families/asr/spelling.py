"""How texts are spelled before errors are counted: as written, as the references are, and normalized."""

import contextlib
import unicodedata
from collections.abc import Callable, Sequence
from typing import Literal

from voxline.families.asr.settings import TextNormalization
from voxline.inference.model_info import ATTENTION, ModelInfo
from voxline.text.alphabet import Alphabet, EmptyText, UnsupportedText, is_mandarin
from voxline.text.frontend import LANGUAGES, normalize_spoken
from voxline.text.lazy_pattern import lazy_pattern
from voxline.text.transcripts import spell_joined_letters

_ASKED_FOR: dict[str, Literal["english", "mandarin"]] = {"en": "english", "zh": "mandarin"}
_IN_WORDS = "'-"
"""Marks that a transcript without punctuation has too."""
_APOSTROPHES = "'’ʼ"
_CONTRACTIONS = [
    (lazy_pattern(r"\bain't\b"), "aint"),
    (lazy_pattern(r"'s (been|got)\b"), r" has \1"),
    (lazy_pattern(r"'d been\b"), " had been"),
    (lazy_pattern(r"\bwon't\b"), "will not"),
    (lazy_pattern(r"\bcan't\b"), "can not"),
    (lazy_pattern(r"\bshan't\b"), "shall not"),
    (lazy_pattern(r"\blet's\b"), "let us"),
    (lazy_pattern(r"\by'all\b"), "you all"),
    (lazy_pattern(r"\bgonna\b"), "going to"),
    (lazy_pattern(r"\bwanna\b"), "want to"),
    (lazy_pattern(r"\bgotta\b"), "got to"),
    (lazy_pattern(r"\b(he|here|how|it|she|that|there|this|what|when|where|who|why)'s\b"), r"\1 is"),
    (lazy_pattern(r"n't\b"), " not"),
    (lazy_pattern(r"'re\b"), " are"),
    (lazy_pattern(r"'ll\b"), " will"),
    (lazy_pattern(r"'ve\b"), " have"),
    (lazy_pattern(r"'m\b"), " am"),
    (lazy_pattern(r"'d\b"), " would"),
]
"""Short forms and the words that they stand for, as in the English normalizer of Whisper (Radford et al. 2022, appendix
C), which has more. The 's of a noun stays: it may be a genitive, and a plural sounds the same."""


def speller(references: Sequence[str]) -> Callable[[str], str]:
    """Spells texts as the references are spelled: without capitals, or without the marks, that none of them has.

    A public model may write `Twenty-one, please.` where a corpus has `twenty one please`. That is no error of hearing.

    >>> spell = speller(["don't go", "twenty one"])
    >>> spell("Don't go, please!"), spell("Twenty-one")
    ("don't go please", 'twenty one')
    >>> speller(["Go, please!"])("Don't go."), spell("‘Don’t!’")
    ('Dont go', "don't")
    """
    characters = set("".join(references))
    has_small = any(character != character.upper() for character in characters)
    has_capitals = any(character != character.lower() for character in characters)

    def spell(text: str) -> str:
        if has_small != has_capitals:
            text = text.lower() if has_small else text.upper()
        if "'" in characters:
            text = _plain_apostrophes(text, characters)

        # Letters and digits stay, even those that no reference has: they were heard.
        spelled = [
            character
            if character.isalnum() or character in characters or unicodedata.category(character).startswith("M")
            else " " * (unicodedata.category(character) == "Pd" or character.isspace())
            for character in text
        ]
        return " ".join("".join(spelled).split())

    return spell


def normalizer(info: ModelInfo, alphabet: Alphabet, setting: TextNormalization = "auto") -> Callable[[str], str] | None:
    """Normalizes the texts of a model and their references alike; None of a model that writes words alone.

    Where a language is set, it normalizes the texts of any model.

    It depends on the model, never on the texts, so that all that is measured beside a model is normalized as it is.

    Args:
      info: `model.json` of the new model.
      alphabet: its symbols.
      setting: `evaluate.normalization`.
    """
    # A decoder writes whatever its tokens spell: capitals, marks and digits, until it was tuned not to.
    attends = info.kind == ATTENTION
    characters = set() if attends else set("".join(alphabet.symbols))
    if setting == "auto" and not attends and not _writes_more_than_words(characters):
        return None
    language = setting if setting != "auto" else _language_of(info, characters)
    return {"english": normalize_english_words, "mandarin": normalize_mandarin, "unicode": normalize_unicode}[language]


def normalize_english_words(text: str) -> str:
    """As `english_transcript` spells it, in small letters, with numbers and abbreviations spelled out; and in full.

    >>> (
    ...     normalize_english_words("Press 21, Mr. O’Neill — please!"),
    ...     normalize_english_words("We’re sorry, it can't."),
    ...     normalize_english_words("♪ Hello! ♪"),
    ...     normalize_english_words("…"),
    ... )
    ("press twenty one mister o'neill please", 'we are sorry it can not', 'hello', '')
    """
    for spelled in (text, normalize_unicode(text)):  # what has no sound may be a sign, which the latter removes
        with contextlib.suppress(UnsupportedText):
            try:
                return _in_full(normalize_spoken(spelled, LANGUAGES["en"]))
            except EmptyText:
                return ""
    return _in_full(normalize_unicode(text))


def _in_full(text: str) -> str:
    """Writes contractions as the words that they stand for."""
    for pattern, words in _CONTRACTIONS:
        text = pattern.sub(words, text)
    return text


def normalize_mandarin(text: str) -> str:
    """As `mandarin_transcript` spells it: hanzi without marks, with numbers spelled out.

    >>> normalize_mandarin("我7:30花了12.5元, 买2个APP！")
    '我七点三十分花了十二点五元买两个 app'
    """
    with contextlib.suppress(UnsupportedText):
        return normalize_spoken(text, LANGUAGES["zh"])
    return normalize_unicode(text)


def normalize_unicode(text: str) -> str:
    """Small letters without punctuation and signs (categories P and S) but apostrophes in words; digits stay.

    >>> normalize_unicode("« L’été, 21 h : ÇA VA ? »"), normalize_unicode("Straßen-Bahn…"), normalize_unicode("हाँ।")
    ("l'été 21 h ça va", 'straßen bahn', 'हाँ')
    >>> normalize_unicode("co\u00adoperate")
    'cooperate'
    """
    text = spell_joined_letters(unicodedata.normalize("NFC", text.lower()))
    characters = [
        "'"
        if character in _APOSTROPHES and _is_letter(text, index - 1) and _is_letter(text, index + 1)
        else ""
        if unicodedata.category(character) == "Cf"  # soft hyphens and joiners, within words
        else " "
        if unicodedata.category(character)[0] in "PSZC"
        else character
        for index, character in enumerate(text)
    ]
    return " ".join("".join(characters).split())


def _plain_apostrophes(text: str, kept: set[str]) -> str:
    """Writes apostrophes within words as "'", but those that are kept."""
    return "".join(
        "'"
        if character in _APOSTROPHES
        and character not in kept
        and _is_letter(text, index - 1)
        and _is_letter(text, index + 1)
        else character
        for index, character in enumerate(text)
    )


def _is_letter(text: str, index: int) -> bool:
    return 0 <= index < len(text) and text[index].isalpha()


def _writes_more_than_words(characters: set[str]) -> bool:
    """Whether these have capitals beside small letters, or punctuation."""
    has_small = any(character != character.upper() for character in characters)
    has_capitals = any(character != character.lower() for character in characters)
    has_marks = any(
        unicodedata.category(character).startswith("P") and character not in _IN_WORDS + _APOSTROPHES
        for character in characters
    )
    return (has_small and has_capitals) or has_marks


def _language_of(info: ModelInfo, characters: set[str]) -> Literal["english", "mandarin", "unicode"]:
    """The language that a decoder is asked for; of any other model, the one that its letters suggest."""
    if info.kind == ATTENTION:
        prompt = info.model_settings.get("prompt", {})
        # A model that needs no prompt knows English alone, and translations are into English.
        if not prompt.get("language") or prompt.get("task") == "translate":
            return "english"
        return _ASKED_FOR.get(prompt["language"], "unicode")
    if is_mandarin(characters):
        return "mandarin"
    return "english" if all(character.isascii() for character in characters if character.isalpha()) else "unicode"

"""The spelling of a corpus' transcripts: their frontend and alphabet, and the language model that fits their words.

`voxline config init` writes it. An alphabet is made of the characters that the transcripts have after the frontend,
without rare and odd ones: a letter that is said twice is not learned, and a misplaced sign is an error in its line.
They are left out as long as this rejects few utterances, and named in either case.
"""

import dataclasses
import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

from voxline.components.convert.settings import ConvertSettings
from voxline.text.alphabet import Alphabet, is_ideograph, name_characters, quote_text, split_words
from voxline.text.frontend import LANGUAGES, apply_frontend
from voxline.text.settings import FrontendKind, FrontendSettings

LOST_SHARE = 0.02
"""Share of utterances that may be lost by what is left out of an alphabet; convert accepts 5% of rejects in all."""
RARE = 5
"""Utterances that a Latin letter with a mark is in, below which it is one of a foreign word."""
ENOUGH = 200
"""Utterances from which on such a letter can be rare."""
FOREIGN_SHARE = 0.05
"""Share of the letters that belong to a script, below which it is another one than that of the language."""
MANY_UNSEEN = 0.3
"""Share of the words of dev and test that train lacks, above which a language model allows other words too. With less,
it helps more that all others are ruled out: 94 minutes of Czech dialogue had 55.4% of words wrong, and 72.0% with other
words allowed (86.5% without a language model)."""
MOST_LISTED = 6
"""Characters that findings name one by one."""

_ENGLISH = "the and you that for with this have are not what your from they will of to it at he we my"
_OTHERS = (
    "het een van niet ik dat zijn voor met "  # Dutch
    "der und das nicht ist ich ein mit zu "  # German
    "il che non per sono della una di "  # Italian
    "el los que por para una con las "  # Spanish
    "le les des est pas pour dans et je "  # French
    "os que nao uma com para em do da "  # Portuguese
    "yang dan itu dengan untuk tidak ini "  # Indonesian, Malay
    "na ya wa kwa ni za katika "  # Swahili
    "nie jest w z na "  # Polish
    "ve bir bu icin de "  # Turkish
    "och att det som en "  # Swedish
)
"""Frequent words of English, and of languages that are written with the same letters, or often with them alone."""
_ONE_LETTER = ("şș", "ţț", "يی", "كک", "ىی", "هہ", "əәǝ", "đðɖ", "ăǎ", "ʻʼ'")
"""Letters that look alike, each group of one letter in most languages: a text has one of them, and not both."""
_SPOKEN_SIGNS = re.compile(r"[$£€%&+=@#]")


@dataclasses.dataclass(frozen=True)
class Spelling:
    """How transcripts are written for a model.

    Attributes:
      settings: values of the section convert that differ from the defaults.
      texts: the transcripts after the frontend; empty where convert will reject one.
      findings: lines that name the alphabet, and the characters that are rare or odd.
    """

    settings: dict[str, Any]
    texts: list[str]
    findings: list[str]

    @property
    def lost(self) -> int:
        """Utterances that convert will reject."""
        return sum(not text for text in self.texts)


def choose_spelling(texts: Sequence[str], language: str = "") -> Spelling:
    """Chooses the frontend of transcripts, and the alphabet of what it writes.

    Args:
      texts: as the corpus has them.
      language: such as de; empty: English or Mandarin where the letters and words are theirs.
    """
    kind = _frontend(texts, language)
    written = [_apply(text, kind) for text in texts]
    findings = []
    if kind == "english_transcript":
        findings.append("numbers    spelled out in English (convert.frontend.kind: english_transcript)")

    # Utterances by character: a line of one letter a hundred times says no more of it than one.
    utterances = Counter(character for text in written for character in set(text))
    reasons = _classify(utterances, written)
    left_out = _leave_out(reasons, utterances, written)

    letters = {character for character in utterances if character not in left_out}
    settings: dict[str, Any] = {} if kind == "transcript" else {"frontend": {"kind": kind}}
    english = set(Alphabet.from_name(ConvertSettings().alphabet).characters)
    alphabet = "".join(sorted(english if letters <= english else letters | {" "}))
    if not letters <= english:
        settings["alphabet"] = alphabet
        shown = alphabet if len(alphabet) <= 60 else f"{alphabet[:60]}…"
        findings.append(f"alphabet   {len(alphabet):,} characters: {shown}")

    # As convert will write them: the alphabet decides which marks are letters, and what is the small letter of an I.
    characters = set(alphabet)
    spelled = [_apply(text, kind, alphabet) for text in texts]
    spelled = [text if characters.issuperset(text) else "" for text in spelled]
    findings += _name_reasons(reasons, left_out, utterances, texts, written)
    findings += _name_look_alikes(utterances)
    unread = [text for text, result in zip(texts, written, strict=True) if not result]
    if unread:
        example = quote_text(unread[0])
        findings.append(f"warning    {len(unread):,} transcripts that cannot be read out, such as {example}")
    if lost := sum(not text for text in spelled):
        findings.append(f"warning    {lost:,} of {len(texts):,} utterances become rejects by their transcripts")
    return Spelling(settings, spelled, findings)


def _frontend(texts: Sequence[str], language: str) -> FrontendKind:
    if language:
        return LANGUAGES.get(language, "transcript")

    scripts = Counter(_script(character) for text in texts for character in text if character.isalpha())
    if scripts["CJK"] > sum(scripts.values()) / 2 and not scripts["HIRAGANA"] and not scripts["KATAKANA"]:
        return LANGUAGES["zh"]

    # Numbers are spelled out in English only where the words are English: Dutch has the same letters.
    joined = "\n".join(texts)
    spoken = any(character.isdigit() for character in joined) or _SPOKEN_SIGNS.search(joined)
    if not spoken or any(not character.isascii() for character in joined if character.isalpha()):
        return "transcript"
    words = re.findall(r"[a-z]+", joined.lower())
    english, others = (sum(word in frequent.split() for word in words) for frequent in (_ENGLISH, _OTHERS))
    return LANGUAGES["en"] if others <= english else "transcript"


def _apply(text: str, kind: FrontendKind, letters: str = "") -> str:
    try:
        return apply_frontend(text, FrontendSettings(kind=kind), letters).symbols
    except ValueError:  # without words, or with characters that have no sound
        return ""


@functools.cache
def _script(character: str) -> str:
    """The first word of a letter's name in Unicode, such as LATIN or CJK."""
    return unicodedata.name(character, "").partition(" ")[0]


def _classify(utterances: Counter[str], texts: Sequence[str]) -> dict[str, str]:
    """The characters that are rare or odd, each with the reason in words."""
    scripts = Counter(_script(character) for text in texts for character in text if character.isalpha())
    foreign = {script for script, count in scripts.items() if count < FOREIGN_SHARE * scripts.total()}

    reasons: dict[str, str] = {}
    for character, count in utterances.items():
        category = unicodedata.category(character)
        if character in " '":
            continue
        if character.isdigit():
            reasons[character] = "a digit"
        elif category[0] not in "LMN":
            reasons[character] = "no letter"
        elif _script(character) in foreign and not is_ideograph(character):
            reasons[character] = f"a letter of another script ({_script(character).lower()})"
        elif count < RARE and len(texts) >= ENOUGH and _script(character) == "LATIN" and not character.isascii():
            reasons[character] = "rare"
    return reasons


def _leave_out(reasons: dict[str, str], utterances: Counter[str], texts: Sequence[str]) -> set[str]:
    """The rare and odd characters that can be left out: those of fewest utterances, until too many are lost."""
    left_out: set[str] = set()
    lost: set[int] = set()
    for character in sorted(reasons, key=lambda character: (utterances[character], character)):
        having = {index for index, text in enumerate(texts) if character in text}
        # A control character is never kept: a config cannot hold it.
        if len(lost | having) <= LOST_SHARE * len(texts) or unicodedata.category(character) == "Cc":
            left_out.add(character)
            lost |= having
    return left_out


def _name_reasons(
    reasons: dict[str, str], left_out: set[str], utterances: Counter[str], texts: Sequence[str], written: Sequence[str]
) -> list[str]:
    """A warning for each rare or odd character, with an example; those of most utterances first."""
    lines = []
    ordered = sorted(reasons, key=lambda character: (-utterances[character], character))
    for character in ordered[:MOST_LISTED]:
        example = next(text for text, result in zip(texts, written, strict=True) if character in result)
        count = f"{utterances[character]:,} utterance{'s' * (utterances[character] > 1)}"
        outcome = "left out of the alphabet" if character in left_out else "kept, or too many would be lost"
        lines.append(
            f"warning    {name_characters(character)}, {reasons[character]}, in {count}, such as "
            f"{quote_text(example)}: {outcome}"
        )
    if more := "".join(ordered[MOST_LISTED:]):
        lines.append(f"warning    {len(more):,} more rare or odd characters: {more[:60]}")
    return lines


def _name_look_alikes(utterances: Counter[str]) -> list[str]:
    """A warning for each letter that is spelled in two ways, which a model would learn as two."""
    lines = []
    for letters in _ONE_LETTER:
        used = [f"{name_characters(letter)} in {utterances[letter]:,}" for letter in letters if utterances[letter]]
        if len(used) > 1:
            lines.append(
                f"warning    {' and '.join(used)} utterances look alike, and are mostly one letter in two spellings: "
                "write one of them"
            )
    return lines


def choose_language_model(texts: Sequence[str], splits: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Chooses the section `language`, and says why in a line.

    Args:
      texts: as the frontend writes them; empty ones are not counted.
      splits: of each text; words of dev and test show how many train lacks.

    >>> choose_language_model(["the cat", "the dog", "the cat"], ["train", "train", "dev"])[0]
    {'kind': 'ngram'}
    """
    vocabulary: set[str] = set()
    held_out: list[str] = []
    for text, split in zip(texts, splits, strict=True):
        if split == "train":
            vocabulary.update(split_words(text))
        else:
            held_out += split_words(text)
    unseen = sum(word not in vocabulary for word in held_out) / max(1, len(held_out))
    share = f"{unseen:.0%} of the words of dev and test are not among them"
    model = f"language   n-grams of {len(vocabulary):,} words; {share}"
    if unseen > MANY_UNSEEN:
        return {"kind": "ngram", "open_vocabulary": True}, f"{model}, so others are allowed (language.open_vocabulary)"
    return {"kind": "ngram"}, f"{model}, and only these can be recognized (language.open_vocabulary allows others)"

"""The settings of the text frontend, which a model carries in model.json."""

import re
from typing import Literal

import pydantic

from voxline.settings import Settings
from voxline.text.alphabet import UnsupportedText
from voxline.text.pinyin import normalize_pinyin, pinyin_syllables
from voxline.text.transcripts import EVERY_TAG, NOISES, Marks

FrontendKind = Literal[
    "transcript",
    "english_transcript",
    "mandarin_transcript",
    "as_is",
    "english",
    "english_phonemes",
    "phonemes",
    "mandarin",
    "pinyin",
]


class FrontendSettings(Settings):
    """How text becomes symbols."""

    kind: FrontendKind = pydantic.Field(
        "transcript",
        description="for ASR: transcript (lower case, no punctuation), english_transcript or mandarin_transcript "
        "(numbers, times, money and abbreviations spelled out too); for TTS: english (spelled out, with punctuation), "
        "english_phonemes (IPA), phonemes (IPA of any language of espeak-ng, which reads the text as it is written), "
        "mandarin (hanzi to pinyin), pinyin; or as_is",
    )
    language: str = pydantic.Field(
        "en-us", pattern=r"^[a-z]{2,3}(-[a-z0-9-]{1,30})?$", description="phonemes: of espeak-ng, such as it or pt-br"
    )
    tags: list[str] = pydantic.Field(
        list(NOISES),
        description="for ASR: what in brackets, such as [noise], <laughter> or (cough), is a sound and no word; it is "
        "removed. By this default (click) and such within a sentence are words. Other brackets lose their marks, "
        "unless [*] or (*) is listed: every string in such brackets. A tag of speech that nobody understood stays "
        "for its reject",
    )
    tag_symbol: str = pydantic.Field(
        "", max_length=1, description="transcript: a symbol of the alphabet that stands for each of `tags`; empty: none"
    )
    remove_marks: list[Marks] = pydantic.Field(
        [],
        description="transcript: signs to remove: vowel_signs (of Arabic and Hebrew), stress_marks (acute and grave, "
        "as in Russian textbooks), unless the alphabet has them",
    )
    apostrophes: Literal["quotes", "letters"] = pydantic.Field(
        "quotes",
        description="transcript: what a pair of apostrophes around words is: quotes, which are removed, or letters, as "
        "in K'iche' and Hawaiian; where a text has signs of both, the former is a reject",
    )
    sandhi: bool = pydantic.Field(
        True, description="mandarin: apply tone sandhi (ni2 hao3), instead of the dictionary tones (ni3 hao3)"
    )

    lexicon: dict[str, str] = pydantic.Field(
        {},
        description="mandarin: words and names with their pinyin, such as {Wechat: wei1 xin4, 仇英: qiu2 ying1}; "
        "capitals such as APP are read as letters without it",
    )

    @pydantic.field_validator("tags")
    @classmethod
    def _check_tags(cls, tags: list[str]) -> list[str]:
        for tag in tags:
            if tag not in EVERY_TAG and re.search(r"[\[\](){}<>（）【】]", tag):
                raise ValueError(
                    f"{tag!r} has brackets; give the name alone, such as noise, or one of {', '.join(EVERY_TAG)} "
                    "for every string in such brackets"
                )
        # As the names of a text are read.
        return [tag if tag in EVERY_TAG else re.sub(r"[\s_-]+", " ", tag.lower()).strip() for tag in tags]

    @pydantic.field_validator("tag_symbol")
    @classmethod
    def _check_symbol(cls, symbol: str) -> str:
        if symbol.isalpha():
            raise ValueError(f"{symbol!r} is a letter, which words have too; give a sign of the alphabet, such as *")
        return symbol

    @pydantic.field_validator("lexicon")
    @classmethod
    def _check_pinyin(cls, lexicon: dict[str, str]) -> dict[str, str]:
        # As convert would read it: an entry with a misspelt syllable fails when the config is read.
        checked = {}
        for word, pinyin in lexicon.items():
            if not word or not word.isalpha():
                raise ValueError(f"the word {word!r} has characters other than letters or hanzi")
            try:
                checked[word] = pinyin_syllables(normalize_pinyin(pinyin))
            except UnsupportedText as error:
                raise ValueError(f"{word}: {error}") from None
        return checked


class LanguageTextSettings(Settings):
    """Text for a language model, and what happens to sentences of dev and test in it."""

    text: list[str] = pydantic.Field(
        [],
        description="text files, by path or bucket URI, one sentence a line; a name that ends in .gz is unpacked",
    )
    frontend: FrontendSettings = pydantic.Field(
        default_factory=FrontendSettings, description="how a line of text becomes a transcript"
    )
    alphabet: str = pydantic.Field(
        "",
        description="an alphabet's name, or its characters, which decide what a letter of the text is; empty: any",
    )
    held_out: Literal["refuse", "drop", "keep"] = pydantic.Field(
        "refuse",
        description="what happens where `text` has sentences of dev or test that train lacks, which would make the "
        "error rate too good: refuse the text, drop these lines, or keep them",
    )
    held_out_words: int = pydantic.Field(
        4,
        ge=1,
        le=1_000,
        description="words of the shortest sentence that counts as one of dev or test; within a longer line, twice as "
        "many",
    )

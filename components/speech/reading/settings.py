"""How text becomes what a model reads; set once for a run, and remembered by the model."""

from typing import Literal

import pydantic

from components.speech.settings import Settings

Kind = Literal["transcript", "as_is", "english", "english_phonemes", "mandarin", "pinyin"]


class ReadingSettings(Settings):
    """How a text is read."""

    kind: Kind = pydantic.Field(
        "transcript",
        description="transcript (lower case, no punctuation: for recognition), as_is, english (numbers and "
        "abbreviations spelled out), english_phonemes (IPA), mandarin (hanzi become pinyin), pinyin (given as such)",
    )
    sandhi: bool = pydantic.Field(
        True, description="mandarin: tones as they are spoken (ni2 hao3), not as a dictionary has them (ni3 hao3)"
    )

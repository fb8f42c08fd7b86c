"""Sizes of the classifier of texts."""

from typing import Annotated, ClassVar

import pydantic

from voxline.settings import Settings

Units = Annotated[int, pydantic.Field(ge=1, le=4096)]


class IntentsModelSettings(Settings):
    """IndyLSTM layers over the words of a text, and capsules with dynamic routing."""

    embedding: int = pydantic.Field(128, ge=1, le=4096, description="values of a word's vector")
    units: tuple[Units, ...] = pydantic.Field(
        (100, 50, 30), min_length=1, max_length=8, description="units of each IndyLSTM layer"
    )
    dropout: float = pydantic.Field(0.2, ge=0, lt=1, description="of each layer's output")
    capsules: int = pydantic.Field(5, ge=1, le=256, description="capsules that the positions of a text vote for")
    capsule_size: int = pydantic.Field(30, ge=1, le=1024, description="values of a capsule")
    rounds: int = pydantic.Field(3, ge=1, le=20, description="rounds of routing")

    max_words: ClassVar[int] = 20_000
    """Most frequent words of train that it knows; each hanzi is one."""

    sentence_words: int = pydantic.Field(
        0,
        ge=0,
        le=1_000,
        description="words of a sentence, for long texts: an encoder reads each sentence, and a second one the "
        "sequence of sentences (0: a text is one sequence). Transcripts have no full stops, so sentences are of a "
        "length",
    )

"""Settings of language."""

from typing import Annotated, ClassVar, Literal, Self

import pydantic

from voxline.settings import Settings
from voxline.text.settings import FrontendSettings


class LanguageSettings(Settings):
    """The language model of a recognizer; off by default."""

    EXPOSED = ()
    TUNING: ClassVar[frozenset[str]] = frozenset(
        {"alpha", "beta", "alphas", "betas", "width", "open_vocabulary", "unknown_penalty", "tuning_utterances"}
    )
    """Keys that the n-grams do not depend on."""

    kind: Literal["none", "ngram"] = pydantic.Field(
        "none", description="none: greedy decoding; ngram: beam search with an n-gram model, and the words of its text"
    )
    text: list[str] = pydantic.Field(
        [],
        description="text files, by path or bucket URI, one sentence a line; a name that ends in .gz is unpacked",
    )
    transcripts: bool = pydantic.Field(True, description="the transcripts of train are text too")
    frontend: FrontendSettings = pydantic.Field(
        default_factory=FrontendSettings, description="how a line of text becomes a transcript"
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
    order: int = pydantic.Field(3, ge=1, le=6, description="words in the longest n-gram")
    prune: list[int] = pydantic.Field(
        [0], description="n-grams that occur at most this often are left out, by order from 1; the last one holds on"
    )
    vocabulary: int = pydantic.Field(
        200_000, ge=0, le=10_000_000, description="most frequent words kept; 0: all. Only these can be recognized"
    )
    open_vocabulary: bool = pydantic.Field(False, description="recognize words that the text lacks too")
    unknown_penalty: float = pydantic.Field(
        -5.0, ge=-1_000, le=1_000, description="added to the score of a word that the text lacks (natural logarithm)"
    )
    alpha: float | None = pydantic.Field(
        None, ge=0, le=20, description="weight of the language model; empty: the best on dev"
    )
    beta: float | None = pydantic.Field(
        None, ge=-20, le=20, description="added to the score for each word; empty: the best on dev"
    )
    alphas: list[Annotated[float, pydantic.Field(ge=0, le=20)]] = pydantic.Field(
        [0.25, 0.5, 0.75, 1.0, 1.5, 2.0], min_length=1, description="tried on dev"
    )
    betas: list[Annotated[float, pydantic.Field(ge=-20, le=20)]] = pydantic.Field(
        [0.0, 0.5, 1.0, 1.5, 2.5, 4.0], min_length=1, description="tried on dev"
    )
    tuning_utterances: int = pydantic.Field(
        500, ge=1, le=100_000, description="utterances of dev to try them on, evenly spaced"
    )
    width: int = pydantic.Field(64, ge=1, le=4_096, description="texts that the beam search keeps after each frame")

    @pydantic.field_validator("prune")
    @classmethod
    def _check_prune(cls, prune: list[int]) -> list[int]:
        if not prune or prune[0] != 0 or sorted(prune) != prune:
            raise ValueError("0 for single words, then numbers that do not descend, are accepted, such as [0, 0, 1]")
        return prune

    @pydantic.model_validator(mode="after")
    def _has_text(self) -> Self:
        if self.kind != "none" and not self.text and not self.transcripts:
            raise ValueError("a language model needs text: name files in `text`, or leave `transcripts` true")
        return self

    def ngram_settings(self) -> "LanguageSettings":
        """A copy in which only what the n-grams depend on differs from the defaults."""
        kept = {key: getattr(self, key) for key in type(self).model_fields if key not in self.TUNING and key != "text"}
        return LanguageSettings.model_construct(**{**LanguageSettings().__dict__, **kept})

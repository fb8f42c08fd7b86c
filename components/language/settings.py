"""Settings of language."""

from typing import Annotated, ClassVar, Literal, Self

import pydantic

from voxline.text.settings import LanguageTextSettings


class LanguageSettings(LanguageTextSettings):
    """The language model of a recognizer; off by default."""

    EXPOSED = ()
    TUNING: ClassVar[frozenset[str]] = frozenset(
        {"alpha", "beta", "alphas", "betas", "width", "open_vocabulary", "unknown_penalty", "tuning_utterances"}
    )
    """Keys that the n-grams do not depend on."""

    kind: Literal["none", "ngram"] = pydantic.Field(
        "none", description="none: greedy decoding; ngram: beam search with an n-gram model, and the words of its text"
    )
    transcripts: bool = pydantic.Field(True, description="the transcripts of train are text too")
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

    def text_settings(self) -> LanguageTextSettings:
        """What the text is, for the check before training; no text where there is no language model."""
        if self.kind == "none":
            return LanguageTextSettings()
        return LanguageTextSettings.of({name: self.plain()[name] for name in LanguageTextSettings.model_fields})

    def ngram_settings(self) -> "LanguageSettings":
        """A copy in which only what the n-grams depend on differs from the defaults."""
        kept = {key: getattr(self, key) for key in type(self).model_fields if key not in self.TUNING and key != "text"}
        return LanguageSettings.model_construct(**{**LanguageSettings().__dict__, **kept})

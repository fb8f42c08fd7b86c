"""Settings of language."""

from typing import Annotated, ClassVar, Literal, Self

import pydantic

from voxline.data.licences import checked_licence
from voxline.text.settings import LanguageTextSettings


class NgramSettings(LanguageTextSettings):
    """An n-gram model, and the text that it is made of."""

    NOT_IN_KEY = frozenset({"text", "arpa"})  # the hashes of the files are in the key

    arpa: str = pydantic.Field(
        "",
        description="an n-gram model that is there already, as SRILM and KenLM write it (ARPA, unpacked where its name "
        "ends in .gz), by path or bucket URI, in place of one of text and transcripts. Its words are spelled as "
        "the transcripts are, and whether it knows sentences of dev and test cannot be seen",
    )
    transcripts: bool = pydantic.Field(True, description="the transcripts of train are text too")
    order: int = pydantic.Field(3, ge=1, le=6, description="words in the longest n-gram")
    prune: list[int] = pydantic.Field(
        [0], description="n-grams that occur at most this often are left out, by order from 1; the last one holds on"
    )
    vocabulary: int = pydantic.Field(
        200_000, ge=0, le=10_000_000, description="most frequent words kept; 0: all. Only these can be recognized"
    )

    @pydantic.field_validator("prune")
    @classmethod
    def _check_prune(cls, prune: list[int]) -> list[int]:
        if not prune or prune[0] != 0 or sorted(prune) != prune:
            raise ValueError("0 for single words, then numbers that do not descend, are accepted, such as [0, 0, 1]")
        return prune


class LanguageSettings(NgramSettings):
    """The language model of a recognizer; off by default."""

    EXPOSED = ()

    kind: Literal["none", "ngram"] = pydantic.Field(
        "none", description="none: greedy decoding; ngram: beam search with an n-gram model, and the words of its text"
    )
    licences: list[str] = pydantic.Field(
        [],
        description="licence of each file of text in its order, or one of them all, or that of arpa, as "
        "corpus.licence; they travel to the model (push.licences), and the transcripts have corpus.licence; empty: not "
        "stated",
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

    tuning_utterances: ClassVar[int] = 500
    """Utterances of dev to try them on, evenly spaced."""

    width: int = pydantic.Field(64, ge=1, le=4_096, description="texts that the beam search keeps after each frame")

    @pydantic.field_validator("licences")
    @classmethod
    def _check_licences(cls, licences: list[str]) -> list[str]:
        return [checked_licence(licence) for licence in licences]

    @pydantic.model_validator(mode="after")
    def _has_text(self) -> Self:
        if self.kind != "none" and not self.arpa and not self.text and not self.transcripts:
            raise ValueError("a language model needs text: name files in `text`, or leave `transcripts` true")
        if self.arpa and self.text:
            raise ValueError("arpa names a model that is there, and text what one is made of: leave out one of them")
        # Were two licences of three files accepted, nobody would know what the third one has.
        files = 1 if self.arpa else len(self.text)
        if self.kind != "none" and len(self.licences) > 1 and len(self.licences) != files:
            raise ValueError(
                f"`licences` has {len(self.licences)}, and {files} files are named in `text` or `arpa`: give one for "
                "each file in its order, empty where you do not know it, or one of them all"
            )
        if self.kind != "none" and self.licences and not files:
            raise ValueError(
                "`licences` are those of `text` or `arpa`, and neither is named: leave them out; the transcripts have "
                "that of corpus.licence"
            )
        return self

    def text_settings(self) -> LanguageTextSettings:
        """The settings of the text, for the check before training; no text where there is no language model."""
        # An empty text has nothing that the check could refuse.
        if self.kind == "none":
            return LanguageTextSettings()
        return LanguageTextSettings.of({name: self.plain()[name] for name in LanguageTextSettings.model_fields})

    def ngram_settings(self) -> NgramSettings:
        """The settings that the n-grams depend on."""
        # Without validation, which these values have passed already.
        return NgramSettings.model_construct(**{name: getattr(self, name) for name in NgramSettings.model_fields})

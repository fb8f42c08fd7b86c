"""Settings of the training of intents: the network, and which field of the manifest it predicts."""

from typing import Annotated, ClassVar, Self

import pydantic

from voxline.components.train.settings import StartSettings, TrainSettings
from voxline.settings import Settings

Units = Annotated[int, pydantic.Field(ge=1, le=4096)]
FIELD = r"^[A-Za-z_][A-Za-z0-9_.-]{0,99}$"


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
    max_words: int = pydantic.Field(
        20_000, ge=1, le=1_000_000, description="most frequent words of train that it knows; each hanzi is one"
    )
    sentence_words: int = pydantic.Field(
        0,
        ge=0,
        le=1_000,
        description="words of a sentence, for long texts: an encoder reads each sentence, and a second one the "
        "sequence of sentences (0: a text is one sequence). Transcripts have no full stops, so sentences are of a "
        "length",
    )


class IntentsTrainSettings(TrainSettings):
    """How a classifier of texts by their intent is trained."""

    family: ClassVar[str] = "intents"
    EXPOSED = ("name", "field", "epochs", "batch_size", "learning_rate", "seed")

    name: str = pydantic.Field("intents", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the model's name")
    field: str = pydantic.Field(
        "intent", pattern=FIELD, description="manifest field with the intent; utterances without it are left out"
    )
    model: IntentsModelSettings = pydantic.Field(IntentsModelSettings(), description="the network")
    baseline: bool = pydantic.Field(
        True,
        description="train a second classifier beside it, with a mean in place of the capsules, for the report",
    )
    word_dropout: float = pydantic.Field(
        0.05,
        ge=0,
        lt=1,
        description="share of training words that are read as unknown ones, as words that are heard wrong are",
    )

    batch_size: int = pydantic.Field(32, ge=1, le=65_536, description="texts per step, over all devices")
    epochs: int = pydantic.Field(40, ge=1, le=10_000, description="passes over the training split, at most")
    evaluate_epochs: int = pydantic.Field(5, ge=1, description="epochs between validations on the dev split")
    weight_decay: float = pydantic.Field(1e-4, ge=0, le=1, description="decoupled weight decay of kernels (AdamW)")

    @pydantic.field_validator("start")
    @classmethod
    def _no_parent(cls, start: StartSettings) -> StartSettings:
        if start.model:
            raise ValueError(
                f"model is {start.model!r}; a classifier of intents starts from random weights, since its words and "
                "intents are those of its corpus: remove start"
            )
        return start

    @pydantic.model_validator(mode="after")
    def _field_is_no_key(self) -> Self:
        if self.field in ("id", "text", "split", "audio_filepath", "audio_hash", "duration", "offset", "speaker"):
            raise ValueError(f"field is {self.field!r}, which every utterance has for itself; name a further field")
        return self

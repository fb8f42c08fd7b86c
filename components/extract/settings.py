"""What a person can turn about the dataset: its features, its alphabet, its shards, and what runs the work."""

from typing import ClassVar

import pydantic

from voxline.audio.feature_settings import FeatureSettings
from voxline.beam.settings import RunnerSettings
from voxline.text.alphabet import Alphabet
from voxline.text.settings import FrontendSettings


class ExtractSettings(RunnerSettings):
    """Settings of the extract step."""

    EXPOSED = ("features.kind", "features.mels", "features.sample_rate", "alphabet", "frontend.kind", "runner")

    NAMES_NOTHING: ClassVar[frozenset[str]] = RunnerSettings.NAMES_NOTHING | {"shard_megabytes"}
    """How shards are cut changes nothing that is read."""

    features: FeatureSettings = pydantic.Field(FeatureSettings(), description="how samples become features")
    alphabet: str = pydantic.Field(
        "english", description="the symbols of the labels: a name (english), or the characters themselves"
    )
    frontend: FrontendSettings = pydantic.Field(
        default_factory=FrontendSettings,
        description="how convert read the transcripts; the dataset remembers it, and so does the model",
    )
    speeds: list[float] = pydantic.Field(
        [1.0], description="playing speeds of the training copies, 1.0 among them; dev and test stay as they are"
    )
    shard_megabytes: float = pydantic.Field(32.0, gt=0, le=2_048, description="MB that a shard holds at most")
    max_reject_share: float = pydantic.Field(
        0.02, ge=0, le=1, description="share of utterances that may be rejected before the step fails"
    )

    @pydantic.field_validator("alphabet")
    @classmethod
    def _can_spell(cls, name: str) -> str:
        try:
            Alphabet.named(name)
        except Exception as error:
            raise ValueError(str(error)) from None
        return name

    @pydantic.field_validator("speeds")
    @classmethod
    def _as_it_is_and_others(cls, speeds: list[float]) -> list[float]:
        if 1.0 not in speeds or len(set(speeds)) < len(speeds) or not all(0.5 <= speed <= 2 for speed in speeds):
            raise ValueError("numbers from 0.5 to 2, each once, 1.0 among them, are accepted")
        return sorted(speeds)

"""Settings of extract."""

from typing import ClassVar

import pydantic

from voxline.audio.feature_settings import FeatureSettings
from voxline.beam.settings import RunnerSettings
from voxline.text.alphabet import Alphabet
from voxline.text.settings import FrontendSettings


class ExtractSettings(RunnerSettings):
    """The dataset's features, alphabet and shards, and what runs the work."""

    EXPOSED = ("features.kind", "features.mels", "features.sample_rate", "alphabet", "frontend.kind", "runner")

    NOT_IN_KEY: ClassVar[frozenset[str]] = RunnerSettings.NOT_IN_KEY | {"shard_megabytes"}
    """How shards are cut changes nothing that training reads."""

    features: FeatureSettings = pydantic.Field(FeatureSettings(), description="how samples become features")
    alphabet: str = pydantic.Field(
        "english", description="the symbols of the labels: a name (english), or the characters themselves"
    )
    frontend: FrontendSettings = pydantic.Field(
        default_factory=FrontendSettings,
        description="the text frontend that convert used; stored in the dataset and in the model",
    )
    speeds: list[float] = pydantic.Field(
        [1.0], description="speeds of the copies of training utterances, including 1.0; dev and test are not copied"
    )
    shard_megabytes: float = pydantic.Field(32.0, gt=0, le=2_048, description="MB; the largest size of a shard")
    max_reject_share: float = pydantic.Field(
        0.02, ge=0, le=1, description="share (0 to 1) of utterances; the step fails when more are rejected"
    )

    @pydantic.field_validator("alphabet")
    @classmethod
    def _check_alphabet(cls, name: str) -> str:
        try:
            Alphabet.from_name(name)
        except Exception as error:
            raise ValueError(str(error)) from None
        return name

    @pydantic.field_validator("speeds")
    @classmethod
    def _check_speeds(cls, speeds: list[float]) -> list[float]:
        if 1.0 not in speeds or len(set(speeds)) < len(speeds) or not all(0.5 <= speed <= 2 for speed in speeds):
            raise ValueError("different numbers from 0.5 to 2, including 1.0, are accepted")
        return sorted(speeds)

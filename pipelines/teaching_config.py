"""What the config of every run has that trains: a model by name, how it learns, how it is judged, when it is pushed."""

from collections.abc import Mapping
from typing import ClassVar

import pydantic

from components.evaluate.settings import EvaluateSettings
from components.push.settings import PushSettings
from components.train.settings import TeachingSettings
from pipelines.run_config import Name, RunConfig


class TeachingConfig(RunConfig):
    """A run of a pipeline, from a corpus to a pushed model; each family of models has a class of its own."""

    same: ClassVar[Mapping[str, str]] = {
        **RunConfig.same,
        "train.name": "model",
        "evaluate.model_name": "model",
        "push.model_name": "model",
    }

    account: ClassVar[str] = "voxline-train"

    model: Name = pydantic.Field(..., description="name of the model in the registry")
    train: TeachingSettings = pydantic.Field(..., description="the model and its training")
    evaluate: EvaluateSettings = pydantic.Field(..., description="what is measured")
    push: PushSettings = pydantic.Field(..., description="the gate")

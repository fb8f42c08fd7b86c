"""The config of a run of `refresh`: a corpus that has changed becomes a version of its dataset."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import pydantic

from components.publish.settings import PublishSettings
from pipelines.run_config import NAME, RunConfig


class RefreshConfig(RunConfig):
    """A run of the `refresh` pipeline."""

    places: ClassVar[Mapping[str, str]] = {**RunConfig.places, "datasets": "datasets"}

    pipeline: Literal["refresh"] = pydantic.Field("refresh", description="the graph that this config is for")
    model: str = pydantic.Field(
        "",
        pattern=NAME.replace("^", "^(").replace("$", ")?$"),
        description="the one in service whose dataset this one is compared with; empty: nobody asks what has drifted",
    )
    datasets: str = pydantic.Field("", description="folder or gs:// of dataset versions; empty: <run-dir>/datasets")
    publish: PublishSettings = pydantic.Field(
        default_factory=PublishSettings, description="the dataset, as people and training name it"
    )

"""Settings of publish."""

import pydantic

from voxline.settings import Settings


class PublishSettings(Settings):
    """The name of the published dataset, and when its shards are compacted."""

    EXPOSED = ("name",)

    name: str = pydantic.Field(
        "corpus",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="the dataset's name; its versions are in <datasets>/<name>/<number>",
    )
    compact_below: float = pydantic.Field(
        0.5,
        ge=0,
        le=1,
        description="live share of a shard below which its live records are copied to a new shard (0: never)",
    )

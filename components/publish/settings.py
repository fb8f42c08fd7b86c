"""Settings of publish."""

import pydantic

from voxline.settings import Settings


class PublishSettings(Settings):
    """Under which name a dataset's versions stand, and when what is dead of its shards is left behind."""

    EXPOSED = ("name",)

    name: str = pydantic.Field(
        "corpus",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="the dataset's name; its versions lie in <datasets>/<name>/<number>",
    )
    compact_below: float = pydantic.Field(
        0.5,
        ge=0,
        le=1,
        description="share of a shard that must be alive, else what is alive of it is copied to a new one (0: never)",
    )

"""Settings of publish."""

import pydantic

from voxline.settings import Settings


class PublishSettings(Settings):
    """The name of the published dataset, what follows a publication, and when its shards are compacted."""

    EXPOSED = ()

    dataset: str = pydantic.Field(
        "corpus",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="the dataset's name; its versions are in <datasets>/<name>/<number>; empty: none is published",
    )
    then: str = pydantic.Field(
        "",
        description="pipeline that a publication starts, in the same run: asr, say, whose sections are in the same "
        "config; a run that publishes nothing new ends here, once that version was judged; empty: every run trains",
    )
    history: str = pydantic.Field(
        "", description="folder or bucket URI of the history of runs, which says which versions were judged"
    )
    training: str = pydantic.Field(
        "", description="digest of the settings of train and of the steps after it, where `then` is set; computed"
    )
    compact_below: float = pydantic.Field(
        0.5,
        ge=0,
        le=1,
        description="live share of a shard below which its live records are copied to a new shard (0: never)",
    )

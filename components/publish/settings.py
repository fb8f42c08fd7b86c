"""Settings of publish."""

import pydantic

from components.speech.settings import Settings


class PublishSettings(Settings):
    """Under which name a dataset's versions stand."""

    name: str = pydantic.Field(
        "corpus",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="the dataset's name; its versions lie in <datasets>/<name>/<number>",
    )

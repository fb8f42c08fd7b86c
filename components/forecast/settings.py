"""Settings of forecast."""

import pydantic

from voxline.settings import Settings


class ForecastSettings(Settings):
    """The forecast of whether a training is worth it, before it starts; off by default."""

    NOT_IN_KEY = frozenset({"history"})

    skip_below: float = pydantic.Field(
        0.0,
        ge=0,
        lt=1,
        description="probability of a promotion below which a run trains nothing, and ends as skipped; 0: each trains",
    )
    max_skipped: int = pydantic.Field(
        6, ge=1, le=1_000, description="runs in a row that may be skipped; the one after them trains"
    )
    history: str = pydantic.Field("", description="folder or bucket URI of the history; empty: that of the registry")

"""What runs a step's work on many recordings: settings that steps share.

Beam itself stands in `voxline.beam.run`, which takes seconds to import: where there is work for it, not before.
"""

from typing import ClassVar, Self

import pydantic

from voxline.settings import Settings

IN_PROCESS, MULTI_PROCESS = "FnApiRunner", "multi_process"

REFUSED_RUNNERS = {
    "DirectRunner": "it downloads another runner first",
    "DaskRunner": "it loses side outputs and the last batch in silence",
}


class RunnerSettings(Settings):
    """Settings of a step that Beam can run. None of them changes what is made, so none takes part in a work's name."""

    NAMES_NOTHING: ClassVar[frozenset[str]] = frozenset({"runner", "workers", "beam_options", "beam_from_megabytes"})

    runner: str = pydantic.Field(
        IN_PROCESS,
        description=f"what runs the Beam pipeline: {IN_PROCESS} (in this process), {MULTI_PROCESS} "
        "(worker processes on this machine, ten seconds to start), or any Beam runner by its name",
    )
    beam_from_megabytes: float = pydantic.Field(
        512.0,
        ge=0,
        description="MB of new output from which on Beam is started at all, which takes seconds; less is made at once, "
        "on this machine (0: always Beam)",
    )
    workers: int = pydantic.Field(2, ge=1, le=256, description=f"worker processes (runner: {MULTI_PROCESS})")
    beam_options: list[str] = pydantic.Field([], description="options for the Beam runner, as on a command line")

    @pydantic.field_validator("runner")
    @classmethod
    def _keeps_data(cls, runner: str) -> str:
        if runner in REFUSED_RUNNERS:
            raise ValueError(f"{REFUSED_RUNNERS[runner]}; use {IN_PROCESS} or {MULTI_PROCESS} on one machine")
        return runner

    def naming(self) -> Self:
        """The same settings with the defaults of what changes nothing that is made: of these a work's name is made."""
        defaults = type(self)()
        return self.model_copy(update={key: getattr(defaults, key) for key in self.NAMES_NOTHING})

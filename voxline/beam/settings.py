"""Settings that the steps share which Beam can run.

Beam takes seconds to import, so it is in `voxline.beam.run`, which is imported only if there is work for it.
"""

from typing import ClassVar

import pydantic

from voxline.settings import Settings

IN_PROCESS, MULTI_PROCESS = "FnApiRunner", "multi_process"

REFUSED_RUNNERS = {
    "DirectRunner": "it downloads another runner first",
    "DaskRunner": "it silently loses side outputs and the last batch",
}


class RunnerSettings(Settings):
    """Settings of a step that Beam can run. None of them changes the output, so none is part of the step's key."""

    NOT_IN_KEY: ClassVar[frozenset[str]] = frozenset({"runner", "workers", "beam_options", "beam_from_megabytes"})

    runner: str = pydantic.Field(
        IN_PROCESS,
        description=f"what runs the Beam pipeline: {IN_PROCESS} (in this process), {MULTI_PROCESS} "
        "(worker processes on this machine, ten seconds to start), or the name of any Beam runner",
    )
    beam_from_megabytes: float = pydantic.Field(
        512.0,
        ge=0,
        description="MB of new output from which Beam is started, which takes seconds; less is made on this machine "
        "without Beam (0: always Beam)",
    )
    workers: int = pydantic.Field(2, ge=1, le=256, description=f"worker processes (runner: {MULTI_PROCESS})")
    beam_options: list[str] = pydantic.Field([], description="options for the Beam runner, as on its command line")

    @pydantic.field_validator("runner")
    @classmethod
    def _check_runner(cls, runner: str) -> str:
        if runner in REFUSED_RUNNERS:
            raise ValueError(f"{REFUSED_RUNNERS[runner]}; use {IN_PROCESS} or {MULTI_PROCESS} on one machine")
        return runner

"""The baseline for drift: statistics of the data that the model in service was trained on.

The provenance of the version in service holds the fingerprint of its utterances. Statistics are cached in the store by
that fingerprint, so there is a baseline for every model that was trained from a store in which TFDV ran.
"""

import dataclasses
import json
from pathlib import Path

from voxline.components.validate.tfdv.examples import Examples
from voxline.errors import WorkError
from voxline.settings import Settings
from voxline.store.finished import find_finished
from voxline.store.step_cache import StepOutput, cached_step

STEP = "statistics"
STATISTICS = "statistics.pb"
REVISION = 1
"""Increase it when a feature changes, so that old statistics are no longer comparable."""


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The statistics from which drift is measured.

    Attributes:
      name: such as "asr, version 3"; empty if there is none.
      utterances: their fingerprint.
      statistics: their file.
      absent: why there is no baseline, as half a sentence.
    """

    name: str = ""
    utterances: str = ""
    statistics: Path | None = None
    absent: str = ""

    @classmethod
    def in_service(cls, registry: Path | str, model_name: str, store: Path | str) -> "Baseline":
        """Finds the baseline of the version in service.

        Raises:
          WorkError: the registry cannot be read.
        """
        if not str(registry) or not model_name:
            return cls(absent="no registry and model are configured")
        from voxline.registry.registry import PROVENANCE, Registry

        # The version in service, as it is when the step starts; it is part of the step's key.
        models = Registry(registry, model_name)
        version = models.in_service()
        if version is None:
            return cls(absent=f"no version of {model_name} is in service yet")
        name = f"{model_name}, version {version}"

        provenance = models.read_file(version, PROVENANCE)
        utterances = "" if provenance is None else _trained_on(provenance, f"{name}: {PROVENANCE}")
        if not utterances:
            return cls(absent=f"{name} does not say what it was trained on")

        # Statistics of another store, or from before TFDV ran there, cannot be made again: the data may be gone.
        statistics = find_statistics(store, utterances)
        if statistics is None:
            return cls(absent=f"{store} has no statistics of the utterances that {name} was trained on")
        return cls(name, utterances, statistics)


def compute_statistics(examples: Examples, utterances: str, store: Path | str) -> StepOutput:
    """Computes the statistics of these utterances, or finds them in the store; output `statistics`."""
    # Keyed by the utterances alone: the schema and the baseline may change, and the statistics do not.
    with cached_step(store, STEP, Settings(), {"utterances": utterances}, revision=REVISION) as work:
        if not work.reused:
            from voxline.components.validate.tfdv.engine import write_statistics

            work.outputs = {"statistics": STATISTICS}
            work.counts = {"utterances": len(examples)}
            write_statistics(examples, work.path("statistics"))
    return work


def find_statistics(store: Path | str, utterances: str) -> Path | None:
    """The statistics of the utterances with that fingerprint, on this machine; None if the store has none.

    Raises:
      WorkError: the bucket cannot be read.
    """
    folder = find_finished(store, STEP, Settings(), {"utterances": utterances}, revision=REVISION)
    if folder is None:
        return None
    file = folder / STATISTICS
    return file if file.is_file() else None


def _trained_on(provenance: bytes, where: str) -> str:
    """The fingerprint of the utterances that a version was trained on; empty if the provenance has none."""
    try:
        fingerprint = json.loads(provenance)["dataset"]["fingerprint"]
    except KeyError:
        return ""
    except (ValueError, TypeError) as error:
        raise WorkError(
            f"{where} is damaged ({error}); restore it from the version, or set validate.tfdv to off"
        ) from None
    return fingerprint if isinstance(fingerprint, str) else ""

"""The dataset that the model in service was trained on, as far as its statistics are kept.

The version in service says in its provenance which utterances its dataset was made of; statistics are work of
their own in the store, named by just these utterances. So one leads to the other, for every model that was trained
from a store in which validate had TFDV at hand.
"""

import dataclasses
import json
from pathlib import Path

from voxline.components.validate.tfdv.examples import Examples
from voxline.errors import WorkError
from voxline.settings import Settings
from voxline.store.step_cache import StepOutput, cached_step, find_finished


@dataclasses.dataclass(frozen=True)
class Baseline:
    """What drift is measured from.

    Attributes:
      name: "asr, version 3"; empty where there is none.
      utterances: the fingerprint of its utterances.
      statistics: the file.
      absent: why there is none, as half a sentence.
    """

    name: str = ""
    utterances: str = ""
    statistics: Path | None = None
    absent: str = ""

    @classmethod
    def in_service(cls, registry: Path | str, model_name: str, store: Path | str) -> "Baseline":
        """The baseline of the version in service.

        Raises:
          WorkError: the registry cannot be read.
        """
        if not str(registry) or not model_name:
            return cls(absent="validate was told of no registry and model")
        from voxline.registry.registry import PROVENANCE, Registry

        versions = Registry(registry, model_name)
        version = versions.in_service()
        if version is None:
            return cls(absent=f"no version of {model_name} is in service yet")
        name = f"{model_name}, version {version}"
        provenance = versions.read_file(version, PROVENANCE)
        utterances = "" if provenance is None else _trained_on(provenance, f"{name}: {PROVENANCE}")
        if not utterances:
            return cls(absent=f"{name} does not say what it was trained on")
        statistics = find_statistics(store, utterances)
        if statistics is None:
            return cls(absent=f"{store} keeps no statistics of the utterances that {name} was trained on")
        return cls(name, utterances, statistics)


def _trained_on(provenance: bytes, where: str) -> str:
    """The fingerprint of the utterances of a version's dataset; empty where it is not told."""
    try:
        told = json.loads(provenance)["dataset"]["fingerprint"]
    except KeyError:
        return ""
    except (ValueError, TypeError) as error:
        raise WorkError(
            f"{where} is damaged ({error}); put the version's own copy back, or set validate.tfdv to off"
        ) from None
    return told if isinstance(told, str) else ""


STEP = "statistics"
STATISTICS = "statistics.pb"
REVISION = 1
"""Raised when the features change in a way that makes old statistics no measure of new ones."""


def compute_statistics(examples: Examples, utterances: str, store: Path | str) -> StepOutput:
    """The statistics of these utterances, made if need be; output `statistics`."""
    with cached_step(store, STEP, Settings(), {"utterances": utterances}, revision=REVISION) as work:
        if not work.reused:
            from voxline.components.validate.tfdv.engine import write_statistics

            work.outputs = {"statistics": STATISTICS}
            work.counts = {"utterances": len(examples)}
            write_statistics(examples, work.path("statistics"))
    return work


def find_statistics(store: Path | str, utterances: str) -> Path | None:
    """The statistics of the utterances of that fingerprint, where the store has them; brought, where it is a bucket.

    Raises:
      WorkError: the bucket cannot be asked, or may not be read.
    """
    folder = find_finished(store, STEP, Settings(), {"utterances": utterances}, revision=REVISION)
    if folder is None:
        return None
    file = folder / STATISTICS
    return file if file.is_file() else None

"""The model that a new one is compared with."""

import dataclasses
from pathlib import Path
from typing import Any

from voxline.errors import WorkError
from voxline.inference.saved_model import model_digest
from voxline.metrics.evaluation import Evaluation
from voxline.registry.registry import EVALUATION, Registry


@dataclasses.dataclass(frozen=True)
class ModelVersion:
    """A version of a model in the registry."""

    name: str
    version: int
    digest: str
    folder: Path

    def plain(self) -> dict[str, Any]:
        """As it stands in metrics.json, and names the work."""
        return {"version": self.version, "digest": self.digest}

    def unusable(self, error: WorkError) -> WorkError:
        return unusable_version(self.name, self.version, error)


def find_champion(registry: Registry, judged: str) -> ModelVersion | None:
    """The model in service; where that is the judged model itself, the one that it was compared with in its day.

    So a second run of the same work meets the same comparison, and finds it done. A model is known by the files
    that lie there, which may have been damaged since they were published.
    """
    version = registry.in_service()
    if version is None:
        return None
    if registry.event(version).digest != judged:
        return find_in_service(registry)
    try:
        before = Evaluation.read(registry.path(version) / EVALUATION).metrics["champion"]
    except WorkError:
        return None
    if before is None or before["version"] not in registry.versions():
        return None
    if _digest_of(registry, before["version"]) != before["digest"]:
        return None
    return ModelVersion(registry.model, before["version"], before["digest"], registry.path(before["version"]))


def find_in_service(registry: Registry) -> ModelVersion | None:
    """The model in service, whatever it is."""
    version = registry.in_service()
    if version is None:
        return None
    return ModelVersion(registry.model, version, _digest_of(registry, version), registry.path(version))


def unusable_version(name: str, version: int, error: WorkError) -> WorkError:
    return WorkError(
        f"version {version} of {name}, which this evaluation needs, cannot be used: {error}; "
        "roll back to a version that can (voxline models rollback), or, if there is none, remove its folder"
    )


def _digest_of(registry: Registry, version: int) -> str:
    """Raises: WorkError: naming the version, and the way out."""
    try:
        return model_digest(registry.path(version))
    except WorkError as error:
        raise unusable_version(registry.model, version, error) from None

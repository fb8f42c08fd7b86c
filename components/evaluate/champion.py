"""Versions in the registry that an evaluation depends on: the champion, and others such as a round-trip recognizer."""

import dataclasses
from pathlib import Path
from typing import Any

from voxline.errors import WorkError
from voxline.metrics.evaluation import Evaluation
from voxline.registry.registry import EVALUATION, Registry


@dataclasses.dataclass(frozen=True)
class ModelVersion:
    """A version of a model in the registry."""

    name: str
    version: int
    digest: str
    folder: Path

    def to_dict(self) -> dict[str, Any]:
        """For metrics.json and the step's key."""
        return {"name": self.name, "version": self.version, "digest": self.digest}

    def unusable(self, error: WorkError) -> WorkError:
        return _unusable(self.name, self.version, error)


def find_champion(registry: Registry, digest: str) -> ModelVersion | None:
    """The model in service. If that is the model to evaluate, the one that it was compared with when it was pushed.

    So repeating an evaluation after its push finds the same comparison, and reuses it.

    Args:
      digest: of the model to evaluate.
    """
    version = registry.in_service()
    if version is None:
        return None
    if registry.event(version).digest != digest:
        return find_in_service(registry)
    try:
        before = Evaluation.read(registry.path(version) / EVALUATION).metrics["champion"]
    except WorkError:
        return None
    if before is None or before["version"] not in registry.versions():
        return None
    if _read_digest(registry, before["version"]) != before["digest"]:
        return None
    return ModelVersion(registry.model, before["version"], before["digest"], registry.path(before["version"]))


def find_in_service(registry: Registry) -> ModelVersion | None:
    """The version in service, if any."""
    version = registry.in_service()
    if version is None:
        return None
    return ModelVersion(registry.model, version, _read_digest(registry, version), registry.path(version))


def _unusable(name: str, version: int, error: WorkError) -> WorkError:
    return WorkError(
        f"version {version} of {name}, which this evaluation needs, cannot be used: {error}; "
        "roll back to an intact version, or remove its folder if there is none"
    )


def _read_digest(registry: Registry, version: int) -> str:
    """Raises: WorkError: the version is damaged."""
    try:
        registry.intact_path(version)
        return registry.event(version).digest
    except WorkError as error:
        raise _unusable(registry.model, version, error) from None

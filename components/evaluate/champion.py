"""Versions in the registry that an evaluation depends on: the champion, the anchor, and others such as a round-trip
recognizer."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from voxline.errors import SettingsError, WorkError
from voxline.inference.saved_model import read_model_info, require_family
from voxline.metrics.evaluation import Evaluation, RegisteredModel, Values
from voxline.registry.anchor import current_anchor
from voxline.registry.erasures import erased_in, reference_after_erasure
from voxline.registry.registry import EVALUATION, Registry
from voxline.store.versioned_json import to_json_values


@dataclasses.dataclass(frozen=True)
class ModelVersion:
    """A version of a model in the registry."""

    name: str
    version: int
    digest: str
    folder: Path

    @property
    def label(self) -> str:
        """Names it in messages: `version 3 of digits`."""
        return f"version {self.version} of {self.name}"

    @property
    def info(self) -> RegisteredModel:
        """Describes it in metrics.json."""
        return RegisteredModel(name=self.name, version=self.version, digest=self.digest)

    def to_dict(self) -> dict[str, Any]:
        """Describes it in the step's key."""
        return to_json_values(self.info)

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

    # The model itself is in service: a comparison with itself would say nothing.
    return _compared_before(registry, version, "champion")


def _compared_before(registry: Registry, version: int, role: Literal["champion", "anchor"]) -> ModelVersion | None:
    """The champion or the anchor of a version's own evaluation, if it is still as it was."""
    try:
        info = Evaluation.read(registry.path(version) / EVALUATION).info
    except WorkError:
        return None

    # It may have been removed since, or its files may have changed.
    before = info.champion if role == "champion" else info.anchor
    if before is None or before.version not in registry.existing():
        return None
    if _read_digest(registry, before.version) != before.digest:
        return None
    return ModelVersion(registry.model, before.version, before.digest, registry.path(before.version))


def find_anchor(registry: Registry, digest: str, anchor: str) -> ModelVersion | None:
    """The version to compare with beside the champion; None if nothing is in service, or none is wanted.

    If the model to evaluate is in service, it is the one that it was compared with when it was pushed, as in
    `find_champion`.

    Args:
      digest: of the model to evaluate.
      anchor: `evaluate.anchor`.

    Raises:
      SettingsError: the version that the setting names does not exist.
      WorkError: the anchor is damaged.
    """
    # An anchor stops margins from adding up over many pushes; before the first push there is none.
    in_service = registry.in_service()
    if in_service is None or anchor == "none":
        return None
    if registry.event(in_service).digest == digest:
        return _compared_before(registry, in_service, "anchor")
    version = _best_or_clean(registry, in_service) if anchor == "best" else int(anchor)
    if version is None:
        return None
    if version not in registry.existing():
        existing = ", ".join(map(str, registry.versions()))
        raise SettingsError(f"evaluate: 'anchor' is {anchor!r}; {registry.uri} has the versions {existing}")
    return ModelVersion(registry.model, version, _read_digest(registry, version), registry.path(version))


def _best_or_clean(registry: Registry, in_service: int) -> int | None:
    """The anchor; after an erasure the version that a model without the speaker is judged by."""
    return reference_after_erasure(registry) if erased_in(registry, in_service) else current_anchor(registry)


def stored_results(
    anchor: ModelVersion, test: str, auxiliary: Mapping[str, RegisteredModel | None], revision: int
) -> dict[str, Values] | None:
    """Reads the metrics of each utterance from a version's own evaluation; None if that measured anything otherwise.

    Args:
      test: the fingerprint of the utterances.
      auxiliary: the further models that take part, as in `metrics.json`.
      revision: of evaluate.
    """
    # A person can edit the registry's files: an evaluation that contradicts itself is measured again.
    try:
        before = Evaluation.read(anchor.folder / EVALUATION)
        before.check_figures()
    except WorkError:
        return None

    # Another recognizer that listens would count other errors on the same utterances, as another normalization would.
    if before.test_fingerprint != test or before.info.auxiliary_models != auxiliary or before.info.revision != revision:
        return None
    return {result.id: result.metrics for result in before.results}


def find_auxiliary(
    registry: Path | str, name: str, *, family: str | Sequence[str], setting: str
) -> ModelVersion | None:
    """The model of a family that is in service under a name; None if the name is empty.

    Args:
      family: that it must be of, or several that are accepted.
      setting: that gives the name, for messages.

    Raises:
      SettingsError: none is in service under it, or a model of another family.
    """
    if not name:
        return None
    version = find_in_service(Registry(registry, name))
    if version is None:
        pipelines = family if isinstance(family, str) else " or ".join(family)
        raise SettingsError(
            f"evaluate: {setting!r} is {name!r}, and {registry}/{name} holds no version; push a model there first "
            f"(voxline run {pipelines}), or leave the setting empty to do without it"
        )
    try:
        require_family(read_model_info(version.folder), family, version.folder)
    except WorkError as error:
        raise SettingsError(f"evaluate: {setting!r} is {name!r}, and {error}") from None
    return version


def find_in_service(registry: Registry) -> ModelVersion | None:
    """The version in service, if any."""
    version = registry.in_service()
    return None if version is None else version_of(registry, version)


def version_of(registry: Registry, version: int) -> ModelVersion:
    """A version, its bytes checked.

    Raises:
      WorkError: it does not exist, or is damaged.
    """
    return ModelVersion(registry.model, version, _read_digest(registry, version), registry.path(version))


def _unusable(name: str, version: int, error: WorkError) -> WorkError:
    return WorkError(
        f"version {version} of {name}, which this evaluation needs, cannot be used: {error}; "
        "roll back to an intact version, name another anchor (voxline models anchor), or remove its folder"
    )


def _read_digest(registry: Registry, version: int) -> str:
    """Raises: WorkError: the version is damaged."""
    try:
        registry.intact_path(version)
        return registry.event(version).digest
    except WorkError as error:
        raise _unusable(registry.model, version, error) from None

"""Measures the model that a training started from, as it came, beside the new one: before and after.

A public model is measured on the same test split and on dev, so that a training that made it worse is seen. What it was
judged by is not known, so a person names a corpus, the probe, that shows what the new model has forgotten.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from voxline.components.evaluate.champion import ModelVersion, version_of
from voxline.components.evaluate.measurement import EvaluationJob, Measurements, bootstrap_of, measure_beside
from voxline.components.evaluate.parent_test import trained_recordings
from voxline.components.evaluate.settings import EvaluateSettings
from voxline.components.probe import read_probe
from voxline.components.untouched_parent import MODEL, find_untouched_parent
from voxline.data.dataset import read_utterances
from voxline.data.manifest import Utterance, fingerprint_utterances
from voxline.data.recordings import PCM_HASH, sample_hashes
from voxline.errors import TransientError, WorkError
from voxline.families.family import EvaluateFamily
from voxline.inference.model_info import ModelInfo
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.metrics.evaluation import PART, PROBE, BeforeInfo, ProbeInfo, UtteranceResult, group_by_slice
from voxline.metrics.summaries import summarize_results
from voxline.progress import print_status
from voxline.registry.parents import Ancestor, ancestors_of
from voxline.registry.registry import Registry
from voxline.registry.training_data import Recording

ROLE = "its parent before tuning"


@dataclasses.dataclass(frozen=True)
class UntouchedParent(ModelVersion):
    """A public model in the store, as it came; no registry has it, so `version` is 0."""

    @property
    def label(self) -> str:
        return self.name

    def unusable(self, error: WorkError) -> WorkError:
        return WorkError(f"{self.name}, which the model started from, cannot be measured: {error}")


@dataclasses.dataclass(frozen=True)
class Before:
    """The untouched parent of a model, and what both are measured on.

    Attributes:
      model: None of one that cannot be measured; `info` says why.
      parts: the utterances by split, and those of the probe; the split that the evaluation is of comes first.
    """

    model: ModelVersion | None
    parts: dict[str, Sequence[Utterance]]
    info: BeforeInfo

    def inputs(self) -> dict[str, Any]:
        """Returns what the step's key depends on."""
        fingerprints = {part: fingerprint_utterances(utterances) for part, utterances in self.parts.items()}
        return {"digest": self.model.digest if self.model else "", "missing": self.info.missing, **fingerprints}

    @property
    def utterances(self) -> list[Utterance]:
        return [utterance for utterances in self.parts.values() for utterance in utterances]

    def measure(self, family: EvaluateFamily, job: EvaluationJob, measured: Measurements) -> list[UtteranceResult]:
        """The results of both models on every part, the parent's in the place of the champion's.

        Args:
          job: the evaluation.
          measured: the models of that.
        """
        if self.model is None:
            return []
        print_status(f"evaluate: {len(self.utterances):,} utterances of {', '.join(self.parts)}, {ROLE} and after it")
        beside = dataclasses.replace(
            job,
            utterances=self.utterances,
            slices=[{PART: part} for part, utterances in self.parts.items() for _ in utterances],
            champion=self.model,
            anchor=None,
            anchor_values=None,
        )
        # The new model is measured on the test split already, which comes first.
        test_values = measured.measured.values if job.settings.split in self.parts else ()
        return measure_beside(family, beside, measured.evaluator.model, test_values, ROLE)

    def describe(self, results: Sequence[UtteranceResult], settings: EvaluateSettings) -> BeforeInfo:
        """Describes the parent and the results in metrics.json."""
        groups = group_by_slice(results, PART)
        parts = {part: summarize_results(group, bootstrap_of(settings)) for part, group in groups.items()}
        return msgspec.structs.replace(self.info, parts=parts)


def find_before(
    model: Path,
    test: Sequence[Utterance],
    manifest: Path,
    registry: Path | str,
    store: Path | str,
    settings: EvaluateSettings,
) -> Before | None:
    """The untouched parent; None of a model from random weights, or of another model of ours without a probe.

    Args:
      model: the folder of the exported model.
      test: the utterances of the evaluation.
      manifest: that they come from.

    Raises:
      SettingsError: the probe cannot be read.
      TransientError: the Hub cannot be reached, and the store does not have the parent.
    """
    info = read_model_info(model)
    ancestors = ancestors_of(info)
    if not ancestors:
        if settings.probe:
            print_status("evaluate: the model started from random weights, so evaluate.probe has nothing to show")
        return None
    if info.is_as_published:
        return None
    parent = ancestors[0]
    if not parent.is_published and not settings.probe:
        return None

    parts: dict[str, Sequence[Utterance]] = {}
    if parent.is_published:
        parts[settings.split] = test
        dev = [utterance for utterance in read_utterances(manifest) if utterance.split == "dev"]
        parts |= {"dev": dev} if dev and settings.split != "dev" else {}

    probe = None
    if settings.probe:
        utterances, probe = _read_probe(model, manifest, settings.probe)
        parts |= {PROBE: utterances} if utterances else {}

    untouched: ModelVersion | None = None
    missing = ""
    transcribes = True
    try:
        untouched, transcribes = _find_model(info, parent, registry, store)
    except TransientError:
        raise
    except WorkError as error:
        missing = str(error)
    if not transcribes:
        missing = f"{parent.label} has no output layer of the kind that was trained, so nothing transcribes before"

    described = BeforeInfo(
        name=parent.name,
        version=parent.version,
        digest=parent.digest,
        label=parent.label,
        revision=parent.revision,
        # A public model that was imported into the registry has its own origin as an ancestor.
        licence=next((ancestor.licence for ancestor in ancestors if ancestor.licence), ""),
        published=parent.is_published,
        transcribes=transcribes,
        missing=missing,
        probe=probe,
    )
    return Before(untouched, parts, described)


def _find_model(
    info: ModelInfo, parent: Ancestor, registry: Path | str, store: Path | str
) -> tuple[ModelVersion | None, bool]:
    """The exported parent, and whether it works alone.

    Raises:
      WorkError: it is gone.
    """
    if parent.version is None:
        output = find_untouched_parent(info, parent, store)
        if MODEL not in output.outputs:
            return None, False
        folder = output.path(MODEL)
        return UntouchedParent(parent.label, 0, model_digest(folder), folder), True

    # A version of the registry: one of ours, or a public model that was imported as it is.
    versions = Registry(registry, parent.name)
    if parent.version in versions.existing():
        version = version_of(versions, parent.version)
        if version.digest == parent.digest:
            return version, True
    raise WorkError(f"{parent.label} is not in {registry}")


def _read_probe(model: Path, manifest: Path, location: str) -> tuple[list[Utterance], ProbeInfo]:
    """The utterances of a probe that the model was not trained on.

    Raises:
      SettingsError: it cannot be read, or is empty.
    """
    listed = read_probe(location)

    # The same recording under any name: by its source, by its samples, or by id and text. Of those before today, and
    # of its ancestors, the source is known.
    train = [utterance for utterance in read_utterances(manifest) if utterance.split == "train"]
    trained_on = trained_recordings(model) | {_recording(utterance) for utterance in train}
    samples = sample_hashes(train)
    texts = {(utterance.id, utterance.text) for utterance in train}
    utterances = [
        utterance
        for utterance in listed
        if _recording(utterance) not in trained_on
        and utterance.measured.get(PCM_HASH) not in samples
        and (utterance.id, utterance.text) not in texts
    ]

    leaked = len(listed) - len(utterances)
    missing = f"the model was trained on {leaked:,} of {len(listed):,} utterances of the probe" if leaked else ""
    return utterances, ProbeInfo(
        location=location, listed=len(listed), fingerprint=fingerprint_utterances(utterances), missing=missing
    )


def _recording(utterance: Utterance) -> Recording:
    return utterance.audio_hash or utterance.id, utterance.offset

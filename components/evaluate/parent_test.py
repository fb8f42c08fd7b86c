"""Measures how much of its parent's task a model still knows: both, on the test split of the parent.

The utterances are those that the parent was judged by. Those of today's test split are measured already; those of a
corpus that today's run does not have are read from the parent's dataset, and measured beside. docs/decisions/0063
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.components.evaluate.champion import ModelVersion, version_of
from voxline.components.evaluate.measurement import EvaluationJob, measure_models
from voxline.data.manifest import Utterance, fingerprint_utterances
from voxline.data.recordings import PCM_HASH, logged_hashes
from voxline.data.rows import DatasetRow
from voxline.errors import WorkError
from voxline.families.family import EvaluateFamily
from voxline.inference.saved_model import read_model_info
from voxline.metrics.bootstrap import Bootstrap
from voxline.metrics.evaluation import Evaluation, ParentInfo, UtteranceResult
from voxline.metrics.summaries import summarize_results
from voxline.progress import print_status
from voxline.registry.parents import Ancestor, ancestors_of
from voxline.registry.registry import EVALUATION, Registry
from voxline.registry.training_data import TRAINED_ON, Recording, read_training_data
from voxline.store.bucket_cache import local_path
from voxline.store.layout import WAVS
from voxline.store.objects import open_store


@dataclasses.dataclass(frozen=True)
class ParentTest:
    """The test split of a model's parent.

    Attributes:
      version: the parent in the registry; None if it is not there.
      utterances: those that can be measured.
      listed: how many there are.
      missing: why some or all cannot be measured; empty if all can.
    """

    ancestor: Ancestor
    version: ModelVersion | None
    utterances: list[Utterance]
    listed: int
    missing: str = ""

    def inputs(self) -> dict[str, Any]:
        """Returns what the step's key depends on."""
        return {**dataclasses.asdict(self.ancestor), "test": fingerprint_utterances(self.utterances)}

    def measure(
        self, family: EvaluateFamily, job: EvaluationJob, results: Sequence[UtteranceResult]
    ) -> list[UtteranceResult]:
        """The results of the model, with the parent in the place of the champion.

        Args:
          job: the evaluation on today's test split.
          results: of that.
        """
        if self.version is None:
            return []

        # With the parent in service, the utterances of today's split are measured already, against the same model.
        is_champion = job.champion is not None and job.champion.digest == self.version.digest
        by_id = {result.id: result for result in results} if is_champion else {}
        today = {utterance.id: utterance for utterance in job.utterances}
        measured = []
        unmeasured = []
        for utterance in self.utterances:
            if utterance.id in by_id and today[utterance.id] is utterance:
                measured.append(by_id[utterance.id])
            else:
                unmeasured.append(utterance)
        if not unmeasured:
            return measured

        print_status(f"evaluate: {len(unmeasured):,} utterances of the test split of {self.ancestor.label}, the parent")

        # The parent takes the place of the champion, so that the gate compares them as any two models.
        beside = dataclasses.replace(
            job,
            utterances=unmeasured,
            slices=[{} for _ in unmeasured],
            champion=self.version,
            anchor=None,
            anchor_values=None,
        )
        return measured + measure_models(family, beside).results

    def info(self, results: Sequence[UtteranceResult], bootstrap: Bootstrap) -> ParentInfo:
        """Describes the parent and the results on its test split in metrics.json."""
        ancestor = self.ancestor
        return ParentInfo(
            name=ancestor.name,
            version=ancestor.version,
            digest=ancestor.digest,
            dataset=ancestor.dataset,
            label=ancestor.label,
            utterances=len(results),
            listed=self.listed,
            missing=self.missing,
            metrics=summarize_results(results, bootstrap).metrics if results else {},
        )


def find_parent_test(
    model: Path, today: Sequence[Utterance], registry: Path | str, store: Path | str, split: str
) -> ParentTest | None:
    """The test split of a model's parent; None if the model started from random weights.

    Args:
      model: the folder of the exported model.
      today: the utterances of today's test split.
      split: "test", or whatever is measured.
    """
    ancestors = ancestors_of(read_model_info(model))
    if not ancestors:
        return None

    # Without its version or its recordings, the gate says why nothing was compared.
    parent = ancestors[0]
    if parent.is_published:
        what = "public model" if parent.revision or parent.version else "file of published weights"
        return ParentTest(parent, None, [], 0, f"{parent.label} is a {what}, without a test split")
    version = _find_version(parent, registry)
    if version is None:
        return ParentTest(parent, None, [], 0, f"{parent.label} is not in {registry}")

    # The utterances that the parent was judged by; its dataset has their texts and the hashes of their recordings.
    dataset = parent.open_dataset(store, shards=False)
    rows = {row.id: row for row in dataset.rows() if row.split == split} if dataset else {}
    try:
        listed = [result.id for result in Evaluation.read(version.folder / EVALUATION).results]
    except WorkError:  # a version that a person copied into the registry
        listed = list(rows)

    # An utterance of today's split is taken as it is, another one from the store, if its recording is still there.
    by_id = {utterance.id: utterance for utterance in today}
    hashes = logged_hashes(local_path(store) / WAVS, {row.audio_hash for row in rows.values()})
    available = []
    for name in listed:
        utterance = by_id.get(name)
        if utterance is None or not _same(utterance, rows.get(name)):
            utterance = _stored_utterance(store, rows.get(name), hashes)
        if utterance is not None:
            available.append(utterance)

    # A model trained on an utterance says nothing there about forgetting.
    trained_on = trained_recordings(model)
    utterances = [
        utterance
        for utterance in available
        if (utterance.audio_hash or utterance.id, utterance.offset) not in trained_on
    ]

    missing = []
    if len(available) < len(listed) or not listed:
        missing.append(
            f"{len(listed) - len(available):,} of {len(listed):,} utterances are neither in today's {split} split "
            f"nor, with their recordings, in {store} (dataset {parent.dataset[:12]})"
        )
    if len(utterances) < len(available):
        missing.append(f"the model was trained on {len(available) - len(utterances):,} of {len(listed):,} utterances")
    return ParentTest(parent, version, utterances, len(listed), "; ".join(missing))


def trained_recordings(model: Path) -> set[Recording]:
    """The recordings that a model was trained on, as far as they are known."""
    file = model / TRAINED_ON
    return read_training_data(file.read_bytes(), str(file)).recordings() if file.is_file() else set()


def _find_version(parent: Ancestor, registry: Path | str) -> ModelVersion | None:
    versions = Registry(registry, parent.name)
    if parent.version is None or parent.version not in versions.existing():
        return None
    # A registry that was copied in part, or started again, may have another model under this number.
    version = version_of(versions, parent.version)
    return version if version.digest == parent.digest else None


def _stored_utterance(store: Path | str, row: DatasetRow | None, hashes: dict[str, str]) -> Utterance | None:
    """The utterance of a row, if its recording is in the store.

    Args:
      hashes: of the samples of WAVs, by name.
    """
    if row is None:
        return None

    # WAVs in the store are named by their hash, and `gc` may have removed this one since.
    files = open_store(store)
    wav = f"{WAVS}/{row.audio_hash[:2]}/{row.audio_hash}.wav"
    if files.stat(wav) is None:
        return None
    return Utterance(
        row.id,
        str(files.local_path(wav)),
        row.duration,
        row.text,
        row.speaker,
        row.split,
        row.audio_hash,
        row.offset,
        measured={PCM_HASH: hashes[row.audio_hash]} if row.audio_hash in hashes else {},
        extra=row.extra,
    )


def _same(today: Utterance, before: DatasetRow | None) -> bool:
    """Returns whether an id names the same recording as in the parent's dataset, as far as that is known."""
    return before is None or (today.audio_hash, today.offset) == (before.audio_hash, before.offset)

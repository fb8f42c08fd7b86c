"""Evaluate: measures the exported model on the test split, and compares it with the model in service.

It measures the bytes that would ship. The step's key consists of the model's digest, the test utterances, the model in
service and further models that the result depends on, such as a round-trip recognizer; the evaluation is repeated only
if one of these changes. A family measures one model (`EvaluateFamily`); this step knows which models there are.
"""

import collections
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.components.evaluate.before import Before, find_before
from voxline.components.evaluate.champion import ModelVersion, find_anchor, find_champion, stored_results
from voxline.components.evaluate.measurement import (
    EvaluationJob,
    Measurements,
    TestSplit,
    all_slicings,
    bootstrap_of,
    measure_models,
    slice_order,
)
from voxline.components.evaluate.parent_test import ParentTest, find_parent_test
from voxline.components.evaluate.settings import EvaluateSettings
from voxline.data.dataset import Dataset, read_utterances
from voxline.data.drafts import is_draft
from voxline.data.manifest import Utterance, fingerprint_utterances, localize_audio
from voxline.data.recordings import refuse_changed_audio
from voxline.data.versions import version_name
from voxline.errors import WorkError
from voxline.families.family import EvaluateFamily, find_family
from voxline.inference.model_info import ModelInfo
from voxline.inference.saved_model import (
    TRAINING_FOLDERS,
    exported_folder,
    find_curves,
    model_digest,
    read_model_info,
    require_family,
)
from voxline.metrics.bootstrap import BootstrapInfo
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import (
    BEFORE_FILE,
    CLIP_FILE,
    CLIP_MELS_FILE,
    METRICS_FILE,
    PARENT_FILE,
    REPORT_FILE,
    RTF,
    UTTERANCES_FILE,
    BeforeInfo,
    EvaluatedModel,
    EvaluatedSplit,
    Evaluation,
    EvaluationInfo,
    ParentInfo,
    SplitCounts,
    UtteranceResult,
    write_results,
)
from voxline.metrics.summaries import (
    describe_before,
    headline_values,
    speed_metric,
    summarize_results,
    summarize_slices,
    values_before,
)
from voxline.progress import print_status
from voxline.registry.registry import Registry
from voxline.store.files import read_json, write_json
from voxline.store.hashing import hash_value
from voxline.store.step_cache import StepOutput, cached_step, local_inputs
from voxline.store.versioned_json import parse_versioned, to_json_values

REVISION = 17
"""Part of the step's key: raised when the same inputs would be measured otherwise."""


@local_inputs("model", "manifest", without=TRAINING_FOLDERS)
def run(
    model: Path | str, manifest: Path | str, registry: Path | str, store: Path | str, settings: EvaluateSettings
) -> StepOutput:
    """Measures an exported model.

    Args:
      model: train's folder, or an exported model.
      manifest: convert's folder, or a manifest.
      registry: the registry's folder, or its URI in a bucket; it need not exist yet.
      settings: of the model's family.

    Raises:
      WorkError: the split is empty, a recording or a model cannot be read, or the model is of another family.
      SettingsError: no utterance has a field to slice by, or the registry lacks a model that the settings name.
    """
    # Refused before a model is loaded: another family, an empty split, a field to slice by that no utterance has.
    family = find_family(settings.family).evaluation()
    folder = exported_folder(Path(model))
    info = read_model_info(folder)
    require_family(info, settings.family, folder)
    split = _read_split(Path(manifest), settings)
    utterances = split.utterances
    test_version, trained_version = _dataset_versions(Path(manifest), info)
    slicings = all_slicings(family.slicings(settings), split, settings)

    # Other models that the result depends on: they become part of the key.
    digest = model_digest(folder)
    models = Registry(registry, settings.model_name)
    champion = find_champion(models, digest)
    anchor = find_anchor(models, digest, settings.anchor)
    auxiliary = family.auxiliary_models(registry, settings)
    parent_test = find_parent_test(folder, utterances, registry, store, settings.split)
    before = find_before(folder, utterances, Path(manifest), registry, store, settings)
    inputs: dict[str, Any] = {
        "model": digest,
        "test": fingerprint_utterances(utterances),
        "seen": hash_value(sorted(split.seen)),
        "champion": champion and champion.to_dict(),
        "anchor": anchor and anchor.to_dict(),
        **{name: version and version.to_dict() for name, version in auxiliary.items()},
        **({"parent": parent_test.inputs()} if parent_test else {}),
        **({"before": before.inputs()} if before else {}),
        # The results name the version, so a version of the same content under another number is not reused.
        **({"dataset": test_version} if test_version else {}),
    }

    with cached_step(store, "evaluate", settings, inputs, revision=REVISION, check=Evaluation.read) as output:
        if not output.reused:
            from voxline.components.evaluate.report import write_report

            # A recording that changed since convert would be measured against the text of another one.
            recordings = [*utterances, *(parent_test.utterances if parent_test else [])]
            recordings += before.utterances if before else []
            localize_audio(recordings)
            refuse_changed_audio(recordings, "evaluate")
            slices = [{name: slicing(utterance)[1] for name, slicing in slicings.items()} for utterance in utterances]
            job = EvaluationJob(folder, output.folder, utterances, slices, champion, auxiliary, settings)
            measured = measure_models(family, _with_anchor(job, anchor, inputs["test"]))
            parent = _measure_parent(family, job, measured.results, parent_test)
            before_info = _measure_before(family, job, measured, before)
            evaluator = measured.evaluator
            details = measured.details()
            smoke_test = evaluator.smoke_test(measured.measured)

            print_status("evaluate: computing metrics and their intervals")
            summary = summarize_results(measured.results, bootstrap_of(settings))
            # Speed depends on the machine and its load, so it takes part in no comparison and no key.
            summary.metrics[RTF] = speed_metric(measured.measured.rtf, measured.champion_rtf, len(utterances))
            for name, value in evaluator.figures(measured.measured).items():
                summary.metrics[name] = speed_metric(value, None, len(utterances))
            evaluation = EvaluationInfo(
                family=settings.family,
                key=output.key,
                revision=REVISION,
                bootstrap=BootstrapInfo.of(bootstrap_of(settings)),
                utterances=summary.utterances,
                seconds=summary.seconds,
                metrics=summary.metrics,
                slices=summarize_slices(measured.results, slice_order(slicings, utterances), bootstrap_of(settings)),
                model=EvaluatedModel(digest=digest, name=settings.model_name, about=info, dataset=trained_version),
                test=EvaluatedSplit(
                    split=settings.split,
                    fingerprint=inputs["test"],
                    speakers=len({utterance.speaker for utterance in utterances if utterance.speaker}),
                    also_in_train=sum(utterance.text in split.seen for utterance in utterances),
                    dataset=test_version,
                ),
                data=split.data,
                champion=champion.info if champion else None,
                anchor=anchor.info if anchor else None,
                parent=parent,
                auxiliary_models=job.auxiliary_info,
                details=to_json_values(details),
                smoke_test=to_json_values(smoke_test),
                settings=settings.plain(),
                before=before_info,
            )
            _write(output, measured, evaluation)

            print_status("evaluate: writing the report")
            sections = evaluator.report_sections(measured.results, evaluation)
            method = evaluator.describe_method(details)
            write_report(output.folder / REPORT_FILE, evaluation, sections, method, _read_curves(Path(model)))

        # Read from the file, since a reused evaluation was measured by an earlier run.
        metrics_file = output.path("metrics")
        print_status(f"evaluate: {summarize(parse_versioned(read_json(metrics_file), EvaluationInfo, metrics_file))}")
    return output


def _with_anchor(job: EvaluationJob, anchor: ModelVersion | None, test: str) -> EvaluationJob:
    """The job with the anchor, unless that is the champion; and with what its own evaluation measured.

    Args:
      test: the fingerprint of the utterances.
    """
    if anchor is None or (job.champion and job.champion.digest == anchor.digest):
        return job
    # The registry has the anchor's own evaluation: of the same utterances, it need not be measured again.
    stored = stored_results(anchor, test, job.auxiliary_info, REVISION)
    return dataclasses.replace(job, anchor=anchor, anchor_values=stored)


def _measure_parent(
    family: EvaluateFamily, job: EvaluationJob, results: Sequence[UtteranceResult], test: ParentTest | None
) -> ParentInfo | None:
    """Measures the model and its parent on the parent's test split."""
    if test is None:
        return None
    on_parent_test = test.measure(family, job, results)
    write_results(job.output / PARENT_FILE, on_parent_test)
    return test.info(on_parent_test, bootstrap_of(job.settings))


def _measure_before(
    family: EvaluateFamily, job: EvaluationJob, measured: Measurements, before: Before | None
) -> BeforeInfo | None:
    """Measures the untouched parent beside the model."""
    if before is None:
        return None
    results = before.measure(family, job, measured)
    write_results(job.output / BEFORE_FILE, results)
    return before.describe(results, job.settings)


def summarize(info: EvaluationInfo) -> str:
    """One line for `metrics.json`."""
    headline = {name: metric for name, metric in info.metrics.items() if CATALOG[name].headline}
    parts = [f"{CATALOG[name].title} {CATALOG[name].format(metric.value)}" for name, metric in headline.items()]
    line = f"{', '.join(parts)}, on {info.utterances:,} utterances{describe_before(info)}"
    if not info.champion or not headline:
        return line

    # The first headline metric is the main one.
    name, metric = next(iter(headline.items()))
    compared = metric.comparison
    if compared is None:
        return line
    line += f"; version {info.champion.version}: {CATALOG[name].format(compared.champion_value)}"
    if compared.probability_worse is not None:
        line += f", this one is worse with probability {compared.probability_worse:.0%}"
    return line


def _read_split(manifest: Path, settings: EvaluateSettings) -> TestSplit:
    utterances: list[Utterance] = []

    # Read once: a version's rows are parsed, and their recordings found, with each reading.
    listed = read_utterances(manifest)
    counts: collections.Counter[str] = collections.Counter()
    seconds: collections.defaultdict[str, float] = collections.defaultdict(float)
    speakers: collections.defaultdict[str, set[str]] = collections.defaultdict(set)
    for utterance in listed:
        counts[utterance.split] += 1
        seconds[utterance.split] += utterance.duration
        speakers[utterance.split].add(utterance.speaker)
        if utterance.split == settings.split:
            utterances.append(utterance)
            if is_draft(utterance.extra):
                raise WorkError(
                    f"{manifest}: {utterance.id} of the split {settings.split!r} has a text that a model wrote; "
                    "nothing is judged by a draft (corpus.pseudo)"
                )
    if not utterances:
        raise WorkError(
            f"{manifest}: no utterance in the split {settings.split!r}, so there is nothing to measure a model on; "
            "give the corpus a test split (corpus settings), or set evaluate.split"
        )

    # Results of several models are paired by id.
    ((most, times),) = collections.Counter(utterance.id for utterance in utterances).most_common(1)
    if times > 1:
        raise WorkError(f"{manifest}: id {most} appears {times} times; utterances are compared by id, make it unique")

    sentences = {utterance.text for utterance in utterances}
    seen = frozenset(
        utterance.text for utterance in listed if utterance.split == "train" and utterance.text in sentences
    )

    # The order of a person: train, dev, test, then other splits by name.
    data = {
        split: SplitCounts(
            utterances=counts[split], seconds=round(seconds[split], 3), speakers=len(speakers[split] - {""})
        )
        for split in sorted(counts, key=lambda name: ({"train": 0, "dev": 1, "test": 2}.get(name, 3), name))
    }
    return TestSplit(utterances, seen, data)


def _dataset_versions(manifest: Path, info: ModelInfo) -> tuple[str, str]:
    """The published version that the utterances are of, and again if the model was trained on it; else empty."""
    name = version_name(manifest)
    return name, name if name and Dataset.read_header(manifest).key == info.dataset.key else ""


def _read_curves(model: Path) -> dict[str, Any] | None:
    """The training curves, if the model comes from train."""
    file = find_curves(model)
    return None if file is None else dict(read_json(file))


def _write(output: StepOutput, measured: Measurements, info: EvaluationInfo) -> None:
    """Writes metrics.json and the table of utterances, and notes what the step has made."""
    write_results(output.folder / UTTERANCES_FILE, measured.results)
    write_json(output.folder / METRICS_FILE, info.to_dict())
    output.outputs = {"metrics": METRICS_FILE, "utterances": UTTERANCES_FILE, "report": REPORT_FILE}

    # The clip of the smoke test, and the mels behind it, are of the families that make sound.
    clips = {"clip": CLIP_FILE, "clip_mels": CLIP_MELS_FILE}
    output.outputs |= {name: file for name, file in clips.items() if (output.folder / file).is_file()}
    output.counts = {"utterances": len(measured.results), **measured.evaluator.counts(measured.measured)}
    output.metrics = headline_values(info.metrics) | values_before(info)

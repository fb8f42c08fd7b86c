"""The steps of a search on a cluster as KFP components: a trial in place of train, and one that chooses among trials.

A trial is the keyed work of train, so one that was made before, by this graph or by `voxline search`, is found in the
store. What `voxline.pipelines.kfp_graph.ParallelTrials` makes of a search calls them.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pydantic
from kfp import dsl

from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import step_component
from voxline.errors import PreconditionError, TransientError, VoxlineError, WorkError
from voxline.settings import Settings

TRIAL = "trial"
"""Key of an artifact's metadata: the trial's `TrialLabel` as JSON."""
FAILED = "failed"
"""Key of an artifact's metadata: why the trial came to no model."""


class TrialItem(msgspec.Struct, kw_only=True, frozen=True):
    """An item of the graph's loop, as JSON: the trial that a task trains.

    Attributes:
      trial: its number.
      settings: the ones that vary, by dotted key of the config.
      train: the keys of `train` with other values than the config has.
    """

    trial: int
    settings: dict[str, Any]
    train: dict[str, Any]


class TrialLabel(msgspec.Struct, kw_only=True, frozen=True):
    """A trial in the metadata of its artifact, as JSON.

    Attributes:
      number: of the trial.
      settings: the ones that vary, by dotted key of the config.
    """

    number: int
    settings: dict[str, Any]

    @classmethod
    def read(cls, metadata: dict[str, Any]) -> TrialLabel:
        """The label in an artifact's metadata."""
        return msgspec.json.decode(metadata[TRIAL], type=cls)

    def to_json(self) -> str:
        return json.dumps(msgspec.to_builtins(self), ensure_ascii=False)


class TrialSettings(Settings):
    """Settings of every trial; the loop gives the others."""

    EXPOSED = ("family",)
    family: str = pydantic.Field("asr", description="family of the models that are trained")


class ChooseSettings(Settings):
    """Settings of the choice among trials."""

    EXPOSED = ("metric",)
    metric: str = pydantic.Field("dev_wer", description="metric of train on dev; lower is better")


@step_component(MODEL_IMAGE, section="trial")
def trial(
    dataset: dsl.Input[dsl.Dataset],
    trained: dsl.Output[dsl.Model],
    store: str,
    registry: str,
    base: str,
    given: str,
    settings: TrialSettings,
) -> None:
    """Trains one model of a search. Settings with which nothing can be trained fail the trial, and not the run.

    Args:
      dataset: the output of extract.
      trained: the exported model; of a trial that failed, a file that says why.
      store: folder or bucket URI of all cached step outputs.
      registry: folder or bucket URI of the model registry, for the model to start from.
      base: the config's section `train`, as JSON.
      given: number, settings that vary, and the keys of `train` with other values than in `base`, as JSON.
    """
    import traceback
    from pathlib import Path

    from voxline.components.train.step import run
    from voxline.families.family import find_family
    from voxline.inference.saved_model import model_digest
    from voxline.progress import print_status
    from voxline.store.artifacts import artifact_uri, publish_artifact

    # Only what differs comes with the loop's item; the config's section is the same for all trials.
    item = msgspec.json.decode(given, type=TrialItem)
    label = TrialLabel(number=item.trial, settings=item.settings).to_json()
    train = find_family(settings.family).train_settings.of(with_changes(json.loads(base), item.train), "train")

    try:
        output = run(artifact_uri(dataset), store, train, registry)
    except (TransientError, PreconditionError, OSError):  # a storage, a full disk: no fault of the trial
        raise
    except Exception as error:  # TensorFlow raises many kinds, as where a GPU's memory runs out; the others go on
        why = str(error)
        if not isinstance(error, VoxlineError):
            traceback.print_exc()
            why = f"{type(error).__name__}: {why.strip().partition(chr(10))[0][:300]}"
        print_status(f"trial {item.trial} failed: {why}")

        # The task succeeds, with a text in place of a model: a failed one would take the loop and the run with it.
        trained.metadata.update({TRIAL: label, FAILED: why})
        Path(trained.path).parent.mkdir(parents=True, exist_ok=True)
        Path(trained.path).write_text(f"{why}\n", encoding="utf-8")
        return

    digest = model_digest(output.path("model"))
    publish_artifact(output, trained, content="model", about={"digest": digest, TRIAL: label})


@step_component(MODEL_IMAGE, section="choose")
def choose(
    trials: dsl.Input[list[dsl.Model]],
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    store: str,
    settings: ChooseSettings,
) -> None:
    """Chooses the trial with the lowest metric on dev; its model is the one that is evaluated and goes to the gate.

    Args:
      trials: the outputs of the trials.
      model: the best trial's.
      metrics: those of the best trial.
      report: all trials, the best first.
      store: folder or bucket URI of all cached step outputs.
    """
    from voxline.progress import print_status
    from voxline.store.artifacts import artifact_metadata, pass_on_artifact

    # The metadata has each trial's metrics; of all models, only that of the best one is read.
    published = [artifact_metadata(artifact) for artifact in trials]
    ranked = rank_trials(published, settings.metric)
    best = published[ranked[0]]
    label = TrialLabel.read(best)

    # The artifact of the best trial becomes this task's own, so that evaluate and push read it as train's.
    pass_on_artifact(trials[ranked[0]], model)
    best_value = best["metrics"][settings.metric]
    print_status(f"trial {label.number} of {len(trials)} is the best: {settings.metric} {best_value:.6g}")
    print_status(f"its settings: {json.dumps(label.settings, ensure_ascii=False)}")

    # The UI compares runs by them. The page shows all trials, those without a model last.
    for name, value in best["metrics"].items():
        metrics.log_metric(name, value)

    _write_page([published[at] for at in _with_failed(ranked, len(trials))], settings.metric, report.path)


def with_changes(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A section with other values at dotted keys, in place.

    >>> with_changes({"epochs": 5, "model": {"units": 96}}, {"model.units": 48})
    {'epochs': 5, 'model': {'units': 48}}
    """
    for key, value in changes.items():
        *sections, last = key.split(".")
        inner = values
        for section in sections:
            inner = inner[section]
        inner[last] = value
    return values


def rank_trials(metadata: list[dict[str, Any]], metric: str) -> list[int]:
    """The places of the trials with a model, the best first; equal error rates are ordered by the loss on dev.

    Raises:
      WorkError: no trial has a model, or train has no such metric.
    """
    with_model = [at for at, trial_metadata in enumerate(metadata) if FAILED not in trial_metadata]
    if not with_model:
        reasons = sorted({str(trial_metadata[FAILED]) for trial_metadata in metadata})
        raise WorkError(f"choose: none of the {len(metadata)} trials came to a model: {reasons[0]}")
    if metric not in (measured := metadata[with_model[0]]["metrics"]):
        raise WorkError(f"choose: metric {metric!r}: accepted: {', '.join(sorted(measured))}")

    def rank(at: int) -> tuple[float, float, int]:
        values = metadata[at]["metrics"]
        value = float(values[metric])
        loss = float(values.get("dev_loss", 0.0))

        # NaN compares with nothing, so that sorting by it would give any order. The place decides between equals.
        return value if math.isfinite(value) else math.inf, loss if math.isfinite(loss) else math.inf, at

    ranked = sorted(with_model, key=rank)
    if not math.isfinite(rank(ranked[0])[0]):
        raise WorkError(f"choose: {metric} of every trial is not finite; lower train.learning_rate")
    return ranked


def _with_failed(ranked: list[int], count: int) -> list[int]:
    return [*ranked, *(at for at in range(count) if at not in ranked)]


def _write_page(metadata: list[dict[str, Any]], metric: str, path: str) -> None:
    """The trials as a table."""
    from pathlib import Path

    from voxline.report import Page, data_table

    rows = []
    for trial_metadata in metadata:
        label = TrialLabel.read(trial_metadata)
        varied = ", ".join(f"{key} {value}" for key, value in label.settings.items())
        failed = trial_metadata.get(FAILED)
        result = f"{trial_metadata['metrics'][metric]:.6g}" if failed is None else str(failed)
        rows.append((str(label.number), varied, result))

    page = Page("Trials of a search", lead="Judged on dev alone; the best one is evaluated and goes to the gate.")
    page.add_section("Trials, the best first", data_table(["trial", "settings", metric], rows, label="Trials"))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    page.write(Path(path))

"""The train step: a dataset in, an exported model out, in its plain form; the step export writes others."""

import dataclasses
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.components.probe import validate_probe
from voxline.components.untouched_parent import export_untouched_parent
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.families.family import find_family
from voxline.inference.saved_model import CURVES_FILE, exported_folder
from voxline.inference.tensorflow_import import hidden_packages, start_tensorflow
from voxline.progress import print_status
from voxline.registry.hub import is_release
from voxline.registry.parents import RANDOM_WEIGHTS, Parent, find_other_model, find_parent
from voxline.registry.training_data import TRAINED_ON, Recording, content_of_row, training_data_of
from voxline.settings import Settings, merge
from voxline.store.bucket_cache import local_path, uri_of
from voxline.store.files import atomic_folder
from voxline.store.finished import check_input, is_finished, read_done, step_key
from voxline.store.hashing import hash_value
from voxline.store.localize import localize
from voxline.store.scratch import scratch_root
from voxline.store.step_cache import StepOutput, StepWouldRunError, cached_step, joined_step
from voxline.store.uris import is_remote
from voxline.training.replay import Replay, plan_replay
from voxline.training.settings import TrainSettings

if TYPE_CHECKING:
    from voxline.training.task import TrainingTask

REVISION = 1
MOST_DATA_WAIT = 0.05
"""Share of the time that steps may wait for their batches; above it the step says what to change."""
REPLAY = "replay"
"""Folder of a dataset with replayed rows, while a training runs."""
CHECKPOINTS = "checkpoints"
"""Folder of the trainer's checkpoints, by which a killed run resumes."""
BEST = "best"
"""Folder of the best weights so far."""
LOGS = "logs"
"""Folder of TensorBoard events and curves."""
ENCODINGS = "encodings"
"""Folder of what frozen parts compute of each utterance, while a training runs."""
AUXILIARY = "auxiliary"
"""Folder of what an auxiliary model computes for a training, while it runs."""


def run(dataset: Path | str, store: Path | str, settings: TrainSettings, registry: Path | str = "") -> StepOutput:
    """Trains a model and exports the best weights; resumes if a killed run left a checkpoint.

    Args:
      dataset: a folder written by extract.
      store: the store of all step outputs, a folder or bucket URI; all workers must use the same one.
      registry: folder or bucket URI of the registry in which `train.start` finds the model to start from.

    Returns:
      StepOutput with the outputs `model` (SavedModel and model.json) and `logs` (TensorBoard, curves.json).

    Raises:
      WorkError: the dataset is damaged or has changed, or too many utterances or steps are unusable.
      SettingsError: the model to start from does not exist, or does not fit; or the probe cannot be measured.
    """
    read = Dataset.read(dataset)
    check_input(read.folder)
    family = find_family(settings.family)
    if read.is_text and not family.reads_texts_alone:
        raise WorkError(
            f"train: {read.folder} has texts without recordings, and a model of the family {family.name} needs these"
        )

    if settings.probe:
        validate_probe(settings.probe, read.alphabet, read.features.sample_rate)

    # Checked before the training: a stage or an export that cannot work must fail now, and not hours later.
    stages = family.post_training(settings, registry, read)
    family.companions(settings, registry, read.features)

    output = _run(str(dataset), read, store, family.training_settings(settings), registry, settings)

    # A stage is a keyed step of its own, so that another setting of it trains nothing again.
    if _is_chief():
        for stage in stages:
            output = stage(output, store)
    return output


def _run(
    dataset: str,
    read: Dataset,
    store: Path | str,
    settings: TrainSettings,
    registry: Path | str,
    chosen: TrainSettings,
) -> StepOutput:
    """Trains under the settings of the weights alone; `chosen` has those of the step export too."""
    family = find_family(settings.family)
    inputs = {"dataset": read.key, **family.training_inputs(settings, read)}
    parent: Parent | None = None

    # The model to start from is pinned by its digest: the alias that the config names may move to another version.
    if settings.start.model:
        parent, by_fallback = _find_start(settings, read, registry)
        settings = settings.started_from(parent.pinned if parent else "", by_fallback=by_fallback)

    origin = Origin(parent, plan_replay(read, parent, settings.start.replay, store)) if parent else None
    # The key has all that decides the weights: a later promotion or a purge must not find the output of other data.
    inputs |= origin.inputs() if origin else {}
    auxiliary = _find_auxiliary_models(settings, registry)
    inputs |= {name: model.ancestor.digest for name, model in auxiliary.items()}

    # Only the chief locks the folder and exports; the other workers help it. A pod that is no worker launches them.
    if not _is_chief():
        return _join(read, store, settings, inputs, origin, auxiliary)
    if _wants_workers(settings):
        family.check_form(chosen, read.features)
        return _launch(dataset, store, settings, inputs, str(registry))

    # With peers, all machines resume from what the store holds, and never from what one of them has on its disk.
    alone = not os.environ.get("TF_CONFIG")
    try:
        with cached_step(store, "train", settings, inputs, revision=REVISION, exclusive=alone) as work:
            if work.reused:
                return work
            if earlier := _find_earlier(store, settings, chosen.export_form(), inputs):
                _take_over(earlier, settings, work)
                return work
            family.check_form(chosen, read.features)
            if alone and not is_remote(store):
                _continue_shorter(store, settings, inputs, work)
            _train(read, store, settings, work, origin, auxiliary)
    except StepWouldRunError as planned:
        if earlier := _find_earlier(store, settings, chosen.export_form(), inputs):
            planned.earlier = uri_of(earlier)
        raise
    return work


def _find_start(settings: TrainSettings, dataset: Dataset, registry: Path | str) -> tuple[Parent | None, bool]:
    """The model to start from, None for random weights; and whether it is the fallback."""
    start = settings.start
    test = _test_recordings(dataset)

    def find(model: str, own_name: str, otherwise: str, setting: str) -> Parent | None:
        # A model that Voxline has published is like one in a folder.
        public = None if is_release(model, setting) else find_family(settings.family).public_parent(model)
        return public or find_parent(
            model,
            registry,
            family=settings.family,
            own_name=own_name,
            generations=start.generations,
            test=test,
            otherwise=otherwise,
            setting=setting,
        )

    instead = f"{start.fallback} (train.start.fallback)" if start.fallback else RANDOM_WEIGHTS
    parent = find(start.model, settings.name, instead, "train.start.model")
    if parent or not start.fallback:
        return parent, False
    return find(start.fallback, "", RANDOM_WEIGHTS, "train.start.fallback"), True


def _continue_shorter(store: Path | str, settings: TrainSettings, inputs: dict[str, str], work: StepOutput) -> None:
    """Starts where a finished training with fewer epochs ended, if that is the beginning of this one.

    It is if the rate of a step does not depend on the last step, and no validation was made only because the training
    ended. The result is that of training from the first step, so the key does not say where it started.
    In a bucket there are no checkpoints of finished work.
    """
    from voxline.report.page import plural  # it imports numpy

    # With the cosine schedule each rate depends on the last step. With `evaluate_steps`, the validation at the shorter
    # end is one that the longer training would not have made. Own checkpoints are nearer to the end than any other's.
    if settings.schedule == "cosine" or settings.evaluate_steps or (work.folder / CHECKPOINTS).exists():
        return

    # The longest one first: it leaves the fewest epochs to train.
    for epochs in range(settings.epochs - 1, 0, -1):
        shorter = settings.model_copy(update={"epochs": epochs})
        _, folder = step_key(store, "train", shorter, inputs, REVISION)
        if epochs % settings.evaluate_epochs or not is_finished(store, folder) or not (folder / CHECKPOINTS).is_dir():
            continue

        for name in (BEST, LOGS, CHECKPOINTS):  # checkpoints last: with them the copy is whole
            with atomic_folder(work.folder / name) as unfinished:
                shutil.copytree(folder / name, unfinished, dirs_exist_ok=True)
        work.counts["continued_epochs"] = epochs
        print_status(f"train: continues a training of {plural(epochs, 'epoch')} with the same settings")
        return


def _find_earlier(store: Path | str, settings: TrainSettings, form: Settings, inputs: dict[str, Any]) -> Path | None:
    """The output of a release before the step export, whose key had the form too; None if there is none.

    Args:
      settings: of the weights alone.
      form: that the config asks for.
    """
    if not form.key_values():
        return None
    earlier = {
        "step": "train",
        "revision": REVISION,
        "settings": merge(settings.key_values(), form.key_values()),
        "inputs": inputs,
    }
    folder = local_path(store) / "train" / hash_value(earlier)
    return folder if is_finished(store, folder) else None


def _take_over(earlier: Path, settings: TrainSettings, work: StepOutput) -> None:
    """Writes an earlier training in its plain form.

    Args:
      earlier: its folder.
      settings: of the weights alone.
    """
    trained = localize(uri_of(earlier))
    check_input(trained)
    marker = read_done(earlier)
    find_family(settings.family).export_again(trained / "model", settings.export_form(), work.folder / "model")
    shutil.copytree(trained / LOGS, work.folder / LOGS, dirs_exist_ok=True)
    shutil.copyfile(trained / LOGS / CURVES_FILE, work.folder / CURVES_FILE)
    work.unverified = (LOGS,)
    work.outputs.update(model="model", logs=LOGS, curves=CURVES_FILE)
    work.counts.update(marker["counts"])
    work.metrics.update(marker["metrics"])
    print_status(f"train: takes over the weights that an earlier Voxline trained ({uri_of(earlier)})")


def _test_recordings(dataset: Dataset) -> set[Recording]:
    """The recordings of the test split alone; one may be in the corpus twice, and in train too."""
    # The content of a row without its split and text: the hash of the audio, and the segment's offset in it.
    recordings: dict[str, set[Recording]] = {"train": set(), "test": set()}
    for row in dataset.rows():
        if row.split in recordings:
            recordings[row.split].add(content_of_row(row)[:2])

    return recordings["test"] - recordings["train"]


@dataclasses.dataclass(frozen=True)
class Origin:
    """The start of a training: a model, and what is replayed of its training data."""

    parent: Parent
    replay: Replay | None

    def inputs(self) -> dict[str, str]:
        """Returns what the step's key holds of the start: digests, never names."""
        return {"start": self.parent.ancestor.digest, **({"replay": self.replay.inputs()} if self.replay else {})}


def _find_auxiliary_models(settings: TrainSettings, registry: Path | str) -> dict[str, Parent]:
    """The models of other families that the training learns from, by name."""
    return {
        auxiliary.name: find_other_model(auxiliary.model, registry, family=auxiliary.family, setting=auxiliary.setting)
        for auxiliary in find_family(settings.family).auxiliary_models(settings)
    }


def _train(
    dataset: Dataset,
    store: Path | str,
    settings: TrainSettings,
    work: StepOutput,
    origin: Origin | None,
    auxiliary: Mapping[str, Parent],
) -> None:
    task = _build_task(dataset, settings, origin, auxiliary, work.folder)
    task.check_length()

    # Imported late: they import TensorFlow, and a reused output needs none of it.
    from voxline.training.averaging import TRAINED
    from voxline.training.devices import accelerator_count
    from voxline.training.pruner import PairedPruner
    from voxline.training.trainer import Trainer

    # Scratch folders stay on this disk, for a longer training to continue, but finished work in a bucket has none.
    work.scratch_dirs = (CHECKPOINTS, BEST, REPLAY, AUXILIARY, ENCODINGS)
    work.unverified = (LOGS,)

    # Each checkpoint is saved to the store at once, for another machine to resume. A search may stop a bad trial.
    pruner = PairedPruner.from_environment(settings.epochs, settings.evaluate_epochs)
    result = Trainer(task, work.folder, work.begin_save, pruner).fit()
    best = result.best
    state = result.state

    # The section `training` of model.json.
    metrics = {f"dev_{name}": value for name, value in best.metrics.items()}
    training: dict[str, Any] = {
        "steps": state.step,
        "epochs": state.epoch,
        "best_step": best.step,
        **metrics,
        "stopped_early": result.stopped_early,
        "skipped_steps": len(state.skipped),
        **({"start": origin.parent.describe()} if origin else {}),
        **{name: dataclasses.asdict(model.ancestor) for name, model in auxiliary.items()},
    }
    if best.weights != TRAINED:
        training["weights"] = best.weights

    task.export(work.folder / "model", result.weights, training)

    # evaluate measures it too, as it came: a training that made it worse is not worth its weights.
    if origin and origin.parent.ancestor.is_published and origin.parent.ancestor.version is None:
        parent = origin.parent
        export_untouched_parent(settings.family, parent.ancestor, store, settings.plain(), lambda: parent)

    # A model has heard what its parent and its auxiliary models were trained on: a later test set must not hold it.
    trained_on = training_data_of(dataset).with_ancestors(origin.parent.training_data if origin else None)
    for model in auxiliary.values():
        trained_on = trained_on.with_ancestors(model.training_data)
    trained_on.write(work.folder / "model" / TRAINED_ON)

    for name in (AUXILIARY, ENCODINGS):
        shutil.rmtree(work.folder / name, ignore_errors=True)

    # Beside the model too: evaluate shows the curves, and does not download the logs from a bucket.
    shutil.copyfile(work.folder / LOGS / CURVES_FILE, work.folder / CURVES_FILE)
    work.outputs.update(model="model", logs=LOGS, curves=CURVES_FILE)

    work.counts.update(result.counts)
    if accelerators := accelerator_count(task.strategy):
        work.counts["accelerators"] = accelerators
    if result.data_wait > MOST_DATA_WAIT:
        print_status(
            f"train: steps waited for their data {result.data_wait:.0%} of the time; give the step more cores, raise "
            f"train.readers (it read with {task.train.readers}), or augment less (train.augment)"
        )
    data_wait = round(result.data_wait, 3)
    work.metrics.update(steps=state.step, epochs=state.epoch, best_step=best.step, data_wait=data_wait, **metrics)

    summary = f", {task.describe(best.metrics)}" if best.score is not None else ""
    which = "weights" if best.weights == TRAINED else f"{best.weights} of the weights"
    print_status(f"train: exported the {which} of step {best.step}{summary}")


def _build_task(
    dataset: Dataset,
    settings: TrainSettings,
    origin: Origin | None,
    auxiliary: Mapping[str, Parent],
    folder: Path,
) -> "TrainingTask":
    """The task; its weights are random, or those of the parent.

    Args:
      folder: for the rows of a dataset with replayed ones, and for what auxiliary models compute.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    # A warm start normalizes features by its parent's statistics, which its weights expect. The parent's weights come
    # last, after all layers are built.
    family = find_family(settings.family)
    with hidden_packages("sklearn", "matplotlib"):
        start_tensorflow()
    weights = None
    if origin is not None:
        from voxline.training.warm_start import read_parent, start_from, with_normalization_of, with_tokenizer_of

        weights = read_parent(origin.parent)
        dataset = with_normalization_of(dataset, weights)
        if origin.replay:
            replay = dataclasses.replace(origin.replay, dataset=dataset)
            dataset, corpora = replay.write(folder / REPLAY, settings.corpus_weights)
            settings = settings.model_copy(update={"corpus_weights": corpora})
        dataset = with_tokenizer_of(dataset, weights, settings.start, settings.output_kind)

    task = family.build_task(settings, dataset, weights.info if weights else None)
    for name, model in auxiliary.items():
        task.use_auxiliary_model(name, exported_folder(model.load_folder()), folder / AUXILIARY)

    if weights is not None:
        start_from(task, weights)
        task.encode_frozen_parts(folder / ENCODINGS)
    return task


def _is_chief() -> bool:
    if not os.environ.get("TF_CONFIG"):
        return True
    from voxline.training.devices import is_chief

    return is_chief()


def _join(
    dataset: Dataset,
    store: Path | str,
    settings: TrainSettings,
    inputs: dict[str, str],
    origin: Origin | None,
    auxiliary: Mapping[str, Parent],
) -> StepOutput:
    """Trains as a worker other than the chief, in the folder that the chief has locked."""
    with joined_step(store, "train", settings, inputs, revision=REVISION) as work:
        if not work.reused:
            from voxline.training.trainer import Trainer

            with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:  # the chief has a folder of its own
                task = _build_task(dataset, settings, origin, auxiliary, Path(scratch))
                Trainer(task, work.folder).fit()

            print_status("train: this worker is done; the chief exports the model")
    return work


def _wants_workers(settings: TrainSettings) -> bool:
    """Returns whether to launch a job of workers: in a pod that is not itself a worker."""
    if settings.workers.count < 2 or os.environ.get("TF_CONFIG"):
        return False
    from voxline.components.train.distributed.kubernetes import own_pod_name

    if own_pod_name():
        return True
    print_status(f"train: train.workers.count is {settings.workers.count}, for a cluster; this machine trains alone")
    return False


def _launch(
    dataset: str, store: Path | str, settings: TrainSettings, inputs: dict[str, str], registry: str
) -> StepOutput:
    """Launches a job of workers, and takes the result from the store.

    This process does not lock the output folder: the chief among the workers does.
    """
    from voxline.components.train.distributed.launcher import launch_workers

    start = time.monotonic()
    _, folder = step_key(store, "train", settings, inputs, REVISION)

    launched = launch_workers(folder.name, dataset, str(store), settings, lambda: is_finished(store, folder), registry)

    # The chief wrote the output under the same key, so that this finds it done.
    with cached_step(store, "train", settings, inputs, revision=REVISION) as work:
        if not work.reused:
            raise WorkError(f"train: the output of the workers at {folder} is incomplete; run the step again")
    work.path("model")  # from a bucket, it is published as an artifact

    if launched:
        # The workers trained for this step, so the record of the run must not say that nothing was done.
        work.reused = False
        work.seconds = time.monotonic() - start

    return work

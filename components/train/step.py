"""The train step: a dataset in, an exported model out, of the family that the settings are of."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.components.train.asr.settings import AsrTrainSettings
from voxline.components.train.settings import TrainSettings
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.registry.training_data import TRAINED_ON, training_data_of
from voxline.store.bucket_cache import localize
from voxline.store.step_cache import StepOutput, cached_step, is_finished, joined_step, step_key

if TYPE_CHECKING:
    from voxline.components.train.task import TrainingTask


REVISION = 1


def run(dataset: Path | str, store: Path | str, settings: TrainSettings) -> StepOutput:
    """Trains a recogniser or a voice, or goes on where a killed run left off, and exports the best of it.

    Args:
      dataset: the folder that extract wrote.
      store: holds all keyed work, a folder or gs://…; where several workers train, all see the same one.

    Returns:
      Work whose outputs are `model` (SavedModel and model.json) and `logs` (TensorBoard, curves.json).

    Raises:
      WorkError: the dataset is damaged, or too much of it or of the training is not finite.
    """
    read = Dataset.read(localize(dataset))
    inputs = {"dataset": read.key}
    if not _is_chief():
        return _join(read, store, settings, inputs)
    if _wants_workers(settings):
        return _launch(str(dataset), store, settings, inputs)
    alone = not os.environ.get("TF_CONFIG")
    with cached_step(store, "train", settings.key_settings(), inputs, revision=REVISION, alone=alone) as work:
        if work.reused:
            return work
        _train(read, settings, work)
    return work


def _join(dataset: Dataset, store: Path | str, settings: TrainSettings, inputs: dict[str, str]) -> StepOutput:
    """What a worker other than the chief does: it trains along in the folder that the chief has claimed."""
    with joined_step(store, "train", settings.key_settings(), inputs, revision=REVISION) as work:
        if not work.reused:
            from voxline.components.train.trainer import fit

            fit(_build_task(dataset, settings), work.folder)
            print_status("train: this worker is done; the chief exports the model")
    return work


def _wants_workers(settings: TrainSettings) -> bool:
    """Whether this process is to have a job of workers do the work: in a pod, where it is no such worker itself."""
    if settings.workers.count < 2 or os.environ.get("TF_CONFIG"):
        return False
    from voxline.components.train.distributed.kubernetes import own_pod_name

    if not own_pod_name():
        print_status(f"train: {settings.workers.count} workers are for a cluster; here, this machine trains by itself")
    return bool(own_pod_name())


def _launch(dataset: str, store: Path | str, settings: TrainSettings, inputs: dict[str, str]) -> StepOutput:
    """Has workers train, and takes the result from the store.

    The folder is not claimed meanwhile: the chief among the workers claims it, and the job's name the job.
    """
    from voxline.components.train.distributed.launcher import launch_workers

    start = time.monotonic()
    _, folder = step_key(store, "train", settings.key_settings(), inputs, REVISION)
    made = launch_workers(folder.name, dataset, str(store), settings, lambda: is_finished(store, folder))
    with cached_step(store, "train", settings.key_settings(), inputs, revision=REVISION) as work:
        if not work.reused:
            raise WorkError(f"train: what the workers made at {folder} is not whole; run the step again")
    if made:
        work.reused, work.seconds = False, time.monotonic() - start
    return work


def _is_chief() -> bool:
    if not os.environ.get("TF_CONFIG"):
        return True
    from voxline.components.train.devices import is_chief

    return is_chief()


def _build_task(dataset: Dataset, settings: TrainSettings) -> "TrainingTask":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if isinstance(settings, AsrTrainSettings):
        from voxline.components.train.asr.task import AsrTask

        return AsrTask(settings, dataset)
    from voxline.components.train.tts.task import TtsTask

    return TtsTask(settings, dataset)


def _export(folder: Path, settings: Any, dataset: Dataset, weights: dict[str, Any], facts: dict[str, Any]) -> None:
    if isinstance(settings, AsrTrainSettings):
        from voxline.components.train.asr import export as recognition

        recognition.export_asr(folder, settings, dataset, weights, facts)
    else:
        from voxline.components.train.tts import export as synthesis

        synthesis.export_tts(folder, settings, dataset, weights, facts)


def _train(dataset: Dataset, settings: TrainSettings, work: StepOutput) -> None:
    teacher = _build_task(dataset, settings)
    from voxline.components.train.trainer import fit

    work.passing = ("checkpoints", "best")
    trained = fit(teacher, work.folder, work.save)
    best, standing = trained.best, trained.standing
    figures = {f"dev_{name}": value for name, value in best.figures.items()}
    facts = {
        "steps": standing.step,
        "epochs": standing.epoch,
        "best_step": best.step,
        **figures,
        "stopped_early": trained.stopped_early,
        "skipped_steps": len(standing.bad),
    }
    _export(work.folder / "model", settings, dataset, trained.weights, facts)
    training_data_of(dataset).write(work.folder / "model" / TRAINED_ON)
    work.outputs.update(model="model", logs="logs")
    work.counts.update(trained.counts)
    work.metrics.update(steps=standing.step, epochs=standing.epoch, best_step=best.step, **figures)
    seen = f", {teacher.told(best)}" if best.score is not None else ""
    print_status(f"train: exported the weights of step {best.step}{seen}")

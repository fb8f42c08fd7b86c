"""The train step: a dataset in, an exported recogniser out."""

import os
from pathlib import Path

from components.speech.dataset import Dataset
from components.speech.progress import say
from components.speech.work import Work, keyed_work
from components.train.settings import TrainSettings

REVISION = 1


def run(dataset: Path | str, store: Path | str, settings: TrainSettings) -> Work:
    """Trains a recogniser, or goes on where a killed run left off, and exports the best of it.

    Args:
      dataset: the folder that extract wrote.
      store: holds all keyed work; where several workers train, all see the same one.

    Returns:
      Work whose outputs are `model` (SavedModel and model.json) and `logs` (TensorBoard, curves.json).

    Raises:
      WorkError: the dataset is damaged, or too much of it or of the training is not finite.
    """
    read = Dataset.read(dataset)
    with keyed_work(store, "train", settings, {"dataset": read.key}, revision=REVISION) as work:
        if work.reused:
            return work
        _train(read, settings, work)
    return work


def _train(dataset: Dataset, settings: TrainSettings, work: Work) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from components.train.export import export
    from components.train.loop import fit

    trained = fit(settings, dataset, work.folder)
    best, standing = trained.best, trained.standing
    facts = {
        "steps": standing.step,
        "epochs": standing.epoch,
        "best_step": best.step,
        "dev_wer": best.wer,
        "dev_loss": best.loss,
        "stopped_early": trained.stopped_early,
        "skipped_steps": len(standing.bad),
    }
    export(work.folder / "model", settings, dataset, trained.weights, facts)
    work.outputs.update(model="model", logs="logs")
    work.counts.update(trained.counts)
    work.metrics.update(steps=standing.step, epochs=standing.epoch, best_step=best.step)
    if best.wer is not None and best.loss is not None:
        work.metrics.update(dev_wer=best.wer, dev_loss=best.loss)
        say(f"train: exported the weights of step {best.step}, dev WER {best.wer:.2%}")
    else:
        say(f"train: exported the weights of step {best.step}")

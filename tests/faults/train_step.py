"""A small input for train: a vector that takes a second to train and export, with all files that a recognizer has.

TensorFlow is imported here and used in forks alone.
"""

import json
from pathlib import Path
from typing import Any, ClassVar

import tensorflow as tf

from tests.faults.steps import Step
from tests.training.tones import make_utterances, write_dataset
from tests.training.toy_family import ToyTask, ToyTrainSettings
from voxline.components.train.step import run as train
from voxline.families.family import Family
from voxline.store.finished import read_done
from voxline.store.hashing import hash_bytes, hash_file
from voxline.store.step_cache import StepOutput
from voxline.training.checkpoints import Arrays
from voxline.training.export import VARIABLES, model_info, write_exported
from voxline.training.weight_names import weight_names

SETTINGS = {"epochs": 2, "batch_size": 4, "learning_rate": 0.5, "warm_up_steps": 5, "strategy": "one"}


class GraphTrainSettings(ToyTrainSettings):
    """How a toy model with an ONNX graph is trained."""

    family: ClassVar[str] = "toy with a graph"


class GraphTask(ToyTask):
    """A toy whose export has the file of an ONNX graph too."""

    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        graph = tf.Module()
        graph.mean = tf.Variable(weights["model/0"])
        graph.predict = tf.function(lambda: {"mean": graph.mean + 0.0}, input_signature=())
        metadata = model_info("mean", self.settings, self.dataset, training, weight_names(self.module.model))
        files = {"model.onnx": bytes(100_000)}
        write_exported(folder, graph, {"predict": graph.predict}, metadata, files)


class GraphFamily(Family):
    name = GraphTrainSettings.family
    train_settings = GraphTrainSettings

    def task(self) -> type[GraphTask]:
        return GraphTask


def _make_tones(corpus: Path) -> None:
    write_dataset(corpus / "dataset", make_utterances(8, 4))


def _train(corpus: Path, folder: Path) -> StepOutput:
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    return train(corpus / "dataset", folder / "store", GraphTrainSettings.of(SETTINGS))


def _of_training(folder: Path) -> Any:
    """What later steps read; a graph, its fingerprint and the logs hold times and random numbers."""
    done, model = read_done(folder), folder / "model"
    reader = tf.train.load_checkpoint(str(model / VARIABLES))
    names = sorted(name for name in reader.get_variable_to_shape_map() if "OBJECT_GRAPH" not in name)
    metadata = json.loads((model / "model.json").read_text())
    return {
        # How long steps waited for their data says nothing of the result.
        "done": {name: done[name] for name in ("key", "counts", "outputs")},
        "metrics": {name: value for name, value in done["metrics"].items() if name != "data_wait"},
        "weights": [(name, hash_bytes(reader.get_tensor(name).tobytes())) for name in names],
        "loads": sorted(tf.saved_model.load(str(model)).signatures),
        "model.json": {name: value for name, value in metadata.items() if name != "provenance"},
        "files": {name: hash_file(folder / name) for name in ("model/model.onnx", "curves.json", "logs/curves.json")},
        "checkpoints": sorted(path.name for name in ("best", "checkpoints") for path in (folder / name).iterdir()),
        "all": sorted(file.name for file in folder.rglob("*") if not file.name.startswith(("events.", "."))),
    }


def _training_state(folder: Path) -> Any:
    return [_of_training(done.parent) for done in sorted(folder.glob("store/train/*/done.json"))]


TRAIN = Step(
    lambda corpus, folder: None,
    _train,
    None,
    _of_training,
    corpus=_make_tones,
    state=_training_state,
    forks=True,
    sample=2,
)

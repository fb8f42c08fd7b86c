"""Writes the logs of a training for TensorBoard, and its curves."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from voxline.inference.saved_model import CURVES_FILE
from voxline.inference.tensorflow_import import hidden_packages
from voxline.store.files import write_json
from voxline.training.task import Samples, ValidationResult

HISTOGRAM_BUCKETS = 30


class TrainingLogger:
    """Writes TensorBoard logs and curves.json.

    Args:
      active: False writes nothing, for workers other than the chief.
    """

    def __init__(self, folder: Path, *, active: bool = True) -> None:
        self.folder = folder
        self._writer: Any = tf.summary.create_file_writer(str(folder)) if active else tf.summary.create_noop_writer()

    def log_settings(self, settings: dict[str, Any], description: str) -> None:
        """Writes the settings: as hyperparameters, by which TensorBoard compares runs, and as text.

        Args:
          description: Markdown on the data, below the settings.
        """
        from voxline.settings import changed_settings

        # Settings by their dotted key, as one table.
        values = {key: value for key, _, value in changed_settings({}, settings)}
        lines = ["| setting | value |", "| --- | --- |", *(f"| {key} | {value} |" for key, value in values.items())]
        with self._writer.as_default(step=0):
            tf.summary.text("config", "\n".join(lines))
            tf.summary.text("data", description)
            # TensorFlow works without TensorBoard's plugins, and they without the client of S3.
            with contextlib.suppress(ImportError), hidden_packages("boto3"):
                from tensorboard.plugins.hparams import api

                api.hparams({key: _as_number(value) for key, value in values.items()})

        self._writer.flush()

    def log_step(self, step: int, values: dict[str, float]) -> None:
        """Writes one point of the training curves."""
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(f"train/{name}", value)

    def log_validation(self, result: ValidationResult, samples: Samples) -> None:
        with self._writer.as_default(step=result.step):
            for name, value in result.metrics.items():
                tf.summary.scalar(f"dev/{name}", value)
            for name, text in samples.texts.items():
                tf.summary.text(f"dev/{name}", text)
            for name, image in samples.images.items():
                tf.summary.image(f"dev/{name}", image[None])
            for name, audio in samples.audio.items():
                tf.summary.audio(f"dev/{name}", audio[None, :, None], samples.sample_rate)
        self._writer.flush()

    def log_averaged(self, trained: ValidationResult, averaged: ValidationResult) -> None:
        """Writes the metrics of both weights, to compare them; those of the better ones are under `dev/` too."""
        with self._writer.as_default(step=trained.step):
            for group, result in (("dev_trained", trained), ("dev_averaged", averaged)):
                for name, value in result.metrics.items():
                    tf.summary.scalar(f"{group}/{name}", value)

    def log_distributions(self, step: int, arrays: Iterable[tuple[str, Any]]) -> None:
        """Mean, standard deviation and histogram of each array, of its finite values; one after the other is read."""
        with self._writer.as_default(step=step):
            for name, array in arrays:
                # A histogram has no bucket for values that are not finite.
                values = array[np.isfinite(array)].astype(np.float64)
                if values.size:
                    tf.summary.scalar(f"{name}/mean", values.mean())
                    tf.summary.scalar(f"{name}/deviation", values.std())
                    counts, edges = np.histogram(values, HISTOGRAM_BUCKETS)
                    table = np.stack([edges[:-1], edges[1:], counts], axis=1)
                    tf.summary.write(name, table, metadata=_histogram_metadata())
        self._writer.flush()

    def write_curves(self, train: list[dict[str, float]], results: list[ValidationResult]) -> None:
        dev = [
            {"epoch": result.epoch, "step": result.step, **result.metrics}
            for result in results
            if result.score is not None
        ]
        write_json(self.folder / CURVES_FILE, {"train": train, "dev": dev})


def _histogram_metadata() -> Any:
    """Metadata by which TensorBoard draws a histogram: [buckets, 3], left and right edge and count.

    `tf.summary.histogram` computes them op by op, at a tenth of a short training's cost.
    """
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "histograms"
    metadata.data_class = 2  # DATA_CLASS_TENSOR
    return metadata


def _as_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text

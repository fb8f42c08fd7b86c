"""What a person watches: TensorBoard logs, and the same curves as JSON for reports.

logs/events.out.tfevents.*   losses, learning rate, gradient norm, figures of dev, samples of it
logs/curves.json             {"train": [{"step", "loss", "learning_rate", "gradient_norm"}, …], "dev": [{…}, …]}
"""

from pathlib import Path
from typing import Any

import tensorflow as tf

from components.speech.storage import write_json
from components.train.looks import Look, Samples

CURVES = "curves.json"


class Watch:
    """Writes the logs of a run.

    Args:
      active: False on workers other than the chief; nothing is written then.
    """

    def __init__(self, folder: Path, *, active: bool = True) -> None:
        self.folder = folder
        self._writer: Any = tf.summary.create_file_writer(str(folder)) if active else tf.summary.create_noop_writer()

    def step(self, step: int, values: dict[str, float]) -> None:
        """One point of the training curves, by name."""
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(f"train/{name}", value)

    def look(self, look: Look, samples: Samples) -> None:
        """One look at dev, with what is to be seen and heard of it."""
        with self._writer.as_default(step=look.step):
            for name, value in look.figures.items():
                tf.summary.scalar(f"dev/{name}", value)
            for name, text in samples.texts.items():
                tf.summary.text(f"dev/{name}", text)
            for name, image in samples.images.items():
                tf.summary.image(f"dev/{name}", image[None])
            for name, audio in samples.audio.items():
                tf.summary.audio(f"dev/{name}", audio[None, :, None], samples.sample_rate)
        self._writer.flush()

    def curves(self, train: list[dict[str, float]], looks: list[Look]) -> None:
        dev = [{"epoch": look.epoch, "step": look.step, **look.figures} for look in looks if look.score is not None]
        write_json(self.folder / CURVES, {"train": train, "dev": dev})

"""What a person watches: TensorBoard logs, and the same curves as JSON for reports.

logs/events.out.tfevents.*   losses, learning rate, gradient norm, dev WER, sample transcripts
logs/curves.json             {"train": [{"step", "loss", "learning_rate", "gradient_norm"}, …], "dev": [{…}, …]}
"""

from pathlib import Path
from typing import Any

import tensorflow as tf

from components.speech.storage import write_json
from components.train.schedule import Look

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

    def look(self, look: Look, samples: list[tuple[str, str, str]]) -> None:
        """One look at dev, with some transcripts: (id, said, recognised)."""
        with self._writer.as_default(step=look.step):
            for name, value in (("wer", look.wer), ("loss", look.loss)):
                if value is not None:
                    tf.summary.scalar(f"dev/{name}", value)
            if samples:
                lines = ["| utterance | said | recognised |", "| --- | --- | --- |"]
                lines += [f"| {name} | {said} | {heard} |" for name, said, heard in samples]
                tf.summary.text("dev/transcripts", "\n".join(lines))
        self._writer.flush()

    def curves(self, train: list[dict[str, float]], looks: list[Look]) -> None:
        dev = [
            {"epoch": look.epoch, "step": look.step, "wer": look.wer, "loss": look.loss}
            for look in looks
            if look.wer is not None
        ]
        write_json(self.folder / CURVES, {"train": train, "dev": dev})

"""How long a training takes on this machine: `voxline config init` times some steps of the network that it proposes.

Some recordings from all over the corpus go through ingest, convert and extract as in a run, in a scratch folder, and
the network trains on their features for a few seconds. Nothing is downloaded, and nothing of it is kept. The figure is
of the training alone: convert and extract take seconds to minutes, and evaluate too.
"""

import contextlib
import dataclasses
import io
import itertools
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from voxline.components.ingest.staging import ProbedUtterance
from voxline.errors import WorkError
from voxline.families.family import find_family
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.config.scaffold import ConfigProposal
from voxline.pipelines.local.single_step import last_output, run_step
from voxline.store.scratch import scratch_root

SAMPLED = 52
"""Utterances that the timed steps train on, and those of dev and test that ingest asks for."""
HELD_OUT = 4
LARGEST_SAMPLE = 500_000_000
"""Bytes of recordings that are copied at most."""
SECONDS = 3.0
"""Seconds after which no further step is timed."""
MOST_STEPS = 12
MUCH_LESS = 0.5
"""Share of the measured time below which the processor time is given too: other programs were running."""
Moment = tuple[float, float]
"""Seconds: of a clock, and of the processor."""
FORWARD_SHARE = 1 / 3
"""Of a training step, what a validation of as many utterances takes: it has no gradients."""


@dataclasses.dataclass(frozen=True)
class TrainingTime:
    """The time that a training takes, in seconds.

    Attributes:
      step: a step, its data included, on average.
      timed: how many were timed.
      total: the training as it is planned, if the machine stays as busy as it is.
      alone: the same in processor time: about what it takes where nothing else runs.
    """

    step: float
    timed: int
    total: float
    alone: float


def time_training(proposal: ConfigProposal) -> TrainingTime:
    """Times some steps of a proposed training.

    Raises:
      WorkError: too few of the recordings can be copied.
      SettingsError: a step refuses the config.
    """
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch, contextlib.redirect_stdout(io.StringIO()):
        corpus = Path(scratch) / "corpus"
        run_dir = Path(scratch) / "run"
        _copy_sample(proposal.corpus, proposal.entries, corpus)
        config = _config_of_sample(proposal, corpus)
        for name in ("ingest", "convert", "extract"):
            run_step(name, config, run_dir, {})

        train = config.section("train").plain()
        began = _moment()
        start, steps = _time_steps(*_build(config, run_dir), train["learning_rate"], began)

    # Validations have no gradients.
    step, processor = np.mean(steps, axis=0).tolist()
    planned = proposal.steps + FORWARD_SHARE * proposal.validated / train["batch_size"]
    return TrainingTime(step, len(steps), start[0] + planned * step, start[1] + planned * processor)


def _copy_sample(root: Path, entries: Sequence[ProbedUtterance], folder: Path) -> None:
    """Writes a corpus of some utterances, with a manifest; two of the last ones are dev, two test."""
    folder.mkdir()
    # From all over the corpus, which may be sorted by length or by speaker.
    sample = random.Random(0).sample(list(entries), min(SAMPLED, len(entries)))
    copies: dict[str, str] = {}
    lines: list[dict[str, Any]] = []
    copied = 0
    for entry in sample:
        recording = root / entry.path
        try:
            copied += 0 if entry.path in copies else recording.stat().st_size
            if copied > LARGEST_SAMPLE:
                break
            if entry.path not in copies:
                name = f"{len(copies)}{recording.suffix}"
                shutil.copyfile(recording, folder / name)
                copies[entry.path] = name
        except OSError:
            continue
        line = {"audio_filepath": copies[entry.path], "text": entry.text, "id": str(len(lines)), "offset": entry.offset}
        lines.append({**line, **({"duration": entry.duration} if entry.duration else {})})

    if len(lines) < 2 * HELD_OUT:
        raise WorkError(f"only {len(lines)} recordings outside archives can be copied")
    splits = ["train"] * (len(lines) - HELD_OUT) + ["dev", "test"] * (HELD_OUT // 2)
    manifest = "".join(f"{json.dumps({**line, 'split': split})}\n" for line, split in zip(lines, splits, strict=True))
    (folder / "manifest.jsonl").write_text(manifest, encoding="utf-8")


def _config_of_sample(proposal: ConfigProposal, corpus: Path) -> RunConfig:
    """The proposed config on the sample; copies at other speeds would take as long as the recordings themselves."""
    changes: dict[str, Any] = {
        "corpus": {"uri": str(corpus), "format": "manifest", "split": {"by": "corpus"}, "max_reject_share": 1.0},
        "convert": {"max_reject_share": 1.0},
        "extract": {"speeds": [1.0]},
    }
    return load_config([proposal.text, changes])


def _build(config: RunConfig, run_dir: Path) -> tuple[Any, Any]:
    """The network with its optimizer, and the batches of train."""
    from voxline.data.dataset import Dataset

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    dataset = Dataset.read(last_output(run_dir, "extract") or "")
    family = find_family(config.pipeline)
    task = family.build_task(family.training_settings(config.section("train")), dataset)
    return task.module, task.train


def _time_steps(module: Any, batches: Any, rate: float, began: Moment) -> tuple[Moment, list[Moment]]:
    """The time until the first step had ended, which compiles the network, and that of each further step.

    Args:
      began: the moment at which the start began.
    """
    # The sample has a few batches, so its epochs follow each other until the time is up.
    endless = itertools.chain.from_iterable(map(batches.epoch, itertools.count()))
    moments = [began]
    for number, batch in enumerate(itertools.islice(endless, MOST_STEPS + 1)):
        module.train_step(batch, rate, number)
        moments.append(_moment())
        if number and moments[-1][0] - moments[1][0] > SECONDS:
            break
    first, *others = ((end[0] - start[0], end[1] - start[1]) for start, end in itertools.pairwise(moments))
    return first, others


def _moment() -> Moment:
    return time.monotonic(), time.process_time()


def describe_time(seconds: float) -> str:
    """A time as a person says it.

    >>> describe_time(40), describe_time(1_000), describe_time(9_000)
    ('less than a minute', 'about 17 minutes', 'about 2.5 hours')
    """
    if seconds < 60:
        return "less than a minute"
    minutes = round(seconds / 60)
    return (
        f"about {minutes} minute{'s' if minutes > 1 else ''}" if minutes < 90 else f"about {seconds / 3600:.1f} hours"
    )


def describe_training_time(measured: TrainingTime, steps: int) -> str:
    """A line for the terminal."""
    # Of a busy machine, two figures: the nights when it trains may be quieter.
    alone = (
        f"; {describe_time(measured.alone)} if nothing else ran" if measured.alone < MUCH_LESS * measured.total else ""
    )
    return (
        f"time       {describe_time(measured.total)} of training on this machine: {steps:,} steps of "
        f"{measured.step:.2g} s, {measured.timed} of them timed{alone}"
    )

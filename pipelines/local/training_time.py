"""How long a training takes on this machine: some steps of its network are timed.

`voxline config init` times the network that it proposes, and `voxline run --dry-run` that of a config.

Some recordings from all over the corpus go through ingest, convert and extract as in a run, in a scratch folder, and
the network trains on their features for a few seconds. Nothing is downloaded, and nothing of it is kept. The figure is
of the training alone: convert and extract take seconds to minutes, and evaluate too.
"""

import contextlib
import dataclasses
import io
import itertools
import json
import math
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
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.families.family import find_family
from voxline.inference.tensorflow_import import silence_stderr
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.config.scaffold import ConfigProposal
from voxline.pipelines.local.single_step import last_output, run_step
from voxline.settings import merge
from voxline.store.finished import read_done
from voxline.store.objects import open_store
from voxline.store.scratch import scratch_root
from voxline.store.uris import is_remote

SAMPLED = 52
"""Utterances that the timed steps train on, and those of dev and test that ingest asks for."""
HELD_OUT = 4
MOST_SAMPLED = 1_000
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
      accelerators: on which it ran.
    """

    step: float
    timed: int
    total: float
    alone: float
    accelerators: int = 0


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
        start, steps = _time_steps(
            *_build(config, last_output(run_dir, "extract") or ""), train["learning_rate"], began
        )
    return _add_up(start, steps, proposal.steps + FORWARD_SHARE * proposal.validated / train["batch_size"])


def time_run(config: RunConfig, dataset: str, manifest: str) -> TrainingTime:
    """Times some steps of a config's training.

    Args:
      config: with all locations set.
      dataset: location of the features; empty: some recordings of the corpus are made into features first.
      manifest: location of the ingested corpus, for the number of its utterances; empty: it is ingested first.

    Raises:
      WorkError: the training or its corpus is of a kind that is not timed.
      SettingsError: a step refuses the config.
    """
    train: Any = config.section("train")
    if train.start.model:
        raise WorkError(f"a training that starts from a model ({train.start.model}) is not timed")
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch, contextlib.redirect_stdout(io.StringIO()):
        counts: dict[str, int] = {}
        if not dataset:
            counts, dataset = _extract_sample(config, manifest, Path(scratch))
        began = _moment()
        module, batches = _build(config, dataset)
        start, steps = _time_steps(module, batches, train.learning_rate, began)
    accelerators = _accelerators()

    # The features of all are there, or those of a sample: then the steps follow from the number of utterances.
    if counts:
        in_step = batches.utterances / batches.steps if train.batch_seconds else train.step_size
        copies = len(config.extract.speeds)
        # Each recording is there once for each speed.
        of_epoch = math.ceil(counts["train"] * copies / in_step)
        planned = train.epochs * of_epoch
        dev = counts["dev"]
    else:
        planned = sum(map(batches.steps_of, range(train.epochs)))
        dev = Dataset.read(dataset).counts.get("dev", 0)
    validations = planned / train.evaluate_steps if train.evaluate_steps else train.epochs / train.evaluate_epochs
    return _add_up(start, steps, planned + FORWARD_SHARE * validations * dev / train.batch_size, accelerators)


def _add_up(start: Moment, steps: list[Moment], planned: float, accelerators: int = 0) -> TrainingTime:
    """The time of a start and of the planned steps; validations, which have no gradients, are counted as some."""
    step, processor = np.mean(steps, axis=0).tolist()
    # The start, which compiles the network, is paid for once.
    total = start[0] + planned * step
    alone = start[1] + planned * processor
    return TrainingTime(step, len(steps), total, alone, accelerators)


def _extract_sample(config: RunConfig, manifest: str, scratch: Path) -> tuple[dict[str, int], str]:
    """The utterances of a corpus by split, and the dataset of some of them.

    Raises:
      WorkError: the corpus is not one folder on this machine.
    """
    # Nothing is downloaded or unpacked for a figure.
    corpus = config.corpus
    if corpus.are_merged or is_remote(corpus.uri) or not Path(corpus.uri).is_dir():
        raise WorkError(f"{corpus.uri or 'the corpus'} is not one folder on this machine; run until extract first")
    # The config's own store, registry and datasets stay as they are.
    values = {
        **config.plain(),
        "store": "",
        "registry": "",
        **({"datasets": ""} if hasattr(config, "datasets") else {}),
    }
    if manifest:
        counts = read_done(open_store(manifest).local_path())["counts"]
    else:
        counts = run_step("ingest", type(config).model_validate(values), scratch / "whole", {}).counts

    # Enough for two batches, from all over each split. Other speeds would take as long as the recordings themselves.
    train: Any = config.section("train")
    sampled = min(max(SAMPLED, 2 * train.step_size), MOST_SAMPLED)
    limits = {"train": sampled, "dev": HELD_OUT, "test": HELD_OUT}
    sample = merge(
        values,
        {
            "corpus": {"limits": limits, "max_reject_share": 1.0},
            "convert": {"max_reject_share": 1.0},
            "extract": {"speeds": [1.0]},
        },
    )
    for name in ("ingest", "convert", "extract"):
        run_step(name, type(config).model_validate(sample), scratch / "sample", {})
    return counts, last_output(scratch / "sample", "extract") or ""


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


def _build(config: RunConfig, dataset: str) -> tuple[Any, Any]:
    """The network with its optimizer, and the batches of train."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    family = find_family(config.pipeline)
    with silence_stderr():  # of notes on what this processor lacks
        task = family.build_task(family.training_settings(config.section("train")), Dataset.read(dataset))
    return task.module, task.train


@silence_stderr()
def _time_steps(module: Any, batches: Any, rate: float, began: Moment) -> tuple[Moment, list[Moment]]:
    """The time until the first step had ended, which compiles the network, and that of each further step.

    Args:
      began: the moment at which the start began.
    """
    # The sample has a few batches, so its epochs follow each other until the time is up.
    endless = itertools.chain.from_iterable(map(batches.epoch, itertools.count()))
    moments = [began]
    for number, batch in enumerate(itertools.islice(endless, MOST_STEPS + 1)):
        module.train_step(batch, rate, number).loss  # noqa: B018 - read, a device has ended the step
        moments.append(_moment())
        if number and moments[-1][0] - moments[1][0] > SECONDS:
            break
    first, *others = ((end[0] - start[0], end[1] - start[1]) for start, end in itertools.pairwise(moments))
    return first, others


def _accelerators() -> int:
    """GPUs or TPU cores of this machine; TensorFlow is loaded already."""
    from voxline.training import devices

    return devices.accelerator_count(devices.choose_strategy("auto")) if devices.has_accelerator() else 0


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

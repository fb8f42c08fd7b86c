"""What a warm start saves and what it costs, on the Free Spoken Digit Dataset with more of it to test on than usual.

  python -m benchmarks.warm_start FSDD_FOLDER      (make bench-warm-start FSDD=…)

Takes 0 to 19 of each speaker and digit are the test split, takes 20 to 46 the corpus of before, 47 to 49 what it grew
by: a tenth. A model trained on the corpus of before goes into service. Then:

  from random weights     a model trained on all, the yardstick
  warm start              from the model in service, on all
  five generations        the corpus grows in five parts, and each model starts from the one before
  the new part alone      from the model in service, five of the ten digits, no replay: the gate must refuse it

Costs are processor time of the train step, without the import of TensorFlow. Differences of word error rates are
paired, with the bound that the gate looks at (95% confidence).
"""

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.evaluate.settings import AsrEvaluateSettings
from voxline.components.evaluate.step import run as evaluate
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run as extract
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.ingest.step import run as ingest
from voxline.components.push.settings import AsrPushSettings
from voxline.components.push.step import run as push
from voxline.components.train.asr.settings import AsrTrainSettings
from voxline.components.train.step import run as train
from voxline.data.manifest import Utterance, read_manifest, write_manifest
from voxline.metrics.bootstrap import Bootstrap, aggregate
from voxline.metrics.evaluation import Evaluation
from voxline.pipelines.config.load import load_config
from voxline.store.step_cache import StepOutput

TEST_TAKES, OLD_TAKES, ALL_TAKES = 20, 47, 50
"""Takes below the first are tested on; from the second on they are new; there are no more than the third."""
GENERATIONS = 5
START = {"epochs": 2, "replay": 0.5, "rate_share": 0.1}
CONFIG = "configs/asr/fsdd.yaml"


class Nights:
    """A store and a registry in a folder, and the model `digits` in it."""

    def __init__(self, corpus: str, folder: Path) -> None:
        self.folder, self.store, self.registry = folder, folder / "store", folder / "registry"
        self.config = load_config(CONFIG)
        made = ingest(self.store, CorporaSettings(uri=corpus, format="fsdd"))
        output = convert(made.folder, self.store, ConvertSettings.of(self.config.convert.plain()))
        self.all = [one for one in read_manifest(output.folder) if take(one) < ALL_TAKES]

    def dataset(self, name: str, chosen: Callable[[Utterance], bool]) -> tuple[Path, StepOutput]:
        """A manifest and a dataset of some utterances; the first in fifty to train on are the dev split."""
        utterances = [one.replace(split=_split(one)) for one in self.all if chosen(one)]
        (self.folder / name).mkdir()
        write_manifest(self.folder / name / "manifest.jsonl", utterances)
        settings = ExtractSettings.of(self.config.extract.plain())
        return self.folder / name, extract(self.folder / name, self.store, settings)

    def train(self, dataset: StepOutput, start: dict[str, Any] | None = None) -> "Training":
        values = {**self.config.train.plain(), "name": "digits", "start": start or {}}
        began = time.process_time()
        output = train(dataset.folder, self.store, AsrTrainSettings.of(values), self.registry)
        return Training(output, time.process_time() - began, int(output.metrics["steps"]))

    def evaluate(self, training: "Training", corpus: Path) -> Evaluation:
        settings = AsrEvaluateSettings(model_name="digits")
        return Evaluation.read(
            evaluate(training.output.path("model"), corpus, self.registry, self.store, settings).folder
        )

    def judge(self, training: "Training", corpus: Path) -> tuple[Evaluation, str]:
        """Evaluates a model, and offers it to the registry; the verdict in words."""
        measured = self.evaluate(training, corpus)
        gate = AsrPushSettings(model_name="digits", smoke_test=False, limits={"wer": 1.0})
        verdict = push(training.output.path("model"), measured.folder, self.registry, self.store, gate)
        return measured, str(json.loads(verdict.path("verdict").read_text())["heading"])


@dataclasses.dataclass(frozen=True)
class Training:
    """A training: what it wrote, its seconds of processor time and its steps."""

    output: StepOutput
    seconds: float
    steps: int


def take(utterance: Utterance) -> int:
    return int(utterance.id.rpartition("_")[2].partition(".")[0])


def digit(utterance: Utterance) -> int:
    return int(utterance.id.split("_")[0][-1])


def _split(utterance: Utterance) -> str:
    if take(utterance) < TEST_TAKES:
        return "test"
    return "dev" if (take(utterance) + len(utterance.speaker)) % 25 == 0 else "train"


def rate(measured: Evaluation) -> float:
    return aggregate([result.metrics["wer"] for result in measured.results], "rate") or 0.0


def compare(one: Evaluation, other: Evaluation) -> str:
    """The difference to another model's word error rate on the same utterances, and its upper bound."""
    theirs = {result.id: result.metrics["wer"] for result in other.results}
    mine = [result.metrics["wer"] for result in one.results]
    speakers = [result.speaker for result in one.results]
    compared = Bootstrap(0.95, 2000, 0, 10).compare(mine, [theirs[result.id] for result in one.results], speakers)
    return f"{100 * compared.difference:+.2f} points, at most {100 * compared.highest:+.2f}"


class Table:
    """Prints a row as soon as it is measured."""

    def __init__(self) -> None:
        self.whole: Training | None = None
        self.yardstick: Evaluation | None = None
        self.show("training", "CPU s", "steps", "share of both", "WER", "against all from random weights", "verdict")
        self.show(*["---"] * 7)

    def show(self, *cells: str) -> None:
        print("| " + " | ".join(cells) + " |", file=sys.__stdout__, flush=True)

    def add(self, name: str, training: Training, measured: Evaluation, verdict: str) -> None:
        share = difference = ""
        if self.whole and self.yardstick:
            share = f"{training.seconds / self.whole.seconds:.0%}, {training.steps / self.whole.steps:.1%}"
            same = len(measured.results) == len(self.yardstick.results)
            difference = compare(measured, self.yardstick) if same else ""
        self.show(
            name, f"{training.seconds:.0f}", f"{training.steps:,}", share, f"{rate(measured):.2%}", difference, verdict
        )


def main(corpus: str) -> None:
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(sys.stderr):
        nights, table = Nights(corpus, Path(name)), Table()
        old, of_old = nights.dataset("old", lambda one: take(one) < OLD_TAKES)
        grown, of_grown = nights.dataset("grown", lambda one: True)

        first = nights.train(of_old)
        measured, verdict = nights.judge(first, old)
        table.add("the corpus of before, from random weights", first, measured, verdict)

        scratch = nights.train(of_grown)
        measured = nights.evaluate(scratch, grown)
        table.add("all, from random weights", scratch, measured, "not offered")
        table.whole, table.yardstick = scratch, measured

        part, of_part = nights.dataset("part", lambda one: digit(one) < 5)
        forgetful = nights.train(of_part, {"model": "digits@production", "replay": 0.0, "rate_share": 1.0})
        measured, verdict = nights.judge(forgetful, part)
        table.add("what is new of five digits alone, no replay, full rate", forgetful, measured, verdict)

        warm = nights.train(of_grown, {**START, "model": "digits@production"})
        measured, verdict = nights.judge(warm, grown)
        table.add("all, from the model in service", warm, measured, verdict)

        model, total = first, Training(first.output, 0.0, 0)
        for generation in range(1, GENERATIONS + 1):
            _, dataset = nights.dataset(
                f"generation-{generation}",
                lambda one, heard=generation: take(one) < OLD_TAKES or (take(one) + digit(one)) % GENERATIONS < heard,
            )
            model = nights.train(dataset, {**START, "model": str(model.output.path("model"))})
            total = Training(model.output, total.seconds + model.seconds, total.steps + model.steps)
        table.add("all in five generations", total, nights.evaluate(model, grown), "not offered")


if __name__ == "__main__":
    main(sys.argv[1])

"""What a warm start saves and what it costs, on the Free Spoken Digit Dataset with more of it to test on than usual.

  python -m benchmarks.warm_start FSDD_FOLDER      (make bench-warm-start FSDD=…)

Takes 0 to 19 of each speaker and digit are the test split, takes 20 to 46 the corpus of before, 47 to 49 what it grew
by: a tenth. A model trained on the corpus of before goes into service. Then:

  from random weights     a model trained on all, the yardstick
  warm start              from the model in service, on all
  five generations        the corpus grows in five parts, and each model starts from the one before
  the new part alone      from the model in service, five of the ten digits, no replay: the gate must refuse it

Each model ships with the ten words of the corpus (a bigram), as in configs/asr/fsdd-deepspeech.yaml, and is judged by
them; its greedy transcripts are shown beside. They say how well a network spells: one that has learned "for" has every
"four" wrong, a tenth of all words, and another seed has none.

Several seeds: the last rows are of all of them together; what is resampled is an utterance, with its errors at all
seeds. Costs are processor time of the train step, without the import of TensorFlow. Differences of word error rates are
paired, with the bound that the gate looks at (95% confidence).
"""

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.evaluate.step import run as evaluate
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run as extract
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.ingest.step import run as ingest
from voxline.components.language.settings import LanguageSettings
from voxline.components.language.step import run as add_language
from voxline.components.push.step import run as push
from voxline.components.train.step import run as train
from voxline.data.manifest import Utterance, read_manifest, write_manifest
from voxline.families.asr.settings import AsrEvaluateSettings, AsrPushSettings, AsrTrainSettings
from voxline.metrics.bootstrap import Bootstrap, SumAndWeight, aggregate
from voxline.metrics.evaluation import Evaluation
from voxline.metrics.wer import count_word_edits
from voxline.pipelines.config.load import load_config
from voxline.store.step_cache import StepOutput

TEST_TAKES, OLD_TAKES, ALL_TAKES = 20, 47, 50
"""Takes below the first are tested on; from the second on they are new; there are no more than the third."""
GENERATIONS = 5
START = {"epochs": 2, "replay": 0.5, "rate_share": 0.03}
"""Of a warm start. At the default rate of a tenth a child is worse than its parent here: docs/warm-start.md."""
CONFIG = "configs/asr/fsdd.yaml"
WORDS = LanguageSettings(kind="ngram", order=2, alpha=1.0, beta=0.0)


class Nights:
    """A store in a folder, and for each seed a registry with the model `digits`."""

    def __init__(self, corpus: str, folder: Path) -> None:
        self.folder, self.store, self.registry = folder, folder / "store", folder / "registry"
        self.costs = folder / "costs.json"
        self.config, self.seed = load_config(CONFIG), 0
        made = ingest(self.store, CorporaSettings(uri=corpus, format="fsdd"))
        output = convert(made.folder, self.store, ConvertSettings.of(self.config.convert.plain()))
        self.all = [one for one in read_manifest(output.folder) if take(one) < ALL_TAKES]

    def begin(self, seed: int) -> None:
        self.seed, self.registry = seed, self.folder / f"registry-{seed}"
        shutil.rmtree(self.registry, ignore_errors=True)

    def dataset(self, name: str, chosen: Callable[[Utterance], bool]) -> tuple[Path, StepOutput]:
        """A manifest and a dataset of some utterances; the first in fifty to train on are the dev split."""
        utterances = [one.replace(split=_split(one)) for one in self.all if chosen(one)]
        (self.folder / name).mkdir(exist_ok=True)
        write_manifest(self.folder / name / "manifest.jsonl", utterances)
        settings = ExtractSettings.of(self.config.extract.plain())
        return self.folder / name, extract(self.folder / name, self.store, settings)

    def train(self, dataset: StepOutput, start: dict[str, Any] | None = None) -> "Training":
        """What was trained before keeps the cost that it had."""
        values = {**self.config.train.plain(), "name": "digits", "seed": self.seed, "start": start or {}}
        began = time.process_time()
        output = train(dataset.folder, self.store, AsrTrainSettings.of(values), self.registry)
        costs = json.loads(self.costs.read_text()) if self.costs.is_file() else {}
        seconds = costs.setdefault(output.folder.name, time.process_time() - began)
        self.costs.write_text(json.dumps(costs))
        return Training(output, seconds, int(output.metrics["steps"]))

    def evaluate(self, training: "Training", corpus: Path) -> Evaluation:
        return self._evaluate(training, corpus)[1]

    def judge(self, training: "Training", corpus: Path) -> tuple[Evaluation, str]:
        """Evaluates a model, and offers it to the registry; the verdict in words."""
        model, measured = self._evaluate(training, corpus)
        gate = AsrPushSettings(model_name="digits", smoke_test=False, limits={"wer": 1.0})
        verdict = push(model, measured.folder, self.registry, self.store, gate)
        return measured, str(json.loads(verdict.path("verdict").read_text())["heading"])

    def _evaluate(self, training: "Training", corpus: Path) -> tuple[Path, Evaluation]:
        """The model with the ten words, and its evaluation."""
        model = add_language(training.output.folder, corpus, self.store, WORDS).path("model")
        settings = AsrEvaluateSettings(model_name="digits")
        return model, Evaluation.read(evaluate(model, corpus, self.registry, self.store, settings).folder)


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


def rate(*measured: Evaluation, greedy: bool = False) -> str:
    return f"{aggregate(list(_by_utterance(measured, greedy).values()), 'rate') or 0.0:.2%}"


def compare(ones: Sequence[Evaluation], others: Sequence[Evaluation], greedy: bool = False) -> str:
    """The difference to the word error rate of other models on the same utterances, and its upper bound."""
    mine, theirs = _by_utterance(ones, greedy), _by_utterance(others, greedy)
    names = [""] * len(mine)  # six speakers are too few to resample
    compared = Bootstrap(0.95, 2000, 0).compare(list(mine.values()), [theirs[name] for name in mine], names)
    return f"{100 * compared.difference:+.2f} points, at most {100 * compared.highest:+.2f}"


def _by_utterance(measured: Sequence[Evaluation], greedy: bool) -> dict[str, SumAndWeight]:
    """Errors and words of each utterance, summed over the models."""
    sums: dict[str, SumAndWeight] = {}
    for result in (result for each in measured for result in each.results):
        errors, words = result.metrics["wer"]
        if greedy:
            (edits,) = count_word_edits([result.details["reference"]], [result.details["greedy_hypothesis"]])
            errors = edits.errors
        before = sums.get(result.id, SumAndWeight(0, 0))
        sums[result.id] = SumAndWeight(before[0] + errors, before[1] + words)
    return sums


@dataclasses.dataclass
class Seed:
    """What was trained with one seed, and how good each of it is."""

    scratch: Training
    of_scratch: Evaluation
    warm: Training
    of_warm: Evaluation
    last: Training
    of_last: Evaluation


def show(*cells: str) -> None:
    """Prints a row as soon as it is measured."""
    print("| " + " | ".join(cells) + " |", file=sys.__stdout__, flush=True)


def show_training(seed: int, name: str, training: Training, measured: Evaluation, *others: str) -> None:
    show(
        str(seed),
        name,
        f"{training.seconds:.0f}",
        f"{training.steps:,}",
        rate(measured),
        rate(measured, greedy=True),
        *others,
    )


def share(training: Training, whole: Training) -> str:
    return f"{training.seconds / whole.seconds:.0%} and {training.steps / whole.steps:.1%}"


def run_seed(nights: Nights, seed: int, earlier: Sequence[Seed], forgets: bool) -> Seed:
    """All trainings with one seed.

    Args:
      earlier: the seeds before; with the first of them the training from random weights is compared.
      forgets: whether to train on the new part alone too.
    """
    nights.begin(seed)
    old, of_old = nights.dataset("old", lambda one: take(one) < OLD_TAKES)
    grown, of_grown = nights.dataset("grown", lambda one: True)
    first = nights.train(of_old)
    measured, verdict = nights.judge(first, old)
    show_training(seed, "the corpus of before, from random weights", first, measured, "", "", verdict)

    scratch = nights.train(of_grown)
    of_scratch = nights.evaluate(scratch, grown)
    other = f"{compare([of_scratch], [earlier[0].of_scratch])} (the same of another seed)" if earlier else ""
    show_training(seed, "all, from random weights", scratch, of_scratch, "", other, "not offered")

    if forgets:
        part, of_part = nights.dataset("part", lambda one: digit(one) < 5)
        forgetful = nights.train(of_part, {"model": "digits@production", "replay": 0.0, "rate_share": 1.0})
        measured, verdict = nights.judge(forgetful, part)
        name = "what is new of five digits alone, no replay, full rate"
        show_training(seed, name, forgetful, measured, share(forgetful, scratch), "", verdict)

    warm = nights.train(of_grown, {**START, "model": "digits@production"})
    of_warm, verdict = nights.judge(warm, grown)
    difference = compare([of_warm], [of_scratch])
    show_training(seed, "all, from the model in service", warm, of_warm, share(warm, scratch), difference, verdict)

    model, total = first, Training(first.output, 0.0, 0)
    for generation in range(1, GENERATIONS + 1):
        _, dataset = nights.dataset(
            f"generation-{generation}",
            lambda one, heard=generation: take(one) < OLD_TAKES or (take(one) + digit(one)) % GENERATIONS < heard,
        )
        model = nights.train(dataset, {**START, "model": str(model.output.path("model"))})
        total = Training(model.output, total.seconds + model.seconds, total.steps + model.steps)
    of_last = nights.evaluate(model, grown)
    difference = compare([of_last], [of_scratch])
    show_training(seed, "all in five generations", total, of_last, share(total, scratch), difference, "not offered")
    return Seed(scratch, of_scratch, warm, of_warm, total, of_last)


def main(corpus: str, seeds: int, folder: Path) -> None:
    with contextlib.redirect_stdout(sys.stderr):
        importlib.import_module("voxline.training.trainer")  # TensorFlow: no part of what a training costs
        nights, done = Nights(corpus, folder), list[Seed]()
        columns = ("seed", "training", "CPU s", "steps", "WER", "greedy", "share of CPU s and steps")
        show(*columns, "against all from random weights", "verdict")
        show(*["---"] * 9)
        for seed in range(1, seeds + 1):
            done.append(run_seed(nights, seed, done, forgets=seed == 1))
        show_together(done)


def show_together(seeds: Sequence[Seed]) -> None:
    """The rows of all seeds together."""
    scratch, warm, last = ([getattr(one, f"of_{name}") for one in seeds] for name in ("scratch", "warm", "last"))
    whole = _sum([one.scratch for one in seeds])

    def row(name: str, measured: Sequence[Evaluation], *others: str) -> None:
        show(f"1 to {len(seeds)}", name, "", "", rate(*measured), rate(*measured, greedy=True), *others)

    def against(ones: Sequence[Evaluation], others: Sequence[Evaluation]) -> str:
        return f"{compare(ones, others)} (greedy {compare(ones, others, greedy=True)})"

    row("all, from random weights", scratch, "", "", "")
    warm_share = share(_sum([one.warm for one in seeds]), whole)
    row("all, from the model in service", warm, warm_share, against(warm, scratch), "")
    last_share = share(_sum([one.last for one in seeds]), whole)
    row("all in five generations", last, last_share, against(last, scratch), "")
    row("all in five generations, against one warm start", last, "", against(last, warm), "")


def _sum(trainings: Sequence[Training]) -> Training:
    """Seconds and steps of all."""
    sums = sum(one.seconds for one in trainings), sum(one.steps for one in trainings)
    return Training(trainings[0].output, *sums)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.warm_start")
    parser.add_argument("corpus", help="folder of FSDD")
    parser.add_argument("--seeds", type=int, default=3, help="seeds from 1 on (3)")
    parser.add_argument("--folder", type=Path, help="keeps what was trained, and resumes there (none)")
    options = parser.parse_args()
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
        main(options.corpus, options.seeds, options.folder)
    else:
        with tempfile.TemporaryDirectory() as scratch_folder:
            main(options.corpus, options.seeds, Path(scratch_folder))

"""What `voxline search` finds from a bad learning rate, and what successive halving saves.

  python -W ignore -m benchmarks.search [FOLDER [halving|demo [SEED]]]      (make bench-search; again, it resumes)

From a bad rate, on the demo: the shipped config trains once, and its dev WER is the yardstick, decoded with the
language model as in production; the WER of greedy decoding is printed beside it. A search over settings of training
and of decoding then begins at a rate of 1e-4, a fiftieth of the shipped one, and ends at a dev WER of at most 0.3
points above the shipped one. Bars: at most twelve trials, at most ten minutes, with two trials at a time on two cores.
The same search of the same store, in another folder: no training. One training is one draw of what its settings are
worth, and 0.3 points of the demo's dev are less than a word; so the winner and the shipped config train with another
seed too, which is printed beside the bar.

Halving beside random, for three seeds, on a smaller corpus and model: nine trials each, of 18 choices of settings.
Both draw the same ones, and the rate does not depend on the last step, so what halving trains is the beginning of what
random trains. Each choice is therefore trained once, by the step's own trainer, on one graph, of which the varied
settings are no part. The studies are those of the command, and each counts the steps that it would have made alone.
Bar: the median of halving's steps is at most half of random's, for the same dev WER. The best choice is trained again
by the step itself, from its first step, which must come to the same dev WER.

CPU-minutes are processor time, with one thread for each process; minutes are the clock's.
"""

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

THREADS = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
os.environ |= {**THREADS, "TF_CPP_MIN_LOG_LEVEL": "2"}  # before TensorFlow is imported

from voxline.pipelines.config.load import load_config  # noqa: E402
from voxline.pipelines.local.single_step import call_step, last_output  # noqa: E402
from voxline.pipelines.search.search import WINNER  # noqa: E402
from voxline.pipelines.search.space import Space, with_settings  # noqa: E402
from voxline.pipelines.search.study import Study  # noqa: E402
from voxline.pipelines.search.trial_files import Training, Trial, read_trials  # noqa: E402
from voxline.store.files import read_json, write_text  # noqa: E402
from voxline.store.finished import read_done  # noqa: E402
from voxline.store.hashing import hash_value  # noqa: E402

if TYPE_CHECKING:
    from voxline.training.task import ValidationResult

DEMO = "configs/asr/demo.yaml"
SPACE = """
train.learning_rate: {log: [1.0e-4, 2.0e-2]}
train.warm_up_steps: {integer: [20, 200]}
language.alpha: {linear: [0.25, 2.0]}
"""
BAD_RATE, POINTS = 1e-4, 0.003
SHIPPED_SEED, OTHER_SEEDS = 1, (2,)
SEEDS, TRIALS = (1, 2, 3), 9
CHOICES = """
train.learning_rate: [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.02]
train.warm_up_steps: [20, 60, 180]
"""
SPEAKERS = {"train_speakers": 8, "dev_speakers": 3, "test_speakers": 1, "utterances_per_speaker": 30}
SMALL = """
name: small
corpus: {uri: corpus/LibriSpeech}
extract: {features: {mels: 24}}
train:
  epochs: 9
  batch_size: 8
  learning_rate: 0.0001
  warm_up_steps: 60
  schedule: inverse_square_root
  model: {layers: 1, units: 64}
  blank_plateau: {severity: "off"}
"""


def main(folder: Path, part: str = "", seed: int = 1) -> None:
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "space.yaml", SPACE)
    if part in ("", "halving"):
        _halving_beside_random(folder / "small")
    if part in ("", "demo"):
        _from_a_bad_rate(folder, seed)


def _from_a_bad_rate(folder: Path, seed: int) -> None:
    corpus = folder / "corpus"
    _make_corpus(corpus)
    here = ("--config", DEMO, "--set", f"corpus.uri={corpus / 'LibriSpeech'}", "--run-dir", str(folder))
    here = (*here, "--set", f"store={folder / 'store'}")

    def train_shipped(seed: int) -> dict[str, float]:
        _voxline("run", "asr", *here, "--set", f"train.seed={seed}", "--until", "language")
        made = {step["name"]: step["folder"] for step in read_json(folder / "run.json")["steps"]}
        metrics: dict[str, float] = {}
        for step in ("train", "language"):  # language's dev_wer is the decoded one
            metrics |= read_done(Path(made[step]))["metrics"]
        return metrics

    shipped = [train_shipped(SHIPPED_SEED)]
    goal = shipped[0]["dev_wer"] + POINTS
    print()
    columns = ("the demo's config", "trials", "trainings", "best dev WER", "greedy", "steps", "CPU-min", "min")
    _show(*columns)
    _show(*["---"] * len(columns))
    found = shipped[0]
    wers = (f"{found['dev_wer']:.2%}", f"{found['dev_wer_greedy']:.2%}")
    _show("as shipped", "", "1", *wers, f"{found['steps']:,.0f}", "", "")
    study = folder / "searches" / f"demo-{seed}"
    found_by = f"a search from {BAD_RATE:g} to {goal:.2%}"
    for name, what in ((study.name, found_by), (f"{study.name}-again", "the same again")):
        begin = time.monotonic()
        _voxline(
            "search", "asr", *here, "--set", f"train.learning_rate={BAD_RATE}", "--set", "language.alpha=1",
            "--space", str(folder / "space.yaml"), "--method", "tpe", "--goal", repr(goal), "--trials", "12",
            "--jobs", "2", "--seed", str(seed), "--seeds", "0", "--name", name,
        )  # fmt: skip
        seconds = time.monotonic() - begin
        trials = read_trials(folder / "searches" / name)
        made = [one for trial in trials for one in trial.trainings]
        best = min((trial.trainings[-1] for trial in trials if trial.state == "done"), key=lambda made: made.rank)
        minutes = (f"{sum(trial.cpu_seconds for trial in trials) / 60:.1f}", f"{seconds / 60:.1f}")
        trainings = str(sum(not one.reused for one in made))
        wers = (f"{best.value:.2%}", f"{best.metrics['dev_wer_greedy']:.2%}")
        _show(what, str(len(trials)), trainings, *wers, f"{sum(one.steps for one in made):,}", *minutes)
    _voxline("search", "resume", str(study), "--seeds", str(1 + len(OTHER_SEEDS)), "--no-gate")
    shipped += [train_shipped(seed) for seed in OTHER_SEEDS]
    winner = [one["value"] for one in read_json(study / WINNER)["seeds"]]
    print()
    _show("dev WER, by seed", *map(str, (SHIPPED_SEED, *OTHER_SEEDS)), "mean")
    _show(*["---"] * (len(shipped) + 2))
    for name, values in (("the shipped config", [one["dev_wer"] for one in shipped]), ("the search's winner", winner)):
        _show(name, *(f"{one:.2%}" for one in values), f"{statistics.mean(values):.2%}")


def _halving_beside_random(folder: Path) -> None:
    _make_corpus(folder / "corpus", *(part for key, value in SPEAKERS.items() for part in ("--set", f"{key}={value}")))
    write_text(folder / "small.yaml", SMALL)
    write_text(folder / "space.yaml", CHOICES)
    space = Space.read(folder / "space.yaml")
    where = ("--config", str(folder / "small.yaml"), "--run-dir", str(folder / "run"))
    _voxline("run", "asr", *where, "--until", "extract")
    dataset = last_output(folder / "run", "extract") or ""
    config = load_config([folder / "small.yaml"]).with_default_folders(folder / "run")
    objective = TrainedOnce(config, dataset, folder / "trained")
    own = space.values_of(config)
    columns = ("nine trials, by seed", "halving: dev WER", "steps", "random: dev WER", "steps", "of random's steps")
    _show(*columns, "random is there after", "CPU-min")
    _show(*["---"] * 8)
    shares, gaps, strict, winners = [], [], [], []
    for seed in SEEDS:
        studies, before = {}, objective.cpu_seconds
        for method in ("halving", "random"):
            study = Study(folder / f"{method}-{seed}", space, method, objective.epochs, seed, own).load()
            study.run(objective, TRIALS)
            studies[method] = study
        halving, random = ([one for trial in study.trials for one in trial.trainings] for study in studies.values())
        found, lowest = (study.finished()[0].trainings[-1].value for study in studies.values())
        steps, whole = (sum(one.steps for one in made) for made in (halving, random))
        until, values = 0, []
        while not values or min(values) > found:
            values.append(random[len(values)].value)
            until += random[len(values) - 1].steps
        shares.append(steps / whole)
        gaps.append(found - lowest)
        strict.append(steps / until)
        winners.append(studies["halving"].finished()[0])
        minutes = f"{(objective.cpu_seconds - before) / 60:.1f}"
        cells = (f"{found:.2%}", f"{steps:,}", f"{lowest:.2%}", f"{whole:,}", f"{shares[-1]:.0%}")
        _show(str(seed), *cells, f"{until:,} steps", minutes)
    points = f"{100 * statistics.median(gaps):+.2f} points"
    medians = (points, "", "", "", f"{statistics.median(shares):.0%}", f"{statistics.median(strict):.0%} of them")
    _show("median", *medians, "")
    best = min(winners, key=lambda trial: trial.trainings[-1].rank)
    again = load_config(with_settings(config, best.settings), pipeline="asr")
    with contextlib.redirect_stdout(sys.stderr):
        made = call_step("train", again, {"dataset": dataset}).metrics["dev_wer"]
    _show("the best one by the step train", f"{made:.2%}", *[""] * 6)
    if made != best.trainings[-1].value:
        raise SystemExit(f"the step train came to {made}, and the study has {best.trainings[-1].value}")


class TrainedOnce:
    """The objective of studies that share their trainings: each choice of settings trains once, as far as is asked for.

    Attributes:
      epochs: of a whole training.
      cpu_seconds: what this process has spent on training.
    """

    def __init__(self, config: Any, dataset: str, folder: Path) -> None:
        self.folder, self.cpu_seconds = folder, 0.0
        self._config, self._dataset = config, dataset
        self._settings = config.train
        self.epochs: int = config.train.epochs
        self._task: Any = None

    def __call__(self, trial: Trial, epochs: int) -> Training:
        """The training after so many epochs. Of its validations the best one counts, as in the step train."""
        from voxline.training.task import best_results

        done = self._validations(trial)
        if not done or done[-1].epoch < epochs:
            begin = time.process_time()
            self._train(trial, epochs)
            self.cpu_seconds += time.process_time() - begin
            done = self._validations(trial)
        best = best_results([one for one in done if one.epoch <= epochs])[0]
        reached = next(one for one in done if one.epoch == epochs)
        metrics = {"steps": float(reached.step), "epochs": float(epochs), "dev_loss": best.metrics["loss"]}
        before = trial.trainings[-1].epochs if trial.trainings else 0
        return Training(epochs, best.metrics["wer"], metrics, before)

    def _place(self, trial: Trial) -> Path:
        return self.folder / hash_value(trial.settings)[:16]

    def _validations(self, trial: Trial) -> "list[ValidationResult]":
        from voxline.training.checkpoints import Checkpoints
        from voxline.training.trainer import TrainState

        newest = Checkpoints(self._place(trial) / "checkpoints", 1).newest()
        return TrainState.of(newest[1]).validations if newest else []

    def _train(self, trial: Trial, epochs: int) -> None:
        from voxline.data.dataset import Dataset
        from voxline.families.family import find_family
        from voxline.training.trainer import Trainer

        if self._task is None:
            self._task = find_family("asr").build_task(self._settings, Dataset.read(self._dataset))
            self._initial = self._task.module.state()
        values = {key.removeprefix("train."): value for key, value in trial.settings.items()}
        self._task.settings = self._settings.model_copy(update={**values, "epochs": epochs})
        self._task.module.restore(self._initial)
        with contextlib.redirect_stdout(sys.stderr):
            Trainer(self._task, self._place(trial)).fit()


def _make_corpus(folder: Path, *settings: str) -> None:
    if not folder.exists():
        shutil.rmtree(f"{folder}.part", ignore_errors=True)
        _voxline("corpus", "demo", f"{folder}.part", *settings)
        Path(f"{folder}.part").rename(folder)


def _show(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def _voxline(*arguments: str) -> None:
    command = [sys.executable, "-P", "-W", "ignore", "-m", "voxline", *arguments]
    subprocess.run(command, stdout=sys.stderr, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/bench-search"), *sys.argv[2:3], *map(int, sys.argv[3:4]))

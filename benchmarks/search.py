"""What `voxline search` finds on the demo corpus from a bad learning rate, and what it costs.

  python -m benchmarks.search [FOLDER]      (make bench-search; again, it resumes)

The shipped config's dev WER is the yardstick. Each search begins at a rate of 1e-4, fifty times too low:

  tpe          twelve trials with the config's schedule, judged greedily on dev; bar: at most 0.3 points above
  tpe, again   the same search of the same store, in another folder; bar: no training
  random       nine whole trainings with the rate that halving needs; for each of three seeds
  halving      nine trials by successive halving; bar: median of steps at most half of random's

Minutes are processor time of the trials' processes, the import of TensorFlow included.
"""

import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from voxline.pipelines.search.trial_files import Trial, read_trials
from voxline.store.files import read_json, write_text
from voxline.store.finished import read_done

CONFIG = "configs/asr/demo.yaml"
SPACE = "train.learning_rate: {log: [1.0e-4, 2.0e-2]}\ntrain.warm_up_steps: {integer: [20, 200]}\n"
SAME_RATE = ("--set", "train.schedule=inverse_square_root")
SEEDS = (1, 2, 3)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "space.yaml", SPACE)
    corpus = folder / "corpus"
    _voxline("corpus", "demo", str(corpus))
    here = ("--config", CONFIG, "--set", f"corpus.uri={corpus / 'LibriSpeech'}", "--run-dir", str(folder))
    _voxline("run", "asr", *here, "--until", "train")
    (train,) = [step for step in read_json(folder / "run.json")["steps"] if step["name"] == "train"]
    metrics = read_done(Path(train["folder"]))["metrics"]
    shipped = metrics["dev_wer"]

    def search(name: str, method: str, trials: int, seed: int, *settings: str, store: str = "") -> list[Trial]:
        """A search with a store of its own, in which the data is prepared and nothing is trained; or another's."""
        own = folder / f"store-{store or name}"
        if not own.exists():
            shutil.copytree(folder / "store", f"{own}.part", ignore=shutil.ignore_patterns("train"), dirs_exist_ok=True)
            Path(f"{own}.part").rename(own)
        _voxline(
            "search", "asr", *here, "--set", "train.learning_rate=0.0001", *settings,
            "--space", str(folder / "space.yaml"), "--method", method, "--trials", str(trials),
            "--seed", str(seed), "--seeds", "0", "--name", name, "--set", f"store={own}",
        )  # fmt: skip
        return read_trials(folder / "searches" / name)

    _show("search", "trainings", "best dev WER", "against the shipped config", "steps", "CPU-min")
    _show(*["---"] * 6)
    _show("none: the shipped config", "1", f"{shipped:.2%}", "", f"{metrics['steps']:,.0f}", "")
    _row("tpe", search("tpe", "tpe", 12, 1), shipped)
    _row("tpe, again", search("tpe-again", "tpe", 12, 1, store="tpe"), shipped)
    shares = []
    for seed in SEEDS:
        random = search(f"random-{seed}", "random", 9, seed, *SAME_RATE)
        _row(f"random, seed {seed}", random, shipped)
        halving = search(f"halving-{seed}", "halving", 9, seed, *SAME_RATE)
        _row(f"halving, seed {seed}", halving, shipped)
        shares.append(_steps(halving) / _steps(random))
    _show("halving's steps, as a share of random's", "", "", f"median {statistics.median(shares):.0%}", "", "")


def _row(name: str, trials: list[Trial], shipped: float) -> None:
    made = [one for trial in trials for one in trial.trainings]
    best = min(trial.trainings[-1].value for trial in trials if trial.state == "done")
    difference = f"{100 * (best - shipped):+.2f} points"
    minutes = f"{sum(one.cpu_seconds for one in made) / 60:.1f}"
    _show(name, str(sum(not one.reused for one in made)), f"{best:.2%}", difference, f"{_steps(trials):,}", minutes)


def _steps(trials: list[Trial]) -> int:
    return sum(one.steps for trial in trials for one in trial.trainings)


def _show(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def _voxline(*arguments: str) -> None:
    command = [sys.executable, "-P", "-m", "voxline", *arguments]
    subprocess.run(command, stdout=sys.stderr, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/bench-search"))

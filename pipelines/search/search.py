"""A search from its config to its winner: data prepared once, trials, the winner with other seeds, the gate once.

<run-dir>/searches/<name>/
  study.json    what is searched; `search resume` needs nothing else
  trials/       study.Trial by number
  processes/    requests, results and logs of trainings
  winner.json   the winner, its other seeds and what the gate said
  best.yaml     its settings, to lay over the config
  search.html   the page
  winner/       the folder of the run that went through the gate
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from voxline.data.versions import DatasetVersions
from voxline.errors import SettingsError, WorkError
from voxline.pipelines.config.keys import Values, get_key
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.console import verdict_lines
from voxline.pipelines.graphs import graph_of, steps_of
from voxline.pipelines.local.plan import plan_run
from voxline.pipelines.local.runner import hold_store, run_pipeline
from voxline.pipelines.local.single_step import last_output
from voxline.pipelines.search.space import Space, model_steps, nested, with_settings
from voxline.pipelines.search.study import DEFAULT_TRIALS, METHODS, PROPOSALS, Study, started_now
from voxline.pipelines.search.trial_files import Trial, TrialFailedError
from voxline.pipelines.search.trials import DEFAULT_METRICS, TrialProcesses, trial_overlay
from voxline.pipelines.steps import STEPS
from voxline.report.page import plural
from voxline.settings import changed_settings
from voxline.store.file_locks import exclusive_lock
from voxline.store.files import read_json, write_json, write_text
from voxline.store.hashing import hash_value
from voxline.store.uris import is_remote

if TYPE_CHECKING:
    from voxline.pipelines.console import Console

STUDY = "study.json"
WINNER = "winner.json"
BEST = "best.yaml"
PAGE = "search.html"
FOLDER = "searches"
"""In a run's folder: its searches."""
CONTINUED = {
    "train.schedule": "inverse_square_root", "train.evaluate_epochs": 1, "train.evaluate_steps": 0,
    "train.start.epochs": 0,
}  # fmt: skip
"""What a longer training needs to continue a shorter one."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits at which a search ends.

    Attributes:
      trials: in all, those of before included; 0: as the budget allows.
      seconds: of wall time that trials may have taken before another one begins.
      jobs: trials at a time.
      seeds: trainings of the winner with other seeds, its own included; 0: none, and no gate.
      gate: run the winner through the gate.
      goal: no trial begins after one whose metric is this or lower; None: all of them are made.
    """

    trials: int = 0
    seconds: float = math.inf
    jobs: int = 1
    seeds: int = 3
    gate: bool = True
    goal: float | None = None

    @classmethod
    def of(cls, values: Values) -> "Limits":
        """Reads the JSON of `plain`."""
        return cls(**{**values, "seconds": values["seconds"] or math.inf})

    def plain(self) -> Values:
        """The limits as JSON values; no limit of seconds is null, because JSON has no infinity."""
        return {**dataclasses.asdict(self), "seconds": None if math.isinf(self.seconds) else self.seconds}

    def count(self) -> int:
        if self.trials:
            return self.trials
        return DEFAULT_TRIALS if math.isinf(self.seconds) else 1_000_000  # more than any budget of time allows


@dataclasses.dataclass
class Search:
    """A search and its folder.

    Attributes:
      config: with all locations set.
      assigned: what `--set` gave, by dotted key; best.yaml repeats it.
      metric: of train, or of language where decoding varies; lower is better.
      prune: confidence with which a trial is stopped that is worse than the best one; 0: none is.
      limits: those it was last run with.
      proposals: revision of how its method chooses settings; 0: today's.
    """

    folder: Path
    config: RunConfig
    assigned: Values
    space: Space
    method: str
    metric: str
    seed: int = 1
    prune: float = 0.0
    limits: Limits = Limits()
    proposals: int = 0

    def __post_init__(self) -> None:
        self.proposals = self.proposals or PROPOSALS.get(self.method, 1)

    @classmethod
    def create(
        cls,
        folder: Path,
        config: RunConfig,
        assigned: Values,
        space: Space,
        *,
        method: str = "tpe",
        metric: str = "",
        seed: int = 1,
        prune: float = 0.0,
    ) -> "Search":
        """A new search, or the one that is in the folder, if it is the same.

        Raises:
          SettingsError: the space does not suit the config, or another search is in the folder.
        """
        if config.pipeline not in DEFAULT_METRICS:
            raise SettingsError(f"pipeline {config.pipeline!r}: accepted: {', '.join(DEFAULT_METRICS)}")
        if method not in METHODS:
            raise SettingsError(f"--method {method!r}: accepted: {', '.join(METHODS)}")
        space.check(config)

        # A metric that the steps do not have is refused after the first training, which lists those that they have.
        metric = metric or DEFAULT_METRICS[config.pipeline]
        search = cls(folder, config, assigned, space, method, metric, seed, prune)
        if prune:
            search._check_prune()
        if method == "halving":
            search._check_halving()

        search._check_same()
        return search

    @classmethod
    def open(cls, folder: Path) -> "Search":
        """The search in a folder.

        Raises:
          SettingsError: none is there.
          WorkError: study.json is damaged.
        """
        if not (folder / STUDY).is_file():
            raise SettingsError(f"{folder}: no {STUDY} is here; `voxline search list` names the searches")

        # Searches of earlier versions have neither `prune` nor `proposals`.
        try:
            document = read_json(folder / STUDY)
            space = Space(document["space"], str(folder / STUDY))
            config = load_config(document["config"])
            limits = Limits.of(document["limits"])
            prune = float(document.get("prune", 0.0))
            search = cls(
                folder,
                config,
                document["assigned"],
                space,
                document["method"],
                document["metric"],
                document["seed"],
                prune,
            )
            return dataclasses.replace(search, limits=limits, proposals=document.get("proposals", 1))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WorkError(f"{folder / STUDY}: not a search ({error})") from None

    def study(self, jobs: int = 1) -> Study:
        """Its trials."""
        epochs = int(get_key(self.config.plain(), "train.epochs"))
        own = self.space.values_of(self.config)
        return Study(self.folder, self.space, self.method, epochs, self.seed, own, jobs).load()

    def winner(self) -> Values:
        """The content of winner.json; empty before there is one."""
        file = self.folder / WINNER
        content: Values = read_json(file) if file.is_file() else {}
        return content

    def run(self, limits: Limits, console: "Console", on_end: "Callable[[Search, Study], object]") -> None:
        """Runs the search as far as its limits allow, and its winner.

        Args:
          on_end: called when the trials have ended, also if one failed or a signal stopped them.

        Raises:
          SettingsError: another search is in the folder, or one of an earlier version that chose settings otherwise.
          WorkError: the data cannot be prepared, every trial failed, or the dataset is not that of earlier trials.
          TransientError: a storage failed; the same command continues.
        """
        with exclusive_lock(self.folder), hold_store(self.config.store):
            self._check_same()  # another process may have started one since
            self._write_study("", limits)  # so that `search resume` finds it, also if it is stopped in `_prepare`
            dataset, manifest = self._prepare(console)
            self._write_study(dataset, limits)

            decodes = self.space.varies_decoding
            folder = self.folder / "processes"
            processes = TrialProcesses(
                self.config, dataset, manifest, self.metric, decodes, folder, limits.jobs, self.prune
            )
            study = self.study(limits.jobs)
            before = study.trained()

            # The winner is trained inside the block too: its processes must end with this one.
            try:
                with processes.ended_with_block():
                    study.run(
                        processes,
                        limits.count(),
                        limits.seconds,
                        lambda trial: console.say(self.line(trial)),
                        limits.goal,
                    )
                    self._run_winner(study, processes, limits, console)
            finally:
                on_end(self, study)
            new_trainings = plural(study.trained() - before, "training")
            console.say(f"  {plural(len(study.trials), 'trial')}; made {new_trainings}; in all {cost(study)}")

    def line(self, trial: Trial) -> str:
        """One line on a trial that has ended."""
        settings = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in trial.settings.items())
        if trial.state == "failed":
            return f"  trial {trial.number}: failed: {trial.reason.splitlines()[0]}  ({settings})"

        # The length of a training is worth a word only where trials have different ones.
        training = trial.trainings[-1]
        how = "reused" if training.reused else f"{training.cpu_seconds / 60:.1f} CPU-min"
        early = self.method == "halving" or training.pruned
        epochs = f" after {plural(training.epochs, 'epoch')}" if early else ""
        epochs += ", stopped" if training.pruned else ""
        return f"  trial {trial.number}: {self.metric} {self.format(training.value)}{epochs}  ({settings}; {how})"

    def format(self, value: float | None) -> str:
        """The metric as a person reads it."""
        from voxline.metrics.catalog import CATALOG

        # A metric on dev is formatted as the one of evaluate is, on test: `dev_wer` as `wer`.
        metric = CATALOG.get(self.metric.removeprefix("dev_").removesuffix("_greedy"))
        return metric.format(value) if metric else "—" if value is None else f"{value:.4g}"

    def _check_prune(self) -> None:
        """Refuses what has no word errors of each utterance after each epoch."""
        # The pruner compares a trial with the best one after the same epoch, utterance by utterance on dev.
        why = ""
        if not 0.5 <= self.prune < 1:
            why = "from 0.5 to below 1 is accepted, or 0"
        elif self.config.pipeline != "asr" or self.metric != "dev_wer" or self.space.varies_decoding:
            why = "it compares words on dev, so dev_wer of recognizers and settings of train alone"
        elif self.method == "halving":
            why = "halving stops trials by itself"
        elif any(setting.key == "train.epochs" for setting in self.space.ranges):
            why = "train.epochs varies; after the same epoch a longer training has not come as far as a shorter one"
        elif steps := get_key(self.config.plain(), "train.evaluate_steps"):
            why = f"train.evaluate_steps is {steps}; it compares after epochs"
        elif is_remote(self.config.store):
            why = f"store is {self.config.store}; it reads the logs of the best trial from a folder"

        if why:
            raise SettingsError(f"--prune {self.prune:g}: {why}")

    def _check_halving(self) -> None:
        """Refuses what makes a longer training differ from a shorter one from its first step on."""
        values = self.config.plain()
        for key, accepted in CONTINUED.items():
            if (value := get_key(values, key)) != accepted:
                raise SettingsError(
                    f"--method halving: {key} is {value!r}; a longer training continues a shorter one only with "
                    f"{accepted!r}: give --set {key}={accepted}"
                )

        fixed_keys = (*CONTINUED, "train.epochs")
        if varied := next((setting.key for setting in self.space.ranges if setting.key in fixed_keys), ""):
            raise SettingsError(f"--method halving: {varied} cannot vary: the method chooses how long a trial trains")

    def _plain(self) -> Values:
        return {
            "pipeline": self.config.pipeline,
            "space": self.space.plain(),
            "method": self.method,
            "metric": self.metric,
            "seed": self.seed,
            "prune": self.prune,
            "proposals": self.proposals,
            "config": self.config.recorded(),
            "assigned": self.assigned,
        }

    def _check_same(self) -> None:
        """Refuses to go on with another search that is in the folder."""
        if not (self.folder / STUDY).is_file():
            return

        previous = Search.open(self.folder)
        if previous.proposals != PROPOSALS.get(previous.method, 1):
            raise SettingsError(
                f"{self.folder}: the search here was started by another version, whose {previous.method} chooses other "
                "settings, and continuing it would mix the two; give --name another one: what was trained is found in "
                "the store"
            )

        # What `--set` gave is part of the config too, so a difference of it shows there.
        changed = changed_settings(previous._plain(), self._plain())
        changed = [change for change in changed if change[0].partition(".")[0] != "assigned"]
        if changed:
            key, previous_value, new_value = changed[0]
            raise SettingsError(
                f"{self.folder}: another search is here, with {key} {previous_value}, not {new_value}; "
                "give --name another one"
            )

    def _write_study(self, dataset: str, limits: Limits) -> None:
        """Args: the location of the dataset; empty: it is not known yet."""
        # Empty once, when the search begins: from then on, the dataset of the first time stays.
        file = self.folder / STUDY
        before = read_json(file) if file.is_file() else {"dataset": "", "started": started_now()}
        key = _key_of(dataset) or before["dataset"]
        if before["dataset"] and before["dataset"] != key:
            raise WorkError(
                f"{self.folder}: the corpus has changed since this search began, and its trials cannot be compared; "
                "give --name another one"
            )

        times = {"limits": limits.plain(), "started": before["started"]}
        write_json(file, {**self._plain(), "dataset": key, **times})

    def _prepare(self, console: "Console") -> tuple[str, str]:
        """The dataset and the manifest: made once, or found."""
        # The last steps before the model's that have a dataset and a manifest; no step after them runs.
        graph = graph_of(self.config.pipeline, self.config.optional_steps())
        trial_steps = model_steps(self.config.pipeline)
        producers: dict[str, str] = {}
        for name in itertools.takewhile(lambda step: step not in trial_steps, graph):
            producers |= dict.fromkeys(STEPS[name].outputs, name)
        dataset_step = producers["dataset"]
        manifest_step = producers["manifest"]
        until = max(dataset_step, manifest_step, key=list(graph).index)

        run_dir = self.folder / "data"
        plan = {step.name: step for step in plan_run(self.config, run_dir, until=until)}
        if all(step.action == "reuse" for step in plan.values()):
            return plan[dataset_step].output, plan[manifest_step].output

        run_dir.mkdir(parents=True, exist_ok=True)
        record, failure = run_pipeline(self.config, run_dir, console, until=until)
        if failure:
            raise WorkError(f"{record.failed_step or 'the graph'} failed: {failure.message}")

        dataset = last_output(run_dir, dataset_step)
        manifest = last_output(run_dir, manifest_step)
        if not dataset or not manifest:
            raise WorkError(f"{run_dir}: {until} left no dataset or no manifest; this is a bug")
        return dataset, manifest

    def _run_winner(self, study: Study, processes: TrialProcesses, limits: Limits, console: "Console") -> None:
        """Writes best.yaml, trains the winner with other seeds, and runs it through the gate, each once."""
        finished = study.finished()
        if not finished:
            raise WorkError(f"{self.folder}: {no_winner(study)}")
        best = finished[0]
        write_text(self.folder / BEST, self._best_yaml(best))

        # A search that is resumed may have another winner; what was made for the one before is not its own.
        digest = hash_value([best.number, best.settings])
        winner = self.winner()
        if winner.get("digest") != digest:
            winner = {"digest": digest, "trial": best.number, "settings": best.settings, "seeds": [], "gate": None}
            write_json(self.folder / WINNER, winner)

        console.say(
            f"  best: trial {best.number}, {self.metric} {self.format(best.value)}; its settings: {self.folder / BEST}"
        )

        # Written after each seed, so that an interrupted search repeats none of them.
        for seed in self._seeds(best, limits.seeds - len(winner["seeds"]), len(winner["seeds"])):
            winner["seeds"].append(self._train_seed(study, processes, best, seed))
            write_json(self.folder / WINNER, winner)
        if winner["seeds"]:
            values = [training["value"] for training in winner["seeds"] if training["value"] is not None]
            spread = ", ".join(self.format(value) for value in values)
            console.say(f"  with {len(values)} seeds: {self.metric} {spread}")

        # Once for a winner, whatever the gate says: every further try would be another chance to pass by luck.
        if limits.gate and limits.seeds and winner["gate"] is None:
            winner["gate"] = self._run_gate(best, console)
            write_json(self.folder / WINNER, winner)
        if winner["gate"]:
            console.say("\n".join(verdict_lines(f"  {winner['gate']['reason']}")))

    def _seeds(self, best: Trial, count: int, done: int) -> list[int]:
        # The config's own seed is the first: its training is the winner's, and is found in the store.
        own = int(get_key(self.config.plain(), "train.seed"))
        return list(range(own + done, own + done + max(count, 0)))

    def _train_seed(self, study: Study, processes: TrialProcesses, best: Trial, seed: int) -> Values:
        epochs = study.epochs_of(best)
        overlay = {**trial_overlay(self.config, best.settings, epochs), "train.seed": seed}
        try:
            training = processes.train(f"seed-{seed}", overlay, epochs)
        except TrialFailedError as error:
            return {"seed": seed, "value": None, "reason": str(error), "cpu_seconds": error.cpu_seconds}

        # JSON has no NaN, and a model that diverged has no part in the spread.
        is_finite = math.isfinite(training.value)
        value = training.value if is_finite else None
        reason = "" if is_finite else f"it is {training.value}"
        return {"seed": seed, "value": value, "reason": reason, "cpu_seconds": training.cpu_seconds}

    def _run_gate(self, best: Trial, console: "Console") -> Values:
        """The run of the winner from its training, which is in the store, to push."""
        # Without a step that may end the run: the training is made already, and is found in the store.
        deciding = [STEPS[name] for name in steps_of(self.config.pipeline) if STEPS[name].decides]
        off = {f"{step.config_section}.{key}": value for step in deciding for key, value in step.off.items()}
        overlay = {**self._chosen(best), **off}
        config = load_config(with_settings(self.config, overlay), pipeline=self.config.pipeline)

        record, failure = run_pipeline(config, self.folder / "winner", console)
        if failure:
            raise WorkError(f"{record.failed_step or 'the graph'} failed: {failure.message}")
        return {"pushed": record.pushed, "reason": record.reason, "metrics": record.metrics, "model": record.model}

    def _chosen(self, best: Trial) -> Mapping[str, Any]:
        return best.settings

    def _best_yaml(self, best: Trial) -> str:
        """The winner's settings, and those of `--set`, as a layer for the config that the search was given."""
        head = (
            f"# {self.metric} {self.format(best.value)}: trial {best.number} of `voxline search "
            f"{self.config.pipeline}`. Lay it over the search's config:\n"
            f"#   voxline run {self.config.pipeline} --config CONFIG --config {BEST}\n"
        )
        return head + yaml.safe_dump(nested({**self.assigned, **best.settings}), sort_keys=False, allow_unicode=True)


def _key_of(dataset: str) -> str:
    """Names the content of a dataset at a location; empty for an empty one."""
    folder, _, name = dataset.rstrip("/").rpartition("/")
    if not name.isdecimal():
        return name

    # A published version: a purge changes its content, and leaves its number.
    root, _, version = folder.rpartition("/")
    return DatasetVersions(root, version).info(int(name)).key


def cost(study: Study) -> str:
    """The cost of a study, in words."""
    trainings = [training for trial in study.trials for training in trial.trainings]
    minutes = sum(trial.cpu_seconds for trial in study.trials) / 60
    return f"{minutes:.1f} CPU-min, {sum(training.steps for training in trainings):,} steps"


def find_searches(folder: Path) -> list[Path]:
    """The folders of the searches below a folder of runs, and of those of one run."""
    folders = {
        file.parent
        for pattern in (STUDY, f"{FOLDER}/*/{STUDY}", f"*/{FOLDER}/*/{STUDY}")
        for file in folder.glob(pattern)
    }
    return sorted(folders)


def no_winner(study: Study) -> str:
    """Says that no trial has a result, and why: the most frequent fault of those that failed."""
    ended = [trial for trial in study.trials if trial.state != "running"]
    if not ended:
        return "no winner yet: no trial has ended"
    faults = Counter(trial.reason.splitlines()[0] for trial in ended if trial.reason)
    why = faults.most_common(1)[0][0] if faults else "the budget is used up"
    return f"no winner: no trial has a result, {plural(len(ended), 'trial')} ended: {why}"

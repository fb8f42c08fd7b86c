"""The commands of searches: run one, list them, show one, resume one."""

import dataclasses
import json
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voxline.errors import SettingsError, VoxlineError, WorkError
from voxline.pipelines.cli.options import (
    AsJson,
    Assignments,
    CommandGroup,
    Config,
    RunDir,
    exit_on_signal,
    machine_path,
    refuse_unmounted_paths,
)

if TYPE_CHECKING:
    from voxline.pipelines.search.search import Limits, Search

search_commands = CommandGroup(help="Search for better settings, judged on dev alone.", no_args_is_help=True)
SEARCHED = {"asr": "a recognizer", "tts": "a voice", "vocoder": "a vocoder"}

SpaceFile = Annotated[
    Path,
    typer.Option(
        "--space",
        parser=machine_path,
        metavar="FILE",
        help="YAML: settings and their ranges, such as train.learning_rate: {log: [1e-4, 1e-2]}.",
    ),
]
Trials = Annotated[
    int, typer.Option(min=0, help="Trials in all, earlier ones included; 0: as the budget allows, 12 without one.")
]
Budget = Annotated[
    str, typer.Option(metavar="TIME", help="No trial begins once trials have taken so long: 90s, 30m, 2h.")
]
Jobs = Annotated[int, typer.Option(min=1, max=64, help="Trials at a time.")]
SEEDS_HELP = "Seeds that the winner is trained with; 0: none, and no gate."
Seeds = Annotated[int, typer.Option(min=0, max=20, help=SEEDS_HELP)]
Gate = Annotated[bool, typer.Option("--gate/--no-gate", help="Run the winner through the gate, once.")]
Goal = Annotated[float, typer.Option(min=0, help="Value of the metric that is enough: no trial begins after it.")]
Folder = Annotated[Path, typer.Argument(parser=machine_path, metavar="FOLDER", help="Of the search.")]


def _add_search(pipeline: str, subject: str) -> None:
    """Adds the command that searches for a pipeline's settings; its docstring, which is its help, is set below."""

    def search(
        config: Config,
        space: SpaceFile,
        set_: Assignments = None,
        trials: Trials = 0,
        budget: Budget = "",
        jobs: Jobs = 1,
        method: Annotated[
            str,
            typer.Option(
                metavar="NAME",
                help="tpe: by the results so far; random; halving: short trainings first, the best are continued; "
                "grid: all combinations, with --compile kfp alone.  [default: tpe; of --compile kfp random]",
            ),
        ] = "",
        metric: Annotated[
            str, typer.Option(help="Of train on dev, lower is better.  [default: dev_wer, dev_score, dev_log_stft]")
        ] = "",
        prune: Annotated[
            float, typer.Option(help="Confidence to stop a trial that is worse than the best one, as 0.95; 0: none.")
        ] = 0.0,
        seed: Annotated[int | None, typer.Option(min=0, help="Of the search.  [default: 1]")] = None,
        seeds: Annotated[int | None, typer.Option(min=0, max=20, help=f"{SEEDS_HELP}  [default: 3]")] = None,
        gate: Gate | None = None,
        run_dir: RunDir = None,
        name: Annotated[
            str, typer.Option(help="Of the search; its folder is <run-dir>/searches/<name>.  [default: --space]")
        ] = "",
        compile_: Annotated[
            str,
            typer.Option("--compile", metavar="kfp", help="Write the search as a KFP graph of trials."),
        ] = "",
        output: Annotated[
            Path | None,
            typer.Option("--output", "-o", parser=machine_path, help="Of --compile.  [default: <name>-search.yaml]"),
        ] = None,
        goal: Goal | None = None,
    ) -> None:
        from voxline.pipelines.config.keys import get_key
        from voxline.pipelines.config.load import read_layers, resolve_layers
        from voxline.pipelines.search import search as searches
        from voxline.pipelines.search.space import Space

        # A search on a cluster and one on this machine share a command, but not all options.
        _refuse_unused(
            "--compile", bool(compile_), {"--output": output},
            {
                "--goal": goal is not None,
                "--budget": budget, "--name": name, "--run-dir": run_dir, "--prune": prune,
                "--seeds": seeds is not None, "--gate": gate, "--no-gate": gate is False,
            },
        )  # fmt: skip
        layers = read_layers(config, set_ or [])
        run_config = resolve_layers(layers, pipeline)

        # On a cluster the graph itself is the search: it has no folder, and nobody resumes it.
        if compile_:
            if compile_ != "kfp":
                raise SettingsError(f"--compile {compile_!r}: accepted: kfp")
            from voxline.pipelines.search.kfp_trials import compile_trials
            from voxline.pipelines.search.trials import DEFAULT_METRICS
            from voxline.pipelines.steps import STEPS

            refuse_unmounted_paths(run_config)
            ranges = Space.read(space)
            ranges.check(run_config)
            target = output or Path(f"{run_config.name}-search.yaml")
            compile_trials(
                run_config,
                ranges,
                target,
                method=method or "random",
                trials=trials,
                metric=metric or DEFAULT_METRICS[pipeline],
                jobs=jobs,
                seed=seed,
            )  # fmt: skip
            if left_out := [step for step in run_config.optional_steps() if STEPS[step].decides]:
                steps = " and ".join(left_out)
                typer.echo(f"voxline: the graph leaves out {steps}, since a trial always trains", err=True)
            typer.echo(str(target))
            return

        # The name becomes a folder, so it has no separators.
        run_folder = (run_dir or Path("runs") / run_config.name).absolute()
        search_name = name or space.stem
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", search_name):
            raise SettingsError(f"--name {search_name!r}: letters, digits, '.', '_' and '-' are accepted")

        # A search that exists is opened, and must be the same: other settings would make its trials incomparable.
        new_search = searches.Search.create(
            run_folder / searches.FOLDER / search_name,
            run_config.for_this_machine(run_folder),
            {key: get_key(layers.document, key) for key in sorted(layers.assigned)},
            Space.read(space),
            method=method or "tpe",
            metric=metric,
            seed=1 if seed is None else seed,
            prune=prune,
        )
        winner_seeds = 3 if seeds is None else seeds
        limits = searches.Limits(trials, _seconds(budget), jobs, winner_seeds, gate is not False, goal)
        _run(new_search, limits)

    search.__doc__ = f"""Search for the settings of {subject}.

    A search that is repeated or resumed trains only what is new.

    \b
    Example: voxline search {pipeline} -c config.yaml --space space.yaml --trials 12
    """
    search_commands.command(pipeline)(search)


for _pipeline, _subject in SEARCHED.items():
    _add_search(_pipeline, _subject)


@search_commands.command("resume")
def resume_search(
    folder: Folder,
    trials: Trials | None = None,
    budget: Budget | None = None,
    jobs: Jobs | None = None,
    seeds: Seeds | None = None,
    gate: Gate | None = None,
    goal: Goal | None = None,
) -> None:
    """Continue a search that was stopped, or extend one. What is not given is as before.

    Example: voxline search resume runs/demo/searches/space --trials 24
    """
    from voxline.pipelines.search.search import Search

    search = Search.open(folder)
    options: dict[str, Any] = {"jobs": jobs, "seeds": seeds, "gate": gate, "goal": goal}
    if trials is not None or budget is not None:  # one of them replaces both
        options |= {"trials": trials or 0, "seconds": _seconds(budget or "")}
    changes = {name: value for name, value in options.items() if value is not None}
    _run(search, dataclasses.replace(search.limits, **changes))


@search_commands.command("list")
def list_searches(
    folder: Annotated[Path, typer.Argument(parser=machine_path, metavar="FOLDER", help="Of the runs.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List searches: method, trials, the best metric, cost.

    Example: voxline search list
    """
    from voxline.pipelines.search.search import Search, cost, find_searches

    lines = []
    rows = []
    for search_folder in find_searches(folder):
        try:
            search = Search.open(search_folder)
            study = search.study()
        except VoxlineError as error:  # one that is damaged must not hide the others
            typer.echo(f"voxline: {error}", err=True)
            continue

        # Finished trials are sorted, the best one first.
        best = next(iter(study.finished()), None)
        value = best.value if best else None
        row = {"folder": str(search_folder), "method": search.method, "trials": len(study.trials)}
        rows.append({**row, search.metric: value})
        note = f"{search.method:<8} {len(study.trials):>3} trials  {search.metric} {search.format(value)}"
        lines.append(f"{search_folder}  {note}  {cost(study)}")

    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif not find_searches(folder):
        raise WorkError(f"{folder}: no search is here; `voxline search asr` makes one")
    for line in [] if as_json else lines:
        typer.echo(line)


@search_commands.command("show")
def show_search(folder: Folder, as_json: AsJson = False) -> None:
    """Show the trials of a search, and write its page again.

    Example: voxline search show runs/demo/searches/space
    """
    from voxline.pipelines.console import verdict_lines
    from voxline.pipelines.search.page import write_page
    from voxline.pipelines.search.search import BEST, PAGE, Search, cost, no_winner

    search = Search.open(folder)
    study = search.study()
    if as_json:
        trials = [dataclasses.asdict(trial) for trial in study.trials]
        typer.echo(json.dumps({"metric": search.metric, "trials": trials, "winner": search.winner()}, indent=2))
        return

    # The finished trials by their value, then those that failed, were pruned or still run.
    finished = study.finished()
    for trial in [*finished, *(trial for trial in study.trials if trial not in finished)]:
        running = trial.state == "running" and not trial.trainings
        typer.echo(f"  trial {trial.number}: not ended" if running else search.line(trial))

    if not finished:
        typer.echo(f"  {no_winner(study)}")

    # Several seeds show how much of the winner's lead was luck.
    if winner := search.winner():
        values = [search.format(training["value"]) for training in winner["seeds"] if training["value"] is not None]
        if values:
            typer.echo(f"  trial {winner['trial']} with {len(values)} seeds: {search.metric} {', '.join(values)}")
        if winner["gate"]:
            typer.echo("\n".join(verdict_lines(f"  {winner['gate']['reason']}")))
        else:
            typer.echo("  not through the gate yet: the best trial, and no winner")
        typer.echo(f"  settings: {folder / BEST}")

    write_page(search, study)
    typer.echo(f"  page: {folder / PAGE}")
    typer.echo(f"  {cost(study)}")


def _run(search: "Search", limits: "Limits") -> None:
    from voxline.pipelines.console import Console
    from voxline.pipelines.search.page import write_page

    typer.echo(f"voxline search {search.config.pipeline}: {search.config.name}, in {search.folder}")
    with exit_on_signal("run the same command to resume"):
        search.run(limits, Console(sys.stdout), write_page)


def _refuse_unused(option: str, is_set: bool, needing: dict[str, Any], without: dict[str, Any]) -> None:
    """Refuses options that would have no effect: those that need another option, and those that go without it."""
    for name, value in (without if is_set else needing).items():
        if value:
            raise SettingsError(f"{name}: it has {'no effect with' if is_set else 'an effect only with'} {option}")


def _seconds(budget: str) -> float:
    """The seconds of a --budget; none is without end.

    >>> _seconds("30m"), _seconds("1.5h"), _seconds("")
    (1800.0, 5400.0, inf)
    """
    if not budget:
        return math.inf
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if not match:
        raise SettingsError(f"--budget {budget!r}: a number with s, m or h is accepted, such as 30m")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]

"""The page of a search: its course, what mattered, what it cost, and how sure the winner is."""

import math

from voxline.pipelines.search.search import Search
from voxline.pipelines.search.study import Study
from voxline.pipelines.search.trial_files import Trial
from voxline.report.charts import bar_plot, line_plot, scatter_plot
from voxline.report.page import (
    Block,
    Page,
    Tone,
    data_table,
    explorer_table,
    figure,
    plural,
    side_by_side,
    small_print,
    stat_cards,
    verdict_banner,
)
from voxline.report.svg import Drawing, Scale

BEST_SHARE = 0.25
"""Of the trials, those drawn strongly in parallel coordinates."""


def write_page(search: Search, study: Study) -> None:
    """Writes search.html into the folder of a search, finished or not."""
    config, best = search.config, next(iter(study.finished()), None)
    page = Page(
        f"Search: {config.name}",
        f"{search.method} over {plural(len(search.space.ranges), 'setting')} of {config.pipeline}, judged by "
        f"{search.metric} on dev alone; lower is better.",
    )
    made = [one for trial in study.trials for one in trial.trainings]
    winner = search.winner()
    gate = winner.get("gate") if winner else None
    if best is None:
        page.add_opening(verdict_banner("No trial has a result yet", tone="caution"))
    else:
        settings = ", ".join(f"{key} {value}" for key, value in best.settings.items())
        tone: Tone = "plain" if not gate else "good" if gate["pushed"] else "bad"
        heading = f"{search.metric} {search.format(best.value)}, trial {best.number}: {settings}"
        page.add_opening(verdict_banner(heading, gate["reason"] if gate else "", tone))
    cards = {
        "trials": len(study.trials),
        "failed": sum(trial.state == "failed" for trial in study.trials),
        "trainings": len(made),
        "reused": sum(one.reused for one in made),
        "steps": sum(one.steps for one in made),
        "CPU-minutes": f"{sum(trial.cpu_seconds for trial in study.trials) / 60:.1f}",
    }
    page.add_opening(stat_cards(cards))
    if best is not None:
        _add_course(page, search, study)
        _add_settings(page, search, study)
    if winner and winner["seeds"]:
        _add_seeds(page, search, winner["seeds"])
    _add_trials(page, search, study)
    page.write(search.folder / "search.html")


def _add_course(page: Page, search: Search, study: Study) -> None:
    values = [trial.value if trial.state == "done" and trial.value is not None else math.nan for trial in study.trials]
    best, lowest = [], math.inf
    for value in values:
        lowest = min(lowest, value) if math.isfinite(value) else lowest
        best.append(lowest if math.isfinite(lowest) else math.nan)
    percent = search.format(0.5).endswith("%")
    numbers = [trial.number for trial in study.trials]
    curve = line_plot(numbers, {"best so far": best, "trial": values}, "trial", search.metric, percent=percent)
    minutes = {f"trial {trial.number}": trial.cpu_seconds / 60 for trial in study.trials}
    page.add_section(
        "Course",
        side_by_side(
            figure(curve, "The metric of each whole training, and the best so far."),
            figure(bar_plot(minutes, "CPU-minutes"), "What each trial cost; one that was in the store costs nothing."),
        ),
    )


def _add_settings(page: Page, search: Search, study: Study) -> None:
    plots = [figure(_parallel(search, study), "Parallel coordinates: a line for each trial, the best ones strong.")]
    if importances := study.importances():
        caption = "Importance of each setting: its share in what sets the better half of the trials apart (PED-ANOVA)."
        plots.append(figure(bar_plot(importances, "importance", percent=True), caption))
    page.add_section("Settings", side_by_side(*plots))
    slices = []
    done = study.finished()
    for one in search.space.ranges:
        values = [trial.settings[one.key] for trial in done]
        if one.kind == "choice":
            across, label = (
                [float(one.values.index(value)) for value in values],
                f"{one.key}: " + ", ".join(f"{index} is {value}" for index, value in enumerate(one.values)),
            )
        else:
            across = [math.log10(value) if one.is_log else float(value) for value in values]
            label = f"{one.key}{', log10' if one.is_log else ''}"
        plot = scatter_plot(across, [trial.value or 0.0 for trial in done], label, search.metric)
        slices.append(figure(plot, f"Slice: {one.key}"))
    page.add_section("Each setting", side_by_side(*slices))


def _parallel(search: Search, study: Study) -> Block:
    """An axis for each setting and one for the metric; the best trials in the first color, the others thin."""
    done = study.finished()
    ranges = search.space.ranges
    values = [trial.value or 0.0 for trial in done]
    low, high = min(values), max(values)
    names = [*(one.key.rpartition(".")[2] for one in ranges), search.metric]
    drawing = Drawing(
        "Parallel coordinates",
        f"{plural(len(done), 'trial')} over {', '.join(names)}",
        Scale(-0.4, len(names) - 0.6, most=0),
        Scale(-0.2, 1.08, most=0),
        label="each axis from its lowest value to its highest",
        series=["best quarter", "others"],
    )
    for axis, name in enumerate(names):
        drawing.straight_line((axis, 0.0), (axis, 1.0))
        drawing.label_at(axis, -0.07 - 0.08 * (axis % 2), name, shift=-2.6 * len(name))  # two rows: long names
    strong = math.ceil(BEST_SHARE * len(done))
    for rank, trial in reversed(list(enumerate(done))):
        heights = [one.position(trial.settings[one.key]) for one in ranges]
        heights.append(((trial.value or 0.0) - low) / (high - low) if high > low else 0.5)
        drawing.line(list(enumerate(heights)), int(rank >= strong), 1.8 if rank < strong else 0.7)
    return drawing.svg()


def _add_seeds(page: Page, search: Search, seeds: list[dict[str, object]]) -> None:
    rows = [
        (one["seed"], search.format(one["value"]) if isinstance(one["value"], float) else str(one["reason"]))
        for one in seeds
    ]
    known = [one["value"] for one in seeds if isinstance(one["value"], float)]
    spread = f"{search.format(min(known))} to {search.format(max(known))}" if known else "no result"
    page.add_section(
        "The winner with other seeds",
        data_table(["seed", search.metric], rows),
        small_print(
            f"{spread}. The best of many trials is lucky on dev; these are the same settings with other random "
            "numbers. The model that went through the gate has the config's seed."
        ),
    )


def _add_trials(page: Page, search: Search, study: Study) -> None:
    keys = [one.key for one in search.space.ranges]

    def row(trial: Trial) -> list[object]:
        made = trial.trainings
        return [
            trial.number,
            *(trial.settings[key] if isinstance(trial.settings[key], int | float | str) else str(trial.settings[key])
              for key in keys),
            search.format(trial.value),
            made[-1].epochs if made else 0,
            f"{trial.cpu_seconds / 60:.1f}",
            trial.state + (f": {trial.reason.splitlines()[0]}" if trial.reason else ""),
        ]  # fmt: skip

    order = {trial.number: rank for rank, trial in enumerate(study.finished())}
    trials = sorted(study.trials, key=lambda trial: (order.get(trial.number, math.inf), trial.number))
    columns = ["trial", *keys, search.metric, "epochs", "CPU-min", "state"]
    page.add_section("Trials", explorer_table(columns, map(row, trials), "The trials of the search, the best first"))

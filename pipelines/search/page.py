"""The page of a search: its course, what mattered, what it cost, and how sure the winner is."""

import math

from voxline.pipelines.search.search import Search, no_winner
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
    config = search.config
    best = next(iter(study.finished()), None)
    page = Page(
        f"Search: {config.name}",
        f"{search.method} over {plural(len(search.space.ranges), 'setting')} of {config.pipeline}, judged by "
        f"{search.metric} on dev alone; lower is better.",
    )

    # The verdict: that of the gate if the winner went through it, or else the best trial so far.
    trainings = [training for trial in study.trials for training in trial.trainings]
    winner = search.winner()
    gate = winner.get("gate") if winner else None
    if best is None:
        reason = no_winner(study)
        page.add_opening(verdict_banner(f"{reason[:1].upper()}{reason[1:]}", tone="caution"))
    else:
        settings = ", ".join(f"{key} {value}" for key, value in best.settings.items())
        tone: Tone = "plain" if not gate else "good" if gate["pushed"] else "bad"
        heading = f"{search.metric} {search.format(best.value)}, trial {best.number}: {settings}"
        text = gate["reason"] if gate else "The best trial so far, and no winner: it was not through the gate."
        page.add_opening(verdict_banner(heading, text, tone))

    cards = {
        "trials": len(study.trials),
        "failed": sum(trial.state == "failed" for trial in study.trials),
        "trainings": len(trainings),
        "reused": sum(training.reused for training in trainings),
        "steps": sum(training.steps for training in trainings),
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

    # NaN leaves a gap in a curve: of a trial without a result, and of the course before the first result.
    best = []
    lowest = math.inf
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

    # A plot for each setting: the metric over its value. The other settings of the trials differ as well.
    slices = []
    done = study.finished()
    for setting in search.space.ranges:
        values = [trial.settings[setting.key] for trial in done]
        if setting.kind == "choice":  # choices need not be numbers, so their places stand for them
            across = [float(setting.values.index(value)) for value in values]
            label = f"{setting.key}: " + ", ".join(f"{index} is {value}" for index, value in enumerate(setting.values))
        else:
            across = [math.log10(value) if setting.is_log else float(value) for value in values]
            label = f"{setting.key}{', log10' if setting.is_log else ''}"

        plot = scatter_plot(across, [trial.value or 0.0 for trial in done], label, search.metric)
        slices.append(figure(plot, f"Slice: {setting.key}"))
    page.add_section("Each setting", side_by_side(*slices))


def _parallel(search: Search, study: Study) -> Block:
    """An axis for each setting and one for the metric; the best trials in the first color, the others thin."""
    done = study.finished()
    ranges = search.space.ranges
    values = [trial.value or 0.0 for trial in done]
    low = min(values)
    high = max(values)

    # Each axis is 1 apart and 1 high; the room around them is for the names below.
    names = [*(setting.key.rpartition(".")[2] for setting in ranges), search.metric]
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

    # From the worst to the best, so that the strong lines lie over the thin ones.
    strong = math.ceil(BEST_SHARE * len(done))
    for rank, trial in reversed(list(enumerate(done))):
        heights = [setting.position(trial.settings[setting.key]) for setting in ranges]
        heights.append(((trial.value or 0.0) - low) / (high - low) if high > low else 0.5)
        drawing.line(list(enumerate(heights)), int(rank >= strong), 1.8 if rank < strong else 0.7)
    return drawing.svg()


def _add_seeds(page: Page, search: Search, seeds: list[dict[str, object]]) -> None:
    # A training that failed has a reason in place of a value.
    rows: list[tuple[object, str]] = []
    values: list[float] = []
    for training in seeds:
        value = training["value"]
        if isinstance(value, float):
            values.append(value)
        rows.append((training["seed"], search.format(value) if isinstance(value, float) else str(training["reason"])))

    spread = f"{search.format(min(values))} to {search.format(max(values))}" if values else "no result"

    page.add_section(
        "The winner with other seeds",
        data_table(["seed", search.metric], rows),
        small_print(
            f"{spread}. The best of many trials is lucky on dev; these are the same settings with other random "
            "numbers. The model that went through the gate has the config's seed."
        ),
    )


def _add_trials(page: Page, search: Search, study: Study) -> None:
    keys = [setting.key for setting in search.space.ranges]

    def row(trial: Trial) -> list[object]:
        trainings = trial.trainings
        return [
            trial.number,
            *(trial.settings[key] if isinstance(trial.settings[key], int | float | str) else str(trial.settings[key])
              for key in keys),
            search.format(trial.value),
            trainings[-1].epochs if trainings else 0,
            f"{trial.cpu_seconds / 60:.1f}",
            trial.state + (f": {trial.reason.splitlines()[0]}" if trial.reason else ""),
        ]  # fmt: skip

    # Trials without a whole training come after those that have one, by their numbers.
    order = {trial.number: rank for rank, trial in enumerate(study.finished())}
    trials = sorted(study.trials, key=lambda trial: (order.get(trial.number, math.inf), trial.number))
    columns = ["trial", *keys, search.metric, "epochs", "CPU-min", "state"]
    page.add_section("Trials", explorer_table(columns, map(row, trials), "The trials of the search, the best first"))

"""The page on which a person sees how well a model recognises."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.components.evaluate.asr.transcribe import AsrResult
from voxline.components.evaluate.settings import AsrEvaluateSettings
from voxline.data.manifest import Utterance
from voxline.metrics.evaluation import VERDICT_SLOT
from voxline.report import (
    Block,
    Page,
    PlayerBudget,
    badge,
    bar_plot,
    data_table,
    details,
    figure,
    item_list,
    paragraphs,
    slot,
    small_print,
    stat_cards,
    word_diff,
    word_diff_legend,
)

MAX_SLICES = 30
"""Values of one slicing that are drawn; the table beside has up to ten times as many."""

MAX_TEXT = 2_000
"""Characters of a transcript that are shown: a model that runs wild must not fill the page."""


def write_asr_report(
    path: Path,
    metrics: dict[str, Any],
    rows: Sequence[AsrResult],
    utterances: Sequence[Utterance],
    settings: AsrEvaluateSettings,
) -> None:
    """Writes the page; push fills its slot for the verdict."""
    name, digest = metrics["model"]["name"], metrics["model"]["digest"]
    page = Page(
        f"Evaluation of {name}",
        lead=f"Model {digest[:12]} on {metrics['utterances']:,} utterances of the split “{settings.split}”, "
        f"{metrics['seconds'] / 60:.1f} minutes by {metrics['test']['speakers']:,} speakers.",
        footer=f"Evaluation {metrics['key']}. Model {digest}. Test utterances {metrics['test']['fingerprint']}.",
    )
    page.add_opening(
        slot(VERDICT_SLOT, small_print("Not judged yet: push judges, and writes its verdict here.")), _facts(metrics)
    )
    page.add_section("Errors", *_errors(metrics))
    page.add_section("Compared with the model in service", *_comparison(metrics, rows))
    page.add_section("By speaker, duration and more", *_slices(metrics))
    page.add_section("Most confused words", *_confusions(metrics, settings))
    page.add_section("Worst utterances", *_worst(rows, utterances, settings))
    page.add_section("How this was measured", paragraphs(_method(metrics)))
    page.write(path)


def _facts(metrics: dict[str, Any]) -> Block:
    interval = metrics["wer"]["interval"]
    factor = metrics["real_time_factor"]
    values = {
        "word error rate": _percent(metrics["wer"]["rate"]),
        f"{100 * metrics['bootstrap']['confidence']:g}% interval": _range(interval),
        "character error rate": _percent(metrics["cer"]["rate"]),
        "utterances with an error": _percent(metrics["sentence_error_rate"]),
        "real-time factor": f"{factor:.3g} ({1 / factor:.0f}× real time)" if factor else "—",
    }
    return stat_cards(values)


def _errors(metrics: dict[str, Any]) -> list[Block]:
    rows = []
    for unit, key in (("words", "wer"), ("characters", "cer")):
        of = metrics[key]
        counts = [of["insertions"], of["deletions"], of["substitutions"], of["length"]]
        rows.append([unit, _percent(of["rate"]), _range(of["interval"]), *counts])
    return [data_table(["", "error rate", "interval", "inserted", "left out", "taken for another", "said"], rows)]


def _comparison(metrics: dict[str, Any], rows: Sequence[AsrResult]) -> list[Block]:
    if not metrics["champion"]:
        return [small_print("No other model is in service under this name; there is nothing to compare with.")]
    compared, version = metrics["comparison"], metrics["champion"]["version"]
    better = sum(row.champion is not None and row.words.errors < row.champion.words.errors for row in rows)
    worse = sum(row.champion is not None and row.words.errors > row.champion.words.errors for row in rows)
    rates = {"this model": metrics["wer"]["rate"], f"version {version}": compared["champion_wer"]}
    drawn = zip(rates, (metrics["wer"]["interval"], compared["champion_interval"]), strict=True)
    intervals = {name: (interval["low"], interval["high"]) for name, interval in drawn}
    plot = bar_plot(rates, "word error rate", intervals=intervals, percent=True)
    return [
        stat_cards(
            {
                f"version {version}": _percent(compared["champion_wer"]),
                "difference, in points": _points(compared["difference"]),
                "interval of the difference": f"{_points(compared['interval']['low'])} to "
                f"{_points(compared['interval']['high'])}",
                "probability of being worse": f"{compared['probability_worse']:.0%}",
                "utterances better / worse": f"{better:,} / {worse:,}",
            }
        ),
        figure(plot, "Both models on the same recordings."),
        small_print(
            "Both heard the same recordings; the difference is taken utterance by utterance. Above zero is worse."
        ),
    ]


def _slices(metrics: dict[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    for name, values in metrics["slices"].items():
        shown = list(values.items())
        if name not in ("duration", "words"):
            shown.sort(key=lambda item: -item[1]["wer"]["rate"])
        drawn = dict(shown[:MAX_SLICES])
        rates = {value: figures["wer"]["rate"] for value, figures in drawn.items()}
        intervals = {
            value: (figures["wer"]["interval"]["low"], figures["wer"]["interval"]["high"])
            for value, figures in drawn.items()
        }
        left_out = f", the {MAX_SLICES} worst of {len(shown):,}" if len(shown) > MAX_SLICES else ""
        plot = bar_plot(rates, "word error rate", intervals=intervals, percent=True)
        blocks.append(figure(plot, f"Word error rate by {name}{left_out}, with intervals."))
        blocks.append(details(f"By {name}, in figures", _slice_table(name, shown[: 10 * MAX_SLICES])))
    return blocks


def _slice_table(name: str, values: Sequence[tuple[str, dict[str, Any]]]) -> Block:
    rows = []
    for value, figures in values:
        wer, compared = figures["wer"], figures["comparison"]
        difference = _points(compared["difference"]) if compared else None
        counts = [figures["utterances"], wer["length"]]
        rows.append([value, *counts, _percent(wer["rate"]), _range(wer["interval"]), difference])
    return data_table([name, "utterances", "words", "error rate", "interval", "points over the model in service"], rows)


def _confusions(metrics: dict[str, Any], settings: AsrEvaluateSettings) -> list[Block]:
    rows = [
        [pair["said"] or badge("nothing"), pair["heard"] or badge("nothing"), pair["count"]]
        for pair in metrics["confusions"][: settings.confusions]
    ]
    if not rows:
        return [small_print("Not one word was heard wrongly.")]
    return [data_table(["said", "heard", "times"], rows)]


def _worst(rows: Sequence[AsrResult], utterances: Sequence[Utterance], settings: AsrEvaluateSettings) -> list[Block]:
    """Many errors and a large share of the words count alike: neither one-word clips nor long texts crowd in."""
    order = sorted(range(len(rows)), key=lambda i: (-rows[i].words.errors * rows[i].words.rate, rows[i].id))
    order = [index for index in order if rows[index].words.errors][: settings.worst]
    if not order:
        return [small_print("No utterance has an error.")]
    reel = PlayerBudget(round(settings.audio_megabytes * 1e6))
    shown = []
    for index in order:
        row, utterance = rows[index], utterances[index]
        who = f" by {row.speaker}" if row.speaker else ""
        caption = f"{row.id}{who}, {row.duration:.1f} s, errors: {row.words.errors} on words: {row.words.length}"
        player = reel.player(utterance.audio_filepath, caption, offset=utterance.offset, duration=utterance.duration)
        said, heard = row.reference[:MAX_TEXT], row.hypothesis[:MAX_TEXT]
        shown.append(player + word_diff(said, heard))
    return [word_diff_legend(), item_list(*shown)]


def _method(metrics: dict[str, Any]) -> str:
    bootstrap, interval = metrics["bootstrap"], metrics["wer"]["interval"]
    return (
        "The exported model was loaded from the files that would ship, and heard the recordings of the test split. "
        "Errors are counted by jiwer; a rate is all errors over all words that were said.\n\n"
        f"Intervals hold {100 * bootstrap['confidence']:g}% of {bootstrap['samples']:,} resamples, drawn over "
        f"{interval['units']:,} {interval['over']} (seed {bootstrap['seed']}). "
        f"From {bootstrap['fewest_speakers']} speakers on, speakers are drawn in place of utterances, since the words "
        "of one speaker fall together. With fewer than five of either the interval is all there is. Where no error was "
        "seen its upper end is the exact binomial bound.\n\n"
        "The probability of being worse is the share of resamples in which this model makes more errors than the one "
        "in service, ties counted half. The real-time factor is seconds of computing for a second of speech on the "
        "machine that evaluated; it takes no part in the verdict."
    )


def _percent(rate: float) -> str:
    return f"{rate:.2%}" if rate < 0.0995 else f"{rate:.1%}"


def _range(interval: dict[str, Any]) -> str:
    return f"{_percent(interval['low'])} to {_percent(interval['high'])}"


def _points(difference: float) -> str:
    return f"{100 * difference:+.2f}"

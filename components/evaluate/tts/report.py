"""The page on which a person hears and sees how well a voice speaks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.audio.griffin_lim import features_to_waveform
from voxline.components.evaluate.settings import TtsEvaluateSettings
from voxline.components.evaluate.tts.round_trip import reference_text
from voxline.components.evaluate.tts.synthesize import Sample, SampleGallery
from voxline.inference.synthesizer import Synthesizer
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import VERDICT_SLOT, UtteranceResult
from voxline.report import (
    Block,
    Page,
    Panel,
    PlayerBudget,
    bar_plot,
    data_table,
    details,
    figure,
    image_panels,
    item_list,
    paragraphs,
    side_by_side,
    slot,
    small_print,
    stat_cards,
    word_diff,
    word_diff_legend,
)

OPENING = ("round_trip_wer", "mcd", "mel_dtw", "attention_diagonality", "hit_limit")
DRAWN = ("round_trip_wer", "mcd", "attention_diagonality", "duration_ratio")
MAX_TEXT = 600
"""Characters of a text that are shown."""


def write_tts_report(
    path: Path,
    metrics: dict[str, Any],
    rows: Sequence[UtteranceResult],
    gallery: SampleGallery,
    voice: Synthesizer,
    settings: TtsEvaluateSettings,
) -> None:
    """Writes the page; push fills its slot for the verdict."""
    name, digest = metrics["model"]["name"], metrics["model"]["digest"]
    page = Page(
        f"Evaluation of {name}",
        lead=f"Voice {digest[:12]} on {metrics['utterances']:,} utterances of the split “{settings.split}”, "
        f"{metrics['seconds'] / 60:.1f} minutes as recorded.",
        footer=f"Evaluation {metrics['key']}. Model {digest}. Test utterances {metrics['test']['fingerprint']}.",
    )
    reel = PlayerBudget(round(settings.audio_megabytes * 1e6))
    told = {row.id: row for row in rows}
    page.add_opening(
        slot(VERDICT_SLOT, small_print("Not judged yet: push judges, and writes its verdict here.")), _facts(metrics)
    )
    page.add_section("Figures", *_figures(metrics))
    page.add_section("Listen", *_takes(gallery.samples, told, voice, reel, "No utterance is shown (evaluate.typical)."))
    page.add_section("Worst utterances", *_takes(gallery.worst, told, voice, reel, "None is shown (evaluate.worst)."))
    page.add_section("By length of the text and more", *_slices(metrics))
    page.add_section("How this was measured", paragraphs(_method(metrics)))
    page.write(path)


def _facts(metrics: dict[str, Any]) -> Block:
    found = metrics["figures"]
    values = {CATALOG[name].title: CATALOG[name].shown(found[name]["value"]) for name in OPENING if name in found}
    factor = metrics["real_time_factor"]
    return stat_cards({**values, "real-time factor": f"{factor:.3g} ({1 / factor:.0f}× real time)" if factor else "—"})


def _figures(metrics: dict[str, Any]) -> list[Block]:
    champion, listener = metrics["champion"], metrics["listener"]
    columns = ["", "measured", "interval", "utterances"]
    if champion:
        columns += [f"version {champion['version']}", "difference", "worse with probability"]
    rows = []
    for name, of in metrics["figures"].items():
        shown = CATALOG[name]
        row: list[Any] = [shown.title, shown.shown(of["value"]), shown.range(of["interval"]), of["measured"]]
        if champion:
            compared = of["comparison"]
            worse = compared["probability_worse"]
            row += [
                shown.shown(compared["champion_value"]),
                shown.change(compared["difference"]) if compared["measured"] else None,
                f"{worse:.0%}" if worse is not None and compared["measured"] else None,
            ]
        rows.append(row)
    blocks = [data_table(columns, rows)]
    if not champion:
        blocks.append(small_print("No other voice is in service under this name; there is nothing to compare with."))
    if listener:
        blocks.append(
            small_print(
                f"The listener is version {listener['version']} of {listener['name']}; of the recordings themselves it "
                f"gets {metrics['recorded_wer']:.2%} of the words wrong."
            )
        )
    else:
        blocks.append(small_print("No listener was set, so nothing here says whether the voice is understood."))
    return blocks


def _takes(
    takes: Sequence[Sample], rows: dict[str, UtteranceResult], voice: Synthesizer, reel: PlayerBudget, none: str
) -> list[Block]:
    if not takes:
        return [small_print(none)]
    legend = (
        [word_diff_legend("the listener")] if any("heard" in rows[take.utterance.id].told for take in takes) else []
    )
    return [*legend, item_list(*(_take(take, rows[take.utterance.id], voice, reel) for take in takes))]


def _take(take: Sample, row: UtteranceResult, voice: Synthesizer, reel: PlayerBudget) -> Block:
    utterance, rate = take.utterance, voice.sample_rate
    forced = features_to_waveform(take.forced.mels, voice.features)
    ended = "ran into the step limit" if take.spoken.hit_limit else "ended by itself"
    found = {name: CATALOG[name].shown(row.figures[name].value) for name in ("mel_l1", "mel_dtw", "mcd")}
    caption = (
        f"{utterance.id}, {ended}; mel distance {found['mel_l1']} teacher-forced, {found['mel_dtw']} free-running, "
        f"distortion {found['mcd']}"
    )
    players = side_by_side(
        reel.player(take.recorded, "recorded", sample_rate=rate),
        reel.player(forced, "teacher-forced", sample_rate=rate),
        reel.player(take.spoken.waveform, "free-running", sample_rate=rate),
    )
    parts = [paragraphs(utterance.text[:MAX_TEXT]), players, figure(_picture(take, voice), caption)]
    if "heard" in row.told:
        parts.append(word_diff(reference_text(utterance)[:MAX_TEXT], row.told["heard"][:MAX_TEXT]))
    return Block("").join(parts)


def _picture(take: Sample, voice: Synthesizer) -> Block:
    mels = take.features[:, voice.features.mel_columns]
    low, high = float(mels.min()), float(mels.max())
    shown = [("recorded", mels), ("teacher-forced", take.forced.mels), ("free-running", take.spoken.mels)]
    panels = [Panel(title, values, lowest=low, highest=high) for title, values in shown]
    aligned = Panel("attention, free-running", take.spoken.alignment, "decoder step", "symbol", 0.0, 1.0)
    return image_panels([*panels, aligned], f"Mel spectrograms and alignment of {take.utterance.id}")


def _slices(metrics: dict[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    drawn = [CATALOG[name] for name in DRAWN if name in metrics["figures"]]
    for name, values in metrics["slices"].items():
        first = drawn[0]
        lengths = {value: of["figures"][first.name]["value"] or 0.0 for value, of in values.items()}
        ends = {value: of["figures"][first.name]["interval"] for value, of in values.items()}
        intervals = {
            value: (end["low"], end["high"])
            for value, end in ends.items()
            if end["low"] is not None and end["high"] is not None
        }
        title = name.replace("_", " ")
        plot = bar_plot(lengths, first.title, intervals=intervals, percent=first.unit == "%")
        blocks.append(figure(plot, f"{first.title.capitalize()} by {title}, with intervals."))
        rows = [
            [value, of["utterances"], *(one.shown(of["figures"][one.name]["value"]) for one in drawn)]
            for value, of in values.items()
        ]
        in_figures = data_table([title, "utterances", *(one.title for one in drawn)], rows)
        blocks.append(details(f"By {title}, in figures", in_figures, opened=True))
    return blocks


def _method(metrics: dict[str, Any]) -> str:
    bootstrap, chosen = metrics["bootstrap"], metrics["settings"]
    return (
        "The exported voice was loaded from the files that would ship. Teacher-forced, it foretells each frame from "
        "the recorded ones before it; free-running, it hears only itself, and time warping then brings its frames "
        "together with the recorded ones. Mel distances are mean absolute differences in the units of the features. "
        f"Mel cepstral distortion compares c1 to c{chosen['cepstra']} along the path on which it is least. F0 (pYIN, "
        f"{chosen['lowest_f0']:g} to {chosen['highest_f0']:g} Hz) was measured on {metrics['pitched']:,} utterances, "
        "evenly picked over their lengths; it is compared where both are voiced; what is hoarse counts as unvoiced.\n\n"
        "Attention is near the diagonal within a fifth of the text on each side. A skip is four symbols or more in a "
        "row that were never attended, a repeat a return by four or more. A voice can attend well and speak badly: "
        "whether it is understood is for the listener to say.\n\n"
        f"Intervals hold {100 * bootstrap['confidence']:g}% of {bootstrap['samples']:,} resamples over utterances "
        f"(seed {bootstrap['seed']}); fewer than five utterances have none. The real-time factor is seconds of "
        "computing for a second of speech, Griffin-Lim included, on the machine that evaluated."
    )

"""The validation report: the result, every check, distributions, and utterances to listen to."""

from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.components.validate.checks.check import CheckResult
from voxline.components.validate.columns import count_distinct, median
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import ValidateSettings
from voxline.data.manifest import localize_audio
from voxline.report import (
    Block,
    Page,
    PlayerBudget,
    badge,
    bar_plot,
    data_table,
    details,
    figure,
    format_duration,
    histogram,
    item_list,
    paragraphs,
    plural,
    side_by_side,
    small_print,
    stat_cards,
    verdict_banner,
)
from voxline.report.charts import quantiles
from voxline.report.page import Tone
from voxline.text.personal_data import masked

MAX_SPEAKERS = 20
TFDV_NOTE = (
    "The checks from missing_features to drift use TFX's data validation; statistics.html has its statistics of every "
    "feature."
)


def validation_page(corpus: CheckedCorpus, results: list[CheckResult], settings: ValidateSettings) -> Page:
    page = Page(
        "Is this corpus fit to train on?",
        lead=f"{len(corpus):,} utterances, {format_duration(corpus.durations.sum(dtype=float))} of audio, "
        "checked before training.",
        footer="A check fails if its value is above its threshold. The config sets both, under validate.",
    )

    # The verdict first, then what a person needs to act on it, and only then the corpus in general.
    page.add_opening(_verdict(results), _facts(corpus))
    page.add_section("Checks", _checks(results), small_print(TFDV_NOTE))
    if offenders := _offenders(corpus, results, settings):
        page.add_section("Offending utterances", *offenders)

    page.add_section("Distributions", _distributions(corpus, settings))
    page.add_section("Splits and speakers", _splits(corpus), *_drafts(corpus), *_speakers(corpus), *_rejects(corpus))
    return page


def _verdict(results: list[CheckResult]) -> Block:
    # A failed check of severity "warning" is a warning.
    failed = [result.check.name for result in results if result.fails_the_step]
    warned = [result.check.name for result in results if result.outcome == "failed" and not result.fails_the_step]
    warnings = f"{plural(len(warned), 'warning')}: {', '.join(warned)}." if warned else "No warnings."

    if failed:
        heading = f"Not fit: {plural(len(failed), 'check')} failed: {', '.join(failed)}"
        return verdict_banner(heading, f"Training does not start. {warnings}", "bad")
    if warned:
        return verdict_banner("Fit, with warnings", warnings, "caution")
    return verdict_banner("Fit to train on", "Every check that was run has passed.", "good")


def _facts(corpus: CheckedCorpus) -> Block:
    speakers = sum(name != "" for name in corpus.speakers.names)
    rejected = None if corpus.rejects is None else sum(corpus.rejects.values())
    return stat_cards(
        {
            "utterances": len(corpus),
            "audio": format_duration(corpus.durations.sum(dtype=float)),
            "speakers": speakers or None,
            "distinct sentences": corpus.sentences.distinct,
            "rejected by the previous step": rejected,
        }
    )


def _checks(results: list[CheckResult]) -> Block:
    # What fails the step comes first, then warnings, and what was not checked or is off last.
    order = {"failed": 0, "passed": 1, "not checked": 2, "off": 3}
    ordered = sorted(results, key=lambda result: (not result.fails_the_step, order[result.outcome]))
    return data_table(
        ["result", "check", "value", "threshold", "details"],
        [
            [_state(result), _question(result), result.value, result.threshold, result.finding.detail]
            for result in ordered
        ],
    )


def _state(result: CheckResult) -> Block:
    if result.outcome == "failed":
        return badge("failed", "bad") if result.fails_the_step else badge("warning", "caution")
    tones: dict[str, Tone] = {"passed": "good"}
    return badge(result.outcome, tones.get(result.outcome, "plain"))


def _question(result: CheckResult) -> Block:
    return paragraphs(result.check.question) + small_print(result.check.name)


def _offenders(corpus: CheckedCorpus, results: list[CheckResult], settings: ValidateSettings) -> list[Block]:
    """The offenders of each failed check: players for the first few, a table for some more."""
    blocks: list[Block] = []
    players = PlayerBudget()

    # All players share one budget of bytes, so the checks that fail the step come first.
    for result in sorted(results, key=lambda result: not result.fails_the_step):
        rows = [int(row) for row in result.finding.offenders[: settings.max_listed]]
        if result.outcome != "failed" or not rows:
            continue

        played = [] if result.finding.hidden else rows[: settings.max_played]
        named = rows[len(played) :]
        localize_audio(corpus.utterance(row) for row in played)
        inside = [item_list(*[_utterance(corpus, result, row, players) for row in played])] if played else []

        if named:
            shown = [(corpus.utterance(row), result.finding.describe(row)) for row in named]
            cells = [[utterance.id, utterance.split, masked(utterance.text), reason] for utterance, reason in shown]
            inside.append(
                details(
                    f"{len(named):,}{' more' if played else ''}",
                    data_table(["utterance", "split", "text", "reason"], cells),
                )
            )

        omitted = len(result.finding.offenders) - len(rows)
        if omitted:
            inside.append(
                small_print(f"{omitted:,} more are not listed (validate.max_listed is {settings.max_listed:,}).")
            )

        heading = f"{result.check.name}: {plural(len(result.finding.offenders), 'utterance')}"
        blocks.append(details(heading, *inside, opened=not blocks))
    return blocks


def _utterance(corpus: CheckedCorpus, result: CheckResult, row: int, players: PlayerBudget) -> Block:
    utterance = corpus.utterance(row)
    speaker = f"speaker {utterance.speaker}" if utterance.speaker else ""

    # The finding may say no more than the facts do, such as the speaker.
    facts = [utterance.id, utterance.split, speaker, f"{corpus.durations[row]:.2f} s"]
    if result.finding.describe(row) not in facts:
        facts.append(result.finding.describe(row))

    return players.player(
        utterance.audio_filepath,
        " · ".join(part for part in facts if part),
        offset=utterance.offset,
        duration=float(corpus.durations[row]),
    ) + paragraphs(f"“{masked(utterance.text)}”")


def _distributions(corpus: CheckedCorpus, settings: ValidateSettings) -> Block:
    # [utterances], characters a second. The bounds are drawn only if they are of that unit.
    rates = corpus.characters / np.maximum(corpus.durations, 1e-3)
    rate_settings = settings.speaking_rate
    rate_bounds = [rate_settings.min_rate, rate_settings.max_rate] if rate_settings.unit == "characters" else []

    plots = [
        _histogram(corpus, corpus.durations, "duration, seconds"),
        _histogram(corpus, rates, "speaking rate, characters a second", rate_bounds),
        _histogram(corpus, corpus.characters, "length of the transcript, characters"),
    ]

    # NaN where convert did not measure, as with a manifest of other origin.
    if np.isfinite(corpus.measured["rms_db"]).any():
        limits = settings.level
        plots += [
            _histogram(corpus, corpus.measured["rms_db"], "level, dB below full scale", [limits.min_db, limits.max_db]),
            _histogram(corpus, corpus.measured["silence_share"], "share of silence", [settings.silence.silence_share]),
        ]

    return side_by_side(*plots)


def _histogram(corpus: CheckedCorpus, values: npt.NDArray[Any], label: str, bounds: list[float] | None = None) -> Block:
    # A histogram says nothing to a screen reader, so the text in its place gives the quantiles.
    by_split = {split: values[corpus.rows(split)] for split in corpus.present_splits()}
    return figure(
        histogram(by_split, label, bounds=bounds or []),
        f"{label[:1].upper()}{label[1:]}, by split.",
        alt=f"Histograms of {label}: "
        + "; ".join(f"{split} {_spread(part)}" for split, part in by_split.items() if np.isfinite(part).any()),
    )


def _spread(values: npt.NDArray[Any]) -> str:
    low, middle, high = quantiles(values[np.isfinite(values)], 0.05, 0.5, 0.95)
    return f"median {middle:.3g}, 90% from {low:.3g} to {high:.3g}"


def _splits(corpus: CheckedCorpus) -> Block:
    rows = []
    for split in corpus.present_splits():
        indices = corpus.rows(split)
        durations = corpus.durations[indices]
        speakers = corpus.speakers.codes[indices]

        # An utterance without a speaker is not one of a speaker more.
        rows.append(
            [
                split,
                len(indices),
                format_duration(durations.sum(dtype=float)),
                f"{median(durations):.2f} s",
                count_distinct(speakers[speakers != corpus.speakers.number("")]) or None,
                count_distinct(corpus.sentences.codes[indices]),
                int(corpus.words[indices].sum()),
            ]
        )

    return data_table(["split", "utterances", "audio", "median", "speakers", "distinct sentences", "words"], rows)


def _drafts(corpus: CheckedCorpus) -> list[Block]:
    """Table of the drafts in each split, by the model that wrote them; [] without drafts."""
    rows = []
    for split in corpus.present_splits():
        indices = corpus.rows(split)
        for model in filter(None, corpus.drafted_by.names):
            drafts = indices[corpus.drafted_by.codes[indices] == corpus.drafted_by.number(model)]
            if drafts.size:
                rows.append([split, model, len(drafts), format_duration(corpus.durations[drafts].sum(dtype=float))])
    return (
        [data_table(["split", "drafted by", "drafts", "audio"], rows, "Transcripts that models wrote")] if rows else []
    )


def _speakers(corpus: CheckedCorpus) -> list[Block]:
    # [speakers] in seconds; "" means utterances without a speaker.
    seconds = np.bincount(corpus.speakers.codes, weights=corpus.durations, minlength=1)
    named = [int(code) for code in np.argsort(-seconds, kind="stable") if code < len(corpus.speakers.names)]
    named = [code for code in named if corpus.speakers.names[code]]

    if not named:
        return []
    shown = {corpus.speakers.names[code]: float(seconds[code] / 60) for code in named[:MAX_SPEAKERS]}
    caption = "Minutes of audio by speaker"
    if len(named) > len(shown):
        caption += f", the {len(shown)} with the most of {len(named):,}"
    return [figure(bar_plot(shown, "minutes of audio"), caption + ".")]


def _rejects(corpus: CheckedCorpus) -> list[Block]:
    if not corpus.rejects:
        return []
    return [data_table(["reason", "rejected"], list(corpus.rejects.items()), "Rejects of the previous step")]

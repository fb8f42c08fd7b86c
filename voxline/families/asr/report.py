"""The sections of an evaluation's report that only ASR models have."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.components.evaluate.measurement import SLICES, EvaluationJob
from voxline.data.manifest import Utterance
from voxline.inference.ctc_alignment import align_words_in_audio
from voxline.inference.recognizer import Recognizer
from voxline.inference.waveforms import read_waveform
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import EvaluationInfo, UtteranceResult
from voxline.report import (
    Block,
    PlayerBudget,
    SpokenWord,
    WordRow,
    anchor,
    badge,
    compare_texts,
    data_table,
    details,
    explorer_table,
    item_list,
    link,
    marked_texts,
    paragraphs,
    plural,
    side_by_side,
    small_print,
    spectrogram_view,
    stat_cards,
    word_diff,
    word_diff_legend,
)
from voxline.text.alphabet import Alphabet

MAX_TEXT = 2_000
"""Characters of a transcript that are shown: a model that never stops must not fill the page."""

MAX_ALIGNED_SECONDS = 20.0
"""Longer utterances are shown without a spectrogram."""

MAX_TABLE_BYTES = 900_000
"""Of the table of all utterances; the worst ones come first."""


def asr_sections(
    job: EvaluationJob, results: Sequence[UtteranceResult], info: EvaluationInfo, recognizer: Recognizer
) -> list[tuple[str, list[Block]]]:
    """Regressions and fixes, errors by kind and word, the worst utterances, and all of them.

    Args:
      info: the contents of metrics.json.
      recognizer: the model, to align words with the audio.
    """
    shown = _Shown(job, results, recognizer)
    counted, count = info.details, job.settings.confusions
    changes = [("Regressions and fixes", _changes(shown))] if job.champion else []
    return [
        *changes,
        (SLICES, []),
        *([("Language model", _language_model(counted))] if "language_model" in counted else []),
        ("Errors by kind", _errors(counted)),
        ("Words", [side_by_side(_missed(counted, count), _confused(counted, count))]),
        ("Worst utterances", _worst(shown)),
        ("Highest loss", _highest_loss(shown, counted["worst_by_loss"])),
        ("All utterances", _all(shown)),
    ]


class _Shown:
    """The utterances of the report: which have an entry to link to, and how much audio is left."""

    def __init__(self, job: EvaluationJob, results: Sequence[UtteranceResult], recognizer: Recognizer) -> None:
        self.job, self.results, self._recognizer = job, results, recognizer
        self.entries: set[int] = set()
        self._budget = PlayerBudget(round(job.settings.audio_megabytes * 1e6))
        self._alphabet = Alphabet(recognizer.info.alphabet) if recognizer.info.alphabet else None
        self._views_left = job.settings.aligned_utterances

    def text(self, index: int, name: str) -> str:
        return str(self.results[index].details[name])[:MAX_TEXT]

    def loss(self, index: int) -> str:
        found = self.results[index].details
        return CATALOG["ctc_loss"].format(found["loss"]) if found["loss"] is not None else str(found["no_loss"])

    def errors(self, index: int) -> tuple[int, int | None]:
        """Of this model and of the model in service."""
        result = self.results[index]
        return round(result.metrics["wer"].sum), None if result.champion is None else round(result.champion["wer"].sum)

    def entry(self, index: int, comparison: Block) -> Block:
        """One utterance: what it is, a player, the texts; the spectrogram with the words for the first entries."""
        result, utterance = self.results[index], self.job.utterances[index]
        if index in self.entries:  # a second entry links to the first
            above = link("player and spectrogram above", f"#u{index}")
            return Block("").join([paragraphs(self._about(index)), above, comparison])
        self.entries.add(index)
        player = self._budget.player(
            utterance.audio_filepath,
            offset=utterance.offset,
            duration=utterance.duration,
            codec="mp3",
            label=f"utterance {result.id}",
        )
        blocks = [anchor(f"u{index}"), paragraphs(self._about(index)), player, comparison]
        if self._views_left and utterance.duration <= MAX_ALIGNED_SECONDS and (view := self._view(index, utterance)):
            self._views_left -= 1
            blocks.append(view)
        return Block("").join(blocks)

    def _about(self, index: int) -> str:
        result = self.results[index]
        errors, words = result.metrics["wer"]
        facts = [
            result.id,
            f"speaker {result.speaker}" if result.speaker else "",
            f"{result.duration:.1f} s",
            f"SNR {result.details['snr_db']:.0f} dB",
            f"sentence {result.slices['sentence']}",
            f"{plural(round(errors), 'error')} in {plural(round(words), 'word')}",
            f"loss {self.loss(index)}",
        ]
        return " · ".join(fact for fact in facts if fact)

    def _view(self, index: int, utterance: Utterance) -> Block | None:
        if self._alphabet is None:
            return None
        waveform = read_waveform(
            Path(utterance.audio_filepath), self._recognizer.sample_rate, utterance.offset, utterance.duration
        )
        (values,) = self._recognizer.log_probabilities([waveform])
        first, frame = self._recognizer.frame_times(len(waveform) / self._recognizer.sample_rate, len(values))
        rows = []
        for name in ("reference", "hypothesis"):
            words = align_words_in_audio(values, self.text(index, name), self._alphabet, frame, first)
            if words:
                rows.append(WordRow(name, [SpokenWord(one.word, one.start, one.end, one.confidence) for one in words]))
        return spectrogram_view(
            waveform, self._recognizer.sample_rate, rows, f"Spectrogram and aligned words of {self.results[index].id}"
        )


def _changes(shown: _Shown) -> list[Block]:
    """The utterances on which this model and the model in service differ in errors."""
    champion = shown.job.champion
    if champion is None:
        return []
    version = f"version {champion.version}"
    change = {}
    for index in range(len(shown.results)):
        now, before = shown.errors(index)
        change[index] = now - (before or 0)
    order = sorted(change, key=lambda index: (-abs(change[index]), shown.results[index].id))
    worse, better = [index for index in order if change[index] > 0], [index for index in order if change[index] < 0]
    rewritten = sum(
        not change[index] and shown.text(index, "hypothesis") != shown.text(index, "champion_hypothesis")
        for index in change
    )
    cards = {
        "regressions: more errors": len(worse),
        "fixes: fewer errors": len(better),
        "as many errors, other text": rewritten,
        "same text": len(change) - len(worse) - len(better) - rewritten,
    }
    blocks: list[Block] = [stat_cards(cards)]
    most = shown.job.settings.worst_utterances
    for name, indices, opened in (("Regressions", worse, True), ("Fixes", better, False)):
        if not indices:
            blocks.append(small_print(f"{name}: none."))
            continue
        entries = []
        for index in indices[:most]:
            texts = {version: shown.text(index, "champion_hypothesis"), "this model": shown.text(index, "hypothesis")}
            entries.append(shown.entry(index, compare_texts(shown.text(index, "reference"), texts)))
        if len(indices) > most:
            more = f"{len(indices) - most:,} more are in the table of all utterances; sort it by “change”."
            entries.append(small_print(more))
        blocks.append(details(f"{name}: {plural(len(indices), 'utterance')}", item_list(*entries), opened=opened))
    return [*blocks, word_diff_legend(version, "this model")]


def _errors(counted: dict[str, Any]) -> list[Block]:
    kinds = ("substitutions", "deletions", "insertions")
    rows = []
    for unit in ("words", "characters"):
        length = counted[unit]["length"]
        shares = [f"{counted[unit][kind]:,} ({counted[unit][kind] / max(length, 1):.2%})" for kind in kinds]
        rows.append([unit, *shares, length])
    return [data_table(["unit", *kinds, "in the references"], rows, label="Errors by kind")]


def _language_model(counted: dict[str, Any]) -> list[Block]:
    """The errors with it beside those of greedy decoding, and what it is."""
    about = counted["language_model"]
    rows = []
    for unit in ("words", "characters"):
        sums = counted["greedy"][unit], counted[unit]
        errors = [one["substitutions"] + one["deletions"] + one["insertions"] for one in sums]
        shares = [f"{count:,} ({count / max(sums[1]['length'], 1):.2%})" for count in errors]
        rows.append([unit, *shares, sums[1]["length"]])
    tuned = about.get("tuned_on")
    how = f"the best of those tried on {tuned['utterances']:,} utterances of {tuned['split']}" if tuned else "as set"
    said = (
        f"A {about['order']}-gram model of {about['vocabulary']:,} words, made of {about['text']['sentences']:,} "
        f"sentences. Its weight (alpha) is {about['alpha']:g}, that of each word (beta) {about['beta']:g}: {how}."
    )
    table = data_table(
        ["errors in", "greedy", "with the language model", "in the references"], rows, label="Language model"
    )
    return [table, small_print(said)]


def _missed(counted: dict[str, Any], count: int) -> Block:
    rows = [
        [one["word"], f"{one['missed']:,} of {one['occurs']:,}", f"{one['missed'] / one['occurs']:.0%}"]
        for one in counted["missed_words"][:count]
    ]
    if not rows:
        return small_print("No word of the references was missed.")
    return data_table(["reference word", "missed", "share"], rows, "Words missed: substituted or deleted")


def _confused(counted: dict[str, Any], count: int) -> Block:
    rows = [
        [pair["reference"] or badge("insertion"), pair["hypothesis"] or badge("deletion"), pair["count"]]
        for pair in counted["confusions"][:count]
    ]
    if not rows:
        return small_print("No word is wrong.")
    return data_table(["reference", "hypothesis", "times"], rows, "Most confused words")


def _worst(shown: _Shown) -> list[Block]:
    order = _worst_first(shown.results)[: shown.job.settings.worst_utterances]
    if not order:
        return [small_print("No utterance has an error.")]
    entries = []
    for index in order:
        entries.append(shown.entry(index, word_diff(shown.text(index, "reference"), shown.text(index, "hypothesis"))))
    return [
        word_diff_legend(),
        small_print("Below a spectrogram: the words where the model's CTC output has them, with its confidence."),
        item_list(*entries),
    ]


def _highest_loss(shown: _Shown, worst: list[dict[str, Any]]) -> list[Block]:
    """Utterances whose transcript the model finds least probable; many of them are transcribed wrongly."""
    numbers = {result.id: index for index, result in enumerate(shown.results)}
    entries = []
    for one in worst:
        index = numbers[one["id"]]
        entries.append(shown.entry(index, word_diff(shown.text(index, "reference"), shown.text(index, "hypothesis"))))
    note = (
        f"The {plural(len(entries), 'utterance')} with the highest CTC loss of the reference, whatever was recognized. "
        "Listen to them: the transcript may be wrong."
    )
    return [small_print(note), item_list(*entries)]


def _all(shown: _Shown) -> list[Block]:
    """Every utterance in one table: the worst first, then by id."""
    worst = _worst_first(shown.results)
    known = set(worst)
    rest = sorted((result.id, index) for index, result in enumerate(shown.results) if index not in known)
    rows: list[list[Any]] = []
    size = 0
    for index in [*worst, *(index for _, index in rest)]:
        result = shown.results[index]
        reference, hypothesis = marked_texts(shown.text(index, "reference"), shown.text(index, "hypothesis"))
        size += 200 + len(reference) + len(hypothesis)
        if size > MAX_TABLE_BYTES:
            break
        now, before = shown.errors(index)
        name = link(result.id, f"#u{index}") if index in shown.entries else result.id
        rate = f"{now / max(result.metrics['wer'].weight, 1):.0%}"
        change = [] if before is None else [f"{now - before:+d}".replace("-", "−") if now != before else "0"]
        loss = "impossible" if result.details["loss"] is None else f"{result.details['loss']:.1f}"
        seconds, snr = f"{result.duration:.1f}", f"{result.details['snr_db']:.0f}"
        sentence = result.slices["sentence"]
        rows.append([name, result.speaker, now, rate, *change, reference, hypothesis, loss, seconds, snr, sentence])
    columns = ["utterance", "speaker", "errors", "WER", *(["change"] if shown.job.champion else [])]
    columns += ["reference", "hypothesis", "loss", "seconds", "SNR, dB", "sentence"]
    note = "Sentence: whether train contains it too. utterances.jsonl has more of each utterance."
    if len(rows) < len(shown.results):
        note = f"The {len(rows):,} worst of {len(shown.results):,}; utterances.jsonl has them all."
    return [explorer_table(columns, rows, "All utterances of the split"), small_print(note)]


def _worst_first(results: Sequence[UtteranceResult]) -> list[int]:
    """Indices of the results with an error. Many errors and a high rate count alike, so that neither one-word clips
    nor long texts crowd out the rest.
    """

    def badness(index: int) -> float:
        errors, words = results[index].metrics["wer"]
        return errors * errors / max(words, 1)

    wrong = [index for index, result in enumerate(results) if result.metrics["wer"].sum]
    return sorted(wrong, key=lambda index: (-badness(index), results[index].id))

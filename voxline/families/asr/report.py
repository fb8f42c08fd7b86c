"""The sections of an evaluation's report that only ASR models have."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.components.evaluate.measurement import SLICES, EvaluationJob
from voxline.data.manifest import Utterance
from voxline.families.asr.details import AsrDetails, HighLossInfo, JoinedInfo
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

MAX_TEXT = 2_000
"""Characters of a transcript that are shown: a model that never stops must not fill the page."""

MAX_ALIGNED_SECONDS = 20.0
"""Longer utterances are shown without a spectrogram."""

MAX_TABLE_BYTES = 900_000
"""Size of the table of all utterances; the worst ones come first."""


def asr_sections(
    job: EvaluationJob, results: Sequence[UtteranceResult], info: EvaluationInfo, recognizer: Recognizer
) -> list[tuple[str, list[Block]]]:
    """Regressions and fixes, errors by kind and word, the worst utterances, and all of them.

    Args:
      info: the contents of metrics.json.
      recognizer: the model, to align words with the audio.
    """
    shown = _Shown(job, results, recognizer)
    details = info.family_details(AsrDetails)
    count = job.settings.confusions

    # The first section that shows an utterance has its player; later ones, and the table of all, link to it.
    changes = [("Regressions and fixes", _changes(shown))] if job.champion else []
    return [
        *changes,
        (SLICES, []),
        *([("Language model", _language_model(details))] if details.language_model else []),
        ("Errors by kind", _errors(details)),
        *([("Utterances joined with pauses", _joined(details.joined))] if details.joined else []),
        ("Words", [side_by_side(_missed(details, count), _confused(details, count))]),
        ("Worst utterances", _worst(shown)),
        *([("Highest loss", _highest_loss(shown, details.worst_by_loss))] if details.worst_by_loss else []),
        ("All utterances", _all(shown)),
    ]


class _Shown:
    """The utterances of the report: which have an entry to link to, and how much audio is left."""

    def __init__(self, job: EvaluationJob, results: Sequence[UtteranceResult], recognizer: Recognizer) -> None:
        self.job = job
        self.results = results
        self._recognizer = recognizer
        self.has_losses = recognizer.has_ctc
        self.entries: set[int] = set()
        self._budget = PlayerBudget(round(job.settings.audio_megabytes * 1e6))
        self._alphabet = recognizer.alphabet if recognizer.info.alphabet else None
        self._views_left = job.settings.aligned_utterances

    def text(self, index: int, name: str) -> str:
        return str(self.results[index].details[name])[:MAX_TEXT]

    def loss(self, index: int) -> str:
        details = self.results[index].details
        return CATALOG["ctc_loss"].format(details["loss"]) if details["loss"] is not None else str(details["no_loss"])

    def errors(self, index: int) -> tuple[int, int | None]:
        """Wrong words by this model and by the model in service."""
        result = self.results[index]
        champion_errors = None if result.champion is None else round(result.champion["wer"].sum)
        return round(result.measured("wer").sum), champion_errors

    def entry(self, index: int, comparison: Block) -> Block:
        """One utterance: its facts, a player, the texts; the spectrogram with the words for the first entries."""
        result = self.results[index]
        utterance = self.job.utterances[index]
        if index in self.entries:  # a second entry links to the first
            above = link("player and spectrogram above", f"#u{index}")
            return Block("").join([paragraphs(self._facts(index)), above, comparison])
        self.entries.add(index)
        player = self._budget.player(
            utterance.audio_filepath,
            offset=utterance.offset,
            duration=utterance.duration,
            codec="mp3",
            label=f"utterance {result.id}",
        )
        blocks = [anchor(f"u{index}"), paragraphs(self._facts(index)), player, comparison]
        if self._views_left and utterance.duration <= MAX_ALIGNED_SECONDS and (view := self._view(index, utterance)):
            self._views_left -= 1
            blocks.append(view)
        return Block("").join(blocks)

    def _facts(self, index: int) -> str:
        result = self.results[index]
        errors, words = result.measured("wer")
        facts = [
            result.id,
            f"speaker {result.speaker}" if result.speaker else "",
            f"{result.duration:.1f} s",
            f"SNR {result.details['snr_db']:.0f} dB",
            f"sentence {result.slices['sentence']}",
            f"{plural(round(errors), 'error')} in {plural(round(words), 'word')}",
            f"loss {self.loss(index)}" if self.has_losses else "",
        ]
        return " · ".join(fact for fact in facts if fact)

    def _view(self, index: int, utterance: Utterance) -> Block | None:
        """The spectrogram with the words of both texts, where the CTC output has them; None without such an output."""
        if self._alphabet is None:
            return None
        waveform = read_waveform(
            Path(utterance.audio_filepath), self._recognizer.sample_rate, utterance.offset, utterance.duration
        )
        (log_probabilities,) = self._recognizer.log_probabilities([waveform])  # [frames, symbols + 1]
        seconds = len(waveform) / self._recognizer.sample_rate
        first, frame = self._recognizer.frame_times(seconds, len(log_probabilities))

        # A text that is too long for the frames cannot be aligned, and gets no row.
        rows = []
        for name in ("reference", "hypothesis"):
            aligned = align_words_in_audio(log_probabilities, self.text(index, name), self._alphabet, frame, first)
            if aligned:
                words = [SpokenWord(word.word, word.start, word.end, word.confidence) for word in aligned]
                rows.append(WordRow(name, words))
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
        errors, champion_errors = shown.errors(index)
        change[index] = errors - (champion_errors or 0)

    # The largest changes first; of equal ones by id, so that two pages of the same evaluation are the same.
    order = sorted(change, key=lambda index: (-abs(change[index]), shown.results[index].id))
    worse = [index for index in order if change[index] > 0]
    better = [index for index in order if change[index] < 0]
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

    # A list that is cut off says where the others are.
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


def _errors(details: AsrDetails) -> list[Block]:
    rows = []
    for unit, edits in (("words", details.words), ("characters", details.characters)):
        counts = (edits.substitutions, edits.deletions, edits.insertions)
        rows.append([unit, *(_with_share(count, edits.length) for count in counts), edits.length])
    columns = ["unit", "substitutions", "deletions", "insertions", "in the references"]
    return [data_table(columns, rows, label="Errors by kind")]


def _joined(joined: JoinedInfo) -> list[Block]:
    """The errors of some utterances one by one, and joined into long recordings."""
    rows: list[list[Any]] = [["one by one", _with_share(joined.single.errors, joined.single.length), "", ""]]
    for kind in joined.kinds:
        minutes = kind.pause_seconds / 60
        rate = f"{kind.words_in_pauses / minutes:.1f}"
        errors = _with_share(kind.words.errors, kind.words.length)
        rows.append([f"pauses of {kind.kind}", errors, kind.words_in_pauses, rate])
    note = (
        f"{plural(joined.utterances, 'utterance')}, {joined.seconds:.0f} s of speech, with pauses of 0.3 to 3 s, and "
        "cut at pauses as evaluate.pauses says."
    )
    columns = ["utterances", "word errors", "words in pauses", "a minute"]
    return [data_table(columns, rows, label="Errors of joined utterances"), small_print(note)]


def _with_share(count: int, length: int) -> str:
    return f"{count:,} ({count / max(length, 1):.2%})"


def _language_model(details: AsrDetails) -> list[Block]:
    """The errors with the language model beside those of greedy decoding, and its origin."""
    model = details.language_model_info
    greedy = details.greedy
    if model is None or greedy is None:
        return []

    # Both are of the same references, so they share a length.
    rows = []
    units = (("words", greedy.words, details.words), ("characters", greedy.characters, details.characters))
    for unit, without, edits in units:
        shares = [_with_share(errors, edits.length) for errors in (without.errors, edits.errors)]
        rows.append([unit, *shares, edits.length])

    tuned = model.tuned_on
    origin = f"the best of those tried on {tuned.utterances:,} utterances of {tuned.split}" if tuned else "as set"
    sentences = model.text.sentences
    text = "from a file of n-grams" if sentences is None else f"made of {sentences:,} sentences"
    note = (
        f"A {model.order}-gram model of {model.vocabulary:,} words, {text}. Its weight (alpha) is "
        f"{model.alpha:g}, that of each word (beta) {model.beta:g}: {origin}. "
        f"{details.language_model_licences}"
    ).rstrip()
    table = data_table(
        ["errors in", "greedy", "with the language model", "in the references"], rows, label="Language model"
    )
    return [table, small_print(note)]


def _missed(details: AsrDetails, count: int) -> Block:
    rows = [
        [missed.word, f"{missed.missed:,} of {missed.occurs:,}", f"{missed.missed / missed.occurs:.0%}"]
        for missed in details.missed_words[:count]
    ]
    if not rows:
        return small_print("No word of the references was missed.")
    return data_table(["reference word", "missed", "share"], rows, "Words missed: substituted or deleted")


def _confused(details: AsrDetails, count: int) -> Block:
    rows = [
        [pair.reference or badge("insertion"), pair.hypothesis or badge("deletion"), pair.count]
        for pair in details.confusions[:count]
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


def _highest_loss(shown: _Shown, worst: Sequence[HighLossInfo]) -> list[Block]:
    """Utterances whose transcript the model finds least probable; many of them are transcribed wrongly."""
    index_of = {result.id: index for index, result in enumerate(shown.results)}
    entries = []
    for utterance in worst:
        index = index_of[utterance.id]
        entries.append(shown.entry(index, word_diff(shown.text(index, "reference"), shown.text(index, "hypothesis"))))
    note = (
        f"The {plural(len(entries), 'utterance')} with the highest CTC loss of the reference, whatever was recognized. "
        "Listen to them: the transcript may be wrong."
    )
    return [small_print(note), item_list(*entries)]


def _all(shown: _Shown) -> list[Block]:
    """Every utterance in one table: the worst first, then by id."""
    worst = _worst_first(shown.results)
    wrong = set(worst)
    correct = sorted((result.id, index) for index, result in enumerate(shown.results) if index not in wrong)
    rows: list[list[Any]] = []
    size = 0
    for index in [*worst, *(index for _, index in correct)]:
        result = shown.results[index]
        reference, hypothesis = marked_texts(shown.text(index, "reference"), shown.text(index, "hypothesis"))

        # The texts and about 200 bytes of the other cells and of markup: a page of megabytes opens slowly.
        size += 200 + len(reference) + len(hypothesis)
        if size > MAX_TABLE_BYTES:
            break

        errors, champion_errors = shown.errors(index)
        name = link(result.id, f"#u{index}") if index in shown.entries else result.id
        rate = f"{errors / max(result.measured('wer').weight, 1):.0%}"
        change = []
        if champion_errors is not None:
            difference = errors - champion_errors
            change = [f"{difference:+d}".replace("-", "−") if difference else "0"]
        without_loss = "impossible" if shown.has_losses else "none"
        loss = without_loss if result.details["loss"] is None else f"{result.details['loss']:.1f}"
        seconds = f"{result.duration:.1f}"
        snr = f"{result.details['snr_db']:.0f}"
        sentence = result.slices["sentence"]
        rows.append([name, result.speaker, errors, rate, *change, reference, hypothesis, loss, seconds, snr, sentence])

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
        errors, words = results[index].measured("wer")
        return errors * errors / max(words, 1)  # the number of errors, times their rate

    wrong = [index for index, result in enumerate(results) if result.measured("wer").sum]
    return sorted(wrong, key=lambda index: (-badness(index), results[index].id))

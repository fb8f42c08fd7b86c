"""The sections of an evaluation's report that only vocoders have."""

from collections.abc import Sequence
from typing import Any

from voxline.audio.features import compute_features, magnitude_spectrogram
from voxline.audio.griffin_lim import features_to_waveform
from voxline.components.evaluate.measurement import EvaluationJob
from voxline.components.evaluate.report import baseline_table
from voxline.components.evaluate.speech import evenly_spaced_ids, read_utterance
from voxline.data.manifest import Utterance
from voxline.families.vocoder.details import VocoderDetails
from voxline.inference.vocoder import Vocoder
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import EvaluationInfo, UtteranceResult
from voxline.report import (
    Block,
    Panel,
    PlayerBudget,
    figure,
    image_panels,
    item_list,
    paragraphs,
    side_by_side,
    small_print,
)

MAX_TEXT = 600
"""Characters of a text that are shown."""
FLOOR_DB = -60.0
CEILING_DB = 30.0
"""Magnitudes in dB at the ends of the scale of colors of the spectrograms."""


def vocoder_sections(
    job: EvaluationJob, measured: Sequence[UtteranceResult], info: EvaluationInfo, vocoder: Vocoder
) -> list[tuple[str, list[Block]]]:
    """The table beside Griffin-Lim, and utterances to listen to: recorded, by Griffin-Lim, by the vocoder.

    Args:
      measured: every utterance.
      vocoder: the new model.
    """
    settings = job.settings
    budget = PlayerBudget(round(settings.audio_megabytes * 1e6))
    results = {result.id: result for result in measured}
    sample_ids = evenly_spaced_ids(job.utterances, settings.sample_utterances)
    worst = sorted(job.utterances, key=lambda row: (-results[row.id].measured("log_stft").sum, row.id))

    def show(utterances: Sequence[Utterance], setting: str) -> list[Block]:
        if not utterances:
            return [small_print(f"None is shown ({setting}).")]
        shown = (_show(utterance, results[utterance.id], vocoder, settings, budget) for utterance in utterances)
        return [item_list(*shown)]

    samples = [utterance for utterance in job.utterances if utterance.id in sample_ids]
    return [
        ("Beside Griffin-Lim", _beside_griffin_lim(job, info)),
        ("Samples", show(samples, "evaluate.sample_utterances")),
        ("Worst utterances", show(worst[: settings.worst_utterances], "evaluate.worst_utterances")),
    ]


def _beside_griffin_lim(job: EvaluationJob, info: EvaluationInfo) -> list[Block]:
    details = info.family_details(VocoderDetails)
    recorded = details.recorded_wer
    round_trip = "" if recorded is None else f" On the recordings the recognizer's word error rate is {recorded:.2%}."
    note = (
        f"Griffin-Lim ran {job.settings.griffin_lim_iterations} iterations on the same mels. Differences are "
        f"paired.{round_trip}"
    )
    return [baseline_table(info, details.griffin_lim, "Griffin-Lim"), small_print(note)]


def _show(
    utterance: Utterance, result: UtteranceResult, vocoder: Vocoder, settings: Any, budget: PlayerBudget
) -> Block:
    """One utterance: players and spectrograms of the recording, of Griffin-Lim and of the vocoder."""
    features = vocoder.features
    rate = vocoder.sample_rate

    # All three waveforms are of the mels of the recording, so that only what makes them differs.
    recorded = read_utterance(utterance, rate)
    mels = compute_features(recorded, features)[:, features.mel_columns]
    waveforms = {
        "recorded": recorded,
        "Griffin-Lim": features_to_waveform(mels, features, iterations=settings.griffin_lim_iterations),
        "this model": vocoder.vocode([mels])[0],
    }
    values = {name: CATALOG[name].format(result.metrics[name].sum) for name in ("log_stft", "log_stft_reduction")}
    caption = (
        f"{utterance.id}: log-STFT distance {values['log_stft']}, {values['log_stft_reduction']} less than Griffin-Lim."
    )
    panels = [
        Panel(title, _decibels(samples, vocoder), "s", "kHz", FLOOR_DB, CEILING_DB, (len(samples) / rate, rate / 2_000))
        for title, samples in waveforms.items()
    ]
    players = side_by_side(*(budget.player(samples, title, sample_rate=rate) for title, samples in waveforms.items()))
    picture = figure(image_panels(panels, f"Spectrograms of {utterance.id}"), caption)
    return Block("").join([paragraphs(utterance.text[:MAX_TEXT]), players, picture])


def _decibels(samples: Any, vocoder: Vocoder) -> Any:
    import numpy as np

    return 20 * np.log10(np.maximum(magnitude_spectrogram(samples, vocoder.features), 1e-5))

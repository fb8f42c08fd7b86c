"""The sections of an evaluation's report that only TTS models have."""

from collections.abc import Sequence

from voxline.audio.griffin_lim import features_to_waveform
from voxline.components.evaluate.measurement import EvaluationJob
from voxline.families.tts.details import TtsDetails
from voxline.families.tts.synthesize import Sample, SampleGallery
from voxline.inference.synthesizer import Synthesizer
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
    word_diff,
    word_diff_legend,
)

MAX_TEXT = 600
"""Characters of a text that are shown."""


def tts_sections(
    job: EvaluationJob,
    measured: Sequence[UtteranceResult],
    info: EvaluationInfo,
    gallery: SampleGallery,
    synthesizer: Synthesizer,
) -> list[tuple[str, list[Block]]]:
    """The round trip, and samples to listen to.

    Args:
      measured: every utterance.
      gallery: the samples.
      synthesizer: the new model.
    """
    # One budget for both sections: what the samples leave goes to the worst utterances.
    budget = PlayerBudget(round(job.settings.audio_megabytes * 1e6))
    results = {result.id: result for result in measured}

    def show(samples: Sequence[Sample], setting: str) -> list[Block]:
        if not samples:
            return [small_print(f"None is shown ({setting}).")]
        with_texts = any("hypothesis" in results[sample.utterance.id].details for sample in samples)
        legend = [word_diff_legend("the round-trip recognizer")] if with_texts else []
        shown = (_show(sample, results[sample.utterance.id], synthesizer, budget) for sample in samples)
        return [*legend, item_list(*shown)]

    return [
        ("Round trip", [_round_trip(info)]),
        ("Samples", show(gallery.samples, "evaluate.sample_utterances")),
        ("Worst utterances", show(gallery.worst, "evaluate.worst_utterances")),
    ]


def _round_trip(info: EvaluationInfo) -> Block:
    recognizer = info.auxiliary_models["round_trip_recognizer"]
    if recognizer is None:
        return small_print("No round-trip recognizer was set, so nothing here says whether the speech is intelligible.")
    recorded = info.family_details(TtsDetails).recorded_wer or 0.0
    return small_print(
        f"Version {recognizer.version} of {recognizer.name} transcribed the synthesized speech. On the "
        f"recordings themselves its word error rate is {recorded:.2%}."
    )


def _show(sample: Sample, result: UtteranceResult, synthesizer: Synthesizer, budget: PlayerBudget) -> Block:
    """One utterance: its metrics, players of the recording and of both ways to synthesize it, and its pictures."""
    utterance = sample.utterance
    rate = synthesizer.sample_rate

    fault = sample.synthesized.pace_fault.replace("_", " ")
    ended = "cut off at the step limit" if sample.synthesized.hit_limit else fault or "complete"
    values = {name: CATALOG[name].format(result.metrics[name].sum) for name in ("mel_dtw", "mcd")}
    caption = f"{utterance.id}, {ended}; mel distance {values['mel_dtw']}, distortion {values['mcd']}"
    sounds = {"recorded": sample.recorded}
    if sample.teacher_forced:
        # Teacher forcing gives the network the recorded frames, so it shows the voice without its errors of timing.
        caption += f"; mel distance {CATALOG['mel_l1'].format(result.metrics['mel_l1'].sum)} teacher-forced"
        sounds["teacher-forced"] = features_to_waveform(sample.teacher_forced.mels, synthesizer.features)
    sounds[_own_title(sample)] = sample.synthesized.waveform
    players = side_by_side(*(budget.player(samples, title, sample_rate=rate) for title, samples in sounds.items()))
    blocks = [paragraphs(utterance.text[:MAX_TEXT]), players, figure(_image(sample, synthesizer), caption)]
    if "hypothesis" in result.details:
        blocks.append(word_diff(*(result.details[name][:MAX_TEXT] for name in ("reference", "hypothesis"))))
    return Block("").join(blocks)


def _image(sample: Sample, synthesizer: Synthesizer) -> Block:
    """The mels in one scale of colors, that of the recording, and the attention."""
    mels = sample.features[:, synthesizer.features.mel_columns]
    low = float(mels.min())
    high = float(mels.max())
    shown = {"recorded": mels}
    if sample.teacher_forced:
        shown["teacher-forced"] = sample.teacher_forced.mels
    shown[_own_title(sample)] = sample.synthesized.mels
    panels = [Panel(title, values, lowest=low, highest=high) for title, values in shown.items()]
    alignment = Panel(
        f"attention, {_own_title(sample)}", sample.synthesized.alignment, "decoder step", "symbol", 0.0, 1.0
    )
    return image_panels([*panels, alignment], f"Mel spectrograms and attention of {sample.utterance.id}")


def _own_title(sample: Sample) -> str:
    """The title of what the voice says by itself."""
    return "autoregressive" if sample.teacher_forced else "synthesized"

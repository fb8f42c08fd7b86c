"""The sections of an evaluation's report that only TTS models have."""

from collections.abc import Sequence

from voxline.audio.griffin_lim import features_to_waveform
from voxline.components.evaluate.judges import SPEAKER_JUDGE, VOICE_ACTIVITY, advise_on_agreement
from voxline.components.evaluate.measurement import EvaluationJob
from voxline.components.evaluate.speech import PUBLIC_RECOGNIZER, ROUND_TRIP_RECOGNIZER
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
    verdict_banner,
    word_diff,
    word_diff_legend,
)

HEARS_LITTLE = 0.3
"""Word error rate on recordings above which a recognizer says little of a voice."""
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
        with_texts = any(
            {"hypothesis", "public_hypothesis"} & results[sample.utterance.id].details.keys() for sample in samples
        )
        legend = [word_diff_legend("the round-trip recognizer")] if with_texts else []
        shown = (_show(sample, results[sample.utterance.id], synthesizer, budget) for sample in samples)
        return [*legend, item_list(*shown)]

    return [
        ("Round trip", _round_trip(info)),
        *([("Speaker and pauses", of_files)] if (of_files := _judged_by_files(info)) else []),
        ("Samples", show(gallery.samples, "evaluate.sample_utterances")),
        ("Worst utterances", show(gallery.worst, "evaluate.worst_utterances")),
    ]


def _round_trip(info: EvaluationInfo) -> list[Block]:
    """Who transcribed the speech, how well each hears the recordings, and whether they agree."""
    details = info.family_details(TtsDetails)
    own, public = (info.auxiliary_models.get(name) for name in (ROUND_TRIP_RECOGNIZER, PUBLIC_RECOGNIZER))
    if own is None and public is None:
        lacking = "No round-trip recognizer was set, so nothing here says whether the speech is intelligible."
        return [small_print(lacking)]
    texts = [
        f"Version {model.version} of {model.name}{role} transcribed the synthesized speech. On the recordings "
        f"themselves its word error rate is {recorded or 0.0:.2%}"
        + (", so that it says little of the voice." if (recorded or 0.0) > HEARS_LITTLE else ".")
        for model, role, recorded in (
            (own, "", details.recorded_wer),
            (public, ", the public recognizer,", details.recorded_public_wer),
        )
        if model is not None
    ]
    if details.recorded_agreement is not None:
        agreement, disagreement = (
            info.metrics[name].value for name in ("recognizer_agreement", "recognizer_disagreement")
        )
        texts.append(
            f"Both write the same for {agreement or 0.0:.2%} of the sentences, and for "
            f"{details.recorded_agreement:.2%} of the recordings."
        )
        if advice := advise_on_agreement(disagreement, details.recorded_disagreement):
            return [verdict_banner("The recognizers hear different words", advice, "caution"), *map(small_print, texts)]
    return [*map(small_print, texts)]


def _judged_by_files(info: EvaluationInfo) -> list[Block]:
    """What the speaker encoder and the voice activity detector found, beside the recordings."""
    details = info.family_details(TtsDetails)
    values = {name: CATALOG[name].format(metric.value) for name, metric in info.metrics.items()}
    blocks = []
    if encoder := info.auxiliary_models.get(SPEAKER_JUDGE):
        same = details.recorded_same_speaker
        share = "" if same is None else f"; of the recordings, {same:.2%}"
        blocks.append(
            f"{encoder.name} ({encoder.digest[:12]}) compared the speech with the other recordings of its speaker: "
            f"likeness {values['speaker_likeness']}, where that of the recordings is "
            f"{CATALOG['speaker_likeness'].format(details.recorded_likeness)}. {values['same_speaker_rate']} of the "
            f"utterances are of their speaker{share}."
        )
    if activity := info.auxiliary_models.get(VOICE_ACTIVITY):
        blocks.append(
            f"{activity.name} ({activity.digest[:12]}) found {values['speech_share']} of the recordings' share of "
            f"speech, and {values['trailing_silence']} of silence at the end, where recordings have "
            f"{CATALOG['trailing_silence'].format(details.recorded_trailing_silence)}."
        )
    return [*map(small_print, blocks)]


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
    # What each recognizer heard: where they differ, a person listens.
    listeners = [prefix for prefix in ("", "public_") if f"{prefix}hypothesis" in result.details]
    for prefix in listeners:
        if len(listeners) > 1:
            blocks.append(small_print(f"By the {'public' if prefix else 'round-trip'} recognizer:"))
        texts = (result.details[f"{prefix}{name}"][:MAX_TEXT] for name in ("reference", "hypothesis"))
        blocks.append(word_diff(*texts))
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

"""Push for TTS models: their smoke test, and their part of the model card."""

from typing import Any

from voxline.components.evaluate.speech import PUBLIC_RECOGNIZER, ROUND_TRIP_RECOGNIZER
from voxline.components.push.gate import RepeatedOutput
from voxline.components.push.model_card import extent_of_test, limits_of_test, shell_usage
from voxline.families.tts.details import TtsDetails, TtsSmokeTest
from voxline.families.tts.speakers import name_speakers
from voxline.inference.model_info import ModelInfo
from voxline.metrics.evaluation import CLIP_MELS_FILE, Evaluation
from voxline.store.size_limits import load_npy

TOLERANCE = 0.05
"""Largest DTW distance of the mels, as a share of their standard deviation. The model's noise is fixed, so on one kind
of processor the distance is 0; on another, rounding may make a sound last a frame longer."""


class TtsPushFamily:
    """The smoke test and the model card of TTS models; see `PushFamily`."""

    smoke_test_task = "synthesize the text"
    smoke_test_output = "distance"
    smoke_test_tolerance: float | None = TOLERANCE

    def smoke_test_arguments(self, evaluation: Evaluation) -> list[str]:
        test = evaluation.smoke_test(TtsSmokeTest)
        return [test.symbols, str(evaluation.folder / CLIP_MELS_FILE), test.speaker]

    def compare_repeated(self, answer: dict[str, Any], evaluation: Evaluation) -> RepeatedOutput:
        # In standard deviations of the expected mels: features of other settings have another scale.
        distance = answer["distance"] / max(answer["deviation"], 1e-9)
        finding = (
            f"{answer['frames']} frames, {answer['expected']} in evaluate, {distance:.3f} standard deviations apart"
        )
        passed = distance <= TOLERANCE
        return RepeatedOutput.by_difference(passed, "synthesized the text", finding, distance, str(TOLERANCE))

    def repeat(self, *arguments: str) -> dict[str, Any]:
        """Args: the model's folder, symbols, a file of the expected mels, float32 [frames, mels], and who speaks."""

        from voxline.audio.dtw import dtw
        from voxline.inference.synthesizer import Synthesizer

        model, symbols, mels, speaker = arguments
        expected = load_npy(mels)
        (result,) = Synthesizer(model).synthesize_symbols([symbols], [speaker])
        return {
            "distance": dtw(expected, result.mels).distance,
            "deviation": float(expected.std()),
            "frames": len(result.mels),
            "expected": len(expected),
        }

    def describe(self, model: ModelInfo) -> str:
        return (
            f"A speech synthesis model ({model.kind.capitalize()}). Its alphabet is `{model.alphabet}`, its "
            f"output audio at {model.sample_rate:,} Hz."
            + (f" It speaks as {name_speakers(model.speakers)}." if model.speakers else "")
        )

    def errors(self, evaluation: Evaluation) -> str:
        auxiliary = evaluation.info.auxiliary_models
        details = evaluation.details(TtsDetails)
        listened = [
            f"Version {recognizer.version} of the ASR model `{recognizer.name}` transcribed the synthesized "
            f"speech (round trip). Its word error rate on the recordings is {recorded_wer:.2%}."
            for recognizer, recorded_wer in (
                (auxiliary.get(ROUND_TRIP_RECOGNIZER), details.recorded_wer),
                (auxiliary.get(PUBLIC_RECOGNIZER), details.recorded_public_wer),
            )
            if recognizer is not None and recorded_wer is not None
        ]
        return " ".join(listened) or (
            "No recognizer transcribed the synthesized speech, so its intelligibility was not measured."
        )

    def limitations(self, evaluation: Evaluation) -> list[str]:
        model = evaluation.model_info
        vocoder = model.vocoder
        served = [
            f"It was judged by the waveforms of the vocoder {vocoder.name} in `vocoder/`, which "
            "`voxline synthesize` uses. Those of its own signature are Griffin-Lim's."
        ] if vocoder else []  # fmt: skip
        return [
            *served,
            limits_of_test(
                "texts", f"{extent_of_test(evaluation.info)} as recorded", "Other words may come out worse."
            ),
            f"It is cut off after {model.max_steps:,} {_steps_of(model.kind)}, which `hit_limit` reports: split longer "
            "texts.",
            "Its input is symbols. Text goes through a frontend first, as in `voxline synthesize`.",
            "It speaks with the voice of its recordings. Any use needs that person's consent.",
        ]

    def usage(self, model: ModelInfo, name: str, version: int) -> str:
        speakers = " and `speakers` int32 [batch] (rows of the speaker table)" if model.speakers else ""
        return shell_usage(
            f"voxline synthesize TEXT --model <registry>/{name}/{version} --output out.wav",
            "Signature `synthesize`: inputs `symbols` int32 [batch, symbols] (indices into the alphabet), `lengths` "
            f"int32 [batch]{speakers}; outputs `mels` float32 [batch, frames, mels], `frames` int32 [batch], "
            "`alignments` float32 [batch, steps, symbols], `waveforms` float32 [batch, samples] at "
            f"{model.sample_rate:,} Hz, `samples` "
            "int32 [batch] and `hit_limit` bool [batch].",
        )


def _steps_of(kind: str) -> str:
    """
    >>> _steps_of("fastspeech"), _steps_of("tacotron2")
    ('frames', 'decoder steps')
    """
    return "frames" if kind == "fastspeech" else "decoder steps"

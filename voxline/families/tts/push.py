"""Push for TTS models: their smoke test, and their part of the model card."""

from typing import Any

from voxline.components.push.gate import RepeatedOutput
from voxline.inference.model_info import ModelInfo
from voxline.metrics.evaluation import CLIP_MELS_FILE, Evaluation
from voxline.store.size_limits import load_npy

TOLERANCE = 0.05
"""Largest DTW distance of the mels, as a share of their standard deviation. The model's noise is fixed, so on one kind
of processor the distance is 0; on another, rounding may make a sound last a frame longer."""


class TtsPushFamily:
    """How push handles TTS models; see `PushFamily`."""

    smoke_test_task = "synthesize the text"
    smoke_test_output = "distance"
    smoke_test_tolerance: float | None = TOLERANCE

    def smoke_test_arguments(self, evaluation: Evaluation) -> list[str]:
        return [evaluation.metrics["smoke_test"]["symbols"], str(evaluation.folder / CLIP_MELS_FILE)]

    def compare_repeated(self, answer: dict[str, Any], evaluation: Evaluation) -> RepeatedOutput:
        distance = answer["distance"] / max(answer["deviation"], 1e-9)
        finding = (
            f"{answer['frames']} frames, {answer['expected']} in evaluate, {distance:.3f} standard deviations apart"
        )
        if distance > TOLERANCE:
            detail = f"a fresh process synthesized the text differently: {finding}; at most {TOLERANCE} is accepted"
            return RepeatedOutput(False, detail, distance)
        return RepeatedOutput(True, f"a fresh process loaded the model and synthesized the text: {finding}", distance)

    def repeat(self, *arguments: str) -> dict[str, Any]:
        """Args: the model's folder, symbols, and a file of the expected mels, float32 [frames, mels]."""

        from voxline.audio.dtw import dtw
        from voxline.inference.synthesizer import Synthesizer

        model, symbols, mels = arguments
        expected = load_npy(mels)
        (result,) = Synthesizer(model).synthesize_symbols([symbols])
        return {
            "distance": dtw(expected, result.mels).distance,
            "deviation": float(expected.std()),
            "frames": len(result.mels),
            "expected": len(expected),
        }

    def describe(self, info: ModelInfo) -> str:
        return (
            f"A speech synthesis model ({info.kind.capitalize()}). Its alphabet is `{info.alphabet}`, its "
            f"output audio at {info.sample_rate:,} Hz."
        )

    def errors(self, metrics: dict[str, Any]) -> str:
        recognizer = metrics["auxiliary_models"]["round_trip_recognizer"]
        if recognizer is None:
            return "No recognizer transcribed the synthesized speech, so its intelligibility was not measured."
        return (
            f"Version {recognizer['version']} of the ASR model `{recognizer['name']}` transcribed the synthesized "
            f"speech (round trip). Its word error rate on the recordings is {metrics['details']['recorded_wer']:.2%}."
        )

    def limitations(self, info: ModelInfo, metrics: dict[str, Any]) -> list[str]:
        vocoder = info.vocoder
        served = [
            f"It was judged by the waveforms of the vocoder {vocoder.name} in `vocoder/`, which "
            "`voxline synthesize` uses. Those of its own signature are Griffin-Lim's."
        ] if vocoder else []  # fmt: skip
        return [
            *served,
            f"The metrics hold for texts like those of the test split: {metrics['utterances']:,} utterances, "
            f"{metrics['seconds'] / 60:.1f} minutes as recorded. Other words may come out worse.",
            f"It is cut off after {info.max_steps:,} {_steps_of(info.kind)}, which `hit_limit` reports: split longer "
            "texts.",
            "Its input is symbols. Text goes through a frontend first, as in `voxline synthesize`.",
            "It speaks with the voice of its recordings. Any use needs that person's consent.",
        ]

    def usage(self, info: ModelInfo, name: str, version: int) -> str:
        return (
            "```sh\n"
            f"voxline synthesize TEXT --model <registry>/{name}/{version} --output out.wav\n"
            "tensorflow_model_server --model_config_file=<registry>/models.config\n"
            "```\n\n"
            f"{_full_signature(info)}"
        )


def _steps_of(kind: str) -> str:
    """
    >>> _steps_of("fastspeech"), _steps_of("tacotron2")
    ('frames', 'decoder steps')
    """
    return "frames" if kind == "fastspeech" else "decoder steps"


def _full_signature(info: ModelInfo) -> str:
    return (
        "Signature `synthesize`: inputs `symbols` int32 [batch, symbols] (indices into the alphabet) and `lengths` "
        "int32 [batch]; outputs `mels` float32 [batch, frames, mels], `frames` int32 [batch], `alignments` float32 "
        f"[batch, steps, symbols], `waveforms` float32 [batch, samples] at {info.sample_rate:,} Hz, `samples` "
        "int32 [batch] and `hit_limit` bool [batch]."
    )

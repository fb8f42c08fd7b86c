"""Push for vocoders: their smoke test, and their part of the model card."""

from typing import Any

from voxline.components.push.gate import RepeatedOutput
from voxline.components.push.model_card import extent_of_test, limits_of_test, shell_usage
from voxline.families.vocoder.details import VocoderDetails
from voxline.inference.model_info import ModelInfo
from voxline.metrics.evaluation import CLIP_FILE, CLIP_MELS_FILE, Evaluation
from voxline.store.size_limits import load_npy

TOLERANCE = 0.01
"""Largest difference of the waveforms as a share of their root mean square: roundings, and the 16 bits of the clip."""


class VocoderPushFamily:
    """The smoke test and the model card of vocoders; see `PushFamily`."""

    smoke_test_task = "vocode the mels"
    smoke_test_output = "difference"
    smoke_test_tolerance: float | None = TOLERANCE

    def smoke_test_arguments(self, evaluation: Evaluation) -> list[str]:
        return [str(evaluation.folder / name) for name in (CLIP_MELS_FILE, CLIP_FILE)]

    def compare_repeated(self, answer: dict[str, Any], evaluation: Evaluation) -> RepeatedOutput:
        # Relative to the level of the recording, so that a quiet clip is judged as strictly as a loud one.
        difference = answer["difference"] / max(answer["level"], 1e-9)
        finding = f"{answer['samples']:,} samples, {answer['expected']:,} in evaluate, {difference:.2%} apart"
        passed = answer["samples"] == answer["expected"] and difference <= TOLERANCE
        return RepeatedOutput.by_difference(passed, "vocoded the mels", finding, difference, f"{TOLERANCE:.0%}")

    def repeat(self, *arguments: str) -> dict[str, Any]:
        """Args: the model's folder, a file of mels float32 [frames, mels], and the WAV that is expected."""
        import numpy as np
        import soundfile

        from voxline.inference.vocoder import Vocoder

        model, mels, wav = arguments
        expected, _ = soundfile.read(wav, dtype="float32")
        (waveform,) = Vocoder(model).vocode([load_npy(mels)])

        # The WAV of evaluate was clipped to what 16 bits can hold.
        count = min(len(waveform), len(expected))
        difference = np.clip(waveform[:count], -1, 1) - expected[:count]
        return {
            "difference": float(np.sqrt(np.mean(difference**2))),
            "level": float(np.sqrt(np.mean(expected**2))),
            "samples": len(waveform),
            "expected": len(expected),
        }

    def describe(self, model: ModelInfo) -> str:
        features = model.features
        return (
            f"A vocoder ({model.kind}): audio at {model.sample_rate:,} Hz of {features['mels']} mel bands "
            f"every {1000 * features['hop_seconds']:g} ms."
        )

    def errors(self, evaluation: Evaluation) -> str:
        baseline = evaluation.details(VocoderDetails).griffin_lim["log_stft"]
        if baseline.value is None or baseline.difference is None:
            return ""
        iterations = evaluation.info.settings["griffin_lim_iterations"]
        return (
            f"Griffin-Lim ({iterations} iterations) on the same mels: log-STFT distance {baseline.value:.2f} dB; "
            f"this model differs by {baseline.difference:+.2f} dB."
        )

    def limitations(self, evaluation: Evaluation) -> list[str]:
        extent = extent_of_test(evaluation.info)
        return [
            limits_of_test("mels of recordings", extent, "Mels that a voice predicts are smoother."),
            "It reads mels of its own feature settings only; voices with others are refused by the setting's name.",
            "It was trained on the voices of its corpus, and may render others worse.",
        ]

    def usage(self, model: ModelInfo, name: str, version: int) -> str:
        return shell_usage(
            f"voxline synthesize TEXT --model <registry>/VOICE --vocoder <registry>/{name}/{version} --output out.wav",
            "Signature `vocode`: inputs `mels` float32 [batch, frames, mels] and `frames` int32 [batch]; outputs "
            f"`waveforms` float32 [batch, samples] at {model.sample_rate:,} Hz and `samples` int32 [batch].",
        )

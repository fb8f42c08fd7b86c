"""Push for vocoders: their smoke test, and their part of the model card."""

from typing import Any

from voxline.components.push.gate import RepeatedOutput
from voxline.inference.model_info import ModelInfo
from voxline.metrics.evaluation import CLIP_FILE, CLIP_MELS_FILE, Evaluation
from voxline.store.size_limits import load_npy

TOLERANCE = 0.01
"""Largest difference of the waveforms as a share of their root mean square: roundings, and the 16 bits of the clip."""


class VocoderPushFamily:
    """How push handles vocoders; see `PushFamily`."""

    smoke_test_task = "vocode the mels"
    smoke_test_output = "difference"
    smoke_test_tolerance: float | None = TOLERANCE

    def smoke_test_arguments(self, evaluation: Evaluation) -> list[str]:
        return [str(evaluation.folder / name) for name in (CLIP_MELS_FILE, CLIP_FILE)]

    def compare_repeated(self, answer: dict[str, Any], evaluation: Evaluation) -> RepeatedOutput:
        difference = answer["difference"] / max(answer["level"], 1e-9)
        finding = f"{answer['samples']:,} samples, {answer['expected']:,} in evaluate, {difference:.2%} apart"
        if answer["samples"] != answer["expected"] or difference > TOLERANCE:
            detail = f"a fresh process vocoded the mels differently: {finding}; at most {TOLERANCE:.0%} is accepted"
            return RepeatedOutput(False, detail, difference)
        return RepeatedOutput(True, f"a fresh process loaded the model and vocoded the mels: {finding}", difference)

    def repeat(self, *arguments: str) -> dict[str, Any]:
        """Args: the model's folder, a file of mels float32 [frames, mels], and the WAV that is expected."""
        import numpy as np
        import soundfile

        from voxline.inference.vocoder import Vocoder

        model, mels, wav = arguments
        expected, _ = soundfile.read(wav, dtype="float32")
        (made,) = Vocoder(model).vocode([load_npy(mels)])
        count = min(len(made), len(expected))
        apart = np.clip(made[:count], -1, 1) - expected[:count]
        return {
            "difference": float(np.sqrt(np.mean(apart**2))),
            "level": float(np.sqrt(np.mean(expected**2))),
            "samples": len(made),
            "expected": len(expected),
        }

    def describe(self, info: ModelInfo) -> str:
        features = info.features
        return (
            f"A vocoder ({info.kind}): audio at {info.sample_rate:,} Hz of {features['mels']} mel bands "
            f"every {1000 * features['hop_seconds']:g} ms."
        )

    def errors(self, metrics: dict[str, Any]) -> str:
        baseline = metrics["details"]["griffin_lim"]["log_stft"]
        iterations = metrics["settings"]["griffin_lim_iterations"]
        return (
            f"Griffin-Lim ({iterations} iterations) on the same mels: log-STFT distance {baseline['value']:.2f} dB; "
            f"this model differs by {baseline['difference']:+.2f} dB."
        )

    def limitations(self, info: ModelInfo, metrics: dict[str, Any]) -> list[str]:
        return [
            f"The metrics hold for mels of recordings like those of the test split: {metrics['utterances']:,} "
            f"utterances, {metrics['seconds'] / 60:.1f} minutes. Mels that a voice predicts are smoother.",
            "It reads mels of its own feature settings only; voices with others are refused by the setting's name.",
            "It was trained on the voices of its corpus, and may render others worse.",
        ]

    def usage(self, info: ModelInfo, name: str, version: int) -> str:
        return (
            "```sh\n"
            f"voxline synthesize TEXT --model <registry>/VOICE --vocoder <registry>/{name}/{version} --output out.wav\n"
            "tensorflow_model_server --model_config_file=<registry>/models.config\n"
            "```\n\n"
            "Signature `vocode`: inputs `mels` float32 [batch, frames, mels] and `frames` int32 [batch]; outputs "
            f"`waveforms` float32 [batch, samples] at {info.sample_rate:,} Hz and `samples` int32 [batch]."
        )

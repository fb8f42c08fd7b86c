"""Push for ASR models: their smoke test, and their part of the model card."""

from typing import Any

from voxline.components.push.gate import RepeatedOutput
from voxline.components.push.model_card import markdown_table
from voxline.inference.model_info import ModelInfo
from voxline.metrics.evaluation import CLIP_FILE, Evaluation
from voxline.text.alphabet import Alphabet


class AsrPushFamily:
    """How push handles ASR models; see `PushFamily`."""

    smoke_test_task = "transcribe the clip"
    smoke_test_output = "text"
    smoke_test_tolerance: float | None = None

    def smoke_test_arguments(self, evaluation: Evaluation) -> list[str]:
        return [str(evaluation.folder / CLIP_FILE)]

    def compare_repeated(self, answer: dict[str, Any], evaluation: Evaluation) -> RepeatedOutput:
        expected = evaluation.metrics["smoke_test"]["text"]
        if answer["text"] != expected:
            detail = f"a fresh process transcribed the clip as {answer['text']!r}, evaluate as {expected!r}"
            return RepeatedOutput(False, detail)
        if not expected:
            return RepeatedOutput(None, "a fresh process loaded the model; neither it nor evaluate heard a word")
        return RepeatedOutput(True, f"a fresh process loaded the model and transcribed the clip as {expected!r} too")

    def repeat(self, *arguments: str) -> dict[str, Any]:
        """Args: the model's folder, and a clip."""
        from voxline.inference.recognizer import Recognizer
        from voxline.inference.saved_model import read_model_info

        model, clip = arguments
        # evaluate wrote the SavedModel's text; an 8-bit graph may write another one, and has a check of its own.
        int8 = read_model_info(model).onnx_precision == "int8"
        return {"text": Recognizer(model, engine="tensorflow" if int8 else "auto").transcribe(clip)}

    def describe(self, info: ModelInfo) -> str:
        alphabet = Alphabet(info.alphabet)
        several = len(alphabet.symbols) - len(alphabet.characters)
        subwords = f", written by {several:,} subwords too" if several else ""
        return (
            f"A speech recognition model ({info.kind.upper()}). Its alphabet is `{alphabet.characters}`{subwords}, "
            f"its input audio at {info.sample_rate:,} Hz."
        )

    def errors(self, metrics: dict[str, Any]) -> str:
        kinds = ("substitutions", "deletions", "insertions", "length")
        rows = [[unit, *(f"{metrics['details'][unit][kind]:,}" for kind in kinds)] for unit in ("words", "characters")]
        table = markdown_table(["", *kinds[:-1], "in the references"], rows)
        if "language_model" not in metrics["details"]:
            return table
        search, greedy = metrics["details"]["language_model"], metrics["details"]["greedy"]["words"]
        errors = sum(greedy[kind] for kind in kinds[:-1])
        return (
            f"{table}\n\nDecoded by beam search with a {search['order']}-gram language model of "
            f"{search['vocabulary']:,} words (alpha {search['alpha']:g}, beta {search['beta']:g}), a part of this "
            "version. Greedy decoding, as TensorFlow Serving does it, has a word error rate of "
            f"{errors / max(greedy['length'], 1):.2%}."
        )

    def limitations(self, info: ModelInfo, metrics: dict[str, Any]) -> list[str]:
        return [
            f"The metrics hold for recordings like those of the test split: {metrics['test']['speakers']:,} speakers, "
            f"{metrics['seconds'] / 60:.1f} minutes. Other speakers, rooms and microphones may give far worse results.",
            "It writes in its own alphabet: no digits, punctuation or capitals unless they are in it.",
            "It expects one speaker at a time, and writes text for noise too.",
        ]

    def usage(self, info: ModelInfo, name: str, version: int) -> str:
        return (
            "```sh\n"
            f"voxline transcribe recording.flac --model <registry>/{name}/{version}\n"
            "tensorflow_model_server --model_config_file=<registry>/models.config\n"
            "```\n\n"
            "Signature `transcribe`: inputs `waveforms` float32 [batch, samples] at "
            f"{info.sample_rate:,} Hz in [-1, 1] and `lengths` int32 [batch]; outputs `text` string [batch], "
            "`log_probabilities` float32 [batch, frames, symbols + 1] (blank last) and `frames` int32 [batch]."
        )

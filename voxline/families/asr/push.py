"""Push for ASR models: their smoke test, and their part of the model card."""

from typing import Any

from voxline.components.push.gate import RepeatedOutput
from voxline.components.push.model_card import limits_of_test, markdown_table, shell_usage
from voxline.families.asr.details import AsrDetails, AsrSmokeTest
from voxline.inference.model_info import ATTENTION, ModelInfo
from voxline.metrics.evaluation import CLIP_FILE, Evaluation
from voxline.text.alphabet import Alphabet


class AsrPushFamily:
    """The smoke test and the model card of ASR models; see `PushFamily`."""

    smoke_test_task = "transcribe the clip"
    smoke_test_output = "text"
    smoke_test_tolerance: float | None = None

    def smoke_test_arguments(self, evaluation: Evaluation) -> list[str]:
        return [str(evaluation.folder / CLIP_FILE)]

    def compare_repeated(self, answer: dict[str, Any], evaluation: Evaluation) -> RepeatedOutput:
        expected = evaluation.smoke_test(AsrSmokeTest).text
        if answer["text"] != expected:
            detail = f"a fresh process transcribed the clip as {answer['text']!r}, evaluate as {expected!r}"
            return RepeatedOutput(False, detail)
        if not expected:
            return RepeatedOutput(None, "a fresh process loaded the model; neither it nor evaluate heard a word")
        return RepeatedOutput(True, f"a fresh process loaded the model and transcribed the clip as {expected!r} too")

    def repeat(self, *arguments: str) -> dict[str, Any]:
        """Args: the model's folder, and a clip."""
        from voxline.inference.pauses import OFF
        from voxline.inference.recognizer import Recognizer
        from voxline.inference.saved_model import read_model_info

        model, clip = arguments
        # evaluate wrote the SavedModel's text; an 8-bit graph may write another one, and has a check of its own.
        int8 = read_model_info(model).onnx_precision == "int8"
        return {"text": Recognizer(model, engine="tensorflow" if int8 else "auto", pauses=OFF).transcribe(clip)}

    def describe(self, model: ModelInfo) -> str:
        if model.kind == ATTENTION:
            return (
                "A speech recognition model whose decoder writes the tokens of its tokenizer, as cased and punctuated "
                f"as the transcripts that it learned from; its input is audio at {model.sample_rate:,} Hz, of which it "
                "hears 30 seconds at a time. It decodes greedily, and falls back to nothing else: it may repeat "
                "itself, and write words where nobody speaks."
            )
        alphabet = Alphabet(model.alphabet)
        several = len(alphabet.symbols) - len(alphabet.characters)
        subwords = f", written by {several:,} subwords too" if several else ""
        return (
            f"A speech recognition model ({model.kind.upper()}). Its alphabet is `{alphabet.characters}`{subwords}, "
            f"its input audio at {model.sample_rate:,} Hz."
        )

    def errors(self, evaluation: Evaluation) -> str:
        details = evaluation.details(AsrDetails)
        rows = [
            [unit, f"{edits.substitutions:,}", f"{edits.deletions:,}", f"{edits.insertions:,}", f"{edits.length:,}"]
            for unit, edits in (("words", details.words), ("characters", details.characters))
        ]
        columns = ["", "substitutions", "deletions", "insertions", "in the references"]
        table = markdown_table(columns, rows)
        model = details.language_model_info
        if model is None or details.greedy is None:
            return table

        # The table is of beam search, which callers of TensorFlow Serving do not get.
        return (
            f"{table}\n\nDecoded by beam search with a {model.order}-gram language model of "
            f"{model.vocabulary:,} words (alpha {model.alpha:g}, beta {model.beta:g}), a part of this "
            "version. Greedy decoding, as TensorFlow Serving does it, has a word error rate of "
            f"{details.greedy.words.rate:.2%}. {details.language_model_licences}"
        ).rstrip()

    def limitations(self, evaluation: Evaluation) -> list[str]:
        info = evaluation.info
        return [
            limits_of_test(
                "recordings",
                f"{info.test.speakers:,} speakers, {info.seconds / 60:.1f} minutes",
                "Other speakers, rooms and microphones may give far worse results.",
            ),
            "It writes capitals, marks and digits as the transcripts did that it was trained on."
            if info.model.about.kind == ATTENTION
            else "It writes in its own alphabet: no digits, punctuation or capitals unless they are in it.",
            "It expects one speaker at a time, and writes text for noise too.",
        ]

    def usage(self, model: ModelInfo, name: str, version: int) -> str:
        command = f"voxline transcribe recording.flac --model <registry>/{name}/{version}"
        if model.kind == ATTENTION:
            return shell_usage(
                command,
                "Signature `transcribe`: inputs `waveforms` float32 [batch, samples] at "
                f"{model.sample_rate:,} Hz in [-1, 1], 30 seconds at most, and `lengths` int32 [batch]; outputs `text` "
                "string [batch], `scores` float32 [batch], the mean log probability of the text's tokens, and `counts` "
                "int32 [batch] of these. Signatures `beam_search` and `align` take `beams` int32 [] too; the latter "
                "returns what the times of words need as well.",
            )
        return shell_usage(
            command,
            "Signature `transcribe`: inputs `waveforms` float32 [batch, samples] at "
            f"{model.sample_rate:,} Hz in [-1, 1] and `lengths` int32 [batch]; outputs `text` string [batch], "
            "`log_probabilities` float32 [batch, frames, symbols + 1] (blank last) and `frames` int32 [batch].",
        )

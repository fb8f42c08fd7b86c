"""Push for classifiers of intents: their smoke test, and their part of the model card."""

from typing import Any

from voxline.components.push.gate import RepeatedOutput
from voxline.inference.model_info import ModelInfo
from voxline.metrics.evaluation import Evaluation

TOLERANCE = 0.001
"""Largest difference of the probability: another kind of processor rounds otherwise."""


class IntentsPushFamily:
    """How push handles classifiers of intents; see `PushFamily`."""

    smoke_test_task = "classify the text"
    smoke_test_output = "intent"
    smoke_test_tolerance: float | None = TOLERANCE

    def smoke_test_arguments(self, evaluation: Evaluation) -> list[str]:
        return [evaluation.metrics["smoke_test"]["text"]]

    def compare_repeated(self, answer: dict[str, Any], evaluation: Evaluation) -> RepeatedOutput:
        expected = evaluation.metrics["smoke_test"]
        difference = abs(answer["probability"] - expected["probability"])
        detail = (
            f"a fresh process classified {expected['text']!r} as {answer['intent']!r} ({answer['probability']:.4f}), "
            f"evaluate as {expected['intent']!r} ({expected['probability']:.4f})"
        )
        return RepeatedOutput(answer["intent"] == expected["intent"] and difference <= TOLERANCE, detail, difference)

    def repeat(self, *arguments: str) -> dict[str, Any]:
        """Args: the model's folder, and a normalized text."""
        from voxline.inference.intent_classifier import IntentClassifier

        model, text = arguments
        (found,) = IntentClassifier(model).classify_words([text])
        return {"intent": found.name, "probability": found.probability}

    def describe(self, info: ModelInfo) -> str:
        return (
            f"A classifier of transcripts ({info.kind}): {len(info.intents):,} intents by "
            f"{len(info.vocabulary):,} words. Intents: {', '.join(info.intents)}."
        )

    def errors(self, metrics: dict[str, Any]) -> str:
        recognizer, recognized = metrics["auxiliary_models"]["recognizer"], metrics["details"]["recognizer"]
        parts = []
        if recognizer is None or recognized is None:
            parts.append("No recognizer transcribed the recordings, so only texts were classified.")
        else:
            kept = recognized["words_wrong"]
            parts.append(
                f"What was heard is what version {recognizer['version']} of the ASR model `{recognizer['name']}` "
                f"wrote, with a word error rate of {recognized['wer']:.2%}; of {sum(kept.values()):,} utterances with "
                f"a wrong word, {kept['intent_right']:,} kept their intent."
            )
        if baseline := metrics["details"]["mean_pooling"]:
            rates = ", ".join(f"{one['value']:.2%} ({name})" for name, one in baseline.items())
            parts.append(f"With a mean in place of the capsules: {rates}.")
        return " ".join(parts)

    def limitations(self, info: ModelInfo, metrics: dict[str, Any]) -> list[str]:
        return [
            f"The metrics hold for texts like those of the test split, {metrics['utterances']:,} utterances; other "
            "phrasings of the same intent may be missed.",
            "It finds one of its intents in every text, also in one that has none of them: look at the probability.",
            f"Of words it knows only the {len(info.vocabulary):,} in its vocabulary; all others are one to it.",
        ]

    def usage(self, info: ModelInfo, name: str, version: int) -> str:
        return (
            "```python\n"
            f'voxline.load_intent_classifier("<registry>/{name}/{version}").classify("…")\n'
            "```\n\n"
            "Signature `classify`: inputs `words` int32 [batch, words] (2 + the index in `vocabulary` of model.json; "
            "1: unknown, 0: padding) and `counts` int32 [batch]; output `probabilities` float32 [batch, intents], in "
            "the order of `intents` of model.json."
        )

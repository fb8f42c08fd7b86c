"""Push for classifiers of intents: their smoke test, and their part of the model card."""

from typing import Any

from voxline.components.push.gate import RepeatedOutput
from voxline.families.intents.details import IntentsDetails, IntentsSmokeTest
from voxline.families.intents.inference import IntentClassifier, IntentsInfo
from voxline.inference.model_info import ModelInfo
from voxline.metrics.evaluation import Evaluation

TOLERANCE = 0.001
"""Largest difference of the probability: another kind of processor rounds otherwise."""


class IntentsPushFamily:
    """The smoke test and the model card of classifiers of intents; see `PushFamily`."""

    smoke_test_task = "classify the text"
    smoke_test_output = "intent"
    smoke_test_tolerance: float | None = TOLERANCE

    def smoke_test_arguments(self, evaluation: Evaluation) -> list[str]:
        return [evaluation.smoke_test(IntentsSmokeTest).text]

    def compare_repeated(self, answer: dict[str, Any], evaluation: Evaluation) -> RepeatedOutput:
        # The intent alone may be right by chance; the probability shows that it is the same network.
        expected = evaluation.smoke_test(IntentsSmokeTest)
        difference = abs(answer["probability"] - expected.probability)
        detail = (
            f"a fresh process classified {expected.text!r} as {answer['intent']!r} ({answer['probability']:.4f}), "
            f"evaluate as {expected.intent!r} ({expected.probability:.4f})"
        )
        return RepeatedOutput(answer["intent"] == expected.intent and difference <= TOLERANCE, detail, difference)

    def repeat(self, *arguments: str) -> dict[str, Any]:
        """Args: the model's folder, and a normalized text."""
        model, text = arguments
        (intent,) = IntentClassifier(model).classify_words([text])
        return {"intent": intent.name, "probability": intent.probability}

    def describe(self, model: ModelInfo) -> str:
        part = model.family_part(IntentsInfo, model.name)
        return (
            f"A classifier of transcripts ({model.kind}): {len(part.intents):,} intents by "
            f"{len(part.vocabulary):,} words. Intents: {', '.join(part.intents)}."
        )

    def errors(self, evaluation: Evaluation) -> str:
        recognizer = evaluation.info.auxiliary_models["recognizer"]
        details = evaluation.details(IntentsDetails)
        recognized = details.recognizer
        sentences = []
        if recognizer is None or recognized is None:
            sentences.append("No recognizer transcribed the recordings, so only texts were classified.")
        else:
            # How much the classifier forgives: intents that are right although the recognizer misheard a word.
            misheard = recognized.words_wrong
            utterances = misheard.intent_right + misheard.intent_wrong
            sentences.append(
                f"What was heard is what version {recognizer.version} of the ASR model `{recognizer.name}` "
                f"wrote, with a word error rate of {recognized.wer:.2%}; of {utterances:,} utterances with "
                f"a wrong word, {misheard.intent_right:,} kept their intent."
            )
        if details.mean_pooling:
            rates = [
                f"{baseline.value:.2%} ({name})"
                for name, baseline in details.mean_pooling.items()
                if baseline.value is not None
            ]
            sentences.append(f"With a mean in place of the capsules: {', '.join(rates)}.")
        return " ".join(sentences)

    def limitations(self, evaluation: Evaluation) -> list[str]:
        model = evaluation.model_info
        vocabulary = model.family_part(IntentsInfo, model.name).vocabulary
        return [
            f"The metrics hold for texts like those of the test split, {evaluation.info.utterances:,} utterances; "
            "other phrasings of the same intent may be missed.",
            "It finds one of its intents in every text, also in one that has none of them: look at the probability.",
            f"Of words it knows only the {len(vocabulary):,} in its vocabulary; all others are one to it.",
        ]

    def usage(self, model: ModelInfo, name: str, version: int) -> str:
        return (
            "```python\n"
            f'voxline.load_model("<registry>/{name}/{version}").classify("…")\n'
            "```\n\n"
            "Signature `classify`: inputs `words` int32 [batch, words] (2 + the index in `extra.vocabulary` of "
            "model.json; 1: unknown, 0: padding) and `counts` int32 [batch]; output `probabilities` float32 "
            "[batch, intents], in the order of `extra.intents` of model.json."
        )

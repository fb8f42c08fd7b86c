"""The card of a model in a folder for the Hub: README.md, with the head that the Hub reads.

It says what the model's own card says, without what only its own team should see: names of speakers, and paths.
"""

from pathlib import Path
from typing import Any

import yaml

from voxline.components.push.hub_card import describe_origin, judged_evaluation, origin_of
from voxline.components.push.model_card import before_table, markdown_table
from voxline.data.licences import hub_licence
from voxline.families.asr.details import AsrDetails
from voxline.families.asr.push import AsrPushFamily
from voxline.inference.model_info import ModelInfo
from voxline.inference.saved_model import model_digest
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import Evaluation
from voxline.registry.parents import Ancestor, licences_of, published_version

TASK = "automatic-speech-recognition"
NOT_JUDGED = "No evaluation is beside it: it was not judged, and how well it hears is not known."


def hub_card(folder: Path, info: ModelInfo, shown_as: str, language: str = "") -> str:
    """The card of an exported model, in Markdown.

    Args:
      folder: of the model; a version of a registry has its evaluation there.
      shown_as: how the card calls the folder of the export.
      language: by ISO 639, such as "en"; empty: the one that the model is asked for, if any.

    Raises:
      WorkError: the evaluation is damaged, or of another model.
    """
    digest = model_digest(folder)
    evaluation = judged_evaluation(folder, digest)
    version = published_version(folder)
    origin = origin_of(info)
    sections = [
        f"# {info.name}{f', version {version}' if version else ''}\n\n{AsrPushFamily().describe(info)}",
        f"## Origin\n\n{describe_origin(info, origin, digest)}",
        f"## What it was judged on\n\n{_judged(evaluation) if evaluation else NOT_JUDGED}",
        f"## Limitations\n\n{_limitations(evaluation, info)}",
        f"## Usage\n\n{_usage(shown_as)}",
    ]
    values = _head(info, origin, evaluation, language or info.language)
    head = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n" + "\n\n".join(sections) + "\n"


def _head(info: ModelInfo, origin: Ancestor | None, evaluation: Evaluation | None, language: str) -> dict[str, Any]:
    """What the Hub reads: licence, origin, language, and the results."""
    head: dict[str, Any] = {
        **hub_licence(name for names in licences_of(info).values() for name in names),
        # Of the Hub if it has a commit; a folder's name would be somebody else's model there.
        **({"base_model": origin.name} if origin and origin.revision else {}),
        **({"language": language} if language else {}),
        "library_name": "transformers",
        "pipeline_tag": TASK,
        "tags": ["voxline"],
    }
    if evaluation is None:
        return head
    metrics = [
        {"type": name, "value": round(100 * value, 2), "name": f"{title} (%)"}
        for name, title, value in _rates(evaluation)
    ]
    split = evaluation.info.test
    dataset = {"name": f"{split.split} split, {split.fingerprint}", "type": "private"}
    result = {"task": {"type": TASK}, "dataset": dataset, "metrics": metrics}
    return {
        **head,
        "metrics": [name for name, *_ in _rates(evaluation)],
        "model-index": [{"name": info.name, "results": [result]}],
    }


def _rates(evaluation: Evaluation) -> list[tuple[str, str, float]]:
    """WER and CER of greedy texts, which `transformers` writes: key, title, share."""
    details = evaluation.details(AsrDetails)
    edits = details.greedy or details
    return [("wer", "word error rate", edits.words.rate), ("cer", "character error rate", edits.characters.rate)]


def _judged(evaluation: Evaluation) -> str:
    judged = evaluation.info
    test = judged.test
    details = evaluation.details(AsrDetails)
    rows = []
    for name, title, share in _rates(evaluation):
        # An interval is of the texts that the gate judged, which a language model may have decoded.
        interval = judged.metrics[name].interval if details.greedy is None and name in judged.metrics else None
        rows.append(
            [title, f"{share:.2%}", CATALOG[name].format_range(interval.low, interval.high) if interval else "—"]
        )

    text = (
        f"{judged.utterances:,} utterances of the split `{test.split}` (`{test.fingerprint}`), {test.speakers:,} "
        f"speakers, {judged.seconds / 60:.1f} minutes; greedy texts, as `transformers` writes them:\n\n"
        f"{markdown_table(['', 'measured', f'{100 * judged.bootstrap.confidence:g}% interval'], rows)}"
    )
    if details.greedy is not None:
        text += (
            f"\n\nWith a language model, which is not a part of this folder: {details.words.rate:.2%} and "
            f"{details.characters.rate:.2%}."
        )
    if judged.before and (before := before_table(judged)):
        text += f"\n\nBefore is {judged.before.label} as it comes, after is this model:\n\n{before}"
    return text


def _limitations(evaluation: Evaluation | None, info: ModelInfo) -> str:
    if evaluation is not None:
        return "\n".join(f"- {sentence}" for sentence in AsrPushFamily().limitations(evaluation))
    return "- It expects one speaker at a time, and writes text for noise too."


def _usage(shown_as: str) -> str:
    return (
        f'```python\nfrom transformers import pipeline\n\nrecognize = pipeline("{TASK}", "{shown_as}")\n'
        'print(recognize("recording.flac")["text"])\n```\n\nVoxline tunes and serves it too: '
        f"`train.start.model: {shown_as}`, `voxline models import {shown_as} --registry registry --name asr`."
    )

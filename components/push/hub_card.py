"""The card of a model that Voxline publishes in its own form: README.md, with the YAML head that the Hub reads.

It says what the model's own card says, without what only its own team should see: names of speakers, and paths. What
`families.asr.hub_card` says of a folder for `transformers` is from here too.
"""

from pathlib import Path
from typing import Any

import yaml

from voxline.components.push.model_card import markdown_table
from voxline.data.drafts import describe_drafts
from voxline.data.licences import LANGUAGE_TEXTS, describe_licences, hub_licence
from voxline.errors import WorkError
from voxline.families.family import find_family
from voxline.inference.model_info import ModelInfo
from voxline.inference.saved_model import model_digest
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import Evaluation
from voxline.registry.hub import HUB_SCHEME
from voxline.registry.parents import Ancestor, ancestors_of, licences_of, published_version
from voxline.registry.registry import EVALUATION

UNJUDGED = "No evaluation is beside it: it was not judged, and how good it is is not known."


def release_card(folder: Path, info: ModelInfo, repository: str, language: str = "") -> str:
    """The card of an exported model of any family, in Markdown.

    Args:
      folder: of the model; a version of a registry has its evaluation there.
      repository: `owner/name` on the Hub.
      language: by ISO 639, such as "en"; empty: the one that the model is asked for, if any.

    Raises:
      WorkError: the evaluation is damaged, or of another model.
    """
    # A family without a pipeline has nothing that judges its models.
    family = find_family(info.family)
    digest = model_digest(folder)
    evaluation = judged_evaluation(folder, digest)
    version = published_version(folder)
    promotion = family.promotion() if family.has_pipeline else None
    description = promotion.describe(info) if promotion else f"A model of the family {info.family}."
    limitations = promotion.limitations(evaluation) if promotion and evaluation else []
    # The sections that the Hub's own template has, as far as we know what belongs there.
    sections = [
        f"# {info.name}{f', version {version}' if version else ''}\n\n{description}",
        f"## Origin\n\n{describe_origin(info, origin_of(info), digest, '', folder)}",
        f"## What it was judged on\n\n{_judged(evaluation) if evaluation else UNJUDGED}",
        *(["## Limitations\n\n" + "\n".join(f"- {sentence}" for sentence in limitations)] if limitations else []),
        f"## Usage\n\n{_usage(info, repository)}",
    ]
    head = yaml.safe_dump(_head(folder, info, evaluation, language), sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n" + "\n\n".join(sections) + "\n"


def origin_of(info: ModelInfo) -> Ancestor | None:
    """The public model that a model goes back to; None if it goes back to none."""
    published = [ancestor for ancestor in ancestors_of(info) if ancestor.is_published]
    # The import of a public model is an ancestor before the model itself, which alone has commit and licence.
    stated = [ancestor for ancestor in published if ancestor.revision or ancestor.licence]
    candidates = stated or published
    return candidates[-1] if candidates else None


def describe_origin(
    info: ModelInfo, origin: Ancestor | None, digest: str, weights: str = ", in float32", model: Path | None = None
) -> str:
    """Where the weights come from: the data, the ancestors, and the public model with its licence.

    Args:
      digest: of the model.
      weights: how the folder has them.
      model: its folder, where its language model goes with it.
    """
    text = f"The weights are those of the model `{digest}`, which Voxline exported{weights}."
    if info.is_as_published:
        text += " Nothing was trained: they are those of the public model below."
    else:
        dataset = info.dataset
        minutes = dataset.seconds.get("train", 0.0) / 60
        text += f" It was trained on {dataset.counts.get('train', 0):,} utterances, {minutes:.1f} minutes."
        if drafts := describe_drafts(dataset.drafts):
            text += f" Of these, {drafts}: no person transcribed them."
        if licences := describe_licences(dataset.licences):
            text += f" Licences of the recordings: {licences}."

    if texts := licences_of(info, model).get(LANGUAGE_TEXTS):
        text += f" Licences of {LANGUAGE_TEXTS}: {', '.join(texts)}."

    ancestors = ancestors_of(info)
    if ancestors:
        text += f" It started from {', and that from '.join(ancestor.label for ancestor in ancestors)}."
    if origin is not None:
        commit = f"commit `{origin.revision}`" if origin.revision else f"digest `{origin.digest}`"
        licence = f"{origin.licence or 'not stated'}. Its terms hold for this model too."
        text += f"\n\n`{origin.name}`: {commit}; licence: {licence}"
    return text


def judged_evaluation(folder: Path, digest: str) -> Evaluation | None:
    """The evaluation beside a version; None if there is none.

    Raises:
      WorkError: it is damaged, or of another model.
    """
    if not (folder / EVALUATION).is_dir():
        return None
    evaluation = Evaluation.read(folder / EVALUATION)
    if evaluation.digest != digest:
        raise WorkError(
            f"{folder / EVALUATION}: of the model {evaluation.digest[:12]}, and this one is {digest[:12]}; export the "
            "version that was judged"
        )
    return evaluation


def _head(folder: Path, info: ModelInfo, evaluation: Evaluation | None, language: str) -> dict[str, Any]:
    """What the Hub reads: licence, language, task, origin, and the results."""
    task = find_family(info.family).hub_task
    language = language or info.language
    # The nearest model of the Hub that it was trained from.
    bases = [ancestor.name for ancestor in ancestors_of(info) if ancestor.revision]
    head: dict[str, Any] = {
        **hub_licence(name for names in licences_of(info, folder).values() for name in names),
        **({"base_model": bases[0]} if bases else {}),
        **({"language": language} if language else {}),
        "library_name": "voxline",
        **({"pipeline_tag": task} if task else {}),
        "tags": ["voxline", info.family, info.kind],
    }
    # Of no public data set, so the Hub ranks it nowhere; its fingerprint says whether two models had the same test.
    measured = _headlines(evaluation) if evaluation else []
    if evaluation is None or not measured:
        return head
    split = evaluation.info.test
    result = {
        "task": {"type": task or info.family},
        "dataset": {"name": f"{split.split} split, {split.fingerprint}", "type": "private"},
        "metrics": [{"type": name, "value": value, "name": title} for name, title, value, *_ in measured],
    }
    names = [name for name, *_ in measured]
    return {**head, "metrics": names, "model-index": [{"name": info.name, "results": [result]}]}


def _headlines(evaluation: Evaluation) -> list[tuple[str, str, float, str, str]]:
    """The headline metrics that were measured: name, title with the unit, value in it; value and interval as text."""
    rows = []
    for metric in CATALOG.select(evaluation.info.metrics):
        measured = evaluation.info.metrics[metric.name]
        if not metric.headline or measured.value is None:
            continue
        # A share is written in percent there, as neighbours' cards have it.
        value = round(100 * measured.value, 2) if metric.unit == "%" else float(f"{measured.value:.6g}")
        title = f"{metric.title} ({metric.unit})" if metric.unit else metric.title
        interval = metric.format_range(measured.interval.low, measured.interval.high)
        rows.append((metric.name, title, value, metric.format(measured.value), interval))
    return rows


def _judged(evaluation: Evaluation) -> str:
    judged = evaluation.info
    test = judged.test
    rows = [[CATALOG[name].title, text, interval] for name, _, _, text, interval in _headlines(evaluation)]
    return (
        f"{judged.utterances:,} utterances of the split `{test.split}` (`{test.fingerprint}`), {test.speakers:,} "
        f"speakers, {judged.seconds / 60:.1f} minutes:\n\n"
        f"{markdown_table(['', 'measured', f'{100 * judged.bootstrap.confidence:g}% interval'], rows)}"
    )


def _usage(info: ModelInfo, repository: str) -> str:
    # Of the other families each has a call of its own, which docs/library.md shows.
    call = {"asr": 'model.transcribe("recording.flac")', "tts": 'model.speak("Three, one, four.").waveform'}
    lines = ["import voxline", "", f'model = voxline.from_pretrained("{repository}")']
    lines += [call[info.family]] if info.family in call else []
    code = "\n".join(lines)
    return (
        f"```python\n{code}\n```\n\nA training starts from it by `train.start.model: {HUB_SCHEME}{repository}@COMMIT`. "
        "`model.safetensors` has its weights by name, for programs of other kinds."
    )

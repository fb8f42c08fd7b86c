"""The Markdown of push, the same for every family.

The model card: what a version is, where it comes from, how good it is, and how to use it. The summary: the verdict on a
model, as Kubeflow's UI shows it beside those of other runs.
"""

from typing import TYPE_CHECKING, Any

from voxline.components.push.gate import Verdict
from voxline.data.drafts import describe_drafts
from voxline.data.licences import NOT_STATED, describe_licences
from voxline.inference.model_info import ModelInfo
from voxline.metrics.catalog import CATALOG, headline_metrics
from voxline.metrics.evaluation import Evaluation, EvaluationInfo
from voxline.metrics.summaries import before_cells
from voxline.registry.parents import ancestors_of

if TYPE_CHECKING:
    from voxline.families.family import PushFamily

MAX_SLICES = 15
"""Slices of one slicing on the card; the report has them all."""


def model_card(family: "PushFamily", evaluation: Evaluation, version: int, pushed_at: str) -> str:
    """The card of a version, in Markdown."""
    info = evaluation.info
    model = info.model.about
    name = info.model.name
    limitations = "\n".join(f"- {sentence}" for sentence in family.limitations(evaluation))
    sections = [
        f"# {name}, version {version}\n\n{family.describe(model)} {_origin(model, pushed_at)}",
        f"## Data\n\n{_data(evaluation)}",
        *([f"## Ancestors\n\n{ancestors}"] if (ancestors := _ancestors(info)) else []),
        *([f"## Before and after tuning\n\n{before}"] if (before := _before(info)) else []),
        # A family without further results adds nothing below the table, not even an empty line.
        f"## Metrics\n\n{_metrics(info)}\n\n{family.errors(evaluation)}".rstrip(),
        *(f"### By {slicing}\n\n{_slices(slicing, info)}" for slicing in info.slices),
        f"## Limitations\n\n{limitations}",
        f"## Usage\n\n{family.usage(model, name, version)}\n\n"
        "`evaluation/report.html` is the whole evaluation, `provenance.json` the model's origin.",
    ]
    return "\n\n".join(sections) + "\n"


def verdict_summary(verdict: Verdict, evaluation: Evaluation, report: str) -> str:
    """The verdict, its reasons, the metrics and the checks of the gate, in Markdown.

    Args:
      report: path or URI of the page of the run.
    """
    info = evaluation.info
    reasons = "\n".join(f"- {_escape(reason)}" for reason in verdict.reasons)
    version = f"Version: `{verdict.model}`. " if verdict.model else ""
    before = "Nothing was in service." if verdict.in_service is None else f"In service: version {verdict.in_service}."
    origin = f"Model `{info.model.name}`. {version}{before} {_digests(evaluation)}"
    test = info.test
    if drafts := describe_drafts(info.model.about.dataset.drafts):
        origin += f" Trained on {drafts}."
    measured = f"{info.utterances:,} utterances of the split `{test.split}`, {test.speakers:,} speakers"

    # A model that was there already has no checks, and so no table.
    rows = [[check.status, check.name, check.detail] for check in verdict.checks]
    sections = [
        f"# {_escape(verdict.heading if verdict.pushed else 'Not pushed')}",
        *([reasons] if reasons else []),
        origin,
        f"## Metrics\n\n{_metrics(info)}\n\nMeasured on {measured}.",
        *([f"## Checks of the gate\n\n{markdown_table(['result', 'check', 'finding'], rows)}"] if rows else []),
        f"The whole evaluation: `{report}`",
    ]
    return "\n\n".join(sections) + "\n"


def _origin(info: ModelInfo, pushed_at: str) -> str:
    """When the version was published, and the training that its weights come from."""
    provenance = info.provenance
    if info.is_as_published:
        return (
            f"Pushed {pushed_at}, as it was published; exported by revision `{provenance.git_revision or 'unknown'}`."
        )
    trained = ", ".join(f"{key.replace('_', ' ')} {_shorten(value)}" for key, value in provenance.trained.items())
    revision = f"Pushed {pushed_at}; trained from revision `{provenance.git_revision or 'unknown'}`"
    return f"{revision} ({trained})." if trained else f"{revision}."


def _digests(evaluation: Evaluation) -> str:
    """Names the model and the evaluation by hashes of their bytes, so that a reader can check which were judged."""
    return f"Judged: model `{evaluation.digest}`, evaluation `{evaluation.content_digest()}`."


def _data(evaluation: Evaluation) -> str:
    """The splits of the dataset, and the part that the model was measured on."""
    info = evaluation.info
    dataset = info.model.about.dataset
    rows = [
        [split, f"{count:,}", f"{dataset.seconds.get(split, 0) / 60:.1f}"] for split, count in dataset.counts.items()
    ]
    test = info.test
    return (
        markdown_table(["split", "utterances", "minutes"], rows)
        + (f"\n\nOf train, {describe_drafts(dataset.drafts)}: no person transcribed these." if dataset.drafts else "")
        + f"\n\nLicences of train and dev: {describe_licences(dataset.licences) or NOT_STATED}."
        + f"\n\nDataset {_dataset_names(info)}. Measured on {info.utterances:,} utterances "
        f"of the split `{test.split}` (`{test.fingerprint}`), {test.speakers:,} speakers."
        f"\n\n{_digests(evaluation)}"
    )


def _dataset_names(info: EvaluationInfo) -> str:
    """The dataset by its published version, if that is known, and by its key."""
    key = f"`{info.model.about.dataset.key or 'unknown'}`"
    return f"`{info.model.dataset}` ({key})" if info.model.dataset else key


def _ancestors(info: EvaluationInfo) -> str:
    """The models that this one goes back to, and what it still knows of its parent's test split."""
    ancestors = ancestors_of(info.model.about)
    if not ancestors:
        return ""
    if info.model.about.is_as_published:
        text = f"It is {ancestors[0].label} as it was published."
    else:
        text = f"It started from the weights of {ancestors[0].label}"
        if len(ancestors) > 1:
            text += f", and that from {', '.join(ancestor.label for ancestor in ancestors[1:])}"
        text += ". What it was trained on, through them too: `trained_on.jsonl.gz`."

    # Weights that others published come without a list of speakers, so nobody can promise to find one in them.
    if published := [ancestor.label for ancestor in ancestors if ancestor.is_published]:
        text += (
            f" No list has the recordings behind the published weights {', '.join(published)}, whose speakers are not "
            "known; no purge finds them."
        )
    for ancestor in ancestors:
        if ancestor.revision or ancestor.licence:
            commit = f"commit `{ancestor.revision}`" if ancestor.revision else "a folder, without a commit"
            text += f"\n\n`{ancestor.name}`: {commit}; licence: {ancestor.licence or 'not stated'}."

    # In evaluate's parent test the parent takes the champion's place.
    if info.parent is None:
        return text
    rows = [
        [metric.title, metric.format(measured.value), metric.format(measured.comparison.champion_value)]
        for name, measured in info.parent.metrics.items()
        if (metric := CATALOG[name]).headline and measured.comparison
    ]
    if not rows:
        return text
    table = markdown_table(["", "measured", ancestors[0].label], rows)
    return f"{text}\n\nOn the test split of {ancestors[0].label}, {info.parent.utterances:,} utterances:\n\n{table}"


def _before(info: EvaluationInfo) -> str:
    """The metrics of the untouched parent and of this model, on each split and on the probe."""
    before = info.before
    if before is None:
        return ""
    table = before_table(info)
    if not table:
        return f"Not measured before tuning: {before.missing}."
    probe = f" The probe is `{before.probe.location}`." if before.probe else ""
    return f"Before is `{before.label}` as it comes, after is this model.{probe}\n\n{table}"


def before_table(info: EvaluationInfo) -> str:
    """The metrics of the untouched parent and of this model; empty if it was not measured."""
    rows = [
        [part, f"{summary.utterances:,}", *cells]
        for part, summary in (info.before.parts if info.before else {}).items()
        for cells in before_cells(info.family, summary)
    ]
    columns = ["", "utterances", "", "before", "after", "difference", f"{100 * info.bootstrap.confidence:g}% interval"]
    return markdown_table(columns, rows) if rows else ""


def _metrics(info: EvaluationInfo) -> str:
    """Every metric with its interval, and the comparison with the model in service if there was one."""
    columns = ["", "measured", f"{100 * info.bootstrap.confidence:g}% interval", "utterances"]
    if info.champion:
        columns += [f"version {info.champion.version}", "difference", "worse with probability"]
    rows = []
    for name, measured in info.metrics.items():
        metric = CATALOG[name]
        row = [
            metric.title,
            metric.format(measured.value),
            metric.format_range(measured.interval.low, measured.interval.high),
            f"{measured.measured:,}",
        ]

        # A speed may be known of the new model alone; then the row ends in dashes.
        if info.champion and (compared := measured.comparison):
            worse = compared.probability_worse
            row += [metric.format(compared.champion_value), metric.format_difference(compared.difference)]
            row.append("—" if worse is None else f"{worse:.0%}")
        rows.append(row + ["—"] * (len(columns) - len(row)))
    return markdown_table(columns, rows)


def _slices(slicing: str, info: EvaluationInfo) -> str:
    """The headline metrics of each slice; the first one, which the gate judges by, with its interval."""
    slices = info.slices[slicing]
    measured = next(iter(slices.values())).metrics
    shown = [metric for metric in headline_metrics(info.family) if metric.name in measured]
    rows = []
    for name, summary in list(slices.items())[:MAX_SLICES]:
        cells = [metric.format(summary.metrics[metric.name].value) for metric in shown]
        if shown:
            interval = summary.metrics[shown[0].name].interval
            cells.insert(1, shown[0].format_range(interval.low, interval.high))
        rows.append([name, f"{summary.utterances:,}", *cells])
    titles = [metric.title for metric in shown]
    columns = [slicing.replace("_", " "), "utterances", *titles[:1], *(["interval"] if shown else []), *titles[1:]]
    more = f"\n\n{len(slices) - MAX_SLICES:,} more in `evaluation/report.html`." if len(slices) > MAX_SLICES else ""
    return markdown_table(columns, rows) + more


def limits_of_test(inputs: str, extent: str, otherwise: str) -> str:
    """A limitation of every model: it was measured on one test split.

    >>> limits_of_test("recordings", "2 speakers", "Other speakers may give worse results.")
    'The metrics hold for recordings like those of the test split: 2 speakers. Other speakers may give worse results.'

    Args:
      inputs: of the model.
      extent: size of the test split.
      otherwise: a sentence about other inputs.
    """
    return f"The metrics hold for {inputs} like those of the test split: {extent}. {otherwise}"


def extent_of_test(info: EvaluationInfo) -> str:
    """Utterances and minutes of the test split."""
    return f"{info.utterances:,} utterances, {info.seconds / 60:.1f} minutes"


def shell_usage(command: str, signature: str) -> str:
    """The usage of a model that TensorFlow Serving serves too.

    Args:
      command: that runs the model on this machine.
      signature: of the SavedModel: its name, inputs and outputs.
    """
    serving = "tensorflow_model_server --model_config_file=<registry>/models.config"
    return f"```sh\n{command}\n{serving}\n```\n\n{signature}"


def markdown_table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_escape(text) for text in line) + " |" for line in lines)


def _escape(text: str) -> str:
    """A cell's text without line breaks, columns and HTML, whatever a speaker is called."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _shorten(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

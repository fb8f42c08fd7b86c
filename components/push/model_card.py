"""What push writes in Markdown, the same for every family.

The model card: what a version is, where it comes from, how good it is, and how to use it. The summary: the verdict on a
model, as Kubeflow's UI shows it beside those of other runs.
"""

from typing import TYPE_CHECKING, Any

from voxline.components.push.gate import Verdict
from voxline.inference.model_info import ModelInfo
from voxline.metrics.catalog import CATALOG, headline_metrics
from voxline.metrics.evaluation import Evaluation
from voxline.registry.parents import ancestors_of

if TYPE_CHECKING:
    from voxline.families.family import PushFamily

MAX_SLICES = 15
"""Slices of one slicing on the card; the report has them all."""


def model_card(family: "PushFamily", evaluation: Evaluation, version: int, pushed_at: str) -> str:
    """The card of a version, in Markdown."""
    metrics = evaluation.metrics
    info, name = evaluation.model_info, metrics["model"]["name"]
    limitations = "\n".join(f"- {sentence}" for sentence in family.limitations(info, metrics))
    sections = [
        f"# {name}, version {version}\n\n{family.describe(info)} {_origin(info, pushed_at)}",
        f"## Data\n\n{_data(evaluation)}",
        *([f"## Ancestors\n\n{ancestors}"] if (ancestors := _ancestors(info, metrics)) else []),
        f"## Metrics\n\n{_metrics(metrics)}\n\n{family.errors(metrics)}".rstrip(),
        *(f"### By {slicing}\n\n{_slices(slicing, metrics)}" for slicing in metrics["slices"]),
        f"## Limitations\n\n{limitations}",
        f"## Usage\n\n{family.usage(info, name, version)}\n\n"
        "`evaluation/report.html` is the whole evaluation, `provenance.json` the model's origin.",
    ]
    return "\n\n".join(sections) + "\n"


def verdict_summary(verdict: Verdict, evaluation: Evaluation, report: str) -> str:
    """The verdict, its reasons, the metrics and the checks of the gate, in Markdown.

    Args:
      report: path or URI of the page of the run.
    """
    metrics = evaluation.metrics
    reasons = "\n".join(f"- {_escape(reason)}" for reason in verdict.reasons)
    version = f"Version: `{verdict.model}`. " if verdict.model else ""
    before = "Nothing was in service." if verdict.in_service is None else f"In service: version {verdict.in_service}."
    about = f"Model `{metrics['model']['name']}`. {version}{before} {_digests(evaluation)}"
    test = metrics["test"]
    measured = f"{metrics['utterances']:,} utterances of the split `{test['split']}`, {test['speakers']:,} speakers"
    rows = [[check.status, check.name, check.detail] for check in verdict.checks]
    sections = [
        f"# {_escape(verdict.heading if verdict.pushed else 'Not pushed')}",
        *([reasons] if reasons else []),
        about,
        f"## Metrics\n\n{_metrics(metrics)}\n\nMeasured on {measured}.",
        *([f"## Checks of the gate\n\n{markdown_table(['result', 'check', 'finding'], rows)}"] if rows else []),
        f"The whole evaluation: `{report}`",
    ]
    return "\n\n".join(sections) + "\n"


def _origin(info: ModelInfo, pushed_at: str) -> str:
    provenance = info.provenance
    trained = ", ".join(f"{key.replace('_', ' ')} {_shorten(value)}" for key, value in provenance.trained.items())
    revision = f"Pushed {pushed_at}; trained from revision `{provenance.git_revision or 'unknown'}`"
    return f"{revision} ({trained})." if trained else f"{revision}."


def _digests(evaluation: Evaluation) -> str:
    """Names what was judged by its bytes."""
    return f"Judged: model `{evaluation.digest}`, evaluation `{evaluation.content_digest()}`."


def _data(evaluation: Evaluation) -> str:
    metrics = evaluation.metrics
    dataset = evaluation.model_info.dataset
    rows = [
        [split, f"{count:,}", f"{dataset.seconds.get(split, 0) / 60:.1f}"] for split, count in dataset.counts.items()
    ]
    test = metrics["test"]
    return (
        markdown_table(["split", "utterances", "minutes"], rows)
        + f"\n\nDataset `{dataset.key or 'unknown'}`. Measured on {metrics['utterances']:,} utterances "
        f"of the split `{test['split']}` (`{test['fingerprint']}`), {test['speakers']:,} speakers."
        f"\n\n{_digests(evaluation)}"
    )


def _ancestors(info: ModelInfo, metrics: dict[str, Any]) -> str:
    """The models that this one goes back to, and what it still knows of its parent's test split."""
    ancestors = ancestors_of(info)
    if not ancestors:
        return ""
    text = f"It started from the weights of {ancestors[0].label}"
    if len(ancestors) > 1:
        text += f", and that from {', '.join(one.label for one in ancestors[1:])}"
    text += ". What it was trained on, through them too: `trained_on.jsonl.gz`."
    if published := [one.label for one in ancestors if one.is_published]:
        text += (
            f" Not in that list: the recordings behind the published weights {', '.join(published)}, whose speakers "
            "are not known; no purge finds them."
        )
    parent = metrics.get("parent") or {}
    rows = [
        [CATALOG[name].title, *(CATALOG[name].format(value) for value in (one["value"], compared["champion_value"]))]
        for name, one in (parent.get("metrics") or {}).items()
        if CATALOG[name].headline and (compared := one["comparison"])
    ]
    if not rows:
        return text
    table = markdown_table(["", "measured", ancestors[0].label], rows)
    return f"{text}\n\nOn the test split of {ancestors[0].label}, {parent['utterances']:,} utterances:\n\n{table}"


def _metrics(metrics: dict[str, Any]) -> str:
    champion = metrics["champion"]
    columns = ["", "measured", f"{100 * metrics['bootstrap']['confidence']:g}% interval", "utterances"]
    if champion:
        columns += [f"version {champion['version']}", "difference", "worse with probability"]
    rows = []
    for name, measured in metrics["metrics"].items():
        metric, compared = CATALOG[name], measured["comparison"]
        row = [
            metric.title,
            metric.format(measured["value"]),
            metric.format_interval(measured["interval"]),
            f"{measured['measured']:,}",
        ]
        if champion and compared:
            worse = compared["probability_worse"]
            row += [metric.format(compared["champion_value"]), metric.format_difference(compared["difference"])]
            row.append("—" if worse is None else f"{worse:.0%}")
        rows.append(row + ["—"] * (len(columns) - len(row)))
    return markdown_table(columns, rows)


def _slices(slicing: str, metrics: dict[str, Any]) -> str:
    slices = metrics["slices"][slicing]
    measured = next(iter(slices.values()))["metrics"]
    shown = [metric for metric in headline_metrics(metrics["family"]) if metric.name in measured]
    rows = []
    for value, of in list(slices.items())[:MAX_SLICES]:
        values = [metric.format(of["metrics"][metric.name]["value"]) for metric in shown]
        interval = [shown[0].format_interval(of["metrics"][shown[0].name]["interval"])] if shown else []
        rows.append([value, f"{of['utterances']:,}", *values[:1], *interval, *values[1:]])
    titles = [metric.title for metric in shown]
    columns = [slicing.replace("_", " "), "utterances", *titles[:1], *(["interval"] if shown else []), *titles[1:]]
    more = f"\n\n{len(slices) - MAX_SLICES:,} more in `evaluation/report.html`." if len(slices) > MAX_SLICES else ""
    return markdown_table(columns, rows) + more


def markdown_table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_escape(text) for text in line) + " |" for line in lines)


def _escape(text: str) -> str:
    """A cell without line breaks, columns and HTML, whatever a speaker is called."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _shorten(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

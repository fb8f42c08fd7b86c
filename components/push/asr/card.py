"""The model card of a recogniser."""

from typing import Any

from voxline.components.push.model_card import MAX_SLICES, describe_data, describe_origin, markdown_table
from voxline.metrics.evaluation import Evaluation


def asr_model_card(evaluation: Evaluation, version: int, pushed_at: str) -> str:
    """Markdown, complete in itself."""
    metrics = evaluation.metrics
    about, name = metrics["model"]["about"], metrics["model"]["name"]
    sections = [
        f"# {name}, version {version}\n\n{_what(about, pushed_at)}",
        f"## Data\n\n{describe_data(about, metrics)}",
        f"## How well it does\n\n{_figures(metrics)}",
        *(f"### By {slicing}\n\n{_slices(slicing, values)}" for slicing, values in metrics["slices"].items()),
        f"## Limits\n\n{_limits(metrics)}",
        f"## How to use it\n\n{_use(about, name, version)}",
    ]
    return "\n\n".join(sections) + "\n"


def _what(about: dict[str, Any], pushed_at: str) -> str:
    return (
        f"A speech recogniser ({about['kind'].upper()}) that spells with `{about['alphabet']}` and takes audio at "
        f"{about['sample_rate']:,} Hz. {describe_origin(about, pushed_at)}"
    )


def _figures(metrics: dict[str, Any]) -> str:
    confidence = f"{100 * metrics['bootstrap']['confidence']:g}% interval"
    rows = []
    for name, key in (("word error rate", "wer"), ("character error rate", "cer")):
        of = metrics[key]
        counts = [f"{of[kind]:,}" for kind in ("insertions", "deletions", "substitutions", "length")]
        rows.append([name, f"{of['rate']:.2%}", _interval(of), *counts])
    text = markdown_table(["", "rate", confidence, "inserted", "left out", "substituted", "of"], rows)
    if metrics["champion"]:
        compared = metrics["comparison"]
        text += (
            f"\n\nOn the same recordings version {metrics['champion']['version']} had {compared['champion_wer']:.2%}: "
            f"a difference of {100 * compared['difference']:+.2f} points "
            f"({100 * compared['interval']['low']:+.2f} to {100 * compared['interval']['high']:+.2f}), worse with "
            f"probability {compared['probability_worse']:.0%}."
        )
    return text


def _slices(name: str, values: dict[str, Any]) -> str:
    shown = list(values.items())[:MAX_SLICES]
    rows = [[value, f"{of['utterances']:,}", f"{of['wer']['rate']:.2%}", _interval(of["wer"])] for value, of in shown]
    more = f"\n\n{len(values) - MAX_SLICES:,} more in `evaluation/report.html`." if len(values) > MAX_SLICES else ""
    return markdown_table([name, "utterances", "word error rate", "interval"], rows) + more


def _limits(metrics: dict[str, Any]) -> str:
    interval = metrics["wer"]["interval"]
    return (
        f"- The figures hold for recordings like those of its test split: {metrics['test']['speakers']:,} speakers, "
        f"{metrics['seconds'] / 60:.1f} minutes. On other speakers, rooms and microphones they may be far worse.\n"
        f"- Intervals come from resampling {interval['units']:,} {interval['over']}.\n"
        "- It spells in its own alphabet: no digits, no punctuation, no capitals that are not in it.\n"
        "- It hears one speaker at a time, and gives text for noise too."
    )


def _use(about: dict[str, Any], name: str, version: int) -> str:
    return (
        "```sh\n"
        f"voxline transcribe recording.flac --model <registry>/{name}/{version}\n"
        f"tensorflow_model_server --model_name={name} --model_base_path=<registry>/{name}\n"
        "```\n\n"
        "Signature `transcribe`: `waveforms` float32 [batch, samples] at "
        f"{about['sample_rate']:,} Hz in [-1, 1] and `lengths` int32 [batch] in; `text` string [batch], "
        "`log_probabilities` float32 [batch, frames, symbols + 1] (blank last) and `frames` int32 [batch] out.\n\n"
        "The whole evaluation lies in `evaluation/report.html`, where it all came from in `provenance.json`."
    )


def _interval(of: dict[str, Any]) -> str:
    return f"{of['interval']['low']:.2%} to {of['interval']['high']:.2%}"

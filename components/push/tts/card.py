"""The model card of a voice."""

from typing import Any

from voxline.components.push.model_card import MAX_SLICES, describe_data, describe_origin, markdown_table
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import Evaluation

SLICED_BY = ("round_trip_wer", "mcd", "attention_diagonality")


def tts_model_card(evaluation: Evaluation, version: int, pushed_at: str) -> str:
    """Markdown, complete in itself."""
    metrics = evaluation.metrics
    about, name = metrics["model"]["about"], metrics["model"]["name"]
    sections = [
        f"# {name}, version {version}\n\n{_what(about, pushed_at)}",
        f"## Data\n\n{describe_data(about, metrics)}",
        f"## How well it does\n\n{_figures(metrics)}",
        *(f"### By {slicing}\n\n{_slices(slicing, values)}" for slicing, values in metrics["slices"].items()),
        f"## Limits\n\n{_limits(about, metrics)}",
        f"## How to use it\n\n{_use(about, name, version)}",
    ]
    return "\n\n".join(sections) + "\n"


def _what(about: dict[str, Any], pushed_at: str) -> str:
    return (
        f"A voice ({about['kind'].capitalize()}) that reads `{about['alphabet']}` and speaks at "
        f"{about['sample_rate']:,} Hz. {describe_origin(about, pushed_at)}"
    )


def _figures(metrics: dict[str, Any]) -> str:
    champion = metrics["champion"]
    columns = ["", "measured", f"{100 * metrics['bootstrap']['confidence']:g}% interval", "on"]
    if champion:
        columns += [f"version {champion['version']}", "difference"]
    rows = []
    for name, of in metrics["figures"].items():
        figure, compared = CATALOG[name], of["comparison"]
        row = [figure.title, figure.shown(of["value"]), figure.range(of["interval"]), f"{of['measured']:,}"]
        if champion:
            row += [figure.shown(compared["champion_value"]), figure.change(compared["difference"])] if compared else []
        rows.append(row + ["—"] * (len(columns) - len(row)))
    listener = metrics["listener"]
    heard = (
        f"What it spoke was transcribed by version {listener['version']} of the recogniser `{listener['name']}`."
        if listener
        else "No recogniser listened to it: whether it is understood was not measured."
    )
    return f"{markdown_table(columns, rows)}\n\n{heard}"


def _slices(name: str, values: dict[str, Any]) -> str:
    figures = [CATALOG[figure] for figure in SLICED_BY if figure in next(iter(values.values()))["figures"]]
    rows = [
        [value, f"{of['utterances']:,}", *(figure.shown(of["figures"][figure.name]["value"]) for figure in figures)]
        for value, of in list(values.items())[:MAX_SLICES]
    ]
    more = f"\n\n{len(values) - MAX_SLICES:,} more in `evaluation/report.html`." if len(values) > MAX_SLICES else ""
    return markdown_table([name.replace("_", " "), "utterances", *(figure.title for figure in figures)], rows) + more


def _limits(about: dict[str, Any], metrics: dict[str, Any]) -> str:
    return (
        f"- The figures hold for texts like those of its test split: {metrics['utterances']:,} utterances, "
        f"{metrics['seconds'] / 60:.1f} minutes as recorded. On other words it may fail where it did not here.\n"
        f"- It stops after {about['max_steps']:,} decoder steps, and says so (`hit_limit`): part longer texts.\n"
        "- It reads its own symbols: text has to be read into them first, as `voxline synthesize` does.\n"
        "- It speaks with one voice, that of its recordings; that person's leave is needed for what it is used for."
    )


def _use(about: dict[str, Any], name: str, version: int) -> str:
    alone = about.get("decoder", "float32") != "float32"
    serve = "" if alone else f"tensorflow_model_server --model_name={name} --model_base_path=<registry>/{name}\n"
    return (
        "```sh\n"
        f"voxline synthesize TEXT --model <registry>/{name}/{version} --output out.wav\n"
        f"{serve}"
        "```\n\n"
        f"{_parted(about) if alone else _whole(about)}\n\n"
        "The whole evaluation lies in `evaluation/report.html`, where it all came from in `provenance.json`."
    )


def _whole(about: dict[str, Any]) -> str:
    return (
        "Signature `synthesize`: `symbols` int32 [batch, symbols] (indices into the alphabet) and `lengths` int32 "
        "[batch] in; `mels` float32 [batch, frames, mels], `frames` int32 [batch], `alignments` float32 [batch, steps, "
        f"symbols], `waveforms` float32 [batch, samples] at {about['sample_rate']:,} Hz, `samples` int32 [batch] and "
        "`hit_limit` bool [batch] out."
    )


def _parted(about: dict[str, Any]) -> str:
    return (
        f"Its decoder ({about['decoder']}) is a file of TensorFlow Lite beside the SavedModel, and the loop around it "
        "is Voxline's: there is no signature that speaks by itself, and a TensorFlow server cannot serve it. Train "
        "with `train.export.decoder: float32` for one that can."
    )

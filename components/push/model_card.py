"""What the card of every model says: where it comes from, and the data that it was made of and measured on."""

from typing import Any

MAX_SLICES = 15
"""Rows of one slicing on the card; the report beside has them all."""


def describe_origin(about: dict[str, Any], pushed_at: str) -> str:
    """When it was pushed, and what it was trained from."""
    provenance = about["provenance"]
    trained = ", ".join(
        f"{key.replace('_', ' ')} {_short(value)}" for key, value in provenance.get("trained", {}).items()
    )
    revision = f"Pushed {pushed_at}; trained from revision `{provenance.get('git_revision') or 'unknown'}`"
    return f"{revision} ({trained})." if trained else f"{revision}."


def describe_data(about: dict[str, Any], metrics: dict[str, Any]) -> str:
    """The splits, and what it was measured on."""
    dataset = about["dataset"]
    rows = [
        [split, f"{count:,}", f"{dataset.get('seconds', {}).get(split, 0) / 60:.1f}"]
        for split, count in dataset.get("counts", {}).items()
    ]
    test = metrics["test"]
    return (
        markdown_table(["split", "utterances", "minutes"], rows)
        + f"\n\nDataset `{dataset.get('key', 'unknown')}`. Measured on {metrics['utterances']:,} utterances "
        f"of the split `{test['split']}` (`{test['fingerprint']}`), {test['speakers']:,} speakers."
    )


def markdown_table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """A speaker may be called anything: no line break, no column and no HTML comes of it."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""The commands about who spoke: datasets purge and seen, models trained-on. They parse, call and print."""

from pathlib import Path
from typing import Annotated

import typer

Speaker = Annotated[str, typer.Option("--speaker", metavar="ID", help="The speaker, as manifests name them.")]


def purge(
    speaker: Speaker,
    store: Annotated[str, typer.Option(help="The store of the runs: a folder or gs://…")],
    roots: Annotated[
        list[str] | None, typer.Option("--datasets", help="Where its datasets are published; repeated: all of them.")
    ] = None,
    registry: Annotated[str | None, typer.Option(help="The registry of models.")] = None,
    note: Annotated[str, typer.Option(help="For the record: who asked, and why. It is kept as it stands.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Removes it; else it is only told what is there.")] = False,
) -> None:
    """Removes what is left of a speaker: rows, clips, WAVs, manifests, reports, logs. It cannot be undone."""
    from pipelines.purging import purged

    _print(purged(speaker, store, roots or [], registry, note, do=yes))


def seen(
    speaker: Speaker,
    registry: Annotated[str | None, typer.Option(help="The registry of models, or gs://…")] = None,
    roots: Annotated[
        list[str] | None, typer.Option("--datasets", help="Where datasets are published; repeated.")
    ] = None,
) -> None:
    """Says which models were trained on a speaker, and which versions of datasets hold them."""
    from pipelines.lineage import seen as told

    _print(told(speaker, registry, roots or []))


def trained_on(
    model: Annotated[str, typer.Argument(help="The model's name.")],
    version: Annotated[int, typer.Argument(help="Its version.")],
    registry: Annotated[str, typer.Option(metavar="PLACE", help="The folder, or gs://…, of the registry.")],
    ids: Annotated[Path | None, typer.Option(help="A file to list the utterances in, JSON lines.")] = None,
) -> None:
    """Says which utterances a version was trained on."""
    from pipelines.lineage import trained_on as told

    _print(told(registry, model, version, ids))


def _print(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)

"""The commands of captured clips: what there is, and what has expired. They parse, call and print."""

from typing import Annotated

import typer

from voxline.pipelines.cli.options import AsJson, CommandGroup

capture_commands = CommandGroup(help="Watch, label and expire what serving captured.", no_args_is_help=True)
Captures = Annotated[
    str, typer.Option("--captures", metavar="LOCATION", help="Folder or bucket URI that serve --capture was given.")
]
Locations = Annotated[
    list[str],
    typer.Argument(metavar="LOCATION...", help="Captures, or corpora of labeled clips; folders or bucket URIs."),
]


@capture_commands.command("list")
def show_captures(captures: Captures, as_json: AsJson = False) -> None:
    """Count the captured clips of each version.

    Example: voxline captures list --captures runs/captures
    """
    import json

    from voxline.feedback.captures import CaptureStore, count_captures

    counts = count_captures(CaptureStore(captures).clips())
    if as_json:
        typer.echo(json.dumps(counts, ensure_ascii=False))
        return
    for one in counts:
        typer.echo(
            f"{one['model']} {one['version']}: {one['clips']:,} clips, {one['seconds'] / 60:,.1f} min, "
            f"{one['speakers']:,} pseudonyms, {one['first']} to {one['last']}; the next expires on {one['expires']}"
        )
    if not counts:
        typer.echo(f"{captures}: no clips")


@capture_commands.command("expire")
def expire(locations: Locations) -> None:
    """Delete clips that have expired, for a scheduler.

    A running server does so in its own captures. In a corpus of labeled clips the lines of its manifest go too, and the
    next refresh takes them out of the dataset.

    Example: voxline captures expire runs/captures corpora/from-service
    """
    from voxline.feedback.captures import check_captures, expire_recordings

    for location in locations:
        check_captures(location)
        typer.echo(f"{location}: {expire_recordings(location):,} clips have expired")

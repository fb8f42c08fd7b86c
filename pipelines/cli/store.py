"""The commands of a store: show what takes the space, and delete what nothing needs."""

import datetime
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voxline.errors import SettingsError
from voxline.pipelines.cli.options import AsJson, CommandGroup, machine_path

if TYPE_CHECKING:
    from voxline.operations.store_contents import StoredItem, StoreUsers

store_commands = CommandGroup(help="Show and free the space of a store.", no_args_is_help=True)

Store = Annotated[str, typer.Option(metavar="LOCATION", help="The runs' store, a folder or bucket URI.")]
Datasets = Annotated[
    list[str] | None,
    typer.Option(
        "--datasets",
        metavar="LOCATION",
        help="Folder or bucket URI of published datasets. Repeatable; give all of them.",
    ),
]
Registries = Annotated[
    list[str] | None,
    typer.Option(
        "--registry", metavar="LOCATION", help="Folder or bucket URI of a registry. Repeatable; give all of them."
    ),
]
Runs = Annotated[
    list[Path] | None,
    typer.Option(parser=machine_path, help="Folder of runs, such as runs. Repeatable; give all of them."),
]
OlderThan = Annotated[
    str, typer.Option(metavar="TIME", help="Keep what was written or used within this time: 30d, 12h, or 0.")
]
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)(d|h)|0")
# Need of an item, one of `store_contents.NEEDS` → heading of its column.
_HEADINGS = {"versions": "versions", "models": "models", "runs": "runs", "recent": "recent", "": "nothing"}


@store_commands.command("du")
def show_usage(
    store: Store,
    roots: Datasets = None,
    registries: Registries = None,
    runs: Runs = None,
    older_than: OlderThan = "30d",
    as_json: AsJson = False,
) -> None:
    """Show what takes the space of a store, and what needs it.

    What several need counts for the first: dataset versions, models, runs, recent use. `nothing` is what `store gc`
    with the same options deletes.

    Example: voxline store du --store runs/demo/store --registry runs/demo/registry --runs runs
    """
    from voxline.operations.store_contents import survey_store, totals
    from voxline.store.store_locks import sole_access

    recent = _parse_time(older_than)
    users = _users(roots, registries, runs)
    with sole_access(store, to_change=False) as (moment, _):
        items = survey_store(store, users, now=moment, recent=recent)

    # Bytes by kind of item, and by the need that keeps it.
    rows = totals(items, lambda item: item.kind)
    if as_json:
        kinds = {kind: {_HEADINGS[need]: size for need, size in row.items()} for kind, row in rows.items()}
        typer.echo(json.dumps({"store": store, "bytes": sum(item.bytes for item in items), "kinds": kinds}, indent=2))
        return

    sums = {need: sum(row[need] for row in rows.values()) for need in _HEADINGS}
    typer.echo(f"{'MB':<14}{'all':>12}" + "".join(f"{heading:>12}" for heading in _HEADINGS.values()))
    for kind, row in [*rows.items(), ("all", sums)]:
        figures = (sum(row.values()), *(row[need] for need in _HEADINGS))
        typer.echo(f"{kind:<14}" + "".join(f"{size / 1e6:>12,.1f}" for size in figures))


@store_commands.command("gc")
def collect_garbage_of_store(
    store: Store,
    roots: Datasets = None,
    registries: Registries = None,
    runs: Runs = None,
    older_than: OlderThan = "30d",
    yes: Annotated[bool, typer.Option("--yes", help="Delete it; without this, only list it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete what no version, model or run needs.

    That is step outputs, WAVs, shards, line caches and downloads. A run that is not below --runs is not known: what it
    made goes once it is older than --older-than. Refuses while a process works in the store. A run that needs something
    later makes it again.

    Example: voxline store gc --store runs/demo/store --registry runs/demo/registry --runs runs --yes
    """
    from voxline.operations.store_gc import collect_store

    age = _parse_time(older_than)
    users = _users(roots, registries, runs)
    garbage = collect_store(store, users, older_than=age, dry_run=not yes)

    # What a process uses stays, though nothing else needs it.
    deleted = [item for item in garbage.items if item not in garbage.in_use]
    if as_json:
        named = [{"name": item.name, "kind": item.kind, "bytes": item.bytes} for item in deleted]
        typer.echo(json.dumps({"store": store, "deleted": yes, "items": named}, indent=2, ensure_ascii=False))
        return

    for line in _format_items(deleted):
        typer.echo(line)
    for item in garbage.in_use:
        typer.echo(f"{item.name} stays: a process uses it")
    size = sum(item.bytes for item in deleted)
    done = "deleted" if yes else "would be deleted; --yes deletes it"
    typer.echo(f"{store}: {size / 1e6:,.1f} MB {done}")


def _format_items(items: list["StoredItem"]) -> list[str]:
    """A line for each kind, and for each output that takes long to make again by its name."""
    from voxline.pipelines.steps import STEPS

    lines = []
    for kind in dict.fromkeys(item.kind for item in items):
        these = [item for item in items if item.kind == kind]
        lines.append(f"{kind:<14}{sum(item.bytes for item in these) / 1e6:>10,.1f} MB  {len(these):,}")
        if kind in STEPS and STEPS[kind].takes_hours:
            lines += [f"  {item.name}, last used {item.used:%Y-%m-%d}" for item in these]
    return lines


def _users(roots: list[str] | None, registries: list[str] | None, runs: list[Path] | None) -> "StoreUsers":
    from voxline.operations.store_contents import StoreUsers

    return StoreUsers(tuple(roots or ()), tuple(registries or ()), tuple(runs or ()))


def _parse_time(text: str) -> datetime.timedelta:
    """
    >>> _parse_time("30d"), _parse_time("0")
    (datetime.timedelta(days=30), datetime.timedelta(0))
    """
    if not (match := _TIME.fullmatch(text)):
        raise SettingsError(f"--older-than {text!r}: accepted are days and hours, such as 30d and 12h, and 0")
    count = float(match[1] or 0)  # 0 needs no unit
    return datetime.timedelta(days=count) if match[2] == "d" else datetime.timedelta(hours=count)

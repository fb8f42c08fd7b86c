"""The commands of datasets: list, show, compact, gc, purge, seen, and diff. They parse, call and print."""

from pathlib import Path
from typing import Annotated

import typer

from voxline.errors import SettingsError
from voxline.pipelines.cli.options import CommandGroup, machine_path

Speaker = Annotated[str, typer.Option("--speaker", metavar="ID", help="The speaker's id in the manifests.")]


def run_purge_command(
    speaker: Speaker,
    store: Annotated[str, typer.Option(metavar="LOCATION", help="The runs' store, a folder or bucket URI.")],
    roots: Annotated[
        list[str] | None,
        typer.Option(
            "--datasets",
            metavar="LOCATION",
            help="Folder or bucket URI of published datasets. Repeatable; give all of them.",
        ),
    ] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="LOCATION", help="Folder or bucket URI of the registry.")
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option(parser=machine_path, help="Folder of runs, in which reports that show the speaker are named."),
    ] = None,
    captures: Annotated[
        list[str] | None,
        typer.Option(metavar="LOCATION", help="Captured or labeled recordings of serving. Repeatable; give all."),
    ] = None,
    note: Annotated[str, typer.Option(help="For the record: who asked, and why.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without this, only list it.")] = False,
) -> None:
    """Erase a speaker from stores, datasets and registries.

    Rows, clips, WAVs, manifests, reports and logs. Models keep their weights, and reports in run folders stay; both are
    named. Without --yes it only lists what it would erase. It cannot be undone. Exit status 1 if --yes finds nothing to
    remove and no earlier purge of the speaker is on record; 2 if a location is not what it should be.

    Example: voxline datasets purge --speaker 1023 --store runs/demo/store --datasets runs/demo-refresh/datasets
    """
    from voxline.operations.purge.locations import PurgeScope
    from voxline.pipelines.cli.dataset_views import format_purge_lines

    # The places that are searched; one that is not given keeps what it has, so help texts ask for all.
    scope = PurgeScope(store, tuple(roots or ()), registry, tuple(runs or ()), tuple(captures or ()))
    _print(format_purge_lines(speaker, scope, note, do=yes))


def show_speaker_use(
    speaker: Speaker,
    registry: Annotated[
        str | None, typer.Option(metavar="LOCATION", help="Folder or bucket URI of the registry.")
    ] = None,
    roots: Annotated[
        list[str] | None,
        typer.Option("--datasets", metavar="LOCATION", help="Folder or bucket URI of published datasets. Repeatable."),
    ] = None,
) -> None:
    """List the models and versions that used a speaker.

    Example: voxline datasets seen --speaker 1023 --registry runs/demo/registry
    """
    from voxline.pipelines.cli.model_views import format_speaker_use

    _print(format_speaker_use(speaker, registry, roots or []))


def show_training_data(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    version: Annotated[int, typer.Argument(metavar="VERSION", help="The version.")],
    registry: Annotated[str, typer.Option(metavar="LOCATION", help="Folder or bucket URI of the registry.")],
    ids: Annotated[
        Path | None, typer.Option(parser=machine_path, help="JSON lines file to write the utterances to.")
    ] = None,
) -> None:
    """Show the utterances that a version was trained on.

    Example: voxline models trained-on asr 1 --registry runs/demo/registry --ids utterances.jsonl
    """
    from voxline.pipelines.cli.model_views import format_training_data

    _print(format_training_data(registry, model, version, ids))


def _print(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)


Datasets = Annotated[
    str, typer.Option("--datasets", metavar="LOCATION", help="Folder or bucket URI with <name>/<number>/.")
]
Name = Annotated[str, typer.Argument(help="The dataset's name.", metavar="NAME")]

datasets = CommandGroup(help="Manage the versions of published datasets.", no_args_is_help=True)


def add_dataset_commands(app: typer.Typer) -> None:
    """Adds the commands to the `voxline` command."""
    # These two come last in `voxline datasets --help`; the others are registered where they are defined.
    datasets.command("purge")(run_purge_command)
    datasets.command("seen")(show_speaker_use)
    app.add_typer(datasets, name="datasets")
    app.command("diff")(show_diff)


def show_diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE", help="A dataset: a published version or an output of extract, as a path or bucket URI."
        ),
    ],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The dataset to compare with it.")],
    limit: Annotated[int, typer.Option(min=0, help="Maximum items to list per category.")] = 10,
    html: Annotated[
        Path | None, typer.Option(parser=machine_path, help="HTML report to write.", show_default=False)
    ] = None,
) -> None:
    """Compare two datasets.

    Utterances, audio, texts, splits, speakers and features.

    Example: voxline diff runs/demo-refresh/datasets/demo/1 runs/demo-refresh/datasets/demo/2 --html diff.html
    """
    from voxline.pipelines.cli.dataset_views import format_diff

    if html:
        from voxline.components.publish.diff_report import diff_page

        diff_page(before, after).write(html)
    _print(format_diff(before, after, limit))


@datasets.command("list")
def show_datasets(root: Datasets) -> None:
    """List the datasets with their latest versions.

    Example: voxline datasets list --datasets runs/demo-refresh/datasets
    """
    from voxline.pipelines.cli.dataset_views import format_datasets

    _print(format_datasets(root))


@datasets.command("show")
def show_dataset(
    name: Name,
    root: Datasets,
    version: Annotated[
        int | None, typer.Argument(metavar="VERSION", help="Show the details of one version.", show_default=False)
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="List the utterances: split, speaker, id, text.")] = False,
) -> None:
    """Show a dataset's history, a version or its utterances.

    Example: voxline datasets show demo 2 --datasets runs/demo-refresh/datasets --rows
    """
    from voxline.pipelines.cli.dataset_views import format_dataset_version, format_history, format_rows

    # Rows are printed as they are read: a dataset may have millions.
    if rows:
        for line in format_rows(root, name, version):
            typer.echo(line)
    else:
        _print(format_history(root, name) if version is None else format_dataset_version(root, name, version))


@datasets.command("texts")
def publish_table(
    table: Annotated[
        Path,
        typer.Argument(parser=machine_path, metavar="TABLE", help="CSV, TSV or JSON lines with a column text."),
    ],
    name: Name,
    root: Datasets,
    dev: Annotated[float, typer.Option(min=0, max=0.5, help="Share of dev, if TABLE has no column split.")] = 0.1,
    test: Annotated[float, typer.Option(min=0, max=0.5, help="Share of test, if TABLE has no column split.")] = 0.1,
    alphabet: Annotated[
        str, typer.Option(help="Letters of the recognizer (its convert.alphabet).  [default: those of the texts]")
    ] = "",
) -> None:
    """Publish texts without recordings, to train intents on.

    Example: voxline datasets texts commands.csv commands --datasets datasets
    """
    from voxline.components.publish.texts import publish_texts

    # The latest version, if it has these texts already.
    version = publish_texts(table, root, name, dev=dev, test=test, alphabet=alphabet)
    counts = ", ".join(f"{version.counts[split]:,} {split}" for split in ("train", "dev", "test"))
    typer.echo(f"{version.uri}: version {version.counts['version']} of {name}: {counts}")


@datasets.command("export")
def export_version(
    version: Annotated[str, typer.Argument(metavar="NAME@NUMBER", help="The version; NAME alone is the latest.")],
    root: Datasets,
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="json, nemo, nemo-tarred, lhotse, parquet or webdataset.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Short for --to json.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(parser=machine_path, help="Folder to write, NAME-NUMBER-FORMAT here if not given."),
    ] = None,
) -> None:
    """Export a version, with its audio, for other tools.

    The export lists by speaker what a later purge must delete in it; `datasets purge` names it.

    \b
    Examples:
      voxline datasets export demo@2 --datasets runs/demo-refresh/datasets --to lhotse
      voxline datasets export demo@2 --datasets runs/demo-refresh/datasets --json
    """
    from voxline.pipelines.cli.dataset_views import format_export

    if as_json and to not in ("", "json"):
        raise SettingsError(f"--json is short for --to json, and --to is {to}; give one of them")
    to = "json" if as_json else to
    if not to:
        raise SettingsError("--to is missing: json, nemo, nemo-tarred, lhotse, parquet or webdataset is accepted")
    _print(format_export(root, version, to, output))


@datasets.command("compact")
def compact_dataset(
    name: Name,
    root: Datasets,
    below: Annotated[float, typer.Option(min=0, max=1, help="Rewrite shards whose live share is below this.")] = 0.5,
) -> None:
    """Rewrite shards of which little is still used.

    The live records are copied, and the same content is published with the new shards. Nothing is deleted; `gc` deletes
    the old shards once no version references them.
    """
    from voxline.pipelines.cli.dataset_views import compact_latest

    typer.echo(compact_latest(root, name, below))


@datasets.command("gc")
def collect_shards(
    store: Annotated[str, typer.Option(metavar="LOCATION", help="The store, a folder or bucket URI.")],
    root: Annotated[
        list[str],
        typer.Option(
            "--datasets",
            metavar="LOCATION",
            help="Folder or bucket URI of published datasets. Repeatable; give all of them.",
        ),
    ],
    grace_days: Annotated[
        float, typer.Option(min=0, help="Days to keep shards after the last extraction that used them.")
    ] = 7.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")] = False,
) -> None:
    """Delete shards that no dataset version references.

    Give all locations of published datasets: a dataset that is not listed loses its shards.
    """
    from voxline.pipelines.cli.dataset_views import format_garbage_collection

    typer.echo(format_garbage_collection(store, list(root), grace_days, dry_run=dry_run))

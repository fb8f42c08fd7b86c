"""The commands of datasets: list, show, compact, gc, purge, seen and diff. They parse, call and print."""

from pathlib import Path
from typing import Annotated

import typer

Speaker = Annotated[str, typer.Option("--speaker", metavar="ID", help="The speaker's id in the manifests.")]


def run_purge_command(
    speaker: Speaker,
    store: Annotated[str, typer.Option(help="The store of the runs: a folder or bucket URI")],
    roots: Annotated[
        list[str] | None, typer.Option("--datasets", help="Where its datasets are published; repeated: all of them.")
    ] = None,
    registry: Annotated[str | None, typer.Option(help="The registry of models.")] = None,
    note: Annotated[str, typer.Option(help="For the record: who asked, and why.")] = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove it; without this option, only report what there is.")
    ] = False,
) -> None:
    """Erase a speaker: rows, clips, WAVs, manifests, reports, logs. This cannot be undone."""
    from voxline.pipelines.cli.dataset_views import format_purge_lines

    _print(format_purge_lines(speaker, store, roots or [], registry, note, do=yes))


def show_speaker_use(
    speaker: Speaker,
    registry: Annotated[str | None, typer.Option(help="The folder or bucket URI of the registry")] = None,
    roots: Annotated[
        list[str] | None, typer.Option("--datasets", help="Where datasets are published; repeated.")
    ] = None,
) -> None:
    """Says which models were trained on a speaker, and which versions of datasets hold them."""
    from voxline.pipelines.cli.model_views import format_speaker_use as told

    _print(told(speaker, registry, roots or []))


def show_training_data(
    model: Annotated[str, typer.Argument(help="The model's name.")],
    version: Annotated[int, typer.Argument(help="Its version.")],
    registry: Annotated[str, typer.Option(metavar="PLACE", help="The folder or bucket URI of the registry.")],
    ids: Annotated[Path | None, typer.Option(help="A file to list the utterances in, JSON lines.")] = None,
) -> None:
    """Says which utterances a version was trained on."""
    from voxline.pipelines.cli.model_views import format_training_data as told

    _print(told(registry, model, version, ids))


def _print(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)


Datasets = Annotated[str, typer.Option("--datasets", help="Folder or bucket URI that holds <name>/<number>/.")]
Name = Annotated[str, typer.Argument(help="The dataset's name.", metavar="NAME")]

datasets = typer.Typer(help="List, show, compact and clean up the versions of datasets.", no_args_is_help=True)


def add_dataset_commands(app: typer.Typer) -> None:
    """Adds the commands to the `voxline` command."""
    datasets.command("purge")(run_purge_command)
    datasets.command("seen")(show_speaker_use)
    app.add_typer(datasets, name="datasets")
    app.command("diff")(show_diff)


def show_diff(
    before: Annotated[str, typer.Argument(help="A dataset: a version, or what extract made; a path or bucket URI")],
    after: Annotated[str, typer.Argument(help="The dataset to compare with it.")],
    limit: Annotated[int, typer.Option(min=0, help="Utterances and speakers to print of each kind.")] = 10,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with plots to this file.", show_default=False)
    ] = None,
) -> None:
    """Says what changed from one dataset to another: utterances, audio, texts, splits, speakers, features."""
    from voxline.pipelines.cli.dataset_views import format_diff

    if html:
        from voxline.components.publish.diff_report import diff_page

        diff_page(before, after).write(html)
    _print(format_diff(before, after, limit))


@datasets.command("list")
def show_datasets(root: Datasets) -> None:
    """Names each dataset, its latest version, and what that holds."""
    from voxline.pipelines.cli.dataset_views import format_datasets

    _print(format_datasets(root))


@datasets.command("show")
def show_dataset(
    name: Name,
    root: Datasets,
    version: Annotated[int | None, typer.Argument(help="All of one version.", show_default=False)] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="Its utterances, a line each: split, speaker, id, text.")
    ] = False,
) -> None:
    """Shows every version of a dataset, or all that is known of one, or its utterances."""
    from voxline.pipelines.cli.dataset_views import format_dataset_version, format_history, format_rows

    if rows:
        for line in format_rows(root, name, version):
            typer.echo(line)
    else:
        _print(format_history(root, name) if version is None else format_dataset_version(root, name, version))


@datasets.command("compact")
def compact_dataset(
    name: Name,
    root: Datasets,
    below: Annotated[float, typer.Option(min=0, max=1, help="Live share of a shard below which it is copied.")] = 0.5,
) -> None:
    """Copies live records of shards with a low live ratio, and publishes the same content with the new shards.

    Deletes nothing; `gc` does, once no version lists the old shards.
    """
    from voxline.pipelines.cli.dataset_views import compact_latest

    typer.echo(compact_latest(root, name, below))


@datasets.command("gc")
def delete_unused_shards(
    store: Annotated[str, typer.Option(help="The store of the shards: a folder or bucket URI.")],
    root: Annotated[
        list[str], typer.Option("--datasets", help="Where its datasets are published; repeated: all of them.")
    ],
    grace_days: Annotated[
        float, typer.Option(min=0, help="Days that shards stay after the last extraction that used them.")
    ] = 7.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would be deleted, and delete nothing.")
    ] = False,
) -> None:
    """Deletes shards of a store that no version of a dataset lists.

    Give all folders of datasets: shards of those left out are deleted.
    """
    from voxline.pipelines.cli.dataset_views import format_garbage_collection

    typer.echo(format_garbage_collection(store, list(root), grace_days, dry_run=dry_run))

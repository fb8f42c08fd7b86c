"""The commands of transcripts: rank them by doubt, and take a person's corrections."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from voxline.errors import SettingsError
from voxline.pipelines.cli.options import Assignments, CommandGroup, Config, machine_path

transcript_commands = CommandGroup(help="Find wrong transcripts, and correct them.", no_args_is_help=True)


@transcript_commands.command("rank")
def rank(
    config: Config,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", parser=machine_path, metavar="FOLDER", help="For the runs and the ranking."),
    ],
    set_: Assignments = None,
    folds: Annotated[int, typer.Option(min=2, max=100, help="Models to train, each on all other folds.")] = 3,
    most: Annotated[float, typer.Option(min=0, max=1, help="Share of the ranking to write for Label Studio.")] = 0.07,
) -> None:
    """Rank the transcripts of a corpus by doubt.

    A model is trained for each fold, and judges the utterances that it did not train on. Writes doubt.jsonl, a manifest
    with the most doubtful transcript first, and label-studio.json and .xml. The same command resumes.

    \b
    Example:
      voxline transcripts rank -c configs/asr/demo.yaml -o runs/doubt
    """
    from voxline.pipelines.console import Console
    from voxline.pipelines.label_doubt import rank_transcripts

    ranking = rank_transcripts(config, set_ or [], output, Console(sys.stdout), folds=folds, most=most)
    note = f"; {ranking.unranked:,} have no rank, as they were rejected" if ranking.unranked else ""
    typer.echo(f"{ranking.manifest}: {ranking.ranked:,} transcripts{note}")

    # An accent that the models do not understand looks like wrong transcripts.
    for speaker, share, usual in ranking.crowded:
        typer.echo(
            f"voxline: speaker {speaker} has {share:.0%} of the most doubtful transcripts and {usual:.0%} of all: the "
            "models may not understand this speaker; listen before you leave anything out",
            err=True,
        )


@transcript_commands.command("correct")
def correct(
    labeled: Annotated[
        Path, typer.Argument(parser=machine_path, metavar="EXPORT", help="JSON that Label Studio exported.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", parser=machine_path, metavar="FILE", help="Corrections; those in it are kept or replaced."
        ),
    ],
) -> None:
    """Write a person's corrections for corpus.corrections.

    Example: voxline transcripts correct labeled.json -o corrections.jsonl
    """
    from voxline.data.corrections import merge_corrections, read_corrections, read_label_studio, write_corrections

    if not labeled.is_file():
        raise SettingsError(f"{labeled}: no such file; export the project from Label Studio as JSON")

    # Corrections are made in several sittings: an export adds to those of the ones before.
    before = read_corrections(output) if output.exists() else {}
    new = read_label_studio(labeled)
    count = write_corrections(output, merge_corrections(before, new).values())
    typer.echo(f"{output}: {count:,} corrections, {len(new):,} of them from {labeled}")

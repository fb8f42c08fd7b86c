"""The commands of models: transcribe, synthesize, and what a registry holds. They parse, call and print."""

import os
from pathlib import Path
from typing import Annotated

import typer

from components.speech.errors import SettingsError
from pipelines import speaker_commands

RegistryDir = Annotated[
    str, typer.Option("--registry", metavar="PLACE", help="The folder, or gs://…, that holds <model>/<version>/.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands to the `voxline` command."""
    app.command()(transcribe)
    app.command()(synthesize)
    models = typer.Typer(help="Lists, shows and rolls back the models in a registry.", no_args_is_help=True)
    models.command("list")(list_models)
    models.command("show")(show_model)
    models.command("rollback")(roll_back_model)
    models.command("trained-on")(speaker_commands.trained_on)
    app.add_typer(models, name="models")


def transcribe(
    audio: Annotated[list[Path], typer.Argument(help="Recordings, of any format and sample rate.")],
    model: Annotated[str, typer.Option(help="An exported model, a registry's version, or <registry>/<model>.")],
) -> None:
    """Prints what is said in recordings, a line each."""
    from components.speech.exported import Recogniser
    from pipelines.models import model_folder

    _tensorflow_tells_nothing()
    for file in audio:
        if not file.is_file():
            raise SettingsError(f"{file}: no such file; give recordings, one or more")
    texts = Recogniser(model_folder(model)).transcribe_files(audio)
    for file, text in zip(audio, texts, strict=True):
        typer.echo(text if len(audio) == 1 else f"{file}\t{text}")


def synthesize(
    text: Annotated[str, typer.Argument(help="What to say; - reads it from standard input.")],
    model: Annotated[str, typer.Option(help="An exported voice, a registry's version, or <registry>/<model>.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The WAV to write.")],
) -> None:
    """Speaks a text into a WAV."""
    from pipelines.models import model_folder
    from pipelines.spoken import speak_into, text_of

    _tensorflow_tells_nothing()
    _print(speak_into(output, text_of(text), model_folder(model)))


def list_models(registry: RegistryDir) -> None:
    """Names each model, and what is in service."""
    from pipelines.models import table_of_models

    _print(table_of_models(registry))


def show_model(
    model: Annotated[str, typer.Argument(help="The model's name.")],
    registry: RegistryDir,
    version: Annotated[int | None, typer.Argument(help="All of one version.", show_default=False)] = None,
) -> None:
    """Shows every change of a model, or all that is known of one version."""
    from pipelines.models import details_of, journal_of

    _print(journal_of(registry, model) if version is None else details_of(registry, model, version))


def roll_back_model(
    model: Annotated[str, typer.Argument(help="The model's name.")],
    registry: RegistryDir,
    to: Annotated[int | None, typer.Option(help="Which version.  [default: the one before]")] = None,
    note: Annotated[str, typer.Option(help="Why, for the journal.")] = "",
) -> None:
    """Puts an older version back into service, under a new number."""
    from pipelines.models import roll_back

    typer.echo(roll_back(registry, model, to, note))


def _tensorflow_tells_nothing() -> None:
    """Its search for a GPU is no part of an answer. A level that a person has set stays."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _print(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)

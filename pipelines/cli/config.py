"""The commands of configs: show, explain, schema and init. They parse, call and print."""

import itertools
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voxline.pipelines.cli.options import AsJson, Assignments, CommandGroup, Config, machine_path

if TYPE_CHECKING:
    from voxline.pipelines.config.scaffold import ConfigProposal

SCHEMA_LINE = "# yaml-language-server:"
SUMMARY_CHARACTERS = 130
"""Of an example, in one line."""
config_commands = CommandGroup(
    help="Show, explain and write configs.",
    epilog="The reference of all settings is docs/config.md.",
    no_args_is_help=True,
)


@config_commands.command("show")
def show_config(
    config: Config,
    set_: Assignments = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only values that a file or --set gives.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the effective config and the origin of each value.

    Example: voxline config show -c configs/asr/demo.yaml --set train.epochs=3 --changed
    """
    from voxline.pipelines.config.load import read_layers, resolve_layers, value_origins

    layers = read_layers(list(config), set_ or [])
    resolved = resolve_layers(layers)
    values = resolved.plain()
    origins = value_origins(resolved, layers)

    # An origin is "FILE:LINE", "--set", "default", or "from KEY" for a value that another key gives.
    if changed:
        origins = {key: origin for key, origin in origins.items() if not origin.startswith(("default", "from "))}
        values = _only(values, origins.keys())
    if as_json:
        typer.echo(json.dumps({"config": values, "origins": origins}, indent=2, ensure_ascii=False))
        return

    # `cluster` is long, and says nothing to those who run on one machine.
    unset = [section for section in ("cluster",) if not _is_set(section, origins) and section in values]
    for line in _annotated_yaml({key: value for key, value in values.items() if key not in unset}, origins):
        typer.echo(line)
    for section in unset:
        typer.echo(f"# {section}: defaults only, `voxline config explain {section}` lists them")


@config_commands.command("explain")
def explain_setting(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="A key or a section, such as train.epochs.  [default: all keys]")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/config.md.")] = False,
) -> None:
    """Explain a setting: step, type, unit, default, accepted values.

    Example: voxline config explain corpus.split
    """
    from voxline.pipelines.config.reference import explain_key, list_settings, markdown_reference, summary_table

    if markdown:
        typer.echo(markdown_reference(), nl=False)
        return
    for line in explain_key(key) if key else summary_table(list_settings()):
        typer.echo(line)


@config_commands.command("schema")
def write_schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", parser=machine_path, help="File to write.  [default: print it]")
    ] = None,
) -> None:
    """Print a JSON schema of configs, for editors.

    An editor with a YAML language server reads it from the first line of a config:
    # yaml-language-server: $schema=voxline.schema.json
    """
    from voxline.pipelines.config.reference import json_schema
    from voxline.store.files import write_text

    text = json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_text(output, text)
        typer.echo(str(output))


@config_commands.command("init")
def init_config(
    folder: Annotated[Path, typer.Argument(parser=machine_path, metavar="FOLDER", help="Folder of the corpus.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", parser=machine_path, help="File to write.  [default: NAME.yaml]")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the run.  [default: the folder's]")] = "",
    parent: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Public model to tune: whisper-tiny.en, hf://owner/name@commit or a folder of one; of voices also a "
            "Piper voice (.onnx).",
        ),
    ] = "",
    language: Annotated[
        str, typer.Option(help="Language of the transcripts, such as de; a Whisper of several needs it.")
    ] = "",
    pipeline: Annotated[str, typer.Option(help="The config is for asr, tts, vocoder or refresh.")] = "asr",
    timing: Annotated[
        bool, typer.Option("--timing/--no-timing", help="Time some training steps, to say how long it takes here.")
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a config for a corpus.

    It looks at the files, and guesses format, split and length of training. With --parent it tunes a public model.
    --pipeline tts trains a voice, vocoder what makes its sound, and refresh publishes versions of the corpus.

    \b
    Examples:
      voxline config init recordings -o commands.yaml
      voxline config init recordings --parent whisper-tiny.en
      voxline config init recordings --pipeline tts -o voice.yaml
      voxline config init recordings --pipeline tts --parent en_US-joe-medium.onnx
      voxline config init recordings --pipeline vocoder --parent hifigan-universal
    """
    from voxline.pipelines.config.scaffold import propose_config, write_config

    proposal = propose_config(folder, name, parent, language, pipeline)
    file = write_config(proposal, output or Path(f"{proposal.name}.yaml"), replace=force)
    for line in proposal.findings:
        typer.echo(line)
    if timing and proposal.steps:
        typer.echo(_training_time(proposal))
    typer.echo(f"wrote {file}; next: voxline run {pipeline} --config {file}")


def _training_time(proposal: "ConfigProposal") -> str:
    """A line that says how long the training takes, or why it could not be timed: the config is good all the same."""
    from voxline.errors import VoxlineError
    from voxline.pipelines.local.training_time import describe_training_time, time_training

    try:
        return describe_training_time(time_training(proposal), proposal.steps)
    except (VoxlineError, OSError) as error:
        return f"time       not known: {str(error).splitlines()[0]}"


@config_commands.command("examples")
def show_examples(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One of them, such as asr/fsdd, to print.  [default: list all]")
    ] = None,
) -> None:
    """List the example configs, or print one.

    Example: voxline config examples asr/fsdd > fsdd.yaml
    """
    import voxline
    from voxline.errors import SettingsError

    # In the package, so that they are there without a copy of the repository.
    root = Path(voxline.__path__[0]) / "configs"
    files = {str(file.relative_to(root).with_suffix("")): file for file in sorted(root.glob("*/*.yaml"))}
    if name is None:
        for example, file in files.items():
            typer.echo(f"{example:<32}  {_summary(file)}")
        return

    example = name.removesuffix(".yaml")
    if example not in files:
        raise SettingsError(f"no example is called {name!r}; there are: {', '.join(files)}")
    first, *lines = files[example].read_text(encoding="utf-8").splitlines(keepends=True)
    # It names the schema beside the examples, which a copy elsewhere does not find.
    typer.echo("".join(lines if first.startswith(SCHEMA_LINE) else [first, *lines]), nl=False)


def _summary(example: Path) -> str:
    """The first sentence of an example's comment, and those after it that fit in the line."""
    # The comment at the head of the file is wrapped, and ends at the first line that is none, or at an indented one.
    lines = example.read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(re.compile("# [^ ]").match, lines[lines[0].startswith(SCHEMA_LINE) :])
    text, *further = re.split(r"(?<=\.) (?=[A-Z])", " ".join(line.removeprefix("# ") for line in comment))
    while further and len(text) + len(further[0]) < SUMMARY_CHARACTERS:
        text += f" {further.pop(0)}"
    return text


def _is_set(section: str, origins: dict[str, str]) -> bool:
    """Returns whether a file or --set gives a value of a section."""
    inside = [origin for key, origin in origins.items() if key.startswith(f"{section}.")]
    return not all(origin.startswith(("default", "from ")) for origin in inside)


def _only(values: dict[str, Any], keys: Collection[str], prefix: str = "") -> dict[str, Any]:
    """The values at some dotted keys, in their sections."""
    selected = {}
    for name, value in values.items():
        key = prefix + name
        if key in keys:
            selected[name] = value
        elif isinstance(value, dict) and (below := _only(value, keys, f"{key}.")):
            selected[name] = below
    return selected


def _annotated_yaml(values: dict[str, Any], origins: dict[str, str], prefix: str = "", depth: int = 0) -> list[str]:
    """YAML with a comment for each value; read back, it gives the same values."""
    from voxline.pipelines.config.reference import yaml_value

    lines = []
    for name, value in values.items():
        key = prefix + name
        start = "  " * depth + f"{yaml_value(name)}:"

        # A section has no origin of its own; an empty mapping is a value, and has one.
        if isinstance(value, dict) and value and key not in origins:
            lines += [start, *_annotated_yaml(value, origins, f"{key}.", depth + 1)]
        else:
            lines.append(f"{start} {yaml_value(value)}".ljust(48) + f"  # {origins[key]}")
    return lines

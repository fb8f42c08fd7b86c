"""The `voxline` command: parses, calls, prints. Whatever takes long to import is imported where it is called."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from voxline.errors import VoxlineError
from voxline.pipelines.cli import cluster as cluster_commands
from voxline.pipelines.cli import datasets
from voxline.pipelines.cli import models as model_commands
from voxline.pipelines.cli.options import warn_unmounted_paths
from voxline.pipelines.graph import PIPELINES, check_pipeline
from voxline.store.files import USER_FIXABLE_ERRNOS

app = typer.Typer(
    help="Retrains speech models: recordings in, a model shown to be no worse out.",
    epilog="Exit status: 0 done (refusing to push a worse model included); 1 the work failed; 2 the command or the "
    "config is wrong; 75 a storage or a network failed, the same command may succeed; 130 or 143 stopped by a signal.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
corpus = typer.Typer(help="Writes corpora.", no_args_is_help=True)

Pipeline = Annotated[str, typer.Argument(help=f"Which graph: {', '.join(PIPELINES)}.", metavar="PIPELINE")]
Config = Annotated[
    list[Path],
    typer.Option(
        "--config", "-c", help="The run's YAML, such as configs/asr/demo.yaml. Repeated: the later lies over."
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Lays a value over the config: --set train.epochs=3. Repeatable."),
]
RunDir = Annotated[Path | None, typer.Option(help="Where the run's record and report go.  [default: runs/<name>]")]


def main() -> None:
    """Runs the command; what a person can mend is told in a line, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ▸ is no reason to stop
    try:
        app()
    except VoxlineError as error:
        _fail(str(error), error.exit_status)
    except BrokenPipeError:  # `voxline models list | head`
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno not in USER_FIXABLE_ERRNOS:
            raise
        _fail(f"{error.filename or 'what it prints'}: {error.strerror}; make room there, or name another place", 1)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Prints the version.")] = False) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"voxline {version_of('voxline')}")
        raise typer.Exit


@app.command()
def run(pipeline: Pipeline, config: Config, set_: Assignments = None, run_dir: RunDir = None) -> None:
    """Runs a pipeline on this machine. Work that has not changed since an earlier run is reused."""
    from voxline.pipelines.cli.console import Console
    from voxline.pipelines.config.load import load_config
    from voxline.pipelines.local.runner import run_pipeline
    from voxline.pipelines.local.summary import summary_lines

    check_pipeline(pipeline)
    _quiet_tensorflow()
    with _exit_on_signal():
        chosen = load_config(config, set_ or [], pipeline=pipeline)
        folder = run_dir or Path("runs") / chosen.name
        typer.echo(f"voxline {pipeline}: {chosen.name}, in {folder}")
        record, failure = run_pipeline(chosen, folder, Console(sys.stdout))
    for line in summary_lines(record):
        typer.echo(line)
    if failure:
        for frame in failure.frames:
            typer.echo(f"    {frame}", err=True)
        _fail(f"{record.failed_step or 'the graph'} failed: {failure.message}", failure.exit_status)


@app.command()
def step(
    name: Annotated[
        str, typer.Argument(help="ingest, convert, validate, extract, and train, evaluate, push or publish.")
    ],
    config: Config,
    set_: Assignments = None,
    run_dir: RunDir = None,
    manifest: Annotated[str | None, typer.Option(help="What ingest made (convert), or convert (the others).")] = None,
    dataset: Annotated[str | None, typer.Option(help="What extract made, or a published version.")] = None,
    model: Annotated[str | None, typer.Option(help="What train made, or an exported model.")] = None,
    evaluation: Annotated[str | None, typer.Option(help="What evaluate made.")] = None,
) -> None:
    """Runs one step by itself; inputs that are not given are those made last in the run's folder."""
    from voxline.pipelines.cli.console import Console, redirect_stdout_to
    from voxline.pipelines.config.load import load_config
    from voxline.pipelines.local.single_step import run_step

    _quiet_tensorflow()
    chosen = load_config(config, set_ or [])
    given = {"manifest": manifest, "dataset": dataset, "model": model, "evaluation": evaluation}
    with _exit_on_signal(), redirect_stdout_to(Console(sys.stdout)):
        work = run_step(
            name, chosen, run_dir or Path("runs") / chosen.name, {key: path for key, path in given.items() if path}
        )
    for output in work.outputs:
        typer.echo(f"{output:<12}{work.output_uri(output)}")
    for metric, value in work.metrics.items():
        typer.echo(f"{metric:<12}{value}")


@app.command("compile")
def compile_(
    pipeline: Pipeline,
    config: Config,
    set_: Assignments = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="[default: <name>.yaml]")] = None,
) -> None:
    """Writes a pipeline as the IR YAML that a Kubeflow cluster takes."""
    from voxline.pipelines.cluster.compiler import compile_pipeline
    from voxline.pipelines.config.load import load_config

    check_pipeline(pipeline)
    chosen = load_config(config, set_ or [], pipeline=pipeline)
    target = output or Path(f"{chosen.name}.yaml")
    compile_pipeline(chosen, target)
    warn_unmounted_paths(chosen)
    typer.echo(str(target))


@corpus.command("demo")
def demo_corpus(
    folder: Annotated[Path, typer.Argument(help="Where it goes; written whole, or found there and left alone.")],
    set_: Assignments = None,
) -> None:
    """Writes a small corpus of generated speech; --set kind=digits, phrases, mandarin or round_trip for TTS."""
    from voxline.components.demo_corpus.settings import DemoCorpusSettings
    from voxline.components.demo_corpus.step import run as generate
    from voxline.pipelines.cli.console import Console, redirect_stdout_to
    from voxline.pipelines.config.load import apply_assignments

    with _exit_on_signal(), redirect_stdout_to(Console(sys.stdout)):
        generate(folder, DemoCorpusSettings.of(apply_assignments({}, set_ or [])[0], "--set"))


app.add_typer(corpus, name="corpus")
model_commands.add_model_commands(app)
cluster_commands.add_cluster_commands(app)
datasets.add_dataset_commands(app)


@contextlib.contextmanager
def _exit_on_signal() -> Iterator[None]:
    """Ctrl-C and a polite kill end with a line, and the exit status that shells give to them."""
    try:
        yield
    except KeyboardInterrupt as signal:
        by = signal.args[0] if signal.args else 2
        _fail("stopped; start it again and it goes on from where it was", 128 + by)


def _quiet_tensorflow() -> None:
    """And no more: its search for a GPU is no news. A level that a person has set stays."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def _fail(message: str, status: int) -> None:
    typer.echo("\n".join(f"voxline: {line}" for line in message.splitlines() or [""]), err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()

"""The `voxline` command: parses, calls, prints. Slow imports are inside the commands that need them."""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voxline.errors import SettingsError, VoxlineError
from voxline.extras import naming_extras
from voxline.garbage import collect_rarely, leave_garbage_at_exit
from voxline.idle_threads import let_idle_threads_sleep
from voxline.pipelines.cli import cluster as cluster_commands
from voxline.pipelines.cli import datasets
from voxline.pipelines.cli import models as model_commands
from voxline.pipelines.cli.captures import capture_commands
from voxline.pipelines.cli.captures import watch as watch_command
from voxline.pipelines.cli.config import config_commands
from voxline.pipelines.cli.drafts import draft_transcripts
from voxline.pipelines.cli.history import add_history_commands
from voxline.pipelines.cli.options import (
    AsJson,
    Assignments,
    CommandGroup,
    Config,
    Pipeline,
    Platform,
    RunDir,
    check_platform,
    machine_path,
    refuse_unmounted_paths,
)
from voxline.pipelines.cli.runs import run_commands
from voxline.pipelines.cli.search import search_commands
from voxline.pipelines.cli.store import store_commands
from voxline.pipelines.cli.text import text_commands
from voxline.pipelines.cli.transcripts import transcript_commands
from voxline.pipelines.cli.voices import voice_commands
from voxline.progress import neutralize_output
from voxline.store.files import USER_FIXABLE_ERRNOS, use_private_umask

if TYPE_CHECKING:
    from voxline.pipelines.config.run_config import RunConfig

NEEDS_A_PERSON = 3
"""Exit status of a run that is done, after which what is in production must not stay there."""
EXIT_STATUS = (
    "Exit status: 0 done (a worse model that is not pushed included); 1 the work failed; 2 the command or the config "
    "is wrong; 3 done, and the model in production knows a speaker who was erased; 75 a storage or a network failed, "
    "the same command may succeed; 130 or 143 stopped by a signal."
)

app = CommandGroup(
    help="Retrain speech models on your own recordings, and promote a new one only within a margin you set.",
    epilog=f"{EXIT_STATUS} Docs: docs/index.md, or `make docs`.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
corpus = CommandGroup(help="Generate a corpus to try things with; draft transcripts.", no_args_is_help=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command. A fault that the user can fix is printed in one line, without a traceback.

    Args:
      arguments: None: those of this process.
    """
    # Settings of the process are left alone where the command is called by a test or another program.
    if arguments is None:
        collect_rarely()
        leave_garbage_at_exit()
        let_idle_threads_sleep()
        neutralize_output()
        use_private_umask()

    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:  # `voxline help run`, as with git
        words = [*words[1:], "--help"]
    if words[:1] == ["train"]:  # the word that people of other toolkits type first
        words = ["run", *words[1:]]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ▸ must not end the command

    # Errors that the user can mend end in a line; any other is a bug, and keeps its traceback.
    try:
        with naming_extras():
            app(words, prog_name="voxline", obj=arguments is None)
    except VoxlineError as error:
        _fail(str(error), error.exit_status)
    except BrokenPipeError:  # `voxline models list | head`
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno not in USER_FIXABLE_ERRNOS:
            raise
        _fail(
            f"{error.filename or 'standard output'}: {error.strerror}; free space there, or choose another folder",
            1,
        )


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"voxline {version_of('voxline')}")
        raise typer.Exit


@app.command(epilog=EXIT_STATUS)
def run(
    context: typer.Context,
    pipeline: Pipeline,
    config: Config,
    set_: Assignments = None,
    run_dir: RunDir = None,
    until: Annotated[str, typer.Option(metavar="STEP", help="Stop after this step.")] = "",
    force: Annotated[
        list[str] | None,
        typer.Option(metavar="STEP", help="Run this step again even if nothing changed. Repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which steps would run and why; write nothing.")
    ] = False,
    timing: Annotated[
        bool | None,
        typer.Option(
            "--timing/--no-timing",
            help="With --dry-run: time some steps of the training, if no run before tells how long it takes.  "
            "[default: if cost has a price]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print run.json (or the plan) instead of progress.")] = False,
) -> None:
    """Run a pipeline here, as `voxline train` does.

    Unchanged steps are reused.

    \b
    Examples:
      voxline run asr --config configs/asr/demo.yaml
      voxline run asr -c demo.yaml --set train.epochs=3 --dry-run
      voxline run asr -c demo.yaml --until validate
    """
    from voxline.pipelines.config.load import load_config
    from voxline.pipelines.console import Console
    from voxline.pipelines.graphs import check_pipeline
    from voxline.pipelines.local.runner import run_pipeline
    from voxline.pipelines.local.summary import summary_lines

    # A wrong pipeline is named as such, before the keys that its config does not have.
    check_pipeline(pipeline)
    _quiet_tensorflow()
    with _exit_on_signal(ends_process=bool(context.obj)):
        run_config = load_config(config, set_ or [], pipeline=pipeline)
        folder = run_dir or Path("runs") / run_config.name
        if dry_run:
            _print_plan(run_config, folder, until, force or [], timing, as_json)
            return

        # With --json standard output is the document alone.
        if not as_json:
            typer.echo(f"voxline {pipeline}: {run_config.name}, in {folder}")
        with contextlib.ExitStack() as stack:
            screen = stack.enter_context(open(os.devnull, "w", encoding="utf-8")) if as_json else sys.stdout
            if as_json:  # what else is printed does not belong to the document
                stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            record, failure = run_pipeline(
                run_config, folder, Console(screen), until=until, force=force or [], fork=bool(context.obj)
            )

    if as_json:
        typer.echo((folder / "run.json").read_text(encoding="utf-8"), nl=False)
    for line in [] if as_json else summary_lines(record):
        typer.echo(line)

    # Frames are of our own code: a user quotes them in an issue. A model that was published in spite of the failure
    # is the first thing to know.
    if failure:
        for frame in failure.frames:
            typer.echo(f"    {frame}", err=True)
        why = record.reason if record.published else failure.message
        _fail(f"{record.failed_step or 'the graph'} failed: {why}", failure.exit_status)

    # A scheduler must notice that what had to go still serves, and tell it from a failure.
    if record.erasure.warning and not until:
        _fail(record.erasure.warning, NEEDS_A_PERSON)


def _print_plan(
    config: "RunConfig", folder: Path, until: str, force: list[str], timing: bool | None, as_json: bool
) -> None:
    import dataclasses
    import json

    from voxline.pipelines.local.cost_estimate import estimate_run, history_location, refuse_above_budget
    from voxline.pipelines.local.plan import plan_run
    from voxline.pipelines.local.runner import check_run

    # The plan of a run that would be refused is the refusal.
    local = config.for_this_machine(folder.absolute())
    check_run(local, folder.absolute(), until, force)
    planned = plan_run(config, folder, until=until, force=force)

    # Steps are timed for those who ask, or who gave a price: it takes half a minute.
    timed = bool(config.cost.has_price) if timing is None else timing
    estimate = estimate_run(local, planned, history_location(local), timing=timed)
    remark = refuse_above_budget(estimate, config)
    if as_json:
        steps = [{**dataclasses.asdict(step), "estimate": estimate.to_dict(step.name)} for step in planned]
        typer.echo(json.dumps(steps, indent=2, ensure_ascii=False))
        return
    typer.echo(f"voxline {config.pipeline}: {config.name}, in {folder} (dry run: nothing is written)")
    for step in planned:
        typer.echo(step.line)
    for line in [*estimate.lines, *([remark] if remark else [])]:
        typer.echo(line)


@app.command(epilog=EXIT_STATUS)
def step(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STEP",
            help="Step of the config's pipeline, such as train. The error of a wrong name lists them.",
        ),
    ],
    config: Config,
    set_: Assignments = None,
    run_dir: RunDir = None,
    manifest: Annotated[str | None, typer.Option(help="Manifest to read.  [default: the latest of this run]")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset to read.  [default: the latest of this run]")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to evaluate or push.  [default: the latest of this run]")
    ] = None,
    evaluation: Annotated[
        str | None, typer.Option(help="Evaluation to judge by.  [default: the latest of this run]")
    ] = None,
) -> None:
    """Run a single step.

    \b
    Examples:
      voxline step validate -c configs/asr/demo.yaml --run-dir runs/demo
      voxline step train -c configs/asr/demo.yaml --dataset runs/demo-refresh/datasets/demo/1
    """
    from voxline.pipelines.config.load import load_config
    from voxline.pipelines.console import Console, redirect_stdout_to
    from voxline.pipelines.local.single_step import run_step

    # No pipeline is named here: the config's own decides which steps there are.
    _quiet_tensorflow()
    run_config = load_config(config, set_ or [])
    options = {"manifest": manifest, "dataset": dataset, "model": model, "evaluation": evaluation}
    locations = {kind: location for kind, location in options.items() if location}
    with _exit_on_signal(), redirect_stdout_to(Console(sys.stdout)):
        work = run_step(name, run_config, run_dir or Path("runs") / run_config.name, locations)

    # Outputs come first: their locations are what the next `voxline step` takes.
    shown = {output: work.output_uri(output) for output in work.outputs}
    shown |= {metric: f"{value:.6g}" for metric, value in work.metrics.items()}
    width = max((len(name) for name in shown), default=0)
    for label, value in shown.items():
        typer.echo(f"{label:<{width}}  {value}")


@app.command("compile")
def compile_(
    pipeline: Pipeline,
    config: Config,
    set_: Assignments = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", parser=machine_path, help="[default: <name>.yaml]")
    ] = None,
    kfp_version: Annotated[
        str,
        typer.Option(metavar="VERSION", help="Version of the KFP server, such as 2.17.  [default: any since 2.5]"),
    ] = "",
    platform: Platform = "kfp",
) -> None:
    """Compile a pipeline to IR YAML for Kubeflow or Vertex AI.

    \b
    Examples:
      voxline compile asr -c configs/asr/librispeech.yaml -c configs/cluster/gke-gpu.yaml -o asr.yaml
      voxline compile asr -c configs/asr/librispeech.yaml -c configs/cluster/vertex.yaml --platform vertex
    """
    from voxline.pipelines.cluster.access import parse_version
    from voxline.pipelines.cluster.compiler import compile_pipeline
    from voxline.pipelines.cluster.vertex import check_config
    from voxline.pipelines.config.load import load_config
    from voxline.pipelines.graphs import check_pipeline

    # All options are checked before a file is written.
    check_pipeline(pipeline)
    run_config = load_config(config, set_ or [], pipeline=pipeline)
    target = output or Path(f"{run_config.name}.yaml")
    if target.suffix != ".yaml":
        raise SettingsError(f"--output {target}: a file whose name ends in .yaml is accepted")
    if not target.absolute().parent.is_dir():
        raise SettingsError(f"--output {target}: the folder {target.parent} does not exist; make it, or choose another")
    if target.absolute() in [file.absolute() for file in config]:
        raise SettingsError(f"--output {target}: it is the config itself; choose another name")
    if kfp_version and not parse_version(kfp_version):
        raise SettingsError(f"--kfp-version {kfp_version!r}: accepted are versions such as 2.17.0")

    # Vertex AI has a check of its own; claims, on which pods may find paths, are Kubernetes'.
    if check_platform(platform, kfp_version=kfp_version):
        for line in check_config(run_config):
            typer.echo(f"voxline: {line}", err=True)
        compile_pipeline(run_config, target, platform="vertex")
    else:
        refuse_unmounted_paths(run_config)
        compile_pipeline(run_config, target, parse_version(kfp_version))
    typer.echo(str(target))


@app.command("check-accelerator")
def accelerator_check(
    networks: Annotated[
        list[str] | None,
        typer.Option("--network", metavar="NAME", help="Check this network alone. Repeatable.  [default: all]"),
    ] = None,
    precisions: Annotated[
        list[str] | None,
        typer.Option("--precision", metavar="NAME", help="Train in this one alone. Repeatable.  [default: all]"),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, max=10_000, help="Timed steps of each, at most.")] = 50,
    minutes: Annotated[float, typer.Option(min=0.1, max=1_440, help="Minutes until it ends.")] = 8.0,
    size: Annotated[
        str,
        typer.Option(
            metavar="full|small", help="small: networks of a few thousand weights.  [default: full on an accelerator]"
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Train each network here, beside the CPU, and time it.

    Deep Speech 2, Conformer, Whisper tiny, Tacotron 2, VITS and Vocos train some steps in float32, bfloat16 and
    float16; Vocos, HiFi-GAN and WaveGlow make samples. It ends with a table to paste. Nothing is downloaded or kept.
    Exit status 1: a loss differs from the CPU's, or a network does not train.

    \b
    Examples:
      voxline check-accelerator
      voxline check-accelerator --network conformer --network vocos --minutes 3
    """
    import dataclasses
    import json

    from voxline.pipelines.console import Console, redirect_stdout_to
    from voxline.pipelines.local.accelerator_check import PRECISIONS, CheckOptions, check_networks
    from voxline.pipelines.local.checked_networks import NETWORKS

    # Mistakes end it before anything is made.
    for option, values, known in (("network", networks, NETWORKS), ("precision", precisions, PRECISIONS)):
        if unknown := set(values or ()) - set(known):
            raise SettingsError(f"--{option} {min(unknown)!r}: accepted: {', '.join(known)}")
    if size not in ("", "full", "small"):
        raise SettingsError(f"--size {size!r}: accepted: full, small")

    # Without an accelerator networks of their usual size would take hours.
    small = size == "small" if size else None
    options = CheckOptions(
        tuple(networks or NETWORKS), tuple(precisions or PRECISIONS), steps, small=small, minutes=minutes
    )
    with _exit_on_signal(), redirect_stdout_to(Console(sys.stderr if as_json else sys.stdout)):
        report = check_networks(options)
    typer.echo(json.dumps(dataclasses.asdict(report), indent=2) if as_json else report.markdown())
    if report.is_bad:
        sys.exit(1)


@corpus.command("demo")
def demo_corpus(
    folder: Annotated[
        Path,
        typer.Argument(
            parser=machine_path, metavar="FOLDER", help="Where to write it; a complete corpus there is left alone."
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set kind, variant, seed or another setting. Repeatable."),
    ] = None,
) -> None:
    """Generate a small corpus with eSpeak NG.

    kind is commands (the default) or words for ASR, or for TTS digits, phrases, mandarin or round_trip (which trains
    the recognizer that judges); variant is the voice, such as m3; seed chooses voices and sentences.

    \b
    Examples:
      voxline corpus demo runs/demo/corpus
      voxline corpus demo runs/demo-tts/voice --set kind=digits --set variant=m3
    """
    from voxline.components.demo_corpus.step import corpus_settings
    from voxline.components.demo_corpus.step import run as generate
    from voxline.pipelines.config.load import apply_assignments
    from voxline.pipelines.console import Console, redirect_stdout_to

    with _exit_on_signal(), redirect_stdout_to(Console(sys.stdout)):
        generate(folder, corpus_settings(apply_assignments({}, set_ or [])[0], "--set"))


corpus.command("label")(draft_transcripts)

# `voxline --help` lists single commands, then groups, each in this order.
app.add_typer(corpus, name="corpus")
app.add_typer(config_commands, name="config")
add_history_commands(run_commands)
app.add_typer(run_commands, name="runs")
app.add_typer(search_commands, name="search")
app.add_typer(store_commands, name="store")
app.add_typer(text_commands, name="text")
app.add_typer(transcript_commands, name="transcripts")
app.add_typer(voice_commands, name="voices")
app.add_typer(capture_commands, name="captures")
app.command("watch")(watch_command)
model_commands.add_model_commands(app)
cluster_commands.add_cluster_commands(app)
datasets.add_dataset_commands(app)


@contextlib.contextmanager
def _exit_on_signal(*, ends_process: bool = False) -> Iterator[None]:
    """Exits on Ctrl-C or SIGTERM with one line and the shell's status for the signal.

    Args:
      ends_process: nothing but the command is in this process, so that further signals may be ignored.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        # `RunInterrupted` has the signal's number; Python's own interrupt has none, and is SIGINT, 2.
        number = interrupt.args[0] if interrupt.args else 2
        # Who presses again while the process ends changes nothing.
        if ends_process:
            for repeated in (signal.SIGINT, signal.SIGTERM):
                signal.signal(repeated, signal.SIG_IGN)
        _fail("stopped; run the same command to resume", 128 + number)


def _quiet_tensorflow() -> None:
    """Hides TensorFlow's notes on missing GPUs, unless the user has set a level."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def _fail(message: str, status: int) -> None:
    # Each line says whose it is, in logs that several programs write to.
    typer.echo("\n".join(f"voxline: {line}" for line in message.splitlines() or [""]), err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()

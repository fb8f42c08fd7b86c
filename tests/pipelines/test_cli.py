"""The `voxline` command: quick, and its exit status and last line tell what to do."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.command import voxline, voxline_process
from voxline.components.validate.settings import ValidateSettings
from voxline.errors import SettingsError
from voxline.idle_threads import let_idle_threads_sleep
from voxline.pipelines.cli.main import app, main
from voxline.pipelines.cli.options import machine_path


def test_help_and_version_import_nothing_heavy() -> None:
    heavy = "{'kfp','tensorflow','apache_beam','numpy','librosa'}"
    code = f"import voxline.pipelines.cli.main, sys; print(*(set(sys.modules) & {heavy}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
    libraries = (sys.executable, "-c", "import typer, msgspec, yaml")
    seconds: dict[str, list[float]] = {"help": [], "libraries": []}
    for _ in range(3):
        begin = os.times().children_user
        assert "rollback" in voxline_process("models", "--help").stdout
        middle = os.times().children_user
        subprocess.run(libraries, check=True)
        seconds["help"].append(middle - begin)
        seconds["libraries"].append(os.times().children_user - middle)
    # Three times that of its libraries where nothing else runs; numpy alone would make it five times.
    assert min(seconds["help"]) < 8 * min(seconds["libraries"])
    assert voxline_process("--version").stdout.startswith("voxline 0.")


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["run", "asr", "--config", "absent.yaml"], 2, "voxline: absent.yaml: no such file"),
        (["run", "ttx", "--config", "run.yaml"], 2, "voxline: pipeline 'ttx': accepted: asr, intents"),
        (
            ["run", "tts", "--config", "run.yaml"],
            2,
            "'pipeline' is 'asr', but the command names 'tts'; write asr in place",
        ),
        (["run", "asr", "--config", "run.yaml", "--set", "train.epohcs=3"], 2, "did you mean 'train.epochs'?"),
        (["run", "asr", "--config", "run.yaml", "--set", "store=az://b/s"], 2, "az:// is not supported"),
        (["run", "asr", "--config", "run.yaml", "--set", "registry=s3:/b/r"], 2, "registry: 's3:/b/r': s3:/ is not"),
        (["run", "asr", "--config", "run.yaml", "--set", "corpus.uri=az://b"], 2, "corpus.uri: 'az://b': az:// is not"),
        (["run", "asr", "--config", "run.yaml", "--set", "registry=gs://B!/r"], 2, "is not the URI of a bucket"),
        (["run", "asr", "--config", "run.yaml", "--run-dir", "gs://b/r"], 2, "is a URI; a path of this"),
        (["step", "trian", "--config", "run.yaml"], 2, "step 'trian': accepted: ingest, convert"),
        (["step", "convert", "--config", "run.yaml", "--model", "m"], 2, "--model: convert does not take it"),
        (["step", "convert", "--config", "run.yaml"], 1, "run `voxline step ingest` first"),
        (["transcribe", "absent.wav", "--model", "m"], 2, "absent.wav: no such file"),
        (["transcribe", "absent.wav", "--model", "m", "--itn", "xx"], 2, "itn: 'xx'; en, zh is accepted"),
        (
            ["synthesize", "hello", "--model", "m", "--output", "out.txt"],
            2,
            "a file whose name ends in one of .wav, .mp3",
        ),
        (
            ["synthesize", "hello", "--model", "m", "--output", "none/o.wav"],
            2,
            "the folder none does not exist; make it",
        ),
        (["synthesize", "hello", "--model", "m", "--output", "out.wav"], 1, "m: "),
        (["synthesize", "hello", "--model", "m"], 2, "Missing option '--output'"),
        (["run", "asr", "--config", "run.yaml", "--run-dir", "run.yaml"], 2, "run.yaml: cannot be made (File exists)"),
        (["step", "ingest", "--config", "run.yaml", "--run-dir", "run.yaml/r"], 2, "cannot be made (Not a directory)"),
        (["compile", "asr", "--config", "run.yaml", "-o", "run.txt"], 2, "a file whose name ends in .yaml is accepted"),
        (
            ["compile", "asr", "--config", "run.yaml", "-o", "run.yaml/x.yaml"],
            2,
            "the folder run.yaml does not exist",
        ),
        (["models", "list", "--registry", "none"], 1, "no registry here"),
        (["step"], 2, "Missing argument"),
    ],
)
def test_errors_are_one_line_without_a_traceback(tmp_path: Path, arguments: list[str], status: int, told: str) -> None:
    (tmp_path / "run.yaml").write_text("name: small\ncorpus: {uri: recordings}\n", encoding="utf-8")
    (tmp_path / "recordings").mkdir()
    ended = voxline(*arguments, cwd=tmp_path)
    assert ended.returncode == status, ended.stderr
    assert told in ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    assert not (tmp_path / "gs:").exists()


def test_an_ascii_terminal_does_not_stop_the_command(tmp_path: Path) -> None:
    ended = voxline_process(
        "corpus", "demo", tmp_path / "é", "--set", "seed=x", PYTHONIOENCODING="ascii", PYTHONUTF8="0"
    )
    assert ended.returncode == 2
    assert "'seed' is 'x'" in ended.stderr


def test_no_option_that_takes_a_path_makes_a_folder_out_of_a_uri() -> None:
    """`--output s3://bucket/x` once wrote a local folder `s3:`; each such option has the one check."""

    def parameters(command: Any, name: str = "voxline") -> Iterator[tuple[str, Any]]:
        for child in getattr(command, "commands", {}).values():
            yield from parameters(child, f"{name} {child.name}")
        yield from ((f"{name} {parameter.name}", parameter) for parameter in command.params)

    taken = {name: one.type_descriptor for name, one in parameters(typer.main.get_command(app))}
    paths = {name: one for name, one in taken.items() if one.annotation in (Path, list[Path])}
    assert len(paths) >= 10
    assert not [name for name, one in paths.items() if one.parameter_info.parser is not machine_path]
    with pytest.raises(typer.BadParameter, match=r"'s3://b/x' is a URI; .* \(write \./s3: for a folder"):
        machine_path("s3://b/x")
    assert machine_path("a/b:c") == Path("a/b:c")


def test_a_scheme_is_checked_when_the_config_is_read() -> None:
    with pytest.raises(SettingsError, match=r"az:// is not supported"):
        ValidateSettings.of({"schema": "az://bucket/asr.pbtxt"})
    assert ValidateSettings.of({"schema": "s3://bucket/asr.pbtxt"}).schema_ == "s3://bucket/asr.pbtxt"


def commands(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield (*names, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))


@pytest.mark.slow
def test_the_help_has_whole_summaries_and_examples() -> None:
    root = typer.main.get_command(app)
    for names, command in commands(root):
        summary = command.get_short_help_str(limit=62)
        assert not summary.endswith("..."), names
        assert summary.split()[0] not in ("Shows", "Lists", "Prints", "Runs", "Checks"), (names, "use the imperative")
        shown = CliRunner().invoke(app, [*names, "-h"], catch_exceptions=False)
        assert shown.exit_code == 0
        assert "..." not in "".join(re.findall(r"^  \w+  .*", shown.output, flags=re.MULTILINE)), names
    without = [
        names for names, one in commands(root) if not hasattr(one, "commands") and "Example" not in str(one.help)
    ]
    assert len(without) <= 8, without


def test_a_dry_run_refuses_what_a_run_refuses(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    config = tmp_path / "run.yaml"
    config.write_text("pipeline: tts\nname: x\ncorpus: {uri: corpus}\n", encoding="utf-8")
    for key, value, message in (
        ("registry", "gs://", "registry: "),
        ("evaluate.round_trip_recognizer", "asr", "evaluate.round_trip_recognizer is 'asr'"),
        ("corpus.uri", str(tmp_path / "absent"), "does not exist"),
    ):
        arguments = ["run", "tts", "-c", str(config), "--run-dir", str(tmp_path / "run"), "--dry-run"]
        result = CliRunner().invoke(app, [*arguments, "--set", f"{key}={value}"])
        assert isinstance(result.exception, SettingsError), (key, result.output)
        assert message in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_usage_names_a_required_argument_without_braces() -> None:
    assert "config init [OPTIONS] FOLDER" in CliRunner().invoke(app, ["config", "init", "--help"]).output
    assert "transcribe [OPTIONS] AUDIO..." in CliRunner().invoke(app, ["transcribe", "--help"]).output


@pytest.mark.slow
def test_help_shows_no_types_of_python() -> None:
    for names, _ in commands(typer.main.get_command(app)):
        shown = CliRunner().invoke(app, [*names, "--help"]).output
        assert not re.findall(r"--[\w-]+ <.*", shown), names
    purge = CliRunner().invoke(app, ["datasets", "purge", "--help"]).output
    assert re.search(r"--datasets LOCATION +Folder or bucket URI", purge)
    assert re.search(r"--runs PATH +Folder", purge)
    assert re.search(r"--note TEXT +For", purge)


def test_train_is_the_command_that_trains(capsys: pytest.CaptureFixture[str]) -> None:
    """The word that people of other toolkits type first."""
    for words in (["train", "--help"], ["run", "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
    helped = capsys.readouterr().out
    assert helped.count("Usage: voxline run") == 2
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "voxline train" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["train", "asr", "--config", "absent.yaml"])
    assert ended.value.code == 2
    assert "absent.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "timeout"), [(None, "4"), ("20", "20")])
def test_idle_threads_sleep_unless_the_environment_says_how_long_they_wait(
    given: str | None, timeout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", given)
    let_idle_threads_sleep()
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == timeout


def test_the_command_says_so_before_it_imports_numpy() -> None:
    code = (
        "import os, sys; from voxline.pipelines.cli import main as command; assert 'numpy' not in sys.modules\n"
        "sys.argv = ['voxline', 'help']\n"
        "try: command.main()\n"
        "except SystemExit: pass\n"
        "print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert ended.stdout.splitlines()[-1] == "4"


def test_a_process_that_leaves_its_garbage_still_writes_what_it_has_buffered(tmp_path: Path) -> None:
    file = tmp_path / "buffered.txt"
    code = (
        "import gc; from voxline.garbage import leave_garbage_at_exit; leave_garbage_at_exit()\n"
        "cycle = []; cycle.append(cycle); del cycle\n"
        "gc.callbacks.append(lambda phase, info: print(phase, info['collected']))\n"
        f"file = open({str(file)!r}, 'w'); file.write('all of it')"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert file.read_text(encoding="utf-8") == "all of it"
    assert not [line for line in ended.stdout.splitlines() if line.startswith("stop") and line != "stop 0"]

"""The process that runs a graph with kfp.local; `local.runner` starts it and reads its output.

    python -m voxline.pipelines.local.graph_process REQUEST.json

It is a separate process because kfp.local prints and logs on its own, because a run is then stopped by ending one
process group, and because the `voxline` command need not import kfp. The command forks itself for it: that costs
nothing, where another Python imports Voxline again.
"""

import atexit
import builtins
import contextlib
import importlib
import locale
import logging
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

from voxline.audio.worker_process import fork_workers
from voxline.garbage import collect_rarely, keep_all_objects
from voxline.pipelines.kfp_graph import load_pipeline, pipeline_arguments
from voxline.store.files import read_json, use_private_umask
from voxline.store.store_locks import reset_snapshot

_SHARED_BY_STEPS = (
    *("numpy", "voxline.store.step_cache", "voxline.store.artifacts", "voxline.store.permanent_failures"),
    *("voxline.store.local", "voxline.data.line_cache", "voxline.data.dataset"),
)
"""Imported once, before the first fork."""
_SHARED_BY_PIPELINE = {"refresh": ("voxline.audio.decoding",)}
"""Imported too, where several steps read recordings."""
_NOT_FORKED = ("ssl", "grpc", "tensorflow", "torch")
"""Modules with connections and threads, which no fork of a process has whole."""
_PYTHON = sys.executable
_PRINT = print
"""Python's own, which kfp replaces while a task runs."""


class GraphProcess(Protocol):
    """What the runner uses of `subprocess.Popen`.

    Attributes:
      stdin: the process ends when this end of its standard input closes.
      stdout: what it prints, with what its steps print.
    """

    pid: int

    @property
    def stdin(self) -> IO[str] | None: ...
    @property
    def stdout(self) -> IO[str] | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


def start_graph(request: Path, environment: Mapping[str, str], *, fork: bool) -> GraphProcess:
    """Starts the process of a graph, in its own process group.

    Args:
      fork: this process is the command's own, so that a fork of it may take its place; it does where it is whole.
    """
    utf8 = locale.getencoding().lower().replace("-", "") == "utf8"  # kfp writes files in the process's encoding
    whole = threading.active_count() == 1 and sys.modules.keys().isdisjoint(_NOT_FORKED)
    if fork and utf8 and whole:
        return _Fork(request, environment)
    return subprocess.Popen(  # noqa: S603 - this Python, our module
        [sys.executable, "-m", __name__, str(request)],
        stdin=subprocess.PIPE,  # held open; the process ends when it closes
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=dict(environment),
        start_new_session=True,
    )


class _Fork:
    """A fork of this process that runs a graph; see `GraphProcess`."""

    def __init__(self, request: Path, environment: Mapping[str, str]) -> None:
        standard_input, held_open = os.pipe()
        printed, output = os.pipe()

        # What is buffered would be written twice.
        sys.stdout.flush()
        sys.stderr.flush()

        # The threads that Python warns of are NumPy's, which ends them before a fork.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _run_forked(request, environment, standard_input, output)

        # The ends of the child, so that a pipe closes with it.
        os.close(standard_input)
        os.close(output)
        self.stdin = os.fdopen(held_open, "w", encoding="utf-8")
        self.stdout = os.fdopen(printed, encoding="utf-8", errors="replace")
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; negative: the signal that ended it.

        Raises:
          subprocess.TimeoutExpired: it still runs after so many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._status is None:
            process, status = os.waitpid(self.pid, os.WNOHANG if deadline else 0)
            if process:
                self._status = os.waitstatus_to_exitcode(status)
            elif deadline and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("the graph", timeout or 0)
            else:
                time.sleep(0.02)
        return self._status


def _run_forked(request: Path, environment: Mapping[str, str], standard_input: int, output: int) -> NoReturn:
    """Runs a graph in a forked process, as if Python had just started, and ends it."""
    status = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # SIGHUP under nohup stays ignored
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

        # Locks and open ends of the parent are not this process's.
        os.dup2(standard_input, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for descriptor in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
            if descriptor > 2:
                with contextlib.suppress(OSError):  # the one that listed them
                    os.close(descriptor)
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            setattr(sys, name, os.fdopen(descriptor, "w", 1, "utf-8", "backslashreplace", closefd=False))

        # A worker process that imports the main module again finds this one, which starts nothing then. A folder
        # `components` in the current folder must not be imported.
        sys.modules["__main__"] = sys.modules[__name__]
        sys.argv = [__name__, str(request)]
        if not sys.flags.safe_path and sys.path[:1] in ([""], [str(Path.cwd())]):
            del sys.path[0]
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # TMPDIR is another one
        reset_snapshot()

        main(str(request))
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main(request_file: str) -> None:
    """Runs the pipeline of a request: {"config": {...}, "pipeline_root": "...", "until": "STEP or empty"}."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    signal.signal(signal.SIGTERM, end_after_step)
    collect_rarely()
    use_private_umask()
    request = read_json(Path(request_file))
    root = Path(request["pipeline_root"])
    _install_python3_shim(root)
    _hide_docker()

    # Every step names its image; here the images' Python packages are installed already.
    warnings.filterwarnings("ignore", message="You may be attemping to run a task that uses custom")
    with _no_cluster_client():
        from kfp import local
        from kfp.local import subprocess_task_handler

    subprocess_task_handler.run_local_subprocess = run_in_fork
    for module in (*_SHARED_BY_STEPS, *_SHARED_BY_PIPELINE.get(request["config"]["pipeline"], ())):
        importlib.import_module(module)

    # The other thread of this process waits for its parent and holds no lock that a fork could miss.
    warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)

    workspace = root / "workspace"
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(root), workspace_root=str(workspace))
    pipeline = load_pipeline(request["config"]["pipeline"], request["until"], request["optional"])
    try:
        pipeline(**pipeline_arguments(request["config"], list(pipeline.component_spec.inputs)))
    except RuntimeError as error:
        if "finished with status" not in str(error):
            raise
        sys.exit(str(error))  # a task failed and printed the reason


def run_in_fork(full_command: list[str], env_vars: dict[str, str] | None = None) -> int:
    """Runs a task's process; kfp calls it as its own function of the same signature.

    kfp starts a Python that imports kfp and Voxline, for a second of each step. A fork of this process has them.

    Args:
      full_command: a shell, its script, the source of the component's function, and the arguments of the executor.

    Returns:
      Its exit status; negative: the signal that ended it.
    """
    *_, source = full_command[: full_command.index("--executor_input")]
    arguments = full_command[full_command.index("--executor_input") :]
    read_end, write_end = os.pipe()

    # What is buffered would be written twice.
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        os.close(read_end)
        _execute(source, arguments, env_vars or {}, write_end)
    os.close(write_end)

    # As kfp does, which indents what is printed here.
    with open(read_end, encoding="utf-8", errors="replace") as output:
        for line in output:
            print(line, end="")
    print("\n")
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _execute(source: str, arguments: list[str], variables: dict[str, str], output: int) -> NoReturn:
    """Runs kfp's executor in a forked process, as if Python had just started, and ends it."""
    status = 1
    keep_all_objects()
    try:
        # Handlers and open ends of the parent are not this process's.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        atexit._clear()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        builtins.print = _PRINT
        logging.getLogger().handlers.clear()
        sys.executable = _PYTHON
        os.environ.update(variables, _KFP_RUNTIME="true")
        reset_snapshot()  # a step reads its inputs from here on
        fork_workers()

        # The function of a component is read from a file.
        module = Path(tempfile.mkdtemp()) / "ephemeral_component.py"
        module.write_text(source, encoding="utf-8")
        sys.argv = ["executor_main", "--component_module_path", str(module), *arguments]

        from kfp.dsl.executor_main import executor_main

        executor_main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        # What Python does at its end, without the frames of the parent, which are below this one.
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def end_with_parent() -> None:
    """Kills this process group when the process that started the run ends, even by `kill -9`.

    The parent keeps the other end of standard input open and never writes to it.
    """
    os.read(0, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def end_after_step(number: int, frame: types.FrameType | None) -> None:
    """Handles SIGTERM, which each process of the group gets: ends this one, but not before the step that runs.

    A training saves its checkpoint first, and prints to a pipe that this process reads. kfp ends the graph after it, as
    after any step that failed.
    """
    with contextlib.suppress(ChildProcessError):  # no step runs
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return
    sys.exit(128 + number)


def _install_python3_shim(root: Path) -> None:
    """Puts a `python3` on the PATH that starts this Python.

    kfp puts `sys.executable` into a shell line without quotes, and into every argument that contains "python3", so a
    project in a folder with a space, or a corpus in `python3/`, would break. With `sys.executable` set to `python3` the
    substitution changes nothing, and the PATH leads here.
    """
    folder = root / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    starter = folder / "python3"
    quoted = sys.executable.replace("'", "'\\''")
    starter.write_text(f"#!/bin/sh\nexec '{quoted}' \"$@\"\n", encoding="utf-8")
    starter.chmod(starter.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    sys.executable = "python3"


def _hide_docker() -> None:
    """Keeps kfp from importing the Docker SDK, or the project's folder `docker/` in its place: no step runs in Docker.

    It expects that the import may fail. The SDK takes a tenth of a second.
    """
    modules: dict[str, Any] = sys.modules
    modules["docker"] = None


@contextlib.contextmanager
def _no_cluster_client() -> Iterator[None]:
    """Keeps kfp from importing its client of a cluster, with that of Kubernetes, and requests, by which it would load a
    component from an address: two thirds of the time of importing kfp.
    """
    client: Any = types.ModuleType("kfp.client")
    client.Client = None  # which kfp imports by name
    placeholders = {"kfp.client": client, "requests": types.ModuleType("requests")}
    absent = {name: module for name, module in placeholders.items() if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


if __name__ == "__main__":
    main(sys.argv[1])

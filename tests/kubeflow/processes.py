"""Servers as processes of this test: started with a log each, watched, and ended by their process ids."""

import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from urllib.error import URLError

START_SECONDS = 600.0
"""For one server on a busy machine."""


class Servers:
    """Starts servers; ends them in the opposite order when the context ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> "Servers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, _ in reversed(self._running[:]):
            self.end(name)

    def start(self, name: str, *command: str | Path, env: Mapping[str, str] | None = None, **more: str) -> None:
        """Starts a server; its output is the file NAME.log."""
        with open(self.log(name), "ab") as output:
            process = subprocess.Popen(
                [str(part) for part in command], stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env={**(os.environ if env is None else env), **more}, cwd=self.folder,
            )  # fmt: skip
        self._running.append((name, process))

    def end(self, name: str) -> None:
        """Ends one server, within 15 seconds."""
        process = next(process for one, process in self._running if one == name)
        self._running.remove((name, process))
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def is_running(self, name: str) -> bool:
        return any(one == name and process.poll() is None for one, process in self._running)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def check(self) -> None:
        """Raises an AssertionError with the log of a server that has ended on its own."""
        for name, process in self._running:
            text = self.log(name).read_text(errors="replace")[-3000:]
            assert process.poll() is None, f"{name} ended with {process.returncode}: {text}"

    def wait(self, true: Callable[[], object], what: str, seconds: float = START_SECONDS) -> None:
        """Returns once `true` is."""
        end = time.monotonic() + seconds
        while not true():
            self.check()
            assert time.monotonic() < end, f"waited {seconds:.0f} s for {what}; logs in {self.folder}"
            time.sleep(0.25)


def answers(url: str) -> bool:
    """Whether a server answers with a status below 400."""
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - a fixed host
            return True
    except (URLError, OSError):
        return False

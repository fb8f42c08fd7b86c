"""`voxline schedule --local`: a run at set times on this machine, by the user's systemd or cron.

A timer starts `voxline run`, which refuses to start beside another run in its folder; what it prints is appended to
`schedule.log` there. systemd waits for the run, so a night never overlaps the next one; cron's second run is refused.
"""

import dataclasses
import getpass
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from voxline.errors import SettingsError, WorkError
from voxline.pipelines.local.cron import Cron
from voxline.store.files import write_text

LOG_FILE = "schedule.log"
PREFIX = "voxline-"
MARKER = "# voxline schedule "
"""Begins the line above a schedule's line in a crontab."""
Scheduler = Literal["systemd", "cron"]
_SAVE_SECONDS = 90
"""From SIGTERM to SIGKILL: a training saves a checkpoint first."""


@dataclasses.dataclass(frozen=True)
class LocalSchedule:
    """A run at set times.

    Attributes:
      arguments: of `voxline`; its paths are absolute.
      run_dir: absolute.
      folder: in which it runs, absolute.
      time_zone: of the expression; empty: this machine's.
    """

    name: str
    cron: Cron
    arguments: tuple[str, ...]
    run_dir: Path
    folder: Path
    time_zone: str = ""

    @property
    def log(self) -> Path:
        return self.run_dir / LOG_FILE

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "voxline", *self.arguments]

    def service(self) -> str:
        """The unit that runs once. Its exit status is the command's: `systemctl --user status` shows it."""
        lines = [
            "[Unit]",
            f"Description=voxline {self.name}",
            "",
            "[Service]",
            "Type=oneshot",
            f"WorkingDirectory={self.folder}".replace("%", "%%"),
            f"ExecStart={' '.join(map(_quote_for_systemd, self.command))}",
            f"StandardOutput=append:{self.log}".replace("%", "%%"),
            "StandardError=inherit",
            "KillMode=mixed",
            f"TimeoutStopSec={_SAVE_SECONDS}",
        ]
        return "\n".join([*lines, ""])

    def timer(self) -> str:
        """The unit that starts the service; a time that the machine was off at is made up for."""
        lines = [
            "[Unit]",
            f"Description=voxline {self.name}",
            "",
            "[Timer]",
            *(f"OnCalendar={event}" for event in self.cron.calendar_events(self.time_zone)),
            "Persistent=true",
            "",
            "[Install]",
            "WantedBy=timers.target",
        ]
        return "\n".join([*lines, ""])

    def crontab_line(self) -> str:
        """
        Raises:
          SettingsError: cron has no seconds and no time zones.
        """
        second, *fields = self.cron.fields
        if second != "0":
            raise SettingsError(f"--cron '{self.cron}': cron has no seconds; give five fields, or --with systemd")
        if self.time_zone:
            raise SettingsError("--time-zone: cron has this machine's only; leave it out, or give --with systemd")
        times = " ".join(fields).replace("?", "*")

        # In a crontab % is a line break, wherever it stands.
        command = f"cd {shlex.quote(str(self.folder))} && {shlex.join(self.command)}"
        return f"{times} {command} >> {shlex.quote(str(self.log))} 2>&1".replace("%", r"\%")


def scheduler_of_machine() -> Scheduler:
    """systemd where it runs for this user, else cron.

    Raises:
      WorkError: neither is there.
    """
    if _is_systemd_running():
        return "systemd"
    if shutil.which("crontab"):
        return "cron"
    raise WorkError(
        "neither systemd nor cron runs here for this user; `--print --with cron` prints a line for another scheduler"
    )


def check_scheduler(name: str) -> Scheduler:
    """
    Raises:
      SettingsError: it is neither.
    """
    schedulers: dict[str, Scheduler] = {"systemd": "systemd", "cron": "cron"}
    if name in schedulers:
        return schedulers[name]
    raise SettingsError(f"--with {name!r}: accepted: systemd, cron")


def install(schedule: LocalSchedule, scheduler: Scheduler) -> None:
    """Sets a schedule; one of that name is replaced.

    Raises:
      SettingsError: the scheduler cannot express it.
      WorkError: the scheduler refused it.
    """
    if scheduler == "cron":
        line = schedule.crontab_line()
        _write_crontab([*_without(_read_crontab(), schedule.name), f"{MARKER}{schedule.name}", line])
        return
    units = _units()
    units.mkdir(parents=True, exist_ok=True)
    write_text(units / f"{PREFIX}{schedule.name}.service", schedule.service())
    write_text(units / f"{PREFIX}{schedule.name}.timer", schedule.timer())
    _call(["systemctl", "--user", "daemon-reload"])
    _call(["systemctl", "--user", "enable", "--now", f"{PREFIX}{schedule.name}.timer"])


def installed() -> list[tuple[str, Scheduler, str]]:
    """Names of the schedules of this user, what starts them, and when; by name."""
    timers = sorted(_units().glob(f"{PREFIX}*.timer"))
    schedules: list[tuple[str, Scheduler, str]] = []
    for timer in timers:
        events = re.findall(r"^OnCalendar=(.*)$", timer.read_text(encoding="utf-8"), re.MULTILINE)
        schedules.append((timer.stem.removeprefix(PREFIX), "systemd", ", ".join(events)))

    lines = _read_crontab() if shutil.which("crontab") else []
    for marker, line in itertools.pairwise(lines):
        if marker.startswith(MARKER):
            schedules.append((marker.removeprefix(MARKER), "cron", " ".join(line.split()[:5])))
    return sorted(schedules)


def remove(name: str) -> None:
    """Removes a schedule; a run that it started continues.

    Raises:
      SettingsError: there is none of that name.
    """
    schedulers = [scheduler for each, scheduler, _ in installed() if each == name]
    if not schedulers:
        names = ", ".join(each for each, _, _ in installed()) or "none"
        raise SettingsError(f"{name}: no schedule of this user has this name; there are: {names}")
    if "cron" in schedulers:
        _write_crontab(_without(_read_crontab(), name))
    if "systemd" in schedulers:
        if _is_systemd_running():
            _call(["systemctl", "--user", "disable", "--now", f"{PREFIX}{name}.timer"])
        for unit in (f"timers.target.wants/{PREFIX}{name}.timer", f"{PREFIX}{name}.timer", f"{PREFIX}{name}.service"):
            (_units() / unit).unlink(missing_ok=True)
        if _is_systemd_running():
            _call(["systemctl", "--user", "daemon-reload"])


def lingers() -> bool:
    """Returns whether this user's timers run while the user is logged out."""
    return Path("/var/lib/systemd/linger", getpass.getuser()).exists()


def _is_systemd_running() -> bool:
    return bool(
        shutil.which("systemctl") and os.environ.get("XDG_RUNTIME_DIR") and Path("/run/systemd/system").is_dir()
    )


def _units() -> Path:
    root = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(root) / "systemd" / "user"


def _quote_for_systemd(argument: str) -> str:
    """An argument of ExecStart=: quotes, backslashes, specifiers and variables lose their meaning.

    >>> _quote_for_systemd('100% "é"')
    '"100%% \\\\"é\\\\""'
    """
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"')
    return '"{}"'.format(escaped.replace("%", "%%").replace("$", "$$"))


def _read_crontab() -> list[str]:
    """The lines of the user's crontab; none if there is no crontab.

    Raises:
      WorkError: it cannot be read, and must not be replaced.
    """
    listed = subprocess.run(["crontab", "-l"], capture_output=True, text=True, check=False)  # noqa: S607
    if listed.returncode and "no crontab" not in listed.stderr:
        raise WorkError(f"crontab -l: {listed.stderr.strip() or f'exit status {listed.returncode}'}")
    return [] if listed.returncode else listed.stdout.splitlines()


def _write_crontab(lines: Sequence[str]) -> None:
    _call(["crontab", "-"], "".join(f"{line}\n" for line in lines))


def _without(lines: list[str], name: str) -> list[str]:
    """The lines of a crontab without those of a schedule."""
    if (marker := f"{MARKER}{name}") not in lines:
        return lines
    at = lines.index(marker)
    return [*lines[:at], *lines[at + 2 :]]


def _call(command: list[str], text: str | None = None) -> None:
    """Raises:
    WorkError: it failed.
    """
    ended = subprocess.run(command, input=text, capture_output=True, text=True, check=False)  # noqa: S603
    if ended.returncode:
        raise WorkError(f"{shlex.join(command)}: {ended.stderr.strip() or f'exit status {ended.returncode}'}")

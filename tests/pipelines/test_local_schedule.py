"""`voxline schedule --local`: units that systemd accepts, and a line that cron's shell runs."""

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from voxline.errors import SettingsError, WorkError
from voxline.pipelines.cli.main import app
from voxline.pipelines.local.cron import Cron
from voxline.pipelines.local.schedule import LocalSchedule, install, installed, remove

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze, of systemd")


def nightly(folder: Path, **values: Any) -> LocalSchedule:
    """In a folder whose name has what systemd, cron and a shell give a meaning to."""
    folder = folder / "50% of \"é\" $HOME 'x'"
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ("run", "asr", "--config", str(folder / "absent.yaml"), "--run-dir", str(folder / "run"))
    given = {"cron": Cron.read("0 2 * * *"), "arguments": arguments, "run_dir": folder, "folder": folder}
    return LocalSchedule("digits", **{**given, **values})


@needs_systemd
@pytest.mark.parametrize(
    "expression", ["0 2 * * *", "*/20 8-10 * * mon-fri", "30 2 1,15 * *", "15 4 29 2 *", "0 0 1 * sun", "5 6 ? 3-5 0"]
)
def test_systemd_starts_at_the_times_of_the_cron_expression(expression: str) -> None:
    begin = datetime(2026, 2, 27, 12, 0, tzinfo=UTC)
    cron = Cron.read(expression)
    starts: list[datetime] = []
    for event in cron.calendar_events("UTC"):
        told = subprocess.run(
            ["systemd-analyze", "calendar", "--iterations=8", f"--base-time={begin:%F %T} UTC", event],
            capture_output=True, text=True, check=True, env={**os.environ, "TZ": "UTC", "LC_ALL": "C"},
        )  # fmt: skip
        lines = [
            line.split(": ", 1)[1] for line in told.stdout.splitlines() if "Next elapse" in line or "Iter." in line
        ]
        starts += [datetime.strptime(line, "%a %Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC) for line in lines]
    expected = list(islice(cron.firings(begin), min(8, len(starts))))
    assert len(expected) >= 2
    assert sorted(set(starts))[: len(expected)] == expected


@needs_systemd
def test_systemd_reads_the_units_and_the_command_as_they_are_meant(tmp_path: Path) -> None:
    schedule = nightly(tmp_path, time_zone="Europe/Berlin")
    for kind, text in {"service": schedule.service(), "timer": schedule.timer()}.items():
        (tmp_path / f"voxline-digits.{kind}").write_text(text, encoding="utf-8")
    units = [str(tmp_path / f"voxline-digits.{kind}") for kind in ("service", "timer")]
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--user", *units], capture_output=True, text=True, check=False
    )
    assert "voxline-digits" not in verified.stderr, verified.stderr


def test_a_shell_runs_the_line_of_the_crontab_and_the_log_has_its_output(tmp_path: Path) -> None:
    schedule = nightly(tmp_path)
    minute, hour, day, month, weekday, command = schedule.crontab_line().split(maxsplit=5)
    assert (minute, hour, day, month, weekday) == ("0", "2", "*", "*", "*")

    # As cron does: it takes the backslash from \%, and has few variables.
    ended = subprocess.run(
        ["/bin/sh", "-c", command.replace(r"\%", "%")],
        env={"HOME": str(tmp_path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "absent.yaml" in schedule.log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "message"),
    [({"cron": Cron.read("30 0 2 * * *")}, "no seconds"), ({"time_zone": "Europe/Berlin"}, "--time-zone")],
)
def test_what_cron_cannot_express_is_refused(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        nightly(tmp_path, **values).crontab_line()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins: `crontab`, which keeps its file, and `systemctl`, which notes its calls; real ones are the user's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    crontab = (
        'if [ "$1" = -l ]; then [ -e "$0.broken" ] && echo "permission denied" >&2 && exit 1; '
        'cat "$0.table" 2>/dev/null || { echo "no crontab for me" >&2; exit 1; }; else cat > "$0.table"; fi'
    )
    for name, script in {"crontab": crontab, "systemctl": 'echo "$@" >> "$0.calls"'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return folder


def test_other_lines_of_a_crontab_stay(programs: Path, tmp_path: Path) -> None:
    table = programs / "crontab.table"
    table.write_text("MAILTO=me\n5 * * * * backup\n", encoding="utf-8")
    install(nightly(tmp_path), "cron")
    install(nightly(tmp_path, cron=Cron.read("30 3 * * *")), "cron")  # replaces the first
    assert installed() == [("digits", "cron", "30 3 * * *")]
    remove("digits")
    assert table.read_text(encoding="utf-8") == "MAILTO=me\n5 * * * * backup\n"
    with pytest.raises(SettingsError, match="there are: none"):
        remove("digits")


def test_a_crontab_that_cannot_be_read_is_not_replaced(programs: Path, tmp_path: Path) -> None:
    (programs / "crontab.table").write_text("5 * * * * backup\n", encoding="utf-8")
    (programs / "crontab.broken").touch()
    with pytest.raises(WorkError, match="permission denied"):
        install(nightly(tmp_path), "cron")
    assert (programs / "crontab.table").read_text(encoding="utf-8") == "5 * * * * backup\n"


def test_the_command_sets_lists_and_removes_a_timer(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "nightly.yaml").write_text("name: digits\ncorpus: {uri: corpus}\n", encoding="utf-8")

    def schedule(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["schedule", *arguments])
        return result.output or str(result.exception)

    given = ["asr", "--config", "nightly.yaml", "--cron", "0 2 * * *", "--local", "--with", "systemd"]
    printed = schedule(*given, "--print")
    assert "OnCalendar=*-*-* 2:0:0" in printed
    assert not (tmp_path / "config").exists()

    said = schedule(*given, "--set", "train.epochs=3")
    assert f"log      {tmp_path}/runs/digits/schedule.log" in said
    assert "notify.webhook.url" in said
    service = (tmp_path / "config/systemd/user/voxline-digits.service").read_text(encoding="utf-8")
    command = [sys.executable, "-P", "-m", "voxline", "run", "asr", "--config", f"{tmp_path}/nightly.yaml"]
    command += ["--set", "train.epochs=3", "--run-dir", f"{tmp_path}/runs/digits"]
    quoted = " ".join(f'"{part}"' for part in command)
    assert f"ExecStart={quoted}\n" in service
    assert "enable --now voxline-digits.timer" in (programs / "systemctl.calls").read_text(encoding="utf-8")

    assert schedule("list", "--local") == "digits  systemd  *-*-* 2:0:0\n"
    assert schedule("remove", "digits", "--local") == "digits: removed\n"
    assert not list((tmp_path / "config/systemd/user").iterdir())

    assert "not with --local" in schedule(*given, "--platform", "vertex")
    assert "--print: with --local only" in schedule("asr", "--config", "nightly.yaml", "--cron", "0 2 * * *", "--print")

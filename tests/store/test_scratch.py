"""Temporary folders of killed processes are removed by the next process, and those of live ones stay."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from voxline.store.scratch import PREFIX, remove_abandoned

WORKING = (
    "import tempfile, time\n"
    "from voxline.store.scratch import scratch_root\n"
    "folder = tempfile.mkdtemp(dir=scratch_root())\n"
    "open(folder + '/clip.wav', 'wb').write(bytes(9_000))\n"
    "print(folder, flush=True)\n"
)
WAITING = f"{WORKING}time.sleep(600)\n"


def start(code: str, tmp: Path) -> tuple[subprocess.Popen[str], Path]:
    environment = {**os.environ, "TMPDIR": str(tmp)}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def test_the_next_process_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    killed, left = start(WAITING, tmp_path)
    live, used = start(WAITING, tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert (left / "clip.wav").is_file()
    last, own = start(WORKING, tmp_path)
    assert last.wait() == 0
    live_files = (used / "clip.wav").is_file()
    live.kill()
    live.communicate()
    last.communicate()
    assert live_files, "a live process keeps its files"
    assert not left.parent.exists()
    assert not own.parent.exists(), "a process that ends removes its own"


def test_links_and_young_folders_without_a_lock_stay(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".lock").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    linked_lock = tmp_path / f"{PREFIX}linked-lock"
    linked_lock.mkdir()
    (linked_lock / ".lock").symlink_to(elsewhere / ".lock")
    for name, age in (("young", 60), ("old", 2 * 86_400)):
        (tmp_path / f"{PREFIX}{name}").mkdir()
        os.utime(tmp_path / f"{PREFIX}{name}", (time.time() - age,) * 2)
    (tmp_path / "voxline-bucket-cache").mkdir()
    remove_abandoned(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["elsewhere", "voxline-bucket-cache", f"{PREFIX}link", f"{PREFIX}linked-lock", f"{PREFIX}young"]
    assert (elsewhere / ".lock").exists()

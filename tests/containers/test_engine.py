"""The engine that the tests start where none answers: it comes, and it goes with them."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.containers.engine import ROOT_VARIABLE, NoEngineError, docker, engine

NOWHERE = "unix:///nowhere/docker.sock"


def test_our_own_engine_stops_with_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("only root may start dockerd, where it is installed")
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "engine"))
    with engine() as address:
        assert docker("info", "--format", "{{.DockerRootDir}}") == str(tmp_path / "engine" / "data")
    assert os.environ["DOCKER_HOST"] == NOWHERE
    assert not Path(address.removeprefix("unix://")).exists()


def test_a_killed_engine_leaves_no_mount_and_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("only root may start dockerd, where it is installed")
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "engine"))
    with engine() as address:
        folder = Path(address.removeprefix("unix://")).parent
        empty_tar = bytes(10240)
        made = subprocess.run(["docker", "import", "-"], input=empty_tar, capture_output=True, check=True)
        image = made.stdout.decode().strip()
        subprocess.run(["docker", "run", "--rm", "--network=host", image, "/nothing"], capture_output=True)
        assert str(folder) in Path("/proc/self/mounts").read_text(encoding="utf-8")  # the network's namespace
        below = int((folder / "exec" / "containerd" / "containerd.pid").read_text(encoding="utf-8"))
        os.kill(int((folder / "pid").read_text(encoding="utf-8")), signal.SIGKILL)
    assert not folder.exists()
    mounted = Path("/proc/self/mounts").read_text(encoding="utf-8")
    assert [place for place in (folder, tmp_path) if str(place) in mounted] == []
    end = time.monotonic() + 10
    while Path(f"/proc/{below}/cwd").exists():  # it is a moment until its new parent has taken note
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_missing_engine_gives_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    program = shutil.which("docker")
    assert program
    (tmp_path / "docker").symlink_to(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoEngineError, match=r"no Docker engine answers, and (there is no dockerd|only root)"), engine():
        pass
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoEngineError, match="no `docker` on the PATH"), engine():
        pass

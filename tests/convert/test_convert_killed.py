"""convert, or one of its processes, is killed: the output is the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.convert.conftest import good_flac, manifest_of, utterance
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
from voxline.data.manifest import read_manifest, read_rejects
from voxline.errors import WorkError

FILES = 100
SETTINGS = ConvertSettings(workers=2)
CONVERT = """
import sys
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
run(sys.argv[1], sys.argv[2], ConvertSettings(workers=2))
"""


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for n in range(FILES):
        good_flac(folder / f"{n}.flac", seed=n)
    (folder / "7.flac").write_bytes((folder / "7.flac").read_bytes()[:5_000])
    return manifest_of(folder / "in", [utterance(folder / f"{n}.flac") for n in range(FILES)])


@pytest.fixture(scope="module")
def expected(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    store = tmp_path_factory.mktemp("undisturbed")
    run(manifest, store, SETTINGS)
    return end_state(store)


def end_state(store: Path) -> dict[str, bytes]:
    """All that a later run could read. done.json and the log describe the work, which may differ."""
    files = [file for file in store.rglob("*") if file.suffix in (".wav", ".jsonl") and file.parent.name != "log"]
    return {file.relative_to(store).as_posix(): file.read_bytes() for file in files}


def start(manifest: Path, store: Path, **environment: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([*filter(None, [environment.pop("PYTHONPATH", "")]), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", CONVERT, manifest, store],
        env={**os.environ, **environment, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
    )


def children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in text.split()]


def wait_for_wavs(store: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None and len(list(store.rglob("*.wav"))) < count:
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.parametrize("wavs", [1, 80])
def test_a_killed_run_that_is_started_again_ends_the_same(
    manifest: Path, expected: dict[str, bytes], tmp_path: Path, wavs: int
) -> None:
    process = start(manifest, tmp_path)
    wait_for_wavs(tmp_path, wavs, process)
    workers = children(process.pid)
    process.kill()
    process.wait()
    ended = lambda: not any(Path(f"/proc/{worker}/cmdline").is_file() for worker in workers)  # noqa: E731
    wait_until(ended, "its processes to end")
    made = len(list(tmp_path.rglob("*.wav")))
    work = run(manifest, tmp_path, SETTINGS)
    assert work.counts["decoded"] <= FILES - made + 2, "what was made before the kill is not made again"
    assert end_state(tmp_path) == expected


@pytest.mark.slow
def test_a_process_killed_from_outside_costs_no_recording(
    manifest: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    process = start(manifest, tmp_path)
    for wavs in (10, 50):
        wait_for_wavs(tmp_path, wavs, process)
        os.kill(children(process.pid)[0], signal.SIGKILL)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert end_state(tmp_path) == expected


@pytest.mark.slow
def test_a_recording_that_kills_every_process_that_reads_it_is_one_reject(manifest: Path, tmp_path: Path) -> None:
    """Makes libsndfile crash on one file, like a bug in a decoder."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "if 'voxline.audio.process_pool' in sys.orig_argv:\n"
        "    import soundfile\n"
        "    opened = soundfile.SoundFile._open\n"
        "    def crash(self, file, *rest):\n"
        "        if str(file).endswith('/33.flac'):\n"
        "            os.kill(os.getpid(), signal.SIGSEGV)\n"
        "        return opened(self, file, *rest)\n"
        "    soundfile.SoundFile._open = crash\n"
    )
    process = start(manifest, tmp_path / "store", PYTHONPATH=str(tmp_path))
    assert process.wait(PATIENCE_SECONDS) == 0
    [done] = (tmp_path / "store" / "convert").glob("*/done.json")
    rejects = {reject.id: reject for reject in read_rejects(done.parent)}
    assert sorted(rejects) == ["33.flac", "7.flac"]
    assert rejects["33.flac"].reason == "unreadable"
    assert "SIGSEGV" in rejects["33.flac"].detail
    assert len(read_manifest(done.parent)) == FILES - 2


def test_a_wav_that_cannot_be_written_is_reported_in_one_line(manifest: Path, tmp_path: Path) -> None:
    (tmp_path / "wavs").mkdir()
    for prefix in range(0, 256, 8):  # a file where a folder must be
        (tmp_path / "wavs" / f"{prefix:02x}").touch()
    with pytest.raises(WorkError, match=r"cannot write to .*wavs: .*; make room or fix the permissions"):
        run(manifest, tmp_path, SETTINGS)
    assert not list(tmp_path.rglob("done.json"))

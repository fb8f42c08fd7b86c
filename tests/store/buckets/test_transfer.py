"""Files go to a bucket and come from it: whole or not at all, each once, whatever a network does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.buckets.emulator import Storage
from tests.buckets.faults import Kind
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.store.objects import ObjectStore

SMALL = {f"wavs/{number}.wav": b"RIFF" + bytes([number]) * 50 for number in range(6)}
LARGE = os.urandom((2 << 20) + 17)
"""Three of the tests' chunks."""
HUGE = (8 << 20) + 17
"""Bytes: more than the library sends in one request."""


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files to send: small ones, an empty one, and one of several chunks."""
    made = tmp_path / "to send é"
    for name, content in {**SMALL, "empty": b"", "large.tar": LARGE}.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(content)
    return made


@pytest.fixture
def filled(gcs: Storage, folder: Path) -> ObjectStore:
    """A bucket with those files."""
    bucket = gcs.bucket("corpus")
    bucket.upload(folder, list(files(folder)))
    gcs.proxy.requests.clear()
    return bucket


def test_files_come_back_as_they_were_sent(filled: ObjectStore, folder: Path, tmp_path: Path) -> None:
    names = list(files(folder))
    entries = filled.download(names, tmp_path / "came")
    assert files(tmp_path / "came") == files(folder)
    assert [entry.name for entry in entries] == names


def test_what_is_there_already_is_not_moved_again(
    gcs: Storage, filled: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    names = list(files(folder))
    assert [entry.name for entry in filled.upload(folder, names)] == names
    filled.download(names, tmp_path / "came")
    brought = gcs.proxy.count("GET", "alt=media")
    filled.download(names, tmp_path / "came")
    assert gcs.proxy.count("GET", "alt=media") == brought
    assert gcs.proxy.count("POST") + gcs.proxy.count("PUT") == 0


@pytest.mark.slow
def test_of_many_names_the_bucket_is_listed_instead_of_asked_for_each(gcs: Storage, tmp_path: Path) -> None:
    names = [f"{number:03}" for number in range(150)]
    for name in names:
        (tmp_path / name).write_text(name)
    gcs.bucket("a").upload(tmp_path, names[:120])
    gcs.proxy.requests.clear()
    gcs.bucket("a").upload(tmp_path, names)
    assert gcs.proxy.count("POST", "/upload/") == 30
    assert gcs.proxy.count("GET") < 5


def test_a_file_that_changed_is_sent_and_brought_again(filled: ObjectStore, folder: Path, tmp_path: Path) -> None:
    filled.download(["wavs/3.wav"], tmp_path / "came")
    (folder / "wavs" / "3.wav").write_bytes(b"RIFF" + b"!" * 50)
    filled.upload(folder, list(files(folder)))
    filled.download(["wavs/3.wav"], tmp_path / "came")
    assert files(tmp_path / "came") == {"wavs/3.wav": b"RIFF" + b"!" * 50}


def test_what_content_names_stays_as_it_is_in_the_bucket(gcs: Storage, filled: ObjectStore, folder: Path) -> None:
    (folder / "wavs" / "3.wav").write_bytes(b"of another machine")
    filled.upload(folder, list(files(folder)), absent_only=True)
    assert filled.read("wavs/3.wav") == SMALL["wavs/3.wav"]
    assert gcs.proxy.count("POST") == 0


def test_two_that_send_what_content_names_do_not_disturb_each_other(gcs: Storage, folder: Path) -> None:
    """The second finds none by asking, and one when it writes."""
    bucket = gcs.bucket("corpus")
    bucket.write("empty", b"sent meanwhile")
    gcs.fails("status", "GET", "/o/corpus%2Fempty", code=404)
    bucket.upload(folder, ["empty"], absent_only=True)
    assert bucket.read("empty") == b"sent meanwhile"


def test_an_object_that_is_not_there_is_named_and_nothing_is_brought(filled: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"corpus/none.wav: the object does not exist; nothing was downloaded"):
        filled.download(["empty", "none.wav"], tmp_path / "came")
    assert not (tmp_path / "came").exists()


def test_a_large_file_that_is_damaged_on_its_way_up_is_not_kept(gcs: Storage, folder: Path) -> None:
    (folder / "a.wav").write_bytes(b"RIFF" + bytes(HUGE))
    gcs.fails("damage upload", "PUT", "/upload/", times=20)
    with pytest.raises(TransientError, match=r"a.wav: damaged in transit; nothing of it was kept"):
        gcs.bucket("corpus").upload(folder, ["a.wav"])
    gcs.proxy.faults.clear()
    assert gcs.names() == []


@pytest.mark.parametrize("kind", ["reset", "cut upload", "lost answer", "status"])
def test_a_fault_of_the_upload_of_a_small_file_changes_nothing(gcs: Storage, folder: Path, kind: Kind) -> None:
    bucket, name = gcs.bucket("corpus"), "wavs/3.wav"
    for method in ("POST", "PUT"):
        gcs.fails(kind, method, code=429, times=2)
    bucket.upload(folder, [name], absent_only=True)
    assert gcs.names() == [f"corpus/{name}"]
    assert bucket.read(name) == (folder / name).read_bytes()


def test_an_object_replaced_while_it_is_brought_is_not_mixed(filled: ObjectStore, tmp_path: Path) -> None:
    before = filled.stat("large.tar")
    assert before is not None
    filled.write("large.tar", b"?" * len(LARGE))
    with pytest.raises(PreconditionError, match=r"large.tar: replaced or deleted while it was read; start again"):
        filled.download([before], tmp_path / "came")
    assert files(tmp_path / "came").keys() <= {f".large.tar.{before.version}.{1 << 20}.part"}


@pytest.mark.slow
def test_a_killed_download_started_again_finishes(
    gcs: Storage, filled: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    """A real process, killed while a chunk is under way."""
    came = tmp_path / "came"
    gcs.fails("slow", path="large.tar", times=10**6, seconds=30, after=2)
    call = f"open_store({filled.uri!r}).download({list(files(folder))!r}, {str(came)!r})"
    code = f"from voxline.store.objects import open_store\n{call}"
    environment = {**os.environ, "VOXLINE_BUCKETS_CONNECTIONS": "1"}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    wait_until(gcs.proxy.faults.met, "a chunk to be under way", interval=0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    gcs.proxy.faults.clear()
    assert "large.tar" not in files(came)
    filled.download(list(files(folder)), came)
    assert files(came) == files(folder)


def test_two_processes_that_bring_one_file_do_not_disturb_each_other(
    gcs: Storage, filled: ObjectStore, tmp_path: Path
) -> None:
    came = tmp_path / "came"
    gcs.fails("slow", "GET", "alt=media", times=2, seconds=0.5)
    call = f"open_store({filled.uri!r}).download(['large.tar'], {str(came)!r})"
    code = f"from voxline.store.objects import open_store\n{call}"
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(PATIENCE_SECONDS) for process in processes] == [0, 0]
    assert files(came) == {"large.tar": LARGE}

"""Every storage keeps the promises of `ObjectStore`: the same tests for a folder, Google Cloud Storage and S3."""

import concurrent.futures
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.buckets.emulator import Storage
from tests.buckets.s3_server import S3Storage
from tests.waiting import wait_until
from voxline.errors import PreconditionError, SettingsError, TransientError, WorkError
from voxline.store.objects import ObjectStore, open_store
from voxline.store.storage import ABSENT, ObjectInfo
from voxline.store.uris import SCHEMES

AnyStorage = Storage | S3Storage
SMALL = {f"wavs/{number}.wav": b"RIFF" + bytes([number]) * 50 for number in range(4)}
LARGE = os.urandom((11 << 20) + 17)
"""More than Google's library sends in one request, and three parts on S3."""


@pytest.fixture(params=["folder", "memory", "gcs", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    if request.param == "memory":
        monkeypatch.setitem(SCHEMES, "mem", "tests.store.memory_store:MemoryStore")
        return open_store(f"mem://box/{tmp_path.name}")
    if request.param == "folder":
        return open_store(tmp_path / "a store é")
    storage: AnyStorage = request.getfixturevalue(request.param)
    return storage.bucket("a store é")


@pytest.fixture(params=["gcs", "s3"])
def storage(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def plain(info: ObjectInfo | None) -> tuple[str, int, str]:
    assert info is not None
    return info.name, info.size, info.version


def names(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.name for info in store.list(prefix)]


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_written_objects_are_read_and_listed_in_order_below_their_prefix(store: ObjectStore) -> None:
    written = store.write("wavs/α.wav", b"RIFF")
    store.write("wavs/b.wav", b"x")
    store.write("wavs2", b"x")
    store.write("a-b/c", b"x")
    store.write("a/c", b"x")
    assert store.read("wavs/α.wav") == b"RIFF"
    assert plain(store.stat("wavs/α.wav")) == plain(written)
    assert plain(next(iter(store.list("wavs/α")))) == plain(written)
    assert names(store) == ["a-b/c", "a/c", "wavs/b.wav", "wavs/α.wav", "wavs2"]
    assert names(store, "wavs") == ["wavs/b.wav", "wavs/α.wav", "wavs2"]
    assert store.list_folders() == ["a", "a-b", "wavs"]
    assert (store / "wavs").read("b.wav") == b"x"
    assert (store / "a").exists()
    assert not (store / "none").exists()


@pytest.mark.parametrize("data", [b"", b"x", LARGE[: 3 << 20]])
def test_an_object_is_read_in_one_request(storage: AnyStorage, data: bytes) -> None:
    info = storage.bucket("a").write("x", data)
    storage.proxy.requests.clear()
    assert storage.bucket("a").read_with_version("x") == (data, info.version)
    asked = [path.partition("?")[0] for _, path, _ in storage.proxy.requests]
    # Google's client asks for the bucket too, once and in a thread of its own, at a time of its choosing
    assert len([path for path in asked if path.endswith("x")]) == 1
    with pytest.raises(FileNotFoundError):
        storage.bucket("a").read("none")


@pytest.mark.parametrize("kind", ["reset", "cut", "damage", "status"])
def test_a_fault_of_a_read_changes_nothing(storage: AnyStorage, kind: Any) -> None:
    storage.bucket("a").write("x.bin", LARGE)
    storage.fails(kind, "GET", "x.bin")
    assert storage.bucket("a").read("x.bin") == LARGE


def test_what_always_arrives_damaged_is_not_read(storage: AnyStorage) -> None:
    storage.bucket("a").write("x.bin", b"RIFF" * 9)
    storage.fails("damage", "GET", times=100)
    with pytest.raises(TransientError, match=r"x.bin: arrived damaged twice"):
        storage.bucket("a").read("x.bin")


def test_absent_objects_are_reported_and_deleting_them_is_no_error(store: ObjectStore) -> None:
    assert store.stat("none") is None
    with pytest.raises(FileNotFoundError, match="none"):
        store.read("none")
    store.delete("none")
    assert names(store) == []
    assert store.list_folders() == []


def test_a_conditional_write_fails_where_another_process_was_first(store: ObjectStore) -> None:
    first = store.write("x", b"1", if_version=ABSENT)
    with pytest.raises(PreconditionError, match="x: another process changed it"):
        store.write("x", b"2", if_version=ABSENT)
    second = store.write("x", b"2", if_version=first.version)
    with pytest.raises(PreconditionError):
        store.write("x", b"3", if_version=first.version)
    with pytest.raises(PreconditionError):
        store.delete("x", if_version=first.version)
    assert store.read("x") == b"2"
    store.delete("x", if_version=second.version)
    assert store.stat("x") is None
    with pytest.raises(PreconditionError):
        store.write("x", b"3", if_version=second.version)
    assert store.stat("x") is None


def test_of_many_writers_of_one_object_exactly_one_succeeds(store: ObjectStore) -> None:
    def write(writer: int, version: str) -> bool:
        try:
            store.write("x", str(writer).encode(), if_version=version)
        except PreconditionError:
            return False
        return True

    version = ABSENT
    for first in (0, 8):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            won = list(pool.map(write, range(first, first + 8), [version] * 8))
        assert won.count(True) == 1
        info = store.stat("x")
        assert info is not None
        assert store.read("x") == str(first + won.index(True)).encode()
        version = info.version


def test_ranges_of_a_version_are_read_and_no_other_version_is_mixed_in(store: ObjectStore) -> None:
    info = store.write("x", b"0123456789")
    assert store.read_range(info, 3, 7) == b"3456"
    store.write("x", b"9876543210")
    with pytest.raises(PreconditionError, match="x: replaced or deleted while it was read"):
        store.read_range(info, 3, 7)
    store.delete("x")
    with pytest.raises(PreconditionError):
        store.read_range(info, 0, 2)


@pytest.mark.slow
def test_an_object_is_copied_under_a_condition(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, data in {"small": b"x", "large": LARGE}.items():
        (store / "from").write(name, data)
        (store / "from").copy(name, store / "to", if_version=ABSENT)
        assert (store / "to").read(name) == data
        with pytest.raises(PreconditionError):
            (store / "from").copy(name, store / "to", if_version=ABSENT)
    with pytest.raises(FileNotFoundError):
        (store / "from").copy("none", store / "to")


@pytest.mark.slow
def test_files_are_uploaded_and_downloaded_as_they_were(store: ObjectStore, tmp_path: Path) -> None:
    content = {**SMALL, "empty": b"", "large.tar": LARGE}
    for name, data in content.items():
        (tmp_path / "sent" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sent" / name).write_bytes(data)
    infos = store.upload(tmp_path / "sent", list(content))
    assert [info.name for info in infos] == list(content)
    assert [plain(info) for info in store.upload(tmp_path / "sent", list(content))] == [plain(info) for info in infos]
    for objects in (list(content), list(store.list())):
        store.download(objects, tmp_path / "came")
        assert files(tmp_path / "came") == content
    (tmp_path / "sent" / "empty").write_bytes(b"other")
    store.upload(tmp_path / "sent", ["empty"], absent_only=True)
    assert store.read("empty") == b""
    store.upload(tmp_path / "sent", ["empty"])
    assert store.read("empty") == b"other"


def test_names_that_would_leave_the_folder_are_refused(store: ObjectStore, tmp_path: Path) -> None:
    good = store.write("good.wav", b"x")
    with pytest.raises(WorkError, match=r"'../../escaped.wav' would leave its folder"):
        store.download([good, dataclasses.replace(good, name="../../escaped.wav")], tmp_path / "a" / "b" / "c")
    with pytest.raises(WorkError, match="would leave its folder"):
        store.write("../x", b"x")
    assert not (tmp_path / "a").exists()


def test_a_folder_moves_whole_and_a_second_move_does_no_harm(store: ObjectStore) -> None:
    for name in ("a", "b/c", "version.json"):
        (store / ".incoming").write(name, name.encode())
    for _ in range(2):
        store.move_folder(".incoming", "1", last=("version.json",))
        assert [name for name in names(store) if not name.startswith(".obj")] == ["1/a", "1/b/c", "1/version.json"]
    with pytest.raises(WorkError, match="start again"):
        store.move_folder(".incoming", "2", last=("version.json",))


def test_a_folder_is_deleted_with_all_that_is_in_it(store: ObjectStore) -> None:
    for name in ("1/a", "1/version.json", "10/a"):
        store.write(name, b"x")
    store.delete_folder("1", first=("version.json",))
    assert names(store) == ["10/a"]


def test_a_lock_keeps_others_waiting(store: ObjectStore, capsys: pytest.CaptureFixture[str]) -> None:
    order = []

    def hold(number: int) -> None:
        with store.lock(".lock", "waiting for another process"):
            order.append(number)
            time.sleep(0.3)
            order.append(number)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(hold, range(2)))
    assert order in ([0, 0, 1, 1], [1, 1, 0, 0])
    assert "waiting for another process" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["reset", "cut upload", "lost answer", "cut"])
@pytest.mark.parametrize("size", [4, len(LARGE)])
def test_a_write_whose_answer_was_lost_is_recognized_as_our_own(storage: AnyStorage, kind: Any, size: int) -> None:
    store = storage.bucket("a")
    store.write("known", b"", if_version=ABSENT)
    for method in ("POST", "PUT"):
        storage.fails(kind, method)
    store.write("x", b"4" * size, if_version=ABSENT)
    storage.proxy.faults.clear()
    assert store.read("x") == b"4" * size
    with pytest.raises(PreconditionError):
        store.write("x", b"no", if_version=ABSENT)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reset", "cut upload", "lost answer", "status"])
@pytest.mark.parametrize("after", range(5))
def test_a_fault_of_a_large_upload_changes_nothing(storage: AnyStorage, tmp_path: Path, kind: Any, after: int) -> None:
    (tmp_path / "large.tar").write_bytes(LARGE)
    storage.fails(kind, after=after, code=429, times=2)
    storage.bucket("a").upload(tmp_path, ["large.tar"], absent_only=True)
    storage.proxy.faults.clear()
    assert storage.bucket("a").read("large.tar") == LARGE


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_a_passing_failure_is_retried(storage: AnyStorage, code: int) -> None:
    store = storage.bucket("a")
    for method in ("GET", "POST", "PUT", "DELETE", "HEAD"):
        storage.fails("status", method, code=code, times=2)
    store.write("x", b"1")
    assert store.read("x") == b"1"
    store.delete("x")
    assert names(store) == []


def test_a_lasting_failure_is_a_transient_error(storage: AnyStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.3")
    storage.fails("status", code=503, times=10**6)
    for ask in (lambda: list(storage.bucket("a").list()), lambda: storage.bucket("a").write("x", b"")):
        lasting = r"/a/x?: the storage failed to (list|write) it.*503.*start again"
        with pytest.raises(TransientError, match=lasting) as raised:
            ask()
        assert raised.value.exit_status == 75


@pytest.mark.slow
def test_a_slow_answer_is_not_awaited_for_ever(storage: AnyStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.bucket("a").write("x", b"1")
    monkeypatch.setenv("VOXLINE_BUCKETS_TIMEOUT_SECONDS", "0.3")
    storage.fails("slow", "GET", seconds=1.5)
    assert storage.bucket("a").read("x") == b"1"


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: list(store.list()),
        lambda store: store.stat("x"),
        lambda store: store.read("x"),
        lambda store: store.write("x", b"1"),
        lambda store: store.delete("x"),
    ],
)
def test_a_denied_permission_is_named(storage: AnyStorage, ask: Callable[[ObjectStore], object]) -> None:
    storage.fails("status", code=403, times=10**6)
    with pytest.raises(WorkError, match=r"/a/.*permission denied: this account needs s(torage|3)[.:]\w+.*grant it"):
        ask(storage.bucket("a"))


def test_refused_credentials_are_reported_with_the_remedy(storage: AnyStorage) -> None:
    storage.fails("status", code=401, times=10**6)
    with pytest.raises(WorkError, match=r"no credentials .*(gcloud auth|aws configure)"):
        storage.bucket("a").stat("x")


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: list(store.list()),
        lambda store: store.list_folders(),
        lambda store: store.stat("x"),
        lambda store: store.read("x"),
        lambda store: store.write("x", b"1"),
        lambda store: store.delete("x"),
    ],
)
def test_a_bucket_that_does_not_exist_is_not_an_empty_one(
    storage: AnyStorage, ask: Callable[[ObjectStore], object]
) -> None:
    with pytest.raises(WorkError, match=r"there is no bucket voxline-none; .*create it"):
        ask(open_store(f"{storage.uri.split('/', maxsplit=1)[0]}//voxline-none/a"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reset", "cut", "damage", "status"])
@pytest.mark.parametrize("name", ["wavs/3.wav", "large.tar"])
def test_a_fault_of_a_download_changes_nothing(storage: AnyStorage, tmp_path: Path, name: str, kind: Any) -> None:
    data = {**SMALL, "large.tar": LARGE}[name]
    infos = [storage.bucket("a").write(name, data)]
    storage.fails(kind, "GET", "large" if name == "large.tar" else "wavs")
    storage.bucket("a").download(infos, tmp_path / "came")
    assert files(tmp_path / "came") == {name: data}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wavs/3.wav", "large.tar"])
def test_what_always_arrives_damaged_is_not_kept(storage: AnyStorage, tmp_path: Path, name: str) -> None:
    infos = [storage.bucket("a").write(name, {**SMALL, "large.tar": LARGE}[name])]
    storage.fails("damage", "GET", times=100)
    with pytest.raises(TransientError, match=f"{name}: arrived damaged twice"):
        storage.bucket("a").download(infos, tmp_path / "came")
    assert files(tmp_path / "came") == {}


def test_what_is_damaged_on_its_way_up_is_not_kept(storage: AnyStorage) -> None:
    storage.fails("damage upload", "POST", times=20)
    storage.fails("damage upload", "PUT", times=20)
    with pytest.raises(TransientError, match=r"a.wav: damaged in transit; nothing of it was kept"):
        storage.bucket("a").write("a.wav", b"RIFF" * 4)
    storage.proxy.faults.clear()
    assert storage.names() == []


@pytest.mark.slow
def test_a_failed_download_resumes(storage: AnyStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = storage.bucket("a")
    info = store.write("large.tar", LARGE)
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.2")
    monkeypatch.setenv("VOXLINE_BUCKETS_CONNECTIONS", "1")
    storage.fails("status", "GET", "large.tar", after=9, times=10**6)
    with pytest.raises(TransientError, match="start again, and it resumes"):
        store.download([info], tmp_path / "came")
    storage.proxy.faults.clear()
    storage.proxy.requests.clear()
    store.download([info], tmp_path / "came")
    assert files(tmp_path / "came") == {"large.tar": LARGE}
    assert storage.proxy.count("GET", "large.tar") == 3  # of twelve ranges nine had arrived


def test_a_killed_upload_starts_again_and_finishes(storage: AnyStorage, tmp_path: Path) -> None:
    """On S3 the parts that had arrived are not sent again."""
    (tmp_path / "large.tar").write_bytes(LARGE)
    storage.fails("slow", "PUT", after=1, times=10**6, seconds=30)
    code = f"""
from voxline.store.objects import open_store
open_store({storage.uri!r}).upload({str(tmp_path)!r}, ["large.tar"])
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_until(storage.proxy.faults.met, "a part to be under way", interval=0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    storage.proxy.faults.clear()
    assert storage.bucket().stat("large.tar") is None
    storage.proxy.requests.clear()
    storage.bucket().upload(tmp_path, ["large.tar"])
    assert storage.bucket().read("large.tar") == LARGE
    if storage.uri.startswith("s3:"):
        assert storage.proxy.count("PUT", "large.tar") == 2


@pytest.mark.parametrize("uri", ["az://box/a", "hdfs://host/a", "minio://a/b", "gs:/a/b", Path("s3://a/b")])
def test_an_unknown_scheme_is_refused_by_name(uri: Path | str) -> None:
    scheme = str(uri).partition(":")[0]
    with pytest.raises(SettingsError, match=rf"{scheme}://? is not supported; accepted are gs://.* and s3://"):
        open_store(uri)


@pytest.mark.parametrize("path", ["/data/a:b", "C:/data", "C:\\data", "a:b", "./gs:x"])
def test_a_path_with_a_colon_is_a_path(path: str) -> None:
    assert not open_store(path).uri.startswith(("gs:", "s3:"))

"""A registry in a bucket behaves as one on a disk: a version is whole or absent, whichever process was killed."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.buckets.emulator import Storage
from tests.buckets.storages import AnyStorage
from tests.registry.published import exported, publish, served
from tests.registry.test_registry import (  # a bucket and a disk behave alike
    test_a_failed_publication_leaves_nothing as test_a_failed_publication_leaves_nothing,
)
from tests.registry.test_registry import test_a_rollback_keeps_all_metrics as test_a_rollback_keeps_all_metrics
from tests.registry.test_registry import (
    test_bytes_that_were_not_evaluated_are_not_published as test_bytes_that_were_not_evaluated_are_not_published,
)
from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.inference.saved_model import model_digest
from voxline.registry.models import model_names
from voxline.registry.registry import Registry
from voxline.store.bucket_cache import CACHE_ENV


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "cache"))
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "5")


@pytest.fixture(scope="module")
def three_versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a registry with three versions, made once: a registry is its files, wherever they come from."""
    folder = tmp_path_factory.mktemp("three versions")
    registry = Registry(folder / "registry", "asr")
    for content in "abc":
        publish(registry, exported(folder / content, content))
    for lock in registry.folder.glob(".*lock"):
        lock.unlink()
    return folder / "registry"


@pytest.fixture
def registry(storage: AnyStorage, tmp_path: Path, three_versions: Path) -> Registry:
    """Three versions of a model."""
    for content in "abc":
        exported(tmp_path / content, content)
    names = [path.relative_to(three_versions).as_posix() for path in three_versions.rglob("*") if path.is_file()]
    storage.bucket("models é").upload(three_versions, names)
    storage.proxy.requests.clear()
    return Registry(f"{storage.uri}/models é/", "asr")


def journaled(storage: AnyStorage) -> list[int]:
    """The versions in the journal file of the bucket."""
    events = map(json.loads, storage.bucket("models é/asr").read("journal.jsonl").splitlines())
    return [event["version"] for event in events if "fence" not in event]


def test_a_bucket_holds_the_same_files_as_a_disk(registry: Registry, storage: AnyStorage, tmp_path: Path) -> None:
    """One may be copied to the other."""
    publish(registry, exported(tmp_path / "d", "d"))
    local = Registry(tmp_path / "local", "asr")
    for content in "abcd":
        publish(local, tmp_path / content)
    names = {name.removeprefix("models é/asr/") for name in storage.names()}
    files = {path.relative_to(local.folder).as_posix() for path in local.folder.rglob("*") if path.is_file()}
    assert names == {name for name in files if not name.endswith("lock")}
    assert registry.versions() == local.versions() == journaled(storage) == [1, 2, 3, 4]
    assert served(registry) == "d"
    assert registry.is_intact(4)
    assert model_names(f"{storage.uri}/models é") == ["asr"]
    storage.bucket("models é/asr").download(sorted(names), tmp_path / "copied" / "asr")
    assert Registry(tmp_path / "copied", "asr").rollback().copy_of == 3


def test_an_empty_bucket_has_no_version_and_reading_writes_nothing(storage: AnyStorage) -> None:
    assert Registry(storage.uri, "asr").in_service() is None
    assert Registry(storage.uri, "asr").journal() == []
    with pytest.raises(WorkError, match="there is no registry here"):
        model_names(storage.uri)
    assert storage.names() == []


def test_the_files_that_serving_looks_for_are_copied_last(
    registry: Registry, storage: AnyStorage, tmp_path: Path
) -> None:
    publish(registry, exported(tmp_path / "d", "d"))
    infos = sorted(storage.bucket("models é/asr/4").list(), key=lambda info: info.updated)
    written = [path for method, path, _ in storage.proxy.requests if method in ("POST", "PUT")]
    target = "asr%2F4%2F" if isinstance(storage, Storage) else "asr/4/"
    copied = [path.partition("?")[0] for path in written if target in path.rpartition("rewriteTo")[2]]
    assert len(infos) == len(copied) == 5, copied
    assert copied[-2].endswith("saved_model.pb")
    assert copied[-1].endswith("version.json")


def test_a_damaged_object_is_noticed_and_not_rolled_back_to(registry: Registry, storage: AnyStorage) -> None:
    assert registry.is_intact(2)
    storage.bucket("models é/asr/2").write("saved_model.pb", b"?")
    assert not registry.is_intact(2)
    storage.bucket("models é/asr/1/variables").delete("variables.index")
    assert not registry.is_intact(1)
    with pytest.raises(WorkError, match=r"://.*/asr/2: damaged since it was published"):
        registry.rollback()


def test_a_version_copied_by_hand_is_journaled(registry: Registry, storage: AnyStorage, tmp_path: Path) -> None:
    model = exported(tmp_path / "d", "d")
    names = [path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()]
    storage.bucket("models é/asr/7").upload(model, names)
    assert registry.in_service() == 7
    assert registry.event(7).action == "import"
    assert publish(registry, exported(tmp_path / "e", "e")) == 8
    assert journaled(storage) == [1, 2, 3, 7, 8]
    storage.bucket("models é/asr").write("007/saved_model.pb", b"x")
    with pytest.raises(WorkError, match=r"://.*/asr/007: TensorFlow Serving takes this folder for version 7"):
        registry.in_service()


def test_numbers_of_deleted_versions_are_not_used_again(
    registry: Registry, storage: AnyStorage, tmp_path: Path
) -> None:
    storage.bucket("models é/asr").delete_folder("3")
    assert registry.in_service() == 2
    assert publish(registry, exported(tmp_path / "d", "d")) == 4
    assert registry.versions() == [1, 2, 4]


def test_a_lost_line_of_the_journal_is_written_again(registry: Registry, storage: AnyStorage) -> None:
    journal = storage.bucket("models é/asr").read("journal.jsonl")
    storage.bucket("models é/asr").write("journal.jsonl", journal[: journal.rindex(b"\n", 0, -1) + 20])
    assert [event.version for event in registry.journal()] == [1, 2, 3]
    with registry.locked():
        pass
    assert storage.bucket("models é/asr").read("journal.jsonl") == journal


def test_concurrent_pushes_each_get_a_number_and_a_line(storage: AnyStorage, tmp_path: Path) -> None:
    folders = [exported(tmp_path / content, content) for content in "abcd"]
    with ThreadPoolExecutor(len(folders)) as pool:
        versions = list(pool.map(lambda folder: publish(Registry(f"{storage.uri}/models é", "asr"), folder), folders))
    registry = Registry(f"{storage.uri}/models é", "asr")
    assert sorted(versions) == registry.versions() == journaled(storage) == [1, 2, 3, 4]
    assert [event.replaces for event in registry.journal()] == [None, 1, 2, 3]
    for version, folder in zip(versions, folders, strict=True):
        assert registry.event(version).digest == model_digest(folder) == model_digest(registry.path(version))


def test_a_pusher_that_slept_past_its_lease_publishes_nothing(
    registry: Registry, storage: AnyStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process took the lock over, and decided by metrics that the sleeper did not know."""
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "600")  # it will not be renewed within this test
    slept, d = exported(tmp_path / "slept", "slept"), exported(tmp_path / "d", "d")
    with pytest.raises(PreconditionError, match="another process changed the registry meanwhile"), registry.locked():  # noqa: SIM117, PT012
        with registry.publishing(slept, model_digest(slept), "push"):
            monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "0.2")
            assert publish(Registry(f"{storage.uri}/models é", "asr"), d) == 4
    assert registry.versions() == journaled(storage) == [1, 2, 3, 4]
    assert served(registry) == "d"
    with registry.locked():
        assert not any(".incoming" in name for name in storage.names())


def test_a_pusher_whose_files_were_removed_while_it_slept_decides_nothing(
    registry: Registry, storage: AnyStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process took the lock over after the upload, found it undecided, and published nothing itself.

    The journal has the same lines before and after, so only the fence tells the two processes apart.
    """
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "600")

    def take_over() -> None:
        monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "0.2")
        with Registry(f"{storage.uri}/models é", "asr").locked():
            pass

    # The first change of the journal is the fence.
    appended = storage.fails("meanwhile", path="journal.jsonl", changes=True, after=1, action=take_over)
    with pytest.raises(PreconditionError, match="another process changed the registry meanwhile"):
        publish(registry, exported(tmp_path / "d", "d"))
    assert appended.met
    assert registry.versions() == journaled(storage) == [1, 2, 3]


CHANGES: dict[type, int] = {}
"""Requests of a push that change something, by storage."""


@pytest.mark.parametrize(
    ("storage", "part"),
    [
        *(("gcs", part) for part in (0.1, 0.5, 0.8, 0.99)),
        *(pytest.param("gcs", part, marks=pytest.mark.slow) for part in (0.3, 0.6, 0.7, 0.9)),
        *(pytest.param("s3", part, marks=pytest.mark.slow) for part in (0.4, 0.75, 0.9)),
    ],
    indirect=["storage"],
)
def test_a_killed_push_is_completed_or_removed_by_the_next_change(
    registry: Registry, storage: AnyStorage, tmp_path: Path, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after this part of the requests that change something: lock, uploads, journal, copies, deletions."""
    d, e = exported(tmp_path / "d", "d"), exported(tmp_path / "e", "e")
    # It never renews its lock, so that its requests can be counted.
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "600")
    if type(storage) not in CHANGES:
        publish(Registry(f"{storage.uri}/counted", "asr"), d)
        CHANGES[type(storage)] = sum(method not in ("GET", "HEAD") for method, _, _ in storage.proxy.requests)
        storage.bucket().delete_folder("counted")
    storage.fails("slow", changes=True, after=int(part * CHANGES[type(storage)]), times=10**6, seconds=60)
    process = os.fork()
    if process == 0:
        try:
            publish(Registry(f"{storage.uri}/models é", "asr"), d)
        finally:
            os._exit(0)
    while not storage.proxy.faults.met():
        assert os.waitpid(process, os.WNOHANG) == (0, 0), "the process must be killed while it works"
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    storage.proxy.faults.clear()
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "0.5")
    decided = 4 in journaled(storage)
    assert registry.versions() in ([1, 2, 3], [1, 2, 3, 4] if decided else [1, 2, 3])
    assert all(registry.is_intact(version) for version in registry.versions())
    expected = [1, 2, 3, 4] if decided else [1, 2, 3]
    publish(registry, e)
    assert registry.versions() == journaled(storage) == [*expected, expected[-1] + 1]
    assert all(registry.is_intact(version) for version in registry.versions())
    if decided:
        assert model_digest(registry.path(4)) == model_digest(d)
    assert not any(".incoming" in name or ".lock" in name for name in storage.names())


@pytest.mark.parametrize("kind", ["status", "reset", "lost answer", "cut upload"])
def test_a_push_survives_faults_of_the_network(
    registry: Registry, storage: AnyStorage, tmp_path: Path, kind: Any
) -> None:
    for after in (0, 3, 9, 14):
        storage.fails(kind, changes=True, after=after, times=2)
    storage.fails(kind, "DELETE", times=2)
    storage.fails(kind, "GET", times=3)
    assert publish(registry, exported(tmp_path / "d", "d")) == 4
    assert registry.versions() == journaled(storage) == [1, 2, 3, 4]
    assert registry.is_intact(4)


def test_a_push_that_cannot_be_completed_says_so_and_is_completed_later(
    registry: Registry, storage: AnyStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.3")
    gcs = isinstance(storage, Storage)
    fault = storage.fails("status", "POST" if gcs else "PUT", "rewriteTo" if gcs else "/asr/4/", times=10**6)
    with pytest.raises(TransientError, match=r"/asr/4: decided but incomplete .* completes it first"):
        publish(registry, exported(tmp_path / "d", "d"))
    assert registry.versions() == [1, 2, 3]
    fault.times = 0
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "30")
    shutil.rmtree(tmp_path / "cache")
    with registry.locked():
        assert registry.versions() == [1, 2, 3, 4]
    assert registry.is_intact(4)


def test_a_denied_write_is_named_and_changes_nothing(registry: Registry, storage: AnyStorage, tmp_path: Path) -> None:
    storage.fails("status", changes=True, code=403, times=10**6)
    with pytest.raises(WorkError, match=r"permission denied: .*(storage.objects.create|s3:PutObject)"):
        publish(registry, exported(tmp_path / "d", "d"))
    storage.proxy.faults.clear()
    assert registry.versions() == journaled(storage) == [1, 2, 3]


def _without_version(number: int) -> Callable[[bytes], bytes]:
    """Takes a version out of the answer to a listing, of either storage."""
    folder = re.escape(f"asr/{number}/".encode())

    def edit(body: bytes) -> bytes:
        if body.startswith(b"{"):
            page = json.loads(body)
            page["prefixes"] = [name for name in page.get("prefixes", []) if not name.endswith(f"/asr/{number}/")]
            page["items"] = [item for item in page.get("items", []) if f"/asr/{number}/" not in item["name"]]
            return json.dumps(page).encode()
        body = re.sub(rb"<Contents><Key>[^<]*" + folder + rb".*?</Contents>", b"", body, flags=re.DOTALL)
        return re.sub(rb"<CommonPrefixes><Prefix>[^<]*" + folder + rb"</Prefix></CommonPrefixes>", b"", body)

    return edit


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gcs", "s3"])
def test_a_stale_listing_does_not_overrule_the_journal(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    storage: AnyStorage = request.getfixturevalue(kind)
    registry = Registry(f"{storage.uri}/models", "asr")
    for content in "ab":
        publish(registry, exported(tmp_path / content, content))
    listing = "/o?" if kind == "gcs" else "list-type=2"
    storage.fails("edit", "GET", listing, times=1_000, edit=_without_version(2))
    stale = Registry(f"{storage.uri}/models", "asr")
    assert stale.versions() == [1]  # the listing lacks it
    assert (stale.in_service(), stale.resolve("production"), 2 in stale.existing()) == (2, 2, True)
    assert stale.history().production == [1, 2]
    assert publish(stale, exported(tmp_path / "c", "c")) == 3
    storage.proxy.faults.clear()
    events = Registry(f"{storage.uri}/models", "asr").journal()
    assert [(event.version, event.replaces) for event in events] == [(1, None), (2, 1), (3, 2)]

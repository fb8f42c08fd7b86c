"""A registry in a bucket does what one on a disk does; a version is there whole or not, whoever was killed when."""

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.buckets.emulator import Storage
from tests.registry.published import exported, publish, served
from tests.registry.test_registry import (  # the same behaviour is asked of both
    test_a_person_may_roll_back_to_any_version_and_forth_again as test_a_person_may_roll_back_to_any_version,
)
from tests.registry.test_registry import (
    test_a_publication_that_fails_half_way_leaves_nothing as test_a_failed_publication,
)
from tests.registry.test_registry import test_a_rollback_keeps_all_figures as test_a_rollback_keeps_all_figures
from tests.registry.test_registry import (
    test_other_bytes_than_those_that_were_judged_are_not_published as test_other_bytes_are_not_published,
)
from tests.registry.test_registry import (
    test_rolling_back_publishes_the_older_bytes_as_a_new_version as test_rolling_back_publishes_the_older_bytes,
)
from tests.registry.test_registry import test_rolling_back_twice_goes_two_steps_back as test_rolling_back_twice
from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.inference.saved_model import model_digest
from voxline.registry.journal import RegistryEvent
from voxline.registry.registry import Registry, model_names

__all__ = [
    "test_a_failed_publication",
    "test_a_person_may_roll_back_to_any_version",
    "test_a_rollback_keeps_all_figures",
    "test_other_bytes_are_not_published",
    "test_rolling_back_publishes_the_older_bytes",
    "test_rolling_back_twice",
]

PUSH = """
import sys
from pathlib import Path
from voxline.registry.registry import Registry
from tests.registry.published import publish
publish(Registry(sys.argv[1], "asr"), Path(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXLINE_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "5")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test that has three versions keeps them for the others."""
    return tmp_path_factory.mktemp("three versions")


@pytest.fixture
def registry(gcs: Storage, tmp_path: Path, kept: Path) -> Registry:
    """Three versions of a model."""
    made, objects = Registry(f"{gcs.uri}/models é/", "asr"), gcs.bucket("models é")
    models = {content: exported(tmp_path / content, content) for content in "abc"}
    names = [path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file()]
    if names:  # a registry is what lies there, wherever it came from
        objects.upload(kept, names)
    else:
        for model in models.values():
            publish(made, model)
        objects.download([entry.name for entry in objects.list()], kept)
    gcs.proxy.requests.clear()
    return made


def lines(registry: Registry, gcs: Storage) -> list[int]:
    """The versions in the journal, as it lies in the bucket."""
    text = gcs.bucket("models é/asr").read("journal.jsonl").decode()
    events = map(json.loads, text.splitlines())
    return [event["version"] for event in events if "fence" not in event]


def test_a_bucket_holds_what_a_disk_would(registry: Registry, gcs: Storage, tmp_path: Path) -> None:
    """So that one may be copied to the other."""
    local = Registry(tmp_path / "local", "asr")
    for content in "abc":
        publish(local, tmp_path / content)
    there = {name.removeprefix("models é/asr/") for name in gcs.names()}
    assert there == {
        path.relative_to(local.folder).as_posix() for path in local.folder.rglob("*") if path.is_file()
    } - {".lock", ".objects.lock"}
    assert registry.versions() == local.versions() == [1, 2, 3]
    assert lines(registry, gcs) == [1, 2, 3]
    assert served(registry) == "c"
    assert registry.is_intact(3)
    assert model_names(f"{gcs.uri}/models é") == ["asr"]
    gcs.bucket("models é/asr").download(sorted(there), tmp_path / "copied" / "asr")
    assert Registry(tmp_path / "copied", "asr").rollback().copy_of == 2


def test_an_empty_place_has_no_version_and_reading_makes_nothing(gcs: Storage) -> None:
    assert Registry(gcs.uri, "asr").in_service() is None
    assert Registry(gcs.uri, "asr").journal() == []
    with pytest.raises(WorkError, match="there is no registry here"):
        model_names(gcs.uri)
    assert gcs.names() == []


def test_what_serving_looks_for_first_comes_when_all_else_is_there(
    registry: Registry, gcs: Storage, tmp_path: Path
) -> None:
    publish(registry, exported(tmp_path / "d", "d"))
    written = [path.split("rewriteTo")[1] for method, path, _ in gcs.proxy.requests if "rewriteTo" in path]
    assert len(written) == 5
    assert "/o/models%20%C3%A9%2Fasr%2F4%2Fsaved_model.pb" in written[-2]
    assert "/o/models%20%C3%A9%2Fasr%2F4%2Fversion.json" in written[-1]
    sent = [path for method, path, _ in gcs.proxy.requests if method == "POST" and "/upload/" in path]
    assert not any("%2F4%2F" in path for path in sent), "nothing slow is done where Serving looks"


def test_a_damaged_object_is_seen_and_not_rolled_back_to(registry: Registry, gcs: Storage) -> None:
    assert registry.is_intact(2)
    gcs.bucket("models é/asr/2").write("saved_model.pb", b"?")
    assert not registry.is_intact(2)
    gcs.bucket("models é/asr/1/variables").delete("variables.index")
    assert not registry.is_intact(1)
    with pytest.raises(WorkError, match=r"gs://.*/asr/2: damaged since it was published"):
        registry.rollback()


def test_a_version_put_there_by_hand_is_found_and_written_down(
    registry: Registry, gcs: Storage, tmp_path: Path
) -> None:
    made = exported(tmp_path / "d", "d")
    names = [path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()]
    gcs.bucket("models é/asr/7").upload(made, names)
    assert registry.in_service() == 7
    assert registry.event(7).action == "import"
    assert publish(registry, exported(tmp_path / "e", "e")) == 8
    assert lines(registry, gcs) == [1, 2, 3, 7, 8]
    gcs.bucket("models é/asr").write("007/saved_model.pb", b"x")
    with pytest.raises(WorkError, match=r"gs://.*/asr/007: TensorFlow Serving takes this folder for version 7"):
        registry.in_service()


def test_numbers_of_deleted_versions_are_not_given_again(registry: Registry, gcs: Storage, tmp_path: Path) -> None:
    for entry in gcs.bucket("models é/asr").list("3/"):
        gcs.bucket("models é/asr").delete(entry.name)
    assert registry.in_service() == 2
    assert publish(registry, exported(tmp_path / "d", "d")) == 4
    assert registry.versions() == [1, 2, 4]


def test_a_line_that_was_lost_is_written_again(registry: Registry, gcs: Storage) -> None:
    journal = gcs.bucket("models é/asr").read("journal.jsonl")
    gcs.bucket("models é/asr").write("journal.jsonl", journal[: journal.rindex(b"\n", 0, -1) + 20])
    assert [change.version for change in registry.journal()] == [1, 2, 3]
    with registry.locked():
        pass
    assert gcs.bucket("models é/asr").read("journal.jsonl") == journal


def test_of_many_who_push_at_once_each_gets_a_number_and_a_line(gcs: Storage, tmp_path: Path) -> None:
    folders = [exported(tmp_path / content, content) for content in "abcd"]
    with ThreadPoolExecutor(len(folders)) as pool:
        made = list(pool.map(lambda folder: publish(Registry(f"{gcs.uri}/models é", "asr"), folder), folders))
    registry = Registry(f"{gcs.uri}/models é", "asr")
    assert sorted(made) == registry.versions() == lines(registry, gcs) == [1, 2, 3, 4]
    assert [change.replaces for change in registry.journal()] == [None, 1, 2, 3]
    for version, folder in zip(made, folders, strict=True):
        assert registry.event(version).digest == model_digest(folder) == model_digest(registry.path(version))


def test_a_pusher_that_slept_past_its_lease_publishes_nothing(
    registry: Registry, gcs: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one has taken over, and decided: by figures that the sleeper did not know."""
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "0.2")
    monkeypatch.setattr("voxline.store.bucket_locks.Lease.renew", lambda held: None)
    slept, d = exported(tmp_path / "slept", "slept"), exported(tmp_path / "d", "d")
    with pytest.raises(PreconditionError, match="another process changed the registry meanwhile"), registry.locked():  # noqa: SIM117
        with registry.publishing(slept, model_digest(slept), "push"):
            assert publish(Registry(f"{gcs.uri}/models é", "asr"), d) == 4
    assert registry.versions() == lines(registry, gcs) == [1, 2, 3, 4]
    assert served(registry) == "d"
    with registry.locked():
        assert not any(".incoming" in name for name in gcs.names())


def test_a_pusher_whose_files_were_cleared_away_while_it_slept_decides_nothing(
    registry: Registry, gcs: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one took over when all was sent, found it undecided, and published nothing itself."""
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "0.2")
    monkeypatch.setattr("voxline.store.bucket_locks.Lease.renew", lambda held: None)
    append = registry._journal.append

    def late(changes: list[RegistryEvent]) -> None:
        if changes:
            with Registry(f"{gcs.uri}/models é", "asr").locked():
                pass
        append(changes)

    monkeypatch.setattr(registry._journal, "append", late)
    with pytest.raises(PreconditionError, match="another process changed the registry meanwhile"):
        publish(registry, exported(tmp_path / "d", "d"))
    assert registry.versions() == lines(registry, gcs) == [1, 2, 3]


KILLED = {
    "while it sends": ("POST", "/upload/", 2, [1, 2, 3]),
    "before it is decided": ("POST", "/upload/", 7, [1, 2, 3]),
    "when it is decided": ("POST", "rewriteTo", 0, [1, 2, 3, 4]),
    "while it appears": ("POST", "rewriteTo", 3, [1, 2, 3, 4]),
    "before it is marked": ("POST", "version.json/rewriteTo", 0, [1, 2, 3, 4]),
    "while it is cleared away": ("DELETE", "incoming", 2, [1, 2, 3, 4]),
}


@pytest.mark.parametrize("when", KILLED)
def test_a_killed_push_is_finished_or_cleared_by_whoever_comes_next(
    registry: Registry, gcs: Storage, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "0.5")
    method, path, after, expected = KILLED[when]
    d, e = exported(tmp_path / "d", "d"), exported(tmp_path / "e", "e")
    gcs.fails("slow", method, path, after=after, times=10**6, seconds=60)
    command = [sys.executable, "-c", PUSH, f"{gcs.uri}/models é", str(d)]
    # It renews its lock at no time, so that its requests can be counted.
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "VOXLINE_BUCKETS_LEASE_SECONDS": "600"}
    process = subprocess.Popen(command, env=environment)
    fault = gcs.proxy.faults.met
    for _ in range(1200):
        if fault() or process.poll() is not None:
            break
        time.sleep(0.05)
    assert process.poll() is None, "it was to be killed while it works"
    process.kill()
    process.wait(10)
    gcs.proxy.faults.clear()
    assert registry.versions() == ([1, 2, 3, 4] if "cleared" in when else [1, 2, 3]), "only what is whole is there"
    assert all(registry.is_intact(version) for version in registry.versions())
    publish(registry, e)
    assert registry.versions() == lines(registry, gcs) == [*expected, expected[-1] + 1]
    assert all(registry.is_intact(version) for version in registry.versions())
    if 4 in expected:
        assert model_digest(registry.path(4)) == model_digest(d)
    assert not any(".incoming" in name or ".lock" in name for name in gcs.names())


@pytest.mark.parametrize("kind", ["status", "reset", "lost answer", "cut upload"])
def test_a_push_outlives_the_faults_of_a_network(registry: Registry, gcs: Storage, tmp_path: Path, kind: str) -> None:
    for path in ("/upload/", "rewriteTo", ".lock", "journal"):
        gcs.fails(kind, "POST", path, times=2)
    gcs.fails(kind, "DELETE", times=2)
    gcs.fails(kind, "GET", times=3)
    assert publish(registry, exported(tmp_path / "d", "d")) == 4
    assert registry.versions() == lines(registry, gcs) == [1, 2, 3, 4]
    assert registry.is_intact(4)


def test_a_push_that_the_storage_leaves_in_the_lurch_says_where_it_stands(
    registry: Registry, gcs: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.3")
    fault = gcs.fails("status", "POST", "rewriteTo", times=10**6)
    with pytest.raises(TransientError, match=r"/asr/4: decided but incomplete .* completes it first"):
        publish(registry, exported(tmp_path / "d", "d"))
    assert registry.versions() == [1, 2, 3]
    fault.times = 0
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "30")
    shutil.rmtree(tmp_path / "mirror")
    with registry.locked():
        assert registry.versions() == [1, 2, 3, 4]
    assert registry.is_intact(4)


def test_who_may_not_write_is_told_so_and_nothing_changes(registry: Registry, gcs: Storage, tmp_path: Path) -> None:
    gcs.fails("status", "POST", "/upload/", code=403, times=10**6)
    with pytest.raises(WorkError, match=r"permission denied: .*storage.objects.create"):
        publish(registry, exported(tmp_path / "d", "d"))
    gcs.proxy.faults.clear()
    assert registry.versions() == lines(registry, gcs) == [1, 2, 3]

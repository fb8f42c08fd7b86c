"""Objects are listed, read, written under a condition and removed."""

import concurrent.futures

import pytest

from tests.buckets.emulator import Storage
from voxline.errors import PreconditionError, SettingsError, TransientError, WorkError
from voxline.store.objects import open_store
from voxline.store.storage import ABSENT
from voxline.store.uris import is_remote


def test_what_was_written_is_read_and_listed_below_its_prefix_alone(gcs: Storage) -> None:
    bucket = gcs.bucket("a corpus é/")
    written = bucket.write("wavs/α.wav", b"RIFF")
    gcs.bucket("a corpus é2").write("other", b"x")
    gcs.client().bucket(gcs.name).blob("a corpus é/wavs/").upload_from_string(b"")  # a console's mark of a folder
    assert bucket.read("wavs/α.wav") == b"RIFF"
    assert bucket.stat("wavs/α.wav") == written
    assert list(bucket.list()) == list(bucket.list("wavs/")) == [written]
    assert (written.name, written.size, written.checksum) == ("wavs/α.wav", 4, "crc32c:HrXHnA==")
    assert bucket.list_folders() == ["wavs"]
    assert gcs.bucket().list_folders() == ["a corpus é", "a corpus é2"]


def test_what_is_not_there_is_said_so_and_removing_it_is_no_fault(gcs: Storage) -> None:
    assert gcs.bucket("a").stat("none") is None
    with pytest.raises(FileNotFoundError, match="/a/none"):
        gcs.bucket("a").read("none")
    gcs.bucket("a").delete("none")
    assert list(gcs.bucket("a").list()) == []


def test_a_write_under_a_condition_fails_where_somebody_was_first(gcs: Storage) -> None:
    bucket = gcs.bucket("a")
    first = bucket.write("x", b"1", if_version=ABSENT)
    with pytest.raises(PreconditionError, match="/a/x: another process changed it"):
        bucket.write("x", b"2", if_version=ABSENT)
    second = bucket.write("x", b"2", if_version=first.version)
    with pytest.raises(PreconditionError):
        bucket.write("x", b"3", if_version=first.version)
    with pytest.raises(PreconditionError):
        bucket.delete("x", if_version=first.version)
    assert bucket.read("x") == b"2"
    bucket.delete("x", if_version=second.version)
    assert bucket.stat("x") is None


def test_of_many_writers_of_one_object_exactly_one_succeeds(gcs: Storage) -> None:
    bucket = gcs.bucket("a")

    def write(writer: int) -> bool:
        try:
            bucket.write("x", str(writer).encode(), if_version=ABSENT)
        except PreconditionError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert won.count(True) == 1
    assert bucket.read("x") == str(won.index(True)).encode()


@pytest.mark.parametrize("kind", ["reset", "cut upload", "lost answer", "cut"])
@pytest.mark.parametrize("size", [4, 9 << 20])
def test_a_write_whose_answer_was_lost_is_known_for_our_own(gcs: Storage, kind: str, size: int) -> None:
    """The library asks again, and the condition fails by our own success."""
    bucket = gcs.bucket("a")
    if size > 8 << 20:
        gcs.fails(kind, "PUT", "upload_id")
    else:
        gcs.fails(kind, "POST", "/upload/")
    bucket.write("x", b"4" * size, if_version=ABSENT)
    assert bucket.read("x") == b"4" * size
    with pytest.raises(PreconditionError):
        bucket.write("x", b"no", if_version=ABSENT)


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_what_passes_by_itself_is_waited_for(gcs: Storage, code: int) -> None:
    bucket = gcs.bucket("a")
    for method in ("GET", "POST", "DELETE"):
        gcs.fails("status", method, code=code, times=2)
    bucket.write("x", b"1")
    assert bucket.read("x") == b"1"
    bucket.delete("x")
    assert gcs.names() == []


def test_a_storage_that_stays_away_is_an_interruption_that_says_so(
    gcs: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.3")
    gcs.fails("status", code=503, times=10**6)
    for ask in (lambda: list(gcs.bucket("a").list()), lambda: gcs.bucket("a").write("x", b"")):
        with pytest.raises(
            TransientError, match=r"/a/x?: the storage failed to (list|write) it.*503.*start again"
        ) as told:
            ask()
        assert told.value.exit_status == 75


def test_nobody_listening_is_an_interruption_too(gcs: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.2")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    with pytest.raises(TransientError, match="start again"):
        gcs.bucket("a").stat("x")


def test_a_slow_answer_is_not_waited_for_for_ever(gcs: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    gcs.bucket("a").write("x", b"1")
    monkeypatch.setenv("VOXLINE_BUCKETS_TIMEOUT_SECONDS", "0.3")
    gcs.fails("slow", "GET", seconds=1.5)
    assert gcs.bucket("a").read("x") == b"1"


@pytest.mark.parametrize(
    ("ask", "permission", "role"),
    [
        (lambda bucket: list(bucket.list()), "storage.objects.list", "roles/storage.objectViewer"),
        (lambda bucket: bucket.stat("x"), "storage.objects.get", "roles/storage.objectViewer"),
        (lambda bucket: bucket.write("x", b"1"), "storage.objects.create", "roles/storage.objectUser"),
        (lambda bucket: bucket.delete("x"), "storage.objects.delete", "roles/storage.objectUser"),
    ],
)
def test_a_denied_permission_is_named_with_what_grants_it(gcs: Storage, ask, permission: str, role: str) -> None:  # type: ignore[no-untyped-def]
    gcs.fails("status", code=403, times=10**6)
    with pytest.raises(WorkError, match=f"gs://{gcs.name}/a/.*{permission}.*bucket {gcs.name}.*--role={role}$") as told:
        ask(gcs.bucket("a"))
    assert not isinstance(told.value, TransientError)
    assert "\n" not in str(told.value)


def test_refused_credentials_are_said_with_how_to_get_some(gcs: Storage) -> None:
    gcs.fails("status", code=401, times=10**6)
    with pytest.raises(WorkError, match=r"no credentials .* gcloud auth application-default login"):
        gcs.bucket("a").stat("x")


def test_no_credentials_at_all_are_said_so(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(
        WorkError,
        match=r"gs://speech/: no credentials .*none.json was not found\); .* gcloud auth application-default login",
    ):
        open_store("gs://speech").stat("x")


@pytest.mark.parametrize(
    "ask",
    [
        lambda bucket: list(bucket.list()),
        lambda bucket: bucket.list_folders(),
        lambda bucket: bucket.stat("x"),
        lambda bucket: bucket.read("x"),
        lambda bucket: bucket.write("x", b"1"),
        lambda bucket: bucket.delete("x"),
    ],
)
def test_a_bucket_that_is_not_there_is_not_an_empty_one(gcs: Storage, ask) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(WorkError, match=r"there is no bucket voxline-none; .*gcloud storage buckets create"):
        ask(open_store("gs://voxline-none/a"))


def test_no_part_of_an_upload_session_stands_in_a_message(gcs: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL of an upload session is a credential."""
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.2")
    gcs.fails("reset", "PUT", "upload_id", times=10**6)
    with pytest.raises(TransientError) as told:
        gcs.bucket("a").write("x", b"1" * (9 << 20))
    assert "upload_id" not in str(told.value)


@pytest.mark.parametrize("uri", ["gs://", "gs:///a", "gs://A", "gs://bucket/../x", "gs://bucket/a//b"])
def test_what_is_no_place_in_a_bucket_is_refused(uri: str) -> None:
    with pytest.raises(SettingsError, match="accepted is gs://bucket"):
        open_store(uri)


def test_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_CONNECTIONS", "many")
    with pytest.raises(SettingsError, match=r"VOXLINE_BUCKETS_.*'connections' is 'many'"):
        open_store("gs://speech").stat("x")


def test_places_are_told_apart() -> None:
    assert is_remote("gs://a/b")
    assert not is_remote("/gs://a")

"""Objects are listed, read, written under a condition and removed."""

import pytest

from tests.buckets.emulator import Storage
from voxline.errors import SettingsError, TransientError, WorkError
from voxline.store.objects import open_store
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


def test_nobody_listening_is_an_interruption_too(gcs: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.2")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    with pytest.raises(TransientError, match="start again"):
        gcs.bucket("a").stat("x")


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


def test_no_credentials_at_all_are_said_so(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(
        WorkError,
        match=r"gs://speech/: no credentials .*none.json was not found\); .* gcloud auth application-default login",
    ):
        open_store("gs://speech").stat("x")


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

"""Objects are cached under the same path in every process, and downloaded when they are needed."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.buckets.emulator import Storage
from voxline.data.manifest import Utterance, read_manifest, write_manifest
from voxline.errors import WorkError
from voxline.store.bucket_cache import CACHE_ENV, is_cached, local_path, uri_of
from voxline.store.localize import ensure_local, localize
from voxline.store.objects import open_store

Pod = Callable[[], Path]


def test_a_path_in_the_mirror_and_its_address_name_each_other(gcs: Storage, fresh_pod: Pod) -> None:
    disk = fresh_pod()
    folder = local_path(f"{gcs.uri}/a store/wavs")
    assert folder == disk / "gs" / gcs.name / "a store" / "wavs"
    assert uri_of(folder / "x.wav") == f"{gcs.uri}/a store/wavs/x.wav"
    assert uri_of("/data/x.wav") == "/data/x.wav"
    assert local_path("/data") == Path("/data")


def test_a_folder_and_a_file_of_a_bucket_can_be_read_here(gcs: Storage, fresh_pod: Pod) -> None:
    gcs.bucket("m").write("model/model.json", b"{}")
    gcs.bucket("m").write("checkpoints/step-1/arrays.npz", b"large")
    gcs.bucket().write("m2/other", b"x")
    fresh_pod()
    model = localize(f"{gcs.uri}/m", without=("checkpoints/",))
    assert [path.name for path in model.rglob("*") if path.is_file()] == ["model.json"]
    fresh_pod()
    assert localize(f"{gcs.uri}/m/model/model.json").read_bytes() == b"{}"
    assert localize("/data/x") == Path("/data/x")


def test_an_address_where_nothing_lies_is_an_error_that_says_so(gcs: Storage, fresh_pod: Pod) -> None:
    fresh_pod()
    with pytest.raises(WorkError, match=r"/nothing/here: there is nothing in the bucket; correct the URI"):
        localize(f"{gcs.uri}/nothing/here")


@pytest.mark.parametrize("marker", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_marker_is_an_error_that_says_so(gcs: Storage, fresh_pod: Pod, marker: bytes) -> None:
    gcs.bucket("store/train/ab").write("done.json", marker)
    fresh_pod()
    with pytest.raises(WorkError, match=r"/store/train/ab/done.json: damaged .* run the step that made it again"):
        localize(f"{gcs.uri}/store/train/ab")


def test_only_files_that_are_not_here_are_brought(gcs: Storage, fresh_pod: Pod, tmp_path: Path) -> None:
    fresh_pod()
    wavs = local_path(f"{gcs.uri}/wavs")
    wavs.mkdir(parents=True)
    for name in ("a", "b", "c"):
        (wavs / name).write_text(name, encoding="utf-8")
    open_store(gcs.uri).upload_new(wavs.iterdir())
    fresh_pod()
    wavs = local_path(f"{gcs.uri}/wavs")
    ensure_local([wavs / "a"])
    before = gcs.proxy.count("GET", "alt=media")
    ensure_local([wavs / "a", wavs / "c", tmp_path / "elsewhere"])
    assert sorted(path.name for path in wavs.iterdir()) == ["a", "c"]
    assert gcs.proxy.count("GET", "alt=media") == before + 1


def test_one_file_that_is_gone_does_not_keep_the_others_away(gcs: Storage, fresh_pod: Pod) -> None:
    gcs.bucket("wavs").write("a", b"a")
    fresh_pod()
    wavs = local_path(f"{gcs.uri}/wavs")
    ensure_local([wavs / "gone", wavs / "a"])
    assert [path.name for path in wavs.iterdir()] == ["a"]


def test_what_is_there_is_not_sent_again_nor_replaced(gcs: Storage, fresh_pod: Pod) -> None:
    gcs.bucket("wavs").write("a", b"by another machine")
    fresh_pod()
    wavs = local_path(f"{gcs.uri}/wavs")
    wavs.mkdir(parents=True)
    (wavs / "a").write_text("by this one", encoding="utf-8")
    open_store(gcs.uri).upload_new([wavs / "a"])
    assert gcs.bucket("wavs").read("a") == (wavs / "a").read_bytes() == b"by another machine"


def test_a_name_that_no_file_may_have_brings_nothing(gcs: Storage, fresh_pod: Pod) -> None:
    disk = fresh_pod()
    gcs.client().bucket(gcs.name).blob("m/a\x01b").upload_from_string(b"x")
    gcs.bucket("m").write("good", b"x")
    with pytest.raises(WorkError, match="holds a control character"):
        localize(f"{gcs.uri}/m")
    assert not [path for path in disk.parent.rglob("*") if path.is_file()]


def test_a_mirror_where_all_may_write_that_leads_elsewhere_is_refused(
    gcs: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "voxline-bucket-cache").symlink_to(tmp_path / "theirs")
    monkeypatch.delenv(CACHE_ENV, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(WorkError, match=f"must be a folder of this user; set {CACHE_ENV}"):
        open_store(gcs.uri).local_path()


def test_the_mirror_is_for_nobody_else(gcs: Storage, fresh_pod: Pod) -> None:
    disk = fresh_pod()
    open_store(gcs.uri).local_path()
    assert disk.stat().st_mode & 0o077 == 0
    assert disk.stat().st_uid == os.getuid()


def test_a_manifest_in_a_mirror_names_what_lies_outside_absolutely(
    gcs: Storage, fresh_pod: Pod, tmp_path: Path
) -> None:
    fresh_pod()
    store = local_path(f"{gcs.uri}/store")
    outside, inside = tmp_path / "a.wav", store / "wavs" / "b.wav"
    write_manifest(
        store / "convert" / "manifest.jsonl",
        [Utterance("a", str(outside), 1.0, "one"), Utterance("b", str(inside), 1.0, "two")],
    )
    open_store(gcs.uri).upload_new([store / "convert" / "manifest.jsonl"])
    fresh_pod()
    read = read_manifest(localize(f"{gcs.uri}/store/convert"))
    assert [one.audio_filepath for one in read] == [
        str(outside),
        str(local_path(f"{gcs.uri}/store") / "wavs" / "b.wav"),
    ]


def test_folders_above_the_buckets_are_no_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So looking for a step's marker above a dataset at a bucket's top asks no storage for the object `gs://`."""
    monkeypatch.setenv(CACHE_ENV, str(tmp_path))
    bucket = local_path("gs://speech")
    assert uri_of(bucket) == "gs://speech"
    for folder in (bucket.parent, tmp_path):
        assert uri_of(folder) == str(folder)
        assert not is_cached(folder)

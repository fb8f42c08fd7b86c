"""A folder as an object store: what only a disk has: links, names of any bytes, permissions, unfinished files."""

import itertools
import os
import tracemalloc
from pathlib import Path

import pytest

from tests.audit import noticed
from tests.buckets.s3_server import S3Storage
from voxline.errors import PreconditionError, WorkError
from voxline.inference.saved_model import model_files
from voxline.store.objects import open_store
from voxline.store.storage import ABSENT


def names(folder: Path, prefix: str = "") -> list[str]:
    return [info.name for info in open_store(folder).list(prefix)]


def test_links_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "disk" / "pool").mkdir(parents=True)
    (tmp_path / "disk" / "pool" / "shard.json").write_text("{}")
    (tmp_path / "store" / "shards").mkdir(parents=True)
    (tmp_path / "store" / "shards" / "pool").symlink_to(tmp_path / "disk" / "pool")
    (tmp_path / "store" / "shards" / "back").symlink_to(tmp_path / "store")
    (tmp_path / "store" / "none").symlink_to(tmp_path / "none")
    (tmp_path / "store" / "itself").symlink_to(tmp_path / "store" / "itself")
    assert names(tmp_path / "store") == ["shards/pool/shard.json"]
    assert names(tmp_path / "store", "shards/po") == ["shards/pool/shard.json"]
    assert names(tmp_path / "store", "shards/x") == []


def test_files_are_listed_in_the_order_of_their_whole_names(tmp_path: Path) -> None:
    """As a bucket lists them: a folder's files come where its name with a slash does."""
    for first, second in itertools.product(("a", "a-b", "a.b", "a0", "b", "é"), ("a", "a-b", "a0", "c.wav", "c")):
        (tmp_path / first / second).mkdir(parents=True)
        for name in ("x", "x-", "y", "Z"):
            (tmp_path / first / second / name).touch()
            (tmp_path / first / f"{second}{name}").touch()
    whole = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert names(tmp_path) == sorted(whole, key=os.fsencode)
    for prefix in ("a", "a/", "a/a", "a/a/x", "b/c.w", "é/", "none"):
        assert names(tmp_path, prefix) == [name for name in sorted(whole, key=os.fsencode) if name.startswith(prefix)]


def test_a_listing_holds_one_folder_at_a_time(tmp_path: Path) -> None:
    for folder, file in itertools.product(range(40), range(100)):
        (tmp_path / f"{folder}").mkdir(exist_ok=True)
        (tmp_path / f"{folder}" / f"{file}.wav").touch()
    tracemalloc.start()
    try:
        assert sum(1 for _ in open_store(tmp_path).list()) == 4_000
        _, at_once = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        kept = list(open_store(tmp_path).list())
        _, all_of_them = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 4_000
    assert at_once < all_of_them / 10


def test_names_of_any_bytes_are_listed_and_refused_in_words(tmp_path: Path) -> None:
    for name in (b"caf\xe9.txt", b"a\\b", b"line\nbreak"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    assert len(names(tmp_path)) == 3
    with pytest.raises(WorkError, match="is not UTF-8"):
        open_store(tmp_path).read("caf\udce9.txt")


def test_a_folder_that_is_deleted_meanwhile_is_left_out(tmp_path: Path) -> None:
    for name in ("1", ".incoming-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "version.json").write_text("{}")

    def delete(folder: object) -> None:
        if str(folder).endswith("/.incoming-2"):
            (tmp_path / ".incoming-2" / "version.json").unlink()
            (tmp_path / ".incoming-2").rmdir()

    with noticed("os.scandir", delete):
        assert names(tmp_path) == ["1/version.json"]


def test_a_folder_that_cannot_be_read_is_an_error_and_never_empty(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()

    def deny(folder: object) -> None:
        if str(folder).endswith("/1"):
            raise PermissionError(13, "Permission denied", str(folder))

    with (
        noticed("os.scandir", deny),
        pytest.raises(WorkError, match=r"/1: cannot be read \(Permission denied\); mend that"),
    ):
        names(tmp_path)


def test_an_object_is_not_deleted_where_none_was_expected(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.write("x", b"1")
    with pytest.raises(PreconditionError):
        store.delete("x", if_version=ABSENT)
    assert store.read("x") == b"1"


def test_what_another_process_is_downloading_stays(s3: S3Storage, tmp_path: Path) -> None:
    store = s3.bucket("registry/asr")
    store.write("1/variables/data", b"1")
    folder = store.local_path("1")
    unfinished = folder / "variables" / ".data.0123.part"
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    unfinished.touch()
    (folder / "old").touch()
    assert store.localize("1") == folder
    assert unfinished.exists()
    assert not (folder / "old").exists()
    assert [file.as_posix() for file in model_files(folder)] == ["variables/data"]

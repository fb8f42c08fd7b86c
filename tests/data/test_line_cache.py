"""The line cache: lines are found in any order, and a damaged file is empty."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxline.data.line_cache import MAX_PIECE_LINES, LineCache, iter_pieces, write_line_cache
from voxline.errors import WorkError
from voxline.store.hashing import hash_digest


def write(file: Path, names: list[str]) -> None:
    with write_line_cache(file) as writer:
        for name in names:
            writer.add(hash_digest(name.encode()), name, str(len(name)), output=f'{{"id": "{name}"}}\n'.encode())
        writer.about = {"lines": len(names)}


def read(cache: LineCache, name: str) -> list[bytes] | None:
    entry = cache.find(hash_digest(name.encode()))
    return entry and [*entry.fields, entry.output]


def expected(name: str) -> list[bytes]:
    return [name.encode(), str(len(name)).encode(), f'{{"id": "{name}"}}\n'.encode()]


@settings(deadline=None, max_examples=50)
@given(sought=st.lists(st.integers(0, 30)))
def test_lines_are_found_in_any_order(tmp_path_factory: pytest.TempPathFactory, sought: list[int]) -> None:
    file = tmp_path_factory.mktemp("cache") / "convert"
    write(file, [f"u{number}" for number in range(20)])
    with LineCache(file) as cache:
        found = [read(cache, f"u{number}") for number in sought]
    assert found == [expected(f"u{number}") if number < 20 else None for number in sought]


def test_an_entry_is_read_again_by_its_offset_and_copied_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "convert", ["a", "b", "c"])
    with LineCache(tmp_path / "convert") as cache, write_line_cache(tmp_path / "copy") as writer:
        offsets = [entry.offset for entry in cache]
        assert [cache.read(offset).fields[0] for offset in reversed(offsets)] == [b"c", b"b", b"a"]
        for entry in cache:
            writer.copy(entry.raw)
        writer.about = cache.about
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "convert").read_bytes()


@pytest.mark.parametrize("left_out", ["", "a", "d", "bc", "ac", "abcd"])
def test_entries_that_are_not_wanted_are_passed_over(left_out: str, tmp_path: Path) -> None:
    write(tmp_path / "convert", list("abcd"))
    with LineCache(tmp_path / "convert") as cache:
        ends = {entry.offset: entry.offset + len(entry.raw) for entry in cache if entry.fields[0].decode() in left_out}
        names = [entry.fields[0].decode() for entry in cache.entries(ends)]
    assert names == [name for name in "abcd" if name not in left_out]


def test_any_damage_makes_the_cache_empty(tmp_path: Path) -> None:
    file = tmp_path / "convert"
    write(file, ["a", "b"])
    whole = file.read_bytes()
    for damaged in (
        b"",
        *(whole[:size] for size in range(len(whole))),
        *(altered(whole, at) for at in range(len(whole))),
    ):
        file.write_bytes(damaged)
        with LineCache(file) as cache:
            assert (cache.count, cache.about, read(cache, "a"), [*cache]) == (0, {}, None, [])


def altered(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_block_that_fails_leaves_the_earlier_cache(tmp_path: Path) -> None:
    write(tmp_path / "convert", ["a"])
    with pytest.raises(KeyError), write_line_cache(tmp_path / "convert"):
        raise KeyError
    with LineCache(tmp_path / "convert") as cache:
        assert read(cache, "a") == expected("a")
    assert [path.name for path in tmp_path.iterdir()] == ["convert"]


def test_a_cache_that_is_replaced_is_read_to_its_end(tmp_path: Path) -> None:
    write(tmp_path / "convert", ["a", "b"])
    with LineCache(tmp_path / "convert") as cache:
        write(tmp_path / "convert", ["c"])
        cache.check()
        assert [read(cache, name) for name in "bac"] == [expected("b"), expected("a"), None]


def test_a_cache_that_a_purge_removes_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "convert", ["a"])
    with LineCache(tmp_path / "convert") as cache:
        (tmp_path / "convert").unlink()
        with pytest.raises(WorkError, match="removed while it was being read, probably by a purge"):
            cache.check()


def test_changes_all_over_a_manifest_leave_most_of_its_pieces() -> None:
    random = np.random.default_rng(1)
    lines = [b"%d\n" % number for number in random.integers(2**62, size=20_000)]
    changed = [b"c" + line if number % 100 == 50 else line for number, line in enumerate(lines)]
    before, after = (dict(iter_pieces(io.BytesIO(b"".join(part)), "")) for part in (lines, changed))
    assert [line for piece in after.values() for line in piece] == changed
    assert max(map(len, after.values())) < MAX_PIECE_LINES

    # Of the 100 lines to the next change, one costs less than the half.
    parsed = sum(len(after[digest]) for digest in after.keys() - before.keys())
    assert parsed < 0.45 * len(lines)

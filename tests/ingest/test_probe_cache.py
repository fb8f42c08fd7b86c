"""What recordings are is audio_probe, and believed only as long as nobody can have touched them."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.audit import noticed
from voxline.components.ingest.audio_probe import ProbeCache, ProbeResult, probe
from voxline.components.ingest.corpus import Corpus
from voxline.components.ingest.file_index import REGULAR, FileIndex, FileState, unpack_state
from voxline.store.files import ABANDONED_SECONDS

Record = Callable[..., Path]


@pytest.fixture
def read(corpus: Path) -> Iterator[list[str]]:
    """The names of recordings that were read."""
    names: list[str] = []

    def note(path: object, mode: str, *_: object) -> None:
        name = Path(str(path)).name
        if name.endswith(".wav") and "r" in str(mode) and name not in names:
            names.append(name)

    with noticed("open", note):
        yield names


def found(store: Path, folder: Path) -> dict[str, ProbeResult]:
    """As the step does it, with files that were left alone for long enough."""
    corpus = Corpus(folder)
    corpus.listed_at += 3600 * 10**9
    recordings = known(store, corpus)
    recordings |= probe(corpus.root, [path for path in corpus.files if path not in recordings])
    write(store, corpus, recordings)
    return recordings


def known(store: Path, corpus: Corpus) -> dict[str, ProbeResult]:
    by_state = {state: ProbeResult(hash, seconds) for state, hash, seconds in ProbeCache(store, corpus)}
    states = {path: corpus.files[path].packed for path in corpus.files}
    return {path: by_state[state] for path, state in states.items() if state in by_state}


def write(store: Path, corpus: Corpus, recordings: dict[str, ProbeResult]) -> None:
    ProbeCache(store, corpus).write(
        (corpus.files[path].packed, recording.hash, recording.seconds) for path, recording in recordings.items()
    )


def test_only_changed_files_are_probed_again(corpus: Path, record: Record, read: list[str], tmp_path: Path) -> None:
    for name in "abc":
        record(f"{name}.wav")
    before = found(tmp_path / "store", corpus)
    read.clear()
    record("b.wav")
    record("d.wav")
    (corpus / "c.wav").unlink()
    after = found(tmp_path / "store", corpus)
    assert sorted(read) == ["b.wav", "d.wav"]
    assert after["a.wav"] == before["a.wav"]
    assert after == probe(corpus, after)
    assert before["a.wav"].seconds == 0.5


def test_a_change_that_puts_size_and_time_back_is_seen(corpus: Path, record: Record, tmp_path: Path) -> None:
    file = record("a.wav")
    before = found(tmp_path / "store", corpus)
    content, times = bytearray(file.read_bytes()), file.stat()
    content[-1] ^= 1
    time.sleep(0.02)  # the clock of a file system moves every few milliseconds
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert found(tmp_path / "store", corpus)["a.wav"].hash != before["a.wav"].hash


def test_a_file_touched_a_moment_ago_or_by_a_clock_ahead_is_not_remembered(
    corpus: Path, record: Record, read: list[str], tmp_path: Path
) -> None:
    record("a.wav")
    hour = 3600 * 10**9
    for listed in (0, -hour):  # the second: as where the clock was put back after the file was written
        listing = Corpus(corpus)
        listing.listed_at += listed
        write(tmp_path / "store", listing, probe(corpus, ["a.wav"]))
        assert known(tmp_path / "store", Corpus(corpus)) == {}
    listing = Corpus(corpus)
    listing.listed_at += hour
    write(tmp_path / "store", listing, probe(corpus, ["a.wav"]))
    assert known(tmp_path / "store", Corpus(corpus)) == probe(corpus, ["a.wav"])


def test_a_corpus_that_was_moved_is_not_read_again_and_one_that_was_copied_is(
    corpus: Path, record: Record, read: list[str], tmp_path: Path
) -> None:
    record("a/1.wav")
    before = found(tmp_path / "store", corpus)
    read.clear()
    moved = corpus.rename(tmp_path / "elsewhere")
    assert found(tmp_path / "store", moved) == before
    assert read == []
    shutil.copytree(moved, tmp_path / "copy")
    assert found(tmp_path / "store", tmp_path / "copy") == before
    assert read == ["1.wav"]


def test_files_of_a_damaged_cache_are_probed_again(
    corpus: Path, record: Record, read: list[str], tmp_path: Path
) -> None:
    record("a.wav")
    before = found(tmp_path / "store", corpus)
    (memory,) = (tmp_path / "store/probes").iterdir()
    whole = memory.read_bytes()
    for damaged in (b"", whole[:-1], whole[:-30] + b"\1" + whole[-29:], b"other" + whole):
        memory.write_bytes(damaged)
        read.clear()
        assert found(tmp_path / "store", corpus) == before
        assert read == ["a.wav"]


def test_concurrent_runs_leave_one_whole_cache(corpus: Path, record: Record, tmp_path: Path) -> None:
    for number in range(20):
        record(f"{number}.wav")
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(found(tmp_path / "store", corpus))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = probe(corpus, list(Corpus(corpus).files))
    assert all(result == expected for result in results)
    assert len(results) == 4
    assert known(tmp_path / "store", Corpus(corpus)) == expected
    assert len(list((tmp_path / "store/probes").iterdir())) == 1


@pytest.mark.parametrize("name", FileState._fields)
def test_each_thing_that_a_file_is_known_by_counts(corpus: Path, record: Record, tmp_path: Path, name: str) -> None:
    record("a.wav")
    listing = Corpus(corpus)
    listing.listed_at += 3600 * 10**9
    write(tmp_path / "store", listing, probe(corpus, ["a.wav"]))
    assert list(known(tmp_path / "store", Corpus(corpus))) == ["a.wav"]
    state = unpack_state(listing.files["a.wav"].packed)
    other = state._replace(**{name: getattr(state, name) + 1})
    touched = Corpus(corpus)
    touched.files = FileIndex([(b"a.wav", REGULAR, other.packed())])
    assert known(tmp_path / "store", touched) == {}


def test_what_a_killed_run_left_half_written_goes_after_a_day(corpus: Path, record: Record, tmp_path: Path) -> None:
    record("a.wav")
    old, fresh = (tmp_path / "store" / "probes" / f".ab.{name}.part" for name in ("old", "fresh"))
    old.parent.mkdir(parents=True)
    for file in (old, fresh):
        file.write_bytes(b"half")
    os.utime(old, (time.time() - 2 * ABANDONED_SECONDS,) * 2)
    found(tmp_path / "store", corpus)
    assert (old.exists(), fresh.exists()) == (False, True)


def test_an_update_gives_what_writing_all_probes_gives(corpus: Path, record: Record, tmp_path: Path) -> None:
    for name in "abcd":
        record(f"{name}.wav")
    found(tmp_path / "updated", corpus)
    before = {path: Corpus(corpus).files[path].packed for path in ("b.wav", "c.wav")}
    record("b.wav", seconds=0.4)
    (corpus / "c.wav").unlink()
    found(tmp_path / "written", corpus)

    changed = Corpus(corpus)
    changed.listed_at += 3600 * 10**9
    again = probe(changed.root, ["b.wav"])["b.wav"]
    state = changed.files["b.wav"].packed
    ProbeCache(tmp_path / "updated", changed).update(set(before.values()), [(state, again.hash, again.seconds)])
    [updated], [written] = ([*(tmp_path / name / "probes").iterdir()] for name in ("updated", "written"))
    assert updated.read_bytes() == written.read_bytes()

    updated.write_bytes(updated.read_bytes()[:-1])  # damaged: it says nothing of the others
    ProbeCache(tmp_path / "updated", changed).update(set(), [(state, again.hash, again.seconds)])
    assert known(tmp_path / "updated", changed) == {"b.wav": again}

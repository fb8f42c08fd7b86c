"""Large corpora: memory stays flat, and the fast paths give what the slow ones do."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.listed import write_lines
from voxline.components.ingest.file_index import REGULAR, FileIndex, FileState
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.staging import ProbedUtterance, StagingTable
from voxline.components.ingest.step import _to_utterance, run
from voxline.data.manifest import Utterance
from voxline.errors import WorkError

Record = Callable[..., Path]
ROOT = Path(__file__).parents[2]

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NAME = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8)
PATH = st.lists(NAME.filter(lambda name: name not in (".", "..")), min_size=1, max_size=3).map("/".join)
SECONDS = st.just(0.0) | st.floats(0, 1e6)
STATE = st.builds(FileState, *[st.integers(0, 3)] * 5)


def probed(id: str, path: str, **others: Any) -> ProbedUtterance:
    defaults = {"offset": 0.0, "duration": 0.0, "text": "", "speaker": "", "split": "", "source": "", "extra": ""}
    return ProbedUtterance(
        **{"id": id, "path": path, "hash": "ab", "seconds": 0.0, "fault": None, **defaults, **others}
    )


@given(TEXT, PATH, TEXT, TEXT, SECONDS, SECONDS, st.dictionaries(TEXT.map("x{}".format), TEXT | SECONDS, max_size=2))
@pytest.mark.parametrize("root", ["/data/corpus", "/store/ingest/key", "/store", ""])
def test_an_utterance_has_the_values_of_its_entry(
    root: str, id: str, path: str, text: str, speaker: str, offset: float, duration: float, extra: dict[str, Any]
) -> None:
    encoded = json.dumps(extra, ensure_ascii=False) if extra else ""
    entry = probed(id, path, offset=offset, duration=duration, text=text, speaker=speaker, extra=encoded)
    expected = Utterance(id, f"{root}/{path}", duration, text, speaker, "dev", "ab", offset, extra=extra)
    assert _to_utterance(root, entry, "dev") == expected


@given(st.dictionaries(PATH, STATE, max_size=8), st.lists(PATH, max_size=8), st.randoms())
def test_files_are_found_in_any_order_of_lookups(files: dict[str, FileState], others: list[str], random: Any) -> None:
    found = FileIndex((os.fsencode(path), REGULAR, state.packed()) for path, state in files.items())
    assert sorted(found, key=os.fsencode) == list(found) == sorted(files, key=os.fsencode)
    for looked_up in ([*sorted(files), *others], random.sample([*files, *others] * 2, 2 * len([*files, *others]))):
        for path in looked_up:
            file = found.get(path)
            assert (file.packed if file else None) == (files[path].packed() if path in files else None)
    assert found.get("half a pair \ud800") is None


@given(st.dictionaries(PATH, st.tuples(st.integers(0, 3), STATE), max_size=8), st.sets(PATH, max_size=8))
def test_a_listing_says_the_same_in_memory_and_in_its_database(
    files: dict[str, tuple[int, FileState]], others: set[str]
) -> None:
    def listed() -> FileIndex:
        return FileIndex((os.fsencode(path), kind, state.packed()) for path, (kind, state) in files.items())

    def says(index: FileIndex) -> Any:
        digests = [index.digest(times=times) for times in (True, False)]
        return len(index), list(index), list(index.blocks()), digests, index.has_added, index.added_digest("")

    in_memory = listed()
    in_database = listed()
    assert in_database.database
    assert says(in_memory) == says(in_database)
    some = {os.fsencode(path) for path in others}
    assert list(in_memory.only(some).paths()) == sorted(some & {os.fsencode(path) for path in files})


@given(st.lists(STATE, max_size=12), st.sets(STATE, max_size=12))
def test_a_cached_probe_is_used_for_every_file_in_its_state_and_no_other(
    files: list[FileState], known: set[FileState]
) -> None:
    found = FileIndex((b"%02d" % number, REGULAR, state.packed()) for number, state in enumerate(files))
    table = StagingTable(found)
    remembered = [(state.packed(), f"{number:032x}", float(number)) for number, state in enumerate(known)]
    assert table.add_cached_probes(sorted(remembered)) == (sum(state in known for state in files), 0)
    expected = sorted(one for one in remembered for state in files if state.packed() == one[0])
    assert list(table.probes()) == expected


def test_memory_does_not_grow_with_the_utterances(corpus: Path, record: Record, tmp_path: Path) -> None:
    record("a.wav")
    peaks = []
    for count in (500, 40_000):
        ids = (f"u{count - number:06}" for number in range(count))
        write_lines(corpus / "train.jsonl", *({"id": id, "audio_filepath": "a.wav", "text": "x" * 40} for id in ids))
        code = (
            "import re, sys\n"
            "from voxline.components.ingest.settings import CorpusSettings\n"
            "from voxline.components.ingest.step import run\n"
            "run(sys.argv[1], CorpusSettings.of({'uri': sys.argv[2], 'format': 'manifest'}))\n"
            "print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])"
        )
        command = [sys.executable, "-c", code, str(tmp_path / f"store {count}"), str(corpus)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]) / 1024)
    assert peaks[1] - peaks[0] < 8  # megabytes; a hundred bytes of each utterance were four


def test_a_full_disk_says_how_to_make_room(corpus: Path, record: Record, tmp_path: Path) -> None:
    """No file may be larger than a megabyte, and the database that outgrows its memory would be."""
    record("a.wav")
    write_lines(corpus / "train.jsonl", *({"audio_filepath": "a.wav", "text": "x" * 9_000} for _ in range(400)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(WorkError, match=r"make room in .*SQLITE_TMPDIR"):
            run(tmp_path / "store", CorpusSettings(uri=str(corpus), format="manifest"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not any((tmp_path / "store").rglob("done.json"))


def test_a_text_that_is_not_utf8_far_from_its_beginning_names_the_byte(
    corpus: Path, record: Record, tmp_path: Path
) -> None:
    record("a.wav")
    good = json.dumps({"audio_filepath": "a.wav", "text": "x"}).encode() + b"\n"
    (corpus / "train.jsonl").write_bytes(good * 1_000 + b"caf\xe9\n")
    with pytest.raises(WorkError, match=rf"not UTF-8 \(byte {len(good) * 1_000 + 3}\)"):
        run(tmp_path / "store", CorpusSettings(uri=str(corpus), format="manifest"))

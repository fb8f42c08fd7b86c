"""A corpus that is edited and refreshed repeatedly: the dataset equals that of a fresh extraction."""

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extract.conftest import WORDS, write_wav
from tests.waiting import PATIENCE_SECONDS
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.data.dataset import Dataset
from voxline.data.manifest import Utterance, write_manifest
from voxline.data.record_locations import RecordLocations
from voxline.store.hashing import hash_file
from voxline.training.batches import Batches

HOW = ExtractSettings.of({"features": {"mels": 8, "hop_seconds": 0.02}, "speeds": [0.9, 1.0], "shard_megabytes": 0.002})
"""About four recordings a shard."""

RECORDINGS = 16
SPLITS = ("train", "train", "train", "dev")


@dataclasses.dataclass(frozen=True)
class Line:
    """An utterance of the corpus, which edits may change."""

    recording: int
    text: int = 0
    speaker: int = 0
    split: int = 0


EDITS = st.lists(
    st.dictionaries(
        st.integers(0, 11),
        st.none()
        | st.builds(Line, st.integers(0, RECORDINGS - 1), st.integers(0, 9), st.integers(0, 2), st.integers(0, 3)),
        max_size=5,
    ),
    min_size=1,
    max_size=4,
)
"""Of each refresh: the new utterances by number; None: removed."""


@pytest.fixture(scope="module")
def wavs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, float, str]]:
    folder = tmp_path_factory.mktemp("wavs")
    random = np.random.default_rng(0)
    found = []
    for number in range(RECORDINGS):
        samples = int(random.integers(2_000, 6_000))
        path = write_wav(folder / f"{number}.wav", random.standard_normal(samples) / 10)
        found.append((path, samples / 16_000, hash_file(path)))
    return found


def manifest(folder: Path, corpus: dict[int, Line], wavs: list[tuple[Path, float, str]]) -> Path:
    utterances = []
    for number, line in corpus.items():
        path, seconds, named = wavs[line.recording]
        text, speaker = WORDS[line.text], f"s{line.speaker}"
        utterances.append(Utterance(f"u{number:02}", str(path), seconds, text, speaker, SPLITS[line.split], named))
    write_manifest(folder / "manifest.jsonl", utterances)
    return folder


def content(folder: Path) -> dict[str, object]:
    """All that training can learn of a dataset."""
    dataset = Dataset.read(folder)
    batches = {}
    for split in dataset.counts:
        found = Batches(dataset, split, batch_size=3, shuffled=True, length_noise=0.2, seed=1)
        batches[split] = [
            (batch.ids, batch.texts, batch.features.tobytes(), batch.labels.tolist(), batch.frames.tolist())
            for epoch in (0, 1)
            for batch in found.epoch(epoch)
        ]
    return {
        "key": dataset.key,
        "rows": list(dataset.rows()),
        "mean": dataset.mean,
        "deviation": dataset.deviation,
        "counts": dataset.counts,
        "seconds": dataset.seconds,
        "batches": batches,
    }


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(first=st.integers(4, 12), edits=EDITS, compacted=st.booleans())
def test_refreshes_after_any_edits_equal_a_fresh_extraction(
    wavs: list[tuple[Path, float, str]], first: int, edits: list[dict[int, Line | None]], compacted: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus: dict[int, Line] = {number: Line(number) for number in range(first)}
        for edit in [{}, *edits]:
            corpus |= {number: line for number, line in edit.items() if line}
            for number in [number for number, line in edit.items() if line is None]:
                corpus.pop(number, None)
            corpus = corpus or {0: Line(0)}
            work = run(manifest(folder / "corpus", corpus, wavs), folder / "store", HOW)
            how = PublishSettings(compact_below=0.9 if compacted else 0.0)
            version = publish(work.folder, folder / "store", folder / "datasets", how).folder
        fresh = run(manifest(folder / "corpus", corpus, wavs), folder / "fresh", HOW)
        expected = content(fresh.folder)
        assert content(work.folder) == expected
        assert content(version) == expected


def test_only_what_is_new_to_the_store_is_extracted(wavs: list[tuple[Path, float, str]], tmp_path: Path) -> None:
    def extracted(corpus: dict[int, Line]) -> int:
        return run(manifest(tmp_path / "corpus", corpus, wavs), tmp_path / "store", HOW).counts["extracted"]

    corpus = {number: Line(number) for number in range(8)}
    assert extracted(corpus) == 16
    others = {number: dataclasses.replace(line, text=3, speaker=2) for number, line in corpus.items()}
    assert extracted(others) == 0
    assert extracted({number + 20: line for number, line in corpus.items()}) == 0
    assert extracted({**corpus, 0: Line(9)}) == 2
    assert extracted({**corpus, 0: Line(10, split=3)}) == 1  # no copies of what is not trained on
    assert extracted({**corpus, 0: Line(10)}) == 1
    del corpus[3]
    assert extracted(corpus) == 0


def test_a_removed_speaker_is_in_no_row_and_no_location(wavs: list[tuple[Path, float, str]], tmp_path: Path) -> None:
    corpus = {number: Line(number, speaker=number % 2) for number in range(10)}
    before = run(manifest(tmp_path / "corpus", corpus, wavs), tmp_path / "store", HOW)
    left = {number: line for number, line in corpus.items() if line.speaker == 0}
    after = run(manifest(tmp_path / "corpus", left, wavs), tmp_path / "store", HOW)
    dataset, whole = Dataset.read(after.folder), Dataset.read(before.folder)
    assert {row.speaker for row in dataset.rows()} == {"s0"}
    assert "s1" not in (dataset.folder / "rows.jsonl").read_text()
    removed = [row.number for row in whole.rows() if row.speaker == "s1"]
    gone = records(whole, whole.read_record_locations()[removed])
    asked = records(dataset, dataset.read_record_locations())
    assert len(gone) == len(asked) == 10
    assert not gone & asked


def records(dataset: Dataset, locations: RecordLocations) -> set[tuple[str, int]]:
    """(checksum of the shard, offset) of each record."""
    return {(dataset.shards[shard].checksum, offset) for shard, offset, _, _ in locations.ravel().tolist()}


def test_statistics_do_not_depend_on_earlier_edits(wavs: list[tuple[Path, float, str]], tmp_path: Path) -> None:
    corpus = {number: Line(number) for number in range(RECORDINGS)}
    for number in range(RECORDINGS):
        part = {other: line for other, line in corpus.items() if other != number}
        run(manifest(tmp_path / "corpus", part, wavs), tmp_path / "store", HOW)
    edited = Dataset.read(run(manifest(tmp_path / "corpus", corpus, wavs), tmp_path / "store", HOW).folder)
    fresh = Dataset.read(run(manifest(tmp_path / "corpus", corpus, wavs), tmp_path / "fresh", HOW).folder)
    assert len(edited.shards) != len(fresh.shards)
    assert (edited.mean, edited.deviation) == (fresh.mean, fresh.deviation)


@pytest.mark.slow
def test_a_run_killed_at_any_write_and_started_again_ends_the_same(
    wavs: list[tuple[Path, float, str]], tmp_path: Path
) -> None:
    corpus = {number: Line(number, split=number % 4) for number in range(6)}
    source = manifest(tmp_path / "corpus", corpus, wavs)
    run(source, tmp_path / "fresh", HOW)
    expected = whole_files(tmp_path / "fresh")
    for at in range(1, 200):
        store = tmp_path / f"store-{at}"
        killed = child_killed_at_write(at, source, store)
        run(source, store, HOW)
        assert whole_files(store) == expected, f"killed at write {at}"
        if not killed:
            break
    assert 20 < at < 200


def whole_files(store: Path) -> dict[str, bytes]:
    """All files of a store, without times, locks and hidden files."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file() and path.name != "done.json" and path.suffix != ".lock" and "/." not in str(path)
    }


def child_killed_at_write(at: int, source: Path, store: Path) -> bool:
    """Extracts in a process that dies before its n-th fsync or rename."""
    child = os.fork()
    if child == 0:
        try:
            count = 0

            def counted(call: Any) -> Any:
                def before(*arguments: Any) -> Any:
                    nonlocal count
                    count += 1
                    if count == at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return call(*arguments)

                return before

            os.fsync, os.replace = counted(os.fsync), counted(os.replace)
            Path.rename = counted(Path.rename)  # type: ignore[method-assign]
            run(source, store, HOW)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.slow
def test_concurrent_refreshes_are_each_correct(wavs: list[tuple[Path, float, str]], tmp_path: Path) -> None:
    parts = [range(0, 9), range(4, 13), range(7, 16)]
    sources = []
    for number, part in enumerate(parts):
        sources.append(manifest(tmp_path / f"corpus-{number}", {one: Line(one) for one in part}, wavs))
    script = (
        "import sys; from voxline.components.extract.step import run; "
        "from voxline.components.extract.settings import ExtractSettings;"
        "run(sys.argv[1], sys.argv[2], ExtractSettings.of(sys.argv[3]))"
    )
    stores = [tmp_path / "store", HOW.model_dump_json()]
    running = [subprocess.Popen([sys.executable, "-c", script, source, *stores]) for source in sources]
    assert [process.wait(PATIENCE_SECONDS) for process in running] == [0, 0, 0]
    for source in sources:
        work, fresh = run(source, tmp_path / "store", HOW), run(source, tmp_path / "fresh", HOW)
        assert work.reused
        assert content(work.folder) == content(fresh.folder)
    everything = manifest(tmp_path / "corpus", {one: Line(one) for one in range(16)}, wavs)
    assert run(everything, tmp_path / "store", HOW).counts["extracted"] == 0

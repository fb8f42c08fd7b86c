"""Entries and lines of unchanged tables are those of the last run, and the result is that of a run without them."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.extract.conftest import write_wav
from tests.ingest.listed import write, write_lines
from voxline.components.ingest import entry_cache, step
from voxline.components.ingest.audio_probe import ProbeResult, probe
from voxline.components.ingest.corpora import load_format
from voxline.components.ingest.entry_cache import KeptLines
from voxline.components.ingest.settings import CorporaSettings, CorpusSettings
from voxline.components.ingest.staging import resolve_entries
from voxline.data.line_cache import LineCache, write_line_cache
from voxline.store.step_cache import StepOutput

Ingest = Callable[..., StepOutput]
MERGE = KeptLines.merge


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An item for each corpus whose tables were read. A table counts as soon as it is written."""
    corpora: list[str] = []

    def note(*arguments: Any) -> None:
        corpora.append("read")
        resolve_entries(*arguments)

    monkeypatch.setattr(step, "resolve_entries", note)
    monkeypatch.setattr(entry_cache, "RACY_SECONDS", 0.0)
    return corpora


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A corpus of a manifest with a line that is rejected, and one of another offset."""
    folder = tmp_path / "corpus"
    for number in range(8):
        speak(folder, number, 4_000 + number)
    lines = [line(number) for number in (3, 1, 2, 0, 4, 5)]
    broken = {**line(6), "text": 7}
    part = {**line(7), "id": "part é", "offset": 0.125, "duration": 0.0625, "accent": "us", "snr": 1e-7}
    write_lines(folder / "train.jsonl", *lines, broken, part, line(1))
    return folder


def line(number: int) -> dict[str, Any]:
    speaker = "anna" if number % 2 else "bo"
    return {"id": f"u{number}", "audio_filepath": f"{number}.wav", "text": "Zwölf  Boxkämpfer", "speaker": speaker}


def speak(folder: Path, number: int, samples: int) -> None:
    write_wav(folder / f"{number}.wav", np.random.default_rng(samples).standard_normal(samples) / 10)


def ingest(corpus: Path, store: Path, **settings: Any) -> dict[str, str]:
    """What ingest writes: its two files, and its counts."""
    how = {"uri": str(corpus), "format": "manifest", "split": {"by": "utterance", "dev": 0.2, "test": 0.2}}
    output = step.run(store, CorpusSettings.of({**how, "max_reject_share": 0.9, **settings}))
    texts = {name: (output.folder / name).read_text(encoding="utf-8") for name in ("manifest.jsonl", "rejects.jsonl")}
    return {**texts, "counts": json.dumps(output.counts)}


def test_a_new_recording_reads_no_table(recorded: Path, tmp_path: Path, resolved: list[str]) -> None:
    before = ingest(recorded, tmp_path / "store")
    speak(recorded, 2, 7_000)
    again = ingest(recorded, tmp_path / "store")
    assert resolved == ["read"]

    # The same as without anything that an earlier run left: durations, hashes, splits, rejects and their order.
    assert again == ingest(recorded, tmp_path / "other")
    assert resolved == ["read"] * 2
    assert again != before
    assert "train.jsonl:9" in again["rejects.jsonl"]  # the repeated id


def test_a_recording_that_became_shorter_than_its_line_is_rejected(
    recorded: Path, tmp_path: Path, resolved: list[str]
) -> None:
    ingest(recorded, tmp_path / "store")
    speak(recorded, 7, 1_000)
    assert "truncated" in ingest(recorded, tmp_path / "store")["rejects.jsonl"]
    speak(recorded, 7, 5_000)
    assert "truncated" not in ingest(recorded, tmp_path / "store")["rejects.jsonl"]
    assert resolved == ["read"]


def _table(corpus: Path) -> None:
    text = (corpus / "train.jsonl").read_text()
    status = (corpus / "train.jsonl").stat()
    (corpus / "train.jsonl").write_text(text.replace("Zw", "zw"))  # as long as before, and as old
    os.utime(corpus / "train.jsonl", ns=(status.st_atime_ns, status.st_mtime_ns))


def _new_table(corpus: Path) -> None:
    write_lines(corpus / "more.jsonl", {**line(5), "id": "new"})


def _new_recording(corpus: Path) -> None:
    speak(corpus, 9, 5_000)


def _no_recording(corpus: Path) -> None:
    (corpus / "3.wav").unlink()


def _link(corpus: Path) -> None:
    (corpus / "3.wav").rename(corpus / "of-3.wav")
    (corpus / "3.wav").symlink_to("of-3.wav")


@pytest.mark.parametrize("change", [_table, _new_table, _new_recording, _no_recording, _link])
def test_any_other_change_reads_the_tables(
    recorded: Path, tmp_path: Path, resolved: list[str], change: Callable[[Path], None]
) -> None:
    ingest(recorded, tmp_path / "store")
    change(recorded)
    assert ingest(recorded, tmp_path / "store") == ingest(recorded, tmp_path / "other")
    assert resolved == ["read"] * 3


def test_other_settings_have_other_entries(recorded: Path, tmp_path: Path, resolved: list[str]) -> None:
    ingest(recorded, tmp_path / "store")
    changed = ingest(recorded, tmp_path / "store", columns={"speaker": "text"})
    assert changed == ingest(recorded, tmp_path / "other", columns={"speaker": "text"})
    assert resolved == ["read"] * 3


def test_a_recording_that_was_searched_for_may_be_elsewhere_next_time(
    recorded: Path, tmp_path: Path, resolved: list[str]
) -> None:
    write_lines(recorded / "more.jsonl", {**line(5), "id": "spelled", "audio_filepath": "./5.WAV"})
    ingest(recorded, tmp_path / "store")
    speak(recorded, 2, 7_000)
    ingest(recorded, tmp_path / "store")
    assert resolved == ["read"] * 2


def test_a_corpus_with_a_link_is_read_each_time(recorded: Path, tmp_path: Path, resolved: list[str]) -> None:
    _link(recorded)
    ingest(recorded, tmp_path / "store")
    speak(recorded, 2, 7_000)
    ingest(recorded, tmp_path / "store")
    assert resolved == ["read"] * 2


def test_a_table_that_was_just_written_may_change_again(
    recorded: Path, tmp_path: Path, resolved: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_cache, "RACY_SECONDS", 3_600.0)
    ingest(recorded, tmp_path / "store")
    speak(recorded, 2, 7_000)
    ingest(recorded, tmp_path / "store")
    assert resolved == ["read"] * 2


def test_a_damaged_cache_is_ignored(recorded: Path, tmp_path: Path, resolved: list[str]) -> None:
    ingest(recorded, tmp_path / "store")
    [cache] = (tmp_path / "store" / "lines").glob("ingest-*")
    cache.write_bytes(cache.read_bytes().replace(b"Boxk", b"boxk"))
    speak(recorded, 2, 7_000)
    assert ingest(recorded, tmp_path / "store") == ingest(recorded, tmp_path / "other")
    assert resolved == ["read"] * 3


def test_a_format_of_another_package_may_read_recordings(
    recorded: Path, tmp_path: Path, resolved: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_entries = load_format("manifest")
    monkeypatch.setattr(step, "load_format", lambda name: lambda corpus: read_entries(corpus))
    ingest(recorded, tmp_path / "store")
    speak(recorded, 2, 7_000)
    ingest(recorded, tmp_path / "store")
    assert resolved == ["read"] * 2
    assert not (tmp_path / "store" / "lines").exists()


def test_formats_that_are_cached_open_no_recording() -> None:
    folder = Path(str(entry_cache.__file__)).parent / "corpora"
    for name in entry_cache._TABLES_ALONE:
        source = (folder / f"{name}.py").read_text(encoding="utf-8").replace("voxline.audio.containers", "")
        assert "voxline.audio" not in source, name
        assert "soundfile" not in source, name


def test_tables_in_folders_keep_the_order_of_the_corpus(tmp_path: Path, resolved: list[str]) -> None:
    corpus = tmp_path / "corpus"
    for number in range(3):
        speak(corpus / "wavs", number, 4_000)
    write(corpus / "metadata.csv", "0|One.|one\n1|Two.|two\n2|Three.|three\n")
    ljspeech = {"format": "ljspeech"}
    ingest(corpus, tmp_path / "store", **ljspeech)
    speak(corpus / "wavs", 1, 5_000)
    assert ingest(corpus, tmp_path / "store", **ljspeech) == ingest(corpus, tmp_path / "other", **ljspeech)
    assert resolved == ["read"] * 2


def test_a_recording_of_another_size_than_its_table_says_is_rejected(
    recorded: Path, tmp_path: Path, resolved: list[str]
) -> None:
    sizes = {name: (recorded / f"{name}.wav").stat().st_size for name in (1, 2, 3)}
    rows = [f"{name}.wav,{size},words" for name, size in sizes.items()]
    write(recorded / "train.csv", "\n".join(["wav_filename,wav_filesize,transcript", *rows]) + "\n")
    assert "truncated" not in ingest(recorded, tmp_path / "store", format="csv")["rejects.jsonl"]
    speak(recorded, 2, 2_000)
    assert "truncated" in ingest(recorded, tmp_path / "store", format="csv")["rejects.jsonl"]
    speak(recorded, 2, 4_002)
    assert "truncated" not in ingest(recorded, tmp_path / "store", format="csv")["rejects.jsonl"]


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The recordings that were read."""
    read: list[str] = []

    def note(root: Path, paths: Any, *arguments: Any) -> dict[str, ProbeResult]:
        read.extend(paths)
        return probe(root, paths, *arguments)

    monkeypatch.setattr(step, "probe", note)
    return read


def kept_lines(store: Path) -> Path:
    [file] = (store / "lines").glob("ingest_lines-*")
    return file


def mark_kept(store: Path, said: str = "Zwölf") -> None:
    """Marks the lines that are kept: one that comes from there has it again, one that is written again has not."""
    file = kept_lines(store)
    with LineCache(file) as cache, write_line_cache(file) as writer:
        writer.about = cache.about
        for entry in cache:
            writer.copy(entry.raw.replace(said.encode(), f"kept {said}".encode()))


def lines_of(result: dict[str, str]) -> list[dict[str, Any]]:
    return [json.loads(text) for text in result["manifest.jsonl"].splitlines()]


def test_only_lines_of_changed_recordings_are_written_again(
    recorded: Path, tmp_path: Path, resolved: list[str], probed: list[str]
) -> None:
    ingest(recorded, tmp_path / "store")
    mark_kept(tmp_path / "store")
    probed.clear()
    speak(recorded, 2, 7_000)
    again = ingest(recorded, tmp_path / "store")
    assert probed == ["2.wav"]
    assert [line["id"] for line in lines_of(again) if not line["text"].startswith("kept")] == ["u2"]
    assert {**again, "manifest.jsonl": again["manifest.jsonl"].replace("kept ", "")} == ingest(
        recorded, tmp_path / "other"
    )
    assert resolved == ["read"] * 2


def test_many_nights_give_what_a_first_run_gives(
    recorded: Path, tmp_path: Path, resolved: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small batches, so that lines leave them, come back between two of them, and come first and last; in some nights
    # lines leave a batch while others come back to it.
    monkeypatch.setattr(entry_cache, "_LINES_BATCH", 3)
    monkeypatch.setattr(entry_cache, "_MOST_CHANGED", 0.6)
    random = np.random.default_rng(4)
    recordings = 16
    # Parts of recordings, rejected where the recording is shorter.
    parts = [
        {**line(number), "id": f"part {number}.{start}", "offset": start / 8, "duration": 0.0625}
        for number in range(recordings)
        for start in (1, 2)
    ]
    for number in range(recordings):
        speak(recorded, number, 6_000)
    write_lines(recorded / "train.jsonl", *parts)
    ingest(recorded, tmp_path / "store")
    merges = []

    def merge(kept: KeptLines, *arguments: Any) -> Any:
        merges.append(kept)
        return MERGE(kept, *arguments)

    monkeypatch.setattr(KeptLines, "merge", merge)
    reject_counts = set()
    nights = 24
    for night in range(nights):
        for number in random.choice(recordings, random.integers(1, 9), replace=False).tolist():
            speak(recorded, number, int(random.choice([500, 2_500, 4_000, 6_000])) + night)
        result = ingest(recorded, tmp_path / "store")
        assert result == ingest(recorded, tmp_path / f"fresh-{night}")
        reject_counts.add(result["rejects.jsonl"].count("truncated"))
    assert len(reject_counts) > 4
    # The first run and each fresh one read the tables, and one after a night that left a split empty.
    assert len(resolved) + len(merges) == 1 + 2 * nights
    assert len(merges) > nights / 2


def test_what_the_settings_leave_out_stays_out(recorded: Path, tmp_path: Path, resolved: list[str]) -> None:
    write_lines(recorded / "spare.jsonl", {**line(2), "id": "spare"}, {**line(3), "id": "spare 3"})
    how: dict[str, Any] = {"splits": {"train": ["train"], "leave_out": ["*"]}}
    assert '"left_out": 2' in ingest(recorded, tmp_path / "store", **how)["counts"]
    speak(recorded, 2, 7_000)
    result = ingest(recorded, tmp_path / "store", **how)
    assert result == ingest(recorded, tmp_path / "other", **how)
    assert '"left_out": 2' in result["counts"]
    assert resolved == ["read"] * 2


def test_a_recording_that_could_not_be_read_is_read_again(
    recorded: Path, tmp_path: Path, resolved: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(root: Path, paths: Any, *arguments: Any) -> dict[str, ProbeResult]:
        return probe(root, paths, *arguments) | {
            path: ProbeResult("", 0.0, "Input/output error") for path in paths if path == "4.wav"
        }

    with monkeypatch.context() as patched:
        patched.setattr(step, "probe", fail)
        assert "Input/output error" in ingest(recorded, tmp_path / "store")["rejects.jsonl"]
    speak(recorded, 2, 7_000)
    assert ingest(recorded, tmp_path / "store") == ingest(recorded, tmp_path / "other")
    assert resolved == ["read"] * 2


def test_a_recording_that_changed_just_before_the_listing_is_read_again(
    recorded: Path, tmp_path: Path, resolved: list[str], probed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    time.sleep(0.6)
    speak(recorded, 4, 6_500)
    with monkeypatch.context() as patched:
        patched.setattr(entry_cache, "RACY_SECONDS", 0.5)
        ingest(recorded, tmp_path / "store")
    probed.clear()
    speak(recorded, 2, 7_000)
    ingest(recorded, tmp_path / "store")
    assert sorted(probed) == ["2.wav", "4.wav"]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut short": lambda cache: cache.write_bytes(cache.read_bytes()[:-1]),
    "altered": lambda cache: cache.write_bytes(cache.read_bytes().replace(b"kept", b"kepT")),
    "empty": lambda cache: cache.write_bytes(b""),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_lines_are_not_used(recorded: Path, tmp_path: Path, resolved: list[str], damage: str) -> None:
    ingest(recorded, tmp_path / "store")
    mark_kept(tmp_path / "store")
    DAMAGES[damage](kept_lines(tmp_path / "store"))
    speak(recorded, 2, 7_000)
    assert ingest(recorded, tmp_path / "store") == ingest(recorded, tmp_path / "other")


def test_lines_of_a_store_that_was_moved_are_not_used(recorded: Path, tmp_path: Path, resolved: list[str]) -> None:
    ingest(recorded, tmp_path / "store")
    mark_kept(tmp_path / "store")
    (tmp_path / "deeper").mkdir()
    shutil.move(tmp_path / "store", tmp_path / "deeper" / "store")
    speak(recorded, 2, 7_000)
    assert ingest(recorded, tmp_path / "deeper" / "store") == ingest(recorded, tmp_path / "deeper" / "other")


def test_where_many_recordings_changed_all_lines_are_written_again(
    recorded: Path, tmp_path: Path, resolved: list[str], probed: list[str]
) -> None:
    ingest(recorded, tmp_path / "store")
    mark_kept(tmp_path / "store")
    probed.clear()
    for number in range(5):
        speak(recorded, number, 7_000)
    assert ingest(recorded, tmp_path / "store") == ingest(recorded, tmp_path / "other")
    assert probed[:5] == [f"{number}.wav" for number in range(5)]
    assert resolved == ["read"] * 2


def test_a_run_that_ends_halfway_leaves_the_lines_of_the_run_before(
    recorded: Path, tmp_path: Path, resolved: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(recorded, tmp_path / "store")
    before = kept_lines(tmp_path / "store").read_bytes()
    speak(recorded, 2, 7_000)

    def killed(*_: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(step, "write_rejects", killed)
        with pytest.raises(KeyboardInterrupt):
            ingest(recorded, tmp_path / "store")
    assert kept_lines(tmp_path / "store").read_bytes() == before
    assert ingest(recorded, tmp_path / "store") == ingest(recorded, tmp_path / "other")


def test_each_of_several_corpora_keeps_its_lines(
    recorded: Path, tmp_path: Path, resolved: list[str], probed: list[str]
) -> None:
    shutil.copytree(recorded, tmp_path / "second")

    def merged(store: Path) -> str:
        how = {"format": "manifest", "split": {"by": "utterance", "dev": 0.2, "test": 0.2}, "max_reject_share": 0.9}
        corpora = {"first": {"uri": str(recorded), **how}, "second": {"uri": str(tmp_path / "second"), **how}}
        return (step.run(store, CorporaSettings.of({"corpora": corpora})).folder / "manifest.jsonl").read_text()

    merged(tmp_path / "store")
    probed.clear()
    speak(tmp_path / "second", 2, 7_000)
    again = merged(tmp_path / "store")
    assert probed == ["2.wav"]
    assert again == merged(tmp_path / "other")

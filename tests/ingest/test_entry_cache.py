"""The entries of unchanged tables are those of the last run, and the result is that of a run without them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.extract.conftest import write_wav
from tests.ingest.listed import write, write_lines
from voxline.components.ingest import entry_cache, step
from voxline.components.ingest.corpora import load_format
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.staging import resolve_entries
from voxline.store.step_cache import StepOutput

Ingest = Callable[..., StepOutput]


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

"""Tables and folders of others whose rows, fields and names mislead: nothing is taken for what it is not in silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Record = Callable[..., Path]
Ingest = Callable[..., Any]
Captured = pytest.CaptureFixture[str]


def write(corpus: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_bytes(text.encode())


def texts_by_id(ingested: Any) -> dict[str, str]:
    return {id: utterance.text for id, utterance in ingested.utterances.items()}


@pytest.mark.parametrize(
    ("recordings", "texts", "read", "rejected"),
    [
        ("ann/0 ann/1 bob/0 bob/1", "ann/0 bob/0 bob/1", "ann/0 bob/0 bob/1", "ann/1"),
        ("train/0 test/0", "train/0", "train/0", "test/0"),
        ("ann/0 ann/1 bob/1", "ann/0 bob/1", "ann/0 bob/1", "ann/1"),
        ("ann/0 ann/1", "ann/0 old/1", "ann/0", "ann/1"),
        ("wav/a/0 wav/a/1", "txt/a/0", "wav/a/0", "wav/a/1"),
    ],
)
def test_a_text_among_recordings_is_of_none_in_another_folder(
    recordings: str, texts: str, read: str, rejected: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    for name in recordings.split():
        record(f"{name}.wav")
    write(corpus, {f"{name}.txt": f"words of {name}" for name in texts.split()})
    out = ingest("text_files")
    assert texts_by_id(out) == {
        name: f"words of {name}" if name in texts.split() else "words of txt/a/0" for name in read.split()
    }
    assert out.rejects[f"{rejected}.wav"] == "transcript_missing"

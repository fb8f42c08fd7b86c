"""Files that are half written or half copied are made again or refused, and never trusted."""

import itertools
import threading
from pathlib import Path

import pytest

from tests.faults.steps import EXTRACT, STEPS, extract, fresh, make_corpus
from voxline.errors import WorkError

DAMAGE = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "a line short": lambda data: b"".join(data.splitlines(keepends=True)[:-1]),
    "other JSON": lambda data: b"[]\n",
}


@pytest.mark.parametrize("name", STEPS)
def test_any_file_of_the_store_may_be_damaged(name: str, tmp_path: Path) -> None:
    step, corpus, whole = STEPS[name], tmp_path / "corpus", tmp_path / "whole"
    make_corpus(corpus)
    whole.mkdir()
    step.prepare(corpus, whole)
    expected = [step.content(step.first(corpus, whole).folder)]
    expected.append(step.content(step.second(corpus, fresh(whole, tmp_path / "straight")).folder))
    files = [file.relative_to(whole) for file in sorted(whole.rglob("*")) if file.is_file() and file.stat().st_size]
    believed = []
    trials = (tmp_path / "trial" / str(number) for number in itertools.count())
    for file in files:
        for kind, damage in DAMAGE.items():
            if kind in ("a line short", "other JSON") and file.suffix not in (".json", ".jsonl"):
                continue
            trial = fresh(whole, next(trials))
            (trial / file).write_bytes(damage((trial / file).read_bytes()))
            try:
                found = [step.content(run(corpus, trial).folder) for run in (step.first, step.second)]
            except WorkError as error:
                if str(file.parent.name) not in str(error):
                    believed.append((str(file), kind, str(error)))
            except Exception as error:
                believed.append((str(file), kind, repr(error)))
            else:
                if found != expected:
                    believed.append((str(file), kind, "other content"))
    assert believed == []


def test_a_manifest_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    make_corpus(tmp_path / "corpus")
    manifest = tmp_path / "corpus" / "few" / "manifest.jsonl"
    whole = (tmp_path / "corpus" / "all" / "manifest.jsonl").read_bytes()
    growing = threading.Event()

    def write() -> None:
        while not growing.is_set():
            for end in range(1, 1 + whole.count(b"\n")):
                manifest.write_bytes(b"".join(whole.splitlines(keepends=True)[:end]))

    writer = threading.Thread(target=write)
    writer.start()
    refused = 0
    try:
        for _ in range(60):
            try:
                extract(manifest, tmp_path / "store", EXTRACT)
            except WorkError:
                refused += 1
    finally:
        growing.set()
        writer.join()
    assert refused
    for number, end in enumerate(range(1, 1 + whole.count(b"\n"))):
        manifest.write_bytes(b"".join(whole.splitlines(keepends=True)[:end]))
        made = extract(manifest, tmp_path / "store", EXTRACT)
        assert made.counts["utterances"] == number + 1

"""Files that are half written or half copied are made again or refused, and never trusted."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults.steps import EXTRACT, extract, make_corpus
from voxline.errors import WorkError


@pytest.mark.parametrize("name", ["convert", "extract", pytest.param("publish", marks=pytest.mark.slow)])
def test_any_file_of_the_store_may_be_damaged(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.damage", name, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3_000:]
    result = json.loads(done.stdout)
    assert result["tried"] > 10
    assert result["believed"] == []


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

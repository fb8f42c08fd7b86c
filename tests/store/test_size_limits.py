"""Hostile files are refused with little memory and time, whatever reads them; honest ones are read."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.store.hostile_files import CASES
from voxline.store.size_limits import (
    BoundedGzip,
    SizeLimitError,
    iter_bounded_lines,
    load_npy,
    load_npz,
    open_regular,
    read_bounded,
)

MESSAGES = {
    "yaml_entries": "3,000,003 bytes; at most 1,000,000",
    "yaml_entries_of_a_megabyte": "more than 10,000 values",
    "yaml_anchors": "more than 10,000 values",
    "yaml_scalar": "bytes; at most 1,000,000",
    "yaml_open_brackets": "nested too deeply",
    "yaml_nested_lists": "nested too deeply",
    "yaml_device": "/dev/zero: a device",
    "yaml_fifo": "yaml_fifo: a device, FIFO",
    "arpa_empty_orders": "n-grams of order 11; orders of 1 to 10",
    "arpa_counts": "n-grams, more than 45 bytes can hold",
    "arpa_line": "arpa_line:1: a line of more than 65,536 bytes",
    "arpa_gzip_line": "gz:5: a line of more than 65,536 bytes",
    "arpa_gzip_blank_lines": "line 1,005: more than 1,000 blank lines",
    "arpa_gzip_comments": "line 1,001: more than 1,000 lines before",
    "arpa_gzip_repeats": "line 6: the word 'a' is given twice",
    "gzip_lines": "bytes become more than",
    "arpa_fifo": "arpa_fifo: a device, FIFO",
    "npz_bomb": "arrays of 671,088,",
    "npz_header": "states 1,099,511,627,776 bytes",
    "npy_header": "states 4,398,046,511,104 bytes",
    "manifest_line": "manifest_line:1: a line of more than 4,194,304 bytes",
    "manifest_fifo": "no such manifest",
    "json_size": "2,147,483,648 bytes; at most 67,108,864",
    "json_depth": "nested too deeply",
    "json_device": "/dev/zero: a device",
    "tfrecord_length": "a record of 1,152,921,504,606,846,976 bytes",
    "tfrecord_length_that_wraps": "a record of 18,446,744,073,709,551,600 bytes",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What happened to each file, read in a process of its own with 512 MB."""
    command = [sys.executable, "-m", "tests.store.hostile_files", str(tmp_path_factory.mktemp("hostile"))]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_is_refused_before_it_takes_memory_or_time(outcomes: dict[str, Any], name: str) -> None:
    outcome = outcomes[name]
    assert outcome["status"] == 0, outcome
    assert outcome["error"] == "refused", outcome
    assert any(part in outcome["message"] for part in MESSAGES[name].split("|")), outcome
    assert len(outcome["message"]) < 1_000


def test_honest_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"one\ntwo")
    assert read_bounded(file, 7) == b"one\ntwo"
    with open_regular(file) as lines:
        assert list(iter_bounded_lines(lines, file, 4)) == [(1, b"one\n"), (2, b"two")]

    text = "".join(f"line {number}\n" for number in range(100_000)).encode()
    file.write_bytes(gzip.compress(text))
    with BoundedGzip(file) as lines:
        assert b"".join(line for _, line in iter_bounded_lines(lines, file)) == text
    with BoundedGzip(file) as lines:
        assert lines.read() == text


def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    arrays = {
        "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
        "by_columns": np.asfortranarray(np.arange(12).reshape(3, 4)),
        "empty": np.zeros((0, 3), np.int16),
        "number": np.array(7.5),
        "text": np.array("configuration"),
        "backwards": np.arange(4, dtype=">i2"),
        "time": np.array(["2026-11-28"], "M8[s]"),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "arrays.npz", **arrays)  # type: ignore[arg-type]  # mypy takes the mapping for allow_pickle
        read = load_npz(tmp_path / "arrays.npz")
        assert read.keys() == arrays.keys()
        for name, array in arrays.items():
            assert read[name].dtype == array.dtype
            np.testing.assert_array_equal(read[name], array)
            assert read[name].flags.writeable
    for name, array in arrays.items():
        np.save(tmp_path / "array.npy", array)
        np.testing.assert_array_equal(load_npy(tmp_path / "array.npy"), array, err_msg=name)


def test_reading_an_array_parses_no_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # CPython's parser may fail while another thread parses (its depth is kept for the process), and training reads
    # arrays in threads.
    def fail(*_: Any, **__: Any) -> None:
        raise SystemError("AST constructor recursion depth mismatch (before=48, after=45)")

    np.save(tmp_path / "array.npy", np.arange(4))
    np.savez(tmp_path / "arrays.npz", steps=np.arange(4))
    monkeypatch.setattr("ast.literal_eval", fail)
    with pytest.raises(SystemError):
        np.load(tmp_path / "array.npy")
    assert load_npy(tmp_path / "array.npy").tolist() == [0, 1, 2, 3]
    assert load_npz(tmp_path / "arrays.npz")["steps"].tolist() == [0, 1, 2, 3]


def test_an_array_of_records_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "records.npy", np.array([(1, 2.0)], dtype=[("count", "<i4"), ("share", "<f8")]))
    with pytest.raises(ValueError, match="type and shape"):
        load_npy(tmp_path / "records.npy")


def test_arrays_of_python_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", objects=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="Python objects"):
        load_npz(tmp_path / "objects.npz")


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"", lambda data: data[:9]]
)
def test_an_array_that_was_cut_or_grew_is_refused(change: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.arange(4))
    damaged = change((tmp_path / "array.npy").read_bytes())
    with pytest.raises(ValueError, match=r".+"):
        load_npy(damaged)


def test_a_limit_counts_every_byte(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345678")
    with pytest.raises(SizeLimitError, match="8 bytes; at most 7"):
        read_bounded(file, 7)
    with pytest.raises(IsADirectoryError):
        read_bounded(tmp_path)

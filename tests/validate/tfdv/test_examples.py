"""What TFX's data validation is shown of a corpus, column by column; TFDV itself is asked in its container."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.validate.takes import Take, speech, written
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.tfdv.examples import Examples
from voxline.data.manifest import MANIFEST_FILE


def takes() -> list[Take]:
    return [
        Take("a", "train", "ada", "red lamp on", speech(1, 1.5)),
        Take("b", "dev", "", "on", speech(2, 0.25)),
        Take("c", "train", "ada", "red lamp on", speech(3, 1.0)),
        Take("d", "test", "ben", "off on off", speech(4, 2.0)),
    ]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return written(tmp_path / "corpus", takes())


def test_every_utterance_is_a_row_of_every_feature(corpus: Path) -> None:
    found = Examples.of(CheckedCorpus.read(corpus))
    assert len(found) == 4
    assert found.numbers["duration"].tolist() == [1.5, 0.25, 1.0, 2.0]
    assert found.numbers["frames"].tolist() == [150, 25, 100, 200]
    assert found.numbers["labels"].tolist() == [11, 2, 11, 10]
    assert found.numbers["speaking_rate"].tolist() == pytest.approx([9 / 1.5, 2 / 0.25, 9 / 1.0, 8 / 2.0])
    assert [found.texts["speaker"][row] for row in range(4)] == ["ada", "", "ada", "ben"]
    assert [found.texts["split"][row] for row in range(4)] == ["train", "dev", "train", "test"]
    lines = [json.loads(line)["measured"] for line in (corpus / MANIFEST_FILE).read_text(encoding="utf-8").splitlines()]
    assert found.numbers["level"].tolist() == pytest.approx([line["rms_db"] for line in lines])
    assert found.numbers["silence"].tolist() == pytest.approx([line["silence_share"] for line in lines])
    for name, column in found.numbers.items():
        whole = name in ("frames", "labels")
        assert np.issubdtype(column.dtype, np.integer if whole else np.floating), name


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (0, 2), (2, 4), (1, 1)])
def test_tokens_come_by_rows_each_as_often_as_it_was_said(corpus: Path, start: int, stop: int) -> None:
    known, flat, begins = Examples.of(CheckedCorpus.read(corpus)).tokens(start, stop)
    said = [[known[token] for token in flat[begins[row] : begins[row + 1]]] for row in range(stop - start)]
    assert said == [take.text.split() for take in takes()[start:stop]]
    assert begins[-1] == len(flat)


def test_what_a_manifest_does_not_say_is_absent_and_no_number(corpus: Path) -> None:
    lines = [json.loads(line) for line in (corpus / MANIFEST_FILE).read_text(encoding="utf-8").splitlines()]
    del lines[1]["measured"]
    (corpus / MANIFEST_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = Examples.of(CheckedCorpus.read(corpus))
    assert np.isnan(found.numbers["level"]).tolist() == [False, True, False, False]
    assert np.isnan(found.numbers["silence"]).tolist() == [False, True, False, False]
    assert not np.isnan(found.numbers["duration"]).any()

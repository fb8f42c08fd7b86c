"""Columns that say how good a row is: their verdicts are named, and a row that its own table rejects is marked."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.test_foreign_tables import Ingest, Record, write_table
from voxline.components.ingest.settings import ColumnNames
from voxline.components.ingest.table_columns import describe_unread, map_columns, name_columns


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("set", ["Training", "val"], ""),
        ("data_split", ["train", "test"], ""),
        ("Dataset", ["dev"], ""),
        ("fold", ["1", "2"], "fold is kept, and no split is read from it (1)"),
        ("partition", ["valentine", "device"], "partition is kept, and no split is read from it (valentine)"),
        ("usage", ["value1", "testimony"], "usage is kept, and no split is read from it (value1)"),
        ("ml_use", ["train-clean-100", "test_other", "Dev2"], ""),
        ("is_valid", ["1", "0"], "is_valid is kept, and leaves out no row"),
        ("accepted", [1, 0], "accepted is kept, and leaves out no row"),
        ("exclude", ["1", "0"], "exclude is kept, and leaves out no row"),
        ("Skip", ["yes", "no"], "Skip is kept, and leaves out no row"),
        ("is_bad", ["True", "False"], "is_bad is kept, and leaves out no row"),
        ("answer", ["accept", "reject"], "answer is kept, and leaves out no row"),
        ("status", ["ok", "rejected", "ok"], "status is kept, and leaves out no row: ok (2), rejected (1)"),
        ("audio_quality", ["high", "low"], "audio_quality is kept, and leaves out no row: high (1), low (1)"),
        ("rating", ["5", "1", "5"], "rating is kept, and leaves out no row: 5 (2), 1 (1)"),
        ("quality", [f"0.{n}" for n in range(1, 20)], "quality is kept, and leaves out no row: 0.1 to 0.9"),
        ("down_votes", ["0", "2"], "down_votes is kept, and leaves out no row: 0 (1), 2 (1)"),
        ("flag", [0, 1], "flag is kept, and leaves out no row: 0 (1), 1 (1)"),
        ("snr_db", ["30.1", "-2"], "snr_db is kept, and leaves out no row: 30.1 (1), -2 (1)"),
        ("confidence", ["0.98", "0.2"], "confidence is kept, and leaves out no row: 0.98 (1), 0.2 (1)"),
        ("is_valid", [True, False], "is_valid is kept, and leaves out no row"),
    ],
)
def test_a_split_by_another_name_is_read_and_a_verdict_is_named(name: str, values: list[Any], told: str) -> None:
    columns = map_columns(["path", "text", name], ColumnNames(), {name: values})
    assert columns.get("split") == (None if told else name)
    remarks = describe_unread(["path", "text", name], columns, {name: values})
    assert [remark[: len(told)] for remark in remarks] == ([told] if told else [])
    assert name_columns(columns) == ("" if told else f"splits are read from {name}")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("confidence", ["0.98", "0.7"]),
        ("snr", ["30", "12"]),
        ("up_votes", ["2", "3"]),
        ("down_votes", ["0"]),
        ("status", ["married", "single"]),
        ("state", ["Ohio", "Maine"]),
        ("accent", ["low"]),
    ],
)
def test_a_column_without_a_verdict_is_not_named(name: str, values: list[str]) -> None:
    assert describe_unread(["path", "text", name], {}, {name: values}) == []


MARKED = """
status rejected = status rejected
status Rejected = status rejected
status approved =
is_valid False = is_valid false
is_valid 1 =
exclude 1 = exclude 1
quality low = quality low
quality high =
quality 1 =
flag true = flag true
validated 0 = validated 0
confidence 0.31 = confidence under 0.5
confidence 87 =
confidence low = confidence low
snr -3.5 = snr under 5
snr 17 =
reject_reason noise = reject_reason is there
reject_reason - =
order_status declined =
review_status declined = review_status declined
reject_reason N/A =
deleted_at 0000-00-00 =
state Ohio =
accent low =
"""


@pytest.mark.parametrize("row", MARKED.strip().split("\n"))
def test_a_row_that_its_table_rejects_is_marked(row: str, corpus: Path, record: Record, ingest: Ingest) -> None:
    written, _, mark = row.partition(" =")
    name, _, value = written.partition(" ")
    for number in range(3):
        record(f"{number}.wav")
    write_table(corpus, [f"path,sentence,{name}", *(f"{number}.wav,go on,{value}" for number in range(3))], "t.csv")
    lines = [{"audio_filepath": f"{number}.wav", "text": "go on", name: value} for number in range(3)]
    doubts = [utterance.extra.get("text_doubt", "") for utterance in ingest("csv").utterances.values()]
    assert doubts == [f"row: {mark.strip()}" * bool(mark)] * 3
    (corpus / "t.csv").unlink()
    (corpus / "t.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    doubts = [utterance.extra.get("text_doubt", "") for utterance in ingest("manifest").utterances.values()]
    assert doubts == [f"row: {mark.strip()}" * bool(mark)] * 3


def test_votes_against_and_tables_of_rejected_rows_are_marked(corpus: Path, record: Record, ingest: Ingest) -> None:
    """Common Voice's own columns, and its list of what people refused."""
    for name in "abc":
        record(f"{name}.wav", 1.6)
    rows = ["path\tsentence\tup_votes\tdown_votes", "a.wav\tgo [on]\t2\t0", "b.wav\tgo [on]\t1\t2"]
    write_table(corpus, rows, "other.tsv")
    write_table(corpus, ["path\tsentence\tduration", "c.wav\tgo on\t1"], "invalidated.tsv")
    doubts = {id: utterance.extra.get("text_doubt", "") for id, utterance in ingest("csv").utterances.items()}
    against = "row: up_votes below down_votes"
    assert doubts == {"a.wav": "[on]", "b.wav": f"[on]\n{against}", "c.wav": "row: split invalidated\nduration"}


@pytest.mark.parametrize("name", ["reject_reason", "Deleted At", "exclusion note"])
def test_why_a_row_was_rejected_is_named(name: str) -> None:
    assert "leaves out no row" in describe_unread(["path", "text", name], {}, {name: ["too noisy"]})[0]
    assert describe_unread(["path", "text", name], {}, {name: []}) == []

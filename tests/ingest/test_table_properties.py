"""Properties of tables and manifests: any texts, separators and encodings; no cell is dropped, shifted or cut.

A file of its own: these tests need no corpus with recordings, which those of single tables share.
"""

import csv
import io
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from voxline.components.ingest.corpora.csv import entries
from voxline.components.ingest.corpora.kaldi import entries as kaldi_entries
from voxline.components.ingest.corpora.ljspeech import entries as ljspeech_entries
from voxline.components.ingest.corpora.manifest import entries as manifest_entries
from voxline.components.ingest.corpus import Corpus, CorpusEntry
from voxline.errors import WorkError

CELLS = st.lists(
    st.text("ab é中\"',;|", max_size=12) | st.text('a\t,"', max_size=6) | st.text('a\n"', max_size=6), max_size=6
)
"""Texts with separators and quotes; none has both a tab and a line feed, which would look like a row."""


AS_A_SPREADSHEET_QUOTES = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')


def read_cells(name: str, content: bytes) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_bytes(content)
        return list(entries(Corpus(folder)))


@settings(max_examples=150, deadline=None)
@given(
    texts=CELLS,
    separator=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
    end=st.sampled_from(["\n", "\r\n"]),
    before=st.sampled_from(["", "\n", "{sep}"]),
)
def test_no_cell_of_a_quoted_table_is_dropped_or_shifted(
    texts: list[str], separator: str, encoding: str, end: str, before: str
) -> None:
    table = io.StringIO()
    table.write(before.replace("{sep}", f"sep={separator}\n"))
    writer = csv.writer(table, delimiter=separator, lineterminator=end)
    writer.writerow(["path", "sentence", "last"])
    writer.writerows([f"{number}.wav", text, f"m{number}"] for number, text in enumerate(texts))
    rows = read_cells("t.csv", table.getvalue().encode(encoding))
    assert len(rows) == len(texts)
    for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
        if isinstance(row, CorpusEntry):
            assert (row.audio, row.text, row.extra["last"]) == (f"{number}.wav", text.strip(), f"m{number}")
        else:
            assert (row.id, "\n" in text.strip()) == (f"{number}.wav", True)


@settings(max_examples=150, deadline=None)
@given(texts=CELLS, encoding=st.sampled_from(["utf-8", "utf-16"]))
def test_no_cell_of_a_table_without_quotes_is_dropped_or_shifted(texts: list[str], encoding: str) -> None:
    # A spreadsheet writes a cell in quotes like this, with those of the text doubled: it is a table with quotes then.
    assume(not any(AS_A_SPREADSHEET_QUOTES.fullmatch(text.strip()) for text in texts))
    lines = ["path\tsentence\tlast", *[f"{number}.wav\t{text}\tm{number}" for number, text in enumerate(texts)]]
    rows = read_cells("t.tsv", "\n".join(lines).encode(encoding))
    accepted = {row.audio: (row.text, row.extra["last"]) for row in rows if isinstance(row, CorpusEntry)}
    whole = {
        f"{number}.wav": (text.strip(), f"m{number}")
        for number, text in enumerate(texts)
        if "\t" not in text and "\n" not in text
    }
    assert accepted == whole
    assert sum(not isinstance(row, CorpusEntry) for row in rows) >= len(texts) - len(whole)


LAST = st.lists(st.text("ab é中\"',;|", max_size=12) | st.text('ab1.\n" ', max_size=9), max_size=6)
"""Texts that end their lines; a rest of as many fields as the header has would look like a row."""


@settings(max_examples=60, deadline=None)
@given(texts=LAST, kind=st.sampled_from(["tsv", "csv", "ljspeech", "kaldi"]), end=st.sampled_from(["\n", "\r\n"]))
def test_no_text_at_the_end_of_a_line_is_cut(texts: list[str], kind: str, end: str) -> None:
    """What is accepted is whole, whatever a line feed in a text without quotes has made of the lines."""
    separator = {"tsv": "\t", "csv": ",", "ljspeech": "|", "kaldi": " "}[kind]
    middle = ["m"] if kind in ("tsv", "csv") else []
    header = [separator.join(["path", "last", "sentence"])] if middle else []
    lines = [separator.join([f"r{300 + number}.wav", *middle, text]) for number, text in enumerate(texts)]
    plain = [separator.join([f"r{number:03}.wav", *middle, "so"]) for number in range(10, 210)]
    content = end.join([*header, *plain, *lines, separator.join(["r999.wav", *middle, "so"])])
    files = {"tsv": "t.tsv", "csv": "t.csv", "ljspeech": "metadata.csv", "kaldi": "text"}
    read = {"ljspeech": ljspeech_entries, "kaldi": kaldi_entries}.get(kind, entries)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, files[kind]).write_bytes(content.encode())
        if kind == "kaldi":
            Path(folder, "wav.scp").write_text("".join(f"r{place:03}.wav r{place:03}.wav\n" for place in range(1_000)))
        try:
            accepted = {Path(row.audio).name: row.text for row in read(Corpus(folder)) if isinstance(row, CorpusEntry)}
        except WorkError:
            return
    # In a CSV quotation marks are the table's own.
    own = '"' if kind == "csv" else ""
    for number, text in enumerate(texts):
        read_text = accepted.get(f"r{300 + number}.wav", text)
        assert "".join(read_text.replace(own, "").split()) == "".join(text.replace(own, "").split())


WORDS = st.text("ab é中\"',;\t", max_size=12)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(WORDS, min_size=1, max_size=6), names=st.lists(st.sampled_from(["ann", "bob"]), min_size=6))
def test_no_key_of_a_manifest_is_dropped_or_shifted(texts: list[str], names: list[str]) -> None:
    """The same utterances as lines, as one list and as a mapping with it, on one line or on several."""
    rows = [
        {"audio_filepath": f"{number}.wav", "text": text, "speaker": name, "last": [text]}
        for number, (text, name) in enumerate(zip(texts, names, strict=False))
    ]
    expected = [(row["audio_filepath"], row["text"], row["speaker"], row["last"]) for row in rows]
    forms = ["\n".join(map(json.dumps, rows)), *(json.dumps(rows, indent=indent) for indent in (None, 1))]
    forms += [json.dumps({"version": 1, "data": rows}, indent=indent) for indent in (None, 1)]
    for form in forms:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "manifest.json").write_text(form, encoding="utf-8")
            read = [row for row in manifest_entries(Corpus(folder)) if isinstance(row, CorpusEntry)]
        assert [(row.audio, row.text, row.speaker, row.extra["last"]) for row in read] == expected

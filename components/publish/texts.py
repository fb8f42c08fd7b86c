"""Publishes a table of texts without recordings as a version of a dataset, for the pipeline intents.

  text,intent,split
  turn the kitchen lights on,switch,train
  will it rain tomorrow,weather,test

A CSV or TSV file with the names of its columns in the first line, or JSON lines. The version has rows and no shards.
"""

import csv
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from voxline.audio.feature_settings import FeatureSettings
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.data.dataset import Dataset
from voxline.data.json_codec import parse_json
from voxline.data.record_locations import RECORD_LOCATION, write_record_locations
from voxline.data.rows import ROWS_FILE, encode_row
from voxline.data.versions import PublishedVersion
from voxline.errors import WorkError
from voxline.store.files import atomic_write
from voxline.store.hashing import hash_file, hash_value
from voxline.store.size_limits import SizeLimitError, iter_bounded_lines, open_regular
from voxline.store.uris import is_remote
from voxline.text.alphabet import Alphabet, UnsupportedText
from voxline.text.frontend import apply_frontend
from voxline.text.settings import FrontendSettings

SPLITS = ("train", "dev", "test")
OWN = ("id", "text", "split", "speaker")
"""Columns with a meaning; all others are further keys of the rows."""
RECORDINGS = ("audio_filepath", "audio", "audio_path", "wav_filename", "audio_file", "wav")
"""Columns of a recording's path: such a table is a corpus. `path` and `file` may be those of a text."""


def publish_texts(
    table: Path, root: Path | str, name: str, *, dev: float = 0.1, test: float = 0.1, alphabet: str = ""
) -> PublishedVersion:
    """Publishes the texts of a table, unless the latest version has them already.

    Args:
      table: a CSV, TSV or JSON lines file in UTF-8, with a column `text`, one of the intents, and maybe `id`, `speaker`
        and `split`. Where it has no splits, a hash of the text decides, so that equal texts are in one split.
      root: folder or bucket URI of published datasets.
      dev, test: shares of the texts, where the table has no splits.
      alphabet: its name, or its characters, which decide what a letter is: that of the recognizer whose words are
        classified; empty: the characters of the texts.

    Raises:
      SettingsError: it is no alphabet.
      WorkError: a line is no text with a split, or names a recording; nothing is published then.
    """
    # By id, as each dataset's rows are.
    symbols = Alphabet.from_name(alphabet) if alphabet else None
    rows = sorted(_rows(table, dev, test, symbols), key=lambda row: row["id"])
    if symbols is None and any("ı" in row["text"] for row in rows):
        # Turkish and Azeri: with the letters known, I is the capital of ı.
        characters = {character for row in rows for character in row["text"]}
        turkish = Alphabet("".join(sorted(characters - {"\u0307"} | {"i"})))
        rows = sorted(_rows(table, dev, test, turkish), key=lambda row: row["id"])
    counts = Counter(row["split"] for row in rows)
    if lacking := [split for split in ("train", "test") if not counts[split]]:
        raise WorkError(f"{table}: no text for {' and '.join(lacking)}; add texts, or a column `split`")

    features = FeatureSettings()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with atomic_write(folder / ROWS_FILE, "w") as file:
            file.writelines(encode_row(row) for row in rows)

        # No row has a record: there is nothing to hear.
        locations = np.zeros((len(rows), 1), RECORD_LOCATION)
        locations["shard"] = -1
        rows_hash = hash_file(folder / ROWS_FILE)
        Dataset(
            key=hash_value({"texts": rows_hash}),
            fingerprint=rows_hash,
            features=features,
            alphabet=symbols
            or Alphabet("".join(sorted({character for row in rows for character in row["text"]} | {" ", "'"}))),
            mean=[0.0] * features.bins,
            deviation=[1.0] * features.bins,
            counts={split: counts[split] for split in SPLITS},
            seconds=dict.fromkeys(SPLITS, 0.0),
            shards=[],
            rows_hash=rows_hash,
            record_locations_file=write_record_locations(folder, locations),
        ).write(folder)
        if not is_remote(root):
            Path(root).mkdir(parents=True, exist_ok=True)
        return publish(folder, root, root, PublishSettings(dataset=name))


def _rows(table: Path, dev: float, test: float, alphabet: Alphabet | None) -> Iterator[dict[str, Any]]:
    """The rows of a dataset, with all further columns."""
    frontend = FrontendSettings()
    letters = alphabet.characters if alphabet else ""
    seen: dict[str, str] = {}
    again = Counter[str]()
    for where, line in _lines(table):
        text = line.get("text")
        if recording := next((key for key in RECORDINGS if line.get(key)), ""):
            raise WorkError(
                f"{table}, {where}: {recording} names a recording, and only texts are published; publish recordings "
                f"by voxline run refresh, or leave the column {recording} out"
            )
        if not isinstance(text, str):
            raise WorkError(f"{table}, {where}: it has no text; columns of it: {', '.join(line)}")
        try:
            symbols = apply_frontend(unicodedata.normalize("NFC", text), frontend, letters).symbols
            if alphabet and (unknown := alphabet.describe_unknown(symbols)):
                raise UnsupportedText(unknown)
        except UnsupportedText as error:
            raise WorkError(f"{table}, {where}: {error}; correct the text, or remove the line") from None
        if not symbols:
            raise WorkError(f"{table}, {where}: the text {text[:60]!r} has no words; remove the line")

        # Of the text, so that lines may come and go; a text that comes again has a number.
        base = f"text-{hash_value(symbols)[:12]}"
        again[base] += 1
        id = str(line.get("id") or (base if again[base] == 1 else f"{base}-{again[base]}"))
        if id in seen:
            raise WorkError(f"{table}, {where}: the id {id!r} is that of {seen[id]} too; give each its own")
        seen[id] = where
        split = str(line.get("split") or _draw(symbols, dev, test))
        if split not in SPLITS:
            raise WorkError(f"{table}, {where}: split is {split!r}; {', '.join(SPLITS)} are accepted")

        further = {key: value for key, value in line.items() if key not in OWN and value not in ("", None)}
        speaker = str(line.get("speaker") or "")
        yield {**further, "id": id, "split": split, "speaker": speaker, "text": symbols, "duration": 0.0}


def _draw(text: str, dev: float, test: float) -> str:
    number = int(hash_value(text)[:12], 16) / 16**12
    return "test" if number < test else "dev" if number < test + dev else "train"


def _lines(table: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line of the table with its number, as values by column."""
    try:
        with open_regular(table) as opened:
            lines = iter_bounded_lines(opened, table)
            if table.suffix.lower() == ".jsonl":
                yield from _json_lines(table, lines)
            else:
                yield from _csv_lines(table, lines)
    except OSError as error:
        raise WorkError(f"{table}: cannot be read ({error.strerror or error})") from None
    except SizeLimitError as error:
        raise WorkError(str(error)) from None


def _json_lines(table: Path, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            values = parse_json(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except ValueError as error:
            raise WorkError(f"{table}, line {number}: not JSON in UTF-8: {error}") from None
        if not isinstance(values, dict):
            raise WorkError(f"{table}, line {number}: it is no mapping of columns to values")
        yield f"line {number}", values


def _csv_lines(table: Path, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[str, dict[str, Any]]]:
    def decoded() -> Iterator[str]:
        for number, line in lines:
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise WorkError(f"{table}, line {number}: no text in UTF-8 ({error.reason})") from None

    reader = csv.DictReader(decoded(), delimiter="\t" if table.suffix.lower() == ".tsv" else ",", strict=True)
    try:
        names = list(reader.fieldnames or ())
        # Of two columns of a name, the reader would keep the last.
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise WorkError(
                f"{table}, line 1: {', '.join(map(repr, repeated))} names several columns; rename all but one"
            )
        for values in reader:
            where = f"line {reader.line_num}"
            if None in values or None in values.values():
                raise WorkError(
                    f"{table}, {where}: more or fewer cells than the first line has names: {', '.join(names)}"
                )
            yield where, dict(values)
    except csv.Error as error:
        raise WorkError(f"{table}, line {reader.reader.line_num}: no row of a table ({error})") from None

"""Hugging Face datasets in a folder: Parquet or Arrow with the audio in it, or an audiofolder with its metadata.

https://huggingface.co/docs/datasets/audio_dataset. Below the root are read

    data/train-00000-of-00002.parquet     a column with audio as {bytes, path}; columns of text, speaker and others
    train/data-00000-of-00001.arrow       the same, as `save_to_disk` writes it
    train/metadata.csv (or .jsonl)        an audiofolder: file_name, transcription and others, beside the recordings

The split is the name of the file up to its number, or the name of the folder. Columns may have any of the usual names
(`USUAL_COLUMNS`) or those of `corpus.columns`; numbers, texts and flags in further columns are kept, also within
mappings and pandas' categories, and others are named. Recordings within Parquet and Arrow are unpacked into the store,
each file once. Without an id, one is made from path and content.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from voxline.components.ingest.archives import MemberWriter, UnpackFunction
from voxline.components.ingest.corpora.csv import table_entries
from voxline.components.ingest.corpora.manifest import LineReader
from voxline.components.ingest.corpus import AUDIO_EXTENSIONS, Corpus, CorpusEntry
from voxline.components.ingest.settings import ColumnNames
from voxline.components.ingest.table_columns import map_columns, may_be_read
from voxline.errors import WorkError
from voxline.extras import missing_package
from voxline.progress import print_status
from voxline.rejects import Reason, Reject
from voxline.store.hashing import hash_bytes

TABLES = (".parquet", ".arrow")
METADATA = ("metadata.csv", "metadata.jsonl")

_BATCH_ROWS = 16
"""Rows of audio in memory at a time."""
_MOST_NAME_BYTES = 200
"""Of a recording's own name: with the rest, file systems accept 255."""
_SHARD = re.compile(r"(.*?)[-_.]?\d+(?:-of-\d+.*)?")
_SIGNATURES = ((b"RIFF", ".wav"), (b"fLaC", ".flac"), (b"OggS", ".ogg"), (b"ID3", ".mp3"))


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every row of every table.

    Raises:
      WorkError: there is no table, one has no column of audio or text, or a file is damaged.
    """
    # A duration describes a whole recording, is rounded by some, and cuts nothing, unless a config names its column.
    is_whole = not corpus.settings.columns.duration
    files = 0
    for path in corpus.find(*TABLES, *METADATA):
        if path.suffix.lower() in TABLES:
            yield from _table(corpus, path, is_whole)
        elif path.suffix.lower() == ".jsonl":
            read_line = LineReader(corpus.settings.columns, is_whole, describe=True, sample_rate=corpus.sample_rate)
            for number, line in corpus.read_lines(str(path)):
                yield read_line(line, f"{path}:{number}", path.parent.as_posix(), _split(path, corpus))
        else:
            rows = table_entries(corpus, path, _split(path, corpus), is_whole)
            if rows is None:
                continue  # LJSpeech's metadata.csv has the same name
            yield from rows
        files += 1

    if not files:
        raise WorkError(
            f"{corpus.path}: no *.parquet, no *.arrow and no metadata.csv or .jsonl with file_name in this folder; "
            "check corpus.format"
        )


def _split(path: PurePosixPath, corpus: Corpus) -> str:
    stem = path.name.partition(".")[0]
    shard = _SHARD.fullmatch(stem)
    name = shard[1] if shard else stem
    return path.parent.name or corpus.name if name in ("", "data", "metadata") else name


def _table(corpus: Corpus, path: PurePosixPath, is_whole: bool) -> Iterator[CorpusEntry | Reject]:
    file = corpus.root / path
    schema = _schema(file)
    audio = _audio_column(schema, corpus.settings.columns, file)
    kept_columns = [field.name for field in schema if field.name != audio and _is_kept(field)]
    others = [f"{field.name} ({field.type})" for field in schema if field.name not in (*kept_columns, audio)]
    if others:
        print_status(f"{path}: left out, as they are no numbers, texts or flags: {', '.join(others)[:300]}")
    names = [name for field in schema if field.name in kept_columns for name in _plain_names(field)]
    columns = map_columns(names, corpus.settings.columns)
    if "text" not in columns:
        raise WorkError(f"{file}: no column of text among {', '.join(schema.names)}; name it in corpus.columns.text")

    # By the number of the row, with which the name of each unpacked recording begins.
    unpacked = {
        int(Path(member).name.split("-")[0]): member
        for member in corpus.unpack(str(path), _audio_unpacker(audio), f"1:{audio}")
    }

    # The recording is found already, whatever its column is called; where it is in the row, so is no more than it, and
    # a `start` is one in a longer recording.
    columns_of_settings = corpus.settings.columns
    offset = columns_of_settings.offset or ("offset" if unpacked else "")
    read_line = LineReader(
        columns_of_settings.model_copy(update={"audio_filepath": "", "offset": offset}), is_whole, describe=True
    )
    structs = [field.name for field in schema if field.name in kept_columns and _is_struct(field.type)]

    split = _split(path, corpus)
    number = 0
    texts: dict[int, int] = {}

    # Of the audio only the path is read here, so a batch may have many rows.
    for batch in _batches(file, [*kept_columns, audio], rows=1024, fields={audio: "path"}):
        for row in batch:
            source = f"{path}, row {number}"
            recording = unpacked.get(number, row.pop(audio) or "")
            number += 1
            for name in structs:  # speaker: {id, age} becomes speaker.id and speaker.age
                inner = row.pop(name) or {}
                row |= {f"{name}.{key}": value for key, value in inner.items() if f"{name}.{key}" in names}
            values = {name: value for name, value in row.items() if value is not None and name != audio}
            if not recording:
                yield Reject(source, Reason.MISSING_FILE, f"{source}: neither bytes nor a path in {audio}")
                continue

            # By name and content, so that an id stays when rows are added before it.
            if "id" not in columns and number - 1 in unpacked:
                values["id"] = Path(recording).stem.partition("-")[2]
                own = str(values["id"])
                text = str(values.get(columns["text"], ""))
                if texts.setdefault(hash(own), hash(text)) != hash(text):  # one recording in rows with other texts
                    values["id"] = f"{own}~{hash_bytes(text.encode())[:8]}"
            yield _entry(values, recording, columns, read_line, source, path, split)


def _entry(
    values: dict[str, Any],
    recording: str,
    columns: dict[str, str],
    read_line: LineReader,
    source: str,
    path: PurePosixPath,
    split: str,
) -> CorpusEntry | Reject:
    for name in [name for key, name in columns.items() if key == "audio_filepath"]:
        values.pop(name, None)  # `file` or `path` of the machine on which the dataset was made
    return read_line.entry({**values, "audio_filepath": recording}, source, path.parent.as_posix(), split)


def _audio_column(schema: Any, column_names: ColumnNames, file: Path) -> str:
    """The column whose values are {bytes, path}."""
    import pyarrow

    audio_columns = [
        field.name
        for field in schema
        if pyarrow.types.is_struct(field.type) and {"bytes", "path"} <= {child.name for child in field.type}
    ]

    candidates = [name for name in audio_columns if name == column_names.audio_filepath] or audio_columns
    if len(candidates) != 1:
        has = ", ".join(f"{field.name} ({field.type})" for field in schema)[:300]
        raise WorkError(
            f"{file}: {len(candidates)} columns of audio as {{bytes, path}}; it has {has}; one is accepted: name it in "
            "corpus.columns.audio_filepath"
        )
    return str(candidates[0])


def _is_kept(field: Any) -> bool:
    """True for a column of numbers, texts or flags, a mapping that has some, and a list of times or channels."""
    from pyarrow import types

    if _is_struct(field.type):
        return any(_is_plain(child.type) for child in field.type)
    is_list = types.is_list(field.type) or types.is_large_list(field.type) or types.is_fixed_size_list(field.type)
    return _is_plain(field.type.value_type) and may_be_read(field.name) if is_list else _is_plain(field.type)


def _plain_names(field: Any) -> list[str]:
    """The name of a column, or those within a mapping, as in speaker.id."""
    if not _is_struct(field.type):
        return [field.name]
    return [f"{field.name}.{child.name}" for child in field.type if _is_plain(child.type)]


def _is_struct(type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_struct(type))


def _is_plain(type: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(type):  # as pandas writes a category
        return _is_plain(type.value_type)
    return bool(
        types.is_string(type)
        or types.is_large_string(type)
        or types.is_string_view(type)
        or types.is_integer(type)
        or types.is_floating(type)
        or types.is_boolean(type)
    )


def _schema(file: Path) -> Any:
    pyarrow = _pyarrow(file)
    try:
        if file.suffix.lower() == ".parquet":
            return pyarrow.parquet.read_schema(file)
        with pyarrow.memory_map(str(file)) as source:
            return pyarrow.ipc.open_stream(source).schema
    except (pyarrow.ArrowException, OSError) as error:
        raise WorkError(f"{file}: damaged, or not {file.suffix[1:]} ({error}); copy or download it again") from None


def _batches(file: Path, columns: list[str], rows: int, fields: dict[str, str]) -> Iterator[list[dict[str, Any]]]:
    """Yields rows, a few at a time.

    Args:
      fields: the one part to read of a column of mappings.
    """
    pyarrow = _pyarrow(file)
    try:
        if file.suffix.lower() == ".parquet":
            names = [f"{name}.{fields[name]}" if name in fields else name for name in columns]
            with pyarrow.parquet.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as table:
                for batch in table.iter_batches(batch_size=rows, columns=names, use_threads=False):
                    yield [_flat(row, fields) for row in batch.to_pylist()]
            return

        # Arrow's own batches may be large, so that they are cut; a slice copies nothing.
        with pyarrow.memory_map(str(file)) as source:
            for batch in pyarrow.ipc.open_stream(source):
                for start in range(0, len(batch), rows):
                    piece = batch.slice(start, rows)
                    values = {}
                    for name in columns:
                        column = piece.column(name)
                        values[name] = (
                            pyarrow.compute.struct_field(column, fields[name]) if name in fields else column
                        ).to_pylist()
                    yield [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    except (pyarrow.ArrowException, OSError) as error:
        raise WorkError(f"{file}: damaged ({error}); copy or download it again") from None


def _flat(row: dict[str, Any], fields: dict[str, str]) -> dict[str, Any]:
    return {name: (value or {}).get(fields[name]) if name in fields else value for name, value in row.items()}


def _audio_unpacker(audio: str) -> UnpackFunction:
    """Writes the recordings of a table as files, named by row, path and content.

    Args:
      audio: the column that holds them.
    """

    def unpack(file: Path, writer: MemberWriter) -> None:
        paths = (row[audio] for rows in _batches(file, [audio], _BATCH_ROWS, {audio: "path"}) for row in rows)
        contents = (row[audio] for rows in _batches(file, [audio], _BATCH_ROWS, {audio: "bytes"}) for row in rows)
        for number, (path, content) in enumerate(zip(paths, contents, strict=True)):
            if content is not None:
                writer.write(_member(number, path or "", content), io.BytesIO(content), len(content))

    return unpack


def _member(number: int, path: str, content: bytes) -> str:
    own = PurePosixPath(path.replace("\\", "/"))
    extension = next(
        (extension_ for signature, extension_ in _SIGNATURES if content.startswith(signature)), own.suffix.lower()
    )
    extension = extension if extension in AUDIO_EXTENSIONS else ".audio"
    stem = re.sub(r"[^\w.]+", "_", own.stem)[:80].encode()[:_MOST_NAME_BYTES].decode(errors="ignore")
    return f"{number:08d}-{stem}{'-' if stem else ''}{hash_bytes(content)[:12]}{extension}"


def _pyarrow(file: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise WorkError(f"{file}: {missing_package('pyarrow')}") from None
    return pyarrow

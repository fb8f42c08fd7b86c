"""Exports: what our own reader gives back, what other packages read, and what a purge says of them."""

import csv
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command import voxline
from tests.extract.conftest import write_wav
from tests.publish.conftest import HOW
from voxline.audio.wav import read_wav
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.extract.step import run as extract
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run as ingest
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.data.manifest import Utterance, read_manifest
from voxline.errors import SettingsError, WorkError
from voxline.operations import export
from voxline.operations.export import EXPORT_FORMATS, SHARD_BYTES, export_dataset, find_exports
from voxline.store.files import seal_marker, write_json
from voxline.store.store_locks import exclusive_folder_lock

ROOT = Path(__file__).parents[2]
PEERS = Path(os.environ.get("VOXLINE_PEERS", ROOT / ".bench-venv/bin/python"))
READ_BY = {
    **{"json": "manifest", "nemo": "manifest", "nemo-tarred": "nemo_tarred", "lhotse": "lhotse"},
    **{"parquet": "huggingface", "webdataset": "webdataset"},
}
CONVERT = ConvertSettings.of({"workers": 1, "alphabet": "abcdefghijklmnopqrstuvwxyz '早上好"})


def converted(uri: Path, format: str, store: Path) -> tuple[list[Utterance], Any]:
    settings = CorpusSettings.of({"uri": str(uri), "format": format, "split": {"dev": 0}})
    ingested = ingest(store, settings)
    return read_manifest(convert(ingested.folder, store, CONVERT).folder), ingested


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a published version: two speakers, a recording that both have, a part of one."""
    folder = tmp_path_factory.mktemp("published é")
    random = np.random.default_rng(5)
    lines: list[dict[str, Any]] = []
    for number in range(7):
        wav = write_wav(folder / "corpus" / f"{number}.wav", random.standard_normal(9_000 + 700 * number) / 10)
        text = ("good morning", "早上好", "it's noon")[number % 3]
        line = {"id": f"a/{number}.x", "audio_filepath": wav.name, "text": text, "speaker": ("ann", "ben")[number % 2]}
        line |= {"split": ("train", "train", "test")[number % 3], "snr": 20.5 + number, "accent": "us", "tags": ["a"]}
        line |= {"age": number} if number % 2 else {}  # some files of an export have none
        lines.append(line)
    lines.append({**lines[0], "id": "shared", "speaker": "ben"})
    lines.append({**lines[1], "id": "part", "offset": 0.125, "duration": 0.25})
    (folder / "corpus/manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ingested = ingest(
        folder / "store", CorpusSettings.of({"uri": str(folder / "corpus"), "format": "manifest", "split": {"dev": 0}})
    )
    ready = convert(ingested.folder, folder / "store", CONVERT)
    extracted = extract(ready.folder, folder / "store", HOW.model_copy(update={"alphabet": CONVERT.alphabet}))
    publish(extracted.folder, folder / "store", folder / "datasets", PublishSettings(dataset="corpus"))
    return folder


def rows(published: Path) -> dict[str, Any]:
    lines = (published / "datasets/corpus/1/rows.jsonl").read_text().splitlines()
    return {row["id"]: row for row in map(json.loads, lines)}


def write_export(published: Path, to: str, output: Path, shard_bytes: int = SHARD_BYTES) -> dict[str, Any]:
    return export_dataset(str(published / "datasets"), "corpus", 1, to, output, shard_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("to", READ_BY)
def test_our_own_reader_gives_back_the_samples_and_texts_of_an_export(published: Path, tmp_path: Path, to: str) -> None:
    made = write_export(published, to, tmp_path / "export", shard_bytes=40_000)  # two or three recordings
    expected = rows(published)
    assert made["counts"] == {"train": 7, "test": 2}
    read, ingested = converted(tmp_path / "export", READ_BY[to], tmp_path / "store")
    assert ingested.counts["rejects"] == 0
    assert {one.id for one in read} == set(expected)
    for one in read:
        row = expected[one.id]
        assert (one.text, one.speaker, one.split, one.duration) == (
            row["text"],
            row["speaker"],
            row["split"],
            row["duration"],
        )
        source = published / "store/wavs" / row["audio_hash"][:2] / f"{row['audio_hash']}.wav"
        np.testing.assert_array_equal(read_wav(Path(one.audio_filepath))[0], read_wav(source)[0])
        assert (one.extra["snr"], one.extra["accent"]) == (row["snr"], "us")
        assert one.extra.get("age") == row.get("age")
        assert one.extra["tags"] in (["a"], '["a"]')  # Parquet has it as JSON


def test_json_has_the_labels_of_each_text_and_deepspeech_s_files(published: Path, tmp_path: Path) -> None:
    write_export(published, "json", tmp_path / "export")
    expected = rows(published)

    # As DeepSpeech reads it: a symbol a line, labels from 0, `#` begins a comment unless it is escaped.
    alphabet = (tmp_path / "export/alphabet.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert alphabet == list(CONVERT.alphabet)
    for split, count in (("train", 7), ("test", 2)):
        lines = [json.loads(line) for line in (tmp_path / f"export/{split}.jsonl").read_text().splitlines()]
        with open(tmp_path / f"export/{split}.csv", encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        assert len(lines) == len(table) == count
        for line, row in zip(lines, table, strict=True):
            assert "".join(alphabet[label] for label in line["token_ids"]) == expected[line["id"]]["text"]
            assert (row["wav_filename"], row["transcript"]) == (line["audio_filepath"], line["text"])
            wav = tmp_path / "export" / row["wav_filename"]
            assert wav.stat().st_size == int(row["wav_filesize"])
            source = published / "store/wavs" / line["audio_hash"][:2] / f"{line['audio_hash']}.wav"
            assert wav.read_bytes() == source.read_bytes()

    # Our own reader of DeepSpeech's tables.
    read, ingested = converted(tmp_path / "export", "csv", tmp_path / "store")
    assert ingested.counts["rejects"] == 0
    assert sorted((one.text, one.split) for one in read) == sorted(
        (row["text"], row["split"]) for row in expected.values()
    )


def test_a_text_that_the_alphabet_lacks_stops_the_export(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(published, folder)
    version = folder / "datasets/corpus/1"
    values = json.loads((version / "dataset.json").read_text())
    write_json(version / "dataset.json", seal_marker({**values, "alphabet": CONVERT.alphabet.replace("o", "")}))
    with pytest.raises(WorkError, match=r"a/0\.x: 'o' .*LETTER O.*is not in the alphabet, so it has no labels"):
        export_dataset(str(folder / "datasets"), "corpus", 1, "json", tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_json_has_the_prosody_of_each_recording(published: Path, tmp_path: Path) -> None:
    write_export(published, "json", tmp_path / "export")
    files = [tmp_path / f"export/{split}.jsonl" for split in ("train", "test")]
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    expected = rows(published)
    assert {line["id"]: line["text"] for line in lines} == {id: row["text"] for id, row in expected.items()}
    for line in lines:
        assert line["accent"] == "us"
        wav = published / "store/wavs" / line["audio_hash"][:2] / f"{line['audio_hash']}.wav"
        pcm, rate = read_wav(wav)
        assert (line["sample_rate"], line["hop_seconds"]) == (rate, HOW.features.hop_seconds)
        hop = round(rate * line["hop_seconds"])
        assert line["total_frames"] == len(line["f0"]) == len(line["energy"]) == HOW.features.count_frames(len(pcm))
        middle = len(line["f0"]) // 2
        around = pcm[middle * hop - 200 : middle * hop + 200] / 32768
        assert line["energy"][middle] == pytest.approx(10 * np.log10(np.mean(around**2)), abs=0.02)
        speech = line["measured"]
        assert 0 <= speech["onset_seconds"] <= speech["offset_seconds"] <= line["duration"]
        assert all(value == round(value, 2) for value in line["f0"] + line["energy"]), "no digits of single precision"
        assert set(line["f0"]) == {0} or min(value for value in line["f0"] if value) >= 65


def test_json_is_the_short_form_of_to_json(published: Path, tmp_path: Path) -> None:
    for options in (("--json",), ("--to", "json", "--output", "long")):
        done = voxline("datasets", "export", "corpus@1", *options, "--datasets", published / "datasets", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    for split in ("train", "test"):
        short, long = (tmp_path / folder / f"{split}.jsonl" for folder in ("corpus-1-json", "long"))
        assert short.read_bytes() == long.read_bytes() != b""


def test_all_parquet_files_of_an_export_have_the_same_columns(published: Path, tmp_path: Path) -> None:
    import pyarrow.parquet

    write_export(published, "parquet", tmp_path / "export", shard_bytes=1)  # a recording each
    schemas = [pyarrow.parquet.read_schema(file) for file in (tmp_path / "export/data").iterdir()]
    assert len(schemas) == 9
    assert all(schema.equals(schemas[0], check_metadata=True) for schema in schemas)


def test_nothing_is_purged_or_collected_while_an_export_is_written(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []

    def write(*given: Any) -> export.Written:
        with pytest.raises(WorkError, match="in use by another process"), exclusive_folder_lock(published / "store"):
            pass
        refused.append(True)
        yield from EXPORT_FORMATS["nemo"](*given)

    monkeypatch.setitem(export.EXPORT_FORMATS, "watched", write)
    write_export(published, "watched", tmp_path / "export")
    assert refused
    shutil.rmtree(published / "datasets/corpus/exports")


@pytest.mark.parametrize("to", EXPORT_FORMATS)
def test_two_exports_of_a_version_have_equal_files(published: Path, tmp_path: Path, to: str) -> None:
    for name in ("first", "second"):
        write_export(published, to, tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*") if path.is_file())
    assert len(files) >= 4
    for file in files:
        if file.name != export.EXPORT_FILE:  # it says when
            assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes(), file


def test_a_purge_names_the_exports_and_what_to_delete_there(published: Path, tmp_path: Path) -> None:
    shutil.copytree(published, tmp_path / "own", symlinks=True)
    shutil.rmtree(tmp_path / "own/datasets/corpus/exports", ignore_errors=True)
    own = tmp_path / "own"
    done = voxline("datasets", "export", "corpus@1", "--datasets", own / "datasets", "--to", "nemo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "corpus-1-nemo: version 1 of corpus for nemo: 7 train, 2 test" in done.stdout.replace("\n", " ")
    write_export(own, "webdataset", tmp_path / "tars")
    write_export(own, "lhotse", tmp_path / "moved")
    (tmp_path / "moved").rename(tmp_path / "elsewhere")
    by_format = {made["format"]: held for made, held in find_exports("ben", [own / "datasets"])}
    nemo, tars = by_format["nemo"], by_format["webdataset"]
    assert nemo is not None
    assert tars is not None
    mine = {id for id, row in rows(published).items() if row["speaker"] == "ben"}
    assert set(nemo.ids) == set(tars.ids) == mine
    hashes = {row["audio_hash"] for row in rows(published).values() if row["speaker"] == "ben"}
    others = {row["audio_hash"] for row in rows(published).values() if row["speaker"] != "ben"}
    assert {Path(file).stem for file in nemo.files} == hashes - others
    assert hashes & others  # the recording that both have
    assert all((tmp_path / "corpus-1-nemo" / file).is_file() for file in (*nemo.files, *nemo.shared))
    assert (tars.files, tars.shared) == ([], ["train-000000.tar", "test-000000.tar"])
    assert by_format["lhotse"] is None
    listed = voxline("datasets", "purge", "--speaker", "ben", "--store", own / "store", "--datasets", own / "datasets")
    assert "exports that hold them, which stay: 3" in listed.stdout
    assert f"{tmp_path / 'tars'} (version 1 of corpus for webdataset): {len(mine)} utterances" in listed.stdout
    assert f"{tmp_path / 'moved'} (version 1 of corpus for lhotse): not on this machine, or gone" in listed.stdout
    assert [held for _, held in find_exports("nobody", [own / "datasets"])] == [None]  # what moved may hold anybody


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("corpus@1", "--to", "csv"), "accepted: json, nemo, nemo-tarred, lhotse, parquet, webdataset"),
        (("corpus@1",), "--to is missing: json, nemo"),
        (("corpus@1", "--json", "--to", "nemo"), "--json is short for --to json, and --to is nemo"),
        (("corpus@x", "--to", "nemo"), "not the number of a version"),
        (("corpus@9", "--to", "nemo"), "no version 9"),
        (("other", "--to", "nemo"), "no dataset 'other'"),
        (("corpus", "--to", "nemo", "--output", "full"), "exists and is not empty"),
    ],
)
def test_an_export_that_cannot_be_made_writes_nothing(
    published: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    done = voxline("datasets", "export", *arguments, "--datasets", published / "datasets", cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert message in done.stderr.replace("\n", " ")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_a_recording_that_is_gone_from_the_store_ends_the_export_and_leaves_nothing(
    published: Path, tmp_path: Path
) -> None:
    row = rows(published)["part"]
    wav = published / "store/wavs" / row["audio_hash"][:2] / f"{row['audio_hash']}.wav"
    hidden = wav.rename(wav.with_suffix(".hidden"))
    try:
        with pytest.raises(WorkError, match=r"part: its recording .* is absent or damaged; run the refresh"):
            write_export(published, "nemo", tmp_path / "export")
    finally:
        hidden.rename(wav)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a file").touch()
    with pytest.raises(SettingsError, match="exists and is not empty"):
        write_export(published, "nemo", tmp_path / "a file")


READ_WITH_PEERS = """
import io, json, sys
from pathlib import Path
import datasets, lhotse, numpy, soundfile, webdataset
from datasets import Audio

exports, own = Path(sys.argv[1]), Path(sys.argv[2])
def digest(samples): return numpy.asarray(samples, "int16").tobytes().hex()
found = {}
for split in ("train", "test"):
    cuts = lhotse.CutSet.from_file(exports / f"lhotse/cuts_{split}.jsonl.gz")
    for cut in cuts.with_recording_path_prefix(exports / "lhotse"):
        lhotse.qa.validate(cut)
        (spoken,) = cut.supervisions
        samples = numpy.round(cut.load_audio()[0] * 32768)
        found.setdefault("lhotse", {})[spoken.id] = [spoken.text, spoken.speaker, digest(samples)]
tables = datasets.load_dataset("parquet", data_dir=str(exports / "parquet/data"), cache_dir=str(own / "cache"))
assert isinstance(tables["train"].features["audio"], Audio), tables["train"].features
for split in ("train", "test"):
    for row in tables[split].cast_column("audio", Audio(decode=False)):
        samples = soundfile.read(io.BytesIO(row["audio"]["bytes"]), dtype="int16")[0]
        found.setdefault("parquet", {})[row["id"]] = [row["text"], row["speaker"], digest(samples)]
    for row in webdataset.WebDataset(str(exports / f"webdataset/{split}-000000.tar"), shardshuffle=False):
        values = json.loads(row["json"])
        samples = soundfile.read(io.BytesIO(row["wav"]), dtype="int16")[0]
        found.setdefault("webdataset", {})[values["id"]] = [row["txt"].decode(), values["speaker"], digest(samples)]

# And what they write, for our readers.
recordings = lhotse.RecordingSet.from_dir(exports / "nemo/audio", "*.wav")
spoken = [lhotse.SupervisionSegment(r.id, r.id, 0.0, r.duration, text="good", speaker="ann") for r in recordings]
cuts = lhotse.CutSet.from_manifests(recordings, lhotse.SupervisionSet.from_segments(spoken))
(own / "lhotse").mkdir()
cuts.to_file(own / "lhotse/cuts_train.jsonl.gz")
files = sorted(map(str, (exports / "nemo/audio").rglob("*.wav")))
sounds = [{"bytes": Path(file).read_bytes(), "path": file} for file in files]
table = datasets.Dataset.from_dict({"audio": sounds, "sentence": ["早上好"] * len(files)})
table = table.cast_column("audio", Audio(decode=False)).cast_column("audio", Audio())
(own / "parquet").mkdir()
table.to_parquet(own / "parquet/train-00000-of-00001.parquet")
datasets.DatasetDict({"train": table}).save_to_disk(own / "saved")
print(json.dumps(found))
"""


@pytest.mark.skipif(not PEERS.exists(), reason=f"no {PEERS}: `make test-peers` installs lhotse, datasets, webdataset")
def test_lhotse_and_datasets_read_our_exports_and_we_read_theirs(published: Path, tmp_path: Path) -> None:
    for to in ("lhotse", "parquet", "webdataset", "nemo"):
        write_export(published, to, tmp_path / "exports" / to)
    own = tmp_path / "own"
    own.mkdir()
    done = subprocess.run(
        [PEERS, "-c", READ_WITH_PEERS, tmp_path / "exports", own],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(tmp_path),
            "LHOTSE_AUDIO_DURATION_MISMATCH_TOLERANCE": "0",
        },
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    expected = {}
    for id, row in rows(published).items():
        wav = published / "store/wavs" / row["audio_hash"][:2] / f"{row['audio_hash']}.wav"
        expected[id] = [row["text"], row["speaker"], read_wav(wav)[0].tobytes().hex()]
    assert found == {"lhotse": expected, "parquet": expected, "webdataset": expected}
    audio = {path.read_bytes() for path in (tmp_path / "exports/nemo/audio").rglob("*.wav")}
    for format, folder in (("lhotse", "lhotse"), ("huggingface", "parquet"), ("huggingface", "saved")):
        settings = {"uri": str(own / folder), "format": format, "audio_roots": [str(tmp_path / "exports")]}
        settings["split"] = {"dev": 0}
        read = read_manifest(ingest(tmp_path / "store", CorpusSettings.of(settings)).folder)
        assert {Path(one.audio_filepath).read_bytes() for one in read} == audio
        assert {one.text for one in read} == {"good"} or {one.text for one in read} == {"早上好"}

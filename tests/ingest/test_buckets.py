"""A corpus in a bucket is read as one on a disk is, brought once, and never beyond its folder."""

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.buckets.emulator import Storage
from tests.ingest.conftest import Ingested
from tests.ingest.listed import write_lines
from voxline.components.ingest.open_corpus import open_corpus
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run
from voxline.data.manifest import read_manifest
from voxline.errors import SettingsError, TransientError, WorkError

Ingest = Callable[..., Ingested]
WORDS = {f"α {number}.wav": f"word {number}" for number in range(4)}


@pytest.fixture
def filled(gcs: Storage, corpus: Path, record: Callable[..., Path]) -> str:
    """The corpus of the tests, in a bucket, with another beside it whose name begins alike."""
    for path in WORDS:
        record(path)
    lines = [{"id": path, "audio_filepath": path, "text": text} for path, text in WORDS.items()]
    write_lines(corpus / "train.jsonl", *lines)
    gcs.bucket("corpora/fsdd").upload(corpus, [path.name for path in corpus.iterdir()])
    gcs.bucket("corpora/fsdd-2").write("train.jsonl", b"?")
    gcs.proxy.requests.clear()
    return f"{gcs.uri}/corpora/fsdd"


def without_place(ingested: Ingested) -> list[Any]:
    return [[one.id, one.text, one.duration, one.audio_hash] for one in ingested.utterances.values()]


def test_a_corpus_in_a_bucket_gives_what_the_folder_gives(filled: str, ingest: Ingest) -> None:
    assert without_place(ingest("manifest", uri=filled)) == without_place(ingest("manifest"))


def test_an_unchanged_corpus_is_not_brought_again_wherever_it_lies(gcs: Storage, filled: str, ingest: Ingest) -> None:
    first = ingest("manifest", uri=filled)
    brought = gcs.proxy.count("GET", "alt=media")
    assert brought == len(WORDS) + 1
    assert ingest("manifest", uri=filled + "/").work.reused
    moved = gcs.bucket("elsewhere/fsdd")
    for entry in gcs.bucket("corpora/fsdd").list():
        moved.write(entry.name, gcs.bucket("corpora/fsdd").read(entry.name))
    gcs.proxy.requests.clear()
    again = ingest("manifest", uri=moved.uri)
    assert again.work.reused
    assert again.work.folder == first.work.folder
    assert gcs.proxy.count("GET", "alt=media") == 0


def test_of_a_changed_corpus_only_the_change_is_brought(
    gcs: Storage, filled: str, ingest: Ingest, corpus: Path, record: Callable[..., Path]
) -> None:
    before = ingest("manifest", uri=filled)
    record("α 1.wav", 0.7)
    (corpus / "α 2.wav").unlink()
    gcs.bucket("corpora/fsdd").upload(corpus, ["α 1.wav"])
    gcs.bucket("corpora/fsdd").delete("α 2.wav")
    gcs.proxy.requests.clear()
    after = ingest("manifest", uri=filled)
    assert gcs.proxy.count("GET", "alt=media") == 1
    assert after.rejects == {"α 2.wav": "missing_file"}
    assert after.utterances["α 1.wav"].duration == pytest.approx(0.7)
    assert Path(before.utterances["α 1.wav"].audio_filepath).stat().st_size != (corpus / "α 1.wav").stat().st_size


@pytest.mark.parametrize("name", ["corpus.tar.gz", "CORPUS.TGZ"])
def test_an_archive_in_a_bucket_is_brought_and_unpacked(
    gcs: Storage, filled: str, ingest: Ingest, corpus: Path, tmp_path: Path, name: str
) -> None:
    with tarfile.open(tmp_path / name, "w:gz") as archive:
        archive.add(corpus, arcname="fsdd")
    gcs.bucket("corpora").upload(tmp_path, [name])
    ingested = ingest("manifest", uri=f"{gcs.uri}/corpora/{name}")
    assert len(ingested.ids) == len(WORDS)
    gcs.proxy.requests.clear()
    assert ingest("manifest", uri=f"{gcs.uri}/corpora/{name}").work.reused
    assert gcs.proxy.count("GET", "alt=media") == 0


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["good.wav", "a\\bad.wav"], r"the object 'a\\\\bad.wav' would leave its folder"),
        (["good.wav", "a\nb.wav"], "holds a control character"),
        (["a", "a/b.wav"], "the object 'a' would have to be both a file and the folder of 'a/b.wav'"),
    ],
)
def test_objects_that_no_folder_can_hold_are_refused_before_a_download(
    gcs: Storage, tmp_path: Path, names: list[str], told: str
) -> None:
    for name in names:
        gcs.client().bucket(gcs.name).blob(f"corpus/{name}").upload_from_string(b"x")
    with pytest.raises(WorkError, match=f"gs://{gcs.name}/corpus: {told if told[0] == 't' else '.* ' + told}.*nothing"):
        open_corpus(tmp_path / "store", CorpusSettings(uri=f"{gcs.uri}/corpus"))
    assert gcs.proxy.count("GET", "alt=media") == 0
    assert not (tmp_path / "store").exists()


def test_a_folder_above_the_limits_is_refused_before_a_download(gcs: Storage, filled: str, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"5 objects, at most 3 are accepted \(corpus.max_unpacked_files\)"):
        open_corpus(tmp_path, CorpusSettings(uri=filled, max_unpacked_files=3))
    with pytest.raises(WorkError, match=r"GB, at most 1e-06 are accepted \(corpus.max_unpacked_gigabytes\)"):
        open_corpus(tmp_path, CorpusSettings(uri=filled, max_unpacked_gigabytes=1e-6))
    assert gcs.proxy.count("GET", "alt=media") == 0


@pytest.mark.parametrize("place", ["nothing-here", "nothing-here.tar", "corpora/fsd"])
def test_a_place_where_nothing_lies_is_a_wrong_setting(gcs: Storage, filled: str, tmp_path: Path, place: str) -> None:
    with pytest.raises(SettingsError, match=f"corpus.uri is 'gs://.*{place}', and .*no (such )?object"):
        open_corpus(tmp_path, CorpusSettings(uri=f"{gcs.uri}/{place}"))


def test_a_corpus_half_brought_when_the_storage_failed_is_gone_on_with(
    gcs: Storage, filled: str, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.2")
    monkeypatch.setenv("VOXLINE_BUCKETS_CONNECTIONS", "1")
    gcs.fails("status", "GET", "alt=media", after=3, times=10**6)
    with pytest.raises(TransientError, match="start again"):
        ingest("manifest", uri=filled)
    gcs.proxy.faults.clear()
    gcs.proxy.requests.clear()
    assert len(ingest("manifest", uri=filled).ids) == len(WORDS)
    assert gcs.proxy.count("GET", "alt=media") == 2


def test_a_machine_that_finds_the_step_done_downloads_nothing(
    gcs: Storage, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = CorpusSettings(uri=filled, format="manifest", split={"dev": 0}, splits={"train": ["*"]})
    monkeypatch.setenv("VOXLINE_BUCKET_CACHE", str(tmp_path / "one"))
    run(f"{gcs.uri}/store", settings)
    monkeypatch.setenv("VOXLINE_BUCKET_CACHE", str(tmp_path / "another"))
    gcs.proxy.requests.clear()
    work = run(f"{gcs.uri}/store", settings)
    assert work.reused
    assert len(read_manifest(work.path("manifest"))) == len(WORDS)
    assert gcs.proxy.count("GET", "alt=media") < len(WORDS)

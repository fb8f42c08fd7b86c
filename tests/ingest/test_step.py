"""The step as a whole: accepted URIs, reuse, order, and failures."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voxline.components.ingest.audio_probe import probe
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.staging import ProbedUtterance
from voxline.components.ingest.step import _to_utterance, run
from voxline.data.manifest import read_manifest, read_rejects
from voxline.errors import SettingsError, WorkError
from voxline.rejects import Reason, Reject

Ingest = Callable[..., Any]
Record = Callable[..., Path]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "corpus.uri is empty; give a folder, an archive"),
        ("az://bucket/corpus", "folder and archive may be in gs:// or s3://"),
        ("https://example.org/corpus.tar.gz", "corpus.sha256 is empty"),
        ("no/such/folder", "does not exist"),
        ("long" * 2_000, "does not exist"),
        ("corpus.rar", "ends in .tar, .tar.gz, .tgz, .zip"),
    ],
)
def test_a_uri_without_a_corpus_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, message: str
) -> None:
    (tmp_path / "corpus.rar").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=r"corpus\.uri") as refused:
        run(tmp_path / "store", CorpusSettings(uri=uri))
    assert message in str(refused.value)
    assert not (tmp_path / "store").exists()


def test_the_same_corpus_is_not_read_again_until_a_file_changes(corpus: Path, record: Record, ingest: Ingest) -> None:
    files = [record(f"recordings/{digit}_ann_0.wav") for digit in range(3)]
    first = ingest("fsdd")
    assert not first.work.reused
    assert ingest("fsdd").work.reused
    assert ingest("fsdd", uri=f"{corpus}/../{corpus.name}/").work.reused
    content = bytearray(files[0].read_bytes())
    content[-1] ^= 1
    times = files[0].stat()
    files[0].write_bytes(content)
    os.utime(files[0], ns=(times.st_atime_ns, times.st_mtime_ns))  # same size, same time of modification
    changed = ingest("fsdd")
    assert not changed.work.reused
    assert changed.utterances["0_ann_0"].audio_hash != first.utterances["0_ann_0"].audio_hash
    assert changed.utterances["1_ann_0"] == first.utterances["1_ann_0"]
    files[2].unlink()
    assert ingest("fsdd").ids == ["0_ann_0", "1_ann_0"]


def test_a_run_that_was_started_among_the_recordings_is_no_part_of_the_corpus(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("0_ann_0.wav")
    first = ingest("fsdd")
    record("runs/digits/registry/asr/1/clip.wav")
    for name in ("run.json", "config.yaml"):
        (corpus / "runs/digits" / name).write_text("{}", encoding="utf-8")
    second = ingest("fsdd")
    assert second.work.reused
    assert second.ids == first.ids == ["0_ann_0"]


def test_a_store_that_was_moved_leads_to_the_recordings_again(corpus: Path, record: Record, tmp_path: Path) -> None:
    recording = record("recordings/1_ann_0.wav")
    settings = CorpusSettings(uri=str(corpus), format="fsdd")
    run(tmp_path / "store", settings)
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "store").rename(tmp_path / "a/b/store")
    work = run(tmp_path / "a/b/store", settings)
    assert [one.audio_filepath for one in read_manifest(work.folder)] == [str(recording)]
    assert run(tmp_path / "a/b/store", settings).reused


def test_utterances_stand_sorted_by_id_and_two_runs_write_the_same_bytes(
    corpus: Path, record: Record, ingest: Ingest, tmp_path: Path
) -> None:
    for name in ("b", "ä", "a", "Z", "10", "9"):
        record(f"{name}/7_{name}_0.wav")
    out = ingest("fsdd")
    assert out.ids == sorted(out.ids)
    other = run(tmp_path / "another store" / "deeper", CorpusSettings.of(_plain(out), "corpus", uri=str(corpus)))
    lines, other_lines = (work.path("manifest").read_text() for work in (out.work, other))
    assert lines.count("\n") == 6
    assert lines == other_lines.replace("../../../../../mon", "../../../mon").replace("../../../../mon", "../../../mon")


def test_a_store_inside_the_corpus_is_no_part_of_it(corpus: Path, record: Record) -> None:
    record("7_ann_0.wav")
    settings = CorpusSettings.of({"uri": str(corpus), "format": "fsdd", "split": {"dev": 0}})
    first = run(corpus / "store", settings)
    second = run(corpus / "store", settings)
    assert (first.counts["utterances"], first.reused, second.reused) == (1, False, True)


def test_past_the_stated_share_of_rejects_it_fails_and_the_rejects_can_be_read(
    corpus: Path, record: Record, ingest: Ingest, tmp_path: Path
) -> None:
    record("7_ann_0.wav")
    record("oops.wav")
    with pytest.raises(WorkError, match=r"1 of 2 utterances were rejected.*10.0% are accepted") as failed:
        ingest("fsdd", max_reject_share=0.1)
    rejects = read_rejects(Path(str(failed.value).rpartition("all of them: ")[2]))
    assert [reject.id for reject in rejects] == ["oops.wav"]
    assert not any((tmp_path / "store").rglob("done.json"))
    assert ingest("fsdd", max_reject_share=0.5).rejects == {"oops.wav": "bad_entry"}


def test_what_is_left_out_is_counted(corpus: Path, record: Record, ingest: Ingest) -> None:
    for index in (0, 1, 7, 8, 9):
        record(f"7_ann_{index}.wav")
    out = ingest("fsdd", splits={"train": ["train"], "test": [], "leave_out": ["test"]})
    assert out.work.counts == {"utterances": 3, "rejects": 0, "train": 3, "dev": 0, "test": 0, "left_out": 2}


def test_what_a_limit_leaves_out_is_counted_and_not_read(
    corpus: Path, record: Record, ingest: Ingest, capsys: pytest.CaptureFixture[str]
) -> None:
    for index in range(10, 30):
        record(f"7_ann_{index}.wav")
    everything = ingest("fsdd")
    few = ingest("fsdd", limits={"train": 6})
    assert few.work.counts == {"utterances": 6, "rejects": 0, "train": 6, "dev": 0, "test": 0, "beyond_limits": 14}
    assert "ingest: corpus.limits.train leaves out 14 of 20 utterances" in capsys.readouterr().out
    assert few.utterances.items() <= everything.utterances.items()

    # A refresh keeps those that are there; what was left out may go and come, and its recordings are never opened.
    for id in everything.utterances.keys() - few.utterances.keys():
        Path(everything.utterances[id].audio_filepath).write_bytes(b"no recording")
    assert ingest("fsdd", limits={"train": 6}).utterances == few.utterances
    record("7_ann_90.wav")
    assert len(ingest("fsdd", limits={"train": 6}).utterances.keys() - few.utterances.keys()) <= 1


def test_an_unreadable_file_is_rejected_with_the_system_s_message() -> None:
    recording = probe(Path("/proc/self"), ["mem"])["mem"]  # a regular file that root, too, cannot read
    probed = ProbedUtterance("a", "mem", 0.0, 0.0, "x", "", "", "a.txt:1", "", *recording)
    reject = _to_utterance("/proc/self", probed, "train")
    assert isinstance(reject, Reject)
    assert (reject.reason, reject.detail) == (Reason.UNREADABLE, "a.txt:1: mem: Input/output error")


def test_importing_the_step_imports_nothing_heavy() -> None:
    code = "import sys, voxline.components.ingest.step; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not {"tensorflow", "apache_beam", "kfp", "librosa", "scipy", "numpy"} & set(loaded.split())


def _plain(out: Any) -> dict[str, Any]:
    import json

    return dict(json.loads((out.work.folder / "done.json").read_text())["settings"])

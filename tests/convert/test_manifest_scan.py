"""Scanning a manifest: fingerprint, missing recordings, and reuse of unchanged lines."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from voxline.components.convert import decode_log
from voxline.components.convert.manifest_scan import LineStatus, ManifestScan, decode_piece
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import convert_scanned, open_scan, run
from voxline.components.convert.wav_pool import WavPool
from voxline.data import line_cache
from voxline.data.fingerprints import manifest_fingerprint
from voxline.data.line_cache import LineCache
from voxline.data.manifest import (
    Utterance,
    fingerprint_utterances,
    read_manifest,
    read_rejects,
    write_manifest,
)
from voxline.errors import WorkError
from voxline.store.files import write_text
from voxline.store.hashing import hash_file


def corpus(folder: Path, *, named: bool = True) -> Path:
    """Three recordings in two folders, and their manifest."""
    noise = np.random.default_rng(3)
    utterances = []
    for name in ("a/1", "a/2", "b/3"):
        path = folder / f"{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, noise.uniform(-0.3, 0.3, 8_000), 16_000)
        hash = hash_file(path) if named else ""
        utterances.append(Utterance(name, str(path), 0.5, f"says {name[0]}", audio_hash=hash))
    write_manifest(folder / "manifest.jsonl", utterances)
    return folder / "manifest.jsonl"


def scan_corpus(manifest: Path, store: Path) -> ManifestScan:
    """The scan that convert begins with."""
    return ManifestScan(manifest, WavPool(store, 16_000, -60.0), LineCache(store / "lines" / "these settings"))


def test_the_fingerprint_of_a_scan_is_that_of_its_utterances(tmp_path: Path) -> None:
    manifest = corpus(tmp_path / "corpus")
    assert scan_corpus(manifest, tmp_path / "store").fingerprint == fingerprint_utterances(read_manifest(manifest))


def parsed(manifest: Path, store: Path) -> list[str]:
    """The ids of lines that are not taken from the line cache."""
    with open_scan(manifest, store, ConvertSettings()) as scan:
        ids = [one.id for one in read_manifest(manifest)]
        return [id for id, status in zip(ids, scan.statuses, strict=True) if status != LineStatus.CACHED]


@pytest.mark.slow
def test_many_nights_give_what_a_first_run_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole pieces are reused, lines of others, and none whose recording or WAV is gone."""
    monkeypatch.setattr(line_cache, "PIECE_LINES", 6)
    monkeypatch.setattr(decode_log, "MAX_LOOKED_UP", 12)  # some nights look for a few WAVs, others for all
    recordings = read_manifest(corpus(tmp_path / "corpus"))
    gone = recordings[0].replace(audio_filepath=str(tmp_path / "gone.wav"), audio_hash="9f")
    random = np.random.default_rng(5)
    texts = ["says a", "says b", "7", "", "sings"]

    def line(number: int) -> Utterance:
        # Parts of recordings, so that lines have many WAVs.
        recording = [*recordings, gone][int(random.integers(0, 12)) % 4 if number % 5 == 0 else number % 3]
        text = texts[int(random.integers(0, len(texts)))]
        return recording.replace(id=f"u{number}", text=text, offset=number % 20 * 0.02, duration=0.1)

    lines = [line(number) for number in range(90)]
    decoded = []
    converted: list[list[Utterance]] = []
    for night in range(6):
        for number in random.choice(len(lines), night, replace=False).tolist():
            lines[number] = line(number)
        if night == 3:  # moved, added and removed
            lines = [*lines[40:], line(90), *lines[:37]]
        if night == 4:  # a kept line does not stand for a WAV that is gone
            wavs = sorted({Path(one.audio_filepath) for one in converted[0]})
            wavs[0].unlink()
            wavs[-1].write_bytes(wavs[-1].read_bytes()[:-2])
        write_manifest(tmp_path / "lines" / "manifest.jsonl", lines)
        settings = ConvertSettings(max_reject_share=1, min_seconds=0.01, workers=1)
        kept, fresh = (run(tmp_path / "lines", tmp_path / store, settings) for store in ("store", f"fresh {night}"))
        for file in ("manifest.jsonl", "rejects.jsonl"):
            assert (kept.folder / file).read_bytes() == (fresh.folder / file).read_bytes()
        assert kept.key == fresh.key
        converted = [read_manifest(output.folder) for output in (kept, fresh)]
        wavs_of = [[Path(one.audio_filepath).read_bytes() for one in utterances] for utterances in converted]
        assert wavs_of[0] == wavs_of[1]
        decoded.append(kept.counts["decoded"])
        with open_scan(tmp_path / "lines", tmp_path / "store", settings) as scan:
            reused = [piece.entry >= 0 for piece in scan.pieces]
            assert set(scan.statuses) <= {LineStatus.CACHED, LineStatus.DECODED, LineStatus.NEW, LineStatus.MISSING}
            assert any(reused)
    assert decoded[0] > 10
    assert 2 <= decoded[4] < 10  # the two WAVs, and those of the lines that changed


@pytest.mark.slow
def test_unchanged_lines_are_not_parsed(tmp_path: Path) -> None:
    manifest, store = corpus(tmp_path / "corpus"), tmp_path / "store"
    first = run(manifest, store, ConvertSettings())
    lines = manifest.read_text().splitlines(keepends=True)
    assert run(manifest, store, ConvertSettings()).reused
    assert parsed(manifest, store) == []
    manifest.write_text(lines[2] + lines[0].replace("says a", "says more") + lines[1])
    assert parsed(manifest, store) == ["a/1"]
    other = run(manifest, store, ConvertSettings())
    assert (other.reused, other.counts) == (False, {"decoded": 0, "utterances": 3, "rejects": 0})
    fresh = run(manifest, tmp_path / "another store", ConvertSettings())
    assert [one.identity() for one in read_manifest(other.folder)] == [
        one.identity() for one in read_manifest(fresh.folder)
    ]
    assert [one.id for one in read_manifest(other.folder)] == ["b/3", "a/1", "a/2"]
    assert manifest_fingerprint(other.folder, store) == fingerprint_utterances(read_manifest(other.folder))
    assert first.key != other.key == fresh.key


@pytest.mark.slow
def test_a_missing_or_damaged_line_cache_changes_no_output(tmp_path: Path) -> None:
    manifest, store = corpus(tmp_path / "corpus"), tmp_path / "store"
    run(manifest, store, ConvertSettings())
    [cached] = (store / "lines").iterdir()
    whole = cached.read_bytes()
    first, second, third = manifest.read_text().splitlines(keepends=True)
    manifest.write_text(first.replace("says", "sings") + second + third)
    expected = run(manifest, tmp_path / "expected", ConvertSettings()).folder / "manifest.jsonl"
    altered = whole.replace(b'"count": 1, ', b'"count": 9, ')
    assert altered != whole
    for damage in (b"", whole[:200], whole[:-1], whole[:1_050] + b"!" + whole[1_051:], altered, whole):
        cached.write_bytes(damage)
        made = run(manifest, store, ConvertSettings())
        assert (made.reused, made.counts["decoded"]) == (False, 0)
        assert (made.folder / "manifest.jsonl").read_bytes() == expected.read_bytes()
        (made.folder / "done.json").unlink()


def test_an_output_that_was_edited_is_not_reused(tmp_path: Path) -> None:
    manifest, store = corpus(tmp_path / "corpus"), tmp_path / "store"
    made = run(manifest, store, ConvertSettings()).folder / "manifest.jsonl"
    made.write_text(made.read_text().replace("says a", "says b"))
    first, *others = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join([first.replace("says", "sings"), *others]))
    again = run(manifest, store, ConvertSettings())
    assert [one.text for one in read_manifest(again.folder)] == ["sings a", "says a", "says b"]


def test_an_output_that_is_replaced_during_the_run_changes_nothing(tmp_path: Path) -> None:
    manifest, store = corpus(tmp_path / "corpus"), tmp_path / "store"
    made = run(manifest, store, ConvertSettings()).folder / "manifest.jsonl"
    first, *others = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join([first.replace("says", "sings"), *others]))
    with open_scan(manifest, store, ConvertSettings()) as scan:
        write_text(made, made.read_text().replace("says", "is"))  # by rename, as another run does
        again = convert_scanned(scan, store, ConvertSettings())
    assert [one.text for one in read_manifest(again.folder)] == ["sings a", "says a", "says b"]


@pytest.mark.parametrize(
    ("purged", "said"), [("store/lines", "by a purge"), ("corpus/manifest.jsonl", "run ingest again")]
)
def test_what_a_purge_removes_after_the_scan_is_not_reused(tmp_path: Path, purged: str, said: str) -> None:
    manifest, store = corpus(tmp_path / "corpus"), tmp_path / "store"
    run(manifest, store, ConvertSettings())
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[1:]))
    with open_scan(manifest, store, ConvertSettings()) as scan:
        for file in [tmp_path / purged] if (tmp_path / purged).is_file() else (tmp_path / purged).iterdir():
            file.unlink()
        with pytest.raises(WorkError, match=said):
            convert_scanned(scan, store, ConvertSettings())


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_the_line_cache_and_the_logs_are_closed(tmp_path: Path) -> None:
    manifest, store = corpus(tmp_path / "corpus"), tmp_path / "store"
    for change in ("says", "sings"):  # with what was cached of the line; then without
        manifest.write_text(manifest.read_text().replace("says a", f"{change} a"))
        run(manifest, store, ConvertSettings())
        (store / "lines" / "damaged").write_bytes(b"voxline")
        with LineCache(store / "lines" / "damaged") as cache:
            assert cache.count == 0
    (other,) = {file.name for file in (store / "lines").iterdir()} - {"damaged"}
    with LineCache(store / "lines" / other) as cache:
        assert [len(decode_piece(entry.output)) for entry in cache] == [3]


def test_recordings_without_an_audio_hash_are_hashed_in_each_run(tmp_path: Path) -> None:
    manifest, store = corpus(tmp_path / "corpus", named=False), tmp_path / "store"
    before = run(manifest, store, ConvertSettings())
    assert run(manifest, store, ConvertSettings()).reused
    (tmp_path / "corpus/a/1.wav").write_bytes((tmp_path / "corpus/b/3.wav").read_bytes())
    after = run(manifest, store, ConvertSettings())
    assert (after.reused, after.key == before.key) == (False, False)
    hashes = [one.audio_hash for one in read_manifest(after.folder)]
    assert hashes[0] == hashes[2] != hashes[1]


@pytest.mark.parametrize("named", [True, False])
def test_missing_recordings_are_found_in_each_run(tmp_path: Path, named: bool) -> None:
    manifest, store = corpus(tmp_path / "corpus", named=named), tmp_path / "store"
    (tmp_path / "corpus/a/2.wav").unlink()
    too_long = manifest.read_text().replace("b/3.wav", f"b/{'3' * 5_000}.wav")
    manifest.write_text(too_long)
    for _ in range(2):
        assert scan_corpus(manifest, store).missing == {1: "a/2", 2: "b/3"}
        assert run(manifest, store, ConvertSettings(max_reject_share=1)).counts["rejects"] == 2


def test_a_reject_without_decoding_becomes_missing_when_its_file_is_gone(tmp_path: Path) -> None:
    manifest, store = corpus(tmp_path / "corpus"), tmp_path / "store"
    manifest.write_text(manifest.read_text().replace("says b", "7"))
    settings = ConvertSettings(max_reject_share=1)
    reasons = []
    for vanishes in ("", "corpus/b/3.wav"):
        if vanishes:
            (tmp_path / vanishes).unlink()
        reasons.append([str(one.reason) for one in read_rejects(run(manifest, store, settings).folder)])
    assert reasons == [["outside_alphabet"], ["missing_file"]]


def test_a_manifest_that_changes_during_the_run_is_refused(tmp_path: Path) -> None:
    manifest, store = corpus(tmp_path / "corpus"), tmp_path / "store"
    with open_scan(manifest, store, ConvertSettings()) as scan:
        with open(manifest, "a") as file:
            file.write("\n")
        with pytest.raises(WorkError, match="changed while it was read"):
            convert_scanned(scan, store, ConvertSettings())
    assert not list(store.rglob("done.json"))


@pytest.mark.slow
def test_a_log_that_is_replaced_during_the_run_is_refused(tmp_path: Path) -> None:
    """As a purge does: the indexed offsets then hold other lines."""
    manifest, store = corpus(tmp_path / "corpus"), tmp_path / "store"
    run(manifest, store, ConvertSettings())
    manifest.write_text(manifest.read_text().replace("says", "sings"))
    with open_scan(manifest, store, ConvertSettings()) as scan:
        [log] = (store / "wavs/log").glob("*.jsonl")
        write_text(log, "".join(log.read_text().splitlines(keepends=True)[::-1]))
        with pytest.raises(WorkError, match=r"jsonl: replaced while it was being read"):
            convert_scanned(scan, store, ConvertSettings())
    made, expected = (run(manifest, place, ConvertSettings()) for place in (store, tmp_path / "another store"))
    assert [one.identity() for one in read_manifest(made.folder)] == [
        one.identity() for one in read_manifest(expected.folder)
    ]


def test_a_converted_recording_may_be_deleted(tmp_path: Path) -> None:
    manifest, store = corpus(tmp_path / "corpus"), tmp_path / "store"
    first = run(manifest, store, ConvertSettings())
    (tmp_path / "corpus/a/1.wav").unlink()
    again = run(manifest, store, ConvertSettings())
    assert (first.counts["decoded"], again.reused) == (3, True)
    lines = manifest.read_text().splitlines()
    corrected = [json.dumps({**json.loads(line), "text": "says more"}) for line in lines]
    manifest.write_text("\n".join(corrected) + "\n")
    third = run(manifest, store, ConvertSettings())
    assert (third.reused, third.counts["decoded"], third.counts["utterances"]) == (False, 0, 3)


@pytest.mark.slow
def test_a_truncated_wav_or_a_damaged_manifest_is_made_again(tmp_path: Path) -> None:
    manifest, store = corpus(tmp_path / "corpus"), tmp_path / "store"
    first = run(manifest, store, ConvertSettings())
    wav = Path(read_manifest(first.folder)[0].audio_filepath)
    whole = wav.read_bytes()
    wav.write_bytes(whole[:-2])
    again = run(manifest, store, ConvertSettings())
    assert (again.reused, again.counts["decoded"]) == (False, 1)
    assert wav.read_bytes() == whole
    made = again.folder / "manifest.jsonl"
    made.write_text(made.read_text().replace('"audio_hash"', '"audio_hush"'))
    repaired = run(manifest, store, ConvertSettings())
    assert (repaired.reused, repaired.counts["decoded"]) == (False, 0)
    assert len(read_manifest(repaired.folder)) == 3
    assert read_rejects(repaired.folder) == []

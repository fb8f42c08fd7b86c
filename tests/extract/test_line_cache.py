"""Pieces of the last manifest are reused without parsing, if the settings are the same."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audit import noticed
from voxline.components.extract.manifest_scan import scan_manifest
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run
from voxline.data import line_cache
from voxline.data.dataset import Dataset
from voxline.data.line_cache import LineCache, write_line_cache
from voxline.data.manifest import Utterance, read_rejects, write_manifest
from voxline.data.rows import ROWS_FILE
from voxline.errors import WorkError
from voxline.store.step_cache import StepOutput

Corpus = Callable[..., list[Utterance]]
HOW = ExtractSettings.of({"features": {"mels": 8}, "speeds": [0.9, 1.0], "max_reject_share": 0.5})


MARK = b"not parsed: "


def mark_cached(store: Path) -> Path:
    """Marks the rows of the line cache: one that comes from there again has the mark, one of a parsed line has not."""
    [file] = (store / "lines").iterdir()
    with LineCache(file) as cache, write_line_cache(file) as writer:
        writer.about = cache.about
        for entry in cache:
            writer.copy(entry.raw.replace(b'"text":"', b'"text":"' + MARK))
    return file


def extracted(
    folder: Path, utterances: list[Utterance], store: str = "store", how: ExtractSettings = HOW
) -> StepOutput:
    write_manifest(folder / "converted" / "manifest.jsonl", utterances)
    return run(folder / "converted", folder / store, how)


def content(work: StepOutput) -> tuple[Any, ...]:
    dataset = Dataset.read(work.folder)
    rejects = [reject.as_line() for reject in read_rejects(work.folder)]
    rows = (work.folder / ROWS_FILE).read_bytes()
    return rows, dataset.mean, dataset.counts, dataset.seconds, rejects, dataset.read_record_locations().shape


def test_only_pieces_that_changed_are_parsed(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_cache, "PIECE_LINES", 1)
    utterances = [row.replace(id=f'"{row.id}\\é', extra={"accent": "ü"}) for row in reversed(corpus(10))]
    extracted(tmp_path, utterances)
    mark_cached(tmp_path / "store")
    edited = [
        utterances[9],
        utterances[3].replace(text="corrected"),
        utterances[4].replace(split="dev"),
        utterances[5].replace(text="½"),
        *utterances[6:9],
        utterances[0],
        utterances[6].replace(text="the same id again"),
        utterances[7],  # and a line that is there twice
    ]
    work = extracted(tmp_path, edited)
    marked = {row.id for row in Dataset.read(work.folder).rows() if row.text.startswith(MARK.decode())}
    assert marked == {edited[number].id for number in (0, 4, 5, 6, 7)}
    assert [reject.reason for reject in read_rejects(work.folder)] == [
        "outside_alphabet", "duplicate_id", "duplicate_id",
    ]  # fmt: skip
    rows, *others = content(work)
    assert (rows.replace(MARK, b""), *others) == content(extracted(tmp_path, edited, "fresh"))


def scanned(folder: Path, manifest: Path) -> dict[str, Any]:
    """All that a scan says, with the rows in its order."""
    (folder / "unfinished").mkdir(parents=True, exist_ok=True)
    scan = scan_manifest(manifest, HOW, folder / "unfinished", folder / "store")
    scan.write_rows(folder / "rows.jsonl", np.ones(len(scan.ids), bool))
    columns = {"seconds": scan.seconds, "clips": scan.clips, "lines": scan._lines, "ranges": scan._row_ranges}
    return {
        **{name: column.tolist() for name, column in columns.items()},
        **{"total": scan.total, "ids": scan.ids, "splits": scan.splits},
        "rejects": [reject.as_line() for reject in scan.rejects],
        "rows": (folder / "rows.jsonl").read_bytes(),
        "utterances": list(scan.utterances(list(range(len(scan.ids))))),
    }


LINES = st.builds(
    Utterance,
    id=st.integers(0, 60).map("é{}".format),
    audio_filepath=st.just("/corpus/a.wav"),
    duration=st.sampled_from([1.0, 0.1, 1e-5, 3]),
    text=st.sampled_from(["one", "½", ""]) | st.text("ab ", min_size=1, max_size=6),
    split=st.sampled_from(["train", "dev", "odd"]),
    audio_hash=st.sampled_from(["1", "2"]),
    extra=st.sampled_from([{}, {"negative": True}, {"accent": 'u\u2028"s'}]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(LINES, max_size=40), min_size=2, max_size=4))
def test_a_scan_with_kept_pieces_is_a_scan_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, nights: list[list[Utterance]]
) -> None:
    folder = tmp_path_factory.mktemp("nights")
    lines: list[Utterance] = []
    for number, added in enumerate(nights):
        lines = [*added[::3], *lines, *added[1::3], *lines[:5], *added[2::3]]
        write_manifest(folder / "manifest.jsonl", lines)
        assert scanned(folder / "kept", folder / "manifest.jsonl") == scanned(
            folder / str(number), folder / "manifest.jsonl"
        )


CHANGES = st.sampled_from(
    [
        *({"audio_hash": "3"}, {"duration": 2.5, "audio_hash": "a longer hash"}, {"text": "ab"}, {"text": "½"}),
        *({"split": "train"}, {"split": "dev"}, {"id": "é1"}, {"id": "another"}, {"extra": {"accent": "us"}}),
    ]
)


@settings(deadline=None, max_examples=100)
@given(st.lists(LINES, max_size=80), st.lists(st.tuples(st.integers(0, 80), CHANGES), max_size=6))
def test_a_scan_is_that_of_the_whole_after_lines_changed_where_they_are(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Utterance], changes: list[tuple[int, dict[str, Any]]]
) -> None:
    folder = tmp_path_factory.mktemp("nights")
    lines = list({line.id: line.replace(text="ab") for line in lines}.values())  # no rejects, which keep no piece
    write_manifest(folder / "manifest.jsonl", lines)
    scanned(folder / "kept", folder / "manifest.jsonl")
    for number, change in changes if lines else []:
        lines[number % len(lines)] = lines[number % len(lines)].replace(**change)
    write_manifest(folder / "manifest.jsonl", lines)
    whole = scanned(folder / "whole", folder / "manifest.jsonl")
    for _ in range(2):  # then from what was kept of them
        assert scanned(folder / "kept", folder / "manifest.jsonl") == whole


def test_of_a_piece_with_another_recording_one_line_is_parsed(corpus: Corpus, tmp_path: Path) -> None:
    utterances = corpus(10)
    extracted(tmp_path, utterances)
    mark_cached(tmp_path / "store")
    edited = [*utterances[:4], utterances[4].replace(text="corrected"), *utterances[5:]]
    work = extracted(tmp_path, edited)
    texts = {row.id: row.text for row in Dataset.read(work.folder).rows()}
    assert texts == {row.id: row.text if row is edited[4] else f"{MARK.decode()}{row.text}" for row in edited}


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut short": lambda cache: cache.write_bytes(cache.read_bytes()[:-1]),
    "altered": lambda cache: cache.write_bytes(b"?" + cache.read_bytes()[1:]),
    "empty": lambda cache: cache.write_bytes(b""),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_cache_is_not_used(corpus: Corpus, tmp_path: Path, damage: str) -> None:
    utterances = corpus(6)
    extracted(tmp_path, utterances)
    DAMAGES[damage](mark_cached(tmp_path / "store"))
    work = extracted(tmp_path, utterances[1:])
    assert content(work) == content(extracted(tmp_path, utterances[1:], "fresh"))


@pytest.mark.parametrize("change", [{"alphabet": "english_speech"}, {"speeds": [1.0]}])
def test_lines_are_parsed_again_for_other_settings(corpus: Corpus, tmp_path: Path, change: dict[str, object]) -> None:
    utterances = corpus(4)
    extracted(tmp_path, utterances)
    mark_cached(tmp_path / "store")
    other = ExtractSettings.of({**json.loads(HOW.model_dump_json()), **change})
    work = extracted(tmp_path, utterances, how=other)
    assert content(work) == content(extracted(tmp_path, utterances, "fresh", how=other))


@pytest.mark.parametrize("more", [b'{"id": "half', b"\n"])
def test_a_manifest_that_grows_during_the_scan_is_refused(corpus: Corpus, tmp_path: Path, more: bytes) -> None:
    utterances = corpus(4)

    def grow(path: object, *_: object) -> None:
        if Path(str(path)).name == "rows":  # opened after the manifest
            with open(tmp_path / "converted" / "manifest.jsonl", "ab") as file:
                file.write(more)

    with noticed("open", grow), pytest.raises(WorkError, match="changed while it was read"):
        extracted(tmp_path, utterances)

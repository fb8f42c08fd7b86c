"""Tallies: those of pieces, joined, are that of the whole; what they count is what looking at each line gives."""

import collections
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validate import takes
from voxline.components.validate.columns import HashColumn, StringColumn, count_distinct, median
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.tally import (
    ManifestTally,
    byte_ranges,
    count_characters,
    iter_line_values,
    transcript_words,
)
from voxline.data.line_cache import MAX_PIECE_LINES, LineCache, write_line_cache
from voxline.data.manifest import Utterance, fingerprint_utterances, iter_manifest, write_manifest
from voxline.errors import WorkError
from voxline.text.alphabet import min_ctc_frames

LINE = '{"id": "a", "audio_filepath": "a.wav", "duration": 1.0, "text": "one"}\n'

utterances = st.lists(
    st.builds(
        Utterance,
        id=st.sampled_from("abcdefgh"),
        audio_filepath=st.just("/corpus/a.wav"),
        duration=st.floats(0, 30) | st.integers(0, 30),
        text=st.text("ab, '\t中é", max_size=20),
        speaker=st.sampled_from(["", "x", "y"]),
        split=st.sampled_from(["train", "dev", "test", "odd"]),
        audio_hash=st.sampled_from(["", "1", "2"]),
        offset=st.sampled_from([0.0, 0, 1.5]),
        measured=st.sampled_from([{}, {"rms_db": -20, "peak_db": -3.5, "pcm_hash": "p"}, {"silence_share": None}]),
        extra=st.sampled_from([{}, {"accent": "us", "a": [1, {"b": None}]}]),
    ),
    max_size=12,
)


def written(lines: list[Utterance], folder: Path) -> Path:
    write_manifest(folder / "manifest.jsonl", lines)
    return folder / "manifest.jsonl"


def contents(tally: ManifestTally) -> dict[str, Any]:
    """Everything in a tally, including the order of its tokens."""
    return {
        **tally.to_json(),
        "token_counts": {split: list(counts.items()) for split, counts in tally.token_counts.items()},
    }


@settings(deadline=None, max_examples=60)
@given(utterances, st.integers(1, 400))
def test_tallies_of_parts_are_the_tally_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Utterance], length: int
) -> None:
    manifest = written(lines, tmp_path_factory.mktemp("lines"))
    joined = ManifestTally()
    for piece in byte_ranges(manifest, length):
        joined.extend(ManifestTally.from_json(json.loads(json.dumps(ManifestTally.read(manifest, *piece).to_json()))))
    assert contents(joined) == contents(ManifestTally.read(manifest))


@settings(deadline=None, max_examples=60)
@given(st.lists(utterances, min_size=1, max_size=4))
def test_a_tally_with_kept_pieces_is_the_tally_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, nights: list[list[Utterance]]
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    lines: list[Utterance] = []
    for added in nights:
        lines = [*added[::2], *lines, *added[1::2]]  # as long as some pieces, and mostly those of the night before
        manifest = written(lines * 9, folder)
        kept = ManifestTally.read_kept(manifest, folder / "store")
        assert contents(kept) == contents(ManifestTally.read(manifest, identities=False))


def test_the_tally_of_an_unchanged_piece_is_not_made_again(tmp_path: Path) -> None:
    texts = [f"word {number}" for number in range(400)]
    lines = [Utterance(str(number), "/corpus/a.wav", 1.0, text) for number, text in enumerate(texts)]
    ManifestTally.read_kept(written(lines, tmp_path), tmp_path / "store")
    [kept] = (tmp_path / "store" / "lines").iterdir()
    with LineCache(kept) as cache, write_line_cache(kept) as writer:
        for entry in cache:
            writer.copy(entry.raw.replace(b'"word"', b'"kept"'))

    lines[200] = lines[200].replace(text="changed")
    counts = ManifestTally.read_kept(written(lines, tmp_path), tmp_path / "store").token_counts["train"]
    assert counts["changed"] == 1
    assert counts["kept"] + counts["word"] == 399
    assert 1 < counts["word"] < 2 * MAX_PIECE_LINES  # of its piece, and of the next one if it was the last line


CHANGES = st.sampled_from(
    [
        *({"audio_hash": "3"}, {"audio_hash": ""}, {"duration": 2.5, "audio_hash": "a longer hash"}, {"offset": 2.0}),
        *({"text": "another"}, {"text": ""}, {"split": "dev"}, {"speaker": "z"}, {"id": "another id"}),
        *({"measured": {"rms_db": -9.5, "pcm_hash": "q"}}, {"extra": {"drafted_by": "a model"}}),
    ]
)


@settings(deadline=None, max_examples=100)
@given(utterances, st.lists(st.tuples(st.integers(0, 200), CHANGES), max_size=6))
def test_a_tally_is_that_of_the_whole_after_lines_changed_where_they_are(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Utterance], changes: list[tuple[int, dict[str, Any]]]
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    lines = lines * 9
    ManifestTally.read_kept(written(lines, folder), folder / "store")
    for number, change in changes if lines else []:
        lines[number % len(lines)] = lines[number % len(lines)].replace(**change)
    manifest = written(lines, folder)
    for _ in range(2):  # then from what was kept of them
        kept = ManifestTally.read_kept(manifest, folder / "store")
        assert contents(kept) == contents(ManifestTally.read(manifest, identities=False))


def test_of_a_piece_with_another_recording_one_line_is_tallied(tmp_path: Path) -> None:
    lines = [
        Utterance(str(number), "/corpus/a.wav", 1.0, "word", audio_hash="1", split="train" if number % 2 else "dev")
        for number in range(400)
    ]
    ManifestTally.read_kept(written(lines, tmp_path), tmp_path / "store")
    [kept] = (tmp_path / "store" / "lines").iterdir()
    with LineCache(kept) as cache, write_line_cache(kept) as writer:
        for entry in cache:
            writer.copy(entry.raw.replace(b'"word"', b'"kept"'))

    lines[200] = lines[200].replace(audio_hash="2", duration=2.0)
    tally = ManifestTally.read_kept(written(lines, tmp_path), tmp_path / "store")
    assert {*tally.token_counts["train"]} == {*tally.token_counts["dev"]} == {" ", "kept"}
    assert tally.numbers["duration"].tolist() == [1.0] * 200 + [2.0] + [1.0] * 199


def test_a_line_without_a_hash_counts_after_its_neighbour_has_changed(tmp_path: Path) -> None:
    lines = [Utterance(str(number), "/corpus/a.wav", 1.0, "word", audio_hash="1" * bool(number)) for number in range(9)]
    ManifestTally.read_kept(written(lines, tmp_path), tmp_path / "store")
    lines[5] = lines[5].replace(audio_hash="2")
    assert not ManifestTally.read_kept(written(lines, tmp_path), tmp_path / "store").all_hashed


@pytest.mark.parametrize("damage", [b"", b"?", None])
def test_damaged_tallies_are_made_again(tmp_path: Path, damage: bytes | None) -> None:
    lines = [Utterance(str(number), "/corpus/a.wav", 1.0, f"word {number}") for number in range(100)]
    manifest = written(lines, tmp_path)
    ManifestTally.read_kept(manifest, tmp_path / "store")
    [kept] = (tmp_path / "store" / "lines").iterdir()
    whole = kept.read_bytes()
    kept.unlink() if damage is None else kept.write_bytes(damage + whole[1:-1])
    assert contents(ManifestTally.read_kept(manifest, tmp_path / "store")) == contents(
        ManifestTally.read(manifest, identities=False)
    )
    assert kept.read_bytes() == whole


def test_the_error_for_a_line_has_its_number_in_the_manifest_not_in_its_piece(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text(LINE * 500)
    ManifestTally.read_kept(manifest, tmp_path / "store")
    manifest.write_text(LINE * 500 + "[1]\n")
    with pytest.raises(WorkError, match=r"manifest.jsonl:501: \[1\]"):
        ManifestTally.read_kept(manifest, tmp_path / "store")
    manifest.write_text(LINE * 500)
    assert len(ManifestTally.read_kept(manifest, tmp_path / "store")) == 500


@settings(deadline=None, max_examples=60)
@given(utterances)
def test_a_tally_has_the_fingerprint_that_all_steps_use(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Utterance]
) -> None:
    manifest = written(lines, tmp_path_factory.mktemp("lines"))
    assert ManifestTally.read(manifest).fingerprint() == fingerprint_utterances(iter_manifest(manifest))


@settings(deadline=None, max_examples=100)
@given(utterances)
def test_the_counts_are_those_of_each_transcript(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Utterance]
) -> None:
    corpus = CheckedCorpus.read(written(lines, tmp_path_factory.mktemp("lines")))
    texts = [one.text for one in lines]
    assert corpus.characters.tolist() == [count_characters(text) for text in texts]
    assert corpus.words.tolist() == [len(transcript_words(text)) for text in texts]
    assert corpus.labels.tolist() == [min_ctc_frames([ord(letter) for letter in text]) for text in texts]
    for split in ("train", "dev", "test"):
        inside = [one.text for one in lines if one.split == split]
        assert corpus.character_counts(split) == collections.Counter("".join(inside))
        words = collections.Counter(word for text in inside for word in transcript_words(text))
        assert corpus.word_counts(split).most_common() == words.most_common()  # also in the order of those as frequent
    assert [one for _, one in corpus.utterances(np.arange(len(lines)))] == lines


def test_hashes_are_numbered_in_order_of_appearance() -> None:
    hashes = HashColumn(np.array([7, 0, 3, 7, 9, 0], dtype=np.uint64))
    assert hashes.codes.tolist() == [0, -1, 2, 0, 3, -1]
    assert (hashes.distinct, hashes.known.tolist()) == (3, [0, 2, 3, 4])


def test_strings_of_two_columns_share_their_numbers() -> None:
    above, below = StringColumn(), StringColumn()
    for name in ("x", "y"):
        above.append(name)
    for name in ("z", "y", "z"):
        below.append(name)
    above.extend(below)
    assert (above.names, above.codes.tolist()) == (["x", "y", "z"], [0, 1, 2, 1, 2])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no JSON", r"manifest.jsonl:4: not a JSON line"),
        (LINE.strip() + "x", r"manifest.jsonl:4: not a JSON line"),
        ('{"id": "a", "audio_filepath": "a.wav", "text": "one"}', r"manifest.jsonl:4: no duration"),
        (LINE.replace("1.0", "true").strip(), r"manifest.jsonl:4: `duration` is True"),
        (LINE.replace("1.0", "1, \"speaker\": 3").strip(), r"manifest.jsonl:4: `speaker` is 3"),
        (LINE.replace("one", "\\ud800").strip(), r"manifest.jsonl:4: not a JSON line"),
        ("[1]", r"manifest.jsonl:4: \[1\]"),
        ("[" * 100_000, r"manifest.jsonl:4: not a JSON line"),
    ],
)  # fmt: skip
def test_the_error_for_a_damaged_line_has_its_number(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "manifest.jsonl").write_text(f"{LINE}\n  \n{line}\n{LINE}")
    with pytest.raises(WorkError, match=message):
        CheckedCorpus.read(tmp_path)


def test_the_error_for_text_that_is_not_utf_8_has_its_line_number(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_bytes(LINE.encode() + b'{"id": "\xff"}\n')
    with pytest.raises(WorkError, match=r"manifest.jsonl:2: not a manifest: not UTF-8 \(byte 8\)"):
        CheckedCorpus.read(tmp_path)


def test_a_manifest_without_its_last_line_end_is_read_whole(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_bytes(LINE.replace("\n", "\r\n").encode() + LINE.strip().encode())
    assert [place for place, _ in iter_line_values(manifest)] == [0, len(LINE) + 1]


def test_a_manifest_that_changes_during_validation_is_an_error(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text(LINE)
    corpus = CheckedCorpus.read(manifest)
    manifest.write_text(LINE.replace('"a"', '"b"'))
    with pytest.raises(WorkError, match="changed during validation"):
        corpus.utterance(0)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 5)))
def test_distinct_values_are_counted(values: list[int]) -> None:
    assert count_distinct(np.array(values, dtype=np.int32)) == len(set(values))


@settings(max_examples=50)
@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1))
def test_the_median_is_that_of_numpy(values: list[float]) -> None:
    assert median(np.array(values, dtype=np.float32)) == float(np.median(np.array(values, dtype=np.float32)))


def test_validating_a_corpus_imports_nothing_slow(tmp_path: Path) -> None:
    judged = (
        "import sys\nfrom voxline.components.validate.settings import ValidateSettings\n"
        "from voxline.components.validate.step import run\n"
        "run(sys.argv[1], sys.argv[2], ValidateSettings.of(sys.argv[3]))\n"
        "slow = {'matplotlib', 'scipy', 'soundfile', 'apache_beam', 'tensorflow', 'numpy.ma'}\n"
        "print(sorted(slow & set(sys.modules)))"
    )
    command = [sys.executable, "-c", judged, takes.written(tmp_path / "corpus", takes.fit()), tmp_path / "store"]
    told = subprocess.check_output([*command, json.dumps(takes.SMALL)], text=True)
    assert told.splitlines()[-1] == "[]"


@pytest.mark.parametrize("more", ['"measured": {"rms_db": "loud"}', '"measured": {"rms_db": []}'])
def test_the_error_for_an_invalid_number_has_the_id(tmp_path: Path, more: str) -> None:
    (tmp_path / "manifest.jsonl").write_text(LINE + LINE.replace('"a"', '"b"').replace("}", f", {more}}}"))
    with pytest.raises(WorkError, match=r"manifest\.jsonl: b: .*give the output of convert"):
        ManifestTally.read(tmp_path / "manifest.jsonl")

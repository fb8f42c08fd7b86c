"""Manifests: written, read back, hashed, and refused with the number of the damaged line."""

import json
import math
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxline.data.manifest import (
    REJECTS_FILE,
    ManifestEncoder,
    Utterance,
    check_reject_share,
    fingerprint_utterances,
    iter_manifest,
    parse_utterance,
    read_manifest,
    write_manifest,
    write_rejects,
)
from voxline.errors import WorkError
from voxline.rejects import REMEDIES, Reason, Reject
from voxline.store.hashing import hash_value

GOOD = '{"id": "a", "audio_filepath": "a.wav", "duration": 1, "text": "x"'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fLaC\xff\xfe", "not UTF-8"),
        (b"5\n", "is a mapping with id"),
        (b"[" * 100_000, "not a JSON line"),
        (f'{GOOD}, "speaker": "\\ud800"}}'.encode(), "not a JSON line.*surrogates not allowed"),
        (f'{GOOD}, "offset": -1}}'.encode(), "`offset` is -1"),
        (f'{GOOD}, "duration": NaN}}'.encode(), "not a JSON line.*NaN"),
        (f'{GOOD}, "snr": -Infinity}}'.encode(), r"not a JSON line.*corpus\.format: manifest"),
        (f'{GOOD}, "snr": 1e400}}'.encode(), r"not a JSON line.*Out of range"),
        (f'{GOOD}, "text": 5}}'.encode(), "`text` is 5"),
        (f"{GOOD}}} {GOOD}}}".encode(), "not a JSON line"),
        (b'{"id": "a"}', "no audio_filepath, duration, text; an utterance has at least"),
        (f'{GOOD}, "measured": 3}}'.encode(), "`measured` is 3"),
    ],
)
def test_a_line_that_is_not_an_utterance_is_refused_by_its_number(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "manifest.jsonl").write_bytes(content)
    with pytest.raises(WorkError, match=message) as refused:
        read_manifest(tmp_path)
    assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize("number", [math.nan, -math.inf])
def test_a_number_that_json_has_not_is_refused_when_it_is_hashed_or_written(tmp_path: Path, number: float) -> None:
    utterance = Utterance("a", "/a.wav", 1.0, "x", extra={"snr": number})
    with pytest.raises(WorkError, match=r"^a: a further key .*corpus\.format: manifest"):
        utterance.digest()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_manifest(tmp_path / "manifest.jsonl", [utterance])
    assert not (tmp_path / "manifest.jsonl").exists()


@pytest.mark.parametrize(("text", "extra"), [("the null hypothesis", {}), ("x", {"accent": None})])
def test_the_word_null_and_an_empty_value_are_no_number(text: str, extra: dict[str, object]) -> None:
    utterance = Utterance("a", "/corpus/a.wav", 1.5, text, measured={"peak_db": -1.0}, extra=extra)
    line = ManifestEncoder(Path("/corpus")).encode(utterance, measured='{"peak_db":-1.0}')
    assert parse_utterance(line, "here", "/corpus") == utterance
    broken = utterance.replace(extra={"accent": None, "snr": math.nan})
    with pytest.raises(ValueError, match="not JSON compliant"):
        ManifestEncoder(Path("/corpus")).encode(broken, measured='{"peak_db":-1.0}')


def test_memory_does_not_grow_with_the_folders_of_a_corpus(tmp_path: Path) -> None:
    encoder = ManifestEncoder(tmp_path)
    tracemalloc.start()
    for number in range(10_000):
        encoder.relative(f"/corpus/{number}/recording.wav")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1_000_000


_texts = st.text(st.characters(codec="utf-8"), max_size=12)
_seconds = st.floats(0, 1e9, exclude_max=True) | st.integers(0, 10**6)
_values = st.recursive(
    _texts | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.none(), st.lists
)
_names = (_texts | st.sampled_from(["{0}", "accent", "aa", "z"])).filter(
    lambda name: name not in Utterance.__struct_fields__
)
_utterances = st.builds(
    Utterance,
    _texts,
    st.sampled_from(["/corpus/a.flac", "/corpus/b c.flac", '/corpus/ä/"1".wav', "/a.wav"]),
    _seconds,
    _texts,
    _texts,
    _texts,
    _texts,
    _seconds,
    st.dictionaries(_texts, st.floats(-120, 1), max_size=3),
    st.dictionaries(_names, _values, max_size=3),
)


@given(_utterances)
def test_a_line_is_json_and_is_read_back(utterance: Utterance) -> None:
    line = ManifestEncoder(Path("/store/ingest/key")).encode(utterance)
    relative = os.path.relpath(utterance.audio_filepath, "/store/ingest/key")
    assert json.loads(line) == {**utterance.as_line(), "audio_filepath": relative}
    assert (line[-1], line.count("\n")) == ("\n", 1)
    assert parse_utterance(line, "line 1", "/store/ingest/key") == utterance


@given(st.lists(_utterances, max_size=4))
def test_a_fingerprint_is_the_hash_of_the_sorted_identities(utterances: list[Utterance]) -> None:
    hashes = [hash_value(one.identity()) for one in utterances]
    assert [one.digest().hex() for one in utterances] == hashes
    assert fingerprint_utterances(utterances) == hash_value(sorted(hashes))


@pytest.mark.parametrize("seconds", [0, 3, 0.0, 1e-7, 9.999e-5, 1e-4, 0.1 + 0.2, 999_999_999.5])
def test_a_digest_spells_short_and_long_durations_as_json_does(seconds: float) -> None:
    utterance = Utterance("a\x1f", "/a.wav", seconds, 'naïve "\u2028"\x7f\b')
    assert utterance.digest().hex() == hash_value(utterance.identity())


def test_blank_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text(f"{GOOD}}}\r\n\n \t\n  {GOOD}}}\n{{\n", encoding="utf-8")
    read = iter_manifest(tmp_path)
    assert [next(read).id, next(read).id] == ["a", "a"]
    with pytest.raises(WorkError, match=r"manifest\.jsonl:5: not a JSON line"):
        next(read)


def test_every_reason_has_a_remedy() -> None:
    assert set(REMEDIES) == set(Reason)


def test_a_step_over_its_budget_names_reasons_examples_and_what_helps(tmp_path: Path) -> None:
    rejects = [Reject(f"a-{n}", Reason.OUTSIDE_ALPHABET, "'7' (U+0037) in \"at 7 30\"") for n in range(30)]
    rejects += [Reject("b", Reason.SILENT, "-72 dB")]
    write_rejects(tmp_path / REJECTS_FILE, rejects)
    with pytest.raises(WorkError) as told:
        check_reject_share(31, 100, 0.01, "ingest", tmp_path / REJECTS_FILE)
    first, second, third, last = str(told.value).splitlines()
    assert first.startswith("ingest: 31 of 100 utterances were rejected (31.0%), at most 1.0% are accepted")
    assert first.endswith("(corpus.max_reject_share)")
    assert second.startswith("  30 × outside_alphabet, e.g. a-0: '7' (U+0037) in \"at 7 30\"; write these")
    assert third.startswith("  1 × silent, e.g. b: -72 dB; listen to one")
    assert last == f"  all of them: {tmp_path / REJECTS_FILE}"

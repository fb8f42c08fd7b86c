"""A manifest is named by its content, and its recordings are looked for, at the cost of what is new in it."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from components.convert import incoming
from components.convert.incoming import Incoming
from components.convert.settings import ConvertSettings
from components.convert.step import run
from components.speech.storage import hash_file
from components.speech.utterances import Utterance, fingerprint, read_manifest, read_rejects, write_manifest


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


def test_bytes_that_were_seen_before_are_named_without_parsing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = corpus(tmp_path / "corpus")
    first = Incoming(manifest, tmp_path / "store")
    assert first.fingerprint == fingerprint(read_manifest(manifest))
    monkeypatch.setattr(incoming, "read_manifest", lambda path: pytest.fail("it was parsed"))
    again = Incoming(manifest, tmp_path / "store")
    assert again.fingerprint == first.fingerprint
    assert again.absent() == []


def test_a_manifest_that_names_no_content_is_hashed_each_time(tmp_path: Path) -> None:
    manifest = corpus(tmp_path / "corpus", named=False)
    before = Incoming(manifest, tmp_path / "store").fingerprint
    (tmp_path / "corpus/a/1.wav").write_bytes((tmp_path / "corpus/b/3.wav").read_bytes())
    assert Incoming(manifest, tmp_path / "store").fingerprint != before


def test_what_is_absent_is_found_in_manifests_seen_before_too(tmp_path: Path) -> None:
    manifest = corpus(tmp_path / "corpus")
    (tmp_path / "corpus/a/2.wav").unlink()
    (tmp_path / "corpus/b/3.wav").rename(tmp_path / "corpus/b/4.wav")
    for _ in range(2):
        assert [one.id for one in Incoming(manifest, tmp_path / "store").absent()] == ["a/2", "b/3"]


def test_a_recording_that_vanishes_does_not_matter_once_it_was_converted(tmp_path: Path) -> None:
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


def test_a_wav_cut_short_or_a_manifest_damaged_in_the_store_is_made_again(tmp_path: Path) -> None:
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

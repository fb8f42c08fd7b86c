"""Faults of a TTS corpus, from its folder to its WAVs: each becomes a reject with a reason."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from voxline.audio.wav import read_wav
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run as ingest
from voxline.data.manifest import Utterance, read_manifest, read_rejects
from voxline.rejects import Reject

RATE = 22_050
GOOD = "The Queen, about fourteen fifty-five."
LINES = {
    "good": GOOD,
    "no wav": GOOD,
    "no text": "",
    "punctuation": "?!… —",
    "mixed": "The Queen said 你好, then Привет",
    "control": "The \x07 Queen",
    "silent": GOOD,
    "cut": GOOD,
    "8 kHz": GOOD,
    "48 kHz stereo": GOOD,
    "rate of 7 Hz": GOOD,
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Utterance], dict[str, Reject]]:
    """The utterances after ingest and convert, and all rejects of both."""
    folder = tmp_path_factory.mktemp("voice")
    (folder / "wavs").mkdir()
    noise = np.random.default_rng(1)
    for id in LINES.keys() - {"no wav"} | {"no line"}:
        rate = {"8 kHz": 8_000, "48 kHz stereo": 48_000, "rate of 7 Hz": 7}.get(id, RATE)
        samples = noise.normal(0, 0.0 if id == "silent" else 0.1, (max(rate, 70), 2 if "stereo" in id else 1))
        soundfile.write(folder / "wavs" / f"{id}.wav", samples.clip(-1, 1), rate, subtype="PCM_16")
    cut = folder / "wavs/cut.wav"
    cut.write_bytes(cut.read_bytes()[:9_000])
    table = [f"{id}|{text}|{text}" for id, text in LINES.items()]
    # The text of a row before a line with fewer fields may be cut.
    table += [f"row1|{GOOD}|{GOOD}", "row2|x", "row4|x|y|z"]
    (folder / "metadata.csv").write_text("\n".join(table) + "\n", encoding="utf-8")
    split = {"by": "utterance", "dev": 0, "test": 0}
    values = {"uri": str(folder), "format": "ljspeech", "split": split, "max_reject_share": 0.9}
    read = ingest(folder / "store", CorpusSettings.of(values))
    chosen = ConvertSettings.of({"sample_rate": RATE, "max_reject_share": 0.9, "trim_db": 50, "loudness_lufs": -23})
    work = run(read.folder, folder / "store", chosen.model_copy(update={"alphabet": "english"}))
    rejects = [*read_rejects(read.path("rejects")), *read_rejects(work.path("rejects"))]
    assert len({reject.id for reject in rejects}) == len(rejects), "nobody is rejected twice"
    return {one.id: one for one in read_manifest(work.folder)}, {reject.id: reject for reject in rejects}


def test_every_line_is_converted_or_rejected_with_its_reason(
    outcome: tuple[dict[str, Utterance], dict[str, Reject]],
) -> None:
    utterances, rejects = outcome
    assert {id: str(reject.reason) for id, reject in rejects.items()} == {
        "no wav": "missing_file",
        "no line": "transcript_missing",
        "no text": "transcript_missing",
        "row1": "missing_file",
        "row2": "bad_entry",
        "row4": "bad_entry",
        "punctuation": "transcript_empty",
        "mixed": "outside_alphabet",
        "control": "outside_alphabet",
        "silent": "silent",
        "cut": "truncated",
        "rate of 7 Hz": "unreadable",
    }
    assert set(utterances) == {"good", "8 kHz", "48 kHz stereo"}


def test_a_mixed_script_is_named_character_by_character(
    outcome: tuple[dict[str, Utterance], dict[str, Reject]],
) -> None:
    _, rejects = outcome
    assert "CJK UNIFIED IDEOGRAPH-4F60" in rejects["mixed"].detail
    assert "CYRILLIC" in rejects["mixed"].detail
    assert "U+0007" in rejects["control"].detail


def test_another_sample_rate_is_resampled(
    outcome: tuple[dict[str, Utterance], dict[str, Reject]],
) -> None:
    utterances, _ = outcome
    for one in utterances.values():
        samples, rate = read_wav(Path(one.audio_filepath))
        assert rate == RATE
        assert one.duration == pytest.approx(1.0, abs=0.03)
        assert len(samples) == round(one.duration * RATE)
        assert one.measured["loudness_lufs"] == pytest.approx(-23, abs=0.05)

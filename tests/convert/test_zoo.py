"""Ingest and convert on every format: whole files are what ffmpeg decodes, cut and damaged ones are rejects."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.convert.zoo import (
    CUT_UNNOTICED,
    DAMAGE_UNNOTICED,
    FORMATS,
    RATE,
    SECONDS,
    decode_with_the_oracle,
    write_zoo,
)
from voxline.audio.wav import read_wav
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run as ingest
from voxline.data.manifest import Utterance, read_manifest, read_rejects
from voxline.rejects import Reject

ALL = [f"{kind}{name}" for name in FORMATS for kind in ("", "cut 50 ", "cut 95 ", "damaged ")]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zoo")
    write_zoo(folder)
    (folder / "source.wav").unlink()
    lines = [{"id": name, "audio_filepath": name, "text": "hello", "split": "train"} for name in ALL]
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def oracle(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return decode_with_the_oracle(zoo, tmp_path_factory.mktemp("oracle") / "out")


@pytest.fixture(scope="module")
def outcome(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Utterance], dict[str, Reject], str]:
    """The utterances after ingest and convert, the rejects of both, and what they wrote to the terminal."""
    store = tmp_path_factory.mktemp("store")
    with open(store / "stderr", "wb") as said:
        terminal = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            read = ingest(
                store,
                CorpusSettings.of(
                    {
                        "uri": str(zoo),
                        "format": "manifest",
                        "max_reject_share": 1,
                        "split": {"by": "utterance", "dev": 0, "test": 0},
                    }
                ),
            )
            work = run(read.folder, store, ConvertSettings(max_reject_share=1, workers=2))
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
    rejects = [*read_rejects(read.path("rejects")), *read_rejects(work.path("rejects"))]
    utterances = {one.id: one for one in read_manifest(work.folder)}
    assert len(utterances) + len(rejects) == len(ALL)
    return utterances, {reject.id: reject for reject in rejects}, (store / "stderr").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_file_is_what_ffmpeg_decodes(
    name: str, outcome: tuple[dict[str, Utterance], dict[str, Reject], str], oracle: dict[str, np.ndarray]
) -> None:
    utterances, rejects, _ = outcome
    assert name not in rejects, rejects[name].detail
    samples, rate = read_wav(Path(utterances[name].audio_filepath))
    assert rate == RATE
    assert len(samples) == pytest.approx(len(oracle[name]), abs=2)
    assert len(samples) / RATE == pytest.approx(SECONDS, abs=0.2)
    both = min(len(samples), len(oracle[name]))
    expected = oracle[name][:both].astype(float)
    noise = samples[:both] - expected
    assert 10 * np.log10((expected**2).sum() / max(1.0, (noise**2).sum())) > 45


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FORMATS if name not in CUT_UNNOTICED])
def test_a_cut_file_is_truncated_or_unreadable(
    name: str, outcome: tuple[dict[str, Utterance], dict[str, Reject], str]
) -> None:
    for cut in (f"cut 50 {name}", f"cut 95 {name}"):
        assert cut in outcome[1]
        assert outcome[1][cut].reason in ("truncated", "unreadable")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FORMATS if name not in DAMAGE_UNNOTICED])
def test_a_damaged_file_is_noticed(name: str, outcome: tuple[dict[str, Utterance], dict[str, Reject], str]) -> None:
    assert outcome[1][f"damaged {name}"].reason in ("truncated", "unreadable", "md5_mismatch")


@pytest.mark.slow
def test_no_decoder_writes_to_the_terminal_and_remarks_are_kept_with_the_file(
    outcome: tuple[dict[str, Utterance], dict[str, Reject], str],
) -> None:
    utterances, rejects, said = outcome
    assert not [line for line in said.splitlines() if not line.startswith(("▸", "▹", "ingest", "convert"))]
    assert "Xing stream size off" in rejects["cut 50 vbr.mp3"].detail
    assert "decoder_notes" in utterances["damaged cbr without xing.mp3"].measured

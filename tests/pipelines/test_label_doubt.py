"""Wrong transcripts come first in the ranking; each utterance is judged by a model that did not train on it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.evaluations import evaluation_info
from tests.tone_asr_model import WORDS, export_onnx_tones, render_words
from voxline.components.ingest.step import run as ingest
from voxline.data.manifest import Utterance, read_manifest, write_manifest
from voxline.errors import SettingsError
from voxline.inference.ctc_alignment import text_loss
from voxline.inference.recognizer import Recognizer
from voxline.metrics.evaluation import Evaluation, UtteranceResult
from voxline.pipelines.cli.main import main
from voxline.pipelines.config.load import load_config
from voxline.pipelines.label_doubt import _fold_config, _split, doubts, write_ranking


def test_planted_errors_come_first(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    recognizer = Recognizer(export_onnx_tones(tmp_path / "model"))
    utterances, results, planted = [], [], set()
    for number in range(200):
        words = random.choice(WORDS, random.integers(2, 9)).tolist()
        (decoded,) = recognizer.decode_waveforms([render_words(words)])
        if number % 20 == 7:  # 5%
            planted.add(f"u{number}")
            words[0] = "seven" if words[0] != "seven" else "eight"
        text = " ".join(words)
        losses = [text_loss(decoded.log_probabilities, one, recognizer.alphabet)[0] for one in (text, decoded.text)]
        details = {"loss": losses[0], "greedy_loss": losses[1], "hypothesis": decoded.text}
        results.append(UtteranceResult(f"u{number}", "", 1.0, {}, {}, details=details))
        utterances.append(Utterance(f"u{number}", f"/data/{number}.wav", 1.0, text))
    rejected = Utterance("rejected", "/data/r.wav", 1.0, "six")
    found = doubts(Evaluation(tmp_path, evaluation_info(), results))
    ranking = write_ranking([*utterances, rejected], found, tmp_path / "out", most=0.07)
    assert (ranking.ranked, ranking.unranked) == (200, 1)
    ranked = read_manifest(ranking.manifest)
    first = [one.id for one in ranked[:14]]
    assert set(first[:10]) == planted
    assert ranked[0].extra["doubt"] > ranked[-1].extra["doubt"] >= -1e-3
    tasks = json.loads((tmp_path / "out" / "label-studio.json").read_text("utf-8"))
    assert [task["data"]["id"] for task in tasks] == first
    assert tasks[0]["data"]["hypothesis"] == ranked[0].extra["hypothesis"]


def test_a_text_that_the_model_cannot_output_is_the_most_doubtful(tmp_path: Path) -> None:
    results = [
        UtteranceResult(id, "", 1.0, {}, {}, details={"loss": loss, "greedy_loss": 1.0, "hypothesis": "six"})
        for id, loss in (("a", 90.0), ("b", None), ("c", 2.0))
    ]
    utterances = [Utterance(id, f"/data/{id}.wav", 1.0, "six") for id in "abc"]
    write_ranking(utterances, doubts(Evaluation(tmp_path, evaluation_info(), results)), tmp_path, most=1.0)
    assert [(one.id, one.extra["doubt"]) for one in read_manifest(tmp_path / "doubt.jsonl")] == [
        ("b", 1e6), ("a", 89.0), ("c", 1.0),
    ]  # fmt: skip


def test_a_speaker_with_many_doubtful_transcripts_is_named(tmp_path: Path) -> None:
    """A model that does not understand a speaker doubts what is right."""
    utterances = [Utterance(f"u{n}", "/data/a.wav", 1.0, "six", "ann" if n < 20 else "bob") for n in range(200)]
    found = {
        one.id: (9.0 if one.id in {f"u{n}" for n in range(7)} else float(one.speaker == "bob"), "")
        for one in utterances
    }
    assert write_ranking(utterances, found, tmp_path, most=0.07).crowded == [("ann", 0.5, 0.1)]
    assert write_ranking(utterances, dict.fromkeys(found, (1.0, "")), tmp_path, most=1.0).crowded == []


def test_each_utterance_is_judged_once_and_keeps_its_fold() -> None:
    ids = [f"utterance-{number}" for number in range(2000)]
    splits = [[_split(id, fold, 4) for id in ids] for fold in range(4)]
    assert all(sorted(found).count("test") == 1 for found in zip(*splits, strict=True))
    for found in splits:
        assert 400 < found.count("test") < 600
        assert 40 < found.count("dev") < 120


def test_a_fold_is_as_it_was_dealt_and_known_to_nobody(tmp_path: Path) -> None:
    """Whatever the config says of splits, warm start, forecast and receivers."""
    given: dict[str, Any] = {
        "name": "ours", "store": str(tmp_path / "store"),
        "corpus": {
            "uri": str(tmp_path / "corpus"), "format": "csv", "columns": {"text": "words"}, "text_key": "words",
            "split": {"by": "utterance", "dev": 0.3, "test": 0.3}, "splits": {"train": ["a"], "dev": ["b"]},
            "corrections": str(tmp_path / "corrections"),
        },
        "train": {"start": {"model": "asr@production", "fallback": "base@1"}, "epochs": 3},
        "forecast": {"skip_below": 0.5},
        "notify": {"history": str(tmp_path / "history")},
    }  # fmt: skip
    manifest = tmp_path / "fold" / "corpus" / "manifest.jsonl"
    dealt = {id: _split(id, 1, 3) for id in (f"u{number}" for number in range(40))}
    roots = [str(tmp_path / "wavs")]
    (tmp_path / "wavs").mkdir()
    manifest.parent.mkdir(parents=True)
    utterances = []
    for id, split in dealt.items():
        soundfile.write(tmp_path / "wavs" / f"{id}.wav", np.zeros(800), 16_000)
        utterances.append(Utterance(id, str(tmp_path / "wavs" / f"{id}.wav"), 0.05, "six", split=split))
    write_manifest(manifest, utterances)
    assignments = [
        "corpus.split.dev=0.4", "train.start.model=asr@1", "train.batch_size=4", f"registry={tmp_path}/ours", "name=x",
    ]  # fmt: skip
    chosen = load_config([given], assignments, pipeline="asr")
    run = _fold_config([given], assignments, chosen, tmp_path / "fold", manifest, roots, "ours-fold-2")
    found = {one.id: one.split for one in read_manifest(ingest(run.store, run.corpus).path("manifest"))}
    assert found == dealt
    assert run.pipeline == "asr"
    assert (run.train.start.model, run.train.epochs, run.train.batch_size) == ("", 3, 4)
    assert (run.forecast.skip_below, run.notify.history) == (0.0, "")
    assert (run.name, run.registry) == ("ours-fold-2", str(tmp_path / "fold" / "registry"))


def test_several_corpora_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("name: a\ncorpus: {corpora: {one: {uri: a}, two: {uri: b}}}\n")
    with pytest.raises(SystemExit) as ended:
        main(["transcripts", "rank", "-c", str(tmp_path / "c.yaml"), "-o", str(tmp_path / "out")])
    assert ended.value.code == SettingsError("").exit_status
    assert "rank one at a time" in capsys.readouterr().err

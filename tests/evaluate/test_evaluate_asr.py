"""Evaluate measures the exported ASR model, with intervals, and compares it with the model in service."""

import json
import math
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.tone_asr_model import WORDS, MakeAsrModel, write_corpus
from voxline.components.evaluate import step
from voxline.components.evaluate.step import run
from voxline.data.manifest import Utterance, read_manifest, write_manifest
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.details import AsrDetails
from voxline.families.asr.settings import AsrEvaluateSettings
from voxline.inference.saved_model import model_digest
from voxline.metrics.evaluation import Evaluation
from voxline.registry.registry import Registry
from voxline.store.files import seal_marker, write_json
from voxline.store.hashing import hash_file


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 sentences of three speakers; "seven" is said by zoë alone."""
    choose = random.Random(1)
    sentences = []
    for number in range(24):
        speaker = ("ada", "ben", "zoë")[number % 3]
        words = choose.choices(WORDS[:6], k=1 + number % 5)
        sentences.append((speaker, " ".join([*words, "seven"] if speaker == "zoë" else words)))
    return write_corpus(tmp_path_factory.mktemp("corpus with spaces é"), sentences)


@pytest.fixture(scope="module")
def compared(corpus: Path, make_asr_model: MakeAsrModel, tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """A model that mishears "seven", evaluated while one that mishears nothing is in service."""
    folder = tmp_path_factory.mktemp("compared")
    publish(folder / "registry", make_asr_model())
    settings = AsrEvaluateSettings(bootstrap_samples=500, slices=["accent"])
    work = run(make_asr_model({"seven": "six"}), corpus, folder / "registry", folder / "store", settings)
    assert work.metrics["wer"] == work.metrics["wer_difference"]
    return Evaluation.read(work.folder)


def publish(registry: Path, model: Path) -> None:
    versions = Registry(registry, "asr")
    with versions.locked(), versions.publishing(model, model_digest(model), "push"):
        pass


def test_a_perfect_model_has_no_errors_and_an_interval_that_does_not_claim_perfection(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    work = run(make_asr_model(), corpus, tmp_path / "registry", tmp_path / "store", AsrEvaluateSettings())
    metrics = json.loads(work.path("metrics").read_text())
    assert work.metrics["wer"] == work.metrics["cer"] == 0
    assert 0 < work.metrics["wer_high"] < 0.2
    assert metrics["champion"] is None
    assert metrics["model"]["digest"] == model_digest(make_asr_model())
    assert metrics["smoke_test"]["text"] == metrics["smoke_test"]["reference"]
    assert 0 < work.metrics["rtf"] < 1
    assert not (tmp_path / "registry").exists()


def test_the_utterances_are_read_once(corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each reading of a version parses all rows and looks for their recordings."""
    listed = list(read_manifest(corpus))
    write_manifest(tmp_path / "manifest.jsonl", [*listed[1:], listed[1].replace(id="other", split="train")])
    reads: list[Path] = []

    def read(path: Path) -> list[Utterance]:
        reads.append(path)
        return read_manifest(path)

    monkeypatch.setattr(step, "read_utterances", read)
    split = step._read_split(tmp_path, AsrEvaluateSettings())
    assert reads == [tmp_path]
    assert split.seen == {listed[1].text}


def test_the_worst_by_loss_are_listed_with_what_cannot_be_output_first(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    """A reference with more letters than frames; without a language model, the loss follows the errors."""
    utterances = list(read_manifest(corpus))
    tested = [one for one in utterances if one.split == "test"]
    long = tested[0].replace(text="one " * 400 + "one")
    write_manifest(tmp_path / "manifest.jsonl", [long, *tested[1:]])
    model = make_asr_model({"seven": "six"})
    work = run(model, tmp_path / "manifest.jsonl", tmp_path / "registry", tmp_path / "store", AsrEvaluateSettings())
    evaluation = Evaluation.read(work.folder)
    worst = evaluation.info.to_dict()["details"]["worst_by_loss"]
    assert len(worst) == 10
    assert worst[0]["id"] == long.id
    assert worst[0]["loss"] is None
    assert worst[0]["no_loss"].startswith("impossible: ")
    assert [one["loss"] for one in worst[1:]] == sorted((one["loss"] for one in worst[1:]), reverse=True)
    assert all(one["wer"] > 0 for one in worst if "seven" in one["reference"])
    measured = evaluation.info.to_dict()["metrics"]["ctc_loss"]
    assert all(0.5 < one.details["confidence"] <= 1 for one in evaluation.results)
    assert all(max(one.details["bands_db"]) > -3 for one in evaluation.results), "each recording is a tone"
    losses = [one.details["loss"] for one in evaluation.results]
    assert all(one.details["greedy_loss"] <= (one.details["loss"] or math.inf) + 1e-6 for one in evaluation.results)
    assert losses.count(None) == 1
    assert measured["measured"] == len(losses) - 1
    assert measured["value"] == pytest.approx(np.mean([loss for loss in losses if loss is not None]))
    page = work.path("report").read_text()
    assert "Highest loss" in page
    assert worst[0]["no_loss"] in page


def test_errors_are_counted_in_the_slice_that_they_occur_in(compared: Evaluation) -> None:
    metrics = compared.info.to_dict()
    sevens = sum(result.details["reference"].split().count("seven") for result in compared.results)
    words = metrics["details"]["words"]
    assert (words["substitutions"], words["deletions"], words["insertions"]) == (sevens, 0, 0)
    assert metrics["metrics"]["wer"]["value"] == sevens / words["length"]
    speakers = metrics["slices"]["speaker"]
    assert {speaker: of["metrics"]["wer"]["value"] > 0 for speaker, of in speakers.items()} == {
        "ada": False,
        "ben": False,
        "zoë": True,
    }
    assert metrics["details"]["confusions"] == [{"reference": "seven", "hypothesis": "six", "count": sevens}]
    slicings = ["speaker", "duration", "words", "speaking_rate", "level", "snr", "sentence", "accent"]
    assert list(metrics["slices"]) == slicings
    for values in metrics["slices"].values():
        assert sum(of["utterances"] for of in values.values()) == len(compared.results)
        for of in values.values():
            wer = of["metrics"]["wer"]
            assert wer["interval"]["low"] <= wer["value"] <= wer["interval"]["high"]


def test_a_worse_model_compares_as_worse_than_the_one_in_service(compared: Evaluation) -> None:
    comparison = compared.info.to_dict()["metrics"]["wer"]["comparison"]
    assert compared.info.to_dict()["champion"]["version"] == 1
    assert comparison["champion_value"] == 0
    assert 0 < comparison["interval"]["low"] <= comparison["difference"] <= comparison["interval"]["high"]
    assert comparison["probability_worse"] == 1
    assert all(row.details["champion_hypothesis"] == row.details["reference"] for row in compared.results)


def test_the_report_is_self_contained_and_plays_the_worst_utterances(compared: Evaluation) -> None:
    html = (compared.folder / "report.html").read_text()
    by_loss = {one["id"] for one in compared.info.to_dict()["details"]["worst_by_loss"]}
    played = by_loss | {result.id for result in compared.results if result.metrics["wer"].sum}
    assert html.count("<audio") == len(played)
    assert "Not judged yet" in html
    for part in ("zoë", "probability of being worse", "seven", "<svg"):
        assert part in html
    assert "http://" not in html
    assert "https://" not in html


def test_the_report_lists_the_regressions_and_every_utterance(compared: Evaluation) -> None:
    html = (compared.folder / "report.html").read_text()
    worse = [result for result in compared.results if result.metrics["wer"].sum]
    assert f"Regressions: {len(worse)} utterances" in html
    assert "Fixes: none." in html
    assert html.count('title="substitution">six</ins>') >= len(worse)
    table = html[html.index("<table data-explorer>") :]
    assert table[: table.index("</table>")].count("<tr>") == len(compared.results) + 1
    sevens = sum(result.details["reference"].split().count("seven") for result in compared.results)
    assert f"{sevens} of {sevens}" in html  # missed, and times that it occurs


def test_each_utterance_has_its_level_noise_and_rate(corpus: Path, compared: Evaluation) -> None:
    manifest = {one.id: one for one in read_manifest(corpus)}
    for result in compared.results:
        samples, rate = soundfile.read(manifest[result.id].audio_filepath)
        level = 10 * np.log10(np.mean(samples**2))
        assert result.details["level_db"] == pytest.approx(level, abs=0.01)
        assert result.details["speaking_rate"] == pytest.approx(
            len(result.details["reference"]) / (len(samples) / rate), abs=0.01
        )
        assert result.slices["sentence"] == "not in train"
    loud = [name for name in compared.info.to_dict()["slices"]["level"] if name.startswith("-20 dB")]
    assert sum(result.slices["level"] in loud for result in compared.results) == sum(
        result.details["level_db"] >= -20 for result in compared.results
    )


def test_sentences_of_train_are_a_slice_and_the_data_is_summarized(
    tmp_path: Path, make_asr_model: MakeAsrModel
) -> None:
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three"), ("ada", "four one")])
    lines = list(read_manifest(corpus))
    trained = [one.replace(id=f"t{one.id}", split="train", speaker="tom") for one in lines[:2]]
    write_manifest(corpus / "manifest.jsonl", [*trained, *lines])
    work = run(make_asr_model(), corpus, tmp_path / "none", tmp_path / "store", AsrEvaluateSettings())
    metrics = json.loads(work.path("metrics").read_text())
    slices = {name: of["utterances"] for name, of in metrics["slices"]["sentence"].items()}
    assert slices == {"also in train": 2, "not in train": 1}
    assert metrics["test"]["also_in_train"] == 2
    assert {split: (of["utterances"], of["speakers"]) for split, of in metrics["data"].items()} == {
        "train": (2, 1),
        "test": (3, 2),
    }


def test_an_evaluation_is_repeated_if_another_model_goes_into_service(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    model, settings = make_asr_model({"one": "two"}), AsrEvaluateSettings(bootstrap_samples=100)

    def evaluated() -> Any:
        return run(model, corpus, tmp_path / "registry", tmp_path / "store", settings)

    first = evaluated()
    assert not first.reused
    assert evaluated().reused
    publish(tmp_path / "registry", make_asr_model({"two": "one"}))
    second = evaluated()
    assert not second.reused
    versions = Registry(tmp_path / "registry", "asr")
    with versions.locked(), versions.publishing(model, model_digest(model), "push") as (_, incoming):
        shutil.copytree(second.folder, incoming / "evaluation")
    again = evaluated()
    assert again.reused
    assert again.key == second.key


def test_an_evaluation_of_another_format_is_made_again(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of an earlier release has the key of this one; reused, it would end each run in push."""
    model, settings = make_asr_model({}), AsrEvaluateSettings(bootstrap_samples=100)
    metrics = run(model, corpus, tmp_path / "registry", tmp_path / "store", settings).path("metrics")
    values = json.loads(metrics.read_text(encoding="utf-8"))
    write_json(metrics, {name: value for name, value in values.items() if name != "format"})
    marker = metrics.with_name("done.json")
    done = json.loads(marker.read_text(encoding="utf-8"))
    done["hashes"]["metrics.json"] = hash_file(metrics)
    done["bytes"]["metrics.json"] = metrics.stat().st_size
    write_json(marker, seal_marker(done))

    again = run(model, corpus, tmp_path / "registry", tmp_path / "store", settings)
    assert not again.reused
    assert "evaluate: making it again: " in capsys.readouterr().out
    Evaluation.read(again.folder)


def test_an_empty_test_split_is_refused_with_a_remedy(make_asr_model: MakeAsrModel, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, [("ada", "one")], split="train")
    with pytest.raises(WorkError, match=r"no utterance in the split 'test'.*evaluate.split"):
        run(make_asr_model(), corpus, tmp_path / "registry", tmp_path / "store", AsrEvaluateSettings())


def test_a_slicing_by_an_unknown_field_is_refused_before_any_work(
    corpus: Path, tmp_path: Path, make_asr_model: MakeAsrModel
) -> None:
    with pytest.raises(SettingsError, match=r"acent.*accent"):
        run(make_asr_model(), corpus, tmp_path, tmp_path / "store", AsrEvaluateSettings(slices=["acent"]))
    assert not (tmp_path / "store").exists()


def test_a_missing_recording_is_named(make_asr_model: MakeAsrModel, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, [("ada", "one"), ("ben", "two")])
    (tmp_path / "wavs" / "0001.wav").unlink()
    with pytest.raises(WorkError, match="utterance ben-0001"):
        run(make_asr_model(), corpus, tmp_path / "registry", tmp_path / "store", AsrEvaluateSettings())


def test_a_damaged_model_in_service_is_named(corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path) -> None:
    publish(tmp_path / "registry", make_asr_model({"one": "two"}))
    (tmp_path / "registry" / "asr" / "1" / "saved_model.pb").write_bytes(b"\x00")
    with pytest.raises(WorkError, match=r"version 1 of asr.*rollback"):
        run(make_asr_model(), corpus, tmp_path / "registry", tmp_path / "store", AsrEvaluateSettings())


def test_a_model_in_service_whose_files_were_replaced_is_not_loaded(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    publish(tmp_path / "registry", make_asr_model())
    version = tmp_path / "registry" / "asr" / "1"
    shutil.copytree(make_asr_model({"one": "two"}), version, dirs_exist_ok=True)  # version.json stays
    with pytest.raises(WorkError, match=r"version 1 of asr.*not the ones that were published.*rollback"):
        run(make_asr_model({"two": "three"}), corpus, tmp_path / "registry", tmp_path / "store", AsrEvaluateSettings())


def test_importing_the_step_imports_no_slow_library() -> None:
    code = "import sys, voxline.components.evaluate.step, voxline.components.push.step; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    slow = {"numpy", "tensorflow", "soundfile", "jiwer", "matplotlib", "jinja2"}
    assert slow.isdisjoint(loaded)


def test_utterances_with_an_empty_reference_or_hypothesis_are_counted(
    make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path, [("ada", "one two"), ("ben", "three"), ("", "four five")])
    silence = json.loads((tmp_path / "manifest.jsonl").read_text().splitlines()[0])
    lines = (tmp_path / "manifest.jsonl").read_text()
    soundfile.write(tmp_path / "wavs" / "quiet.wav", [0.0] * 8_000, 16_000)
    quiet = {**silence, "audio_filepath": "wavs/quiet.wav", "duration": 0.5}
    lines += json.dumps({**quiet, "id": "unsaid", "text": ""}) + "\n" + json.dumps({**quiet, "id": "unheard"}) + "\n"
    (tmp_path / "manifest.jsonl").write_text(lines)
    work = run(make_asr_model(), corpus, tmp_path / "registry", tmp_path / "store", AsrEvaluateSettings())
    results = {result.id: result for result in Evaluation.read(work.folder).results}
    assert results["unsaid"].metrics["wer"] == (0, 0)
    assert results["unheard"].details["words"]["deletions"] == 2
    assert work.metrics["wer"] == pytest.approx(2 / 7)
    assert work.metrics["silence_words"] == 0


def test_words_written_into_recordings_without_speech_are_a_rate(make_asr_model: MakeAsrModel, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, [("ada", "one two"), ("ben", " ".join(20 * ["three"])), ("ben", "four")])
    lines = [json.loads(line) for line in (tmp_path / "manifest.jsonl").read_text().splitlines()]
    lines[1]["text"] = ""
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    work = run(make_asr_model(), corpus, tmp_path / "registry", tmp_path / "store", AsrEvaluateSettings())
    assert work.metrics["wer"] == pytest.approx(20 / 3)  # too many, over the words of the others
    assert work.metrics["silence_words"] == pytest.approx(20 / 2 * 60)


def test_utterances_are_measured_joined_with_pauses_too(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    """Field case F5: the figure of single sentences is not the only one."""
    model = make_asr_model({"seven": "six"})
    settings = AsrEvaluateSettings(joined_seconds=5)
    evaluation = Evaluation.read(run(model, corpus, tmp_path / "registry", tmp_path / "store", settings).folder)
    joined = evaluation.info.family_details(AsrDetails).joined
    assert joined is not None
    assert [kind.kind for kind in joined.kinds] == ["silence", "noise", "room tone"]
    assert 5 <= joined.seconds < 6
    for kind in joined.kinds:
        assert kind.words.length == joined.single.length
        assert 0.3 * joined.utterances < kind.pause_seconds < 3 * (joined.utterances + 1)
        # The room tone of these recordings sounds like their words.
        if kind.kind != "room tone":
            assert kind.words_in_pauses == 0
    assert joined.single.substitutions > 0
    assert evaluation.info.measured("joined_wer").value == joined.words.rate
    assert "Utterances joined with pauses" in (evaluation.folder / "report.html").read_text()

    off = AsrEvaluateSettings(joined_seconds=0)
    without = Evaluation.read(run(model, corpus, tmp_path / "registry", tmp_path / "store", off).folder)
    assert "joined_wer" not in without.info.metrics

"""Several corpora in one run: each is its own cached work, merged under its name, and drawn by its weight."""

import collections
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.extract.conftest import write_wav
from tests.publish.conftest import HOW
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.extract.step import run as extract
from voxline.components.ingest.settings import CorporaSettings, CorpusSettings
from voxline.components.ingest.step import run as ingest
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.data.dataset import Dataset
from voxline.data.manifest import Utterance, read_manifest, read_rejects
from voxline.errors import SettingsError, WorkError
from voxline.operations.purge.locations import PurgeScope
from voxline.operations.purge.purge import purge_speaker
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.load import load_config
from voxline.pipelines.kfp_graph import load_pipeline, pipeline_arguments
from voxline.pipelines.local.plan import plan_run
from voxline.store.files import write_json
from voxline.store.step_cache import StepOutput
from voxline.training.batches import Batches

SPEAKERS = ("ann", "bo", "cy", "dee")
WriteCorpus = Callable[..., Path]


def write_corpus(folder: Path, count: int, seed: int, **extra: Any) -> Path:
    """A manifest of recordings by four speakers, in folder/manifest.jsonl."""
    random = np.random.default_rng(seed)
    lines = []
    for number in range(count):
        samples = int(random.integers(3_000, 8_000))
        write_wav(folder / f"{number}.wav", random.standard_normal(samples) / 10)
        line = {"id": f"u{number:02}", "audio_filepath": f"{number}.wav", "text": "one two"}
        lines.append(line | {"speaker": SPEAKERS[number % 4]} | extra)
    write_lines(folder, lines)
    return folder


def write_lines(folder: Path, lines: list[dict[str, Any]]) -> None:
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def read_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A folder with the corpora `ours`, of 24 utterances, and `theirs`, of 8."""
    write_corpus(tmp_path / "ours", 24, seed=1)
    write_corpus(tmp_path / "theirs", 8, seed=2)
    return tmp_path


def settings_of(folder: Path, **changes: dict[str, Any]) -> CorporaSettings:
    corpora = {name: {"uri": str(folder / name)} | changes.get(name, {}) for name in ("ours", "theirs")}
    split = {"by": "speaker", "test": 0.25, "dev": 0.25}
    return CorporaSettings.of({"format": "manifest", "split": split, "corpora": corpora}, "corpus")


def by_corpus(utterances: list[Utterance]) -> dict[str, int]:
    return dict(collections.Counter(one.extra["corpus"] for one in utterances))


def test_a_limit_is_of_each_corpus_and_one_may_have_its_own(two: Path) -> None:
    settings = settings_of(two, theirs={"limits": {"train": 1}})
    settings = CorporaSettings.of({**settings.plain(), "limits": {"train": 5}}, "corpus")
    output = ingest(two / "store", settings)
    trained = [one for one in read_manifest(output.folder) if one.split == "train"]
    assert by_corpus(trained) == {"ours": 5, "theirs": 1}
    left = ingest(two / "store", settings_of(two)).counts["utterances"] - output.counts["utterances"]
    assert output.counts["beyond_limits"] == left > 0


def test_limits_beside_a_dataset_version_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"dataset is digits@7, and limits is set too"):
        CorporaSettings.of({"dataset": "digits@7", "limits": {"train": 100}}, "corpus")


def test_ids_and_speakers_begin_with_the_name_of_their_corpus(two: Path) -> None:
    lines = read_lines(two / "theirs")
    write_lines(two / "theirs", [{**lines[0], "corpus": "web"}, {**lines[1], "speaker": ""}, *lines[2:], {"id": "x"}])
    output = ingest(two / "store", settings_of(two, theirs={"split": {"by": "utterance"}, "max_reject_share": 0.5}))
    utterances = read_manifest(output.folder)
    assert [one.id for one in utterances] == sorted(one.id for one in utterances)
    assert by_corpus(utterances) == {"ours": 24, "theirs": 8}
    assert {one.id.partition("-")[0] for one in utterances if one.extra["corpus"] == "ours"} == {"ours"}
    assert {one.speaker for one in utterances if one.speaker.startswith("ours-")} == {f"ours-{one}" for one in SPEAKERS}
    first, second = [one for one in utterances if one.extra["corpus"] == "theirs"][:2]
    assert (first.id, first.extra["corpus_corpus"], second.speaker) == ("theirs-u00", "web", "")
    assert [reject.id for reject in read_rejects(output.folder)] == ["theirs-x"]
    assert (output.counts["from ours"], output.counts["from theirs"], output.counts["utterances"]) == (24, 8, 32)


def test_each_corpus_is_split_as_if_it_were_alone(two: Path) -> None:
    alone = ingest(two / "alone", _alone(two))
    merged = ingest(two / "store", settings_of(two))
    expected = {f"ours-{one.id}": one.split for one in read_manifest(alone.folder)}
    assert len(set(expected.values())) == 3
    found = {one.id: one.split for one in read_manifest(merged.folder) if one.extra["corpus"] == "ours"}
    assert found == expected


def _alone(folder: Path) -> CorpusSettings:
    split = {"by": "speaker", "test": 0.25, "dev": 0.25}
    return CorpusSettings.of({"uri": str(folder / "ours"), "format": "manifest", "split": split})


@pytest.mark.slow
def test_a_corpus_that_changes_costs_only_itself(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def read() -> list[str]:
        """The corpora that were read since the last call."""
        return sorted(re.findall(r"ingest: reading .*/(\w+) as ", capsys.readouterr().out))

    def refresh(version: int) -> tuple[StepOutput, StepOutput, StepOutput]:
        ingested = ingest(two / "store", settings_of(two))
        converted = convert(ingested.folder, two / "store", ConvertSettings(workers=1))
        extracted = extract(converted.folder, two / "store", HOW)
        published = publish(extracted.uri, str(two / "store"), str(two / "datasets"), PublishSettings(dataset="both"))
        assert published.counts["version"] == version
        return ingested, converted, extracted

    _, converted, _ = refresh(1)
    assert (read(), converted.counts["decoded"]) == (["ours", "theirs"], 32)
    assert all(output.reused for output in refresh(1))
    assert read() == []
    lines = read_lines(two / "theirs")
    write_wav(two / "theirs" / "new.wav", np.random.default_rng(3).standard_normal(4_000) / 10)
    write_lines(two / "theirs", [*lines, {**lines[0], "id": "new", "audio_filepath": "new.wav"}])
    ingested, converted, extracted = refresh(2)
    assert extracted.counts["extracted"] == 1
    assert read() == ["theirs"]
    assert (ingested.counts["utterances"], converted.counts["decoded"]) == (33, 1)
    shutil.rmtree(ingested.folder)  # the merged manifest alone is made again
    read()
    assert refresh(2)[1].reused
    assert read() == []


def test_weights_change_neither_manifest_nor_dataset(two: Path) -> None:
    first = ingest(two / "store", settings_of(two))
    again = ingest(two / "store", settings_of(two, ours={"weight": 0.5}, theirs={"weight": 4}))
    assert again.reused
    assert again.key == first.key


@pytest.mark.slow
def test_an_epoch_draws_each_corpus_by_its_weight(two: Path) -> None:
    split = {"splits": {"train": ["*"]}, "split": {"by": "corpus", "dev": 0}}
    ingested = ingest(two / "store", settings_of(two, ours=split, theirs=split))
    converted = convert(ingested.folder, two / "store", ConvertSettings(workers=1))
    dataset = Dataset.read(extract(converted.folder, two / "store", HOW).folder)

    def drawn(epoch: int, weights: dict[str, float]) -> list[str]:
        batches = Batches(dataset, "train", batch_size=4, shuffled=True, seed=1, corpus_weights=weights)
        return [id for batch in batches.epoch(epoch) for id in batch.ids]

    ids = drawn(0, {"ours": 0.5, "theirs": 3})
    counts = collections.Counter(id.partition("-")[0] for id in ids)
    assert counts == {"ours": 12, "theirs": 24}
    assert set(collections.Counter(id for id in ids if id.startswith("theirs-")).values()) == {3}
    both = ids + drawn(1, {"ours": 0.5, "theirs": 3})
    assert set(collections.Counter(id for id in both if id.startswith("ours-")).values()) == {1}  # each in its turn
    assert not any(id.startswith("theirs-") for id in drawn(0, {"theirs": 0}))
    with pytest.raises(WorkError, match=r"draw no utterance of train; raise the weight"):
        drawn(0, {"ours": 0, "theirs": 0})


def test_a_recording_in_two_corpora_stays_in_the_first(two: Path) -> None:
    shutil.copy(two / "ours" / "3.wav", two / "theirs" / "copy.wav")
    whole = (two / "ours" / "4.wav").stat().st_size / 32_000
    shutil.copy(two / "ours" / "4.wav", two / "theirs" / "long.wav")
    lines = read_lines(two / "theirs")
    copy = {**lines[0], "id": "copy", "audio_filepath": "copy.wav", "text": "another text"}
    long = {**copy, "audio_filepath": "long.wav", "duration": 0.05}
    parts = [{**long, "id": f"part{at}", "offset": 0.02 + at / 20} for at in (0, 1)]
    write_lines(two / "theirs", [*lines, copy, *parts])
    ours = read_lines(two / "ours")
    ours[4] |= {"offset": 0.0, "duration": 0.05}  # so the second part is not in it
    write_lines(two / "ours", ours)
    assert whole > 0.1
    output = ingest(two / "store", settings_of(two))
    assert by_corpus(read_manifest(output.folder)) == {"ours": 24, "theirs": 9}
    rejects = {reject.id: (str(reject.reason), reject.detail) for reject in read_rejects(output.folder)}
    assert rejects == {
        "theirs-copy": ("duplicate_recording", "the same recording as ours-u03"),
        "theirs-part0": ("duplicate_recording", "the same recording as ours-u04"),
    }
    assert output.counts["recordings in two corpora"] == 2


def test_a_store_that_was_moved_leads_to_all_corpora_again(two: Path) -> None:
    ingest(two / "store", settings_of(two))
    (two / "a" / "b").mkdir(parents=True)
    (two / "store").rename(two / "a" / "b" / "store")
    output = ingest(two / "a" / "b" / "store", settings_of(two))
    assert all(Path(one.audio_filepath).is_file() for one in read_manifest(output.folder))
    assert ingest(two / "a" / "b" / "store", settings_of(two)).reused


def test_a_fault_names_its_corpus(two: Path) -> None:
    with pytest.raises(SettingsError, match=r"^corpus\.corpora\.theirs\.uri is .* does not exist"):
        ingest(two / "store", settings_of(two, theirs={"uri": str(two / "absent")}))
    with pytest.raises(SettingsError, match=r"^corpus\.corpora\.theirs\.uri is empty.* corpus\.corpora\.theirs\.uri="):
        ingest(two / "store", settings_of(two, theirs={"uri": ""}))
    write_lines(two / "theirs", [{"id": "x"}])
    with pytest.raises(WorkError, match=r"^corpus\.corpora\.theirs: ingest: 1 of 1 utterances were rejected"):
        ingest(two / "store", settings_of(two))


@pytest.mark.slow
def test_a_purge_removes_a_speaker_of_one_corpus(two: Path) -> None:
    ingested = ingest(two / "store", settings_of(two))
    converted = convert(ingested.folder, two / "store", ConvertSettings(workers=1))
    extracted = extract(converted.folder, two / "store", HOW)
    publish(extracted.uri, str(two / "store"), str(two / "datasets"), PublishSettings(dataset="both"))
    result = CliRunner().invoke(app, _purge(two, "ann"))
    assert "theirs-ann" in result.output
    assert "ours-ann" in result.output
    found = purge_speaker("theirs-ann", PurgeScope(two / "store", (two / "datasets",)))
    assert found.rows == {"both/1": 2}
    left = [path for path in (two / "store").rglob("*") if path.is_file() and b"theirs-ann" in path.read_bytes()]
    assert left == []
    rows = (two / "datasets" / "both" / "1" / "rows.jsonl").read_text(encoding="utf-8")
    assert "ours-ann" in rows
    assert "theirs-bo" in rows


def _purge(folder: Path, speaker: str) -> list[str]:
    places = ["--store", str(folder / "store"), "--datasets", str(folder / "datasets")]
    return ["datasets", "purge", "--speaker", speaker, *places]


def test_gc_keeps_what_each_corpus_of_a_kept_run_was_made_of(two: Path) -> None:
    output = ingest(two / "store", settings_of(two))
    write_json(two / "runs" / "nightly" / "run.json", {"steps": [{"name": "ingest", "key": output.key}]})
    alone = ingest(two / "store", _alone(two))
    long_ago = time.time() - 60 * 86_400
    for path in (two / "store").rglob("*"):
        os.utime(path, (long_ago, long_ago))
    options = ["--store", str(two / "store"), "--runs", str(two / "runs"), "--older-than", "30d", "--yes"]
    result = CliRunner().invoke(app, ["store", "gc", *options])
    assert result.exit_code == 0, result.output
    assert not (alone.folder / "done.json").exists()
    assert len(list((two / "store" / "ingest").glob("*/done.json"))) == 3


def config_of(folder: Path, **changes: Any) -> dict[str, Any]:
    corpora = {"ours": {"uri": str(folder / "ours"), "weight": 2}, "theirs": {"uri": str(folder / "theirs")}}
    corpus = {"format": "manifest", "max_reject_share": 0.2, "split": {"by": "speaker"}, "corpora": corpora}
    return {"pipeline": "asr", "name": "both", "corpus": corpus, **changes}


def test_a_config_of_several_corpora_reads_inherits_and_is_recorded(two: Path) -> None:
    config = load_config(config_of(two), ["corpus.corpora.theirs.weight=0.5"])
    assert config.corpus.corpora["ours"].max_reject_share == 0.2
    assert config.section("train").plain()["corpus_weights"] == {"ours": 2.0, "theirs": 0.5}
    assert load_config(config.to_yaml()) == config
    recorded = config.plain()["corpus"]["corpora"]["theirs"]
    assert recorded == {"uri": str(two / "theirs"), "weight": 0.5}  # what is inherited is written once
    arguments = pipeline_arguments(config.plain(), list(load_pipeline("asr").component_spec.inputs))
    sent = CorporaSettings.of(arguments["corpus__settings"], uri="", format=arguments["corpus__format"])
    assert sent == config.corpus
    with pytest.raises(SettingsError, match=r"train\.corpus_weights' is \{'ours': 7"):
        load_config(config_of(two, train={"corpus_weights": {"ours": 7}}))


def test_without_weights_the_key_of_a_training_is_as_before(two: Path) -> None:
    values = config_of(two)
    values["corpus"]["corpora"]["ours"]["weight"] = 1
    train: Any = load_config(values).section("train")
    assert "corpus_weights" not in train.key_values()
    weighted: Any = load_config(config_of(two)).section("train")
    assert weighted.key_values()["corpus_weights"] == {"ours": 2.0, "theirs": 1.0}


@pytest.mark.parametrize(
    ("corpora", "message"),
    [
        ({"a-b": {"uri": "x"}}, r"'corpus\.corpora\.a-b' is 'a-b'; accepted: text that matches"),
        ({"a": {"uri": "x", "wieght": 2}}, r"did you mean 'corpus\.corpora\.a\.weight'\?"),
        ({"a": {"uri": "x", "split": {"tset": 1}}}, r"did you mean 'corpus\.corpora\.a\.split\.test'\?"),
        ({"a": "x"}, r"'corpus\.corpora\.a' is 'x'; a mapping of keys to values is accepted"),
        (3, r"'corpus\.corpora' is 3; a mapping of keys to values is accepted"),
        ({"a": {"uri": "x", "weight": 0}}, "leaves nothing to train on"),
        ({"a": {"uri": "x"}, "b": {"uri": "x", "corpora": {}}}, r"unknown key 'corpus\.corpora\.b\.corpora'"),
    ],
)
def test_faults_in_corpora_are_named_by_key(corpora: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_config({"name": "x", "corpus": {"corpora": corpora}})


def test_a_plan_names_the_corpus_that_changed(two: Path) -> None:
    config = load_config(config_of(two))
    assert plan_run(config, two / "run", until="ingest")[0].reason == "it has no output in this run's folder yet"
    output = ingest(two / "run" / "store", config.corpus)
    write_json(two / "run" / "last_outputs.json", {"ingest": output.uri})
    assert [step.action for step in plan_run(config, two / "run", until="ingest")] == ["reuse"]
    write_lines(two / "theirs", read_lines(two / "theirs")[:-1])
    (planned,) = plan_run(config, two / "run", until="ingest")
    assert (planned.action, planned.reason) == ("run", "another corpus theirs")


def test_explain_knows_the_keys_of_a_named_corpus() -> None:
    result = CliRunner().invoke(app, ["config", "explain", "corpus.corpora.mine.weight"])
    assert result.exit_code == 0
    assert "how often an epoch draws" in result.output
    assert "corpus.corpora.<name>.uri" in CliRunner().invoke(app, ["config", "explain", "corpus.corpora"]).output


def test_settings_that_are_no_part_of_the_key_leave_a_single_corpus_as_it_was() -> None:
    assert CorporaSettings(uri="x").key_values() == CorpusSettings(uri="y").key_values() == {}

"""Drafts beside corpora: always of train, behind what people transcribed, and erased with their speaker."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.ingest.test_several_corpora import read_lines, write_corpus, write_lines
from tests.publish.conftest import HOW
from tests.registry.published import exported
from tests.registry.published import publish as push
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.evaluate.step import _read_split
from voxline.components.extract.step import run as extract
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.ingest.step import run as ingest
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run as validate
from voxline.data.dataset import Dataset
from voxline.data.drafts import DRAFTED_BY, count_drafts, is_draft
from voxline.data.manifest import Utterance, read_manifest, read_rejects, write_manifest
from voxline.errors import RefusedInputError, SettingsError, WorkError
from voxline.families.asr.settings import AsrEvaluateSettings
from voxline.operations.purge.locations import PurgeScope
from voxline.operations.purge.purge import find_speaker, purge_speaker
from voxline.pipelines.cli.main import app
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, read_training_data, training_data_of
from voxline.store.files import read_json

MODEL = "asr@3 (4f1c09aa2be0)"
MARK = {DRAFTED_BY: MODEL, "draft_disagreement": 0.0, "draft_confidence": 0.9}
BY_SPEAKER = {"by": "speaker", "test_speakers": ["dee"], "dev_by": "utterance", "dev": 0.1}


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    """A folder with `people`, of 24 utterances, and `drafts`, of 12 other recordings by the same four speakers."""
    write_corpus(tmp_path / "people", 24, seed=1)
    write_corpus(tmp_path / "drafts", 12, seed=2, split="train", **MARK)
    return tmp_path


def settings_of(folder: Path, **changes: Any) -> CorporaSettings:
    values: dict[str, Any] = {"uri": str(folder / "people"), "format": "manifest", "split": BY_SPEAKER}
    return CorporaSettings.of({**values, "pseudo": {"uri": str(folder / "drafts")}, **changes}, "corpus")


def manifest_of(folder: Path, **changes: Any) -> list[Utterance]:
    return read_manifest(ingest(folder / "store", settings_of(folder, **changes)).folder)


def drafts_of(utterances: list[Utterance]) -> list[Utterance]:
    return [utterance for utterance in utterances if is_draft(utterance.extra)]


def test_drafts_are_of_train_beside_a_corpus_that_stays_as_it_was(corpora: Path) -> None:
    lines = read_lines(corpora / "people")
    write_lines(corpora / "people", [line | {"id": f"a{number:02}"} for number, line in enumerate(lines)])
    alone = manifest_of(corpora, pseudo={})
    together = manifest_of(corpora)
    drafts = drafts_of(together)
    assert [utterance for utterance in together if utterance not in drafts] == alone
    assert [utterance.id for utterance in together] == sorted(utterance.id for utterance in together)
    assert {utterance.split for utterance in drafts} == {"train"}
    assert all(utterance.id.startswith("pseudo-u") for utterance in drafts)
    assert {utterance.speaker for utterance in drafts} == {"ann", "bo", "cy"}  # the names of the corpus itself
    assert drafts[0].extra.items() >= {**MARK, "corpus": "pseudo"}.items()

    output = ingest(corpora / "store", settings_of(corpora))
    assert output.reused
    assert output.counts["drafts"] == output.counts["from pseudo"] == 9

    # Each path leads to its own corpus, which a store that was moved is recognized by.
    described = read_json(output.folder / "corpora.json")
    assert {name: corpus["utterances"] for name, corpus in described.items()} == {"": 24, "pseudo": 9}
    assert described[""]["first"]["id"] == "a00"
    assert described["pseudo"]["first"]["id"] == "pseudo-u00"
    assert ingest(corpora / "store", settings_of(corpora, pseudo={})).reused


def test_no_draft_is_of_a_speaker_who_is_held_out(corpora: Path) -> None:
    output = ingest(corpora / "store", settings_of(corpora))
    rejects = [reject for reject in read_rejects(output.folder) if str(reject.reason) == "held_out_speaker"]
    assert [reject.id for reject in rejects] == ["pseudo-u03", "pseudo-u07", "pseudo-u11"]
    assert rejects[0].detail == "a draft of dee, whom dev or test holds out"

    # Of several corpora, by the name that she has in her own too.
    named = {"uri": "", "corpora": {"ours": {"uri": str(corpora / "people")}}}
    output = ingest(corpora / "store", settings_of(corpora, **named))
    again = [reject for reject in read_rejects(output.folder) if str(reject.reason) == "held_out_speaker"]
    assert [(reject.id, reject.detail) for reject in again] == [(reject.id, reject.detail) for reject in rejects]

    # Where utterances are drawn, each speaker is in train too.
    utterances = manifest_of(corpora, split={"by": "utterance", "dev": 0.1, "test": 0.1})
    assert len(drafts_of(utterances)) == 12


@pytest.mark.parametrize("of_person", [5, 3])
def test_a_recording_that_a_person_transcribed_is_never_a_draft(corpora: Path, of_person: int) -> None:
    """Number 3 is of the test split, and by name drafts would come before `zulu`."""
    source = corpora / "people" / f"{of_person}.wav"
    (corpora / "drafts" / "0.wav").write_bytes(source.read_bytes())
    named = {"uri": "", "corpora": {"zulu": {"uri": str(corpora / "people")}}}
    for changes, id in (({}, f"u{of_person:02}"), (named | {"split": {"by": "utterance"}}, f"zulu-u{of_person:02}")):
        output = ingest(corpora / "store", settings_of(corpora, **changes))
        (reject,) = [each for each in read_rejects(output.folder) if str(each.reason) == "duplicate_recording"]
        assert (reject.id, reject.detail) == ("pseudo-u00", f"the same recording as {id}")
        assert id in {utterance.id for utterance in read_manifest(output.folder)}


@pytest.mark.parametrize("split", [{"by": "utterance", "test": 0.4, "dev": 0.4}, {"by": "corpus"}])
def test_a_marked_line_of_any_corpus_is_of_train(corpora: Path, split: dict[str, Any]) -> None:
    lines = read_lines(corpora / "people")
    write_lines(
        corpora / "people",
        [line | {"split": ("dev", "test", "train")[number % 3]} | (MARK if number % 2 else {})
         for number, line in enumerate(lines)],
    )  # fmt: skip
    output = ingest(corpora / "store", settings_of(corpora, pseudo={}, split=split))
    utterances = read_manifest(output.folder)
    drafts = drafts_of(utterances)
    assert len(drafts) == output.counts["drafts"] == 12
    assert {utterance.split for utterance in drafts} == {"train"}
    assert {utterance.split for utterance in utterances} == {"train", "dev", "test"}
    assert output.counts["train"] == sum(utterance.split == "train" for utterance in utterances)


def test_what_is_refused(corpora: Path) -> None:
    write_lines(corpora / "drafts", [*read_lines(corpora / "drafts"), read_lines(corpora / "people")[0]])
    lines = read_lines(corpora / "drafts")
    lines[0].pop(DRAFTED_BY)
    write_lines(corpora / "drafts", lines[:-1])
    with pytest.raises(WorkError, match=r"corpus\.pseudo: pseudo-u00 has no drafted_by; it takes what .*corpus label"):
        manifest_of(corpora)
    with pytest.raises(SettingsError, match=r"corpus\.pseudo\.uri is '/nowhere'"):
        manifest_of(corpora, pseudo={"uri": "/nowhere"})
    named = {"pseudo": {"uri": str(corpora / "people")}}
    for changes in ({}, {"pseudo": {}}):
        with pytest.raises(SettingsError, match=r"corpora has one of the name pseudo"):
            settings_of(corpora, uri="", corpora=named, **changes)


def test_nothing_is_judged_by_a_draft(corpora: Path) -> None:
    """Not by validate, which stops the run, nor by an evaluation of a manifest that somebody edited."""
    ingested = ingest(corpora / "store", settings_of(corpora))
    converted = convert(ingested.uri, corpora / "store", ConvertSettings(workers=1))
    settings = ValidateSettings.of({"tfdv": "off", "identical_transcripts": {"severity": "off"}})
    passed = validate(converted.folder, corpora / "store", settings)
    assert passed.counts["drafts"] == 9
    report = passed.path("report").read_text()
    assert "Transcripts that models wrote" in report
    assert MODEL in report

    edited = corpora / "edited"
    edited.mkdir()
    utterances = read_manifest(converted.folder)
    draft = drafts_of(utterances)[0]
    write_manifest(
        edited / "manifest.jsonl",
        [each.replace(split="test") if each.id == draft.id else each for each in utterances],
    )
    with pytest.raises(RefusedInputError, match=r"judged_drafts is 1, at most 0 accepted"):
        validate(edited, corpora / "store", settings)
    with pytest.raises(WorkError, match=rf"{draft.id} of the split 'test' has a text that a model wrote"):
        _read_split(edited, AsrEvaluateSettings())


def test_a_purge_erases_a_speaker_who_was_drafted_and_names_the_model(corpora: Path) -> None:
    """The drafts, their recordings and what was left out; the model that learned from them stays, and is named."""
    drafts = corpora / "drafts"
    (drafts / "audio").mkdir()
    (drafts / "drafting").mkdir()
    lines = read_lines(drafts)
    for line in lines:
        (drafts / line["audio_filepath"]).rename(drafts / "audio" / line["audio_filepath"])
        line["audio_filepath"] = f"audio/{line['audio_filepath']}"
        line["duration"] = 0.1
        line["speaker"] = "zoltan" if line["speaker"] == "cy" else line["speaker"]  # known by drafts alone
    write_lines(drafts, lines)
    store = corpora / "store"
    converted = convert(ingest(store, settings_of(corpora)).uri, store, ConvertSettings(workers=1))
    extracted = extract(converted.uri, store, HOW)
    publish(extracted.uri, str(store), str(corpora / "datasets"), PublishSettings(dataset="both"))

    dataset = Dataset.read(extracted.folder)
    assert count_drafts(dataset.rows()) == {MODEL: 9}
    listed = training_data_of(dataset)
    assert {line["id"] for line in listed.utterances if line.get(DRAFTED_BY) == MODEL} == {
        f"pseudo-u{number:02}" for number in (0, 1, 2, 4, 5, 6, 8, 9, 10)
    }
    versions = Registry(corpora / "registry", "asr")
    place = versions.folder / str(push(versions, exported(corpora / "model", "weights")))
    listed.write(place / TRAINED_ON)
    shown = CliRunner().invoke(app, ["models", "trained-on", "asr", "1", "--registry", str(corpora / "registry")])
    assert f"drafts    9 drafts by {MODEL}: no person transcribed these" in shown.output

    scope = PurgeScope(store, (corpora / "datasets",), str(corpora / "registry"), (), (str(drafts),))
    findings = find_speaker("zoltan", scope)
    assert findings.rows == {"both/1": 3}
    assert findings.captures == {str(drafts): 3}
    assert [use.name for use in findings.registry_uses] == ["asr/1"]
    purge_speaker("zoltan", scope)
    left = [path for path in corpora.rglob("*") if path.is_file() and b"zoltan" in path.read_bytes()]
    assert left == []
    assert len(list((drafts / "audio").iterdir())) == 9
    remaining = read_training_data((place / TRAINED_ON).read_bytes(), "")
    assert remaining.purged == 3
    rows = (corpora / "datasets" / "both" / "1" / "rows.jsonl").read_text()
    assert rows.count('"pseudo-u') == 6


def test_a_config_takes_drafts_by_one_key_and_leaves_them_by_the_same(corpora: Path) -> None:
    config = corpora / "config.yaml"
    config.write_text(json.dumps({"corpus": {"uri": "people", "format": "manifest", "split": BY_SPEAKER}}))
    document = json.loads(config.read_text()) | {"name": "nightly", "model": "asr"}
    document["corpus"]["pseudo"] = {"uri": "drafts"}
    config.write_text(json.dumps(document))
    words = ["step", "ingest", "-c", str(config), "--run-dir", str(corpora / "run")]
    for options, drafts in (([], 9), (["--set", "corpus.pseudo.uri="], 0)):
        ended = CliRunner().invoke(app, [*words, *options])
        assert ended.exit_code == 0, ended.output
        (line,) = [line for line in ended.output.splitlines() if line.startswith("manifest")]
        assert len(drafts_of(read_manifest(line.split()[1]))) == drafts
    gone = CliRunner().invoke(app, [*words, "--set", "corpus.pseudo.uri=gone"])
    assert "corpus.pseudo.uri is" in str(gone.exception)

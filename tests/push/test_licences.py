"""Licences: from a corpus, through dataset and model, to the card and the gate."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.test_several_corpora import settings_of, write_corpus
from tests.publish.conftest import HOW
from tests.push.conftest import QUICK, Judge
from tests.tone_asr_model import MakeAsrModel, export_onnx_tones
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.extract.step import run as extract
from voxline.components.ingest.settings import CorporaSettings, CorpusSettings
from voxline.components.ingest.step import run as ingest
from voxline.components.push.settings import PushSettings
from voxline.components.push.step import check_licences
from voxline.data.dataset import Dataset
from voxline.data.licences import checked_licence, count_licences, hub_licence, licence_name
from voxline.data.manifest import read_manifest
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.settings import AsrPushSettings, AsrTrainSettings
from voxline.inference.model_info import AS_PUBLISHED, ModelInfo, ShippedVocoder, StartInfo
from voxline.inference.saved_model import read_model_info
from voxline.registry.parents import Ancestor, licences_of
from voxline.registry.registry import Registry
from voxline.training.export import model_info

HUB = {"name": "o/w", "version": None, "digest": "d0", "dataset": "", "revision": "c" * 40, "licence": "mit"}
IMPORT = {"name": "asr", "version": 1, "digest": "d1", "dataset": "", "revision": "", "licence": ""}
TUNED = {"name": "asr", "version": 2, "digest": "d2", "dataset": "k", "revision": "", "licence": ""}


@pytest.fixture
def info(tmp_path: Path) -> ModelInfo:
    return read_model_info(export_onnx_tones(tmp_path / "model"))


def accepting(*licences: str) -> PushSettings:
    return AsrPushSettings.of({"licences": list(licences)})


def refusals(info: ModelInfo, *accepted: str) -> list[str]:
    return [check.detail for check in check_licences(info, accepting(*accepted)) if not check.passed]


# Names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cc-by-nc-4.0", "CC-BY-NC-4.0"),
        ("http://creativecommons.org/publicdomain/zero/1.0/", "CC0-1.0"),
        ("https://creativecommons.org/licenses/by-sa/3.0/legalcode", "CC-BY-SA-3.0"),
        ("Apache License 2.0", "Apache-2.0"),
        ("CC BY-NC 4.0", "CC-BY-NC-4.0"),
        ("licenseref-Acme-Calls", "LicenseRef-Acme-Calls"),
        ("openrail", "openrail"),
        ("", ""),
    ],
)
def test_a_licence_has_one_name(text: str, name: str) -> None:
    assert checked_licence(text) == name


def test_a_misspelt_licence_is_refused_by_its_key() -> None:
    with pytest.raises(SettingsError, match=r"corpus.*licence.*CC-BY-4.0"):
        CorpusSettings.of({"licence": "CCBY-4.0"}, "corpus")
    with pytest.raises(SettingsError, match=r"licences"):
        AsrPushSettings.of({"licences": ["free"]})
    with pytest.raises(SettingsError, match=r"an empty licence would accept what states none"):
        AsrPushSettings.of({"licences": [""]})


def test_the_names_are_those_of_spdx() -> None:
    """`packaging` has the list of SPDX; it is no dependency of ours."""
    licenses = pytest.importorskip("packaging.licenses")
    from voxline.data.licences import SPDX

    assert [licenses.canonicalize_license_expression(name) for name in SPDX] == list(SPDX)


def test_the_hub_gets_one_name_and_never_a_kinder_one() -> None:
    assert hub_licence(["not stated"]) == {}
    assert hub_licence(["LicenseRef-Acme"]) == {"license": "other", "license_name": "LicenseRef-Acme"}
    assert hub_licence(["MIT", "not stated"]) == {"license": "mit"}
    assert hub_licence(["apache-2.0", "CC-BY-NC-4.0"])["license"] == "other"


# From the corpus to the model


def test_joined_corpora_carry_all_of_their_licences_to_the_dataset(tmp_path: Path) -> None:
    write_corpus(tmp_path / "ours", 24, seed=1)
    write_corpus(tmp_path / "theirs", 8, seed=2, license="https://creativecommons.org/licenses/by-nc/4.0/")
    settings = settings_of(tmp_path, ours={"licence": "cc0-1.0"}, theirs={"licence": "MIT"})
    manifest = ingest(tmp_path / "store", settings)
    lines = read_manifest(manifest.path("manifest"))

    # A line's own statement outranks the corpus'.
    assert {line.extra.get("licence") for line in lines if line.extra["corpus"] == "ours"} == {"CC0-1.0"}
    assert {line.extra.get("licence") for line in lines if line.extra["corpus"] == "theirs"} == {None}

    converted = convert(manifest.path("manifest").parent, tmp_path / "store", ConvertSettings(workers=1))
    dataset = Dataset.read(extract(converted.folder, tmp_path / "store", HOW).folder)
    counts = count_licences(dataset.rows())
    assert set(counts) == {"CC0-1.0", "CC-BY-NC-4.0"}
    assert sum(counts.values()) == dataset.counts["train"] + dataset.counts["dev"]

    # A model of it, and what starts from that, have them too.
    trained = model_info("ctc", AsrTrainSettings(), dataset, {}, [])
    assert trained.dataset.licences == counts
    assert licences_of(trained) == {"its data": sorted(counts)}


def test_a_corpus_without_a_licence_keeps_its_key_and_its_bytes(tmp_path: Path) -> None:
    write_corpus(tmp_path / "ours", 8, seed=1)
    values = {
        "uri": str(tmp_path / "ours"),
        "format": "manifest",
        "split": {"by": "speaker", "test": 0.25, "dev": 0.25},
    }
    assert "licence" not in CorpusSettings.of(values).key_values()
    unstated = ingest(tmp_path / "store", CorporaSettings.of(values))
    assert "licence" not in unstated.path("manifest").read_text()
    stated = ingest(tmp_path / "store", CorporaSettings.of({**values, "licence": "MIT"}))
    assert stated.key != unstated.key
    assert stated.path("manifest").read_text().count('"licence":"MIT"') == 8


def test_nothing_is_counted_where_nothing_is_stated(tmp_path: Path) -> None:
    assert count_licences([]) == {}


# Behind a model


def test_every_licence_behind_a_model_counts(info: ModelInfo) -> None:
    info.dataset.licences = {"CC-BY-4.0": 3}
    info.start = StartInfo(
        generation=3, ancestors=[{**TUNED, "licences": ["CC-BY-NC-4.0"]}, IMPORT, HUB], training_data="unknown"
    )
    info.vocoder = ShippedVocoder(name="vocos", version=3, digest="d", licences=["CC-BY-SA-4.0"])

    # The import of a public model has the licence of that model, which follows.
    assert licences_of(info) == {
        "its data": ["CC-BY-4.0"],
        "asr@2": ["CC-BY-NC-4.0"],
        "o/w@cccccccc": ["MIT"],
        "its vocoder vocos": ["CC-BY-SA-4.0"],
    }
    everything = ("CC-BY-4.0", "CC-BY-NC-4.0", "MIT", "CC-BY-SA-4.0")
    assert refusals(info, *everything) == []
    for left_out, source in zip(everything, licences_of(info), strict=True):
        (detail,) = refusals(info, *(name for name in everything if name != left_out))
        assert f"{source}: {left_out};" in detail


def test_what_is_not_stated_is_refused_only_where_there_is_a_rule(info: ModelInfo) -> None:
    assert check_licences(info, accepting()) == []
    (detail,) = refusals(info, "MIT")
    assert detail == (
        "licences that push.licences does not accept: its data: not stated; accepted: MIT; corpus.licence states that "
        "of the data"
    )

    # One line without a licence among many is as unknown as all of them.
    info.dataset.licences = {"MIT": 100, "not stated": 1}
    assert "its data: not stated" in refusals(info, "MIT")[0]

    info.dataset.licences = {"MIT": 100}
    info.start = StartInfo(generation=1, ancestors=[{**HUB, "licence": ""}], training_data="unknown")
    assert "o/w@cccccccc: not stated" in refusals(info, "MIT")[0]
    assert "imported again" in refusals(info, "MIT")[0]


def test_a_public_model_as_it_comes_is_judged_by_its_own_licence(info: ModelInfo) -> None:
    info.provenance.trained[AS_PUBLISHED] = True
    info.start = StartInfo(generation=1, ancestors=[HUB], training_data="unknown")
    assert refusals(info, "mit") == []
    assert "o/w@cccccccc: MIT" in refusals(info, "Apache-2.0")[0]


def test_transcripts_that_only_its_language_model_knows_count(info: ModelInfo, tmp_path: Path) -> None:
    folder = tmp_path / "model" / "language_model"
    folder.mkdir()
    about = {"alpha": 1, "beta": 0, "width": 8, "unknown_penalty": -5, "text": {"files": 0, "transcripts": True}}
    (folder / "language_model.json").write_text(json.dumps(about))
    assert [*licences_of(info, folder.parent)] == ["its data"]

    info.provenance.trained[AS_PUBLISHED] = True
    assert licences_of(info, folder.parent) == {"the texts of its language model": ["not stated"]}

    # A model of files alone, such as an ARPA, has their licences and no transcripts'.
    about["text"] = {"files": 1, "transcripts": False, "licences": ["MIT"]}
    (folder / "language_model.json").write_text(json.dumps(about))
    assert licences_of(info, folder.parent) == {"the texts of its language model": ["MIT"]}

    about["text"] = {"files": 1, "transcripts": False, "licences": [3]}
    (folder / "language_model.json").write_text(json.dumps(about))
    with pytest.raises(WorkError, match=r"language_model\.json: 'text\.licences' is \[3\]"):
        licences_of(info, folder.parent)


def test_an_ancestor_keeps_the_licences_of_its_data(info: ModelInfo) -> None:
    ancestor = Ancestor.of({**TUNED, "licences": ["MIT"]})
    assert Ancestor.of(ancestor.values()) == ancestor
    assert "licences" not in Ancestor.of(TUNED).values()  # as earlier versions read it


def test_the_gate_refuses_and_the_card_says_why(judge: Judge, make_asr_model: MakeAsrModel, tmp_path: Path) -> None:
    model = tmp_path / "licensed"
    shutil.copytree(make_asr_model({}), model)
    about: dict[str, Any] = json.loads((model / "model.json").read_text())
    about["dataset"]["licences"] = {"CC-BY-4.0": 9, "CC-BY-NC-4.0": 1}
    (model / "model.json").write_text(json.dumps(about))

    commercial = AsrPushSettings.of({**QUICK.plain(), "licences": ["CC-BY-4.0"]})
    verdict = judge(model, commercial)
    assert not verdict["pushed"]
    assert verdict["reasons"] == [
        "licences that push.licences does not accept: its data: CC-BY-NC-4.0; accepted: CC-BY-4.0"
    ]
    assert Registry(tmp_path / "registry", "asr").versions() == []

    verdict = judge(model, AsrPushSettings.of({**QUICK.plain(), "licences": ["CC-BY-4.0", "cc-by-nc-4.0"]}))
    assert verdict["pushed"], verdict["reasons"]
    folder = Registry(tmp_path / "registry", "asr").path(1)
    stated = "Licences of train and dev: CC-BY-4.0 (9 utterances), CC-BY-NC-4.0 (1 utterance)."
    assert stated in (folder / "model_card.md").read_text()
    assert stated in (folder / "evaluation" / "report.html").read_text()
    assert json.loads((folder / "provenance.json").read_text())["dataset"]["licences"] == about["dataset"]["licences"]
    assert licence_name("cc-by-nc-4.0") in (folder / "model.json").read_text()

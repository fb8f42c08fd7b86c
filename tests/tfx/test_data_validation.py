"""TFX's data validation itself: statistics, anomalies and drift of real recordings, as a cluster runs it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tfx.conftest import PYTHON, Ran
from tests.validate.takes import SMALL, Take, fit, speech, written
from voxline.components.validate.step import STATISTICS, VALIDATION
from voxline.components.validate.tfdv.plan import SCHEMA_FOLDER
from voxline.components.validate.tfdv.report import IN_SERVICE, THIS_CORPUS
from voxline.data.manifest import MANIFEST_FILE
from voxline.registry.registry import PROVENANCE
from voxline.store.files import read_json, write_json

Settings = dict[str, Any]
Validated = Callable[..., Any]

PROGRAM = """
import json, sys
from voxline.errors import WorkError
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run
folder, corpus, settings = sys.argv[1:]
try:
    work = run(f"{folder}/{corpus}", f"{folder}/store", ValidateSettings.of(settings), f"{folder}/registry", "asr")
except WorkError as error:
    sys.exit(f"{type(error).__name__}: {error}")
print(work.folder)
"""

COMPONENTS = """
import json, shutil, sys, types
# For the skew of keyed examples; it has no wheel.
sys.modules.setdefault("farmhash", types.ModuleType("farmhash"))
from pathlib import Path
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0.anomalies_pb2 import Anomalies
from tfx.components import ExampleValidator, SchemaGen
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.types.standard_artifacts import ExampleStatistics

folder, statistics, schema = map(Path, sys.argv[1:])
(folder / "statistics" / "Split-all").mkdir(parents=True)
shutil.copy(statistics, folder / "statistics" / "Split-all" / "FeatureStats.pb")
place = str(folder / "statistics")
imported = Importer(place, ExampleStatistics, properties={"split_names": '["all"]'}).with_id("Ours")
ours = ImportSchemaGen(schema_file=str(schema))
inferred = SchemaGen(statistics=imported.outputs["result"])
validator = ExampleValidator(statistics=imported.outputs["result"], schema=ours.outputs["schema"])
metadata = sqlite_metadata_connection_config(str(folder / "mlmd.sqlite"))
components = [imported, ours, inferred, validator]
LocalDagRunner().run(Pipeline("ours", str(folder / "root"), metadata, components))
(anomalies,) = folder.glob("root/ExampleValidator/anomalies/*/Split-all/SchemaDiff.pb")
(schema,) = folder.glob("root/SchemaGen/schema/*/schema.pbtxt")
print(json.dumps({
    "anomalies": sorted(Anomalies.FromString(anomalies.read_bytes()).anomaly_info),
    "features": sorted(feature.name for feature in tfdv.load_schema_text(str(schema)).feature),
}))
"""

# Takes of these tests are short and alike; our own checks of that are no matter here.
LENIENT: Settings = {
    **SMALL,
    "tfdv": "required",
    **{name: {"severity": "off"} for name in ("identical_transcripts", "ctc_feasibility", "speaking_rate")},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the numbered user of the image may write to, with a fit corpus in it."""
    folder = tmp_path_factory.mktemp("tfdv")
    folder.chmod(0o755)
    (folder / "store").mkdir()
    (folder / "store").chmod(0o777)
    written(folder / "fit", fit())
    return folder


@pytest.fixture(scope="module")
def validated(place: Path, ran: Ran) -> Validated:
    """Runs the step on a corpus in the folder; what fails ends with the status given."""

    def run(corpus: str, *, status: int = 0, **changes: Any) -> Any:
        settings = json.dumps({**LENIENT, **changes})
        flags = [f"--volume={place}:{place}", "--env=TF_CPP_MIN_LOG_LEVEL=2"]
        ended = ran("validate", "python3", "-c", PROGRAM, str(place), corpus, settings, flags=flags, status=status)
        return ended.stderr if status else Path(ended.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def fit_work(validated: Validated) -> Path:
    """The work on a fit corpus, before there is any model."""
    work: Path = validated("fit")
    return work


@pytest.fixture(scope="module")
def in_service(place: Path, fit_work: Path) -> None:
    """A model in service that was trained on the fit corpus."""
    trained_on = read_json(fit_work / "done.json")["inputs"]["utterances"]
    write_json(place / "registry" / "asr" / "1" / PROVENANCE, {"dataset": {"fingerprint": trained_on}})


def checks(work: Path) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in read_json(work / VALIDATION)["checks"]}


def spoilt() -> list[Take]:
    """The fit takes, half of train longer and by one voice, one in a split that there is not, one of over a minute."""
    takes = fit()
    for number, take in enumerate(takes[:25]):
        take.samples = speech(number, 2.5)
    for take in takes[6:20]:
        take.speaker, take.text = "newcomer", "blue blue blue"
    takes[3].split = "holdout"
    takes[4].samples = speech(4, 70.0)
    return takes


def test_a_valid_corpus_has_no_anomalies(fit_work: Path) -> None:
    tfdv = read_json(fit_work / VALIDATION)["tfdv"]
    assert tfdv["ran"] is True
    assert tfdv["anomalies"] == []
    found = checks(fit_work)
    assert {found[name]["outcome"] for name in ("missing_features", "wrong_types", "out_of_range")} == {"passed"}
    assert found["drift"]["outcome"] == "not checked"
    assert found["drift"]["detail"] == "no version of asr is in service yet"
    assert (fit_work / STATISTICS).stat().st_size > 1000


def test_identical_data_has_no_drift(in_service: None, validated: Validated) -> None:
    work = validated("fit")
    measured = read_json(work / VALIDATION)["tfdv"]["drift"]
    assert {one["feature"]: one["distance"] for one in measured if one["measure"] != "utterances"} == dict.fromkeys(
        ("duration", "labels", "level", "silence", "speaker", "speaking_rate", "split", "tokens"), 0
    )
    assert checks(work)["drift"]["outcome"] == "passed"


def test_anomalies_and_drift_name_their_utterances(in_service: None, place: Path, validated: Validated) -> None:
    written(place / "spoilt", spoilt())
    work = validated("spoilt")
    found = checks(work)
    assert [one["id"] for one in found["out_of_range"]["offenders"]] == ["train-4"]
    assert "frames 7000" in found["out_of_range"]["offenders"][0]["note"]
    assert [one["note"] for one in found["unexpected_values"]["offenders"]] == ["split holdout"]
    drifted = {one["feature"]: one for one in read_json(work / VALIDATION)["tfdv"]["drift"] if one["drifted"]}
    assert set(drifted) == {"duration", "level", "speaker", "speaking_rate", "tokens"}
    assert drifted["duration"]["measure"] == "Jensen-Shannon"
    assert drifted["speaker"]["measure"] == "L-infinity"
    assert drifted["speaker"]["distance"] == pytest.approx(14 / 60)
    assert found["drift"]["outcome"] == "failed"
    page = (work / "statistics.html").read_text(encoding="utf-8")
    assert THIS_CORPUS in page
    assert IN_SERVICE in page
    assert "<script" not in page
    assert "src=" not in page


def test_an_anomaly_of_severity_error_fails_the_step(in_service: None, validated: Validated) -> None:
    told = validated("spoilt", status=1, unexpected_values={"severity": "error"})
    assert "unexpected_values is 1, at most 0 accepted (split: " in told


def test_a_drift_threshold_is_set_per_feature(in_service: None, validated: Validated) -> None:
    thresholds = {"duration": 1.0, "level": 1.0, "speaking_rate": 1.0, "speaker": 0.5, "tokens": 0.5}
    work = validated("spoilt", drift={"thresholds": thresholds})
    assert checks(work)["drift"]["outcome"] == "passed"


def test_a_threshold_for_a_feature_without_drift_is_refused(in_service: None, validated: Validated) -> None:
    told = validated("fit", status=1, drift={"thresholds": {"frames": 0.1}})
    assert "'drift.thresholds.frames' is 0.1" in told


def test_an_invalid_schema_is_refused_with_its_line(place: Path, validated: Validated) -> None:
    (place / "own.pbtxt").write_text('feature {\n  nam: "duration"\n}')
    told = validated("fit", status=1, schema=str(place / "own.pbtxt"))
    assert "own.pbtxt', and line 2:" in told
    assert 'no field named "nam"' in told


def test_a_manifest_without_converts_measurements_is_validated(place: Path, validated: Validated) -> None:
    """TFX's slicing has crashed on columns of nothing but nulls."""
    written(place / "bare", fit())
    lines = [json.loads(line) for line in (place / "bare" / MANIFEST_FILE).read_text(encoding="utf-8").splitlines()]
    for line in lines:
        del line["measured"], line["speaker"]
    bare = "".join(json.dumps(line) + "\n" for line in lines)
    (place / "bare" / MANIFEST_FILE).write_text(bare, encoding="utf-8")
    assert read_json(validated("bare") / VALIDATION)["tfdv"]["anomalies"] == []


@pytest.mark.parametrize("schema", ["asr", "tts"])
def test_every_curated_schema_is_valid(schema: str, validated: Validated) -> None:
    assert read_json(validated("fit", schema=schema) / VALIDATION)["tfdv"]["schema"] == schema


@pytest.mark.skipif(not PYTHON, reason="the image has TFX's data validation, and no further component")
def test_tfxs_own_components_read_our_statistics_and_schema(
    in_service: None, place: Path, validated: Validated, ran: Ran
) -> None:
    """SchemaGen infers a schema, ExampleValidator holds our statistics to ours: both say what validate says."""
    written(place / "other", spoilt())
    work = validated("other")
    schema = SCHEMA_FOLDER / "asr.pbtxt"
    program = ran("", "python3", "-c", COMPONENTS, str(place / "tfx"), str(work / STATISTICS), str(schema))
    found = json.loads(program.stdout.splitlines()[-1])
    assert found["anomalies"] == sorted(one["feature"] for one in read_json(work / VALIDATION)["tfdv"]["anomalies"])
    assert found["anomalies"] == ["duration", "frames", "split"]
    assert {"duration", "frames", "speaker", "tokens"} <= set(found["features"])

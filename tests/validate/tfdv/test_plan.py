"""Whether TFX's data validation runs: what is said where it does not, and which settings are refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.buckets.emulator import Storage
from tests.tfx import glibc
from tests.validate.takes import SMALL, fit, written
from voxline.components.validate.checks import TFDV_CHECKS
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run
from voxline.components.validate.tfdv import plan
from voxline.components.validate.tfdv.plan import SCHEMA_FOLDER, read_schema_text
from voxline.errors import SettingsError, WorkError

elsewhere = pytest.mark.skipif(not plan.unavailable_reason(), reason="TFX's data validation runs here")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("corpus"), fit())


def settings(**changes: Any) -> ValidateSettings:
    return ValidateSettings.of({**SMALL, "tfdv": "auto", **changes})


@elsewhere
def test_where_it_cannot_run_one_line_says_why_and_our_checks_are_made(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = run(corpus, tmp_path, settings())
    message = [line for line in capsys.readouterr().out.splitlines() if "TFX" in line]
    assert message == [f"▸ validate: TFX's data validation is skipped: {plan.unavailable_reason()}"]
    validation = json.loads(work.path("validation").read_text())
    assert validation["tfdv"]["ran"] is False
    outcomes = {one["name"]: one["outcome"] for one in validation["checks"]}
    assert {outcomes.pop(one.name) for one in TFDV_CHECKS} == {"not checked"}
    assert set(outcomes.values()) == {"passed"}
    assert plan.unavailable_reason() in work.path("statistics_page").read_text()


@elsewhere
def test_required_where_it_cannot_run_fails_and_says_what_would_help(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"'tfdv' is 'required'.*needs.*docker/validate.*auto"):
        run(corpus, tmp_path, settings(tfdv="required"))


@pytest.mark.parametrize("off", ["off", False])  # YAML reads an unquoted off as false
def test_off_is_a_choice_and_is_not_remarked_upon(
    off: Any, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(corpus, tmp_path, settings(tfdv=off))
    assert "TFX" not in capsys.readouterr().out


def test_a_schema_that_is_not_there_is_refused_by_its_key(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"'schema' is 'speech'.*a name \(asr, tts\)"):
        run(corpus, tmp_path, settings(schema="speech"))
    with pytest.raises(SettingsError, match=r"'schema' is '/nowhere/own\.pbtxt': No such file"):
        run(corpus, tmp_path, settings(schema="/nowhere/own.pbtxt"))


def test_a_schema_of_ones_own_is_given_by_its_path(tmp_path: Path) -> None:
    own = tmp_path / "own.pbtxt"
    own.write_text('feature { name: "duration" }')
    assert read_schema_text(str(own)) == own.read_text()


def test_a_schema_may_lie_in_a_bucket_where_every_pod_finds_it(gcs: Storage) -> None:
    gcs.bucket("schemas").write("own.pbtxt", b'feature { name: "duration" }')
    assert read_schema_text(f"{gcs.uri}/schemas/own.pbtxt") == 'feature { name: "duration" }'
    with pytest.raises(SettingsError, match=r"'schema' is 'gs://\S+/other\.pbtxt': No such object"):
        read_schema_text(f"{gcs.uri}/schemas/other.pbtxt")
    gcs.bucket("schemas").write("latin.pbtxt", "é".encode("latin-1"))
    with pytest.raises(SettingsError, match="not UTF-8"):
        read_schema_text(f"{gcs.uri}/schemas/latin.pbtxt")


def test_every_schema_begins_with_its_purpose() -> None:
    schemas = sorted(SCHEMA_FOLDER.glob("*.pbtxt"))
    assert [path.stem for path in schemas] == ["asr", "tts"]
    assert all(path.read_text().startswith("# The schema of ") for path in schemas)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tfdv": "yes"}, r"'tfdv' is 'yes'"),
        ({"schema": ""}, r"'schema' is ''"),
        ({"drift": {"thresholds": {"duration": 0}}}, r"'drift\.thresholds\.duration' is 0"),
        ({"drift": {"thresholds": {"duration": 2}}}, r"'drift\.thresholds\.duration' is 2"),
        ({"out_of_range": {"severity": "fatal"}}, r"'out_of_range\.severity' is 'fatal'"),
        ({"schemas": "tts"}, r"unknown key 'schemas'; did you mean 'schema'"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_key(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ValidateSettings.of(wrong, "validate")


def test_the_settings_are_written_as_they_are_read() -> None:
    plain = ValidateSettings.of({"schema": "tts"}).plain()
    assert plain["schema"] == "tts"
    assert ValidateSettings.of(plain).schema_ == "tts"


def test_the_tests_with_tfx_know_the_glibc_that_its_wheels_need() -> None:
    assert glibc.MIN_GLIBC == plan.MIN_GLIBC


@pytest.mark.skipif(glibc.is_new_enough(), reason="TFX runs on this machine's own glibc")
def test_a_folder_without_libraries_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(glibc.VARIABLE, str(tmp_path))
    command = [sys.executable, "-m", "tests.tfx.glibc", str(tmp_path / "unused"), "/bin/true"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"{tmp_path}: no libc.so.6 in it")

"""The baseline is found from the provenance of the version in service; without one, the reason is reported."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.buckets.emulator import Storage
from tests.registry.published import exported
from voxline.components.validate.tfdv.baseline import REVISION, STATISTICS, STEP, Baseline
from voxline.errors import WorkError
from voxline.inference.saved_model import model_digest
from voxline.registry.registry import PROVENANCE, Registry
from voxline.settings import Settings
from voxline.store.files import write_json
from voxline.store.step_cache import cached_step


def version(registry: Path, number: int, provenance: Any) -> None:
    write_json(registry / "asr" / str(number) / PROVENANCE, provenance)


def statistics(store: Path | str, utterances: str) -> Path:
    """What a run of validate leaves in the store of such a corpus."""
    with cached_step(store, STEP, Settings(), {"utterances": utterances}, revision=REVISION) as work:
        work.outputs = {"statistics": STATISTICS}
        work.path("statistics").write_bytes(b"kept")
    return work.folder


def test_the_version_in_service_leads_to_the_statistics_of_its_utterances(tmp_path: Path) -> None:
    for number, utterances in ((1, "older"), (2, "newer")):
        version(tmp_path / "registry", number, {"dataset": {"fingerprint": utterances}})
        statistics(tmp_path / "store", utterances)
    found = Baseline.in_service(tmp_path / "registry", "asr", tmp_path / "store")
    assert (found.name, found.utterances, found.absent) == ("asr, version 2", "newer", "")
    assert found.statistics == statistics(tmp_path / "store", "newer") / STATISTICS


def test_without_a_baseline_the_reason_is_reported(tmp_path: Path) -> None:
    registry, store = tmp_path / "registry", tmp_path / "store"

    def reason() -> str:
        found = Baseline.in_service(registry, "asr", store)
        assert (found.name, found.statistics) == ("", None)
        return found.absent

    assert "no registry and model are configured" in Baseline.in_service("", "", store).absent
    assert reason() == "no version of asr is in service yet"
    (registry / "asr" / "1").mkdir(parents=True)
    assert reason() == "asr, version 1 does not say what it was trained on"
    version(registry, 2, {"dataset": {}})
    assert reason() == "asr, version 2 does not say what it was trained on"
    version(registry, 3, {"dataset": {"fingerprint": "other"}})
    assert "has no statistics of the utterances that asr, version 3 was trained on" in reason()


def test_statistics_that_were_never_finished_are_no_baseline(tmp_path: Path) -> None:
    version(tmp_path / "registry", 1, {"dataset": {"fingerprint": "some"}})
    folder = statistics(tmp_path / "store", "some")
    (folder / "done.json").unlink()
    assert "has no statistics" in Baseline.in_service(tmp_path / "registry", "asr", tmp_path / "store").absent
    shutil.rmtree(folder)
    assert "has no statistics" in Baseline.in_service(tmp_path / "registry", "asr", tmp_path / "store").absent


def test_a_damaged_provenance_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "registry" / "asr" / "1"
    folder.mkdir(parents=True)
    (folder / PROVENANCE).write_text("{")
    with pytest.raises(WorkError, match=r"asr, version 1: provenance\.json is damaged"):
        Baseline.in_service(tmp_path / "registry", "asr", tmp_path / "store")


def test_registry_and_store_may_lie_in_a_bucket(gcs: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXLINE_BUCKET_CACHE", str(tmp_path / "another machine"))
    registry, model = Registry(f"{gcs.uri}/models", "asr"), exported(tmp_path / "model", "a")
    with registry.locked(), registry.publishing(model, model_digest(model), "push") as (_, incoming):
        write_json(incoming / PROVENANCE, {"dataset": {"fingerprint": "some"}})
    assert "has no statistics" in Baseline.in_service(f"{gcs.uri}/models", "asr", f"{gcs.uri}/store").absent
    statistics(f"{gcs.uri}/store", "some")
    monkeypatch.setenv("VOXLINE_BUCKET_CACHE", str(tmp_path / "this machine"))
    found = Baseline.in_service(f"{gcs.uri}/models", "asr", f"{gcs.uri}/store")
    assert (found.name, found.absent) == ("asr, version 1", "")
    assert found.statistics is not None
    assert found.statistics.read_bytes() == b"kept"
    assert not list((tmp_path / "this machine").rglob("saved_model.pb"))  # the model itself is not wanted


def test_a_bucket_that_may_not_be_read_is_not_taken_for_one_without_statistics(
    gcs: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXLINE_BUCKET_CACHE", str(tmp_path / "mirror"))
    version(tmp_path / "registry", 1, {"dataset": {"fingerprint": "some"}})
    statistics(f"{gcs.uri}/store", "some")
    gcs.fails("status", "GET", times=1_000, code=403)
    with pytest.raises(WorkError, match="permission denied"):
        Baseline.in_service(tmp_path / "registry", "asr", f"{gcs.uri}/store")

"""A version with a share of the traffic: what k8s/components/kserve has, with the version and the share in it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command import voxline
from tests.notify.conftest import IN_SERVICE, REFUSED, WAITS, MakeEvent
from tests.registry.published import exported, publish
from voxline.errors import SettingsError
from voxline.notify.deliver import announce_end
from voxline.notify.kserve import serving_objects
from voxline.notify.settings import KserveSettings, NotifySettings
from voxline.registry.registry import Registry

KSERVE = Path(__file__).parents[2] / "k8s" / "components" / "kserve"


def test_it_is_the_service_of_the_component() -> None:
    config, service = serving_objects("asr", 1, "ab12", KserveSettings(namespace=""), 100)
    ours = yaml.safe_load((KSERVE / "service.yaml").read_text(encoding="utf-8"))
    written = service["spec"]["predictor"]
    assert written["model"].pop("readinessProbe")["httpGet"]["path"] == "/v1/models/asr"  # that of its runtime
    written["volumes"][0]["configMap"]["name"] = "served-version"  # kustomize adds a hash of the content
    assert written == ours["spec"]["predictor"]
    assert ours["metadata"]["annotations"].items() <= service["metadata"]["annotations"].items()
    lines = (KSERVE / "models.config").read_text(encoding="utf-8").splitlines()
    assert config["data"]["models.config"].splitlines() == [line for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("storage", ["gs://your-bucket/voxline/registry", "s3://your-bucket/voxline/registry"])
def test_of_a_bucket_it_is_the_component_for_buckets(storage: str) -> None:
    config, service = serving_objects("asr", 1, "ab12", KserveSettings(storage=storage), 100)
    folder = KSERVE.with_name("kserve-bucket")
    patch = yaml.safe_load((folder / "service.yaml").read_text(encoding="utf-8"))
    uri = patch["spec"]["predictor"]["model"]["storageUri"].replace("gs:", storage[:3])
    assert service["spec"]["predictor"]["model"]["storageUri"] == uri == f"{storage}/asr/"
    assert patch["metadata"]["labels"].items() <= service["metadata"]["labels"].items()
    assert config["data"] == yaml.safe_load((folder / "served-version.yaml").read_text(encoding="utf-8"))["data"]


@pytest.mark.parametrize("storage", ["az://account/registry", "gs://", "s3://bucket/registry/", "/mnt/registry"])
def test_a_registry_that_kserve_would_not_find_is_refused(storage: str) -> None:
    with pytest.raises(SettingsError, match="storage"):
        KserveSettings.of({"storage": storage}, "rollout")


def test_another_version_is_another_revision_and_another_share_is_none() -> None:
    def predictor(version: int, percent: int) -> Any:
        found = serving_objects("asr", version, "ab12", KserveSettings(), percent)[1]["spec"]["predictor"]
        assert found.pop("canaryTrafficPercent") == percent
        return found

    assert predictor(7, 10) == predictor(7, 100) == predictor(7, 0)
    assert predictor(7, 10) != predictor(8, 10)


def test_the_file_of_a_version_that_still_gets_traffic_is_not_pruned() -> None:
    config = serving_objects("asr", 8, "ab12", KserveSettings(), 10)[0]
    assert config["metadata"]["name"] == "asr-served-8", "the one of version 7 is in no manifest any more"
    kept = {"argocd.argoproj.io/sync-options": "Prune=false", "kustomize.toolkit.fluxcd.io/prune": "disabled"}
    assert config["metadata"]["annotations"] == kept


@pytest.mark.parametrize(("name", "percent"), [("ASR_1", 10), ("asr", 101), ("asr", -1)])
def test_what_kserve_would_refuse_is_refused(name: str, percent: int) -> None:
    with pytest.raises(SettingsError, match="accepted"):
        serving_objects(name, 1, "ab12", KserveSettings(), percent)


def test_a_promoted_version_gets_a_canary_and_nothing_else_changes_the_manifest(
    make_event: MakeEvent, tmp_path: Path
) -> None:
    manifest = tmp_path / "rollouts" / "asr.yaml"
    settings = NotifySettings.of({"kserve": {"manifest": str(manifest), "percent": 5}})
    for verdict in (REFUSED, IN_SERVICE, WAITS, None):
        event = make_event(verdict)
        assert announce_end(lambda event=event: event, settings) == []  # type: ignore[misc]
        assert not manifest.exists()
    assert announce_end(make_event, settings) == []
    config, service = yaml.safe_load_all(manifest.read_text(encoding="utf-8"))
    assert "versions: 7" in config["data"]["models.config"]
    assert service["spec"]["predictor"]["canaryTrafficPercent"] == 5
    assert service["metadata"]["annotations"]["voxline.dev/digest"] == "ab12"


def test_the_command_prints_the_version_in_service_and_the_way_back(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry", "asr")
    for content in ("old", "new"):
        publish(registry, exported(tmp_path / content, content))

    def rollout(*arguments: str) -> tuple[str, Any]:
        ended = voxline("models", "rollout", "asr", "--registry", tmp_path / "registry", *arguments)
        assert ended.returncode == 0, ended.stderr
        config, service = yaml.safe_load_all(ended.stdout)
        return config["data"]["models.config"], service

    config, service = rollout("--percent", "10")
    assert "versions: 2" in config
    assert service["spec"]["predictor"]["canaryTrafficPercent"] == 10
    assert service["metadata"]["annotations"]["voxline.dev/digest"] == registry.event(2).digest
    _, back = rollout("--percent", "0")
    service["spec"]["predictor"]["canaryTrafficPercent"] = 0
    assert back == service, "the share alone differs, so KServe makes no new revision"
    registry.rollback()
    config, service = rollout("--percent", "100")
    assert "versions: 3" in config, "the bytes of version 1 under a new number"
    assert service["metadata"]["annotations"]["voxline.dev/digest"] == registry.event(1).digest

"""A registry in a bucket, as KServe's own storage initializer copies it into a pod, and the names that it reads."""

import importlib.util
import json
import logging
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.buckets.s3_server import S3Storage
from tests.buckets.storages import AnyStorage
from tests.cluster.k8s.fetched import module
from tests.registry.published import exported, publish
from voxline.notify.kserve import serving_objects
from voxline.notify.settings import KserveSettings
from voxline.registry.registry import Registry

KSERVE = "github.com/kserve/kserve@v0.15.2"
MONITORING = Path(__file__).parents[3] / "docs" / "monitoring.md"


@pytest.fixture
def initializer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """KServe's module `storage`, beside a package with its logger alone: the rest of KServe is not installed."""
    file = module(KSERVE) / "python" / "kserve" / "kserve" / "storage" / "storage.py"
    package, logger = types.ModuleType("kserve"), types.ModuleType("kserve.logging")
    package.__path__ = []
    logger.logger = logging.getLogger("kserve")  # type: ignore[attr-defined]
    folder = types.ModuleType("kserve.storage")
    folder.__path__ = [str(file.parent)]
    for name, made in (("kserve", package), ("kserve.logging", logger), ("kserve.storage", folder)):
        monkeypatch.setitem(sys.modules, name, made)
    spec = importlib.util.spec_from_file_location("kserve.storage.storage", file)
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.Storage


@pytest.mark.parametrize("kind", ["gcs", "s3"])
def test_kserve_copies_the_versions_to_where_the_server_looks(
    kind: str, initializer: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    storage: AnyStorage = request.getfixturevalue(kind)
    root = f"{storage.uri}/registry"
    for name in ("asr", "asr-large"):
        for content in ("first", "second"):
            publish(Registry(root, name), exported(tmp_path / name / content, f"{name} {content}"))
    if isinstance(storage, S3Storage):
        monkeypatch.setenv("AWS_ENDPOINT_URL", storage.proxy.address)
    config, service = serving_objects("asr", 2, "ab12", KserveSettings(storage=root), 100)
    (base_path,) = re.findall(r'base_path: "(.*)"', config["data"]["models.config"])
    pod = tmp_path / "pod"
    mounted = pod / "mnt" / "models"
    mounted.mkdir(parents=True)
    initializer.download(service["spec"]["predictor"]["model"]["storageUri"], str(mounted))
    served = pod / base_path.removeprefix("/")
    assert (served / "2" / "saved_model.pb").read_text(encoding="utf-8") == "asr second"
    assert not [file for file in mounted.rglob("*") if "large" in str(file.relative_to(mounted))]
    assert {one.name for one in served.iterdir() if one.name.isdigit()} == {"1", "2"}


def test_the_key_and_the_annotations_of_the_page_are_those_that_kserve_reads() -> None:
    source = module(KSERVE)
    config = (source / "config" / "configmap" / "inferenceservice.yaml").read_text(encoding="utf-8")
    names = re.findall(r'"(s3AccessKeyIDName|s3SecretAccessKeyName)": "(\w+)"', config)
    assert {value for _, value in names} == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    known = (source / "pkg" / "credentials" / "s3" / "s3_secret.go").read_text(encoding="utf-8")
    page = MONITORING.read_text(encoding="utf-8")
    annotations = re.findall(r"serving\.kserve\.io/(s3-\w+)", page)
    assert set(annotations) == {"s3-endpoint", "s3-usehttps", "s3-region"}
    for name in annotations:
        assert f'"{name}"' in known, name
    (patch,) = re.findall(r"patch serviceaccount voxline-serving -p '(.*)'", page)
    assert json.loads(patch) == {"secrets": [{"name": "voxline-s3"}]}

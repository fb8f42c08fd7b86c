"""Every object of k8s/, and every job that the train step asks for, against the schemas of what reads it."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cluster.k8s import fetched, schemas
from tests.cluster.k8s.built import K8S, Object
from tests.training.tones import tiny_asr_settings
from voxline.components.train.distributed.jobs import TRAIN_JOB, JobSpec
from voxline.notify.kserve import serving_objects
from voxline.notify.settings import KserveSettings


@pytest.fixture(scope="session")
def schema_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    swagger = fetched.module(fetched.KUBERNETES) / "api" / "openapi-spec" / "swagger.json"
    schemas.write_kubernetes(swagger, folder)
    schemas.write_definitions(fetched.definition_files(), folder)
    return folder


def faults(objects: list[Object], folder: Path) -> list[str]:
    """What kubeconform finds fault with; a kind without a schema is a fault too."""
    place = f"{folder}/{{{{ .Group }}}}_{{{{ .ResourceAPIVersion }}}}_{{{{ .ResourceKind }}}}.json"
    done = subprocess.run(
        [str(fetched.kubeconform()), "-strict", "-output", "json", "-schema-location", place, "-"],
        input=yaml.safe_dump_all(objects),
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(done.stdout)
    return [f"{one['kind']} {one['name']}: {one['msg']}" for one in told["resources"]]


def test_every_object_is_valid(objects: list[Object], schema_folder: Path) -> None:
    assert faults(objects, schema_folder) == []


@pytest.mark.parametrize("storage", ["pvc://voxline-registry", "gs://speech/registry", "s3://speech/registry"])
def test_the_canary_of_a_version_is_valid(storage: str, schema_folder: Path) -> None:
    objects = serving_objects("asr", 7, "ab12", KserveSettings(storage=storage), 10)
    assert faults(objects, schema_folder) == []
    objects[1]["spec"]["predictor"]["canaryPercent"] = 10
    (fault,) = faults(objects, schema_folder)
    assert "canaryPercent" in fault


def test_an_unknown_field_is_reported(schema_folder: Path) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "automountToken": False}
    (fault,) = faults([account], schema_folder)
    assert "automountToken" in fault


def test_the_job_of_the_train_step_matches_its_schema(schema_folder: Path) -> None:
    task = JobSpec(
        "0f" * 16,
        "/mnt/store/extract/ab",
        "/mnt/store",
        tiny_asr_settings(strategy="auto", workers={"count": 4}),
        "model:1",
    )
    template = yaml.safe_load((K8S / "base" / "worker-template.yaml").read_text())
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "train-1", "uid": "1"}
    metadata = {"name": task.name, "namespace": "voxline", "ownerReferences": [owner]}
    assert faults([TRAIN_JOB.body(task, metadata, template)], schema_folder) == []

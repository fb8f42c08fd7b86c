"""The section `cluster`: what it takes where nothing is said, and what it refuses, by key and in words."""

import pytest

from voxline.errors import SettingsError
from voxline.pipelines.config.cluster import ClusterSettings


def test_a_step_of_which_something_is_said_keeps_the_rest_of_its_own_defaults() -> None:
    steps = ClusterSettings.of({"steps": {"train": {"cpu": 16}}}).steps
    assert (steps.train.cpu, steps.train.memory, steps.train.shared_memory) == ("16", "16Gi", "2Gi")
    assert steps.for_step("validate").memory == "8Gi"
    assert ClusterSettings() == ClusterSettings.of("{}")


def test_it_reads_what_it_writes() -> None:
    chosen = ClusterSettings.of({"spot": True, "steps": {"train": {"accelerator": {"kind": "gpu"}}}})
    assert ClusterSettings.of(chosen.model_dump(mode="json", by_alias=True)) == chosen


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"steps": {"trian": {}}}, r"unknown key 'steps.trian'; did you mean 'steps.train'"),
        ({"steps": {"train": {"memory": "3 GB"}}}, r"'steps.train.memory' is '3 GB'; accepted: .* such as 500Mi"),
        ({"steps": {"train": {"cpu": "many"}}}, r"'steps.train.cpu' is 'many'; accepted: cores"),
        ({"steps": {"train": {"cpu": True}}}, r"'steps.train.cpu' is True; .*string"),
        ({"images": {"tag": "latest"}}, r"'images.tag' is 'latest'; .* a tag that does not move"),
        ({"images": {"tag": 1.1}}, r"'images.tag' is 1.1; .*put it in quotes"),
        ({"labels": {"release": 83}}, r"'labels.release' is 83; .*put it in quotes"),
        ({"steps": {"train": {"cpu": 4, "cpu_limit": "500m"}}}, r"'steps.train' .*cpu_limit 500m is less than cpu 4"),
        ({"steps": {"train": {"memory_limit": "15Gi"}}}, r"memory_limit 15Gi is less than memory 16Gi"),
        ({"images": {"registry": "https://x"}}, r"'images.registry' is 'https://x'; accepted: .*without https://"),
        ({"images": {"digests": {"data": "sha256:1"}}}, r"'images.digests.data' is 'sha256:1'; accepted: sha256: and"),
        ({"service_account": "Me"}, r"'service_account' is 'Me'; accepted: a Kubernetes name"),
        ({"claims": [{"name": "a", "mount": "mnt"}]}, r"'claims.0.mount' is 'mnt'; accepted: an absolute path"),
        ({"secrets": [{"name": "a"}]}, r"'secrets.0' is .*give `env`, `mount` or both"),
        ({"steps": {"train": {"accelerator": {"kind": "tpu"}}}}, r"kind tpu requires a type and a topology"),
        ({"steps": {"train": {"accelerator": {"kind": "gpu", "topology": "2x2"}}}}, r"kind gpu has no topology"),
        (
            {"steps": {"train": {"accelerator": {"kind": "tpu", "type": "v5", "topology": "4x4", "count": 4}}}},
            r"topology 4x4 has 16 chips, and count is 4.*several hosts are not supported",
        ),
        (
            {"steps": {"train": {"accelerator": {"kind": "tpu", "type": "v5", "topology": "4x4", "count": 16}}}},
            r"topology 4x4 has 16 chips.*several hosts are not supported",
        ),
        ({"tolerations": [{"key": "a", "value": "b"}]}, r"operator Exists takes no value"),
        ({"user": {"uid": 0}}, r"'user.uid' is 0; .*greater than or equal to 1"),
    ],
)
def test_a_fault_is_told_by_its_key_with_what_is_accepted(said: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        ClusterSettings.of(said, "run.yaml")


@pytest.mark.parametrize("name", ["DB_PASSWORD", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "apikey", "MY_CREDENTIALS"])
def test_a_secret_stands_in_no_compiled_pipeline(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} looks like a secret.*`secrets`"):
        ClusterSettings.of({"steps": {"push": {"env": {name: "hunter2"}}}})
    assert ClusterSettings.of({"env": {name: "/var/secrets/key.json"}})

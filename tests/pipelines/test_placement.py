"""The resources and placement of a step's pod in the compiled graph."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import compile_to_yaml, load_ir
from voxline.errors import SettingsError
from voxline.pipelines.cluster.compiler import code_tag
from voxline.pipelines.config.load import load_config
from voxline.pipelines.graphs import graph_of
from voxline.pipelines.images import content_tag
from voxline.store.permanent_failures import ATTEMPT_ENV

ROOT = Path(__file__).parents[2]

RUN = """
name: nightly
store: gs://speech/store
registry: gs://speech/registry
corpus: {uri: gs://speech/corpora/LibriSpeech}
cluster: {images: {registry: registry.example/voxline, tag: "7"}}
"""


class Compiled:
    """A compiled pipeline, by step."""

    def __init__(self, folder: Path, cluster: str, kfp_version: tuple[int, ...] = (2, 17)) -> None:
        (folder / "run.yaml").write_text(RUN, encoding="utf-8")
        (folder / "cluster.yaml").write_text(f"cluster: {cluster}", encoding="utf-8")
        config = load_config([folder / "run.yaml", folder / "cluster.yaml"])
        self.spec, self.platform = load_ir(compile_to_yaml(config, folder / "ir.yaml", kfp_version))
        self.kubernetes = self.platform["platforms"]["kubernetes"]

    def container(self, step: str) -> Any:
        return self.spec["deploymentSpec"]["executors"][f"exec-{step}"]["container"]

    def pod(self, step: str) -> Any:
        return self.kubernetes["deploymentSpec"]["executors"][f"exec-{step}"]

    def task(self, step: str) -> Any:
        return self.spec["root"]["dag"]["tasks"][step]


@pytest.mark.parametrize(("name", "kind"), [("model", "gpu"), ("model-gpu", "tpu"), ("data", "gpu")])
def test_an_image_that_cannot_use_the_accelerator_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    accelerator = "{kind: gpu, count: 2}" if kind == "gpu" else "{kind: tpu, type: v5, topology: 2x2, count: 4}"
    with pytest.raises(SettingsError, match=f"image {name} cannot use the accelerator, . of kind {kind}"):
        Compiled(tmp_path, f"{{steps: {{train: {{image: {name}, accelerator: {accelerator}}}}}}}")


def image(compiled: Compiled, step: str) -> str:
    return str(compiled.container(step)["image"]).removeprefix("registry.example/voxline/")


def test_pods_request_the_defaults_of_their_step_and_are_not_root(tmp_path: Path) -> None:
    compiled = Compiled(tmp_path, "{}")
    for step in ("ingest", "convert", "validate", "extract", "train", "evaluate", "push"):
        pod, resources = compiled.pod(step), compiled.container(step)["resources"]
        assert resources["resourceMemoryRequest"] == resources["resourceMemoryLimit"]
        assert "resourceCpuLimit" not in resources
        assert pod["securityContext"] == {"runAsUser": "65532", "runAsGroup": "65532", "runAsNonRoot": True}
        assert {"mountPath": "/tmp", "sizeLimit": "20Gi", "volumeName": "scratch"} in pod["emptyDirMounts"]
        assert pod["podMetadata"]["labels"]["app.kubernetes.io/component"] == step
        assert pod["imagePullPolicy"] == "IfNotPresent"
        assert not compiled.task(step)["cachingOptions"].get("enableCache")  # our own reuse looks at the content
    assert (image(compiled, "ingest"), image(compiled, "validate")) == ("data:7", "validate:7")
    assert (image(compiled, "train"), image(compiled, "push")) == ("model:7", "model:7")
    assert compiled.kubernetes["pipelineConfig"] == {
        "resourceTtlOnCompletion": 7 * 86400,
        "resourceTtlOnSuccess": 7 * 86400,
        "resourceTtlOnFailure": 7 * 86400,
        "activeDeadlineSeconds": 192 * 3600,
    }
    for version in ((), (2, 16, 1)):
        assert "pipelineConfig" not in Compiled(tmp_path, "{}", version).kubernetes, "KFP before 2.17 refuses it"


def test_gpus_are_requested_with_their_image(tmp_path: Path) -> None:
    compiled = Compiled(
        tmp_path, "{steps: {train: {accelerator: {kind: gpu, count: 4, type: nvidia-l4}, shared_memory: 16Gi}}}"
    )
    accelerator = compiled.container("train")["resources"]["accelerator"]
    assert (accelerator["resourceType"], accelerator["resourceCount"]) == ("nvidia.com/gpu", "4")
    pod = compiled.pod("train")
    assert pod["nodeSelector"]["labels"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert {"effect": "NoSchedule", "key": "nvidia.com/gpu", "operator": "Exists"} in pod["tolerations"]
    shared = {"medium": "Memory", "mountPath": "/dev/shm", "sizeLimit": "16Gi", "volumeName": "shared-memory"}
    assert shared in pod["emptyDirMounts"]
    assert (image(compiled, "train"), image(compiled, "evaluate")) == ("model-gpu:7", "model:7")
    assert "accelerator" not in compiled.container("evaluate")["resources"]


def test_tpus_are_requested_by_chips_type_and_topology(tmp_path: Path) -> None:
    compiled = Compiled(
        tmp_path,
        "{steps: {train: {accelerator: {kind: tpu, type: tpu-v5-lite-podslice, topology: 2x2, count: 4}}}}",
    )
    accelerator = compiled.container("train")["resources"]["accelerator"]
    assert (accelerator["resourceType"], accelerator["resourceCount"]) == ("google.com/tpu", "4")
    assert compiled.pod("train")["nodeSelector"]["labels"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x2",
    }
    assert image(compiled, "train") == "model-tpu:7"


def test_an_accelerator_of_none_stays_none_under_an_overlay_that_names_its_type(tmp_path: Path) -> None:
    compiled = Compiled(tmp_path, "{steps: {train: {accelerator: {kind: gpu, count: 0, type: nvidia-l4}}}}")
    assert "accelerator" not in compiled.container("train")["resources"]
    assert "nodeSelector" not in compiled.pod("train")
    assert image(compiled, "train") == "model:7"


def test_the_settings_of_a_step_are_added_to_the_common_ones(tmp_path: Path) -> None:
    compiled = Compiled(
        tmp_path,
        """
  spot: true
  env: {LANG: C.UTF-8}
  secrets: [{name: bucket-key, env: {access: ACCESS_ID}, mount: /var/secrets/bucket}]
  labels: {team: speech}
  claims: [{name: voxline, mount: /mnt/voxline, sub_path: english}]
  steps:
    push: {secrets: [{name: registry-key, mount: /var/secrets/registry}], env: {GOOGLE_APPLICATION_CREDENTIALS: /x}}
""",
    )
    for step in ("ingest", "push"):
        pod = compiled.pod(step)
        assert pod["nodeSelector"]["labels"]["cloud.google.com/gke-spot"] == "true"
        assert [one["keyToEnv"] for one in pod["secretAsEnv"]] == [[{"envVar": "ACCESS_ID", "secretKey": "access"}]]
        assert pod["podMetadata"]["labels"]["team"] == "speech"
        claim = pod["pvcMount"][0]
        assert (claim["constant"], claim["mountPath"], claim["subPath"]) == ("voxline", "/mnt/voxline", "english")
        assert {"name": "LANG", "value": "C.UTF-8"} in compiled.container(step)["env"]
    assert [one["secretName"] for one in compiled.pod("ingest")["secretAsVolume"]] == ["bucket-key"]
    assert [one["secretName"] for one in compiled.pod("push")["secretAsVolume"]] == ["bucket-key", "registry-key"]
    assert {one["name"] for one in compiled.container("ingest")["env"]} == {
        "LANG",
        "VOXLINE_RESTARTS",
        "VOXLINE_RESTART_SECONDS",
    }


def test_a_digest_overrides_the_tag(tmp_path: Path) -> None:
    digest = "sha256:" + "ab" * 32
    compiled = Compiled(tmp_path, f"{{images: {{digests: {{data: '{digest}'}}, pull_secrets: [registry]}}}}")
    assert image(compiled, "ingest") == f"data@{digest}"
    assert image(compiled, "train") == "model:7"
    assert compiled.pod("train")["imagePullSecret"][0]["secretName"] == "registry"


UNSAID = "{images: {registry: '', tag: ''}}"


def test_the_environment_sets_images_that_the_config_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXLINE_IMAGE_REGISTRY", "ghcr.io/team/speech/")
    monkeypatch.setenv("VOXLINE_IMAGE_TAG", "0.1.0-0123456789ab")
    assert image(Compiled(tmp_path, UNSAID), "ingest") == "ghcr.io/team/speech/data:0.1.0-0123456789ab"
    assert image(Compiled(tmp_path, "{}"), "ingest") == "data:7"
    for name in ("VOXLINE_IMAGE_REGISTRY", "VOXLINE_IMAGE_TAG"):  # a CI's variable that nobody set is empty
        monkeypatch.setenv(name, "")
    assert image(Compiled(tmp_path, UNSAID), "ingest") == f"voxline/data:{content_tag(ROOT)}"


@pytest.mark.parametrize(
    ("name", "said", "told"),
    [
        ("REGISTRY", "https://ghcr.io/team", "'registry' is 'https://ghcr.io/team'; accepted: a host"),
        ("REGISTRY", "ghcr.io/Team", "'registry' is 'ghcr.io/Team'"),
        ("TAG", "latest", "'tag' is 'latest'; a compiled pipeline must run the same code"),
        ("TAG", "a tag", "'tag' is 'a tag'; accepted: at most 128 letters"),
    ],
)
def test_images_in_the_environment_are_validated_like_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str, told: str
) -> None:
    monkeypatch.setenv(f"VOXLINE_IMAGE_{name}", said)
    with pytest.raises(SettingsError, match=rf"the environment \(VOXLINE_IMAGE_REGISTRY.*: {re.escape(told)}"):
        Compiled(tmp_path, UNSAID)


def test_an_unknown_tag_asks_for_the_setting(tmp_path: Path) -> None:
    """As where the package was installed alone: an image that nobody built would be found missing by a pod."""
    with pytest.raises(SettingsError, match=r"'images\.tag' is not set.*pyproject\.toml.*--set cluster\.images\.tag="):
        code_tag(tmp_path / "site-packages")


@pytest.mark.parametrize("hours", [0.5, 168.0])
def test_every_attempt_has_its_full_timeout(tmp_path: Path, hours: float) -> None:
    """Argo counts a back-off's longest duration from the first attempt's start, and ends the attempt that runs then."""
    compiled = Compiled(
        tmp_path,
        f"{{steps: {{train: {{timeout_hours: {hours}, retries: 4, retry_seconds: 30}}, push: {{retries: 0}}}}}}",
    )
    policy, timeout = compiled.task("train")["retryPolicy"], int(compiled.pod("train")["activeDeadlineSeconds"])
    assert timeout == hours * 3600
    assert (policy["maxRetryCount"], policy["backoffDuration"], policy["backoffFactor"]) == (4, "30s", 2.0)
    assert int(policy["backoffMaxDuration"].removesuffix("s")) == 5 * timeout + 30 * (1 + 2 + 4 + 8)
    assert "retryPolicy" not in compiled.task("push")


def test_a_step_knows_the_number_of_its_attempt(tmp_path: Path) -> None:
    compiled = Compiled(tmp_path, "{}")
    (variable,) = compiled.pod("train")["fieldPathAsEnv"]
    assert variable == {"name": ATTEMPT_ENV, "fieldPath": "metadata.annotations['workflows.argoproj.io/node-name']"}


def test_scratch_may_be_a_volume_of_its_own_for_each_pod(tmp_path: Path) -> None:
    compiled = Compiled(tmp_path, "{steps: {convert: {scratch: 500Gi, scratch_class: fast-ssd}}}")
    pod = compiled.pod("convert")
    (volume,) = pod["genericEphemeralVolume"]
    assert (volume["mountPath"], volume["size"], volume["storageClassName"]) == ("/tmp", "500Gi", "fast-ssd")
    assert "scratch" not in [mount["volumeName"] for mount in pod.get("emptyDirMounts", [])]


def test_spot_nodes_and_queues_have_the_labels_of_their_provider(tmp_path: Path) -> None:
    text = """{spot: true, spot_label: {key: eks.amazonaws.com/capacityType, value: SPOT},
      labels: {kueue.x-k8s.io/queue-name: speech}, steps: {train: {labels: {kueue.x-k8s.io/queue-name: gpus}}}}"""
    compiled = Compiled(tmp_path, text)
    pod = compiled.pod("convert")
    assert pod["nodeSelector"]["labels"]["eks.amazonaws.com/capacityType"] == "SPOT"
    assert pod["tolerations"][-1]["key"] == "eks.amazonaws.com/capacityType"
    queues = {
        step: compiled.pod(step)["podMetadata"]["labels"]["kueue.x-k8s.io/queue-name"] for step in graph_of("asr")
    }
    assert queues == {**dict.fromkeys(graph_of("asr"), "speech"), "train": "gpus"}


def test_a_step_may_have_more_scratch_than_others(tmp_path: Path) -> None:
    compiled = Compiled(tmp_path, "{steps: {convert: {scratch: 500Gi}}}")
    (mount,) = compiled.pod("convert")["emptyDirMounts"]
    assert (mount["mountPath"], mount["sizeLimit"]) == ("/tmp", "500Gi")


def test_a_path_that_no_pod_sees_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        """
name: nightly
store: /mnt/store/speech
registry: /mnt/models
corpus: {uri: gs://speech/corpora/LibriSpeech}
cluster: {claims: [{name: voxline-store, mount: /mnt/store}]}
""",
        encoding="utf-8",
    )
    assert load_config(tmp_path / "run.yaml").unmounted_paths() == {"registry": "/mnt/models"}


def test_a_tpu_is_refused_for_a_training_that_xla_cannot_compile(tmp_path: Path) -> None:
    files = [ROOT / "configs/tts/fastspeech.yaml", ROOT / "configs/cluster/gke-tpu.yaml"]
    config = load_config(files, ["corpus.uri=gs://speech/LJSpeech-1.1"])
    fault = (
        r"steps\.train\.accelerator is a TPU, and XLA cannot .* fastspeech learns by; give a GPU, or accelerator: null"
    )
    with pytest.raises(SettingsError, match=fault):
        compile_to_yaml(config, tmp_path / "ir.yaml")
    on_cpus = load_config(files, ["corpus.uri=gs://speech/LJSpeech-1.1", "cluster.steps.train.accelerator=null"])
    compile_to_yaml(on_cpus, tmp_path / "ir.yaml")


def test_a_tpu_is_refused_for_a_training_in_float16(tmp_path: Path) -> None:
    files = [ROOT / "configs/asr/librispeech.yaml", ROOT / "configs/cluster/gke-tpu.yaml"]
    config = load_config(files, ["corpus.uri=gs://speech/LibriSpeech", "train.precision=mixed_float16"])
    with pytest.raises(SettingsError, match=r"is a TPU, and TPUs multiply in bfloat16 .*mixed_bfloat16"):
        compile_to_yaml(config, tmp_path / "ir.yaml")


def mounts(folder: Path, claims: str, changes: list[str] | None = None, pipeline: str = "asr") -> dict[str, list[str]]:
    """The claims that each step mounts."""
    (folder / "run.yaml").write_text(
        RUN.replace("gs://speech/store", "/mnt/store").replace("gs://speech/registry", "/mnt/registry")
        + f"pipeline: {pipeline}\n",
        encoding="utf-8",
    )
    config = load_config(folder / "run.yaml", [f"cluster.claims={claims}", *(changes or [])], pipeline=pipeline)
    spec, platform = load_ir(compile_to_yaml(config, folder / "ir.yaml"))
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    steps = [name.removeprefix("exec-") for name in spec["deploymentSpec"]["executors"]]
    return {step: [one["constant"] for one in executors[f"exec-{step}"].get("pvcMount", [])] for step in steps}


SEPARATE = "[{name: store, mount: /mnt/store}, {name: registry, mount: /mnt/registry%s}]"


def test_only_push_can_write_the_registry(tmp_path: Path) -> None:
    mounted = mounts(tmp_path, SEPARATE % ", read_only_name: registry-read")
    for step in ("ingest", "convert", "extract"):
        assert mounted[step] == ["store"], f"{step} does not read the registry"
    for step in ("validate", "train", "evaluate"):
        assert mounted[step] == ["store", "registry-read"]
    assert mounted["push"] == ["store", "registry"]


def test_a_step_that_does_not_read_the_registry_never_sees_it(tmp_path: Path) -> None:
    """Also where the volume has no read-only claim: convert decodes the recordings of strangers."""
    mounted = mounts(tmp_path, SEPARATE % "")
    assert mounted["convert"] == mounted["ingest"] == mounted["extract"] == ["store"]
    assert mounted["train"] == mounted["push"] == ["store", "registry"]


def test_only_publish_can_write_the_datasets(tmp_path: Path) -> None:
    claims = "[{name: store, mount: /mnt/store}, {name: data, mount: /mnt/data, read_only_name: data-read}]"
    mounted = mounts(tmp_path, claims, ["datasets=/mnt/data", "registry=gs://speech/registry"], "refresh")
    assert mounted["publish"] == ["store", "data"]
    assert mounted["convert"] == ["store", "data-read"]


def test_a_claim_that_every_step_writes_has_no_read_only_name(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"store has a read_only_name, and holds store, registry; give the registry"
    ):
        mounts(tmp_path, "[{name: store, mount: /mnt, read_only_name: store-read}]")
    shared = mounts(tmp_path, "[{name: store, mount: /mnt}]")
    assert set(map(tuple, shared.values())) == {("store",)}

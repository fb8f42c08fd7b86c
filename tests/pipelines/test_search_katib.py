"""`voxline search --compile katib`, held to Katib's types, its webhook's rules, and the parser of its collector."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from kubernetes import client
from typer.testing import CliRunner

from tests.conftest import ROOT
from voxline.errors import SettingsError
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.keys import get_key
from voxline.pipelines.config.load import load_config
from voxline.store.step_cache import StepOutput

RANGES = {
    "train.learning_rate": {"log": [1e-4, 2e-2]},
    "train.weight_decay": {"linear": [0, 0.01]},
    "train.batch_size": {"log_integer": [8, 64]},
    "train.model.units": [48, 96],
    "train.schedule": ["cosine", "inverse_square_root"],
}
DATASET = "gs://speech/store/extract/0f3c"
SCHEMA = json.loads((Path(__file__).parent / "golden" / "katib_experiment_schema.json").read_text(encoding="utf-8"))


def compile_katib(folder: Path, *arguments: str, ranges: Any = RANGES, dataset: str = DATASET) -> Any:
    """The documents that the command writes."""
    (folder / "space.yaml").write_text(yaml.safe_dump(ranges), encoding="utf-8")
    files = ["-c", str(ROOT / "configs/asr/librispeech.yaml"), "-c", str(ROOT / "configs/cluster/gke-gpu.yaml")]
    tag = ["--set", "cluster.images.tag=v1", "--space", str(folder / "space.yaml")]
    target = ["--compile", "katib", "--dataset", dataset, "-o", str(folder / "out.yaml")]
    result = CliRunner().invoke(app, ["search", "asr", *files, *tag, *target, *arguments])
    if isinstance(result.exception, SettingsError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all((folder / "out.yaml").read_text(encoding="utf-8")))


def test_the_experiment_is_what_katibs_types_and_webhook_accept(tmp_path: Path) -> None:
    _, experiment = compile_katib(tmp_path, "--trials", "20", "--jobs", "4", "--goal", "0.05")
    assert (experiment["apiVersion"], experiment["kind"]) == ("kubeflow.org/v1beta1", "Experiment")
    spec = experiment["spec"]
    jsonschema.Draft4Validator(SCHEMA).validate(spec)
    # pkg/webhook/v1beta1/experiment/validator/validator.go
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", experiment["metadata"]["name"])
    assert len(experiment["metadata"]["name"]) <= 40
    assert spec["objective"] == {"type": "minimize", "goal": 0.05, "objectiveMetricName": "dev_wer"}
    assert 0 < spec["parallelTrialCount"] == 4 <= spec["maxTrialCount"] == 20
    assert 0 <= spec["maxFailedTrialCount"] <= 20
    kinds = {"double": {"min", "max", "distribution"}, "int": {"min", "max", "distribution"}, "categorical": {"list"}}
    for parameter in spec["parameters"]:
        assert set(parameter["feasibleSpace"]) == kinds[parameter["parameterType"]]
    template = spec["trialTemplate"]
    assert {one["reference"] for one in template["trialParameters"]} == set(RANGES)
    text = json.dumps(template["trialSpec"])
    for one in template["trialParameters"]:
        assert "${trialParameters." + one["name"] + "}" in text
        text = text.replace("${trialParameters." + one["name"] + "}", "test-value")
    assert not re.search(r"\$\{trialParameters\..+?\}", text)
    assert "metadata" not in template["trialSpec"]
    assert [one["name"] for one in template["trialSpec"]["spec"]["template"]["spec"]["containers"]] == [
        template["primaryContainerName"]
    ]


def test_a_seed_is_the_one_of_katibs_algorithm(tmp_path: Path) -> None:
    """pkg/suggestion/v1beta1/hyperopt/service.py: `random_state`, a text that reads as a number of 0 or more."""
    _, experiment = compile_katib(tmp_path, "--seed", "0")
    algorithm = experiment["spec"]["algorithm"]
    assert algorithm == {"algorithmName": "tpe", "algorithmSettings": [{"name": "random_state", "value": "0"}]}
    jsonschema.Draft4Validator(SCHEMA).validate(experiment["spec"])
    _, unseeded = compile_katib(tmp_path)
    assert unseeded["spec"]["algorithm"] == {"algorithmName": "tpe"}


def test_ranges_keep_their_kind(tmp_path: Path) -> None:
    _, experiment = compile_katib(tmp_path)
    found = {one["name"]: (one["parameterType"], one["feasibleSpace"]) for one in experiment["spec"]["parameters"]}
    assert found == {
        "train.learning_rate": ("double", {"min": "0.0001", "max": "0.02", "distribution": "logUniform"}),
        "train.weight_decay": ("double", {"min": "0", "max": "0.01", "distribution": "uniform"}),
        "train.batch_size": ("int", {"min": "8", "max": "64", "distribution": "logUniform"}),
        "train.model.units": ("categorical", {"list": ["48", "96"]}),
        "train.schedule": ("categorical", {"list": ["cosine", "inverse_square_root"]}),
    }


def test_the_job_is_kubernetes_own(tmp_path: Path) -> None:
    """Nothing is lost on the way through the client's types: an unknown key would be, and a wrong type refused."""
    _, experiment = compile_katib(tmp_path)
    job = experiment["spec"]["trialTemplate"]["trialSpec"]

    class Response:
        data = json.dumps(job)

    api = client.ApiClient()
    assert api.sanitize_for_serialization(api.deserialize(Response(), "V1Job")) == job
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "voxline-train"
    # What `restricted` pod security asks for (k8s/namespace).
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["seccompProfile"]["type"]) == (
        True, "RuntimeDefault"
    )  # fmt: skip
    own = pod["containers"][0]["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["capabilities"]) == (False, {"drop": ["ALL"]})
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-spot": "true", "cloud.google.com/gke-accelerator": "nvidia-l4"
    }  # fmt: skip
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert pod["containers"][0]["image"].endswith("/model-gpu:v1")


def test_the_command_of_a_trial_is_one_of_ours(tmp_path: Path) -> None:
    """With the config of the ConfigMap, and a trial's values in place of the parameters."""
    config_map, experiment = compile_katib(tmp_path)
    template = experiment["spec"]["trialTemplate"]
    (container,) = template["trialSpec"]["spec"]["template"]["spec"]["containers"]
    shell, option, line = container["command"]
    assert (shell, option) == ("sh", "-c"), "else Katib joins the arguments without quotes"
    first = {one["name"]: one["feasibleSpace"] for one in experiment["spec"]["parameters"]}
    for one in template["trialParameters"]:
        space = first[one["reference"]]
        line = line.replace(
            "${trialParameters." + one["name"] + "}", space["list"][-1] if "list" in space else space["max"]
        )
    python, dash, module, *arguments = shlex.split(line)
    assert (python, dash, module, *arguments[:2]) == ("python", "-m", "voxline", "step", "train")
    assert arguments[arguments.index("--dataset") + 1] == DATASET
    (tmp_path / "config.yaml").write_text(config_map["data"]["config.yaml"], encoding="utf-8")
    sets = [arguments[index + 1] for index, one in enumerate(arguments) if one == "--set"]
    values = load_config([tmp_path / "config.yaml"], sets).plain()
    expected = [0.02, 0.01, 64, 96, "inverse_square_root"]
    assert [get_key(values, key) for key in RANGES] == expected
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert arguments[arguments.index("--config") + 1] == f"{mounted['config']}/config.yaml"


def test_the_collector_reads_the_metric_from_what_step_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As parseLogsInTextFormat of Katib's file-metricscollector does."""
    work = StepOutput("train", tmp_path, "0f3c", metrics={"steps": 900.0, "dev_wer": 0.03125, "dev_cer": 1e-05})
    monkeypatch.setattr("voxline.pipelines.local.single_step.run_step", lambda *given: work)
    config = tmp_path / "config.yaml"
    config.write_text("{name: tiny, corpus: {uri: corpus}}", encoding="utf-8")
    printed = CliRunner().invoke(app, ["step", "train", "-c", str(config)]).output
    printed = "▸ train: epoch 1 of 6, dev WER 50.00%, dev_wer 1\n" + printed
    _, experiment = compile_katib(tmp_path)
    (pattern,) = experiment["spec"]["metricsCollectorSpec"]["source"]["filter"]["metricsFormat"]
    lines = [line for line in printed.splitlines() if "dev_wer" in line or "dev_cer" in line]
    found = [
        (name, value) for line in lines for name, value, *_ in re.findall(pattern, line) if name.startswith("dev_")
    ]
    assert found == [("dev_wer", "0.03125"), ("dev_cer", "1e-05")]


@pytest.mark.parametrize(
    ("arguments", "dataset", "ranges", "expected"),
    [
        (["--method", "halving"], DATASET, RANGES, "with --compile katib, accepted: tpe, random"),
        ([], "", RANGES, "--dataset is not given"),
        (["--set", "store=''"], DATASET, RANGES, "store is not set"),
        (["--set", "language.kind=ngram"], DATASET, {"language.alpha": {"linear": [0, 2]}}, "only train.* can vary"),
        ([], DATASET, {"train.start.model": ["/m", "/it's"]}, "no quotes, backslashes or line ends"),
        (["-o", "out.json"], DATASET, RANGES, "a file whose name ends in .yaml"),
        (["--compile", "ray"], DATASET, RANGES, "accepted: katib, kfp"),
        (["--seeds", "0"], DATASET, RANGES, "--seeds: it has no effect with --compile"),
        (["--no-gate"], DATASET, RANGES, "--no-gate: it has no effect with --compile"),
        (["--gate"], DATASET, RANGES, "--gate: it has no effect with --compile"),
    ],
)
def test_what_katib_cannot_do_is_refused(
    tmp_path: Path, arguments: list[str], dataset: str, ranges: Any, expected: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(expected)):
        compile_katib(tmp_path, *arguments, ranges=ranges, dataset=dataset)
    assert not (tmp_path / "out.yaml").exists()

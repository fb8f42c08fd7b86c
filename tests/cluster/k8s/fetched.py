"""What the tests of k8s/ take from elsewhere: Go modules, each by its version and by the hash of what is in it.

They carry what no Python package does: Kubernetes' own schemas, and the definitions of what k8s/ relies on.
"""

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(os.environ.get("VOXLINE_CLUSTER_TOOLS", Path(__file__).resolve().parents[3] / ".cluster-tools"))
KUBERNETES = "k8s.io/kubernetes@v1.32.4"
SUMS = {
    KUBERNETES: "h1:fRZeSjwVE+dMMSS7Qi6LxOOKpVL+1CPAT/b1Cuo4kns=",
    "github.com/kubeflow/trainer/v2@v2.1.0": "h1:jRABD9ZYToamNH2atHze3L/VC/v6KCAqUEqsOQOjVTg=",
    "github.com/kserve/kserve@v0.15.2": "h1:uph7Umk331fvBMrHHpTJNDt6+lf3IAuyiskaQw8wIAk=",
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
    "sigs.k8s.io/jobset@v0.10.1": "h1:u8QKifNsrWVrlRFe6w2ofYTqFT9ma2DRHxfeB2m9xyU=",
    "github.com/yannh/kubeconform@v0.8.0": "h1:loDYd3a3spjIFrauqW67CDKF55Oo9R6uvC8AvpVd4ug=",
}
DEFINITIONS = {
    "github.com/kubeflow/trainer/v2@v2.1.0": [
        "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
        "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
    ],
    "github.com/kserve/kserve@v0.15.2": [
        "config/crd/full/serving.kserve.io_inferenceservices.yaml",
        "config/crd/full/serving.kserve.io_servingruntimes.yaml",
    ],
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": [
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ],
    "sigs.k8s.io/jobset@v0.10.1": ["config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"],
}
"""Files of CustomResourceDefinitions, by the module that they are of."""


def go(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Calls Go with a cache of ours. The hashes are in this file and in go.sum, so no other server is needed."""
    if shutil.which("go") is None:
        pytest.skip("no Go on the PATH, which brings the schemas of Kubernetes and of its extensions")
    environment = {
        **os.environ,
        "GOBIN": str(TOOLS / "bin"),
        "GOMODCACHE": str(TOOLS / "modules"),
        "GOCACHE": str(TOOLS / "cache"),
        "GOFLAGS": "-modcacherw",
        "GOSUMDB": "off",
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
    }
    return subprocess.run(["go", *arguments], capture_output=True, text=True, env=environment, check=False)


@functools.cache
def module(name: str) -> Path:
    """The folder of a module, fetched once."""
    done = go("mod", "download", "-json", name)
    told = json.loads(done.stdout or "{}")
    if "Dir" not in told:
        pytest.skip(f"{name} cannot be fetched here: {told.get('Error') or done.stderr.strip()[-300:]}")
    assert told["Sum"] == SUMS[name], f"{name} is not what it was"
    return Path(told["Dir"])


def definition_files() -> list[Path]:
    return [module(name) / file for name, files in DEFINITIONS.items() for file in files]


@functools.cache
def kubeconform() -> Path:
    """The validator, built in half a minute."""
    name = "github.com/yannh/kubeconform@v0.8.0"
    module(name)
    binary = TOOLS / "bin" / "kubeconform"
    if not binary.is_file():
        path, version = name.split("@")
        done = go("install", f"{path}/cmd/kubeconform@{version}")
        assert done.returncode == 0, done.stderr[-2000:]
    return binary

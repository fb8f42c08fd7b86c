"""The nodes of the tests: those of a given cluster, or one of the test.

The latter is containerd and a kubelet in the namespaces of the test, and a bridge for pods in them. Images of ours have
this checkout's code. Its interpreter and its libraries are those of the machine: containerd mounts /usr and the virtual
environment into every container, read-only, because a copy of 3.5 GB for each test takes minutes. Where
VOXLINE_KUBEFLOW_IMAGES names a folder with the images of docker/, pods run those, and nothing is mounted.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubeflow.control_plane import SERVICES, Kubernetes, documents
from tests.kubeflow.given import CNI_PLUGINS, debian_environment, missing_own_processes, program
from tests.kubeflow.images import CODE, LIBRARIES, unpack_wheel, write_image
from tests.kubeflow.pipelines_server import IMAGES

NAME = "node"
CGROUPS = Path("/sys/fs/cgroup")
STEP_IMAGES = ("voxline/data:1", "voxline/model:1", "voxline/validate:1")
PAUSE = "voxline/pause:1"
BUILT = os.environ.get("VOXLINE_KUBEFLOW_IMAGES", "")
READ_ONLY_ROOT = """
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: MutatingAdmissionPolicy
metadata: {name: read-only-root}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
    objectSelector: {matchLabels: {app.kubernetes.io/name: voxline}}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: >
          Object{spec: Object.spec{containers: object.spec.containers.filter(one, one.name == "main").map(one,
            Object.spec.containers{name: one.name, securityContext:
              Object.spec.containers.securityContext{readOnlyRootFilesystem: true}})}}
---
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: MutatingAdmissionPolicyBinding
metadata: {name: read-only-root}
spec: {policyName: read-only-root}
"""
"""KFP cannot ask for a read-only root; strict clusters give one to each step, like this."""


class Node:
    """The nodes of a cluster that is given, ready for pods."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes = kubernetes
        self.servers = kubernetes.servers

    def start(self) -> None:
        """Gives steps a read-only root, where the cluster has policies that change pods."""
        text = yaml.safe_dump_all(documents(READ_ONLY_ROOT))
        done = self.kubernetes.kubectl("apply", "--server-side", "-f", "-", given=text)
        if done.returncode:
            print(f"without a read-only root: {done.stderr.strip()}")

    def end(self) -> None:
        """Takes the policy away."""
        self.kubernetes.kubectl("delete", "--ignore-not-found", "-f", "-", given=READ_ONLY_ROOT)

    def take_away(self) -> None:
        """Ends the node and deletes it, as a cloud does that reclaims a machine."""
        pytest.skip(missing_own_processes("takes a node away"))

    def bring_back(self) -> None:
        """Starts the node again. Returns once it is ready."""


class StartedNode(Node):
    """A node of the test."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        super().__init__(kubernetes)
        self.folder = kubernetes.folder / "node"
        self._socket = self.folder / "containerd.sock"
        self._cgroup = f"voxline-kubeflow-{Path('/proc/self/ns/pid').stat().st_ino}"

    def start(self) -> None:
        """Starts containerd and the kubelet, and returns once the node is ready."""
        self.folder.mkdir()
        self.kubernetes.apply(list(documents(READ_ONLY_ROOT)))
        self._start_containerd()
        self._import_images()
        self._start_kubelet()
        self.servers.wait(self._is_ready, "the node")

    def end(self) -> None:
        """Ends the node's processes and their containers."""
        self.servers.end("kubelet")
        self.end_containers()
        self.servers.end("containerd")
        self.remove_cgroups()

    def take_away(self) -> None:
        """Ends the kubelet and every container, and deletes the node, as a cloud does that reclaims a machine."""
        self.servers.end("kubelet")
        self.end_containers()
        done = self.kubernetes.kubectl("delete", "node", NAME)
        assert done.returncode == 0, done.stderr

    def bring_back(self) -> None:
        """Starts the kubelet again, which registers the node. Returns once it is ready."""
        self._start_kubelet()
        self.servers.wait(self._is_ready, "the node")

    def end_containers(self) -> None:
        """Kills every container of this node, and its processes with it.

        Without a containerd that answers there is nobody to ask; they end with this process namespace.
        """
        if not self.servers.is_running("containerd"):
            return
        for task in self.ctr("tasks", "list", "-q").split():
            self.ctr("tasks", "kill", "--all", "--signal", "SIGKILL", task, check=False)  # it may have ended

    def remove_cgroups(self) -> None:
        """Removes what the kubelet made below /sys/fs/cgroup, once nothing runs there."""
        for top in CGROUPS.glob(f"*/{self._cgroup}"):
            for folder, _, _ in os.walk(top, topdown=False):
                try:
                    Path(folder).rmdir()
                except OSError as error:
                    print(f"left behind: {folder}: {error}")

    def ctr(self, *arguments: str | Path, check: bool = True) -> str:
        command = ["ctr", "--address", self._socket, "-n", "k8s.io", *arguments]
        done = subprocess.run(
            [str(part) for part in command], env=debian_environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def _start_containerd(self) -> None:
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False,
                    "ipam": {
                        "type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]],
                        "routes": [{"dst": "0.0.0.0/0"}], "dataDir": str(self.folder / "addresses"),
                    },
                }
            ],
        }  # fmt: skip
        (self.folder / "cni").mkdir()
        (self.folder / "cni" / "10-pods.conflist").write_text(json.dumps(network))
        done = subprocess.run(
            ["ctr", "oci", "spec"], env=debian_environment(), capture_output=True, text=True, check=True
        )
        specification = json.loads(done.stdout)
        python = Path(sys.executable).resolve().parents[1]
        machine = {} if BUILT else {"/usr": "/usr", sys.prefix: LIBRARIES, str(python): str(python)}
        for source, target in machine.items():
            specification["mounts"].append(
                {"destination": target, "type": "bind", "source": source, "options": ["rbind", "ro", "nosuid"]}
            )
        (self.folder / "specification.json").write_text(json.dumps(specification))
        plugin = 'plugins."io.containerd.grpc.v1.cri"'
        (self.folder / "containerd.toml").write_text(f"""
version = 2
root = "{self.folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "{self._socket}"
[{plugin}]
  sandbox_image = "docker.io/{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
[{plugin}.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[{plugin}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "{self.folder}/specification.json"
[{plugin}.cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{self.folder}/cni"
""")
        self.servers.start(
            "containerd", "containerd", "--config", self.folder / "containerd.toml", env=debian_environment()
        )
        self.servers.wait(self._socket.exists, "containerd")

    def _import_images(self) -> None:
        environment = (
            f"PYTHONPATH={CODE}", "HOME=/tmp", "LANG=C.UTF-8", "PYTHONUTF8=1", "PYTHONUNBUFFERED=1", "PYTHONSAFEPATH=1",
            "PYTHONDONTWRITEBYTECODE=1", "CUDA_VISIBLE_DEVICES=", "TF_CPP_MIN_LOG_LEVEL=2",
        )  # fmt: skip
        if BUILT:
            for file in sorted(Path(BUILT).glob("*.tar")):
                self.ctr("images", "import", file)
        else:
            contents = {CODE: unpack_wheel(self.folder)}
            self.import_image(STEP_IMAGES, contents, links=True, environment=environment)
        self.import_image((PAUSE,), {"/bin/pause": program("pause")}, entry=("/bin/pause",))
        for name, file in (("driver", "driver"), ("launcher", "launcher-v2"), ("argoexec", "argoexec")):
            entry = ("argoexec",) if name == "argoexec" else (f"/bin/{file}",)
            self.import_image((IMAGES[name],), {f"/bin/{file}": program(file)}, entry=entry)

    def import_image(self, names: Sequence[str], contents: dict[str, Path], **more: Any) -> None:
        """Makes an image for this node's pods: see `write_image`."""
        archive = self.folder / "image.tar"
        write_image(archive, names, contents, **more)
        self.ctr("images", "import", archive)
        archive.unlink()

    def _start_kubelet(self) -> None:
        for controller in CGROUPS.iterdir():
            if controller.is_dir() and not controller.is_symlink():
                (controller / self._cgroup).mkdir(exist_ok=True)
                if controller.name == "cpuset":
                    for file in ("cpuset.cpus", "cpuset.mems"):
                        (controller / self._cgroup / file).write_text((controller / file).read_text())
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self._cgroup}", "failSwapOn": False,
            "enforceNodeAllocatable": [], "containerRuntimeEndpoint": f"unix://{self._socket}",
            "podLogsDir": str(self.folder / "logs"), "authentication": {"anonymous": {"enabled": True}},
            "authorization": {"mode": "AlwaysAllow"}, "makeIPTablesUtilChains": False, "resolvConf": "",
            "clusterDNS": [SERVICES], "clusterDomain": "cluster.local",
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99, "nodeStatusUpdateFrequency": "5s",
            "volumePluginDir": str(self.folder / "volume-plugins"), "localStorageCapacityIsolation": False,
        }  # fmt: skip
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(configuration))
        self.servers.start(
            "kubelet", program("kubelet"), f"--config={self.folder}/kubelet.yaml", f"--root-dir={self.folder}/kubelet",
            f"--kubeconfig={self.kubernetes.kubeconfig}", f"--hostname-override={NAME}", f"--node-ip={SERVICES}",
            f"--cert-dir={self.folder}/certificates", env=debian_environment(),
        )  # fmt: skip

    def _is_ready(self) -> bool:
        done = self.kubernetes.kubectl("wait", "--for=condition=Ready", "--timeout=5s", f"node/{NAME}")
        return not done.returncode

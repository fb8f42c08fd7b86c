"""The Kubernetes of the tests: one that is given, or a control plane of its own in the test's network namespace.

The latter is etcd, API server, controller manager and scheduler. Every server listens on the one address `SERVICES`,
which the loopback device has in this namespace. Pods reach it through their bridge, so nothing has to translate the
addresses of Services.
"""

import json
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.k8s.api_server import kubectl
from tests.kubeflow.given import missing_node, program
from tests.kubeflow.processes import Servers

SERVICES = "10.0.0.1"
"""The Service `kubernetes` has the first address of its range."""
HOSTS = (
    "ml-pipeline", "ml-pipeline.kubeflow", "ml-pipeline.kubeflow.svc.cluster.local",
    "seaweedfs.kubeflow", "seaweedfs.kubeflow.svc", "seaweedfs.kubeflow.svc.cluster.local",
    "metadata-grpc-service.kubeflow", "metadata-grpc-service.kubeflow.svc.cluster.local",
    "metadata-grpc-service", "mysql", "kubernetes.default.svc",
)  # fmt: skip
"""Names by which the servers call each other; pods ask `dns_server.py`."""

Object = dict[str, Any]


class Kubernetes:
    """A cluster and its administrator.

    Args:
      servers: starts and ends processes of the test; waits.
      kubeconfig: of the administrator.
    """

    def __init__(self, servers: Servers, kubeconfig: Path) -> None:
        self.servers = servers
        self.folder = servers.folder
        self.kubeconfig = kubeconfig

    def kubectl(self, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        return kubectl(self.kubeconfig, *arguments, given=given)

    def apply(self, objects: list[Object]) -> None:
        """Creates or changes objects; CustomResourceDefinitions are served when this returns."""
        done = self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=yaml.safe_dump_all(objects))
        assert done.returncode == 0, done.stderr
        names = [f"crd/{one['metadata']['name']}" for one in objects if one["kind"] == "CustomResourceDefinition"]
        if names:
            wait = ("wait", "--for=condition=Established", "--timeout=120s", *names)
            self.servers.wait(lambda: not self.kubectl(*wait).returncode, "the definitions")

    def read(self, *what: str) -> Any:
        """What `kubectl get -o json` prints."""
        done = self.kubectl("get", "-o", "json", *what)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


class ControlPlane(Kubernetes):
    """A control plane without nodes, of the programs that are given."""

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers, servers.folder / "kubeconfig")
        self._certificate = self.folder / "server.crt"
        self._tokens = self.folder / "tokens.csv"

    def prepare(self) -> None:
        """Makes the network, the names, the certificate and the administrator's token. Starts nothing."""
        assert _alone(), "start this in a network namespace of its own: make test-kubeflow"
        for command in (["ip", "link", "set", "lo", "up"], ["ip", "addr", "replace", f"{SERVICES}/32", "dev", "lo"]):
            subprocess.run(command, check=True)
        self._write_hosts()
        self._openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubernetes",
            "-keyout", str(self.folder / "server.key"), "-out", str(self._certificate), "-addext",
            f"subjectAltName=IP:{SERVICES},IP:127.0.0.1,DNS:kubernetes.default.svc,DNS:localhost",
        )  # fmt: skip
        token = secrets.token_hex(16)
        self._tokens.write_text(f'{token},admin,admin,"system:masters"\n')
        self.write_kubeconfig(self.kubeconfig, token)

    def start(self) -> None:
        """Starts everything, and returns once it is ready."""
        accounts = self.folder / "accounts.key"
        self._openssl("genrsa", "-out", str(accounts), "2048")
        self.servers.start("etcd", program("etcd"), "--data-dir", self.folder / "etcd", "--unsafe-no-fsync")
        self.servers.start(
            "kube-apiserver", program("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
            f"--tls-cert-file={self._certificate}",
            f"--tls-private-key-file={self.folder}/server.key", "--secure-port=443", "--bind-address=0.0.0.0",
            f"--advertise-address={SERVICES}", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=Node,RBAC", f"--token-auth-file={self._tokens}", "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}", "--kubelet-preferred-address-types=InternalIP",
            "--feature-gates=MutatingAdmissionPolicy=true",
            "--runtime-config=admissionregistration.k8s.io/v1alpha1=true",
        )  # fmt: skip
        self.servers.wait(lambda: not self.kubectl("get", "--raw", "/readyz").returncode, "the API server")
        if not missing_node():
            self._start_controllers(accounts)
        fixed = {name.removesuffix(".svc.cluster.local").removesuffix(".svc") for name in HOSTS}
        server = Path(__file__).with_name("dns_server.py")
        self.servers.start("dns", sys.executable, server, SERVICES, self.kubeconfig, *sorted(fixed))

    def _start_controllers(self, accounts: Path) -> None:
        self.servers.start(
            "controller-manager", program("kube-controller-manager"), f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false", f"--service-account-private-key-file={accounts}",
            f"--root-ca-file={self._certificate}", "--concurrent-gc-syncs=2",
        )  # fmt: skip
        self.servers.start(
            "scheduler", program("kube-scheduler"), f"--kubeconfig={self.kubeconfig}", "--leader-elect=false"
        )
        self.servers.wait(
            lambda: not self.kubectl("get", "serviceaccount", "default").returncode, "the controller manager"
        )

    def account_kubeconfig(self, namespace: str, account: str) -> Path:
        """A kubeconfig with the rights of a service account."""
        done = self.kubectl("create", "token", account, "-n", namespace, "--duration=24h")
        assert done.returncode == 0, done.stderr
        path = self.folder / f"{account}.kubeconfig"
        self.write_kubeconfig(path, done.stdout.strip(), namespace)
        return path

    def write_kubeconfig(self, path: Path, token: str, namespace: str = "default") -> None:
        server = {"server": f"https://{SERVICES}:443", "certificate-authority": str(self._certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": server}],
            "users": [{"name": "here", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here", "namespace": namespace}}],
            "current-context": "here",
        }
        path.write_text(yaml.safe_dump(config))

    def _write_hosts(self) -> None:
        """Lays files over /etc/hosts and /etc/resolv.conf; other processes of the machine do not see them."""
        hosts = self.folder / "hosts"
        hosts.write_text(
            f"127.0.0.1 localhost {socket.gethostname()}\n" + "".join(f"{SERVICES} {name}\n" for name in HOSTS)
        )
        subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
        resolver = self.folder / "resolv.conf"
        resolver.write_text(f"nameserver {SERVICES}\n")
        subprocess.run(["mount", "--bind", str(resolver), "/etc/resolv.conf"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)

    @staticmethod
    def _openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def _alone() -> bool:
    """Whether this network namespace has no device but loopback, and this is not the machine's process table."""
    done = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in done.stdout.splitlines()] in (["lo"], ["lo", "sit0@NONE"])


def documents(text: str) -> Iterator[Object]:
    """The objects of a YAML file with several."""
    yield from (one for one in yaml.safe_load_all(text) if one)

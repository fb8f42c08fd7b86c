"""Kubernetes' own API server and its etcd, on this machine, with nothing behind them: no node, no controller.

What it refuses, a cluster refuses: fields, values, rules in CEL of the extensions, rights, pod security. `make
cluster-server` builds both with Go, from the versions and hashes in go.mod and go.sum.
"""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.cluster.k8s.fetched import KUBERNETES, TOOLS

SERVER, ETCD = TOOLS / "bin" / "kube-apiserver", TOOLS / "bin" / "etcd"
HERE = Path(__file__).resolve().parent / "server_build"
START_SECONDS = 120.0


def build_kubernetes(binaries: list[Path]) -> None:
    """Builds what is not there yet."""
    version = KUBERNETES.partition("@")[2]
    _, major, minor = version.replace("v", ".").split(".")[:3]
    base = "k8s.io/component-base/version"
    named = f"-X {base}.gitVersion={version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor}"
    for binary in binaries:
        if binary.is_file():
            continue
        folder, package = (HERE / "etcd", ".") if binary == ETCD else (HERE, f"k8s.io/kubernetes/cmd/{binary.name}")
        print(f"cluster-server: building {binary.name} {'' if binary == ETCD else version}", flush=True)
        environment = {
            **os.environ,
            "GOMODCACHE": str(TOOLS / "modules"),
            "GOCACHE": str(TOOLS / "cache"),
            "GOFLAGS": "-modcacherw -mod=readonly",
            "GOSUMDB": "off",  # every hash is in go.sum
            "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "0",
        }
        partial = binary.with_suffix(".partial")
        command = ["nice", "go", "build", "-ldflags", f"-s -w {named}", "-o", str(partial), package]
        subprocess.run(command, cwd=folder, env=environment, check=True)
        partial.rename(binary)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Path]:
    """Starts both, empty; gives a kubeconfig of their administrator.

    Args:
      folder: for data, keys, logs.
    """
    client, peer, secure = _free_ports(3)
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    etcd = [str(ETCD), "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync"]
    etcd += [
        "--listen-client-urls",
        f"http://127.0.0.1:{client}",
        "--advertise-client-urls",
        f"http://127.0.0.1:{client}",
    ]
    etcd += [
        "--listen-peer-urls",
        f"http://127.0.0.1:{peer}",
        "--initial-advertise-peer-urls",
        f"http://127.0.0.1:{peer}",
    ]
    etcd += ["--initial-cluster", f"default=http://127.0.0.1:{peer}"]
    server = [str(SERVER), "--etcd-servers", f"http://127.0.0.1:{client}", "--cert-dir", str(folder / "certificates")]
    server += ["--secure-port", str(secure), "--bind-address", "127.0.0.1", "--service-cluster-ip-range", "10.0.0.0/24"]
    server += ["--authorization-mode", "RBAC", "--token-auth-file", str(folder / "tokens.csv")]
    server += ["--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", str(key)]
    server += ["--service-account-signing-key-file", str(key)]
    # No controller makes the account `default` of a namespace, which this plug-in would wait for.
    server += ["--disable-admission-plugins", "ServiceAccount"]
    with _running(etcd, folder / "etcd.log"), _running(server, folder / "server.log"):
        config = folder / "kubeconfig"
        config.write_text(yaml.safe_dump(_kubeconfig(secure, token)))
        _await_ready(config, folder / "server.log")
        yield config


def kubectl(config: Path, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    command = ["kubectl", "--kubeconfig", str(config), *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


def missing() -> str:
    """What is not there to try k8s/ on a real server; "" where nothing is."""
    if shutil.which("kubectl") is None or shutil.which("openssl") is None:
        return "no kubectl, or no openssl, on the PATH"
    return "" if SERVER.is_file() and ETCD.is_file() else f"no {SERVER}; `make cluster-server` builds it"


def _kubeconfig(port: int, token: str) -> dict[str, object]:
    # Its certificate is of its own making, in a folder of this test.
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
        "current-context": "here",
    }


def _await_ready(config: Path, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while kubectl(config, "get", "--raw", "/readyz").returncode:
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.5)


@contextlib.contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with open(log, "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        found = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


if __name__ == "__main__":
    build_kubernetes([SERVER, ETCD])
    print(f"cluster-server: {SERVER} and {ETCD.name} beside it", flush=True)

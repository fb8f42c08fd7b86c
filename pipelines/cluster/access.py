"""How a KFP server is reached: host, namespace, certificate and token, from flags, the environment or the pod.

A token is read anew for each call, since those of service accounts are replaced every hour. It is given by variable or
file, never by flag: a flag stands in the list of processes, and in the shell's history.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from voxline.errors import SettingsError

HOST, NAMESPACE, CA = "KF_PIPELINES_ENDPOINT", "VOXLINE_KFP_NAMESPACE", "VOXLINE_KFP_CA"
TOKEN, TOKEN_FILE = "VOXLINE_KFP_TOKEN", "VOXLINE_KFP_TOKEN_FILE"
POD_TOKEN_FILE = "KF_PIPELINES_SA_TOKEN_PATH"  # noqa: S105 - the name of a variable
POD_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
IN_CLUSTER = "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
PORT_FORWARD = "kubectl -n kubeflow port-forward svc/ml-pipeline 8888:8888"


@dataclass(frozen=True)
class BearerToken:
    """A bearer token, known by where it comes from; its text is in no `repr`, message or traceback."""

    source: str
    file: Path | None = None
    variable: str = ""

    def read(self) -> str:
        """Raises:
        SettingsError: it cannot be read, is empty, or holds what no header may.
        """
        if self.file is None:
            text = os.environ.get(self.variable, "").strip()
        else:
            try:
                text = self.file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "no text"
                raise SettingsError(f"{self.source}: {self.file}: {reason}; name a file that holds the token") from None
        if not re.fullmatch(r"[\x21-\x7e]+", text):
            what = "is empty" if not text else "holds spaces, lines or other characters that no token has"
            raise SettingsError(f"{self.source} {what}; put the bare token there, one line")
        return text


@dataclass(frozen=True)
class KfpEndpoint:
    """Where a server is, and as whom it is asked."""

    host: str
    namespace: str = ""
    """Of the runs, on a server of several users; empty: the server has one."""
    ca: str = ""
    """PEM file of the authorities that sign the server's certificate; empty: the usual ones."""
    token: BearerToken | None = None

    @classmethod
    def found(
        cls, *, host: str = "", namespace: str = "", ca: str = "", token_file: str = "", env: Mapping[str, str]
    ) -> "KfpEndpoint":
        """Flags first, then the environment, then what a pod is given.

        Raises:
          SettingsError: there is no host, or one to which a token must not travel.
        """
        in_pod = "KUBERNETES_SERVICE_HOST" in env
        chosen = host or env.get(HOST, "") or (IN_CLUSTER if in_pod else "")
        if not chosen:
            raise SettingsError(
                f"no KFP server: give --host or {HOST}; from a laptop, `{PORT_FORWARD}` and "
                "--host http://localhost:8888 reach one"
            )
        access = cls(
            host=_check_host(chosen, "--host" if host else HOST),
            namespace=namespace or env.get(NAMESPACE, "") or (_read_text(POD_NAMESPACE) if in_pod else ""),
            ca=_check_file(ca or env.get(CA, ""), "--ca" if ca else CA),
            token=_token(token_file, env, in_pod),
        )
        if access.token and not access.is_private:
            raise SettingsError(
                f"{access.host}: the token of {access.token.source} would travel in clear text; give a https:// host"
            )
        return access

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read what is sent: TLS, this machine, or a service inside the cluster."""
        url = urlsplit(self.host)
        name = url.hostname or ""
        local = name in ("localhost", "127.0.0.1", "::1")
        return url.scheme == "https" or local or "." not in name or name.endswith((".svc", ".svc.cluster.local"))

    def without_token(self, text: str) -> str:
        """A text that may be shown, whatever a server has echoed into it."""
        if self.token is None:
            return text
        try:
            return text.replace(self.token.read(), "[token]")
        except SettingsError:
            return text


def _token(file: str, env: Mapping[str, str], in_pod: bool) -> BearerToken | None:
    if file:
        return BearerToken("--token-file", file=Path(file))
    if env.get(TOKEN):
        return BearerToken(TOKEN, variable=TOKEN)
    if env.get(TOKEN_FILE):
        return BearerToken(TOKEN_FILE, file=Path(env[TOKEN_FILE]))
    projected = Path(env.get(POD_TOKEN_FILE) or POD_TOKEN)
    if in_pod and projected.is_file():
        return BearerToken("the pod's service account", file=projected)
    return None


def _check_host(host: str, source: str) -> str:
    refusal = SettingsError(f"{source} {host!r}: accepted: https://name[:port][/path], such as https://kfp.example.com")
    try:
        url = urlsplit(host if "://" in host else f"https://{host}")
        is_address = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # brackets that do not close, a port that is no number or too large
        raise refusal from None
    if not is_address:
        raise refusal
    if url.username or url.password:
        raise SettingsError(f"{source}: no name and password in an address; give a token by {TOKEN_FILE}")
    return url.geturl().rstrip("/")


def _check_file(file: str, source: str) -> str:
    if file and not Path(file).is_file():
        raise SettingsError(f"{source} {file}: no such file; give the PEM file of your certificate authority")
    return file


def _read_text(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""

"""How a KFP server is reached: host, namespace, certificate and token, from options, the environment or the pod.

A token is read for each call, because tokens of service accounts are replaced every hour. It comes from a variable or a
file, or from Kubernetes, never from an option: options are visible in the list of processes and in the shell's history.
"""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from voxline.errors import SettingsError, VoxlineError

# Names of variables. The first and `POD_TOKEN_FILE` are those that KFP's own client reads.
HOST = "KF_PIPELINES_ENDPOINT"
NAMESPACE = "VOXLINE_KFP_NAMESPACE"
CA = "VOXLINE_KFP_CA"
TOKEN = "VOXLINE_KFP_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE = "VOXLINE_KFP_TOKEN_FILE"  # noqa: S105 - the name of a variable
TOKEN_ACCOUNT = "VOXLINE_KFP_SERVICE_ACCOUNT"  # noqa: S105 - the name of a variable
AUDIENCE = "VOXLINE_KFP_AUDIENCE"
POD_TOKEN_FILE = "KF_PIPELINES_SA_TOKEN_PATH"  # noqa: S105 - the name of a variable

# A server checks a token by Kubernetes' TokenReview, for this audience unless its TOKEN_REVIEW_AUDIENCE is another one.
KFP_AUDIENCE = "pipelines.kubeflow.org"
ACCOUNT_TOKEN_SECONDS = 6 * 3600
"""Asked for; a server may give less. Hosted CI jobs end after six hours, and some cannot renew their credentials."""

# Files that Kubernetes mounts into a pod; the token is there only if the pod projects one for KFP's audience.
POD_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

IN_CLUSTER = "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
PORT_FORWARD = "kubectl -n kubeflow port-forward svc/ml-pipeline 8888:8888"


@dataclass(frozen=True)
class BearerToken:
    """A bearer token, identified by its source. Its text is in no `repr`, message or traceback."""

    source: str
    file: Path | None = None
    variable: str = ""

    def read(self) -> str:
        """Raises:
        SettingsError: it cannot be read, is empty, or has characters that a header must not have.
        """
        if self.file is None:
            text = os.environ.get(self.variable, "").strip()
        else:
            try:
                text = self.file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not a text"
                raise SettingsError(f"{self.source}: {self.file}: {reason}; give a file with the token") from None

        # A header takes visible ASCII alone; a line break in it would begin another header.
        if not re.fullmatch(r"[\x21-\x7e]+", text):
            fault = "is empty" if not text else "has spaces, line breaks or other characters that a token cannot have"
            raise SettingsError(f"{self.source} {fault}; write the bare token there, on one line")

        return text


class AccountToken:
    """A token that Kubernetes makes for a service account (TokenRequest), kept in memory and renewed.

    Args:
      account: the service account, such as voxline-ci.
      namespace: its namespace.
      audience: of the token, which the server checks.
    """

    def __init__(self, account: str, namespace: str, audience: str = KFP_AUDIENCE) -> None:
        self.source = f"service account {account}"
        self._account = account
        self._namespace = namespace
        self._audience = audience
        self._text = ""
        self._renewed_at = 0.0
        self._expires_at = 0.0

    def read(self) -> str:
        """Raises:
        WorkError: Kubernetes gives no token, and there is none that is still valid.
        """
        from voxline.pipelines.cluster import kubernetes_api

        # Renewed at half of its life, so that a failed renewal leaves time for the next one.
        if time.time() < (self._renewed_at + self._expires_at) / 2:
            return self._text
        try:
            self._text, self._expires_at = kubernetes_api.request_token(
                self._account, self._namespace, self._audience, ACCOUNT_TOKEN_SECONDS
            )
            self._renewed_at = time.time()
        except VoxlineError:
            # The credentials of a CI job may end before the token that they gave.
            if time.time() >= self._expires_at:
                raise
        return self._text


@dataclass(frozen=True)
class KfpEndpoint:
    """The address of a KFP server, and the credentials for it."""

    host: str
    namespace: str = ""
    """Of the runs on a multi-user server; empty on a single-user server."""
    ca: str = ""
    """PEM file of the server's certificate authorities; empty: those of the system."""
    token: BearerToken | AccountToken | None = None

    @classmethod
    def resolve(
        cls, *, host: str = "", namespace: str = "", ca: str = "", token_file: str = "", env: Mapping[str, str]
    ) -> "KfpEndpoint":
        """Reads the endpoint from options, else the environment, else the pod's service account.

        Raises:
          SettingsError: there is no host, a service account has no namespace, or a token would be sent without
            encryption.
        """
        # Kubernetes sets this variable in every pod, and nothing else does.
        in_pod = "KUBERNETES_SERVICE_HOST" in env
        url = host or env.get(HOST, "") or (IN_CLUSTER if in_pod else "")
        if not url:
            raise SettingsError(
                f"no KFP server: give --host or {HOST}; on a laptop, run `{PORT_FORWARD}` and give "
                "--host http://localhost:8888"
            )

        namespace = namespace or env.get(NAMESPACE, "") or (_read_text(POD_NAMESPACE) if in_pod else "")
        access = cls(
            host=_check_host(url, "--host" if host else HOST),
            namespace=namespace,
            ca=_check_file(ca or env.get(CA, ""), "--ca" if ca else CA),
            token=_token(token_file, env, in_pod, namespace),
        )

        # Last, because it needs both: a token goes over no connection that others may read.
        if access.token and not access.is_private:
            raise SettingsError(
                f"{access.host}: the token of {access.token.source} would be sent in clear text; give a https:// host"
            )
        return access

    @property
    def is_private(self) -> bool:
        """True if the connection is private: TLS, this machine, or a service inside the cluster."""
        url = urlsplit(self.host)
        name = url.hostname or ""
        local = name in ("localhost", "127.0.0.1", "::1")
        return url.scheme == "https" or local or "." not in name or name.endswith((".svc", ".svc.cluster.local"))

    def without_token(self, text: str) -> str:
        """The text without the token, which a server may have echoed."""
        if self.token is None:
            return text
        try:
            return text.replace(self.token.read(), "[token]")
        except VoxlineError:
            return text


def _token(file: str, env: Mapping[str, str], in_pod: bool, namespace: str) -> BearerToken | AccountToken | None:
    if file:
        return BearerToken("--token-file", file=Path(file))
    if env.get(TOKEN):
        return BearerToken(TOKEN, variable=TOKEN)
    if env.get(TOKEN_FILE):
        return BearerToken(TOKEN_FILE, file=Path(env[TOKEN_FILE]))
    if account := env.get(TOKEN_ACCOUNT):
        if not namespace:
            raise SettingsError(
                f"{TOKEN_ACCOUNT} {account!r}: its namespace is needed; give --namespace or {NAMESPACE}"
            )
        return AccountToken(account, namespace, env.get(AUDIENCE) or KFP_AUDIENCE)
    projected = Path(env.get(POD_TOKEN_FILE) or POD_TOKEN)
    if in_pod and projected.is_file():
        return BearerToken("the pod's service account", file=projected)
    return None


def _check_host(host: str, source: str) -> str:
    refusal = SettingsError(f"{source} {host!r}: accepted: https://name[:port][/path], such as https://kfp.example.com")
    try:
        url = urlsplit(host if "://" in host else f"https://{host}")
        is_address = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # unclosed brackets, or an invalid port
        raise refusal from None
    if not is_address:
        raise refusal
    if url.username or url.password:
        raise SettingsError(f"{source}: user name and password are not accepted in a URL; give a token by {TOKEN_FILE}")
    return url.geturl().rstrip("/")


def _check_file(file: str, source: str) -> str:
    if file and not Path(file).is_file():
        raise SettingsError(f"{source} {file}: no such file; give the PEM file of your certificate authority")
    return file


def _read_text(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def parse_version(text: str) -> tuple[int, ...]:
    """The numbers of a server's version; empty if it has none.

    >>> parse_version("v2.17.0-rc.1"), parse_version("2.5"), parse_version("dev")
    ((2, 17, 0), (2, 5), ())
    """
    match = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(map(int, match[1].split("."))) if match else ()

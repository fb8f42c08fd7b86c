"""Finds an image in its registry, by the OCI distribution API, anonymously or with the user's `docker login`."""

import base64
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

MANIFEST_TYPES = ", ".join(
    f"application/vnd.{kind}"
    for kind in (
        "oci.image.index.v1+json",
        "oci.image.manifest.v1+json",
        "docker.distribution.manifest.list.v2+json",
        "docker.distribution.manifest.v2+json",
    )
)
TIMEOUT_SECONDS = 15


class ImageUnknownError(Exception):
    """The registry does not say whether it has the image. The message gives the reason."""


@dataclass(frozen=True)
class ImageReference:
    """Registry, name and tag or digest.

    >>> ImageReference.read("europe-docker.pkg.dev/team/voxline/data:1a2b")
    ImageReference(registry='europe-docker.pkg.dev', name='team/voxline/data', version='1a2b')
    >>> ImageReference.read("voxline/data:1a2b").registry
    'docker.io'
    """

    registry: str
    name: str
    version: str

    @classmethod
    def read(cls, text: str) -> "ImageReference":
        path, at, digest = text.partition("@")

        # Docker's rule: the first part is a host if it could be one, and else a user of Docker Hub.
        first, slash, below_first = path.partition("/")
        is_host = bool(slash) and (set(".:") & set(first) or first == "localhost")
        registry, path = (first, below_first) if is_host else ("docker.io", path)

        name, _, tag = path.partition(":")
        if registry == "docker.io" and "/" not in name:
            name = f"library/{name}"
        return cls(registry, name, digest if at else tag or "latest")

    @property
    def names_a_host(self) -> bool:
        """Without a host it is an image of Docker Hub, or one that a node has built."""
        return self.registry != "docker.io"


def image_exists(image: ImageReference) -> bool:
    """True if the registry has the image.

    Raises:
      ImageUnknownError: the registry cannot be reached, or refuses to say.
    """
    scheme = "http" if image.registry.partition(":")[0] in ("localhost", "127.0.0.1") else "https"
    host = "registry-1.docker.io" if image.registry == "docker.io" else image.registry
    url = f"{scheme}://{host}/v2/{image.name}/manifests/{image.version}"
    pool = urllib3.PoolManager(retries=urllib3.Retry(2, redirect=3), timeout=TIMEOUT_SECONDS)
    login = _docker_login(image.registry)

    # Anonymously first: the refusal says which login the registry takes, and a public image needs none.
    try:
        answer = _head(pool, url, {})
        if answer.status == 401:
            challenge = answer.headers.get("WWW-Authenticate", "")
            answer = _head(pool, url, {"Authorization": _authorization_header(pool, challenge, login, scheme)})
    except urllib3.exceptions.HTTPError as error:
        raise ImageUnknownError(f"{host} cannot be reached ({type(error).__name__})") from None

    # 401 and 403 may hide an image that does not exist, so they are no answer.
    if answer.status in (200, 404):
        return bool(answer.status == 200)
    user = "your docker login" if login else "an anonymous user; `docker login` may help"
    raise ImageUnknownError(f"{host} returns {answer.status} to {user}")


def _head(pool: urllib3.PoolManager, url: str, headers: dict[str, str]) -> Any:
    return pool.request("HEAD", url, headers={"Accept": MANIFEST_TYPES, **headers})


def _authorization_header(pool: urllib3.PoolManager, challenge: str, login: str, scheme: str) -> str:
    """The header that the registry asks for: the login itself, or a token from its token service."""
    # Such as: Bearer realm="https://auth.example.com/token",service="registry",scope="repository:team/data:pull"
    kind, _, parameters = challenge.partition(" ")
    if kind.lower() == "basic":
        return f"Basic {login}"

    # A realm of another scheme would receive the login in clear text.
    query = dict(re.findall(r'(\w+)="([^"]*)"', parameters))
    realm = query.pop("realm", "")
    if kind.lower() != "bearer" or not realm.startswith(f"{scheme}://"):
        raise ImageUnknownError(f"it asks for an unknown kind of login ({kind or 'none named'})")

    headers = {"Authorization": f"Basic {login}"} if login else {}
    answer = pool.request("GET", realm, fields=query, headers=headers)
    try:
        body = json.loads(answer.data)
        return f"Bearer {body.get('token') or body['access_token']}"
    except (ValueError, KeyError, AttributeError):
        raise ImageUnknownError(f"its token service returns {answer.status}; `docker login` may help") from None


def _docker_login(registry: str) -> str:
    """User name and password in base64, from docker's config or its credential helper; empty if there are none."""
    file = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""

    # `docker login` writes either form of a host, and for Docker Hub the address of its first API.
    names = [registry, f"https://{registry}"]
    if registry == "docker.io":
        names.append("https://index.docker.io/v1/")

    helper = next(filter(None, (config.get("credHelpers", {}).get(name) for name in names)), config.get("credsStore"))
    if helper and re.fullmatch(r"[a-z0-9-]+", helper):  # it becomes part of a program's name
        return _login_from_helper(helper, names[-1] if registry == "docker.io" else registry)
    return next((str(login["auth"]) for name, login in config.get("auths", {}).items() if name in names and login), "")


def _login_from_helper(helper: str, registry: str) -> str:
    try:
        result = subprocess.run(  # noqa: S603 - docker's own helper, named by docker's config; no shell
            [f"docker-credential-{helper}", "get"],
            input=registry,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=True,
        )
        login = json.loads(result.stdout)
        return base64.b64encode(f"{login['Username']}:{login['Secret']}".encode()).decode()
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return ""

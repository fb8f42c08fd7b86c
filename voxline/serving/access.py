"""Who may call the server: hosts and pages by name, programs and people by key.

Two kinds of strangers are kept out. A page of another site that a browser on this machine or network opens can send
requests here; browsers name its origin, and a name in `Host` that is not the server's betrays a page whose own name was
pointed at this address (DNS rebinding). Programs have neither; for them there are keys.

Checked in this order, over HTTP and on WebSockets: `Host`, origin, key.
"""

import contextlib
import functools
import hashlib
import hmac
import ipaddress
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from voxline.errors import SettingsError
from voxline.progress import print_status
from voxline.serving.refusals import error_response

CALLER = "voxline.caller"
"""Key of the ASGI scope: the name of the key that a request has; "" without one."""
KEY_PROTOCOL = "openai-insecure-api-key."
"""With a token after it, a subprotocol of a WebSocket: browsers can send no header there."""
SESSION_PROTOCOL = "realtime"
OPEN_PATHS = frozenset({"/", "/page.js", "/healthz"})
"""Answered without a key; /healthz then says no more than its status."""
_KEY_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63}):([!-~]{16,512})")
_KEY_FILE_BYTES = 1_000_000
_LOOK_SECONDS = 1.0
_NAVIGATION = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
_BROWSER_HEADERS = ("origin", "sec-fetch-site", "sec-fetch-mode")


@dataclass(frozen=True)
class AccessSettings:
    """Settings of who may call.

    Attributes:
      hosts: names that `Host` may have beside loopback's, the bound address and any IP address; `*.example.org` for all
        names below one, `*` for all.
      origins: sites whose pages may call, such as `https://app.example.org`; `*` for all.
      key_file: of lines `name:token`; "" for a server that needs no key.

    Raises:
      SettingsError: an origin is not one, or the file is not fit.
    """

    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    key_file: str = ""

    def __post_init__(self) -> None:
        for origin in self.origins:
            if origin != "*" and not re.fullmatch(r"https?://[^/?#@\s]+", origin):
                raise SettingsError(f"--allowed-origin {origin}: https://app.example.org, without a path, is accepted")
        for host in self.hosts:
            if not re.fullmatch(r"(\*|(\*\.)?[A-Za-z0-9_.-]+)", host):
                raise SettingsError(f"--allowed-host {host}: a name without a port, *.example.org or * is accepted")


class ApiKeys:
    """The keys of a file, which is read again when it has changed.

    Lines are `name:token`, of a token of 16 or more printable characters; a name may have several tokens, so that they
    can be replaced one after the other. Blank lines and those that begin with # are passed over.

    Attributes:
      fault: why the file's last version could not be read; the keys of the one before still count. "" if it could.

    Raises:
      SettingsError: the file cannot be read, others may read or write it, or a line is something else.
    """

    def __init__(self, file: Path | str) -> None:
        self.file = Path(file)
        self.fault = ""

        self._lock = threading.Lock()
        self._looked = time.monotonic()
        self._seen, self._names = self._read()

    def name_of(self, token: str) -> str:
        """The name of a token; "" for an unknown one. Takes the same time for each."""
        self._look_again()

        # Digests are compared, and all of them, so that time says nothing of a token or of its place.
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        name = ""
        for known_digest, known_name in self._names.items():
            if hmac.compare_digest(known_digest, digest):
                name = known_name
        return name

    def _look_again(self) -> None:
        # At most once a second: a look at the file's status is cheap, and not for every request.
        with self._lock:
            if time.monotonic() - self._looked < _LOOK_SECONDS:
                return
            self._looked = time.monotonic()
            try:
                if _identity(self.file.stat()) != self._seen or self.fault:
                    self._seen, self._names = self._read()
                    self.fault = ""
                    print_status(f"serve: read {self.file} again: {len(self._names)} keys")
            except (OSError, SettingsError) as error:
                if str(error) != self.fault:
                    print_status(f"serve: {error}; the keys before still count")
                self.fault = str(error)

    def _read(self) -> tuple[tuple[int, ...], dict[bytes, str]]:
        # The open file is what is checked and read: it cannot be exchanged in between.
        try:
            with self.file.open("rb") as file:
                status = os.fstat(file.fileno())
                data = file.read(_KEY_FILE_BYTES + 1)
        except OSError as error:
            raise SettingsError(f"--api-key-file {self.file}: {error.strerror}") from None

        if status.st_mode & (stat.S_IROTH | stat.S_IWOTH):
            raise SettingsError(
                f"--api-key-file {self.file}: all users of this machine may read or write it; chmod 640 mends it, or "
                "defaultMode 0440 of a Secret"
            )

        if len(data) > _KEY_FILE_BYTES:
            raise SettingsError(f"--api-key-file {self.file}: at most {_KEY_FILE_BYTES:,} bytes are accepted")
        names = {}
        # A token is never printed, not even a malformed line.
        for number, line in enumerate(data.decode("utf-8-sig", "replace").splitlines(), 1):
            if not (text := line.strip()) or text.startswith("#"):
                continue
            match = _KEY_LINE.fullmatch(text)
            if match is None:  # without the line: it may be a secret
                raise SettingsError(
                    f"--api-key-file {self.file}: line {number}: name:token is accepted, with a token of 16 to 512 "
                    "characters without spaces"
                )
            names[hashlib.sha256(match[2].encode()).digest()] = match[1]

        if not names:
            raise SettingsError(f"--api-key-file {self.file}: no key; a line name:token is accepted")
        return _identity(status), names


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode


@dataclass
class Access:
    """The checks of a server.

    Args:
      bound: the address that it listens on.
      count: called with the status of a refusal.

    Attributes:
      keys: None where no key is needed.
    """

    settings: AccessSettings = field(default_factory=AccessSettings)
    bound: str = "127.0.0.1"
    count: Callable[[int], object] = lambda _: None
    keys: ApiKeys | None = None

    def __post_init__(self) -> None:
        if self.settings.key_file and self.keys is None:
            self.keys = ApiKeys(self.settings.key_file)

    def middleware(self, expose: Iterable[str] = ()) -> list[Middleware]:
        """Returns the middleware for an application; the first is the outermost.

        Args:
          expose: headers of answers that pages of allowed origins may read.
        """
        # From the outside in: sites, then CORS, which must see the refusals of keys, then keys.
        chain = [Middleware(_Gate, refuse=self._refuse_site, count=self.count)]
        if self.settings.origins:
            chain.append(
                Middleware(
                    CORSMiddleware, allow_origins=self.settings.origins, allow_methods=["GET", "POST"],
                    allow_headers=["*"], expose_headers=list(expose),
                )
            )  # fmt: skip
        return [*chain, Middleware(_Gate, refuse=self._refuse_key, count=self.count)]

    def _refuse_site(self, scope: Scope, headers: Headers) -> tuple[HTTPStatus, str] | None:
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._is_own(_host_name(host)):
            message = f"{host[:80]!r}: this server has another name; --allowed-host names it"
            return HTTPStatus.FORBIDDEN, message

        # A browser sends the page's origin: it must be this server's own page, or a site that is allowed.
        origins = headers.getlist("origin")
        if origins:
            origin = origins[0] if len(origins) == 1 else ""  # of several, a proxy may have checked another one
            if {origin, "*"}.isdisjoint(self.settings.origins) and origin.partition("://")[2].lower() != host.lower():
                return (
                    HTTPStatus.FORBIDDEN,
                    "pages of other sites are refused; --allowed-origin names a site that may call",
                )
        # Without an origin, browsers still say that the page is of another site.
        elif headers.get("sec-fetch-site") == "cross-site" and not _is_link(scope, headers):
            return HTTPStatus.FORBIDDEN, "pages of other sites are refused"
        return None

    def _refuse_key(self, scope: Scope, headers: Headers) -> tuple[HTTPStatus, str] | None:
        name = self.keys.name_of(_token(scope, headers)) if self.keys else ""
        scope[CALLER] = name
        if not self.keys or name or scope["path"] in OPEN_PATHS:
            return None
        return HTTPStatus.UNAUTHORIZED, "no key of this server: Authorization: Bearer TOKEN is accepted"

    def _is_own(self, name: str) -> bool:
        own = (self.bound.lower(), "localhost", *(host.lower() for host in self.settings.hosts))
        if name in own or "*" in own or name.endswith(".localhost"):
            return bool(name)
        if any(host.startswith("*.") and name.endswith(host[1:]) for host in own):
            return True

        # A page gets another name for this address, never the address: that of a probe, of a pod, of this machine.
        with contextlib.suppress(ValueError):
            return bool(ipaddress.ip_address(name.strip("[]")))
        return False


class _Gate:
    """Refuses, before the body of a request is read."""

    def __init__(
        self,
        app: ASGIApp,
        refuse: Callable[[Scope, Headers], tuple[HTTPStatus, str] | None],
        count: Callable[[int], object],
    ) -> None:
        self._app = app
        self._refuse = refuse
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refuse(scope, Headers(scope=scope)) if scope["type"] in ("http", "websocket") else None
        if refused is None:
            await self._app(scope, receive, send)
            return

        self._count(int(refused[0]))
        response = error_response(*refused)
        if refused[0] == HTTPStatus.UNAUTHORIZED:
            response.headers["www-authenticate"] = "Bearer"

        # A handshake is refused before it is accepted, with an answer over HTTP.
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(response)
        else:
            await response(scope, receive, send)


def may_consent(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Returns whether a request's consent counts: a browser's only with a key, since a page can claim it."""
    return bool(scope.get(CALLER)) or not any(name in headers for name in _BROWSER_HEADERS)


def check_bound(host: str, settings: AccessSettings, *, anonymous: bool) -> None:
    """Refuses an address that others can reach on a server without keys, unless `anonymous` callers are wanted.

    Raises:
      SettingsError: it is one.
    """
    if settings.key_file or anonymous or is_loopback(host):
        return
    raise SettingsError(
        f"--host {host}: others can reach this address, and no key is needed; give --api-key-file FILE, or "
        "--allow-anonymous where a gateway checks callers"
    )


@functools.cache
def is_loopback(host: str) -> bool:
    """Returns whether nobody outside this machine can reach an address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "192.168.0.7", "")]
    [True, True, True, False, False, False]
    """
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def caller_of(scope: Scope) -> str:
    """Whose requests have one share of the server: the name of a key, or else a host."""
    return f"key {scope[CALLER]}" if scope.get(CALLER) else host_of(scope.get("client"))


def host_of(client: tuple[str, int] | None) -> str:
    """The address of a client; of IPv6 the network, since a host there has 2^64 addresses.

    >>> host_of(("192.0.2.7", 4711)), host_of(("2001:db8::7:8:9", 4711)), host_of(None)
    ('192.0.2.7', '2001:db8::/64', '')
    """
    if client is None:
        return ""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(client[0].partition("%")[0])
        if address.version == 6 and not address.ipv4_mapped:
            return str(ipaddress.ip_network((address, 64), strict=False))
    return client[0]


def _host_name(host: str) -> str:
    """The name in `Host`, without its port.

    >>> [_host_name(host) for host in ("Voxline:8080", "[::1]:8080", "a.example.org.", "[::1")]
    ['voxline', '[::1]', 'a.example.org', '']
    """
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/@\s]+)(:\d{1,5})?", host)
    return match[1].lower().rstrip(".") if match else ""


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Returns whether somebody follows a link of another site to the server's page."""
    return scope["path"] == "/" and all(headers.get(name) == value for name, value in _NAVIGATION.items())


def _token(scope: Scope, headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()

    # Browsers can set no header on a WebSocket: there the key is a subprotocol.
    protocols: Sequence[Any] = scope.get("subprotocols", ())
    return next(
        (protocol.removeprefix(KEY_PROTOCOL) for protocol in protocols if protocol.startswith(KEY_PROTOCOL)), ""
    )

"""The cluster's DNS: dns_server.py ADDRESS KUBECONFIG NAME… answers with the addresses of pods, from their Endpoints.

Nothing translates the addresses of Services here, so a Service's name has those of its pods, and a NAME has ADDRESS,
where the test's own servers listen. A headless Service's pods have names as well, `pod.service.namespace`.
"""

import json
import socketserver
import ssl
import struct
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import URLError

import yaml

A, INTERNET = 1, 1
ANSWER, UNKNOWN_NAME = 0x8580, 0x8583
"""Flags: an authoritative answer with recursion, and the same without such a name (RFC 1035, section 4.1.1)."""
POINTER = 0xC00C
"""To the name in the question, which begins at byte 12 (section 4.1.4)."""


class Names:
    """Looks names up by the API server.

    Args:
      fixed: names without `.svc.cluster.local` that have the one address.
    """

    def __init__(self, address: str, kubeconfig: Path, fixed: list[str]) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server, self._token = cluster["server"], user["token"]
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._address, self._fixed = address, set(fixed)

    def addresses(self, name: str) -> list[str]:
        """The addresses of a name; none where there is none."""
        short = name.removesuffix(".svc.cluster.local").removesuffix(".svc")
        if short in self._fixed:
            return [self._address]
        *host, service, namespace = ("", *short.split("."))[-3:] if short.count(".") in (1, 2) else ("", "", "")
        found = self._endpoints(namespace, service) if service else []
        return [one["ip"] for one in found if host in ([""], [one.get("hostname")])]

    def _endpoints(self, namespace: str, service: str) -> list[dict[str, Any]]:
        url = f"{self._server}/api/v1/namespaces/{namespace}/endpoints/{service}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._token}"})  # noqa: S310 - https
        try:
            with urllib.request.urlopen(request, timeout=5, context=self._context) as answered:  # noqa: S310
                subsets = json.load(answered).get("subsets") or []
        except (URLError, OSError):
            return []
        return [address for subset in subsets for address in subset.get("addresses") or []]


def answer(question: bytes, names: Names) -> bytes:
    """The answer to a packet with one question."""
    (number,) = struct.unpack_from("!H", question)
    labels, at = [], 12
    while length := question[at]:
        labels.append(question[at + 1 : at + 1 + length].decode("ascii", errors="replace").lower())
        at += 1 + length
    kind, _ = struct.unpack_from("!HH", question, at + 1)
    found = names.addresses(".".join(labels))
    records = [bytes(map(int, one.split("."))) for one in found] if kind == A else []
    head = struct.pack("!6H", number, ANSWER if found else UNKNOWN_NAME, 1, len(records), 0, 0)
    body = b"".join(struct.pack("!HHHIH", POINTER, A, INTERNET, 1, 4) + one for one in records)
    return head + question[12 : at + 5] + body


def main(address: str, kubeconfig: str, *fixed: str) -> None:
    names = Names(address, Path(kubeconfig), list(fixed))

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            packet, socket = self.request
            socket.sendto(answer(packet, names), self.client_address)

    with socketserver.ThreadingUDPServer((address, 53), Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])

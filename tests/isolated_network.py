"""Runs a command in a network of its own, and reports what it tried to reach.

The network is a namespace of Linux that has loopback and nothing else. Its name server is a thread of this process,
which records each name and answers that there is none. The kernel counts what has no route. `nsswitch.conf` asks this
name server alone, so no service outside of the namespace answers.
"""

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

NAME_SERVER = "198.51.100.53"
"""Of a range for documentation. Loopback has it, so that the machine looks as if it had a network."""
_ENTER = ("unshare", "--map-root-user", "--net", "--mount", "--")
_SET_ADDRESS, _SET_MASK, _SET_FLAGS, _UP = 0x8916, 0x891C, 0x8914, 0x41
"""SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFFLAGS; IFF_UP | IFF_RUNNING."""


def require_namespaces() -> None:
    """Skips a test where this account may not make network namespaces."""
    if shutil.which(_ENTER[0]) is None:
        pytest.skip("no unshare (util-linux), which gives a command a network of its own")
    attempt = subprocess.run([*_ENTER, "true"], capture_output=True, text=True)
    if attempt.returncode:
        pytest.skip(f"this account may not make a network namespace: {attempt.stderr.strip()}")


def run_isolated(command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> dict[str, Any]:
    """Runs a command.

    Returns:
      status, output: of the command; names: that it looked up; unrouted: packets and connections beyond loopback.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        inside = [sys.executable, "-P", __file__, str(report), *command]
        ended = subprocess.run(
            [*_ENTER, *inside],
            env=dict(environment),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert report.exists(), ended.stdout
        return {**json.loads(report.read_text()), "output": ended.stdout}


def _main(report: str, *command: str) -> None:
    _configure_loopback()
    _redirect_lookups()
    names: list[str] = []
    threading.Thread(target=_serve_names, args=(names, _bind_name_server()), daemon=True).start()
    before = _unrouted()
    status = subprocess.run(command).returncode
    Path(report).write_text(json.dumps({"status": status, "names": names, "unrouted": _unrouted() - before}))


def _configure_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP))
        for request, address in ((_SET_ADDRESS, NAME_SERVER), (_SET_MASK, "255.255.255.255")):
            packed = struct.pack("16sHH4s16x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(control, request, packed)


def _redirect_lookups() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("resolv.conf", f"nameserver {NAME_SERVER}\n"), ("nsswitch.conf", "hosts: files dns\n")):
            replacement = Path(folder, name)
            replacement.write_text(content)
            subprocess.run(["mount", "--bind", str(replacement), f"/etc/{name}"], check=True)


def _bind_name_server() -> socket.socket:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((NAME_SERVER, 53))
    return server


def _serve_names(names: list[str], server: socket.socket) -> None:
    while True:
        query, client = server.recvfrom(4096)
        labels = []
        position = 12  # after the header
        while query[position]:
            labels.append(query[position + 1 : position + 1 + query[position]].decode("ascii", "replace"))
            position += 1 + query[position]
        names.append(".".join(labels))
        question = query[12 : position + 5]
        server.sendto(query[:2] + b"\x81\x83\0\1\0\0\0\0\0\0" + question, client)  # NXDOMAIN


def _unrouted() -> int:
    """Packets and connections that found no route, over IPv4 and IPv6."""
    titles, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines()[:2])
    count = int(values[titles.index("OutNoRoutes")])
    if os.path.exists("/proc/net/snmp6"):
        lines = dict(line.split() for line in Path("/proc/net/snmp6").read_text().splitlines())
        count += int(lines["Ip6OutNoRoutes"])
    return count


if __name__ == "__main__":
    _main(*sys.argv[1:])

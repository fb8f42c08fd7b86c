"""What a storage or a network does to a request, at the proxy's will."""

import dataclasses
import socket
import struct
import threading
from collections.abc import Callable
from typing import Literal

Kind = Literal[
    "status",
    "reset",
    "cut",
    "cut upload",
    "lost answer",
    "slow",
    "damage",
    "damage upload",
    "meanwhile",
    "drip",
    "edit",
]


@dataclasses.dataclass
class Fault:
    """What befalls requests, until it has befallen `times` of them.

    Attributes:
      kind: status: an answer with `code` and `body`, nothing done; slow: `seconds` pass before the answer; damage: a
        byte of the answer is another; damage upload: one of what is sent is; reset: the connection breaks before the
        request is read; cut upload: in the middle of the body that is sent; lost answer: when the request was done;
        cut: in the middle of the answer's body; meanwhile: `action` is called, before a change is made or after
        anything else; drip: a byte of the answer's body arrives each `seconds`; edit: `edit` changes the answer's body.
      method: of the requests that it befalls; empty: of all.
      path: part of their path or query, or the end of the name of an object that is written; empty: any.
      reason: the storage's word for `code`, on S3; empty: the usual one.
      body: of the answer; empty: an error with the reason.
      changes: only of those that change something.
      after: requests of that kind that it lets pass first.
      met: it has befallen one.
    """

    kind: Kind
    method: str = ""
    path: str = ""
    changes: bool = False
    times: int = 1
    after: int = 0
    code: int = 503
    reason: str = ""
    body: bytes = b""
    seconds: float = 0.0
    met: bool = False
    action: Callable[[], object] = lambda: None
    edit: Callable[[bytes], bytes] = lambda body: body


class Faults:
    """Those that are in wait."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._waiting.append(fault)
        return fault

    def met(self) -> bool:
        """Whether one that is still in wait has befallen a request."""
        return any(fault.met for fault in self._waiting)

    def clear(self) -> None:
        with self._lock:
            self._waiting.clear()

    def meet(self, method: str, path: str) -> Fault | None:
        """What befalls this request."""
        with self._lock:
            for fault in self._waiting:
                if fault.changes and method in ("GET", "HEAD"):
                    continue
                if fault.times and fault.method in ("", method) and fault.path in path:
                    if fault.after:
                        fault.after -= 1
                        continue
                    fault.times -= 1
                    fault.met = True
                    return fault
        return None


def reset(connection: socket.socket) -> None:
    """Breaks a connection as a failing network does: with RST, not in an orderly way."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()

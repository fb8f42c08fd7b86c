"""A headless Chromium that opens pages, and axe-core, which checks them for accessibility."""

import contextlib
import dataclasses
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

AXE = "axe-core@4.14.1"
AXE_SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"


@dataclasses.dataclass
class Opened:
    """A page that was opened.

    Attributes:
      value: of the script.
      said: what the console printed, and exceptions.
      requests: URLs other than the page's own and data in it.
    """

    value: Any
    said: list[str]
    requests: list[str]


class Browser:
    """Headless Chromium, driven through its DevTools protocol."""

    def __init__(self, port: int) -> None:
        import websocket

        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
            target = next(one for one in json.load(answer) if one["type"] == "page")
        self._connection = websocket.create_connection(target["webSocketDebuggerUrl"], timeout=60)
        self._number = 0
        self._events: list[dict[str, Any]] = []
        for domain in ("Log", "Runtime", "Page", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Calls a method of the protocol; events that arrive meanwhile are kept."""
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": values}))
        while True:
            message: dict[str, Any] = json.loads(self._connection.recv())
            if message.get("id") == self._number:
                return message
            self._events.append(message)

    def open(self, page: Path, script: str, *, width: int = 1400, dark: bool = False, scripts: bool = True) -> Opened:
        """Opens a page in a window of this width, and evaluates a script in it."""
        self.call("Page.navigate", url="about:blank")
        self.call("Log.clear")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self._events.clear()
        self.call("Page.navigate", url=page.as_uri())
        ready = "document.readyState == 'complete' && location.protocol == 'file:'"
        for _ in range(400):
            if self.call("Runtime.evaluate", expression=ready)["result"]["result"].get("value"):
                break
            time.sleep(0.05)
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer["result"], answer
        opened = Opened(answer["result"]["result"].get("value"), [], [])
        for event in self._events:
            if event["method"] in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                opened.said.append(json.dumps(event["params"]))
            if event["method"] == "Network.requestWillBeSent":
                url = event["params"]["request"]["url"]
                if not url.startswith("data:") and url != page.as_uri():
                    opened.requests.append(url)
        return opened

    def screenshot(self, box: tuple[float, float, float, float], kind: str, quality: int) -> str:
        """A part of the open page (left, top, width, height), Base64 of a PNG or WebP."""
        clip = dict(zip(("x", "y", "width", "height"), box, strict=True), scale=1)
        values: dict[str, Any] = {"format": kind, "clip": clip, "captureBeyondViewport": True}
        if kind != "png":
            values["quality"] = quality
        return str(self.call("Page.captureScreenshot", **values)["result"]["data"])


def find_chromium() -> str | None:
    names = ("chromium", "google-chrome", "chromium-browser")
    return next((path for name in names if (path := shutil.which(name))), None)


@contextlib.contextmanager
def start_browser(*further: str) -> Iterator[Browser]:
    """Starts Chromium, which must be there, with further flags, and ends it."""
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-sync --disable-background-networking"
    flags += " --disable-component-update --mute-audio --remote-debugging-port=0 --remote-allow-origins=*"
    flags += " --autoplay-policy=no-user-gesture-required --hide-scrollbars"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [str(find_chromium()), *flags.split(), *further, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port = Path(folder, "DevToolsActivePort")
        try:
            for _ in range(600):
                if port.is_file() and port.read_text():
                    break
                time.sleep(0.1)
            yield Browser(int(port.read_text().split()[0]))
        finally:
            process.terminate()
            process.wait(timeout=20)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if find_chromium() is None:
        pytest.skip("no Chromium on this machine: install it to see pages opened in a browser")
    pytest.importorskip("websocket")
    with start_browser() as started:
        yield started


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, from the registry that npm uses into the environment, where a later run finds it."""
    file = Path(sys.prefix) / f"axe-core-{AXE_SHA256[:16]}.js"
    if not file.is_file():
        npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
        if npm is None:
            pytest.skip("no npm on this machine, which downloads axe-core: accessibility was not checked")
        command = [npm, "pack", AXE, "--silent", "--pack-destination", str(folder)]
        packed = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if packed.returncode:
            pytest.skip(f"npm cannot download {AXE} ({packed.stderr.strip()[-200:]}): accessibility was not checked")
        archive = (folder / packed.stdout.split()[-1]).read_bytes()
        assert hashlib.sha256(archive).hexdigest() == AXE_SHA256, f"{AXE}: other bytes than were pinned"
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.extractfile("package/axe.min.js")
            assert member is not None
            file.write_bytes(member.read())
    return file.read_text(encoding="utf-8")

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
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

AXE_URL = "https://registry.npmjs.org/axe-core/-/axe-core-4.14.1.tgz"
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
        self._port = port

    def open(self, page: Path, script: str, *, width: int = 1400, dark: bool = False, scripts: bool = True) -> Opened:
        """Opens a page in a window of this width, and evaluates a script in it."""
        import websocket

        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/json") as answer:
            target = next(one for one in json.load(answer) if one["type"] == "page")
        opened = Opened(None, [], [])
        with contextlib.closing(websocket.create_connection(target["webSocketDebuggerUrl"], timeout=60)) as connection:
            number = 0

            def call(method: str, **values: Any) -> dict[str, Any]:
                nonlocal number
                number += 1
                connection.send(json.dumps({"id": number, "method": method, "params": values}))
                while True:
                    message: dict[str, Any] = json.loads(connection.recv())
                    kind = message.get("method", "")
                    if kind in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                        opened.said.append(json.dumps(message["params"]))
                    if kind == "Network.requestWillBeSent":
                        url = message["params"]["request"]["url"]
                        if not url.startswith("data:") and url != page.as_uri():
                            opened.requests.append(url)
                    if message.get("id") == number:
                        return message

            call("Page.navigate", url="about:blank")
            for domain in ("Log", "Runtime", "Page", "Network"):
                call(f"{domain}.enable")
            call("Log.clear")
            opened.said.clear()
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            call("Emulation.setEmulatedMedia", features=[scheme])
            call("Emulation.setScriptExecutionDisabled", value=not scripts)
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
            call("Emulation.setDeviceMetricsOverride", **size)
            call("Page.navigate", url=page.as_uri())
            ready = "document.readyState == 'complete' && location.protocol == 'file:'"
            for _ in range(400):
                if call("Runtime.evaluate", expression=ready)["result"]["result"].get("value"):
                    break
                time.sleep(0.05)
            answer = call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
            assert "exceptionDetails" not in answer["result"], answer
            opened.value = answer["result"]["result"].get("value")
        return opened


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium on this machine: install it to see pages opened in a browser")
    pytest.importorskip("websocket")
    profile = tmp_path_factory.mktemp("profile")
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-sync --disable-background-networking"
    flags += " --disable-component-update --mute-audio --remote-debugging-port=0 --remote-allow-origins=*"
    flags += " --autoplay-policy=no-user-gesture-required"
    process = subprocess.Popen(
        [chromium, *flags.split(), f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            if (profile / "DevToolsActivePort").is_file() and (profile / "DevToolsActivePort").read_text():
                break
            time.sleep(0.1)
        yield Browser(int((profile / "DevToolsActivePort").read_text().split()[0]))
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, from npm's registry into the environment, where a later run finds it."""
    file = Path(sys.prefix) / f"axe-core-{AXE_SHA256[:16]}.js"
    if not file.is_file():
        try:
            with urllib.request.urlopen(AXE_URL, timeout=30) as answer:
                archive = answer.read()
        except OSError as error:
            pytest.skip(f"axe-core is not here and cannot be downloaded ({error}): accessibility was not checked")
        assert hashlib.sha256(archive).hexdigest() == AXE_SHA256, f"{AXE_URL}: other bytes than were pinned"
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.extractfile("package/axe.min.js")
            assert member is not None
            file.write_bytes(member.read())
    return file.read_text(encoding="utf-8")

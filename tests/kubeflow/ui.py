"""Kubeflow Pipelines' own web page: that of a given server, or one served by a given program, used in Chromium."""

import base64
import json
import time
from pathlib import Path
from typing import Any

from tests.kubeflow import given
from tests.kubeflow.control_plane import SERVICES, ControlPlane, Kubernetes
from tests.kubeflow.pipelines_server import METADATA_WEB_PORT, NAMESPACE
from tests.kubeflow.processes import answers
from tests.report.conftest import Browser, find_chromium

ADDRESS = given.UI or "http://127.0.0.1:3000"
WIDTH, HEIGHT = 1280, 900


def missing() -> str:
    """What is not there to open the page; "" where nothing is missing."""
    if find_chromium() is None:
        return "no Chromium on this machine: install it to see the UI"
    if given.UI:
        return ""
    if given.ENDPOINT:
        return "no page: set KUBEFLOW_UI to its address"
    return "" if _program().is_file() else f"no {_program()}: KUBEFLOW_PROGRAMS has no page"


def _program() -> Path:
    return given.program("ui") / "server" / "dist" / "server.js"


def serve(kubernetes: Kubernetes) -> None:
    """Starts the page's server at `ADDRESS`, with the rights of its own account, unless one is given."""
    if given.UI:
        return
    assert isinstance(kubernetes, ControlPlane)
    config = kubernetes.account_kubeconfig(NAMESPACE, "ml-pipeline-ui")
    kubernetes.servers.start(
        "ui", "node", _program(), given.program("ui") / "build", "3000", KUBECONFIG=str(config),
        FRONTEND_SERVER_NAMESPACE=NAMESPACE, ML_PIPELINE_SERVICE_HOST="ml-pipeline", ML_PIPELINE_SERVICE_PORT="8888",
        METADATA_ENVOY_SERVICE_SERVICE_HOST=SERVICES, METADATA_ENVOY_SERVICE_SERVICE_PORT=METADATA_WEB_PORT,
    )  # fmt: skip
    kubernetes.servers.wait(lambda: answers(f"{ADDRESS}/apis/v2beta1/healthz"), "the UI")


class Page:
    """A window with the UI, for someone who looks, clicks and types.

    Args:
      pictures: where `take_picture` writes; None: nowhere.
    """

    def __init__(self, browser: Browser, pictures: Path | None) -> None:
        self.browser, self.pictures = browser, pictures
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        browser.call("Emulation.setDeviceMetricsOverride", **size)
        # With loopback alone Chromium calls itself offline, and the page then stops asking.
        online = {"offline": False, "latency": 1, "downloadThroughput": -1, "uploadThroughput": -1}
        browser.call("Network.emulateNetworkConditions", **online)

    def open(self, route: str) -> None:
        self.browser.call("Page.navigate", url="about:blank")
        self.browser.call("Page.navigate", url=f"{ADDRESS}/#{route}")

    def evaluate(self, script: str) -> Any:
        answer = self.browser.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer["result"], answer
        return answer["result"]["result"].get("value")

    def text(self) -> str:
        """What can be read on the page."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def see(self, script: str, what: str, seconds: float = 120) -> Any:
        """Waits until a script gives something true. Returns it."""
        end = time.monotonic() + seconds
        while not (value := self.evaluate(script)):
            assert time.monotonic() < end, f"not on the page: {what}\n{self.text()[:3000]}"
            time.sleep(0.3)
        return value

    def read(self, words: str, seconds: float = 120) -> None:
        """Waits until the page has these words."""
        self.see(f"document.body && document.body.innerText.includes({json.dumps(words)})", words, seconds)

    def click(self, element: str, what: str) -> None:
        """Clicks in the middle of an element, once it is there, enabled and at rest: a graph moves until it fits.

        Args:
          element: a script that gives it.
        """
        self.see(f"(() => {{ const one = {element}; return one && !one.disabled; }})()", what)
        place = f"(() => {{ const one = {element}; one.scrollIntoView({{block: 'nearest'}});"
        place += (
            " const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        last: Any = None
        while last != (now := self.evaluate(place)):
            last = now
            time.sleep(1)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=last[0], y=last[1], **button)

    def press(self, name: str) -> None:
        """Presses the button with this id, or with this text."""
        by_text = f"[...document.querySelectorAll('button,[role=tab]')].find(one => one.innerText.trim() == {name!r})"
        self.click(f"(document.getElementById({name!r}) || {by_text})", name)

    def type(self, element: str, text: str) -> None:
        """Puts a text into a field in place of what it has."""
        self.see(f"!!{element}", element)
        self.evaluate(f"(() => {{ const one = {element}; one.focus(); one.select(); }})()")
        self.browser.call("Input.insertText", text=text)
        assert self.evaluate(f"{element}.value") == text

    def choose_file(self, file: Path) -> None:
        self.see("!!document.querySelector('input[type=file]')", "the field of a file")
        root = self.browser.call("DOM.getDocument")["result"]["root"]["nodeId"]
        found = self.browser.call("DOM.querySelector", nodeId=root, selector="input[type=file]")
        self.browser.call("DOM.setFileInputFiles", files=[str(file)], nodeId=found["result"]["nodeId"])

    def take_picture(self, name: str) -> None:
        if self.pictures:
            time.sleep(1)  # transitions of its panels
            data = self.browser.screenshot((0, 0, WIDTH, HEIGHT), "png", 0)
            self.pictures.mkdir(parents=True, exist_ok=True)
            (self.pictures / f"{name}.png").write_bytes(base64.b64decode(data))


def field(label: str) -> str:
    """A script that gives the field with this label."""
    return (
        "[...document.querySelectorAll('label')].filter(one => one.innerText.replace('*', '').trim() == "
        f"{label!r}).map(one => one.parentElement.querySelector('input, textarea'))[0]"
    )


def node(key: str) -> str:
    """A script that gives a node of the graph: `task.train`, `artifact.train.model`."""
    return f"document.querySelector('.react-flow__node[data-id=\"{key}\"]')"

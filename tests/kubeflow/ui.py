"""Kubeflow Pipelines' own web page: built from its source with npm, served by its own server, and used in Chromium."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

from tests.cluster.k8s.fetched import TOOLS
from tests.kubeflow.build import pipelines_sources
from tests.kubeflow.control_plane import SERVICES, Kubernetes
from tests.kubeflow.pipelines_server import METADATA_WEB_PORT, NAMESPACE
from tests.kubeflow.processes import answers
from tests.report.conftest import Browser, find_chromium

ARCHIVE = "frontend-2.17.0.tar.xz"
ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "http://127.0.0.1:3000"
NODE_MAJOR = 20
NOT_TO_BUILD = re.compile(
    r"fs|storybook|playwright|vitest|@(storybook|testing-library|vitest|typescript-eslint)/.*|eslint.*"
)
"""Development dependencies that the page's tests need, and its build does not."""
INSTALL = (
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--legacy-peer-deps",
    "--no-package-lock",
    "--engine-strict=false",
)
WIDTH, HEIGHT = 1280, 900


def folder() -> Path:
    """Where the page is built: beside KFP's binaries, by the archive that it is of."""
    archive = _archive()
    key = hashlib.sha256(archive.read_bytes()).hexdigest()[:16] if archive else "upstream"
    return TOOLS / "kubeflow" / f"ui-{key}" / "frontend"


def missing() -> str:
    """What is not there to open the page; "" where nothing is."""
    if find_chromium() is None:
        return "no Chromium on this machine: install it to see the UI"
    return (
        "" if _program().is_file() else f"no {_program()}; `python -m tests.kubeflow.build` builds it with Node and npm"
    )


def build() -> str:
    """Builds the page and its server, once.

    Returns:
      Why they cannot be built here, or "".
    """
    if _program().is_file():
        return ""
    if shutil.which("npm") is None:
        return "no npm on the PATH"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.strip("v").partition(".")[0]) < NODE_MAJOR:
        return f"Node {version.strip()}; it takes {NODE_MAJOR}"
    print("test-kubeflow: building the UI", flush=True)
    archive, top = _archive(), folder().parent
    partial = top.with_name(f"{top.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if archive:
        with tarfile.open(archive) as opened:
            opened.extractall(partial, filter="data")
    else:
        shutil.copytree(pipelines_sources() / "frontend", partial / "frontend")
    frontend = partial / "frontend"
    description = json.loads((frontend / "package.json").read_text())
    needed = {name: one for name, one in description["devDependencies"].items() if not NOT_TO_BUILD.fullmatch(name)}
    description = {**description, "devDependencies": needed}
    for key in ("engines", "packageManager"):
        description.pop(key)
    (frontend / "package.json").write_text(json.dumps(description))
    for command, place in (
        (("npm", "install", *INSTALL), frontend),
        (("npx", "tailwindcss", "build", "-i", "src/tailwind.css", "-o", "src/build/tailwind.output.css"), frontend),
        (("npx", "vite", "build"), frontend),
        (("npm", "install", *INSTALL), frontend / "server"),
        (("npx", "tsc", "--project", "."), frontend / "server"),
    ):
        done = subprocess.run(("nice", *command), cwd=place, capture_output=True, text=True, check=False, timeout=3600)
        if done.returncode and "tsc" not in command:  # which writes what it compiles, and finds fault with newer types
            return f"{' '.join(command[:3])}: {done.stderr.strip()[-500:]}"
    shutil.rmtree(frontend / "node_modules")
    partial.rename(top)
    return "" if _program().is_file() else f"no {_program()}"


def _archive() -> Path | None:
    for place in (os.environ.get("VOXLINE_KUBEFLOW_SOURCES"), str(ROOT.parent / "shared" / "kubeflow")):
        if place and (Path(place) / ARCHIVE).is_file():
            return Path(place) / ARCHIVE
    return None


def _program() -> Path:
    return folder() / "server" / "dist" / "server.js"


def serve(kubernetes: Kubernetes) -> None:
    """Starts the page's server at `ADDRESS`, with the rights of its own account."""
    config = kubernetes.account_kubeconfig(NAMESPACE, "ml-pipeline-ui")
    kubernetes.servers.start(
        "ui", "node", _program(), folder() / "build", "3000", KUBECONFIG=str(config),
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

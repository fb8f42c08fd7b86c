"""The real Label Studio imports our tasks, shows our interface, and its export comes back as labels."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.waiting import wait_until
from voxline.data.corrections import LABEL_CONFIG, DoubtfulText, label_studio_tasks, read_label_studio, read_labels
from voxline.store.files import write_json

ROOT = Path(__file__).parents[2]
PROGRAM = Path(os.environ.get("VOXLINE_PROGRAMS", ROOT / ".programs-venv")) / "bin" / "label-studio"
pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(), reason=f"no {PROGRAM}: `make test-programs` installs Label Studio, and starts it for a minute"
)
USER_KEY = 40 * "7"
WITHOUT_NETWORK = {"COLLECT_ANALYTICS": "false", "LATEST_VERSION_CHECK": "false", "SENTRY_DSN": "", "DEBUG": "false"}
HEARD = (("a", "one two", "one tu"), ("b", "三四", "三四"), ("c", "five", "vive"), ("d", "six", "sex"))


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with a user."""
    data = tmp_path_factory.mktemp("studio")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    options = {
        "data-dir": data, "internal-host": "127.0.0.1", "port": port, "username": "a@example.org",
        "password": "a-password", "user-token": USER_KEY,
    }  # fmt: skip
    command = [PROGRAM, "start", "--no-browser", "--enable-legacy-api-token"]
    with (data / "studio.log").open("wb") as log:
        process = subprocess.Popen(
            [*map(str, command), *(f"--{name}={value}" for name, value in options.items())],
            env={**os.environ, **WITHOUT_NETWORK}, stdout=log, stderr=log,
        )  # fmt: skip
        address = f"http://127.0.0.1:{port}"
        headers = {"Authorization": f"Token {USER_KEY}"}
        try:
            with httpx.Client(base_url=address, headers=headers, timeout=60, trust_env=False) as client:

                def is_up() -> bool:
                    assert process.poll() is None, (data / "studio.log").read_text()[-2000:]
                    try:
                        return client.get("/health").status_code == 200
                    except httpx.TransportError:
                        return False

                wait_until(is_up, "Label Studio", interval=1.0)  # it makes a database first
                yield client
        finally:
            process.terminate()
            process.wait(60)


def call(studio: httpx.Client, method: str, path: str, **given: Any) -> Any:
    answer = studio.request(method, path, **given)
    assert answer.is_success, answer.text
    return answer.json()


def region(kind: str, name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"from_name": name, "to_name": "audio", "type": kind, "value": value}


def test_tasks_are_imported_labeled_and_exported(studio: httpx.Client, tmp_path: Path) -> None:
    tasks = label_studio_tasks([DoubtfulText(id, f"/audio/{id}.flac", text, heard, 0.5) for id, text, heard in HEARD])
    project = call(studio, "POST", "/api/projects", json={"title": "captures", "label_config": LABEL_CONFIG})
    number = project["id"]
    write_json(tmp_path / "label-studio.json", tasks)
    with (tmp_path / "label-studio.json").open("rb") as file:
        imported = call(studio, "POST", f"/api/projects/{number}/import", files={"file": ("tasks.json", file)})
    assert (imported["task_count"], imported["prediction_count"]) == (len(HEARD), len(HEARD))
    shown = call(studio, "GET", "/api/tasks", params={"project": number, "fields": "all"})["tasks"]
    known = {task["data"]["id"]: task for task in shown}
    assert {id: task["predictions"][0]["result"][0]["value"]["text"] for id, task in known.items()} == {
        id: [text] for id, text, _ in HEARD
    }
    labels = {
        "a": [region("textarea", "transcription", {"text": ["One  three"]})],
        "b": [region("textarea", "transcription", {"text": ["三四"]})],
        "c": [region("choices", "verdict", {"choices": ["leave out"]})],
    }
    for id, result in labels.items():
        call(studio, "POST", f"/api/tasks/{known[id]['id']}/annotations/", json={"result": result})
    exported = studio.get(f"/api/projects/{number}/export", params={"exportType": "JSON", "download_all_tasks": "true"})
    assert exported.is_success, exported.text
    (tmp_path / "labeled.json").write_bytes(exported.content)
    assert read_labels(tmp_path / "labeled.json") == {"a": "One three", "b": "三四", "c": None}
    corrected = [(one.id, one.was, one.text) for one in read_label_studio(tmp_path / "labeled.json")]
    assert sorted(corrected) == [("a", "one two", "One three"), ("c", "five", None)]


def test_a_label_of_another_interface_is_refused_by_label_studio(studio: httpx.Client) -> None:
    """So that what comes back is known to be of ours."""
    answer = studio.post(
        "/api/projects", json={"title": "broken", "label_config": LABEL_CONFIG.replace("audio", "", 1)}
    )
    assert answer.status_code == 400

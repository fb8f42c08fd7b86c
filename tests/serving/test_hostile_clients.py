"""Clients that send what no library would, on real sockets: each gets an answer in OpenAI's form, and costs little."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serving.test_server import Served, push, wav
from tests.tone_asr_model import export_onnx_tones
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_onnx_tones(tmp_path_factory.mktemp("models") / "tones")


@pytest.fixture
def served(model: Path, tmp_path: Path) -> Iterator[Served]:
    push(tmp_path / "registry", model)
    running = Served(tmp_path / "registry")
    yield running
    running.stop()


def openai_error(answer: httpx.Response) -> dict[str, object]:
    """The error of an answer, which must be JSON in OpenAI's form."""
    assert answer.headers["content-type"] == "application/json"
    error: dict[str, object] = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == ("server_error" if answer.status_code >= 500 else "invalid_request_error")
    return error


SPEECH = {"model": "asr", "input": "one"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"[" * 60_000, None),
        (b'{"a":' * 12_000, None),
        (b"\xff\xfe", None),
        (b"[]", None),
        (b'{"speed": ' + b"9" * 5000 + b"}", None),
        ({"response_format": []}, "response_format"),
        ({"response_format": {}}, "response_format"),
        ({"response_format": None}, "response_format"),
        ({"model": ["asr"]}, "model"),
        ({"model": {}}, "model"),
        ({"input": ["one"]}, "input"),
        ({"voice": []}, "voice"),
        ({"voice": 3}, "voice"),
        ({"instructions": {}}, "instructions"),
        ({"speed": []}, "speed"),
        ({"stream_format": {}}, "stream_format"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_body_of_another_kind_is_the_callers_fault(served: Served, body: object, param: str | None) -> None:
    data = body if isinstance(body, bytes) else json.dumps(SPEECH | body).encode()  # type: ignore[operator]
    answer = httpx.post(f"{served.url}/v1/audio/speech", content=data, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 400
    assert openai_error(answer)["param"] == param


def test_a_route_or_a_method_that_is_not_here_is_refused_in_openais_form(served: Served) -> None:
    for method, path, status in (("GET", "/v1/nothing", 404), ("GET", "/v1/audio/speech", 405), ("PUT", "/", 405)):
        answer = httpx.request(method, f"{served.url}{path}")
        assert answer.status_code == status
        openai_error(answer)
    assert served.send(wav()).status_code == 200

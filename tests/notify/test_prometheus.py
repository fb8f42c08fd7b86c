"""A run's gauges, read back by Prometheus' own parser, by a real Pushgateway, and by OpenTelemetry's messages."""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from tests.notify.conftest import IN_SERVICE, REFUSED, RUN, MakeEvent, Server
from tests.waiting import wait_until
from voxline.notify.deliver import announce_end
from voxline.notify.event import RunEvent, RunIdentity
from voxline.notify.prometheus import GAUGES
from voxline.notify.settings import NotifySettings

LABELS = {"pipeline": "asr", "run": "nightly", "model": "asr"}
QUICK = {"timeout_seconds": 5, "attempts": 1}


def announce(event: RunEvent, **settings: Any) -> list[str]:
    return announce_end(lambda: event, NotifySettings.of({**QUICK, **settings}))


def read(text: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Gauge → its labels, besides those of the run → value."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            own = frozenset(
                (key, value) for key, value in sample.labels.items() if key not in (*LABELS, "job", "instance")
            )
            found.setdefault(sample.name, {})[own] = sample.value
    return found


def only(**labels: str) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def test_the_textfile_has_counts_metrics_seconds_verdict_and_version(make_event: MakeEvent, tmp_path: Path) -> None:
    file = tmp_path / "collector" / "voxline.prom"
    assert announce(make_event(), textfile=str(file)) == []
    gauges = read(file.read_text())
    assert gauges["voxline_run_verdict"][only(verdict="promoted")] == 1
    assert sum(gauges["voxline_run_verdict"].values()) == 1
    assert gauges["voxline_rejects"] == {
        only(step="ingest", reason="silent"): 3,
        only(step="ingest", reason="too_long"): 1,
    }
    assert gauges["voxline_rejects_ratio"] == {only(step="ingest"): 0.04}
    assert gauges["voxline_utterances"][only(step="ingest")] == 96
    assert gauges["voxline_metric"][only(metric="wer")] == 0.031
    assert gauges["voxline_metric_low"] == {only(metric="wer"): 0.02}  # the speed has no interval
    assert gauges["voxline_metric_high"] == {only(metric="wer"): 0.05}
    assert gauges["voxline_step_seconds"][only(step="train")] == 60
    assert gauges["voxline_step_reused"] == {
        only(step="ingest"): 0,
        only(step="train"): 1,
        only(step="evaluate"): 0,
        only(step="push"): 0,
    }
    assert gauges["voxline_model_version"] == {only(): 7}
    assert gauges["voxline_last_success_timestamp_seconds"][only()] > RUN.started
    assert gauges.keys() <= GAUGES.keys()
    for family in text_string_to_metric_families(file.read_text()):
        assert family.type == "gauge"
        assert all(LABELS.items() <= sample.labels.items() for sample in family.samples)


def test_a_run_that_fails_or_is_refused_keeps_the_last_success(make_event: MakeEvent, tmp_path: Path) -> None:
    file = tmp_path / "voxline.prom"
    announce(make_event(), textfile=str(file))
    before = read(file.read_text())
    for verdict, name in ((REFUSED, "refused"), (None, "failed")):
        announce(make_event(verdict), textfile=str(file))
        gauges = read(file.read_text())
        assert gauges["voxline_run_verdict"][only(verdict=name)] == 1
        for kept in ("voxline_last_success_timestamp_seconds", "voxline_model_version"):
            assert gauges[kept] == before[kept]
    assert only(step="push") not in gauges["voxline_step_seconds"], "the failed run has no push"
    announce(make_event(IN_SERVICE), textfile=str(file))
    gauges = read(file.read_text())
    assert (
        gauges["voxline_last_success_timestamp_seconds"][only()]
        > before["voxline_last_success_timestamp_seconds"][only()]
    )


def test_configs_share_a_textfile_and_nothing_else_is_lost(make_event: MakeEvent, tmp_path: Path) -> None:
    file = tmp_path / "voxline.prom"
    announce(make_event(), textfile=str(file))
    announce(make_event(REFUSED, RunIdentity("asr", "weekly", "asr")), textfile=str(file))
    text = file.read_text()
    assert re.search(r'voxline_run_verdict{model="asr",pipeline="asr",run="nightly",verdict="promoted"} 1.0', text)
    assert re.search(r'voxline_run_verdict{model="asr",pipeline="asr",run="weekly",verdict="refused"} 1.0', text)
    assert [path.name for path in tmp_path.iterdir() if path.suffix not in (".json", ".jsonl", ".lock")] == [file.name]


def test_a_textfile_that_is_something_else_is_left_alone(
    make_event: MakeEvent, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "voxline.prom"
    file.write_text("{not metrics")
    assert announce(make_event(), textfile=str(file)) == ["textfile"]
    assert "not in Prometheus' text format" in capsys.readouterr().out
    assert file.read_text() == "{not metrics"


def test_otlp_has_the_same_gauges_and_the_token(
    make_event: MakeEvent, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLECTOR_TOKEN", "secret-token")
    file = tmp_path / "voxline.prom"
    event = make_event()
    otlp = {"url": f"{server.url}/v1/metrics", "token_env": "COLLECTOR_TOKEN"}
    assert announce(event, otlp=otlp, textfile=str(file)) == []
    (request,) = server.requests
    assert request["path"] == "/v1/metrics"
    assert request["headers"]["authorization"] == "Bearer secret-token"
    (of,) = ExportMetricsServiceRequest.FromString(request["body"]).resource_metrics
    assert {one.key: one.value.string_value for one in of.resource.attributes}["service.name"] == "voxline"
    (scope,) = of.scope_metrics
    sent = {
        metric.name: {
            frozenset(
                (one.key, one.value.string_value) for one in point.attributes if one.key not in LABELS
            ): point.as_double
            for point in metric.gauge.data_points
        }
        for metric in scope.metrics
    }
    assert sent == read(file.read_text())


def test_a_collector_that_refuses_is_named_with_its_answer(
    make_event: MakeEvent, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [(401, {"message": "no token"})]
    assert announce(make_event(), otlp={"url": f"{server.url}/v1/metrics"}) == ["otlp"]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("▸ notify.otlp: not delivered: ")
    assert "401" in line


@pytest.fixture(scope="module")
def pushgateway(tmp_path_factory: pytest.TempPathFactory) -> Any:
    program = (
        os.environ.get("VOXLINE_PUSHGATEWAY") or shutil.which("prometheus-pushgateway") or shutil.which("pushgateway")
    )
    if not program:
        pytest.skip("no Pushgateway here; `make test-monitoring` gets one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([program, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)

    def is_ready() -> bool:
        try:
            return bool(urlopen(f"http://127.0.0.1:{port}/-/ready").status == 200)
        except OSError:
            return False

    wait_until(is_ready, "the Pushgateway responds")
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


def test_a_real_pushgateway_has_the_gauges_and_keeps_the_last_success(
    make_event: MakeEvent, pushgateway: str, tmp_path: Path
) -> None:
    def scraped() -> dict[str, dict[frozenset[tuple[str, str]], float]]:
        text = urlopen(f"{pushgateway}/metrics").read().decode()  # noqa: S310
        return {name: values for name, values in read(text).items() if name.startswith("voxline_")}

    file = tmp_path / "voxline.prom"
    event = make_event()
    assert announce(event, pushgateway={"url": pushgateway}, textfile=str(file)) == []
    assert scraped() == read(file.read_text())
    text = urlopen(f"{pushgateway}/metrics").read().decode()  # noqa: S310
    assert 'voxline_model_version{instance="",job="voxline",model="asr",pipeline="asr",run="nightly"} 7' in text
    for verdict in (REFUSED, None):
        event = make_event(verdict)
        assert announce(event, pushgateway={"url": pushgateway}, textfile=str(file)) == []
        assert scraped() == read(file.read_text())


def test_a_push_is_a_post_to_the_group_of_the_run(make_event: MakeEvent, server: Server) -> None:
    """What the real gateway was seen to take above."""
    assert announce(make_event(), pushgateway={"url": server.url}) == []
    (request,) = server.requests
    assert request["method"] == "POST"
    assert request["path"] == "/metrics/job/voxline/model/asr/pipeline/asr/run/nightly"
    assert "voxline_model_version 7.0" in request["body"].decode()

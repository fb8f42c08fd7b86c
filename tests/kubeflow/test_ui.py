"""Kubeflow's own web page in Chromium: a pipeline of ours is uploaded, started by its form, followed and compared."""

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubeflow import ui
from tests.kubeflow.cluster import REFUSED, STEPS, Cluster
from tests.kubeflow.pipelines_server import PipelinesServer
from tests.kubeflow.ui import ADDRESS, Page, field, node
from tests.report.conftest import start_browser

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "cluster" / "ui"
PARAMETERS = ("train__epochs", "train__learning_rate", "evaluate__settings", "push__limits__wer")


@pytest.fixture(scope="module")
def page(pipelines: PipelinesServer) -> Iterator[Page]:
    if what := ui.missing():
        pytest.skip(what)
    pytest.importorskip("websocket")
    ui.serve(pipelines.kubernetes)
    with start_browser() as browser:
        yield Page(browser, PICTURES if os.environ.get("VOXLINE_PICTURES") else None)


@pytest.fixture(scope="module")
def runs() -> list[str]:
    """Ids of the runs that were started by the form."""
    return []


@pytest.fixture
def run_id(runs: list[str]) -> str:
    assert runs, "no run was started by the form"
    return runs[0]


def icon(step: str, name: str) -> str:
    """A script that says whether a step has this icon."""
    return f"!!({node('task.' + step)} && {node('task.' + step)}.querySelector('[data-testid={name}]'))"


def answer(path: str) -> Any:
    with urllib.request.urlopen(f"{ADDRESS}/apis/v2beta1/{path}") as answered:  # noqa: S310 - a fixed host
        return json.load(answered)


def open_finished(page: Page, run_id: str) -> None:
    page.open(f"/runs/details/{run_id}")
    page.see(icon("push", "CheckCircleIcon"), "push, finished")


def test_a_pipeline_is_uploaded(page: Page, cluster: Cluster) -> None:
    file = cluster.compile()
    page.open("/pipeline_versions/new")
    page.type("document.getElementById('newPipelineName')", "speech-asr")
    page.press("localPackageBtn")
    page.choose_file(file)
    page.see(f"[...document.querySelectorAll('input')].some(one => one.value == {file.name!r})", file.name)
    page.press("createNewPipelineOrVersionBtn")
    page.see(f"!!{node('task.push')}", "the graph")
    for step in STEPS:
        assert page.evaluate(f"!!{node('task.' + step)}"), step
    page.take_picture("pipeline")


def test_a_run_is_started_by_the_form(page: Page, cluster: Cluster, runs: list[str]) -> None:
    page.press("createNewRunBtn")
    page.type(field("Run name"), "two-epochs")
    page.type(field("Service Account"), "voxline-train")
    page.see("!!document.getElementById('train__epochs')", "the parameters")
    names = page.evaluate("[...document.querySelectorAll('input[id*=__]')].map(one => one.id)")
    assert set(PARAMETERS) <= set(names), names
    sections = [name.partition("__")[0] for name in names]
    assert len([one for n, one in enumerate(sections) if n == 0 or sections[n - 1] != one]) == len(set(sections)), names
    page.type("document.getElementById('train__epochs')", "2")
    page.type("document.getElementById('push__limits__wer')", "10")
    page.evaluate("document.getElementById('train__settings').scrollIntoView({block: 'center'})")
    page.take_picture("form")
    page.press("startNewRunBtn")
    page.read("two-epochs")
    page.see("location.hash.startsWith('#/runs') && !location.hash.startsWith('#/runs/new')", "the run")
    (run,) = (one for one in answer("runs?page_size=100")["runs"] if one["display_name"] == "two-epochs")
    assert run["service_account"] == "voxline-train"
    assert run["runtime_config"]["parameters"]["train__epochs"] == 2
    assert run["runtime_config"]["parameters"]["push__limits__wer"] == 10
    runs.append(run["run_id"])


def test_the_graph_is_followed(page: Page, cluster: Cluster, run_id: str) -> None:
    page.open(f"/runs/details/{run_id}")
    page.see(icon("train", "RefreshIcon"), "train, running", 600)
    assert page.evaluate(icon("extract", "CheckCircleIcon"))
    assert not page.evaluate(icon("push", "CheckCircleIcon"))
    page.take_picture("running")
    page.see(icon("push", "CheckCircleIcon"), "push, finished", 600)
    assert all(page.evaluate(icon(step, "CheckCircleIcon")) for step in STEPS)
    cluster.wait_for(run_id, "", "succeeded")


@pytest.mark.parametrize("step", ["validate", "evaluate", "push"])
def test_reports_are_opened_in_the_page(page: Page, run_id: str, step: str) -> None:
    open_finished(page, run_id)
    page.click(node(f"artifact.{step}.report"), "the report")
    page.press("Visualization")
    page.read("Static HTML")
    shown = page.see("(document.querySelector('iframe') || {srcdoc: ''}).srcdoc", "the report")
    assert "<html" in shown
    if step == "evaluate":
        page.take_picture("report")


def test_the_page_of_a_refused_corpus_is_opened(page: Page, cluster: Cluster) -> None:
    """The run has failed at extract; validate has succeeded, with its report."""
    runs = answer("runs?page_size=100")["runs"]
    found = (one["run_id"] for one in runs if one["display_name"].startswith("refused-"))
    refused = next(found, "") or cluster.start(**REFUSED)
    cluster.wait_for(refused, "", "failed")
    page.open(f"/runs/details/{refused}")
    page.see(icon("extract", "ErrorIcon"), "extract, failed")
    assert page.evaluate(icon("validate", "CheckCircleIcon"))
    page.click(node("artifact.validate.report"), "the report")
    page.press("Visualization")
    page.read("Static HTML")
    shown = page.see("(document.querySelector('iframe') || {srcdoc: ''}).srcdoc", "the report")
    assert "small_splits" in shown or "too few" in shown, shown[:3000]
    page.take_picture("refused")


def test_the_verdict_is_read_in_markdown(page: Page, run_id: str) -> None:
    open_finished(page, run_id)
    page.click(node("artifact.push.summary"), "the summary")
    page.press("Visualization")
    page.read("Static Markdown")
    read = (
        "(selector) => [...document.querySelectorAll('.markdown-viewer ' + selector)].map(one => one.innerText.trim())"
    )
    (heading,) = page.see(f"(found => found.length && found)(({read})('h1'))", "the verdict")
    assert heading.startswith(("Pushed as version ", "Not pushed"))
    assert page.evaluate(f"({read})('h2')") == ["Metrics", "Checks of the gate"]
    assert "word error rate" in page.evaluate(f"({read})('td')")
    page.take_picture("summary")


def test_metrics_are_shown(page: Page, run_id: str) -> None:
    open_finished(page, run_id)
    page.click(node("artifact.evaluate.metrics"), "metrics")
    page.press("Visualization")
    page.read("wer")
    page.take_picture("metrics")


def test_the_log_of_a_step_is_read(page: Page, run_id: str) -> None:
    open_finished(page, run_id)
    page.click(node("task.train"), "train")
    page.press("Logs")
    page.read("train", 30)
    page.take_picture("logs")


def test_two_runs_are_compared(page: Page, cluster: Cluster, run_id: str) -> None:
    """One by the form, one by `voxline submit`; each has its parameters."""
    ended = [one for one in answer("runs?page_size=100")["runs"] if one["state"] == "SUCCEEDED"]
    submitted = [one for one in ended if one["display_name"].startswith("tiny-")]
    other = next((one["run_id"] for one in submitted if _epochs(one) == 1), "")
    if not other:
        other = cluster.start(push__limits__wer=10)
        cluster.wait_for(other, "", "succeeded")
    page.open(f"/compare?runlist={run_id},{other}")
    page.read("two-epochs")
    label = "[...document.querySelectorAll('td')].find(one => one.title == 'train__epochs')"
    row = f"({label} ? [...{label}.parentElement.cells] : []).map(one => one.innerText.trim())"
    page.see(f"({row}).slice(1).sort().join() == '1,2'", "the epochs of both runs")
    page.read("Scalar Metrics")
    page.read("wer")
    page.take_picture("compared")


def _epochs(run: Any) -> Any:
    return (run.get("runtime_config", {}).get("parameters") or {}).get("train__epochs")

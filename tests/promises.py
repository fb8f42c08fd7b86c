"""Heavy targets say how much they ran, and fail where nothing ran of what their name promises.

`pytest -p tests.promises --promise test-containers` counts the tests that ran and lists why others were skipped. It
fails where every test of a promise was skipped, unless VOXLINE_ALLOW_SKIP=1. `python -m tests.promises TARGET REASON`
does the same for a recipe that cannot start its tests.
"""

import os
import re
import sys
from collections import Counter

import pytest

ALLOW = "VOXLINE_ALLOW_SKIP"
PROMISES: dict[str, dict[str, str]] = {
    "test-accelerator": {"the check itself": r"test_the_command_checks_each_network"},
    "test-browser": {
        "reports in Chromium": r"report/test_browser\.py::test_in_a_browser",
        "the server's page in Chromium": r"serving/test_page\.py::test_in_a_browser",
    },
    "test-buckets": {"fake-gcs-server and versitygw": r"tests/store/|test_registry_in_a_bucket"},
    "test-cluster": {
        "the commands": r"tests/cluster/test_submit",
        "Kubernetes' schemas": r"k8s/test_schemas",
        "Kubernetes' API server (make cluster-server)": r"k8s/test_api_server",
        "Kubeflow Trainer's controllers": r"test_success_is_read_as_success",
    },
    "test-containers": {"the images": r"containers/test_images", "the graph in them": r"containers/test_graph"},
    "test-extras": {"the core": r"test_the_core_transcribes", "extras": r"test_(pipeline|train|client|media)"},
    "test-faults": {"every step": r"tests/faults/"},
    "test-flink": {"a Flink cluster": r"tests/flink/.*on_flink", "Spark": r"tests/flink/.*on_spark"},
    "test-kubeflow": {"a Kubeflow that is given": r"tests/kubeflow/"},
    "test-kubeflow-images": {"the images in pods": r"kubeflow/test_steps"},
    "test-monitoring": {"a Pushgateway": r"test_a_real_pushgateway", "promtool": r"test_the_alerts_fire"},
    "test-parents": {
        "before and after": r"push/test_before",
        "imports": r"test_import_public_model",
        "a whole life": r"test_public_parent_life",
        "drafts": r"test_drafts_of_public_models",
        "exports": r"test_hub_export",
    },
    "test-peers": {"the peers": r"lhotse_and_datasets", "the clients": r"own_client"},
    "test-programs": {
        "sherpa-onnx": r"test_sherpa_onnx_writes",
        "Piper and sherpa-onnx": r"test_piper_and_sherpa_onnx_speak",
        "public networks by sherpa-onnx": r"test_networks_with_ctc_write_our_texts_there",
        "Label Studio": r"feedback/test_label_studio",
        "TensorFlow Serving's TensorFlow": r"test_the_pinned_release",
    },
    "test-tfx": {
        "TFX's data validation": r"tfx/test_data_validation",
        "TensorFlow Model Analysis": r"test_tfma_accepts_what_the_gate_accepts",
        "ML Metadata": r"tfx/test_ml_metadata",
    },
    "test-tracking": {"MLflow": r"test_mlflow_reads", "Weights & Biases": r"test_wandb_keeps"},
    "test-vertex": {"Google's client": r"test_googles_client", "Dataflow's": r"test_dataflows_client"},
    "test-signing": {"OpenSSF's library": r"test_a_signed_version"},
    "test-storages": {"S3": r"s3"},
    "test-xla": {"XLA": r"training/test_xla"},
}
"""By target: what its name promises, and a pattern of the ids of the tests that hold it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--promise", choices=sorted(PROMISES), help="fail where nothing ran of what this target promises")


def pytest_configure(config: pytest.Config) -> None:
    target = config.getoption("--promise")
    if target and not hasattr(config, "workerinput"):  # with several processes the first one gets all reports
        config.pluginmanager.register(Ledger(target), "voxline-promises")


class Ledger:
    """What ran of a target, and what was skipped.

    Args:
      target: of the Makefile.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.ran: set[str] = set()
        self.skipped: dict[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped[report.nodeid] = _reason(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped[report.nodeid] = _reason(report)
        elif report.when == "call" or report.failed:
            self.ran.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = verdict(self.broken())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.ensure_newline()
        terminalreporter.line(f"{self.target}: ran {len(self.ran)} of {len(self.ran | self.skipped.keys())} tests")
        for reason, count in Counter(self.skipped.values()).most_common():
            terminalreporter.line(f"{self.target}: skipped {count}: {reason}")
        for line in complaint(self.target, self.broken()):
            terminalreporter.line(line)

    def broken(self) -> list[str]:
        """The promises of which nothing ran."""
        promises = PROMISES[self.target].items()
        return [name for name, pattern in promises if not any(re.search(pattern, nodeid) for nodeid in self.ran)]


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def verdict(broken: list[str]) -> int:
    """The exit status of a target with these broken promises."""
    return 1 if broken and os.environ.get(ALLOW) != "1" else 0


def complaint(target: str, broken: list[str]) -> list[str]:
    """Lines that say what did not run, and how to allow it."""
    if not broken:
        return []
    end = f"allowed by {ALLOW}=1" if verdict(broken) == 0 else f"so it fails; {ALLOW}=1 allows it"
    return [f"{target}: nothing ran of {', '.join(broken)}: {end}"]


if __name__ == "__main__":
    name, why = sys.argv[1:]
    print(f"{name}: ran nothing: {why}", file=sys.stderr)
    for printed in complaint(name, list(PROMISES[name])):
        print(printed, file=sys.stderr)
    sys.exit(verdict(list(PROMISES[name])))

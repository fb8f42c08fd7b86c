"""The alerts and the dashboard of k8s/components/monitoring: they use metrics that exist, and fire when they should."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from voxline.notify.event import VERDICTS
from voxline.notify.prometheus import GAUGES, RUN_LABELS

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "k8s" / "components" / "monitoring"
RULES = yaml.safe_load((MONITORING / "retraining.yaml").read_text(encoding="utf-8"))["spec"]
DASHBOARD = json.loads((MONITORING / "retraining-dashboard.json").read_text(encoding="utf-8"))
VARIABLES = {"pipeline": "asr", "run": "nightly", "metric": "wer"}


def alerts() -> dict[str, str]:
    return {rule["alert"]: rule["expr"] for group in RULES["groups"] for rule in group["rules"]}


def queries() -> Iterator[tuple[str, str]]:
    """Each query of the dashboard by its panel or variable."""
    for panel in DASHBOARD["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    yield from ((one["name"], one["expr"]) for one in DASHBOARD["annotations"]["list"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


def test_queries_use_gauges_labels_and_verdicts_that_exist() -> None:
    used = dict(queries()) | alerts()
    assert {*alerts()} == {"RetrainingHasNotSucceeded", "RetrainingFailed", "RetrainingRefused", "RejectsJumped"}
    for where, query in used.items():
        names = set(re.findall(r"\bvoxline_\w+", query))
        assert names, where
        assert names <= GAUGES.keys(), where
        known = {*RUN_LABELS, *(label for name in names for label in GAUGES[name][1])}
        for labels in re.findall(r"by \(([^)]*)\)", query):
            assert {label.strip() for label in labels.split(",")} <= known, where
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', query):
            assert label in known, where
            assert label != "verdict" or {*value.split("|")} <= VERDICTS.keys(), where
        for label in re.findall(r"label_values\(.*, (\w+)\)", query):
            assert label in known, where


def test_panels_do_not_overlap_and_variables_are_declared() -> None:
    covered = set[tuple[int, int]]()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & covered, panel["title"]
        assert max(x for x, _ in cells) < 24
        covered |= cells
    declared = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD).replace("$__all", ""))) == declared
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def promtool(folder: Path, *arguments: str) -> str:
    program = os.environ.get("VOXLINE_PROMTOOL") or shutil.which("promtool")
    if not program:
        pytest.skip("no promtool here; `make test-monitoring` gets one")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def write_rules(folder: Path, rules: Any, name: str = "rules.yaml") -> None:
    (folder / name).write_text(yaml.safe_dump(rules, width=10_000), encoding="utf-8")


def test_the_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    write_rules(tmp_path, RULES)
    assert "4 rules found" in promtool(tmp_path, "check", "rules", "rules.yaml")
    shutil.copyfile(Path(__file__).parent / "alerts-test.yaml", tmp_path / "test.yaml")
    assert "SUCCESS" in promtool(tmp_path, "test", "rules", "test.yaml")


def test_prometheus_parses_every_query_of_the_dashboard_and_of_serving(tmp_path: Path) -> None:
    rules = []
    for number, (name, query) in enumerate(queries()):
        if not query.startswith("label_values"):
            for variable, value in VARIABLES.items():
                query = query.replace(f"${variable}", value)
            rules.append({"record": f"panel:{number}", "expr": query, "labels": {"panel": name}})
    assert len(rules) > len(DASHBOARD["panels"])
    write_rules(tmp_path, {"groups": [{"name": "dashboard", "rules": rules}]})
    promtool(tmp_path, "check", "rules", "rules.yaml")
    serving = yaml.safe_load((MONITORING / "serving.yaml").read_text(encoding="utf-8"))["spec"]
    write_rules(tmp_path, serving, "serving.yaml")
    promtool(tmp_path, "check", "rules", "serving.yaml")

"""Convert, extract and publish in a bucket give the same result after a fault at any request."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.buckets.emulator import Storage
from tests.faults.steps import CONVERT, EXTRACT, PUBLISH, STEPS, make_corpus
from voxline.components.convert.step import run as convert
from voxline.components.extract.step import run as extract
from voxline.components.publish.step import run as publish
from voxline.data.manifest import iter_manifest
from voxline.errors import WorkError
from voxline.store.localize import ensure_local, localize
from voxline.store.step_cache import StepOutput

Pod = Callable[[], Path]
FAULTS: dict[str, dict[str, Any]] = {
    "killed": {"kind": "reset", "changes": True, "times": 10_000},
    "answers lost": {"kind": "lost answer"},
    "refused for now": {"kind": "status", "code": 429},
    "denied": {"kind": "status", "code": 403},
}
"""Killed: no change reaches the bucket from there on."""
EVERY = "VOXLINE_TEST_EVERY_CHANGE"
"""If set, a fault hits every request, not every fifth (a kill: not every second), which takes minutes."""


def run(step: str, corpus: Path, base: str) -> StepOutput:
    if step == "convert":
        return convert(corpus / "first", f"{base}/store", CONVERT)
    made = extract(corpus / "few", f"{base}/store", EXTRACT)
    return made if step == "extract" else publish(made.uri, f"{base}/store", f"{base}/datasets", PUBLISH)


def content(step: str, work: StepOutput) -> Any:
    """Everything that another machine reads of an output."""
    folder = localize(work.uri)
    if step == "convert":
        ensure_local(utterance.audio_filepath for utterance in iter_manifest(folder))
    return STEPS[step].content(folder)


def there(gcs: Storage, base: str) -> set[str]:
    """All objects except locks, logs of WAVs, notes of use and reserved numbers."""
    names = {name.removeprefix(f"{base}/") for name in gcs.names() if name.startswith(f"{base}/")}
    names = {name for name in names if not re.search(r"/\.working/|/wavs/log/|/claim\.json$|/used\.json$", name)}
    return {re.sub(r"/[0-9a-f]{12}/", "/attempt/", re.sub(r"corpus/[0-9]+/", "corpus/n/", name)) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("how", FAULTS)
@pytest.mark.parametrize("step", ["extract", "convert", "publish"])
def test_a_fault_at_any_request_does_not_change_the_result(
    step: str, how: str, gcs: Storage, fresh_pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_corpus(tmp_path)
    fresh_pod()
    before = len(gcs.proxy.requests)
    expected = content(step, run(step, tmp_path, f"{gcs.uri}/undisturbed"))
    objects = there(gcs, "undisturbed")
    passed = FAULTS[how].get("changes", False)
    count = sum(not passed or method != "GET" for method, _, _ in gcs.proxy.requests[before:])
    ended_well = tried = 0
    for after in range(0, count, 1 if os.environ.get(EVERY) else 2 if how == "killed" else 5):
        fresh_pod()
        base = f"{how.replace(' ', '-')}-{after}"
        fault = gcs.fails(**FAULTS[how], path="", after=after)
        monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.05" if how == "killed" else "30")
        try:
            run(step, tmp_path, f"{gcs.uri}/{base}")
        except WorkError:
            pass
        else:
            ended_well += 1
        fault.times = 0
        monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "30")
        if tried % 2:
            fresh_pod()  # else the disturbed machine continues
        assert content(step, run(step, tmp_path, f"{gcs.uri}/{base}")) == expected, after
        assert there(gcs, base) == objects, after
        tried += 1
    assert tried > 1
    assert ended_well == tried or how in ("killed", "denied"), "transient faults are retried"

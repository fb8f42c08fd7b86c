"""`voxline check-accelerator` where there is no accelerator: the CPU is compared with itself."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from voxline.errors import SettingsError
from voxline.pipelines.cli.main import main
from voxline.pipelines.config.load import load_config
from voxline.pipelines.local import accelerator_check
from voxline.pipelines.local.accelerator_check import (
    AcceleratorReport,
    CheckOptions,
    TrainingRow,
    VocodingRow,
    run_worker,
)
from voxline.pipelines.local.checked_networks import NETWORKS, config_document, write_corpus
from voxline.pipelines.local.single_step import last_output, run_step

ROW = TrainingRow("whisper", "mixed_float16", 1_000, 50, 2.0, 32.0, 0.01, 10**9, 0.5, 128, (1.0,), 0.02)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_each_network_has_a_config(name: str, small: bool, tmp_path: Path) -> None:
    config = load_config([config_document(name, small, tmp_path)])
    train: Any = config.section("train")
    assert train.model.kind == name
    assert train.batch_size == (8 if small else 16)


def test_a_loss_that_is_too_far_from_the_cpu_s_is_bad() -> None:
    assert (ROW.verdict, ROW.is_bad) == ("ok", False)
    far = dataclasses.replace(ROW, distance=0.06)
    assert (far.verdict, far.is_bad) == ("DIFFERS", True)
    # Half of the digits are expected to differ by more.
    assert dataclasses.replace(ROW, precision="float32").is_bad
    assert not dataclasses.replace(ROW, distance=None).is_bad
    assert dataclasses.replace(ROW, problem="not in time").is_bad


def test_the_tables_have_all_that_was_measured() -> None:
    report = AcceleratorReport(
        ("NVIDIA T4, compute capability 7.5",),
        "a processor, 8 cores, AVX2",
        "Python 3.11, TensorFlow 2.21",
        (ROW, TrainingRow("vits", "float32", problem="XLA cannot compile it")),
        (VocodingRow("vocos", 22_050, 2_205_000.0),),
        ("waveglow",),
    )
    lines = report.markdown().split("\n")
    assert "| Whisper tiny, CTC | 1,000 | mixed_float16 | 2 | 32 | 1% | 1.00 GB | 50% | 128 | 2.00% | ok |" in lines
    assert "| VITS | | float32 | | | | | | | | XLA cannot compile it |" in lines
    assert "| Vocos with discriminators | 2,205,000 | 100 | ok |" in lines
    assert lines[-1].endswith("the time was over: waveglow")
    assert report.is_bad
    for table in (lines[4:8], lines[9:12]):
        assert len({line.count("|") for line in table}) == 1, table


@pytest.mark.slow
def test_a_worker_trains_by_the_steps_of_a_reference(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", small=True)
    document = config_document("whisper", True, tmp_path)
    for step in ("ingest", "convert", "extract"):
        run_step(step, load_config([document]), tmp_path / "run", {})
    request: dict[str, Any] = {
        "task": "train", "network": "whisper", "document": document, "on_cpu": False, "steps": 4, "seconds": 60.0,
        "dataset": last_output(tmp_path / "run", "extract"), "reference": str(tmp_path / "reference.npz"),
        "writes_reference": True,
    }  # fmt: skip

    (first,) = run_worker({**request, "precisions": ["float32"]})
    assert (first["steps"], first["distance"], first["problem"]) == (4, 0.0, "")
    assert first["utterance_rate"] == pytest.approx(8 * first["step_rate"])
    assert first["memory"] > 1e7

    # Another process begins with these weights, and has the losses to compare its own with.
    again, half = run_worker({**request, "precisions": ["float32", "mixed_bfloat16"]})
    assert again["losses"] == first["losses"]
    assert 0 < half["distance"] < 0.05

    # An accelerator without a reference has nothing to compare with.
    alone = {**request, "reference": str(tmp_path / "none.npz"), "writes_reference": False, "steps": 0}
    (uncompared,) = run_worker({**alone, "precisions": ["float32"]})
    assert TrainingRow(**uncompared).verdict == "not compared"
    assert not (tmp_path / "none.npz").exists()

    # A device that computes other losses.
    with np.load(request["reference"]) as arrays:
        spoilt = {**arrays, "losses": arrays["losses"] * [1, 1, 1.02, 1, 1]}
    np.savez(request["reference"], **spoilt)
    (far,) = run_worker({**request, "precisions": ["float32"]})
    assert far["distance"] == pytest.approx(0.02, rel=0.05)
    assert TrainingRow(**far).verdict == "DIFFERS"


@pytest.mark.slow
def test_the_command_checks_each_network_in_processes_of_its_own(capfd: Any) -> None:
    chosen = ["--network", "whisper", "--network", "waveglow", "--precision", "mixed_bfloat16"]
    with pytest.raises(SystemExit) as ended:
        main(["check-accelerator", *chosen, "--size", "small", "--steps", "3", "--json"])
    assert not ended.value.code
    report = json.loads(capfd.readouterr().out)
    (row,) = report["trainings"]
    assert (row["precision"], row["steps"], row["problem"]) == ("mixed_bfloat16", 3, "")
    assert 0 < row["distance"] < 0.05
    (vocoding,) = report["vocodings"]
    assert (vocoding["network"], vocoding["problem"]) == ("waveglow", "")
    assert vocoding["samples"] > 0
    assert report["unchecked"] == []


def test_a_worker_that_breaks_leaves_a_row_and_the_next_precision_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator_check, "run_step", lambda *_: None)
    options = CheckOptions(("whisper",), small=True)
    # Without a dataset no worker gets anywhere.
    monkeypatch.setattr(accelerator_check, "last_output", lambda *_: str(tmp_path / "missing"))
    check = accelerator_check._NetworkCheck("whisper", options, tmp_path, False, 60.0)
    broken = "import sys; sys.exit('out of memory | on the device')"
    monkeypatch.setattr(accelerator_check, "WORKER", ("-c", broken))
    rows = check.train()
    assert [row.precision for row in rows] == list(accelerator_check.PRECISIONS)
    assert {row.problem for row in rows} == {"out of memory / on the device"}

    # Without the CPU's losses the accelerator is not compared with itself.
    beside = accelerator_check._NetworkCheck("whisper", options, tmp_path, True, 60.0)
    (reference, *others) = beside.train()
    assert reference.problem == "the CPU's own training: out of memory / on the device"
    assert [row.precision for row in others] == list(accelerator_check.PRECISIONS)

    # Once the time is over, nothing more starts.
    late = accelerator_check._NetworkCheck("whisper", options, tmp_path, False, -1.0)
    assert [(row.precision, row.problem) for row in late.train()] == [
        (precision, "not in time") for precision in accelerator_check.PRECISIONS
    ]


@pytest.mark.parametrize("option", ["--network", "--precision", "--size"])
def test_what_is_not_known_is_refused_by_name(option: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check-accelerator", option, "alexnet"])
    assert ended.value.code == SettingsError.exit_status

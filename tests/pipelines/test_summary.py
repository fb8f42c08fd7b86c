"""The last lines of a run say what was measured, with the confidence that was asked for."""

import json
from pathlib import Path

from voxline.pipelines.local.run_record import RunRecord, StepRecord
from voxline.pipelines.local.summary import finalize, summary_lines


def test_the_interval_shows_the_configured_confidence(tmp_path: Path) -> None:
    record = RunRecord("asr", "small", tmp_path, {"evaluate": {"confidence": 0.995}}, status="succeeded")
    record.metrics = {"wer": 0.1, "wer_low": 0.05, "wer_high": 0.2, "cer": 0.03}
    assert "word error rate  10.00%  (99.5% interval 5.00% to 20.00%)" in summary_lines(record)


def test_a_public_parent_before_tuning_is_told_with_the_interval_of_the_difference(tmp_path: Path) -> None:
    record = RunRecord("asr", "small", tmp_path, {"evaluate": {"confidence": 0.95}}, status="succeeded")
    record.metrics = {"wer": 0.012, "wer_low": 0.005, "wer_high": 0.02, "before_wer": 0.25}
    record.metrics |= {"before_wer_difference_low": -0.3, "before_wer_difference_high": -0.2}
    told = summary_lines(record)
    assert told[1].startswith("word error rate  1.20%")
    assert told[2] == "  before tuning  25.00%  (95% interval of the difference -30.00 points to -20.00 points)"


def test_warnings_of_validate_are_repeated_at_the_end(tmp_path: Path) -> None:
    checks = [
        {"name": "sentence_overlap", "outcome": "failed", "detail": "68.2% of the utterances of dev and test have …"},
        {"name": "duration", "outcome": "passed", "detail": "all are fine"},
    ]
    (tmp_path / "validation.json").write_text(json.dumps({"checks": checks}))
    record = RunRecord("asr", "small", tmp_path, {"store": str(tmp_path)}, status="succeeded")
    outputs = {"validation": str(tmp_path / "validation.json")}
    record.steps = [StepRecord("validate", "succeeded", folder=str(tmp_path), outputs=outputs)]
    finalize(record)
    warning = "sentence_overlap: 68.2% of the utterances of dev and test have …"
    assert record.warnings == [warning]
    assert f"warning          {warning}" in summary_lines(record)


def test_the_tts_summary_names_metrics_that_were_not_measured(tmp_path: Path) -> None:
    record = RunRecord("tts", "small", tmp_path, {"evaluate": {"confidence": 0.95}}, status="succeeded")
    record.metrics = {"attention_diagonality": 0.97, "mel_l1": 0.31, "rtf": 0.02, "hit_limit": 0.0}
    assert "round-trip WER   not measured: set evaluate.round_trip_recognizer" in summary_lines(record)
    record.metrics |= {"round_trip_wer": 0.03, "round_trip_wer_low": 0.01, "round_trip_wer_high": 0.06}
    told = summary_lines(record)
    assert "round-trip WER   3.00%  (95% interval 1.00% to 6.00%)" in told
    assert "diagonality      97.00%" in told

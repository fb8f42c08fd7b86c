"""The last lines of a run say what was measured, with the confidence that was asked for."""

from pathlib import Path

from voxline.pipelines.local.run_record import RunRecord
from voxline.pipelines.local.summary import summary_lines


def test_the_interval_shows_the_configured_confidence(tmp_path: Path) -> None:
    record = RunRecord("asr", "small", tmp_path, {"evaluate": {"confidence": 0.995}}, status="succeeded")
    record.metrics = {"wer": 0.1, "wer_low": 0.05, "wer_high": 0.2, "cer": 0.03}
    assert "word error rate  10.00%  (99.5% interval 5.00% to 20.00%)" in summary_lines(record)


def test_the_tts_summary_names_metrics_that_were_not_measured(tmp_path: Path) -> None:
    record = RunRecord("tts", "small", tmp_path, {"evaluate": {"confidence": 0.95}}, status="succeeded")
    record.metrics = {"attention_diagonality": 0.97, "mel_l1": 0.31, "rtf": 0.02, "hit_limit": 0.0}
    assert "round-trip WER   not measured: set evaluate.round_trip_recognizer" in summary_lines(record)
    record.metrics |= {"round_trip_wer": 0.03, "round_trip_wer_low": 0.01, "round_trip_wer_high": 0.06}
    told = summary_lines(record)
    assert "round-trip WER   3.00%  (95% interval 1.00% to 6.00%)" in told
    assert "diagonality      97.00%" in told

"""The last lines of a run say what was measured, with the confidence that was asked for."""

from pathlib import Path

from pipelines.outcome import summary
from pipelines.record import RunRecord


def test_the_interval_is_called_what_the_config_made_it(tmp_path: Path) -> None:
    record = RunRecord("asr", "small", tmp_path, {"evaluate": {"confidence": 0.995}}, status="succeeded")
    record.metrics = {"wer": 0.1, "wer_low": 0.05, "wer_high": 0.2, "cer": 0.03}
    assert "word error rate  10.00%  (99.5% interval 5.00% to 20.00%)" in summary(record)

"""validate as KFP calls it: both pages lie where the UI reads them, whether TFX's data validation ran or not."""

from pathlib import Path

from kfp import dsl

from tests.validate.takes import fit, written
from voxline.components.validate.component import validate


def test_both_pages_are_published(tmp_path: Path) -> None:
    wavs = dsl.Dataset(uri=str(written(tmp_path / "corpus", fit())))
    made = dsl.Dataset(name="validation", uri=str(tmp_path / "validation"))
    report, page = (dsl.HTML(name=name, uri=str(tmp_path / name)) for name in ("report", "statistics_page"))
    validate.python_func(
        wavs=wavs,
        validation=made,
        report=report,
        statistics_page=page,
        store=str(tmp_path / "store"),
        registry=str(tmp_path / "registry"),
        model_name="asr",
        settings='{"small_splits": {"severity": "off"}, "tfdv": "off"}',
    )
    assert "Is this corpus fit to train on?" in Path(report.path).read_text()
    assert "validate.tfdv is off" in Path(page.path).read_text()
    assert Path(made.uri, made.metadata["outputs"]["statistics_page"]).read_text() == Path(page.path).read_text()

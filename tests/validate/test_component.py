"""validate as KFP calls it: both pages lie where the UI reads them, whether TFX's data validation ran or not."""

import os
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl

from tests.validate.takes import fit, written
from voxline.components.extract.component import extract
from voxline.components.validate.component import validate
from voxline.errors import RefusedInputError, WorkError
from voxline.store.artifacts import REFUSE_LATER_ENV


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


def test_a_refused_corpus_keeps_its_pages_on_a_cluster_and_stops_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KFP registers no artifact of a task that failed, so there the next task fails."""
    wavs = dsl.Dataset(uri=str(written(tmp_path / "corpus", fit())))
    made = dsl.Dataset(name="validation", uri="minio://mlpipeline/v2/validation")
    made.custom_path = str(tmp_path / "minio" / "validation")
    pages = {name: dsl.HTML(name=name, uri=str(tmp_path / name)) for name in ("report", "statistics_page")}
    given: dict[str, Any] = {"wavs": wavs, "store": str(tmp_path / "store")}
    strict = '{"small_splits": {"severity": "error"}, "tfdv": "off"}'
    with pytest.raises(RefusedInputError, match=r"^validate: small_splits is ") as refused:
        validate.python_func(**given, validation=made, **pages, settings=strict)
    assert not Path(pages["report"].path).exists()

    monkeypatch.setenv(REFUSE_LATER_ENV, "1")
    validate.python_func(**given, validation=made, **pages, settings=strict)
    assert "small_splits" in Path(pages["report"].path).read_text()
    assert made.metadata["refusal"] == str(refused.value)
    assert not list((tmp_path / "store").glob("validate/*/done.json")), "the next run must validate again"
    dataset = dsl.Dataset(name="dataset", uri=str(tmp_path / "dataset"))
    with pytest.raises(WorkError, match=r"^validate: small_splits is "):
        extract.python_func(**given, validation=made, dataset=dataset)
    assert not os.path.exists(tmp_path / "store" / "extract")

    fine = '{"small_splits": {"severity": "off"}, "tfdv": "off"}'
    accepted = dsl.Dataset(name="validation", uri=str(tmp_path / "validation"))
    validate.python_func(**given, validation=accepted, **pages, settings=fine)
    assert "refusal" not in accepted.metadata

"""Publishes the current content of a corpus as a version of a dataset, without training."""

from voxline.components.convert.component import convert
from voxline.components.extract.component import extract
from voxline.components.ingest.component import ingest
from voxline.components.publish.component import publish
from voxline.components.validate.component import validate
from voxline.pipelines.config.pipeline_configs import RefreshConfig
from voxline.pipelines.kfp_graph import build_pipeline

refresh = build_pipeline(
    RefreshConfig,
    "Publishes the current content of a corpus as a version of a dataset, without training.",
    ingest,
    convert,
    validate,
    extract,
    publish,
)

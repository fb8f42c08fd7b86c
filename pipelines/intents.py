"""Trains a classifier of the intents of transcripts, and puts it into service if it passes the gate."""

from voxline.components.convert.component import convert
from voxline.components.evaluate.intents.component import evaluate
from voxline.components.extract.component import extract
from voxline.components.forecast.component import forecast
from voxline.components.ingest.component import ingest
from voxline.components.push.intents.component import push
from voxline.components.train.intents.component import train
from voxline.components.validate.component import validate
from voxline.pipelines.config.pipeline_configs import IntentsConfig
from voxline.pipelines.kfp_graph import build_pipeline

intents = build_pipeline(
    IntentsConfig,
    "Trains a classifier of the intents of transcripts, and puts it into service if it passes the gate.",
    ingest,
    convert,
    validate,
    extract,
    forecast,
    train,
    evaluate,
    push,
)

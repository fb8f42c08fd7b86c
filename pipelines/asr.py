"""Trains a speech recognizer from a corpus, and puts it into service if it passes the gate."""

from voxline.components.convert.component import convert
from voxline.components.evaluate.asr.component import evaluate
from voxline.components.extract.component import extract
from voxline.components.forecast.component import forecast
from voxline.components.ingest.component import ingest
from voxline.components.language.component import language
from voxline.components.push.asr.component import push
from voxline.components.train.asr.component import train
from voxline.components.validate.component import validate
from voxline.pipelines.config.pipeline_configs import AsrConfig
from voxline.pipelines.kfp_graph import build_pipeline

asr = build_pipeline(
    AsrConfig,
    "Trains a speech recognizer from a corpus, and puts it into service if it passes the gate.",
    ingest,
    convert,
    validate,
    extract,
    forecast,
    train,
    language,
    evaluate,
    push,
)

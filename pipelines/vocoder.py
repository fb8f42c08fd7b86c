"""Trains a vocoder on the dataset of a voice, and puts it into service if it passes the gate."""

from voxline.components.convert.component import convert
from voxline.components.evaluate.vocoder.component import evaluate
from voxline.components.extract.component import extract
from voxline.components.forecast.component import forecast
from voxline.components.ingest.component import ingest
from voxline.components.push.vocoder.component import push
from voxline.components.train.vocoder.component import train
from voxline.components.validate.component import validate
from voxline.pipelines.config.pipeline_configs import VocoderConfig
from voxline.pipelines.kfp_graph import build_pipeline

vocoder = build_pipeline(
    VocoderConfig,
    "Trains a vocoder on the dataset of a voice, and puts it into service if it passes the gate.",
    ingest,
    convert,
    validate,
    extract,
    forecast,
    train,
    evaluate,
    push,
)

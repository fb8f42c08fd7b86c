"""Trains a TTS model from one speaker's corpus, and puts it into service if it passes the gate."""

from voxline.components.convert.component import convert
from voxline.components.evaluate.tts.component import evaluate
from voxline.components.extract.component import extract
from voxline.components.forecast.component import forecast
from voxline.components.ingest.component import ingest
from voxline.components.push.tts.component import push
from voxline.components.train.tts.component import train
from voxline.components.validate.component import validate
from voxline.pipelines.config.pipeline_configs import TtsConfig
from voxline.pipelines.kfp_graph import build_pipeline

tts = build_pipeline(
    TtsConfig,
    "Trains a TTS model from one speaker's corpus, and puts it into service if it passes the gate.",
    ingest,
    convert,
    validate,
    extract,
    forecast,
    train,
    evaluate,
    push,
)

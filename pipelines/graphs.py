"""The graph of each pipeline, as KFP pipelines.

    asr, tts, vocoder, intents
        ingest > convert > validate > extract > [forecast] > train > [language] > evaluate > push
    refresh
        ingest > convert > validate > extract > publish

A step in brackets is there if the config turns it on; `graph.py` says whose output each step takes. `language` belongs
to asr alone.
"""

import functools
from collections.abc import Collection
from typing import Any

from voxline.components.convert.component import convert
from voxline.components.evaluate.component import evaluate_component
from voxline.components.extract.component import extract
from voxline.components.forecast.component import forecast
from voxline.components.ingest.component import ingest
from voxline.components.language.component import language
from voxline.components.publish.component import publish
from voxline.components.push.component import push_component
from voxline.components.train.component import train_component
from voxline.components.validate.component import validate
from voxline.pipelines.config.pipeline_configs import CONFIG_CLASSES
from voxline.pipelines.graph import steps_until
from voxline.pipelines.kfp_graph import build_pipeline

DESCRIPTIONS = {
    "asr": "Trains a speech recognizer from a corpus, and puts it into service if it passes the gate.",
    "tts": "Trains a TTS model from one speaker's corpus, and puts it into service if it passes the gate.",
    "vocoder": "Trains a vocoder on the dataset of a voice, and puts it into service if it passes the gate.",
    "intents": "Trains a classifier of the intents of transcripts, and puts it into service if it passes the gate.",
    "refresh": "Publishes the current content of a corpus as a version of a dataset, without training.",
}

DATASET = (ingest, convert, validate, extract)


@functools.cache
def build_graph(pipeline: str) -> Any:
    """The KFP pipeline of a name."""
    if pipeline == "refresh":
        steps = (*DATASET, publish)
    else:
        steps = (
            *DATASET,
            forecast,
            train_component(pipeline),
            *((language,) if pipeline == "asr" else ()),
            evaluate_component(pipeline),
            push_component(pipeline),
        )
    return build_pipeline(CONFIG_CLASSES[pipeline], DESCRIPTIONS[pipeline], *steps)


def load_pipeline(name: str, until: str = "", optional: Collection[str] = ()) -> Any:
    """The KFP pipeline of `voxline.pipelines.graphs`.

    Args:
      until: its last step; empty: the whole graph.
      optional: steps of `OPTIONAL_STEPS` that it has.
    """
    return build_graph(name).until(steps_until(name, until, optional))

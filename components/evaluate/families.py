"""The model families that evaluate knows."""

from voxline.components.evaluate.asr.family import AsrEvaluateFamily
from voxline.components.evaluate.family import EvaluateFamily
from voxline.components.evaluate.intents.family import IntentsEvaluateFamily
from voxline.components.evaluate.tts.family import TtsEvaluateFamily
from voxline.components.evaluate.vocoder.family import VocoderEvaluateFamily

FAMILIES: dict[str, EvaluateFamily] = {
    "asr": AsrEvaluateFamily(),
    "tts": TtsEvaluateFamily(),
    "vocoder": VocoderEvaluateFamily(),
    "intents": IntentsEvaluateFamily(),
}

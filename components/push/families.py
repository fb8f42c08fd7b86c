"""The model families that push knows."""

from voxline.components.push.asr.family import AsrPushFamily
from voxline.components.push.family import PushFamily
from voxline.components.push.intents.family import IntentsPushFamily
from voxline.components.push.tts.family import TtsPushFamily
from voxline.components.push.vocoder.family import VocoderPushFamily

FAMILIES: dict[str, PushFamily] = {
    "asr": AsrPushFamily(),
    "tts": TtsPushFamily(),
    "vocoder": VocoderPushFamily(),
    "intents": IntentsPushFamily(),
}

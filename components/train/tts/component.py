"""train for tts as a KFP component."""

from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import family_component
from voxline.components.train import component as step
from voxline.components.train.tts.settings import TtsTrainSettings

train = family_component(
    step.train,
    TtsTrainSettings,
    MODEL_IMAGE,
    module=__name__,
    first_line="Trains a TTS model and exports it.",
)

"""train for vocoder as a KFP component."""

from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import family_component
from voxline.components.train import component as step
from voxline.components.train.vocoder.settings import VocoderTrainSettings

train = family_component(
    step.train,
    VocoderTrainSettings,
    MODEL_IMAGE,
    module=__name__,
    first_line="Trains a vocoder and exports it.",
)

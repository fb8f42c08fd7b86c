"""train for asr as a KFP component."""

from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import family_component
from voxline.components.train import component as step
from voxline.components.train.asr.settings import AsrTrainSettings

train = family_component(
    step.train,
    AsrTrainSettings,
    MODEL_IMAGE,
    module=__name__,
    first_line="Trains a speech recognizer and exports it.",
)

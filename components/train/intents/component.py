"""train for intents as a KFP component."""

from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import family_component
from voxline.components.train import component as step
from voxline.components.train.intents.settings import IntentsTrainSettings

train = family_component(
    step.train,
    IntentsTrainSettings,
    MODEL_IMAGE,
    module=__name__,
    first_line="Trains a classifier of the intents of texts and exports it.",
    dataset="the output of extract; its texts are read, not its features.",
    registry="folder or bucket URI of the model registry.",
)

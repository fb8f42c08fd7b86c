"""evaluate for intents as a KFP component."""

from voxline.components.evaluate import component as step
from voxline.components.evaluate.settings import IntentsEvaluateSettings
from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import family_component

evaluate = family_component(
    step.evaluate,
    IntentsEvaluateSettings,
    MODEL_IMAGE,
    module=__name__,
    first_line="Classifies the texts of the test split, and what a recognizer hears, "
    "and compares with the model in service.",
    metrics="intent error rates, to compare runs.",
    report="error rates by slice, confusions, the worst utterances.",
)

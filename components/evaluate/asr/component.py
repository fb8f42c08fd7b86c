"""evaluate for asr as a KFP component."""

from voxline.components.evaluate import component as step
from voxline.components.evaluate.settings import AsrEvaluateSettings
from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import family_component

evaluate = family_component(
    step.evaluate,
    AsrEvaluateSettings,
    MODEL_IMAGE,
    module=__name__,
    first_line="Transcribes the test split with the exported model, and compares it with the model in service.",
    metrics="error rates, to compare runs.",
    report="plots, slices, and the worst utterances to listen to.",
)

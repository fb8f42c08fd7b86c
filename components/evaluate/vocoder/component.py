"""evaluate for vocoder as a KFP component."""

from voxline.components.evaluate import component as step
from voxline.components.evaluate.settings import VocoderEvaluateSettings
from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import family_component

evaluate = family_component(
    step.evaluate,
    VocoderEvaluateSettings,
    MODEL_IMAGE,
    module=__name__,
    first_line="Vocodes the mels of the test split with the exported model, and compares it with the model in service.",
    metrics="distances and error rates, to compare runs.",
    report="speech as recorded, by Griffin-Lim and by the model, with spectrograms.",
)

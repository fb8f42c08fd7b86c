"""evaluate for tts as a KFP component."""

from voxline.components.evaluate import component as step
from voxline.components.evaluate.settings import TtsEvaluateSettings
from voxline.components.images import MODEL_IMAGE
from voxline.components.step_component import family_component

evaluate = family_component(
    step.evaluate,
    TtsEvaluateSettings,
    MODEL_IMAGE,
    module=__name__,
    first_line="Synthesizes the test split with the exported model, and compares it with the model in service.",
    metrics="distances and error rates, to compare runs.",
    report="recorded and synthesized speech side by side, spectrograms, alignments.",
)

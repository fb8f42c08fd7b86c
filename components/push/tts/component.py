"""push for tts as a KFP component."""

from voxline.components.images import MODEL_IMAGE
from voxline.components.push import component as step
from voxline.components.push.settings import TtsPushSettings
from voxline.components.step_component import family_component

push = family_component(step.push, TtsPushSettings, MODEL_IMAGE, module=__name__)

"""Public voices: what a Piper voice or a model of the Hub says about itself, as a `Parent` whose weights are not read.

open_public_voice("hf://facebook/mms-tts-ron@COMMIT")
open_public_voice("voices/en_US-joe-medium.onnx")
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.families.tts.vits.hub import (
    MODEL_TYPE,
    has_posterior,
    hub_letters,
    hub_settings,
    read_hub_posterior,
    read_hub_weights,
)
from voxline.families.tts.vits.piper import is_piper_voice, open_piper_voice
from voxline.families.tts.vits.settings import VitsSettings
from voxline.families.tts.vits.weights import POSTERIOR, Array
from voxline.inference.model_info import DatasetInfo, ModelInfo, Normalization, Provenance
from voxline.registry.hub import CONFIG_FILE, HubModel, is_hub_location, open_hub_model
from voxline.registry.parents import Ancestor, Parent
from voxline.text.settings import FrontendSettings

SETTING = "train.start.model"
MAX_SECONDS = 60
"""Speech after which an exported voice is cut off."""
WINDOW = 4
"""Windows of the mels by which a voice is compared with recordings: so many hops."""


def is_public_voice(location: str) -> bool:
    """Returns whether a public model is a voice: a Piper voice, or one of the Hub whose config.json says so.

    Raises:
      SettingsError, TransientError, WorkError: as `open_hub_model`.
    """
    if is_piper_voice(location):
        return True
    if not is_hub_location(location):
        return False
    return open_hub_model(location, SETTING, weights=False).config.get("model_type") == MODEL_TYPE


def open_public_voice(location: str, speaker: int = 0) -> Parent:
    """Opens a public voice as a parent; its weights are not read yet.

    Args:
      speaker: who speaks where none is asked for, of several.

    Raises:
      SettingsError: the model is no VITS, reads what is not known here, or does not exist.
      TransientError: the Hub cannot be reached.
      WorkError: a file is damaged.
    """
    if is_piper_voice(location):
        piper = open_piper_voice(Path(location), speaker)
        frontend = FrontendSettings(kind="phonemes", language=piper.language)
        return _parent(
            Ancestor(piper.name, None, piper.digest(), "", "", piper.licence),
            location, piper.file.parent, piper.settings, piper.symbols, piper.sample_rate, frontend, piper.read_weights,
            piper.speakers,
        )  # fmt: skip

    model = open_hub_model(location, SETTING, weights=True)
    if model.config.get("model_type") != MODEL_TYPE:
        raise SettingsError(
            f"{SETTING}: {model.label} is of the network {model.config.get('model_type')!r} ({CONFIG_FILE}, "
            f"model_type); {MODEL_TYPE} is accepted, and Piper's voices (.onnx)"
        )
    settings = hub_settings(model, speaker)
    letters, rows = hub_letters(model)
    return _parent(
        Ancestor(model.name, None, model.digest(), "", model.revision, model.licence),
        location, model.folder, settings, "".join(letters), int(model.config.get("sampling_rate", 16_000)),
        FrontendSettings(kind="transcript"), functools.partial(_read_hub, model, settings, rows),
        [str(row) for row in range(settings.speakers)],
    )  # fmt: skip


def _read_hub(model: HubModel, settings: VitsSettings, rows: list[int]) -> dict[str, Array]:
    """The voice's weights, and those of its posterior under `POSTERIOR`, if the file has them."""
    weights = read_hub_weights(model, settings, rows)
    if has_posterior(model):
        weights |= {f"{POSTERIOR}/{name}": value for name, value in read_hub_posterior(model, settings).items()}
    return weights


def _parent(
    ancestor: Ancestor,
    location: str,
    folder: Path,
    settings: VitsSettings,
    symbols: str,
    sample_rate: int,
    frontend: FrontendSettings,
    read_weights: "Callable[[], dict[str, Array]]",
    speakers: list[str],
) -> Parent:
    hop = settings.hop / sample_rate
    features = FeatureSettings.of(
        {"sample_rate": sample_rate, "hop_seconds": hop, "window_seconds": WINDOW * hop}, ancestor.name
    )
    own: dict[str, Any] = {
        "max_steps": round(MAX_SECONDS / hop), "reduction": 1, "frontend": frontend.plain(), "speakers": speakers,
    }  # fmt: skip
    info = ModelInfo(
        name=ancestor.name,
        family="tts",
        kind=settings.kind,
        alphabet=symbols,
        sample_rate=sample_rate,
        features=features.plain(),
        settings={"model": settings.plain()},
        dataset=DatasetInfo(),
        provenance=Provenance(),
        normalization=Normalization(mean=[0.0] * features.bins, deviation=[1.0] * features.bins),
        **own,
    )
    return Parent(ancestor, info, None, location, folder, read_weights)

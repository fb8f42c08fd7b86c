"""The export step: a trained model in, the same weights in the form that the config asks for out.

train writes a model in its plain form, under a key without the settings of `TrainSettings.export_form`. Another ONNX
graph, another vocoder or another denoiser costs this step, and no training.
"""

import os
import shutil
from pathlib import Path

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.families.family import find_family
from voxline.inference.model_info import ModelInfo
from voxline.inference.saved_model import (
    CURVES_FILE,
    TRAINING_FOLDERS,
    exported_folder,
    find_curves,
    model_digest,
    read_model_info,
    require_family,
)
from voxline.inference.tensorflow_import import hidden_packages, start_tensorflow
from voxline.progress import print_status
from voxline.store.files import atomic_folder, link_or_copy_tree
from voxline.store.step_cache import StepOutput, cached_step, local_inputs
from voxline.training.settings import TrainSettings

REVISION = 2


@local_inputs("model", without=TRAINING_FOLDERS)
def run(model: Path | str, store: Path | str, settings: TrainSettings, registry: Path | str = "") -> StepOutput:
    """Writes a trained model in another form.

    Args:
      model: train's folder, or an exported model.
      settings: of the training; `export_form` has those that count.
      registry: folder or bucket URI of the registry in which `train.export.vocoder` is found.

    Returns:
      StepOutput with the output `model`.

    Raises:
      SettingsError: the network has no such form, or a model to ship does not exist or does not fit.
      WorkError: the model is damaged, or of another family.
    """
    folder = exported_folder(Path(model))
    info = read_model_info(folder)
    require_family(info, settings.family, folder)
    _refuse_another_network(info, settings, folder)

    # A model that is shipped is in the key by its digest: what its name stands for may change.
    family = find_family(settings.family)
    form = settings.export_form()
    companions = family.companions(settings, registry, FeatureSettings.of(info.features, str(folder)))
    inputs = {"model": model_digest(folder), **{companion.name: companion.digest for companion in companions}}

    with cached_step(store, "export", form, inputs, revision=REVISION) as work:
        if not work.reused:
            target = work.folder / "model"
            if form.key_values():
                os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
                with hidden_packages("sklearn", "matplotlib"):
                    start_tensorflow()
                family.export_again(folder, form, target)
            else:
                with atomic_folder(target) as unfinished:
                    link_or_copy_tree(folder, unfinished)
            for companion in companions:
                companion.write(target)

            # Later steps get this folder in place of train's, and evaluate shows the curves.
            work.outputs["model"] = "model"
            if curves := find_curves(Path(model)):
                shutil.copyfile(curves, work.folder / CURVES_FILE)

            chosen = [f"{key} {value}" for key, _, value in form.changed_from({})]
            print_status(f"export: {', '.join([*chosen, *(f'with {companion.label}' for companion in companions)])}")
    return work


def _refuse_another_network(info: ModelInfo, settings: TrainSettings, folder: Path) -> None:
    """Refuses a model of another network than the config has, whose form would be of other settings."""
    own = settings.plain().get("model", {}).get("kind", "")
    there = info.model_settings.get("kind", "")
    if own and there and own != there:
        raise SettingsError(f"{folder}: a model of the kind {there!r}, and train.model.kind is {own!r}; set the same")

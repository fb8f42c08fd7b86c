"""The public model that a training starts from, exported as it comes; one that is exported already is copied.

train writes it into the store, once for all trainings that start from it, and evaluate measures it beside each.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError, TransientError, WorkError
from voxline.families.family import find_family
from voxline.inference.model_info import ModelInfo
from voxline.inference.saved_model import model_files
from voxline.registry.hub import is_release
from voxline.registry.parents import SETTING, Ancestor, Parent, find_other_model
from voxline.settings import Settings
from voxline.store.step_cache import StepOutput, cached_step

STEP = "parent"
MODEL = "model"
REVISION = 1


def export_untouched_parent(
    family: str,
    ancestor: Ancestor,
    store: Path | str,
    settings: Mapping[str, Any],
    open_parent: Callable[[], Parent],
) -> StepOutput:
    """Exports a public model into the store, unless it is there; copies one of ours that no registry has.

    Args:
      settings: of the training that starts from it, as JSON values.
      open_parent: opens it, if it must be exported.

    Returns:
      StepOutput with the output `model`; without one if the model cannot work alone (`Family.export_published`).

    Raises:
      WorkError: its weights are damaged, or it cannot be opened.
    """
    form = find_family(family).published_form(settings)
    inputs = {"family": family, "parent": ancestor.digest, **({"form": form} if form else {})}
    with cached_step(store, STEP, Settings(), inputs, revision=REVISION) as work:
        if not work.reused and _write_parent(family, open_parent(), work.folder / MODEL, form):
            work.outputs[MODEL] = MODEL
    return work


def _write_parent(family: str, parent: Parent, folder: Path, form: Mapping[str, Any]) -> bool:
    if parent.read_weights:
        return find_family(family).export_published(parent, folder, form)
    # Files of the Hub's cache are links, and a store keeps bytes.
    exported = parent.load_folder()
    for file in model_files(exported):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(exported / file, folder / file)
    return True


def find_untouched_parent(info: ModelInfo, ancestor: Ancestor, store: Path | str) -> StepOutput:
    """The parent of a model as it came, which train has exported; exported again if the store lost it.

    Args:
      info: `model.json` of the model.
      ancestor: the first of its ancestors, which is in no registry.

    Raises:
      WorkError: it is not in the store, and not where the training has found it.
      TransientError: the Hub cannot be reached.
    """

    def open_again() -> Parent:
        location = str(info.settings.get("start", {}).get("model", ""))
        try:
            parent = _open_parent(info.family, location)
        except TransientError:
            raise
        except (SettingsError, WorkError) as error:
            raise WorkError(f"{ancestor.label} is not in {store}, and cannot be opened again: {error}") from None
        if parent is None or parent.ancestor.digest != ancestor.digest:
            there = f"{location!r} is another model today" if location else "where it came from is not known"
            raise WorkError(f"{ancestor.label} is not in {store}, and {there}")
        return parent

    return export_untouched_parent(info.family, ancestor, store, info.settings, open_again)


def _open_parent(family: str, location: str) -> Parent | None:
    """The parent that a location names; None if it names nothing."""
    # An exported model of ours, on the Hub or in a folder, is in no registry either.
    published = None if is_release(location, SETTING) else find_family(family).public_parent(location)
    return published or (find_other_model(location, "", family=family, setting=SETTING) if location else None)

"""The public model that a training starts from, exported as it comes.

train writes it into the store, once for all trainings that start from it, and evaluate measures it beside each.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError, TransientError, WorkError
from voxline.families.family import find_family
from voxline.inference.model_info import ModelInfo
from voxline.registry.parents import Ancestor, Parent
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
    """Exports a public model into the store, unless it is there.

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
        if not work.reused and find_family(family).export_published(open_parent(), work.folder / MODEL, form):
            work.outputs[MODEL] = MODEL
    return work


def find_untouched_parent(info: ModelInfo, ancestor: Ancestor, store: Path | str) -> StepOutput:
    """The public model that a model started from, which train has exported; exported again if the store lost it.

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
            parent = find_family(info.family).public_parent(location)
        except TransientError:
            raise
        except (SettingsError, WorkError) as error:
            raise WorkError(f"{ancestor.label} is not in {store}, and cannot be opened again: {error}") from None
        if parent is None or parent.ancestor.digest != ancestor.digest:
            there = f"{location!r} is another model today" if location else "where it came from is not known"
            raise WorkError(f"{ancestor.label} is not in {store}, and {there}")
        return parent

    return export_untouched_parent(info.family, ancestor, store, info.settings, open_again)

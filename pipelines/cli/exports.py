"""Exports a model again in another form, from any version of a registry: nothing is trained, and the gate may judge."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.families.family import find_family
from voxline.inference.model_info import ModelInfo
from voxline.inference.saved_model import read_model_info
from voxline.inference.synthesizer import MAKES_SAMPLES
from voxline.pipelines.cli.public_models import judge_model
from voxline.pipelines.config.keys import Values, set_key
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.training_config import TrainingRunConfig
from voxline.pipelines.console import verdict_lines
from voxline.registry.hub import HUB_SCHEME
from voxline.registry.models import find_model, registry_of
from voxline.registry.registry import Registry
from voxline.store.files import new_folder
from voxline.store.scratch import scratch_root
from voxline.training.settings import TrainSettings

_KEPT = ("model", "export", "griffin_lim")
"""Sections of train with settings of the form, and those of the network that it is of."""


def export_in_form(
    model: str,
    changes: Mapping[str, Any],
    *,
    output: Path | None = None,
    test: str = "",
    store: str = "",
    config: Sequence[Path] = (),
) -> tuple[list[str], bool]:
    """Exports a model again with other settings of its form; all others stay as the model has them.

    Args:
      model: as `find_model` takes it.
      changes: key of the config's section `train` → its value, such as {"export.onnx": "int8"}.
      output: a folder that does not exist yet; None: the gate judges the model, and its registry gets it.
      test: manifest whose test split judges it.
      store: keeps the evaluation; empty: nothing but the registry does.
      config: files of the model's runs, which say how it is measured and judged; none: by default settings.

    Returns:
      Lines for a person, and whether the model is where it was to go.

    Raises:
      SettingsError: the network has no such form, or a setting is not accepted.
      WorkError: the model does not exist, or is damaged.
    """
    # The registry that the model comes from gets its new form, and has the vocoder that a voice is to ship with.
    on_hub = model.startswith(HUB_SCHEME)
    if on_hub and output is None:
        raise SettingsError(f"{model}: no registry has it; give -o FOLDER, or import it first (voxline models import)")
    registry, name = ("", "") if on_hub else registry_of(model)
    if output is None and not Registry(registry, name).versions():
        raise SettingsError(
            f"{model}: it is no version of a registry; give <registry>/<model> or <registry>/<model>@<version>, or -o"
        )
    # Its bytes are those that were published, or it is refused.
    folder = find_model(model)
    info = read_model_info(folder)
    if info.kind in MAKES_SAMPLES:
        raise SettingsError(
            f"{model}: a {info.kind} has one form beside Piper's (--to piper); import the public voice again, with "
            "--onnx"
        )
    family = find_family(info.family)
    settings = _settings_of(info, changes)
    judged_by = load_config(config, pipeline=info.family) if config else None
    companions = family.companions(settings, registry, FeatureSettings.of(info.features, str(folder)))

    if not companions and settings.export_form() == _settings_of(info, {}).export_form():
        raise SettingsError(f"{model}: it has this form already; name another one")

    # Nothing has a name in the registry or a folder before it was loaded, and judged.
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        exported = Path(scratch) / "model"
        family.export_again(folder, settings.export_form(), exported)
        for companion in companions:
            companion.write(exported)
        family.load_model(exported)  # what cannot be loaded goes nowhere

        if output is not None:
            with new_folder(output, "-o") as unfinished:
                shutil.copytree(exported, unfinished, dirs_exist_ok=True)
            size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
            return [f"{output} ({size:,} bytes); it was not judged: --test in place of -o lets the gate decide"], True

        kept_in = store or f"{scratch}/store"
        judge = cast(TrainingRunConfig | None, judged_by)  # the pipelines of families are of this class
        verdict = judge_model(family, exported, test, registry, kept_in, name, judge)
    return verdict_lines(f"{name}: {verdict['heading']}"), bool(verdict["version"])


def _settings_of(info: ModelInfo, changes: Mapping[str, Any]) -> TrainSettings:
    """The settings of a model's network and of its form, with changes; no others, which an earlier release may have."""
    values: Values = {key: dict(info.settings[key]) for key in _KEPT if key in info.settings}
    values.get("export", {}).pop("vocoder", None)  # it stays in the model, unless another one is named
    if start := info.settings.get("start", {}).get("model"):
        values["start"] = {"model": start}
    for key, value in changes.items():
        set_key(values, key, value)
    settings: TrainSettings = find_family(info.family).train_settings.of(values, "train")
    return settings

"""Voxline retrains speech models: recordings in, a model that is measurably no worse out.

In a notebook (guide: docs/library.md; every name is imported when it is first used):

  recognizer = voxline.load_recognizer("runs/demo/registry/asr")
  recognizer.transcribe("recording.flac")

`voxline.components` are the steps, `voxline.pipelines` the graphs and the command.
"""

TYPE_CHECKING = False  # as typing has it, without importing typing
if TYPE_CHECKING:
    from typing import Any

    from voxline.api import (
        cer,
        from_pretrained,
        load_model,
        load_recognizer,
        load_synthesizer,
        open_dataset,
        push_to_hub,
        run,
        wer,
    )
    from voxline.audio.decoding import load_audio
    from voxline.audio.feature_settings import FeatureSettings
    from voxline.audio.features import compute_features
    from voxline.audio.wav import write_wav
    from voxline.data.manifest import read_manifest, read_rejects
    from voxline.errors import SettingsError, TransientError, VoxlineError, WorkError
    from voxline.inference.alignment import align_recording
    from voxline.registry.registry import Registry
    from voxline.rejects import BadAudioError

    __version__: str

__all__ = [
    "BadAudioError",
    "FeatureSettings",
    "Registry",
    "SettingsError",
    "TransientError",
    "VoxlineError",
    "WorkError",
    "__version__",
    "align_recording",
    "cer",
    "compute_features",
    "from_pretrained",
    "load_audio",
    "load_model",
    "load_recognizer",
    "load_synthesizer",
    "open_dataset",
    "push_to_hub",
    "read_manifest",
    "read_rejects",
    "run",
    "wer",
    "write_wav",
]

_MODULES = {
    "BadAudioError": "voxline.rejects",
    "FeatureSettings": "voxline.audio.feature_settings",
    "Registry": "voxline.registry.registry",
    "SettingsError": "voxline.errors",
    "TransientError": "voxline.errors",
    "VoxlineError": "voxline.errors",
    "WorkError": "voxline.errors",
    "align_recording": "voxline.inference.alignment",
    "compute_features": "voxline.audio.features",
    "load_audio": "voxline.audio.decoding",
    "read_manifest": "voxline.data.manifest",
    "read_rejects": "voxline.data.manifest",
    "write_wav": "voxline.audio.wav",
}
"""Where a name is defined, if not in `voxline.api`."""


def __getattr__(name: str) -> "Any":
    if name not in __all__:
        raise AttributeError(f"module 'voxline' has no attribute {name!r}; it has {', '.join(__all__)}")
    if name == "__version__":
        from importlib.metadata import version

        return version("voxline")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULES.get(name, "voxline.api")), name)
    return value


def __dir__() -> list[str]:
    return __all__

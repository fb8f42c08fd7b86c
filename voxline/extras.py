"""Which extra of the installation brings a package that the core does without: `pip install 'voxline[train]'`.

The core transcribes, synthesizes, serves and scores through ONNX Runtime. What else is imported is imported where it is
needed, and named with the command that installs it where it is absent. docs/install.md has what each extra adds.
"""

import contextlib
from collections.abc import Iterator

from voxline.errors import MissingPackageError

EXTRA_OF = {
    "apache_beam": "pipeline",
    "boto3": "s3",
    "botocore": "s3",
    "espeakng_loader": "phonemes",
    "google": "gcp",
    "google.cloud.aiplatform": "vertex",
    "grpc": "pipeline",
    "imageio_ffmpeg": "media",
    "keras": "train",
    "kfp": "client",
    "kfp_server_api": "client",
    "kubernetes": "cluster",
    "librosa": "judges",
    "matplotlib": "train",
    "ml_metadata": "mlmd",
    "model_signing": "signing",
    "onnx": "train",
    "opentelemetry": "cluster",
    "optuna": "pipeline",
    "pathspec": "client",
    "pyarrow": "pipeline",
    "pydub": "media",
    "safetensors": "train",
    "scipy": "train",
    "speechmos": "judges",
    "tensorboard": "train",
    "tensorflow": "train",
}
"""Module → the extra that brings it; of the longest name that fits."""
_PROGRAMS = {"espeakng_loader": "espeak-ng", "imageio_ffmpeg": "ffmpeg"}


def missing_package(module: str) -> MissingPackageError:
    """The error for a module that is absent.

    >>> print(missing_package("tensorflow.python.eager"))
    tensorflow is not installed; `pip install 'voxline[train]'` adds it
    >>> print(missing_package("google.cloud.storage"))
    google.cloud is not installed; `pip install 'voxline[gcp]'` adds it
    """
    parts = module.split(".")
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    extra = next((EXTRA_OF[name] for name in names if name in EXTRA_OF), "all")
    package = _PROGRAMS.get(parts[0], "google.cloud" if module.startswith("google.cloud") else parts[0])
    return MissingPackageError(f"{package} is not installed; `pip install 'voxline[{extra}]'` adds it")


@contextlib.contextmanager
def naming_extras() -> Iterator[None]:
    """Turns the failed import of a package into an error that says what to install. Also a decorator.

    Raises:
      MissingPackageError: a package is absent. A module of ours that is absent is a bug, and stays as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if not error.name or error.name.partition(".")[0] == "voxline":
            raise
        raise missing_package(error.name) from error

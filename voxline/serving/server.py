"""Starts the server: loads the models, follows the registry, and listens until a signal."""

from collections.abc import Sequence
from pathlib import Path

import uvicorn

from voxline.errors import SettingsError, WorkError
from voxline.inference.saved_model import read_model_json
from voxline.progress import print_status
from voxline.registry.models import model_names
from voxline.registry.registry import Registry
from voxline.serving.app import RecognizerServer, ServingLimits
from voxline.serving.followed_model import FollowedModel


def run_server(
    root: Path | str, names: Sequence[str], host: str, port: int, follow_seconds: float, limits: ServingLimits
) -> None:
    """Serves models until SIGINT or SIGTERM, which lets running requests end.

    Args:
      names: of the models, with `@candidate` or a version if wanted; empty: all recognizers in production.

    Raises:
      SettingsError, WorkError: nothing to serve, or a model is damaged.
    """
    if len(set(names)) < len(names):
        raise SettingsError(f"--model: {', '.join(names)}; name each model once")
    models = [FollowedModel(root, name) for name in names or recognizers(root)]
    for model in models:
        served = model.current
        engine = served.recognizer.engine
        hint = "" if engine == "onnx" else "; train.export.onnx starts faster and needs no TensorFlow"
        print_status(f"serve: {model.reference}, version {served.version} ({engine}{hint})")
        model.follow(follow_seconds)
    print_status(f"serve: http://{host}:{port}")
    server = RecognizerServer(models, limits)
    uvicorn.run(
        server.app, host=host, port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=30,
        timeout_keep_alive=15, limit_concurrency=4 * limits.uploads,
    )  # fmt: skip


def recognizers(root: Path | str) -> list[str]:
    """The names of the ASR models of a registry that are in production.

    Raises:
      WorkError: there is none.
    """
    found = []
    for name in model_names(root):
        registry = Registry(root, name)
        version = registry.in_service()
        if version is not None and read_model_json(registry.path(version))["family"] == "asr":
            found.append(name)
    if not found:
        raise WorkError(f"{root}: no recognizer is in production here; push one, or promote a candidate")
    return found

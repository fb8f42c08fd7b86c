"""`<registry>/models.config`: tells TensorFlow Serving which versions the registry's aliases point at.

TensorFlow Serving reads the file again every few seconds (`--model_config_file_poll_wait_seconds`), loads a version
that is new in it, and then unloads the one before, so callers of `/v1/models/asr:predict` always reach one. A candidate
is a model of its own, `asr@candidate`, over the same folder.

Version labels would say the same in the server's own words. But `ServerCore::ReloadConfig` moves the labels before it
loads versions, and refuses the whole file if a label would move to a version that is not loaded yet: after a push
straight to production the new version would never load (tensorflow_serving/model_servers/server_core.cc).

Text of tensorflow.serving.ModelServerConfig.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from voxline.errors import TransientError, WorkError
from voxline.progress import print_status
from voxline.registry.journal import CANDIDATE
from voxline.registry.models import model_names
from voxline.registry.registry import Registry
from voxline.store.files import users_umask
from voxline.store.objects import open_store
from voxline.store.uris import absolute_uri

MODELS_CONFIG = "models.config"
_LOCK = ".models.config.lock"
_HEAD = """# Which versions are in service. `voxline models promote`, `rollback` and every push write this file again.
"""
_ENTRY = re.compile(r'name: ("[^"\n]*")\n.*\n.*\n.*\n.*\n *versions: ([0-9]+)\n')
"""The name and the version of an entry of `model_config_entry`."""


def model_config_entry(name: str, folder: str, version: int) -> str:
    """One `config` of a `model_config_list`.

    Args:
      name: by which callers ask for the model.
      folder: with the versions of the model, as the server sees it.
    """
    return f"""  config {{
    name: {json.dumps(name)}
    base_path: {json.dumps(folder)}
    model_platform: "tensorflow"
    model_version_policy {{
      specific {{
        versions: {version}
      }}
    }}
  }}
"""


def models_config(root: Path | str, served_at: str = "") -> str:
    """Returns the config by which TensorFlow Serving loads the models of a registry.

    Args:
      root: the registry's folder or URI.
      served_at: the registry's folder as the server sees it; empty: the same.

    Raises:
      WorkError: there is no registry.
    """
    versions: dict[str, int | None] = {}
    for model in model_names(root):
        registry = Registry(root, model)
        try:
            production, candidate = registry.in_service(), registry.candidate()
        except TransientError:
            raise
        except (WorkError, OSError) as error:  # a change of another model must not take this one out of service
            print_status(f"{MODELS_CONFIG}: {model} stays as it is there: {error}")
            served = served_versions(root)
            production = served.get(model)
            candidate = served.get(f"{model}@{CANDIDATE}")
        versions |= {model: production, f"{model}@{CANDIDATE}": candidate}

    # A name without a version is left out: TensorFlow Serving then unloads the model.
    named = {name: version for name, version in versions.items() if version is not None}
    return config_of_versions(named, (served_at or absolute_uri(root)).rstrip("/"))


def config_of_versions(versions: Mapping[str, int], folder: str) -> str:
    """The text of `models.config`.

    Args:
      versions: by model and `<model>@candidate`.
      folder: with `<model>/<version>/`, as the server sees it.
    """
    entries = (
        model_config_entry(name, f"{folder}/{name.partition('@')[0]}", version) for name, version in versions.items()
    )
    return f"{_HEAD}model_config_list {{\n{''.join(entries)}}}\n"


def served_versions(root: Path | str) -> dict[str, int]:
    """The versions that `models.config` names, by model and `<model>@candidate`; empty if a person wrote the file.

    It is the one record, outside of the journal, of what was in service last.
    """
    try:
        text = open_store(root).read(MODELS_CONFIG).decode(errors="replace")
    except FileNotFoundError:
        return {}

    # The first line says who wrote the file; what a person wrote is not parsed.
    if not text.startswith(_HEAD):
        return {}
    return {json.loads(name): int(version) for name, version in _ENTRY.findall(text)}


def write_models_config(root: Path | str) -> None:
    """Writes `<registry>/models.config` after a change of the registry; two changes at once both end up in it.

    A file that a person wrote stays.
    """
    store = open_store(root)
    with users_umask(), store.lock(_LOCK, "waiting for another process that writes models.config"):
        # Read under the lock, so that the last of two writers has seen both changes.
        text = models_config(root).encode()
        try:
            present = store.read(MODELS_CONFIG)
        except FileNotFoundError:
            present = b""
        if present and not present.startswith(_HEAD.encode()):
            print_status(f"{store.uri_of(MODELS_CONFIG)}: written by hand, so it stays; remove it to have it follow")
        elif present != text:
            store.write(MODELS_CONFIG, text)

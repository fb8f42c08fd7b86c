"""Finds models: those of a registry, and the one that a location names."""

from collections.abc import Iterator
from pathlib import Path

from voxline.errors import WorkError
from voxline.inference.saved_model import TRAINING_FOLDERS, exported_folder
from voxline.registry.hub import HUB_SCHEME, find_release
from voxline.registry.journal import JOURNAL_FILE, PRODUCTION, RegistryEvent
from voxline.registry.registry import MODEL_NAME, STAGING, UNSIGNED, VERSION_FILE, Registry
from voxline.registry.signing import check_digest, check_signature
from voxline.store.files import read_json
from voxline.store.localize import localize
from voxline.store.objects import ObjectStore, open_store
from voxline.store.uris import absolute_uri, is_remote


def model_names(root: Path | str) -> list[str]:
    """The names of the models in a registry.

    Raises:
      SettingsError: the URI is not accepted.
      WorkError: the registry does not exist, or the folder is something else.
    """
    store = open_store(root)
    names = store.list_folders()
    models = [name for name in names if MODEL_NAME.fullmatch(name) and _may_be_model(store / name)]

    # A registry of which all models are gone is not the same as a folder that never was one.
    if not models and (names or not store.exists()):
        near = [(store / name).uri for name in names if any(map(_is_model, _folders(store / name)))]
        hint = f"did you mean {near[0]}?" if near else "give the one that runs push to (the first push creates it)"
        raise WorkError(f"{root}: there is no registry here, no <model>/{JOURNAL_FILE} or <model>/<version>/; {hint}")
    return sorted(name for name in models if _has_versions(Registry(root, name)))


def _has_versions(registry: Registry) -> bool:
    try:
        return bool(registry.versions())
    except (WorkError, OSError):
        return True  # a folder that must be renamed, or cannot be read; the other models are listed all the same


def _may_be_model(store: ObjectStore) -> bool:
    try:
        return _is_model(store)
    except OSError:
        return True  # it cannot be read, and an error names why where it is used


def _folders(store: ObjectStore) -> Iterator[ObjectStore]:
    return (store / name for name in store.list_folders() if MODEL_NAME.fullmatch(name))


def _is_model(store: ObjectStore) -> bool:
    """Returns whether a folder holds a journal, versions, or what a killed push left."""
    return store.stat(JOURNAL_FILE) is not None or any(
        name.startswith(STAGING) or (name.isdecimal() and store.stat(f"{name}/saved_model.pb"))
        for name in store.list_folders()
    )


def resolve_version(root: Path | str, reference: str) -> tuple[Registry, int]:
    """The model and the number of a version that is written as NAME, NAME@production, NAME@candidate or NAME@7.

    Args:
      root: the registry's folder or URI.
      reference: a name alone means `@production`.

    Raises:
      SettingsError: the name or the alias is not accepted.
      WorkError: the version does not exist.
    """
    name, _, version = reference.partition("@")
    registry = Registry(root, name)
    return registry, registry.resolve(version or PRODUCTION)


def find_model(location: Path | str) -> Path:
    """Finds an exported model, and returns its folder on this machine.

    Args:
      location: an exported model, train's output, a version's folder in a registry, or `<registry>/<model>` for the
        version in service, which `<registry>/<model>@production` names too; `@candidate` and `@7` name others. A
        folder, one in a bucket, or `hf://owner/name@commit` of a model that Voxline has published.

    Raises:
      WorkError: the location holds no model, or a version whose files are not the ones that were published, or one
        that is not signed although a public key is configured.
    """
    if str(location).startswith(HUB_SCHEME):
        return find_release(str(location))
    location = absolute_uri(location)
    root, _, name = location.rpartition("/")

    # NAME@ALIAS, unless a folder really has such a name.
    if "@" in name and (is_remote(location) or not Path(location).exists()):
        registry, number = resolve_version(root, name)
        return registry.intact_path(number)

    # `<registry>/<model>`: what it has in service.
    if not _is_exported(location):
        registry = Registry(root, name)
        version = registry.in_service()
        if version is not None:
            return registry.intact_path(version)
    folder = exported_folder(localize(location, without=TRAINING_FOLDERS))

    # A version is compared with its digest and signature; any other folder with the signature alone.
    try:
        published = RegistryEvent.of(read_json(folder / VERSION_FILE)).digest
    except (OSError, ValueError, TypeError, AttributeError):
        check_signature(folder, UNSIGNED)
        return folder  # not a version of a registry
    return check_digest(folder, published, UNSIGNED)


def registry_of(location: Path | str) -> tuple[str, str]:
    """The registry and the name of `<registry>/<model>`, `<registry>/<model>@<version>` or a version's folder."""
    # A version's folder has its number as its name.
    root, _, name = absolute_uri(location).rpartition("/")
    if name.isdecimal():
        root, _, name = root.rpartition("/")
    return root, name.partition("@")[0]


def _is_exported(location: str) -> bool:
    """Returns whether it cannot be `<registry>/<model>`: it holds an exported model, or no folder is there."""
    # `<registry>/<model>` has folders of versions, and no model of its own.
    if is_remote(location):
        return any(open_store(location).stat(name) for name in ("saved_model.pb", "model/saved_model.pb"))
    folder = Path(location)
    return not folder.is_dir() or (folder / "saved_model.pb").exists() or (folder / "model").exists()

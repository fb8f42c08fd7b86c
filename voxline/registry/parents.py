"""The model that a training starts from: its parent, and the ancestors of that.

`model.json` lists the ancestors of a model, its parent first, and its list of training data (`training_data`) has the
utterances of all of them. So a purge finds a model that learned from a speaker through an ancestor, like any other. A
model whose list was purged since is no parent: its last ancestor without purged utterances takes its place, or random
weights do. The same holds for a model that was trained on today's test split. See docs/decisions/0063-warm-start.md.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.data.licences import LANGUAGE_TEXTS, NOT_STATED, licence_name, text_licences
from voxline.errors import SettingsError, TransientError, WorkError
from voxline.inference.model_info import ModelInfo
from voxline.inference.saved_model import LANGUAGE_MODEL, MODEL_JSON, model_digest, read_model_info
from voxline.progress import print_status
from voxline.registry.hub import HUB_SCHEME, parse_location
from voxline.registry.journal import RegistryEvent
from voxline.registry.models import find_model
from voxline.registry.registry import VERSION_FILE, Registry
from voxline.registry.training_data import TRAINED_ON, Recording, TrainingData, read_training_data
from voxline.store.files import read_json
from voxline.store.finished import is_finished
from voxline.store.objects import open_store
from voxline.store.versioned_json import parse_versioned

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.data.dataset import Dataset

PRODUCTION = "production"
"""Names the version in service."""
RANDOM_WEIGHTS = "random weights"
SETTING = "train.start.model"
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})@(production|[1-9][0-9]{0,17})")


@dataclasses.dataclass(frozen=True)
class Ancestor:
    """A model that another one started from, as `model.json` lists it.

    Attributes:
      version: in the registry; None of a model that was not in one.
      dataset: key of the dataset that it was trained on; empty of published weights.
      revision: the commit of a model of the Hub; empty of others.
      licence: of published weights, as their card states it; empty if unknown.
      licences: of the data of a model of ours; [] if none was stated.
    """

    name: str
    version: int | None
    digest: str
    dataset: str
    revision: str = ""
    licence: str = ""
    licences: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Ancestor":
        """Reads the JSON of a model, which another person may have written.

        Raises:
          WorkError: it is not an ancestor, or its dataset is a path.
        """
        try:
            ancestor = cls(**values)
            texts = (
                ancestor.name,
                ancestor.digest,
                ancestor.dataset,
                ancestor.revision,
                ancestor.licence,
                *ancestor.licences,
            )
            if (
                not all(isinstance(text, str) for text in texts)
                or not isinstance(ancestor.version, int | None)
                or not isinstance(ancestor.licences, list)
                or "/" in ancestor.dataset
            ):
                raise TypeError(f"{ancestor}")
        except TypeError as error:
            raise WorkError(f"{MODEL_JSON}: an ancestor is damaged ({error}); start from another model") from None
        return ancestor

    @property
    def is_published(self) -> bool:
        """Returns whether it is a public model or a file of published weights, whose training data are unknown."""
        return not self.dataset

    @property
    def label(self) -> str:
        """`asr@3`, `openai/whisper-tiny.en@87c71024`, or the name and the digest of a model that has neither."""
        if self.version or self.revision:
            return f"{self.name}@{self.version or self.revision[:8]}"
        return f"{self.name} ({self.digest[:12]})"

    def values(self) -> dict[str, Any]:
        """Returns what `of` reads."""
        values = dataclasses.asdict(self)
        # Earlier versions of Voxline read a list without it.
        if not self.licences:
            del values["licences"]
        return values

    def open_dataset(self, store: Path | str, *, shards: bool = True) -> "Dataset | None":
        """The dataset that it was trained on; None if the store no longer has it, or not whole.

        Args:
          shards: whether to download shards that are in a bucket.
        """
        from voxline.data.dataset import Dataset

        if self.is_published:
            return None

        # Finished and whole: a marker alone does not say that the shards are still there.
        if not is_finished(store, open_store(store).local_path("extract") / self.dataset):
            return None
        try:
            return Dataset.read(f"{store}/extract/{self.dataset}", shards=shards)
        except TransientError:
            raise
        except WorkError as error:
            print_status(f"the dataset of {self.label} cannot be read: {error}")
            return None


@dataclasses.dataclass(frozen=True)
class Parent:
    """A model to start from.

    Attributes:
      info: the contents of its `model.json`.
      training_data: what it and its ancestors were trained on; None if it has no such list.
      pinned: the value of `train.start.model` that names this very model, whatever goes into service meanwhile.
      location: its folder, the registry that has it, or the file of published weights.
      read_weights: of published weights: reads them by our names, in our layouts.
    """

    ancestor: Ancestor
    info: ModelInfo
    training_data: TrainingData | None
    pinned: str
    location: Registry | Path
    read_weights: "Callable[[], dict[str, npt.NDArray[np.float32]]] | None" = None

    @property
    def label(self) -> str:
        return self.ancestor.label

    @property
    def generation(self) -> int:
        """Counts the models in a row that each started from another one, up to this one; 0: from random weights."""
        return len(ancestors_of(self.info))

    def load_folder(self) -> Path:
        """The exported model on this machine, its bytes checked; or the file of published weights.

        Raises:
          WorkError: its files are not the ones that were published.
        """
        if isinstance(self.location, Registry):
            return self.location.intact_path(self.ancestor.version or 0)
        return self.location

    def describe(self) -> dict[str, Any]:
        """Describes this model for the `model.json` of a model that starts from it."""
        return {
            "generation": self.generation + 1,
            "ancestors": [ancestor.values() for ancestor in (self.ancestor, *ancestors_of(self.info))],
            "training_data": "known" if self.training_data else "unknown",
        }


def ancestors_of(info: ModelInfo) -> list[Ancestor]:
    """The ancestors that a `model.json` lists, the parent first; [] of a model trained from random weights."""
    return [Ancestor.of(values) for values in info.start.ancestors] if info.start else []


def licences_of(info: ModelInfo, folder: Path | None = None) -> dict[str, list[str]]:
    """The licences of all that a model comes from, by what is under them.

    That is its data, each ancestor, the vocoder that a voice ships with, and the texts of the language model that a
    recognizer ships with. "not stated" is one of the licences.

    Args:
      folder: of the model; None: of the model without its language model, as its weights go elsewhere.

    Raises:
      WorkError: the language model is damaged.
    """
    licences: dict[str, list[str]] = {}
    if not info.is_as_published:
        licences["its data"] = list(info.dataset.licences)
    ancestors = ancestors_of(info)
    for ancestor in ancestors:
        # The import of a public model into a registry, which comes next.
        if ancestor.is_published and not ancestor.licence and ancestor is not ancestors[-1]:
            continue
        stated = [licence_name(ancestor.licence)] if ancestor.licence else []
        licences[ancestor.label] = stated if ancestor.is_published else ancestor.licences
    if vocoder := info.vocoder:
        licences[f"its vocoder {vocoder.name}"] = vocoder.licences
    if folder is not None and (folder / LANGUAGE_MODEL).is_dir():
        from voxline.inference.language_model import read_language_model

        # The transcripts that it was made of are under "its data", unless the network has learned nothing of them.
        model = read_language_model(folder) or {}
        texts = text_licences(model)
        if info.is_as_published and model.get("text", {}).get("transcripts", True):
            texts = sorted({*texts, *(info.dataset.licences or [NOT_STATED])})
        if texts:
            licences[LANGUAGE_TEXTS] = texts
    return {source: names or [NOT_STATED] for source, names in licences.items()}


def is_model_name(model: str) -> bool:
    """Returns whether `train.start.model` names a version of the registry or a model of the Hub, in place of a path.

    >>> is_model_name("asr@production"), is_model_name("asr@3"), is_model_name("models/asr@3")
    (True, True, False)
    """
    return model.startswith(HUB_SCHEME) or bool(_NAMED.fullmatch(model))


def find_parent(
    model: str,
    registry: Path | str,
    *,
    family: str,
    own_name: str,
    generations: int,
    test: Collection[Recording] = (),
    otherwise: str = RANDOM_WEIGHTS,
    setting: str = SETTING,
) -> Parent | None:
    """The model to start from; None to start from random weights, which is said with the reason.

    Args:
      model: `<name>@production`, `<name>@<version>`, or the location of an exported model or a version.
      registry: of the run.
      own_name: the model to train. Its first version has no parent.
      generations: most models in a row that start from another one.
      test: recordings that no model to start from was trained on, since they test what comes of it.
      otherwise: what is started from instead, for messages.
      setting: that names the model, for messages.

    Raises:
      SettingsError: the model does not exist.
      WorkError: it is damaged, or of another family.
    """
    named = _open(model, registry, own_name, setting, otherwise)
    if named is None:
        return None

    _require_family(named, model, family, setting)
    if named.generation >= generations:
        print_status(
            f"train: {named.label} is the last of {named.generation} models in a row that started from another one "
            f"(train.start.generations); starting from {otherwise}"
        )
        return None
    if not (why := _why_not(named, test)):
        return named
    # Whether an ancestor without a list was trained on them is not known.
    ancestors = (candidate for candidate in _with_ancestors(named, registry) if candidate.training_data)
    parent = next((candidate for candidate in ancestors if not _why_not(candidate, test)), None)
    instead = f"its ancestor {parent.label}, which was not trained on them" if parent else otherwise
    print_status(f"train: {named.label} {why}, itself or through its ancestors; starting from {instead}")
    return parent


def find_other_model(model: str, registry: Path | str, *, family: str, setting: str) -> Parent:
    """A model that a training needs beside the one to start from.

    Args:
      model, registry: as of `find_parent`.
      setting: that names it, for messages.

    Raises:
      SettingsError: the model does not exist, or is of another family.
      WorkError: it is damaged.
    """
    parent = _open(model, registry, "", setting)
    if parent is None:
        raise SettingsError(f"{setting} is {model!r}, and no version of it is in service")
    _require_family(parent, model, family, setting)
    return parent


def _require_family(parent: Parent, model: str, family: str, setting: str) -> None:
    if parent.info.family != family:
        raise SettingsError(
            f"{setting} is {model!r}, a model of the family {parent.info.family!r}; {family!r} is accepted"
        )


def _why_not(parent: Parent, test: Collection[Recording]) -> str:
    """Explains why training may not start from a model; empty if it may."""
    listed = parent.training_data
    if listed is None:
        return ""
    # Weights keep what was purged from the data.
    if listed.purged:
        return f"was trained on utterances that were purged since ({listed.purged:,})"
    if overlap := len(listed.recordings().intersection(test)):
        return f"was trained on recordings of today's test split ({overlap:,})"
    return ""


def _open(
    model: str, registry: Path | str, own_name: str, setting: str, otherwise: str = RANDOM_WEIGHTS
) -> Parent | None:
    # A path or a URI: anything that holds a model. The message says how a version would be named.
    if not (named := _NAMED.fullmatch(model)):
        try:
            return _open_folder(find_model(model), model)
        except TransientError:
            raise
        except (SettingsError, WorkError) as error:
            names = "a version of the registry is NAME@production or NAME@VERSION, all else a path"
            raise type(error)(f"{setting} is {model!r} ({names}): {error}") from None

    name, which = named.groups()
    if not registry:
        raise SettingsError(f"{setting} is {model!r}, and no registry is given; give the one of the runs")
    versions = Registry(registry, name)
    version = versions.in_service() if which == PRODUCTION else int(which)

    # The first version of a model has nothing to start from, which is no mistake.
    if version is None and name == own_name:
        print_status(f"train: {name} has no version in service yet; starting from {otherwise}")
        return None
    if version is None or version not in versions.existing():
        existing = versions.versions()
        raise SettingsError(
            f"{setting} is {model!r}; {versions.uri} has "
            + (f"the versions {', '.join(map(str, existing))}" if existing else "no version yet")
        )
    return _open_version(versions, version)


def _open_version(versions: Registry, version: int) -> Parent:
    where = f"{versions.uri}/{version}"

    # From the registry alone, without downloading the model: it may turn out to be no parent.
    data = versions.read_file(version, MODEL_JSON)
    try:
        info = parse_versioned(json.loads(data or b""), ModelInfo, f"{where}/{MODEL_JSON}")
    except ValueError as error:
        raise WorkError(f"{where}/{MODEL_JSON}: absent or damaged ({error}); start from another version") from None
    training_data = versions.read_file(version, TRAINED_ON)
    return Parent(
        Ancestor(
            versions.model,
            version,
            versions.event(version).digest,
            info.dataset.key,
            licences=list(info.dataset.licences),
        ),
        info,
        None if training_data is None else read_training_data(training_data, f"{where}/{TRAINED_ON}"),
        f"{versions.model}@{version}",
        versions,
    )


def _open_folder(folder: Path, location: str) -> Parent:
    info = read_model_info(folder)
    list_file = folder / TRAINED_ON
    version = published_version(folder)
    name, revision = parse_location(location, SETTING) if location.startswith(HUB_SCHEME) else (info.name, "")
    root, _, last = location.rstrip("/").rpartition("/")

    # A pinned location names the version itself, not the alias that led to it.
    pinned = location if version is None or last == folder.name else f"{root}/{last.partition('@')[0]}/{version}"
    return Parent(
        Ancestor.of(
            {
                "name": name,
                "version": version,
                "digest": model_digest(folder),
                "dataset": info.dataset.key,
                "revision": revision,
                "licences": list(info.dataset.licences),
            }
        ),
        info,
        read_training_data(list_file.read_bytes(), str(list_file)) if list_file.is_file() else None,
        pinned,
        folder,
    )


def published_version(folder: Path) -> int | None:
    """The number of a version of a registry; None of a model that is none."""
    try:
        return RegistryEvent.of(read_json(folder / VERSION_FILE)).version
    except (OSError, ValueError, TypeError, AttributeError):
        return None  # not a version of a registry, as `find_model` says


def _with_ancestors(parent: Parent, registry: Path | str) -> Iterator[Parent]:
    """The model, and those of its ancestors that the registry still holds, the youngest first."""
    yield parent
    for ancestor in ancestors_of(parent.info):
        # An ancestor counts if the registry still has exactly these bytes.
        versions = Registry(registry, ancestor.name) if registry and ancestor.version else None
        if versions and ancestor.version and ancestor.version in versions.existing():
            opened = _open_version(versions, ancestor.version)
            if opened.ancestor.digest == ancestor.digest:
                yield opened

"""Models of the Hugging Face Hub: public ones, of config.json, safetensors, tokenizer files and a card; and our own.

  hf://openai/whisper-tiny.en@87c7102498dcde7456f24cfd30239ca606ed9063    a model at a commit
  models/whisper-tiny.en                                                  a folder with the same files
  hf://facebook/mms-1b-all@<commit>#fra                                   either with the adapters of a language

What `voxline models push-to-hub` wrote is an exported model with `voxline.json`, which has its digest. Nothing of other
models runs: config.json is JSON, safetensors a table of numbers. Weights as pickles (.bin, .pt, .nemo) are refused. The
commit is part of the name, so that a training tomorrow starts from the same weights.
"""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from voxline.errors import SettingsError, TransientError, WorkError
from voxline.inference.saved_model import MODEL_JSON, MODEL_PARTS
from voxline.registry.signing import SIGNATURE, check_digest, digest_or_empty
from voxline.store.files import read_json
from voxline.store.hashing import hash_file, hash_value
from voxline.store.size_limits import read_bounded

HUB_SCHEME = "hf://"
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
"""Names the file of each weight, where the weights are in several files."""
CARD_FILE = "README.md"
SMALL_FILES = ("*.json", "*.txt", "*.model", CARD_FILE, "LICENSE*")
"""Settings, tokenizer and card; everything but the weights."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".nemo", ".h5", ".msgpack")
"""Weights in a form that runs code when it is read, or that needs another framework."""
ADAPTER_FILE = "adapter.{language}.safetensors"
"""Adapters and output layer of a language, beside the weights of MMS, which has them for a thousand."""
RELEASE_FILE = "voxline.json"
"""Marks an exported model of ours: its name, its version, and the digest of its files."""
_RELEASE_PATTERNS = (*MODEL_PARTS, *(f"{part}/*" for part in MODEL_PARTS if "." not in part), SIGNATURE, RELEASE_FILE)
MAX_CARD_BYTES = 1 << 20
MAX_LICENCE = 100
"""Characters of a licence's name."""
_PART = r"[A-Za-z0-9](?:[\w.-]{0,94}\w)?"
_NAME = rf"(?![^@]*(?:--|\.\.)){_PART}/{_PART}(?<!\.git)"
"""As the Hub's client accepts it."""
_LOCATION = re.compile(rf"hf://({_NAME})(?:@([\w./-]{{1,100}}))?", re.ASCII)
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9_-]{1,40})?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CARD_HEAD = re.compile(r"\A---\r?\n(.*?)\r?\n---\r?\n", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class HubModel:
    """A public model on this machine.

    Attributes:
      name: `owner/name`, or the name of the folder.
      revision: the commit; empty of a folder.
      folder: with its files.
      config: the content of config.json.
      licence: as the model's card states it, such as "apache-2.0"; empty if it states none.
      language: whose adapters are used, such as "fra" of MMS; empty: those among the model's weights.
    """

    name: str
    revision: str
    folder: Path
    config: dict[str, Any]
    licence: str
    language: str = ""

    @property
    def label(self) -> str:
        """`openai/whisper-tiny.en@87c71024`, for messages."""
        label = f"{self.name}@{self.revision[:8]}" if self.revision else self.name
        return f"{label}#{self.language}" if self.language else label

    def json_file(self, name: str) -> Any:
        """The content of a JSON file of the folder; None if it is absent.

        Raises:
          WorkError: it is damaged.
        """
        path = self.folder / name
        if not path.is_file():
            return None
        try:
            return read_json(path)
        except (OSError, ValueError) as error:
            raise WorkError(f"{path}: damaged ({error}); get {self.label} again") from None

    def json_object(self, name: str) -> dict[str, Any]:
        """The content of a JSON file of the folder that holds a mapping; {} if the file is absent.

        Raises:
          WorkError: it is damaged, or something else.
        """
        values = self.json_file(name)
        if not isinstance(values, dict | None):
            raise WorkError(f"{self.folder / name}: not a JSON object; get {self.label} again")
        return values or {}

    def weight_files(self) -> dict[str, Path]:
        """The file of each weight that the index names; the one file under "" if there is no index.

        Raises:
          SettingsError: there are no safetensors; the message says how to convert what there is.
          WorkError: the index is damaged, or names a file elsewhere.
        """
        index = self.json_file(WEIGHTS_INDEX)
        if index is None:
            single = self.folder / WEIGHTS_FILE
            if not single.is_file():
                raise SettingsError(_no_safetensors(self.folder, self.label))
            return {"": single}

        # Names of files in this folder, and of no other.
        names = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(names, dict) or not all(_is_weights_name(name) for name in names.values()):
            raise WorkError(
                f"{self.folder / WEIGHTS_INDEX}: 'weight_map' does not name a .safetensors file of this folder for "
                f"each weight; get {self.label} again"
            )
        if absent := sorted({name for name in names.values() if not (self.folder / name).is_file()}):
            raise WorkError(
                f"{self.folder}: {absent[0]} is absent, and {WEIGHTS_INDEX} names it; get {self.label} again"
            )
        return {weight: self.folder / name for weight, name in names.items()}

    def digest(self) -> str:
        """The hash of settings, tokenizer and weights; the card does not count."""
        # Another language is another model.
        adapters = [self.folder / ADAPTER_FILE.format(language=self.language)] if self.language else []
        weights = sorted({*self.weight_files().values(), *(path for path in adapters if path.is_file())})
        settings = [path for path in sorted(self.folder.glob("*.json")) if path.is_file()]
        others = [path for pattern in ("*.txt", "*.model") for path in sorted(self.folder.glob(pattern))]
        others = [path for path in others if path.is_file()]
        return hash_value([[path.name, hash_file(path)] for path in [*settings, *others, *weights]])


def is_hub_location(model: str) -> bool:
    """True if `train.start.model` names a public model: `hf://…`, or a folder with a config.json.

    >>> is_hub_location("hf://openai/whisper-tiny.en"), is_hub_location("asr@production")
    (True, False)
    """
    folder = _split_language(model)[0]
    return model.startswith(HUB_SCHEME) or ("://" not in model and (Path(folder) / CONFIG_FILE).is_file())


def open_hub_model(location: str, setting: str, *, weights: bool) -> HubModel:
    """Opens a public model; one that is named `hf://` is downloaded, unless this machine has it.

    Args:
      setting: that names it, for messages.
      weights: download the weights too, and not only settings, tokenizer and card.

    Raises:
      SettingsError: the name has no commit, or is malformed; the model does not exist, or is no safetensors.
      TransientError: the Hub cannot be reached, and the model is not on this machine.
      WorkError: a file is damaged.
    """
    location, language = _split_language(location)
    # A folder, unless the location names a model of the Hub.
    name = Path(os.path.abspath(location)).name
    revision = ""
    folder = Path(location)
    if location.startswith(HUB_SCHEME):
        name, revision = parse_location(location, setting)
        folder = _download(name, revision, language, setting, weights=weights)

    config_file = folder / CONFIG_FILE
    if _is_release(folder) and not config_file.is_file():
        raise SettingsError(
            f"{setting} is {location!r}, a model that Voxline published in its own form; a public network is accepted "
            "here"
        )
    try:
        config = read_json(config_file)
    except (OSError, ValueError) as error:
        raise WorkError(f"{config_file}: absent or damaged ({error}); get {name} again") from None
    if not isinstance(config, dict):
        raise WorkError(f"{config_file}: not a JSON object; get {name} again")

    model = HubModel(name, revision, folder, config, _licence(folder / CARD_FILE), language)
    if weights:
        model.weight_files()
    return model


def is_release(location: str, setting: str) -> bool:
    """Returns whether a location names a model of the Hub that Voxline has published in its own form.

    Raises:
      SettingsError, TransientError: as `open_hub_model`.
    """
    # A folder of ours is one of this machine, which `find_model` takes as it is.
    if not location.startswith(HUB_SCHEME):
        return False
    name, revision = parse_location(_split_language(location)[0], setting)
    return _is_release(_download(name, revision, "", setting, weights=False))


def find_release(location: str, setting: str = "model") -> Path:
    """The folder of a model that Voxline has published; downloaded, unless this machine has it, and checked.

    Args:
      location: `hf://owner/name@commit`.
      setting: that names it, for messages.

    Raises:
      SettingsError: it does not exist, or is a public model of another form.
      TransientError: the Hub cannot be reached, and the model is not on this machine.
      WorkError: its files are not those of its digest, or not signed although a public key is configured.
    """
    name, revision = parse_location(location, setting)
    if not is_release(location, setting):
        raise SettingsError(
            f"{setting} is {location!r}, a public model without {RELEASE_FILE}: `voxline models import {location} "
            "--registry REGISTRY --name NAME` makes it one that runs, and voxline.from_pretrained in a notebook"
        )

    # A download that was interrupted has other files than its digest names.
    def is_whole(folder: Path) -> bool:
        return _release_digest(folder) == digest_or_empty(folder)

    # Without model.safetensors, which nothing of ours reads.
    folder = _snapshot(name, revision, setting, [(_RELEASE_PATTERNS, [])], is_whole)
    # Whatever else is beside the model, such as a LICENSE that somebody added, was never signed and is not loaded.
    beside = tuple(path.name for path in folder.iterdir() if path.name not in MODEL_PARTS)
    # The snapshot has links alone: a damaged file is under blobs/ beside it.
    remedy = (
        f"delete {folder.parents[1]}, and it is downloaded again; if that does not help, the files of this commit were "
        "changed there: take another one"
    )
    return check_digest(folder, _release_digest(folder), beside, links=True, remedy=remedy)


def pin_location(location: str, revision: str = "", setting: str = "model") -> str:
    """`hf://owner/name@commit` of a model that is named without its commit, as the Hub has it now.

    Args:
      location: `owner/name`, or `hf://owner/name` with or without a revision.
      revision: a commit, branch or tag; empty: the one in the location, else the newest commit.

    Raises:
      SettingsError: the model does not exist for you, or two revisions are named.
      TransientError: the Hub cannot be reached.
    """
    match = _LOCATION.fullmatch(location if location.startswith(HUB_SCHEME) else HUB_SCHEME + location)
    if match is None:
        raise SettingsError(f"{setting} is {location!r}; owner/name or hf://owner/name@commit is accepted")

    # A commit needs no question; a branch or a tag is what it is now.
    name, inside = match.groups()
    if revision and inside and revision != inside:
        raise SettingsError(f"{setting} is {location!r}, and the revision {revision!r}; name one of them")
    version = revision or inside or ""
    if not _COMMIT.fullmatch(version):
        from huggingface_hub import HfApi

        with hub_errors(f"{setting} is 'hf://{name}{'@' * bool(version)}{version}'", "name its commit, and it is read"):
            version = HfApi().model_info(name, revision=version or None, timeout=10).sha or ""
    return f"{HUB_SCHEME}{name}@{version}"


def _is_release(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (MODEL_JSON, RELEASE_FILE))


def _release_digest(folder: Path) -> str:
    file = folder / RELEASE_FILE
    try:
        digest = read_json(file)["digest"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise WorkError(f"{file}: absent or damaged ({error}); push the model again") from None
    return str(digest)


def _split_language(location: str) -> tuple[str, str]:
    """A location, and the language behind it; a folder may have such a name itself."""
    # "#fra" and the like, and nothing that could be a path.
    place, _, language = location.rpartition("#")
    return (place, language) if _LANGUAGE.fullmatch(language) and place else (location, "")


def check_name(name: str, setting: str) -> None:
    """Refuses what cannot be the name of a model on the Hub.

    Raises:
      SettingsError: it is no `owner/name`.
    """
    if not re.fullmatch(_NAME, name, re.ASCII):
        raise SettingsError(
            f"{setting} is {name!r}; owner/name is accepted, each of letters, digits, '_', '.' and '-', with neither "
            "'.', '-' nor '.git' at its end, and without '--' and '..'"
        )


def parse_location(location: str, setting: str) -> tuple[str, str]:
    """The name and the commit of `hf://owner/name@commit`.

    Raises:
      SettingsError: it is malformed, or names no commit.
    """
    match = _LOCATION.fullmatch(location)
    if match is None:
        raise SettingsError(f"{setting} is {location!r}; hf://owner/name@commit is accepted")
    name, revision = match.groups()
    if revision is None or not _COMMIT.fullmatch(revision):
        raise SettingsError(
            f"{setting} is {location!r}: {'a branch or tag' if revision else 'without a revision, it'} may mean other "
            f"weights tomorrow; give the commit, 40 hexadecimal digits{_in_words(name, revision)}"
        )
    return name, revision


def _in_words(name: str, revision: str | None) -> str:
    commit = todays_commit(name, revision)
    return f"; today it is hf://{name}@{commit}" if commit else ""


def todays_commit(name: str, revision: str | None = None) -> str:
    """What a branch of a model points at today; empty if the Hub does not answer."""
    from huggingface_hub import HfApi

    try:
        commit = HfApi(token=None).model_info(name, revision=revision, timeout=5).sha
    except Exception:  # whatever fails here, nothing depends on it
        return ""
    return commit or ""


def _download(name: str, revision: str, language: str, setting: str, *, weights: bool) -> Path:
    """The folder of a model in the Hub's cache, complete for the files that are asked for."""
    adapters = [ADAPTER_FILE.format(language=language)] if weights and language else []
    # Adapters of all languages of MMS are 10 GB; only those of the language are downloaded.
    parts: list[tuple[Sequence[str], list[str]]] = [
        ([*SMALL_FILES, "*.safetensors"] if weights else SMALL_FILES, [ADAPTER_FILE.format(language="*")]),
        *([(adapters, [])] if adapters else []),
    ]

    def is_whole(folder: Path) -> bool:
        return not weights or (_has_weights(folder) and all((folder / adapter).is_file() for adapter in adapters))

    return _snapshot(name, revision, setting, parts, is_whole)


def _snapshot(
    name: str,
    revision: str,
    setting: str,
    parts: Iterable[tuple[Sequence[str], list[str]]],
    is_whole: Callable[[Path], bool],
) -> Path:
    """The folder of a model at a commit in the Hub's cache.

    Args:
      parts: patterns of files that it must have, and of those that it need not.
      is_whole: whether a folder has them all.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def snapshot(*, local_files_only: bool) -> Path:
        folder = ""
        for patterns, ignored in parts:
            folder = huggingface_hub.snapshot_download(
                name,
                revision=revision,
                allow_patterns=[*patterns],
                ignore_patterns=ignored,
                local_files_only=local_files_only,
            )
        return Path(folder)

    # What is here already needs no network: a commit never changes.
    with contextlib.suppress(LocalEntryNotFoundError):
        folder = snapshot(local_files_only=True)
        if is_whole(folder):
            return folder

    subject = f"{setting} is 'hf://{name}@{revision}'"
    with hub_errors(subject, "it is not on this machine: connect, or give a folder with the model's files"):
        return snapshot(local_files_only=False)


@contextlib.contextmanager
def hub_errors(subject: str, otherwise: str) -> Iterator[None]:
    """Turns what the Hub's client raises into our errors; none of them has a token.

    Args:
      subject: begins the message.
      otherwise: what to do where the Hub cannot be reached.

    Raises:
      SettingsError: the Hub refuses.
      TransientError: it cannot be reached, or is busy.
    """
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    # HTTPError of httpx, or of httpx2 in later releases of the client.
    no_answer: type[Exception] = HfHubHTTPError.__mro__[1]
    try:
        yield
    except HFValidationError as error:
        raise SettingsError(f"{subject}: the Hub's client refuses the name: {error}") from None
    except RepositoryNotFoundError:
        raise SettingsError(
            f"{subject}: the Hub has no such model for you; correct the name, or set HF_TOKEN for a model that is not "
            "open to all"
        ) from None
    except HfHubHTTPError as error:
        # Busy and slow are worth another try; all else of the 400s is the caller's.
        status = getattr(error.response, "status_code", 0)
        kind = SettingsError if 400 <= status < 500 and status not in (408, 429) else TransientError
        raise kind(f"{subject}: the Hub answers: {str(error).splitlines()[0]}") from None
    except (LocalEntryNotFoundError, OSError, no_answer) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise TransientError(f"{subject}: the Hub cannot be reached ({lines[0][:200]}); {otherwise}") from None


def _has_weights(folder: Path) -> bool:
    # Weights in several files are there when all files are that the index names.
    index = folder / WEIGHTS_INDEX
    if not index.is_file():
        return (folder / WEIGHTS_FILE).is_file()
    try:
        names: Iterable[Any] = json.loads(read_bounded(index)).get("weight_map", {}).values()
    except (ValueError, AttributeError):
        return False
    return all(isinstance(name, str) and (folder / name).is_file() for name in names)


def _is_weights_name(name: Any) -> bool:
    return isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name


def _no_safetensors(folder: Path, label: str) -> str:
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES) if folder.is_dir() else []
    if not pickles:
        return f"{folder}: no {WEIGHTS_FILE}; a folder as the Hub has it is accepted"
    convert = (
        f"python -c \"from transformers import AutoModel as M; M.from_pretrained('{folder}').save_pretrained('SAFE')\""
    )
    if pickles[0].endswith(".nemo"):
        convert = "src/transformers/models/parakeet/convert_nemo_to_hf.py in the repository of transformers"
    return (
        f"{folder}: the weights of {label} are {pickles[0]}, which is a pickle or needs another framework, and is not "
        f"read: it could run code. Convert it where you trust it, and name the new folder: {convert}"
    )


def _licence(card: Path) -> str:
    """The licence in the YAML head of a card; empty if there is none."""
    # A card is a text for people: what is wrong with it stops nothing.
    if not card.is_file():
        return ""
    try:
        text = read_bounded(card, MAX_CARD_BYTES).decode("utf-8")
        head = _CARD_HEAD.match(text)
        values = yaml.safe_load(head[1]) if head else None
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return ""
    licence = values.get("license") if isinstance(values, dict) else None
    # A name such as apache-2.0, which goes into messages and cards: no lines, and no text of a page.
    return " ".join(licence.split())[:MAX_LICENCE] if isinstance(licence, str) and licence.isprintable() else ""

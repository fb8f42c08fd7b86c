"""Models from the Hugging Face Hub and to it, as `voxline.from_pretrained` and `push_to_hub` have them.

  a model of ours       the exported model as it is, model.safetensors, voxline.json with its digest, and the card
  for transformers      what `voxline models export --to hub` writes

A public model is exported once on this machine, into the assets of the Hub's cache, and then loaded like one of ours.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from voxline.components.push.hub_card import release_card
from voxline.components.push.settings import PushSettings
from voxline.components.push.step import check_licences
from voxline.errors import SettingsError, WorkError
from voxline.families.family import Family, find_family
from voxline.inference.model_info import ATTENTION, ModelInfo
from voxline.inference.saved_model import exported_folder, model_digest, model_files, read_model_info
from voxline.pipelines.config.load import load_config
from voxline.progress import print_status
from voxline.registry.hub import (
    CARD_FILE,
    CONFIG_FILE,
    HUB_SCHEME,
    RELEASE_FILE,
    WEIGHTS_FILE,
    check_name,
    is_release,
    pin_location,
)
from voxline.registry.hub_upload import check_record, read_uploads, record_upload, upload_folder
from voxline.registry.models import find_model, registry_of
from voxline.registry.parents import Parent, licences_of, published_version
from voxline.registry.registry import Registry
from voxline.registry.signing import SIGNATURE
from voxline.store.file_locks import exclusive_lock
from voxline.store.files import atomic_folder, atomic_write, write_json, write_text
from voxline.store.scratch import scratch_root

OWN_FORM = "voxline"
TRANSFORMERS_FORM = "transformers"
FORMS = (OWN_FORM, TRANSFORMERS_FORM)
_SETTING = "location"


@dataclasses.dataclass(frozen=True)
class PushedModel:
    """A model on the Hub.

    Attributes:
      location: `hf://owner/name@commit`.
      files: how many there are.
      size: of all, in bytes.
      licences: of all that the weights come from, by what is under them.
    """

    location: str
    files: int
    size: int
    licences: dict[str, list[str]]


def find_pretrained(location: Path | str, revision: str = "", language: str = "") -> Path:
    """The folder of a model that can be loaded: one of this machine or a bucket, of the Hub of ours, or a public one.

    Args:
      location: as `find_model` takes it; else `owner/name` or `hf://owner/name[@commit]`.
      revision: commit, branch or tag of the Hub; empty: the newest commit, which is said.
      language: of a public Whisper of several, such as "en".

    Raises:
      SettingsError: the model does not exist, is of a network that is not ours, or has no revision or language.
      TransientError: the Hub cannot be reached.
      WorkError: it is damaged.
    """
    # A bucket, then what is here, then the Hub: a folder of ours is never taken for somebody's model.
    text = str(location)
    on_hub = text.startswith(HUB_SCHEME)
    in_bucket = "://" in text and not on_hub
    if in_bucket or (not on_hub and (Path(text).exists() or Path(text).parent.is_dir())):
        if revision:
            where = "in a bucket" if in_bucket else "on this machine"
            raise SettingsError(f"{text} is {where}, and has no revision {revision!r}; leave it out")
        if not in_bucket and (Path(text) / CONFIG_FILE).is_file():
            return _export_public(text, language)
        if language:
            raise _no_language(text, language)
        return find_model(text)

    pinned = pin_location(text, revision, _SETTING)
    if pinned != text:
        print_status(f"from_pretrained: {text} is {pinned}")
    if is_release(pinned, _SETTING):
        if language:
            raise _no_language(pinned, language)
        return find_model(pinned)
    return _export_public(pinned, language)


def _export_public(location: str, language: str) -> Path:
    """A public model, exported as our own are; kept for the next time."""
    from huggingface_hub import cached_assets_path

    family, parent = _open_public(location)
    # Whisper hears with its decoder, as `voxline models import` has it.
    form: dict[str, Any] = {}
    if parent.info.kind == ATTENTION:
        form = {"head": "decoder", **({"prompt": {"language": language, "task": "transcribe"}} if language else {})}
    elif language:
        raise _no_language(parent.label, language)

    # Another release of Voxline may export it otherwise.
    release_name = f"{installed_version('voxline')}-{language or 'any'}"
    cached = cached_assets_path("voxline", namespace=parent.ancestor.digest, subfolder=release_name) / "model"
    if cached.is_dir():
        return exported_folder(cached)

    # Without the lock each of two processes would remove what the other is writing.
    with exclusive_lock(cached.parent):
        if not cached.is_dir():
            with atomic_folder(cached) as unfinished:
                name = parent.ancestor.name.rpartition("/")[2]
                if not family.export_published(parent, unfinished / "model", form, name):
                    raise SettingsError(
                        f"{parent.label} cannot work as it comes: it has no output layer of symbols, and no decoder "
                        "with a tokenizer.json; tune it (train.start.model)"
                    )
    return exported_folder(cached)


def _open_public(location: str) -> tuple[Family, Parent]:
    """A public model and its family, which config.json says."""
    from voxline.families.tts.published_tacotron2 import is_tacotron2, open_tacotron2
    from voxline.families.tts.vits.parents import is_public_voice, open_public_voice
    from voxline.families.vocoder.parents import is_public_vocoder, open_public_vocoder

    if is_tacotron2(location):
        return find_family("tts"), open_tacotron2(location)
    if is_public_voice(location):
        return find_family("tts"), open_public_voice(location)
    if is_public_vocoder(location):
        return find_family("vocoder"), open_public_vocoder(location)
    recognizers = find_family("asr")
    parent = recognizers.public_parent(location)
    if parent is None:
        raise SettingsError(f"{location}: no public model; hf://owner/name@commit is accepted")
    return recognizers, parent


def _no_language(model: str, language: str) -> SettingsError:
    return SettingsError(f"{model}: language={language!r} is for a public Whisper of several languages; leave it out")


def push_model(
    model: str,
    repository: str,
    *,
    form: str = OWN_FORM,
    public: bool = False,
    over: str = "",
    config: Sequence[Path] = (),
    language: str = "",
    note: str = "",
) -> PushedModel:
    """Uploads an exported model to the Hub, as one commit, with its card; its registry records the commit.

    Args:
      model: as `find_model` takes it.
      repository: `owner/name`; created, private, if it is new.
      form: "voxline", as `from_pretrained` and `train.start.model` read it; or "transformers".
      public: whether a new repository is open to all.
      over: a commit that nobody here has pushed, and that may be overwritten.
      config: files of the model's runs; their `push.licences` hold here too.
      language: for the card, by ISO 639.
      note: the message of the commit; empty: the model and its version.

    Raises:
      SettingsError: the Hub refuses, the licences are not accepted, or `transformers` has no class for the network.
      TransientError: the Hub cannot be reached.
      WorkError: the model is damaged, another commit came between, or the registry cannot record this one.
    """
    if form not in FORMS:
        raise SettingsError(f"the form {form!r}: accepted: {', '.join(FORMS)}")
    check_name(repository, "OWNER/NAME")
    folder = exported_folder(find_model(model))
    info = read_model_info(folder)
    # A folder for transformers has no language model.
    whole = folder if form == OWN_FORM else None
    if config:
        _check_licences(info, whole, config)

    # Only a registry remembers what it has pushed; any other folder names the commit that it may overwrite.
    version = published_version(folder)
    registry = None if version is None else Registry(*registry_of(model))
    pushed = [upload for upload in read_uploads(registry) if upload.repository == repository] if registry else []
    seen = [over] if over else [upload.revision for upload in pushed[-1:]]
    name = f"{registry.model}, version {version}" if registry else info.name
    if registry:
        check_record(registry)

    # Whole on this machine before anything goes up.
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        release = Path(scratch) / "release"
        if form == TRANSFORMERS_FORM:
            from voxline.families.asr.hub_export import export_to_hub

            export_to_hub(folder, release, repository=repository, language=language)
        else:
            write_release(folder, release, repository, language)
        sizes = [file.stat().st_size for file in release.rglob("*") if file.is_file()]
        commit = upload_folder(release, repository, seen=seen, public=public, message=note or name)
    if registry and version:
        record_upload(registry, repository, commit, version, model_digest(folder), form)
    return PushedModel(f"{HUB_SCHEME}{repository}@{commit}", len(sizes), sum(sizes), licences_of(info, whole))


def write_release(folder: Path, release: Path, repository: str, language: str = "") -> None:
    """Writes what is uploaded of an exported model in our own form.

    Args:
      folder: of the model.
      release: a folder that does not exist yet.
      repository: `owner/name`, which the card calls it.

    Raises:
      WorkError: the model is damaged.
    """
    from safetensors.numpy import save

    from voxline.training.warm_start import read_named_weights

    # The model's own bytes, which the signature holds for.
    info = read_model_info(folder)
    release.mkdir(parents=True)
    for file in [*model_files(folder), Path(SIGNATURE)]:
        if (folder / file).is_file():
            (release / file).parent.mkdir(parents=True, exist_ok=True)
            (release / file).write_bytes((folder / file).read_bytes())

    # By name, for programs that read no SavedModel; releases before `model.json` named them have none.
    if info.weights:
        with atomic_write(release / WEIGHTS_FILE) as weights:
            weights.write(save(read_named_weights(info, folder), {"format": "voxline"}))

    # What a download is compared with.
    values = {"format": 1, "model": info.name, "version": published_version(folder), "digest": model_digest(folder)}
    write_json(release / RELEASE_FILE, values)
    write_text(release / CARD_FILE, release_card(folder, info, repository, language))
    if model_digest(release) != values["digest"]:
        raise WorkError(f"{folder}: it changed while it was read; nothing was uploaded, push it again")


def _check_licences(info: ModelInfo, folder: Path | None, config: Sequence[Path]) -> None:
    """Refuses what the gate of the model's runs would."""
    push: PushSettings = load_config(config, pipeline=info.family).push  # type: ignore[attr-defined]
    if refused := [check.detail for check in check_licences(info, push, folder) if not check.passed]:
        raise SettingsError(f"{info.name} was not pushed: {'; '.join(refused)}")

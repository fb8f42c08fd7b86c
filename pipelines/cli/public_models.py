"""Puts a public model into a registry as it is: exported as our own models are, with its commit and licence."""

import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import yaml

from voxline.audio.feature_settings import FeatureSettings
from voxline.components.evaluate.step import run as evaluate
from voxline.components.push.step import run as push
from voxline.errors import SettingsError
from voxline.families.family import Family, find_family
from voxline.families.tts.published_tacotron2 import is_tacotron2, open_tacotron2
from voxline.families.tts.vits.parents import is_public_voice, open_public_voice
from voxline.families.tts.vits.piper import publishers_card
from voxline.families.vocoder.parents import is_public_vocoder, open_public_vocoder
from voxline.inference.model_info import ATTENTION
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.pipelines.config.training_config import TrainingRunConfig
from voxline.pipelines.console import verdict_lines
from voxline.progress import print_status
from voxline.registry.hub import is_release
from voxline.registry.journal import CANDIDATE, format_utc
from voxline.registry.models import find_model
from voxline.registry.models_config import write_models_config
from voxline.registry.parents import Parent, find_other_model
from voxline.registry.registry import MODEL_CARD, PROVENANCE, Registry
from voxline.store.files import read_json, write_json, write_text
from voxline.store.scratch import scratch_root

HEARS = "how well it hears is not known: no test split was named"
SOUNDS = "how well it sounds is not known: no test split was named"
SPEAKS = "how well it speaks is not known: listen to it before you promote it"


def import_public_model(
    location: str,
    registry: str,
    name: str,
    *,
    test: str = "",
    store: str = "",
    language: str = "",
    onnx: str = "none",
    precision: str = "float32",
    speaker: int = 0,
) -> tuple[list[str], bool]:
    """Exports a public model, and publishes it: judged into production, or as a candidate that was not judged.

    Args:
      location: `hf://owner/name@commit`, a folder as the Hub has it, a file of published weights, or a Piper voice.
      name: in the registry; the model tunes and is served under it.
      test: manifest whose test split judges it; empty: it is not judged.
      store: keeps the evaluation; empty: nothing but the registry does.
      language: of a Whisper of several, such as "en".
      onnx: graphs beside the SavedModel, as `train.export.onnx` has it.
      precision: of the network, as `train.export.precision` has it; the gate judges it as it computes.
      speaker: of a voice of several.

    Returns:
      Lines for a person, and whether the model is in the registry now.

    Raises:
      SettingsError: the model does not exist, or cannot transcribe without tuning.
      TransientError: the Hub cannot be reached.
      WorkError: it is damaged.
    """
    if is_release(location, "MODEL"):
        # Its form was judged, and its digest is of these bytes: another one is a matter of `models export`.
        if language or speaker or onnx != "none" or precision != "float32":
            raise SettingsError(
                f"{location}: comes as it was pushed; leave --language, --speaker, --onnx and --precision out"
            )
        return _import_release(location, registry, name, test=test, store=store)

    # config.json says what else it is.
    if is_public_voice(location) or is_tacotron2(location):
        lines = _import_voice(
            location, registry, name, test=test, language=language, onnx=onnx, precision=precision, speaker=speaker
        )
        return lines, True
    if speaker:
        raise SettingsError(f"{location}: --speaker is for voices of several speakers; leave it out")
    if is_public_vocoder(location):
        if language:
            raise SettingsError(f"{location}: --language is for recognizers; leave it out")
        return _import_vocoder(location, registry, name, test=test, store=store, onnx=onnx, precision=precision)
    family = find_family("asr")
    models = Registry(registry, name)
    parent = family.public_parent(location)
    if parent is None:
        raise SettingsError(f"{location}: hf://owner/name@commit or a folder with config.json is accepted")

    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        model = Path(scratch) / "model"
        prompt = {"prompt": {"language": language, "task": "transcribe"}} if language else {}
        form = {"head": "decoder", **prompt} if parent.info.kind == ATTENTION else {}
        if not family.export_published(parent, model, form, name, onnx, precision):
            raise SettingsError(
                f"{parent.label} cannot transcribe as it comes: it has neither an output layer of symbols nor a "
                "decoder with a tokenizer.json; tune it (train.start.model), or import another model"
            )
        if not test:
            version, lines = _publish_candidate(models, model, parent, HEARS)
            return [*lines, *_how_to_tune(parent, form, name, version)], True

        verdict = judge_model(family, model, test, registry, store or f"{scratch}/store", name)

    version = verdict["version"]
    how = _how_to_tune(parent, form, name, version) if version else []
    return [*verdict_lines(f"{name}: {verdict['heading']}"), *how], bool(version)


def _import_release(location: str, registry: str, name: str, *, test: str, store: str) -> tuple[list[str], bool]:
    """Imports a model that Voxline has published, in the form that it has."""
    folder = find_model(location)
    info = read_model_info(folder)
    if not test:
        parent = find_other_model(location, registry, family=info.family, setting="MODEL")
        _, lines = _publish_candidate(Registry(registry, name), folder, parent, "how good it is is not known here")
        return lines, True
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        verdict = judge_model(find_family(info.family), folder, test, registry, store or f"{scratch}/store", name)
    return verdict_lines(f"{name}: {verdict['heading']}"), bool(verdict["version"])


def _import_voice(
    location: str,
    registry: str,
    name: str,
    *,
    test: str,
    language: str,
    onnx: str,
    precision: str,
    speaker: int,
) -> list[str]:
    """Imports a voice, which a person listens to before it is promoted."""
    if test or language:
        raise SettingsError(
            f"{location}: {'--test' if test else '--language'} is for recognizers; a public voice becomes a candidate, "
            "in the language that it speaks"
        )
    # A folder of its own until the version is whole.
    parent = _open_voice(location, speaker)
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        model = Path(scratch) / "model"
        find_family("tts").export_published(parent, model, {}, name, onnx, precision)
        version, lines = _publish_candidate(Registry(registry, name), model, parent, SPEAKS)
    listen = f"voxline synthesize TEXT --model {registry}/{name}/{version} --output out.wav   lets you hear it"
    return [*lines, listen]


def _open_voice(location: str, speaker: int) -> Parent:
    """The voice as a parent.

    Raises:
      SettingsError: it has no such speaker.
    """
    if not is_tacotron2(location):
        return open_public_voice(location, speaker)
    if speaker:
        raise SettingsError(f"{location}: a Tacotron 2 is of one voice; leave --speaker out")
    return open_tacotron2(location)


def _import_vocoder(
    location: str, registry: str, name: str, *, test: str, store: str, onnx: str, precision: str
) -> tuple[list[str], bool]:
    """Imports a vocoder: the gate judges it beside Griffin-Lim, or a person listens."""
    family = find_family("vocoder")
    parent = open_public_vocoder(location)

    # A folder of its own until the version is whole.
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        model = Path(scratch) / "model"
        family.export_published(parent, model, {}, name, onnx, precision)

        # A person decides, or the gate.
        if not test:
            version, lines = _publish_candidate(Registry(registry, name), model, parent, SOUNDS)
            return [*lines, *_how_to_tune(parent, {}, name, version)], True

        verdict = judge_model(family, model, test, registry, store or f"{scratch}/store", name)

    # Nothing of a refused one stays.
    version = verdict["version"]
    how = _how_to_tune(parent, {}, name, version) if version else []
    return [*verdict_lines(f"{name}: {verdict['heading']}"), *how], bool(version)


def judge_model(
    family: Family,
    model: Path,
    test: str,
    registry: str,
    store: str,
    name: str,
    config: TrainingRunConfig | None = None,
) -> dict[str, Any]:
    """Lets evaluate and push decide, as in a run. Returns the verdict.

    Args:
      config: with their settings; None: the defaults.
    """
    if family.evaluate_settings is None or family.push_settings is None:
        raise SettingsError(f"models of the family {family.name!r} are not judged")
    named = {"model_name": name}
    measure = config.evaluate.model_copy(update=named) if config else family.evaluate_settings.of(named)
    gate = config.push.model_copy(update=named) if config else family.push_settings.of(named)
    evaluation = evaluate(model, test, registry, store, measure)
    pushed = push(model, evaluation.folder, registry, store, gate)
    verdict: dict[str, Any] = read_json(pushed.path("verdict"))
    return verdict


def _publish_candidate(models: Registry, model: Path, parent: Parent, unknown: str) -> tuple[int, list[str]]:
    """Publishes a version that waits for a person, with a card that says that nobody judged it.

    Returns:
      Its number, and lines for a person.
    """
    origin = parent.ancestor
    info = read_model_info(model)
    digest = model_digest(model)
    at = format_utc(time.time())
    note = f"{origin.label} as it is; not judged"
    with models.locked(), models.publishing(model, digest, "push", alias=CANDIDATE, note=note) as (version, folder):
        commit = f"commit `{origin.revision}`" if origin.revision else f"digest `{origin.digest}`"
        card = (
            f"# {models.model}, version {version}\n\n`{origin.name}` as it comes, {commit}; licence: "
            f"{origin.licence or 'not stated'}. Imported {at}.\n\n"
            f"It was not judged, so {unknown}.\n"
        )
        if text := publishers_card(parent.load_folder()):
            card += f"\n## The publisher's card\n\n{text}"
        write_text(folder / MODEL_CARD, card)
        provenance = {
            "model": models.model,
            "version": version,
            "digest": digest,
            "pushed_at": at,
            "checks": [],
            "dataset": msgspec.to_builtins(info.dataset),
            "start": msgspec.to_builtins(info.start),
            **msgspec.to_builtins(info.provenance),
        }
        write_json(folder / PROVENANCE, provenance)
    print_status(f"import: version {version} of {models.model} is {note}")
    write_models_config(models.root)
    return version, [
        f"{models.model}: version {version} is {parent.label} as it is, a candidate; it was not judged",
        f"voxline models promote {models.model} --registry {models.root}   puts it into service",
    ]


def _how_to_tune(parent: Parent, form: dict[str, Any], name: str, version: int) -> list[str]:
    """The keys of a config that tunes the model."""
    info = parent.info
    features = FeatureSettings.of(info.features).key_values()
    features.pop("sample_rate", None)  # convert's
    config = {
        "convert": {"sample_rate": info.sample_rate},
        "extract": {"features": features},
        "train": {"start": {"model": f"{name}@{version}"}, "model": info.model_settings | form},
    }
    return ["A config that tunes it has", *yaml.safe_dump(config, sort_keys=False).splitlines()]

"""Lines that the commands of models print: versions, their history and their training data."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from voxline.data.dataset import Dataset
from voxline.data.drafts import DRAFTED_BY, describe_drafts
from voxline.data.versions import DatasetVersions, list_datasets
from voxline.errors import SettingsError, WorkError
from voxline.inference.model_info import AS_PUBLISHED, ModelInfo
from voxline.inference.saved_model import MODEL_JSON
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import REPORT_FILE
from voxline.operations.purge.purge import past_purges
from voxline.registry.anchor import current_anchor, name_anchor, named_anchor
from voxline.registry.hub_upload import read_uploads
from voxline.registry.journal import PRODUCTION, WITHDRAW, JournalError, RegistryEvent
from voxline.registry.models import model_names
from voxline.registry.models_config import write_models_config
from voxline.registry.parents import ancestors_of
from voxline.registry.recovery import describe_recovery, recover_journal
from voxline.registry.registry import MODEL_CARD, PROVENANCE, Registry
from voxline.registry.training_data import SPLITS, TRAINED_ON, TrainingData, read_training_data
from voxline.store.files import atomic_write
from voxline.store.versioned_json import parse_versioned


def format_models(root: Path | str) -> list[str]:
    """A line for each model: its name, the version in service, its headline metric and its date."""
    lines = []
    for name in model_names(root):
        registry = Registry(root, name)
        try:
            version = registry.in_service()
            waiting = registry.candidate()
        except JournalError as error:  # a damaged journal must not hide the other models
            lines.append(f"{name}  {error}")
            continue
        count = f"(of {len(registry.versions())} versions{f'; version {waiting} is the candidate' if waiting else ''})"
        shown = "nothing in service" if version is None else _format_event(registry.event(version))
        lines.append(f"{name}  {shown}  {count}")
    return lines or [f"{root}: no model has been pushed here yet"]


def format_journal(root: Path | str, model: str) -> list[str]:
    """A line for each event in a model's journal, oldest first; the versions in service and waiting are marked."""
    registry = _open_registry(root, model)
    events = registry.journal()
    marks = {registry.candidate(): "▹", registry.in_service(): "▸"}

    # A version may have several events, such as its push and its promotion; the mark is at the last one.
    latest = {change.version: number for number, change in enumerate(events)}
    return [
        f"{marks.get(change.version, ' ') if latest[change.version] == number else ' '} {_format_event(change)}"
        + (f"  {change.note}" if change.note else "")
        for number, change in enumerate(events)
    ]


def format_model_version(root: Path | str, model: str, version: int) -> list[str]:
    """The details of one version."""
    registry = _open_registry(root, model)
    values = dataclasses.asdict(registry.event(version))
    metrics = values.pop("metrics")
    folder = registry.path(version)

    # The event that published it, its files, then its metrics as the gate read them.
    shown = {"folder": str(folder), **{name: value for name, value in values.items() if value not in (None, "")}}
    files = {"card": folder / MODEL_CARD, "evaluation": folder / "evaluation" / REPORT_FILE}
    shown |= {name: str(file) for name, file in files.items() if file.is_file()}
    uploads = [upload for upload in read_uploads(registry) if upload.version == version]
    shown |= {f"hub {upload.repository}": f"{upload.revision} ({upload.form}, {upload.at})" for upload in uploads}
    shown |= {_label(name): _value(name, value) for name, value in metrics.items()}
    width = max(len(name) for name in shown)
    return [f"{name:<{width}}  {value}" for name, value in shown.items()]


def _value(metric: str, value: float) -> str:
    entry = CATALOG.find(metric)
    return f"{value:g}" if entry is None else entry.format(value)


def _label(metric: str) -> str:
    entry = CATALOG.find(metric)
    return metric if entry is None else entry.label or entry.title


def roll_back(root: Path | str, model: str, to: int | None, note: str) -> str:
    """Puts an older version back into service under a new number."""
    change = _open_registry(root, model).rollback(to, note)
    write_models_config(root)  # TensorFlow Serving reads this file, not the journal
    return f"{model}: version {change.version} is in service, the same model as version {change.copy_of}"


def promote(root: Path | str, model: str, version: str, alias: str, note: str) -> str:
    """Points an alias at a version."""
    change = _open_registry(root, model).promote(version, alias, note)
    write_models_config(root)
    if change.alias != PRODUCTION:
        return f"{model}: version {change.version} is the {change.alias}"
    before = "" if change.replaces is None else f" in place of version {change.replaces}"
    return f"{model}: version {change.version} is in service{before}"


def set_anchor(root: Path | str, model: str, version: int | None, note: str) -> None:
    """Names the anchor; None goes back to the best version so far."""
    name_anchor(_open_registry(root, model), version, note)


def format_anchor(root: Path | str, model: str) -> str:
    """The anchor of a model, and whether a person named it."""
    registry = _open_registry(root, model)
    how = "the best so far" if named_anchor(registry) is None else "named"
    anchor = current_anchor(registry)
    in_service = registry.in_service()
    return f"{model}: the anchor is version {anchor}, {how}; version {in_service} is in service"


def _open_registry(root: Path | str, model: str) -> Registry:
    if model not in model_names(root):
        raise WorkError(f"{root}: no model {model!r} here; the models are: {', '.join(model_names(root)) or 'none'}")
    return Registry(root, model)


def recover(root: str, model: str, production: int | None, candidate: int | None, note: str) -> list[str]:
    """Rebuilds a journal, and returns its lines.

    Raises:
      SettingsError: the version in production is not named; what is known was printed.
    """
    # Nobody can guess which version was in production: the person is shown what the versions say, and decides.
    _open_registry(root, model)
    if production is None:
        print("\n".join(describe_recovery(root, model)))
        raise SettingsError("--production: name the version in production by its number; nothing was recovered")
    recover_journal(root, model, production, candidate, note)
    return format_journal(root, model)


def _format_event(change: RegistryEvent) -> str:
    metrics = [metric for metric in CATALOG.select(change.metrics) if metric.headline]
    headline = f"  {metrics[0].label} {metrics[0].format(change.metrics[metrics[0].name])}" if metrics else ""

    # A push to production is the usual case, and says nothing of the alias.
    action = change.action if change.copy_of is None else f"rolled back to version {change.copy_of}"
    if change.action == WITHDRAW:
        action = "withdrawn as the candidate"
    elif change.alias != PRODUCTION or not change.makes_version:
        action = f"{action} to {change.alias}"
    return f"version {change.version}  {change.at}  {action}{headline}"


def format_training_data(root: str, model: str, version: int, ids: Path | None) -> list[str]:
    """The training data of a model's version.

    Args:
      ids: a file to write the utterances to, a line each; ends in .jsonl.

    Raises:
      WorkError: the version does not say.
    """
    registry = Registry(root, model)
    training_data = _training_data_of(registry, version)
    data = json.loads(registry.read_file(version, MODEL_JSON) or b"{}")
    if training_data is None and data.get("provenance", {}).get("trained", {}).get(AS_PUBLISHED):
        raise WorkError(
            f"{registry.uri}/{version}: a public model as it comes; whose recordings it was trained on is not known, "
            "and no purge of a speaker finds it by them"
        )
    if training_data is None:
        raise WorkError(
            f"{registry.uri}/{version}: no {TRAINED_ON}: it was trained before such lists existed; "
            f"{PROVENANCE} there names its dataset"
        )
    lines = [f"{'dataset':<10}{training_data.dataset}", f"{'rows':<10}{training_data.rows}"]
    for split in SPLITS:
        utterances = [line for line in training_data.utterances if line["split"] == split]
        hours = sum(line["duration"] for line in utterances) / 3600
        speakers = len({line["speaker"] for line in utterances})
        lines.append(f"{split:<10}{len(utterances):,} utterances, {hours:,.2f} h, {speakers:,} speakers")

    # A model that started from another one has learned that one's data too. Of published weights nobody has the list.
    if inherited := sum(line.get("inherited", False) for line in training_data.utterances):
        lines.append(f"{'inherited':<10}{inherited:,} of them through the models that it started from")
    drafts = Counter(line[DRAFTED_BY] for line in training_data.utterances if DRAFTED_BY in line)
    if drafts:
        lines.append(f"{'drafts':<10}{describe_drafts(dict(sorted(drafts.items())))}: no person transcribed these")
    info = parse_versioned(data, ModelInfo, f"{registry.uri}/{version}/{MODEL_JSON}")
    lines += [
        f"{'unknown':<10}what {ancestor.label} was trained on, a file of published weights: no purge of a speaker "
        "finds it"
        for ancestor in ancestors_of(info)
        if ancestor.is_published
    ]

    # A purge takes the lines out, and leaves their number: the weights have learned them all the same.
    if training_data.purged:
        lines.append(f"{'purged':<10}{training_data.purged:,} more utterances, whose lines were purged")
    if ids:
        with atomic_write(ids, "w") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in training_data.utterances)
        lines.append(f"{'listed in':<10}{ids}")
    return lines


def format_speaker_use(speaker: str, registry: str | None, datasets: Sequence[str]) -> list[str]:
    """The models that were trained on a speaker, and the dataset versions that contain them.

    Raises:
      SettingsError: there is nowhere to look.
    """
    if not registry and not datasets:
        raise SettingsError("nowhere to look: give --registry, --datasets or both")
    lines = [line for root in datasets for line in _datasets_with_speaker(speaker, root)]
    if registry:
        lines += _models_with_speaker(speaker, registry)

    # After a purge the lists are empty; its record, which has no name but a salted hash, still tells.
    records = past_purges(speaker, datasets)
    for record in records:
        models = ", ".join(record["models"]) or "none in the registry"
        lines.append(f"purged {record['at']}: {record['utterances']:,} utterances; models trained on them: {models}")
    return lines or [f"{speaker!r} is in none of these"]


def _datasets_with_speaker(speaker: str, root: str) -> list[str]:
    lines = []
    for name in list_datasets(root):
        versions = DatasetVersions(root, name)
        for number in versions.numbers():
            rows = Dataset.read(versions.path(number), shards=False).rows()
            counts = Counter(row.split for row in rows if row.speaker == speaker)
            if counts:
                lines.append(f"dataset {name} version {number}: {_format_counts(counts)}")
    return lines


def _models_with_speaker(speaker: str, root: str) -> list[str]:
    lines = []
    unknown = []
    for model in model_names(root):
        registry = Registry(root, model)
        for version in registry.versions():
            training_data = _training_data_of(registry, version)
            if training_data is None:
                unknown.append(f"{model}/{version}")
            elif counts := Counter(line["split"] for line in training_data.of_speaker(speaker)):
                serving = "  in service" if version == registry.in_service() else ""
                lines.append(f"model {model} version {version}: {_format_counts(counts)}{serving}")
    if unknown:
        lines.append(f"unknown, trained before such lists existed: {', '.join(unknown)}")
    return lines


def _training_data_of(registry: Registry, version: int) -> TrainingData | None:
    data = registry.read_file(version, TRAINED_ON)
    return None if data is None else read_training_data(data, f"{registry.uri}/{version}/{TRAINED_ON}")


def _format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in counts.items())

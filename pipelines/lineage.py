"""From a model back to the utterances that it was trained on, and from a speaker forward to the models."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from components.publish.purging.purge import purged_before
from components.publish.versions import Versions, names
from components.speech.dataset import Dataset
from components.speech.errors import SettingsError, WorkError
from components.speech.lineage import SPLITS, TRAINED_ON, Lineage, read_lineage
from components.speech.registry import PROVENANCE, Registry, models
from components.speech.storage import whole_file


def trained_on(root: str, model: str, version: int, ids: Path | None) -> list[str]:
    """What a version of a model was trained on.

    Args:
      ids: a file to write the utterances to, a line each; ends in .jsonl.

    Raises:
      WorkError: the version does not say.
    """
    registry = Registry(root, model)
    lineage = _lineage(registry, version)
    if lineage is None:
        raise WorkError(
            f"{registry.place}/{version}: no {TRAINED_ON}: it was trained before such lists were kept; "
            f"{PROVENANCE} there names its dataset"
        )
    lines = [f"{'dataset':<10}{lineage.dataset}", f"{'rows':<10}{lineage.rows}"]
    for split in SPLITS:
        chosen = [line for line in lineage.utterances if line["split"] == split]
        hours = sum(line["duration"] for line in chosen) / 3600
        speakers = len({line["speaker"] for line in chosen})
        lines.append(f"{split:<10}{len(chosen):,} utterances, {hours:,.2f} h, {speakers:,} speakers")
    if lineage.purged:
        lines.append(f"{'purged':<10}{lineage.purged:,} utterances more, whose lines a purge took out")
    if ids:
        with whole_file(ids, "w") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lineage.utterances)
        lines.append(f"{'listed in':<10}{ids}")
    return lines


def seen(speaker: str, registry: str | None, datasets: Sequence[str]) -> list[str]:
    """Which models were trained on a speaker, and which versions of datasets hold them.

    Raises:
      SettingsError: there is nowhere to look.
    """
    if not registry and not datasets:
        raise SettingsError("nowhere to look: give --registry, --datasets or both")
    lines = [line for root in datasets for line in _in_datasets(speaker, root)]
    if registry:
        lines += _by_models(speaker, registry)
    records = purged_before(speaker, datasets)
    for record in records:
        saw = ", ".join(record["models"]) or "none that was served"
        lines.append(f"purged {record['at']}: {record['utterances']:,} utterances; models that had seen them: {saw}")
    return lines or [f"{speaker!r} is in none of these"]


def _in_datasets(speaker: str, root: str) -> list[str]:
    lines = []
    for name in names(root):
        versions = Versions(root, name)
        for number in versions.numbers():
            rows = Dataset.read(versions.path(number), shards=False).rows()
            counts = Counter(row.split for row in rows if row.speaker == speaker)
            if counts:
                lines.append(f"dataset {name} version {number}: {_told(counts)}")
    return lines


def _by_models(speaker: str, root: str) -> list[str]:
    lines, unknown = [], []
    for model in models(root):
        registry = Registry(root, model)
        for version in registry.versions():
            lineage = _lineage(registry, version)
            if lineage is None:
                unknown.append(f"{model}/{version}")
            elif counts := Counter(line["split"] for line in lineage.of_speaker(speaker)):
                serving = "  in service" if version == registry.in_service() else ""
                lines.append(f"model {model} version {version}: {_told(counts)}{serving}")
    if unknown:
        lines.append(f"not known, trained before such lists were kept: {', '.join(unknown)}")
    return lines


def _lineage(registry: Registry, version: int) -> Lineage | None:
    data = registry.beside(version, TRAINED_ON)
    return None if data is None else read_lineage(data, f"{registry.place}/{version}/{TRAINED_ON}")


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in counts.items())

"""What a registry holds of a speaker: versions that were trained on them, or judged by what they said.

The models stay: what was learned cannot be taken out of weights, and whether such a model may go on serving is for a
person to decide, who is told which they are. Their lists of utterances, tables, clips and pages lose the speaker.
The files of the model itself do not change, so nothing that serves it notices.
"""

import dataclasses
import html
import json
import re
from pathlib import Path
from typing import Any

from voxline.components.publish.purge.footprint import Footprint, contains_name
from voxline.components.publish.purge.workspace import Workspace
from voxline.errors import WorkError
from voxline.metrics.evaluation import CLIP_FILE, CLIP_MELS_FILE, METRICS_FILE, REPORT_FILE, UTTERANCES_FILE
from voxline.registry.registry import EVALUATION, PROVENANCE, Registry, model_names
from voxline.registry.training_data import TRAINED_ON, read_training_data
from voxline.report import Page, small_print
from voxline.store.files import atomic_write, read_json, write_json
from voxline.store.hashing import hash_value

_EMBEDDED = re.compile(rb"data:[a-z]+/[^\"' )]*")


@dataclasses.dataclass(frozen=True)
class RegistryUse:
    """A version of a model that has to do with the speaker.

    Attributes:
      saw: it was trained on them.
      listed: lines in its list of utterances.
      judged: utterances of theirs that it was judged by.
      shown: its page shows them.
    """

    model: str
    version: int
    folder: Path
    saw: bool
    listed: int
    judged: int
    shown: bool

    @property
    def name(self) -> str:
        return f"{self.model}/{self.version}"


def find_registry_uses(registry: Path | str, traces: Footprint) -> list[RegistryUse]:
    """The versions of all models that have to do with the speaker."""
    found = []
    names = [form for name in traces.ids for form in (name.encode(), html.escape(name).encode())]
    for model in model_names(registry):
        versions = Registry(registry, model)
        for version in versions.versions():
            folder = versions.folder / str(version)
            listed = _listed(folder, traces.speaker)
            saw = bool(listed) or _dataset(folder) in traces.datasets
            judged = sum(line["speaker"] == traces.speaker for line in _table(folder))
            page = folder / EVALUATION / REPORT_FILE
            shown = page.is_file() and contains_name(_EMBEDDED.sub(b"", page.read_bytes()), names)
            if saw or judged or shown:
                found.append(RegistryUse(model, version, folder, saw, listed, judged, shown))
    return found


def purge_registry_use(registry: Path | str, one: RegistryUse, traces: Footprint, at: str, ground: Workspace) -> None:
    """Takes the speaker out of what lies beside a version's model."""
    with Registry(registry, one.model).locked():
        folder = one.folder / EVALUATION
        if one.shown or one.judged:
            text = f"The page of this evaluation showed and played a speaker who was purged, {at}. Its figures stay."
            page = Page(f"Evaluation of {one.name}", footer=str(read_json(folder / METRICS_FILE)["key"]))
            page.add_opening(small_print(text))
            page.write(folder / REPORT_FILE)
            ground.sent(folder / REPORT_FILE)
        if one.judged:
            _purge_metrics(folder, traces, ground)
            kept = [line for line in _table(one.folder) if line["speaker"] != traces.speaker]
            with atomic_write(folder / UTTERANCES_FILE, "w") as file:
                file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)
            ground.sent(folder / UTTERANCES_FILE)
        if one.listed:
            file_of_lines = one.folder / TRAINED_ON
            read_training_data(file_of_lines.read_bytes(), str(file_of_lines)).without(traces.speaker).write(
                file_of_lines
            )
            ground.sent(file_of_lines)


def _purge_metrics(folder: Path, traces: Footprint, ground: Workspace) -> None:
    """Counts stay true of the table beside them, and the test set is no longer the one that others were judged by."""
    metrics = read_json(folder / METRICS_FILE)
    kept = sum(line["speaker"] != traces.speaker for line in _table(folder.parent))
    metrics["utterances"] = kept
    metrics["test"]["fingerprint"] = hash_value({"purged": metrics["test"]["fingerprint"], "utterances": kept})
    metrics["slices"] = {name: _without(parts, traces.speaker) for name, parts in metrics.get("slices", {}).items()}
    if (metrics.get("clip") or {}).get("id") in traces.ids:
        metrics["clip"] = None
        for name in (CLIP_FILE, CLIP_MELS_FILE):
            ground.remove(folder / name)
    write_json(folder / METRICS_FILE, metrics)
    ground.sent(folder / METRICS_FILE)


def _without(parts: dict[str, Any], name: str) -> dict[str, Any]:
    return {part: values for part, values in parts.items() if part != name}


def _table(folder: Path) -> list[dict[str, Any]]:
    file = folder / EVALUATION / UTTERANCES_FILE
    if not file.is_file():
        return []
    try:
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise WorkError(f"{file}: damaged ({error}); remove that folder, and purge again") from None


def _listed(folder: Path, speaker: str) -> int:
    file = folder / TRAINED_ON
    return len(read_training_data(file.read_bytes(), str(file)).of_speaker(speaker)) if file.is_file() else 0


def _dataset(folder: Path) -> str | None:
    file = folder / PROVENANCE
    key: str | None = read_json(file)["dataset"]["key"] if file.is_file() else None
    return key

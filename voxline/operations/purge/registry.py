"""What a registry holds of a speaker: versions that were trained on them or evaluated on their utterances.

The models stay. What a model learned cannot be removed from its weights, and a person must decide whether it may go on
serving; the purge names these models. Their lists of utterances, tables, clips and pages lose the speaker. The model's
own files do not change, so nothing that serves them notices.

Beside a registry, and beside datasets, is the history of runs. A run's reason may name utterances or quote their text.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from voxline.errors import WorkError
from voxline.inference.saved_model import MODEL_JSON
from voxline.metrics.evaluation import (
    CLIP_FILE,
    CLIP_MELS_FILE,
    METRICS_FILE,
    REPORT_FILE,
    UTTERANCES_FILE,
)
from voxline.notify.history import FOLDER
from voxline.operations.purge.footprint import (
    Footprint,
    contains_name,
    count_lines,
    remove_lines,
    shows_name,
)
from voxline.operations.purge.locations import Workspace
from voxline.registry.journal import CANDIDATE, PRODUCTION
from voxline.registry.models import model_names
from voxline.registry.registry import EVALUATION, PROVENANCE, Registry
from voxline.registry.training_data import TRAINED_ON
from voxline.report import Page, small_print
from voxline.store.files import atomic_write, read_json, write_json
from voxline.store.hashing import hash_value


@dataclasses.dataclass(frozen=True)
class RegistryUse:
    """A version of a model that used a speaker's utterances.

    Attributes:
      folder: of the version.
      trained: it was trained on them.
      lines: of the speaker in its list of training data.
      evaluated: the speaker's utterances in its evaluation.
      shown: its page shows them.
      speaks: it is a voice whose table of speakers names them.
      alias: "production" or "candidate" if that points at it, else "".
    """

    model: str
    version: int
    folder: Path
    trained: bool
    lines: int
    evaluated: int
    shown: bool
    speaks: bool = False
    alias: str = ""

    @property
    def name(self) -> str:
        return f"{self.model}/{self.version}"

    @property
    def evaluation(self) -> Path:
        return self.folder / EVALUATION


def find_registry_uses(registry: Path | str, footprint: Footprint) -> list[RegistryUse]:
    """The versions of all models that used the speaker's utterances."""
    uses = []

    names = footprint.names_in_text()
    for model in model_names(registry):
        versions = Registry(registry, model)
        aliases = {versions.candidate(): CANDIDATE, versions.in_service(): PRODUCTION}

        for version in versions.versions():
            folder = versions.folder / str(version)

            # By its list of utterances, or, where it has none, by the key of its dataset.
            lines = count_lines(folder / TRAINED_ON, footprint.speaker)
            trained = bool(lines) or _dataset_key(folder) in footprint.datasets
            evaluated = sum(line["speaker"] == footprint.speaker for line in _read_table(folder / EVALUATION))
            page = folder / EVALUATION / REPORT_FILE
            shown = page.is_file() and shows_name(page, names)

            # The row is a part of the weights, as what else the model learned of them: it stays, and is named.
            speaks = footprint.speaker in _speakers(folder)

            if trained or evaluated or shown or speaks:
                alias = aliases.get(version, "")
                uses.append(RegistryUse(model, version, folder, trained, lines, evaluated, shown, speaks, alias))
    return uses


def purge_registry_use(
    registry: Path | str, use: RegistryUse, footprint: Footprint, at: str, workspace: Workspace
) -> None:
    """Removes the speaker from the files next to a version's model."""
    with Registry(registry, use.model).locked():
        folder = use.evaluation
        if use.shown or use.evaluated:
            text = f"This page showed and played a speaker who was purged, {at}. The metrics have not changed."
            page = Page(
                f"Evaluation of {use.name}", footer=(_read_document(folder / METRICS_FILE) or {}).get("key", "")
            )
            page.add_opening(small_print(text))
            page.write(folder / REPORT_FILE)
            workspace.upload(folder / REPORT_FILE)
        # The table last: a repeated purge finds by it what is still to do.
        if use.evaluated:
            lines = [line for line in _read_table(folder) if line["speaker"] != footprint.speaker]
            _purge_metrics(folder, footprint, len(lines), workspace)
            with atomic_write(folder / UTTERANCES_FILE, "w") as file:
                file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            workspace.upload(folder / UTTERANCES_FILE)

        if use.lines:
            remove_lines(use.folder / TRAINED_ON, footprint.speaker, workspace)


def find_run_records(root: Path, footprint: Footprint) -> list[Path]:
    """Records in the history of runs beside a registry or datasets, whose reason names the speaker."""
    names = [footprint.speaker.encode(), *footprint.names_in_text()]
    files = sorted((root / FOLDER).glob("*.json"))
    return [file for file in files if contains_name(_reason(file).encode(), names)]


def purge_run_record(file: Path, at: str, workspace: Workspace) -> None:
    """Removes the reason of a run."""
    write_json(file, read_json(file) | {"reason": f"the reason named a speaker who was purged, {at}"})
    workspace.upload(file)


def _reason(file: Path) -> str:
    try:
        return str(read_json(file)["reason"])
    except (ValueError, KeyError, TypeError):  # not the record of a run
        return ""


def _purge_metrics(folder: Path, footprint: Footprint, utterances: int, workspace: Workspace) -> None:
    """Keeps the counts equal to the table, and marks the test set as another one than before.

    It changes the JSON document and asks for no format: an erasure is owed by evaluations of every
    release, also by those that push would refuse today, and what it does not know it leaves as it is. A file that
    cannot be read at all is removed, since nobody can say whom it names.
    """
    file = folder / METRICS_FILE
    document = _read_document(file)
    if document is None:
        workspace.remove(file)
        return

    test = document.get("test")
    before = test.get("fingerprint") if isinstance(test, dict) else None
    fingerprint = hash_value({"purged": before, "utterances": utterances})
    document["utterances"] = utterances
    document["test"] = {**(test if isinstance(test, dict) else {}), "fingerprint": fingerprint}

    # Slices by speaker have their name as a key.
    slices = document.get("slices")
    for summaries in slices.values() if isinstance(slices, dict) else ():
        summaries.pop(footprint.speaker, None)

    # The lists of a family quote its utterances: a recognizer's those of the highest loss, with their text.
    details = document.get("details")
    if isinstance(details, dict) and (worst := details.get("worst_by_loss")):
        details["worst_by_loss"] = [utterance for utterance in worst if utterance["id"] not in footprint.ids]

    # The clip that was synthesized or heard for the page.
    smoke_test = document.get("smoke_test")
    if isinstance(smoke_test, dict) and smoke_test.get("id") in footprint.ids:
        document["smoke_test"] = None
        for name in (CLIP_FILE, CLIP_MELS_FILE):
            workspace.remove(folder / name)

    write_json(file, document)
    workspace.upload(file)


def _read_document(file: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if the file has something else or does not exist."""
    try:
        document = read_json(file)
    except (FileNotFoundError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _read_table(evaluation: Path) -> list[dict[str, Any]]:
    file = evaluation / UTTERANCES_FILE
    if not file.is_file():
        return []
    try:
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise WorkError(f"{file}: damaged ({error}); remove that folder, and purge again") from None


def _speakers(folder: Path) -> list[str]:
    """The names of a voice's table; [] of another model."""
    document = _read_document(folder / MODEL_JSON) or {}
    speakers = document.get("speakers")
    return [str(name) for name in speakers] if isinstance(speakers, list) else []


def _dataset_key(folder: Path) -> str | None:
    file = folder / PROVENANCE
    if not file.is_file():
        return None

    # A public model that was imported as it is has no dataset of ours.
    key: str | None = read_json(file)["dataset"].get("key")
    return key

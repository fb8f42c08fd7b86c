"""What a store holds of a speaker beside shards: work that lists or shows them, their WAVs, logs of trainings.

Work is named by its input and made again when it is wanted, so a folder of it that holds anything of the speaker goes
as a whole. A training stays, as a model that has seen them: its list of utterances loses their lines, and its
TensorBoard files go, which may play and print what was said.
"""

import contextlib
import dataclasses
import fcntl
import html
import re
from collections.abc import Iterator
from pathlib import Path

from voxline.components.publish.purge.footprint import Footprint, contains_name
from voxline.components.publish.purge.locations import BINARY_SUFFIXES, NAMELESS_FOLDERS, TRAIN, WAVS
from voxline.components.publish.purge.workspace import Workspace
from voxline.data.shards import SHARDS_FOLDER
from voxline.errors import WorkError
from voxline.registry.training_data import TRAINED_ON, read_training_data
from voxline.store.files import DONE, atomic_write
from voxline.store.step_cache import read_done

EVENTS = "events.out.tfevents."
LINES = "lines"
_NOT_WORK = (SHARDS_FOLDER, WAVS, TRAIN, *NAMELESS_FOLDERS)
_EMBEDDED = re.compile(rb"data:[a-z]+/[^\"' )]*")


@dataclasses.dataclass(frozen=True)
class AffectedTraining:
    """A training on what the speaker said.

    Attributes:
      folder: `<store>/train/<key>`.
      events: TensorBoard's files.
      lists: of the utterances that it saw, where theirs are among them.
      listed: lines of theirs in these.
    """

    folder: Path
    events: list[Path]
    lists: list[Path]
    listed: int


@contextlib.contextmanager
def lock_outputs(store: Path) -> Iterator[None]:
    """Holds all work of a store in a folder, so that nothing that began before goes on to add what is being removed.

    Raises:
      WorkError: a process does some of it.
    """
    with contextlib.ExitStack() as held:
        for path in sorted(store.glob("*/*.lock")):
            file = held.enter_context(open(path, "ab"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise WorkError(
                    f"{path.with_suffix('')}: a process works here; stop it, or wait until it is done, and purge again"
                ) from None
        yield


def find_outputs(store: Path, traces: Footprint, ground: Workspace) -> list[Path]:
    """Folders of work that list or show the speaker."""
    found = {store / name for name in (*traces.manifests, *traces.sources) if ground.exists(store / name)}
    names = [form for name in sorted(traces.ids) for form in _forms(name)]
    for folder in _folders(store):
        if folder not in found and _shows(folder, names):
            found.add(folder)
    if any(name.startswith("corpora/") for name in traces.sources) and ground.exists(store / "corpora" / "objects"):
        found.add(store / "corpora" / "objects")
    return sorted(found)


def find_wavs(store: Path, traces: Footprint, ground: Workspace) -> list[Path]:
    files = (store / WAVS / name[:2] / f"{name}.wav" for name in sorted(traces.wavs))
    return [file for file in files if ground.exists(file)]


def find_trainings(store: Path, traces: Footprint, ground: Workspace) -> list[AffectedTraining]:
    """Trainings that are finished, and saw the speaker."""
    found = []
    for folder in sorted(file.parent for file in (store / TRAIN).glob(f"*/{DONE}")):
        done = read_done(folder)
        files = ground.files(folder)
        lists = {file: lines for file in files if file.name == TRAINED_ON and (lines := _lines(file, traces.speaker))}
        if lists or done["inputs"].get("dataset") in traces.datasets:
            events = [file for file in files if file.name.startswith(EVENTS)]
            found.append(AffectedTraining(folder, events, list(lists), sum(lists.values())))
    return found


def count_unfinished_trainings(store: Path, ground: Workspace) -> int:
    """Trainings of which nobody knows yet what they see."""
    return sum(not ground.exists(folder / DONE) for folder in ground.folders(store / TRAIN))


def purge_training(training: AffectedTraining, speaker: str, ground: Workspace) -> None:
    for file in training.events:
        ground.remove(file)
    for file in training.lists:
        read_training_data(file.read_bytes(), str(file)).without(speaker).write(file)
        ground.sent(file)


def _lines(file: Path, speaker: str) -> int:
    return len(read_training_data(file.read_bytes(), str(file)).of_speaker(speaker))


def forget_wavs(store: Path, names: set[str], ground: Workspace) -> None:
    """Takes lines about WAVs out of the pool's logs; and away what convert remembers of manifests, which names WAVs."""
    for remembered in (store / LINES).glob("*"):
        remembered.unlink(missing_ok=True)
    sought = [name.encode() for name in names]
    for log in find_wav_logs(store, names):
        lines = log.read_bytes().splitlines(keepends=True)
        with atomic_write(log) as file:
            file.writelines(line for line in lines if not _names_any(line, sought))
        ground.sent(log)


def find_wav_logs(store: Path, names: set[str]) -> list[Path]:
    """The pool's logs that tell of some of these WAVs."""
    sought = [name.encode() for name in names]
    logs = sorted((store / WAVS / "log").glob("*.jsonl"))
    return [log for log in logs if _names_any(log.read_bytes(), sought)]


def _folders(store: Path) -> list[Path]:
    steps = [path for path in store.iterdir() if path.is_dir() and path.name not in _NOT_WORK]
    return sorted(path for step in steps for path in step.iterdir() if path.is_dir())


def _shows(folder: Path, names: list[bytes]) -> bool:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in BINARY_SUFFIXES)
    return any(contains_name(_EMBEDDED.sub(b"", file.read_bytes()), names) for file in files)


def _forms(name: str) -> set[bytes]:
    """An id as it stands in JSON and in HTML."""
    return {name.encode(), html.escape(name).encode()}


def _names_any(data: bytes, names: list[bytes]) -> bool:
    return any(name in data for name in names)

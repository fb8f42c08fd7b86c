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
from collections.abc import Iterable, Iterator
from pathlib import Path

from components.publish.purging.traces import UNPACKED, WAVS, Traces, names_any
from components.speech.errors import WorkError
from components.speech.lineage import TRAINED_ON, read_lineage
from components.speech.shards import POOL
from components.speech.storage import whole_file
from components.speech.work import DONE, read_done

TRAIN = "train"
_NOT_WORK = (POOL, WAVS, TRAIN, "fingerprints", *UNPACKED)
_EMBEDDED = re.compile(rb"data:[a-z]+/[^\"' )]*")
_BINARY = (".wav", ".npy", ".npz", ".tfrecord", ".flac")


@dataclasses.dataclass(frozen=True)
class Training:
    """A training on what the speaker said.

    Attributes:
      folder: `<store>/train/<key>`.
      events: TensorBoard's files.
      listed: lines of theirs in its list of utterances.
    """

    folder: Path
    events: list[Path]
    listed: int


@contextlib.contextmanager
def work_held(store: Path) -> Iterator[None]:
    """Holds all work of a store, so that nothing that began before goes on to add what is being removed.

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


def works(store: Path, traces: Traces) -> list[Path]:
    """Folders of work that list or show the speaker."""
    found = {store / name for name in (*traces.manifests, *traces.sources) if (store / name).is_dir()}
    names = [form for name in sorted(traces.ids) for form in _forms(name)]
    for folder in _folders(store):
        if folder not in found and _shows(folder, names):
            found.add(folder)
    if any(name.startswith("corpora/") for name in traces.sources) and (store / "corpora" / "objects").is_dir():
        found.add(store / "corpora" / "objects")
    return sorted(found)


def wavs(store: Path, traces: Traces) -> list[Path]:
    files = (store / WAVS / name[:2] / f"{name}.wav" for name in sorted(traces.wavs))
    return [file for file in files if file.is_file()]


def trainings(store: Path, traces: Traces) -> list[Training]:
    """Trainings that are finished, and saw the speaker."""
    found = []
    for folder in sorted(file.parent for file in (store / TRAIN).glob(f"*/{DONE}")):
        file = folder / "model" / TRAINED_ON
        listed = len(read_lineage(file.read_bytes(), str(file)).of_speaker(traces.speaker)) if file.is_file() else 0
        if listed or read_done(folder)["inputs"].get("dataset") in traces.datasets:
            found.append(Training(folder, sorted(folder.glob("logs/**/events.out.tfevents.*")), listed))
    return found


def unfinished_trainings(store: Path) -> int:
    """Trainings of which nobody knows yet what they see."""
    return sum(path.is_dir() and not (path / DONE).is_file() for path in (store / TRAIN).glob("*"))


def purge_training(training: Training, speaker: str) -> None:
    for file in training.events:
        file.unlink()
    file = training.folder / "model" / TRAINED_ON
    if training.listed:
        read_lineage(file.read_bytes(), str(file)).without(speaker).write(file)


def forget_wavs(store: Path, names: set[str]) -> None:
    """Takes lines about WAVs out of the pool's logs."""
    sought = [name.encode() for name in names]
    for log in sorted((store / WAVS / "log").glob("*.jsonl")):
        data = log.read_bytes()
        if any(name in data for name in sought):
            kept = [line for line in data.splitlines(keepends=True) if not any(name in line for name in sought)]
            with whole_file(log) as file:
                file.writelines(kept)


def size_of(paths: Iterable[Path]) -> int:
    """Bytes of files, and of all files in folders."""
    return sum(
        file.stat().st_size
        for path in paths
        for file in ([path] if path.is_file() else path.rglob("*"))
        if file.is_file()
    )


def _folders(store: Path) -> list[Path]:
    steps = [path for path in store.iterdir() if path.is_dir() and path.name not in _NOT_WORK]
    return sorted(path for step in steps for path in step.iterdir() if path.is_dir())


def _shows(folder: Path, names: list[bytes]) -> bool:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in _BINARY)
    return any(names_any(_EMBEDDED.sub(b"", file.read_bytes()), names) for file in files)


def _forms(name: str) -> set[bytes]:
    """An id as it stands in JSON and in HTML."""
    return {name.encode(), html.escape(name).encode()}

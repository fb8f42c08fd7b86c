"""Generates a corpus in a publisher's layout, whole or not at all.

It shows and tests that a pipeline works. It supports no claims about real speech.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic

from voxline.components.demo_corpus.settings import DemoCorpusSettings
from voxline.errors import SettingsError, WorkError
from voxline.families.family import DemoCorpus, family_names, find_family
from voxline.progress import print_status
from voxline.store.files import read_json, write_json
from voxline.store.hashing import hash_value
from voxline.store.step_cache import StepOutput

REVISION = 3
MARKER = "generated.json"


def run(folder: Path | str, settings: DemoCorpusSettings, *, workers: int | None = None) -> StepOutput:
    """Writes the corpus of the settings into `folder`, unless the folder already holds it.

    The same settings give the same bytes on one machine.

    Args:
      workers: espeak processes at a time; None: one for each core.

    Raises:
      WorkError: the folder cannot be written, or holds files that were not generated.
    """
    start = time.monotonic()
    folder = Path(os.path.realpath(folder))
    key_parts = {"step": "demo_corpus", "revision": REVISION, "settings": settings.key_values()}

    corpus = corpus_kinds()[settings.kind]
    work = StepOutput("demo_corpus", folder, hash_value(key_parts), outputs={"corpus": corpus.layout})

    # The folder is the user's own and not in a store, so that it has a marker, a lock and a rename of its own.
    try:
        with _exclusive_output(folder, work.key) as unfinished:
            if unfinished is None:
                work.reused = True
                print_status(f"demo corpus: reused, {folder} already holds it")
            else:
                work.counts = corpus.write(unfinished / corpus.layout, settings, workers or os.cpu_count() or 1)
                _commit_output(unfinished, folder, {**key_parts, "key": work.key, "counts": work.counts})
    except OSError as error:
        raise WorkError(
            f"{folder}: cannot write the corpus: {error}; name a folder on a disk with 50 MB free"
        ) from error

    work.counts = _read_marker(folder)["counts"]
    work.seconds = time.monotonic() - start
    if not work.reused:
        counts = work.counts
        print_status(
            f"demo corpus: {counts['utterances']:,} utterances of {counts['speakers']} speakers, "
            f"{counts['seconds'] / 60:.1f} minutes, in {folder} ({work.seconds:.0f} s)"
        )
    return work


def corpus_settings(value: str | dict[str, Any] = "{}", source: str = "settings", **named: Any) -> DemoCorpusSettings:
    """Reads the settings of the kind of corpus that `kind` names; without it, of "commands".

    Args:
      value, source, named: as `Settings.of` takes them.

    Raises:
      SettingsError: no installed family declares the kind, or the settings are wrong.
    """
    kind = named.get("kind", _kind_in(value))
    kinds = corpus_kinds()
    if kind not in kinds:
        raise SettingsError(f"{source}: 'kind' is {kind!r}; accepted: {', '.join(kinds)}")
    return kinds[kind].settings.of(value, source, **named)


def corpus_kinds() -> dict[str, DemoCorpus]:
    """The corpora that the installed families declare, by kind.

    Raises:
      SettingsError: two families declare one kind.
    """
    kinds: dict[str, DemoCorpus] = {}
    owners: dict[str, str] = {}

    # Kinds are names in configs, so two corpora may not have the same one.
    for family in family_names():
        for kind, corpus in find_family(family).demo_corpora().items():
            if kind in kinds:
                raise SettingsError(
                    f"demo corpus {kind!r}: the families {owners[kind]} and {family} both declare it; choose a kind "
                    "that no other family uses, or uninstall one of them"
                )
            kinds[kind] = corpus
            owners[kind] = family
    return kinds


def _kind_in(value: str | dict[str, Any]) -> Any:
    """The kind that the settings name. Other faults of theirs are reported when they are read."""
    if isinstance(value, str):
        try:
            value = pydantic.TypeAdapter(dict[str, Any]).validate_json(value or "{}")
        except ValueError:
            return "commands"
    return value.get("kind", "commands") if isinstance(value, dict) else "commands"


@contextlib.contextmanager
def _exclusive_output(folder: Path, key: str) -> Iterator[Path | None]:
    """Yields an empty folder to write into, or None if `folder` already holds the corpus of that key.

    All is written into `.<name>.part` next to the folder, which `_commit_output` renames at the end. Two processes
    that write the same folder take turns. What a killed process left is deleted.

    Raises:
      WorkError: the folder has files that were not generated.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.part")
    while True:
        if _is_complete(folder, key):
            yield None
            return
        _check_replaceable(folder)
        unfinished.mkdir(exist_ok=True)
        try:
            descriptor = os.open(unfinished, os.O_RDONLY)
        except FileNotFoundError:
            continue  # another process has just renamed it
        try:
            # The lock is on the folder itself: it ends with the process, and leaves no file behind.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_at(descriptor, unfinished):
                continue  # the process before us has finished and renamed it: look again

            # Of a process that was killed: it holds no lock any more.
            for path in unfinished.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

            try:
                yield unfinished
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
            return
        finally:
            os.close(descriptor)


def _commit_output(unfinished: Path, folder: Path, marker: dict[str, Any]) -> None:
    """Writes the marker and renames the unfinished folder to `folder`, replacing an earlier corpus.

    The marker lists every file with its size: so a folder that lost files is noticed, and one with other files is not
    deleted.
    """
    write_json(unfinished / MARKER, {**marker, "files": _sizes(unfinished)})

    # Two renames, between which there is no corpus. A kill there leaves the old one under `.before`, and the next run
    # writes the new one.
    before = folder.with_name(f".{folder.name}.before")
    if before.exists():
        shutil.rmtree(before)
    if folder.exists():
        _check_replaceable(folder)
        folder.rename(before)

    unfinished.rename(folder)
    shutil.rmtree(before, ignore_errors=True)


def _is_complete(folder: Path, key: str) -> bool:
    """Returns whether the folder holds the corpus of that key, with no file missing or cut."""
    if not (folder / MARKER).is_file():
        return False
    marker = _read_marker(folder)
    if marker["key"] != key:
        print_status(f"demo corpus: {folder} holds a corpus of other settings; replacing it")
        return False

    # By sizes alone: hashing would take longer than a reused corpus is worth.
    present = _sizes(folder)
    damaged = [name for name, size in marker["files"].items() if present.get(name) != size]

    if damaged:
        print_status(
            f"demo corpus: {len(damaged)} files of {folder} are missing or changed ({damaged[0]}); writing it again"
        )
    return not damaged


def _check_replaceable(folder: Path) -> None:
    """Raises WorkError unless the folder is absent, empty, or holds only files that were generated."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise WorkError(f"{folder}: is a file, not a folder; name another folder")

    # A person's own files must survive a name that was mistyped.
    written_files = _read_marker(folder)["files"] if (folder / MARKER).is_file() else {}
    foreign = sorted(set(_sizes(folder)) - set(written_files))
    if foreign:
        raise WorkError(
            f"{folder}: holds {len(foreign)} files that were not generated ({foreign[0]}) and will not be "
            "overwritten; name another folder, or move them away"
        )


def _read_marker(folder: Path) -> dict[str, Any]:
    try:
        marker: dict[str, Any] = read_json(folder / MARKER)
        marker["key"], marker["counts"], marker["files"].items()
    except (ValueError, KeyError, AttributeError, TypeError):
        raise WorkError(
            f"{folder / MARKER}: not the marker of a generated corpus; name another folder, or delete this one"
        ) from None
    return marker


def _sizes(folder: Path) -> dict[str, int]:
    """The size of every file below the folder but the marker."""
    files = sorted(path for path in folder.rglob("*") if not path.is_dir() and path != folder / MARKER)
    return {path.relative_to(folder).as_posix(): path.lstat().st_size for path in files}


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        at_path = path.stat()
    except FileNotFoundError:
        return False

    # The name may lead to another folder by now: device and inode say which one is locked.
    opened = os.fstat(descriptor)
    return (opened.st_dev, opened.st_ino) == (at_path.st_dev, at_path.st_ino)

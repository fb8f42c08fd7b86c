"""The WAVs of a store, compared with what convert wrote before their samples are used.

convert measures the MD5 of a recording's samples (`pcm_hash`) when it writes the WAV. The converted manifest has it in
`measured`, and so have the logs of the pool, `<store>/wavs/log/`. The header follows from the number of samples and
their rate, so with it every byte of a WAV is compared. One that has changed is removed, so that the next run of convert
makes it again, as it does one that is gone.
"""

import contextlib
import hashlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from voxline.audio.wav import HEADER_BYTES, wav_header
from voxline.data.json_codec import iter_lines, parse_json
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.store.bucket_cache import is_cached, uri_of
from voxline.store.objects import open_store

PCM_HASH = "pcm_hash"
MAX_NAMED = 3
"""Changed WAVs that a message names."""


class WrittenWav(NamedTuple):
    """A WAV, and what convert wrote into it.

    Attributes:
      pcm_hash: the MD5 of its samples, in hexadecimal.
      sample_rate: Hz.
    """

    path: Path
    pcm_hash: str
    sample_rate: int


def remove_changed_audio(utterances: Iterable[Utterance]) -> list[Path]:
    """Removes the WAVs of converted utterances that are not what convert wrote, and names them.

    A recording that convert did not write, or that is gone, is left to the code that reads it.
    """
    return _remove_changed(_written_by_convert(utterances))


def refuse_changed_audio(utterances: Iterable[Utterance], step: str) -> None:
    """Like `remove_changed_audio`, where nothing can be left out.

    Raises:
      WorkError: some had changed.
    """
    if changed := remove_changed_audio(utterances):
        raise _changed_error(step, changed)


def refuse_changed_wavs(wavs: Path, names: Collection[str], sample_rate: int, step: str) -> None:
    """The same for WAVs by their names.

    Args:
      wavs: the pool, `<store>/wavs`.
      names: `DatasetRow.audio_hash`.
      sample_rate: Hz.

    Raises:
      WorkError: some had changed.
    """
    hashes = logged_hashes(wavs, names)
    files = (WrittenWav(wavs / name[:2] / f"{name}.wav", hashes[name], sample_rate) for name in sorted(hashes))
    if changed := _remove_changed(files):
        raise _changed_error(step, changed)


def logged_hashes(wavs: Path, names: Collection[str]) -> dict[str, str]:
    """The MD5 of the samples of WAVs, from the logs of their pool; without those that no log has."""
    # A log has a line for each WAV; in a bucket only the logs are downloaded, not the pool.
    if is_cached(wavs):
        pool = open_store(uri_of(wavs))
        pool.pull(pool.list("log/"))
    requested = set(names)
    hashes = {}
    for log in sorted((wavs / "log").glob("*.jsonl")):
        for _, line in iter_lines(log):
            with contextlib.suppress(ValueError, KeyError, TypeError):  # a line that a kill cut short
                values = parse_json(line)
                if values["wav"] in requested:
                    hashes[values["wav"]] = str(values["measured"][PCM_HASH])
    return hashes


def sample_hashes(utterances: Iterable[Utterance]) -> set[str]:
    """The MD5 of the samples of recordings, as measured, or, of rows of a dataset, by the logs of their pool."""
    hashes = set()
    unmeasured: dict[Path, set[str]] = {}  # pool → names of WAVs
    for utterance in utterances:
        path = Path(utterance.audio_filepath)
        if PCM_HASH in utterance.measured:
            hashes.add(str(utterance.measured[PCM_HASH]))
        elif utterance.audio_hash and path.name == f"{utterance.audio_hash}.wav":
            unmeasured.setdefault(path.parents[1], set()).add(utterance.audio_hash)
    for wavs, names in unmeasured.items():
        hashes |= set(logged_hashes(wavs, names).values())
    return hashes


def is_as_written(wav: WrittenWav) -> bool:
    """Returns whether every byte of a WAV is what convert wrote.

    Raises:
      FileNotFoundError: it is gone.
    """
    content = wav.path.read_bytes()

    # Samples are 16-bit mono, so two bytes each; the header must be what such a WAV has, byte by byte.
    samples = (len(content) - HEADER_BYTES) // 2
    if samples < 0 or content[:HEADER_BYTES] != wav_header(samples, wav.sample_rate):
        return False
    return hashlib.md5(memoryview(content)[HEADER_BYTES:], usedforsecurity=False).hexdigest() == wav.pcm_hash


def _written_by_convert(utterances: Iterable[Utterance]) -> Iterator[WrittenWav]:
    """The WAVs of a pool among the recordings, each once; it names them by what they were made of."""
    seen = set()
    unmeasured: dict[Path, list[Utterance]] = {}  # pool → those that come from a dataset's rows
    for utterance in utterances:
        path = Path(utterance.audio_filepath)

        # convert writes a WAV without an offset under the name of its audio hash; all else is somebody's own recording.
        if utterance.offset or path.name != f"{utterance.audio_hash}.wav" or path in seen:
            continue
        seen.add(path)
        if PCM_HASH not in utterance.measured:
            unmeasured.setdefault(path.parents[1], []).append(utterance)
            continue
        yield from _written(path, utterance, utterance.measured[PCM_HASH])

    # Rows of a dataset have no measurements; the logs of their pool do.
    for wavs, rows in unmeasured.items():
        hashes = logged_hashes(wavs, {row.audio_hash for row in rows})
        for row in rows:
            if row.audio_hash in hashes:
                yield from _written(Path(row.audio_filepath), row, hashes[row.audio_hash])


def _written(path: Path, utterance: Utterance, pcm_hash: str) -> Iterator[WrittenWav]:
    """The WAV of an utterance, unless it is gone."""
    with contextlib.suppress(FileNotFoundError):
        samples = (path.stat().st_size - HEADER_BYTES) // 2

        # A duration is samples divided by rate, so the rate follows without reading the header.
        yield WrittenWav(path, pcm_hash, round(samples / utterance.duration))


def _remove_changed(wavs: Iterable[WrittenWav]) -> list[Path]:
    changed = []
    for wav in wavs:
        with contextlib.suppress(FileNotFoundError):
            if not is_as_written(wav):
                changed.append(wav.path)
                _remove(wav.path)
    return changed


def _remove(path: Path) -> None:
    """Removes a WAV, from a bucket too: a copy in the cache has been compared with it, so that has the same fault."""
    # The bucket's object first: the next reader would download the fault again.
    if is_cached(path):
        with contextlib.suppress(WorkError):
            open_store(uri_of(path.parent)).delete(path.name)
    path.unlink(missing_ok=True)


def describe_changed(changed: list[Path]) -> str:
    """Names the first changed WAVs, and says how many there are."""
    names = ", ".join(map(str, changed[:MAX_NAMED]))
    return f"{len(changed):,} WAVs had changed since convert wrote them ({names}), and were removed"


def _changed_error(step: str, changed: list[Path]) -> WorkError:
    return WorkError(f"{step}: {describe_changed(changed)}; run the same command again, which converts them again")


def report_changed(step: str, changed: list[Path]) -> None:
    """Prints which WAVs a step leaves out."""
    if changed:
        print_status(f"{step}: {describe_changed(changed)}; they are left out now, and converted again by the next run")

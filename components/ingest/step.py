"""Ingest: a corpus in its publisher's own layout becomes a manifest, and a reject for each bad recording.

Only what the later steps could not be asked about is rejected here: a file that is not there, lies
outside the corpus or has another size than the corpus says, an utterance without transcript, a line that
makes no sense, an id that stands there twice. Whether audio can be decoded is convert's to find out.
"""

import functools
import os
from collections.abc import Iterator
from pathlib import Path

from voxline.components.ingest.audio_probe import ProbeCache, probe
from voxline.components.ingest.corpora import CORPORA
from voxline.components.ingest.corpus import Corpus
from voxline.components.ingest.file_index import explain_full_disk
from voxline.components.ingest.open_corpus import open_corpus
from voxline.components.ingest.resolve import resolve_entries
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.splits import LEFT_OUT, SplitAssignment, assign_splits
from voxline.components.ingest.staging import ProbedUtterance, StagingTable
from voxline.data.json_codec import encode_string
from voxline.data.manifest import MANIFEST_FILE, REJECTS_FILE, check_reject_share, iter_manifest, write_rejects
from voxline.errors import WorkError
from voxline.progress import Progress, print_status
from voxline.rejects import DURATION_TOLERANCE_SECONDS, Reason, Reject
from voxline.store.bucket_cache import ensure_local, is_cached, local_path, upload_new
from voxline.store.files import atomic_write
from voxline.store.step_cache import StepOutput, cached_step


class _LineEncoder:
    """Lines of a manifest in a folder, as `voxline.data.manifest.ManifestEncoder` makes them of utterances.

    Here they are made of what JSON has already, since most of a refresh's work is this.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        """Takes the corpus' root and the manifest's folder."""
        self._root, self._folder = str(root), os.path.abspath(folder)
        # From a mirror no relative path leads out: on another machine it lies elsewhere.
        self._absolute = is_cached(Path(self._folder)) and not is_cached(Path(root))
        self._way = functools.lru_cache(1024)(self._way_to)

    def of(self, one: ProbedUtterance, split: str) -> str | Reject:
        """The line; a reject where the file contradicts what the corpus says of it."""
        id, path, offset, said, text, speaker, _, source, extra, hash, seconds, fault = one
        if fault:
            return Reject(id, Reason.UNREADABLE, f"{source}: {path}: {fault}")
        if seconds and (offset + said > seconds + DURATION_TOLERANCE_SECONDS or offset >= seconds):
            detail = f"{source}: {path} has {seconds:.2f} s, the utterance is said to last until {offset + said:.2f} s"
            return Reject(id, Reason.TRUNCATED, detail)
        holder, _, name = path.rpartition("/")
        line = (
            f'{{"id": {encode_string(id)}, "audio_filepath": {encode_string(self._way(holder) + name)}, '
            f'"duration": {_duration(offset, said, seconds)!r}, "text": {encode_string(text)}, '
            f'"speaker": {encode_string(speaker)}, '
            f'"split": "{split}", "audio_hash": "{hash}"'
        )
        if offset:
            line += f', "offset": {offset!r}'
        return f"{line}, {extra}}}\n" if extra else line + "}\n"

    def _way_to(self, holder: str) -> str:
        """How the manifest names a folder of the corpus; it ends in a slash."""
        folder = f"{self._root}/{holder}" if holder else self._root
        if not self._absolute:
            folder = os.path.relpath(folder, self._folder)
        return "" if folder == os.curdir else f"{folder}/"


def _duration(offset: float, said: float, seconds: float) -> float:
    """Seconds of the utterance: the corpus' for a part of a recording, else the header's to the end."""
    if not seconds:
        return said
    rest = seconds - offset
    if said and said < rest - DURATION_TOLERANCE_SECONDS:
        return said
    return said if said and offset and said <= rest else rest


REVISION = 3


def run(store: Path | str, settings: CorpusSettings) -> StepOutput:
    """Reads the corpus at `settings.uri`.

    Args:
      store: the folder that holds all keyed work, or gs://…; archives are unpacked there too.

    Returns:
      Work with `manifest` (text raw, in NFC) and `rejects`, both sorted by id.

    Raises:
      SettingsError: the corpus is not there, or the settings do not fit it.
      WorkError: it cannot be read, or too large a share of it was rejected.
    """
    with explain_full_disk():
        corpus, named_by = open_corpus(local_path(store), settings)
        # What matters of the uri is in `named_by`: the same corpus by another path is the same work.
        naming = settings.model_copy(update={"uri": ""})
        with cached_step(
            store,
            "ingest",
            naming,
            {"corpus": named_by},
            revision=REVISION,
            check=functools.partial(_check_place, corpus.root),
        ) as work:
            if not work.reused:
                _ingest(corpus, settings, work, ProbeCache(local_path(store), corpus))
                upload_new((utterance.audio_filepath for utterance in iter_manifest(work.folder)), store)
    return work


def _check_place(root: Path, folder: Path) -> None:
    """A manifest names recordings by their place beside it, so it goes astray when the store is moved."""
    ensure_local([folder / MANIFEST_FILE])
    first = next(iter_manifest(folder), None)
    if first and not Path(first.audio_filepath).is_relative_to(root):
        raise WorkError(f"{folder} was moved: its manifest leads to {first.audio_filepath}, the corpus is {root}")


def _ingest(corpus: Corpus, settings: CorpusSettings, work: StepOutput, remembered: ProbeCache) -> None:
    print_status(f"ingest: reading {corpus.root} as {settings.format}, {len(corpus.files):,} files")
    spool = StagingTable(corpus.files)
    resolve_entries(corpus, CORPORA[settings.format](corpus), spool, settings.text)
    splits = assign_splits(spool.splits(), spool.names, settings)
    left_out = spool.leave_out([own for own, split in splits.own.items() if split == LEFT_OUT])
    _measure(corpus, spool, remembered)
    counts = dict.fromkeys(("utterances", "rejects", "train", "dev", "test"), 0)
    with atomic_write(work.folder / MANIFEST_FILE, "w") as manifest:
        manifest.writelines(_lines(spool, splits, _LineEncoder(corpus.root, work.folder), counts))
    counts["rejects"] = write_rejects(work.folder / REJECTS_FILE, spool.rejects())
    total = counts["utterances"] + counts["rejects"]
    check_reject_share(counts["rejects"], total, settings.max_reject_share, "ingest", work.folder / REJECTS_FILE)
    work.outputs.update(manifest=MANIFEST_FILE, rejects=REJECTS_FILE)
    work.counts.update(counts)
    if left_out:
        work.counts[LEFT_OUT] = left_out
    print_status("ingest: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in work.counts.items()))


def _measure(corpus: Corpus, spool: StagingTable, remembered: ProbeCache) -> None:
    """Finds out about the recordings that are not known, and remembers all of them."""
    known, unknown = spool.remember(remembered)
    progress = Progress("recordings", total=unknown)
    spool.find_out(lambda paths: probe(corpus.root, paths, progress))
    if unknown or known != remembered.count:  # else it would be written as it is
        remembered.keep(spool.recordings())


def _lines(spool: StagingTable, splits: SplitAssignment, lines: _LineEncoder, counts: dict[str, int]) -> Iterator[str]:
    """The manifest, line by line; what is none is a reject."""
    for utterance in spool.utterances():
        split = splits.of(utterance)
        line = lines.of(utterance, split)
        if isinstance(line, str):
            counts["utterances"] += 1
            counts[split] += 1
            yield line
        else:
            spool.reject(line)

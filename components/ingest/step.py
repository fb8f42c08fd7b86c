"""Ingest: turns a corpus in its publisher's own layout into a manifest, and a reject for each bad recording.

Ingest rejects what later steps can no longer see: a file that is absent, outside the corpus or of another size than
the corpus says, an utterance without transcript, a malformed line, a repeated id. Whether audio can be decoded is
convert's to find out.
"""

import dataclasses
import functools
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from voxline.audio.containers import RAW_FORMAT_KEY, is_raw_name
from voxline.components.ingest.audio_probe import ProbeCache, probe
from voxline.components.ingest.corpora import load_format
from voxline.components.ingest.corpus import Corpus, FormatReader
from voxline.components.ingest.entry_cache import EntryCache, KeptLine, LinesWriter
from voxline.components.ingest.file_index import contains_path, explain_full_disk
from voxline.components.ingest.merge import (
    BEYOND_LIMITS,
    check_merged,
    merge_manifests,
    prefix_rejects,
    prefix_utterance,
)
from voxline.components.ingest.open_corpus import name_corpus, open_corpus
from voxline.components.ingest.settings import CorporaSettings, CorpusSettings, SplitLimits
from voxline.components.ingest.splits import LEFT_OUT, SplitAssignment, assign_splits, within_limits
from voxline.components.ingest.staging import (
    FEWEST_WHOLE,
    MOST_WHOLE,
    ProbedUtterance,
    StagingTable,
    resolve_entries,
)
from voxline.data.corrections import Correction, read_corrections
from voxline.data.drafts import is_draft
from voxline.data.json_codec import parse_json
from voxline.data.licences import LICENCE, licence_of
from voxline.data.manifest import (
    MANIFEST_FILE,
    REJECTS_FILE,
    TEXT_DOUBT,
    ManifestEncoder,
    Utterance,
    check_reject_share,
    iter_manifest,
    write_rejects,
)
from voxline.errors import SettingsError, WorkError
from voxline.progress import Progress, print_status
from voxline.rejects import DURATION_TOLERANCE_SECONDS, Reason, Reject
from voxline.settings import Settings
from voxline.store.files import atomic_write
from voxline.store.finished import step_key
from voxline.store.hashing import hash_value
from voxline.store.objects import open_store
from voxline.store.step_cache import StepOutput, StepWouldRunError, cached_step, local_inputs

REVISION = 24
_STEP = "ingest"


def run(store: Path | str, settings: CorpusSettings) -> StepOutput:
    """Reads the corpus at `settings.uri`, or those of `CorporaSettings`: each by itself, then all merged.

    Args:
      store: the folder or bucket URI of all steps' outputs; archives are unpacked there too.

    Returns:
      Outputs `manifest` (text raw, in NFC) and `rejects`, both sorted by id.

    Raises:
      SettingsError: the corpus does not exist, or the settings do not fit it.
      WorkError: the corpus cannot be read, or too large a share of it was rejected.
    """
    if isinstance(settings, CorporaSettings) and settings.are_merged:
        return _run_all(store, settings)
    return _run_one(store, settings)


def _run_all(store: Path | str, settings: CorporaSettings) -> StepOutput:
    """Reads each corpus, unless that was done before, and merges their manifests.

    Raises:
      StepWouldRunError: while steps are planned, some of them would be read.
    """
    outputs: dict[str, StepOutput] = {}
    would_run: dict[str, str] = {}

    # Each corpus is a step of its own, so that one that changes does not read the others again.
    corpora = settings.by_name()
    for name, corpus in corpora.items():
        try:
            outputs[name] = _run_one(store, corpus, name)
        except StepWouldRunError as found:
            if found.step != _STEP:
                raise
            would_run[name] = found.key
        except (SettingsError, WorkError) as error:
            error.args = (name_corpus(str(error), name),)
            raise

    # The key of a corpus that is only planned is the one that it will have, so the plan knows the merged key too.
    keys = {name: outputs[name].key if name in outputs else would_run[name] for name in corpora}
    inputs = {f"corpus {name}": keys[name] for name in sorted(keys)}
    if would_run:
        raise StepWouldRunError(_STEP, step_key(store, _STEP, Settings(), inputs, REVISION)[0], "")

    check = functools.partial(check_merged, outputs)
    with (
        explain_full_disk(),
        cached_step(store, _STEP, Settings(), inputs, revision=REVISION, check=check) as output,
    ):
        if not output.reused:
            merge_manifests(outputs, output)
            print_status(_describe_counts(output))
    return output


def _run_one(store: Path | str, settings: CorpusSettings, name: str = "") -> StepOutput:
    read_entries: FormatReader = load_format(settings.format)
    with explain_full_disk():
        corpus, key_parts = open_corpus(store, settings)

        # Most corpora are named by their listing, and the tables are read only for work. Tables that lead outside of it
        # decide the key too, so they are read first.
        table = None
        entries = EntryCache(store, corpus, settings, read_entries, REVISION, name)
        if corpus.may_lead_outside:  # files that no listing has seen
            table = _stage(corpus, read_entries, entries)
            key_parts |= corpus.added_key_parts()

        corrected = Corrector.read(settings.corrections) if settings.corrections else Corrector()
        inputs = {"corpus": key_parts, **({"name": name} if name else {}), **corrected.key_parts()}
        with cached_step(
            store,
            _STEP,
            settings,
            inputs,
            revision=REVISION,
            check=functools.partial(_check_not_moved, corpus),
        ) as output:
            if not output.reused:
                probes = ProbeCache(open_store(store).local_path(), corpus)
                corrected.prefix = f"{name}-" if name else ""
                with entries:
                    if table or not _ingest_changed(corpus, settings, name, output, entries, probes, corrected):
                        table = table or _stage(corpus, read_entries, entries)
                        _ingest(corpus, table, settings, name, output, entries, probes, corrected)
                open_store(store).upload_new(utterance.audio_filepath for utterance in iter_manifest(output.folder))
    return output


def _check_not_moved(corpus: Corpus, folder: Path) -> None:
    """Refuses a manifest whose relative paths no longer lead to the corpus, because the store was moved."""
    first = next(iter_manifest(folder), None)
    if first and not any(contains_path(accepted, first.audio_filepath) for accepted in corpus.accepted_folders()):
        leads = f"its manifest leads to {first.audio_filepath}, the corpus is {corpus.path}"
        raise WorkError(f"{folder} was moved: {leads}")


def _stage(corpus: Corpus, read_entries: FormatReader, cache: EntryCache) -> StagingTable:
    """Reads the corpus' tables, unless they are those of the last run, and finds the recordings that they name."""
    settings = corpus.settings
    print_status(f"ingest: reading {corpus.path} as {settings.format}, {len(corpus.files):,} files")
    table = StagingTable(corpus.files)
    if cache.restore(table):
        return table
    entries = itertools.chain(_reject_external_symlinks(corpus), read_entries(corpus))
    resolve_entries(corpus, entries, table, settings.text_key)
    cache.keep(table)
    return table


def _ingest(
    corpus: Corpus,
    table: StagingTable,
    settings: CorpusSettings,
    name: str,
    output: StepOutput,
    cache: EntryCache,
    probes: ProbeCache,
    corrected: "Corrector",
) -> None:
    """
    Args:
      name: of the corpus where there are several. Splits are drawn by the corpus' own ids and speakers, as if it were
        the only one.
    """
    # Splits are drawn before the recordings are read: what is left out is not hashed.
    splits = assign_splits(table.corpus_splits(), table.split_keys, settings)
    for (source, to), count in splits.filled.items():
        print_status(f"ingest: few utterances for {to}: {count} of {source} are in {to} until the corpus grows")

    left_out = table.drop_splits([own for own, split in splits.by_corpus_split.items() if split == LEFT_OUT])
    beyond_limits = _drop_beyond_limits(table, splits, settings, name)
    _probe_recordings(corpus, table, probes)

    # Both are generators over the staging table: an utterance that turns out to be bad becomes a reject on the way, so
    # the manifest is written first.
    work = _Lines(corpus, table, splits.split_of, settings, name, output, corrected, table.has_offsets)
    facts = {"has_offsets": table.has_offsets, LEFT_OUT: left_out}
    with cache.lines_writer(facts) as writer:
        with atomic_write(output.folder / MANIFEST_FILE) as manifest:
            counts: Counter[str] = Counter()
            for line in work.lines(writer):
                manifest.write(line.line)
                counts[line.split] += 1
                writer.add(line)
        work.finish(counts, left_out, beyond_limits)

        # What a run says of the corpus as a whole follows from more than its lines.
        if splits.filled or settings.limits != SplitLimits() or not work.are_plain:
            writer.drop()


def _ingest_changed(
    corpus: Corpus,
    settings: CorpusSettings,
    name: str,
    output: StepOutput,
    cache: EntryCache,
    probes: ProbeCache,
    corrected: "Corrector",
) -> bool:
    """Does the same as `_ingest` where only recordings have changed: their lines are written again, all others copied.

    Returns:
      Whether the lines of the last run could be used. If not, nothing was written.
    """
    if corrected.corrections or (last := cache.kept_lines()) is None:
        return False
    table = StagingTable(corpus.files.only({os.fsencode(path) for path in last.changed}))
    if not cache.restore(table, last):
        return False
    print_status(f"ingest: reading {corpus.path} as {settings.format}, {len(corpus.files):,} files")

    missing = table.add_unprobed()
    progress = Progress("recordings", total=missing)
    table.probe_missing(lambda paths: probe(corpus.root, paths, progress))
    probes.update(set(last.changed.values()), table.probes())

    has_offsets = last.facts["has_offsets"]
    work = _Lines(corpus, table, lambda probed: last.splits[probed.id], settings, name, output, corrected, has_offsets)
    left_out = last.facts[LEFT_OUT]
    with cache.lines_writer({"has_offsets": has_offsets, LEFT_OUT: left_out}) as writer:
        for path, split, reject in last.refused:
            table.add_reject(reject)
            writer.refuse(path, split, reject, again=False)
        with atomic_write(output.folder / MANIFEST_FILE) as manifest:
            counts = last.merge(work.lines(writer), manifest, writer)
        work.finish(counts, left_out, 0)
        if not work.are_plain:
            writer.drop()
    return True


class _Lines:
    """Makes the lines of a manifest of the utterances in a staging table.

    Args:
      split_of: the split of an utterance.
      has_offsets: whether an utterance of the corpus begins later in its recording.

    Attributes:
      are_plain: whether the lines say all that the run says, once they were made.
    """

    def __init__(
        self,
        corpus: Corpus,
        table: StagingTable,
        split_of: Callable[[ProbedUtterance], str],
        settings: CorpusSettings,
        name: str,
        output: StepOutput,
        corrected: "Corrector",
        has_offsets: bool,
    ) -> None:
        self._corpus = corpus
        self._table = table
        self._split_of = split_of
        self._settings = settings
        self._name = name
        self._output = output
        self._corrected = corrected
        parts = frozenset() if has_offsets else frozenset(table.paths_with_offsets())
        self._shortened = ShortenedRecordings(has_offsets=has_offsets, parts=parts)
        self._raw = settings.raw.plain() if settings.raw.sample_rate else None
        self._drafts = 0

    @property
    def are_plain(self) -> bool:
        return not (self._corrected.corrections or self._shortened.has_remarks or self._drafts)

    def lines(self, writer: LinesWriter) -> Iterator[KeptLine]:
        """Yields the lines by id; the others are rejected.

        Args:
          writer: gets the recordings that are rejected.
        """
        encoder = ManifestEncoder(self._output.folder)
        for probed in self._table.utterances():
            utterance = self._utterance(probed, writer)
            if utterance is None:
                continue
            split = utterance.split
            if self._settings.licence and not licence_of(utterance.extra):
                utterance = utterance.replace(extra={**utterance.extra, LICENCE: self._settings.licence})
            if self._name:
                utterance = prefix_utterance(self._name, utterance)
            yield KeptLine(probed.id, probed.path, split, encoder.encode(utterance).encode())

    def finish(self, counts: Counter[str], left_out: int, beyond_limits: int) -> None:
        """Writes the rejects, and counts everything.

        Args:
          counts: the lines by split.

        Raises:
          WorkError: too large a share was rejected.
        """
        output = self._output
        rejects: Iterable[Reject] = self._table.rejects()
        if self._name:
            rejects = prefix_rejects(self._name, rejects)
        output.counts["utterances"] = counts.total()
        output.counts["rejects"] = write_rejects(output.folder / REJECTS_FILE, rejects)
        output.counts.update({split: counts[split] for split in ("train", "dev", "test")})

        # What a person left out is no fault of the corpus, unless nothing else is left.
        total = output.counts["utterances"] + output.counts["rejects"]
        faulty = output.counts["rejects"] - self._corrected.left_out if counts else total
        check_reject_share(faulty, total, self._settings.max_reject_share, "ingest", output.folder / REJECTS_FILE)

        output.outputs.update(manifest=MANIFEST_FILE, rejects=REJECTS_FILE)
        if self._drafts:
            output.counts["drafts"] = self._drafts
        if left_out:
            output.counts[LEFT_OUT] = left_out
        if beyond_limits:
            output.counts[BEYOND_LIMITS] = beyond_limits
        self._corrected.report(output)
        self._shortened.report(output)
        print_status(_describe_counts(output, self._name))

    def _utterance(self, probed: ProbedUtterance, writer: LinesWriter) -> Utterance | None:
        """The utterance, or None: it is rejected."""
        root = "" if str(self._corpus.root) == "/" else str(self._corpus.root)
        split = self._split_of(probed)
        utterance = _to_utterance(root, probed, split)
        if isinstance(utterance, Reject):
            writer.refuse(probed.path, split, utterance, again=bool(probed.fault))
        else:
            utterance = self._corrected.apply(utterance)
        if isinstance(utterance, Reject):
            self._table.add_reject(utterance)
            return None

        has_end = bool(probed.duration) or self._corpus.settings.format == "kaldi"  # there, -1 is the recording's
        utterance = self._shortened.note(utterance, probed, has_end)
        # Nothing is judged by what a model wrote, whatever decides the splits.
        if is_draft(utterance.extra):
            utterance = utterance.replace(split="train")
            self._drafts += 1
        if self._raw and is_raw_name(utterance.audio_filepath):
            # convert reads the format of a recording without a header from its line
            utterance = utterance.replace(extra={**utterance.extra, RAW_FORMAT_KEY: self._raw})
        return utterance


def _drop_beyond_limits(table: StagingTable, splits: SplitAssignment, settings: CorpusSettings, name: str) -> int:
    """Leaves out what `corpus.limits` has no room for, and says so.

    Returns:
      How many utterances were left out.
    """
    if settings.limits == SplitLimits():
        return 0
    selects = within_limits(splits, table.split_keys, settings)
    totals: Counter[str] = Counter()
    beyond: Counter[str] = Counter()

    def left_out() -> Iterator[str]:
        for utterance in table.split_keys():
            split = splits.split_of(utterance)
            totals[split] += 1
            if not selects(utterance):
                beyond[split] += 1
                yield utterance.id

    table.drop_ids(left_out())
    for split, count in sorted(beyond.items()):
        print_status(
            f"ingest: {name}{': ' if name else ''}corpus.limits.{split} leaves out {count:,} of "
            f"{totals[split]:,} utterances"
        )
    return beyond.total()


@dataclasses.dataclass
class Corrector:
    """Applies a person's corrections to utterances.

    Attributes:
      file: that they come from; None: there are none.
      prefix: of the ids, where there are several corpora.
      applied: how many were.
      left_out: how many of these leave an utterance out, as a person wants it: they are no faults of the corpus.
      met: ids of them that the corpus has.
      outdated: ids whose text in the corpus is not the one that the person saw.
    """

    file: Path | None = None
    corrections: dict[str, Correction] = dataclasses.field(default_factory=dict)
    prefix: str = ""
    applied: int = 0
    left_out: int = 0
    met: set[str] = dataclasses.field(default_factory=set)
    outdated: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    @local_inputs("file")
    def read(cls, file: Path | str) -> "Corrector":
        """
        Raises:
          WorkError: the file is absent or damaged.
        """
        return cls(Path(file), read_corrections(Path(file)))

    def key_parts(self) -> dict[str, str]:
        """Returns what the step's key has of them."""
        if not self.corrections:
            return {}
        return {"corrections": hash_value([correction.as_line() for _, correction in sorted(self.corrections.items())])}

    def apply(self, utterance: Utterance) -> Utterance | Reject:
        """The utterance with its right text; a reject where it is left out."""
        correction = self.corrections.get(self.prefix + utterance.id)
        if correction is None:
            return utterance
        self.met.add(correction.id)

        # The corpus may have been mended since; then there is nothing to correct. Any other text is one that the person
        # did not see.
        if correction.text == utterance.text:
            return utterance
        if correction.was != utterance.text:
            self.outdated.append(utterance.id)
            return utterance

        self.applied += 1
        if correction.text is None:
            self.left_out += 1
            return Reject(utterance.id, Reason.INVALIDATED, f"left out by {self.file}; its text was {correction.was!r}")
        return utterance.replace(text=correction.text)

    def report(self, output: StepOutput) -> None:
        """Prints and counts what was applied, and prints what was not."""
        if not self.corrections:
            return
        from voxline.report.page import plural

        if self.applied:
            output.counts["corrected"] = self.applied

        if self.outdated:
            shown = ", ".join(self.outdated[:3]) + (" …" if len(self.outdated) > 3 else "")
            print_status(
                f"ingest: {plural(len(self.outdated), 'correction')} in {self.file} of texts that have changed since, "
                f"not applied: {shown}"
            )

        lost = sorted(id for id in self.corrections if id.startswith(self.prefix) and id not in self.met)
        if lost:
            shown = ", ".join(lost[:3]) + (" …" if len(lost) > 3 else "")
            print_status(f"ingest: {plural(len(lost), 'correction')} in {self.file} of no utterance here: {shown}")


def _describe_counts(output: StepOutput, name: str = "") -> str:
    counts = ", ".join(f"{count:,} {count_name.replace('_', ' ')}" for count_name, count in output.counts.items())
    return f"ingest: {name}: {counts}" if name else f"ingest: {counts}"


def _reject_external_symlinks(corpus: Corpus) -> Iterator[Reject]:
    """A reject for each folder that is a link out of the corpus: what is behind it is not read."""
    corpus.files  # noqa: B018 - listing the files finds the links
    for path, target in sorted(corpus.external_symlinks.items()):
        detail = f"{path} is a link to {target}, outside the corpus; copy it in, or list it in corpus.audio_roots"
        yield Reject(path, Reason.OUTSIDE_CORPUS, detail)


def _probe_recordings(corpus: Corpus, table: StagingTable, cache: ProbeCache) -> None:
    """Probes the recordings that are not cached, and caches all of them."""
    cached, missing = table.add_cached_probes(cache)
    progress = Progress("recordings", total=missing)
    table.probe_missing(lambda paths: probe(corpus.root, paths, progress))
    if missing or cached != cache.count:  # else the same file would be written
        cache.write(table.probes())


@dataclasses.dataclass
class ShortenedRecordings:
    """Utterances from the start of a recording, with a duration that ends before it does; and those without an end.

    The first is right for a part of a recording. Where hardly a line of the corpus has an offset, and none of the same
    recording, the column is rounded, or means something else, and cuts speech. So do times in whole seconds.

    Attributes:
      count: how many.
      example: the first, with both durations.
      has_offsets: whether utterances of the corpus begin later in their recordings.
      parts: recordings in which some do, where the corpus has few of them.
      timed: utterances that begin later, and have an end.
      whole: those of them that begin and end at whole seconds.
      whole_example: the first.
      endless: utterances that begin later, and whose corpus says no end.
      endless_example: the first.
      untimed: utterances with neither a start nor an end.
      untimed_example: the first.
    """

    count: int = 0
    example: str = ""
    has_offsets: bool = False
    parts: frozenset[str] = frozenset()
    timed: int = 0
    whole: int = 0
    whole_example: str = ""
    endless: int = 0
    endless_example: str = ""
    untimed: int = 0
    untimed_example: str = ""

    @property
    def has_remarks(self) -> bool:
        """True if `report` says something."""
        return bool(self.count or self.endless or self.are_whole or self.are_some_untimed)

    @property
    def are_whole(self) -> bool:
        """True if nearly all times are whole seconds, as no speech is."""
        return self.whole >= max(FEWEST_WHOLE, MOST_WHOLE * self.timed)

    @property
    def are_some_untimed(self) -> bool:
        """True if most utterances are parts of recordings, and some are whole ones for want of times."""
        return 0 < self.untimed < self.timed and self.has_offsets

    def note(self, utterance: Utterance, probed: ProbedUtterance, has_end: bool) -> Utterance:
        """Notes an utterance of the manifest; returns it, marked."""
        seconds = probed.seconds
        if probed.offset and probed.duration:
            self.timed += 1
            if not probed.offset % 1 and not probed.duration % 1:
                self.whole += 1
                times = f"{probed.offset:g} to {probed.offset + probed.duration:g} s"
                self.whole_example = self.whole_example or f"{utterance.id} from {times}"
        if utterance.offset and not has_end:
            self.endless += 1
            self.endless_example = (
                self.endless_example or f"{utterance.id} from {utterance.offset:g} to {seconds:.2f} s"
            )

        # Among parts of recordings, one that has lost its times takes all of its own.
        if not utterance.offset and not has_end:
            self.untimed += 1
            self.untimed_example = self.untimed_example or f"{utterance.id} of {seconds:.2f} s"

        # A part may end before its recording; what is meant to be a whole one may not.
        is_part = self.has_offsets or utterance.offset or probed.path in self.parts
        if is_part or seconds <= utterance.duration + DURATION_TOLERANCE_SECONDS:
            return utterance
        self.count += 1
        self.example = self.example or f"{utterance.id} has {utterance.duration:g} of {seconds:.2f} s"
        doubts = [*str(utterance.extra.get(TEXT_DOUBT, "")).split("\n"), "duration"]
        return utterance.replace(extra={**utterance.extra, TEXT_DOUBT: "\n".join(dict.fromkeys(filter(None, doubts)))})

    def report(self, output: StepOutput) -> None:
        """Says so, and counts it."""
        if self.endless:
            output.counts["without_end"] = self.endless
            print_status(
                f"ingest: {self.endless:,} utterances have a start and no end or duration: they last to the end of "
                f"their recordings, such as {self.endless_example}"
            )
        if self.are_some_untimed:
            output.counts["without_times"] = self.untimed
            print_status(
                f"ingest: {self.untimed:,} utterances have neither a start nor an end, and {self.timed:,} have both: "
                f"the first are whole recordings, such as {self.untimed_example}; if their times are lost, leave them "
                "out"
            )
        if self.are_whole:
            output.counts["in_whole_seconds"] = self.whole
            print_status(
                f"ingest: {self.whole:,} of {self.timed:,} utterances begin and end at whole seconds, such as "
                f"{self.whole_example}: rounded times cut words, or take those of another utterance"
            )
        if self.count:
            output.counts["shorter_than_recording"] = self.count
            print_status(
                f"ingest: {self.count:,} utterances end before their recordings do, and none has an offset: "
                f"{self.example}; if the durations are rounded, leave the column out or give corpus.columns.duration "
                "the name of another"
            )


def _to_utterance(root: str, probed: ProbedUtterance, split: str) -> Utterance | Reject:
    """The utterance; a reject where the recording contradicts the corpus."""
    id, path, offset, duration, text, speaker, _, source, extra, hash, seconds, fault = probed

    # The probe's fault, then times that its header rules out: a file that was cut short.
    if fault:
        return Reject(id, Reason.UNREADABLE, f"{source}: {path}: {fault}")
    if cut_short := probed.cut_short():
        return cut_short

    return Utterance(
        id,
        path if path.startswith("/") else f"{root}/{path}",
        _actual_duration(offset, duration, seconds),
        text,
        speaker,
        split,
        hash,
        offset,
        extra=parse_json(extra) if extra else {},
    )


def _actual_duration(offset: float, duration: float, seconds: float) -> float:
    """Seconds of the utterance: the corpus' for a part of a recording, else to the end by its header."""
    if not seconds:
        return duration

    # A corpus rounds its durations, so that one near the end of the recording means the end.
    remaining = seconds - offset
    if duration and duration < remaining - DURATION_TOLERANCE_SECONDS:
        return duration
    return duration if duration and offset and duration <= remaining else remaining

"""The content of a folder of recordings, as `voxline config init` sees it: format, utterances, files and faults.

Every recording that is counted is opened, and goes through the staging table of ingest: an utterance has the id that
the run will give it, and a line that ingest would reject is a reject here.
"""

import dataclasses
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from voxline.audio.containers import CHANNEL_KEY, parse_channel
from voxline.audio.wav import HEADER_NOTE
from voxline.components.ingest.audio_probe import ProbeResult
from voxline.components.ingest.corpora import format_names
from voxline.components.ingest.corpus import Corpus
from voxline.components.ingest.settings import SplitNames
from voxline.components.ingest.splits import split_patterns_cover
from voxline.components.ingest.staging import (
    FEWEST_WHOLE,
    MOST_WHOLE,
    OFTEN,
    ProbedUtterance,
    StagingTable,
    resolve_entries,
)
from voxline.components.validate.checks.sense import VALUES, is_bracket
from voxline.components.validate.settings import FrequentTranscript, SpeakingRate, UnlikeChannels
from voxline.components.validate.tally import count_characters
from voxline.data.json_codec import parse_json
from voxline.data.manifest import ROW_MARK, TEXT_DOUBT
from voxline.errors import SettingsError
from voxline.pipelines.config.format_attempts import FormatAttempt, nearest_miss, read_further_texts, try_format
from voxline.rejects import DURATION_TOLERANCE_SECONDS, BadAudioError, Reason, Reject
from voxline.store.scratch import scratch_root
from voxline.text.alphabet import quote_text

OPENING_SECONDS = 30.0
"""Seconds after which no more recordings are opened: on a slow disk, or where each one must be decoded."""
FEW_USABLE = 0.1
"""Usable lines for each faulty one, below which a folder is not of a format that reads some of it."""
ARCHIVES = (".parquet", ".arrow", ".tar", ".tar.gz", ".tgz")
COMPARED = 20
"""Recordings of several channels whose channels are compared."""
COMPARED_SECONDS = 30.0
"""Of each of these."""
LOOK_RATE = 16_000
"""Hz at which they are mixed; channels are compared at their own rate."""
UNPACKED_BYTES = 1_000_000_000
"""Archives of more bytes in all are not unpacked."""
LISTS_OTHERS = ("common_voice", "huggingface", "webdataset", "nemo_tarred")
"""Formats of which recordings in the folder are not of the corpus, or are in archives."""
FAULTS = {
    Reason.MISSING_FILE: "transcripts without a recording",
    Reason.TRANSCRIPT_MISSING: "recordings without a transcript",
    Reason.BAD_ENTRY: "lines that cannot be read",
    Reason.DUPLICATE_ID: "utterances whose id another one has",
    Reason.OUTSIDE_CORPUS: "recordings outside the folder",
    Reason.TRUNCATED: "utterances that last longer than their recording",
    Reason.INVALIDATED: "recordings that the corpus calls invalid",
}
"""Reasons of rejects in words; another one is called by its code."""


@dataclasses.dataclass(frozen=True)
class CorpusLook:
    """The utterances that one format reads in a folder.

    Attributes:
      entries: the utterances whose recordings can be read, by id.
      rejects: those that ingest would reject, by id.
      unreadable: those whose recordings cannot be read, which convert would reject.
      unnamed: paths of recordings that no readable line names.
      unopened: recordings that were not opened, for lack of time.
      further_texts: transcripts beyond those of the entries, of a larger corpus: an alphabet of the first ones would
        lack characters.
      complete: False if the folder has more than `ENTRIES_READ`, so that counts are lower bounds.
      sample_rate: of most recordings, in Hz.
      correlations: of the two channels of utterances that name none, by id; of `COMPARED` utterances at most.
      remarks: on headers that contradict themselves, by the path of the recording.
    """

    format: str
    entries: list[ProbedUtterance]
    rejects: list[Reject]
    unreadable: list[Reject]
    unnamed: list[str]
    unopened: int
    further_texts: list[str]
    complete: bool
    sample_rate: int
    correlations: dict[str, float]
    remarks: dict[str, str]

    @property
    def texts(self) -> list[str]:
        return [entry.text for entry in self.entries]

    @property
    def speakers(self) -> int:
        return len({entry.speaker for entry in self.entries}) if all(entry.speaker for entry in self.entries) else 0

    @property
    def has_test(self) -> bool:
        """True if the corpus' own splits include train and test, and every one of them is known."""
        names = {entry.split for entry in self.entries}
        return split_patterns_cover(names, SplitNames())

    @property
    def hours(self) -> float:
        """The hours of all utterances; those whose length is not known count as the average."""
        lengths = [length for entry in self.entries if (length := spoken_seconds(entry))]
        return len(self.entries) * sum(lengths) / len(lengths) / 3_600 if lengths else 0.0

    @property
    def reject_share(self) -> float:
        """The share of utterances that ingest would reject."""
        return len(self.rejects) / max(1, len(self.rejects) + len(self.entries) + len(self.unreadable))


def spoken_seconds(entry: ProbedUtterance) -> float:
    """The length of an utterance in seconds; 0.0 if it is not known."""
    return entry.duration or max(0.0, entry.seconds - entry.offset)


def look_at_corpus(folder: Path) -> CorpusLook:
    """Reads the lines of a folder as each format does, and opens the recordings of the one that reads most.

    Archives in the folder are unpacked to look into them, unless they are large.

    Raises:
      SettingsError: no format finds a recording with its transcript; the message names the one that comes closest.
    """
    archives = Corpus(folder).find(*ARCHIVES)
    small = sum((folder / archive).stat().st_size for archive in archives) <= UNPACKED_BYTES
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        corpus = Corpus(folder, exclude=scratch if small else None)

        # Every format tries the folder: files of one may look like those of another, and only the counts tell.
        attempts = [try_format(format, corpus) for format in format_names()]
        best = max(attempts, key=lambda attempt: attempt.rank)  # the first of equal ones, in the order of the formats
        bad = len(best.missing) + len(best.rejects)
        if len(best.entries) < FEW_USABLE * bad or not best.entries:
            raise _nothing_read(folder, corpus, attempts)
        return _open_recordings(corpus, best)


def _nothing_read(folder: Path, corpus: Corpus, attempts: Sequence[FormatAttempt]) -> SettingsError:
    if archive := next(corpus.find(*ARCHIVES), None):
        return SettingsError(
            f"{folder}: {archive} may hold the recordings; none was found in it, or it was not unpacked, because "
            f"the archives have more than {UNPACKED_BYTES / 1e9:g} GB; write a config with "
            "corpus.format huggingface, webdataset or nemo_tarred (docs/corpora.md)"
        )

    audio = sum(1 for _ in corpus.find_audio())
    manifest = (
        'write a manifest.jsonl with a line such as {"audio_filepath": "clips/1.wav", "text": "good morning"} for each'
    )
    if miss := nearest_miss(corpus, attempts):
        return SettingsError(
            f"{folder}: {audio:,} recordings, and no format finds their transcripts. The closest is {miss.format}: "
            f"{miss.detail}. Mend that, or {manifest}"
        )
    formats = ", ".join(format_names())
    return SettingsError(f"{folder}: {audio:,} recordings, and no format of {formats} finds a transcript; {manifest}")


def _open_recordings(corpus: Corpus, attempt: FormatAttempt) -> CorpusLook:
    """Opens the recordings of an attempt, and names what is wrong with them."""
    table = StagingTable(corpus.files)
    resolve_entries(corpus, [*attempt.entries, *attempt.rejects, *attempt.missing], table)

    # By headers in place of ingest's hashes, for which each file would be read whole.
    headers = _Headers(corpus.root)
    table.add_cached_probes(())
    table.probe_missing(headers.read)

    entries: list[ProbedUtterance] = []
    unreadable: list[Reject] = []
    rejects = list(table.rejects())
    for utterance in table.utterances():
        if utterance.fault:
            unreadable.append(Reject(utterance.id, Reason.UNREADABLE, f"{utterance.path}: {utterance.fault}"))
        elif cut_short := utterance.cut_short():
            rejects.append(cut_short)
        else:
            entries.append(utterance)

    if not entries:
        faulty = [*unreadable, *rejects]
        raise SettingsError(
            f"{corpus.root}: as {attempt.format}, {len(faulty):,} utterances have recordings that cannot be used, and "
            f"no other has, such as {faulty[0].detail}"
        )

    # A format that rejects a recording begins the detail with its path.
    unnamed: list[str] = []
    if attempt.complete and attempt.format not in LISTS_OTHERS:
        located = {corpus.locate(entry.audio, entry.relative_to)[0] for entry in attempt.entries}
        located |= {reject.detail.partition(": ")[0] for reject in rejects}
        unnamed = [str(path) for path in corpus.find_audio() if str(path) not in located]

    further_texts = [] if attempt.complete else read_further_texts(attempt.format, corpus)
    rate = max(4_000, headers.rates.most_common(1)[0][0]) if headers.rates else 16_000
    return CorpusLook(
        attempt.format,
        entries,
        rejects,
        unreadable,
        unnamed,
        headers.unopened,
        further_texts,
        attempt.complete,
        sample_rate=rate,
        correlations=_correlations(corpus.root, entries, headers.stereo),
        remarks=headers.remarks,
    )


def _correlations(root: Path, entries: Sequence[ProbedUtterance], stereo: set[str]) -> dict[str, float]:
    """The correlation of the channels that would be mixed, from -1 to 1, by utterance; see `channel_correlation`.

    Args:
      stereo: paths of recordings of several channels.
    """
    from voxline.audio.decoding import decode_segments
    from voxline.audio.segments import Segment

    mixed = [entry for entry in entries if entry.path in stereo and not _names_channel(entry)]
    correlations: dict[str, float] = {}
    for entry in random.Random(0).sample(mixed, min(COMPARED, len(mixed))):
        seconds = min(COMPARED_SECONDS, spoken_seconds(entry) or COMPARED_SECONDS)
        try:
            for _, decoded in decode_segments(root / entry.path, [Segment(entry.offset, seconds)], LOOK_RATE):
                if not isinstance(decoded, BadAudioError) and decoded.channel_correlation is not None:
                    correlations[entry.id] = decoded.channel_correlation
        except (BadAudioError, OSError):
            continue  # the run rejects it by name
    return correlations


def _names_channel(entry: ProbedUtterance) -> bool:
    return bool(entry.extra) and parse_channel(parse_json(entry.extra).get(CHANNEL_KEY)) is not None


class _Headers:
    """Reads the headers of recordings, until `OPENING_SECONDS` have passed.

    Attributes:
      rates: recordings by sample rate, in Hz.
      stereo: paths of those of several channels.
      remarks: on headers that contradict themselves, by path.
      unopened: recordings that it did not open.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._deadline = time.monotonic() + OPENING_SECONDS
        self.rates: Counter[int] = Counter()
        self.stereo: set[str] = set()
        self.remarks: dict[str, str] = {}
        self.unopened = 0

    def read(self, paths: Sequence[str]) -> dict[str, ProbeResult]:
        """The lengths of recordings by path, or why they cannot be read."""
        from concurrent.futures import ThreadPoolExecutor

        from voxline.audio import decoding  # noqa: F401 - numpy, which two threads at once may see half imported

        # In any order, so that those that are opened in time are from all over the corpus.
        shuffled = random.Random(0).sample(list(paths), len(paths))
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
            return dict(zip(shuffled, threads.map(self._read, shuffled), strict=True))

    def _read(self, path: str) -> ProbeResult:
        from voxline.audio.decoding import read_header

        if time.monotonic() > self._deadline:
            self.unopened += 1
            return ProbeResult("", 0.0)
        try:
            header = read_header(self._root / path)
        except (BadAudioError, OSError) as error:
            return ProbeResult("", 0.0, fault=str(error))
        self.rates[header.sample_rate] += 1
        if header.channels > 1:
            self.stereo.add(path)
        if header.remark:
            self.remarks[path] = header.remark
        return ProbeResult("", header.seconds)


def describe_corpus(look: CorpusLook) -> str:
    """A line on format, utterances, speakers and hours."""
    more = "" if look.complete else " or more"
    speakers = f" of {look.speakers:,} speakers" if look.speakers else ""
    hours = describe_hours(look.hours)
    return f"format     {look.format}: {len(look.entries):,}{more} utterances{speakers}, {hours}{more}"


def describe_doubts(look: CorpusLook) -> list[str]:
    """A warning for each sign that a table means something else, with its number and an example; see validate."""
    limits = SpeakingRate()
    examples: dict[str, list[str]] = {}
    brackets: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    marked: list[str] = []
    later = [entry for entry in look.entries if entry.offset]
    parts = {entry.path for entry in (look.entries if len(later) >= OFTEN * len(look.entries) and later else later)}
    for entry in look.entries:
        doubt = ""
        reasons = str(parse_json(entry.extra).get(TEXT_DOUBT, "")).split("\n") if TEXT_DOUBT in entry.extra else []
        if own := [reason.removeprefix(ROW_MARK) for reason in reasons if reason.startswith(ROW_MARK)]:
            marks.update(own)
            marked.append(f"{quote_text(entry.text)} of {entry.id}")
        if tags := list(filter(is_bracket, reasons)):
            brackets.update(tags)
            doubt = "words in brackets or labels of speakers"
        elif values := [reason for reason in reasons if reason in VALUES]:
            doubt = f"transcripts that are a {values[0]}"
        elif entry.duration and entry.path not in parts and entry.seconds > entry.duration + DURATION_TOLERANCE_SECONDS:
            doubt = f"durations that end before their recordings ({entry.duration:g} of {entry.seconds:.2f} s)"
        elif (seconds := spoken_seconds(entry)) and entry.text:
            rate = count_characters(entry.text) / seconds
            if not limits.min_rate <= rate <= limits.max_rate:
                doubt = f"transcripts of under {limits.min_rate:g} or over {limits.max_rate:g} characters a second"
        if doubt:
            examples.setdefault(doubt.partition(" (")[0], []).append(f"{quote_text(entry.text)} of {entry.id}")

    lines = []
    for doubt, found in examples.items():
        listed = ", ".join(f"{tag} {count:,}" for tag, count in brackets.most_common(10))
        more = f" ({listed})" if doubt.startswith("words in brackets") else ""
        lines.append(f"warning    {len(found):,} {doubt}{more}, such as {found[0]}")

    if marked:
        listed = ", ".join(f"{mark} {count:,}" for mark, count in marks.most_common(10))
        lines.append(
            f"warning    {len(marked):,} utterances that a column of their own table calls invalid or poor ({listed}), "
            f"such as {marked[0]}: they are read as the others; leave them out, if it means that"
        )

    # As ingest says.
    timed = [entry for entry in later if entry.duration]
    whole = [entry for entry in timed if not entry.offset % 1 and not entry.duration % 1]
    if len(whole) >= max(FEWEST_WHOLE, MOST_WHOLE * len(timed)):
        end = whole[0].offset + whole[0].duration
        lines.append(
            f"warning    {len(whole):,} of {len(timed):,} utterances begin and end at whole seconds, such as "
            f"{whole[0].id} from {whole[0].offset:g} to {end:g} s: rounded times cut words"
        )

    # As validate's unlike_headers.
    if look.remarks:
        path, remark = min(look.remarks.items())
        lines.append(
            f"warning    {len(look.remarks):,} recordings whose headers say two lengths of the samples, such as {path} "
            f"({remark.removeprefix(HEADER_NOTE)}): listen to one; if it is too fast or too slow, its sample rate is "
            "wrong"
        )

    # As validate's unlike_channels: a call has one speaker a channel, and a microphone's two sides are alike.
    least = UnlikeChannels().min_correlation
    unlike = {id: correlation for id, correlation in look.correlations.items() if correlation < least}
    if unlike:
        id = min(unlike, key=unlike.__getitem__)
        lines.append(
            f"warning    {len(unlike):,} of {len(look.correlations):,} utterances that were compared have channels "
            f"that differ (correlation under {least:g}), such as {id} ({unlike[id]:.2f}); they are mixed, as no "
            "column channel names one"
        )

    # As validate's frequent_transcript: of texts that people chose, none is many times as frequent.
    frequent = Counter(look.texts).most_common(2)
    times = FrequentTranscript()
    if len(frequent) == 2 and frequent[0][1] >= max(times.min_utterances, times.threshold * frequent[1][1] + 1):
        lines.append(f"warning    {frequent[0][1]:,} utterances have one transcript, {quote_text(frequent[0][0])}")
    return lines


def describe_hours(hours: float) -> str:
    """A time in words.

    >>> describe_hours(1.57), describe_hours(0.2), describe_hours(0.01)
    ('1.6 hours', '12 minutes', '36 seconds')
    """
    if hours >= 1:
        return f"{hours:,.1f} hours"
    return f"{60 * hours:.0f} minutes" if hours >= 1 / 30 else f"{3_600 * hours:.0f} seconds"


def describe_faults(look: CorpusLook) -> list[str]:
    """A warning for each kind of fault, with its number and an example."""
    by_reason: dict[Reason, list[Reject]] = {}
    for reject in [*look.unreadable, *look.rejects]:
        by_reason.setdefault(reject.reason, []).append(reject)

    # One example each: the rejects of a run have them all.
    lines = []
    for reason, rejects in by_reason.items():
        fault = FAULTS.get(reason, f"recordings that cannot be opened ({reason})")
        lines.append(f"warning    {len(rejects):,} {fault}, such as {rejects[0].detail}")
    lines += describe_doubts(look)
    if look.unnamed:
        lines.append(
            f"warning    {len(look.unnamed):,} recordings that no readable line names, such as {look.unnamed[0]}: they "
            "are left out"
        )
    if look.unopened:
        lines.append(f"warning    {look.unopened:,} recordings were not opened: the others took {OPENING_SECONDS:g} s")
    return lines

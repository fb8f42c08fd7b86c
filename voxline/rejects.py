"""Rejects: recordings that a step leaves out, each with a reason code and details."""

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable

DURATION_TOLERANCE_SECONDS = 0.1
"""How far an utterance may reach past the end of its recording: durations are rounded, transcripts timed by hand."""

MAX_SECONDS = 4 * 3_600.0
"""The longest recording of a stranger that is decoded in one piece, if nobody says another length."""

SAMPLES_A_SECOND = 192_000
"""Samples of all channels together that a second of such a recording may have, on average over its longest length:
96,000 Hz in stereo, or 48,000 Hz of four channels. A shorter recording may have more."""


class Reason(enum.StrEnum):
    """Why a recording was rejected. The codes are stable: dashboards count them."""

    MISSING_FILE = "missing_file"
    OUTSIDE_CORPUS = "outside_corpus"
    UNREADABLE = "unreadable"
    TRUNCATED = "truncated"
    MD5_MISMATCH = "md5_mismatch"
    WRONG_FORMAT = "wrong_format"
    EMPTY_AUDIO = "empty_audio"
    SILENT = "silent"
    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    TRANSCRIPT_MISSING = "transcript_missing"
    TRANSCRIPT_EMPTY = "transcript_empty"
    OUTSIDE_ALPHABET = "outside_alphabet"
    BAD_ENTRY = "bad_entry"
    DUPLICATE_ID = "duplicate_id"
    DUPLICATE_RECORDING = "duplicate_recording"
    INVALIDATED = "invalidated"
    BAD_FEATURES = "bad_features"
    OUT_OF_MEMORY = "out_of_memory"
    TEXT_NOT_FOUND = "text_not_found"
    AUDIO_WITHOUT_TEXT = "audio_without_text"
    TRANSCRIBED = "transcribed"
    NOTHING_HEARD = "nothing_heard"
    DISAGREEMENT = "disagreement"
    LOW_CONFIDENCE = "low_confidence"
    HELD_OUT_SPEAKER = "held_out_speaker"


@dataclasses.dataclass(frozen=True, slots=True)
class Reject:
    """A rejected recording."""

    id: str
    reason: Reason
    detail: str

    def as_line(self) -> dict[str, str]:
        return {"id": self.id, "reason": str(self.reason), "detail": self.detail}

    @classmethod
    def from_line(cls, line: dict[str, str]) -> "Reject":
        return cls(line["id"], Reason(line["reason"]), line["detail"])


class BadAudioError(Exception):
    """A recording that must be rejected.

    Attributes:
      reason: the code under which it is counted.
      detail: what was found and what is expected.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail

    def __reduce__(self) -> tuple[type["BadAudioError"], tuple[Reason, str]]:
        return type(self), (self.reason, self.detail)


REMEDIES = {
    Reason.MISSING_FILE: "copy the recordings in, or correct the paths (relative to the file that names them)",
    Reason.OUTSIDE_CORPUS: "list the folder of the recordings in corpus.audio_roots",
    Reason.UNREADABLE: "copy the recordings again, or leave them out of the corpus",
    Reason.TRUNCATED: "copy the recordings again, or correct offset and duration",
    Reason.MD5_MISMATCH: "copy the recordings again: their content is not what was encoded",
    Reason.OUT_OF_MEMORY: "cut the recordings, or raise convert.worker_memory_megabytes",
    Reason.WRONG_FORMAT: "convert the recordings to FLAC or WAV",
    Reason.EMPTY_AUDIO: "leave the recordings out of the corpus",
    Reason.SILENT: "listen to one; if it has speech, lower convert.silence_db",
    Reason.TOO_SHORT: "lower convert.min_seconds",
    Reason.TOO_LONG: "raise convert.max_seconds, or cut the recordings (offset and duration in a manifest)",
    Reason.TRANSCRIPT_MISSING: "add the transcripts, or check corpus.format and corpus.text_key",
    Reason.TRANSCRIPT_EMPTY: "add the transcripts, or leave the recordings out of the corpus",
    Reason.OUTSIDE_ALPHABET: "write these characters as words, add them to convert.alphabet, or, for "
    "numbers and signs, set convert.frontend.kind to english_transcript or mandarin_transcript",
    Reason.BAD_ENTRY: "correct the lines, or check corpus.format",
    Reason.INVALIDATED: "nothing: by a later release, or by corpus.corrections, the clips do not say their texts",
    Reason.DUPLICATE_ID: "give each utterance an id of its own",
    Reason.DUPLICATE_RECORDING: "nothing: the recording stays in the corpus whose name comes first",
    Reason.TEXT_NOT_FOUND: "listen there: the text is not read out, or the model does not understand the speaker",
    Reason.AUDIO_WITHOUT_TEXT: "add what is said to the text, or leave it out",
    Reason.BAD_FEATURES: "listen to one, and leave the recordings out of the corpus",
    Reason.TRANSCRIBED: "nothing: a person's transcript is better than a draft; train on it (corpus.corpora)",
    Reason.NOTHING_HEARD: "listen to one; if it has speech, draft with another model",
    Reason.DISAGREEMENT: "have a person transcribe some, or raise --max-wer",
    Reason.LOW_CONFIDENCE: "have a person transcribe some, or lower --min-confidence",
    Reason.HELD_OUT_SPEAKER: "nothing: a model would be judged by speakers whom it has heard",
}
"""What a person can do about each reason."""

SHOWN_REASONS = 3
_SHOWN_CHARACTERS = 160


@dataclasses.dataclass(frozen=True)
class RejectSummary:
    """The rejects of one reason.

    Attributes:
      example: the first of them.
    """

    reason: str
    count: int
    example: Reject

    @property
    def remedy(self) -> str:
        return REMEDIES.get(self.example.reason, "see the details of each")


def summarize_rejects(rejects: Iterable[Reject]) -> list[RejectSummary]:
    """The rejects by reason, the most frequent first.

    >>> summarize_rejects([Reject(str(n), Reason.SILENT, "-70 dB") for n in range(3)])[0].count
    3
    """
    counts: Counter[str] = Counter()
    examples: dict[str, Reject] = {}
    for reject in rejects:
        counts[reject.reason] += 1
        examples.setdefault(reject.reason, reject)
    return [RejectSummary(str(reason), count, examples[reason]) for reason, count in counts.most_common()]


def format_rejects(summaries: list[RejectSummary]) -> list[str]:
    """Lines for a terminal: count, reason, an example and a remedy for each of the most frequent reasons.

    >>> format_rejects(summarize_rejects([Reject("a-1", Reason.TOO_SHORT, "0.05 s, at least 0.1 s is accepted")]))
    ['1 × too_short, e.g. a-1: 0.05 s, at least 0.1 s is accepted; lower convert.min_seconds']
    """
    lines = [
        f"{one.count:,} × {one.reason}, e.g. {one.example.id}: {_shorten(one.example.detail)}; {one.remedy}"
        for one in summaries[:SHOWN_REASONS]
    ]
    more = summaries[SHOWN_REASONS:]
    return [*lines, *([", ".join(f"{one.count:,} × {one.reason}" for one in more)] if more else [])]


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"

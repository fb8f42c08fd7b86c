"""Rejects: recordings that a step leaves out, each with a reason code and details."""

import dataclasses
import enum

DURATION_TOLERANCE_SECONDS = 0.1
"""How far an utterance may reach past the end of its recording: durations are rounded, transcripts timed by hand."""


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
    BAD_FEATURES = "bad_features"
    OUT_OF_MEMORY = "out_of_memory"


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

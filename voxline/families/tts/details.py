"""The part of a voice in `metrics.json`."""

from voxline.metrics.evaluation import FamilyDetails
from voxline.store.versioned_json import FilePart


class TtsDetails(FamilyDetails, kw_only=True):
    """The details of a voice in `metrics.json`.

    Attributes:
      recorded_wer: word error rate of the round-trip recognizer on the recordings, a floor under that of the voice;
        None without a recognizer.
      recorded_dnsmos: mean DNSMOS of the recordings, a ceiling; None: not predicted.
      f0_utterances: utterances whose F0 was measured.
      recorded_public_wer: as `recorded_wer`, of the public recognizer.
      recorded_agreement, recorded_disagreement: of both recognizers on the recordings; None unless both listened.
      recorded_likeness, recorded_same_speaker: of recordings beside the others of their speaker, ceilings.
      recorded_trailing_silence: mean seconds after the last speech of the recordings.
    """

    recorded_wer: float | None
    recorded_dnsmos: float | None
    f0_utterances: int
    recorded_public_wer: float | None = None
    recorded_agreement: float | None = None
    recorded_disagreement: float | None = None
    recorded_likeness: float | None = None
    recorded_same_speaker: float | None = None
    recorded_trailing_silence: float | None = None


class TtsSmokeTest(FilePart, forbid_unknown_fields=False):
    """The text of the smoke test, who says it of several, and the number of frames of its mels in `clip.npy`."""

    id: str
    symbols: str
    frames: int
    speaker: str = ""

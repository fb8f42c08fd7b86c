"""The part of a vocoder in `metrics.json`."""

from voxline.metrics.evaluation import BaselineInfo, FamilyDetails
from voxline.store.versioned_json import FilePart


class VocoderDetails(FamilyDetails, kw_only=True):
    """The details of a vocoder in `metrics.json`.

    Attributes:
      griffin_lim: each metric of Griffin-Lim on the same mels.
      recorded_wer: word error rate of the round-trip recognizer on the recordings, a floor under that of the vocoder;
        None without a recognizer.
      recorded_dnsmos: mean DNSMOS of the recordings, a ceiling; None: not predicted.
      f0_utterances: utterances whose F0 was measured.
    """

    griffin_lim: dict[str, BaselineInfo]
    recorded_wer: float | None
    recorded_dnsmos: float | None
    f0_utterances: int


class VocoderSmokeTest(FilePart, forbid_unknown_fields=False):
    """The utterance whose mels the smoke test vocodes, and the number of samples in `clip.wav`."""

    id: str
    samples: int

"""The `corpus` section of a config: where the corpus is, its format, and its splits."""

from typing import Literal, Self

import pydantic

from voxline.components.ingest.corpora import CORPORA
from voxline.settings import Settings


class SplitNames(Settings):
    """Which of the corpus' own splits make up ours: glob patterns, in any case.

    A split of the corpus that no pattern of train, dev or test covers is refused, unless `leave_out` covers it, so
    that none is left out by mistake. `leave_out: ["*"]` leaves out all others.
    """

    train: list[str] = pydantic.Field(["train*"], description="patterns of the corpus' splits to train on")
    dev: list[str] = pydantic.Field(
        ["dev*", "valid*"], description="patterns of the splits to validate on while training"
    )
    test: list[str] = pydantic.Field(["test*", "eval*"], description="patterns of the splits to test on")
    leave_out: list[str] = pydantic.Field(
        [], description="patterns of the splits to leave out, if no other covers them"
    )


class SplitSettings(Settings):
    """What decides the split of an utterance: the corpus, or a seed and shares."""

    by: Literal["corpus", "speaker", "utterance"] = pydantic.Field(
        "corpus", description="by the corpus' own splits, by shares of speakers, or by shares of utterances"
    )
    dev: float = pydantic.Field(
        0.05, ge=0, lt=1, description="share of dev (by corpus: of train, and only where the corpus has no dev split)"
    )
    test: float = pydantic.Field(0.1, ge=0, lt=1, description="share of test (not used by corpus)")
    dev_by: Literal["speaker", "utterance"] | None = pydantic.Field(
        None,
        description="whether dev is a share of speakers or of utterances; empty: as `by` (by corpus: of utterances)",
    )
    seed: int = pydantic.Field(0, ge=0, description="selects the speakers or utterances of dev and test")
    test_speakers: list[str] = pydantic.Field(
        [], description="test is exactly these speakers (by speaker only), as in leave-one-speaker-out"
    )

    @pydantic.model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.by != "corpus" and self.dev + self.test >= 1:
            raise ValueError(
                f"dev {self.dev} and test {self.test} leave nothing to train on; give shares that sum to less than 1"
            )
        if self.test_speakers and self.by != "speaker":
            raise ValueError(f'test_speakers needs by: speaker, and by is {self.by}; set "by" to "speaker"')
        return self


class CorpusSettings(Settings):
    """A corpus in its publisher's own layout."""

    EXPOSED = ("uri", "format")

    uri: str = pydantic.Field(
        "", description="folder or archive (.tar, .tar.gz, .tgz, .zip) of the corpus; may be a bucket URI"
    )
    format: str = pydantic.Field("librispeech", description=f"layout of the corpus: {', '.join(CORPORA)}")
    text_key: str = pydantic.Field(
        "", description="key of the text, where a corpus has several (thchs30: hanzi, pinyin); empty: its usual one"
    )
    splits: SplitNames = pydantic.Field(SplitNames(), description="which of the corpus' own splits make up ours")
    split: SplitSettings = pydantic.Field(SplitSettings(), description="what decides the splits: the corpus, or shares")
    max_reject_share: float = pydantic.Field(
        0.01, ge=0, le=1, description="largest accepted share of rejects; above it the step fails"
    )
    max_unpacked_gigabytes: float = pydantic.Field(
        200.0, gt=0, description="largest accepted size of an unpacked archive or a bucket's folder, in GB (10⁹ bytes)"
    )
    max_unpacked_files: int = pydantic.Field(
        2_000_000, ge=1, description="most files accepted in an archive or a bucket's folder"
    )

    @pydantic.field_validator("format")
    @classmethod
    def _check_format(cls, format: str) -> str:
        if format not in CORPORA:
            raise ValueError(f"accepted: {', '.join(CORPORA)}")
        return format

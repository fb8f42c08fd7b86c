"""What a corpus is, where it lies, and how it is split; the `corpus` section of a config."""

from typing import Literal, Self

import pydantic

from voxline.components.ingest.corpora import CORPORA
from voxline.settings import Settings


class SplitNames(Settings):
    """Which of the corpus' own splits make up ours: glob patterns, their case does not matter.

    A split that none of train, dev and test covers is refused, unless `leave_out` covers it, so that
    nothing is left out by a slip: `leave_out: ["*"]` means "and none of the others".
    """

    train: list[str] = pydantic.Field(["train*"], description="patterns of the corpus' splits to train on")
    dev: list[str] = pydantic.Field(["dev*", "valid*"], description="patterns of those to stop and tune by")
    test: list[str] = pydantic.Field(["test*", "eval*"], description="patterns of those to judge by")
    leave_out: list[str] = pydantic.Field([], description="patterns of those not to use, once the others have chosen")


class SplitSettings(Settings):
    """Who decides what is train, dev and test: the corpus, or a seed and shares."""

    by: Literal["corpus", "speaker", "utterance"] = pydantic.Field(
        "corpus", description="the corpus' own splits, or shares of its speakers, or shares of its utterances"
    )
    dev: float = pydantic.Field(
        0.05, ge=0, lt=1, description="share for dev (by corpus: of train, and only where the corpus has no dev split)"
    )
    test: float = pydantic.Field(0.1, ge=0, lt=1, description="share for test (not used by corpus)")
    dev_by: Literal["speaker", "utterance"] | None = pydantic.Field(
        None, description="whether dev is a share of speakers or of utterances; empty: as `by`, by corpus of utterances"
    )
    seed: int = pydantic.Field(0, ge=0, description="another seed draws other speakers or utterances")
    test_speakers: list[str] = pydantic.Field(
        [], description="test is exactly these speakers (by speaker only): leave one speaker out"
    )

    @pydantic.model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.by != "corpus" and self.dev + self.test >= 1:
            raise ValueError(f"dev {self.dev} and test {self.test} leave nothing to train on; together under 1")
        if self.test_speakers and self.by != "speaker":
            raise ValueError(f'test_speakers needs by: speaker, it is by: {self.by}; set "by" to "speaker"')
        return self


class CorpusSettings(Settings):
    """A corpus in its publisher's own layout."""

    EXPOSED = ("uri", "format")

    uri: str = pydantic.Field(
        "", description="folder, .tar, .tar.gz, .tgz or .zip that holds the corpus; may be gs://…"
    )
    format: str = pydantic.Field("librispeech", description=f"its layout: {', '.join(CORPORA)}")
    text: str = pydantic.Field(
        "",
        description="the key whose value is the text, where a corpus has several (thchs30: hanzi, pinyin); empty: text",
    )
    splits: SplitNames = pydantic.Field(SplitNames(), description="which of the corpus' own splits make up ours")
    split: SplitSettings = pydantic.Field(SplitSettings(), description="who decides the splits: the corpus, or shares")
    max_reject_share: float = pydantic.Field(0.01, ge=0, le=1, description="share of rejects past which the step fails")
    max_unpacked_gigabytes: float = pydantic.Field(
        200.0, gt=0, description="GB (10⁹ bytes) that an archive may unpack to, or a bucket's folder may hold"
    )
    max_unpacked_files: int = pydantic.Field(
        2_000_000, ge=1, description="files that an archive or a bucket's folder may hold"
    )

    @pydantic.field_validator("format")
    @classmethod
    def _known(cls, format: str) -> str:
        if format not in CORPORA:
            raise ValueError(f"accepted: {', '.join(CORPORA)}")
        return format

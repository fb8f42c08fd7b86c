"""The `corpus` section of a config: where the corpus is, its format, and its splits."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic

from voxline.audio.containers import SAMPLE_FORMATS
from voxline.components.ingest.corpora import BUILT_IN, format_names
from voxline.data.drafts import PSEUDO
from voxline.data.licences import checked_licence
from voxline.data.versions import REFERENCE
from voxline.settings import Settings, merge

HTTP_SCHEMES = ("http://", "https://")


class SplitNames(Settings):
    """The corpus' own splits that make up ours: glob patterns, in any case.

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
    """The choice of the split of an utterance: by the corpus, or by a seed and shares."""

    by: Literal["corpus", "speaker", "utterance"] = pydantic.Field(
        "corpus",
        description="by the corpus' own splits, by shares of speakers (default of common_voice), or of utterances",
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


class SplitLimits(Settings):
    """Sizes of the splits, for a trial of a large corpus. Drafts (`corpus.pseudo`) have none."""

    train: int = pydantic.Field(0, ge=0, description="most utterances of train; 0: all")
    dev: int = pydantic.Field(0, ge=0, description="most utterances of dev; 0: all")
    test: int = pydantic.Field(0, ge=0, description="most utterances of test; 0: all")


class ColumnNames(Settings):
    """The columns of a table, or keys of a JSON line, that hold the values of a manifest's line.

    Empty: one of the usual names, such as transcript or sentence for the text and speaker_id for the speaker.
    """

    id: str = pydantic.Field("", description="column of the utterance's id")
    audio_filepath: str = pydantic.Field("", description="column of the recording's path")
    text: str = pydantic.Field("", description="column of the transcript")
    speaker: str = pydantic.Field("", description="column of the speaker's id")
    split: str = pydantic.Field("", description="column of the corpus' own split")
    channel: str = pydantic.Field(
        "", description="column of the channel of the recording: a number from 0, A or B, left or right"
    )
    offset: str = pydantic.Field("", description="column of the utterance's start in the recording, in seconds")
    duration: str = pydantic.Field("", description="column of the utterance's duration, in seconds")


class RawSettings(Settings):
    """The format of the samples in files without a header (.raw, .pcm)."""

    sample_rate: int | None = pydantic.Field(
        None, ge=1_000, le=384_000, description="Hz of recordings without a header; empty: they are rejected"
    )
    channels: int = pydantic.Field(1, ge=1, le=64, description="channels of recordings without a header")
    sample_format: str = pydantic.Field(
        "s16le",
        description="samples of recordings without a header: signed (s), unsigned (u) or float (f), bits, byte order; "
        f"one of {', '.join(SAMPLE_FORMATS)}",
    )

    @pydantic.field_validator("sample_format")
    @classmethod
    def _check_sample_format(cls, sample_format: str) -> str:
        if sample_format not in SAMPLE_FORMATS:
            raise ValueError(f"accepted: {', '.join(SAMPLE_FORMATS)}")
        return sample_format


class CorpusSettings(Settings):
    """A corpus in its publisher's own layout."""

    NOT_IN_KEY: ClassVar[frozenset[str]] = frozenset({"uri", "sha256", "corrections"})
    """The content of the corpus and of the corrections takes the place of their addresses."""

    uri: str = pydantic.Field(
        "",
        description="folder or archive (.tar, .tar.gz, .tgz, .zip) of the corpus, or its manifest; folder and archive "
        "may be a bucket URI, the archive also an http(s) address",
    )
    sha256: str = pydantic.Field(
        "", pattern=r"^([0-9a-fA-F]{64})?$", description="SHA-256 of the archive; required for an http(s) address"
    )
    format: str = pydantic.Field(
        "librispeech", description=f"layout of the corpus: {', '.join(BUILT_IN)}, or one that a package registers"
    )
    licence: str = pydantic.Field(
        "",
        description="licence of recordings and transcripts, by SPDX (CC-BY-4.0), or LicenseRef- and a name of your "
        "own; of lines that state none themselves; it travels to the model (push.licences); empty: not stated",
    )
    audio_roots: list[str] = pydantic.Field(
        [],
        description="folders outside the corpus in which recordings are accepted, by absolute paths or links; "
        "others are rejected (outside_corpus)",
    )
    columns: ColumnNames = pydantic.Field(
        ColumnNames(), description="names of columns (or keys of JSON lines), where they are not the usual ones"
    )
    raw: RawSettings = pydantic.Field(RawSettings(), description="samples of recordings without a header (.raw, .pcm)")
    text_key: str = pydantic.Field(
        "", description="key of the text, where a corpus has several (thchs30: hanzi, pinyin); empty: its usual one"
    )
    missing_texts: list[str] = pydantic.Field(
        [
            *("nan", "NaN", "NAN", "-nan", "-NaN", "NaT", "None", "null", "Null", "NULL", "(null)", "\\N", "undefined"),
            *("NA", "N/A", "n/a", "<NA>", "#N/A", "#VALUE!", "#REF!", "#NAME?", "#DIV/0!", "#NUM!", "#NULL!"),
            *("no transcript", "No transcript", "no transcription", "No transcription", "not transcribed"),
        ],
        description="texts that stand for none, as pandas, R and spreadsheets write an empty cell, in these capitals; "
        "such a transcript is a reject",
    )
    corrections: str = pydantic.Field(
        "",
        description="file of corrected transcripts, which `voxline transcripts correct` writes; it may be a bucket URI",
    )
    splits: SplitNames = pydantic.Field(SplitNames(), description="which of the corpus' own splits make up ours")
    split: SplitSettings = pydantic.Field(SplitSettings(), description="what decides the splits: the corpus, or shares")
    limits: SplitLimits = pydantic.Field(
        SplitLimits(),
        description="most utterances of each split, of each corpus; those with the lowest hash of the seed and the id, "
        "so that a refresh keeps them",
    )
    max_reject_share: float = pydantic.Field(
        0.01, ge=0, le=1, description="largest accepted share of rejects; above it the step fails"
    )
    max_unpacked_gigabytes: float = pydantic.Field(
        200.0,
        gt=0,
        description="largest accepted size of each archive, unpacked, or of a bucket's folder, in GB (10⁹ bytes)",
    )
    max_unpacked_files: int = pydantic.Field(
        2_000_000, ge=1, description="most files accepted in each archive, or in a bucket's folder"
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _split_common_voice_by_speaker(cls, values: Any) -> Any:
        # Its own splits are drawn again in each release, so a test of one would be trained on in the next.
        if isinstance(values, dict) and values.get("format") == "common_voice":
            split = values.get("split", {})
            if isinstance(split, dict) and "by" not in split:
                return {**values, "split": {**split, "by": "speaker"}}
        return values

    @pydantic.field_validator("format")
    @classmethod
    def _check_format(cls, format: str) -> str:
        if format not in BUILT_IN and format not in (names := format_names()):
            raise ValueError(f"accepted: {', '.join(names)}")
        return format

    @pydantic.field_validator("licence")
    @classmethod
    def _check_licence(cls, licence: str) -> str:
        return checked_licence(licence)

    @pydantic.field_validator("audio_roots")
    @classmethod
    def _check_audio_roots(cls, roots: list[str]) -> list[str]:
        for root in roots:
            if not Path(root).expanduser().is_absolute():
                raise ValueError(f"{root!r} is no absolute path of a folder on this machine, such as /data/recordings")
        return roots


_NOT_INHERITED = ("uri", "sha256", "corpora", "pseudo", "dataset")


class WeightedCorpus(CorpusSettings):
    """One of several corpora."""

    NOT_IN_KEY = CorpusSettings.NOT_IN_KEY | {"weight"}  # it is a matter of training

    weight: float = pydantic.Field(
        1.0,
        ge=0,
        le=1_000,
        description="how often an epoch draws each of its training utterances, on average: 2 twice, 0.5 every other "
        "one in turn, 0 none",
    )


class PseudoSettings(Settings):
    """Drafts: recordings whose transcripts a model wrote, beside those that people transcribed."""

    uri: str = pydantic.Field(
        "",
        description="folder that `voxline corpus label` wrote, or one with several such folders, on a disk or in a "
        "bucket; its drafts are trained on (train.pseudo_weight), and never in dev or test; empty: none",
    )

    licence: str = pydantic.Field("", description="of these recordings, as corpus.licence; empty: not stated")

    @pydantic.field_validator("licence")
    @classmethod
    def _check_licence(cls, licence: str) -> str:
        return checked_licence(licence)

    @pydantic.field_validator("uri", mode="before")
    @classmethod
    def _accept_nothing(cls, uri: Any) -> Any:
        return "" if uri is None else uri  # as of `--set corpus.pseudo.uri=`


class CorporaSettings(CorpusSettings):
    """One corpus, or several that become one manifest."""

    EXPOSED: ClassVar[tuple[str, ...]] = ("uri", "format")
    NOT_IN_KEY = CorpusSettings.NOT_IN_KEY | {"corpora", "pseudo", "dataset"}  # each has a key of its own

    dataset: str = pydantic.Field(
        "",
        description="a published version, in place of a corpus: digits@7, or digits@latest, which a run resolves once; "
        "the steps up to extract, which made it, are not run; empty: the corpus at uri",
    )
    pseudo: PseudoSettings = pydantic.Field(
        PseudoSettings(), description="recordings whose transcripts a model drafted, beside the others (asr)"
    )

    corpora: dict[Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_]{0,31}$")], WeightedCorpus] = (
        pydantic.Field(
            {},
            description="several corpora by name, in place of corpus.uri; each takes the keys of corpus, by default "
            "with the values of corpus, and a weight; ids and speakers begin with the name and a hyphen",
        )
    )

    @pydantic.field_validator("dataset")
    @classmethod
    def _check_dataset(cls, dataset: str) -> str:
        if dataset and not REFERENCE.fullmatch(dataset):
            raise ValueError("a name and a version are accepted, such as digits@7 or digits@latest")
        return dataset

    @pydantic.model_validator(mode="before")
    @classmethod
    def _inherit(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("corpora"), dict):
            return values
        shared = {key: value for key, value in values.items() if key not in _NOT_INHERITED}

        # Merged before validation, so that a corpus may override one key of a nested section.
        corpora = {
            name: merge(shared, corpus) if isinstance(corpus, dict) else corpus
            for name, corpus in values["corpora"].items()
        }
        return {**values, "corpora": corpora}

    @pydantic.model_validator(mode="after")
    def _check_corpora(self) -> Self:
        if self.dataset:
            others = {key: getattr(self, key) for key in ("uri", "sha256", "corpora", "corrections")}
            others |= {"pseudo.uri": self.pseudo.uri, "limits": self.limits != SplitLimits()}
            if given := [key for key, value in others.items() if value]:
                raise ValueError(
                    f"dataset is {self.dataset}, and {', '.join(given)} is set too; a version holds what its refresh "
                    "read: leave that out here, or leave dataset out"
                )
        if not self.corpora:
            return self
        if PSEUDO in self.corpora:
            raise ValueError(
                f"corpora has one of the name {PSEUDO}, which is that of the drafts (pseudo.uri); give it another name"
            )
        if self.uri or self.sha256:
            raise ValueError(
                f"corpora has {', '.join(self.corpora)}, and uri or sha256 is set too; "
                "remove those, or give that corpus a name in corpora"
            )
        if not any(corpus.weight for corpus in self.corpora.values()):
            raise ValueError("the weights of all corpora are 0, which leaves nothing to train on; raise one")
        return self

    @pydantic.model_serializer(mode="wrap")
    def _leave_out_inherited(self, dump: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = dump(self)

        # The opposite of `_inherit`: what a config file would have to say, and no more.
        for corpus in values["corpora"].values():
            same = [key for key in corpus if key not in _NOT_INHERITED and values.get(key) == corpus[key]]
            for key in [*same, *([] if corpus["sha256"] else ["sha256"])]:
                del corpus[key]
        return values

    def by_name(self) -> dict[str, CorpusSettings]:
        """The corpora in order of their names; the only one is called "" where it has no name. Drafts come last."""
        corpora: dict[str, CorpusSettings] = dict(sorted(self.corpora.items())) if self.corpora else {"": self}
        if not self.pseudo.uri:
            return corpora

        # Their manifest says that all are of train, so that no share of them is drawn.
        shared = ("max_reject_share", "max_unpacked_gigabytes", "max_unpacked_files", "audio_roots")
        values = {name: getattr(self, name) for name in shared} | {"licence": self.pseudo.licence}
        drafts = CorpusSettings.of({"uri": self.pseudo.uri, "format": "manifest", "split": {"dev": 0}, **values})
        return {**corpora, PSEUDO: drafts}

    @property
    def are_merged(self) -> bool:
        """Returns whether the manifest is made of several: of corpora with names, or of drafts beside others."""
        return bool(self.corpora or self.pseudo.uri)

    def weights(self) -> dict[str, float]:
        """The weights by name; empty where all of them are 1."""
        weights = {name: corpus.weight for name, corpus in sorted(self.corpora.items())}
        return weights if any(weight != 1 for weight in weights.values()) else {}

"""The settings of validate: thresholds and severities of the checks.

A check computes a number, and fails if it is above `threshold`. If the severity is "error", a failed check fails the
step; "warning" only reports it; "off" does not run the check.
"""

from typing import Annotated, Any, ClassVar, Literal

import pydantic

from voxline.beam.settings import RunnerSettings
from voxline.settings import Settings
from voxline.store.uris import Location


def _off(value: Any) -> Any:
    # YAML 1.1 reads an unquoted `off` as false.
    return "off" if value is False else value


Severity = Annotated[Literal["error", "warning", "off"], pydantic.BeforeValidator(_off)]
TfdvMode = Annotated[Literal["auto", "required", "off"], pydantic.BeforeValidator(_off)]
SPLITS = ("train", "dev", "test")


class CheckSettings(Settings):
    """The settings of every check; each has its own defaults."""

    severity: Severity = pydantic.Field("warning", description='"error", "warning" or "off"')
    threshold: float = pydantic.Field(0.0, ge=0, description="the largest value that passes")


class ErrorCheckSettings(CheckSettings):
    """A check that fails the step by default."""

    severity: Severity = pydantic.Field("error", description='"error", "warning" or "off"')


class SentenceOverlap(CheckSettings):
    threshold: float = pydantic.Field(
        0.1, ge=0, le=1, description="share of dev and test utterances whose sentence is also in train"
    )


class ValueTexts(CheckSettings):
    threshold: float = pydantic.Field(
        0.2,
        ge=0,
        le=1,
        description="share of utterances whose transcript is a number, the speaker, a path or a word such as none",
    )


class BracketedTexts(CheckSettings):
    threshold: float = pydantic.Field(
        0.02, ge=0, le=1, description="share of utterances with words in brackets or a label"
    )


class CutRecordings(CheckSettings):
    threshold: float = pydantic.Field(
        0.02,
        ge=0,
        le=1,
        description="share of utterances that end before their recordings, in a corpus without offsets",
    )


class MarkedRows(CheckSettings):
    threshold: float = pydantic.Field(
        0.0, ge=0, le=1, description="share of utterances that a column of their own table calls invalid or poor"
    )


class FrequentTranscript(CheckSettings):
    threshold: float = pydantic.Field(
        5.0, ge=1, description="times that the most frequent transcript is there for each of the second"
    )

    min_utterances: ClassVar[int] = 10
    """Utterances with the most frequent transcript below which it may be chance."""


class UnlikeHeaders(CheckSettings):
    threshold: float = pydantic.Field(
        0.0, ge=0, le=1, description="share of utterances whose WAV says two lengths of its samples"
    )


class UnlikeChannels(CheckSettings):
    threshold: float = pydantic.Field(0.02, ge=0, le=1, description="share of utterances whose channels differ")
    min_correlation: float = pydantic.Field(
        0.5, ge=-1, le=1, description="of two channels that are mixed, below which they are of two speakers or places"
    )


class AntiphaseChannels(CheckSettings):
    threshold: float = pydantic.Field(0.01, ge=0, le=1, description="share of utterances whose channels cancel out")
    max_correlation: float = pydantic.Field(
        -0.5, ge=-1, le=0, description="of two channels that are mixed, below which they cancel each other"
    )


class CtcFeasibility(ErrorCheckSettings):
    threshold: float = pydantic.Field(
        0.01, ge=0, le=1, description="share of train utterances with fewer frames than CTC needs"
    )


class SpeakingRate(CheckSettings):
    threshold: float = pydantic.Field(0.02, ge=0, le=1, description="share of utterances out of range")
    unit: Literal["characters", "words"] = pydantic.Field("characters", description="what is counted a second")
    # Conversation has 10 to 20 characters a second. Beyond these bounds the transcript is probably another recording's.
    min_rate: float = pydantic.Field(2.0, ge=0, description="units a second, without spaces and punctuation")
    max_rate: float = pydantic.Field(30.0, gt=0, description="units a second, without spaces and punctuation")


class Clipping(CheckSettings):
    threshold: float = pydantic.Field(0.02, ge=0, le=1, description="share of utterances that are clipped")

    clipped_share: ClassVar[float] = 0.001
    """Share of its samples at full scale above which an utterance is clipped."""


class Level(CheckSettings):
    threshold: float = pydantic.Field(0.02, ge=0, le=1, description="share of utterances out of range")
    # RMS of the whole recording: speech at a usual level has -30 to -15 dB, less with long pauses.
    min_db: float = pydantic.Field(-50.0, le=0, description="dB below full scale, root mean square")
    max_db: float = pydantic.Field(-6.0, le=0, description="dB below full scale, root mean square")


class Silence(CheckSettings):
    threshold: float = pydantic.Field(0.02, ge=0, le=1, description="share of utterances that are mostly silent")

    silence_share: ClassVar[float] = 0.8
    """Share of silence above which an utterance is mostly silent."""


class ConstantAudio(ErrorCheckSettings):
    threshold: float = pydantic.Field(0.01, ge=0, le=1, description="share of utterances that are not speech")

    min_crest_db: ClassVar[float] = 4.5
    """In dB, from root mean square to peak; a tone has 3, a square wave 0, speech 12 to 20."""


class CharacterBalance(CheckSettings):
    threshold: float = pydantic.Field(
        0.05, ge=0, le=1, description="bits between the distributions (Jensen-Shannon) of train and another split"
    )


class WordBalance(CheckSettings):
    threshold: float = pydantic.Field(
        0.1, ge=0, le=1, description="bits between the distributions (Jensen-Shannon) of train and another split"
    )

    frequent_words: ClassVar[int] = 100
    """Most frequent words of train that are compared; the others count as one."""


class UnseenWords(CheckSettings):
    threshold: float = pydantic.Field(
        0.3, ge=0, le=1, description="share of dev and test words that train does not have"
    )


class IdenticalTranscripts(ErrorCheckSettings):
    threshold: float = pydantic.Field(
        0.6, ge=0, le=1, description="share of a split's utterances that have its most frequent transcript"
    )

    min_utterances: ClassVar[int] = 10
    """Utterances that a split needs to be checked."""


class DominantSpeaker(CheckSettings):
    threshold: float = pydantic.Field(0.5, ge=0, le=1, description="share of train's seconds by one speaker")


class DurationBalance(CheckSettings):
    threshold: float = pydantic.Field(
        2.0, ge=1, description="ratio of the longest to the shortest median duration of the splits"
    )


class LevelBalance(CheckSettings):
    threshold: float = pydantic.Field(10.0, ge=0, description="dB between the median levels of two splits")


class EmptySplits(ErrorCheckSettings):
    threshold: float = pydantic.Field(0, ge=0, description="empty splits, at most")
    required: list[Literal["train", "dev", "test"]] = pydantic.Field(
        ["train", "dev", "test"], description="splits that must not be empty"
    )


class SmallSplits(CheckSettings):
    threshold: float = pydantic.Field(0, ge=0, description="small splits, at most")
    train: int = pydantic.Field(100, ge=0, description="utterances under which train is small")
    dev: int = pydantic.Field(30, ge=0, description="utterances under which dev is small")
    test: int = pydantic.Field(50, ge=0, description="utterances under which test is small")


class GateMargin(CheckSettings):
    threshold: float = pydantic.Field(1.0, ge=0, description="the smallest margin that test can show, over the margin")
    margin: float | None = pydantic.Field(
        None,
        ge=0,
        le=1,
        description="of the word error rate, as a share (follows from push.max_regression.wer); empty: not checked",
    )
    confidence: float = pydantic.Field(0.95, ge=0.5, lt=1, description="of the gate (follows from push.confidence)")


class RejectsShare(CheckSettings):
    threshold: float = pydantic.Field(
        0.02, ge=0, le=1, description="share of utterances that the previous step rejected"
    )


class DriftCheck(CheckSettings):
    threshold: float = pydantic.Field(
        0, ge=0, description="features that may be further from the baseline than the schema accepts"
    )
    thresholds: dict[str, Annotated[float, pydantic.Field(gt=0, le=1)]] = pydantic.Field(
        {}, description="by feature: the distance above which it has drifted, instead of the schema's"
    )


class ValidateSettings(RunnerSettings):
    """The checks before training. Each has a severity, a threshold, and possibly more settings."""

    # `schema` is a method of pydantic's, so the key is an alias.
    model_config = pydantic.ConfigDict(serialize_by_alias=True, validate_by_name=False)
    NOT_IN_KEY = RunnerSettings.NOT_IN_KEY | {"schema_"}  # its content is in the key

    tfdv: TfdvMode = pydantic.Field(
        "auto",
        description="TFX's data validation: auto (runs if glibc is 2.39 or newer), required (fails otherwise) or off",
    )
    schema_: Location = pydantic.Field(
        "asr",
        alias="schema",
        min_length=1,
        description="a name in configs/validation, or a path or bucket URI that ends in .pbtxt",
    )

    # A field for each check of `checks`, which finds its settings by the name: severity and threshold, and what is its
    # own. An error stops the run: only what would spoil the training or make its metrics worthless is one by default.
    duplicate_ids: ErrorCheckSettings = pydantic.Field(
        ErrorCheckSettings(), description="utterances with the id of an earlier one (a count)"
    )
    duplicate_audio: CheckSettings = pydantic.Field(
        CheckSettings(), description="utterances with the samples of an earlier one in the same split (a count)"
    )
    contradictory_transcripts: CheckSettings = pydantic.Field(
        CheckSettings(), description="utterances with equal samples but different transcripts (a count)"
    )
    recording_overlap: ErrorCheckSettings = pydantic.Field(
        ErrorCheckSettings(), description="dev and test utterances whose recording is also in another split (a count)"
    )
    judged_drafts: ErrorCheckSettings = pydantic.Field(
        ErrorCheckSettings(), description="dev and test utterances whose transcript a model drafted (a count)"
    )
    speaker_overlap: CheckSettings = pydantic.Field(
        CheckSettings(), description="share of dev and test utterances whose speaker is also in train"
    )
    sentence_overlap: SentenceOverlap = pydantic.Field(
        SentenceOverlap(), description="share of dev and test utterances whose sentence is also in train"
    )
    # Tables of others that mean something else.
    value_texts: ValueTexts = pydantic.Field(
        ValueTexts(), description="transcripts that are numbers, speakers or paths"
    )
    bracketed_texts: BracketedTexts = pydantic.Field(
        BracketedTexts(), description="words in brackets, such as [noise], and labels such as SPEAKER 1:, the commonest"
    )
    cut_recordings: CutRecordings = pydantic.Field(
        CutRecordings(), description="durations that end before their recordings do, such as rounded ones"
    )
    marked_rows: MarkedRows = pydantic.Field(
        MarkedRows(), description="rows whose own table rejects them: status rejected, is_valid 0, more votes against"
    )
    frequent_transcript: FrequentTranscript = pydantic.Field(
        FrequentTranscript(), description="one transcript for many recordings, such as a text that stands for none"
    )
    unlike_headers: UnlikeHeaders = pydantic.Field(
        UnlikeHeaders(), description="WAVs whose bytes a second contradict their sample rate, which may be wrong"
    )
    unlike_channels: UnlikeChannels = pydantic.Field(
        UnlikeChannels(), description="two channels that differ, as the sides of a call do, and are mixed"
    )
    antiphase_channels: AntiphaseChannels = pydantic.Field(
        AntiphaseChannels(), description="two channels that cancel each other when they are mixed"
    )
    personal_data: CheckSettings = pydantic.Field(
        CheckSettings(),
        description="transcripts with numbers of telephones, cards, accounts or identity cards, with addresses, or in "
        "which people say their names (a count)",
    )
    # Recordings and transcripts that a model cannot learn from.
    ctc_feasibility: CtcFeasibility = pydantic.Field(
        CtcFeasibility(), description="train utterances with too few frames for their labels; needs frames_per_second"
    )
    speaking_rate: SpeakingRate = pydantic.Field(SpeakingRate(), description="characters or words a second")
    clipping: Clipping = pydantic.Field(Clipping(), description="samples at full scale")
    level: Level = pydantic.Field(Level(), description="too quiet, too loud")
    silence: Silence = pydantic.Field(Silence(), description="recordings that are mostly silent")
    constant_audio: ConstantAudio = pydantic.Field(
        ConstantAudio(), description="tones, hums and direct current instead of speech"
    )
    # Splits that differ: metrics on dev and test would not hold for train's kind of speech.
    character_balance: CharacterBalance = pydantic.Field(
        CharacterBalance(), description="difference between the characters of train and of dev and test"
    )
    word_balance: WordBalance = pydantic.Field(
        WordBalance(), description="difference between the words of train and of dev and test"
    )
    unseen_characters: ErrorCheckSettings = pydantic.Field(
        ErrorCheckSettings(), description="characters of dev and test that train does not have (a count)"
    )
    unseen_words: UnseenWords = pydantic.Field(
        UnseenWords(), description="words of dev and test that train does not have"
    )
    identical_transcripts: IdenticalTranscripts = pydantic.Field(
        IdenticalTranscripts(), description="one transcript for everything"
    )
    dominant_speaker: DominantSpeaker = pydantic.Field(
        DominantSpeaker(), description="one speaker who is most of train"
    )
    duration_balance: DurationBalance = pydantic.Field(
        DurationBalance(), description="difference between the durations of the splits"
    )
    level_balance: LevelBalance = pydantic.Field(
        LevelBalance(), description="difference between the levels of the splits"
    )
    empty_splits: EmptySplits = pydantic.Field(EmptySplits(), description="splits without utterances")
    small_splits: SmallSplits = pydantic.Field(
        SmallSplits(), description="splits that are too small to train or evaluate with"
    )
    gate_margin: GateMargin = pydantic.Field(
        GateMargin(), description="margin of the gate that the test split cannot show, whatever the model"
    )
    rejects_share: RejectsShare = pydantic.Field(
        RejectsShare(), description="recordings that the previous step rejected"
    )
    # The checks of TFX's data validation, by the kind of anomaly. The schema has their bounds.
    missing_features: ErrorCheckSettings = pydantic.Field(
        ErrorCheckSettings(),
        description="features of the schema that too few utterances have (a count; TFX's data validation)",
    )
    wrong_types: ErrorCheckSettings = pydantic.Field(
        ErrorCheckSettings(), description="features of another type than the schema's (a count; TFX's data validation)"
    )
    unexpected_values: CheckSettings = pydantic.Field(
        CheckSettings(),
        description="features with values that the schema does not list (a count; TFX's data validation)",
    )
    out_of_range: CheckSettings = pydantic.Field(
        CheckSettings(),
        description="features with numbers outside the schema's bounds (a count; TFX's data validation)",
    )
    other_anomalies: CheckSettings = pydantic.Field(
        CheckSettings(), description="features that break the schema in any other way (a count; TFX's data validation)"
    )
    drift: DriftCheck = pydantic.Field(
        DriftCheck(),
        description="features that differ from the training data of the model in service (TFX's data validation)",
    )

    # What the checks share.
    frames_per_second: float | None = pydantic.Field(
        None,
        gt=0,
        description="frames a second after the time stride of the model; empty: CTC feasibility is not checked",
    )
    max_listed: int = pydantic.Field(
        50, ge=0, le=10_000, description="offending utterances listed for each check, at most"
    )

    max_played: ClassVar[int] = 4
    """Offending utterances of each check with a player in the report, at most."""

    beam_from_megabytes: float = pydantic.Field(
        512.0,
        ge=0,
        description="MB of the manifest from which Beam is used, which starts in seconds; a smaller one is read by "
        "this process (0: always Beam)",
    )

"""What a generated corpus holds, by its kind: who says what, how often, and how hard it is to hear.

kind: commands                    several speakers in their rooms, for recognition       LibriSpeech's layout
kind: digits, phrases, mandarin   one clean voice, for synthesis            LJSpeech's or THCHS-30's layout
kind: listener                    that voice and others, for the recogniser that judges it
                                                                            LibriSpeech's layout
"""

from typing import Any, Literal, Self, cast

import pydantic
from pydantic import Field

from voxline.components.demo_corpus.speakers import DISTINCT_VOICES, VARIANTS
from voxline.components.demo_corpus.speech import EspeakVoice
from voxline.errors import SettingsError
from voxline.settings import Settings

SentenceKind = Literal["digits", "phrases", "mandarin"]
LANGUAGES: dict[SentenceKind, str] = {"digits": "en-us", "phrases": "en-us", "mandarin": "cmn-latn-pinyin"}


class DemoCorpusSettings(Settings):
    """Settings of a generated corpus; equal settings give equal files."""

    @classmethod
    def of(cls, value: str | dict[str, Any] = "{}", source: str = "settings", **named: Any) -> Self:
        """Reads the settings of the kind of corpus that `kind` names; "commands" where it names none."""
        if cls is not DemoCorpusSettings:
            return super().of(value, source, **named)
        kind = named.get("kind", _kind_in(value))
        if kind not in KINDS:
            raise SettingsError(f"{source}: 'kind' is {kind!r}; accepted: {', '.join(KINDS)}")
        return cast(Self, KINDS[kind].of(value, source, **named))


class CommandsCorpusSettings(DemoCorpusSettings):
    """The demo of recognition: commands to a house, spoken by many in their rooms."""

    kind: Literal["commands"] = Field("commands", description="what is said, by whom and for what")
    train_speakers: int = Field(20, ge=1, description="speakers of train-clean")
    dev_speakers: int = Field(2, ge=1, description="speakers of dev-clean, none of them in another split")
    test_speakers: int = Field(6, ge=1, description="speakers of test-clean, none of them in another split")
    utterances_per_speaker: int = Field(40, ge=1, le=9999, description="utterances of a speaker of train or test")
    dev_utterances_per_speaker: int = Field(20, ge=1, le=9999, description="utterances of a speaker of dev")
    seed: int = Field(1, ge=0, description="draws the speakers, sentences, rooms and noises")
    snr_min: float = Field(15.0, ge=-5, le=80, description="dB of speech over noise in the noisiest utterances")
    snr_max: float = Field(30.0, ge=-5, le=80, description="dB of speech over noise in the cleanest utterances")
    reverberation_max: float = Field(
        0.3, ge=0.05, le=2, description="seconds in which the most echoing room dies away by 60 dB"
    )

    def plain(self) -> dict[str, Any]:
        """Without the kind: these corpora were named before there were others, and keep their names."""
        return {key: value for key, value in super().plain().items() if key != "kind"}

    @pydantic.model_validator(mode="after")
    def _can_be_cast(self) -> Self:
        speakers = self.train_speakers + self.dev_speakers + self.test_speakers
        if speakers > DISTINCT_VOICES:
            raise ValueError(
                f"train_speakers + dev_speakers + test_speakers is {speakers}; "
                f"there are {DISTINCT_VOICES} voices, and no speaker may sound like another"
            )
        _check_order(self.snr_min, self.snr_max)
        return self


class EspeakVoiceSettings(DemoCorpusSettings):
    """What a voice for synthesis and its listener have in common: the voice, and the sizes of the splits."""

    seed: int = Field(1, ge=0, description="draws the speakers, sentences, rooms and noises")
    train: int = Field(600, ge=1, le=100_000, description="sentences of train, by each voice")
    dev: int = Field(40, ge=1, le=100_000, description="sentences of dev, by each voice; none of them is in train")
    test: int = Field(40, ge=1, le=100_000, description="sentences of test, by each voice; none of them is in train")
    longer: int = Field(
        20, ge=0, le=100_000, description="further sentences of test, longer than any of train (8 to 10 digits, …)"
    )
    sample_rate: Literal[16000, 22050] = Field(16000, description="Hz of the recordings")
    language: str = Field("", description="espeak-ng's language (en-us, cmn-latn-pinyin); empty: as the sentences need")
    variant: str = Field("", description="espeak-ng's variant of the voice (m3, f1); empty: the language's own voice")
    words_a_minute: int = Field(160, ge=80, le=450, description="how fast the voice speaks")
    pitch: int = Field(50, ge=0, le=99, description="how high the voice is, relative to its own")
    pitch_range: int = Field(50, ge=0, le=99, description="0: monotonous; 99: lively")

    def voice(self, sentences: SentenceKind) -> EspeakVoice:
        """The voice that synthesis learns."""
        return EspeakVoice(
            self.language or LANGUAGES[sentences], self.variant, self.words_a_minute, self.pitch, self.pitch_range
        )


class TtsCorpusSettings(EspeakVoiceSettings):
    """A corpus for synthesis: one voice, clean."""

    kind: SentenceKind = Field(description="what is said: digits, phrases or mandarin")


class RoundTripCorpusSettings(EspeakVoiceSettings):
    """A corpus for the recogniser that says how well synthesised speech can be understood."""

    kind: Literal["listener"] = Field("listener", description="what is said, by whom and for what")
    sentences: SentenceKind = Field("digits", description="what is said: digits, phrases or mandarin")
    train: int = Field(60, ge=1, le=9999, description="sentences of train, by each voice")
    dev: int = Field(10, ge=1, le=9999, description="sentences of dev, by each voice; none of them is in train")
    test: int = Field(10, ge=1, le=9990, description="sentences of test, by each voice; none of them is in train")
    longer: int = Field(5, ge=0, le=9, description="further sentences of test, longer than any of train")
    voice_times: int = Field(3, ge=1, le=100, description="times as many sentences of train by synthesis' own voice")
    others: int = Field(5, ge=0, le=len(VARIANTS), description="voices beside that of synthesis")
    snr_min: float = Field(20.0, ge=-5, le=80, description="dB of speech over noise in the noisiest utterances")
    snr_max: float = Field(50.0, ge=-5, le=80, description="dB of speech over noise in the cleanest utterances")

    @pydantic.model_validator(mode="after")
    def _has_an_order(self) -> Self:
        if self.train * self.voice_times > 9999:
            raise ValueError(f"train × voice_times is {self.train * self.voice_times}; at most 9,999 are accepted")
        _check_order(self.snr_min, self.snr_max)
        return self


KINDS: dict[str, type[DemoCorpusSettings]] = {
    "commands": CommandsCorpusSettings,
    "digits": TtsCorpusSettings,
    "phrases": TtsCorpusSettings,
    "mandarin": TtsCorpusSettings,
    "listener": RoundTripCorpusSettings,
}


def _kind_in(value: str | dict[str, Any]) -> Any:
    """What the settings name as their kind; whatever else is wrong with them is told when they are read."""
    if isinstance(value, str):
        try:
            value = pydantic.TypeAdapter(dict[str, Any]).validate_json(value or "{}")
        except ValueError:
            return "commands"
    return value.get("kind", "commands") if isinstance(value, dict) else "commands"


def _check_order(snr_min: float, snr_max: float) -> None:
    if snr_min > snr_max:
        raise ValueError(f"snr_min is {snr_min}, above snr_max = {snr_max}; swap them")

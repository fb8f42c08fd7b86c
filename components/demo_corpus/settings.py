"""Settings of a generated corpus, by its kind; families declare the kinds (`Family.demo_corpora`).

kind: commands                    many speakers in their rooms, for ASR                        LibriSpeech's layout
                                  the same with the name of each command                                a manifest
kind: words                       many speakers, natives and others, say each of a few words    LibriSpeech's layout
kind: digits, phrases, mandarin   one clean voice, for TTS                       LJSpeech's or THCHS-30's layout
kind: round_trip                  that voice and others, for the recognizer that judges TTS    LibriSpeech's layout
"""

from typing import Literal, Self

import pydantic
from pydantic import Field

from voxline.components.demo_corpus.commands import Language
from voxline.components.demo_corpus.english import DIGIT_SPELLINGS, DIGIT_WORDS
from voxline.components.demo_corpus.espeak import EspeakVoice
from voxline.components.demo_corpus.speakers import ACCENTS, DISTINCT_VOICES, VARIANTS
from voxline.settings import Settings

SentenceKind = Literal["digits", "phrases", "mandarin"]
LANGUAGES: dict[SentenceKind, str] = {"digits": "en-us", "phrases": "en-us", "mandarin": "cmn-latn-pinyin"}


class DemoCorpusSettings(Settings):
    """Settings of a generated corpus; equal settings give equal files."""

    kind: str = Field(description="kind of corpus")


class CommandsCorpusSettings(DemoCorpusSettings):
    """Commands to a house by many speakers, each in a room: the demo of ASR."""

    kind: Literal["commands"] = Field("commands", description="kind of corpus")
    language: Language = Field("english", description="english, or mandarin (in hanzi; at most 13 speakers)")
    train_speakers: int = Field(20, ge=1, description="speakers of train-clean")
    dev_speakers: int = Field(2, ge=1, description="speakers of dev-clean, in no other split")
    test_speakers: int = Field(6, ge=1, description="speakers of test-clean, in no other split")
    utterances_per_speaker: int = Field(40, ge=1, le=9999, description="utterances of each speaker of train and test")
    dev_utterances_per_speaker: int = Field(20, ge=1, le=9999, description="utterances of each speaker of dev")
    seed: int = Field(1, ge=0, description="draws the speakers, sentences, rooms and noises")
    min_snr: float = Field(15.0, ge=-5, le=80, description="signal-to-noise ratio of the noisiest utterances, in dB")
    max_snr: float = Field(30.0, ge=-5, le=80, description="signal-to-noise ratio of the cleanest utterances, in dB")
    max_reverberation: float = Field(0.3, ge=0.05, le=2, description="RT60 of the most reverberant room, in seconds")

    @pydantic.model_validator(mode="after")
    def _check_speakers(self) -> Self:
        speakers = self.train_speakers + self.dev_speakers + self.test_speakers
        # Mandarin has one accent, and so no more speakers than variants.
        voices = DISTINCT_VOICES if self.language == "english" else len(VARIANTS)
        if speakers > voices:
            raise ValueError(
                f"train_speakers + dev_speakers + test_speakers is {speakers}; at most {voices} are accepted for "
                f"{self.language}, since each has a voice of its own"
            )
        _check_order(self.min_snr, self.max_snr)
        return self


class WordsCorpusSettings(DemoCorpusSettings):
    """Single words by many speakers: further voices for a recognizer that has heard few people.

    Speakers of all accents are as many: natives of eight places, and those who read English as their language would.
    """

    kind: Literal["words"] = Field("words", description="kind of corpus")
    words: list[str] = Field(list(DIGIT_WORDS), min_length=1, description="each speaker says each of them once")
    spellings: dict[str, list[str]] | None = Field(
        None,
        description="how speakers of other languages pronounce the words: espeak-ng's language (de, fr) and each word "
        "in its spelling; empty: built in for the ten digits, none for other words",
    )
    speakers: int = Field(200, ge=1, le=9999, description="speakers, all of train-clean")
    seed: int = Field(1, ge=0, description="draws the speakers")

    @property
    def spoken(self) -> dict[str, list[str]]:
        """Each accent of espeak-ng, and the texts that it reads for the words."""
        # The built-in spellings are of the ten digits, in their order.
        natives = dict.fromkeys(ACCENTS, self.words)
        if self.spellings is None and tuple(self.words) == DIGIT_WORDS:
            return {**natives, **{language: list(texts) for language, texts in DIGIT_SPELLINGS.items()}}
        return {**natives, **(self.spellings or {})}

    @pydantic.model_validator(mode="after")
    def _check_voices(self) -> Self:
        # Texts are matched with the words by their place. espeak-ng gets a line for each.
        spellings = {f"spellings.{language}": texts for language, texts in (self.spellings or {}).items()}
        for name, texts in {"words": self.words, **spellings}.items():
            if len(texts) != len(self.words):
                raise ValueError(f"{name} has {len(texts)} of {len(self.words)} texts; give one for each word")
            if not all(text.strip() and text.splitlines() == [text] for text in texts):
                raise ValueError(f"{name} has an entry that has no text, or several lines; one line each is accepted")
        return self


class EspeakVoiceSettings(DemoCorpusSettings):
    """The TTS voice, and the sizes of the splits."""

    seed: int = Field(1, ge=0, description="draws the speakers, sentences, rooms and noises")
    train: int = Field(600, ge=1, le=100_000, description="sentences of train, by each voice")
    dev: int = Field(40, ge=1, le=100_000, description="sentences of dev, by each voice; none is in train")
    test: int = Field(40, ge=1, le=100_000, description="sentences of test, by each voice; none is in train")
    long_sentences: int = Field(
        20,
        ge=0,
        le=100_000,
        description="further sentences of test, longer than any of train (8 to 10 digits, …)",
    )
    sample_rate: Literal[16000, 22050] = Field(16000, description="sample rate in Hz")
    language: str = Field("", description="espeak-ng's language (en-us, cmn-latn-pinyin); empty: as the sentences need")
    variant: str = Field("", description="espeak-ng's variant of the voice (m3, f1); empty: the language's own voice")
    words_per_minute: int = Field(160, ge=80, le=450, description="speaking rate of the voice")
    pitch: int = Field(50, ge=0, le=99, description="pitch, relative to the variant's own")
    pitch_range: int = Field(50, ge=0, le=99, description="pitch range; 0: monotonous, 99: lively")

    def voice(self, sentences: SentenceKind) -> EspeakVoice:
        """The voice that a TTS model learns."""
        return EspeakVoice(
            self.language or LANGUAGES[sentences], self.variant, self.words_per_minute, self.pitch, self.pitch_range
        )


class TtsCorpusSettings(EspeakVoiceSettings):
    """One clean voice, for TTS."""

    kind: SentenceKind = Field(description="kind of sentences: digits, phrases or mandarin")


class RoundTripCorpusSettings(EspeakVoiceSettings):
    """The TTS voice and others, for the recognizer that measures how intelligible synthesized speech is."""

    kind: Literal["round_trip"] = Field("round_trip", description="kind of corpus")
    sentences: SentenceKind = Field("digits", description="kind of sentences: digits, phrases or mandarin")
    # The largest numbers are those that fit into four digits of an utterance's name.
    train: int = Field(60, ge=1, le=9999, description="sentences of train, by each voice")
    dev: int = Field(10, ge=1, le=9999, description="sentences of dev, by each voice; none is in train")
    test: int = Field(10, ge=1, le=9990, description="sentences of test, by each voice; none is in train")
    long_sentences: int = Field(
        5, ge=0, le=9, description="further sentences of test that are longer than any of train"
    )
    tts_voice_weight: int = Field(
        3, ge=1, le=100, description="how many times the others' share of train the TTS voice reads"
    )
    other_voices: int = Field(5, ge=0, le=len(VARIANTS), description="voices besides the TTS voice")
    min_snr: float = Field(20.0, ge=-5, le=80, description="signal-to-noise ratio of the noisiest utterances, in dB")
    max_snr: float = Field(50.0, ge=-5, le=80, description="signal-to-noise ratio of the cleanest utterances, in dB")

    @pydantic.model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.train * self.tts_voice_weight > 9999:
            raise ValueError(
                f"train × tts_voice_weight is {self.train * self.tts_voice_weight}, at most 9,999 accepted"
            )
        _check_order(self.min_snr, self.max_snr)
        return self


def _check_order(min_snr: float, max_snr: float) -> None:
    if min_snr > max_snr:
        raise ValueError(f"min_snr is {min_snr}, above max_snr = {max_snr}; swap them")

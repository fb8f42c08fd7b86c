"""The settings of the features; `voxline.audio.features` computes them. No numpy here: every config imports this."""

from typing import Literal

import pydantic

from voxline.settings import Settings

FeatureKind = Literal[
    "log_mel", "mfcc", "linear", "mel_and_linear", "mel_and_prosody", "whisper", "nemo_mel", "waveform"
]
PROSODY = ("log_f0", "voicing", "energy")
"""The columns of a mel_and_prosody frame behind its mels: `voxline.audio.features`."""

EMPHASIZED = ("mel_and_linear", "nemo_mel")
"""Kinds of features with pre-emphasis."""
NORMALIZED = ("whisper", "nemo_mel")
"""Kinds of public models: each utterance is normalized by itself."""
WHISPER_FRAMES = 3_000
"""Frames of 10 ms that Whisper's public models hear at a time."""


class FeatureSettings(Settings):
    """Settings of how samples become features. Written to dataset.json and model.json."""

    kind: FeatureKind = pydantic.Field(
        "log_mel",
        description="kind of features; mel_and_linear is Tacotron's: decibels scaled to [0, 1]; mel_and_prosody is "
        "log_mel with F0, voicing and level of each frame, for a voice that predicts pitch; whisper and nemo_mel are "
        "what public models of Whisper and of FastConformer read, of 80 or 128 mels; waveform is the samples "
        "themselves, for wav2vec 2.0 and its kin",
    )
    sample_rate: int = pydantic.Field(16_000, ge=4_000, le=96_000, description="Hz; the rate that convert writes")
    window_seconds: float = pydantic.Field(0.025, gt=0, le=0.2, description="length of the Hann window in seconds")
    hop_seconds: float = pydantic.Field(0.010, gt=0, le=0.1, description="seconds from one frame to the next")
    fft_size: int | None = pydantic.Field(
        None,
        description="samples in an FFT; empty: the next power of two that holds a window; of whisper, the window",
    )
    cepstra: Literal["librosa", "tensorflow"] = pydantic.Field(
        "librosa",
        description="whose convention mfcc follows: librosa's, or that of TensorFlow's op Mfcc, which Mozilla's "
        "DeepSpeech was trained on (docs/recognizers.md)",
    )
    mels: int = pydantic.Field(80, ge=8, le=256, description="mel bands (all kinds but linear; of mfcc the basis)")
    lowest_hz: float = pydantic.Field(0.0, ge=0, description="Hz; lower edge of the mel filterbank")
    highest_hz: float | None = pydantic.Field(None, description="Hz; upper edge; empty: half the sample rate")
    log_floor: float = pydantic.Field(
        1e-8,
        gt=0,
        description="power or magnitude below which the logarithm is clipped; quiet speech has a power above 1e-8 "
        "(whisper: always 1e-10; nemo_mel: 2^-24 is added instead)",
    )
    spectrum: Literal["power", "magnitude"] | None = pydantic.Field(
        None,
        description="what the logarithm is taken of; empty: magnitude for mel_and_linear and TensorFlow's cepstra, "
        "power otherwise",
    )
    preemphasis: float | None = pydantic.Field(
        None,
        ge=0,
        lt=1,
        description="factor of the preceding sample that is subtracted; empty: 0.97 for mel_and_linear and nemo_mel, "
        "0 otherwise",
    )
    reference_db: float = pydantic.Field(
        20.0, ge=-100, le=100, description="decibels of magnitude that map to 1 (mel_and_linear)"
    )
    floor_db: float = pydantic.Field(
        -100.0, ge=-200, le=-10, description="decibels relative to the reference that map to 0 (mel_and_linear)"
    )
    coefficients: int = pydantic.Field(26, ge=2, le=128, description="cepstral coefficients (mfcc)")
    context: int = pydantic.Field(
        0, ge=0, le=30, description="frames stacked on each side (mfcc; Mozilla's DeepSpeech uses 9)"
    )

    unit_variance: bool = pydantic.Field(
        True,
        description="bring the samples of each utterance to zero mean and unit variance (waveform); false for public "
        "models whose preprocessor_config.json has do_normalize: false",
    )

    @pydantic.field_validator("window_seconds", "hop_seconds")
    @classmethod
    def _at_least_a_sample(cls, seconds: float, validation: pydantic.ValidationInfo) -> float:
        # Fields are validated in order. One that failed itself is absent here: its own error is enough.
        rate = validation.data.get("sample_rate")
        if rate and round(seconds * rate) < 1:
            raise ValueError(f"shorter than one sample at {rate} Hz; give {1 / rate:.1g} s or more")
        return seconds

    @pydantic.field_validator("fft_size")
    @classmethod
    def _transform_holds_a_window(cls, size: int | None, validation: pydantic.ValidationInfo) -> int | None:
        rate = validation.data.get("sample_rate")
        seconds = validation.data.get("window_seconds")
        if size is None or not rate or not seconds:
            return size

        # A transform of fewer samples than a window would cut the window off.
        if size % 2 or not round(seconds * rate) <= size <= 65_536:
            raise ValueError(
                f"an even number from {round(seconds * rate)} (the window's samples) to 65536 is accepted; "
                "leave it empty for the next power of two"
            )
        return size

    @pydantic.field_validator("highest_hz")
    @classmethod
    def _edges_in_order(cls, highest: float | None, validation: pydantic.ValidationInfo) -> float | None:
        rate = validation.data.get("sample_rate")
        lowest = validation.data.get("lowest_hz", 0.0)

        # Above half the sample rate there is nothing, and a band without width divides by zero.
        if rate and not lowest < (rate / 2 if highest is None else highest) <= rate / 2:
            raise ValueError(
                f"above lowest_hz ({lowest:g}) and at most half the sample rate ({rate / 2:g}) is accepted"
            )
        return highest

    @pydantic.field_validator("spectrum")
    @classmethod
    def _spectrum_of_the_kind(cls, spectrum: str | None, validation: pydantic.ValidationInfo) -> str | None:
        kind = validation.data.get("kind")
        of_mfcc = "magnitude" if validation.data.get("cepstra") == "tensorflow" else "power"

        # Kinds that fix the spectrum by their definition; the others leave the choice.
        accepted = {
            "mfcc": of_mfcc,
            "linear": "power",
            "whisper": "power",
            "nemo_mel": "power",
            "mel_and_linear": "magnitude",
        }.get(kind or "", spectrum)
        if spectrum is not None and spectrum != accepted:
            raise ValueError(f"with kind {kind}, {accepted} is accepted, or empty")
        return spectrum

    @pydantic.field_validator("cepstra")
    @classmethod
    def _cepstra_of_the_kind(cls, cepstra: str, validation: pydantic.ValidationInfo) -> str:
        if cepstra != "librosa" and validation.data.get("kind") != "mfcc":
            raise ValueError(f"with kind {validation.data.get('kind')}, librosa is accepted; only mfcc has cepstra")
        return cepstra

    @pydantic.field_validator("preemphasis")
    @classmethod
    def _emphasis_of_the_kind(cls, share: float | None, validation: pydantic.ValidationInfo) -> float | None:
        kind = validation.data.get("kind")
        if share and kind not in EMPHASIZED:
            raise ValueError(
                f"with kind {kind}, 0 is accepted, or empty; only {' and '.join(EMPHASIZED)} use pre-emphasis"
            )
        return share

    @pydantic.field_validator("coefficients")
    @classmethod
    def _no_more_than_mels(cls, coefficients: int, validation: pydantic.ValidationInfo) -> int:
        mels = validation.data.get("mels")
        if validation.data.get("kind") == "mfcc" and mels and coefficients > mels:
            raise ValueError(f"at most the number of mels ({mels}) is accepted")
        return coefficients

    @property
    def win_length(self) -> int:
        """Samples in a window."""
        return round(self.window_seconds * self.sample_rate)

    @property
    def hop_length(self) -> int:
        """Samples from one frame to the next."""
        if self.kind == "waveform":
            return 1
        return round(self.hop_seconds * self.sample_rate)

    @property
    def n_fft(self) -> int:
        """Samples in an FFT."""
        smallest = self.win_length + self.win_length % 2 if self.kind == "whisper" else 0
        return self.fft_size or smallest or max(2, 1 << (self.win_length - 1).bit_length())

    @property
    def fft_bins(self) -> int:
        """Frequency bins of an FFT, from 0 Hz to half the sample rate."""
        return self.n_fft // 2 + 1

    @property
    def padding(self) -> int:
        """Zeros before sample 0, so that the first window is centered on the first sample."""
        # The window is centered in the frame of the FFT, and the frame on its sample.
        return self.n_fft // 2 - (self.n_fft - self.win_length) // 2

    @property
    def preemphasis_factor(self) -> float:
        """`preemphasis`, or the default of the kind."""
        if self.preemphasis is None:
            return 0.97 if self.kind in EMPHASIZED else 0.0
        return self.preemphasis

    @property
    def uses_magnitude(self) -> bool:
        """Returns whether the logarithm is taken of the magnitude rather than of the power."""
        of_magnitude = self.kind == "mel_and_linear" or self.cepstra == "tensorflow"
        return (self.spectrum or ("magnitude" if of_magnitude else "power")) == "magnitude"

    @property
    def bins(self) -> int:
        """Values in a feature frame.

        >>> FeatureSettings(kind="mel_and_linear", window_seconds=0.05, hop_seconds=0.0125, fft_size=2048).bins
        1105
        """
        if self.kind == "waveform":
            return 1
        if self.kind == "linear":
            return self.fft_bins
        if self.kind == "mel_and_linear":
            return self.mels + self.fft_bins
        if self.kind == "mel_and_prosody":
            return self.mels + len(PROSODY)
        if self.kind == "mfcc":
            return self.coefficients * (2 * self.context + 1)
        return self.mels

    @property
    def mel_columns(self) -> slice:
        """The mel bands of a log_mel, mel_and_linear or mel_and_prosody frame: `features[..., settings.mel_columns]`.

        Raises:
          ValueError: features of this kind have no mel bands.
        """
        self._require_kind("log_mel", "mel_and_linear", "mel_and_prosody")
        return slice(0, self.mels)

    @property
    def linear_columns(self) -> slice:
        """The linear spectrum of a mel_and_linear or linear frame.

        Raises:
          ValueError: features of this kind have no linear spectrum.
        """
        self._require_kind("mel_and_linear", "linear")
        return slice(self.bins - self.fft_bins, self.bins)

    @property
    def prosody_columns(self) -> slice:
        """The columns of `PROSODY` of a mel_and_prosody frame.

        Raises:
          ValueError: features of this kind have none.
        """
        self._require_kind("mel_and_prosody")
        return slice(self.mels, self.bins)

    def _require_kind(self, *kinds: str) -> None:
        if self.kind not in kinds:
            raise ValueError(f"features of kind {self.kind} have no such columns; {' or '.join(kinds)} is accepted")

    def count_frames(self, samples: int) -> int:
        """Frames of a recording of `samples` samples: one at every hop, centered, starting at sample 0.

        Of nemo_mel without one at the end; of waveform, one a sample; of whisper, all that a sample reaches into, up to
        30 seconds, which have no frame at their end.

        >>> FeatureSettings().count_frames(16_000), FeatureSettings(kind="whisper").count_frames(16_000)
        (101, 102)
        """
        if self.kind == "waveform":
            return samples
        # librosa's `center=True`: a frame at sample 0, and one at each hop after it.
        if self.kind == "whisper":
            reached = 1 + (samples + self.padding - 1) // self.hop_length
            return min(reached, max(WHISPER_FRAMES, samples // self.hop_length))
        if self.kind == "nemo_mel":
            return max(samples // self.hop_length, 1)
        return 1 + samples // self.hop_length

    def count_samples(self, frames: int) -> int:
        """Samples of the shortest recording that has `frames` frames; inverted spectrograms get this length."""
        if self.kind == "waveform":
            return frames
        return max(frames if self.kind == "nemo_mel" else frames - 1, 0) * self.hop_length

"""Checks of the export from the settings alone, when a config is read and before training.

They are apart from the graphs, since `onnx` and `onnx_stream` need numpy and onnx, and a config is read without either.
"""

from typing import TYPE_CHECKING

from voxline.errors import SettingsError
from voxline.families.asr.networks.settings import (
    WHOLE_UTTERANCE,
    CtcModelSettings,
    DeepSpeech2Settings,
    Wav2Vec2Settings,
    WhisperSettings,
)
from voxline.settings import changed_settings

if TYPE_CHECKING:
    from voxline.audio.feature_settings import FeatureSettings
    from voxline.families.asr.settings import AsrExportSettings

STREAMING_KINDS = ("deepspeech", "deepspeech2")
ONNX_KINDS = (*STREAMING_KINDS, "whisper", "fastconformer", "wav2vec2")
"""`train.model.kind` of networks with an ONNX graph, and of those that can have a streaming one."""
LARGEST_FILE = 2**31
"""Bytes of a message of protocol buffers, which a graph is."""
HUB_KINDS = ("whisper", "wav2vec2", "fastconformer")
"""Those of public models, which `transformers` has too."""


def check_export(model: CtcModelSettings, export: "AsrExportSettings", features: "FeatureSettings") -> None:
    """Refuses a model that could not be exported in a form that the settings ask for.

    Raises:
      SettingsError: naming the setting, and what is accepted.
    """
    check_features(features, export)
    if export.onnx != "none":
        check_onnx_export(model, export.onnx)
    if export.streaming:
        check_streaming(model, features)
    if export.hub:
        check_hub_export(model, "train.export.hub")
        _check_public_features(features)


def check_features(features: "FeatureSettings", export: "AsrExportSettings") -> None:
    """Refuses features that `frontend.graph_features` cannot compute, or that cannot be warped.

    Raises:
      SettingsError: a model trained on them could not be exported.
    """

    # The graph computes log mels, cepstra and linear spectra from the power spectrum.
    if features.kind in ("mel_and_linear", "mel_and_prosody"):
        raise SettingsError(
            f"an ASR model cannot be trained on features of kind {features.kind}; "
            "set extract.features.kind to log_mel, mfcc or linear"
        )

    if features.uses_magnitude and features.kind != "mfcc":
        raise SettingsError(
            "an ASR model needs features of the power spectrum, and the dataset's are of the magnitude spectrum; "
            "set extract.features.spectrum to power"
        )

    if export.frequency_warps and features.kind not in ("log_mel", "linear"):
        raise SettingsError(
            f"train.export.frequency_warps: features of kind {features.kind} have no frequency axis to stretch, or "
            "belong to a public model; set it to [], or extract.features.kind to log_mel"
        )


def _check_public_features(features: "FeatureSettings") -> None:
    """Refuses features that `transformers` does not compute: all but a few of their settings are fixed there."""
    free = "unit_variance" if features.kind == "waveform" else "mels"
    public = type(features).of({"kind": features.kind, free: getattr(features, free)})
    if changed := changed_settings({"extract.features": public.plain()}, {"extract.features": features.plain()}):
        differ = ", ".join(f"{key} is {value}, there {theirs}" for key, theirs, value in changed)
        raise SettingsError(
            f"train.export.hub: `transformers` computes the features of public models alone: {differ} (sample_rate is "
            "that of convert)"
        )


def check_onnx_export(settings: CtcModelSettings, precision: str) -> None:
    """Refuses a network that `onnx` cannot write.

    Args:
      precision: float32 or int8.

    Raises:
      SettingsError: naming the setting, and what is accepted.
    """

    # Each check names the setting to change, before any training.
    if settings.kind not in ONNX_KINDS:
        raise SettingsError(
            f"train.export.onnx: no ONNX graph is known for train.model.kind {settings.kind!r}; accepted: "
            f"{', '.join(ONNX_KINDS)}. Set train.export.onnx to none"
        )

    if settings.time_stride == WHOLE_UTTERANCE:
        raise SettingsError(
            "train.export.onnx: with train.model.pooling utterance, a network has no ONNX graph; set pooling to none, "
            "or train.export.onnx to none"
        )

    if settings.top_db:
        raise SettingsError(
            f"train.export.onnx: with train.model.top_db {settings.top_db:g}, a network has no ONNX graph; set top_db "
            "to 0, or train.export.onnx to none"
        )

    rnn = getattr(settings, "rnn", "lstm")
    if precision == "int8" and rnn != "lstm":
        raise SettingsError(
            f"train.export.onnx: ONNX Runtime has no 8-bit kernel for train.model.rnn {rnn!r}; set rnn to lstm, or "
            "onnx to float32"
        )

    if isinstance(settings, WhisperSettings) and settings.head == "decoder":
        weights = max(_weights_of_graphs(settings))
        if weights * (1 if precision == "int8" else 4) >= LARGEST_FILE:
            raise SettingsError(
                f"train.export.onnx: {precision} weights of this network take {weights * 4 / 1e9:.1f} GB, and a file "
                "of ONNX has 2 GB at most; set train.export.onnx to int8, or to none"
            )


def _weights_of_graphs(settings: WhisperSettings) -> tuple[int, int]:
    """About how many weights encoder and decoder of Whisper have."""
    square = settings.units**2
    keys_and_values = 2 * square * settings.decoder_layers
    encoder = 12 * square * settings.layers + keys_and_values
    return encoder, 14 * square * settings.decoder_layers + settings.tokens * settings.units


def check_hub_export(settings: CtcModelSettings, where: str) -> None:
    """Refuses a network that no class of `transformers` computes.

    Args:
      where: what asks for the folder, for the message: a setting, or the model.

    Raises:
      SettingsError: naming the setting, and what is accepted.
    """
    check_hub_kind(settings.kind, where)
    if isinstance(settings, WhisperSettings):
        if settings.head != "decoder":
            pooled = " and pooling utterance" if settings.pooling != "none" else ""
            raise SettingsError(
                f"{where}: `transformers` has no class for Whisper's encoder with train.model.head ctc{pooled}; head "
                "decoder is accepted"
            )
        return  # a decoder hears 30 s, whatever the padding is
    if settings.padding:
        raise SettingsError(
            f"{where}: train.model.padding is {settings.padding}, and `transformers` adds no padding; set it to 0"
        )
    if isinstance(settings, Wav2Vec2Settings) and settings.adapter and not settings.projection_norm:
        raise SettingsError(
            f"{where}: `transformers` has no class with train.model.adapter {settings.adapter} and without "
            "projection_norm; set adapter to 0, or projection_norm to true"
        )


def check_hub_kind(kind: str, where: str) -> None:
    """Refuses a kind of network that `transformers` does not have; see `check_hub_export`."""
    if kind not in HUB_KINDS:
        raise SettingsError(
            f"{where}: `transformers` has no class for train.model.kind {kind!r}; accepted: whisper with head decoder, "
            "wav2vec2, fastconformer"
        )


def check_streaming(settings: CtcModelSettings, features: "FeatureSettings") -> None:
    """Refuses a network that needs the end of an utterance.

    Raises:
      SettingsError: naming the setting at fault.
    """
    if settings.kind not in STREAMING_KINDS:
        raise SettingsError(
            f"train.export.streaming: train.model.kind {settings.kind!r} sees the whole utterance before its first "
            f"frame; accepted: {', '.join(STREAMING_KINDS)}"
        )

    if isinstance(settings, DeepSpeech2Settings):
        if settings.directions != "forward":
            raise SettingsError(
                f"train.export.streaming: with train.model.directions {settings.directions!r}, layers read backward, "
                "from the end of an utterance; set it to forward, with a lookahead"
            )

        # A window must reach the next one, or the stream would have to drop samples.
        for number, convolution in enumerate(settings.convolutions):
            if convolution.stride[0] > convolution.kernel[0]:
                raise SettingsError(
                    f"train.export.streaming: train.model.convolutions.{number} skips frames: its stride over frames, "
                    f"{convolution.stride[0]}, is above its kernel, {convolution.kernel[0]}; make the kernel as large"
                )

    if features.hop_length > features.win_length:
        raise SettingsError(
            "train.export.streaming: extract.features.hop_seconds is above window_seconds: samples are skipped"
        )

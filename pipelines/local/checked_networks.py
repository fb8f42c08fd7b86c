"""The networks that `voxline check-accelerator` trains, in two sizes, and the recordings that they train on.

A file of its own: it is a table, which one reads and extends without the processes of `accelerator_check`.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from voxline.settings import merge

UTTERANCES = 64
SECONDS = (2.0, 8.0)
SMALL_UTTERANCES = 16
SMALL_SECONDS = (1.0, 1.5)
"""Recordings, and their shortest and longest length; of a small check."""
SAMPLE_RATE = 22_050
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_VOICE_FEATURES = {"mels": 80, "hop_seconds": 256 / SAMPLE_RATE, "window_seconds": 1024 / SAMPLE_RATE}
_DROPOUT = ("prenet_dropout", "zoneout", "encoder_dropout", "decoder_dropout", "postnet_dropout")
_SMALL_DECODER = {"prenet": [16, 12], "attention": {"units": 16, "location_filters": 4, "location_kernel": 7}}
_SMALL_GENERATOR = {"residual_kernels": [3], "residual_dilations": [[1]], "residual_block": "single", "channels": 16}
_SMALL_JUDGES = {"periods": [3], "scales": 0, "width": 0.01}


@dataclasses.dataclass(frozen=True)
class CheckedNetwork:
    """A network to check.

    Attributes:
      title: for the table.
      family: its pipeline.
      train: the section `train`: the sizes that it is trained with.
      small: what a small check changes of it.
      features: those that it reads.
      trains: whether it trains, or only speaks.
    """

    title: str
    family: str
    train: dict[str, Any]
    small: dict[str, Any]
    features: dict[str, Any] = dataclasses.field(default_factory=lambda: _VOICE_FEATURES)
    trains: bool = True


# Those whose graphs take longest to build are last.
# fmt: off
NETWORKS = {
    "deepspeech2": CheckedNetwork(
        "Deep Speech 2", "asr",
        {"model": {"kind": "deepspeech2", "layers": 5, "units": 800, "dropout": 0}},
        {"model": {"layers": 1, "units": 12}}, features={},
    ),
    "conformer": CheckedNetwork(
        "Conformer", "asr",
        {"model": {"kind": "conformer", "subsampling": 4, "layers": 16, "units": 256, "heads": 4, "dropout": 0}},
        {"model": {"layers": 1, "units": 16, "heads": 2, "kernel": 5}}, features={},
    ),
    "whisper": CheckedNetwork(
        "Whisper tiny, CTC", "asr",
        {"model": {"kind": "whisper"}},
        {"model": {"layers": 1, "units": 16, "heads": 2}}, features={"kind": "whisper"},
    ),
    "vocos": CheckedNetwork(
        "Vocos with discriminators", "vocoder",
        {"model": {"kind": "vocos"}, "discriminators": {"start_step": 0}},
        {"model": {"channels": 8, "hidden": 8, "layers": 1}, "discriminators": _SMALL_JUDGES, "segment_frames": 16},
    ),
    "hifigan": CheckedNetwork(
        "HiFi-GAN", "vocoder", {"model": {"kind": "hifigan"}}, {"model": _SMALL_GENERATOR}, trains=False
    ),
    "waveglow": CheckedNetwork(
        "WaveGlow", "vocoder",
        {"model": {"kind": "waveglow"}},
        {"model": {"flows": 2, "early_every": 1, "layers": 1, "channels": 4}}, trains=False,
    ),
    "tacotron2": CheckedNetwork(
        "Tacotron 2", "tts",
        {"model": {"kind": "tacotron2", "reduction": 2, **dict.fromkeys(_DROPOUT, 0)}},
        {"model": {
            "reduction": 5, "embedding": 16, "encoder_convolutions": 1, "encoder_channels": 16, "encoder_lstm": 8,
            "decoder_units": 24, "postnet_layers": 2, "postnet_channels": 8, **_SMALL_DECODER,
        }},
    ),
    "vits": CheckedNetwork(
        "VITS", "tts",
        {"model": {"kind": "vits"}},
        {"model": {
            "units": 12, "layers": 1, "feed_forward": 16, "latent": 8, "flows": 2, "flow_layers": 1,
            "duration_flows": 1, "duration_layers": 1, "duration_bins": 4, **_SMALL_GENERATOR,
        }, "vits": {"posterior_layers": 2, "segment_frames": 8, "discriminators": _SMALL_JUDGES}},
    ),
}
# fmt: on


def config_document(name: str, small: bool, folder: Path) -> dict[str, Any]:
    """The config by which a network of `NETWORKS` is checked.

    Args:
      folder: of the recordings, and of the store.
    """
    network = NETWORKS[name]
    batch_size = 8 if small else 16

    # One static shape, where XLA compiles the steps for a TPU. The rate does not rise: all steps are alike.
    voice = {"sample_rate": SAMPLE_RATE, "frontend": {"kind": "english"}}
    train = {
        **network.train, "epochs": 1_000, "batch_size": batch_size, "warm_up_steps": 0, "buckets": 1, "strategy": "one",
    }  # fmt: skip
    return {
        "pipeline": network.family,
        "name": f"check-{name}",
        "store": str(folder / "store"),
        "registry": str(folder / "registry"),
        "corpus": {"uri": str(folder / "corpus"), "format": "manifest", "split": {"by": "corpus"}},
        "convert": {"sample_rate": 16_000} if network.family == "asr" else voice,
        "extract": {"features": network.features},
        "train": merge(train, network.small) if small else train,
    }


def write_corpus(folder: Path, small: bool) -> None:
    """Recordings in which each letter is a tone, with noise, and their texts."""
    import soundfile

    count = SMALL_UTTERANCES if small else UTTERANCES
    bounds = SMALL_SECONDS if small else SECONDS
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    lines = []
    for number in range(count + 2):
        seconds = random.uniform(*bounds)
        text = " ".join(random.choice(WORDS, max(round(2 * seconds), 1)))
        samples = round(seconds * SAMPLE_RATE)

        # [samples] of a tone for each character, some octaves above 100 Hz.
        pitches = [100.0 * 2 ** (ord(character) % 23 / 8) for character in text]
        hertz = np.repeat(pitches, -(-samples // len(pitches)))[:samples]
        waveform = 0.3 * np.sin(2 * np.pi * np.cumsum(hertz) / SAMPLE_RATE) + 0.01 * random.standard_normal(samples)
        soundfile.write(folder / f"{number}.wav", waveform.astype(np.float32), SAMPLE_RATE, subtype="PCM_16")

        # A recording of each of the other splits, as ingest asks for.
        split = "train" if number < count else ("dev", "test")[number - count]
        lines.append({"id": str(number), "audio_filepath": f"{number}.wav", "text": text, "split": split})
    manifest = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "manifest.jsonl").write_text(manifest, encoding="utf-8")

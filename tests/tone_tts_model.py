"""A TTS model small enough to build in a test: it synthesizes the tones that `tone_asr_model` recognizes.

Each digit is a tenth of a second, five frames, one decoder step; other symbols are silence. It is a real SavedModel
with the signatures of an exported model, and can be built to say wrong digits, to blur its mels, to lose its attention
and to run into the step limit.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.tone_asr_model import BLOCK, RATE, WORDS, render_words
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.data.manifest import Utterance, write_manifest

ALPHABET = "012345678 .-"
FRAMES = 5
FEATURES = FeatureSettings(sample_rate=RATE, window_seconds=0.04, hop_seconds=BLOCK / RATE / FRAMES, mels=20)
MAX_STEPS = 120

MakeTtsModel = Callable[..., Path]


@pytest.fixture(scope="session")
def make_tts_model(tmp_path_factory: pytest.TempPathFactory) -> MakeTtsModel:
    """Builds an exported model; see `export_tts_model`."""
    models: dict[str, Path] = {}

    def make(**how: Any) -> Path:
        name = json.dumps(how, sort_keys=True)
        if name not in models:
            models[name] = tmp_path_factory.mktemp("train") / "model"
            export_tts_model(models[name], **how)
        return models[name]

    return make


def add_onnx_graph(folder: Path, smear: float = 0.0) -> Path:
    """Puts an ONNX graph beside the SavedModel of `export_tts_model`, which makes the same mels."""
    from onnx import TensorProto

    from voxline.training.onnx_graph import Graph

    blocks = [render_words([WORDS[int(s)]]) if s.isdigit() else np.zeros(BLOCK, np.float32) for s in ALPHABET]
    mels = np.stack([compute_features(block, FEATURES)[:FRAMES] for block in blocks]) + np.float32(smear)
    graph = Graph()
    lengths = graph("Cast", "lengths", to=TensorProto.INT64)
    made = graph("Reshape", graph("Gather", mels, "symbols"), np.array([0, -1, FEATURES.mels]))
    places = graph("Range", np.int64(0), graph.size("symbols", 1), np.int64(1))
    diagonal = graph("Equal", graph("Unsqueeze", places, np.array([0])), graph("Unsqueeze", places, np.array([1])))
    attended = graph.mask(
        graph("Cast", graph("Unsqueeze", diagonal, np.array([0])), to=TensorProto.FLOAT), lengths, 1, 3
    )
    frames = graph("Cast", graph("Mul", lengths, np.int64(FRAMES)), to=TensorProto.INT32)
    content = graph.finish(
        "voice",
        [("symbols", TensorProto.INT32, ["batch", "n"]), ("lengths", TensorProto.INT32, ["batch"])],
        [
            ("mels", made, TensorProto.FLOAT, ["batch", "t", FEATURES.mels]),
            ("frames", frames, TensorProto.INT32, ["batch"]),
            ("alignments", attended, TensorProto.FLOAT, ["batch", "n", "m"]),
            ("hit_limit", graph("Less", lengths, np.int64(0)), TensorProto.BOOL, ["batch"]),
        ],
    )
    (folder / "model.onnx").write_bytes(content)
    return folder


def spell_digits(symbols: str) -> str:
    return " ".join(WORDS[int(symbol)] for symbol in symbols if symbol.isdigit())


def write_tts_corpus(folder: Path, texts: Sequence[str], split: str = "test") -> Path:
    """Writes wavs and a manifest of digits, as convert does."""
    utterances = []
    for number, text in enumerate(texts):
        wav = folder / "wavs" / f"{number:04d}.wav"
        wav.parent.mkdir(parents=True, exist_ok=True)
        samples = np.concatenate(
            [render_words([WORDS[int(s)]]) if s.isdigit() else np.zeros(BLOCK, np.float32) for s in text]
        )
        soundfile.write(wav, samples, RATE, subtype="PCM_16")
        utterances.append(
            Utterance(f"voice-{number:04d}", str(wav), len(samples) / RATE, text, "voice", split, f"hash of {text}",
                      extra={"normalized_text": spell_digits(text)})
        )  # fmt: skip
    write_manifest(folder / "manifest.jsonl", utterances)
    return folder


def export_tts_model(
    folder: Path,
    says: dict[str, str] | None = None,
    smear: float = 0.0,
    flatness: float = 0.0,
    lost: str = "",
    endless: str = "",
    mute: str = "",
    alphabet: str = ALPHABET,
    kind: str = FEATURES.kind,
) -> None:
    """Writes a SavedModel and its model.json.

    Args:
      says: the digit to say for a digit.
      smear: added to the mels.
      flatness: 0 to 1, by which the bins of a frame become their mean, as those of an over-smoothed voice do.
      lost: a symbol at which the attention stays.
      endless: a symbol after which synthesis does not stop.
      mute: a symbol whose texts stop at the first frame, which has no samples yet.
      kind: of the features that teacher forcing takes; their mels are those of FEATURES.
    """
    import tensorflow as tf

    how = FeatureSettings.of({**FEATURES.plain(), "kind": kind})

    voiced = [(says or {}).get(symbol, symbol) for symbol in alphabet]
    blocks = [render_words([WORDS[int(s)]]) if s.isdigit() else np.zeros(BLOCK, np.float32) for s in voiced]
    mels = np.stack([compute_features(block, FEATURES)[:FRAMES] for block in blocks])
    mels += flatness * (mels.mean(axis=-1, keepdims=True) - mels)
    lost_id, endless_id, mute_id = (alphabet.index(one) if one else -1 for one in (lost, endless, mute))

    class Voice(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mels, self.blocks = tf.constant(mels), tf.Variable(np.stack(blocks))

        def attend(self, symbols, lengths):  # type: ignore[no-untyped-def]
            count = tf.shape(symbols)[1]
            places = tf.tile(tf.range(count)[None], [tf.shape(symbols)[0], 1])
            stays = tf.cumsum(tf.cast(tf.equal(symbols, lost_id), tf.int32), axis=1, exclusive=True) > 0
            here = tf.reduce_max(tf.where(tf.equal(symbols, lost_id), places, 0), axis=1, keepdims=True)
            real = tf.sequence_mask(lengths, count, tf.float32)[..., None]
            return tf.one_hot(tf.where(stays, here, places), count) * real

        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)], autograph=False
        )
        def synthesize(self, symbols, lengths):  # type: ignore[no-untyped-def]
            rows, count = tf.shape(symbols)[0], tf.shape(symbols)[1]
            muted = tf.reduce_any(tf.equal(symbols, mute_id), axis=1)
            return {
                "mels": tf.reshape(tf.gather(self.mels, symbols), [rows, count * FRAMES, FEATURES.mels]) + smear,
                "frames": tf.where(muted, 1, lengths * FRAMES),
                "alignments": self.attend(symbols, lengths),
                "waveforms": tf.reshape(tf.gather(self.blocks, symbols), [rows, count * BLOCK]),
                "samples": tf.where(muted, 0, lengths * BLOCK),
                "hit_limit": tf.reduce_any(tf.equal(symbols, endless_id), axis=1),
            }

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, None], tf.int32),
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None, None, how.bins], tf.float32),
                tf.TensorSpec([None], tf.int32),
            ],
            autograph=False,
        )
        def teacher_forced(self, symbols, lengths, features, frames):  # type: ignore[no-untyped-def]
            error = tf.zeros_like(frames, tf.float32) + abs(smear)
            # TensorFlow does not compare the shape of what it is given with the signature.
            mels, _ = tf.split(features, [FEATURES.mels, how.bins - FEATURES.mels], axis=-1)
            return {"mels": mels + smear, "alignments": self.attend(symbols, lengths), "mel_l1": error}

    voice = Voice()
    signatures = {"synthesize": voice.synthesize, "teacher_forced": voice.teacher_forced}
    tf.saved_model.save(voice, str(folder), signatures=signatures)
    (folder / "model.json").write_text(json.dumps(_about(alphabet, how)))


def export_onnx_voice(folder: Path) -> Path:
    """The ONNX graph of `add_onnx_graph`, with an empty SavedModel beside it: no TensorFlow is needed."""
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"")
    (folder / "model.json").write_text(json.dumps(_about(ALPHABET, FEATURES)))
    return add_onnx_graph(folder)


def _about(alphabet: str, features: FeatureSettings) -> dict[str, Any]:
    return {
        "format": 1,
        "name": "tts",
        "family": "tts",
        "kind": "tacotron2",
        "alphabet": alphabet,
        "sample_rate": RATE,
        "features": features.plain(),
        "frontend": {"kind": "as_is"},
        "max_steps": MAX_STEPS,
        "reduction": FRAMES,
        "settings": {"epochs": 1},
        "dataset": {"key": "k", "fingerprint": "f", "counts": {"train": 10, "test": 4}, "seconds": {"train": 9.0}},
        "provenance": {"git_revision": "0" * 40, "versions": {}, "trained": {"steps": 3, "best_step": 3}},
    }

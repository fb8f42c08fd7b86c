"""An ASR model small enough to build in a test, and recordings that it recognizes.

Each word is a tenth of a second of tone; its loudness encodes the word. The model measures the loudness and looks the
word up. It is a real SavedModel with the signatures of an exported model, and can be built to confuse chosen words.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

from voxline.data.manifest import Utterance, write_manifest

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")
RATE = 16_000
BLOCK = RATE // 10
FRAMES = 8
"""Frames in a block: the letters of its word, blanks, and a space."""
ALPHABET = " abcdefghijklmnopqrstuvwxyz'"

MakeAsrModel = Callable[..., Path]


@pytest.fixture(scope="session")
def make_asr_model(tmp_path_factory: pytest.TempPathFactory) -> MakeAsrModel:
    """Builds an exported model: `make_asr_model({"two": "three"})` returns "three" for "two"."""
    models: dict[str, Path] = {}

    def make(substitutions: Mapping[str, str] | None = None) -> Path:
        name = json.dumps(substitutions or {}, sort_keys=True)
        if name not in models:
            models[name] = tmp_path_factory.mktemp("train") / "model"
            export_asr_model(models[name], substitutions or {})
        return models[name]

    return make


def render_words(words: Sequence[str]) -> npt.NDArray[np.float32]:
    """float32 [samples]; a tone at a tenth of full scale for "zero", two for "one", …"""
    tone = np.sin(2 * np.pi * 1_000 * np.arange(BLOCK) / RATE)
    return np.concatenate([tone * (WORDS.index(word) + 1) / 10 for word in words]).astype(np.float32)


def write_corpus(folder: Path, sentences: Sequence[tuple[str, str]], split: str = "test") -> Path:
    """Writes wavs and a manifest of (speaker, sentence) pairs, as convert does."""
    utterances = []
    for number, (speaker, sentence) in enumerate(sentences):
        wav = folder / "wavs" / f"{number:04d}.wav"
        wav.parent.mkdir(parents=True, exist_ok=True)
        samples = render_words(sentence.split())
        soundfile.write(wav, samples, RATE, subtype="PCM_16")
        utterances.append(
            Utterance(
                id=f"{speaker}-{number:04d}",
                audio_filepath=str(wav),
                duration=len(samples) / RATE,
                text=sentence,
                speaker=speaker,
                split=split,
                audio_hash=f"{speaker}{sentence}",
                extra={"accent": "north" if number % 2 else "south"},
            )
        )
    write_manifest(folder / "manifest.jsonl", utterances)
    return folder


def _spell(word: str) -> list[int]:
    """The symbols of a block's frames, as CTC spells a word; a blank parts equal letters."""
    blank = len(ALPHABET)
    letters = [blank if letter == "-" else ALPHABET.index(letter) for letter in word.replace("ee", "e-e")]
    return [*letters, *[blank] * (FRAMES - 1 - len(letters)), 0 if word else blank]


def export_asr_model(folder: Path, substitutions: Mapping[str, str]) -> None:
    """Writes a SavedModel and its model.json."""
    import tensorflow as tf

    class Listener(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            heard = [0, *(WORDS.index(substitutions.get(word, word)) + 1 for word in WORDS), 0]
            self.heard = tf.Variable(heard, dtype=tf.int32)
            self.words = tf.constant(["", *WORDS])
            self.spelling = tf.constant([_spell(word) for word in ("", *WORDS)], tf.int32)

        def listen(self, waveforms, lengths):  # type: ignore[no-untyped-def]
            lost = tf.sequence_mask(lengths, tf.shape(waveforms)[1], tf.float32) * waveforms
            padded = tf.pad(lost, [[0, 0], [0, -tf.shape(lost)[1] % BLOCK]])
            blocks = tf.reshape(padded, [tf.shape(padded)[0], -1, BLOCK])
            loudness = tf.cast(tf.round(tf.reduce_max(tf.abs(blocks), axis=2) * 10), tf.int32)
            heard = tf.gather(self.heard, tf.clip_by_value(loudness, 0, 10))
            return heard, lengths // BLOCK

        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.int32)], autograph=False
        )
        def transcribe(self, waveforms, lengths):  # type: ignore[no-untyped-def]
            heard, frames = self.listen(waveforms, lengths)
            text = tf.strings.strip(tf.strings.reduce_join(tf.gather(self.words, heard), axis=1, separator=" "))
            spelled = tf.reshape(tf.gather(self.spelling, heard), [tf.shape(heard)[0], -1])
            probabilities = 0.9 * tf.one_hot(spelled, len(ALPHABET) + 1) + 0.1 / (len(ALPHABET) + 1)
            return {"text": text, "log_probabilities": tf.math.log(probabilities), "frames": frames * FRAMES}

        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.int32)], autograph=False
        )
        def logits(self, waveforms, lengths):  # type: ignore[no-untyped-def]
            heard, frames = self.listen(waveforms, lengths)
            return {"logits": tf.one_hot(heard, len(WORDS) + 1), "frames": frames}

    listener = Listener()
    signatures = {"transcribe": listener.transcribe, "logits": listener.logits}
    tf.saved_model.save(listener, str(folder), signatures=signatures)
    (folder / "model.json").write_text(json.dumps(_about(tf.__version__)))


def export_onnx_tones(folder: Path, substitutions: Mapping[str, str] | None = None) -> Path:
    """The same as an ONNX graph, with an empty SavedModel beside it: no TensorFlow is needed to build or run it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    heard = ["", *((substitutions or {}).get(word, word) for word in WORDS), ""]
    spelled = np.array([_spell(word) for word in heard])
    table = np.log(0.9 * np.eye(len(ALPHABET) + 1)[spelled] + 0.1 / (len(ALPHABET) + 1)).astype(np.float32)
    constants = {
        "table": table, "ten": np.float32(10), "none": np.float32(0), "all": np.float32(10), "block": np.int64(BLOCK),
        "blocks": np.array([0, -1, BLOCK]), "flat": np.array([0, -1, len(ALPHABET) + 1]), "frames_": np.int64(FRAMES),
        "first": np.array([0, 0, 0]),
    }  # fmt: skip
    steps = [
        ("Shape", ["waveforms"], "length", {"start": 1}),
        ("Neg", ["length"], "negative", {}),
        ("Mod", ["negative", "block"], "missing", {}),
        ("Concat", ["first", "missing"], "pads", {"axis": 0}),
        ("Pad", ["waveforms", "pads"], "padded", {}),
        ("Reshape", ["padded", "blocks"], "blocked", {}),
        ("Abs", ["blocked"], "loud", {}),
        ("ReduceMax", ["loud"], "loudest", {"axes": [2], "keepdims": 0}),
        ("Mul", ["loudest", "ten"], "tenths", {}),
        ("Round", ["tenths"], "rounded", {}),
        ("Clip", ["rounded", "none", "all"], "clipped", {}),
        ("Cast", ["clipped"], "heard", {"to": TensorProto.INT64}),
        ("Gather", ["table", "heard"], "words", {}),
        ("Reshape", ["words", "flat"], "log_probabilities", {}),
        ("Cast", ["lengths"], "samples", {"to": TensorProto.INT64}),
        ("Div", ["samples", "block"], "whole", {}),
        ("Mul", ["whole", "frames_"], "counted", {}),
        ("Cast", ["counted"], "frames", {"to": TensorProto.INT32}),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, taken, [given], **attributes) for op, taken, given, attributes in steps],
        "tones",
        [
            helper.make_tensor_value_info("waveforms", TensorProto.FLOAT, ["batch", "samples"]),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]),
        ],
        [
            helper.make_tensor_value_info("log_probabilities", TensorProto.FLOAT, ["batch", "t", "c"]),
            helper.make_tensor_value_info("frames", TensorProto.INT32, ["batch"]),
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "saved_model.pb").write_bytes(b"")
    onnx.checker.check_model(model)
    (folder / "model.json").write_text(json.dumps(_about("none")))
    return folder


def _about(tensorflow: str) -> dict[str, object]:
    return {
        "format": 1,
        "name": "asr",
        "family": "asr",
        "kind": "ctc",
        "alphabet": ALPHABET,
        "sample_rate": RATE,
        "features": {},
        "settings": {"epochs": 1},
        "dataset": {"key": "k", "fingerprint": "f", "counts": {"train": 10, "test": 4}, "seconds": {"train": 9.0}},
        "provenance": {
            "git_revision": "0" * 40,
            "versions": {"tensorflow": tensorflow},
            "trained": {"steps": 3, "epochs": 1, "best_step": 3, "dev_wer": 0.1},
        },
    }


def minimal_model_json(name: str, family: str) -> dict[str, object]:
    """The contents of a model.json with the required keys alone."""
    empty = {"kind": "none", "alphabet": "ab", "sample_rate": RATE, "features": {}, "settings": {}, "provenance": {}}
    return {"format": 1, "name": name, "family": family, "dataset": {"key": "k"}, **empty}

"""A recognizer in a registry with the evaluation of its test split, and captures of it."""

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile

from tests.evaluations import evaluation_info, metric_info
from tests.tone_asr_model import RATE, WORDS, export_onnx_tones, render_words
from voxline.audio.profile import audio_profile
from voxline.feedback.captures import CapturedClip, CaptureStore
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.evaluation import METRICS_FILE, UTTERANCES_FILE, UtteranceResult, write_results
from voxline.metrics.wer import count_word_edits
from voxline.registry.journal import PRODUCTION
from voxline.registry.registry import EVALUATION, Registry
from voxline.store.files import write_json

Samples = np.ndarray


def sentences(count: int, seed: int = 0) -> list[list[str]]:
    """Of one to four words."""
    random = np.random.default_rng(seed)
    return [[str(word) for word in random.choice(WORDS, random.integers(1, 5))] for _ in range(count)]


def recordings(texts: Sequence[Sequence[str]], seed: int, noise: float = 1e-3) -> list[Samples]:
    random = np.random.default_rng(seed)
    clean = [render_words(list(words)) for words in texts]
    return [np.clip(one + noise * random.standard_normal(len(one)), -1, 1).astype(np.float32) for one in clean]


def push_judged(root: Path, folder: Path, substitutions: dict[str, str], alias: str = PRODUCTION) -> int:
    """Publishes a model that confuses words, judged on 120 utterances; returns its version."""
    model = export_onnx_tones(folder, substitutions)
    texts = sentences(120)
    waveforms = recordings(texts, 1)
    heard = Recognizer(model).recognize_waveforms(waveforms)
    edits = count_word_edits([" ".join(text) for text in texts], [one.text for one in heard])
    results = []
    for index, (waveform, one, edit) in enumerate(zip(waveforms, heard, edits, strict=True)):
        profile = audio_profile(waveform, RATE)
        details = {"hypothesis": one.text, "confidence": one.confidence and float(one.confidence)}
        details |= {"level_db": profile.level_db, "snr_db": profile.snr_db, "bands_db": profile.bands_db}
        speaker = f"p{index % 4}"
        metrics = {"wer": SumAndWeight(edit.errors, edit.length)}
        results.append(
            UtteranceResult(f"t-{index}", speaker, one.seconds, {"speaker": speaker}, metrics, None, details)
        )
    wer = sum(edit.errors for edit in edits) / sum(edit.length for edit in edits)
    metric = metric_info(wer, max(wer - 0.03, 0), wer + 0.03)
    registry = Registry(root, "asr")
    with registry.locked(), registry.publishing(model, model_digest(model), "push", alias=alias) as (version, staging):
        (staging / EVALUATION).mkdir()
        write_results(staging / EVALUATION / UTTERANCES_FILE, results)
        info = evaluation_info(utterances=len(results), metrics={"wer": metric})
        write_json(staging / EVALUATION / METRICS_FILE, info.to_dict())
    return version


def capture(
    root: Path, location: Path, texts: Sequence[Sequence[str]], waveforms: Sequence[Samples], speaker: str = ""
) -> list[CapturedClip]:
    """What `serve --capture` would have kept of the version in production."""
    registry = Registry(root, "asr")
    version = registry.resolve("production")
    recognizer, store = Recognizer(registry.path(version)), CaptureStore(location)
    store.prepare()
    clips = []
    before = len([info for info in store.store.list() if info.name.endswith(".flac")])
    for index, (waveform, one) in enumerate(zip(waveforms, recognizer.recognize_waveforms(waveforms), strict=True)):
        file = io.BytesIO()
        soundfile.write(file, waveform, RATE, format="FLAC", subtype="PCM_16")
        clip = CapturedClip(
            f"capture-{before + index:016x}", "asr", version, registry.event(version).digest, "2026-11-23T18:00:00Z",
            "2999-01-01", "terms-1", one.seconds, one.text, one.confidence and float(one.confidence), [], one.note,
            **dataclasses.asdict(audio_profile(waveform, RATE)), speaker=speaker,
        )  # fmt: skip
        store.write(clip, file.getvalue())
        clips.append(clip)
    return clips

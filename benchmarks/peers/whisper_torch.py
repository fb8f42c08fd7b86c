"""Whisper by transformers and faster-whisper, for benchmarks.parents; runs in the peers' environment.

python whisper_torch.py step HUB_FOLDER          prints a JSON line for each training step: seconds, processor
                                                 seconds, bytes at the peak
python whisper_torch.py encode WHEEL_FOLDER IN OUT   encodes the features of an .npz by faster-whisper
python whisper_torch.py transcribe WHEEL_FOLDER FLAC_FOLDER   prints a JSON line for each round over the recordings:
                                                     processor seconds, and the texts
python whisper_torch.py words WHEEL_FOLDER FLAC_FOLDER   prints a JSON line: words and their starts, by recordings
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 4
ROWS = 8
TOKENS = 30
TRANSCRIBED_ROUNDS = 3
GREEDY: dict[str, Any] = {
    "language": "en",
    "beam_size": 1,
    "temperature": 0.0,
    "without_timestamps": True,
    "condition_on_previous_text": False,
    "compression_ratio_threshold": None,
    "log_prob_threshold": None,
    "no_speech_threshold": None,
}


def step(folder: Path) -> None:
    """Training steps of the whole model on 8 recordings, in eager mode."""
    import torch
    import transformers

    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).train()
    model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    random = np.random.default_rng(0)
    # It accepts 30 seconds and nothing else.
    features = torch.tensor(random.standard_normal((ROWS, 80, 3000)), dtype=torch.float32)
    tokens = torch.tensor(random.integers(0, 50_000, (ROWS, TOKENS)))
    for _ in range(STEPS):
        start = time.perf_counter()
        processor = time.process_time()
        model(input_features=features, decoder_input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print_step(start, processor)


def encode(wheel: Path, source: Path, target: Path) -> None:
    """The encodings of features [80, 3000] by CTranslate2 in float32."""
    from faster_whisper import WhisperModel

    model = WhisperModel(str(wheel), device="cpu", compute_type="float32")
    with np.load(source) as arrays:
        encodings = {name: np.array(model.encode(arrays[name])) for name in arrays.files}
    np.savez(target, **encodings)


def transcribe(wheel: Path, folder: Path) -> None:
    """Greedy texts by faster-whisper with 8 bits on one thread, without times and without a fallback."""
    import soundfile
    from faster_whisper import WhisperModel

    model = WhisperModel(str(wheel), device="cpu", compute_type="int8", cpu_threads=1)
    recordings = [soundfile.read(path, dtype="float32")[0] for path in sorted(folder.rglob("*.flac"))]
    for _ in range(TRANSCRIBED_ROUNDS):
        processor = time.process_time()
        texts = [written_text(model, samples) for samples in recordings]
        print(json.dumps({"processor": time.process_time() - processor, "texts": texts}), flush=True)


def written_text(model: Any, samples: Any) -> str:
    segments, _ = model.transcribe(samples, **GREEDY)
    return " ".join(segment.text.strip() for segment in segments)


def words(wheel: Path, folder: Path) -> None:
    """Words and their starts in seconds, by float32."""
    import soundfile
    from faster_whisper import WhisperModel

    model = WhisperModel(str(wheel), device="cpu", compute_type="float32", cpu_threads=1)
    recordings = [soundfile.read(path, dtype="float32")[0] for path in sorted(folder.rglob("*.flac"))]
    timed = [model.transcribe(samples, word_timestamps=True, **GREEDY)[0] for samples in recordings]
    print(
        json.dumps(
            [
                [[word.word.strip(), float(word.start)] for segment in segments for word in segment.words]
                for segments in timed
            ]
        )
    )


def peak_memory() -> int:
    """Bytes of this program alone: what `getrusage` tells begins with the peak of what started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def print_step(start: float, processor: float) -> None:
    figures = {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - processor,
        "bytes": peak_memory(),
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    {"step": step, "encode": encode, "transcribe": transcribe, "words": words}[sys.argv[1]](*map(Path, sys.argv[2:]))

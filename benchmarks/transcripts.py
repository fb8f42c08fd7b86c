"""How well recordings are aligned and wrong transcripts are found, on utterances that a model has not trained on.

Those of dev and test become one recording, in another order, with silence between; of 20 lines one is not spoken, and
one that is spoken is not written. Then a word of 5% of the transcripts is replaced by another one, and all are ranked.

  python -m benchmarks.transcripts MODEL MANIFEST   # of train and of ingest, such as runs/demo/store/…
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

import voxline
from benchmarks.table import Row, print_table
from voxline.data.manifest import Utterance
from voxline.inference.ctc_alignment import text_loss
from voxline.inference.recognizer import Recognizer
from voxline.text.alphabet import normalize_transcript

EDGE_SECONDS = 0.05
SILENCE = 3e-5
"""Standard deviation of what is between utterances: -90 dB."""


def main(model: str, manifest: str) -> None:
    """Prints the table."""
    recognizer = Recognizer(model, language_model=False)
    unseen = [one for one in voxline.read_manifest(manifest) if one.split != "train"]
    random = np.random.default_rng(3)
    utterances = [unseen[index] for index in random.permutation(len(unseen))]
    print_table([*_align(recognizer, utterances, random), _rank(recognizer, utterances, random)])


def _align(recognizer: Recognizer, utterances: list[Utterance], random: Any) -> list[Row]:
    rate = recognizer.sample_rate
    lines: list[str] = []
    spoken: dict[int, tuple[float, float]] = {}
    missing, extra, parts, length = set(), [], [], 0

    def add(samples: Any) -> None:
        nonlocal length
        parts.append(samples.astype(np.float32))
        length += len(samples)

    for number, one in enumerate(utterances):
        if number % 20 != 14:
            lines.append(one.text)
        if number % 20 == 9:
            missing.add(len(lines))
            continue
        add(SILENCE * random.standard_normal(int(random.uniform(0.2, 1.0) * rate)))
        samples = voxline.load_audio(one.audio_filepath, rate, one.offset, one.duration)
        loud = np.nonzero(np.abs(samples) > 0.01 * np.abs(samples).max())[0]
        start = length / rate
        add(samples[loud[0] : loud[-1] + 1])
        if number % 20 == 14:
            extra.append((start, length / rate))
        else:
            spoken[len(lines)] = start, length / rate
    add(SILENCE * random.standard_normal(rate))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "recording.flac")
        soundfile.write(file, np.concatenate(parts), rate)
        voxline.align_recording(recognizer, file, lines)  # compiles
        before = time.process_time()
        found = voxline.align_recording(recognizer, file, lines)
        spent = time.process_time() - before
    edges, words = [], 0
    for one in found.utterances:
        if one.line in spoken:
            words += len(one.words)
            if one.text == lines[one.line - 1]:
                edges += [abs(one.start - spoken[one.line][0]), abs(one.end - spoken[one.line][1])]
    near = sum(edge <= EDGE_SECONDS for edge in edges)
    wanted = sum(len(lines[line - 1].split()) for line in spoken)
    named = {one.line for one in found.missing if one.text == lines[one.line - 1]}
    heard = sum(any(min(b, one.end) - max(a, one.start) > (b - a) / 2 for one in found.unwritten) for a, b in extra)
    told = f"{len(missing & named)} and {heard}; {len(named - missing) + len(found.unwritten) - heard} wrong"
    share = (len(missing & named) + heard) / (len(missing) + len(extra))
    return [
        Row.of(f"align {found.seconds:.0f} s: words placed", f"{words:,}", f"{wanted:,}", words / wanted, ">=", 0.99),
        Row.of(
            f"edges within 50 ms (median {1000 * np.median(edges):.1f} ms), all of {len(spoken):,} lines",
            f"{near:,}", f"{2 * len(spoken):,}", near / (2 * len(spoken)), ">=", 0.9,
        ),
        Row.of(
            "lines not spoken, and utterances not written, that are named", told, f"{len(missing)} and {len(extra)}",
            share, ">=", 0.95,
        ),
        Row.of("CPU time", f"{spent:.1f} s", f"{found.seconds:.0f} s", spent / found.seconds, "<=", 0.1),
    ]  # fmt: skip


def _rank(recognizer: Recognizer, utterances: list[Utterance], random: Any) -> Row:
    texts = [normalize_transcript(one.text) for one in utterances]
    vocabulary = sorted({word for text in texts for word in text.split()})
    planted = set(random.permutation(len(texts))[: round(0.05 * len(texts))].tolist())
    for index in planted:
        words = texts[index].split()
        at = int(random.integers(len(words)))
        words[at] = str(random.choice([word for word in vocabulary if word != words[at]]))
        texts[index] = " ".join(words)
    audio = [
        voxline.load_audio(one.audio_filepath, recognizer.sample_rate, one.offset, one.duration) for one in utterances
    ]
    doubts = []
    for decoded, text in zip(recognizer.decode_waveforms(audio), texts, strict=True):
        loss, free = (
            text_loss(decoded.log_probabilities, one, recognizer.alphabet)[0] for one in (text, decoded.greedy)
        )
        doubts.append(np.inf if loss is None else loss - (free or 0.0))
    first = set(np.argsort(-np.array(doubts), kind="stable")[: round(0.07 * len(texts))].tolist())
    found = len(planted & first)
    name = f"one word of 5% of {len(texts)} transcripts replaced: found in the first 7%"
    return Row.of(name, str(found), str(len(planted)), found / len(planted), ">=", 0.9)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main(*sys.argv[1:])

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

import voxline
from benchmarks.alignment import JoinedRecording
from benchmarks.table import Row, print_table
from voxline.data.manifest import Utterance
from voxline.inference.ctc_alignment import text_loss
from voxline.inference.recognizer import Recognizer
from voxline.text.transcripts import normalize_transcript


def main(model: str, manifest: str) -> None:
    """Prints the table."""
    recognizer = Recognizer(model, language_model=False)
    unseen = [one for one in voxline.read_manifest(manifest) if one.split != "train"]
    random = np.random.default_rng(3)
    utterances = [unseen[index] for index in random.permutation(len(unseen))]
    print_table([*_align(recognizer, utterances, random), _rank(recognizer, utterances, random)])


def _align(recognizer: Recognizer, utterances: list[Utterance], random: Any) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "recording.flac")
        joined = JoinedRecording.write(file, utterances, recognizer.sample_rate, random, minutes=0)
        voxline.align_recording(recognizer, file, joined.lines)  # compiles
        before = time.process_time()
        found = voxline.align_recording(recognizer, file, joined.lines)
        spent = time.process_time() - before
    return [
        *joined.score(found),
        Row.of("CPU time", f"{spent:.1f} s", f"{found.seconds:.0f} s", spent / found.seconds, "<=", 0.1),
    ]


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

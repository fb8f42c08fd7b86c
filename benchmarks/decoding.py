"""CTC beam search with a trigram and 5,000 words beside pyctcdecode and flashlight-text, on one core.

`make bench-decoding` installs the peers and runs it.

The log probabilities are made up: each letter has one or two frames in which it leads by a margin with much noise, so
that greedy decoding gets nearly every word wrong. All three decoders have the same ones, the same ARPA file, the same
words, weights and beam.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jiwer
import numpy as np
import numpy.typing as npt

from benchmarks.table import Row, print_table
from voxline.inference.beam_search import BeamSearch, decode_best_path
from voxline.text.alphabet import Alphabet
from voxline.training.kneser_ney import train_ngrams

ENVIRONMENT = Path(".decoders-venv")
WORDS, SENTENCES, UTTERANCES, WIDTH = 5_000, 12_000, 60, 100
ALPHA, BETA = 0.5, 1.0
NOISE = (2.0, 2.6)
"""Standard deviations of two sets; the lead of the right symbol is 8."""
ENGLISH = Alphabet.from_name("english")


def sentences(rng: np.random.Generator, words: list[str], count: int) -> list[list[str]]:
    """Sentences by Zipf's law, in which a word often leads to one of five others."""
    shares = 1 / np.arange(1, len(words) + 1)
    shares /= shares.sum()
    found = []
    for _ in range(count):
        chosen = [int(rng.choice(len(words), p=shares))]
        for draw in rng.random(int(rng.integers(5, 14))):
            likely = (chosen[-1] * 7 + int(rng.integers(5))) % len(words)
            chosen.append(likely if draw < 0.6 else int(rng.choice(len(words), p=shares)))
        found.append([words[one] for one in chosen])
    return found


def made_up_logits(rng: np.random.Generator, text: str, noise: float) -> npt.NDArray[np.float32]:
    """Log probabilities [frames, symbols + 1] of a text, as a network without confidence might output them."""
    frames: list[int] = []
    for label in ENGLISH.encode(text):
        frames += [label] * int(rng.choice([1, 1, 2])) + [ENGLISH.blank] * int(rng.choice([1, 1, 2, 3]))
    values = rng.normal(0, noise, (len(frames), ENGLISH.blank + 1))
    values[np.arange(len(frames)), frames] += 8
    return np.asarray(values - np.logaddexp.reduce(values, axis=1, keepdims=True), np.float32)


def measure(noise: float) -> list[Row]:
    rng = np.random.default_rng(0)
    syllables = ["".join(pair) for pair in itertools.product("bcdfghjklmnprstvw", "aeiou")]
    spellings = {"".join(rng.choice(syllables, int(rng.choice([1, 2, 2, 3, 3, 4])))) for _ in range(9_000)}
    words = [str(word) for word in rng.permutation(sorted(spellings)[:WORDS])]
    model = train_ngrams(sentences(rng, words, SENTENCES), 3)
    texts = [" ".join(one) for one in sentences(rng, words, UTTERANCES)]
    utterances = [made_up_logits(rng, text, noise) for text in texts]
    frames = sum(map(len, utterances))
    with tempfile.TemporaryDirectory() as folder:
        logits, arpa, lexicon = (Path(folder, name) for name in ("logits.npz", "lm.arpa", "words.txt"))
        np.savez(logits, *utterances)
        model.write_arpa(arpa)
        lexicon.write_text("\n".join(words), encoding="utf-8")
        command = [ENVIRONMENT / "bin/python", Path(__file__).parent / "peers/ctc_decoders.py", logits, arpa, lexicon]
        printed = subprocess.run(
            [*map(str, command), str(ALPHA), str(BETA), str(WIDTH)], capture_output=True, text=True, check=True
        ).stdout
    peers = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    search = BeamSearch(ENGLISH, words, model, alpha=ALPHA, beta=BETA, width=WIDTH)
    search.decode(utterances[0])
    start = time.process_time()
    found = [search.decode(one)[0].text for one in utterances]
    seconds = time.process_time() - start
    wer = jiwer.wer(texts, found)
    greedy = jiwer.wer(texts, [decode_best_path(one, ENGLISH).text for one in utterances])
    name = f"beam search, beam {WIDTH}, {WORDS:,} words, trigram, greedy WER {greedy:.0%}"
    rows = []
    for peer, target in zip(peers, (6.0, 0.8), strict=True):
        ours, theirs = (f"{1e6 * one / frames:.0f} µs a frame" for one in (seconds, peer["seconds"]))
        rows.append(Row.of(f"{name}, x {peer['decoder']}", ours, theirs, peer["seconds"] / seconds, ">=", target))
        errors = jiwer.wer(texts, peer["texts"])
        rows.append(
            Row.of(f"its WER, {peer['decoder']}'s more", f"{wer:.2%}", f"{errors:.2%}", 100 * (errors - wer), ">=", 0)
        )
    return rows


if __name__ == "__main__":
    if not (ENVIRONMENT / "bin/python").is_file():
        sys.exit(f"{ENVIRONMENT}: the peers are not installed; run make bench-decoding")
    print_table([row for noise in NOISE for row in measure(noise)])

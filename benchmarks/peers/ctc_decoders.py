"""Decodes stored log probabilities with pyctcdecode and flashlight-text, in an environment of their own.

python ctc_decoders.py <npz> <arpa> <words> <alpha> <beta> <width>: prints a line of JSON for each decoder.
"""

import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LETTERS = " abcdefghijklmnopqrstuvwxyz'"


def main(logits: str, arpa: str, words: str, alpha: str, beta: str, width: str) -> None:
    with np.load(logits) as arrays:
        utterances = [np.ascontiguousarray(arrays[name], np.float32) for name in arrays.files]
    lexicon = Path(words).read_text(encoding="utf-8").split()
    for name, make in (("pyctcdecode", pyctcdecode), ("flashlight-text", flashlight)):
        decode = make(arpa, lexicon, float(alpha), float(beta), int(width))
        decode(utterances[0])
        start = time.process_time()
        texts = [decode(one) for one in utterances]
        print(json.dumps({"decoder": name, "seconds": time.process_time() - start, "texts": texts}))


def pyctcdecode(arpa: str, lexicon: list[str], alpha: float, beta: float, width: int) -> Callable[[Any], str]:
    import pyctcdecode as package

    decoder = package.build_ctcdecoder([*LETTERS, ""], arpa, unigrams=lexicon, alpha=alpha, beta=beta)
    return lambda values: str(decoder.decode(values, beam_width=width))


def flashlight(arpa: str, lexicon: list[str], alpha: float, beta: float, width: int) -> Callable[[Any], str]:
    from flashlight.lib.text import decoder as package
    from flashlight.lib.text.dictionary import Dictionary

    number = {letter: index for index, letter in enumerate(LETTERS)}
    dictionary = Dictionary()
    for word in [*lexicon, "<unk>"]:
        dictionary.add_entry(word)
    # KenLM's scores are base-10 logarithms.
    weight = alpha * math.log(10)
    model = package.KenLM(arpa, dictionary)
    trie = package.Trie(len(LETTERS) + 1, number[" "])
    start = model.start(False)
    for word in lexicon:
        index = dictionary.get_index(word)
        _, score = model.score(start, index)
        trie.insert([*(number[letter] for letter in word), number[" "]], index, score)
    trie.smear(package.SmearingMode.MAX)
    options = package.LexiconDecoderOptions(
        beam_size=width,
        beam_size_token=len(LETTERS) + 1,
        beam_threshold=50,
        lm_weight=weight,
        word_score=beta,
        unk_score=-math.inf,
        sil_score=0,
        log_add=False,
        criterion_type=package.CriterionType.CTC,
    )
    unknown, blank = dictionary.get_index("<unk>"), len(LETTERS)
    searching = package.LexiconDecoder(options, trie, model, number[" "], blank, unknown, [], False)

    def decode(values: Any) -> str:
        best = searching.decode(values.ctypes.data, *values.shape)[0]
        return " ".join(dictionary.get_entry(word) for word in best.words if word >= 0)

    return decode


if __name__ == "__main__":
    main(*itertools.islice(sys.argv, 1, None))

"""The language model that an exported recognizer has beside it: `language_model/` in the model's folder.

language_model/ngrams.npz             the n-grams (`ngram.NgramModel`)
language_model/language_model.json    weights and width of the beam search; what it was made of and tuned on

The folder is a part of the model: the model's digest covers it, so the gate judges what ships.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from voxline.errors import WorkError
from voxline.inference.beam_search import BeamSearch
from voxline.inference.ngram import NgramModel
from voxline.inference.saved_model import LANGUAGE_MODEL
from voxline.store.files import read_json, write_json
from voxline.text.alphabet import Alphabet

NGRAMS_FILE = "ngrams.npz"
ABOUT_FILE = "language_model.json"
DEFAULT_HOT_WEIGHT = 8.0
"""Added to the score of a hot word, as natural logarithms, where none is given."""


def write_language_model(folder: Path, model: NgramModel, description: Mapping[str, Any]) -> None:
    """Writes a language model into the folder of an exported model.

    Args:
      description: at least alpha, beta, width, open_vocabulary and unknown_penalty, as `BeamSearch` takes them.
    """
    (folder / LANGUAGE_MODEL).mkdir(exist_ok=True)
    model.save(folder / LANGUAGE_MODEL / NGRAMS_FILE)
    write_json(folder / LANGUAGE_MODEL / ABOUT_FILE, dict(description))


def read_language_model(folder: Path) -> dict[str, Any] | None:
    """Reads the description of an exported model's language model; None: it has none.

    Raises:
      WorkError: the file is damaged.
    """
    file = folder / LANGUAGE_MODEL / ABOUT_FILE
    if not file.is_file():
        return None
    try:
        description = read_json(file)
        # What the search computes with is converted here, so that a damaged file fails now and not in the kernel.
        numbers = {key: float(description[key]) for key in ("alpha", "beta", "unknown_penalty")}
        width = int(description["width"])
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise WorkError(f"{file}: damaged ({error!r}); run the step `language` again") from None
    return {**description, **numbers, "width": width}


def load_beam_search(folder: Path, alphabet: Alphabet, hot_words: Mapping[str, float]) -> BeamSearch | None:
    """The beam search of an exported model, with its language model.

    Args:
      hot_words: word → what it adds to the score. Without a language model they make a search of their own.

    Returns:
      None: there is no language model, and no hot word.

    Raises:
      SettingsError: a hot word cannot be spelled in the alphabet.
      WorkError: the language model is damaged.
    """
    description = read_language_model(folder)
    if description is None:
        return BeamSearch(alphabet, beta=0.0, hot_words=hot_words) if hot_words else None
    model = NgramModel.load(folder / LANGUAGE_MODEL / NGRAMS_FILE)
    return BeamSearch(
        alphabet,
        model.vocabulary,
        model,
        alpha=description["alpha"],
        beta=description["beta"],
        width=description["width"],
        open_vocabulary=bool(description.get("open_vocabulary")),
        unknown_penalty=description["unknown_penalty"],
        hot_words=hot_words,
    )


def parse_hot_words(entries: Iterable[str]) -> dict[str, float]:
    """Reads hot words as a person writes them: `word`, or `word:weight`; several words share the weight.

    >>> parse_hot_words(["voxline", "new york:5"])
    {'voxline': 8.0, 'new': 5.0, 'york': 5.0}
    """
    weights = {}
    for entry in entries:
        words, _, weight = entry.rpartition(":")
        try:
            value = float(weight) if words else DEFAULT_HOT_WEIGHT
        except ValueError:
            words = entry
            value = DEFAULT_HOT_WEIGHT
        weights.update(dict.fromkeys((words or entry).split(), value))
    return weights


@dataclasses.dataclass(frozen=True)
class TunedWeights:
    """The best weights of a grid, and the errors there and without a language model."""

    alpha: float
    beta: float
    errors: int
    greedy_errors: int
    words: int


def tune_weights(
    search: BeamSearch,
    log_probabilities: Sequence[Any],
    references: Sequence[str],
    alphas: Sequence[float],
    betas: Sequence[float],
) -> TunedWeights:
    """Finds the alpha and beta with the fewest word errors. The network is not run again: its output is given.

    Among equals the pair nearest to their middle is taken, which is the farthest from where errors begin.

    Args:
      log_probabilities: of each utterance, [frames, symbols + 1].
      references: what was said in each.
    """
    from voxline.inference.beam_search import decode_best_path
    from voxline.metrics.wer import count_word_edits

    def errors(texts: list[str]) -> int:
        return sum(edits.errors for edits in count_word_edits(references, texts))

    errors_of = {}
    for alpha, beta in itertools.product(alphas, betas):
        weighted = search.with_weights(alpha, beta)
        errors_of[alpha, beta] = errors([_text(weighted, values) for values in log_probabilities])
    least = min(errors_of.values())
    best = [pair for pair, count in errors_of.items() if count == least]

    # A pair at the edge of the best ones is more likely to fail on other data.
    middle = [sum(pair[axis] for pair in best) / len(best) for axis in (0, 1)]
    alpha, beta = min(best, key=lambda pair: (abs(pair[0] - middle[0]) + abs(pair[1] - middle[1]), pair))
    greedy = errors([decode_best_path(values, search.alphabet).text for values in log_probabilities])
    words = sum(len(text.split()) for text in references)
    return TunedWeights(alpha, beta, least, greedy, words)


def _text(search: BeamSearch, log_probabilities: Any) -> str:
    texts = search.decode(log_probabilities)
    return texts[0].text if texts else ""

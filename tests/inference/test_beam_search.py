"""The beam search against the sum over all paths, and the language model against values worked out by hand."""

import collections
import dataclasses
import errno
import itertools
import math
import os
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import pytest
import tokenizers

from voxline.errors import SettingsError
from voxline.inference.beam_search import BeamSearch, ScoredText, decode_best_path
from voxline.inference.compiled import compiled
from voxline.inference.ngram import NgramModel
from voxline.text.alphabet import Alphabet, split_words
from voxline.text.public_tokenizer import TOKENIZER_JSON, PublicTokenizer

EXACT = {"width": 4000, "prune": 1e9, "symbol_floor": -1e9, "blank_skip": 2.0}
"""Nothing is left out, so the result is that of an exhaustive search."""

ARPA = """\\data\\
ngram 1=6
ngram 2=4
ngram 3=1

\\1-grams:
-1.2\t<unk>\t0
0\t<s>\t-0.3
-0.9\t</s>
-0.7\ta\t-0.2
-0.8\tba\t-0.4
-1.1\t你\t-0.1

\\2-grams:
-0.2\t<s> a\t-0.15
-0.5\ta ba\t0
-0.6\tba </s>
-0.3\t<s> 你\t0

\\3-grams:
-0.1\t<s> a ba

\\end\\
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> NgramModel:
    file = tmp_path_factory.mktemp("arpa") / "tiny.arpa"
    file.write_text(ARPA, encoding="utf-8")
    return NgramModel.read_arpa(file)


def random_logits(frames: int, symbols: int, seed: int, scale: float = 1.5) -> np.ndarray:
    values = np.random.default_rng(seed).normal(scale=scale, size=(frames, symbols + 1))
    return (values - np.logaddexp.reduce(values, axis=1, keepdims=True)).astype(np.float32)


def spell(path: str, alphabet: Alphabet, confidence: float = 0.98) -> np.ndarray:
    """Log probabilities with a clear best symbol in each frame; `_` is the blank."""
    rows = np.full((len(path), len(alphabet.symbols) + 1), (1 - confidence) / len(alphabet.symbols))
    for row, symbol in zip(rows, path, strict=True):
        row[alphabet.blank if symbol == "_" else alphabet.symbols.index(symbol)] = confidence
    return np.log(rows)


def exhaustive(
    logits: np.ndarray, alphabet: Alphabet, added: Callable[[str], float | None]
) -> list[tuple[float, float, str]]:
    """(score, score of the audio, text) of all texts, the best first; those for which `added` is None are left out."""
    paths = collections.defaultdict(list)
    for path in itertools.product(range(logits.shape[1]), repeat=len(logits)):
        labels = [label for label, _ in itertools.groupby(path) if label != alphabet.blank]
        paths[" ".join(alphabet.decode(labels).split())].append(sum(logits[t, c] for t, c in enumerate(path)))
    found = []
    for text, scores in paths.items():
        gained = added(text)
        if gained is not None:
            audio = float(np.logaddexp.reduce(scores))
            found.append((audio + gained, audio, text))
    return sorted(found, reverse=True)


def assert_same(found: list[ScoredText], expected: list[tuple[float, float, str]]) -> None:
    assert [one.text for one in found] == [text for _, _, text in expected[: len(found)]]
    for one, (score, audio, _) in zip(found, expected, strict=False):
        assert one.score == pytest.approx(score, abs=1e-4)
        assert one.audio_score == pytest.approx(audio, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_an_open_search_equals_the_sum_over_all_paths(seed: int) -> None:
    alphabet, logits = Alphabet(" ab"), random_logits(5, 3, seed)
    found = BeamSearch(alphabet, beta=0.5, **EXACT).decode(logits, 6)
    assert len(found) == 6
    assert_same(found, exhaustive(logits, alphabet, lambda text: 0.5 * len(text.split())))


@pytest.mark.parametrize("seed", range(6))
def test_a_search_with_lexicon_and_language_model_equals_the_sum_over_all_paths(seed: int, model: NgramModel) -> None:
    alphabet, logits = Alphabet(" ab你"), random_logits(6, 4, seed)
    lexicon, hot = ["a", "ba", "你"], {"b": 1.5}

    def added(text: str) -> float | None:
        words = split_words(text)
        if any(word not in {*lexicon, *hot} for word in words):
            return None
        bonus = sum(hot.get(word, 0.0) for word in words)
        return 0.8 * math.log(10) * model.log10_score(text) + 0.7 * len(words) + bonus

    search = BeamSearch(alphabet, lexicon, model, alpha=0.8, beta=0.7, hot_words=hot, **EXACT)
    assert_same(search.decode(logits, 5), exhaustive(logits, alphabet, added))
    narrow = dataclasses.replace(search, width=100, prune=20.0, symbol_floor=-12.0)
    assert narrow.decode(logits)[0].text == search.decode(logits)[0].text


@pytest.mark.parametrize("seed", range(3))
def test_an_open_vocabulary_pays_for_words_that_the_lexicon_lacks(seed: int, model: NgramModel) -> None:
    alphabet, logits = Alphabet(" ab"), random_logits(5, 3, seed)

    def added(text: str) -> float:
        unknown = sum(word not in ("a", "ba") for word in text.split())
        return 0.8 * math.log(10) * model.log10_score(text) + 0.7 * len(text.split()) - 2 * unknown

    search = BeamSearch(
        alphabet, ["a", "ba"], model, alpha=0.8, beta=0.7, open_vocabulary=True, unknown_penalty=-2.0, **EXACT
    )
    assert_same(search.decode(logits, 5), exhaustive(logits, alphabet, added))


@pytest.mark.parametrize("seed", range(4))
def test_subwords_equal_the_sum_over_all_paths_of_a_spelling(seed: int, model: NgramModel) -> None:
    """Of the spellings of a text the best one counts; a word of a lexicon has the one that `encode` gives."""
    alphabet, logits = Alphabet((" ", "a", "b", "ba")), random_logits(5, 4, seed)
    spelled = collections.defaultdict(list)
    for path in itertools.product(range(5), repeat=len(logits)):
        labels = [label for label, _ in itertools.groupby(path) if label != alphabet.blank]
        words = alphabet.decode(labels).split()
        parts = [list(group) for space, group in itertools.groupby(labels, key=lambda one: one == 0) if not space]
        score = sum(logits[t, c] for t, c in enumerate(path))
        spelled[tuple(words), tuple(map(tuple, parts))].append(score)
    open_vocabulary, closed = {}, {}
    for (words, parts), scores in spelled.items():
        text, audio = " ".join(words), float(np.logaddexp.reduce(scores))
        open_vocabulary[text] = max(open_vocabulary.get(text, (-math.inf, 0.0)), (audio + 0.5 * len(words), audio))
        if set(words) <= {"a", "ba"} and [*map(list, parts)] == [*map(alphabet.encode, words)]:
            gained = 0.8 * math.log(10) * model.log10_score(text) + 0.5 * len(words)
            closed[text] = (audio + gained, audio)
    for search, expected in (
        (BeamSearch(alphabet, beta=0.5, **EXACT), open_vocabulary),
        (BeamSearch(alphabet, ["a", "ba"], model, alpha=0.8, beta=0.5, **EXACT), closed),
    ):
        best = sorted(((*scores, text) for text, scores in expected.items()), reverse=True)
        found = search.decode(logits, 6)
        assert len(found) == 6
        assert_same(found, best)


@pytest.mark.parametrize("seed", range(4))
def test_pieces_that_begin_with_a_space_equal_the_sum_over_all_paths_of_a_spelling(
    seed: int, model: NgramModel
) -> None:
    """As SentencePiece has them: such a piece ends the word before it and begins the next one."""
    pieces = tokenizers.models.BPE({"▁": 0, "a": 1, "b": 2, "▁a": 3}, [("▁", "a")])
    tokenizer = tokenizers.Tokenizer(pieces)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    alphabet = PublicTokenizer.of(TOKENIZER_JSON, tokenizer.to_str().encode(), blank=4)
    assert (alphabet.symbols, alphabet.encode("a ba")) == ((" ", "a", "b", " a"), [3, 0, 2, 1])

    logits = random_logits(5, 4, seed)
    spelled = collections.defaultdict(list)
    for path in itertools.product(range(5), repeat=len(logits)):
        labels = tuple(label for label, _ in itertools.groupby(path) if label != alphabet.blank)
        spelled[labels].append(sum(logits[t, c] for t, c in enumerate(path)))

    open_vocabulary, closed = {}, {}
    for labels, scores in spelled.items():
        starts = [at for at, label in enumerate(labels) if at == 0 or alphabet.symbols[label].startswith(" ")]
        words = [list(labels[first:last]) for first, last in itertools.pairwise([*starts, len(labels)])]
        text = " ".join("".join(alphabet.symbols[label] for label in labels).split())
        audio = float(np.logaddexp.reduce(scores))
        open_vocabulary[text] = max(open_vocabulary.get(text, (-math.inf, 0.0)), (audio + 0.5 * len(words), audio))
        if all(word in (alphabet.encode("a"), alphabet.encode("ba")) for word in words):
            gained = 0.8 * math.log(10) * model.log10_score(text) + 0.5 * len(words)
            closed[text] = (audio + gained, audio)
    for search, expected in (
        (BeamSearch(alphabet, beta=0.5, **EXACT), open_vocabulary),
        (BeamSearch(alphabet, ["a", "ba"], model, alpha=0.8, beta=0.5, **EXACT), closed),
    ):
        best = sorted(((*scores, text) for text, scores in expected.items()), reverse=True)
        found = search.decode(logits, 6)
        assert len(found) == 6
        assert_same(found, best)


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_is_greedy(seed: int) -> None:
    alphabet, logits = Alphabet.from_name("english"), random_logits(80, 28, seed, scale=4.0)
    labels = [label for label, _ in itertools.groupby(logits.argmax(axis=1).tolist()) if label != alphabet.blank]
    greedy = " ".join(alphabet.decode(labels).split())
    assert BeamSearch(alphabet, width=1).decode(logits)[0].text == greedy == decode_best_path(logits, alphabet).text


def test_a_confident_network_is_decoded_as_it_says_by_any_width() -> None:
    alphabet = Alphabet.from_name("english")
    logits = spell("__ll_l__aa_b ___cc_", alphabet)
    for width in (1, 2, 30):
        assert BeamSearch(alphabet, width=width).decode(logits)[0].text == "llab c"


@pytest.mark.parametrize(
    ("path", "text"),
    [("aa", "a"), ("a_a", "aa"), ("_a_", "a"), ("  a", "a"), ("a  ", "a"), ("a _ b", "a b"), ("__", ""), ("", "")],
)
def test_blanks_repeats_and_spaces_at_the_edges(path: str, text: str) -> None:
    alphabet = Alphabet(" ab")
    logits = spell(path, alphabet).reshape(len(path), 4)
    assert BeamSearch(alphabet, beta=0.0).decode(logits)[0].text == text
    assert BeamSearch(alphabet, ["a", "aa", "b"], beta=0.0).decode(logits)[0].text == text


def test_a_lexicon_corrects_a_word_and_a_hot_word_wins_over_a_likelier_one() -> None:
    alphabet = Alphabet.from_name("english")
    logits = spell("turn_un", alphabet, 0.9)
    logits[5, alphabet.symbols.index("o")] = np.log(0.01)
    assert BeamSearch(alphabet).decode(logits)[0].text == "turnun"
    lexicon = ["turn", "turnon", "turner"]
    assert BeamSearch(alphabet, lexicon).decode(logits)[0].text == "turnon"
    assert BeamSearch(alphabet, lexicon, hot_words={"turnus": 12.0}).decode(logits)[0].text == "turnus"


def test_characters_are_words_without_spaces(model: NgramModel) -> None:
    alphabet = Alphabet("你好 a")
    logits = spell("你_好好_你", alphabet, 0.9)
    assert BeamSearch(alphabet, ["你", "好"], beta=0.0).decode(logits)[0].text == "你好你"
    # The model does not know 好, so with it the first character is likelier as a word of its own.
    with_model = BeamSearch(alphabet, ["你"], model, alpha=1.0, beta=0.0).decode(logits)[0].text
    assert set(with_model) == {"你"}
    decomposed = Alphabet.from_name("é ")
    assert BeamSearch(decomposed, ["é"]).decode(spell("éé", decomposed))[0].text == "é"


def test_an_utterance_that_ends_within_a_word_says_so() -> None:
    alphabet = Alphabet.from_name("english")
    (found,) = BeamSearch(alphabet, ["turn"], width=1).decode(spell("tu", alphabet, 0.999999))
    assert (found.text, found.whole) == ("tu", False)


def test_pruning_keeps_the_result_and_frames_of_blanks_are_skipped() -> None:
    alphabet = Alphabet.from_name("english")
    lexicon = ["the", "cat", "sat", "seat"]
    logits = spell("t_h_e_ _c_a_t_ _s_a_t", alphabet, 0.9)
    silence = spell("_" * 50, alphabet, 0.99999)
    whole = BeamSearch(alphabet, lexicon, **(EXACT | {"width": 300})).decode(logits)[0]
    pruned = BeamSearch(alphabet, lexicon, width=16).decode(np.concatenate([silence, logits, silence]))[0]
    assert pruned.text == whole.text == "the cat sat"
    assert pruned.score == pytest.approx(whole.score, abs=0.01)


def test_bad_input_is_refused_with_what_is_accepted() -> None:
    alphabet = Alphabet.from_name("english")
    with pytest.raises(ValueError, match=r"\[frames, 29\] is accepted"):
        BeamSearch(alphabet).decode(np.zeros((5, 28)))
    with pytest.raises(SettingsError, match="hot word 'naïve'"):
        BeamSearch(alphabet, hot_words={"naïve": 1.0})
    with pytest.raises(SettingsError, match="no word of the lexicon"):
        BeamSearch(alphabet, ["ÜBER"])
    with pytest.raises(SettingsError, match="width is 0"):
        BeamSearch(alphabet, width=0)
    for given in ({"alpha": math.nan}, {"beta": math.inf}, {"hot_words": {"ab": math.nan}}):
        with pytest.raises(SettingsError, match=r"(alpha|beta|hot word 'ab'): its weight is (nan|inf)"):
            BeamSearch(Alphabet("ab "), **given)


def test_symbols_of_equal_probability_do_not_overflow_the_candidates() -> None:
    words = [*map(chr, range(0x4E00, 0x4E28)), *map(chr, range(0xAC00, 0xAC28))]  # ideographs, then letters
    search = BeamSearch(Alphabet("".join(words)), words, beta=0.0)
    assert search.decode(np.full((6, len(words) + 1), -math.log(len(words) + 1), np.float32))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_output_that_is_no_number_is_decoded(value: float) -> None:
    logits = random_logits(12, 40, seed=0)
    logits[3, ::2] = value
    alphabet = Alphabet("".join(map(chr, range(0x61, 0x61 + 40))))
    assert math.isfinite(BeamSearch(alphabet, width=4).decode(logits)[0].score)


def double(value: int) -> int:
    return 2 * value


def test_where_the_disk_is_full_the_compiled_code_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Numba finds that out when it saves: a folder can be made, and a file in it cannot."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", full)
    assert compiled(double)(4) == 8


def test_without_a_home_no_folder_is_made_where_the_process_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # of a user that the system does not know
    monkeypatch.setattr(numba.core.caching.InTreeCacheLocator, "from_function", lambda *_: None)
    assert compiled(double)(4) == 8
    assert list(tmp_path.iterdir()) == []

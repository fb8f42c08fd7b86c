"""ARPA files in and out, and probabilities with back-off."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.closeness import assert_close
from tests.inference.test_beam_search import ARPA
from voxline.errors import WorkError
from voxline.inference.ngram import NgramModel
from voxline.text.alphabet import split_words


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "tiny.arpa").write_text(ARPA, encoding="utf-8")
    return tmp_path / "tiny.arpa"


def test_probabilities_back_off_as_the_format_says(file: Path) -> None:
    model = NgramModel.read_arpa(file)
    assert (model.order, model.counts, model.vocabulary) == (3, [6, 4, 1], ("a", "ba", "你"))
    log10 = {
        ("ba", ("<s>", "a")): -0.1,  # the trigram
        ("ba", ("ba", "a")): -0.5,  # no context "ba a"
        ("</s>", ("a", "ba")): -0.6 + 0.0,
        ("a", ("<s>", "a")): -0.15 - 0.2 - 0.7,  # two back-offs
        ("ba", ()): -0.8,
        ("dog", ("<s>", "a")): -0.15 - 0.2 - 1.2,
        ("a", ("dog",)): -0.7,
    }
    for (word, context), expected in log10.items():
        assert model.log10_probability(word, context) == pytest.approx(expected, abs=1e-6), (word, context)
    assert model.log10_score("a ba") == pytest.approx(-0.2 - 0.1 - 0.6, abs=1e-6)
    assert model.perplexity(["a ba", "a ba"]) == pytest.approx(10 ** (0.9 / 3), rel=1e-5)


@pytest.mark.parametrize("name", ["copy.arpa", "copy.arpa.gz", "copy.npz"])
def test_what_is_written_is_read_again(file: Path, name: str) -> None:
    model, copy = NgramModel.read_arpa(file), file.parent / name
    for _ in range(2):
        model.save(copy) if name.endswith("npz") else model.write_arpa(copy)
        first = copy.read_bytes()
    assert copy.read_bytes() == first  # the same model gives the same bytes
    read = NgramModel.load(copy) if name.endswith("npz") else NgramModel.read_arpa(copy)
    assert read.words == model.words
    for left, right in zip(read.grams, model.grams, strict=True):
        np.testing.assert_array_equal(left, right)
    for left, right in zip(read.log10_probabilities, model.log10_probabilities, strict=True):
        assert_close(left, right, relative_to_peak=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "data", "not an ARPA file"),
        ("ngram 2=4", "ngram 2=5", "line 20: got '"),
        ("ngram 2=4", "ngram 2=3", "more n-grams of order 2 than the 3 that the head says"),
        ("-0.5\ta ba", "-0.5\ta dog", "the word 'dog' has no unigram"),
        ("-0.5\ta ba", "half\ta ba", "a number is expected"),
        ("-0.5\ta ba", "nan\ta ba", "a 2-gram has a log10 probability that is no number"),
        ("-0.5\ta ba", "0.5\ta ba", "a 2-gram has a log10 probability that is no number"),
        ("-0.8\tba\t-0.4", "-0.8\tba\tinf", "a 1-gram has a back-off that is no number"),
        ("\\end\\", "", "ends after 1 of 1 n-grams of order 3; it was cut short"),
        ("-0.2\t<s> a\t-0.15", "-0.2\tba a\t-0.15", "the 3-gram '<s> a ba' is there, and the 2-gram"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(file: Path, old: str, new: str, message: str) -> None:
    file.write_text(ARPA.replace(old, new), encoding="utf-8")
    with pytest.raises(WorkError) as refused:
        NgramModel.read_arpa(file)
    assert message in str(refused.value)


def test_a_cut_or_foreign_file_is_not_loaded(file: Path) -> None:
    NgramModel.read_arpa(file).save(file.with_suffix(".npz"))
    whole = file.with_suffix(".npz").read_bytes()
    swapped = b"".join(bytes([byte ^ 255]) if at % 50 == 40 else bytes([byte]) for at, byte in enumerate(whole[:-600]))
    packed = whole.replace(b"\x08\x00\x00\x00", b"\x63\x00\x00\x00")  # an unknown method of compression
    for damaged in (whole[: len(whole) // 2], b"", b"not a zip", swapped + whole[-600:], packed):
        file.with_suffix(".npz").write_bytes(damaged)
        with pytest.raises(WorkError, match="not a language model that Voxline saved"):
            NgramModel.load(file.with_suffix(".npz"))
    (file.parent / "cut.arpa.gz").write_bytes(gzip.compress(ARPA.encode())[:-20])
    with pytest.raises(WorkError, match="cannot be read"):
        NgramModel.read_arpa(file.parent / "cut.arpa.gz")
    with pytest.raises(WorkError, match=r"absent\.arpa: cannot be read"):
        NgramModel.read_arpa(file.parent / "absent.arpa")


def test_a_chinese_character_is_a_word() -> None:
    assert split_words("你好 hello 世a") == ["你", "好", "hello", "世", "a"]

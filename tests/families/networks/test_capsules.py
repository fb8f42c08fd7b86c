"""IndyLSTM and dynamic routing against loops in NumPy, by their formulas; padding changes nothing."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.closeness import assert_close
from voxline.families.intents.networks.capsules import Pooling, SequenceEncoder, TextClassifier, route
from voxline.families.intents.networks.settings import IntentsModelSettings

Array = npt.NDArray[np.float64]
SMALL = {"embedding": 5, "units": (6, 4), "capsules": 3, "capsule_size": 2}


def classifier(pooling: Pooling, **more: Any) -> TextClassifier:
    """One with large random weights: from those that a training starts with, every text has nearly the same logits."""
    model = TextClassifier(IntentsModelSettings.of({**SMALL, **more}), pooling, words=11, classes=4)
    random = np.random.default_rng(5)
    for variable in model.trainable_variables:
        variable.assign(random.normal(size=variable.shape) * 0.5)
    return model


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def indy_lstm(x: Array, kernel: Array, recurrent: Array, bias: Array) -> Array:
    """Unit by unit and gate by gate, as TensorFlow 1's contrib.rnn.IndyLSTMCell: i, j, f, o, and 1 for forgetting."""
    units = len(bias) // 4
    c, h, outputs = np.zeros(units), np.zeros(units), []
    for step in x:
        new_c, new_h = np.zeros(units), np.zeros(units)
        for unit in range(units):
            i, j, f, o = (
                step @ kernel[:, gate * units + unit]
                + recurrent[gate * units + unit] * h[unit]
                + bias[gate * units + unit]
                for gate in range(4)
            )
            new_c[unit] = sigmoid(f + 1) * c[unit] + sigmoid(i) * np.tanh(j)
            new_h[unit] = sigmoid(o) * np.tanh(new_c[unit])
        c, h = new_c, new_h
        outputs.append(h)
    return np.array(outputs)


def routed(votes: Array, rounds: int) -> Array:
    """Procedure 1 of Sabour et al. 2017, of the positions of one text: votes [length, capsules, size]."""
    length, capsules, size = votes.shape
    logits, found = np.zeros((length, capsules)), np.zeros((capsules, size))
    for _ in range(rounds):
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        for capsule in range(capsules):
            total = sum(shares[position, capsule] * votes[position, capsule] for position in range(length))
            norm = np.linalg.norm(total)
            found[capsule] = norm**2 / (1 + norm**2) * total / norm
        logits += np.array([[votes[t, k] @ found[k] for k in range(capsules)] for t in range(length)])
    return found


@pytest.mark.parametrize("rounds", [1, 3])
def test_routing_equals_the_papers_procedure_and_padding_has_no_vote(rounds: int) -> None:
    random = np.random.default_rng(1)
    votes, counts = random.normal(size=(4, 7, 5, 3)), [7, 4, 1, 6]
    mask = np.arange(7) < np.array(counts)[:, None]
    capsules = route(votes.astype("float32"), mask, rounds).numpy()
    for row, count in enumerate(counts):
        assert_close(capsules[row], routed(votes[row, :count], rounds), relative_to_peak=1e-5)
    assert (np.linalg.norm(capsules, axis=-1) < 1).all()


@pytest.mark.parametrize("pooling", ["capsules", "mean"])
def test_a_classifier_equals_a_loop_over_its_weights(pooling: Pooling) -> None:
    random = np.random.default_rng(2)
    model = classifier(pooling)
    words, counts = random.integers(1, 11, (3, 6)), [6, 2, 5]
    logits = model(words * (np.arange(6) < np.array(counts)[:, None]), np.array(counts)).numpy()
    encoder = model.encoders[0]
    for row, count in enumerate(counts):
        x = model.embedding.embeddings.numpy()[words[row, :count]].astype(float)
        for project, layer in zip(encoder.projections, encoder.recurrent, strict=True):
            cell = layer.cell
            x = indy_lstm(x, project.kernel.numpy(), cell.recurrent.numpy(), cell.bias.numpy())
        if pooling == "mean":
            pooled = x.mean(axis=0)
        else:
            pooled = routed((x @ encoder.votes.kernel.numpy()).reshape(count, 3, 2), 3).ravel()
        expected = pooled @ model.classifier.kernel.numpy() + model.classifier.bias.numpy()
        assert_close(logits[row], expected, relative_to_peak=1e-5)


@pytest.mark.parametrize("sentence_words", [0, 3])
def test_a_batch_of_mixed_lengths_equals_its_rows_one_by_one(sentence_words: int) -> None:
    model = classifier("capsules", sentence_words=sentence_words)
    random, counts = np.random.default_rng(3), np.array([8, 3, 1, 4])
    words = random.integers(1, 11, (4, 8))
    together = model(words, counts).numpy()  # what is beyond the counts is not zero here, and must not be heard
    for row, count in enumerate(counts):
        alone = model(words[row : row + 1, :count], counts[row : row + 1]).numpy()[0]
        assert_close(together[row], alone, relative_to_peak=1e-6)


def test_a_long_text_is_read_as_a_sequence_of_sentences() -> None:
    model = classifier("capsules", sentence_words=3)
    words = np.array([[3, 4, 5, 6, 7, 8, 9, 10]])
    first, second = model.encoders
    slices = words[0, :3], words[0, 3:6], words[0, 6:]
    parts = [first(model.embedding(part[None]), np.array([len(part)])) for part in slices]
    sentences = np.concatenate([part.numpy() for part in parts])[None]
    expected = model.classifier(second(sentences, np.array([3]))).numpy()
    assert_close(model(words, np.array([8])).numpy(), expected, relative_to_peak=1e-6)


def test_the_default_has_the_papers_number_of_weights() -> None:
    """A vector of 4 n in the place of the 4 n² recurrent weights of an LSTM."""
    encoder = SequenceEncoder(IntentsModelSettings(), "mean", seeds=iter(range(9)), stream=1)
    encoder(np.zeros((1, 2, 128), "float32"), np.array([2]))
    sizes = zip((128, 100, 50), (100, 50, 30), strict=True)
    assert encoder.count_params() == sum(4 * units * (before + 2) for before, units in sizes)

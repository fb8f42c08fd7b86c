"""CTC: the loss against the sum over all paths, and greedy decoding."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close
from voxline.training.ctc import best_path, consistency_loss, ctc_loss

BLANK = 2


def collapse(path: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(label for label, _ in itertools.groupby(path) if label != BLANK)


def by_hand(logits: np.ndarray, labels: tuple[int, ...]) -> float:
    """Minus the logarithm of the summed probability of every path that collapses to the labels."""
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    paths = itertools.product(range(BLANK + 1), repeat=len(logits))
    likelihood = sum(
        np.prod([probabilities[frame, label] for frame, label in enumerate(path)])
        for path in paths
        if collapse(path) == labels
    )
    return -float(np.log(likelihood))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_row_without_labels_is_blank(compiled: bool) -> None:
    """Beside others, and alone: TensorFlow's kernel refuses such rows."""
    logits = np.random.default_rng(5).normal(size=(3, 6, 4)).astype(np.float32)
    frames = np.array([6, 5, 6], np.int32)
    labels = np.array([[0, 1], [0, 0], [2, 0]], np.int32)
    loss = ctc_loss(logits, frames, labels, np.array([2, 0, 1], np.int32), compiled=compiled).numpy()
    blanks = logits[..., 3] - np.log(np.exp(logits).sum(axis=-1))
    assert loss[1] == pytest.approx(-blanks[1, :5].sum(), rel=1e-5)
    empty = ctc_loss(logits, frames, labels, np.zeros(3, np.int32), compiled=compiled).numpy()
    expected = [-row[:count].sum() for row, count in zip(blanks, frames, strict=True)]
    np.testing.assert_allclose(empty, expected, rtol=1e-5)


def test_the_loss_is_the_likelihood_of_all_paths_without_padding() -> None:
    logits = np.random.default_rng(0).standard_normal((3, 6, BLANK + 1)).astype(np.float32)
    labels = np.array([[0, 1, 1], [1, 9, 9], [0, 0, 9]], np.int32)  # 9: padding
    frames, counts = np.array([6, 3, 4], np.int32), np.array([3, 1, 2], np.int32)
    loss = ctc_loss(logits, frames, labels, counts).numpy()
    for row in range(3):
        expected = by_hand(logits[row, : frames[row]].astype(np.float64), tuple(labels[row, : counts[row]].tolist()))
        assert loss[row] == pytest.approx(expected, rel=1e-4)


def test_the_kernels_of_both_backends_agree() -> None:
    random = np.random.default_rng(1)
    logits = random.standard_normal((4, 30, 12)).astype(np.float32)
    labels, counts = random.integers(0, 11, (4, 7)), np.array([7, 3, 1, 5], np.int32)
    frames = np.array([30, 12, 9, 20], np.int32)
    ours = ctc_loss(logits, frames, labels.astype(np.int32), counts)
    np.testing.assert_allclose(ours, keras.ops.ctc_loss(labels, logits, counts, frames, mask_index=11), rtol=1e-4)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_gradient_is_the_softmax_less_the_share_of_paths_through_each_symbol(compiled: bool) -> None:
    """Graves et al. 2006, equation 16; both kernels, the one for XLA and the other."""
    logits = np.random.default_rng(4).standard_normal((2, 5, BLANK + 1)).astype(np.float32)
    labels, frames, counts = np.array([[0, 0], [1, 9]], np.int32), np.array([5, 3], np.int32), np.array([2, 1])
    with tf.GradientTape() as tape:
        tape.watch(given := tf.constant(logits))
        loss = ctc_loss(given, frames, labels, counts.astype(np.int32), compiled=compiled)
    gradient = tape.gradient(loss, given).numpy()
    for row in range(2):
        length, wanted = frames[row], tuple(labels[row, : counts[row]].tolist())
        probabilities = np.exp(logits[row, :length]) / np.exp(logits[row, :length]).sum(-1, keepdims=True)
        occupied = np.zeros_like(probabilities)
        for path in itertools.product(range(BLANK + 1), repeat=int(length)):
            if collapse(path) == wanted:
                occupied[range(length), path] += np.prod(probabilities[range(length), path])
        expected = probabilities - occupied / occupied.sum(-1, keepdims=True)
        assert_close(gradient[row, :length], expected, relative_to_peak=1e-5)
        assert not np.any(gradient[row, length:])


def test_greedy_decoding_equals_collapsing_the_best_path() -> None:
    logits = np.random.default_rng(2).standard_normal((20, 15, BLANK + 1)).astype(np.float32)
    frames = np.random.default_rng(3).integers(1, 16, 20)
    found = best_path(logits, frames).numpy()
    for row in range(20):
        expected = collapse(tuple(logits[row, : frames[row]].argmax(-1).tolist()))
        assert tuple(found[row][found[row] >= 0].tolist()) == expected


def test_consistency_is_the_mean_divergence_both_ways_and_each_view_follows_the_other() -> None:
    """Yao et al. 2024, equation 3. The gradient of KL(q ‖ softmax(x)) by x is softmax(x) - q if q is held fixed."""
    random = np.random.default_rng(0)
    first, second = random.standard_normal((2, 2, 5, 4)).astype(np.float32)
    frames = np.array([5, 3], np.int32)
    p, q = (np.exp(x.astype(np.float64)) / np.exp(x.astype(np.float64)).sum(-1, keepdims=True) for x in (first, second))
    each = 0.5 * ((q * np.log(q / p)).sum(-1) + (p * np.log(p / q)).sum(-1))
    real = np.arange(5) < frames[:, None]
    views = tf.constant(first), tf.constant(second)
    with tf.GradientTape() as tape:
        tape.watch(views)
        loss = consistency_loss(*views, frames)
    np.testing.assert_allclose(loss, (each * real).sum(1), rtol=1e-5)
    gradients = tape.gradient(loss, views)
    assert_close(gradients[0], 0.5 * (p - q) * real[..., None], relative_to_peak=1e-6)
    assert_close(gradients[1], 0.5 * (q - p) * real[..., None], relative_to_peak=1e-6)

"""Alignment of symbols with frames, learned without a teacher: the sum over all monotonic paths, and the best of them.

After Badlani et al. 2021, "One TTS Alignment To Rule Them All" (arXiv 2108.10447), sections 2.1 and 2.2: given the log
probability of each symbol in each frame, a hidden Markov model walks the text from its first symbol to its last, stays
or moves on by one at each frame, and skips none. The loss is the negative log probability of all paths together; the
best path gives the durations. The authors compute the sum by a CTC loss with a blank of constant probability; here
there is no blank.
"""

from typing import Any

from keras import ops

from voxline.training.custom_gradient import custom_gradient
from voxline.training.layers import Tensor, length_mask

IMPOSSIBLE = -1e9
"""Log probability; minus infinity has no gradient."""


def forward_sum_loss(log_probabilities: Tensor, frames: Tensor, counts: Tensor) -> Tensor:
    """The negative log probability of all monotonic paths, for each frame: float32 [batch], in nats.

    Args:
      log_probabilities: float32 [batch, frames, symbols].
      frames, counts: int32 [batch], real frames and symbols; no fewer frames than symbols.
    """
    total = _sum_over_paths(*_prepare(log_probabilities, frames, counts))
    return -total / ops.cast(frames, "float32")


def best_path_alignment(log_probabilities: Tensor, frames: Tensor, counts: Tensor) -> Tensor:
    """The most probable monotonic path (Viterbi), float32 [batch, frames, symbols]: 1 where a frame has a symbol.

    Arguments as for `forward_sum_loss`. No gradient passes.
    """

    # [frames, batch, symbols], [frames, batch, 1], [batch, symbols]
    values, real, last = _prepare(ops.stop_gradient(log_probabilities), frames, counts)

    def onwards(score: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        # δ(t, s) = log p(t, s) + max(δ(t - 1, s), δ(t - 1, s - 1)); padded frames keep the score.
        from_previous = _from_previous(score)
        value = inputs[:, :-1]
        inside = inputs[:, -1:]
        moved = ops.cast(from_previous > score, "float32") * inside
        return ops.where(inside > 0, ops.maximum(score, from_previous) + value, score), moved

    _, moved = ops.scan(onwards, _first_scores(values), _side_by_side(values, real))

    # Back from the last symbol, one to the left wherever the path moved.
    def backwards(symbol: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
        previous_symbol = ops.pad(symbol[:, 1:], [[0, 0], [0, 1]])
        return ops.where(ops.sum(symbol * moved, axis=1, keepdims=True) > 0, previous_symbol, symbol), symbol

    # [frames, batch, symbols] → [batch, frames, symbols]
    first, earlier_symbols = ops.scan(backwards, last, moved, reverse=True)

    return ops.transpose(ops.concatenate([first[None], earlier_symbols]) * real, (1, 0, 2))


def _prepare(log_probabilities: Tensor, frames: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values [frames, batch, symbols], impossible on padded symbols; which frames are real, float32 [frames, batch, 1];
    and 1 at the last real symbol, float32 [batch, symbols].
    """

    # Frames come first, as the scans want them.
    longest = ops.shape(log_probabilities)[1]
    widest = ops.shape(log_probabilities)[2]
    counts = ops.expand_dims(ops.cast(counts, "int32"), 1)
    values = ops.where(ops.expand_dims(ops.arange(widest) < counts, 1), log_probabilities, IMPOSSIBLE)
    real = ops.cast(ops.expand_dims(length_mask(frames, longest), -1), "float32")
    last = ops.cast(ops.equal(ops.arange(widest), counts - 1), "float32")
    return ops.transpose(values, (1, 0, 2)), ops.transpose(real, (1, 0, 2)), last


def _side_by_side(values: Tensor, real: Tensor) -> Tensor:
    """Values and mask after the first frame, [frames - 1, batch, symbols + 1]: Keras scans tensors of static length."""
    return ops.concatenate([values, real], axis=-1)[1:]


def _first_scores(values: Tensor) -> Tensor:
    """[batch, symbols]: a path begins at the first symbol."""
    return ops.where(ops.arange(ops.shape(values)[2]) == 0, values[0], IMPOSSIBLE)


def _from_previous(score: Tensor) -> Tensor:
    """Scores [batch, symbols] of the symbol before each."""
    return ops.pad(score[:, :-1], [[0, 0], [1, 0]], constant_values=IMPOSSIBLE)


@custom_gradient
def _sum_over_paths(values: Tensor, real: Tensor, last: Tensor) -> Any:
    """Log probability [batch] of all paths from the first symbol to the last, by the forward algorithm.

    Its gradient is the posterior probability of each symbol in each frame, by the backward algorithm.
    """

    def onwards(score: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        # α(t, s) = log p(t, s) + log(e^α(t - 1, s) + e^α(t - 1, s - 1)), Rabiner 1989, equation 20.
        value = inputs[:, :-1]
        inside = inputs[:, -1:]
        score = ops.where(inside > 0, ops.logaddexp(score, _from_previous(score)) + value, score)
        return score, score

    first = _first_scores(values)
    final, later_scores = ops.scan(onwards, first, _side_by_side(values, real))
    total = ops.sum(ops.where(last > 0, final, 0.0), axis=1)

    # ∂ log P / ∂ log p(t, s) is the posterior: α + β - log P, of the frame and symbol.
    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        def backwards(score: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
            value = inputs[:, :-1]
            inside = inputs[:, -1:]

            # β(t, s): stay at the symbol or move to the next one, Rabiner 1989, equation 25.
            stayed = score + value
            moved = ops.pad(stayed[:, 1:], [[0, 0], [0, 1]], constant_values=IMPOSSIBLE)
            score = ops.where(inside > 0, ops.logaddexp(stayed, moved), score)
            return score, score

        # A path ends at the last symbol.
        end = ops.where(last > 0, 0.0, IMPOSSIBLE)
        _, earlier_scores = ops.scan(backwards, end, _side_by_side(values, real), reverse=True)
        forward = ops.concatenate([first[None], later_scores])
        backward = ops.concatenate([earlier_scores, end[None]])

        # Rounding may take a probability above 1, hence the minimum.
        posterior = ops.exp(ops.minimum(forward + backward - ops.reshape(total, (1, -1, 1)), 0.0)) * real

        return ops.reshape(upstream, (1, -1, 1)) * posterior, ops.zeros_like(real), ops.zeros_like(last)

    return total, gradient

"""What a voice learns from, each as a loss of each row; padding takes part in none. Pure Keras.

All of it is in normalised space, and a mean over real frames, so that parts can be weighed against each other.
"""

from typing import Any

from keras import ops

Tensor = Any


def frame_mask(frames: Tensor, longest: Tensor) -> Tensor:
    """1 in real frames and 0 beyond, float32 [batch, longest]."""
    return ops.cast(ops.arange(longest) < ops.expand_dims(ops.cast(frames, "int32"), 1), "float32")


def masked_distance(made: Tensor, wanted: Tensor, frames: Tensor, kind: str = "l1") -> Tensor:
    """Mean error over real frames and bins, float32 [batch].

    Args:
      made: [batch, at least frames, bins].
      wanted: [batch, frames, bins].
      kind: "l1" or "mse".
    """
    longest = ops.shape(wanted)[1]
    error = ops.cast(made[:, :longest], "float32") - wanted
    error = ops.mean(ops.abs(error) if kind == "l1" else ops.square(error), axis=-1)
    real = frame_mask(frames, longest)
    # Where, not times: what stands in the padding may be infinite.
    return ops.sum(ops.where(real > 0, error, 0.0), axis=1) / ops.sum(real, axis=1)


def linear_loss(made: Tensor, wanted: Tensor, frames: Tensor, low_bins: int) -> Tensor:
    """Tacotron's loss of the linear spectrum: half of it on all bins, half on the lowest ones (Wang et al. 2017)."""
    everywhere = masked_distance(made, wanted, frames)
    low = masked_distance(made[..., :low_bins], wanted[..., :low_bins], frames)
    return 0.5 * everywhere + 0.5 * low


def stop_loss(logits: Tensor, frames: Tensor) -> Tensor:
    """Cross-entropy of the stop token, mean over real frames, float32 [batch].

    The target is 1 on the last real frame alone. Frames beyond it are not looked at: nothing comes after a stop.
    """
    longest = ops.shape(logits)[1]
    logits = ops.cast(logits, "float32")
    target = frame_mask(frames, longest) - frame_mask(frames - 1, longest)
    entropy = ops.relu(logits) - logits * target + ops.log1p(ops.exp(-ops.abs(logits)))
    real = frame_mask(frames, longest)
    return ops.sum(ops.where(real > 0, entropy, 0.0), axis=1) / ops.sum(real, axis=1)


def guided_attention_loss(alignment: Tensor, steps: Tensor, counts: Tensor, sigma: float) -> Tensor:
    """Attention far from the diagonal (Tachibana et al. 2018), float32 [batch].

    The paper takes the mean over all pairs of step and symbol, which makes a long text cost less than a short one; here
    it is the mean over steps: attention that is everywhere wrong costs 1, whatever the text's length.

    Args:
      alignment: [batch, steps, symbols].
      steps, counts: int32 [batch], real steps and symbols.
    """
    longest, widest = ops.shape(alignment)[1], ops.shape(alignment)[2]
    steps, counts = ops.cast(steps, "float32"), ops.cast(counts, "float32")
    step = ops.expand_dims(ops.arange(longest, dtype="float32"), 0) / ops.expand_dims(steps, 1)
    symbol = ops.expand_dims(ops.arange(widest, dtype="float32"), 0) / ops.expand_dims(counts, 1)
    apart = ops.expand_dims(symbol, 1) - ops.expand_dims(step, 2)
    cost = 1 - ops.exp(-ops.square(apart) / (2 * sigma**2))
    costs = ops.sum(ops.cast(alignment, "float32") * cost, axis=2)
    return ops.sum(ops.where(step < 1, costs, 0.0), axis=1) / steps

"""The terms of the TTS loss, float32 [batch] each; padding takes part in none. Pure Keras.

All are means over real frames in normalized space, so that their weights can be compared.
"""

from keras import ops

from voxline.training.layers import Tensor


def frame_mask(frames: Tensor, longest: Tensor) -> Tensor:
    """1 in real frames and 0 beyond, float32 [batch, longest]."""
    return ops.cast(ops.arange(longest) < ops.expand_dims(ops.cast(frames, "int32"), 1), "float32")


def masked_distance(predicted: Tensor, target: Tensor, frames: Tensor, kind: str = "l1") -> Tensor:
    """Mean error over real frames and bins, float32 [batch].

    Args:
      predicted: [batch, at least frames, bins].
      target: [batch, frames, bins].
      kind: "l1" or "mse".
    """
    longest = ops.shape(target)[1]

    # [batch, frames, bins] → [batch, frames]; the decoder may have made frames beyond the last.
    error = ops.cast(predicted[:, :longest], "float32") - target
    error = ops.mean(ops.abs(error) if kind == "l1" else ops.square(error), axis=-1)
    real = frame_mask(frames, longest)

    # `where`, not a product: the padding may hold infinities.
    return ops.sum(ops.where(real > 0, error, 0.0), axis=1) / ops.sum(real, axis=1)


def symbol_distance(predicted: Tensor, target: Tensor, counts: Tensor) -> Tensor:
    """Mean squared error over real symbols, float32 [batch].

    Args:
      predicted, target: float32 [batch, symbols].
    """
    real = frame_mask(counts, ops.shape(target)[1])
    error = ops.where(real > 0, ops.square(predicted - target), 0.0)
    return ops.sum(error, axis=1) / ops.sum(real, axis=1)


def linear_loss(predicted: Tensor, target: Tensor, frames: Tensor, low_bins: int) -> Tensor:
    """Tacotron's loss of the linear spectrum: half of it on all bins, half on the lowest ones (Wang et al. 2017)."""
    everywhere = masked_distance(predicted, target, frames)
    low = masked_distance(predicted[..., :low_bins], target[..., :low_bins], frames)
    return 0.5 * everywhere + 0.5 * low


def stop_loss(logits: Tensor, frames: Tensor) -> Tensor:
    """Cross-entropy of the stop token, mean over real frames, float32 [batch].

    The target is 1 on the last real frame only. Frames after it are ignored.
    """
    longest = ops.shape(logits)[1]
    logits = ops.cast(logits, "float32")

    # 1 on the last real frame: the mask of all frames less the mask of all but one.
    target = frame_mask(frames, longest) - frame_mask(frames - 1, longest)

    # max(x, 0) - x z + log(1 + e^-|x|), which neither overflows nor loses small values.
    entropy = ops.relu(logits) - logits * target + ops.log1p(ops.exp(-ops.abs(logits)))
    real = frame_mask(frames, longest)
    return ops.sum(ops.where(real > 0, entropy, 0.0), axis=1) / ops.sum(real, axis=1)


def guided_attention_loss(alignment: Tensor, steps: Tensor, counts: Tensor, sigma: float) -> Tensor:
    """Mean attention far from the diagonal (Tachibana et al. 2018), float32 [batch].

    The paper takes the mean over all pairs of step and symbol, so that long texts cost less than short ones. Here it is
    the mean over steps: attention that is wrong everywhere costs 1, whatever the length of the text.

    Args:
      alignment: [batch, steps, symbols].
      steps, counts: int32 [batch], real steps and symbols.
    """
    longest = ops.shape(alignment)[1]
    widest = ops.shape(alignment)[2]
    steps = ops.cast(steps, "float32")
    counts = ops.cast(counts, "float32")

    # n / N and t / T of the paper's W[n, t] = 1 - exp(-(n / N - t / T)² / 2 g²).
    step = ops.expand_dims(ops.arange(longest, dtype="float32"), 0) / ops.expand_dims(steps, 1)
    symbol = ops.expand_dims(ops.arange(widest, dtype="float32"), 0) / ops.expand_dims(counts, 1)
    distance = ops.expand_dims(symbol, 1) - ops.expand_dims(step, 2)
    cost = 1 - ops.exp(-ops.square(distance) / (2 * sigma**2))

    # [batch, steps, symbols] → [batch, steps]
    costs = ops.sum(ops.cast(alignment, "float32") * cost, axis=2)

    return ops.sum(ops.where(step < 1, costs, 0.0), axis=1) / steps

"""Scaled dot-product attention (Vaswani et al. 2017), which keeps no scores where sequences are long.

The scores of a batch of 30-second recordings take hundreds of megabytes in each layer, and most of the time goes into
moving them. On a CPU they are computed head by head, stay in its cache, and are computed again for the gradients, as in
FlashAttention (Dao et al. 2022, arXiv 2205.14135).
"""

import functools
from typing import Any

import keras
from keras import ops

from voxline.training.custom_gradient import custom_gradient
from voxline.training.layers import Tensor

LONG = 512
"""Keys from which on scores are computed head by head: below, one product for all heads is faster."""
HIDDEN = -3e4
"""The score of hidden keys: far below all others, and finite in half precision."""


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attends from each position to the keys that the mask shows.

    Args:
      query: [batch, positions, heads, size].
      key, value: [batch, keys, heads, size].
      mask: bool, true where a key is shown; it fits [batch, heads, positions, keys].

    Returns:
      [batch, positions, heads, size].
    """
    # Where the number of keys is known, the graph is one or the other.
    keys = key.shape[1]
    shown_to_all = mask.shape[1] == mask.shape[2] == 1
    if keys is None or keys < LONG or not shown_to_all or query.shape[1] != keys or _has_accelerator():
        # Scaled before the product, which is smaller than the scores: softmax(Q Kᵀ / √size) V.
        scaled = query * query.shape[-1] ** -0.5
        scores = ops.einsum("btnh,bsnh->bnts", scaled, key)
        scores = ops.where(mask, scores, ops.cast(HIDDEN, scores.dtype))
        return ops.einsum("bnts,bsnh->btnh", ops.softmax(scores), value)

    batch = ops.shape(query)[0]
    heads = query.shape[2]
    size = query.shape[3]

    # A head of an utterance at a time: [batch · heads, keys, size], and its hidden keys [batch · heads, 1, keys].
    parts = [
        ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch * heads, keys, size))
        for x in (query * size**-0.5, key, value)
    ]
    bias = ops.where(mask[:, 0, 0], 0.0, HIDDEN)
    bias = ops.reshape(ops.repeat(ops.cast(bias, query.dtype), heads, axis=0), (batch * heads, 1, keys))

    attended = _attend_head_by_head(*parts, bias)
    return ops.transpose(ops.reshape(attended, (batch, heads, keys, size)), (0, 2, 1, 3))


@custom_gradient
def _attend_head_by_head(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Any:
    def attend(head: tuple[Tensor, ...]) -> Tensor:
        head_query, head_key, head_value, head_bias = head
        return ops.matmul(_shares(head_query, head_key, head_bias), head_value)

    attended = ops.map(attend, (query, key, value, bias))

    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        def gradient_of_head(head: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
            head_query, head_key, head_value, head_bias, head_attended, given = head

            # With P = softmax(Q Kᵀ) and O = P V: dV = Pᵀ dO, dS = P ∘ (dO Vᵀ - rowsum(dO ∘ O)).
            shares = _shares(head_query, head_key, head_bias)
            row = ops.sum(given * head_attended, axis=-1, keepdims=True)
            of_scores = shares * (ops.matmul(given, ops.transpose(head_value)) - row)
            return (
                ops.matmul(of_scores, head_key),
                ops.matmul(ops.transpose(of_scores), head_query),
                ops.matmul(ops.transpose(shares), given),
            )

        gradients = ops.map(gradient_of_head, (query, key, value, bias, attended, upstream))
        return (*gradients, ops.zeros_like(bias))

    return attended, gradient


def _shares(query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
    return ops.softmax(ops.matmul(query, ops.transpose(key)) + bias)


@functools.cache
def _has_accelerator() -> bool:
    """True where one product for all heads is faster: such devices are slow in many small steps."""
    return any(keras.distribution.list_devices(kind) for kind in ("gpu", "tpu"))

"""Low-rank updates of kernels: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models" (arXiv 2106.09685).

A kernel W of a large network is replaced by W₀ + α / r · A B, of which only A and B are trained (section 4.1). The
network knows nothing of it: its kernel always holds the sum, so that validation, averages, checkpoints and the export
have the weights that they would have without. A step computes ∂L/∂W as for an ordinary kernel, and

  ∂L/∂A = α / r · ∂L/∂W Bᵀ,    ∂L/∂B = α / r · Aᵀ ∂L/∂W

by the chain rule; the optimizer updates A and B, and the kernel is summed again from W₀. What this saves is the memory
of the optimizer and the sums over devices; the time of a step and the activations are those of training the kernel.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from voxline.training.layers import Tensor


class LowRankKernel:
    """A kernel with the factors that train it. Create it inside `strategy.scope()`.

    A kernel of more than two dimensions is the matrix of its last one, as in Keras' EinsumDense: [..., out] is
    [in, out]. At first B is zero and A is uniform in ±1 / √in, so that the kernel is what it was.

    Args:
      kernel: a Keras variable of two or more dimensions.
      rank, alpha: r and α.
      seed: of A.

    Attributes:
      factors: A above Bᵀ in one Keras variable, [in + out, rank]: what the optimizer updates.
      base: W₀, a variable of the kernel's shape.
    """

    def __init__(self, kernel: Any, rank: int, alpha: float, seed: Sequence[int]) -> None:
        self.kernel = kernel
        self._scale = alpha / rank
        self._outputs = int(kernel.shape[-1])
        self._inputs = int(np.prod(kernel.shape[:-1]))
        self.base = tf.Variable(tf.convert_to_tensor(kernel), trainable=False)

        bound = self._inputs**-0.5
        values = np.zeros((self._inputs + self._outputs, rank), np.float32)
        values[: self._inputs] = np.random.default_rng(seed).uniform(-bound, bound, (self._inputs, rank))
        self.factors = keras.Variable(values, name="low_rank")

    def begin(self) -> None:
        """Takes the kernel's values as W₀, before the first step."""
        self.base.assign(tf.convert_to_tensor(self.kernel))

    def project(self, gradient: Tensor) -> Tensor:
        """The gradient of the factors, from that of the kernel; in a replica's context."""
        factors = tf.convert_to_tensor(self.factors)
        a = factors[: self._inputs]
        b_transposed = factors[self._inputs :]

        # [in, out] → [in, rank] and [out, rank]
        matrix = self._scale * tf.reshape(gradient, [self._inputs, self._outputs])
        of_a = tf.matmul(matrix, b_transposed)
        of_b = tf.matmul(matrix, a, transpose_a=True)
        return tf.concat([of_a, of_b], 0)

    def merge(self, strategy: Any) -> None:
        """Sums the kernel again, after an update of the factors; called outside `strategy.run`."""
        strategy.extended.update(self.kernel.value, self._assign, args=(self.base, self.factors.value), group=False)

    def merge_in_replica(self) -> None:
        """The same within `strategy.run`."""
        self._assign(self.kernel.value, self.base, self.factors.value)

    def _assign(self, kernel: Any, base: Any, factors: Any) -> None:
        factors = tf.convert_to_tensor(factors)
        product = tf.matmul(factors[: self._inputs], factors[self._inputs :], transpose_b=True)
        kernel.assign(base + self._scale * tf.reshape(product, kernel.shape))

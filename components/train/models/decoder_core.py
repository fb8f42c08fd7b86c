"""What a decoder step consists of, and the loop that runs steps over recorded frames."""

from typing import Any

from keras import layers

Tensor = Any
States = tuple[Tensor, ...]
CORE_PLACE = 200
"""Where in the noise a core's dropout is drawn."""


class Core(layers.Layer):  # type: ignore[misc]
    """Recurrent layers of a decoder; a subclass says which.

    Attributes:
      query_units: width of what the attention is asked with.
      output_units: width of what the frames are made of, beside the context.
      query_states: how many of the states are those of `query`.
    """

    query_units: int
    output_units: int
    query_states: int

    def prepared(self) -> Any:
        """Weights in the dtype of computation, fetched once before the loop."""
        raise NotImplementedError

    def context_kernels(self) -> list[Tensor]:
        """What a context is multiplied by in `query`, and in `deepen` where there is one."""
        raise NotImplementedError

    def hoist(self, prenet: Tensor, weights: Any) -> Tensor:
        """What the pre-net's output [batch, steps, units] gives to the first matrix, for all steps at once."""
        raise NotImplementedError

    def start(self, batch: Tensor) -> States:
        """States of `query`, then of `deepen`, all float32 zeros."""
        raise NotImplementedError

    def perturb(self, batch: Tensor, steps: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Masks for `query` and `deepen`, [batch, steps, …], both possibly 0 wide."""
        raise NotImplementedError

    def query(
        self, x: Tensor, context: Tensor, states: States, mask: Tensor | None, weights: Any
    ) -> tuple[Any, States]:
        """One step up to the attention's query. `context`: its part of the first matrix."""
        raise NotImplementedError

    def deepen(
        self, x: Tensor, context: Tensor, states: States, mask: Tensor | None, weights: Any
    ) -> tuple[Any, States]:
        """One step from the query to the output; `x` is the query, `context` the parts of the new context."""
        raise NotImplementedError

    def deepen_all(self, query: Tensor, context: Tensor, mask: Tensor | None, weights: Any) -> Tensor:
        """`deepen` over all steps: nothing of it is fed back into the attention when recorded frames are fed."""
        raise NotImplementedError


class Loop:
    """A cell for `keras.layers.RNN` around a function; it holds tensors, which a layer would not."""

    compute_dtype = "float32"

    def __init__(self, step: Any, states: int) -> None:
        self._step, self.state_size = step, [1] * states

    def call(self, inputs: Tensor, states: Any) -> Any:
        return self._step(inputs, tuple(states))

    __call__ = call


def run_loop(step: Any, inputs: Tensor, states: States) -> Any:
    """Outputs [batch, steps, …] of `step(inputs [batch, …], states) -> (outputs, states)`."""
    return layers.RNN(Loop(step, len(states)), return_sequences=True)(inputs, initial_state=list(states))

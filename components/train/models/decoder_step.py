"""One step of the decoder with all that it consists of, as it is run where the step before decides what it is fed."""

from typing import Any, NamedTuple, Self

from keras import ops

from components.train.models.attention import Kernels
from components.train.models.decoder import Decoder, weighted
from components.train.models.decoder_core import States

Tensor = Any


class Text(NamedTuple):
    """What a step reads of the text: encoding [batch, symbols, units], keys, which symbols are real."""

    memory: Tensor
    keys: Tensor
    real: Tensor


class Matrices(NamedTuple):
    """Weights in the dtype of computation, fetched once before the loop; see `Core` for the first and the third."""

    core: Any
    attention: Kernels
    context: list[Tensor]
    projection: Tensor
    bias: Tensor

    @classmethod
    def of(cls, decoder: Decoder, reduction: int) -> Self:
        core = decoder.core
        return cls(core.prepared(), decoder.attention.kernels(), core.context_kernels(), *decoder.projection(reduction))


def advance(
    decoder: Decoder,
    matrices: Matrices,
    text: Text,
    frame: Tensor,
    masks: list[Tensor] | None,
    state: States,
    perturb: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, States]:
    """What a step makes, float32 [batch, reduction · (mels + 1)] (frames, then stop logits), and its state.

    Args:
      frame: [batch, mels], the one before this step.
      masks: dropout of the pre-net, [batch or 1, units] each.
      state: context, weights of the step before, their sum so far, then the core's states; all float32.
      perturb: masks of the core.
    """
    core, dtype = decoder.core, decoder.compute_dtype
    context, previous, cumulative, *inner = state
    x = core.hoist(decoder.narrowed(ops.cast(frame, dtype), masks), matrices.core)
    part = ops.matmul(ops.cast(context, dtype), matrices.context[0])
    query, asked = core.query(x, part, tuple(inner[: core.query_states]), perturb[0], matrices.core)
    now = decoder.attention.weigh(query, text.keys, text.real, previous, cumulative, matrices.attention)
    context = weighted(now, text.memory)
    output, deep = query, ()
    if len(matrices.context) > 1:
        part = ops.matmul(context, matrices.context[1])
        output, deep = core.deepen(query, part, tuple(inner[core.query_states :]), perturb[1], matrices.core)
    context = ops.cast(context, "float32")
    joined = ops.concatenate([ops.cast(output, "float32"), context], axis=-1)
    made = ops.matmul(joined, matrices.projection) + matrices.bias
    return made, (context, now, cumulative + now, *asked, *deep)

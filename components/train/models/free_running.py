"""A decoder that is fed its own frames, until it says that it is done.

A context is a sum of symbols and every matrix that reads one is linear, so that the text goes through those matrices
once, before the loop: a step then reads as many rows of them as there are symbols.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from components.train.models.decoder import Decoded, Decoder, cut, weighted
from components.train.models.spoken import real

Tensor = Any
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes of a function a faster one: `functools.partial(tf.function, autograph=False, jit_compile=True)`."""
STOP = 0.0
"""Logit above which a frame is the last: a probability of one half."""
CHUNK = 32
"""Steps that are gathered before they are put with the others: to put one there, all of them are copied."""
ROOM = 32
"""A compiled loop is one for each length of text, so that lengths are rounded up to a multiple of so many symbols."""


def decode_alone(
    decoder: Decoder,
    memory: Tensor,
    counts: Tensor,
    *,
    reduction: int,
    max_steps: int,
    noise: Tensor,
    compiler: Compiler | None = None,
) -> tuple[Decoded, Tensor, Tensor]:
    """Frames and alignment, how many frames are real [batch], which rows were cut [batch]; see `VoiceModel.speak`."""
    symbols = ops.shape(memory)[1]
    drawn = decoder.prenet_masks(1, max_steps, noise, False)
    masks = None if drawn is None else ops.concatenate(drawn, axis=-1)[0]
    if compiler is None:
        found, made, ended, frames = _loop(decoder, memory, counts, masks, reduction, max_steps)
    else:
        memory = ops.pad(memory, [(0, 0), (0, -symbols % ROOM), (0, 0)])
        given = [memory, counts] if masks is None else [memory, counts, masks]

        def loop(memory: Tensor, counts: Tensor, masks: Tensor = None) -> Any:
            return _loop(decoder, memory, counts, masks, reduction, max_steps)

        found, made, ended, frames = compiler(loop)(*given)
    wide = reduction * (decoder.mels + 1)
    found = ops.reshape(found, (ops.shape(memory)[0], -1, wide + ops.shape(memory)[1]))[:, :made]
    decoded = decoder.unfolded(found[..., :wide], found[..., wide : wide + symbols], reduction)
    return decoded, frames, ops.logical_not(ended)


def _loop(
    decoder: Decoder,
    memory: Tensor,
    counts: Tensor,
    masks: Tensor | None,
    reduction: int,
    max_steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Projections and weights [batch, chunks, CHUNK, …], steps made, which rows ended, frames of each row."""
    core, dtype, mels = decoder.core, decoder.compute_dtype, decoder.mels
    batch, symbols = ops.shape(memory)[0], ops.shape(memory)[1]
    memory, inside = ops.cast(memory, dtype), real(counts, symbols)
    weights, kernels, keys = core.prepared(), decoder.attention.kernels(), decoder.attention.keys(memory)
    project, bias = decoder.projection(reduction)
    parts = [*core.context_kernels(), ops.cast(project[core.output_units :], dtype)]
    project = ops.cast(project[: core.output_units], dtype)
    cuts = np.cumsum([part.shape[-1] for part in parts])[:-1].tolist()
    folded = ops.concatenate([ops.matmul(memory, part) for part in parts], axis=-1)
    units = np.cumsum(decoder.settings.prenet)[:-1].tolist()
    queries, wide, chunks = core.query_states, reduction * mels, -(-max_steps // CHUNK)

    def step(index: Tensor, ended: Tensor, frames: Tensor, chunk: Tensor, made: Tensor, *states: Tensor) -> Any:
        own, context, previous, cumulative, *inner = states
        masked = None if masks is None else cut(ops.slice(masks, (index, 0), (1, masks.shape[1])), units)
        x = core.hoist(decoder.narrowed(ops.cast(own, dtype), masked), weights)
        query, asked = core.query(x, context, tuple(inner[:queries]), None, weights)
        now = decoder.attention.weigh(query, keys, inside, previous, cumulative, kernels)
        context, *others = cut(weighted(now, folded), cuts)
        output, deep = query, ()
        if len(others) > 1:
            output, deep = core.deepen(query, others[0], tuple(inner[queries:]), None, weights)
        new = ops.cast(ops.matmul(ops.cast(output, dtype), project) + others[-1], "float32") + bias
        stopped, more = _ends(new[:, wide:])
        chunk = ops.where(_at(index % CHUNK, CHUNK, 3), ops.expand_dims(ops.concatenate([new, now], axis=-1), 1), chunk)
        full = ops.equal(index % CHUNK, CHUNK - 1)
        made = ops.cond(full, lambda: _placed(made, chunk, index), lambda: made)
        frames = frames + ops.where(ended, 0, more)
        state = (new[:, wide - mels : wide], context, now, cumulative + now, *asked, *deep)
        return index + 1, ended | stopped, frames, chunk, made, *state

    none = ops.zeros((batch, symbols))
    state = (
        ops.zeros((), "int32"),
        ops.zeros((batch,), "bool"),
        ops.zeros((batch,), "int32"),
        ops.zeros((batch, CHUNK, wide + reduction + symbols)),
        ops.zeros((batch, chunks, CHUNK, wide + reduction + symbols)),
        *(ops.zeros((batch, mels)), ops.zeros((batch, parts[0].shape[-1]), dtype), none, none),
        *core.start(batch),
    )

    def goes_on(index: Tensor, ended: Tensor, *_: Tensor) -> Tensor:
        return ops.logical_and(index < max_steps, ops.logical_not(ops.all(ended)))

    index, ended, frames, chunk, made, *_ = ops.while_loop(goes_on, step, state)
    return _placed(made, chunk, index - 1), index, ended, frames


def _ends(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Which rows end in a step whose stop logits are [batch, reduction], and the frames of it that are real."""
    stops = ops.cast(logits > STOP, "int32")
    stopped = ops.max(stops, axis=-1) > 0
    return stopped, ops.where(stopped, ops.cast(ops.argmax(stops, axis=-1), "int32") + 1, logits.shape[-1])


def _placed(made: Tensor, chunk: Tensor, index: Tensor) -> Tensor:
    """All chunks, with the one that holds step `index` in its place."""
    return ops.where(_at(index // CHUNK, made.shape[1], 4), ops.expand_dims(chunk, 1), made)


def _at(index: Tensor, size: int, rank: int) -> Tensor:
    """True at `index` of axis 1, to be broadcast over the other axes."""
    return ops.reshape(ops.equal(ops.arange(size), index), (1, size, *([1] * (rank - 2))))

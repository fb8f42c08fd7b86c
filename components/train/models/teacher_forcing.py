"""A decoder that is fed recorded frames, in all of its steps or in a share of them.

What it costs is the loop: everything that does not need the step before is done outside, for all steps at once.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from components.train.models.decoder import Decoded, Decoder, cut, weighted
from components.train.models.decoder_core import States, run_loop
from components.train.models.decoder_step import Matrices, Text, advance
from components.train.models.normalisation import StepSeed
from components.train.models.spoken import real

Tensor = Any
TEACHER_PLACE, DROPPED_PLACE = 400, 500


def decode_recorded(
    decoder: Decoder,
    memory: Tensor,
    counts: Tensor,
    frames: Tensor,
    *,
    reduction: int,
    training: bool,
    noise: Tensor,
    teacher: Tensor,
) -> Decoded:
    """Decodes with the recorded frames [batch, steps · reduction, mels] before it; see `VoiceModel.call`."""
    dtype, mels, dropped = decoder.compute_dtype, decoder.mels, decoder.settings.dropped_frames
    memory = ops.cast(memory, dtype)
    batch, steps = ops.shape(memory)[0], ops.shape(frames)[1] // reduction
    fed = ops.reshape(frames, (batch, steps, reduction, mels))[:, :-1, -1]
    fed = ops.cast(ops.pad(fed, [(0, 0), (1, 0), (0, 0)]), dtype)
    if training and noise is not None and dropped:
        kept = keras.random.uniform((batch, steps, 1), seed=StepSeed(noise, DROPPED_PLACE))
        fed = ops.where(kept >= dropped, fed, ops.zeros((), dtype))
    drawn = decoder.prenet_masks(batch if training else 1, steps, noise, training)
    perturb = decoder.core.perturb(batch, steps, noise) if training and noise is not None else (None, None)
    text = Text(memory, decoder.attention.keys(memory), real(counts, ops.shape(memory)[1]))
    if teacher is None:
        return _forced(decoder, text, decoder.narrowed(fed, drawn), perturb, reduction)
    chance = keras.random.uniform((batch, steps, 1), seed=StepSeed(noise, TEACHER_PLACE))
    share = ops.reshape(ops.broadcast_to(ops.cast(teacher, "float32"), (batch,)), (batch, 1, 1))
    return _scheduled(decoder, text, fed, chance < share, drawn, perturb, reduction)


def _forced(decoder: Decoder, text: Text, prenet: Tensor, perturb: Any, reduction: int) -> Decoded:
    core, dtype = decoder.core, decoder.compute_dtype
    weights, kernels, context_kernel = core.prepared(), decoder.attention.kernels(), core.context_kernels()[0]
    x = core.hoist(prenet, weights)
    width, queries = x.shape[-1], core.query_units

    def step(inputs: Tensor, states: States) -> tuple[Tensor, States]:
        x, mask = ops.cast(inputs[:, :width], dtype), None if perturb[0] is None else inputs[:, width:]
        context, previous, cumulative, *inner = states
        part = ops.matmul(ops.cast(context, dtype), context_kernel)
        query, asked = core.query(x, part, tuple(inner), mask, weights)
        now = decoder.attention.weigh(query, text.keys, text.real, previous, cumulative, kernels)
        context = ops.cast(weighted(now, text.memory), "float32")
        out = ops.concatenate([ops.cast(query, "float32"), now], axis=-1)
        return out, (context, now, cumulative + now, *asked)

    inputs = x if perturb[0] is None else ops.concatenate([x, ops.cast(perturb[0], x.dtype)], axis=-1)
    asked = core.start(ops.shape(text.memory)[0])[: core.query_states]
    found = run_loop(step, inputs, (*_nothing(text), *asked))
    query, alignment = found[..., :queries], found[..., queries:]
    context = ops.matmul(ops.cast(alignment, dtype), text.memory)
    output = core.deepen_all(ops.cast(query, dtype), context, perturb[1], weights)
    kernel, bias = decoder.projection(reduction)
    joined = ops.concatenate([ops.cast(output, "float32"), ops.cast(context, "float32")], axis=-1)
    return decoder.unfolded(ops.matmul(joined, kernel) + bias, alignment, reduction)


def _scheduled(
    decoder: Decoder, text: Text, fed: Tensor, recorded: Tensor, drawn: Any, perturb: Any, reduction: int
) -> Decoded:
    """Feeds the frame that is recorded, or where `recorded` is False the decoder's own last one."""
    batch, steps = ops.shape(fed)[0], ops.shape(fed)[1]
    dtype, mels, matrices = decoder.compute_dtype, decoder.mels, Matrices.of(decoder, reduction)
    pieces = [ops.cast(recorded, "float32"), ops.cast(fed, "float32")]
    pieces += [ops.broadcast_to(ops.cast(one, "float32"), (batch, steps, one.shape[-1])) for one in drawn or ()]
    pieces += [ops.cast(one, "float32") for one in perturb if one is not None]
    cuts = np.cumsum([piece.shape[-1] for piece in pieces])[:-1].tolist()
    last = (reduction - 1) * mels

    def step(inputs: Tensor, states: States) -> tuple[Tensor, States]:
        own, *state = states
        chosen, truth, *rest = cut(inputs, cuts)
        rest = [ops.cast(one, dtype) for one in rest]
        masks, rest = (rest[: len(drawn)], rest[len(drawn) :]) if drawn else (None, rest)
        frame = ops.where(chosen > 0, truth, own)
        given = (*rest, None, None)[:2]
        made, after = advance(decoder, matrices, text, frame, masks, tuple(state), given)
        return ops.concatenate([made, after[1]], axis=-1), (made[:, last : last + mels], *after)

    start = (ops.zeros((batch, mels)), *_nothing(text), *decoder.core.start(batch))
    found = run_loop(step, ops.concatenate(pieces, axis=-1), start)
    wide = reduction * (mels + 1)
    return decoder.unfolded(found[..., :wide], found[..., wide:], reduction)


def _nothing(text: Text) -> States:
    """No context yet, and no symbol looked at."""
    batch, symbols = ops.shape(text.memory)[0], ops.shape(text.memory)[1]
    return ops.zeros((batch, text.memory.shape[-1])), ops.zeros((batch, symbols)), ops.zeros((batch, symbols))

"""The two ways to run the decoder: on its own frames until it stops, and on recorded frames.

An attention context is a weighted sum over symbols, and the matrices that multiply it are linear. The autoregressive
loop therefore multiplies the encoded text by these matrices once, before it starts.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from voxline.families.tts.networks.decoder import (
    Decoder,
    DecoderOutput,
    DecoderWeights,
    EncodedText,
    States,
    attend,
    decode_step,
    run_loop,
    split_columns,
)
from voxline.training.layers import StepSeed, length_mask

Tensor = Any
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Compiles a function, for example `functools.partial(tf.function, autograph=False, jit_compile=True)`."""
STOP_LOGIT = 0.0
"""Logit above which a frame is the last one: a probability of one half."""
CHUNK_STEPS = 32
"""Steps collected before they are written to the output: each write copies the whole output."""
LENGTH_MULTIPLE = 32
"""A loop is compiled for each text length, so lengths are rounded up to a multiple of this many symbols."""


def decode_autoregressive(
    decoder: Decoder,
    memory: Tensor,
    counts: Tensor,
    *,
    reduction: int,
    max_steps: int,
    noise: Tensor,
    compiler: Compiler | None = None,
) -> tuple[DecoderOutput, Tensor, Tensor]:
    """Outputs, real frames [batch], and which rows were cut off [batch]; see `TacotronBase.synthesize`."""
    symbols = ops.shape(memory)[1]
    drawn = decoder.prenet_masks(1, max_steps, noise, False)
    masks = None if drawn is None else ops.concatenate(drawn, axis=-1)[0]
    if compiler is None:
        found, made, ended, frames = _run_decoder(decoder, memory, counts, masks, reduction, max_steps)
    else:
        memory = ops.pad(memory, [(0, 0), (0, -symbols % LENGTH_MULTIPLE), (0, 0)])
        given = [memory, counts] if masks is None else [memory, counts, masks]

        def loop(memory: Tensor, counts: Tensor, masks: Tensor = None) -> Any:
            return _run_decoder(decoder, memory, counts, masks, reduction, max_steps)

        found, made, ended, frames = compiler(loop)(*given)
    wide = reduction * (decoder.mels + 1)
    found = ops.reshape(found, (ops.shape(memory)[0], -1, wide + ops.shape(memory)[1]))[:, :made]
    decoded = decoder.split_output(found[..., :wide], found[..., wide : wide + symbols], reduction)
    return decoded, frames, ops.logical_not(ended)


def _run_decoder(
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
    memory, inside = ops.cast(memory, dtype), length_mask(counts, symbols)
    weights, kernels, keys = core.cast_weights(), decoder.attention.kernels(), decoder.attention.keys(memory)
    project, bias = decoder.projection(reduction)
    parts = [*core.context_kernels(), ops.cast(project[core.output_units :], dtype)]
    project = ops.cast(project[: core.output_units], dtype)
    cuts = np.cumsum([part.shape[-1] for part in parts])[:-1].tolist()
    folded = ops.concatenate([ops.matmul(memory, part) for part in parts], axis=-1)
    units = np.cumsum(decoder.settings.prenet)[:-1].tolist()
    queries, wide, chunks = core.query_states, reduction * mels, -(-max_steps // CHUNK_STEPS)

    def step(index: Tensor, ended: Tensor, frames: Tensor, chunk: Tensor, made: Tensor, *states: Tensor) -> Any:
        own, context, previous, cumulative, *inner = states
        masked = None if masks is None else split_columns(ops.slice(masks, (index, 0), (1, masks.shape[1])), units)
        x = core.hoist(decoder.apply_prenet(ops.cast(own, dtype), masked), weights)
        query, asked = core.query(x, context, tuple(inner[:queries]), None, weights)
        now = decoder.attention.weigh(query, keys, inside, previous, cumulative, kernels)
        context, *others = split_columns(attend(now, folded), cuts)
        output, deep = query, ()
        if len(others) > 1:
            output, deep = core.deepen(query, others[0], tuple(inner[queries:]), None, weights)
        new = ops.cast(ops.matmul(ops.cast(output, dtype), project) + others[-1], "float32") + bias
        stopped, more = _find_stops(new[:, wide:])
        chunk = ops.where(
            _index_mask(index % CHUNK_STEPS, CHUNK_STEPS, 3),
            ops.expand_dims(ops.concatenate([new, now], axis=-1), 1),
            chunk,
        )
        full = ops.equal(index % CHUNK_STEPS, CHUNK_STEPS - 1)
        made = ops.cond(full, lambda: _insert_chunk(made, chunk, index), lambda: made)
        frames = frames + ops.where(ended, 0, more)
        state = (new[:, wide - mels : wide], context, now, cumulative + now, *asked, *deep)
        return index + 1, ended | stopped, frames, chunk, made, *state

    none = ops.zeros((batch, symbols))
    state = (
        ops.zeros((), "int32"),
        ops.zeros((batch,), "bool"),
        ops.zeros((batch,), "int32"),
        ops.zeros((batch, CHUNK_STEPS, wide + reduction + symbols)),
        ops.zeros((batch, chunks, CHUNK_STEPS, wide + reduction + symbols)),
        *(ops.zeros((batch, mels)), ops.zeros((batch, parts[0].shape[-1]), dtype), none, none),
        *core.start(batch),
    )

    def unfinished(index: Tensor, ended: Tensor, *_: Tensor) -> Tensor:
        return ops.logical_and(index < max_steps, ops.logical_not(ops.all(ended)))

    index, ended, frames, chunk, made, *_ = ops.while_loop(unfinished, step, state)
    return _insert_chunk(made, chunk, index - 1), index, ended, frames


def _find_stops(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that end in a step with stop logits [batch, reduction], and how many of its frames are real."""
    stops = ops.cast(logits > STOP_LOGIT, "int32")
    stopped = ops.max(stops, axis=-1) > 0
    return stopped, ops.where(stopped, ops.cast(ops.argmax(stops, axis=-1), "int32") + 1, logits.shape[-1])


def _insert_chunk(made: Tensor, chunk: Tensor, index: Tensor) -> Tensor:
    """All chunks, with the one of step `index` replaced."""
    return ops.where(_index_mask(index // CHUNK_STEPS, made.shape[1], 4), ops.expand_dims(chunk, 1), made)


def _index_mask(index: Tensor, size: int, rank: int) -> Tensor:
    """True at `index` of axis 1, broadcastable over the other axes."""
    return ops.reshape(ops.equal(ops.arange(size), index), (1, size, *([1] * (rank - 2))))


TEACHER_FORCING_NOISE, DROPPED_FRAMES_NOISE = 400, 500


def decode_teacher_forced(
    decoder: Decoder,
    memory: Tensor,
    counts: Tensor,
    frames: Tensor,
    *,
    reduction: int,
    training: bool,
    noise: Tensor,
    teacher_forcing: Tensor,
) -> DecoderOutput:
    """Feeds the decoder the recorded frames [batch, steps · reduction, mels]; see `TacotronBase.call`."""
    dtype, mels, dropped = decoder.compute_dtype, decoder.mels, decoder.settings.dropped_frames
    memory = ops.cast(memory, dtype)
    batch, steps = ops.shape(memory)[0], ops.shape(frames)[1] // reduction
    fed = ops.reshape(frames, (batch, steps, reduction, mels))[:, :-1, -1]
    fed = ops.cast(ops.pad(fed, [(0, 0), (1, 0), (0, 0)]), dtype)
    if training and noise is not None and dropped:
        kept = keras.random.uniform((batch, steps, 1), seed=StepSeed(noise, DROPPED_FRAMES_NOISE))
        fed = ops.where(kept >= dropped, fed, ops.zeros((), dtype))
    drawn = decoder.prenet_masks(batch if training else 1, steps, noise, training)
    perturb = decoder.core.perturb(batch, steps, noise) if training and noise is not None else (None, None)
    text = EncodedText(memory, decoder.attention.keys(memory), length_mask(counts, ops.shape(memory)[1]))
    if teacher_forcing is None:
        return _decode_all_recorded(decoder, text, decoder.apply_prenet(fed, drawn), perturb, reduction)
    chance = keras.random.uniform((batch, steps, 1), seed=StepSeed(noise, TEACHER_FORCING_NOISE))
    share = ops.reshape(ops.broadcast_to(ops.cast(teacher_forcing, "float32"), (batch,)), (batch, 1, 1))
    return _decode_mixed(decoder, text, fed, chance < share, drawn, perturb, reduction)


def _decode_all_recorded(
    decoder: Decoder, text: EncodedText, prenet: Tensor, perturb: Any, reduction: int
) -> DecoderOutput:
    core, dtype = decoder.core, decoder.compute_dtype
    weights, kernels, context_kernel = core.cast_weights(), decoder.attention.kernels(), core.context_kernels()[0]
    x = core.hoist(prenet, weights)
    width, queries = x.shape[-1], core.query_units

    def step(inputs: Tensor, states: States) -> tuple[Tensor, States]:
        x, mask = ops.cast(inputs[:, :width], dtype), None if perturb[0] is None else inputs[:, width:]
        context, previous, cumulative, *inner = states
        part = ops.matmul(ops.cast(context, dtype), context_kernel)
        query, asked = core.query(x, part, tuple(inner), mask, weights)
        now = decoder.attention.weigh(query, text.keys, text.real, previous, cumulative, kernels)
        context = ops.cast(attend(now, text.memory), "float32")
        out = ops.concatenate([ops.cast(query, "float32"), now], axis=-1)
        return out, (context, now, cumulative + now, *asked)

    inputs = x if perturb[0] is None else ops.concatenate([x, ops.cast(perturb[0], x.dtype)], axis=-1)
    asked = core.start(ops.shape(text.memory)[0])[: core.query_states]
    found = run_loop(step, inputs, (*_initial_attention(text), *asked))
    query, alignment = found[..., :queries], found[..., queries:]
    context = ops.matmul(ops.cast(alignment, dtype), text.memory)
    output = core.deepen_all(ops.cast(query, dtype), context, perturb[1], weights)
    kernel, bias = decoder.projection(reduction)
    joined = ops.concatenate([ops.cast(output, "float32"), ops.cast(context, "float32")], axis=-1)
    return decoder.split_output(ops.matmul(joined, kernel) + bias, alignment, reduction)


def _decode_mixed(
    decoder: Decoder, text: EncodedText, fed: Tensor, recorded: Tensor, drawn: Any, perturb: Any, reduction: int
) -> DecoderOutput:
    """Feeds the recorded frame, or where `recorded` is false the decoder's own last one."""
    batch, steps = ops.shape(fed)[0], ops.shape(fed)[1]
    dtype, mels, matrices = decoder.compute_dtype, decoder.mels, DecoderWeights.of(decoder, reduction)
    pieces = [ops.cast(recorded, "float32"), ops.cast(fed, "float32")]
    pieces += [ops.broadcast_to(ops.cast(one, "float32"), (batch, steps, one.shape[-1])) for one in drawn or ()]
    pieces += [ops.cast(one, "float32") for one in perturb if one is not None]
    cuts = np.cumsum([piece.shape[-1] for piece in pieces])[:-1].tolist()
    last = (reduction - 1) * mels

    def step(inputs: Tensor, states: States) -> tuple[Tensor, States]:
        own, *state = states
        chosen, truth, *rest = split_columns(inputs, cuts)
        rest = [ops.cast(one, dtype) for one in rest]
        masks, rest = (rest[: len(drawn)], rest[len(drawn) :]) if drawn else (None, rest)
        frame = ops.where(chosen > 0, truth, own)
        given = (*rest, None, None)[:2]
        made, after = decode_step(decoder, matrices, text, frame, masks, tuple(state), given)
        return ops.concatenate([made, after[1]], axis=-1), (made[:, last : last + mels], *after)

    start = (ops.zeros((batch, mels)), *_initial_attention(text), *decoder.core.start(batch))
    found = run_loop(step, ops.concatenate(pieces, axis=-1), start)
    wide = reduction * (mels + 1)
    return decoder.split_output(found[..., :wide], found[..., wide:], reduction)


def _initial_attention(text: EncodedText) -> States:
    """Zero context and zero attention weights."""
    batch, symbols = ops.shape(text.memory)[0], ops.shape(text.memory)[1]
    return ops.zeros((batch, text.memory.shape[-1])), ops.zeros((batch, symbols)), ops.zeros((batch, symbols))

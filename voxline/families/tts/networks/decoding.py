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
    split_columns,
)
from voxline.training.layers import StepSeed, Tensor, length_mask
from voxline.training.recurrence import LoopInput, LoopKernel, before_each, run_loop

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

    # One dropout mask for all rows, so that a text sounds the same in any batch: [steps, units].
    layer_masks = decoder.prenet_masks(1, max_steps, noise, False)
    masks = None if layer_masks is None else ops.concatenate(layer_masks, axis=-1)[0]
    if compiler is None:
        collected, steps, ended, frames = _run_decoder(decoder, memory, counts, masks, reduction, max_steps)
    else:
        # Padded, so that texts of similar length share a compiled graph; the attention masks padding.
        memory = ops.pad(memory, [(0, 0), (0, -symbols % LENGTH_MULTIPLE), (0, 0)])
        inputs = [memory, counts] if masks is None else [memory, counts, masks]

        def loop(memory: Tensor, counts: Tensor, masks: Tensor | None = None) -> Any:
            return _run_decoder(decoder, memory, counts, masks, reduction, max_steps)

        collected, steps, ended, frames = compiler(loop)(*inputs)

    # [batch, chunks, CHUNK_STEPS, …] → [batch, steps, frames and stop logits, then alignment]
    output_columns = reduction * (decoder.mels + 1)
    collected = ops.reshape(collected, (ops.shape(memory)[0], -1, output_columns + ops.shape(memory)[1]))[:, :steps]
    decoded = decoder.split_output(
        collected[..., :output_columns], collected[..., output_columns : output_columns + symbols], reduction
    )

    return decoded, frames, ops.logical_not(ended)


def _run_decoder(
    decoder: Decoder,
    memory: Tensor,
    counts: Tensor,
    masks: Tensor | None,
    reduction: int,
    max_steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Runs the loop: projections and weights [batch, chunks, CHUNK_STEPS, …], steps, rows that ended, frames a row."""

    core = decoder.core
    dtype = decoder.compute_dtype
    mels = decoder.mels
    batch = ops.shape(memory)[0]
    symbols = ops.shape(memory)[1]

    # The text as the attention reads it: [batch, symbols, memory units], and the mask [batch, symbols].
    memory = ops.cast(memory, dtype)
    real = length_mask(counts, symbols)
    weights = core.cast_weights()
    kernels = decoder.attention.kernels()
    keys = decoder.attention.keys(memory)
    output_kernel, bias = decoder.projection(reduction)

    # All that multiplies a context: c = Σ w m, so c K = Σ w (m K). The products m K are made here, once.
    context_kernels = [*core.context_kernels(), ops.cast(output_kernel[core.output_units :], dtype)]
    output_kernel = ops.cast(output_kernel[: core.output_units], dtype)
    context_cuts = np.cumsum([part.shape[-1] for part in context_kernels])[:-1].tolist()
    folded_memory = ops.concatenate([ops.matmul(memory, part) for part in context_kernels], axis=-1)
    prenet_cuts = np.cumsum(decoder.settings.prenet)[:-1].tolist()
    query_states_count = core.query_states
    frame_columns = reduction * mels
    chunk_count = -(-max_steps // CHUNK_STEPS)

    # One pass: pre-net, query, attention, output. Each state is [batch, …] and float32.
    def step(index: Tensor, ended: Tensor, frames: Tensor, chunk: Tensor, chunks: Tensor, *states: Tensor) -> Any:
        frame, context, previous, cumulative, *core_states = states
        layer_masks = (
            None if masks is None else split_columns(ops.slice(masks, (index, 0), (1, masks.shape[1])), prenet_cuts)
        )

        # Pre-net of the last frame [batch, units]; the context is multiplied by its matrix already.
        x = core.hoist(decoder.apply_prenet(ops.cast(frame, dtype), layer_masks), weights)
        query, query_states = core.query(x, context, tuple(core_states[:query_states_count]), None, weights)

        # Attention weights [batch, symbols], and the contexts for each matrix that reads one.
        alignment = decoder.attention.weigh(query, keys, real, previous, cumulative, kernels)
        context, *context_parts = split_columns(attend(alignment, folded_memory), context_cuts)
        output = query
        deep_states: States = ()
        if len(context_parts) > 1:
            output, deep_states = core.deepen(
                query, context_parts[0], tuple(core_states[query_states_count:]), None, weights
            )

        # [batch, reduction · (mels + 1)]: frames, then stop logits.
        projected = ops.cast(ops.matmul(ops.cast(output, dtype), output_kernel) + context_parts[-1], "float32") + bias
        stopped, real_frames = _find_stops(projected[:, frame_columns:])

        # Collects steps in a small tensor, and copies the large one only when the small one is full.
        chunk = ops.where(
            _index_mask(index % CHUNK_STEPS, CHUNK_STEPS, 3),
            ops.expand_dims(ops.concatenate([projected, alignment], axis=-1), 1),
            chunk,
        )
        full = ops.equal(index % CHUNK_STEPS, CHUNK_STEPS - 1)
        chunks = ops.cond(full, lambda: _insert_chunk(chunks, chunk, index), lambda: chunks)

        # A row that has ended still runs with the others; its frames are not counted.
        frames = frames + ops.where(ended, 0, real_frames)
        state = (
            projected[:, frame_columns - mels : frame_columns],
            context,
            alignment,
            cumulative + alignment,
            *query_states,
            *deep_states,
        )

        return index + 1, ended | stopped, frames, chunk, chunks, *state

    # The loop's variables: index, ended, frames, chunk, chunks; then last frame, context, weights, core states.
    no_weights = ops.zeros((batch, symbols))
    state = (
        ops.zeros((), "int32"),
        ops.zeros((batch,), "bool"),
        ops.zeros((batch,), "int32"),
        ops.zeros((batch, CHUNK_STEPS, frame_columns + reduction + symbols)),
        ops.zeros((batch, chunk_count, CHUNK_STEPS, frame_columns + reduction + symbols)),
        *(ops.zeros((batch, mels)), ops.zeros((batch, context_kernels[0].shape[-1]), dtype), no_weights, no_weights),
        *core.start(batch),
    )

    def unfinished(index: Tensor, ended: Tensor, *_: Tensor) -> Tensor:
        return ops.logical_and(index < max_steps, ops.logical_not(ops.all(ended)))

    index, ended, frames, chunk, chunks, *_ = ops.while_loop(unfinished, step, state)

    # The loop copies full chunks only, so the last one may be missing.
    return _insert_chunk(chunks, chunk, index - 1), index, ended, frames


def _find_stops(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Reads stop logits [batch, reduction]: rows that end in this step, bool [batch], and their real frames, int32."""

    # argmax finds the first frame with a stop logit above the limit.
    stops = ops.cast(logits > STOP_LOGIT, "int32")
    stopped = ops.max(stops, axis=-1) > 0
    return stopped, ops.where(stopped, ops.cast(ops.argmax(stops, axis=-1), "int32") + 1, logits.shape[-1])


def _insert_chunk(chunks: Tensor, chunk: Tensor, index: Tensor) -> Tensor:
    """Replaces the chunk that holds step `index` in chunks [batch, chunks, CHUNK_STEPS, …]."""
    return ops.where(_index_mask(index // CHUNK_STEPS, chunks.shape[1], 4), ops.expand_dims(chunk, 1), chunks)


def _index_mask(index: Tensor, size: int, rank: int) -> Tensor:
    """True at `index` of axis 1, broadcastable over the other axes."""
    return ops.reshape(ops.equal(ops.arange(size), index), (1, size, *([1] * (rank - 2))))


TEACHER_FORCING_NOISE = 400
DROPPED_FRAMES_NOISE = 500
"""Streams of random numbers, see `StepSeed`."""


# Training: the frames are known, so most of the work is done for all steps at once.
def decode_teacher_forced(
    decoder: Decoder,
    memory: Tensor,
    counts: Tensor,
    frames: Tensor,
    *,
    reduction: int,
    training: bool,
    noise: Tensor | None,
    teacher_forcing: Tensor | None,
) -> DecoderOutput:
    """Feeds the decoder the recorded frames [batch, steps · reduction, mels]; see `TacotronBase.call`."""
    dtype = decoder.compute_dtype
    mels = decoder.mels
    dropout_rate = decoder.settings.dropped_frames
    memory = ops.cast(memory, dtype)

    # A step is fed the last frame of the step before, and the first one zeros: [batch, steps, mels].
    batch = ops.shape(memory)[0]
    steps = ops.shape(frames)[1] // reduction
    fed = ops.reshape(frames, (batch, steps, reduction, mels))[:, :-1, -1]
    fed = ops.cast(ops.pad(fed, [(0, 0), (1, 0), (0, 0)]), dtype)
    if training and noise is not None and dropout_rate:
        # Zero is the mean of normalized frames (Liu et al. 2019).
        uniform = keras.random.uniform((batch, steps, 1), seed=StepSeed(noise, DROPPED_FRAMES_NOISE))
        fed = ops.where(uniform >= dropout_rate, fed, ops.zeros((), dtype))

    # Dropout of the pre-net and of the core, for all steps.
    layer_masks = decoder.prenet_masks(batch if training else 1, steps, noise, training)
    perturb = decoder.core.perturb(batch, steps, noise) if training and noise is not None else (None, None)
    text = EncodedText(memory, decoder.attention.keys(memory), length_mask(counts, ops.shape(memory)[1]))
    if teacher_forcing is None or noise is None:
        prenet = decoder.apply_prenet(fed, layer_masks)
        return _decode_all_recorded(decoder, text, prenet, perturb, reduction, training)

    # Scheduled sampling (Bengio et al. 2015): each step draws whether it is fed the recorded frame.
    uniform = keras.random.uniform((batch, steps, 1), seed=StepSeed(noise, TEACHER_FORCING_NOISE))
    share = ops.reshape(ops.broadcast_to(ops.cast(teacher_forcing, "float32"), (batch,)), (batch, 1, 1))

    return _decode_mixed(decoder, text, fed, uniform < share, layer_masks, perturb, reduction)


def _decode_all_recorded(
    decoder: Decoder, text: EncodedText, prenet: Tensor, perturb: Any, reduction: int, training: bool
) -> DecoderOutput:
    core = decoder.core
    dtype = decoder.compute_dtype
    weights = core.cast_weights()
    kernels = decoder.attention.kernels()
    context_kernel = LoopKernel(core.context_kernels()[0], training)

    # [batch, steps, gates]: the pre-net's part of the query network, outside the loop.
    x = core.hoist(prenet, weights)
    weights = core.loop_weights(weights, training)
    state_kernels = [weight for weight in weights[0] if isinstance(weight, LoopKernel)]
    loop_input = LoopInput(x, [context_kernel, *state_kernels])
    width = x.shape[-1]
    query_units = core.query_units

    def step(inputs: Tensor, states: States) -> tuple[Tensor, States]:
        terms, *masks = split_columns(inputs, [] if perturb[0] is None else [width])
        x = ops.cast(terms, dtype)
        mask = masks[0] if masks else None
        context, previous, cumulative, *core_states = states

        # Only what feeds back stays in the loop: query and attention.
        context_part = context_kernel.multiply(ops.cast(context, dtype))
        query, query_states = core.query(x, context_part, tuple(core_states), mask, weights)
        alignment = decoder.attention.weigh(query, text.keys, text.real, previous, cumulative, kernels)
        context = ops.cast(attend(alignment, text.memory), "float32")
        step_output = ops.concatenate([ops.cast(query, "float32"), alignment], axis=-1)
        return step_output, (context, alignment, cumulative + alignment, *query_states)

    # A loop has one tensor of inputs, so masks travel behind x, [batch, steps, gates + mask units].
    inputs = loop_input.terms
    if perturb[0] is not None:
        inputs = ops.concatenate([inputs, ops.cast(perturb[0], x.dtype)], axis=-1)
    start_states = core.start(ops.shape(text.memory)[0])[: core.query_states]
    outputs = run_loop(step, inputs, (*_initial_attention(text), *start_states))

    # Contexts [batch, steps, memory units] of all steps in one product.
    query = outputs[..., :query_units]
    alignment = outputs[..., query_units:]
    context = ops.matmul(ops.cast(alignment, dtype), text.memory)
    query = ops.cast(query, dtype)
    loop_input.record([before_each(values) for values in (context, *[query] * len(state_kernels))])
    output = core.deepen_all(query, context, perturb[1], weights, training)

    # [batch, steps, reduction · (mels + 1)]
    kernel, bias = decoder.projection(reduction)
    joined = ops.concatenate([ops.cast(output, "float32"), ops.cast(context, "float32")], axis=-1)

    return decoder.split_output(ops.matmul(joined, kernel) + bias, alignment, reduction)


def _decode_mixed(
    decoder: Decoder, text: EncodedText, fed: Tensor, recorded: Tensor, layer_masks: Any, perturb: Any, reduction: int
) -> DecoderOutput:
    """Feeds the recorded frame, or where `recorded` is false the decoder's own last one."""
    batch = ops.shape(fed)[0]
    steps = ops.shape(fed)[1]
    dtype = decoder.compute_dtype
    mels = decoder.mels
    matrices = DecoderWeights.of(decoder, reduction)

    # A loop has one tensor of inputs: which frame to feed, the recorded one, the masks of pre-net and core.
    pieces = [ops.cast(recorded, "float32"), ops.cast(fed, "float32")]
    pieces += [
        ops.broadcast_to(ops.cast(mask, "float32"), (batch, steps, mask.shape[-1])) for mask in layer_masks or ()
    ]
    pieces += [ops.cast(mask, "float32") for mask in perturb if mask is not None]
    cuts = np.cumsum([piece.shape[-1] for piece in pieces])[:-1].tolist()

    # The columns of a step's last frame, which the next step may be fed.
    last = (reduction - 1) * mels

    def step(inputs: Tensor, states: States) -> tuple[Tensor, States]:
        own_frame, *state = states

        # [batch, 1], [batch, mels], then masks [batch, units].
        is_recorded, recorded_frame, *mask_parts = split_columns(inputs, cuts)
        mask_parts = [ops.cast(mask, dtype) for mask in mask_parts]
        masks, mask_parts = (
            (mask_parts[: len(layer_masks)], mask_parts[len(layer_masks) :]) if layer_masks else (None, mask_parts)
        )
        frame = ops.where(is_recorded > 0, recorded_frame, own_frame)
        core_masks = (*mask_parts, None, None)[:2]

        # next_state[1] is the weights of the attention.
        projected, next_state = decode_step(decoder, matrices, text, frame, masks, tuple(state), core_masks)
        return ops.concatenate([projected, next_state[1]], axis=-1), (projected[:, last : last + mels], *next_state)

    start = (ops.zeros((batch, mels)), *_initial_attention(text), *decoder.core.start(batch))
    outputs = run_loop(step, ops.concatenate(pieces, axis=-1), start)
    output_columns = reduction * (mels + 1)

    return decoder.split_output(outputs[..., :output_columns], outputs[..., output_columns:], reduction)


def _initial_attention(text: EncodedText) -> States:
    """Zero context and zero attention weights."""
    batch = ops.shape(text.memory)[0]
    symbols = ops.shape(text.memory)[1]
    return ops.zeros((batch, text.memory.shape[-1])), ops.zeros((batch, symbols)), ops.zeros((batch, symbols))

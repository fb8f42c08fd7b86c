"""The autoregressive decoder of both Tacotrons: fed with recorded frames, with its own, or with some of each.

What it costs is the loop: everything that does not need the step before is done outside, for all steps at once.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers, ops

from components.train.models.attention import LocationSensitiveAttention
from components.train.models.decoder_core import Core, States, run_loop
from components.train.models.normalisation import StepSeed
from components.train.models.spoken import real
from components.train.synthesis.model_settings import DecoderSettings

Tensor = Any
PRENET_PLACE, TEACHER_PLACE, DROPPED_PLACE = 100, 400, 500
CHUNK = 32
"""Steps that a free-running loop gathers before it appends them to what it has: appending copies all of it."""
STOP = 0.0
"""Logit above which a frame is the last: a probability of one half."""


class Decoded(NamedTuple):
    """Frames [batch, steps · reduction, mels], stop logits [batch, steps · reduction], alignment [batch, steps, n]."""

    frames: Tensor
    stop: Tensor
    alignment: Tensor


class Text(NamedTuple):
    """What the loop reads of the text: encoding (or what is folded of it), keys, which symbols are real."""

    memory: Tensor
    keys: Tensor
    real: Tensor


class Decoder(layers.Layer):  # type: ignore[misc]
    """Pre-net, attention, a core of recurrent layers, projection to frames and stop logits."""

    def __init__(
        self, settings: DecoderSettings, core: Core, memory_units: int, mels: int, *, seed: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.settings, self.core, self.mels, self.memory_units = settings, core, mels, memory_units
        seeds = iter(np.random.SeedSequence([seed, 3]).generate_state(8).tolist())
        glorot = keras.initializers.GlorotUniform
        self.prenet, width = [], mels
        for units in settings.prenet:
            shape = (width, units)
            kernel = self.add_weight(shape=shape, initializer=glorot(next(seeds)), name=f"prenet_{len(self.prenet)}")
            bias = self.add_weight(shape=(units,), initializer="zeros", name=f"prenet_bias_{len(self.prenet)}")
            self.prenet.append((kernel, bias))
            width = units
        self.attention = LocationSensitiveAttention(
            settings.attention, core.query_units, memory_units, seed=next(seeds), dtype=self.dtype_policy
        )
        most, out = settings.reduction, core.output_units
        wide = out + memory_units
        self.frame_kernel = self.add_weight(shape=(wide, most * mels), initializer=glorot(next(seeds)), name="frames")
        self.frame_bias = self.add_weight(shape=(most * mels,), initializer="zeros", name="frames_bias")
        self.stop_kernel = self.add_weight(shape=(wide, most), initializer=glorot(next(seeds)), name="stop")
        self.stop_bias = self.add_weight(shape=(most,), initializer="zeros", name="stop_bias")
        self.built = True

    def call(
        self,
        memory: Tensor,
        counts: Tensor,
        frames: Tensor,
        reduction: int,
        training: bool = False,
        noise: Tensor = None,
        teacher: Tensor = None,
    ) -> Decoded:
        """Decodes with the recorded frames [batch, steps · reduction, mels] before it."""
        batch, steps = ops.shape(memory)[0], ops.shape(frames)[1] // reduction
        fed = ops.reshape(frames, (batch, steps, reduction, self.mels))[:, :-1, -1]
        fed = ops.cast(ops.pad(fed, [(0, 0), (1, 0), (0, 0)]), self.compute_dtype)
        if training and noise is not None and self.settings.dropped_frames:
            kept = keras.random.uniform((batch, steps, 1), seed=StepSeed(noise, DROPPED_PLACE))
            fed = ops.where(kept >= self.settings.dropped_frames, fed, ops.zeros((), fed.dtype))
        drawn = self._prenet_masks(batch if training else 1, steps, noise, training)
        perturb = self.core.perturb(batch, steps, noise) if training and noise is not None else (None, None)
        text = Text(memory, self.attention.keys(memory), real(counts, ops.shape(memory)[1]))
        if teacher is not None:
            return self._mixed(text, fed, drawn, perturb, reduction, noise, teacher)
        x = self.core.hoist(self._prenet(fed, drawn))
        return self._forced(text, x, perturb, reduction)

    def _forced(self, text: Text, x: Tensor, perturb: Any, reduction: int) -> Decoded:
        weights, kernels = self.core.prepared(), self.attention.kernels()
        context_kernel = self.core.context_kernels()[0]
        batch, width = ops.shape(text.memory)[0], x.shape[-1]
        queries = self.core.query_units

        def step(inputs: Tensor, states: States) -> tuple[Tensor, States]:
            x = ops.cast(inputs[:, :width], self.compute_dtype)
            mask = inputs[:, width:] if perturb[0] is not None else None
            context, previous, cumulative, *inner = states
            part = ops.matmul(ops.cast(context, self.compute_dtype), context_kernel)
            query, inner = self.core.query(x, part, tuple(inner), mask, weights)
            now = self.attention.weigh(query, text.keys, text.real, previous, cumulative, kernels)
            context = ops.cast(_read(now, text.memory), "float32")
            out = ops.concatenate([ops.cast(query, "float32"), now], axis=-1)
            return out, (context, now, cumulative + now, *inner)

        inputs = x if perturb[0] is None else ops.concatenate([x, ops.cast(perturb[0], x.dtype)], axis=-1)
        found = run_loop(step, inputs, (*self._start(text), *self.core.start(batch)[: self.core.query_states]))
        query, alignment = found[..., :queries], found[..., queries:]
        context = ops.matmul(ops.cast(alignment, self.compute_dtype), text.memory)
        output = self.core.deepen_all(ops.cast(query, self.compute_dtype), context, perturb[1], weights)
        return Decoded(
            *self._project(ops.concatenate([ops.cast(output, context.dtype), context], axis=-1), reduction), alignment
        )

    def _mixed(
        self, text: Text, fed: Tensor, drawn: Any, perturb: Any, reduction: int, noise: Tensor, teacher: Tensor
    ) -> Decoded:
        """Each step is fed the recorded frame with probability `teacher`, else the decoder's own last one."""
        batch, steps = ops.shape(fed)[0], ops.shape(fed)[1]
        chance = keras.random.uniform((batch, steps, 1), seed=StepSeed(noise, TEACHER_PLACE))
        share = ops.reshape(ops.broadcast_to(ops.cast(teacher, "float32"), (batch,)), (batch, 1, 1))
        pieces = [ops.cast(chance < share, "float32"), ops.cast(fed, "float32")]
        pieces += [ops.broadcast_to(ops.cast(one, "float32"), (batch, steps, one.shape[-1])) for one in drawn or ()]
        pieces += [ops.cast(one, "float32") for one in perturb if one is not None]
        cuts = np.cumsum([piece.shape[-1] for piece in pieces])[:-1].tolist()
        weights, kernels, made_by = self.core.prepared(), self.attention.kernels(), self._projection(reduction)
        parts = self.core.context_kernels()
        last = (reduction - 1) * self.mels

        def step(inputs: Tensor, states: States) -> tuple[Tensor, States]:
            own, context, previous, cumulative, *inner = states
            chosen, truth, *rest = _cut(inputs, cuts)
            rest = [ops.cast(one, self.compute_dtype) for one in rest]
            masks, rest = (rest[: len(drawn)], rest[len(drawn) :]) if drawn else (None, rest)
            frame = ops.cast(ops.where(chosen > 0, truth, own), self.compute_dtype)
            x = self.core.hoist(self._prenet(frame, masks))
            first, second = self.core.query_states, self.core.start(1)[self.core.query_states :]
            part = ops.matmul(ops.cast(context, self.compute_dtype), parts[0])
            query, asked = self.core.query(x, part, tuple(inner[:first]), rest[0] if rest else None, weights)
            now = self.attention.weigh(query, text.keys, text.real, previous, cumulative, kernels)
            context = _read(now, text.memory)
            output, deep = query, ()
            if second:
                part = ops.matmul(context, parts[1])
                output, deep = self.core.deepen(query, part, tuple(inner[first:]), rest[1] if rest else None, weights)
            joined = ops.cast(ops.concatenate([ops.cast(output, context.dtype), context], axis=-1), "float32")
            made = ops.matmul(joined, made_by[0]) + made_by[1]
            out = ops.concatenate([made, now], axis=-1)
            own = made[:, last : last + self.mels]
            return out, (own, ops.cast(context, "float32"), now, cumulative + now, *asked, *deep)

        start = (ops.zeros((batch, self.mels)), *self._start(text), *self.core.start(batch))
        found = run_loop(step, ops.concatenate(pieces, axis=-1), start)
        made, alignment = found[..., : reduction * (self.mels + 1)], found[..., reduction * (self.mels + 1) :]
        return Decoded(*self._unfolded(made, reduction), alignment)

    def speak(
        self, memory: Tensor, counts: Tensor, reduction: int, max_steps: int, noise: Tensor
    ) -> tuple[Decoded, Tensor, Tensor]:
        """Decodes alone: frames and alignment, how many frames are real [batch], which rows were cut [batch].

        A context is a sum of symbols and every matrix that reads one is linear, so that the text goes through those
        matrices once, before the loop: a step then reads as many rows of them as there are symbols.
        """
        batch, symbols = ops.shape(memory)[0], ops.shape(memory)[1]
        weights, kernels, (project, bias) = self.core.prepared(), self.attention.kernels(), self._projection(reduction)
        parts = [*self.core.context_kernels(), ops.cast(project[self.core.output_units :], self.compute_dtype)]
        project = ops.cast(project[: self.core.output_units], self.compute_dtype)
        cuts = np.cumsum([part.shape[-1] for part in parts])[:-1].tolist()
        keys, inside = self.attention.keys(memory), real(counts, symbols)
        folded = ops.matmul(memory, ops.concatenate(parts, axis=1))
        drawn = self._prenet_masks(1, max_steps, noise, False)
        masks = None if drawn is None else ops.concatenate(drawn, axis=-1)[0]
        units = np.cumsum(self.settings.prenet)[:-1].tolist()
        queries, wide = self.core.query_states, reduction * (self.mels + 1)

        def step(index: Tensor, ended: Tensor, frames: Tensor, chunk: Tensor, made: Tensor, *states: Tensor) -> Any:
            own, context, previous, cumulative, *inner = states
            masked = None if masks is None else _cut(ops.slice(masks, (index, 0), (1, masks.shape[1])), units)
            x = self.core.hoist(self._prenet(ops.cast(own, self.compute_dtype), masked))
            query, asked = self.core.query(x, context, tuple(inner[:queries]), None, weights)
            now = self.attention.weigh(query, keys, inside, previous, cumulative, kernels)
            context, *others = _cut(_read(now, folded), cuts)
            output, deep = query, ()
            if len(others) > 1:
                output, deep = self.core.deepen(query, others[0], tuple(inner[queries:]), None, weights)
            new = ops.cast(ops.matmul(ops.cast(output, self.compute_dtype), project) + others[-1], "float32") + bias
            own = new[:, (reduction - 1) * self.mels : reduction * self.mels]
            stops = ops.cast(new[:, reduction * self.mels :] > STOP, "int32")
            first = ops.argmax(stops, axis=-1)
            stopped = ops.max(stops, axis=-1) > 0
            more = ops.where(stopped, ops.cast(first, "int32") + 1, reduction)
            frames = frames + ops.where(ended, 0, more)
            out = ops.concatenate([new, now], axis=-1)
            here = ops.reshape(ops.equal(ops.arange(CHUNK), index % CHUNK), (1, CHUNK, 1))
            chunk = ops.where(here, ops.expand_dims(out, 1), chunk)
            made = ops.cond(
                ops.equal(index % CHUNK, CHUNK - 1), lambda: ops.concatenate([made, chunk], axis=1), lambda: made
            )
            return index + 1, ended | stopped, frames, chunk, made, own, context, now, cumulative + now, *asked, *deep

        zero = ops.zeros((), "int32")
        context = ops.zeros((batch, parts[0].shape[-1]), self.compute_dtype)
        nothing = ops.zeros((batch, symbols))
        chunk = ops.zeros((batch, CHUNK, wide + symbols))
        state = (
            zero,
            ops.zeros((batch,), "bool"),
            ops.zeros((batch,), "int32"),
            chunk,
            chunk[:, : counts[0] * 0],  # nothing yet, of a length that the loop may change
            ops.zeros((batch, self.mels)),
            context,
            nothing,
            nothing,
            *self.core.start(batch),
        )
        index, ended, frames, chunk, made, *_ = ops.while_loop(
            lambda index, ended, *_: ops.logical_and(index < max_steps, ops.logical_not(ops.all(ended))), step, state
        )
        found = ops.concatenate([made, chunk], axis=1)[:, :index]
        decoded = Decoded(*self._unfolded(found[..., :wide], reduction), found[..., wide:])
        return decoded, frames, ops.logical_not(ended)

    def _start(self, text: Text) -> States:
        batch, symbols = ops.shape(text.memory)[0], ops.shape(text.memory)[1]
        nothing = ops.zeros((batch, symbols))
        return ops.zeros((batch, self.memory_units)), nothing, nothing

    def _prenet_masks(self, rows: Tensor, steps: Tensor, noise: Tensor, training: bool) -> list[Tensor] | None:
        """Dropout of the pre-net, [rows, steps, units]; the same for all rows where a voice speaks."""
        rate = self.settings.prenet_dropout
        if noise is None or not rate or not (training or self.settings.prenet_dropout_stays):
            return None
        drawn = []
        for index, (kernel, _) in enumerate(self.prenet):
            chance = keras.random.uniform((rows, steps, kernel.shape[1]), seed=StepSeed(noise, PRENET_PLACE + index))
            drawn.append(ops.cast(chance >= rate, self.compute_dtype) / (1 - rate))
        return drawn

    def _prenet(self, x: Tensor, masks: list[Tensor] | None) -> Tensor:
        for index, (kernel, bias) in enumerate(self.prenet):
            x = ops.relu(ops.matmul(x, ops.cast(kernel, x.dtype)) + ops.cast(bias, x.dtype))
            x = x if masks is None else x * masks[index]
        return x

    def _projection(self, reduction: int) -> tuple[Tensor, Tensor]:
        """One matrix for frames and stop logits of so many frames, and its bias."""
        wide = reduction * self.mels
        kernel = ops.concatenate([self.frame_kernel[:, :wide], self.stop_kernel[:, :reduction]], axis=1)
        bias = ops.concatenate([self.frame_bias[:wide], self.stop_bias[:reduction]], axis=0)
        return ops.cast(kernel, "float32"), ops.cast(bias, "float32")

    def _project(self, joined: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
        kernel, bias = self._projection(reduction)
        return self._unfolded(ops.matmul(ops.cast(joined, "float32"), kernel) + bias, reduction)

    def _unfolded(self, made: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
        batch, wide = ops.shape(made)[0], reduction * self.mels
        frames = ops.reshape(made[..., :wide], (batch, -1, self.mels))
        return frames, ops.reshape(made[..., wide:], (batch, -1))


def _read(weights: Tensor, memory: Tensor) -> Tensor:
    """What weights [batch, symbols] take from [batch, symbols, width]: [batch, width]."""
    return ops.squeeze(ops.matmul(ops.expand_dims(ops.cast(weights, memory.dtype), 1), memory), 1)


def _cut(x: Tensor, places: list[int]) -> list[Tensor]:
    """Pieces of the last axis, cut at `places`; with none, the whole."""
    return [x[..., begin:end] for begin, end in zip([0, *places], [*places, x.shape[-1]], strict=True)]

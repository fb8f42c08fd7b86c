"""Beam search over the tokens of a decoder, in the graph: for the exported model and for validation.

All beams of all utterances are rows of one batch; their keys and values so far are kept. An ended text keeps its place
among the beams, and its probability. Nothing falls back to other decodings, such as sampling at higher temperatures: a
model that repeats itself does so up to the longest text.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from voxline.text.whisper_tokenizer import SearchRules
from voxline.training.layers import Tensor


def search_tokens(
    decoder: Any, encoded: Tensor, mask: Tensor, rules: SearchRules, beams: Tensor | int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """The most probable texts.

    Args:
      decoder: a `WhisperDecoder`.
      encoded: [batch, frames, units], of its encoder.
      mask: bool [batch, 1, 1, frames], the real frames.
      beams: texts of each utterance that are followed; 1 is greedy decoding.

    Returns:
      tokens int32 [batch, beams, tokens], the best text first, filled with end tokens; float32 [batch, beams], the
      mean log probability of the tokens of each, the end token included, by which they are ordered; and int32 [batch,
      beams], how many these are.
    """
    rows = tf.shape(encoded)[0]
    vocabulary = len(rules.penalties)
    longest = decoder.settings.token_positions - len(rules.prompt)
    greedy = isinstance(beams, int) and beams == 1

    # An ended text has one continuation, at no cost: [vocabulary].
    after_end = np.full(vocabulary, -np.inf, np.float32)
    after_end[rules.end] = 0

    def extend(
        logits: Tensor, penalties: Any, tokens: Tensor, totals: Tensor, ended: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The best continuations of all beams: tokens, totals and ends of the new ones, and the beams before them."""
        # [batch · beams, vocabulary] → [batch, beams · vocabulary]
        following = tf.reshape(tf.nn.log_softmax(logits + penalties), [rows, beams, vocabulary])
        following = tf.where(ended[:, :, None], after_end, following)
        candidates = tf.reshape(totals[:, :, None] + following, [rows, beams * vocabulary])
        totals, places = tf.math.top_k(candidates, beams)

        # [batch, beams]
        source = places // vocabulary
        token = places % vocabulary
        tokens = tf.concat([tf.gather(tokens, source, batch_dims=1), token[:, :, None]], axis=2)
        return tokens, totals, token == rules.end, source

    def of_beams(values: Tensor, source: Tensor) -> Tensor:
        """Rows [batch · beams, …] of the beams that were continued."""
        if greedy:
            return values
        return tf.gather(values, tf.reshape(tf.range(rows)[:, None] * beams + source, [-1]))

    # All beams begin as one: only the first one of an utterance counts.
    memories = [
        (tf.repeat(keys, beams, axis=0), tf.repeat(values, beams, axis=0))
        for keys, values in decoder.memories_of(encoded)
    ]
    memory_mask = tf.repeat(mask, beams, axis=0)
    prompt = tf.tile(tf.constant([rules.prompt], tf.int32), [rows * beams, 1])
    logits, cache = decoder.step(prompt, decoder.empty_cache(rows * beams), memories, memory_mask)
    begun = tf.tile(tf.where(tf.range(beams) == 0, 0.0, -math.inf)[None], [rows, 1])
    tokens, totals, ended, source = extend(
        logits[:, -1],
        rules.first_penalties,
        tf.zeros([rows, beams, 0], tf.int32),
        begun,
        tf.zeros([rows, beams], tf.bool),
    )
    cache = tf.nest.map_structure(lambda values: of_beams(values, source), cache)

    def goes_on(tokens: Tensor, totals: Tensor, ended: Tensor, cache: Any) -> Tensor:
        return tf.logical_and(tf.shape(tokens)[2] < longest, tf.logical_not(tf.reduce_all(ended)))

    def step(tokens: Tensor, totals: Tensor, ended: Tensor, cache: Any) -> Any:
        last = tf.reshape(tokens[:, :, -1:], [-1, 1])
        logits, cache = decoder.step(last, cache, memories, memory_mask)
        tokens, totals, ended, source = extend(logits[:, -1], rules.penalties, tokens, totals, ended)
        return tokens, totals, ended, tf.nest.map_structure(lambda values: of_beams(values, source), cache)

    several = tf.TensorShape([None, None])
    head = tf.TensorShape([None, None, *cache[0][0].shape[2:]])
    tokens, totals, ended, _ = tf.while_loop(
        goes_on,
        step,
        (tokens, totals, ended, cache),
        shape_invariants=(
            tf.TensorShape([None, None, None]),
            several,
            several,
            [(head, head) for _ in cache],
        ),
    )

    # The first end token counts, those after it do not.
    lengths = tf.reduce_sum(tf.cast(tokens != rules.end, tf.int32), axis=2) + tf.cast(ended, tf.int32)
    scores = totals / tf.cast(tf.maximum(lengths, 1), tf.float32)
    order = tf.math.top_k(scores, beams).indices
    tokens, scores, lengths = (tf.gather(values, order, batch_dims=1) for values in (tokens, scores, lengths))
    return tokens, scores, lengths


def align_tokens(decoder: Any, tokens: Tensor, encoded: Tensor, rules: SearchRules) -> tuple[Tensor, Tensor]:
    """The probabilities of the tokens of a text, and what they attend to.

    Args:
      decoder: a `WhisperDecoder`.
      tokens: int32 [batch, tokens], of `search_tokens`.
      encoded: [batch, frames, units], of its encoder, all frames real.

    Returns:
      log probabilities float32 [batch, tokens]; and of the alignment heads scores before their softmax, float32 [batch,
      heads, prompt + tokens, frames].
    """
    rows = tf.shape(tokens)[0]
    first = len(rules.prompt) - 1
    prompt = tf.tile(tf.constant([rules.prompt], tf.int32), [rows, 1])
    logits, attention = decoder.align(tf.concat([prompt, tokens], axis=1), encoded)

    # Each is predicted by the one before: [batch, tokens, vocabulary] → [batch, tokens]
    logits = logits[:, first:-1]
    start = tf.cast(tf.range(tf.shape(tokens)[1]) == 0, tf.float32)[None, :, None]
    penalties = tf.where(start > 0, rules.first_penalties, rules.penalties)
    log_probabilities = tf.nn.log_softmax(logits + penalties)
    return tf.gather(log_probabilities, tokens, batch_dims=2), attention

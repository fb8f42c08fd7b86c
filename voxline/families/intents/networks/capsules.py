"""A classifier of texts: recurrent layers of units that see their own past alone, and capsules that vote.

The layers are IndyLSTM (Gonnet and Deselaers 2019, "IndyLSTMs: Independently Recurrent LSTMs", arXiv 1903.08023), the
pooling is dynamic routing (Sabour et al. 2017, "Dynamic Routing Between Capsules", arXiv 1710.09829). Mean pooling in
its place makes the baseline. Padding changes nothing: the layers run forward, and the pooling leaves it out.
"""

from typing import Any, Literal

import keras
import numpy as np
from keras import layers, ops

from voxline.families.intents.networks.settings import IntentsModelSettings
from voxline.training.layers import Composite, Tensor, dropout, length_mask

Pooling = Literal["capsules", "mean"]
GATES = 4


class IndyLstmCell(layers.Layer):  # type: ignore[misc]
    """One step of an IndyLSTM, after the input's projection.

    With x the projection, split into four, and u, b a vector for each gate:

      i, j, f, o = x + u ∘ h + b
      c' = σ(f + 1) ∘ c + σ(i) ∘ tanh(j)
      h' = σ(o) ∘ tanh(c')

    An LSTM has a matrix in place of u: its units see each other, by n weights where these have one.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.output_size = units
        self.state_size = [units, units]

    def build(self, shape: Any) -> None:
        self.recurrent = self.add_weight(shape=(GATES * self.units,), initializer="ones", name="recurrent")
        self.bias = self.add_weight(shape=(GATES * self.units,), initializer="zeros", name="bias")

    def call(self, inputs: Tensor, states: list[Tensor], training: bool = False) -> tuple[Tensor, list[Tensor]]:
        """inputs float [batch, 4 · units], states h and c [batch, units] each → h', [h', c']."""
        h, c = states

        # [batch, 4 · units], then [batch, units] each.
        gates = inputs + ops.tile(h, [1, GATES]) * ops.cast(self.recurrent, h.dtype) + ops.cast(self.bias, h.dtype)
        i, j, f, o = ops.split(gates, GATES, axis=-1)
        c = ops.sigmoid(f + 1.0) * c + ops.sigmoid(i) * ops.tanh(j)
        h = ops.sigmoid(o) * ops.tanh(c)
        return h, [h, c]


def squash(vectors: Tensor) -> Tensor:
    """Vectors of the same direction and a length below 1: |v|² / (1 + |v|²) · v / |v|; [..., size]."""
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    return vectors * squares / (1.0 + squares) * ops.rsqrt(squares + 1e-9)


def route(votes: Tensor, mask: Tensor, rounds: int) -> Tensor:
    """Dynamic routing by agreement.

    Each position divides one vote among the capsules, at first equally; then a capsule gets the more of it, the better
    the position's vector agrees with the capsule's.

    Args:
      votes: [batch, length, capsules, size], the vector of each position for each capsule.
      mask: bool [batch, length], false at padding, which has no vote.
      rounds: of routing.

    Returns:
      The capsules [batch, capsules, size], of lengths below 1.
    """

    # [batch, length, 1]; the logits b of the paper's procedure 1, [batch, length, capsules].
    real = ops.cast(ops.expand_dims(mask, -1), votes.dtype)
    agreement = ops.zeros_like(votes[..., 0])
    capsules: Any = None
    for _ in range(rounds):
        # c = softmax(b), s = Σ c û, v = squash(s), b += û · v.
        shares = ops.softmax(agreement, axis=-1) * real
        capsules = squash(ops.einsum("btc,btcs->bcs", shares, votes))
        agreement = agreement + ops.einsum("btcs,bcs->btc", votes, capsules)

    return capsules


class SequenceEncoder(Composite, layers.Layer):  # type: ignore[misc]
    """A sequence of vectors becomes one vector: IndyLSTM layers, and capsules or a mean over the sequence.

    Args:
      stream: of the dropout's noise, one for each layer from here on.
    """

    def __init__(
        self, settings: IntentsModelSettings, pooling: Pooling, *, seeds: Any, stream: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        self.pooling = pooling
        self.stream = stream
        self.projections = [
            layers.Dense(GATES * units, use_bias=False, kernel_initializer=_glorot(seeds), dtype=self.dtype_policy)
            for units in settings.units
        ]
        self.recurrent = [
            layers.RNN(IndyLstmCell(units, dtype=self.dtype_policy), return_sequences=True, dtype=self.dtype_policy)
            for units in settings.units
        ]
        if pooling == "capsules":
            size = settings.capsules * settings.capsule_size
            self.votes = layers.Dense(size, use_bias=False, kernel_initializer=_glorot(seeds), dtype=self.dtype_policy)

    def call(self, x: Tensor, counts: Tensor, training: bool = False, noise: Tensor | None = None) -> Tensor:
        """x float [batch, length, size], counts int [batch] → float [batch, size of the pooled vector]."""
        for index, (project, layer) in enumerate(zip(self.projections, self.recurrent, strict=True)):
            # [batch, length, units]
            x = dropout(layer(project(x)), self.settings.dropout, training, noise, self.stream + index)

        # Padding comes after the words, and the layers run forward: only the pooling must leave it out.
        mask = length_mask(counts, ops.shape(x)[1])
        if self.pooling == "mean":
            real = ops.cast(ops.expand_dims(mask, -1), x.dtype)
            return ops.sum(x * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1.0)

        # [batch, length, capsules, size] → [batch, capsules · size]
        capsules = self.settings.capsules
        size = self.settings.capsule_size
        votes = ops.reshape(ops.cast(self.votes(x), "float32"), (-1, ops.shape(x)[1], capsules, size))

        return ops.reshape(route(votes, mask, self.settings.rounds), (-1, capsules * size))


class TextClassifier(Composite, keras.Model):  # type: ignore[misc]
    """Computes logits of classes from words.

    With `sentence_words` a text is read as sentences of so many words: an encoder turns each into a vector, and another
    one turns these vectors into one.

    Args:
      words: entries of the embedding; entry 0 is padding.

    >>> settings = IntentsModelSettings(embedding=8, units=(6, 4), capsules=2, capsule_size=3)
    >>> model = TextClassifier(settings, "capsules", words=20, classes=5)
    >>> model(np.array([[3, 4, 5], [7, 0, 0]]), np.array([3, 1])).shape
    TensorShape([2, 5])
    """

    def __init__(
        self,
        settings: IntentsModelSettings,
        pooling: Pooling,
        *,
        words: int,
        classes: int,
        seed: int = 1,
        precision: str = "float32",
    ) -> None:
        super().__init__(dtype=precision, name=f"text_classifier_{pooling}")
        self.settings = settings
        seeds = iter(np.random.SeedSequence(seed).generate_state(32).tolist())

        # Both encoders draw their weights from the same row of seeds.
        shared: dict[str, Any] = {"seeds": seeds, "dtype": precision}
        self.embedding = layers.Embedding(
            words,
            settings.embedding,
            embeddings_initializer=keras.initializers.RandomUniform(-0.05, 0.05, seed=next(seeds)),
            dtype=precision,
        )
        self.encoders = [SequenceEncoder(settings, pooling, stream=1, **shared)]
        if settings.sentence_words:
            self.encoders.append(SequenceEncoder(settings, pooling, stream=1 + len(settings.units), **shared))

        self.classifier = layers.Dense(classes, kernel_initializer=_glorot(seeds), dtype="float32")
        self(np.ones((1, 2), "int32"), np.array([2]))

    @property
    def normalizations(self) -> list[Any]:
        """None: no layer has moving statistics."""
        return []

    def call(self, words: Tensor, counts: Tensor, training: bool = False, noise: Tensor | None = None) -> Tensor:
        """Logits float32 [batch, classes] of words int32 [batch, length], of which `counts` [batch] are real."""
        counts = ops.cast(counts, "int32")
        if not self.settings.sentence_words:
            return self.classifier(self.encoders[0](self.embedding(words), counts, training=training, noise=noise))

        # Sentences as rows: [batch · sentences, sentence_words], the last one padded.
        size = self.settings.sentence_words
        rows = ops.shape(words)[0]
        length = ops.shape(words)[1]
        padding = ops.zeros((rows, (-length) % size), words.dtype)
        sentences = ops.reshape(ops.concatenate([words, padding], axis=1), (-1, size))

        # Real words of each sentence, [batch · sentences].
        number = (length + size - 1) // size
        before = size * ops.expand_dims(ops.arange(number, dtype="int32"), 0)
        real = ops.reshape(ops.clip(ops.expand_dims(counts, 1) - before, 0, size), (-1,))

        # [batch · sentences, units] → [batch, sentences, units] → [batch, units]
        vectors = self.encoders[0](self.embedding(sentences), real, training=training, noise=noise)
        vectors = ops.reshape(vectors, (rows, number, vectors.shape[-1]))

        return self.classifier(self.encoders[1](vectors, (counts + size - 1) // size, training=training, noise=noise))


def _glorot(seeds: Any) -> Any:
    return keras.initializers.GlorotUniform(next(seeds))

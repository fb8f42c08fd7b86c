"""CTC: the loss, on the fastest kernel of the backend, and greedy decoding.

Graves et al. 2006, "Connectionist temporal classification". The blank is the last class.
"""

import keras
from keras import ops

from voxline.training.layers import Tensor


def ctc_loss(logits: Tensor, frames: Tensor, labels: Tensor, counts: Tensor, *, compiled: bool = False) -> Tensor:
    """The negative log-likelihood of each row's labels, float32 [batch], in nats; of a row without labels, of blanks.

    Args:
      logits: [batch, frames, classes]; the last class is the blank.
      frames: int32 [batch], real frames. A row needs one for each label and for each pair of equal neighbors; with
        fewer, both kernels return a large finite loss, so such rows must be left out before.
      labels: int32 [batch, labels], with any padding.
      counts: int32 [batch], real labels.
      compiled: use operations that XLA compiles for static shapes, on a TPU too.

    On the TensorFlow backend `tf.nn.ctc_loss` with sparse labels is 6 to 20 times as fast as with dense ones, which
    `keras.ops.ctc_loss` uses. `keras.losses.CTC` takes no lengths, so it is wrong on padded rows.
    """
    logits = ops.cast(logits, "float32")
    blank = logits.shape[-1] - 1

    # TensorFlow's kernel refuses rows without labels: such a row is given one, and its loss is that of blanks alone.
    # [batch, frames]
    blanks = ops.log_softmax(logits)[..., blank]
    real = ops.arange(ops.shape(blanks)[1]) < ops.expand_dims(ops.cast(frames, "int32"), 1)
    silence = -ops.sum(ops.where(real, blanks, 0.0), axis=1)
    losses = _label_loss(logits, frames, labels, ops.maximum(counts, 1), blank, compiled=compiled)
    return ops.where(counts > 0, losses, silence)


def _label_loss(
    logits: Tensor, frames: Tensor, labels: Tensor, counts: Tensor, blank: int, *, compiled: bool
) -> Tensor:
    if keras.backend.backend() == "tensorflow" and not compiled:
        import tensorflow as tf

        # Sparse labels [batch, labels], without padding.
        positions = tf.where(tf.sequence_mask(counts, tf.shape(labels)[1]))
        shape = tf.shape(labels, out_type=tf.int64)
        sparse = tf.SparseTensor(positions, tf.gather_nd(tf.cast(labels, tf.int32), positions), shape)
        return tf.nn.ctc_loss(
            labels=sparse,
            logits=tf.transpose(logits, (1, 0, 2)),
            label_length=None,
            logit_length=tf.cast(frames, tf.int32),
            blank_index=blank,
        )

    return ops.ctc_loss(labels, logits, counts, frames, mask_index=blank)


def consistency_loss(first: Tensor, second: Tensor, frames: Tensor) -> Tensor:
    """Half the sum, over frames and both directions, of KL(target ‖ prediction) of two views' posteriors.

    L_CR of CR-CTC (Yao et al. 2024, equation 3). The target is held fixed, so that each view moves towards the other.

    Args:
      first, second: logits [batch, frames, classes] of the same frames.
      frames: int32 [batch], real frames.

    Returns:
      float32 [batch], in nats.

    >>> same = ops.convert_to_tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> consistency_loss(same, same, ops.convert_to_tensor([2])).numpy().tolist()
    [0.0]
    """
    views = [ops.log_softmax(ops.cast(logits, "float32")) for logits in (first, second)]

    def divergence(target: Tensor, prediction: Tensor) -> Tensor:
        # KL(target ‖ prediction) of each frame, [batch, frames].
        target = ops.stop_gradient(target)
        return ops.sum(ops.exp(target) * (target - prediction), axis=-1)

    # Both directions, over real frames.
    summed = divergence(views[1], views[0]) + divergence(views[0], views[1])
    real = ops.arange(ops.shape(summed)[1]) < ops.expand_dims(ops.cast(frames, "int32"), 1)

    return 0.5 * ops.sum(ops.where(real, summed, 0.0), axis=1)


def best_path(logits: Tensor, frames: Tensor) -> Tensor:
    """Greedy decoding: the best class of each frame, with repeats merged and blanks dropped.

    Returns:
      int32 [batch, frames]: a label where one is emitted, else -1.

    >>> logits = 5.0 * ops.one_hot(ops.convert_to_tensor([[0, 0, 2, 0, 1, 1]]), 3)
    >>> best_path(logits, ops.convert_to_tensor([5])).numpy().tolist()
    [[0, -1, -1, 0, 1, -1]]
    """

    # A label is emitted where the best class differs from that of the frame before, and is no blank.
    best = ops.cast(ops.argmax(logits, axis=-1), "int32")
    before = ops.pad(best[:, :-1], [(0, 0), (1, 0)], constant_values=-1)
    real = ops.arange(ops.shape(best)[1]) < ops.expand_dims(ops.cast(frames, "int32"), 1)
    emitted = ops.logical_and(ops.logical_and(best != before, best != logits.shape[-1] - 1), real)

    return ops.where(emitted, best, -1)

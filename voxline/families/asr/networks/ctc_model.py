"""What a network offers that is trained with CTC and exported."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from voxline.training.layers import Tensor


class CtcModel(Protocol):
    """Interface of a network that is trained with CTC and exported. A `keras.Model` has most of it.

    Its class takes the arguments of `__init__` below. Padding must not change a result: a row of a batch gives the same
    logits as the same utterance alone. Its call may use `keras.ops` only, so that it works in a graph and in the
    exported SavedModel.

    Attributes:
      trainable_variables, weights: Keras variables, in an order that depends on the settings alone: checkpoints name
        weights by their index.
      classifier: the output layer, a `keras.layers.Dense`; a warm start carries its weights symbol by symbol.
      normalizations: the layers with moving statistics, such as `training.layers.SequenceBatchNorm`; [] if there are
        none. A call with training=True must not change these statistics itself. It leaves those of the batch in
        `batch_statistics`, and the trainer moves `moving_mean` and `moving_variance` towards them with `momentum`,
        once it has accepted the step.
    """

    trainable_variables: list[Any]
    weights: list[Any]

    def __init__(
        self,
        settings: Any,
        *,
        mean: Sequence[float],
        deviation: Sequence[float],
        classes: int,
        seed: int,
        precision: str,
        portable: bool,
    ) -> None:
        """Builds all weights.

        Args:
          settings: the model's own class from `MODELS`.
          mean, deviation: of the features per bin, over the training split; the network normalizes by them.
          classes: symbols of the alphabet and the blank.
          seed: of the initial weights: the same seed, the same weights.
          precision: a Keras dtype policy, "float32", "mixed_bfloat16" or "mixed_float16".
          portable: True for the export: no cuDNN kernels, so that the graph runs on any machine.
        """

    @property
    def normalizations(self) -> Sequence[Any]: ...

    def count_params(self) -> int: ...

    def __call__(
        self, features: "Tensor", frames: "Tensor", training: bool = False, noise: "Tensor | None" = None
    ) -> "tuple[Tensor, Tensor]":
        """Computes logits.

        Args:
          features: float32 [batch, frames, bins], as extract wrote them; anything beyond a row's frames.
          frames: int32 [batch], real frames.
          training: normalize by the statistics of the batch, and apply dropout.
          noise: int32 [2], the seed of dropout: the same numbers drop the same activations, on any device and after
            any resume (`training.layers.StepSeed`). None: no dropout.

        Returns:
          logits float32 [batch, output frames, classes], the last class being the blank, and int32 [batch], the real
          output frames of each row: (frames + 2 * padding - window_frames) // time_stride + 1 of the settings, and at
          least 1.
        """

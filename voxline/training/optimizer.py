"""AdamW with a step that can be skipped inside the graph (Loshchilov and Hutter 2019, algorithm 2), and its schedule.

Keras's AdamW cannot skip: it counts the step and decays weights and moments whatever the gradient is, and on several
devices it must be called where conditions are not allowed. This one takes a flag, and changes nothing when it is false.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from voxline.training.layers import Tensor
from voxline.training.settings import TrainSettings


class AdamW:
    """The moments of variables, and the update. Create it inside `strategy.scope()`.

    Args:
      variables: Keras variables, in the order of gradients and of `state`. Only those with two or more dimensions
        (kernels) decay, not biases and scales.
      rates: the factor of each one's learning rate, and so of its decay; None: 1 of all.
    """

    def __init__(self, variables: Sequence[Any], settings: TrainSettings, rates: Sequence[float] | None = None) -> None:
        self.settings = settings
        self._variables = [variable.value for variable in variables]
        self._rates = list(rates or [1.0] * len(variables))
        self._means = [_zeros_like(variable) for variable in self._variables]
        self._squares = [_zeros_like(variable) for variable in self._variables]
        self._count = tf.Variable(0.0, trainable=False, name="accepted_steps")

    @property
    def means(self) -> list[Any]:
        """The first moment of each variable: its gradient, averaged over about 1 / (1 - beta_1) steps."""
        return self._means

    @property
    def count(self) -> Any:
        """Accepted steps, a float32 variable."""
        return self._count

    @property
    def state(self) -> list[Any]:
        """Variables of the optimizer itself."""
        return [self._count, *self._means, *self._squares]

    def reset(self) -> None:
        """Forgets all steps, as if the next one were the first."""
        for variable in self.state:
            variable.assign(tf.zeros_like(variable))

    def update(
        self, strategy: Any, gradients: Sequence[Tensor | None], norm: Tensor, rate: Tensor, accept: Tensor
    ) -> None:
        """Updates all variables; called outside `strategy.run`.

        Args:
          gradients: summed over replicas, the same on each; None of a variable that rests in this step.
          norm: their global norm; if it exceeds `clip_norm`, all are scaled down.
          rate: the learning rate, float32 [].
          accept: bool []; if false nothing changes, whatever the gradients hold.
        """
        strategy.extended.update(
            self._count, lambda count, yes: count.assign_add(tf.cast(yes, tf.float32)), args=(accept,), group=False
        )
        update_one = functools.partial(self._update_one, {})
        for variable, gradient, mean, square, factor in self._with_moments(gradients):
            strategy.extended.update(
                variable,
                update_one,
                args=(gradient, mean, square, self._count, norm, rate, accept, factor),
                group=False,
            )

    def update_in_replica(self, gradients: Sequence[Tensor | None], norm: Tensor, rate: Tensor, accept: Tensor) -> None:
        """The same as `update`, within `strategy.run`, for strategies whose variables may be assigned there."""
        self._count.assign_add(tf.cast(accept, tf.float32))
        update_one = functools.partial(self._update_one, {})
        for variable, gradient, mean, square, factor in self._with_moments(gradients):
            update_one(variable, gradient, mean, square, self._count, norm, rate, accept, factor)

    def _with_moments(self, gradients: Sequence[Tensor | None]) -> Iterator[tuple[Any, Tensor, Any, Any, float]]:
        """Each variable that has a gradient, with its gradient, its moments and the factor of its rate."""
        rows = zip(self._variables, gradients, self._means, self._squares, self._rates, strict=True)
        for variable, gradient, mean, square, factor in rows:
            if gradient is not None:
                yield variable, gradient, mean, square, factor

    def _scalars(self, count: Any, norm: Tensor, rate: Tensor, accept: Tensor) -> dict[str, Tensor]:
        """Scalars that all variables share, float32 []. A step that is not accepted has a rate of 0 and betas of 1."""
        settings = self.settings
        unchanged = tf.ones([])

        # t of algorithm 2, counted from 1; β^t corrects the bias of the moments.
        count = tf.maximum(tf.convert_to_tensor(count), 1.0)
        powers = settings.beta_1**count, settings.beta_2**count

        return {
            "scale": 1 / tf.maximum(norm / settings.clip_norm, 1.0),
            "beta1": tf.where(accept, settings.beta_1, unchanged),
            "beta2": tf.where(accept, settings.beta_2, unchanged),
            "beta1_power": powers[0],
            "beta2_power": powers[1],
            # The kernel adds it before the bias is corrected, the paper after.
            "epsilon": settings.epsilon * tf.sqrt(1 - powers[1]),
            "lr": tf.where(accept, rate, 0.0),
        }

    def _update_one(
        self,
        shared: dict[Any, dict[str, Tensor]],
        variable: Any,
        gradient: Tensor,
        mean: Any,
        square: Any,
        count: Any,
        norm: Tensor,
        rate: Tensor,
        accept: Any,
        factor: float,
    ) -> None:
        """Decay, then Adam in one kernel: written out it is forty ops, a third of the graph of a small network.

        Args:
          shared: gets the `_scalars` of each device.
        """

        # Computed once on each device, not once for each variable.
        scalars = shared.get(accept.ref()) or shared.setdefault(accept.ref(), self._scalars(count, norm, rate, accept))
        settings = self.settings
        scale = scalars["scale"]
        if factor != 1:
            scalars = {**scalars, "lr": scalars["lr"] * factor}

        # Decoupled decay: θ ← θ - η λ θ, of kernels alone.
        if len(variable.shape) > 1 and settings.weight_decay:
            variable.assign_sub(scalars["lr"] * settings.weight_decay * variable)

        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=mean.handle,
            v=square.handle,
            grad=tf.where(accept, gradient * scale, 0.0),  # zero times NaN is NaN
            **{name: value for name, value in scalars.items() if name != "scale"},
        )


class TwoOptimizers:
    """The generator's optimizer and the discriminators' behind the interface of one; each clips by its own norm.

    Args:
      generator, discriminators: the optimizers.
      count: how many of the gradients are the generator's; the others, if any, are the discriminators'.
      rate_share: the discriminators' learning rate as a share of the generator's.
    """

    def __init__(self, generator: AdamW, discriminators: AdamW, count: int, rate_share: float = 1.0) -> None:
        self._generator = generator
        self._discriminators = discriminators
        self._count = count
        self._rate_share = rate_share

    @property
    def count(self) -> Any:
        """Accepted steps of the generator."""
        return self._generator.count

    @property
    def means(self) -> list[Any]:
        return self._generator.means

    @property
    def state(self) -> list[Any]:
        return [*self._generator.state, *self._discriminators.state]

    def reset(self) -> None:
        self._generator.reset()
        self._discriminators.reset()

    def update(
        self, strategy: Any, gradients: Sequence[Tensor | None], norm: Tensor, rate: Tensor, accept: Tensor
    ) -> None:
        for optimizer, part, share in self._parts(gradients):
            optimizer.update(strategy, part, global_norm(part), rate * share, accept)

    def update_in_replica(self, gradients: Sequence[Tensor | None], norm: Tensor, rate: Tensor, accept: Tensor) -> None:
        for optimizer, part, share in self._parts(gradients):
            optimizer.update_in_replica(part, global_norm(part), rate * share, accept)

    def _parts(self, gradients: Sequence[Tensor | None]) -> list[tuple[AdamW, Sequence[Tensor | None], float]]:
        parts = [(self._generator, gradients[: self._count], 1.0)]
        if len(gradients) > self._count:
            parts.append((self._discriminators, gradients[self._count :], self._rate_share))
        return parts


class LossScale:
    """The factor of the loss while gradients are computed in half precision, whose smallest value is 6e-8.

    Micikevicius et al. 2018, section 3.2, with the factor that holds at the time: a step whose gradients overflow is
    computed again with half of it, so that no batch is left out, and after `PATIENCE` accepted steps it doubles. Create
    it inside `strategy.scope()`.
    """

    FIRST = 2.0**15
    MOST = 2.0**24
    PATIENCE = 2_000

    def __init__(self) -> None:
        self._factor = tf.Variable(self.FIRST, trainable=False, name="loss_scale")
        self._accepted = tf.Variable(0.0, trainable=False, name="accepted_since_loss_scale")

    @property
    def state(self) -> list[Any]:
        return [self._factor, self._accepted]

    @property
    def factor(self) -> Any:
        """A float32 variable, a power of 2: the division by it rounds nothing."""
        return self._factor

    def gradients(self, objective: Tensor, variables: Sequence[Any]) -> list[Tensor]:
        """The gradients of an objective, float32 []; of variables in float32."""
        gradients = tf.gradients(objective * self._factor, variables)
        return [gradient / self._factor for gradient in gradients]

    def note(self, *, accepted: bool, loss: float) -> bool:
        """Notes a step, and returns whether it is to be computed again, with a smaller factor.

        Args:
          loss: not finite where the network itself overflows, which no factor of the loss mends.
        """
        factor = float(self._factor)
        steps = float(self._accepted)
        if accepted:
            grows = steps + 1 >= self.PATIENCE and factor < self.MOST
            self._accepted.assign(0.0 if grows else steps + 1)
            if grows:
                self._factor.assign(2 * factor)
            return False

        if factor <= 1 or not math.isfinite(loss):
            return False
        self._factor.assign(factor / 2)
        self._accepted.assign(0.0)
        return True


def global_norm(gradients: Sequence[Tensor | None]) -> Tensor:
    """The norm of all gradients together, float32 []; 0 of none."""
    present = [gradient for gradient in gradients if gradient is not None]
    norm: Tensor = tf.linalg.global_norm(present) if present else tf.zeros([])
    return norm


def assign_if(variable: Any, value: Tensor, accept: Tensor) -> None:
    """Assigns the value if `accept`. A condition, not a product: zero times NaN is NaN."""
    variable.assign(tf.where(accept, value, variable))


def _zeros_like(variable: Any) -> Any:
    return tf.Variable(tf.zeros(variable.shape), trainable=False)


def learning_rate(settings: TrainSettings, step: int, steps: int, head_steps: int = 0) -> float:
    """The learning rate of one step: a linear warm-up, then the decay of `schedule`.

    The inverse square root is that of Vaswani et al. 2017, scaled to its peak; it does not depend on the last step.
    With `start.head_epochs` each of the two phases is a run of its own: the rate of the head's steps warms up and
    decays to their end, and the rate of the others begins again at zero, with the same peak, warm-up and decay.

    Args:
      step: counted from 0.
      steps: in the whole run.
      head_steps: of these, in which the head alone is trained.

    >>> settings = TrainSettings(name="a", learning_rate=1.0, warm_up_steps=2, final_rate_share=0.0)
    >>> [round(learning_rate(settings, step, 6), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15]
    >>> settings = TrainSettings(name="a", learning_rate=1.0, warm_up_steps=4, schedule="inverse_square_root")
    >>> [learning_rate(settings, step, 1_000) for step in (0, 3, 15, 63)]
    [0.25, 1.0, 0.5, 0.25]
    >>> [learning_rate(settings, step, 1_000, head_steps=16) for step in (0, 3, 15, 16, 19)]
    [0.25, 1.0, 0.5, 0.25, 1.0]
    """
    if head_steps:
        in_head = step < head_steps
        step -= 0 if in_head else head_steps
        steps = head_steps if in_head else steps - head_steps

    # η · min(t / T, √(T / t)), with T steps of warm-up.
    if settings.schedule == "inverse_square_root":
        warm_up = max(settings.warm_up_steps, 1)
        return settings.learning_rate * min((step + 1) / warm_up, math.sqrt(warm_up / (step + 1)))

    # A run shorter than twice its warm-up warms up for half of its steps.
    warm_up = min(settings.warm_up_steps, steps // 2)
    if step < warm_up:
        return settings.learning_rate * (step + 1) / warm_up

    # Half a cosine from the peak to `final_rate_share` of it.
    progress = (step - warm_up) / max(steps - warm_up, 1)
    share = settings.final_rate_share + (1 - settings.final_rate_share) * (1 + math.cos(math.pi * progress)) / 2

    return settings.learning_rate * share

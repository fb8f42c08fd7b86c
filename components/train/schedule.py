"""The learning rate at each step, and the rule by which training stops early."""

import dataclasses
import math

from components.train.settings import TeachingSettings


def learning_rate(settings: TeachingSettings, step: int, steps: int) -> float:
    """The rate of one step: a linear rise over the warm-up, then half a cosine down to the last step.

    Args:
      step: counted from 0.
      steps: of the whole run.

    >>> settings = TeachingSettings(name="a", learning_rate=1.0, warm_up_steps=2, final_rate_share=0.0)
    >>> [round(learning_rate(settings, step, 6), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15]
    """
    # A run shorter than twice its warm-up rises for half of its steps.
    rise = min(settings.warm_up_steps, steps // 2)
    if step < rise:
        return settings.learning_rate * (step + 1) / rise
    fallen = (step - rise) / max(steps - rise, 1)
    share = settings.final_rate_share + (1 - settings.final_rate_share) * (1 + math.cos(math.pi * fallen)) / 2
    return settings.learning_rate * share


@dataclasses.dataclass(frozen=True)
class Look:
    """What one look at the dev split saw.

    Attributes:
      wer: word error rate; None where there is no dev split.
      loss: mean CTC loss of an utterance, in nats.
    """

    epoch: int
    step: int
    wer: float | None
    loss: float | None


def best(looks: list[Look]) -> Look | None:
    """The look with the lowest WER, ties broken by loss, then by which came first; without dev, the last.

    >>> best([Look(1, 10, 0.2, 3.0), Look(2, 20, 0.1, 2.0), Look(3, 30, 0.1, 1.0)]).step
    30
    """
    if any(look.wer is None for look in looks):
        return looks[-1]
    return min(looks, key=lambda look: (look.wer, look.loss), default=None)


def stops_early(settings: TeachingSettings, looks: list[Look]) -> bool:
    """Whether the last `patience` looks brought nothing.

    A look counts as better when its WER lies at least `min_improvement` under the lowest before it that counted
    as better. Training never stops before `earliest_stop_epoch` has ended, nor within the warm-up: until a CTC
    model has left the stage at which it emits only blanks, its WER stands at 1 and says nothing.

    >>> settings = TeachingSettings(name="a", patience=2, earliest_stop_epoch=1, warm_up_steps=5)
    >>> flat = [Look(epoch, 10 * epoch, 0.5, 1.0) for epoch in (1, 2, 3)]
    >>> stops_early(settings, flat[:2]), stops_early(settings, flat)
    (False, True)
    """
    if not settings.patience or not looks:
        return False
    lowest, since = math.inf, 0
    for look in looks:
        if look.wer is None:
            return False
        if look.step <= settings.warm_up_steps:
            continue
        if look.wer <= lowest - settings.min_improvement:
            lowest, since = look.wer, 0
        else:
            since += 1
    return looks[-1].epoch >= settings.earliest_stop_epoch and since >= settings.patience

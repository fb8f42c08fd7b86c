"""The learning rate at each step."""

import math

from components.train.settings import TeachingSettings


def learning_rate(settings: TeachingSettings, step: int, steps: int) -> float:
    """The rate of one step: a linear rise over the warm-up, then down as `schedule` says.

    The inverse square root is that of Vaswani et al. 2017, scaled to its peak; it knows no last step.

    Args:
      step: counted from 0.
      steps: of the whole run.

    >>> settings = TeachingSettings(name="a", learning_rate=1.0, warm_up_steps=2, final_rate_share=0.0)
    >>> [round(learning_rate(settings, step, 6), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15]
    >>> settings = TeachingSettings(name="a", learning_rate=1.0, warm_up_steps=4, schedule="inverse_square_root")
    >>> [learning_rate(settings, step, 1_000) for step in (0, 3, 15, 63)]
    [0.25, 1.0, 0.5, 0.25]
    """
    if settings.schedule == "inverse_square_root":
        rise = max(settings.warm_up_steps, 1)
        return settings.learning_rate * min((step + 1) / rise, math.sqrt(rise / (step + 1)))
    # A run shorter than twice its warm-up rises for half of its steps.
    rise = min(settings.warm_up_steps, steps // 2)
    if step < rise:
        return settings.learning_rate * (step + 1) / rise
    fallen = (step - rise) / max(steps - rise, 1)
    share = settings.final_rate_share + (1 - settings.final_rate_share) * (1 + math.cos(math.pi * fallen)) / 2
    return settings.learning_rate * share

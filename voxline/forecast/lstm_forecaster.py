"""The second model of forecasts: an autoregressive LSTM over several figures of successive runs together.

The network reads a window of all figures and gives a normal distribution of each one's next value; several steps ahead
it reads its own draws (Salinas et al., "DeepAR", 2020). Beside the LSTM is a linear layer for level and season, as in
LSTNet (Lai et al. 2018); here it is a ridge regression, and the LSTM learns what that leaves. It can know what the
structural model of `voxline.forecast.forecast` cannot: that one figure follows another one's past.
"""

import dataclasses
import math

import keras
import numpy as np
import numpy.typing as npt

from voxline.errors import SettingsError

Floats = npt.NDArray[np.float64]

WINDOW = 14
"""Runs that the network reads: two weeks of nights."""
HELD_OUT = 0.25
"""Share of the runs, the last ones, that it is tested on and not trained with."""
MINIMUM = 4 * WINDOW
"""Runs without which it is not tried."""
_UNITS = 16
_EPOCHS = 60
_BATCH = 64
_PATIENCE = 8
_RIDGE = 10.0
"""Penalty of the linear layer's weights, in observations of a standardized window."""
_PATHS = 200
"""Draws of the future."""


@dataclasses.dataclass(frozen=True)
class LstmForecast:
    """Forecasts of several series.

    Attributes:
      expected, deviation: float64 [n, figures], the one-step forecast of each observation and its standard deviation;
        NaN before `start`.
      start: index of the first run that was held out.
      ahead, ahead_deviation: float64 [horizon, figures], after the last observation.
    """

    expected: Floats
    deviation: Floats
    start: int
    ahead: Floats
    ahead_deviation: Floats


def forecast_together(values: Floats, *, horizon: int = 7, seed: int = 1) -> LstmForecast:
    """Trains on the first runs, predicts each of the last ones from those before it, and what follows them.

    Args:
      values: float64 [n, figures], oldest first; NaN where a figure was not measured.
      horizon: steps after the last observation.

    Raises:
      SettingsError: there are fewer than `MINIMUM` observations, or a figure has none among the first.
    """
    count = len(values)

    # The last quarter is held out; at least one run.
    start = count - max(int(HELD_OUT * count), 1)
    if count < MINIMUM or np.isnan(values[:start]).all(axis=0).any():
        raise SettingsError(f"{count} observations; the LSTM needs {MINIMUM} of each figure")

    # [n, figures], standardized by the runs that it is trained on, so that nothing of the others leaks.
    filled = _fill(values)
    center = filled[:start].mean(axis=0)
    scale = filled[:start].std(axis=0)
    scale = np.where(scale > 1e-12, scale, 1.0)
    series = (filled - center) / scale

    keras.utils.set_random_seed(seed)
    model = _build(values.shape[1])
    factor = _fit(model, series[:start])

    # Each window up to the last but one predicts a run that was held out; the last one predicts the next run.
    mean, deviation = _predict(model, _windows(series)[start - WINDOW :], factor)
    expected = np.full(values.shape, np.nan)
    spread = np.full(values.shape, np.nan)
    expected[start:] = center + scale * mean[:-1]
    spread[start:] = scale * deviation[:-1]

    ahead, ahead_deviation = _draw_ahead(model, series[-WINDOW:], factor, horizon, np.random.default_rng(seed))
    return LstmForecast(expected, spread, start, center + scale * ahead, scale * ahead_deviation)


def _build(figures: int) -> keras.Model:
    """Window [batch, WINDOW, figures] → mean and log of the deviation of the next values [batch, 2 · figures]."""
    window = keras.Input((WINDOW, figures))
    hidden = keras.layers.LSTM(_UNITS)(window)
    nonlinear = keras.layers.Dense(2 * figures, kernel_initializer="zeros")(hidden)
    flat = keras.layers.Flatten()(window)

    # Its weights are set by the ridge regression, and not trained: the LSTM learns the rest.
    linear = keras.layers.Dense(figures, trainable=False, name="linear")(flat)
    mean = keras.layers.Add()([linear, nonlinear[:, :figures]])
    return keras.Model(window, keras.layers.Concatenate()([mean, nonlinear[:, figures:]]))


def _loss(truth: keras.KerasTensor, output: keras.KerasTensor) -> keras.KerasTensor:
    """Negative log likelihood of a normal distribution, without its constant."""
    mean, log_deviation = keras.ops.split(output, 2, axis=-1)

    # A deviation of zero would make the likelihood infinite.
    log_deviation = keras.ops.clip(log_deviation, -5.0, 3.0)
    return keras.ops.mean(log_deviation + 0.5 * keras.ops.square((truth - mean) / keras.ops.exp(log_deviation)), -1)


def _fit(model: keras.Model, series: Floats) -> Floats:
    """Trains on all windows but their last fifth, which says when to stop.

    Returns:
      float64 [figures]: by how much the deviations are too small there.
    """
    # inputs [windows, WINDOW, figures], targets [windows, figures]
    inputs = _windows(series)[:-1]
    targets = series[WINDOW:].astype(np.float32)
    validation = max(len(inputs) // 5, 1)

    # The linear layer in closed form: (X'X + λI)⁻¹ X'y, the last column the bias.
    flat = inputs[:-validation].reshape(len(inputs) - validation, -1).astype(np.float64)
    design = np.concatenate([flat, np.ones((len(flat), 1))], axis=1)
    weights = np.linalg.solve(design.T @ design + _RIDGE * np.eye(design.shape[1]), design.T @ targets[:-validation])
    model.get_layer("linear").set_weights([weights[:-1], weights[-1]])
    model.compile(keras.optimizers.Adam(0.01), _loss, jit_compile=False)  # compiling takes longer than it saves
    stop = keras.callbacks.EarlyStopping(patience=_PATIENCE, restore_best_weights=True)
    model.fit(
        inputs[:-validation], targets[:-validation], validation_data=(inputs[-validation:], targets[-validation:]),
        batch_size=_BATCH, epochs=_EPOCHS, verbose=0, callbacks=[stop],
    )  # fmt: skip

    # Deviations are too small on windows that the network has not seen: widen them, never narrow.
    mean, deviation = _predict(model, inputs[-validation:], np.ones(series.shape[1]))
    factor: Floats = np.sqrt(np.mean(((targets[-validation:] - mean) / deviation) ** 2, axis=0))
    return np.maximum(factor, 1.0)


def _predict(model: keras.Model, windows: npt.NDArray[np.float32], factor: Floats) -> tuple[Floats, Floats]:
    """Mean and deviation of what follows each window, float64 [batch, figures]."""
    output = keras.ops.convert_to_numpy(model(windows)).astype(np.float64)
    mean, log_deviation = np.split(output, 2, axis=-1)
    return mean, factor * np.exp(np.clip(log_deviation, -5.0, 3.0))


def _draw_ahead(
    model: keras.Model, last: Floats, factor: Floats, horizon: int, chance: np.random.Generator
) -> tuple[Floats, Floats]:
    """Mean and deviation of paths that the network continues, float64 [horizon, figures]."""
    # [paths, WINDOW + steps, figures]
    paths = np.repeat(last[None].astype(np.float32), _PATHS, axis=0)
    means = []
    deviations = []
    for _ in range(horizon):
        mean, deviation = _predict(model, paths[:, -WINDOW:], factor)
        # A path continues with its own draw, so uncertainty adds up along it.
        drawn = mean + deviation * chance.standard_normal(mean.shape)
        means.append(mean.mean(axis=0))
        # Law of total variance: the mean of the variances, and the variance of the means.
        deviations.append(np.sqrt(np.mean(deviation**2, axis=0) + mean.var(axis=0)))
        paths = np.concatenate([paths, drawn[:, None].astype(np.float32)], axis=1)
    return np.array(means), np.array(deviations)


def _windows(series: Floats) -> npt.NDArray[np.float32]:
    """float32 [n − WINDOW + 1, WINDOW, figures]."""
    # [n − WINDOW + 1, figures, WINDOW], a view
    view = np.lib.stride_tricks.sliding_window_view(series.astype(np.float32), WINDOW, axis=0)
    return np.ascontiguousarray(view.transpose(0, 2, 1))


def _fill(values: Floats) -> Floats:
    """A value that was not measured is taken for the one before it, at the beginning for the first one."""
    filled = values.copy()
    for column in filled.T:
        last_value = next(value for value in column if math.isfinite(value))
        for at, value in enumerate(column):
            last_value = value if math.isfinite(value) else last_value
            column[at] = last_value
    return filled

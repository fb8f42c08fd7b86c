"""Compares arrays with a tolerance relative to their largest value, as rounding is.

A sum of products in float32 is off by some 1e-7 of its largest terms, whatever is left of them in one element, and
each processor adds them in another order. A fixed tolerance is too strict for values of 55 and too lax for 0.01.
"""

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

needs_bfloat16 = pytest.mark.skipif(
    os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512").upper()[:6] != "AVX512",
    reason="TensorFlow sees AVX-512 and asks oneDNN for bfloat16, which ONEDNN_MAX_CPU_ISA takes away; "
    "TF_ENABLE_ONEDNN_OPTS=0 computes as processors without AVX-512 do",
)


def assert_close(actual: npt.ArrayLike, expected: npt.ArrayLike, *, relative_to_peak: float, name: str = "") -> None:
    """Asserts that no element differs by more than a share of the largest magnitude in `expected`.

    Args:
      actual: any shape; that of `expected`, unless that is a single number.
      relative_to_peak: 1e-5 suits a float32 network of a few layers; 1e-6 is a few roundings.
      name: names the arrays in the message.
    """
    actual = np.asarray(actual)
    expected = np.asarray(expected)
    assert expected.ndim == 0 or actual.shape == expected.shape, f"{name} shapes: {actual.shape}, {expected.shape}"

    peak = float(np.abs(expected).max(initial=0.0))
    assert np.isfinite(peak), f"{name} expected values are not finite"
    np.testing.assert_allclose(
        actual, np.broadcast_to(expected, actual.shape), rtol=0, atol=relative_to_peak * peak, err_msg=name
    )


Arrays = Mapping[str, np.ndarray]
PINS = Path(__file__).parent / "families" / "pinned_steps.json"


def assert_pinned(name: str, before: Arrays, after: Arrays, **scalars: float) -> None:
    """Holds a training step from fixed seeds against the recorded one; VOXLINE_WRITE_GOLDEN=1 records it.

    A change of seeds, of an initializer, of the order of the weights or of the arithmetic shows, and the rounding of
    another processor does not: of each array the file has its projection on a vector of random signs, as a share of
    its norm. Arrays that differ in more than rounding have other projections.

    Args:
      name: of the network.
      before: its state before the step, by name; bounded closely, since initializers round little.
      after: its state after the step. Adam divides by the size of a gradient, so rounding can turn the sign of a
        change where the gradient is almost zero.
      scalars: the loss and the like, to one in a thousand.
    """
    recorded = json.loads(PINS.read_text(encoding="utf-8")) if PINS.exists() else {}
    if os.environ.get("VOXLINE_WRITE_GOLDEN"):
        recorded[name] = {
            "before": {key: _project(key, value) for key, value in before.items()},
            "after": {key: _project(key, value) for key, value in after.items()},
            "scalars": scalars,
        }
        PINS.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    pinned = recorded[name]
    for state, arrays, tolerance in (("before", before, 1e-4), ("after", after, 0.004)):
        assert sorted(pinned[state]) == sorted(arrays), f"{name}: other arrays {state} the step"
        for key, value in arrays.items():
            expected = pytest.approx(pinned[state][key], rel=tolerance, abs=tolerance)
            assert _project(key, value) == expected, f"{name}: {key} {state} the step"
    assert scalars == pytest.approx(pinned["scalars"], rel=1e-3)


def _project(name: str, array: np.ndarray) -> list[float]:
    """The norm of an array, and its projection on random signs as a share of the norm."""
    values = np.asarray(array, np.float64).reshape(-1)
    signs = np.random.default_rng(zlib.crc32(name.encode())).choice([-1.0, 1.0], values.size)
    norm = float(np.linalg.norm(values))
    return [float(f"{norm:.6g}"), float(f"{signs @ values / max(norm, 1e-30):.6g}")]

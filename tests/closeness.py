"""Compares arrays with a tolerance relative to their largest value, as rounding is.

A sum of products in float32 is off by some 1e-7 of its largest terms, whatever is left of them in one element, and
each processor adds them in another order. A fixed tolerance is too strict for values of 55 and too lax for 0.01.
"""

import os

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

"""DNSMOS against the package that its authors published, against its network run by hand, and where it has no value."""

import subprocess
import sys
from importlib.resources import files

import numpy as np
import onnxruntime
import pytest

from tests.metrics.test_estoi import phrases
from voxline.audio.decoding import resample
from voxline.metrics.dnsmos import dnsmos, mean_dnsmos

HEARD = 144_160
"""Samples that the network hears at a time: 9.01 s."""


def by_hand(samples: np.ndarray) -> float:
    """The paper's primary model, and the polynomial that its authors fitted to the scale of listeners."""
    network = onnxruntime.InferenceSession((files("speechmos") / "dnsmos_models" / "sig_bak_ovr.onnx").read_bytes())
    _, _, overall = network.run(None, {"input_1": samples[None]})[0][0]
    return float(-0.06766283 * overall**2 + 1.11546468 * overall + 0.04602535)


def test_it_is_that_of_the_published_network_at_any_rate() -> None:
    clean, noisy = (np.resize(one, HEARD) / 10 for one in phrases()[0])
    score = dnsmos(clean, 16_000)
    assert score == pytest.approx(by_hand(clean), abs=1e-4)
    assert dnsmos(resample(clean, 16_000, 22_050), 22_050) == pytest.approx(score, abs=0.05)
    both = [score, dnsmos(noisy, 16_000)]
    assert mean_dnsmos([clean, noisy, clean[:100]], 16_000) == pytest.approx(np.mean(both))


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 5.6, 11.2])
def test_it_is_that_of_the_published_package_for_clips_of_any_length(seconds: float) -> None:
    """Short ones are repeated; of long ones it is the mean of windows."""
    from speechmos import dnsmos as package

    clip = np.resize(phrases()[0][1], round(seconds * 16_000)) / 10
    clip *= np.linspace(0.2, 1, len(clip), dtype=np.float32)
    assert dnsmos(clip, 16_000) == pytest.approx(package.run(clip, 16_000)["ovrl_mos"], abs=1e-4)


def test_neither_librosa_nor_the_packages_code_is_imported() -> None:
    code = (
        "import sys, numpy; from voxline.metrics.dnsmos import dnsmos; dnsmos(numpy.zeros(9_100, 'f4'), 16_000); "
        "print({'librosa', 'requests', 'numba', 'speechmos.dnsmos'} & sys.modules.keys())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


@pytest.mark.slow
def test_a_clip_that_is_too_short_has_no_value_and_a_silent_or_loud_one_has() -> None:
    silent = np.zeros(9_100, np.float32)  # doubled four times, it is one window
    assert dnsmos(silent[:1_599], 16_000) is None
    assert dnsmos(silent[:0], 16_000) is None
    assert mean_dnsmos([silent[:0]], 16_000) is None
    assert 1 <= (dnsmos(silent, 16_000) or 0) <= 5
    assert dnsmos(silent + 3, 16_000) == dnsmos(silent + 1, 16_000)

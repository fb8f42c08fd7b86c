"""Augmentation of training examples."""

from typing import Any

import numpy as np
import pytest

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.components.train.asr.augmentation import LOG_POWER_PER_DECIBEL, Augmentation, stretch_time, warp_frequency
from voxline.components.train.asr.settings import AugmentSettings
from voxline.errors import SettingsError

FEATURES = FeatureSettings(sample_rate=8_000, mels=40)
MEAN, DEVIATION = np.arange(40, dtype=np.float32), np.full(40, 2, np.float32)


def augmentation(**settings: Any) -> Augmentation:
    return Augmentation(AugmentSettings(**settings), FEATURES, MEAN, DEVIATION)


def example(frames: int = 60) -> Any:
    return np.random.default_rng(0).standard_normal((frames, 40)).astype(np.float32)


def test_without_settings_nothing_changes() -> None:
    given = example()
    assert augmentation()(given, 1, np.random.default_rng(0)) is given


def test_equal_seeds_give_equal_results_and_the_input_is_unchanged() -> None:
    everything = augmentation(speed=0.2, pitch=0.1, volume=6, tilt=6, noise=0.3, time_masks=2, frequency_masks=2)
    given = example()
    one, two = (everything(given, 1, np.random.default_rng([1, 2])) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(given, example())
    assert one.dtype == np.float32


def test_two_views_share_speed_and_level_and_differ_in_noise_and_masks() -> None:
    shared: dict[str, Any] = {"speed": 0.3, "pitch": 0.1, "volume": 6}
    for own in ({}, {"noise": 0.3}, {"time_masks": 2, "frequency_masks": 2}):
        settings = AugmentSettings(**shared, **own)
        both = Augmentation(settings, FEATURES, MEAN, DEVIATION, views=2)(example(), 1, np.random.default_rng(3))
        first, second = both[:, :40], both[:, 40:]
        np.testing.assert_array_equal(first, augmentation(**shared, **own)(example(), 1, np.random.default_rng(3)))
        assert np.array_equal(first, second) == (not own)
    still = Augmentation(AugmentSettings(), FEATURES, MEAN, DEVIATION, views=2)
    np.testing.assert_array_equal(still(example(), 1, np.random.default_rng(0)), np.tile(example(), 2))


def test_speed_stays_in_range_and_keeps_enough_frames_for_the_labels() -> None:
    faster = augmentation(speed=0.25)
    lengths = [len(faster(example(100), 1, np.random.default_rng(seed))) for seed in range(300)]
    assert 79 <= min(lengths) < 85
    assert 118 < max(lengths) <= 126
    assert min(len(faster(example(100), 97, np.random.default_rng(seed))) for seed in range(100)) == 97


def test_volume_equals_a_gain_on_the_waveform() -> None:
    random = np.random.default_rng(0)
    samples = random.standard_normal(8_000).astype(np.float32) * 0.1
    quiet = compute_features(samples, FEATURES)
    changed = augmentation(volume=6)(quiet, 1, np.random.default_rng(5))
    decibels = (changed - quiet).mean() / LOG_POWER_PER_DECIBEL
    assert 0.1 < abs(decibels) <= 6
    np.testing.assert_allclose(changed, compute_features(samples * 10 ** (decibels / 20), FEATURES), atol=1e-3)


def test_tilt_raises_one_end_as_much_as_it_lowers_the_other() -> None:
    changed = augmentation(tilt=6)(np.zeros((5, 40), np.float32), 1, np.random.default_rng(0))
    assert changed[0, 0] == pytest.approx(-changed[0, -1])
    assert 0 < abs(changed[0, 0]) <= 3 * LOG_POWER_PER_DECIBEL


def test_masks_are_filled_with_the_mean() -> None:
    masked = augmentation(time_masks=1, time_mask_share=0.5)(example(), 1, np.random.default_rng(1))
    blank = (masked == MEAN).all(axis=1)
    assert 0 < blank.sum() <= 30
    assert (masked[~blank] == example()[~blank]).all()
    masked = augmentation(frequency_masks=1, frequency_mask_share=0.5)(example(), 1, np.random.default_rng(1))
    assert 0 < (masked == MEAN).all(axis=0).sum() <= 20


def test_stretching_and_warping_by_one_change_nothing() -> None:
    np.testing.assert_allclose(stretch_time(example(), 60), example(), atol=1e-6)
    np.testing.assert_allclose(warp_frequency(example(), 1.0), example(), atol=1e-6)


def test_spectral_augmentation_of_mfcc_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"train\.augment\.pitch.*mfcc|train\.augment\.pitch.*cepstral"):
        Augmentation(AugmentSettings(pitch=0.1), FeatureSettings(kind="mfcc"), MEAN, DEVIATION)

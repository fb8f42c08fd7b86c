"""Augmentation of training examples."""

import io
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import soundfile

from tests.closeness import assert_close
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.components.demo_corpus.espeak import EspeakVoice, speak
from voxline.errors import SettingsError
from voxline.families.asr.augmentation import (
    DECAY_SECONDS,
    LOG_POWER_PER_DECIBEL,
    NOISE_SHAPING,
    SPEECH_TO_CODING_NOISE,
    Augmentation,
    add_background,
    add_coding_noise,
    band_response,
    bin_centers,
    draw_response,
    smear_power,
    stretch_time,
    warp_frequency,
)
from voxline.families.asr.settings import AugmentSettings

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
    shared = {"speed": 0.2, "pitch": 0.1, "volume": 6, "tilt": 6, "equalizer": 6, "reverberation": 0.5, "background": 1}
    everything = augmentation(**shared, band_limit=1, codec=1, noise=0.3, time_masks=2, frequency_masks=2)
    given = example()
    one, two = (everything(given, 1, np.random.default_rng([1, 2])) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(given, example())
    assert one.dtype == np.float32


def test_two_views_share_speed_and_level_and_differ_in_noise_and_masks() -> None:
    shared: dict[str, Any] = {"speed": 0.3, "pitch": 0.1, "volume": 6, "background": 1, "equalizer": 6}
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


def test_silence_before_and_after_is_that_of_samples_that_are_zero_and_noise_reaches_into_it() -> None:
    samples = 0.1 * np.random.default_rng(0).standard_normal(2_000).astype(np.float32)
    for features in (FEATURES, FeatureSettings(sample_rate=8_000, kind="mfcc", context=2)):
        given = compute_features(samples, features)
        silent = Augmentation(AugmentSettings(silence=0.2), features, MEAN, DEVIATION)
        counts = set()
        for seed in range(200):
            longer = silent(given, 1, np.random.default_rng(seed))
            (before,) = (at for at in range(21) if np.array_equal(longer[at : at + len(given)], given))
            counts |= {("before", before), ("after", len(longer) - len(given) - before)}
            zeros = compute_features(np.zeros(8_000, np.float32), features)[50]
            around = np.concatenate([longer[:before], longer[before + len(given) :]])
            assert_close(around, np.tile(zeros, (len(around), 1)), relative_to_peak=1e-5)
        assert counts == {(where, count) for where in ("before", "after") for count in range(21)}
        assert silent.more_frames == 40
    noisy = augmentation(silence=0.5, background=1)(example(), 1, np.random.default_rng(1))
    assert len(noisy) > 60
    assert noisy.min() > np.log(FEATURES.log_floor) + 1


def test_volume_equals_a_gain_on_the_waveform() -> None:
    random = np.random.default_rng(0)
    samples = random.standard_normal(8_000).astype(np.float32) * 0.1
    quiet = compute_features(samples, FEATURES)
    changed = augmentation(volume=6)(quiet, 1, np.random.default_rng(5))
    decibels = (changed - quiet).mean() / LOG_POWER_PER_DECIBEL
    assert 0.1 < abs(decibels) <= 6
    assert_close(changed, compute_features(samples * 10 ** (decibels / 20), FEATURES), relative_to_peak=1e-5)


def test_tilt_raises_one_end_as_much_as_it_lowers_the_other() -> None:
    changed = augmentation(tilt=6)(np.zeros((5, 40), np.float32), 1, np.random.default_rng(0))
    assert changed[0, 0] == pytest.approx(-changed[0, -1])
    assert 0 < abs(changed[0, 0]) <= 3 * LOG_POWER_PER_DECIBEL


def test_an_equalizer_changes_all_frames_alike_by_ripples_of_the_deviation_that_is_set() -> None:
    changed = augmentation(equalizer=6)(np.zeros((5, 40), np.float32), 1, np.random.default_rng(0))
    assert (changed == changed[0]).all()
    assert np.abs(changed).max() > 1 * LOG_POWER_PER_DECIBEL
    drawn = np.array([draw_response(40, 6.0, np.random.default_rng(seed)) for seed in range(2000)])
    ripples = scipy.fft.dct(drawn, norm="forward")  # the coefficient of each cosine is half of its height
    np.testing.assert_allclose(2 * ripples[:, 1:5].std(axis=0), 6 * np.array([1, 0.67, 0.42, 0.25]), rtol=0.06)
    np.testing.assert_allclose(ripples[:, [0, *range(5, 40)]], 0, atol=1e-9)


def test_reverberation_is_a_first_order_filter_of_the_power() -> None:
    power = np.exp(example())
    expected = power + 0.4 * scipy.signal.lfilter([0, 0.3], [1, -0.7], power.astype(np.float64), axis=0)
    smear_power(power, 0.4, 0.7)
    np.testing.assert_allclose(power, expected, rtol=1e-4)
    changed = augmentation(reverberation=0.5)(example(), 1, np.random.default_rng(0))
    assert (changed[1:] > example()[1:]).all()


def test_reverberation_is_added_to_a_share_of_the_examples() -> None:
    sometimes = augmentation(reverberation=0.5, reverberation_share=0.3)
    left = [np.array_equal(sometimes(example(5), 1, np.random.default_rng(n)), example(5)) for n in range(300)]
    assert 0.6 < np.mean(left) < 0.8
    always = augmentation(reverberation=0.5)(example(), 1, np.random.default_rng(0))
    decay = np.exp(-FEATURES.hop_seconds / (first := np.random.default_rng(0)).uniform(*DECAY_SECONDS))
    power = np.exp(example())
    smear_power(power, first.uniform(0, 0.5), decay)
    np.testing.assert_array_equal(always, np.log(power))  # as before the share


def test_background_noise_has_its_ratio_to_speech_and_its_color() -> None:
    color = np.linspace(10, -10, 40)
    power = np.exp(example(400))
    speech = power.astype(np.float64)
    add_background(power, color, 10.0, np.random.default_rng(0))
    noise = power - speech
    assert 10 * np.log10(speech.mean() / noise.mean()) == pytest.approx(10.0, abs=0.01)
    levels = 10 * np.log10(noise.mean(axis=0))
    np.testing.assert_allclose(levels - levels.mean(), color, atol=1.0)
    assert noise.std(axis=0) == pytest.approx(noise.mean(axis=0), rel=0.25)  # as of the power of Gaussian noise
    sometimes = augmentation(background=0.3)
    left = [np.array_equal(sometimes(example(5), 1, np.random.default_rng(n)), example(5)) for n in range(300)]
    assert 0.6 < np.mean(left) < 0.8


def test_a_band_limit_is_what_a_filter_does_to_the_recording() -> None:
    wide = FeatureSettings(sample_rate=48_000, mels=40)  # far from half the rate a digital filter is as an analog one
    samples = 0.1 * np.random.default_rng(0).standard_normal(144_000).astype(np.float32)
    sections = scipy.signal.butter(2, [300, 2_500], "bandpass", fs=48_000, output="sos")
    filtered = scipy.signal.sosfilt(sections, samples).astype(np.float32)
    heard = (compute_features(filtered, wide) - compute_features(samples, wide)).mean(axis=0)
    centers = bin_centers(wide)
    expected = band_response(centers, (300.0, 2_500.0), (12.0, 12.0))  # 6 dB per octave for each pole
    assert (np.diff(centers) > 0).all()
    inside = (centers > 100) & (centers < 5_000)
    np.testing.assert_allclose(heard[inside] / LOG_POWER_PER_DECIBEL, expected[inside], atol=3.5)
    changed = augmentation(band_limit=1)(np.zeros((5, 40), np.float32), 1, np.random.default_rng(1))
    assert (changed == changed[0]).all()
    assert changed[0, 0] < -6 * LOG_POWER_PER_DECIBEL
    assert (changed[0, 8:30] == 0).all()


@pytest.mark.parametrize("subtype", ["GSM610", "IMA_ADPCM"])
def test_a_real_codec_adds_noise_as_the_augmentation_draws_it(subtype: str) -> None:
    (voice,), rate = speak(EspeakVoice("en-us", "m3"), ["the number is seven, and then three"])
    speech = scipy.signal.resample(voice, len(voice) * 8_000 // rate).astype(np.float32)
    coded = io.BytesIO()
    soundfile.write(coded, speech, 8_000, format="WAV", subtype=subtype)
    coded.seek(0)
    heard = soundfile.read(coded, dtype="float32")[0][: len(speech)]
    power = np.exp(compute_features(speech, FEATURES).astype(np.float64))
    noise = np.exp(compute_features(heard - speech, FEATURES).astype(np.float64))
    loud = power.mean(axis=1) > 0.1 * power.mean()
    ratio = float(np.median(10 * np.log10(power[loud].mean(axis=1) / noise[loud].mean(axis=1))))
    lines = [np.polyfit(np.log(one), np.log(other), 1)[0] for one, other in zip(power[loud], noise[loud], strict=True)]
    assert SPEECH_TO_CODING_NOISE[0] < ratio < SPEECH_TO_CODING_NOISE[1]
    assert NOISE_SHAPING[0] - 0.1 < np.median(lines) < NOISE_SHAPING[1]


def test_coding_noise_has_its_ratio_to_each_frame_and_follows_its_spectrum() -> None:
    levels = np.array([-10.0, 0.0, 6.0])[:, None] + np.linspace(2, -2, 2_000)
    power = np.exp(levels.astype(np.float32).astype(np.float64))
    noise = (
        np.exp(add_coding_noise(levels.astype(np.float32), 12.0, 0.5, np.random.default_rng(0)).astype(float)) - power
    )
    ratios = 10 * np.log10(power.mean(axis=1) / noise.mean(axis=1))
    np.testing.assert_allclose(ratios, 12.0, atol=0.4)
    lowest, highest = noise[:, :500].mean(axis=1), noise[:, -500:].mean(axis=1)
    shares = power[:, :500] ** 0.5, power[:, -500:] ** 0.5
    np.testing.assert_allclose(lowest / highest, shares[0].mean(axis=1) / shares[1].mean(axis=1), rtol=0.3)


@pytest.mark.parametrize("factor", [0.8, 0.97, 1.0, 1.25])
def test_time_and_frequency_are_interpolated_linearly(factor: float) -> None:
    features = example(37)
    places = np.linspace(0, 36, round(37 / factor))
    in_time = [np.interp(places, np.arange(37), features[:, place]) for place in range(40)]
    np.testing.assert_allclose(stretch_time(features, len(places)), np.transpose(in_time), atol=1e-5)
    bins = np.arange(40)
    in_frequency = [np.interp(bins / factor, bins, frame) for frame in features]
    np.testing.assert_allclose(warp_frequency(features, factor), in_frequency, atol=1e-5)


def test_masks_are_filled_with_the_mean() -> None:
    masked = augmentation(time_masks=1, time_mask_share=0.5)(example(), 1, np.random.default_rng(1))
    blank = (masked == MEAN).all(axis=1)
    assert 0 < blank.sum() <= 30
    assert (masked[~blank] == example()[~blank]).all()
    masked = augmentation(frequency_masks=1, frequency_mask_share=0.5)(example(), 1, np.random.default_rng(1))
    assert 0 < (masked == MEAN).all(axis=0).sum() <= 20


def test_without_a_mean_masks_are_filled_with_that_of_the_utterance() -> None:
    masks = AugmentSettings(time_masks=1, time_mask_share=0.5, frequency_masks=1, frequency_mask_share=0.5)
    masked = Augmentation(masks, FEATURES, None, DEVIATION)(example(), 1, np.random.default_rng(1))
    changed = masked != example()
    assert changed.any()
    np.testing.assert_array_equal(masked[changed], np.tile(example().mean(axis=0), (60, 1))[changed])


def test_stretching_and_warping_by_one_change_nothing() -> None:
    assert_close(stretch_time(example(), 60), example(), relative_to_peak=1e-6)
    assert_close(warp_frequency(example(), 1.0), example(), relative_to_peak=1e-6)


def test_spectral_augmentation_of_mfcc_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"train\.augment\.pitch.*mfcc|train\.augment\.pitch.*cepstral"):
        Augmentation(AugmentSettings(pitch=0.1), FeatureSettings(kind="mfcc"), MEAN, DEVIATION)

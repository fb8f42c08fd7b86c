"""Checks for audio that is not speech or badly recorded, from the measurements of convert."""

from collections.abc import Callable

import numpy as np

from voxline.components.validate.checks.check import CheckFinding, not_checked, share_finding
from voxline.components.validate.columns import Floats
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import ValidateSettings


def clipping(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    limit = settings.clipping.clipped_share
    shares = corpus.measured["clipped_share"]
    return _beyond_limit(
        shares,
        shares - limit,
        f"utterances have more than {limit:.2%} of their samples at full scale",
        lambda row: f"{shares[row]:.2%} of its samples at full scale",
    )


def level(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    limits = settings.level
    levels = corpus.measured["rms_db"]
    return _beyond_limit(
        levels,
        np.maximum(limits.min_db - levels, levels - limits.max_db),
        f"utterances are under {limits.min_db:g} or over {limits.max_db:g} dB",
        lambda row: f"{levels[row]:.1f} dB",
    )


def silence(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    limit = settings.silence.silence_share
    shares = corpus.measured["silence_share"]
    return _beyond_limit(
        shares,
        shares - limit,
        f"utterances are silent for more than {limit:.0%}",
        lambda row: f"{shares[row]:.0%} silence",
    )


def constant_audio(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    """Checks the crest factor, peak over root mean square: speech comes in bursts, so its peaks are high."""
    limit = settings.constant_audio.min_crest_db
    crest = corpus.measured["peak_db"] - corpus.measured["rms_db"]
    return _beyond_limit(
        crest,
        limit - crest,
        f"utterances have peaks less than {limit:g} dB above their mean level, like tones and hums",
        lambda row: f"peaks {crest[row]:.1f} dB above the mean level",
    )


def _beyond_limit(measured: Floats, excess: Floats, text: str, describe: Callable[[int], str]) -> CheckFinding:
    """The share of utterances whose excess over a limit is positive; offenders worst first."""
    # NaN: not measured. Those are neither offenders nor part of the share.
    count = int(np.isfinite(measured).sum())
    if not count:
        return not_checked("no utterance has measurements; the manifest is not from convert")

    offenders = np.flatnonzero(np.nan_to_num(excess, nan=-1.0) > 0)
    offenders = offenders[np.argsort(-excess[offenders], kind="stable")]

    if count < len(measured):
        text += f" ({len(measured) - count:,} were not measured)"
    return share_finding(offenders, count, text, describe)

"""How soon a canary ends: `python -m benchmarks.canary`.

Generated requests, which become harder by a factor of five during a trial. On average production gives no answer to
0.6% of them, is slow on 6%, hears nothing on 3%, and 9% of the words are estimated to be wrong.
"""

import statistics

import numpy as np

from voxline.feedback.canary_state import PROMOTABLE, ROLL_BACK, CanarySettings, CanaryState

RUNS, MOST = 60, 4000
WORSE = ({}, {"failed": 1.0}, {"failed": 0.2}, {"slow": 0.8}, {"empty": 0.3}, {"errors": 0.1}, {"errors": 0.05})


def run_trial(settings: CanarySettings, worse: dict[str, float], seed: int) -> tuple[str, int]:
    """The first verdict of a trial that is looked at after each request, and the requests until then."""
    random, state = np.random.default_rng(seed), CanaryState(settings)
    for request in range(1, MOST + 1):
        chosen = bool(random.random() < settings.share)
        hardness = random.random() * (0.2 + 0.8 * request / MOST)
        rates = {"failed": 0.02 * hardness, "slow": 0.2 * hardness, "empty": 0.1 * hardness}
        values = {name: float(random.random() < rate + chosen * worse.get(name, 0.0)) for name, rate in rates.items()}
        errors = 0.3 * hardness + random.normal(0, 0.05) + chosen * worse.get("errors", 0.0)
        state.observe({**values, "errors": min(max(errors, 0.0), 1.0)}, chosen=chosen)
        if (verdict := state.verdict) in (ROLL_BACK, PROMOTABLE):
            return verdict, request
    return "continue", MOST


if __name__ == "__main__":
    for share, margin in ((0.1, 0.02), (0.5, 0.02), (0.5, 0.05)):
        for worse in WORSE:
            trials = [run_trial(CanarySettings(share, margin), worse, seed) for seed in range(RUNS)]
            for verdict in (ROLL_BACK, PROMOTABLE):
                counts = sorted(count for found, count in trials if found == verdict)
                if counts:
                    middle, most = statistics.median(counts), counts[int(0.9 * len(counts))]
                    setting = f"share {share:.0%}, margin {margin:.0%}, worse {worse}"
                    found = f"{verdict} in {len(counts)} of {RUNS} trials"
                    print(f"{setting}: {found}, after {middle:,.0f} requests (50%), {most:,} (90%)", flush=True)

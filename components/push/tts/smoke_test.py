"""Does the voice load in a process that knows nothing but its files, and does it speak there as it spoke before?

Run by itself: python -m voxline.components.push.tts.smoke_test MODEL SYMBOLS MELS
prints one line of JSON, {"distance": …, "deviation": …, "frames": …, "expected": …} or {"error": …}; MELS is what
evaluate recorded, float32 [frames, mels].
"""

import json
import sys
from pathlib import Path

from voxline.components.push.gate import GateCheck
from voxline.components.push.smoke_test import run_in_fresh_process
from voxline.errors import VoxlineError

NAME = "known text"

TOLERANCE = 0.05
"""Distance after time warping, as a share of the mels' deviation. The noise of a voice is fixed, so on one kind of
processor it is 0; on another, rounding may let it dwell a frame longer here or there."""


def smoke_test_tts(model: Path, symbols: str, mels: Path, seconds: float) -> GateCheck:
    """Lets a fresh process speak the text whose mels evaluate recorded."""
    told = run_in_fresh_process("voxline.components.push.tts.smoke_test", [str(model), symbols, str(mels)], seconds)
    if "distance" not in told:
        return GateCheck(NAME, False, f"a fresh process could not speak the known text: {told.get('error')}")
    distance = told["distance"] / max(told["deviation"], 1e-9)
    found = f"{told['frames']} frames where evaluate had {told['expected']}, {distance:.3f} deviations from them"
    if distance > TOLERANCE:
        detail = f"a fresh process spoke the known text otherwise: {found}; at most {TOLERANCE} is accepted"
        return GateCheck(NAME, False, detail, distance, TOLERANCE)
    return GateCheck(
        NAME, True, f"a fresh process loaded the voice and spoke the known text: {found}", distance, TOLERANCE
    )


def main(model: str, symbols: str, mels: str) -> None:
    import numpy as np

    from voxline.audio.dtw import dtw
    from voxline.inference.synthesizer import Synthesizer

    try:
        expected = np.load(mels)
        (spoken,) = Synthesizer(model).synthesize_symbols([symbols])
        told = {
            "distance": dtw(expected, spoken.mels).distance,
            "deviation": float(expected.std()),
            "frames": len(spoken.mels),
            "expected": len(expected),
        }
        print(json.dumps(told))
    except (VoxlineError, OSError, ValueError) as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main(*sys.argv[1:])

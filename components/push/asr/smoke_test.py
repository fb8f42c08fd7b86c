"""Does the model load in a process that knows nothing but its files, and does it hear there what it heard before?

Run by itself: python -m voxline.components.push.asr.smoke_test MODEL CLIP
prints one line of JSON, {"text": …} or {"error": …}.
"""

import json
import sys
from pathlib import Path

from voxline.components.push.gate import GateCheck
from voxline.components.push.smoke_test import run_in_fresh_process
from voxline.errors import WorkError

NAME = "known clip"


def smoke_test_asr(model: Path, clip: Path, expected: str, seconds: float) -> GateCheck:
    """Lets a fresh process transcribe the clip that evaluate recorded."""
    told = run_in_fresh_process("voxline.components.push.asr.smoke_test", [str(model), str(clip)], seconds)
    if "text" not in told:
        return GateCheck(NAME, False, f"a fresh process could not transcribe the known clip: {told.get('error')}")
    if told["text"] != expected:
        detail = f"a fresh process heard {told['text']!r} in the known clip, evaluate heard {expected!r}"
        return GateCheck(NAME, False, detail)
    return GateCheck(
        NAME, True, f"a fresh process loaded the model and heard {expected!r} in the known clip, as evaluate did"
    )


def main(model: str, clip: str) -> None:
    from voxline.inference.recognizer import Recognizer

    try:
        print(json.dumps({"text": Recognizer(model).transcribe(clip)}))
    except WorkError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main(*sys.argv[1:])

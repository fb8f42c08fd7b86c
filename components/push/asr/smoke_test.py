"""Does the model load in a process that knows nothing but its files, and does it hear there what it heard before?

Run by itself: python -m voxline.components.push.asr.smoke_test MODEL CLIP
prints one line of JSON, {"text": …} or {"error": …}.
"""

import json
import sys
from pathlib import Path

from voxline.components.push.gate import Check
from voxline.components.push.smoke_test import answer
from voxline.errors import WorkError

NAME = "known clip"


def known_clip(model: Path, clip: Path, expected: str, seconds: float) -> Check:
    """Lets a fresh process transcribe the clip that evaluate recorded."""
    told = answer("voxline.components.push.asr.smoke_test", [str(model), str(clip)], seconds)
    if "text" not in told:
        return Check(NAME, False, f"a fresh process could not transcribe the known clip: {told.get('error')}")
    if told["text"] != expected:
        detail = f"a fresh process heard {told['text']!r} in the known clip, evaluate heard {expected!r}"
        return Check(NAME, False, detail)
    return Check(
        NAME, True, f"a fresh process loaded the model and heard {expected!r} in the known clip, as evaluate did"
    )


def main(model: str, clip: str) -> None:
    from voxline.inference.saved_model import Recogniser

    try:
        (text,) = Recogniser(model).transcribe_files([clip])
        print(json.dumps({"text": text}))
    except WorkError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main(*sys.argv[1:])

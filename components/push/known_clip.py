"""Does the model load in a process that knows nothing but its files, and does it hear there what it heard before?

Run by itself: python -m components.push.known_clip MODEL CLIP
prints one line of JSON, {"text": …} or {"error": …}.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import components
from components.push.gate import Check
from components.speech.errors import WorkError

NAME = "known clip"


def known_clip(model: Path, clip: Path, expected: str, seconds: float) -> Check:
    """Lets a fresh process transcribe the clip that evaluate recorded.

    Args:
      seconds: how long that process may take, loading TensorFlow included.
    """
    command = [sys.executable, "-P", "-m", "components.push.known_clip", str(model), str(clip)]
    home = str(Path(components.__path__[0]).parent)
    paths = [home, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        done = subprocess.run(  # noqa: S603  (an argument list of ours, no shell)
            command, capture_output=True, text=True, timeout=seconds, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return Check(NAME, False, f"a fresh process did not transcribe the known clip in {seconds:g} s (clip_seconds)")
    answer = _answer(done.stdout)
    if "text" not in answer:
        why = answer.get("error") or _last_line(done.stderr) or f"it ended with status {done.returncode}"
        return Check(NAME, False, f"a fresh process could not use the model: {why}")
    if answer["text"] != expected:
        detail = f"a fresh process heard {answer['text']!r} in the known clip, evaluate heard {expected!r}"
        return Check(NAME, False, detail)
    return Check(
        NAME, True, f"a fresh process loaded the model and heard {expected!r} in the known clip, as evaluate did"
    )


def main(model: str, clip: str) -> None:
    from components.speech.exported import Recogniser

    try:
        (text,) = Recogniser(model).transcribe_files([clip])
        print(json.dumps({"text": text}))
    except WorkError as error:
        print(json.dumps({"error": str(error)}))


def _answer(output: str) -> dict[str, str]:
    """The last line that is ours: libraries print too."""
    for line in reversed(output.splitlines()):
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if isinstance(values, dict):
            return values
    return {}


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:300]


if __name__ == "__main__":
    main(*sys.argv[1:])

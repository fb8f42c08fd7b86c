"""Piper's own runtime speaks texts: run by `benchmarks.public_voices` in the environment of `make test-programs`.

python piper_speech.py VOICE.onnx TEXTS.json    prints processor seconds and seconds of speech, behind some first texts
"""

import json
import os
import sys
import time
from pathlib import Path

from piper import PiperVoice

WARM = 3
"""Texts before the clock starts."""

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
voice = PiperVoice.load(sys.argv[1])
# Its own session has a thread for each core, which wait for each other by spinning: processor time that is no work.
options = voice.session.get_session_options()
options.intra_op_num_threads = 1
voice.session = type(voice.session)(sys.argv[1], options, providers=voice.session.get_providers())
texts = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))


def speak(text: str) -> int:
    return sum(len(part.audio_float_array) for part in voice.synthesize(text))


for text in texts[:WARM]:
    speak(text)
start = time.process_time()
samples = sum(map(speak, texts))
print(json.dumps({"processor": time.process_time() - start, "speech": samples / voice.config.sample_rate}))

"""Tempo by SSML: how long speech becomes, and whether a recognizer still understands it.

Beside espeak-ng, which speaks the recordings' voice at other speeds by itself, since a recognizer is rarely trained on
such tempos; and, of a FastSpeech voice, beside its durations scaled in the network.

  python -m benchmarks.tempo VOICE RECOGNIZER MANIFEST [TEXTS]

VOICE: an exported voice with an ONNX graph. RECOGNIZER: an exported recognizer. MANIFEST: of the step convert.
"""

import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

from voxline.components.demo_corpus.espeak import EspeakVoice, speak
from voxline.data.manifest import Utterance, read_manifest
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.recognizer import Recognizer
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.waveforms import prepare_array
from voxline.metrics.wer import count_word_edits, sum_edits

Array = npt.NDArray[np.float32]
RATES = (0.5, 0.75, 1.5, 2.0)
ESPEAK = EspeakVoice("en-us", "m3")
WORDS_A_MINUTE = (87, 131, 175, 262, 350)


def main(voice: Path, recognizer: Recognizer, utterances: Sequence[Utterance]) -> None:
    texts = [str(utterance.extra["normalized_text"]) for utterance in utterances]

    def report(name: str, waveforms: Sequence[Array], sample_rate: int, ratios: Sequence[float]) -> None:
        loud = [(each / max(1.0, float(np.abs(each).max()))).astype(np.float32) for each in waveforms]
        heard = recognizer.transcribe_waveforms([prepare_array(x, sample_rate, recognizer.sample_rate) for x in loud])
        edits = sum_edits(count_word_edits(texts, heard))
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        print(f"{name:<44} duration over wanted {spread}   words wrong {edits.rate:6.2%}", flush=True)

    synthesizer = Synthesizer(voice, threads=1)
    rate, kind = synthesizer.sample_rate, synthesizer.info.kind
    usual = [synthesizer.speak(utterance.text).waveform for utterance in utterances]
    report(f"{kind}, {len(texts)} texts", usual, rate, [1.0])
    for tempo in RATES:
        marked = [f'<speak><prosody rate="{tempo:.0%}">{escape(one.text)}</prosody></speak>' for one in utterances]
        made = [synthesizer.speak(text).waveform for text in marked]
        report(f"{kind}, mel frames, {tempo:.0%}", made, rate, ratios(made, usual, tempo))
    for tempo in RATES if kind == "fastspeech" else ():
        with tempfile.TemporaryDirectory() as scratch:
            changed = Synthesizer(scale_durations(voice, Path(scratch, "model"), tempo), threads=1)
            made = [changed.speak(utterance.text).waveform for utterance in utterances]
        report(f"{kind}, durations in the network, {tempo:.0%}", made, rate, ratios(made, usual, tempo))
    recorded = sum(utterance.duration for utterance in utterances)
    for words in WORDS_A_MINUTE:
        spoken, sample_rate = speak(EspeakVoice(ESPEAK.language, ESPEAK.variant, words), texts)
        tempo = recorded / (sum(map(len, spoken)) / sample_rate)
        report(f"espeak-ng itself, {tempo:.0%} of the recordings' tempo", spoken, sample_rate, [1.0])


def ratios(made: Sequence[Array], usual: Sequence[Array], tempo: float) -> list[float]:
    """The duration of each text over the one that its tempo asks for."""
    return [len(each) * tempo / len(before) for each, before in zip(made, usual, strict=True)]


def scale_durations(voice: Path, folder: Path, tempo: float) -> Path:
    """A copy of a FastSpeech voice whose predicted durations are divided by the tempo."""
    import onnx

    shutil.copytree(voice, folder)
    model = onnx.load(str(folder / ONNX_FILE))
    nodes = model.graph.node
    exponent = next(node for node in nodes if node.op_type == "Exp")  # of the predicted logarithms
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(math.log(tempo)), "tempo"))
    nodes.insert(list(nodes).index(exponent), onnx.helper.make_node("Sub", [exponent.input[0], "tempo"], ["scaled"]))
    exponent.input[0] = "scaled"
    (folder / ONNX_FILE).write_bytes(model.SerializeToString())
    return folder


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    test = [utterance for utterance in read_manifest(sys.argv[3]) if utterance.split == "test"]
    main(Path(sys.argv[1]), Recognizer(sys.argv[2]), test[: int(sys.argv[4]) if len(sys.argv) > 4 else 60])

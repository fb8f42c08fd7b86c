"""The exported voice: symbols in, mels and a waveform out, everything between in the graph.

Signatures:
  synthesize      symbols int32 [batch, n], lengths int32 [batch] → mels float32 [batch, t, mels] (raw), frames int32
                  [batch], alignments float32 [batch, steps, n], waveforms float32 [batch, samples], samples int32
                  [batch], hit_limit bool [batch]: the decoder was cut after `max_steps`.
  teacher_forced  the same symbols and lengths, features float32 [batch, t, bins] (raw), frames int32 [batch] → mels,
                  alignments, mel_l1 float32 [batch]: mean error over real frames and mels, in raw units.

With a decoder of 8 bits (`train.export.decoder: int8`) the decoder is a file beside them, and `encode` and `refine`
stand in the place of `synthesize`; see `int8`.
"""

from pathlib import Path
from typing import Any

from components.speech.dataset import Dataset
from components.speech.int8_decoder import DECODER
from components.train.checkpoints import Arrays
from components.train.export import about, write_exported
from components.train.synthesis.int8 import PartedVoice, converted
from components.train.synthesis.learner import build
from components.train.synthesis.settings import SynthesisSettings
from components.train.synthesis.voice import Voice, WholeVoice


def export(
    folder: Path, settings: SynthesisSettings, dataset: Dataset, weights: Arrays, trained: dict[str, Any]
) -> None:
    """Writes the exported voice, whole or not at all.

    Args:
      weights: by the names of `Learner.weights`.
      trained: what model.json says of the training; its `best_step` decides the frames in a decoder step.
    """
    model = build(settings, dataset, portable=True)
    for index, variable in enumerate(model.weights):
        variable.assign(weights[f"model/{index}"])
    reduction, decoder = settings.learnt_reduction(int(trained["best_step"])), settings.export.decoder
    module: Voice
    if decoder == "float32":
        module = whole = WholeVoice(model, settings, dataset, reduction)
        signatures, beside = {"synthesize": whole.synthesize, "serving_default": whole.synthesize}, {}
    else:
        module = parted = PartedVoice(model, settings, dataset, reduction)
        signatures = {"encode": parted.encode, "refine": parted.refine}
        beside = {DECODER: converted(model, reduction)}
    signatures["teacher_forced"] = module.teacher_forced
    said = about(settings.model.kind, settings, dataset, trained)
    said |= {"reading": dataset.reading, "max_steps": module.max_steps, "reduction": reduction, "decoder": decoder}
    write_exported(folder, module, signatures, said, beside)

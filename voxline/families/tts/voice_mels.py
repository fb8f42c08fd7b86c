"""A voice's mels of recordings, teacher-forced: frame by frame beside the recording, with the voice's own faults.

A vocoder that is fine-tuned on them learns to make up for what the voice blurs (HiFi-GAN, Kong et al. 2020, section
4.4), and so does a sharpener. They are computed once per training, before its first step, and are kept in its folder
until it ends.
"""

from pathlib import Path

import numpy as np

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.reader import Example
from voxline.errors import SettingsError
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.vocoder import check_same_mels
from voxline.progress import Progress, print_status
from voxline.store.files import atomic_folder
from voxline.training.segments import MelSegmentBatches

AT_A_TIME = 64
"""Utterances whose mels are computed together, in batches of similar length."""


def use_mels_of_voice(batches: MelSegmentBatches, voice: Path, features: FeatureSettings, folder: Path) -> None:
    """Lets batches have a voice's mels, of the texts and frames of the recordings.

    Args:
      voice: its exported folder.
      features: of the dataset.
      folder: for the mels, a file for each utterance; if it exists, the mels in it are used.

    Raises:
      SettingsError: the voice makes mels of other settings, or cannot read a text.
    """
    if not folder.is_dir():
        synthesizer = Synthesizer(voice)
        check_same_mels(features, synthesizer.features, "train.voice", f"the voice {voice}")
        with atomic_folder(folder) as unfinished:
            print_status(f"train: the voice speaks {batches.utterances:,} utterances of {folder.name}, teacher-forced")
            progress = Progress("utterances spoken", batches.utterances)
            for first in range(0, batches.utterances, AT_A_TIME):
                rows = range(first, min(first + AT_A_TIME, batches.utterances))
                examples = [batches.example(row) for row in rows]
                _check_texts(synthesizer, examples)
                recorded = [
                    batches.features_for(synthesizer.features, row, one.features)
                    for row, one in zip(rows, examples, strict=True)
                ]
                spoken = synthesizer.teacher_forced([one.text for one in examples], recorded)
                for row, one in zip(rows, spoken, strict=True):
                    np.save(unfinished / f"{row}.npy", one.mels)
                progress.advance(len(rows))
    batches.voice_mels = folder


def _check_texts(synthesizer: Synthesizer, examples: list[Example]) -> None:
    for one in examples:
        try:
            synthesizer.text.check_symbols(one.text)
        except SettingsError as error:
            raise SettingsError(f"train.voice cannot read the text of {one.id}: {error}") from None

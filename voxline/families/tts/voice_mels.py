"""A voice's mels of recordings, teacher-forced: with the frames of the recording, and the voice's own faults.

A vocoder that is fine-tuned on them learns to make up for what the voice blurs (HiFi-GAN, Kong et al. 2020, section
4.4), and so does a sharpener. They are computed once per training, before its first step, and are kept in its folder
until it ends.
"""

from pathlib import Path

import numpy as np

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.reader import Example
from voxline.errors import SettingsError
from voxline.families.tts.speakers import name_speakers
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.vocoder import check_same_mels
from voxline.progress import Progress, print_status
from voxline.store.files import atomic_folder
from voxline.training.segments import MelSegmentBatches

AT_A_TIME = 64
"""Utterances whose mels are computed together, in batches of similar length."""


def use_mels_of_voice(batches: MelSegmentBatches, voice: Path, features: FeatureSettings, folder: Path) -> None:
    """Gives batches a voice's mels of the same texts and frames as the recordings.

    Args:
      voice: its exported folder.
      features: of the dataset.
      folder: for the mels, a file for each utterance; if it exists, the mels in it are used.

    Raises:
      SettingsError: the voice makes mels of other settings, cannot read a text, or does not have a speaker.
    """

    # Mels of a killed run are used again: the folder appears once all are in it.
    if not folder.is_dir():
        synthesizer = Synthesizer(voice)
        check_same_mels(features, synthesizer.features, "train.voice", f"the voice {voice}")
        with atomic_folder(folder) as unfinished:
            print_status(f"train: the voice speaks {batches.utterances:,} utterances of {folder.name}, teacher-forced")
            progress = Progress("utterances spoken", batches.utterances)
            for first in range(0, batches.utterances, AT_A_TIME):
                rows = range(first, min(first + AT_A_TIME, batches.utterances))
                examples = [batches.example(row) for row in rows]
                _check_examples(synthesizer, examples)

                # Teacher forcing needs features of the voice's kind, which may have more columns than the vocoder's.
                recorded = [
                    batches.features_for(synthesizer.features, row, example.features)
                    for row, example in zip(rows, examples, strict=True)
                ]
                speakers = [example.speaker for example in examples] if synthesizer.speakers else []
                spoken = synthesizer.teacher_forced([example.text for example in examples], recorded, speakers)
                for row, example in zip(rows, spoken, strict=True):
                    np.save(unfinished / f"{row}.npy", example.mels)
                progress.advance(len(rows))

    batches.voice_mels = folder


def _check_examples(synthesizer: Synthesizer, examples: list[Example]) -> None:
    for example in examples:
        try:
            synthesizer.text.check_symbols(example.text)
        except SettingsError as error:
            raise SettingsError(f"train.voice cannot read the text of {example.id}: {error}") from None
        if synthesizer.speakers and example.speaker not in synthesizer.speakers:
            raise SettingsError(
                f"train.voice does not speak as {example.speaker or 'nobody'}, who says {example.id}; it speaks as "
                f"{name_speakers(synthesizer.speakers)}"
            )

"""Rows of a voice's speaker table that are not learned, but are what an encoder hears in each speaker's recordings."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from voxline.audio.speaker_encoder import PLACE_UNITS, SpeakerEncoder
from voxline.data.dataset import Dataset
from voxline.progress import print_status
from voxline.training.segments import RecordedWaveforms

SECONDS_HEARD = 20.0
"""Seconds of a speaker's recordings, about, that make their row: a person's has ten or more."""


def hear_speakers(encoder: SpeakerEncoder, dataset: Dataset, names: Sequence[str]) -> npt.NDArray[np.float32]:
    """The rows of speakers by their recordings in train, float32 [speakers, values].

    Raises:
      WorkError: recordings of the dataset are not in its store.
    """
    of_speaker: dict[str, list[str]] = {name: [] for name in names}
    seconds = {}
    for row in dataset.rows():
        if row.split == "train":
            of_speaker[row.speaker].append(row.id)
            seconds[row.id] = row.duration

    # Some of each, evenly spaced in the order of the dataset.
    chosen = {}
    for name, ids in of_speaker.items():
        total = sum(seconds[id] for id in ids)
        chosen[name] = ids[:: max(1, int(total / SECONDS_HEARD))]
    recordings = RecordedWaveforms(dataset, "train", [id for ids in chosen.values() for id in ids])
    rate = dataset.features.sample_rate
    print_status(f"train: the encoder hears some {SECONDS_HEARD:g} s of each of {len(names):,} speakers")

    rows = []
    number = 0
    for ids in chosen.values():
        waveforms = []
        for id in ids:
            # Without the last hop: the duration of an utterance may be that of whole hops.
            samples = int(seconds[id] * rate) - dataset.features.hop_length
            waveforms.append(recordings.read(number, 0, max(samples, 1)))
            number += 1
        # Joined, as a person's recording is of several sentences: the encoder would hear a short one and then silence.
        rows.append(row_heard(encoder, np.concatenate(waveforms), rate))
    return np.stack(rows)


def row_heard(encoder: SpeakerEncoder, waveform: npt.NDArray[np.float32], sample_rate: int) -> npt.NDArray[np.float32]:
    """What the encoder hears, float32 [values]: not of length 1, but with values of about 1, as a layer learns by."""
    place: npt.NDArray[np.float32] = encoder.embed(waveform, sample_rate) * np.float32(np.sqrt(PLACE_UNITS))
    return place

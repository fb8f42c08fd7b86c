"""Writing a corpus as THCHS-30 lays it out (openslr.org/18): each WAV with its transcript, and folders that are splits.

data_thchs30/data/A1_17.wav
data_thchs30/data/A1_17.wav.trn      三 杯 茶              hanzi, words parted by spaces
                                     san1 bei1 cha2        pinyin
                                     s an1 b ei1 ch a2     initials and finals
data_thchs30/train/A1_17.wav.trn     ../data/A1_17.wav.trn
"""

from collections.abc import Iterable
from pathlib import Path

import soundfile

from components.generate.ljspeech import Recorded
from components.generate.phones import phones

FOLDER = "data_thchs30"
SPEAKER = "A1"


def write_thchs30(root: Path, recordings: Iterable[Recorded], rate: int) -> float:
    """Writes the corpus; where the publisher's splits hold links, these hold the path. Returns its seconds."""
    for folder in ("data", "train", "dev", "test"):
        (root / folder).mkdir(parents=True)
    samples_written = 0
    for number, (split, sentence, samples) in enumerate(recordings):
        recording = f"{SPEAKER}_{number}.wav"
        soundfile.write(root / "data" / recording, samples, rate, subtype="PCM_16")
        spoken = " ".join(map(phones, sentence.normalised.split()))
        transcript = f"{sentence.written}\n{sentence.normalised}\n{spoken}\n"
        (root / "data" / f"{recording}.trn").write_text(transcript, encoding="utf-8")
        (root / split / f"{recording}.trn").write_text(f"../data/{recording}.trn\n", encoding="utf-8")
        samples_written += len(samples)
    return samples_written / rate

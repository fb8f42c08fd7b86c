"""Synthesizes speech with espeak-ng, which comes as a wheel with its data: the same texts give the same samples."""

import dataclasses
import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.errors import WorkError
from voxline.extras import missing_package

_PROCESS = Path(__file__).with_name("espeak_process.py")


@dataclasses.dataclass(frozen=True, slots=True)
class EspeakVoice:
    """A voice of espeak-ng.

    Attributes:
      language: "en-us", "en-gb-scotland", "cmn" (hanzi), "cmn-latn-pinyin" (pinyin with tone numbers), …
      variant: "m1" … "m8", "f1" … "f5"; empty for the language's own voice.
      rate: words per minute, 80 to 450.
      pitch: 0 to 99, relative to the variant's own.
      pitch_range: 0 (monotonous) to 99.
      constant_hz: F0 of all voiced sounds, in place of pitch and intonation; 0: none.
    """

    language: str
    variant: str = ""
    rate: int = 175
    pitch: int = 50
    pitch_range: int = 50
    constant_hz: int = 0

    @property
    def name(self) -> str:
        """The voice as espeak-ng names it.

        >>> EspeakVoice("en-gb-scotland", "f3").name
        'en-gb-scotland+f3'
        """
        return "+".join(filter(None, (self.language, self.variant)))


def speak(voice: EspeakVoice, texts: Sequence[str]) -> tuple[list[npt.NDArray[np.float32]], int]:
    """Synthesizes the texts one after the other, in a new process (see espeak_process.py for why).

    Another order of the texts gives slightly different samples.

    Returns:
      The samples of each text in [-1, 1], and their sample rate in Hz.

    Raises:
      MissingPackageError: espeak-ng is not installed.
      WorkError: espeak-ng does not know the voice, cannot be loaded, or is silent for a text.

    >>> (yes, no), rate = speak(EspeakVoice("en-us", "f3"), ["yes", "no"])
    >>> rate, yes.dtype, 0.2 < len(yes) / rate < 2, float(abs(no).max()) > 0.05
    (22050, dtype('float32'), True, True)
    """
    # The process would end in a traceback.
    if find_spec("espeakng_loader") is None:
        raise missing_package("espeakng_loader")

    # JSON by standard input, since a command line is limited in length.
    job = {
        "voice": voice.name,
        "rate": voice.rate,
        "pitch": voice.pitch,
        "pitch_range": voice.pitch_range,
        "constant_hz": voice.constant_hz,
        "texts": list(texts),
    }

    # -P: a file of the caller's folder must not shadow a module.
    process = subprocess.run(  # noqa: S603
        [sys.executable, "-P", str(_PROCESS)], input=json.dumps(job).encode(), capture_output=True, check=False
    )
    if process.returncode != 0:
        stderr = process.stderr.decode(errors="replace").strip().splitlines() or ["nothing on stderr"]
        raise WorkError(
            f"voice {voice.name}: espeak-ng failed with status {process.returncode}: {stderr[-1]}; "
            "if it cannot be loaded, reinstall espeakng-loader"
        )

    recordings, rate = _unpack(process.stdout, len(texts))
    # A voice that cannot read a text, such as hanzi in English, may be silent without an error.
    for text, samples in zip(texts, recordings, strict=True):
        if not samples.any():
            raise WorkError(f"voice {voice.name}: espeak-ng is silent for {text!r}; give it words of its language")
    return recordings, rate


def _unpack(data: bytes, count: int) -> tuple[list[npt.NDArray[np.float32]], int]:
    # See espeak_process.py for the format. int16 becomes float32 in [-1, 1).
    (rate,) = struct.unpack_from("<I", data)
    recordings: list[npt.NDArray[np.float32]] = []
    position = 4
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, position)
        samples = np.frombuffer(data, dtype=np.int16, count=length, offset=position + 4)
        recordings.append(samples.astype(np.float32) / np.float32(32768))
        position += 4 + 2 * length
    return recordings, rate

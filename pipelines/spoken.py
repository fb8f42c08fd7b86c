"""A text spoken into a WAV by an exported voice."""

import sys
from pathlib import Path

from components.speech.errors import SettingsError

STDIN = "-"


def text_of(argument: str) -> str:
    """The text itself, or for `-` what stands on standard input.

    Raises:
      SettingsError: standard input is no UTF-8.
    """
    if argument != STDIN:
        return argument
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig").strip()  # Windows puts a mark before it
    except UnicodeDecodeError as error:
        raise SettingsError(f"the text on standard input is not UTF-8: {error}; convert it") from None


def speak_into(output: Path, text: str, model: Path) -> list[str]:
    """Speaks a text into a WAV, whole or not at all. Returns what to tell a person.

    Raises:
      SettingsError: the output is no .wav in a folder that is there, or the voice cannot read the text.
      WorkError: the model is damaged, or no voice.
    """
    if output.suffix.lower() != ".wav" or output.is_dir():
        raise SettingsError(f"--output {output}: a file whose name ends in .wav is accepted")
    if not output.absolute().parent.is_dir():
        raise SettingsError(f"--output {output}: there is no folder {output.parent}; make it, or name another place")

    from components.speech.exported import about
    from components.speech.speakable import Speakable
    from components.speech.storage import whole_file
    from components.speech.synthesiser import Synthesiser
    from components.speech.text import Alphabet

    Speakable(Alphabet(about(model)["alphabet"])).check_text(text)  # before TensorFlow is waited for
    voice = Synthesiser(model)
    (spoken,) = voice.synthesise([text])

    import numpy as np
    import soundfile

    # Griffin-Lim knows no full scale: a peak above it is brought down to it, not cut off.
    loudest = float(np.abs(spoken.waveform).max(initial=1.0))
    with whole_file(output, "wb") as file:
        soundfile.write(file, spoken.waveform / loudest, voice.sample_rate, format="WAV", subtype="PCM_16")
    told = [f"{output}  {len(spoken.waveform) / voice.sample_rate:.1f} s at {voice.sample_rate} Hz"]
    if spoken.hit_limit:
        told.append(
            f"the voice did not come to an end within its {int(voice.about['max_steps']):,} decoder steps and was cut; "
            "shorten the text, or train the voice longer"
        )
    return told

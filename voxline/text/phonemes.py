"""English words to IPA by espeak-ng, in this process: unlike sound, phonemes carry no state from text to text."""

import atexit
import ctypes
import re
import tempfile
import threading
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

from voxline.text.alphabet import ALPHABETS
from voxline.text.settings import unsupported_characters

_SYNCHRONOUS, _DO_NOT_EXIT, _UTF8, _IPA = 2, 0x8000, 1, 2  # of speak_lib.h, espeak-ng 1.52
_LONGEST_DATA_PATH = 120
"""espeak-ng cuts a longer path to its data in silence."""

_lock = threading.Lock()


def phonemize(words: str) -> str:
    """IPA of English that was read, with its punctuation.

    >>> phonemize("hello there, world!")
    'həlˈoʊ ðˈɛɹ, wˈɜːld!'

    Raises:
      Unreadable: espeak-ng gives a sound that the alphabet has not.
    """
    pieces = re.split(r"([.,;:!?])", words)
    said = [piece if piece in ".,;:!?" else f" {_espeak_ipa(piece)}" for piece in pieces if piece.strip()]
    symbols = unicodedata.normalize("NFC", "".join(said).strip())
    if unknown := [one for one in symbols if one not in ALPHABETS["phonemes"]]:
        raise unsupported_characters(
            unknown, symbols, "the sounds of the alphabet 'phonemes' are accepted; write the word otherwise"
        )
    return symbols


def _espeak_ipa(words: str) -> str:
    buffer = ctypes.create_string_buffer(words.encode())
    place, said = ctypes.c_void_p(ctypes.addressof(buffer)), []
    with _lock:
        library = _load_espeak()
        while place.value:
            said.append(library.espeak_TextToPhonemes(ctypes.byref(place), _UTF8, _IPA).decode())
    # (fr) and the like tell that a word is said as in another language.
    return " ".join(re.sub(r"\([a-z-]{2,12}\)", "", " ".join(said)).replace("-", " ").split())


@cache
def _load_espeak() -> Any:
    import espeakng_loader

    library = ctypes.CDLL(espeakng_loader.get_library_path())
    data = Path(espeakng_loader.get_data_path())
    if len(str(data)) > _LONGEST_DATA_PATH:
        scratch = tempfile.TemporaryDirectory(prefix="espeak-")
        atexit.register(scratch.cleanup)
        (short := Path(scratch.name) / "espeak-ng-data").symlink_to(data, target_is_directory=True)
        data = short
    if library.espeak_Initialize(_SYNCHRONOUS, 0, str(data).encode(), _DO_NOT_EXIT) <= 0:
        raise RuntimeError(f"espeak-ng does not start with its data in {data}")
    if library.espeak_SetVoiceByName(b"en-us") != 0:
        raise RuntimeError(f"espeak-ng has no voice en-us in {data}")
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    return library

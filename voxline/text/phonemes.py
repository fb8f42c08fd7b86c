"""English to IPA with espeak-ng, in this process: phonemization, unlike synthesis, keeps no state between texts."""

import atexit
import ctypes
import re
import tempfile
import threading
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

from voxline.text.alphabet import ALPHABETS, EmptyText, unsupported_characters

# of speak_lib.h, espeak-ng 1.52
_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_UTF8 = 1
_IPA = 2
_LONGEST_DATA_PATH = 120
"""espeak-ng silently truncates a longer path to its data."""

_IPA_SIGNS = str.maketrans({"g": "ɡ", "'": "ˈ", **dict.fromkeys(".͜͡‿|‖/[]")})
_VOWELS = "aeiouæøœɐɑɒɔəɚɛɜɪʊʌᵻ"
_STRESS = re.compile(f"([ˈˌ])([^ ˈˌ{_VOWELS}]+)(?=[{_VOWELS}])")

_lock = threading.Lock()


def phonemize(words: str) -> str:
    """Converts normalized English to IPA; punctuation stays.

    >>> phonemize("hello there, world!")
    'həlˈoʊ ðˈɛɹ, wˈɜːld!'

    Raises:
      UnsupportedText: espeak-ng returns a sound that is not in the alphabet.
    """
    # Marks are kept out of espeak-ng, which would drop them.
    pieces = re.split(r"([.,;:!?])", words)
    parts = [piece if piece in ".,;:!?" else f" {_espeak_ipa(piece)}" for piece in pieces if piece.strip()]
    symbols = unicodedata.normalize("NFC", "".join(parts).strip())
    if unknown := [symbol for symbol in symbols if symbol not in ALPHABETS["phonemes"]]:
        raise unsupported_characters(
            unknown, symbols, "the sounds of the alphabet 'phonemes' are accepted; spell the word differently"
        )
    return symbols


def normalize_ipa(pronunciation: str) -> str:
    """IPA as `phonemize` writes it: stress before the vowel, without syllable dots and ties, ɡ in its own letter.

    >>> normalize_ipa("təˈmeɪ.toʊ"), normalize_ipa("ˈt͡ʃɪpt ˈɛg")
    ('təmˈeɪtoʊ', 'tʃˈɪpt ˈɛɡ')

    Raises:
      UnsupportedText: a sound is not in the alphabet, or there is none.
    """
    plain = " ".join(unicodedata.normalize("NFC", pronunciation).translate(_IPA_SIGNS).split())
    # IPA sets the stress before the syllable, espeak-ng before its vowel.
    symbols = _STRESS.sub(r"\2\1", plain)
    sounds = ALPHABETS["phonemes"].translate(dict.fromkeys(map(ord, ".,;:!?")))
    if unknown := [symbol for symbol in symbols if symbol not in sounds]:
        raise unsupported_characters(unknown, pronunciation, f"the sounds of espeak-ng's en-us are accepted: {sounds}")
    if not any(symbol.isalpha() for symbol in symbols):
        raise EmptyText(f"{pronunciation!r} has no sounds")
    return symbols


def add_possessive(symbols: str) -> str:
    """The sound of 's behind a word's: ᵻz after a sibilant, s after a voiceless consonant, else z.

    >>> [add_possessive(word) for word in ("bˈɑːks", "kˈæt", "dˈɔɡ")]
    ['bˈɑːksᵻz', 'kˈæts', 'dˈɔɡz']
    """
    return symbols + ("ᵻz" if symbols[-1:] in tuple("szʃʒ") else "s" if symbols[-1:] in tuple("ptkfθ") else "z")


def _espeak_ipa(words: str) -> str:
    buffer = ctypes.create_string_buffer(words.encode())
    position = ctypes.c_void_p(ctypes.addressof(buffer))
    parts = []
    # One text at a time: the library has one state for the process.
    with _lock:
        library = _load_espeak()
        # It returns a clause at a time, and moves the position.
        while position.value:
            parts.append(library.espeak_TextToPhonemes(ctypes.byref(position), _UTF8, _IPA).decode())
    # (fr) and the like mark a word that is pronounced as in another language.
    return " ".join(re.sub(r"\([a-z-]{2,12}\)", "", " ".join(parts)).replace("-", " ").split())


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
        raise RuntimeError(f"espeak-ng cannot be started with its data in {data}")
    if library.espeak_SetVoiceByName(b"en-us") != 0:
        raise RuntimeError(f"espeak-ng has no voice en-us in {data}")
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    return library

"""Text to IPA with espeak-ng, in a process of its own: `espeak_child`.

English is spelled out by our own rules before (`phonemize`). Other languages go to espeak-ng as they are written, marks
apart (`phonemize_language`).
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import unicodedata
from pathlib import Path

from voxline.errors import WorkError
from voxline.extras import naming_extras
from voxline.text.alphabet import ALPHABETS, EmptyText, UnsupportedText, unsupported_characters

ENGLISH = "en-us"
_CHILD = Path(__file__).with_name("espeak_child.py")
_MARKS = str.maketrans(
    {
        "…": ".",
        "。": ".",
        "．": ".",
        "，": ",",
        "、": ",",
        "；": ";",
        "：": ":",
        "！": "!",
        "？": "?",
        "،": ",",
        "؛": ";",
        "؟": "?",
        "।": ".",
    }
)
"""Marks of other scripts → those that a voice knows."""
_CLAUSES = re.compile(r"([.,;:!?]+)(?=\s|$|[\u3000-\u9fff])")
"""Marks at the end of a word; 3.5 and 10:30 are for espeak-ng."""

_IPA_SIGNS = str.maketrans({"g": "ɡ", "'": "ˈ", **dict.fromkeys(".͜͡‿|‖/[]")})
_VOWELS = "aeiouæøœɐɑɒɔəɚɛɜɪʊʌᵻ"
_STRESS = re.compile(f"([ˈˌ])([^ ˈˌ{_VOWELS}]+)(?=[{_VOWELS}])")


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


def phonemize_language(text: str, language: str) -> str:
    """Converts a text of any language of espeak-ng to IPA, decomposed (NFD) as Piper's voices read it.

    >>> phonemize_language("Ciao, mondo!", "it")
    'tʃˈao, mˈondo!'

    Raises:
      UnsupportedText: espeak-ng does not know the language.
      EmptyText: nothing is left to say.
    """
    symbols = part_phonemes(text, language)
    if not any(symbol.isalpha() for symbol in symbols):
        raise EmptyText(f"{text!r} has no sounds")
    return symbols.strip()


def part_phonemes(text: str, language: str) -> str:
    """Converts a part of a sentence, which may have no sounds."""
    # Pieces and their marks by turns; of "?!" the last mark counts.
    symbols = ""
    for piece in _CLAUSES.split(text.translate(_MARKS)):
        if piece and set(piece) <= set(".,;:!?"):
            symbols = symbols.rstrip() + piece[-1]
        elif piece.strip():
            symbols += f" {_espeak_ipa(piece, language)}"
    return unicodedata.normalize("NFD", " ".join(symbols.split()))


def _espeak_ipa(words: str, language: str = ENGLISH) -> str:
    parts = _espeak.clauses(words, language)
    # (fr) and the like mark a word that is pronounced as in another language.
    ipa = re.sub(r"\([a-z-]{2,12}\)", "", " ".join(parts))
    return " ".join((ipa.replace("-", " ") if language == ENGLISH else ipa).split())


class _Espeak:
    """espeak-ng in its process, which starts at the first text and ends with this one. A fork starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def clauses(self, text: str, voice: str) -> list[str]:
        """IPA of each clause.

        Raises:
          UnsupportedText: it has no such voice.
          WorkError: its process ends early twice.
        """
        # One text at a time: the library has one state for its process.
        request = json.dumps({"voice": voice, "text": text}).encode() + b"\n"
        with self._lock:
            line = self._ask(request) or self._ask(request)
        if not line:
            raise WorkError(f"espeak-ng ended its process on {text[:100]!r}; reinstall espeakng-loader")
        answer = json.loads(line)
        if "error" in answer:
            raise UnsupportedText(f"{answer['error']}; its languages are listed by `espeak-ng --voices`")
        clauses: list[str] = answer["clauses"]
        return clauses

    def _ask(self, request: bytes) -> bytes:
        """The answer; empty if the process has ended."""
        # Another process' pipes are no use to a fork.
        process = self._process
        if process is None or self._owner != os.getpid() or process.poll() is not None:
            process = self._start()
        line = b""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(request)  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            line = bytes(process.stdout.readline())  # type: ignore[union-attr]
        if not line:
            # Its pipes close a moment before it can be waited for; until then it would be taken for alive.
            process.kill()
            process.wait()
        return line

    def _start(self) -> "subprocess.Popen[bytes]":
        with naming_extras():
            import espeakng_loader

        where = [espeakng_loader.get_library_path(), str(espeakng_loader.get_data_path())]
        self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and file
            [sys.executable, "-I", "-S", str(_CHILD), *where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        self._owner = os.getpid()
        return self._process

    def end(self) -> None:
        """Ends the process, which reads no further text."""
        with contextlib.suppress(OSError):
            if self._process is not None and self._owner == os.getpid():
                self._process.communicate()


_espeak = _Espeak()
os.register_at_fork(after_in_child=_espeak.__init__)  # type: ignore[misc]

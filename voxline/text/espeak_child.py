"""The process that espeak-ng works in: a line of JSON in, a line of JSON out. It imports nothing of ours.

espeak-ng is licensed under GPL-3.0-or-later; this program loads its library, and Voxline talks to the program by pipes.

in    {"voice": "en-us", "text": "hello there"}
out   {"clauses": ["həlˈoʊ ðˈɛɹ"]}, or {"error": "..."}
"""

import ctypes
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

# of speak_lib.h, espeak-ng 1.52
SYNCHRONOUS = 2
DO_NOT_EXIT = 0x8000
UTF8 = 1
IPA = 2
LONGEST_DATA_PATH = 120
"""espeak-ng silently truncates a longer path to its data."""


def load(library_path: str, data: Path) -> Any:
    """The library, initialized with its data."""
    library = ctypes.CDLL(library_path)
    if library.espeak_Initialize(SYNCHRONOUS, 0, str(data).encode(), DO_NOT_EXIT) <= 0:
        raise RuntimeError(f"espeak-ng cannot be started with its data in {data}")
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    return library


def clauses(library: Any, text: str) -> list[str]:
    """IPA of each clause. Phonemization, unlike synthesis, keeps no state between texts."""
    buffer = ctypes.create_string_buffer(text.encode())
    position = ctypes.c_void_p(ctypes.addressof(buffer))
    parts = []
    # It returns a clause at a time, and moves the position.
    while position.value:
        parts.append(library.espeak_TextToPhonemes(ctypes.byref(position), UTF8, IPA).decode())
    return parts


def main(library_path: str, data_path: str) -> None:
    """Answers until its input ends."""
    data = Path(data_path)
    with tempfile.TemporaryDirectory(prefix="espeak-") as scratch:
        # A link with a short name, where the path is too long.
        if len(data_path) > LONGEST_DATA_PATH:
            short = Path(scratch) / "espeak-ng-data"
            short.symlink_to(data, target_is_directory=True)
            data = short
        # The library is loaded for the first text, so that an error is an answer.
        voice = ""
        library = None
        for line in sys.stdin.buffer:
            request = json.loads(line)
            try:
                library = library or load(library_path, data)
                if request["voice"] != voice and library.espeak_SetVoiceByName(request["voice"].encode()) != 0:
                    raise RuntimeError(f"espeak-ng has no voice {request['voice']!r}")
                voice = request["voice"]
                answer: dict[str, Any] = {"clauses": clauses(library, request["text"])}
            except (OSError, RuntimeError) as error:
                answer = {"error": str(error)}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

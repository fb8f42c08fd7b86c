"""espeak-ng in a process of its own: reads a job from stdin, writes samples to stdout.

`espeak.speak` runs it as a file. espeak-ng carries state from utterance to utterance (the phase of its noise, among
others) that its random seed does not reset: a repeated sentence differs. Only a new process with the same sentences in
the same order gives the same samples. Of our modules it imports one that is small, so it starts fast.

In, JSON: {"voice": "en-us+f3", "rate": 175, "pitch": 50, "pitch_range": 50, "constant_hz": 0, "texts": ["…"]}.
Out, little-endian: the sample rate (uint32); for each text, how many samples (uint32) and then
those samples (int16).
"""

import ctypes
import json
import struct
import sys
import tempfile
from pathlib import Path

import espeakng_loader

from voxline.store.scratch import scratch_root

# Of speak_lib.h, espeak-ng 1.52; `espeak_ng_SetConstF0` is of espeak_ng.h.
_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_PARAMETERS = {"rate": 1, "pitch": 3, "pitch_range": 4}
_UTF8 = 1
_MAX_DATA_PATH = 120
"""espeak-ng silently cuts a longer path to its data (N_PATH_HOME is 160, with file names in it)."""


def main() -> None:
    job = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        library = ctypes.CDLL(espeakng_loader.get_library_path())
        rate = library.espeak_Initialize(_SYNCHRONOUS, 0, _data_path(Path(scratch)).encode(), _DO_NOT_EXIT)
        if rate <= 0:
            sys.exit(f"espeak_Initialize returned {rate} for the data in {espeakng_loader.get_data_path()}")
        library.espeak_ng_SetRandSeed(ctypes.c_long(1))  # else the time of day: voices with breath (f2, f3, f5) use it
        _callback, samples = _collect_samples(library)  # ctypes keeps no reference to a callback of its own

        _choose_voice(library, job)

        # A text with its number of samples in front, so that the reader knows where the next one begins.
        out = sys.stdout.buffer
        out.write(struct.pack("<I", rate))
        for text in job["texts"]:
            samples.clear()
            encoded = text.encode()

            # Synchronous: when it returns, the callback has received all samples. The size includes the final zero.
            status = library.espeak_Synth(encoded, len(encoded) + 1, 0, 1, 0, _UTF8, None, None)
            if status != 0:
                sys.exit(f"espeak_Synth returned {status} for {text!r}")

            out.write(struct.pack("<I", len(samples) // 2))
            out.write(samples)
        out.flush()


def _data_path(scratch: Path) -> str:
    path = Path(espeakng_loader.get_data_path())
    if len(str(path)) <= _MAX_DATA_PATH:
        return str(path)

    # A link of a short name, in a folder that is removed at the end.
    short = scratch / "espeak-ng-data"
    short.symlink_to(path, target_is_directory=True)
    return str(short)


def _choose_voice(library: ctypes.CDLL, job: dict) -> None:  # type: ignore[type-arg]
    language, _, variant = job["voice"].partition("+")

    # An unknown language is an error. An unknown variant is silently ignored, so look for its file.
    variants = Path(espeakng_loader.get_data_path()) / "voices" / "!v"
    if variant and not (variants / variant).is_file():
        sys.exit(f"no variant {variant!r}; there are {', '.join(sorted(path.name for path in variants.iterdir()))}")

    status = library.espeak_SetVoiceByName(job["voice"].encode())
    if status != 0:
        sys.exit(f"espeak-ng has no language {language!r} (espeak_SetVoiceByName returned {status})")

    for name, number in _PARAMETERS.items():
        library.espeak_SetParameter(number, int(job[name]), 0)
    if job["constant_hz"]:
        library.espeak_ng_SetConstF0(int(job["constant_hz"]))


def _collect_samples(library: ctypes.CDLL) -> tuple[object, bytearray]:
    """The callback that receives samples, and the buffer of 16-bit numbers that it fills."""
    # espeak-ng calls it many times for one text, and once with no samples at the end.
    buffer = bytearray()
    callback_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)

    def receive(samples, count, _events):  # type: ignore[no-untyped-def]
        if samples and count > 0:
            buffer.extend(ctypes.string_at(samples, 2 * count))
        return 0

    callback = callback_type(receive)
    library.espeak_SetSynthCallback(callback)
    return callback, buffer


if __name__ == "__main__":
    main()

"""From an utterance and its recording to a line of the manifest, or to a reject where they do not agree."""

import functools
import os
from pathlib import Path

from components.ingest.spool import Measured
from components.speech.lines import quoted
from components.speech.mirror import is_mirrored
from components.speech.utterances import SLACK_SECONDS, Reason, Reject


class Lines:
    """Lines of a manifest in a folder, as `components.speech.utterances.LineWriter` makes them of utterances.

    Here they are made of what JSON has already, since most of a refresh's work is this.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        """Takes the corpus' root and the manifest's folder."""
        self._root, self._folder = str(root), os.path.abspath(folder)
        # From a mirror no relative path leads out: on another machine it lies elsewhere.
        self._absolute = is_mirrored(Path(self._folder)) and not is_mirrored(Path(root))
        self._way = functools.lru_cache(1024)(self._way_to)

    def of(self, one: Measured, split: str) -> str | Reject:
        """The line; a reject where the file contradicts what the corpus says of it."""
        id, path, offset, said, text, speaker, _, source, extra, hash, seconds, fault = one
        if fault:
            return Reject(id, Reason.UNREADABLE, f"{source}: {path}: {fault}")
        if seconds and (offset + said > seconds + SLACK_SECONDS or offset >= seconds):
            detail = f"{source}: {path} has {seconds:.2f} s, the utterance is said to last until {offset + said:.2f} s"
            return Reject(id, Reason.TRUNCATED, detail)
        holder, _, name = path.rpartition("/")
        line = (
            f'{{"id": {quoted(id)}, "audio_filepath": {quoted(self._way(holder) + name)}, '
            f'"duration": {_duration(offset, said, seconds)!r}, "text": {quoted(text)}, "speaker": {quoted(speaker)}, '
            f'"split": "{split}", "audio_hash": "{hash}"'
        )
        if offset:
            line += f', "offset": {offset!r}'
        return f"{line}, {extra}}}\n" if extra else line + "}\n"

    def _way_to(self, holder: str) -> str:
        """How the manifest names a folder of the corpus; it ends in a slash."""
        folder = f"{self._root}/{holder}" if holder else self._root
        if not self._absolute:
            folder = os.path.relpath(folder, self._folder)
        return "" if folder == os.curdir else f"{folder}/"


def _duration(offset: float, said: float, seconds: float) -> float:
    """Seconds of the utterance: the corpus' for a part of a recording, else the header's to the end."""
    if not seconds:
        return said
    rest = seconds - offset
    if said and said < rest - SLACK_SECONDS:
        return said
    return said if said and offset and said <= rest else rest

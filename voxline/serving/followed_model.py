"""A model that follows an alias of the registry: what is promoted or rolled back takes the place of what serves.

The new version is loaded and warmed beside the old one, and then swapped in; requests that have started end with the
version that they began with. A version whose bytes are not those that were judged is not loaded: the old one stays.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import read_model_json
from voxline.inference.synthesizer import Synthesizer
from voxline.progress import print_status
from voxline.registry.journal import ALIASES, PRODUCTION
from voxline.registry.models import resolve_version
from voxline.registry.registry import Registry


@dataclass(frozen=True)
class LoadedVersion:
    """A version that serves.

    Attributes:
      engine: runs it.
      loaded: seconds since 1970.
    """

    engine: Recognizer | Synthesizer
    version: int
    digest: str
    loaded: float


class FollowedModel:
    """The version that an alias points at, loaded.

    Args:
      root: the registry's folder or URI.
      reference: NAME, NAME@production, NAME@candidate or NAME@7.
      threads: of ONNX Runtime for one recording.

    Attributes:
      reference: by which callers ask for it.
      swaps: versions that took the place of another one.
      failures: versions that could not be loaded.
      fault: why the version that the registry names now does not serve; "" if it does.
      absent: that no version has the alias now, which is no fault; "" if one has it. A version that serves stays.

    Raises:
      SettingsError, WorkError: the model or the version does not exist, or is damaged.
    """

    def __init__(self, root: Path | str, reference: str, threads: int = 1) -> None:
        self.reference, self.fault, self.absent = reference, "", ""
        self.swaps = self.failures = 0
        self._root, self._threads = root, threads
        self._refused: tuple[int, str] | None = None
        self._stopped = threading.Event()
        self._current: LoadedVersion | None = None
        if not self._is_absent():
            registry, version = resolve_version(root, reference)
            self._current = self._load(registry.intact_path(version), version, registry.event(version).digest)

    @property
    def current(self) -> LoadedVersion | None:
        """The version that serves; None while no version has had the alias. Take it once for each request."""
        return self._current

    def refresh(self) -> bool:
        """Follows the registry. Returns whether another version serves now; a fault leaves the old one serving."""
        try:
            before = self._current
            if self._is_absent():
                self.fault = ""
                return False
            registry, version = resolve_version(self._root, self.reference)
            digest = registry.event(version).digest
            if before and (version, digest) == (before.version, before.digest):
                self.fault, self._refused = "", None
                return False
            if (version, digest) == self._refused:
                return False
            try:
                loaded = self._load(registry.intact_path(version), version, digest)
            except (TransientError, PreconditionError, OSError):
                raise  # tried again at the next look
            except Exception:
                self._refused = version, digest  # not tried again until the registry names another one
                self.failures += 1
                raise
        except Exception as error:  # whatever it is, the old version serves and the registry is followed
            fault = str(error) or type(error).__name__
            if self.fault != fault:
                serving = f"version {self._current.version} still serves" if self._current else "nothing serves"
                print_status(f"serve: {self.reference}: {serving}: {fault}")
            self.fault = fault
            return False
        self._current, self.fault, self._refused = loaded, "", None
        self.swaps += before is not None
        place = f" in place of version {before.version}" if before else ""
        print_status(f"serve: {self.reference}: version {version}{place}")
        return True

    def follow(self, seconds: float) -> None:
        """Looks at the registry every few seconds, in a thread of its own."""

        def look() -> None:
            while not self._stopped.wait(seconds):
                self.refresh()

        threading.Thread(target=look, name=f"follow {self.reference}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _is_absent(self) -> bool:
        """Whether the model has versions, and none has the alias; says so in `absent`."""
        name, _, alias = self.reference.partition("@")
        self.absent = ""
        alias = alias or PRODUCTION
        if alias in ALIASES:
            registry = Registry(self._root, name)
            found = registry.in_service() if alias == PRODUCTION else registry.candidate()
            if found is None and registry.versions():
                self.absent = f"no version is {alias} now"
        return bool(self.absent)

    def _load(self, folder: Path, version: int, digest: str) -> LoadedVersion:
        try:
            voice = read_model_json(folder)["family"] == "tts"
            # The first call, which each of them makes, warms it.
            engine = Synthesizer(folder, threads=self._threads) if voice else Recognizer(folder, threads=self._threads)
        except WorkError as error:
            raise WorkError(f"{self.reference}, version {version}: {error}") from None
        return LoadedVersion(engine, version, digest, time.time())

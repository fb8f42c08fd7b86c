"""A recognizer that follows an alias of the registry: what is promoted or rolled back takes the place of what serves.

The new version is loaded and warmed beside the old one, and then swapped in; requests that have begun end with the
version that they began with. A version whose bytes are not those that were judged is not loaded: the old one goes on.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.inference.recognizer import Recognizer
from voxline.progress import print_status
from voxline.registry.models import resolve_version


@dataclass(frozen=True)
class LoadedVersion:
    """A version that serves.

    Attributes:
      loaded: seconds since 1970.
    """

    recognizer: Recognizer
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

    Raises:
      SettingsError, WorkError: the version does not exist, or is damaged.
    """

    def __init__(self, root: Path | str, reference: str, threads: int = 1) -> None:
        self.reference, self.fault = reference, ""
        self.swaps = self.failures = 0
        self._root, self._threads = root, threads
        self._refused: tuple[int, str] | None = None
        self._stopped = threading.Event()
        registry, version = resolve_version(root, reference)
        self._current = self._load(registry.intact_path(version), version, registry.event(version).digest)

    @property
    def current(self) -> LoadedVersion:
        """The version that serves. Take it once for each request."""
        return self._current

    def refresh(self) -> bool:
        """Follows the registry. Returns whether another version serves now; a fault leaves the old one serving."""
        try:
            registry, version = resolve_version(self._root, self.reference)
            digest = registry.event(version).digest
            before = self._current
            if (version, digest) == (before.version, before.digest):
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
                print_status(f"serve: {self.reference}: version {self._current.version} goes on: {fault}")
            self.fault = fault
            return False
        self._current, self.fault, self._refused = loaded, "", None
        self.swaps += 1
        print_status(f"serve: {self.reference}: version {version} in place of version {before.version}")
        return True

    def follow(self, seconds: float) -> None:
        """Looks at the registry every few seconds, in a thread of its own."""

        def look() -> None:
            while not self._stopped.wait(seconds):
                self.refresh()

        threading.Thread(target=look, name=f"follow {self.reference}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _load(self, folder: Path, version: int, digest: str) -> LoadedVersion:
        try:
            recognizer = Recognizer(folder, threads=self._threads)  # its first call warms it
        except WorkError as error:
            raise WorkError(f"{self.reference}, version {version}: {error}") from None
        return LoadedVersion(recognizer, version, digest, time.time())

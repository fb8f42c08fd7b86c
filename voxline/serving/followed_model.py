"""A model that follows an alias of the registry: what is promoted or rolled back takes the place of what serves.

The new version is loaded and warmed beside the old one, and then swapped in; requests that have started end with the
version that they began with. A version whose bytes are not those that were judged is not loaded: the old one stays.
"""

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from voxline.errors import PreconditionError, SettingsError, TransientError, WorkError
from voxline.inference.pace import USUAL_PACE, Pace
from voxline.inference.pauses import LEVEL
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import read_model_info
from voxline.inference.synthesizer import Synthesizer
from voxline.progress import print_status
from voxline.registry.journal import ALIASES, PRODUCTION
from voxline.registry.models import resolve_version
from voxline.registry.models_config import served_versions
from voxline.registry.registry import UNSIGNED, Registry
from voxline.registry.signing import check_digest


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

    If the version in production cannot be served when nothing else does, the last version takes its place that was in
    production before and is intact. Where the journal is lost, that is the version that `models.config` names.

    Args:
      root: the registry's folder or URI.
      reference: NAME, NAME@production, NAME@candidate or NAME@7.
      threads: of ONNX Runtime for one recording.
      pace: by which a voice that stops at once shows.
      pauses: at which recordings are cut; see `voxline.inference.pauses`.
      may_start_empty: whether a model of which no version can be served is a fault, and no error.

    Attributes:
      reference: by which callers ask for it.
      swaps: versions that took the place of another one.
      failures: versions that could not be loaded.
      fault: why the version that the registry names now does not serve; "" if it does.
      absent: that no version has the alias now, which is no fault; "" if one has it. A version that serves stays.
      named: the version that the registry names; None if that is unknown, or none has the alias.
      damage: why the files of the version that serves are no longer the ones that were loaded; "" if they are.
      verified: when they were last read and found whole, in seconds since 1970.

    Raises:
      SettingsError: the name or the alias is not accepted.
      WorkError: no version can be served.
    """

    def __init__(
        self,
        root: Path | str,
        reference: str,
        threads: int = 1,
        pauses: str = LEVEL,
        *,
        may_start_empty: bool = False,
        pace: Pace = USUAL_PACE,
    ) -> None:
        self.reference = reference
        self.fault = ""
        self.absent = ""
        self.damage = ""
        self.swaps = self.failures = 0
        self.named: int | None = None
        self.verified = time.time()

        self.pauses = pauses
        self._root = root
        self._threads = threads
        self._pace = pace

        # Versions that could not be loaded, with the files that they had then.
        self._refused: dict[int, tuple[str, ...]] = {}
        self._stopped = threading.Event()
        self._current: LoadedVersion | None = None

        # A server may start without a version: it picks up the first that can be served.
        try:
            self._look()
        except SettingsError:
            raise
        except Exception as error:
            if not self._take_earlier(error) and not may_start_empty:
                raise
            self._note_fault(error)

    @property
    def current(self) -> LoadedVersion | None:
        """The version that serves; None while no version has had the alias. Take it once for each request."""
        return self._current

    def refresh(self) -> bool:
        """Follows the registry. Returns whether another version serves now; a fault leaves the old one serving."""
        before = self._current
        try:
            self._look()
        except Exception as error:  # whatever it is, the old version serves and the registry is followed
            if before is None:
                self._take_earlier(error)
            self._note_fault(error)

        after = self._current
        if after is before or after is None:
            return False
        self.swaps += before is not None
        place = f" in place of version {before.version}" if before else ""
        print_status(f"serve: {self.reference}: version {after.version}{place}")
        return True

    def verify(self) -> None:
        """Reads the files of the version that serves again, and says in `damage` whether they have changed.

        The loaded model continues to serve: it is in memory, and was whole when it was loaded.
        """
        served = self._current
        if served is None:
            return
        damage = ""

        try:
            registry = Registry(self._root, self.reference.partition("@")[0])
            check_digest(registry.path(served.version), served.digest, UNSIGNED)
        except (TransientError, PreconditionError) as error:  # says nothing about the files
            print_status(f"serve: {self.reference}: version {served.version} could not be verified: {error}")
            return
        except Exception as error:
            damage = str(error) or type(error).__name__

        if served is not self._current:
            return  # swapped meanwhile

        if damage and damage != self.damage:
            print_status(f"serve: {self.reference}: version {served.version} serves from memory: {damage}")
        self.damage = damage
        if not damage:
            self.verified = time.time()

    def verify_every(self, minutes: float) -> None:
        """Calls `verify` by the clock, in a thread of the lowest priority."""

        def look() -> None:
            with contextlib.suppress(OSError):
                # The lowest priority: reading gigabytes must not slow an answer.
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)  # on Linux, of this thread alone
            while not self._stopped.wait(minutes * 60):
                self.verify()

        threading.Thread(target=look, name=f"verify {self.reference}", daemon=True).start()

    def follow(self, seconds: float) -> None:
        """Looks at the registry every few seconds, in a thread of its own."""

        def look() -> None:
            while not self._stopped.wait(seconds):
                self.refresh()

        threading.Thread(target=look, name=f"follow {self.reference}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _look(self) -> None:
        """Loads the version that the registry names, if it does not serve yet.

        Raises:
          Exception: whatever keeps it from being loaded.
        """
        # Unknown until the registry has been read.
        self.named = None
        if self._is_absent():
            self.fault = ""
            return
        registry, version = resolve_version(self._root, self.reference)
        self.named = version
        digest = registry.event(version).digest
        served = self._current

        # The same number with another digest is another model: a person may have replaced it.
        is_served = served is not None and (version, digest) == (served.version, served.digest)
        if is_served or self._load_new(registry, version, digest):
            self._refused.clear()
            self._note_lost(registry)

    def _note_lost(self, registry: Registry) -> None:
        """Says that the version in production is gone from the registry, which then counts the one before as such."""
        alias = self.reference.partition("@")[2] or PRODUCTION
        lost = registry.history().lost if alias == PRODUCTION else None
        if lost is None:
            self.fault = ""
            return
        self.named = lost
        self._note_fault(
            WorkError(f"{registry.uri}/{lost}: the journal names this version, and it is gone; restore or promote one")
        )

    def _load_new(self, registry: Registry, version: int, digest: str) -> bool:
        """Loads a version. Returns whether it serves now; one that was refused is tried again when its files change."""
        # Files that were refused once are not read again until one of them changes.
        files = (digest, *registry.file_versions(version))
        if self._refused.get(version) == files:
            return False
        try:
            loaded = self._load(registry.intact_path(version), version, digest)
        except (TransientError, PreconditionError, OSError):
            raise  # tried again at the next look
        except Exception:
            self._refused[version] = files
            self.failures += 1
            raise

        # The swap: one assignment, so that a request sees the old version or the new one.
        self._current = loaded
        self.damage = ""
        self.verified = time.time()
        return True

    def _take_earlier(self, error: Exception) -> bool:
        """Serves the last intact version that was in production before, and says so. Returns whether there is one."""
        name, _, alias = self.reference.partition("@")
        if alias not in ("", PRODUCTION) or isinstance(error, (TransientError, PreconditionError)):
            # A storage that does not answer says nothing of the version.
            return False
        registry = Registry(self._root, name)
        try:
            earlier = registry.history().earlier_production
            record = "was in production before"
        except (WorkError, OSError) as fault:  # the journal is lost, or the registry cannot be read
            if isinstance(fault, (TransientError, PreconditionError)):
                return False
            earlier = [version for model, version in served_versions(self._root).items() if model == name]
            record = "is the one that models.config names"

        for version in earlier:
            try:
                if self._load_new(registry, version, registry.event(version).digest):
                    print_status(f"serve: {self.reference}: version {version}, which {record}, serves in place of it")
                    return True
            except Exception as fault:  # the next one may do
                print_status(f"serve: {self.reference}: version {version} neither: {fault}")
        return False

    def _note_fault(self, error: Exception) -> None:
        fault = str(error) or type(error).__name__
        if self.fault != fault:
            serving = f"version {self._current.version} serves" if self._current else "nothing serves"
            print_status(f"serve: {self.reference}: {serving}: {fault}")
        self.fault = fault

    def _is_absent(self) -> bool:
        """Returns whether the model has versions but none has the alias; says so in `absent`."""
        name, _, alias = self.reference.partition("@")
        self.absent = ""

        alias = alias or PRODUCTION
        if alias in ALIASES:
            registry = Registry(self._root, name)
            version = registry.in_service() if alias == PRODUCTION else registry.candidate()
            if version is None and registry.versions():
                self.absent = f"no version is {alias} now"
        return bool(self.absent)

    def _load(self, folder: Path, version: int, digest: str) -> LoadedVersion:
        try:
            voice = read_model_info(folder).family == "tts"
            # The first call, which each of them makes, warms it.
            engine = (
                Synthesizer(folder, threads=self._threads, pace=self._pace)
                if voice
                else Recognizer(folder, threads=self._threads, pauses=self.pauses)
            )
        except WorkError as error:
            raise WorkError(f"{self.reference}, version {version}: {error}") from None
        return LoadedVersion(engine, version, digest, time.time())

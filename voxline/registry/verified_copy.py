"""A folder for TensorFlow Serving that holds verified versions alone.

TensorFlow Serving loads what is in its folder: it compares no digest, checks no signature, and runs whatever ops a
graph has. So it reads a copy, in a volume that nothing else writes. A version is copied first and the copy is verified,
so what is loaded is what was looked at.

  <target>/<model>/<version>/    verified
  <target>/models.config         names them, written last
"""

import contextlib
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.inference.saved_model import check_graph, model_files
from voxline.progress import print_status
from voxline.registry.journal import CANDIDATE
from voxline.registry.models import model_names
from voxline.registry.models_config import MODELS_CONFIG, config_of_versions, served_versions
from voxline.registry.registry import STAGING, UNSIGNED, Registry
from voxline.registry.signing import SIGNATURE, check_digest
from voxline.store.files import write_text

_KEPT_SECONDS = 600.0
"""For which a version stays that is no longer named: the server reads `models.config` from time to time."""


def verify_version(registry: Registry, version: int) -> None:
    """Verifies a version's digest, its signature if a public key is configured, and the ops of its graph.

    Raises:
      WorkError: it is not what was published, or its graph can do more than compute.
    """
    check_graph(registry.intact_path(version))


class VerifiedCopy:
    """The versions in service, verified and copied.

    Args:
      root: the registry's folder or URI.
      target: the folder for the server, which nothing else may write.
    """

    def __init__(self, root: Path | str, target: Path) -> None:
        self._root = root
        self._target = target
        self._verified: set[Path] = set()
        self._unused: dict[Path, float] = {}
        self._served: dict[str, int] = served_versions(target)
        self._faults: dict[str, str] = {}

    def update(self) -> dict[str, int]:
        """Copies what is new, and names it in `models.config`. Returns the versions, by model and `<model>@candidate`.

        Where a version is not what was published, the one that is served stays; at the start the last version takes its
        place that was in production before and is intact. One that cannot be served does not keep the others.
        """
        served = {}
        for model in model_names(self._root):
            registry = Registry(self._root, model)
            for name, choices in self._choices(registry):
                version = next((number for number in choices if self._copy(registry, number)), None)
                if version is not None:
                    served[name] = version

        # The file changes only if its content does: the server reads it every few seconds.
        text = config_of_versions(served, str(self._target.absolute()))
        file = self._target / MODELS_CONFIG
        if served and (not file.is_file() or file.read_text(encoding="utf-8") != text):
            write_text(file, text)
            print_status(f"verify: {file}: " + ", ".join(f"{name} version {served[name]}" for name in served))
        if served:
            self._served = served
        self._remove_unused()
        return served

    def follow(self, seconds: float) -> None:
        """Updates every few seconds, until the process ends. What is served stays where the registry cannot be read."""
        while True:
            try:
                if not self.update() and not self._served:
                    self._report("", "no version in the registry can be served yet")
            except Exception as error:  # whatever it is, what is served stays
                self._report("", str(error) or type(error).__name__)
            time.sleep(seconds)

    def _choices(self, registry: Registry) -> Iterator[tuple[str, list[int]]]:
        """Lists the versions that may be served under each name of a model, the best first."""
        name = registry.model

        waiting = f"{registry.model}@{CANDIDATE}"
        present = [self._served[name]] if name in self._served else []
        try:
            history = registry.history()
        except (WorkError, OSError) as error:  # what keeps this model from being read keeps no other one
            self._report(name, str(error))
            passes = isinstance(error, (TransientError, PreconditionError))
            named = {} if passes else served_versions(self._root)
            yield name, present or ([named[name]] if name in named else [])
            return
        production = history.production[-1:]

        # The one in production, else what is served, else what was in production before: never nothing.
        yield name, list(dict.fromkeys([*production, *(present if production else []), *history.earlier_production]))
        if history.candidate is not None:
            yield waiting, [history.candidate]

    def _copy(self, registry: Registry, version: int) -> bool:
        """Copies and verifies a version, unless it is there. Returns whether it may be served."""
        folder = self._target / registry.model / str(version)
        if folder in self._verified:
            return True
        staging = folder.with_name(f"{STAGING}{version}-{secrets.token_hex(4)}")
        try:
            digest = registry.event(version).digest
            # A process that ended has verified it, but that is not on record: it is verified again.
            if folder.is_dir():  # of the process before this one
                with contextlib.suppress(WorkError):
                    self._check(folder, digest)
                    self._verified.add(folder)
                    return True
                shutil.rmtree(folder)
            source = registry.path(version)
            for part in [*model_files(source), Path(SIGNATURE)]:
                if (source / part).is_file():
                    (staging / part).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source / part, staging / part)

            # The copy is verified, not the source, and only then takes its name.
            self._check(staging, digest)
            staging.rename(folder)
        except (WorkError, OSError) as error:
            shutil.rmtree(staging, ignore_errors=True)
            kind = "try again later" if isinstance(error, (TransientError, PreconditionError, OSError)) else "refused"
            self._report(f"{registry.model}/{version}", f"{kind}: {error}")
            return False
        self._verified.add(folder)
        return True

    def _check(self, folder: Path, digest: str) -> None:
        check_digest(folder, digest, UNSIGNED)
        check_graph(folder)

    def _remove_unused(self) -> None:
        """Removes copies that have not been named for a while, and what killed processes left."""
        # Servers read the file from time to time, so a version stays for a while after it was named.
        named = {self._target / name.partition("@")[0] / str(version) for name, version in self._served.items()}
        for folder in self._target.glob("*/*"):
            if folder in named:
                self._unused.pop(folder, None)
            elif folder.name.startswith(STAGING) or (
                time.monotonic() - self._unused.setdefault(folder, time.monotonic()) > _KEPT_SECONDS
            ):
                shutil.rmtree(folder, ignore_errors=True)
                self._verified.discard(folder)
                self._unused.pop(folder, None)

    def _report(self, subject: str, fault: str) -> None:
        """Prints a fault once."""
        if self._faults.get(subject) != fault:
            print_status(f"verify: {subject}{': ' * bool(subject)}{fault}")
        self._faults[subject] = fault

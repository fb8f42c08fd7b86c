"""Whether TFX's data validation runs, on what schema and against what; and how it is carried out.

What carries it out is imported where it runs: to know that it does not must cost a refresh nothing.
"""

import dataclasses
import errno
import importlib.metadata
import importlib.util
import platform
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxline
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.tfdv.baseline import Baseline
from voxline.components.validate.tfdv.results import Examination
from voxline.errors import SettingsError, WorkError
from voxline.store.bucket import Bucket
from voxline.store.hashing import hash_bytes
from voxline.store.objects import is_remote

if TYPE_CHECKING:
    from voxline.components.validate.corpus import Corpus


PACKAGE = "tensorflow-data-validation"
MODULE = "tensorflow_data_validation"
LOWEST_GLIBC = (2, 39)
"""Of its wheels (manylinux_2_39): Debian 13, Ubuntu 24.04."""
PYTHONS = ((3, 10), (3, 12))


def reason_against() -> str:
    """Why it does not run here, as half a sentence; empty where it does."""
    return _against(platform.libc_ver(), sys.version_info[:2], importlib.util.find_spec(MODULE) is not None)


def version() -> str:
    """The version that is installed; empty where none is."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _against(libc: tuple[str, str], python: tuple[int, ...], installed: bool) -> str:
    """
    >>> _against(("glibc", "2.36"), (3, 11), False)
    'it needs glibc 2.39 or newer, here is glibc 2.36'
    >>> _against(("glibc", "2.41"), (3, 13), False)
    'it needs Python 3.10 to 3.12, here is 3.13'
    >>> _against(("glibc", "2.41"), (3, 11), False)
    'tensorflow-data-validation is not installed'
    """
    name, number = libc
    if name != "glibc" or tuple(int(part) for part in number.split(".")[:2]) < LOWEST_GLIBC:
        here = f"{name} {number}".strip() or f"another C library ({sys.platform})"
        return f"it needs glibc {LOWEST_GLIBC[0]}.{LOWEST_GLIBC[1]} or newer, here is {here}"
    if not PYTHONS[0] <= python[:2] <= PYTHONS[1]:
        return f"it needs Python 3.10 to 3.12, here is {python[0]}.{python[1]}"
    return "" if installed else f"{PACKAGE} is not installed"


FOLDER = Path(voxline.__path__[0]) / "configs" / "validation"
ENDING = ".pbtxt"


def schema_text(schema: str) -> str:
    """The text of a schema.

    Args:
      schema: the name of a curated one (`recognition`), or a path or gs://… that ends in .pbtxt.

    Raises:
      SettingsError: there is none of that name, or no such file.
      WorkError: the bucket cannot be asked, or may not be read.
    """
    file = schema if schema.endswith(ENDING) else str(FOLDER / f"{schema}{ENDING}")
    try:
        return _bytes(file).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(path.stem for path in FOLDER.glob(f"*{ENDING}"))) or f"none, as {FOLDER} is empty"
        raise SettingsError(
            f"validate: 'schema' is {schema!r}: {getattr(error, 'strerror', None) or 'not UTF-8'} ({file}); accepted: "
            f"a name ({known}), or a path or gs://… that ends in {ENDING}"
        ) from None


def _bytes(file: str) -> bytes:
    if not is_remote(file):
        return Path(file).read_bytes()
    folder, _, name = file.rpartition("/")
    try:
        return Bucket(folder).read(name)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "No such object") from None


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is known before anything is computed.

    Attributes:
      skipped: why it does not run; empty where it does.
    """

    skipped: str = ""
    version: str = ""
    schema: str = ""
    schema_text: str = ""
    baseline: Baseline = dataclasses.field(default_factory=Baseline)

    @classmethod
    def of(cls, settings: ValidateSettings, store: Path | str, registry: Path | str, model_name: str) -> "Plan":
        """Settles it.

        Raises:
          SettingsError: there is no such schema.
          WorkError: `validate.tfdv` is "required", and it does not run here.
        """
        if settings.tfdv == "off":
            return cls(skipped="validate.tfdv is off")
        text = schema_text(settings.schema_)
        reason = reason_against()
        if reason and settings.tfdv == "required":
            raise WorkError(
                f"validate: 'tfdv' is 'required', and TFX's data validation does not run here: {reason}; run validate "
                "in its image (docker/validate), or set validate.tfdv to auto"
            )
        if reason:
            return cls(skipped=reason)
        baseline = Baseline.in_service(registry, model_name, store)
        return cls("", version(), settings.schema_, text, baseline)

    def named_by(self) -> dict[str, Any]:
        """What takes part in the key of the work: the same corpus judged with TFDV and without is not the same work."""
        if self.skipped:
            return {"tfdv": "skipped"}
        return {
            "tfdv": self.version,
            "schema": hash_bytes(self.schema_text.encode()),
            "baseline": self.baseline.utterances or self.baseline.absent,
        }

    def carry_out(
        self, corpus: "Corpus", utterances: str, store: Path | str, settings: ValidateSettings, statistics: Path
    ) -> Examination:
        """Examines a corpus, and leaves its statistics in a file as well.

        Args:
          utterances: the corpus's fingerprint.
          statistics: where to put them.

        Raises:
          SettingsError: the schema is none, or compares no feature that has a threshold in the config.
          WorkError: TFDV is there and damaged, or statistics are.
        """
        if self.skipped or not len(corpus):
            return Examination(skipped=self.skipped or "there are no utterances")
        from voxline.components.validate.tfdv import results
        from voxline.components.validate.tfdv.baseline import statistics_of
        from voxline.components.validate.tfdv.examples import Examples

        try:
            from voxline.components.validate.tfdv import engine
        except ImportError as error:
            raise WorkError(
                f"validate: {PACKAGE} {self.version} is installed and cannot be imported ({error}); mend its "
                "installation, or set validate.tfdv to off"
            ) from error

        schema = engine.read_schema(self.schema_text, self.schema, settings.drift.thresholds)
        made = statistics_of(Examples.of(corpus), utterances, store).path("statistics")
        shutil.copyfile(made, statistics)
        now = engine.read_statistics(made)
        before = engine.read_statistics(self.baseline.statistics) if self.baseline.statistics else None
        anomalies, drifts = engine.look(now, schema, before)
        return Examination(
            version=self.version,
            schema=self.schema,
            against=self.baseline.name,
            not_compared=self.baseline.absent,
            anomalies=tuple(anomalies),
            drifts=tuple(drifts),
            limits=results.limits(schema),
            spreads=results.spreads(now),
            before=results.spreads(before) if before is not None else {},
        )

"""Decides whether TensorFlow Data Validation runs, with which schema and baseline; and runs it.

`skew_by_tfdv` measures what serving captured against the recordings of a training.

TFDV is imported only if it runs: a refresh that skips it must not pay for the import.
"""

import dataclasses
import errno
import importlib.metadata
import importlib.util
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxline
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.tfdv.baseline import Baseline
from voxline.components.validate.tfdv.results import TfdvResult
from voxline.errors import SettingsError, WorkError
from voxline.store.hashing import hash_bytes
from voxline.store.objects import open_store
from voxline.store.uris import is_remote

if TYPE_CHECKING:
    from voxline.components.validate.corpus import CheckedCorpus
    from voxline.components.validate.tfdv.examples import Examples
    from voxline.feedback.skew import MeasureDistances, RecordingFeatures

PACKAGE = "tensorflow-data-validation"
MODULE = "tensorflow_data_validation"
MIN_GLIBC = (2, 39)
"""Of its wheels (manylinux_2_39): Debian 13, Ubuntu 24.04."""

SCHEMA_FOLDER = Path(voxline.__path__[0]) / "configs" / "validation"
SCHEMA_SUFFIX = ".pbtxt"


@dataclasses.dataclass(frozen=True)
class TfdvPlan:
    """The plan of TFDV's run, made before anything is computed.

    Attributes:
      skipped: why it does not run; empty if it does.
      version: of TFDV.
      schema: its name, path or URI.
    """

    skipped: str = ""
    version: str = ""
    schema: str = ""
    schema_text: str = ""
    baseline: Baseline = dataclasses.field(default_factory=Baseline)

    @classmethod
    def prepare(
        cls, settings: ValidateSettings, store: Path | str, registry: Path | str, model_name: str
    ) -> "TfdvPlan":
        """Checks the environment, and reads the schema and the baseline.

        Raises:
          SettingsError: the schema does not exist.
          WorkError: `validate.tfdv` is "required", and TFDV does not run here.
        """
        if settings.tfdv == "off":
            return cls(skipped="validate.tfdv is off")

        # A schema that does not exist is an error even where TFDV cannot run: it would be one on the next machine.
        text = read_schema_text(settings.schema_)
        reason = unavailable_reason()
        if reason and settings.tfdv == "required":
            raise WorkError(
                f"validate: 'tfdv' is 'required', but TFX's data validation does not run here: {reason}; run validate "
                "in its image (docker/validate), or set validate.tfdv to auto"
            )

        if reason:
            return cls(skipped=reason)

        baseline = Baseline.in_service(registry, model_name, store)
        return cls("", tfdv_version(), settings.schema_, text, baseline)

    def key_inputs(self) -> dict[str, Any]:
        """Inputs of the step key, so that validation with and without TFDV differ."""
        # Why it was skipped is not part of the key: without TFDV the outcome is the same.
        if self.skipped:
            return {"tfdv": "skipped"}
        return {
            "tfdv": self.version,
            "schema": hash_bytes(self.schema_text.encode()),
            "baseline": self.baseline.utterances or self.baseline.absent,
        }

    def execute(
        self, corpus: "CheckedCorpus", utterances: str, store: Path | str, settings: ValidateSettings, statistics: Path
    ) -> TfdvResult:
        """Runs TFDV on a corpus, and writes its statistics to a file.

        Args:
          utterances: fingerprint of the corpus.
          statistics: the file to write.

        Raises:
          SettingsError: the schema is invalid, or does not compare a feature of `validate.drift.thresholds`.
          WorkError: TFDV is installed but cannot be imported, or stored statistics are damaged.
        """
        if self.skipped or not len(corpus):
            return TfdvResult(skipped=self.skipped or "there are no utterances")
        from voxline.components.validate.tfdv import results
        from voxline.components.validate.tfdv.baseline import compute_statistics
        from voxline.components.validate.tfdv.examples import Examples

        try:
            from voxline.components.validate.tfdv import engine
        except ImportError as error:
            raise WorkError(
                f"validate: {PACKAGE} {self.version} is installed but cannot be imported ({error}); repair its "
                "installation, or set validate.tfdv to off"
            ) from error

        schema = engine.read_schema(self.schema_text, self.schema, settings.drift.thresholds)

        # The statistics are a step's output of their own, the baseline of models to come. This step has a copy.
        stored = compute_statistics(Examples.of(corpus), utterances, store).path("statistics")
        shutil.copyfile(stored, statistics)

        current = engine.read_statistics(stored)
        previous = engine.read_statistics(self.baseline.statistics) if self.baseline.statistics else None
        anomalies, drifts = engine.validate_statistics(current, schema, previous)
        return TfdvResult(
            version=self.version,
            schema=self.schema,
            baseline=self.baseline.name,
            no_baseline=self.baseline.absent,
            anomalies=tuple(anomalies),
            drifts=tuple(drifts),
            domains=results.feature_domains(schema),
            statistics=results.feature_statistics(current),
            baseline_statistics=results.feature_statistics(previous) if previous is not None else {},
        )


def skew_by_tfdv() -> "tuple[str, MeasureDistances | None]":
    """The name of what measures training/serving skew here, and TFDV's measure; None if TFDV does not run."""
    if unavailable_reason():
        return "Voxline", None
    return f"TFDV {tfdv_version()}", tfdv_distances


def tfdv_distances(
    training: "RecordingFeatures", serving: "RecordingFeatures", allowed: Mapping[str, float]
) -> dict[str, float]:
    """The distances by `tfdv.validate_statistics(serving_statistics=…)`, with a `skew_comparator` for each feature.

    Raises:
      WorkError: TFDV is installed but cannot be imported.
    """
    try:
        from voxline.components.validate.tfdv import engine
    except ImportError as error:
        raise WorkError(
            f"watch: {PACKAGE} {tfdv_version()} is installed but cannot be imported ({error}); repair or remove it"
        ) from error
    from voxline.metrics.divergence import fitting_buckets

    buckets = fitting_buckets(min(len(training), len(serving)))

    # Statistics of callers' words are not kept.
    with tempfile.TemporaryDirectory(prefix="voxline-skew-") as folder:
        statistics = []
        for name, side in (("training", training), ("serving", serving)):
            file = Path(folder, f"{name}.pb")
            engine.write_statistics(_examples_of_side(name, side), file, buckets)
            statistics.append(engine.read_statistics(file))
    return engine.skew_distances(statistics[0], statistics[1], dict(allowed))


def _examples_of_side(name: str, side: "RecordingFeatures") -> "Examples":
    from voxline.components.validate.columns import StringColumn
    from voxline.components.validate.tfdv.examples import Examples

    # TFDV's statistics are sliced by a split.
    splits = StringColumn()
    splits.extend_coded([name], [0] * len(side))

    # `Examples` splits texts into words, which these are already.
    sentences = StringColumn()
    for words in side.tokens:
        sentences.append(" ".join(words))
    return Examples(dict(side.numbers), {"split": splits}, sentences)


def unavailable_reason() -> str:
    """Explains why TFDV does not run here, as half a sentence; empty if it does."""
    return _incompatibility(platform.libc_ver(), importlib.util.find_spec(MODULE) is not None)


def _incompatibility(libc: tuple[str, str], installed: bool) -> str:
    """
    >>> _incompatibility(("glibc", "2.36"), False)
    'it needs glibc 2.39 or newer, here is glibc 2.36'
    >>> _incompatibility(("glibc", "2.41"), False)
    'tensorflow-data-validation is not installed'
    """
    name, number = libc
    if name != "glibc" or tuple(int(part) for part in number.split(".")[:2]) < MIN_GLIBC:
        here = f"{name} {number}".strip() or f"another C library ({sys.platform})"
        return f"it needs glibc {MIN_GLIBC[0]}.{MIN_GLIBC[1]} or newer, here is {here}"
    return "" if installed else f"{PACKAGE} is not installed"


def tfdv_version() -> str:
    """The installed version; empty if there is none."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def read_schema_text(schema: str) -> str:
    """Reads the text of a schema.

    Args:
      schema: a name in configs/validation (`asr`), or a path or bucket URI that ends in .pbtxt.

    Raises:
      SettingsError: there is no schema of that name, or no such file.
      WorkError: the bucket cannot be read.
    """
    file = schema if schema.endswith(SCHEMA_SUFFIX) else str(SCHEMA_FOLDER / f"{schema}{SCHEMA_SUFFIX}")
    try:
        return _bytes(file).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        names = (
            ", ".join(sorted(path.stem for path in SCHEMA_FOLDER.glob(f"*{SCHEMA_SUFFIX}")))
            or f"none, as {SCHEMA_FOLDER} is empty"
        )
        raise SettingsError(
            f"validate: 'schema' is {schema!r}: {getattr(error, 'strerror', None) or 'not UTF-8'} ({file}); accepted: "
            f"a name ({names}), or a path or bucket URI that ends in {SCHEMA_SUFFIX}"
        ) from None


def _bytes(file: str) -> bytes:
    if not is_remote(file):
        return Path(file).read_bytes()
    folder, _, name = file.rpartition("/")
    try:
        return open_store(folder).read(name)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "No such object") from None

"""An evaluation as TensorFlow Model Analysis (TFMA) keeps them, validated by TFMA against the gate's requirements.

    <output>/eval_config.json       models, slices and thresholds
             metrics-…              every metric, as a whole and in each slice
             validations-…          what TFMA says of the thresholds

`tfma.load_eval_result` and `tfma.load_validation_result` read them. The values are those of `metrics.json`; TFMA
compares them with thresholds and writes its own files. It is imported here alone, and only where an export is asked
for: its requirements exclude ours.
"""

import collections
import dataclasses
import functools
import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from voxline.components.push.limits import limited_slices
from voxline.components.push.settings import PushSettings
from voxline.errors import SettingsError, WorkError
from voxline.families.family import find_family
from voxline.metrics.catalog import CATALOG, Metric
from voxline.metrics.evaluation import Evaluation, MetricInfo
from voxline.registry.registry import EVALUATION, PROVENANCE
from voxline.store.files import new_folder, read_json

CANDIDATE = "candidate"
BASELINE = "baseline"
"""TFX's names of the new model, and of the one in service."""
GATE = "gate: "
"""Before the name of a check of the gate, which is a metric to TFMA."""

SliceKey = tuple[tuple[str, str], ...]
"""As TFMA writes one: () of the whole split, (("speaker", "ada"),) of a slice."""
Check = Mapping[str, Any]
"""As `GateCheck.to_dict` writes one."""


def export_version_to_tfma(model: Path | str, output: Path) -> list[Path]:
    """Exports what a version of a registry was judged by, with its settings and the verdict of the gate.

    Args:
      model: the folder of a version.
      output: a folder that does not exist yet.

    Returns:
      The files.

    Raises:
      SettingsError: it is no version of a registry, or the output exists.
      WorkError: a file is damaged, or TFMA is not installed.
    """
    version = Path(model)
    if not (version / EVALUATION).is_dir():
        raise SettingsError(f"{version}: no {EVALUATION}/ is here; --to tfma takes a version of a registry")
    evaluation = Evaluation.read(version / EVALUATION)
    provenance = read_json(version / PROVENANCE)
    try:
        values = provenance["config"]["push"]
        checks = provenance["checks"]
    except (KeyError, TypeError):
        raise WorkError(
            f"{version / PROVENANCE}: no settings or checks of push, so nothing says how it was judged"
        ) from None
    kind = find_family(evaluation.info.family).push_settings
    if kind is None:
        raise WorkError(f"{version}: no pipeline trains the family {evaluation.info.family!r}, so no gate judged it")
    return export_to_tfma(evaluation, output, kind.of(values, "push"), checks)


def export_to_tfma(
    evaluation: Evaluation, output: Path, settings: PushSettings, checks: Sequence[Check] | None = None
) -> list[Path]:
    """Writes an evaluation with TFMA's validation of it.

    With the checks of a verdict each of them is a metric `gate: …` with a threshold, so that TFMA accepts what the gate
    accepts. Without them TFMA judges alone, by the same limits and margins, on the values as measured: it knows no
    confidence, so it accepts a model that may be worse, and refuses one for a slice that is worse by chance.

    Args:
      output: a folder that does not exist yet.
      settings: of the gate, for limits and margins.
      checks: of `verdict.json`.

    Returns:
      The files.

    Raises:
      SettingsError: the output exists.
      WorkError: TFMA is not installed.
    """
    try:
        # The package itself only prints that an import of it failed.
        importlib.import_module("tensorflow_model_analysis.api.model_eval_lib")
    except ImportError:
        raise WorkError(
            "TensorFlow Model Analysis is not installed; `pip install tensorflow-model-analysis` adds it to an "
            "environment of its own (docs/tfx.md)"
        ) from None
    thresholds = list(_thresholds(evaluation, settings, checks))
    config = _eval_config(evaluation, thresholds)
    metrics = list(_sliced_metrics(evaluation, checks or ()))
    with new_folder(output, "-o") as unfinished:
        _write(config, metrics, evaluation, unfinished)
    return sorted(file for file in output.rglob("*") if file.is_file())


@dataclasses.dataclass(frozen=True)
class _Threshold:
    """A requirement on a metric in one slice.

    Attributes:
      metric: its name, as TFMA has it.
      slice_key: where.
      lower, upper: of the value.
      change: by how much it may differ from the baseline's; of a metric that is better higher, below 0.
      higher_is_better: of the metric.
    """

    metric: str
    slice_key: SliceKey = ()
    lower: float | None = None
    upper: float | None = None
    change: float | None = None
    higher_is_better: bool = False

    @classmethod
    def of_limit(cls, metric: Metric, limit: float, slice_key: SliceKey = ()) -> "_Threshold":
        if metric.sign > 0:
            return cls(metric.name, slice_key, upper=limit)
        return cls(metric.name, slice_key, lower=limit)

    @classmethod
    def of_margin(cls, metric: Metric, margin: float, slice_key: SliceKey = ()) -> "_Threshold":
        return cls(metric.name, slice_key, change=metric.sign * margin, higher_is_better=metric.sign < 0)

    def message(self) -> Any:
        """The MetricThreshold."""
        messages = _messages()
        threshold = messages.MetricThreshold()
        if self.lower is not None:
            threshold.value_threshold.lower_bound.value = self.lower
        if self.upper is not None:
            threshold.value_threshold.upper_bound.value = self.upper
        if self.change is not None:
            better = "HIGHER_IS_BETTER" if self.higher_is_better else "LOWER_IS_BETTER"
            threshold.change_threshold.absolute.value = self.change
            threshold.change_threshold.direction = messages.MetricDirection.Value(better)
        return threshold


def _thresholds(evaluation: Evaluation, settings: PushSettings, checks: Sequence[Check] | None) -> Iterator[_Threshold]:
    # Limits are held as measured by both.
    for name, limit in settings.limits.items():
        if evaluation.value(name) is not None:
            yield _Threshold.of_limit(CATALOG[name], limit)
            for slice_name in limited_slices(evaluation, CATALOG[name], settings):
                yield _Threshold.of_limit(CATALOG[name], limit, ((settings.limits_by, slice_name),))

    # The gate has judged differences with confidence, which TFMA cannot: its checks are values with thresholds.
    if checks is not None:
        for name, check in _judged(checks):
            if _is_bound(check):
                yield _Threshold(name, upper=check["limit"])
            else:
                yield _Threshold(name, lower=1.0)
        return

    for in_slice in (False, True):
        for name in settings.compared_metrics(in_slice=in_slice):
            yield from _margins(evaluation, settings, name, in_slice=in_slice)


def _margins(evaluation: Evaluation, settings: PushSettings, name: str, *, in_slice: bool) -> Iterator[_Threshold]:
    """The margins of a metric against the model in service, as a whole or in each slice that is judged."""
    for slice_key, info, utterances in _measured(evaluation, name):
        if bool(slice_key) != in_slice:
            continue
        if slice_key and (slice_key[0][0] not in settings.slices or utterances < settings.min_slice_utterances):
            continue
        compared = info.comparison
        if compared is not None and compared.difference is not None and compared.champion_value is not None:
            margin = settings.margin(name, compared.champion_value, in_slice=in_slice)
            yield _Threshold.of_margin(CATALOG[name], margin, slice_key)


def _judged(checks: Sequence[Check]) -> Iterator[tuple[str, Check]]:
    """The checks that passed or failed, each with a name of its own as a metric."""
    counts: collections.Counter[str] = collections.Counter()
    for check in checks:
        if check["passed"] is not None:
            name = f"{GATE}{check['name']}"
            counts[name] += 1
            yield name if counts[name] == 1 else f"{name} ({counts[name]})", check


def _is_bound(check: Check) -> bool:
    """Returns whether a check is about the highest difference from another model, and not about a limit or a fact."""
    return bool(check["metric"]) and check["limit"] is not None


def _gate_value(check: Check) -> float:
    """The value of a check that TFMA compares: the bound of a difference, else 1 if it passed and 0 if not."""
    if not _is_bound(check):
        return float(bool(check["passed"]))
    return float(check["measured"]) if check["measured"] is not None else math.inf  # JSON has no infinity


def _measured(evaluation: Evaluation, name: str) -> Iterator[tuple[SliceKey, MetricInfo, int]]:
    """A metric as a whole and in each slice, with the utterances there."""
    info = evaluation.info
    if name in info.metrics:
        yield (), info.metrics[name], info.utterances
    for slicing, slices in info.slices.items():
        for slice_name, summary in slices.items():
            if name in summary.metrics:
                yield ((slicing, slice_name),), summary.metrics[name], summary.utterances


def _messages() -> Any:
    """The messages of TFMA's configs."""
    return importlib.import_module("tensorflow_model_analysis.proto.config_pb2")


def _eval_config(evaluation: Evaluation, thresholds: Sequence[_Threshold]) -> Any:
    """The EvalConfig: models, slices, and thresholds of each metric by slice."""
    config = _messages().EvalConfig()
    config.model_specs.add(name=CANDIDATE)
    if evaluation.info.champion is not None:
        config.model_specs.add(name=BASELINE, is_baseline=True)
    config.slicing_specs.add()
    for slicing in evaluation.info.slices:
        config.slicing_specs.add(feature_keys=[slicing])

    # Each names its slices: without them TFMA would hold every slice to it.
    metrics = config.metrics_specs.add(model_names=[CANDIDATE])
    for threshold in thresholds:
        per_slice = metrics.per_slice_thresholds[threshold.metric].thresholds.add()
        per_slice.slicing_specs.add(feature_values=dict(threshold.slice_key))
        per_slice.threshold.CopyFrom(threshold.message())
    return config


def _sliced_metrics(evaluation: Evaluation, checks: Sequence[Check]) -> Iterator[tuple[SliceKey, Any]]:
    """Each slice with its metrics, by TFMA's keys."""
    metric_key = importlib.import_module("tensorflow_model_analysis.metrics.metric_types").MetricKey
    # As in the keys of thresholds, which are other keys than those of False.
    key_of = functools.partial(metric_key, example_weighted=None)
    slices: dict[SliceKey, dict[Any, float]] = {}
    info = evaluation.info
    for metric in CATALOG.select(info.metrics):
        for slice_key, measured, utterances in _measured(evaluation, metric.name):
            values = slices.setdefault(slice_key, {})
            values[key_of(name="example_count", model_name=CANDIDATE)] = float(utterances)
            for fields, value in _values(metric.name, measured):
                values[key_of(**fields)] = math.nan if value is None else value

    # TFMA refuses a threshold whose metric a slice lacks, even one that is for another slice.
    for slice_key, values in slices.items():
        for metric in CATALOG.select(info.metrics):
            values.setdefault(key_of(name=metric.name, model_name=CANDIDATE), math.nan)
        for name, check in _judged(checks):
            key = key_of(name=name, model_name=CANDIDATE)
            values[key] = math.nan if slice_key else _gate_value(check)
    yield from slices.items()


def _values(name: str, metric: MetricInfo) -> Iterator[tuple[dict[str, Any], float | None]]:
    """The values of a metric, each with the fields of its key."""
    yield {"name": name, "model_name": CANDIDATE}, metric.value
    yield {"name": f"{name}_low", "model_name": CANDIDATE}, metric.interval.low
    yield {"name": f"{name}_high", "model_name": CANDIDATE}, metric.interval.high
    if metric.comparison is not None:
        yield {"name": name, "model_name": BASELINE}, metric.comparison.champion_value
        yield {"name": name, "model_name": CANDIDATE, "is_diff": True}, metric.comparison.difference


def _write(config: Any, metrics: Sequence[tuple[SliceKey, Any]], evaluation: Evaluation, folder: Path) -> None:
    """Validates and writes with TFMA's own code, which are transforms of Beam."""
    tfma = importlib.import_module("tensorflow_model_analysis")
    beam = importlib.import_module("apache_beam")
    validate = importlib.import_module("tensorflow_model_analysis.evaluators.metrics_validator").validate_metrics
    write_config = importlib.import_module("tensorflow_model_analysis.writers.eval_config_writer").EvalConfigWriter
    info = evaluation.info
    locations = {CANDIDATE: f"{info.model.name} {info.model.digest}"}
    if info.champion is not None:
        locations[BASELINE] = f"{info.champion.name}@{info.champion.version} {info.champion.digest}"

    # The default writers know models by their folders alone, so the one of the config is replaced.
    _, results = tfma.default_writers(str(folder), eval_config=config)
    settings = write_config(
        str(folder), eval_config=config, data_location=info.test.fingerprint, model_locations=locations
    )
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        sliced = pipeline | "metrics" >> beam.Create(metrics)
        validations = sliced | "validate" >> beam.Map(validate, config)
        evaluations = {"metrics": sliced, "validations": validations}
        for label, writer in (("config", settings), ("results", results)):
            _ = evaluations | f"write {label}" >> writer.ptransform

"""Checks before an accelerator is booked: is this corpus worth training on, and fit to judge a model by?"""

from pathlib import Path
from typing import TYPE_CHECKING

from voxline.components.validate.settings import ValidateSettings
from voxline.data.fingerprints import read_fingerprint, try_write_fingerprint
from voxline.data.manifest import manifest_path
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.store.files import write_json
from voxline.store.hashing import hash_file
from voxline.store.step_cache import StepOutput, cached_step, local_inputs

if TYPE_CHECKING:
    from voxline.components.validate.checks import CheckResult
    from voxline.components.validate.corpus import CheckedCorpus
    from voxline.components.validate.tfdv.results import TfdvResult


REVISION = 3
VALIDATION, REPORT = "validation.json", "report.html"
STATISTICS, STATISTICS_PAGE = "statistics.pb", "statistics.html"


@local_inputs("manifest")
def run(
    manifest: Path | str, store: Path | str, settings: ValidateSettings, registry: Path | str = "", model_name: str = ""
) -> StepOutput:
    """Judges the utterances of a manifest.

    Args:
      manifest: convert's folder, or a manifest; rejects.jsonl beside it is read too.
      store: the folder or bucket URI of all steps' outputs
      registry, model_name: of the model in service, to compare with the dataset that it was trained on; empty: drift
        is not checked.

    Returns:
      Work with outputs `validation` (every check: severity, value, threshold, the ids to blame), `report` (the same
      as a page that draws and plays), `statistics_page` (what TFX's data validation found, as a page) and, where
      that ran, `statistics` (a DatasetFeatureStatisticsList).

    Raises:
      SettingsError: there is no such schema, or no such Beam runner.
      WorkError: a check of severity "error" failed. All files are there, done.json is not: the next run judges anew.
    """
    from voxline.components.validate.corpus import read_reject_counts
    from voxline.components.validate.tfdv.plan import TfdvPlan

    plan = TfdvPlan.of(settings, store, registry, model_name)
    if plan.skipped and settings.tfdv != "off":
        print_status(f"validate: TFX's data validation is skipped: {plan.skipped}")
    file = manifest_path(Path(manifest))
    corpus, utterances = _fingerprint(file, store, settings)
    inputs = {"utterances": utterances, "rejects": read_reject_counts(file)[1], **plan.named_by()}
    with cached_step(store, "validate", settings.key_settings(), inputs, revision=REVISION) as work:
        if not work.reused:
            corpus = corpus or _read(file, store, settings)
            examination = plan.carry_out(corpus, utterances, store, settings, work.folder / STATISTICS)
            _judge(work, corpus, examination, settings)
    return work


def _fingerprint(file: Path, store: Path | str, settings: ValidateSettings) -> tuple["CheckedCorpus | None", str]:
    """What names the utterances; and the corpus, where they had to be read for that."""
    content = hash_file(file) if file.is_file() else ""
    if noted := read_fingerprint(content, store):
        return None, noted
    corpus = _read(file, store, settings)
    if corpus.tally.names_all and hash_file(file) == content:
        try_write_fingerprint(content, store, corpus.fingerprint)
    return corpus, corpus.fingerprint


def _read(file: Path, store: Path | str, settings: ValidateSettings) -> "CheckedCorpus":
    from voxline.components.validate.beam import tally_manifest
    from voxline.components.validate.corpus import CheckedCorpus

    return CheckedCorpus.read(file, tally_manifest(file, settings, store))


def _judge(work: StepOutput, corpus: "CheckedCorpus", examination: "TfdvResult", settings: ValidateSettings) -> None:
    """Makes every check, and writes what came of it.

    Raises:
      WorkError: one of severity "error" failed.
    """
    from voxline.components.validate.checks import run_checks
    from voxline.components.validate.report import validation_page
    from voxline.components.validate.tfdv.report import statistics_page

    results = run_checks(corpus, settings, examination)
    failed = [result for result in results if result.fails_the_step]
    warned = [result for result in results if result.outcome == "failed" and not result.fails_the_step]
    work.outputs = {"validation": VALIDATION, "report": REPORT, "statistics_page": STATISTICS_PAGE}
    if not examination.skipped:
        work.outputs["statistics"] = STATISTICS
    work.counts = {
        "utterances": len(corpus),
        "checks": sum(result.outcome in ("passed", "failed") for result in results),
        "failed": len(failed),
        "warnings": len(warned),
    }
    work.metrics = {"hours": round(float(corpus.durations.sum(dtype=float)) / 3600, 4)}
    write_json(
        work.path("validation"),
        {
            "passed": not failed,
            "failed": [result.check.name for result in failed],
            "warnings": [result.check.name for result in warned],
            "utterances": {split: len(corpus.rows(split)) for split in corpus.present_splits()},
            "rejects": corpus.rejects,
            "tfdv": examination.plain(),
            "checks": [result.plain(corpus, settings.max_listed) for result in results],
        },
    )
    validation_page(corpus, results, settings).write(work.path("report"))
    statistics_page(examination).write(work.path("statistics_page"))
    for result in warned:
        print_status(f"validate: warning: {_describe(result)}")
    if failed:
        raise WorkError(
            f"validate: {'; '.join(map(_describe, failed))}. See {work.output_uri('report')}, then mend the corpus, "
            f"or raise validate.{failed[0].check.name}.threshold, or make its severity a warning"
        )
    print_status(f"validate: {work.counts['checks']} checks, {len(warned)} warnings; {work.output_uri('report')}")


def _describe(result: "CheckResult") -> str:
    """One check in one line: its name, its numbers."""
    return f"{result.check.name} is {result.value}, at most {result.threshold} accepted ({result.finding.detail})"

"""Validates a corpus before training: is it fit to train on, and to evaluate a model with?"""

from pathlib import Path
from typing import TYPE_CHECKING

from voxline.components.validate.settings import ValidateSettings
from voxline.data.fingerprints import read_fingerprint, try_write_fingerprint
from voxline.data.manifest import manifest_path
from voxline.errors import RefusedInputError
from voxline.progress import print_status
from voxline.store.files import write_json
from voxline.store.hashing import hash_file, hash_unchanged_file
from voxline.store.step_cache import StepOutput, cached_step, local_inputs

if TYPE_CHECKING:
    from voxline.components.validate.checks.check import CheckResult
    from voxline.components.validate.corpus import CheckedCorpus
    from voxline.components.validate.tfdv.results import TfdvResult


REVISION = 8
VALIDATION = "validation.json"
REPORT = "report.html"
STATISTICS = "statistics.pb"
STATISTICS_PAGE = "statistics.html"


@local_inputs("manifest")
def run(
    manifest: Path | str, store: Path | str, settings: ValidateSettings, registry: Path | str = "", model_name: str = ""
) -> StepOutput:
    """Runs all checks on the utterances of a manifest.

    Args:
      manifest: convert's output, or a manifest; `rejects.jsonl` next to it is read too.
      store: the folder or bucket URI of all cached step outputs.
      registry, model_name: of the model in service, to compare with its training data; empty: drift is not checked.

    Returns:
      Outputs: `validation` (severity, value, threshold and offending ids of every check), `report` (the same as a page
      with plots and players), `statistics_page` (the result of TFDV as a page) and, if TFDV ran, `statistics` (a
      DatasetFeatureStatisticsList).

    Raises:
      SettingsError: the schema does not exist, or Beam does not have the runner.
      RefusedInputError: a check of severity "error" failed. All outputs are written except done.json, so the next run
        validates again.
    """
    from voxline.components.validate.corpus import read_reject_counts
    from voxline.components.validate.tfdv.plan import TfdvPlan

    # What decides the key comes first: whether TFDV runs, with which schema and baseline. It is imported only for work.
    plan = TfdvPlan.prepare(settings, store, registry, model_name)
    if plan.skipped and settings.tfdv != "off":
        print_status(f"validate: TFX's data validation is skipped: {plan.skipped}")

    file = manifest_path(Path(manifest))
    # Most often another step has stored the fingerprint, and reused work needs no pass over the manifest.
    corpus, utterances = _fingerprint(file, store, settings)
    inputs = {"utterances": utterances, "rejects": read_reject_counts(file)[1], **plan.key_inputs()}

    with cached_step(store, "validate", settings, inputs, revision=REVISION) as work:
        if not work.reused:
            corpus = corpus or _read(file, store, settings, identities=False)
            tfdv_result = plan.execute(corpus, utterances, store, settings, work.folder / STATISTICS)
            _judge(work, corpus, tfdv_result, settings)
    return work


def _fingerprint(file: Path, store: Path | str, settings: ValidateSettings) -> tuple["CheckedCorpus | None", str]:
    """The corpus, if it had to be read, and the fingerprint of its utterances."""
    content = hash_unchanged_file(file) if file.is_file() else ""
    if fingerprint := read_fingerprint(content, store):
        return None, fingerprint

    # Cached for steps that read the same manifest. Without every `audio_hash` the recordings are not in it, and a file
    # that changed during the pass has another content.
    corpus = _read(file, store, settings)
    if corpus.tally.all_hashed and hash_file(file) == content:
        try_write_fingerprint(content, store, corpus.fingerprint)
    return corpus, corpus.fingerprint


def _read(file: Path, store: Path | str, settings: ValidateSettings, *, identities: bool = True) -> "CheckedCorpus":
    from voxline.components.validate.beam import tally_manifest
    from voxline.components.validate.corpus import CheckedCorpus

    return CheckedCorpus.read(file, tally_manifest(file, settings, store, identities=identities, revision=REVISION))


def _judge(work: StepOutput, corpus: "CheckedCorpus", tfdv_result: "TfdvResult", settings: ValidateSettings) -> None:
    """Runs all checks, and writes their results.

    Raises:
      RefusedInputError: a check of severity "error" failed.
    """
    from voxline.components.validate.checks import run_checks
    from voxline.components.validate.report import validation_page
    from voxline.components.validate.tfdv.report import statistics_page
    from voxline.report import plural

    results = run_checks(corpus, settings, tfdv_result)

    # Outputs and counts are set before anything is refused: `RefusedInputError` carries them to the summary.
    failed = [result for result in results if result.fails_the_step]
    warned = [result for result in results if result.outcome == "failed" and not result.fails_the_step]
    work.outputs = {"validation": VALIDATION, "report": REPORT, "statistics_page": STATISTICS_PAGE}
    if not tfdv_result.skipped:
        work.outputs["statistics"] = STATISTICS

    work.counts = {
        "utterances": len(corpus),
        "checks": sum(result.outcome in ("passed", "failed") for result in results),
        "failed": len(failed),
        "warnings": len(warned),
    }

    # Counted where there are any: most corpora have none.
    if drafts := int((corpus.drafted_by.codes != corpus.drafted_by.number("")).sum()):
        work.counts["drafts"] = drafts
    if negatives := int((corpus.labels == 0).sum()):
        work.counts["negatives"] = negatives
    if (drift := next(result for result in results if result.check.name == "drift")).outcome in ("passed", "failed"):
        work.counts["drifted"] = int(drift.finding.value or 0)
    work.metrics = {"hours": round(float(corpus.durations.sum(dtype=float)) / 3600, 4)}

    # validation.json: an entry for each check. Later steps read `checks` by name, so names are part of the format.
    write_json(
        work.path("validation"),
        {
            "passed": not failed,
            "failed": [result.check.name for result in failed],
            "warnings": [result.check.name for result in warned],
            "utterances": {split: len(corpus.rows(split)) for split in corpus.present_splits()},
            "rejects": corpus.rejects,
            "tfdv": tfdv_result.to_json(),
            "checks": [result.to_json(corpus, settings.max_listed) for result in results],
        },
    )

    validation_page(corpus, results, settings).write(work.path("report"))
    statistics_page(tfdv_result).write(work.path("statistics_page"))
    for result in warned:
        print_status(f"validate: warning: {_describe(result)}")

    # Without done.json: a corpus that is mended under the same key, or a threshold that is raised, is judged again.
    if failed:
        raise RefusedInputError(
            f"validate: {'; '.join(map(_describe, failed))}. See {work.output_uri('report')}, then fix the corpus, "
            f"raise validate.{failed[0].check.name}.threshold, or make its severity a warning",
            work,
        )

    checks = plural(work.counts["checks"], "check")
    warnings = plural(len(warned), "warning")
    print_status(f"validate: {checks}, {warnings}; {work.output_uri('report')}")


def _describe(result: "CheckResult") -> str:
    """A failed check in one line."""
    return f"{result.check.name} is {result.value}, at most {result.threshold} accepted ({result.finding.detail})"

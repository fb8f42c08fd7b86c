"""Push: judges an evaluated model, and publishes it as a new version if it passes the gate.

Its output is never reused: the verdict depends on the version in service. The registry stays locked while the verdict
is reached, so the model is compared with the version that it would replace.

Verdict, report and summary are written before the model is published, so a store that cannot be written keeps it from
going into service. Only the marker of the step comes after it; if that cannot be written, the error says which version
is in service.
"""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from voxline.components.push import gate
from voxline.components.push.gate import GateCheck, Opponent, OtherMetrics, Verdict
from voxline.components.push.limits import check_limits, describe_missing_judge, refuse_unmeasured
from voxline.components.push.model_card import model_card, verdict_summary
from voxline.components.push.settings import PushSettings
from voxline.components.push.smoke_test import run_smoke_test
from voxline.data.licences import LANGUAGE_TEXTS, NOT_STATED
from voxline.errors import SettingsError, WorkError
from voxline.families.family import find_family
from voxline.inference.model_info import ModelInfo
from voxline.inference.saved_model import TRAINING_FOLDERS, exported_folder, model_digest, read_model_info
from voxline.metrics.evaluation import (
    CLIP_FILE,
    CLIP_MELS_FILE,
    METRICS_FILE,
    REPORT_FILE,
    UTTERANCES_FILE,
    Evaluation,
)
from voxline.progress import print_status
from voxline.registry.anchor import best_version, named_anchor
from voxline.registry.erasures import (
    best_after_erasure,
    doubt_of,
    erased_in,
    erasure_warning,
    reference_after_erasure,
)
from voxline.registry.journal import CANDIDATE, PRODUCTION, format_utc
from voxline.registry.looks import count_look
from voxline.registry.models_config import write_models_config
from voxline.registry.parents import ancestors_of, licences_of
from voxline.registry.registry import EVALUATION, MODEL_CARD, PROVENANCE, Registry
from voxline.registry.training_data import TRAINED_ON
from voxline.store.bucket_cache import local_path
from voxline.store.files import explain_disk_errors, write_json, write_text
from voxline.store.hashing import hash_value
from voxline.store.step_cache import StepOutput, cached_step, local_inputs
from voxline.store.store_locks import shared_store_lock
from voxline.store.versioned_json import to_json_values

VERDICT = "verdict.json"
SUMMARY = "summary.md"
STALE = "evaluate the model again, and push then"
AFTER_ERASURE = "after an erasure"


@local_inputs("model", "evaluation", without=TRAINING_FOLDERS)
def run(
    model: Path | str, evaluation: Path | str, registry: Path | str, store: Path | str, settings: PushSettings
) -> StepOutput:
    """Judges a model, and publishes it or says why not. A refusal is not a failure.

    Args:
      model: train's folder, or an exported model.
      evaluation: evaluate's folder.
      registry: the registry's folder, or its URI in a bucket; created if necessary.
      settings: of the model's family.

    Raises:
      WorkError: the evaluation is of another model, or its figures are not those of its utterances; the registry or
        the store cannot be written. If that is so after the model was published, the error names the version.
      SettingsError: evaluate did not measure what the settings judge by, or used another name or family.
    """
    start = time.monotonic()
    measured = Evaluation.read(Path(evaluation))
    measured.check_figures()
    source = exported_folder(Path(model))
    _check_evaluated_model(measured, source, settings)
    refuse_unmeasured(measured, settings)

    models = Registry(registry, settings.model_name)
    publication = _Publication(measured, models, store, settings)

    # Before the registry is locked: a purge holds the store and then the registry.
    with explain_disk_errors("push", local_path(store)), shared_store_lock(store), publication.named_in_errors():
        verdict = _decide(measured, source, publication)
        if verdict.version is not None:
            write_models_config(registry)
    print_status(f"push: {verdict.heading}")

    output = publication.output
    output.seconds = time.monotonic() - start
    return output


def _check_evaluated_model(measured: Evaluation, source: Path, settings: PushSettings) -> None:
    """Refuses an evaluation of another model, and one by another name or of another family than the settings have."""
    digest = model_digest(source)
    if measured.digest != digest:
        raise WorkError(
            f"{measured.folder}: it evaluates model {measured.digest[:12]}, and {source} is {digest[:12]}; "
            "the model that ships must be the one that was evaluated, run evaluate on it"
        )
    if measured.info.model.name != settings.model_name:
        raise SettingsError(
            f"push: 'model_name' is {settings.model_name!r}, and {measured.folder} compared the model with those of "
            f"{measured.info.model.name!r}; give both steps the same name"
        )
    family = measured.info.family
    if family != settings.family:
        raise SettingsError(
            f"push: the settings are for the family {settings.family!r}, and {measured.folder} evaluates {family!r}"
        )


def check_licences(info: ModelInfo, settings: PushSettings, folder: Path | None = None) -> list[GateCheck]:
    """Checks that each licence behind a model is an accepted one; [] without a rule.

    A licence that nobody stated may be any, so it fails, as that of an ancestor far back does: its weights are in this
    model.

    Args:
      folder: as `licences_of` takes it.
    """
    if not settings.licences:
        return []
    accepted = {licence.casefold() for licence in settings.licences}
    licences = licences_of(info, folder)
    refused = {
        source: [name for name in names if name.casefold() not in accepted] for source, names in licences.items()
    }
    faults = [f"{source}: {', '.join(names)}" for source, names in refused.items() if names]
    if not faults:
        stated = "; ".join(f"{source}: {', '.join(names)}" for source, names in licences.items())
        return [GateCheck("licences", True, f"accepted by push.licences: {stated}")]

    detail = f"licences that push.licences does not accept: {'; '.join(faults)}; accepted: "
    detail += ", ".join(settings.licences)
    if NOT_STATED in refused.get("its data", []):
        detail += "; corpus.licence states that of the data"
    if NOT_STATED in refused.get(LANGUAGE_TEXTS, []):
        detail += "; language.licences states those of the texts"
    if any(NOT_STATED in refused.get(ancestor.label, []) for ancestor in ancestors_of(info)):
        detail += "; a parent whose licence you know is to be imported again from a folder with its model card"
    return [GateCheck("licences", False, detail)]


def _decide(measured: Evaluation, source: Path, publication: "_Publication") -> Verdict:
    """Reaches the verdict on a model, and publishes the model if every check passes."""
    models = publication.models
    settings = publication.settings
    if verdict := _already_there(models, measured.digest, settings):
        return publication.record(verdict)

    # These checks depend on the evaluation alone, so other runs may use the registry meanwhile.
    checks = check_limits(measured, settings) + gate.check_forgetting(measured, settings)
    checks += gate.check_before(measured, settings) + gate.check_probe(measured, settings)
    checks += gate.check_onnx(measured, settings, source)
    checks += check_licences(measured.model_info, settings, source)
    if settings.smoke_test:
        print_status("push: loading the model in a fresh process")
        family = find_family(settings.family).promotion()
        checks.append(run_smoke_test(settings.family, family, source, measured, settings.smoke_test_seconds))

    with models.locked():
        # Another run may have published this model, or put another one into service, since.
        if verdict := _already_there(models, measured.digest, settings):
            return publication.record(verdict)
        in_service = models.in_service()
        champion = _find_champion(measured, models, in_service)
        doubt = doubt_of(source, models) if champion is not None and erased_in(models, champion.version) else None
        replaces_erased = doubt == ""
        if champion is not None:
            champion = _counted(measured, models, champion, after_erasure=replaces_erased)
        anchor = _find_anchor(measured, champion, settings)
        if champion is not None and replaces_erased:
            checks += _compare_after_erasure(measured, models, champion, anchor, settings)
        else:
            if doubt:
                detail = f"this model may know an erased speaker too, and is judged as any other: {doubt}"
                checks.append(GateCheck(AFTER_ERASURE, None, detail))
            checks += _compare_with_service(measured, models, in_service, champion, settings)
            checks += _compare_with_anchor(measured, models, champion, anchor, settings)
        rolled_back = models.history().rolled_back.get(measured.digest)
        if rolled_back is not None and not settings.allow_rolled_back:
            detail = f"this model was rolled back as version {rolled_back}; push.allow_rolled_back accepts it"
            checks.append(GateCheck("rolled back", False, detail))

        # A check that was skipped is no reason against the model: `passed` is None.
        reasons = [check.detail for check in checks if check.passed is False]
        if reasons:
            reasons += gate.blame_drafts(measured, checks)
            reasons = [*_erased_in_service(models), *([f"{AFTER_ERASURE}: {doubt}"] if doubt else []), *reasons]
            return publication.record(Verdict(False, None, None, in_service, reasons, checks))

        best = best_after_erasure(models) if replaces_erased else best_version(models)
        successors = _anchor_of_successors(measured, models, best, champion, anchor, settings)
        details = {"metrics": measured.values(), "anchor": successors, "alias": settings.promote}

        # When `publishing` ends and moves the alias, the version is complete, and the store has verdict and report.
        # The marker of the step comes last, when `unmarked` ends.
        with contextlib.ExitStack() as unmarked:
            with models.publishing(source, measured.digest, "push", **details) as (version, incoming):
                folder = f"{models.uri}/{version}"
                unjudged = describe_missing_judge(measured, settings)
                verdict = Verdict(True, version, folder, in_service, [], checks, settings.promote, unjudged)
                _describe(incoming, verdict, measured, models, settings)
                if (source / TRAINED_ON).is_file():
                    shutil.copyfile(source / TRAINED_ON, incoming / TRAINED_ON)
                unmarked.enter_context(publication.recorded(verdict))
            publication.published = verdict
        return verdict


def _already_there(models: Registry, digest: str, settings: PushSettings) -> Verdict | None:
    """The verdict on a model that is in service already, or waits as the candidate, with all its files intact."""
    in_service = models.in_service()
    waiting = models.candidate() if settings.promote == CANDIDATE else None
    for version, where in ((in_service, "in service"), (waiting, "the candidate")):
        if version is not None and models.event(version).digest == digest and models.is_intact(version):
            reasons = [*_erased_in_service(models), f"already {where} as version {version}"]
            return Verdict(False, version, f"{models.uri}/{version}", in_service, reasons, [])
    return None


def _counted(measured: Evaluation, models: Registry, champion: Opponent, *, after_erasure: bool) -> Opponent:
    """The model in service, with the number of this comparison.

    A model that has failed a limit counts too. Limits are measured on the same recordings: were those that fail them
    free, only models with luck would count, and each of them as the first.
    """
    service = models.event(champion.version).digest
    look = count_look(models, service, measured.digest, measured.test_fingerprint, after_erasure=after_erasure)
    return dataclasses.replace(champion, look=look)


def _compare_after_erasure(
    measured: Evaluation, models: Registry, champion: Opponent, anchor: Opponent | None, settings: PushSettings
) -> list[GateCheck]:
    """Compares a model with `reference_after_erasure`, whatever the one in service has learned from the speaker."""
    by_config = measured.info.settings.get("anchor", "best")
    chosen = by_config != "best" or named_anchor(models) is not None
    reference = champion.version
    if by_config != "none":
        reference = int(by_config) if by_config != "best" else reference_after_erasure(models) or reference
    digest = models.event(reference).digest  # a rollback may have put the same model into service
    measured_ones = (other for other in (anchor, champion) if other)
    opponent = next((other for other in measured_ones if models.event(other.version).digest == digest), None)

    count = erased_in(models, champion.version) or 0
    told = f"version {champion.version} was trained on {count:,} utterances of a speaker who was erased since"
    if opponent is None:
        detail = f"{told}; version {reference}, by which a model without them is judged, was not measured; {STALE}"
        return [GateCheck(AFTER_ERASURE, False, detail)]

    # What a person chose is said: it may know the speaker, or be worse than another one.
    knows = erased_in(models, opponent.version) != 0
    if chosen:
        why = "the anchor that a person chose" + (", though it may know the speaker" if knows else "")
    elif knows:
        why = "the best one until now, since none is known that did not know the speaker"
    else:
        why = "the best one that did not know the speaker"
    detail = (
        f"{told}; a model without them replaces it if it is no worse than version {opponent.version}, {why}: as "
        "measured by no more than the margin, and with confidence by no more than "
        f"{gate.ERASURE_MARGINS:g} times the margin"
    )
    role = f"version {opponent.version}, {AFTER_ERASURE}"
    opponent = dataclasses.replace(opponent, role=role, look=champion.look)
    return [
        GateCheck(AFTER_ERASURE, None, detail),
        *gate.check_after_erasure(measured, opponent, settings),
    ]


def _erased_in_service(models: Registry) -> list[str]:
    """Says that the version in production knows an erased speaker, and what to do; [] if it does not."""
    warning = erasure_warning(models)
    if not warning:
        return []
    print_status(f"push: warning: {warning}")
    return [warning]


def _compare_with_service(
    measured: Evaluation, models: Registry, in_service: int | None, champion: Opponent | None, settings: PushSettings
) -> list[GateCheck]:
    """Compares a model with the one in service, as a whole and in slices.

    Args:
      champion: the metrics of the model in service; None if they are not known of these utterances.
    """
    name = "against the model in service"
    if in_service is None:
        return [GateCheck(name, None, "nothing is in service yet, so there is nothing to compare with")]
    if models.event(in_service).digest == measured.digest:
        return [GateCheck(name, None, f"it is version {in_service} itself, whose files were damaged since")]
    if champion is None:
        detail = f"version {in_service} went into service since the evaluation, and was tested on other data; {STALE}"
        return [GateCheck(name, False, detail)]
    checks = gate.check_regression(measured, champion, settings)
    checks += gate.check_slice_regression(measured, champion, settings)
    return checks or [GateCheck(name, None, "no metric has a margin (push.max_regression), so nothing is compared")]


def _compare_with_anchor(
    measured: Evaluation, models: Registry, champion: Opponent | None, anchor: Opponent | None, settings: PushSettings
) -> list[GateCheck]:
    """Compares a model with the anchor, as a whole: margins of many pushes must not add up."""
    name = "against the anchor"
    evaluated = measured.info.anchor
    if champion is None:  # nothing is in service, or the comparison with what is there has failed already
        return []
    if anchor is not None:
        return gate.check_regression(measured, anchor, settings)
    if evaluated is None:
        return [GateCheck(name, None, "no anchor was evaluated (evaluate.anchor)")]
    if evaluated.digest == models.event(champion.version).digest:
        return [GateCheck(name, None, f"version {champion.version}, the model in service, is the anchor itself")]
    return [GateCheck(name, False, f"version {evaluated.version} was not measured by the same metrics; {STALE}")]


def _find_champion(measured: Evaluation, models: Registry, in_service: int | None) -> Opponent | None:
    """The model in service, if it is another one and its metrics on these utterances are known."""
    if in_service is None or models.event(in_service).digest == measured.digest:
        return None
    metrics = _champion_metrics(measured, models, in_service)
    return None if metrics is None else Opponent("the model in service", in_service, metrics)


def _find_anchor(measured: Evaluation, champion: Opponent | None, settings: PushSettings) -> Opponent | None:
    """The anchor of the evaluation, if it is not the model in service.

    If another model went into service since, the one that was in service then may be the anchor.
    """
    evaluated = measured.info.anchor
    if evaluated is None:
        return None

    # evaluate runs a version once: if the anchor was in service, its metrics are the champion's.
    if evaluated.digest != measured.champion_digest:
        metrics = {result.id: result.anchor for result in measured.results if result.anchor is not None}
    elif champion is not None and evaluated.version != champion.version:
        metrics = {result.id: result.champion for result in measured.results if result.champion is not None}
    else:
        return None

    if len(metrics) < len(measured.results):
        return None
    look = champion.look if champion is not None else 0
    return Opponent("the anchor", evaluated.version, metrics, settings.anchor_margins, look=look)


def _anchor_of_successors(
    measured: Evaluation,
    models: Registry,
    best: int | None,
    champion: Opponent | None,
    anchor: Opponent | None,
    settings: PushSettings,
) -> int | None:
    """The best of this version and those before: this one (None) if it is at least as good as the best so far.

    An erasure does not start again: each model after one would be a margin worse than the one after the last.
    """
    in_service = models.in_service()
    if in_service is None:
        return None
    if models.event(in_service).digest == measured.digest:  # its damaged files are replaced
        return models.event(in_service).anchor

    opponents = [opponent for opponent in (champion, anchor) if opponent is not None]
    rival = next((opponent for opponent in opponents if opponent.version == best), None)
    if rival is None:  # a person named another one, so the best was not measured on these utterances
        return best
    return None if gate.is_better(measured, rival.metrics, settings) else best


def _champion_metrics(measured: Evaluation, models: Registry, in_service: int) -> OtherMetrics | None:
    """Metrics of the model in service: from this evaluation, or from its own of the same metrics on the same data."""
    if measured.champion_digest == models.event(in_service).digest:
        return {result.id: result.champion for result in measured.results if result.champion is not None}

    # It went into service since the evaluation.
    try:
        own_evaluation = Evaluation.read(models.path(in_service) / EVALUATION)
        own_evaluation.check_figures()
    except WorkError as error:
        print_status(f"push: the evaluation of version {in_service} is not used: {error}")
        return None

    # Another recognizer that judges a voice would make another word error rate of the same speech.
    if own_evaluation.test_fingerprint != measured.test_fingerprint:
        return None
    if own_evaluation.info.auxiliary_models != measured.info.auxiliary_models:
        return None
    names = own_evaluation.results[0].metrics.keys()
    if any(names != result.metrics.keys() for result in measured.results):
        return None
    return {result.id: result.metrics for result in own_evaluation.results}


def _describe(folder: Path, verdict: Verdict, measured: Evaluation, models: Registry, settings: PushSettings) -> None:
    """Adds the evaluation, the model card and the provenance to a version."""
    pushed_at = format_utc(time.time())
    version = verdict.version or 0
    info = read_model_info(folder)

    # The clips are of the smoke test, and of families whose smoke test has them.
    evaluation = folder / EVALUATION
    evaluation.mkdir()
    for name in (METRICS_FILE, UTTERANCES_FILE, CLIP_FILE, CLIP_MELS_FILE):
        if name not in (CLIP_FILE, CLIP_MELS_FILE) or (measured.folder / name).is_file():
            shutil.copyfile(measured.folder / name, evaluation / name)
    write_text(evaluation / REPORT_FILE, _report(verdict, measured, models, settings))
    write_text(folder / MODEL_CARD, model_card(find_family(settings.family).promotion(), measured, version, pushed_at))

    # Not for people alone: a purge looks for the dataset here, and the report of the next push for the settings.
    provenance = {
        "model": settings.model_name,
        "version": version,
        "digest": measured.digest,
        "evaluation_digest": measured.content_digest(),
        "pushed_at": pushed_at,
        "evaluation_key": measured.info.key,
        "replaces": verdict.in_service,
        "checks": [check.to_dict() for check in verdict.checks],
        "config": _config(measured, settings),
        "dataset": {**msgspec.to_builtins(info.dataset), "version": measured.info.model.dataset},
        "test": to_json_values(measured.info.test),
        **({"start": msgspec.to_builtins(info.start)} if info.start else {}),
        **msgspec.to_builtins(info.provenance),
    }
    write_json(folder / PROVENANCE, provenance)


def _config(measured: Evaluation, settings: PushSettings) -> dict[str, Any]:
    """All settings that the model depends on, for its provenance."""
    info = measured.model_info
    return {
        "features": info.features,
        "train": info.settings,
        "evaluate": measured.info.settings,
        "push": settings.plain(),
    }


def _report(verdict: Verdict, measured: Evaluation, models: Registry, settings: PushSettings) -> str:
    from voxline.components.push.report import judged_report

    return judged_report(verdict, measured, models, _config(measured, settings))


class _Publication:
    """Writes the verdict into the store, and names the version in an error after the model was published.

    Attributes:
      output: of the step, once there is a verdict.
      published: the verdict on a model that is in the registry now.
    """

    output: StepOutput

    def __init__(self, measured: Evaluation, models: Registry, store: Path | str, settings: PushSettings) -> None:
        self._measured = measured
        self._store = store
        self.models = models
        self.settings = settings
        self.published: Verdict | None = None

    def record(self, verdict: Verdict) -> Verdict:
        """Writes the verdict on a model that is not published now."""
        with self.recorded(verdict):
            return verdict

    @contextlib.contextmanager
    def recorded(self, verdict: Verdict) -> Iterator[None]:
        """Writes verdict, report and summary; their marker comes when the block ends, with the model published.

        They are keyed by evaluation, registry and verdict. So runs that share a store keep their own: one pushed a
        model, the next one finds it in service.
        """
        measured = self._measured
        decision = {**dataclasses.asdict(verdict), "checks": [check.to_dict() for check in verdict.checks]}
        inputs = {"evaluation": measured.info.key, "registry": self.models.uri, "verdict": hash_value(decision)}
        values: dict[str, Any] = {
            **decision,
            "heading": verdict.heading,
            "model_name": self.settings.model_name,
            "digest": measured.digest,
            "dataset": measured.info.model.dataset,
            "evaluation_digest": measured.content_digest(),
            "metrics": measured.values(),
            "judged": format_utc(time.time()),
        }
        # Never reused, so the step is made again even where its folder has a marker.
        with cached_step(self._store, "push", self.settings, inputs, force=True) as output:
            write_json(output.folder / VERDICT, values)
            write_text(output.folder / REPORT_FILE, _report(verdict, measured, self.models, self.settings))
            write_text(output.folder / SUMMARY, verdict_summary(verdict, measured, f"{output.uri}/{REPORT_FILE}"))
            output.outputs = {"verdict": VERDICT, "report": REPORT_FILE, "summary": SUMMARY}

            not_checked = sum(check.passed is None for check in verdict.checks)
            output.counts = {"pushed": int(verdict.pushed), "checks": len(verdict.checks) - not_checked}
            output.counts["not_checked"] = not_checked
            self.output = output
            yield

    @contextlib.contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Lets an error after the publication say which version callers get.

        Raises:
          WorkError: naming the version, and what could not be written.
        """
        try:
            yield
        except (WorkError, OSError) as error:
            if self.published is None:
                raise
            where = "in service" if self.published.alias == PRODUCTION else "the candidate"
            raise WorkError(
                f"push: version {self.published.version} of {self.settings.model_name} is {where} "
                f"({self.published.model}); its report could not be finished: {error}"
            ) from error

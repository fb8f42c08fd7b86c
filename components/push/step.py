"""Push: judges an evaluated model, and publishes it as a new version if it passes.

Never reused: the verdict depends on what is in service at this moment. It is given while the registry is held,
so that the version compared with is the one that would be replaced.
"""

import dataclasses
import shutil
import time
from pathlib import Path
from typing import Any

from voxline.components.push import gate
from voxline.components.push.asr import card as recognition_card
from voxline.components.push.asr.smoke_test import smoke_test_asr
from voxline.components.push.gate import ChampionMetrics, GateCheck
from voxline.components.push.settings import AsrPushSettings, PushSettings, TtsPushSettings
from voxline.components.push.tts import card as synthesis_card
from voxline.components.push.tts.smoke_test import smoke_test_tts
from voxline.errors import SettingsError, WorkError
from voxline.inference.saved_model import TRAINING_FOLDERS, exported_folder, model_digest, read_model_json
from voxline.metrics.bootstrap import aggregate
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import (
    CLIP_FILE,
    CLIP_MELS_FILE,
    METRICS_FILE,
    REPORT_FILE,
    UTTERANCES_FILE,
    VERDICT_SLOT,
    Evaluation,
)
from voxline.progress import print_status
from voxline.registry.journal import format_utc
from voxline.registry.registry import EVALUATION, MODEL_CARD, PROVENANCE, Registry
from voxline.registry.training_data import TRAINED_ON
from voxline.store.files import write_json, write_text
from voxline.store.hashing import hash_value
from voxline.store.step_cache import StepOutput, cached_step, local_inputs

VERDICT = "verdict.json"
STALE = "evaluate the model again, and push then"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What push decided.

    Attributes:
      pushed: a new version is in service.
      version: that version; where the very model was in service already, its version.
      model: the folder of that version.
      in_service: the version in service when the model was judged.
      reasons: why it was not pushed; empty if it was.
    """

    pushed: bool
    version: int | None
    model: str | None
    in_service: int | None
    reasons: list[str]
    checks: list[GateCheck]

    @property
    def heading(self) -> str:
        if self.pushed:
            return f"Pushed as version {self.version}"
        return f"Not pushed: {'; '.join(self.reasons)}"


@local_inputs("model", "evaluation", without=TRAINING_FOLDERS)
def run(
    model: Path | str,
    evaluation: Path | str,
    registry: Path | str,
    store: Path | str,
    settings: PushSettings = AsrPushSettings(),  # noqa: B008  (frozen)
) -> StepOutput:
    """Judges a model, and publishes it or says why not; refusing is no failure.

    Args:
      model: train's folder, or an exported model.
      evaluation: evaluate's folder.
      registry: the folder or bucket URI of the registry; made if need be.

    Raises:
      WorkError: the evaluation is of another model, or the registry cannot be written.
      SettingsError: a slicing that evaluate did not make, or another model's name.
    """
    start = time.monotonic()
    measured = Evaluation.read(Path(evaluation))
    source = exported_folder(Path(model))
    _check_is_of(measured, source, settings)
    gate.refuse_unmeasured(measured, settings)
    versions = Registry(registry, settings.model_name)
    decided = _decide(measured, source, versions, settings)
    print_status(f"push: {decided.heading}")
    return _written(decided, measured, versions, store, settings, start)


def _check_is_of(measured: Evaluation, source: Path, settings: PushSettings) -> None:
    found = model_digest(source)
    if measured.digest != found:
        raise WorkError(
            f"{measured.folder}: evaluates the model {measured.digest[:12]}, {source} is {found[:12]}; "
            "what ships must be what was judged, run evaluate on this model"
        )
    if measured.metrics["model"]["name"] != settings.model_name:
        raise SettingsError(
            f"push: 'model_name' is {settings.model_name!r}, and {measured.folder} compared the model with those of "
            f"{measured.metrics['model']['name']!r}; give both steps the same name"
        )
    family, judged = measured.metrics["family"], _family(settings)
    if family != judged:
        raise SettingsError(f"push: the settings are those of {judged}, and {measured.folder} evaluates {family}")


def _family(settings: PushSettings) -> str:
    return "synthesis" if isinstance(settings, TtsPushSettings) else "recognition"


def _decide(measured: Evaluation, source: Path, versions: Registry, settings: PushSettings) -> Verdict:
    serving = _serving(versions, measured.digest)
    if serving is not None:
        return serving
    checks = gate.check_limits(measured, settings)
    if settings.known_clip:
        print_status("push: loading the model in a fresh process")
        checks.append(_in_a_fresh_process(measured, source, settings))
    with versions.locked():
        serving = _serving(versions, measured.digest)
        if serving is not None:
            return serving
        in_service = versions.in_service()
        checks += _against_service(measured, versions, in_service, settings)
        rolled_back = versions.rolled_back().get(measured.digest)
        if rolled_back is not None and not settings.allow_rolled_back:
            detail = f"this very model was rolled back as version {rolled_back}; push.allow_rolled_back lets it pass"
            checks.append(GateCheck("rolled back", False, detail))
        reasons = [check.detail for check in checks if not check.passed]
        if reasons:
            return Verdict(False, None, None, in_service, reasons, checks)
        figures = _figures(measured)
        with versions.publishing(source, measured.digest, "push", metrics=figures) as (version, incoming):
            decided = Verdict(True, version, f"{versions.uri}/{version}", in_service, [], checks)
            _describe(incoming, decided, measured, settings)
            if (source / TRAINED_ON).is_file():
                shutil.copyfile(source / TRAINED_ON, incoming / TRAINED_ON)
        return decided


def _in_a_fresh_process(measured: Evaluation, source: Path, settings: PushSettings) -> GateCheck:
    clip, seconds = measured.metrics["clip"], settings.clip_seconds
    if isinstance(settings, TtsPushSettings):
        return smoke_test_tts(source, clip["symbols"], measured.folder / CLIP_MELS_FILE, seconds)
    return smoke_test_asr(source, measured.folder / CLIP_FILE, clip["text"], seconds)


def _figures(measured: Evaluation) -> dict[str, float]:
    """Every figure over all utterances; what was measured of none is left out."""
    names = measured.rows[0].figures
    values = {name: aggregate([row.figures[name] for row in measured.rows], CATALOG[name].kind) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _serving(versions: Registry, judged: str) -> Verdict | None:
    """The verdict on a model that is in service already, with all its files as they were."""
    version = versions.in_service()
    if version is None or versions.event(version).digest != judged or not versions.is_intact(version):
        return None
    reasons = [f"already in service as version {version}"]
    return Verdict(False, version, f"{versions.uri}/{version}", version, reasons, [])


def _against_service(
    measured: Evaluation, versions: Registry, in_service: int | None, settings: PushSettings
) -> list[GateCheck]:
    name = "against the model in service"
    if in_service is None:
        return [GateCheck(name, True, "nothing is in service yet, so there is nothing to compare with")]
    if versions.event(in_service).digest == measured.digest:
        return [GateCheck(name, True, f"it is version {in_service} itself, whose files were damaged since")]
    champion = _champion(measured, versions, in_service)
    if champion is None:
        detail = f"version {in_service} went into service since the evaluation, and was tested on other data; {STALE}"
        return [GateCheck(name, False, detail)]
    return [
        *gate.check_regression(measured, champion, in_service, settings),
        *gate.check_slice_regression(measured, champion, in_service, settings),
    ]


def _champion(measured: Evaluation, versions: Registry, in_service: int) -> ChampionMetrics | None:
    """What the model in service made of each utterance: from this evaluation, or its own if measured alike."""
    if measured.champion_digest == versions.event(in_service).digest:
        return {row.id: row.champion for row in measured.rows if row.champion is not None}
    try:
        its_own = Evaluation.read(versions.path(in_service) / EVALUATION)
    except WorkError:
        return None
    alike = its_own.test == measured.test and its_own.metrics.get("listener") == measured.metrics.get("listener")
    if not alike or any(its_own.rows[0].figures.keys() != row.figures.keys() for row in measured.rows):
        return None
    return {row.id: row.figures for row in its_own.rows}


def _describe(folder: Path, decided: Verdict, measured: Evaluation, settings: PushSettings) -> None:
    """Puts beside a version what it is, how it was judged and where it came from."""
    metrics, pushed_at = measured.metrics, format_utc(time.time())
    described = read_model_json(folder)
    version = decided.version or 0
    evaluation = folder / EVALUATION
    evaluation.mkdir()
    for name in (METRICS_FILE, UTTERANCES_FILE, CLIP_FILE, CLIP_MELS_FILE):
        if name != CLIP_MELS_FILE or (measured.folder / name).is_file():
            shutil.copyfile(measured.folder / name, evaluation / name)
    write_text(evaluation / REPORT_FILE, _report(decided, measured))
    card = synthesis_card if isinstance(settings, TtsPushSettings) else recognition_card
    write_text(folder / MODEL_CARD, card.model_card(measured, version, pushed_at))
    provenance = {
        "model": settings.model_name,
        "version": version,
        "digest": measured.digest,
        "pushed_at": pushed_at,
        "evaluation_key": metrics["key"],
        "replaces": decided.in_service,
        "checks": [dataclasses.asdict(check) for check in decided.checks],
        "config": {
            "features": described["features"],
            "train": described["settings"],
            "evaluate": metrics["settings"],
            "push": settings.plain(),
        },
        "dataset": described["dataset"],
        "test": metrics["test"],
        **described["provenance"],
    }
    write_json(folder / PROVENANCE, provenance)


def _report(decided: Verdict, measured: Evaluation) -> str:
    """The evaluation's page, with the verdict in its slot."""
    from voxline.report import Block, Tone, badge, data_table, fill_slot, verdict_banner

    tone: Tone = "good" if decided.pushed else "plain" if decided.version else "bad"
    heading = decided.heading if decided.pushed else "Not pushed"
    reasons = "" if decided.checks else f"{'; '.join(decided.reasons)}."
    blocks = [verdict_banner(heading, reasons, tone)]
    if decided.checks:
        rows = [[badge(check.name, "good" if check.passed else "bad"), check.detail] for check in decided.checks]
        blocks.append(data_table(["check", "what was found"], rows))
    html = (measured.folder / REPORT_FILE).read_text(encoding="utf-8")
    return fill_slot(html, VERDICT_SLOT, Block("").join(blocks))


def _written(
    decided: Verdict, measured: Evaluation, versions: Registry, store: Path | str, settings: PushSettings, start: float
) -> StepOutput:
    """Writes verdict and report where only the same verdict of the same registry is written.

    Runs that share a store each keep their own: one pushed a model, the next one finds it in service.
    """
    judged = dataclasses.asdict(decided)
    inputs = {
        "evaluation": measured.metrics["key"],
        "registry": versions.uri,
        "verdict": hash_value(judged),
    }
    summary: dict[str, Any] = {
        "model_name": settings.model_name,
        "digest": measured.digest,
        "figures": _figures(measured),
        "judged": format_utc(time.time()),
    }
    if "wer" in measured.metrics:
        wer = measured.metrics["wer"]
        summary |= {"wer": wer["rate"], "wer_interval": [wer["interval"]["low"], wer["interval"]["high"]]}
    values: dict[str, Any] = {**judged, "heading": decided.heading, **summary}
    with cached_step(store, "push", settings, inputs, force=True) as work:
        write_json(work.folder / VERDICT, values)
        write_text(work.folder / REPORT_FILE, _report(decided, measured))
        work.outputs = {"verdict": VERDICT, "report": REPORT_FILE}
        work.counts = {"pushed": int(decided.pushed), "checks": len(decided.checks)}
    work.seconds = time.monotonic() - start
    return work

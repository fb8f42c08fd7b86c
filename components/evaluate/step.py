"""Evaluate: how well the exported model recognises the test split, and how that compares with the one in service.

The model that is measured is the bytes that would ship. Its key is its digest, the test utterances and the
model in service, so that an evaluation is repeated when one of these changes, and never otherwise.
"""

import collections
import dataclasses
import io
from pathlib import Path
from typing import Any

from components.evaluate.measures import check_slices, figures, table
from components.evaluate.recognition import Recognised, recognise, waveform
from components.evaluate.settings import EvaluateSettings
from components.speech.errors import WorkError
from components.speech.evaluation import CLIP, METRICS, REPORT, TABLE, Evaluation, Row, write_rows
from components.speech.exported import Recogniser, about, digest, exported_folder
from components.speech.progress import say
from components.speech.registry import EVALUATION, Registry
from components.speech.storage import read_json, whole_file, write_json
from components.speech.utterances import Utterance, fingerprint, read_manifest
from components.speech.work import Work, keyed_work

REVISION = 1


@dataclasses.dataclass(frozen=True)
class Champion:
    """The model that the new one is compared with."""

    version: int
    digest: str
    folder: Path


def run(
    model: Path | str,
    manifest: Path | str,
    registry: Path | str,
    store: Path | str,
    settings: EvaluateSettings = EvaluateSettings(),  # noqa: B008  (frozen)
) -> Work:
    """Measures an exported model.

    Args:
      model: train's folder, or an exported model.
      manifest: convert's folder, or a manifest.
      registry: the folder of the registry; need not be there yet.

    Raises:
      WorkError: the split is empty, a recording or a model cannot be read.
      SettingsError: a slicing by a field that no utterance has.
    """
    folder = exported_folder(model)
    utterances = _utterances(Path(manifest), settings)
    judged = digest(folder)
    champion = find_champion(Registry(registry, settings.model_name), judged)
    inputs = {
        "model": judged,
        "test": fingerprint(utterances),
        "champion": champion and {"version": champion.version, "digest": champion.digest},
    }
    with keyed_work(store, "evaluate", settings, inputs, revision=REVISION) as work:
        if not work.reused:
            _evaluate(work, folder, utterances, champion, settings, inputs)
        metrics = read_json(work.folder / METRICS)
        say(f"evaluate: {summary(metrics)}")
    return work


def find_champion(registry: Registry, judged: str) -> Champion | None:
    """The model in service; where that is the judged model itself, the one that it was compared with in its day.

    So a second run of the same work meets the same comparison, and finds it done. A model is known by the files
    that lie there, which may have been damaged since they were published.
    """
    version = registry.in_service()
    if version is None:
        return None
    if registry.change(version).digest != judged:
        return Champion(version, _digest_of(registry, version), registry.path(version))
    try:
        before = Evaluation.read(registry.path(version) / EVALUATION).metrics["champion"]
    except WorkError:
        return None
    if before is None or before["version"] not in registry.versions():
        return None
    if _digest_of(registry, before["version"]) != before["digest"]:
        return None
    return Champion(before["version"], before["digest"], registry.path(before["version"]))


def _digest_of(registry: Registry, version: int) -> str:
    """Raises: WorkError: naming the version, and the way out."""
    try:
        return digest(registry.path(version))
    except WorkError as error:
        raise _unusable(registry.model, version, error) from None


def _unusable(name: str, version: int, error: WorkError) -> WorkError:
    return WorkError(
        f"version {version} of {name}, with which a new model is to be compared, cannot be used: {error}; "
        "roll back to a version that can (voxline models rollback), or, if there is none, remove its folder"
    )


def summary(metrics: dict[str, Any]) -> str:
    """The headline in one line."""
    wer, interval = metrics["wer"]["rate"], metrics["wer"]["interval"]
    line = (
        f"word error rate {wer:.1%} ({100 * metrics['bootstrap']['confidence']:g}% interval "
        f"{interval['low']:.1%} to {interval['high']:.1%}) on {metrics['utterances']:,} utterances"
    )
    if metrics["champion"]:
        worse = metrics["comparison"]["probability_worse"]
        version, other = metrics["champion"]["version"], metrics["comparison"]["champion_wer"]
        line += f"; version {version}: {other:.1%}, this one is worse with probability {worse:.0%}"
    return line


def _utterances(manifest: Path, settings: EvaluateSettings) -> list[Utterance]:
    utterances = [utterance for utterance in read_manifest(manifest) if utterance.split == settings.split]
    if not utterances:
        raise WorkError(
            f"{manifest}: no utterance in the split {settings.split!r}, so there is nothing to measure a model on; "
            "give the corpus a test split (corpus settings), or set evaluate.split"
        )
    ((most, times),) = collections.Counter(utterance.id for utterance in utterances).most_common(1)
    if times > 1:
        raise WorkError(f"{manifest}: id {most} appears {times} times; utterances are compared by id, make it unique")
    check_slices(utterances, settings)
    return utterances


def _evaluate(
    work: Work,
    folder: Path,
    utterances: list[Utterance],
    champion: Champion | None,
    settings: EvaluateSettings,
    inputs: dict[str, Any],
) -> None:
    from components.evaluate.report import write_report

    say(f"evaluate: recognising {len(utterances):,} utterances of the split {settings.split!r}")
    recogniser = Recogniser(folder, batch_seconds=settings.batch_seconds)
    heard = recognise(recogniser, utterances, "utterances recognised")
    other = _heard_by(champion, utterances, settings)
    rows = table(utterances, heard.texts, other.texts if other else None, settings)
    say("evaluate: counting errors and drawing resamples")
    metrics = {
        **figures(rows, settings),
        "key": work.key,
        "model": {"digest": inputs["model"], "name": settings.model_name, "about": about(folder)},
        "test": {
            "split": settings.split,
            "fingerprint": inputs["test"],
            "speakers": len({utterance.speaker for utterance in utterances if utterance.speaker}),
        },
        "champion": inputs["champion"],
        "clip": _clip(work.folder, recogniser, utterances, rows),
        # Depends on the machine and its load, so it is told and takes part in no decision and no key.
        "real_time_factor": heard.real_time_factor,
        "champion_real_time_factor": other.real_time_factor if other else None,
        "settings": settings.plain(),
    }
    write_rows(work.folder / TABLE, rows)
    write_json(work.folder / METRICS, metrics)
    write_report(work.folder / REPORT, metrics, rows, utterances, settings)
    work.outputs = {"metrics": METRICS, "utterances": TABLE, "report": REPORT, "clip": CLIP}
    work.counts = {"utterances": len(rows), "words": metrics["wer"]["length"]}
    work.metrics = _headline(metrics)


def _heard_by(champion: Champion | None, utterances: list[Utterance], settings: EvaluateSettings) -> Recognised | None:
    if champion is None:
        return None
    say(f"evaluate: recognising them with version {champion.version}, the model in service")
    try:
        recogniser = Recogniser(champion.folder, batch_seconds=settings.batch_seconds)
    except WorkError as error:
        raise _unusable(settings.model_name, champion.version, error) from None
    return recognise(recogniser, utterances, "utterances recognised by the model in service")


def _clip(folder: Path, recogniser: Recogniser, utterances: list[Utterance], rows: list[Row]) -> dict[str, Any]:
    """Writes one recording and what the model makes of it alone: push expects the same text in a fresh process.

    A clip of some three seconds that was heard without an error, where there is one.
    """
    import soundfile

    from components.speech.audio import to_int16

    order = sorted(rows, key=lambda r: (not r.hypothesis, r.words.errors > 0, abs(r.duration - 3), r.id))
    utterance = next(utterance for utterance in utterances if utterance.id == order[0].id)
    with whole_file(folder / CLIP) as file:
        memory = io.BytesIO()
        samples = to_int16(waveform(utterance, recogniser.sample_rate))
        soundfile.write(memory, samples, recogniser.sample_rate, format="WAV", subtype="PCM_16")
        file.write(memory.getvalue())
    (text,) = recogniser.transcribe_files([folder / CLIP])
    return {"id": utterance.id, "reference": utterance.text, "text": text}


def _headline(metrics: dict[str, Any]) -> dict[str, float]:
    values = {
        "wer": metrics["wer"]["rate"],
        "wer_low": metrics["wer"]["interval"]["low"],
        "wer_high": metrics["wer"]["interval"]["high"],
        "cer": metrics["cer"]["rate"],
        "sentence_error_rate": metrics["sentence_error_rate"],
        "rtf": metrics["real_time_factor"],
    }
    if metrics["comparison"]:
        values |= {
            "champion_wer": metrics["comparison"]["champion_wer"],
            "wer_difference": metrics["comparison"]["difference"],
            "probability_worse": metrics["comparison"]["probability_worse"],
        }
    return {name: round(value, 6) for name, value in values.items()}

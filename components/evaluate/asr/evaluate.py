"""Measures an exported recogniser: what it heard in the test split, against what was said there."""

import io
from pathlib import Path
from typing import Any

from voxline.components.evaluate.asr.metrics import asr_results, check_asr_slices, compute_asr_metrics
from voxline.components.evaluate.asr.transcribe import AsrResult, Transcripts, transcribe_utterances, utterance_waveform
from voxline.components.evaluate.champion import ModelVersion
from voxline.components.evaluate.settings import AsrEvaluateSettings
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import read_model_json
from voxline.metrics.evaluation import CLIP_FILE, METRICS_FILE, REPORT_FILE, UTTERANCES_FILE, write_results
from voxline.progress import print_status
from voxline.store.files import atomic_write, write_json
from voxline.store.step_cache import StepOutput

__all__ = ["check_asr_slices", "evaluate_asr", "summarize_asr"]


def evaluate_asr(
    work: StepOutput,
    folder: Path,
    utterances: list[Utterance],
    champion: ModelVersion | None,
    settings: AsrEvaluateSettings,
    inputs: dict[str, Any],
) -> None:
    """Writes metrics, table, report and clip into the work's folder.

    Args:
      folder: of the exported model.
      inputs: what names the work: "model" (its digest), "test" (fingerprint), "champion".
    """
    from voxline.components.evaluate.asr.report import write_asr_report

    print_status(f"evaluate: recognising {len(utterances):,} utterances of the split {settings.split!r}")
    recogniser = Recognizer(folder, batch_seconds=settings.batch_seconds)
    heard = transcribe_utterances(recogniser, utterances, "utterances recognised")
    other = _heard_by(champion, utterances, settings)
    rows = asr_results(utterances, heard.texts, other.texts if other else None, settings)
    print_status("evaluate: counting errors and drawing resamples")
    metrics = {
        **compute_asr_metrics(rows, settings),
        "family": "recognition",
        "key": work.key,
        "model": {"digest": inputs["model"], "name": settings.model_name, "about": read_model_json(folder)},
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
    write_results(work.folder / UTTERANCES_FILE, (row.row() for row in rows))
    write_json(work.folder / METRICS_FILE, metrics)
    write_asr_report(work.folder / REPORT_FILE, metrics, rows, utterances, settings)
    work.outputs = {"metrics": METRICS_FILE, "utterances": UTTERANCES_FILE, "report": REPORT_FILE, "clip": CLIP_FILE}
    work.counts = {"utterances": len(rows), "words": metrics["wer"]["length"]}
    work.metrics = _headline(metrics)


def summarize_asr(metrics: dict[str, Any]) -> str:
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


def _heard_by(
    champion: ModelVersion | None, utterances: list[Utterance], settings: AsrEvaluateSettings
) -> Transcripts | None:
    if champion is None:
        return None
    print_status(f"evaluate: recognising them with version {champion.version}, the model in service")
    try:
        recogniser = Recognizer(champion.folder, batch_seconds=settings.batch_seconds)
    except WorkError as error:
        raise champion.unusable(error) from None
    return transcribe_utterances(recogniser, utterances, "utterances recognised by the model in service")


def _clip(folder: Path, recogniser: Recognizer, utterances: list[Utterance], rows: list[AsrResult]) -> dict[str, Any]:
    """Writes one recording and what the model makes of it alone: push expects the same text in a fresh process.

    A clip of some three seconds that was heard without an error, where there is one.
    """
    import soundfile

    from voxline.audio.decoding import to_int16

    order = sorted(rows, key=lambda r: (not r.hypothesis, r.words.errors > 0, abs(r.duration - 3), r.id))
    utterance = next(utterance for utterance in utterances if utterance.id == order[0].id)
    with atomic_write(folder / CLIP_FILE) as file:
        memory = io.BytesIO()
        samples = to_int16(utterance_waveform(utterance, recogniser.sample_rate))
        soundfile.write(memory, samples, recogniser.sample_rate, format="WAV", subtype="PCM_16")
        file.write(memory.getvalue())
    text = recogniser.transcribe(folder / CLIP_FILE)
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

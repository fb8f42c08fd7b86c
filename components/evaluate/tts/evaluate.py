"""Measures an exported voice: what it speaks for the texts of the test split, against what was recorded there."""

import io
from pathlib import Path
from typing import Any

from voxline.components.evaluate.champion import ModelVersion
from voxline.components.evaluate.settings import TtsEvaluateSettings
from voxline.components.evaluate.tts.metrics import check_tts_slices, compute_tts_metrics, tts_results
from voxline.components.evaluate.tts.round_trip import RoundTripRecognizer, reference_text
from voxline.components.evaluate.tts.synthesize import NOT_MEASURED, SampleGallery, SynthesisRecord, measure_synthesis
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.inference.recognizer import read_waveform
from voxline.inference.saved_model import read_model_json
from voxline.inference.synthesizer import Synthesizer
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import (
    CLIP_FILE,
    CLIP_MELS_FILE,
    METRICS_FILE,
    REPORT_FILE,
    UTTERANCES_FILE,
    UtteranceResult,
    write_results,
)
from voxline.metrics.wer import count_word_edits, sum_edits
from voxline.progress import print_status
from voxline.store.files import atomic_write, write_json
from voxline.store.step_cache import StepOutput

__all__ = ["check_tts_slices", "evaluate_tts", "summarize_tts"]

HEADLINE = ("round_trip_wer", "mcd", "attention_diagonality", "hit_limit")


def evaluate_tts(
    work: StepOutput,
    folder: Path,
    utterances: list[Utterance],
    champion: ModelVersion | None,
    heard_by: ModelVersion | None,
    settings: TtsEvaluateSettings,
    inputs: dict[str, Any],
) -> None:
    """Writes metrics, table, report and the known text's clip into the work's folder.

    Args:
      folder: of the exported voice.
      heard_by: the recogniser that listens, if any.
      inputs: what names the work: "model" (its digest), "test" (fingerprint), "champion", "listener".
    """
    from voxline.components.evaluate.tts.report import write_tts_report

    print_status(f"evaluate: speaking {len(utterances):,} utterances of the split {settings.split!r}")
    voice = _voice(folder, settings)
    listener = None if heard_by is None else RoundTripRecognizer.load(heard_by)
    if listener is None:
        print_status("evaluate: no listener is set (evaluate.listener), so whether it is understood is not measured")
    pitched = _picked(utterances, settings.pitched)
    gallery = SampleGallery(_picked(utterances, settings.typical), settings.worst)
    performances = measure_synthesis(voice, utterances, listener, pitched, settings, "utterances spoken", gallery)
    # A voice that says nothing has spoken for no time: one sample keeps the figure finite, and bad.
    spent = voice.seconds / max(voice.audio_seconds, 1 / voice.sample_rate)
    others = _of_champion(champion, voice, utterances, listener, pitched, settings)
    rows = tts_results(utterances, performances, others, settings)
    metrics = {
        **compute_tts_metrics(rows, settings),
        "family": "synthesis",
        "key": work.key,
        "model": {"digest": inputs["model"], "name": settings.model_name, "about": read_model_json(folder)},
        "test": {
            "split": settings.split,
            "fingerprint": inputs["test"],
            "speakers": len({utterance.speaker for utterance in utterances if utterance.speaker}),
        },
        "champion": inputs["champion"],
        "listener": listener and listener.plain(),
        # What the listener gets wrong of the recordings themselves is the least that a voice can be charged with.
        "recorded_wer": None if listener is None else _recorded_wer(listener, voice.sample_rate, utterances),
        "pitched": len(pitched),
        "clip": _clip(work.folder, voice, rows),
        # Depends on the machine and its load, so it is told and takes part in no comparison and no key.
        "real_time_factor": spent,
        "settings": settings.plain(),
    }
    write_results(work.folder / UTTERANCES_FILE, rows)
    write_json(work.folder / METRICS_FILE, metrics)
    print_status("evaluate: writing the report")
    write_tts_report(work.folder / REPORT_FILE, metrics, rows, gallery, voice, settings)
    work.outputs = {
        "metrics": METRICS_FILE,
        "utterances": UTTERANCES_FILE,
        "report": REPORT_FILE,
        "clip": CLIP_FILE,
        "clip_mels": CLIP_MELS_FILE,
    }
    work.counts = {"utterances": len(rows), "symbols": sum(len(utterance.text) for utterance in utterances)}
    work.metrics = _headline(metrics)


def summarize_tts(metrics: dict[str, Any]) -> str:
    """The headline in one line."""
    shown = [name for name in HEADLINE if name in metrics["figures"]]
    parts = [f"{CATALOG[name].title} {CATALOG[name].shown(metrics['figures'][name]['value'])}" for name in shown]
    line = f"{', '.join(parts)}, on {metrics['utterances']:,} utterances"
    if metrics["champion"]:
        figure = CATALOG[shown[0]]
        compared = metrics["figures"][figure.name]["comparison"]
        line += f"; version {metrics['champion']['version']}: {figure.title} {figure.shown(compared['champion_value'])}"
    return line


def _voice(folder: Path, settings: TtsEvaluateSettings) -> Synthesizer:
    return Synthesizer(folder, batch_size=settings.batch_size, batch_symbols=settings.batch_symbols)


def _of_champion(
    champion: ModelVersion | None,
    voice: Synthesizer,
    utterances: list[Utterance],
    listener: RoundTripRecognizer | None,
    pitched: set[str],
    settings: TtsEvaluateSettings,
) -> list[SynthesisRecord] | None:
    """What the voice in service makes of the same texts; mel distances only where its mels have the same units.

    Raises:
      SettingsError: it reads other symbols, so it cannot speak these texts.
    """
    if champion is None:
        return None
    print_status(f"evaluate: speaking them with version {champion.version}, the voice in service")
    try:
        other = _voice(champion.folder, settings)
    except WorkError as error:
        raise champion.unusable(error) from None
    own_name = "so they cannot be compared; give the new voice a name of its own ('model')"
    if other.about["frontend"] != voice.about["frontend"]:
        raise SettingsError(
            f"evaluate: version {champion.version} of {champion.name} reads {other.about['frontend']!r}, this voice "
            f"{voice.about['frontend']!r}: the texts of one are none to the other, {own_name}"
        )
    for utterance in utterances:
        try:
            other.text.check_symbols(utterance.text)
        except SettingsError as error:
            raise SettingsError(
                f"evaluate: version {champion.version} of {champion.name} cannot speak utterance {utterance.id} "
                f"({error}), {own_name}"
            ) from None
    found = measure_synthesis(
        other, utterances, listener, pitched, settings, "utterances spoken by the voice in service"
    )
    if other.features != voice.features:
        print_status(
            "evaluate: its mels have other units, so mel distances are not compared; mel cepstral distortion is"
        )
        for performance in found:
            performance.figures |= {"mel_l1": NOT_MEASURED, "mel_dtw": NOT_MEASURED}
    return found


def _picked(utterances: list[Utterance], count: int) -> set[str]:
    """Ids of so many utterances, evenly over their lengths."""
    order = sorted(utterances, key=lambda one: (len(one.text), one.id))
    count = min(count, len(order))
    return {order[place * len(order) // count].id for place in range(count)}


def _recorded_wer(listener: RoundTripRecognizer, sample_rate: int, utterances: list[Utterance]) -> float:
    references = [reference_text(utterance) for utterance in utterances]
    heard: list[str] = []
    for one in utterances:
        waveform = read_waveform(Path(one.audio_filepath), sample_rate, one.offset, one.duration)
        heard += listener.hear([waveform], sample_rate)
    return sum_edits(count_word_edits(references, heard)).rate


def _clip(folder: Path, voice: Synthesizer, rows: list[UtteranceResult]) -> dict[str, Any]:
    """Keeps what the voice speaks for one text alone: push expects the same mels in a fresh process.

    A text of some thirty symbols to whose end it came by itself, where there is one.
    """
    import numpy as np
    import soundfile

    order = sorted(rows, key=lambda r: (r.figures["hit_limit"].value, abs(len(r.told["text"]) - 30), r.id))
    symbols = order[0].told["text"]
    (spoken,) = voice.synthesize_symbols([symbols])
    memory = io.BytesIO()
    np.save(memory, spoken.mels)
    with atomic_write(folder / CLIP_MELS_FILE) as file:
        file.write(memory.getvalue())
    memory = io.BytesIO()
    soundfile.write(memory, np.clip(spoken.waveform, -1, 1), voice.sample_rate, format="WAV", subtype="PCM_16")
    with atomic_write(folder / CLIP_FILE) as file:
        file.write(memory.getvalue())
    return {"id": order[0].id, "symbols": symbols, "frames": len(spoken.mels)}


def _headline(metrics: dict[str, Any]) -> dict[str, float]:
    values = {name: of["value"] for name, of in metrics["figures"].items()}
    values |= {"rtf": metrics["real_time_factor"], "recorded_wer": metrics["recorded_wer"]}
    for name in ("round_trip_wer", "round_trip_cer"):
        if name in metrics["figures"]:
            interval = metrics["figures"][name]["interval"]
            values |= {f"{name}_low": interval["low"], f"{name}_high": interval["high"]}
    return {name: round(value, 6) for name, value in values.items() if value is not None}

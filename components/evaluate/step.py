"""Evaluate: how well the exported model does on the test split, and how that compares with the one in service.

The model that is measured is the bytes that would ship. Its key is its digest, the test utterances, the
model in service and, for a voice, the recogniser that listens to it; an evaluation is repeated when one of
these changes, and never otherwise. What is measured of each kind of model: recognition/ and synthesis/.
"""

import collections
from pathlib import Path
from typing import Any

from voxline.components.evaluate.asr import evaluate as recognition
from voxline.components.evaluate.champion import find_champion
from voxline.components.evaluate.settings import (
    AsrEvaluateSettings,
    EvaluateSettings,
    TtsEvaluateSettings,
)
from voxline.components.evaluate.tts import evaluate as synthesis
from voxline.components.evaluate.tts.round_trip import find_round_trip_recognizer
from voxline.data.manifest import Utterance, fingerprint_utterances, localize_audio, read_manifest
from voxline.errors import WorkError
from voxline.inference.saved_model import TRAINING_FOLDERS, exported_folder, model_digest
from voxline.progress import print_status
from voxline.registry.registry import Registry
from voxline.store.files import read_json
from voxline.store.step_cache import StepOutput, cached_step, local_inputs

REVISION = 3


@local_inputs("model", "manifest", without=TRAINING_FOLDERS)
def run(
    model: Path | str,
    manifest: Path | str,
    registry: Path | str,
    store: Path | str,
    settings: AsrEvaluateSettings | TtsEvaluateSettings = AsrEvaluateSettings(),  # noqa: B008  (frozen)
) -> StepOutput:
    """Measures an exported model, in the way that its settings are for.

    Args:
      model: train's folder, or an exported model.
      manifest: convert's folder, or a manifest.
      registry: the folder or bucket URI of the registry; need not be there yet.

    Raises:
      WorkError: the split is empty, a recording or a model cannot be read.
      SettingsError: a slicing by a field that no utterance has, or a listener that the registry has not.
    """
    folder = exported_folder(Path(model))
    utterances = _utterances(Path(manifest), settings)
    judged = model_digest(folder)
    champion = find_champion(Registry(registry, settings.model_name), judged)
    inputs: dict[str, Any] = {
        "model": judged,
        "test": fingerprint_utterances(utterances),
        "champion": champion and champion.plain(),
    }
    if isinstance(settings, TtsEvaluateSettings):
        synthesis.check_tts_slices(utterances, settings)
        listener = find_round_trip_recognizer(registry, settings.listener)
        inputs["listener"] = listener and listener.plain()
        with cached_step(store, "evaluate", settings, inputs, revision=REVISION) as work:
            if not work.reused:
                localize_audio(utterances)
                synthesis.evaluate_tts(work, folder, utterances, champion, listener, settings, inputs)
            print_status(f"evaluate: {synthesis.summarize_tts(read_json(work.path('metrics')))}")
        return work
    recognition.check_asr_slices(utterances, settings)
    with cached_step(store, "evaluate", settings, inputs, revision=REVISION) as work:
        if not work.reused:
            localize_audio(utterances)
            recognition.evaluate_asr(work, folder, utterances, champion, settings, inputs)
        print_status(f"evaluate: {recognition.summarize_asr(read_json(work.path('metrics')))}")
    return work


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
    return utterances

"""Small inputs for language, evaluate and push.

language runs the ONNX graph of a recognizer of tones, evaluate its SavedModel. push runs no model: it gets counters of
words, whose evaluations need no TensorFlow.
"""

import datetime
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.steps import Step, end_state
from tests.push.test_add_a_family import (
    WordCountEvaluateSettings,
    WordCountPushSettings,
    write_model,
)
from tests.tone_asr_model import export_asr_model, export_onnx_tones, write_corpus
from voxline.components.evaluate.settings import EvaluateSettings
from voxline.components.evaluate.step import run as evaluate
from voxline.components.language.settings import LanguageSettings
from voxline.components.language.step import run as language
from voxline.components.push.step import run as push
from voxline.data.manifest import read_manifest, write_manifest
from voxline.families.asr.settings import AsrEvaluateSettings
from voxline.operations.store_contents import StoreUsers
from voxline.operations.store_gc import collect_store
from voxline.registry.registry import Registry
from voxline.store.files import DONE
from voxline.store.finished import read_done
from voxline.store.hashing import hash_file
from voxline.store.step_cache import StepOutput

SENTENCES = {
    "train": [("ada", "one six"), ("ada", "six one"), ("ada", "two one six")],
    "dev": [("bob", "six two one")],
    "test": [("cy", "two two one six"), ("cy", "six one six"), ("dan", "one two")],
}
EVALUATE = AsrEvaluateSettings(bootstrap_samples=100, worst_utterances=1, aligned_utterances=0)
LANGUAGE = LanguageSettings(kind="ngram", order=2, alphas=[0.5, 2.0], betas=[0.0, 1.0], width=8)
BETTER = {"six": "seven"}
OFFSETS = {"worse": 0.9, "better": 0.5, "perfect": 0.0}
"""Of the counters of words: the error of each."""
COUNT = WordCountEvaluateSettings(bootstrap_samples=100)
PUSH: dict[str, Any] = {"max_regression": {"count_error": 1.0}, "max_slice_regression": {}}


def _write_sentences(corpus: Path) -> None:
    parts = [write_corpus(corpus / split, sentences, split) for split, sentences in SENTENCES.items()]
    write_manifest(corpus / "manifest.jsonl", [utterance for part in parts for utterance in read_manifest(part)])


def _make_words(corpus: Path) -> None:
    _write_sentences(corpus)
    export_asr_model(corpus / "better" / "model", BETTER)


def _make_words_without_tensorflow(corpus: Path) -> None:
    _write_sentences(corpus)
    export_onnx_tones(corpus / "better" / "model", BETTER)


def _with_language_model(corpus: Path, folder: Path) -> StepOutput:
    return language(corpus / "better" / "model", corpus, folder / "store", LANGUAGE)


def _evaluated(model: str, settings: EvaluateSettings) -> Callable[[Path, Path], StepOutput]:
    def run(corpus: Path, folder: Path) -> StepOutput:
        return evaluate(corpus / model / "model", corpus, folder / "registry", folder / "store", settings)

    return run


def _make_counters(corpus: Path) -> None:
    """Exported models with a folder in the folder, as a SavedModel has; enough utterances for the gate."""
    write_corpus(corpus, SENTENCES["test"] * 10)
    for name, offset in OFFSETS.items():
        (corpus / name).mkdir()
        model = write_model(corpus / name / "model", offset)
        (model / "variables").mkdir()
        (model / "variables" / "variables.index").write_bytes(bytes(1_000))


def _pushed(model: str) -> Callable[[Path, Path], StepOutput]:
    def run(corpus: Path, folder: Path) -> StepOutput:
        evaluation = folder / "evaluations" / model
        return push(
            corpus / model / "model", evaluation, folder / "registry", folder / "store", WordCountPushSettings.of(PUSH)
        )

    return run


def _prepare_push(corpus: Path, folder: Path) -> None:
    """A model in service, and evaluations of the next two."""
    for model in OFFSETS:
        (folder / "evaluations").mkdir(exist_ok=True)
        _evaluated(model, COUNT)(corpus, folder).folder.rename(folder / "evaluations" / model)
    _pushed("worse")(corpus, folder)


def _of_evaluation(folder: Path) -> Any:
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["metrics"].pop("rtf")  # real-time factor
    done = read_done(folder)
    return [metrics, hash_file(folder / "utterances.jsonl"), done["key"], done["counts"], done["outputs"]]


def _evaluation_state(folder: Path) -> Any:
    done = sorted(folder.glob("store/evaluate/*/done.json"))
    files = [sorted(path.name for path in file.parent.iterdir() if not path.name.startswith(".")) for file in done]
    return [files, [_of_evaluation(file.parent) for file in done]]


def _collect_unfinished(folder: Path) -> None:
    """Removes what a killed push wrote of its verdict; the next run finds the model in service, which is another."""
    for output in folder.glob("store/push/*/"):
        if not (output / DONE).exists():
            for file in (output, *output.iterdir()):
                os.utime(file, (time.time() - 2 * 86_400,) * 2)
    users = StoreUsers(registries=(str(folder / "registry"),))
    collect_store(folder / "store", users, older_than=datetime.timedelta(days=1), dry_run=False)


def _of_push(folder: Path) -> str:
    """The digest of the model that went into service; a run before may have been killed after it published it."""
    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["pushed"] or verdict["reasons"] == [f"already in service as version {verdict['version']}"], verdict
    return str(verdict["digest"])


def _registry_state(folder: Path) -> Any:
    models = Registry(folder / "registry", "counter")
    events = [(event.version, event.action, event.digest, event.replaces) for event in models.journal()]
    versions = {
        version: [models.is_intact(version), _registered_files(models.path(version))] for version in models.versions()
    }
    hidden = sorted(path.name for path in models.folder.iterdir() if path.name.startswith("."))
    config = re.findall("name: .*|versions: .*", (folder / "registry" / "models.config").read_text())
    done = sorted(folder.glob("store/push/*/done.json"))
    return {
        "production": models.in_service(),
        "events": events,
        "versions": versions,
        "hidden": hidden,
        "config": config,
        "verdicts": sorted({_of_push(file.parent) for file in done}),
    }


def _registered_files(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*"))


MODEL_STEPS = {
    "language": Step(
        lambda corpus, folder: None,
        _with_language_model,
        None,
        end_state,
        corpus=_make_words_without_tensorflow,
        forks=True,
        sample=2,
    ),
    "evaluate": Step(
        lambda corpus, folder: None,
        _evaluated("better", EVALUATE),
        None,
        _of_evaluation,
        corpus=_make_words,
        state=_evaluation_state,
        forks=True,
        sample=2,
    ),
    "push": Step(
        _prepare_push,
        _pushed("better"),
        _pushed("perfect"),
        _of_push,
        _collect_unfinished,
        corpus=_make_counters,
        state=_registry_state,
    ),
}

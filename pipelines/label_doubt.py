"""Which transcripts of a corpus may be wrong: ranked by models that did not train on them.

The utterances are dealt into folds. For each, the pipeline trains on the others and evaluates on it, from manifests
that say so; a model that learned a wrong transcript would find it right. The doubt of a transcript is the logarithm of
how much more probable the network finds its own: the CTC loss of the transcript less that of the greedy text.
"""

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run as ingest
from voxline.data.corrections import LABEL_CONFIG, DoubtfulText, label_studio_tasks
from voxline.data.manifest import MANIFEST_FILE, Utterance, iter_manifest, write_manifest
from voxline.errors import SettingsError, TransientError, VoxlineError, WorkError
from voxline.metrics.evaluation import Evaluation
from voxline.notify.settings import NotifySettings
from voxline.pipelines.config.load import Source, load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.console import Console
from voxline.pipelines.local.runner import run_pipeline
from voxline.store.files import write_json, write_text
from voxline.store.hashing import hash_value
from voxline.store.step_cache import local_inputs

DEV_SHARE = 0.05
"""Of the utterances that a fold's model trains on: they choose its weights."""
DOUBT_KEY, HYPOTHESIS_KEY = "doubt", "hypothesis"
TASKS_FILE, LABELS_FILE = "label-studio.json", "label-studio.xml"
FEW = 5
"""Utterances of a speaker in the head that may be chance."""
_OFF = {"severity": "off"}
_KEPT = ("corpora", "weight", "raw")
"""Keys of a corpus that a fold of it takes over."""


@dataclasses.dataclass(frozen=True)
class DoubtRanking:
    """What a ranking wrote.

    Attributes:
      manifest: of the utterances, the most doubtful first, with the keys `doubt` and `hypothesis`.
      ranked: how many.
      unranked: how many no model could judge: their recordings were rejected.
      crowded: speakers with more than twice their share in the head: (speaker, share of the head, share of all).
    """

    manifest: Path
    ranked: int
    unranked: int
    crowded: list[tuple[str, float, float]]


def rank_transcripts(
    config: Sequence[Source], assignments: Sequence[str], folder: Path, console: Console, *, folds: int, most: float
) -> DoubtRanking:
    """Trains a model for each fold of a corpus and ranks all transcripts.

    Args:
      config, assignments: of the ASR pipeline, as `load_config` takes them.
      folder: for the runs and what they find. The same call resumes.
      folds: 2 or more.
      most: share of the ranking that becomes tasks for Label Studio.

    Raises:
      SettingsError: the config is wrong, or the corpus has too few utterances.
      WorkError: a step failed.
    """
    chosen = load_config(config, assignments, pipeline="asr").with_default_folders(folder.absolute())
    if folds < 2:
        raise SettingsError(f"folds is {folds}; 2 or more are accepted")
    if chosen.corpus.corpora:
        raise SettingsError("corpus.corpora has several corpora; rank one at a time, with a config for each")
    source = ingest(chosen.store, chosen.corpus).path("manifest")
    found: dict[str, tuple[float, str]] = {}
    for fold in range(folds):
        console.say(f"▸ fold {fold + 1} of {folds}")
        found |= _judge(config, assignments, chosen, source, folder / f"fold-{fold + 1}", (fold, folds), console)
    return write_ranking(iter_manifest(source), found, folder, most)


def write_ranking(
    utterances: Iterable[Utterance], found: dict[str, tuple[float, str]], folder: Path, most: float
) -> DoubtRanking:
    """Writes the ranking as a manifest, and its head as tasks for Label Studio.

    Args:
      found: id → doubt and hypothesis.
    """
    every = list(utterances)
    ranked = sorted((one for one in every if one.id in found), key=lambda one: (-found[one.id][0], one.id))
    lines = []
    for one in ranked:
        doubt, hypothesis = found[one.id]
        finite = doubt if math.isfinite(doubt) else 1e6  # JSON has no infinity
        lines.append(one.replace(extra={**one.extra, DOUBT_KEY: round(finite, 4), HYPOTHESIS_KEY: hypothesis}))
    shown = lines[: round(most * len(lines))]
    texts = [DoubtfulText(one.id, one.audio_filepath, one.text, *_keys(one)) for one in shown]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / TASKS_FILE, label_studio_tasks(texts))
    write_text(folder / LABELS_FILE, LABEL_CONFIG)
    write_manifest(folder / "doubt.jsonl", lines)
    return DoubtRanking(folder / "doubt.jsonl", len(lines), len(every) - len(lines), _crowded(shown, lines))


def _crowded(head: Sequence[Utterance], ranked: Sequence[Utterance]) -> list[tuple[str, float, float]]:
    """Speakers that the models may understand less, rather than that were transcribed worse; most in the head first."""
    often, overall = (Counter(one.speaker for one in part if one.speaker) for part in (head, ranked))
    shares = [(speaker, count / len(head), overall[speaker] / len(ranked)) for speaker, count in often.most_common()]
    return [one for one in shares if one[1] > 2 * one[2] and often[one[0]] >= FEW]


def _keys(one: Utterance) -> tuple[str, float]:
    return str(one.extra[HYPOTHESIS_KEY]), float(one.extra[DOUBT_KEY])


def doubts(evaluation: Evaluation) -> dict[str, tuple[float, str]]:
    """Id → doubt and hypothesis, of an evaluation by a model that did not train on its utterances."""
    found = {}
    for one in evaluation.results:
        loss, free = one.details.get("loss"), one.details.get("greedy_loss") or 0.0
        found[one.id] = (math.inf if loss is None else loss - free, str(one.details["hypothesis"]))
    return found


def _judge(
    config: Sequence[Source],
    assignments: Sequence[str],
    chosen: RunConfig,
    source: Path,
    folder: Path,
    fold: tuple[int, int],
    console: Console,
) -> dict[str, tuple[float, str]]:
    """Runs one fold as far as evaluate."""
    utterances = [one.replace(split=_split(one.id, *fold)) for one in iter_manifest(source)]
    counts = {split: sum(one.split == split for one in utterances) for split in ("train", "dev", "test")}
    if not all(counts.values()):
        raise SettingsError(
            f"{source}: {len(utterances):,} utterances are too few for {fold[1]} folds; a fold would have {counts}"
        )
    manifest = folder / "corpus" / MANIFEST_FILE
    manifest.parent.mkdir(parents=True, exist_ok=True)
    write_manifest(manifest, utterances)
    roots = sorted({os.path.commonpath([os.path.dirname(one.audio_filepath) for one in utterances])})
    name = f"{chosen.name}-fold-{fold[0] + 1}"
    run = _fold_config(config, assignments, chosen, folder, manifest, roots, name)
    record, failure = run_pipeline(run, folder, console, until="evaluate")
    if failure:
        kinds: tuple[type[VoxlineError], ...] = (SettingsError, TransientError)
        kind = next((one for one in kinds if one.exit_status == failure.exit_status), WorkError)
        raise kind(f"{folder}: {record.failed_step or 'the graph'} failed: {failure.message}")
    (step,) = (one for one in record.steps if one.name == "evaluate")
    return _read_doubts(step.folder)


@local_inputs("folder")
def _read_doubts(folder: Path | str) -> dict[str, tuple[float, str]]:
    return doubts(Evaluation.read(folder))


def _fold_config(
    config: Sequence[Source],
    assignments: Sequence[str],
    chosen: RunConfig,
    folder: Path,
    manifest: Path,
    roots: Sequence[str],
    name: str,
) -> RunConfig:
    """The config of a fold: its corpus is the manifest, whose splits count; no other model and no receiver knows of it.

    A warm start would begin with weights that have learned the fold's test split.
    """
    corpus = {key: value for key, value in CorpusSettings().plain().items() if key not in _KEPT}
    overrides: dict[str, Any] = {
        "name": name,
        "store": chosen.store,
        "registry": str(folder.absolute() / "registry"),
        "corpus": corpus | {"uri": str(manifest.absolute()), "format": "manifest", "audio_roots": list(roots)},
        "validate": {"speaker_overlap": _OFF, "sentence_overlap": _OFF},
        "language": {"kind": "none"},
        "train": {"start": {"model": ""}},
        "forecast": {"skip_below": 0.0},
        "notify": NotifySettings().plain(),
    }
    keys = [one.partition("=")[0].split(".") for one in assignments]
    ours = {*overrides} - {"train", "validate"}
    kept = [
        one for one, key in zip(assignments, keys, strict=True) if key[0] not in ours and key[:2] != ["train", "start"]
    ]
    return load_config([*config, overrides], kept, pipeline="asr")


def _split(id: str, fold: int, folds: int) -> str:
    """By hash, so that an utterance keeps its fold when the corpus grows."""
    number = int(hash_value(["fold", id])[:12], 16)
    if number % folds == fold:
        return "test"
    return "dev" if number // folds % round(1 / DEV_SHARE) == 0 else "train"

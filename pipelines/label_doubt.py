"""Finds the transcripts of a corpus that may be wrong: ranked by models that did not train on them.

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
from voxline.inference.model_info import ATTENTION
from voxline.metrics.evaluation import Evaluation
from voxline.notify.settings import NotifySettings
from voxline.pipelines.config.load import Source, load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.console import Console
from voxline.pipelines.graphs import optional_steps
from voxline.pipelines.local.runner import run_pipeline
from voxline.pipelines.steps import STEPS
from voxline.store.files import write_json, write_text
from voxline.store.hashing import hash_value
from voxline.store.step_cache import local_inputs

DEV_SHARE = 0.05
"""Of the utterances that a fold's model trains on: they choose its weights."""
DOUBT_KEY = "doubt"
HYPOTHESIS_KEY = "hypothesis"
TASKS_FILE = "label-studio.json"
LABELS_FILE = "label-studio.xml"
FEW = 5
"""Utterances of a speaker in the head that may be chance."""
_OFF = {"severity": "off"}
_INHERITED = ("corpora", "weight", "raw")
"""Keys of a corpus that a fold of it takes over."""


@dataclasses.dataclass(frozen=True)
class DoubtRanking:
    """The files and counts of a ranking.

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
    base = load_config(config, assignments, pipeline="asr").with_default_folders(folder.absolute())
    if folds < 2:
        raise SettingsError(f"folds is {folds}; 2 or more are accepted")
    train: Any = getattr(base, "train")  # noqa: B009 - a section of the pipeline's own config
    if train.output_kind == ATTENTION:
        raise SettingsError(
            "train.model.head is decoder, and the ranking compares CTC losses; rank with a CTC model "
            "(train.model.head: ctc)"
        )
    if base.corpus.corpora:
        raise SettingsError("corpus.corpora has several corpora; rank one at a time, with a config for each")

    if base.corpus.dataset:
        raise SettingsError("corpus.dataset names a version; rank the corpus that it was made of (corpus.uri)")
    if base.corpus.pseudo.uri:
        raise SettingsError("corpus.pseudo.uri has drafts; only what people wrote is ranked: --set corpus.pseudo.uri=")

    # Every utterance is in the test split of exactly one fold, so the results of the folds do not overlap.
    source = ingest(base.store, base.corpus).path("manifest")
    doubt_of: dict[str, tuple[float, str]] = {}
    for fold in range(folds):
        console.say(f"▸ fold {fold + 1} of {folds}")
        doubt_of |= _judge(config, assignments, base, source, folder / f"fold-{fold + 1}", (fold, folds), console)
    return write_ranking(iter_manifest(source), doubt_of, folder, most)


def write_ranking(
    utterances: Iterable[Utterance], doubt_of: dict[str, tuple[float, str]], folder: Path, most: float
) -> DoubtRanking:
    """Writes the ranking as a manifest, and its head as tasks for Label Studio.

    Args:
      doubt_of: id → doubt and hypothesis.
    """
    every = list(utterances)
    judged = [utterance for utterance in every if utterance.id in doubt_of]
    judged.sort(key=lambda utterance: (-doubt_of[utterance.id][0], utterance.id))  # ids order equal doubts
    ranked = []
    for utterance in judged:
        doubt, hypothesis = doubt_of[utterance.id]
        finite = doubt if math.isfinite(doubt) else 1e6  # JSON has no infinity
        extra = {**utterance.extra, DOUBT_KEY: round(finite, 4), HYPOTHESIS_KEY: hypothesis}
        ranked.append(utterance.replace(extra=extra))

    # The head becomes tasks for a person; the manifest has all of them.
    head = ranked[: round(most * len(ranked))]
    texts = [
        DoubtfulText(utterance.id, utterance.audio_filepath, utterance.text, *_keys(utterance)) for utterance in head
    ]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / TASKS_FILE, label_studio_tasks(texts))
    write_text(folder / LABELS_FILE, LABEL_CONFIG)
    write_manifest(folder / "doubt.jsonl", ranked)
    return DoubtRanking(folder / "doubt.jsonl", len(ranked), len(every) - len(ranked), _crowded(head, ranked))


def _crowded(head: Sequence[Utterance], ranked: Sequence[Utterance]) -> list[tuple[str, float, float]]:
    """Speakers that the models may understand less, rather than that were transcribed worse; most in the head first."""
    often, overall = (Counter(utterance.speaker for utterance in part if utterance.speaker) for part in (head, ranked))
    shares = [(speaker, count / len(head), overall[speaker] / len(ranked)) for speaker, count in often.most_common()]
    return [
        (speaker, of_head, of_all)
        for speaker, of_head, of_all in shares
        if of_head > 2 * of_all and often[speaker] >= FEW
    ]


def _keys(utterance: Utterance) -> tuple[str, float]:
    return str(utterance.extra[HYPOTHESIS_KEY]), float(utterance.extra[DOUBT_KEY])


def doubts(evaluation: Evaluation) -> dict[str, tuple[float, str]]:
    """Id → doubt and hypothesis, of an evaluation by a model that did not train on its utterances."""
    doubt_of = {}
    for result in evaluation.results:
        # Both losses are negative log-probabilities, so their difference is the logarithm of a ratio. A transcript
        # without a loss is one that the model cannot output, with more characters than frames: the most doubtful.
        loss = result.details.get("loss")
        greedy_loss = result.details.get("greedy_loss") or 0.0
        doubt = math.inf if loss is None else loss - greedy_loss
        doubt_of[result.id] = (doubt, str(result.details["hypothesis"]))
    return doubt_of


def _judge(
    config: Sequence[Source],
    assignments: Sequence[str],
    base: RunConfig,
    source: Path,
    folder: Path,
    fold: tuple[int, int],
    console: Console,
) -> dict[str, tuple[float, str]]:
    """Runs one fold as far as evaluate."""
    utterances = [utterance.replace(split=_split(utterance.id, *fold)) for utterance in iter_manifest(source)]
    counts = {split: sum(utterance.split == split for utterance in utterances) for split in ("train", "dev", "test")}
    if not all(counts.values()):
        raise SettingsError(
            f"{source}: {len(utterances):,} utterances are too few for {fold[1]} folds; a fold would have {counts}"
        )

    # The recordings stay where they are: ingest reads outside of a corpus only what is below `audio_roots`.
    manifest = folder / "corpus" / MANIFEST_FILE
    manifest.parent.mkdir(parents=True, exist_ok=True)
    write_manifest(manifest, utterances)
    roots = sorted({os.path.commonpath([os.path.dirname(utterance.audio_filepath) for utterance in utterances])})

    name = f"{base.name}-fold-{fold[0] + 1}"
    run = _fold_config(config, assignments, base, folder, manifest, roots, name)
    record, failure = run_pipeline(run, folder, console, until="evaluate")
    if failure:
        # The same kind of error, so that this command has the exit status of the run that failed.
        kinds: tuple[type[VoxlineError], ...] = (SettingsError, TransientError)
        kind = next((kind for kind in kinds if kind.exit_status == failure.exit_status), WorkError)
        raise kind(f"{folder}: {record.failed_step or 'the graph'} failed: {failure.message}")

    (step,) = (step for step in record.steps if step.name == "evaluate")
    return _read_doubts(step.folder)


@local_inputs("folder")
def _read_doubts(folder: Path | str) -> dict[str, tuple[float, str]]:
    return doubts(Evaluation.read(folder))


def _fold_config(
    config: Sequence[Source],
    assignments: Sequence[str],
    base: RunConfig,
    folder: Path,
    manifest: Path,
    roots: Sequence[str],
    name: str,
) -> RunConfig:
    """The config of a fold: its corpus is the manifest, whose splits count; no other model and no receiver knows of it.

    A warm start would begin with weights that have learned the fold's test split.
    """
    # Every key of the corpus, because a layer that sets some leaves those of the user's config below it.
    corpus = {key: value for key, value in CorpusSettings().plain().items() if key not in _INHERITED}
    overrides: dict[str, Any] = {
        "name": name,
        "store": base.store,
        "registry": str(folder.absolute() / "registry"),
        "corpus": corpus | {"uri": str(manifest.absolute()), "format": "manifest", "audio_roots": list(roots)},
        "validate": {"speaker_overlap": _OFF, "sentence_overlap": _OFF},
        "train": {"start": {"model": "", "fallback": ""}},
        "notify": NotifySettings().plain(),
    }
    # A fold is trained, whatever the history says, and judged by its network alone.
    optional = [STEPS[step] for step in optional_steps("asr") if STEPS[step].settings]
    overrides |= {step.config_section: dict(step.off) for step in optional}

    # `--set` wins over every layer, so what it says of an overridden section is left out.
    keys = [assignment.partition("=")[0].split(".") for assignment in assignments]
    overridden = {*overrides} - {"train", "validate"}
    applicable = [
        assignment
        for assignment, key in zip(assignments, keys, strict=True)
        if key[0] not in overridden and key[:2] != ["train", "start"]
    ]
    return load_config([*config, overrides], applicable, pipeline="asr")


def _split(id: str, fold: int, folds: int) -> str:
    """The split of an utterance, by its hash: it keeps its fold when the corpus grows."""
    number = int(hash_value(["fold", id])[:12], 16)
    if number % folds == fold:
        return "test"
    # The quotient is independent of the remainder, which says the fold: each fold has its share of dev.
    return "dev" if number // folds % round(1 / DEV_SHARE) == 0 else "train"

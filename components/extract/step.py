"""Extract: a manifest of wavs to a dataset of features that training reads."""

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from components.extract.plan import REVISION, plan_shards, unfit
from components.extract.settings import ExtractSettings
from components.speech.dataset import DATASET, Dataset, Shard
from components.speech.errors import SettingsError, WorkError
from components.speech.progress import say
from components.speech.text import Alphabet
from components.speech.utterances import (
    REJECTS,
    Utterance,
    check_reject_share,
    fingerprint,
    read_manifest,
    write_manifest,
    write_rejects,
)
from components.speech.work import Work, keyed_work

if TYPE_CHECKING:
    from components.extract.shards import Written
    from components.extract.statistics import Sums

POOL = "shards"

PROBED = 8
"""Recordings whose header is looked at before any work."""


def run(manifest: Path | str, store: Path | str, settings: ExtractSettings) -> Work:
    """Makes a dataset of a manifest.

    Args:
      manifest: the folder of convert's output, or a manifest file.
      store: `dataset.json` and `rejects.jsonl` go to `<store>/extract/<key>/`, shards to `<store>/shards/`.

    Raises:
      SettingsError: the recordings have another sample rate than `features.sample_rate`.
      WorkError: the manifest is absent or was not converted, or too many recordings failed.
    """
    utterances = read_manifest(Path(manifest))
    unnamed = next((utterance for utterance in utterances if not utterance.audio_hash), None)
    if unnamed:
        raise WorkError(f"{manifest}: {unnamed.id} has no audio_hash; give extract the manifest that convert wrote")
    named_by = {"utterances": fingerprint(utterances)}
    with keyed_work(store, "extract", settings.naming(), named_by, revision=REVISION, check=Dataset.read) as work:
        if not work.reused:
            _extract(utterances, named_by["utterances"], Path(store).absolute() / POOL, settings, work)
    return work


def _extract(utterances: list[Utterance], named: str, pool: Path, settings: ExtractSettings, work: Work) -> None:
    from components.extract.pipeline import write_shards
    from components.extract.shards import Task

    _check_rate(utterances, settings.features.sample_rate)
    alphabet = Alphabet.named(settings.alphabet)
    fit, rejects = unfit(utterances, alphabet)
    unfinished = work.folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    plans = list(plan_shards(fit, settings))
    tasks = []
    for number, plan in enumerate(plans, start=1):
        name = plan.name(settings)
        lines = unfinished / f"{name}.jsonl"
        write_manifest(lines, plan.utterances)
        tasks.append(Task(name, plan.split, plan.speed, lines, number, len(plans)))
    say(f"extract: {len(fit):,} utterances into {len(tasks):,} shards of {settings.features.kind} features")
    records = sum(len(plan.utterances) for plan in plans)
    shards, sums, failed = write_shards(tasks, records, settings, pool, unfinished)
    rejects += [reject for speed, reject in failed if speed == 1.0]
    copies_lost = {reject.id for _, reject in failed} - {reject.id for reject in rejects}
    if copies_lost:
        say(
            f"extract: no copies at other speeds of {len(copies_lost):,} utterances, their files came or went meanwhile"
        )
    write_rejects(work.folder / REJECTS, rejects)
    check_reject_share(len(rejects), len(utterances), settings.max_reject_share, "extract", work.folder / REJECTS)
    dataset = _dataset(shards, sums, named, pool, settings, work)
    dataset.write(work.folder)
    shutil.rmtree(unfinished)
    work.counts.update(
        utterances=sum(dataset.counts.values()),
        rejects=len(rejects),
        **dataset.counts,
        shards=len(shards),
        examples=sum(shard.examples for shard in shards),
    )
    work.metrics.update({f"{split}_hours": round(seconds / 3600, 4) for split, seconds in dataset.seconds.items()})
    work.outputs.update(dataset=DATASET, rejects=REJECTS)
    say(f"extract: {work.counts['utterances']:,} utterances in {len(shards):,} shards, {len(rejects):,} rejects")


def _dataset(
    shards: "list[Written]", sums: "Sums", named: str, pool: Path, settings: ExtractSettings, work: Work
) -> Dataset:
    from components.extract.shards import shard_file

    mean, deviation = sums.mean_and_deviation()
    if not sums.frames:
        say("extract: no utterance of the split train, so no statistics: features will not be normalised")
    counts: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    for shard in shards:
        if shard.speed == 1.0:
            counts[shard.split] += shard.examples
            seconds[shard.split] = seconds.get(shard.split, 0.0) + shard.seconds
    return Dataset(
        key=work.key,
        fingerprint=named,
        features=settings.features,
        alphabet=Alphabet.named(settings.alphabet),
        reading=settings.reading.plain(),
        mean=mean,
        deviation=deviation,
        counts=dict(counts),
        seconds={split: round(total, 3) for split, total in seconds.items()},
        shards=[
            Shard(
                path=os.path.relpath(shard_file(pool, shard.name), work.folder),
                split=shard.split,
                examples=shard.examples,
                frames=shard.frames,
                bytes=shard.bytes,
                checksum=shard.checksum,
            )
            for shard in shards
        ],
    )


def _check_rate(utterances: list[Utterance], expected: int) -> None:
    """Refuses a corpus of another rate at once, and not as thousands of rejects."""
    from components.speech.audio import BadAudio, header

    rates = set()
    for utterance in utterances[:PROBED]:
        try:
            rates.add(header(utterance.audio_filepath).sample_rate)
        except BadAudio:
            continue  # becomes a reject in its shard
    if rates and expected not in rates:
        raise SettingsError(
            f"extract: 'features.sample_rate' is {expected} Hz and the recordings have {rates.pop()} Hz; "
            "give it the value of convert's sample_rate"
        )

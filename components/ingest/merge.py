"""Merges the manifests of several corpora, each of which has a name, and of drafts beside one or several.

The name is in front of ids and speakers, with a hyphen that a name cannot have, and is the key `corpus` of each line. A
recording that two corpora have stays in the one whose name comes first.

Drafts come last: a recording that a person transcribed stays, and no draft is of a speaker whom dev or test holds out.
They name the speakers of the other corpora, so that a purge or a check finds one by the same name.
"""

import heapq
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from voxline.components.ingest.file_index import temporary_database
from voxline.data.drafts import DRAFTED_BY, PSEUDO, is_draft
from voxline.data.json_codec import absolute_path
from voxline.data.manifest import (
    MANIFEST_FILE,
    REJECTS_FILE,
    ManifestEncoder,
    Utterance,
    check_reject_share,
    iter_manifest,
    read_rejects,
    write_manifest,
    write_rejects,
)
from voxline.errors import WorkError
from voxline.rejects import Reason, Reject
from voxline.store.files import read_json, write_json
from voxline.store.layout import CORPORA_FILE
from voxline.store.step_cache import StepOutput

CORPUS_KEY = "corpus"
"""Key of a manifest's line that names the corpus."""
BEYOND_LIMITS = "beyond_limits"
"""Count of the utterances that `corpus.limits` left out."""


def prefix_utterance(name: str, utterance: Utterance) -> Utterance:
    """Puts the corpus' name in front of id and speaker; a key `corpus` of its own becomes `corpus_corpus`."""
    extra = dict(utterance.extra)
    if CORPUS_KEY in extra:
        extra[f"corpus_{CORPUS_KEY}"] = extra[CORPUS_KEY]
    named = utterance.speaker and name != PSEUDO
    return utterance.replace(
        id=f"{name}-{utterance.id}",
        speaker=f"{name}-{utterance.speaker}" if named else utterance.speaker,
        extra={**extra, CORPUS_KEY: name},
    )


def prefix_rejects(name: str, rejects: Iterable[Reject]) -> Iterator[Reject]:
    """Puts the corpus' name in front of ids."""
    for reject in rejects:
        yield Reject(f"{name}-{reject.id}", reject.reason, reject.detail)


def merge_manifests(corpora: Mapping[str, StepOutput], output: StepOutput) -> None:
    """Writes one manifest, and the rejects of all corpora with the recordings that an earlier corpus has too.

    Args:
      corpora: what ingest wrote for each, by name, in order of the names.

    Raises:
      WorkError: no utterance is left, or a corpus of drafts has an utterance that is none.
    """
    duplicates = _Duplicates()
    counts: dict[str, Any] = dict.fromkeys(("utterances", "rejects", "train", "dev", "test"), 0)
    described: dict[str, dict[str, Any]] = {}
    folders = {name: corpus.path("manifest").parent for name, corpus in corpora.items()}
    encoder = ManifestEncoder(output.folder)

    # Each corpus is compared with those before it; drafts, in whatever corpus, with all that people transcribed.
    speakers = _HeldOutSpeakers()
    with_drafts: list[str] = []
    for name, folder in folders.items():
        described[name] = {"key": corpora[name].key, "utterances": 0}
        transcribed = _without_drafts(iter_manifest(folder), name, with_drafts)
        duplicates.find(name, speakers.note(transcribed))
    for name in dict.fromkeys(with_drafts):
        drafts = (utterance for utterance in iter_manifest(folders[name]) if is_draft(utterance.extra))
        duplicates.find(name, speakers.leave_out(drafts))

    def utterances() -> Iterator[Utterance]:
        for name, utterance in _by_id(folders):
            if duplicates.has(utterance.id) or utterance.id in speakers.left_out:
                continue
            counts["utterances"] += 1
            counts[utterance.split] += 1
            if is_draft(utterance.extra):
                counts["drafts"] = counts.get("drafts", 0) + 1
            if not described[name]["utterances"]:
                path = encoder.relative(utterance.audio_filepath)
                described[name]["first"] = {"id": utterance.id, "audio_filepath": path}
            described[name]["utterances"] += 1
            yield utterance

    write_manifest(output.folder / MANIFEST_FILE, utterances())

    # Both are in order of ids.
    own = sorted(
        (reject for folder in folders.values() for reject in read_rejects(folder)),
        key=lambda reject: (reject.id, reject.detail),
    )
    rejects = heapq.merge(own, duplicates.rejects(), speakers.rejects(), key=lambda reject: (reject.id, reject.detail))
    counts["rejects"] = write_rejects(output.folder / REJECTS_FILE, rejects)

    if not counts["utterances"]:
        check_reject_share(counts["rejects"], counts["rejects"], 1.0, "ingest", output.folder / REJECTS_FILE)

    write_json(output.folder / CORPORA_FILE, described)
    output.outputs.update(manifest=MANIFEST_FILE, rejects=REJECTS_FILE, corpora=CORPORA_FILE)
    output.counts.update(counts)
    output.counts.update({f"from {name}": corpus["utterances"] for name, corpus in described.items() if name})
    if beyond_limits := sum(corpus.counts.get(BEYOND_LIMITS, 0) for corpus in corpora.values()):
        output.counts[BEYOND_LIMITS] = beyond_limits
    if duplicates.count:
        output.counts["recordings in two corpora"] = duplicates.count


def check_merged(corpora: Mapping[str, StepOutput], merged: Path) -> None:
    """Refuses a merged manifest whose paths do not lead to the corpora any more, because the store was moved.

    Args:
      corpora: what ingest wrote for each, which is checked already.

    Raises:
      WorkError: a path leads elsewhere.
    """
    for name, description in read_json(merged / CORPORA_FILE).items():
        if not description["utterances"]:
            continue

        # Relative paths of a moved store lead elsewhere: the first one of each corpus shows it.
        id = description["first"]["id"]
        path = absolute_path(os.path.abspath(merged), description["first"]["audio_filepath"])
        own = next(
            (utterance for utterance in iter_manifest(corpora[name].path("manifest")) if utterance.id == id), None
        )
        if own is None or own.audio_filepath != path:
            raise WorkError(f"{merged} was moved: its manifest leads to {path}")


def _without_drafts(utterances: Iterable[Utterance], name: str, with_drafts: list[str]) -> Iterator[Utterance]:
    """The utterances that people transcribed; adds the name of a corpus with others to a list.

    Raises:
      WorkError: the corpus of drafts has an utterance that is none.
    """
    for utterance in utterances:
        if is_draft(utterance.extra):
            if not with_drafts or with_drafts[-1] != name:
                with_drafts.append(name)
        elif name == PSEUDO:
            raise WorkError(
                f"corpus.{PSEUDO}: {utterance.id} has no {DRAFTED_BY}; it takes what `voxline corpus label` wrote, and "
                "what people transcribed belongs to corpus.corpora"
            )
        else:
            yield utterance


def _by_id(folders: Mapping[str, Path]) -> Iterator[tuple[str, Utterance]]:
    """The utterances of all corpora, each with the name of its corpus, by id."""
    lines = (zip(itertools.repeat(name), iter_manifest(folder), strict=False) for name, folder in folders.items())

    # Names are in front of the ids, so that their order is that of the ids; drafts come last, whatever their name.
    if PSEUDO not in folders:
        return itertools.chain.from_iterable(lines)
    return heapq.merge(*lines, key=lambda line: line[1].id)


class _HeldOutSpeakers:
    """The speakers whom dev and test alone have: a draft of one would spoil what they are held out for.

    Attributes:
      left_out: ids of drafts.
    """

    def __init__(self) -> None:
        self._trained: set[str] = set()
        self._judged: dict[str, str] = {}
        self.left_out: dict[str, str] = {}

    def note(self, transcribed: Iterable[Utterance]) -> Iterator[Utterance]:
        """Passes utterances on, and notes their speakers."""
        for utterance in transcribed:
            if utterance.split == "train":
                self._trained.add(utterance.speaker)
            else:
                corpus = utterance.extra.get(CORPUS_KEY, "")
                self._judged[utterance.speaker] = utterance.speaker.removeprefix(f"{corpus}-")
            yield utterance

    def leave_out(self, drafts: Iterable[Utterance]) -> Iterator[Utterance]:
        """Passes on the drafts of other speakers."""
        # Drafts of recordings beside a corpus have its speakers without its name in front.
        judged = {speaker: own for speaker, own in self._judged.items() if speaker and speaker not in self._trained}
        held_out = {*judged, *judged.values()}
        for utterance in drafts:
            if utterance.speaker in held_out:
                self.left_out[utterance.id] = utterance.speaker
            else:
                yield utterance

    def rejects(self) -> Iterator[Reject]:
        """Yields the rejects by id."""
        for id, speaker in sorted(self.left_out.items()):
            yield Reject(id, Reason.HELD_OUT_SPEAKER, f"a draft of {speaker}, whom dev or test holds out")


class _Duplicates:
    """The utterances whose recording an earlier corpus has, in a private database."""

    def __init__(self) -> None:
        self._database = temporary_database(
            "kept (hash, start, end, id)",
            "found (hash, start, end, id)",
            "duplicates (id PRIMARY KEY, first) WITHOUT ROWID",
        )
        self._database.execute("CREATE INDEX by_hash ON kept (hash)")
        self.count = 0

    def find(self, name: str, utterances: Iterable[Utterance]) -> None:
        """Compares a corpus with those before it: the same bytes, and parts of them that overlap."""
        # Times are seconds in the source. Two that only touch do not overlap, unless both begin at the same time.
        rows = (
            (utterance.audio_hash, utterance.offset, utterance.offset + utterance.duration, utterance.id)
            for utterance in utterances
        )
        self._database.executemany("INSERT INTO found VALUES (?, ?, ?, ?)", rows)

        added = self._database.execute(
            "INSERT INTO duplicates SELECT found.id, min(kept.id) FROM found JOIN kept ON found.hash = kept.hash"
            " AND (found.start < kept.end AND kept.start < found.end OR found.start = kept.start)"
            " WHERE found.hash != '' GROUP BY found.id"
        )
        self.count += max(added.rowcount, 0)

        # Utterances of one corpus are not compared with each other: segments may overlap by intention.
        self._database.execute(
            "INSERT INTO kept SELECT * FROM found WHERE NOT EXISTS"
            " (SELECT * FROM duplicates WHERE duplicates.id = found.id)"
        )
        self._database.execute("DELETE FROM found")

    def has(self, id: str) -> bool:
        """Returns whether an earlier corpus has the recording of this utterance."""
        rows = self._database.execute("SELECT 1 FROM duplicates WHERE id = ?", (id,)) if self.count else iter(())
        return next(iter(rows), None) is not None

    def rejects(self) -> Iterator[Reject]:
        """Yields the rejects by id."""
        for id, first in self._database.execute("SELECT id, first FROM duplicates ORDER BY id"):
            yield Reject(id, Reason.DUPLICATE_RECORDING, f"the same recording as {first}")

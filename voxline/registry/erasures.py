"""Erased speakers: which models know one, and which version a model without them is compared with.

  <registry>/purges.jsonl    a line for each purge, with a salted hash of the speaker

A purge removes a speaker from the lists of what models were trained on that it finds, and counts the lines. It cannot
find all lists: a training that runs on, or another store, has its own. So each list is held against the record too.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.registry.anchor import best_until, named_anchor
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, erased_utterances, listed_utterances
from voxline.store.objects import open_store

PURGES_FILE = "purges.jsonl"
"""Of a registry, of a folder of datasets, or of a store without them."""
SaltedHash = tuple[str, str]
"""Salt and hash of a speaker who was erased."""


def salted_hash(speaker: str, salt: str) -> str:
    """Names a speaker only to those who know whom to look for."""
    return hashlib.blake2b(speaker.encode(), salt=bytes.fromhex(salt), digest_size=16).hexdigest()


def erased_speakers(root: Path | str) -> list[SaltedHash] | None:
    """Whom purges of a registry have erased; None if it has no record of any.

    Raises:
      WorkError: the record is damaged.
    """
    store = open_store(root)
    try:
        lines = store.read(PURGES_FILE).splitlines()
    except FileNotFoundError:
        return None
    try:
        records = [json.loads(line) for line in lines]
        purges = [(str(record["salt"]), str(record["speaker"])) for record in records]
        for salt, _ in purges:
            salted_hash("", salt)  # raises a ValueError for a salt that is none
    except (ValueError, KeyError, TypeError) as error:
        raise WorkError(f"{store.uri_of(PURGES_FILE)}: damaged ({error}); restore it from a backup") from None
    return purges


def erased_in(registry: Registry, version: int) -> int | None:
    """Counts the utterances that a version was trained on and that were erased; None if nobody can tell."""
    source = f"{registry.uri}/{version}/{TRAINED_ON}"
    removed: int | None = None
    try:
        data = registry.read_file(version, TRAINED_ON)
        removed = erased_utterances(data, source)
        return _count_erased(data, source, erased_speakers(registry.root) or [])
    except WorkError as error:
        # What a purge removed, the list itself counts, whatever has become of the record of purges.
        if removed:
            print_status(f"version {version} knows {removed:,} utterances of an erased speaker, or more: {error}")
            return removed
        print_status(f"whether version {version} knows an erased speaker is not known: {error}")
        return None


def last_without_erased(registry: Registry) -> int | None:
    """The version that was in production last, of those before the present one that know no erased speaker."""
    earlier = registry.history().earlier_production
    return next((version for version in earlier if erased_in(registry, version) == 0), None)


def doubt_of(model: Path, registry: Registry) -> str:
    """Says why a model does not count as one that knows no erased speaker; empty if it does.

    Args:
      model: folder of an exported model.

    Raises:
      WorkError: its list or the registry's record is damaged.
    """
    file = model / TRAINED_ON
    if not file.is_file():
        return f"it has no list of what it was trained on ({TRAINED_ON})"
    purges = erased_speakers(registry.root)
    if purges is None:
        return (
            f"{registry.root} has no {PURGES_FILE}, so nobody can tell whether its list names an erased speaker; copy "
            "the one beside the datasets there"
        )
    count = _count_erased(file.read_bytes(), str(file), purges)
    return f"it was trained on {count:,} utterances of an erased speaker too" if count else ""


def reference_after_erasure(registry: Registry) -> int | None:
    """The version that a model without the erased speaker is compared with; None if nothing is in service.

    A person's anchor comes first. Else it is the best version up to the last one that did not know the speaker, or,
    if all did, up to the one in service: the same after each erasure, so that margins do not add up over several.
    """
    return best_after_erasure(registry) if (named := named_anchor(registry)) is None else named


def best_after_erasure(registry: Registry) -> int | None:
    """`reference_after_erasure` without a person's word."""
    clean = last_without_erased(registry)
    if clean is None:
        in_service = registry.in_service()
        return None if in_service is None else best_until(registry, in_service)

    # An anchor that knows the speaker may be out of reach without them.
    best = best_until(registry, clean)
    return best if erased_in(registry, best) == 0 else clean


def erased_in_production(registry: Registry) -> int | None:
    """Counts the utterances of erased speakers that the version in production was trained on; None if nobody can tell.

    Where nobody was erased, none is known; nor does a model that this registry has no list of know anyone then.
    """
    in_service = registry.in_service()
    if in_service is None:
        return 0
    count = erased_in(registry, in_service)
    if count is None and registry.read_file(in_service, TRAINED_ON) is None and not erased_speakers(registry.root):
        return 0
    return count


def erasure_warning(registry: Registry) -> str:
    """Says that the version in production knows an erased speaker, and what to do; empty if it does not."""
    count = erased_in_production(registry)
    if not count:
        return ""

    # The quickest remedy is a version that does not know them: one that waits, or one that never did.
    waiting = registry.candidate()
    clean = last_without_erased(registry)
    remedy = "train again without the speaker"
    if waiting is not None and erased_in(registry, waiting) == 0:
        command = f"voxline models promote {registry.model} --registry {registry.root}"
        remedy = f"put version {waiting}, the candidate, into service ({command})"
    elif clean is not None:
        command = f"voxline models rollback {registry.model} --to {clean} --registry {registry.root}"
        remedy += f", or go back to version {clean} ({command})"
    return (
        f"version {registry.in_service()}, still in production, was trained on {count:,} utterances of a speaker who "
        f"was erased since; {remedy}"
    )


def _count_erased(data: bytes | None, source: str, purges: Sequence[SaltedHash]) -> int | None:
    """Counts the lines that purges removed from a list, and those that they did not see; None without a list."""
    removed = erased_utterances(data, source)
    if removed is None or data is None or not purges:
        return removed
    listed = listed_utterances(data, source)
    erased = (speaker for speaker in listed if any(salted_hash(speaker, salt) == known for salt, known in purges))
    return removed + sum(listed[speaker] for speaker in erased)

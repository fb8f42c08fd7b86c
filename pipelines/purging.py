"""What a purge finds and does, in words for the person who asks for it."""

from collections.abc import Sequence

from components.publish.purging.purge import Findings, Places, find, purge, records
from components.speech.errors import SettingsError

OUTSIDE = (
    "not looked at: the corpus itself (a refresh brings back who is still in it), archives, backups, reports in "
    "folders of runs, a KFP server's artifacts, other stores"
)


def purged(
    speaker: str, store: str, datasets: Sequence[str], registry: str | None, note: str, *, do: bool
) -> list[str]:
    """Lines that say what is left of a speaker, or what was removed."""
    if not speaker:
        raise SettingsError("--speaker is empty: that would remove everybody whose speaker is not told; give an id")
    places = Places.of(store, datasets, registry)
    found = purge(speaker, places, note) if do else find(speaker, places)
    if not found.anything(places):
        return [f"nothing of {speaker!r} in {', '.join(map(str, _looked_at(places)))}", *_seen(found), OUTSIDE]
    done = "removed" if do else "would be removed"
    head = f"{done}: {found.bytes / 1e6:,.1f} MB of {len(found.traces.ids):,} utterances"
    lines = [head, *_listed(found), *_seen(found)]
    if found.traces.shared:
        lines.append(f"stay: {len(found.traces.shared):,} WAVs and clips that are told as another speaker's too")
    if found.unfinished:
        lines.append(
            f"not looked at: {found.unfinished:,} trainings that are not finished; remove what you do not need"
        )
    lines.append(OUTSIDE)
    if do:
        lines.append(f"written down in {', '.join(map(str, records(places)))}")
    else:
        lines.append("nothing was changed; --yes removes it")
    return lines


def _listed(found: Findings) -> list[str]:
    counts = found.counts()
    lines = [
        f"  {rows:,} rows of version {folder.name} of {folder.parent.name}" for folder, rows in found.versions.items()
    ]
    lines += [f"  {counts['clips']:,} clips in {counts['shards']:,} shards, which are written anew"] * bool(
        found.shards
    )
    lines += [f"  {counts['wavs']:,} WAVs"] * bool(found.wavs)
    lines += [f"  {folder.parent.name}/{folder.name}, which lists or shows them" for folder in found.works]
    lines += [f"  {len(found.leftovers):,} folders that killed processes left among the shards"] * bool(found.leftovers)
    for training in found.trainings:
        if training.events or training.listed:
            lines.append(
                f"  train/{training.folder.name}: {len(training.events)} TensorBoard files, {training.listed:,} lines"
            )
    for one in found.served:
        if one.judged or one.listed or one.shown:
            lines.append(f"  model {one.name}: {one.listed:,} lines of its training, {one.judged:,} of its evaluation")
    return lines


def _seen(found: Findings) -> list[str]:
    """What was learned of them stays learned."""
    models = [f"  {one.name}" for one in found.served if one.saw]
    models += [f"  train/{training.folder.name}" for training in found.trainings]
    return ["models that have seen them, and stay: train anew where that must not be", *models] if models else []


def _looked_at(places: Places) -> list[object]:
    return [place for place in (places.store, *places.datasets, places.registry) if place]

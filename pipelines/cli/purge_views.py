"""What a purge finds and does, in words for the person who asks for it."""

from collections.abc import Iterator, Sequence

from voxline.components.publish.purge.locations import PurgeLocations, open_locations
from voxline.components.publish.purge.old_generations import Retention
from voxline.components.publish.purge.purge import PurgeFindings, find_speaker, purge_speaker, record_files
from voxline.errors import SettingsError
from voxline.store.bucket_cache import uri_of

NOT_COVERED = (
    "not looked at: the corpus itself (a refresh brings back who is still in it), archives, backups, reports in "
    "folders of runs, a KFP server's artifacts, other stores"
)


def format_purge_lines(
    speaker: str, store: str, datasets: Sequence[str], registry: str | None, note: str, *, do: bool
) -> list[str]:
    """Lines that say what is left of a speaker, or what was removed."""
    if not speaker:
        raise SettingsError("--speaker is empty: that would remove everybody whose speaker is not told; give an id")
    with open_locations(store, datasets, registry, to_change=do) as places:
        found = purge_speaker(speaker, places, note) if do else find_speaker(speaker, places)
        return _format_purge(speaker, places, found, do=do)


def _format_purge(speaker: str, places: PurgeLocations, found: PurgeFindings, *, do: bool) -> list[str]:
    if not found.anything(places):
        return [
            f"nothing of {speaker!r} in {', '.join(_searched_locations(places))}",
            *_format_trained_models(found),
            *_format_retained(found),
            NOT_COVERED,
        ]
    done = "removed" if do else "would be removed"
    head = f"{done}: {found.bytes / 1e6:,.1f} MB of {len(found.traces.ids):,} utterances"
    lines = [head, *_format_findings(found), *_format_trained_models(found)]
    if found.traces.shared:
        lines.append(f"stay: {len(found.traces.shared):,} WAVs and clips that are told as another speaker's too")
    if found.unfinished:
        lines.append(
            f"not looked at: {found.unfinished:,} trainings that are not finished; remove what you do not need"
        )
    lines += _format_retained(found)
    lines.append(NOT_COVERED)
    if do:
        lines.append(f"written down in {', '.join(map(uri_of, record_files(places)))}")
    else:
        lines.append("nothing was changed; --yes removes it")
    return lines


def _format_findings(found: PurgeFindings) -> list[str]:
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


def _format_trained_models(found: PurgeFindings) -> list[str]:
    """What was learned of them stays learned."""
    models = [f"  {one.name}" for one in found.served if one.saw]
    models += [f"  train/{training.folder.name}" for training in found.trainings]
    return ["models that have seen them, and stay: train anew where that must not be", *models] if models else []


def _format_retained(found: PurgeFindings) -> list[str]:
    """What buckets keep of what is deleted, and how it goes too."""
    lines = [line for kept in found.kept for line in _format_retained_in(kept)]
    if found.kept:
        lines.append(
            "other machines may hold copies of what was brought there: remove their mirrors (VOXLINE_MIRROR, else "
            "voxline-mirror where temporary files go; those of pods go with them)"
        )
    return lines


def _format_retained_in(kept: Retention) -> Iterator[str]:
    bucket = "gs://" + kept.place.split("/")[2]
    if not kept.known:
        yield (
            f"{kept.place}: what {bucket} does with what is deleted could not be asked (storage.buckets.get); look: "
            f"gcloud storage buckets describe {bucket} --format='default(versioning,soft_delete_policy)'"
        )
    if kept.removed:
        yield f"{kept.place}: {kept.removed:,} older generations of theirs are removed too"
    if kept.left:
        yield (
            f"{kept.place}: {kept.left:,} older generations of theirs STAY, they could not be deleted "
            "(storage.objects.delete, holds, retention); mend that, and remove them as noncurrent by a lifecycle rule"
        )
    if kept.others:
        yield (
            f"{kept.place}: {kept.others:,} older generations of other objects were not looked into; a lifecycle rule "
            "that deletes what is not live (isLive: false) removes them"
        )
    if kept.versioning and not kept.removed:
        yield f"{kept.place}: {bucket} keeps older generations (versioning); a purge removes those of what it removes"
    if kept.soft_until:
        yield (
            f"{kept.place}: {bucket} keeps what is deleted now until {kept.soft_until} (soft delete), and nobody can "
            f"remove it before; to have it gone at once, BEFORE a purge: gcloud storage buckets update {bucket} "
            "--clear-soft-delete"
        )


def _searched_locations(places: PurgeLocations) -> list[str]:
    return [uri_of(place) for place in (places.store, *places.datasets, places.registry) if place]

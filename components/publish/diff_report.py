"""What changed between two datasets, as blocks of a page: of `voxline diff --html`, of a version, of a refresh."""

from collections.abc import Callable, Sequence
from typing import Any

from voxline.components.publish.diff import (
    ChangedUtterance,
    DatasetDiff,
    Line,
    describe_comparability,
    diff_datasets,
    diff_paths,
    feature_drift,
    split_words,
)
from voxline.components.publish.versions import DatasetVersions
from voxline.data.dataset import Dataset
from voxline.report import (
    Block,
    Page,
    bars,
    details,
    facts,
    figure,
    histogram,
    lines,
    note,
    side_by_side,
    table,
    verdict,
    word_diff,
)

MAX_UTTERANCES = 200
"""Utterances of a kind that stand on the page; `voxline diff` names more."""
MAX_SPEAKERS = 20


def diff_page(before: str, after: str) -> Page:
    """The page of two datasets; folders, or gs://…"""
    found = diff_paths(before, after)
    page = Page("What changed between two datasets", lead=f"From {before} to {after}.")
    page.opening(comparability_verdict(found))
    _compare(found, page)
    return page


def version_page(datasets: str, name: str, number: int, *, reused: bool) -> Page:
    """The page of a version that was just published, or that had the same content already.

    Args:
      datasets: holds a folder for each dataset; a folder, or gs://…

    Raises:
      WorkError: there is no such version, or it is damaged.
    """
    versions = DatasetVersions(datasets, name)
    published, folder = versions.published(number), versions.path(number)
    version = Dataset.read(folder, shards=False)
    told = "has this content already" if reused else "is published"
    page = Page(f"Version {number} of {name}", lead=published.note or published.at, footer=f"{versions.place}/{number}")
    page.opening(
        verdict(f"{page.title} {told}", f"{sum(version.counts.values()):,} utterances.", "good"),
        facts({"hours": sum(version.seconds.values()) / 3600, **version.counts}),
    )
    before = published.replaces
    if reused:
        page.section("What changed", note(f"Nothing has, since version {number} was published."))
    elif before is None:
        page.section("What changed", note("This is the first version."))
    elif before not in versions.numbers():
        page.section("What changed", note(f"Version {before}, which it replaces, is not there any more."))
    else:
        found = diff_datasets(Dataset.read(versions.path(before), shards=False), version)
        page.section(f"What changed since version {before}", comparability_verdict(found))
        _compare(found, page)
    return page


def _compare(found: DatasetDiff, page: Page) -> None:
    page.section("Utterances", counts_table(found), *utterance_lists(found))
    page.section("Splits and speakers", *_balance(found))
    page.section("Features", *_features(found))


def comparability_verdict(found: DatasetDiff) -> Block:
    """What it means for the models that are compared."""
    head, _, rest = describe_comparability(found).partition(": ")
    return verdict(head, rest[:1].upper() + rest[1:], "bad" if found.test_changed() else "good")


def counts_table(found: DatasetDiff, since: str = "changed") -> Block:
    rows = [(kind.replace("_", " "), count) for kind, count in found.counts().items()]
    return table(["utterances", since], rows)


def utterance_lists(found: DatasetDiff) -> list[Block]:
    """The utterances of each kind, to be unfolded."""
    blocks = [
        *_folded("Added", found.added, _line),
        *_folded("Removed", found.removed, _line),
        *_folded("Text changed", found.texts, _words),
        *_folded("Audio changed", found.audio, _seconds),
        *_folded("Moved to another split", found.moved, _split),
    ]
    legend = "Above: before. Below: after. Struck through: gone; underlined: new; both, boxed: one for another."
    return [*blocks, note(legend)] if found.texts else blocks


def _folded(kind: str, some: Sequence[Any], row: Callable[[Any], tuple[Any, ...]]) -> list[Block]:
    if not some:
        return []
    more = f"The first {MAX_UTTERANCES:,} of {len(some):,}; `voxline diff` names them all." * (
        len(some) > MAX_UTTERANCES
    )
    return [
        details(f"{kind}: {len(some):,}", table(["utterance", "split", ""], map(row, some[:MAX_UTTERANCES]), more)),
    ]


def _line(line: Line) -> tuple[str, str, str]:
    return line["id"], line["split"], line["text"]


def _words(one: ChangedUtterance) -> tuple[str, str, Block]:
    before, after = (" ".join(split_words(line["text"])) for line in (one.before, one.after))
    return one.id, one.after["split"], word_diff(before, after)


def _seconds(one: ChangedUtterance) -> tuple[str, str, str]:
    return one.id, one.after["split"], f"{one.before['duration']:.2f} → {one.after['duration']:.2f} s"


def _split(one: ChangedUtterance) -> tuple[str, str, str]:
    return one.id, f"{one.before['split']} → {one.after['split']}", one.after["text"]


def _balance(found: DatasetDiff) -> list[Block]:
    both = (found.before, found.after)
    rows = [
        (split, *(value for each in both for value in (each.counts.get(split, 0), each.seconds.get(split, 0.0) / 3600)))
        for split in dict.fromkeys([*found.before.counts, *found.after.counts])
    ]
    told = table(["split", "utterances before", "hours before", "utterances after", "hours after"], rows)
    lengths = figure(
        histogram({"before": _durations(found.before), "after": _durations(found.after)}, "seconds"),
        "How long utterances are.",
    )
    speakers = found.seconds_of_speakers()
    if not speakers:
        return [told, lengths, note("Every speaker speaks as long as before.")]
    most = {name or "(not told)": after - before for name, (before, after) in list(speakers.items())[:MAX_SPEAKERS]}
    caption = f"Of {len(speakers):,} speakers who speak longer or shorter than before, those most changed."
    return [told, side_by_side(lengths, figure(bars(most, "seconds more"), caption))]


def _features(found: DatasetDiff) -> list[Block]:
    if found.before.features != found.after.features:
        return [note("They are made otherwise: nothing that was learned of one holds for the other.")]
    moved = feature_drift(found.before, found.after)
    if moved is None:
        return [note("Their mean and deviation are the same.")]
    bins = list(range(len(moved.shift)))
    return [
        figure(lines(bins, {"mean": moved.shift}, "bin", "deviations"), "How far the mean of each bin moved."),
        figure(lines(bins, {"deviation": moved.spread}, "bin", "after / before"), f"{moved.told()}."),
    ]


def _durations(dataset: Dataset) -> list[float]:
    return [row.duration for row in dataset.rows()]

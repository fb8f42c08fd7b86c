"""The differences between two datasets as report blocks, for `voxline diff --html`, a version's page and a refresh."""

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
)
from voxline.data.dataset import Dataset
from voxline.data.versions import DatasetVersions
from voxline.report import (
    Block,
    Page,
    bar_plot,
    data_table,
    details,
    figure,
    format_duration,
    histogram,
    line_plot,
    side_by_side,
    small_print,
    stat_cards,
    verdict_banner,
    word_diff,
)
from voxline.text.alphabet import split_words

MAX_UTTERANCES = 200
"""Utterances of a kind on the page; `voxline diff` prints more."""
MAX_SPEAKERS = 20
_CONTENTS = {"Text changed": "words", "Audio changed": "duration", "Split changed": "split and text"}


def diff_page(before: str, after: str) -> Page:
    """The page of two datasets, each given by its folder or bucket URI."""
    diff = diff_paths(before, after)
    page = Page("Differences between two datasets", lead=f"From {before} to {after}.")
    page.add_opening(comparability_verdict(diff))
    _add_sections(diff, page)
    return page


def version_page(datasets: str, name: str, number: int, *, reused: bool) -> Page:
    """The page of a version that was just published, or that already had the same content.

    Args:
      datasets: the folder or bucket URI that holds all datasets.

    Raises:
      WorkError: the version does not exist or is damaged.
    """
    versions = DatasetVersions(datasets, name)
    info = versions.info(number)
    folder = versions.path(number)
    dataset = Dataset.read(folder, shards=False)
    state = "has this content already" if reused else "is published"
    page = Page(f"Version {number} of {name}", lead=info.note or info.at, footer=versions.uri_of(number))
    page.add_opening(
        verdict_banner(f"{page.title} {state}", f"{sum(dataset.counts.values()):,} utterances.", "good"),
        stat_cards({"audio": format_duration(sum(dataset.seconds.values())), **dataset.counts}),
    )

    # A version says which one it replaced when it was published; that one may have been deleted since.
    previous = info.replaces
    if reused:
        page.add_section("Changes", small_print(f"None since version {number} was published."))
    elif previous is None:
        page.add_section("Changes", small_print("This is the first version."))
    elif previous not in versions.numbers():
        page.add_section("Changes", small_print(f"Version {previous}, which it replaces, no longer exists."))
    else:
        diff = diff_datasets(Dataset.read(versions.path(previous), shards=False), dataset)
        page.add_section(f"Changes since version {previous}", comparability_verdict(diff))
        _add_sections(diff, page)
    return page


def comparability_verdict(diff: DatasetDiff) -> Block:
    """Shows whether metrics measured on the two datasets may be compared."""
    head, _, remainder = describe_comparability(diff).partition(": ")
    return verdict_banner(head, remainder[:1].upper() + remainder[1:], "bad" if diff.test_set_changed() else "good")


def counts_table(diff: DatasetDiff, heading: str = "changed") -> Block:
    rows = [(kind.replace("_", " "), count) for kind, count in diff.counts().items()]
    return data_table(["utterances", heading], rows)


def utterance_lists(diff: DatasetDiff) -> list[Block]:
    """The utterances of each kind of change, in folded tables."""
    blocks = [
        *_folded("Added", diff.added, _text_row),
        *_folded("Removed", diff.removed, _text_row),
        *_folded("Text changed", diff.text_changed, _words_row),
        *_folded("Audio changed", diff.audio_changed, _seconds_row),
        *_folded("Split changed", diff.split_changed, _split_row),
    ]
    legend = "Struck through: deleted. Underlined: inserted. Boxed: substituted."
    return [*blocks, small_print(legend)] if diff.text_changed else blocks


def _add_sections(diff: DatasetDiff, page: Page) -> None:
    page.add_section("Utterances", counts_table(diff), *utterance_lists(diff))
    page.add_section("Splits and speakers", *_splits_and_speakers(diff))
    page.add_section("Features", *_features(diff))


def _folded(kind: str, items: Sequence[Any], row: Callable[[Any], tuple[Any, ...]]) -> list[Block]:
    if not items:
        return []
    caption = ""
    if len(items) > MAX_UTTERANCES:
        caption = f"The first {MAX_UTTERANCES:,} of {len(items):,}; `voxline diff` prints them all."
    rows = map(row, items[:MAX_UTTERANCES])
    return [
        details(
            f"{kind}: {len(items):,}",
            data_table(["utterance", "split", _CONTENTS.get(kind, "text")], rows, caption, kind),
        )
    ]


def _text_row(line: Line) -> tuple[str, str, str]:
    return line["id"], line["split"], line["text"]


def _words_row(utterance: ChangedUtterance) -> tuple[str, str, Block]:
    before, after = (" ".join(split_words(line["text"])) for line in (utterance.before, utterance.after))
    return utterance.id, utterance.after["split"], word_diff(before, after, ("before", "after"))


def _seconds_row(utterance: ChangedUtterance) -> tuple[str, str, str]:
    seconds = f"{utterance.before['duration']:.2f} → {utterance.after['duration']:.2f} s"
    return utterance.id, utterance.after["split"], seconds


def _split_row(utterance: ChangedUtterance) -> tuple[str, str, str]:
    split = f"{utterance.before['split']} → {utterance.after['split']}"
    return utterance.id, split, utterance.after["text"]


def _splits_and_speakers(diff: DatasetDiff) -> list[Block]:
    # A row a split: utterances and audio before, utterances and audio after. A split may be in one of them alone.
    datasets = (diff.before, diff.after)
    rows = [
        (
            split,
            *(
                value
                for dataset in datasets
                for value in (dataset.counts.get(split, 0), format_duration(dataset.seconds.get(split, 0.0)))
            ),
        )
        for split in dict.fromkeys([*diff.before.counts, *diff.after.counts])
    ]
    splits = data_table(["split", "utterances before", "audio before", "utterances after", "audio after"], rows)

    durations = figure(
        histogram({"before": _durations(diff.before), "after": _durations(diff.after)}, "seconds"),
        "Durations of utterances.",
    )

    speakers = diff.seconds_by_speaker()
    if not speakers:
        return [splits, durations, small_print("Every speaker has as much speech as before.")]
    most = {name or "(unknown)": after - before for name, (before, after) in list(speakers.items())[:MAX_SPEAKERS]}

    caption = f"The largest changes among {len(speakers):,} speakers with more or less speech than before."
    return [splits, side_by_side(durations, figure(bar_plot(most, "seconds more"), caption))]


def _features(diff: DatasetDiff) -> list[Block]:
    if diff.before.features != diff.after.features:
        return [small_print("The feature settings differ: a model of one dataset cannot be used with the other.")]
    drift = feature_drift(diff.before, diff.after)
    if drift is None:
        return [small_print("Mean and standard deviation are the same.")]
    bins = list(range(len(drift.mean_shift)))
    return [
        figure(line_plot(bins, {"mean": drift.mean_shift}, "bin", "deviations"), "Shift of the mean of each bin."),
        figure(line_plot(bins, {"deviation": drift.deviation_ratio}, "bin", "after / before"), f"{drift.describe()}."),
    ]


def _durations(dataset: Dataset) -> list[float]:
    return [row.duration for row in dataset.rows()]

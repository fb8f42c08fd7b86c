"""The commands of captured clips: what there is, what has drifted, what has expired. They parse, call and print."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voxline.errors import SettingsError, WorkError
from voxline.pipelines.cli.options import AsJson, CommandGroup, machine_path

if TYPE_CHECKING:
    from voxline.feedback.shadow import ShadowVerdict
    from voxline.feedback.skew import ServingSkew
    from voxline.feedback.watch import Watched

capture_commands = CommandGroup(help="Watch, label and expire what serving captured.", no_args_is_help=True)
Captures = Annotated[
    str, typer.Option("--captures", metavar="LOCATION", help="Folder or bucket URI that serve --capture was given.")
]
Locations = Annotated[
    list[str],
    typer.Argument(metavar="LOCATION...", help="Captures, or corpora of labeled clips; folders or bucket URIs."),
]


DRIFTED = 3
"""Exit status of `watch`, and of `shadow` for a worse version."""
SHOWN = 20
"""Disagreements that are printed."""


def watch(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The version: asr, asr@candidate or asr@7.")],
    registry: Annotated[str, typer.Option(metavar="LOCATION", help="Folder or bucket URI of the registry.")],
    captures: Captures,
    hours: Annotated[
        float, typer.Option(min=0, help="Only clips of the last so many hours.  [default: all]", show_default=False)
    ] = 0.0,
    alpha: Annotated[float, typer.Option(help="Accepted share of false alarms, over all statistics together.")] = 0.01,
    train: Annotated[
        str,
        typer.Option(
            "--train",
            metavar="LOCATION",
            help="Also measure the skew from the training data: convert's manifest, or the dataset's folder.",
        ),
    ] = "",
    skew_thresholds: Annotated[
        list[str] | None,
        typer.Option(
            "--skew-threshold",
            metavar="FEATURE=DISTANCE",
            help="Accepted beyond chance, in bits, of tokens as a share: --skew-threshold level=0.4. Repeatable.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option(min=30, help="Most clips, and most recordings of the training, that --train measures.")
    ] = 2000,
    report: Annotated[
        Path | None,
        typer.Option("--report", parser=machine_path, metavar="FILE", help="Write the skew as an HTML page."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare captured audio with what a version knows.

    With what it was judged on: level, noise, spectrum, lengths, empty texts and confidences, and an estimate of the
    word error rate. With --train also the skew from what it was trained on, by TensorFlow Data Validation where it
    runs. Exit status: 0 nothing has drifted or is skewed, or there are fewer than 30 clips; 3 something has or is; 1
    and 2 as everywhere.

    Example: voxline watch asr --registry runs/demo/registry --captures runs/captures --hours 24
    """
    import time

    import msgspec

    from voxline.feedback.watch import compare_captures
    from voxline.registry.journal import format_utc

    # Before anything is read: these options would have no effect.
    if (skew_thresholds or report) and not train:
        raise SettingsError("--skew-threshold and --report are about the skew; give --train, the data of the training")
    thresholds = _parse_thresholds(skew_thresholds or [])

    since = format_utc(time.time() - hours * 3600) if hours else ""
    watched = compare_captures(registry, model, captures, since=since, alpha=alpha)

    # The same clips, beside other recordings: those of the training.
    skew = None
    if train:
        from voxline.components.validate.tfdv.plan import skew_by_tfdv
        from voxline.feedback.skew import measure_skew
        from voxline.feedback.skew_page import skew_page

        measured_by, measure = skew_by_tfdv()
        skew = measure_skew(
            registry, model, captures, train, since=since, thresholds=thresholds, count=count, measured_by=measured_by,
            measure=measure,
        )  # fmt: skip
        if report:
            skew_page(skew).write(report)

    if as_json:
        shown = watched.plain() | ({"skew": skew.plain()} if skew else {})
        typer.echo(msgspec.json.encode(shown).decode())  # what is not known is null, not NaN
    else:
        for line in [*_format_watch(watched), *(_format_skew(skew) if skew else [])]:
            typer.echo(line)

    # A scheduler tells drift from a failure of the command, whose status is 1.
    if watched.drifted or (skew and skew.skewed):
        raise typer.Exit(DRIFTED)


@capture_commands.command("select")
def select(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The version: asr, asr@candidate or asr@7.")],
    registry: Annotated[str, typer.Option(metavar="LOCATION", help="Folder or bucket URI of the registry.")],
    captures: Captures,
    output: Annotated[
        Path, typer.Option("--output", "-o", parser=machine_path, metavar="FOLDER", help="For the clips and the tasks.")
    ],
    count: Annotated[int, typer.Option(min=1, help="Clips to select.")] = 100,
    per_speaker: Annotated[int, typer.Option(min=1, help="Most clips of one pseudonym.")] = 10,
) -> None:
    """Select the captured clips that are most worth a label.

    Those that the model doubts, that are unlike its test split and unlike each other. Writes manifest.jsonl with what
    was heard, audio, and label-studio.json and .xml.

    Example: voxline captures select asr --registry runs/demo/registry --captures runs/captures -o runs/to-label
    """
    from voxline.feedback.captures import CaptureStore
    from voxline.feedback.labeling import select_clips, write_selection
    from voxline.feedback.watch import judged_results, statistics_of_results
    from voxline.registry.models import resolve_version

    versions, version = resolve_version(registry, model)
    reference = statistics_of_results(judged_results(versions, version))

    # The digest names the model that heard a clip; the same number is another model in another registry.
    store = CaptureStore(captures)
    digest = versions.event(version).digest
    clips = [clip for clip in store.clips(versions.model, version) if clip.digest == digest]

    selected = select_clips(clips, reference, count, per_speaker)
    if not selected:
        raise WorkError(f"{captures}: no clips of version {version} of {versions.model} in which something may be said")
    typer.echo(f"{write_selection(store, selected, output)}: {len(selected):,} of {len(clips):,} clips")


@capture_commands.command("label")
def label(
    labels: Annotated[
        Path,
        typer.Argument(parser=machine_path, metavar="LABELS", help="Label Studio's JSON, or a corrected manifest."),
    ],
    selection: Annotated[
        Path, typer.Option(parser=machine_path, metavar="FOLDER", help="The folder that captures select wrote.")
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", parser=machine_path, metavar="FOLDER", help="The corpus; new clips are added."),
    ],
    test_share: Annotated[float, typer.Option(help="Share of the speakers to test on.")] = 0.2,
    dev_share: Annotated[float, typer.Option(help="Share of the speakers to validate on.")] = 0.1,
) -> None:
    """Add labeled clips to a corpus.

    A folder with manifest.jsonl and audio, for corpus.format manifest. Clips keep their expiry and consent.

    Example: voxline captures label labeled.json --selection runs/to-label -o corpora/from-service
    """
    from voxline.feedback.labeling import collect_labels

    counts = collect_labels(labels, selection, output, test_share=test_share, dev_share=dev_share)

    # Clips may expire between their selection and a person's labels.
    left_out = [(counts.left_out, "left out"), (counts.expired, "expired or erased meanwhile")]
    notes = "".join(f", {number:,} {reason}" for number, reason in left_out if number)
    done = f"{counts.labeled:,} clips labeled, {counts.corrected:,} of them corrected{notes}"
    typer.echo(f"{output}: {done}; {counts.total:,} in all")


@capture_commands.command("shadow")
def shadow(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The version to try, such as asr@candidate.")],
    registry: Annotated[str, typer.Option(metavar="LOCATION", help="Folder or bucket URI of the registry.")],
    captures: Captures,
    labeled: Annotated[
        Path | None,
        typer.Option(parser=machine_path, metavar="FOLDER", help="Corpus of labeled clips; its labels decide."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Most clips to hear; the latest.")] = 500,
    as_json: AsJson = False,
) -> None:
    """Try a version on what the one in service heard.

    Shows where they disagree, and each one's estimated word error rate; on labeled clips, who is better. Exit status 3
    if the version is worse on these, 0 if it is better or undecided.

    Example: voxline captures shadow asr@candidate --registry runs/demo/registry --captures runs/captures
    """
    import msgspec

    from voxline.feedback.shadow import compare_in_shadow

    comparison = compare_in_shadow(registry, model, captures, labeled=labeled, count=count)
    for line in [msgspec.json.encode(comparison.plain()).decode()] if as_json else _format_shadow(comparison):
        typer.echo(line)
    if comparison.verdict == "worse":
        raise typer.Exit(DRIFTED)


@capture_commands.command("list")
def show_captures(captures: Captures, as_json: AsJson = False) -> None:
    """Count the captured clips of each version.

    Example: voxline captures list --captures runs/captures
    """
    import json

    from voxline.feedback.captures import CaptureStore, count_captures

    counts = count_captures(CaptureStore(captures).clips())
    if as_json:
        typer.echo(json.dumps(counts, ensure_ascii=False))
        return
    for row in counts:
        typer.echo(
            f"{row['model']} {row['version']}: {row['clips']:,} clips, {row['seconds'] / 60:,.1f} min, "
            f"{row['speakers']:,} pseudonyms, {row['first']} to {row['last']}; the next expires on {row['expires']}"
        )
    if not counts:
        typer.echo(f"{captures}: no clips")


@capture_commands.command("expire")
def expire(locations: Locations) -> None:
    """Delete clips that have expired, for a scheduler.

    A running server does so in its own captures. In a corpus of labeled clips the lines of its manifest go too, and the
    next refresh takes them out of the dataset.

    Example: voxline captures expire runs/captures corpora/from-service
    """
    from voxline.feedback.captures import check_captures, expire_recordings

    # A wrong location must not pass for one in which nothing has expired: a scheduler would never say so.
    for location in locations:
        check_captures(location)
        typer.echo(f"{location}: {expire_recordings(location):,} clips have expired")


def _format_shadow(shadow: "ShadowVerdict") -> list[str]:
    """Lines of `voxline captures shadow`, the verdict last."""
    differ = f"{len(shadow.disagreements):,} of {shadow.clips:,} clips are heard differently"
    lines = [f"{shadow.model} {shadow.version} beside {shadow.in_service}, which is in service: {differ}"]
    for clip in shadow.disagreements[:SHOWN]:
        lines.append(f"  {clip.id}: {clip.in_service!r} -> {clip.shadow!r}")

    # Without labels there are only estimates, which decide nothing.
    if shadow.estimated is not None and shadow.estimated_in_service is not None:
        lines.append(f"estimated WER {shadow.estimated:.1%}; of the one in service {shadow.estimated_in_service:.1%}")
    if shadow.trained:
        lines.append(f"{shadow.trained:,} labeled clips are left out: one of the versions was trained on them")
    if shadow.comparison is None or shadow.wer is None or shadow.wer_in_service is None:
        missing = (
            "label clips that none was trained on" if shadow.trained else "give --labeled, a corpus of labeled clips"
        )
        return [*lines, f"undecided: {missing}"]

    # The interval of the paired difference, in percentage points; above 0 the version is worse.
    low, high = (end * 100 for end in (shadow.comparison.interval.low, shadow.comparison.interval.high))
    lines.append(
        f"WER on {shadow.labeled:,} labeled clips {shadow.wer:.1%}; of the one in service {shadow.wer_in_service:.1%}; "
        f"difference {low:+.1f} to {high:+.1f} points"
    )
    return [*lines, shadow.verdict]


def _format_watch(watched: "Watched") -> list[str]:
    """Lines of `voxline watch`: a table of the statistics, the estimate, and the verdict."""
    from voxline.feedback.watch import MIN_CLIPS

    lines = [
        f"{watched.model} {watched.version}: {watched.clips:,} clips, beside {watched.reference:,} test utterances"
    ]
    if watched.wer is None:
        return [*lines, f"too few clips to compare; {MIN_CLIPS} are enough"]

    # P(higher) is 0.5 where nothing has changed; what lies between the allowed ends is no drift.
    rows = [("", "test", "captured", "P(higher)", "allowed", "p")]
    rows += [
        (
            shift.name,
            f"{shift.before:.3g}",
            f"{shift.now:.3g}",
            f"{shift.probability:.2f}",
            f"{max(0.5 - shift.allowed, 0):.2f}-{min(0.5 + shift.allowed, 1):.2f}",
            f"{shift.p_value:.4f}" + ("  drifted" if shift.drifted else ""),
        )
        for shift in watched.shifts
    ]

    lines += _aligned(rows)
    estimate = watched.wer
    lines.append(
        f"estimated WER {estimate.value:.1%} ({estimate.low:.1%} to {estimate.high:.1%}); "
        f"test {watched.test_wer:.1%} ({watched.test_low:.1%} to {watched.test_high:.1%})"
    )

    # How far to trust the estimate: what it says of slices of the test split, whose error rate is known.
    back_test = estimate.back_test
    if math.isnan(back_test.mean_error):
        lines.append("back-test: none; no slice of the test split has enough utterances")
    else:
        # A slice is (slicing, name, estimated, measured).
        slicing, name, estimated, measured = max(back_test.slices, key=lambda part: abs(part[2] - part[3]))
        lines.append(
            f"back-test: {len(back_test.slices)} slices of the test split estimated from the others, "
            f"{back_test.mean_error * 100:.1f} points off on average; most for {slicing} {name}: {estimated:.1%}, "
            f"really {measured:.1%}"
        )

    # Confidences are calibrated on audio like that of the test split; on other audio they say little.
    if any(shift.drifted and shift.name.endswith("dB)") for shift in watched.shifts):
        lines.append("the audio itself has drifted: the WER may be far above the estimate; have some of it labeled")
    names = ", ".join(watched.drifted)
    lines.append(f"drifted: {names}" if names else "nothing has drifted")
    return lines


def _format_skew(skew: "ServingSkew") -> list[str]:
    """Lines of `voxline watch --train`: a table of the features, and the verdict."""
    if not skew.features:
        return ["too few clips to measure a skew"]
    sizes = f"{skew.clips:,} clips, beside {skew.recordings:,} of {skew.trained_on:,} recordings of the training"

    # Medians and distances; tokens have no median.
    rows = [("", "training", "captured", "distance", "allowed", "")]
    rows += [
        (
            feature.feature,
            "" if math.isnan(feature.training) else f"{feature.training:.3g}",
            "" if math.isnan(feature.serving) else f"{feature.serving:.3g}",
            f"{feature.distance:.3f}",
            f"{feature.allowed:.3f}",
            "skewed" if feature.skewed else "",
        )
        for feature in skew.features
    ]

    # The verdict last, as of the comparison with the test split.
    names = ", ".join(skew.skewed)
    verdict = f"skewed: {names}" if names else "no skew"
    return ["", f"{sizes} ({skew.measured_by})", *_aligned(rows), verdict]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of a table whose first column is of names, and whose last is not padded."""
    # [columns but the last] characters
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        name, *cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        lines.append("  ".join([name.strip().ljust(widths[0]), *cells, row[-1]]).rstrip())
    return lines


def _parse_thresholds(texts: list[str]) -> dict[str, float]:
    thresholds = {}
    for text in texts:
        feature, _, number = text.partition("=")
        try:
            thresholds[feature] = float(number)
        except ValueError:
            raise SettingsError(
                f"--skew-threshold {text}: a feature and a number are accepted, as in level=0.4"
            ) from None
    return thresholds

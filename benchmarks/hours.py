"""What 100,000 hours of audio would take, and what breaks first: computed from what the steps cost at smaller sizes.

Costs come from benchmarks/growth.json, which `python -m benchmarks.growth`, `planning` and `distributed share` write;
nothing is measured here. Each step is taken to go on as it did between its two largest sizes.

  python -m benchmarks.hours        writes the tables of docs/hours.md, and prints them
"""

import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.costs import COSTS, Cost, recorded
from benchmarks.distributed import ON_FLINK, SHARE_SIZES, WITHOUT_BEAM
from benchmarks.growth import OF_CONTENTS, OF_LISTS, OF_STORES
from benchmarks.planning import PLAN_STEP, SHARDS_STEP

PAGE = Path(__file__).parent.parent / "docs" / "hours.md"
HOURS = 100_000
UTTERANCE_SECONDS = 5
UTTERANCES = HOURS * 3_600 // UTTERANCE_SECONDS
RATE = 16_000
FRAME_SECONDS = 0.01
BINS = 80
SHARD_MEGABYTES = (32, 512)
WORKERS = (10, 100)
LISTED = ("ingest", "ingest again", "validate", "store du, generated rows", SHARDS_STEP, PLAN_STEP)
"""Steps that hold or read a line of each utterance, in one process."""
POD_MEMORY = 64e9
"""Bytes of a large pod, which holds one process."""
PROCESSES = 8
"""Trainings of a machine with as many accelerators, each of which holds the plan."""
DAY = 86_400.0
DISK_RATE = 1e9
"""Bytes a second of a shared disk."""


def measured_table() -> str:
    """Time, memory and files of each step, by the number of utterances."""
    lines = [
        "| step | utterances | processor time | an utterance, × that of the size before | memory | files |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    costs = recorded()
    for step in [*OF_LISTS, *OF_STORES, *OF_CONTENTS, PLAN_STEP, SHARDS_STEP]:
        by_size = costs.get(step, {})
        before = 0.0
        for size, cost in sorted(by_size.items()):
            ratio = cost.seconds / size / (before or cost.seconds / size)
            before = cost.seconds / size
            files = f"{cost.files:,}" if cost.files else ""
            lines.append(
                f"| {step} | {size:,} | {cost.seconds:,.1f} s | {ratio:.2f} | {cost.memory / 1e6:,.0f} MB | {files} |"
            )
    return "\n".join(lines)


def flink_table() -> str:
    """What of the processor time on Flink is our step's."""
    costs = recorded()
    lines = [
        "| `extract` on Flink | all processes | the step without Beam | ours |",
        "| --- | --- | --- | --- |",
    ]
    for size in SHARE_SIZES:
        everything = costs[ON_FLINK][size].seconds
        ours = costs[WITHOUT_BEAM][size].seconds
        hours = size * UTTERANCE_SECONDS / 3_600
        lines.append(f"| {hours:g} h of audio | {everything:.1f} s | {ours:.1f} s | {ours / everything:.0%} |")
    everything = _of_an_hour(ON_FLINK)
    ours = _of_an_hour(WITHOUT_BEAM)
    lines.append(f"| each further hour | {everything:.1f} s | {ours:.1f} s | {ours / everything:.0%} |")
    return "\n".join(lines)


def work_table() -> str:
    """Processors, storage and training of 100,000 hours."""
    pcm = HOURS * 3_600 * RATE * 2
    features = HOURS * 3_600 / FRAME_SECONDS * BINS * 4
    core_hours = HOURS * _of_an_hour(ON_FLINK) / 3_600
    ours = HOURS * _of_an_hour(WITHOUT_BEAM) / 3_600
    busy = (pcm + features) / (core_hours * 3_600)
    lines = ["| what | how much |", "| --- | --- |"]
    lines.append(f"| utterances of {UTTERANCE_SECONDS} s | {UTTERANCES:,} |")
    lines.append(f"| recordings as WAV, {RATE // 1_000} kHz | {pcm / 1e12:.1f} TB, as many files as utterances |")
    features_text = f"{features / 1e12:.1f} TB; {features / 1e6 / SHARD_MEGABYTES[0]:,.0f} shards of"
    features_text += (
        f" {SHARD_MEGABYTES[0]} MB, or {features / 1e6 / SHARD_MEGABYTES[1]:,.0f} of {SHARD_MEGABYTES[1]} MB"
    )
    lines.append(f"| features, {BINS} mels in float32 | {features_text} |")
    lines.append(f"| `extract` without Beam | {ours:,.0f} core-hours |")
    lines.append(f"| `extract` on Flink | {core_hours:,.0f} core-hours |")
    for workers in WORKERS:
        rate = workers * busy
        lines.append(
            f"| — by {workers} workers | {core_hours / workers:,.1f} h, {rate / 1e9:.2f} GB/s read and written |"
        )
    for step in LISTED:
        cost = _of_all(step)
        lines.append(f"| {step}, one process | {cost.seconds / 3_600:,.1f} h, {cost.memory / 1e9:,.1f} GB |")
    return "\n".join(lines)


def limits_table() -> str:
    """By the number of utterances at which each limit is reached, the lowest first."""
    pcm = UTTERANCE_SECONDS * RATE * 2
    features = UTTERANCE_SECONDS / FRAME_SECONDS * BINS * 4
    limits = []
    for step in (*LISTED, "store gc of everything, generated rows"):
        costs = recorded()[step]
        memory = _size_at(costs, POD_MEMORY, of_memory=True)
        limits.append((memory, f"{step}: {POD_MEMORY / 1e9:.0f} GB of memory in one process"))
        limits.append((_size_at(costs, DAY, of_memory=False), f"{step}: a day of one processor"))
    shared = _size_at(recorded()[PLAN_STEP], POD_MEMORY / PROCESSES, of_memory=True)
    limits.append((shared, f"{PLAN_STEP}: {POD_MEMORY / 1e9:.0f} GB of memory in {PROCESSES} processes"))
    limits.append(
        (DAY * DISK_RATE / (pcm + features), f"a shared disk of {DISK_RATE / 1e9:.0f} GB/s: a day of `extract`")
    )
    lines = ["| reached at | hours of audio | limit |", "| --- | --- | --- |"]
    for size, limit in sorted(limits):
        hours = size * UTTERANCE_SECONDS / 3_600
        lines.append(f"| {size / 1e6:,.0f} million utterances | {hours:,.0f} | {limit} |")
    return "\n".join(lines)


def processors() -> str:
    """The processors that the costs were measured on."""
    known = json.loads(COSTS.read_text(encoding="utf-8"))
    places = [cost["on"].rpartition(" with a load of ") for by_size in known.values() for cost in by_size.values()]
    machines = "; ".join(sorted({machine for machine, _, _ in places}))
    loads = [float(load) for _, _, load in places]
    return f"Measured on {machines}, which were busy with other work: loads of {min(loads):.0f} to {max(loads):.0f}."


def _of_an_hour(step: str) -> float:
    """Processor seconds of each further hour of audio."""
    costs = recorded()[step]
    fewer, more = SHARE_SIZES
    return (costs[more].seconds - costs[fewer].seconds) / (more - fewer) * 3_600 / UTTERANCE_SECONDS


def _of_all(step: str) -> Cost:
    """The cost of 100,000 hours."""
    costs = recorded()[step]
    (fewer, less), (more, most) = sorted(costs.items())[-2:]
    further = (UTTERANCES - more) / (more - fewer)
    seconds = most.seconds + further * (most.seconds - less.seconds)
    return Cost(seconds, int(most.memory + further * (most.memory - less.memory)))


def _size_at(costs: dict[int, Cost], limit: float, *, of_memory: bool) -> float:
    """The number of utterances at which a step's memory or time reaches a limit."""
    (fewer, less), (more, most) = sorted(costs.items())[-2:]
    low, high = (less.memory, most.memory) if of_memory else (less.seconds, most.seconds)
    return more + (limit - high) / max(high - low, 1e-9) * (more - fewer)


PARTS: dict[str, Callable[[], str]] = {
    "processors": processors,
    "measured": measured_table,
    "flink": flink_table,
    "work": work_table,
    "limits": limits_table,
}
"""By the comment before each in the page."""


def filled(page: str) -> str:
    """The page with each part as the costs have it."""
    for name, part in PARTS.items():
        begin = page.index(f"<!-- {name} -->\n\n") + len(f"<!-- {name} -->\n\n")
        end = page.index("\n\n<!-- end -->", begin)
        page = page[:begin] + part() + page[end:]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("\n\n".join(part() for part in PARTS.values()))

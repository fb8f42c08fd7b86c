"""extract on a Flink cluster with one and with two workers, against the in-process runner and a plain process pool.

Wall time of the whole step, including the start of Beam's job server and the Python workers; the cluster itself is
running already. On two cores, two workers, two JVMs and the runner compete, so the rows show the overhead of
distribution, not how it scales over machines.

  python -m benchmarks.distributed [UTTERANCES]
  python -m benchmarks.distributed share [UTTERANCES …]   processor time on Flink of recordings of 5 s: what is ours

The share is that of the same step in one process without Beam, of all processes on Flink: step, job server, JobManager,
TaskManager and Python workers. It is kept in benchmarks/growth.json.
"""

import contextlib
import io
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.costs import Cost, record
from benchmarks.growth import write_hours
from benchmarks.table import Row, print_table
from tests.flink.cluster import Cluster
from tests.flink.conftest import make_corpus
from voxline.components.extract.manifest_scan import scan_manifest
from voxline.components.extract.plan import ShardTask, plan_shards
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run
from voxline.components.extract.write_shard import write_shard

UTTERANCES = 20_000
SECONDS = 0.5
SHARE_SIZES = (720, 7_200)
"""An hour, and ten."""
ON_FLINK = "extract on Flink, recordings of 5 s"
WITHOUT_BEAM = "extract without Beam, recordings of 5 s"
ALONE = ExtractSettings(shard_megabytes=4, beam_from_megabytes=1e6)
IN_PROCESS = ALONE.model_copy(update={"beam_from_megabytes": 0.0})


def distributed(utterances: int) -> list[Row]:
    """The rate of each runner, and its ratio to that of the in-process runner."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_corpus(folder / "corpus", utterances)
        measure = _measure_in(folder)
        rates = {"Beam in one process": measure("beam", IN_PROCESS)}
        rates["no Beam, one process"] = measure("alone", ALONE)
        rates["a plain pool of 2 processes"] = _pool(folder)
        for workers in (1, 2):
            with Cluster(folder / f"flink-{workers}", task_managers=workers) as cluster:
                update = {"runner": "FlinkRunner", "beam_options": cluster.beam_options(workers)}
                rates[f"Flink, {workers} worker(s)"] = measure(f"on-{workers}", IN_PROCESS.model_copy(update=update))
    base = rates.pop("Beam in one process")
    workload = f"extract, {utterances:,} utterances of {SECONDS} s on {os.cpu_count()} cores"
    return [
        Row.of(f"{workload}: {runner}, x Beam in one process", f"{rate:,.0f}/s", f"{base:,.0f}/s", rate / base, ">=", 0)
        for runner, rate in rates.items()
    ]


def share_of_ours(sizes: list[int]) -> list[Row]:
    """Of the processor time of `extract` on Flink with one worker, by the number of recordings."""
    table = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_hours(folder / "corpus", size)
            measure = _measure_in(folder)
            with Cluster(folder / "flink", task_managers=1) as cluster:
                update = {"runner": "FlinkRunner", "beam_options": cluster.beam_options(1)}
                started = _seconds_used(cluster)
                measure("on-flink", IN_PROCESS.model_copy(update=update))
                on_flink = _seconds_used(cluster) - started
            began = _seconds_used(None)
            measure("alone", ALONE)
            ours = _seconds_used(None) - began
        for step, seconds in ((ON_FLINK, on_flink), (WITHOUT_BEAM, ours)):
            record(step, size, Cost(seconds, 0))
        print(f"{size:,}: the cluster had used {started:.0f} s before the job", file=sys.stderr)
        name = f"extract on Flink, {size:,} utterances of 5 s: share of processor time that is ours"
        table.append(Row.of(name, f"{ours:.1f} s", f"{on_flink:.1f} s", ours / on_flink, ">=", 0))
    return table


def _seconds_used(cluster: Cluster | None) -> float:
    """Processor time of this process, of children that have ended, and of a cluster's processes and their children."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(used.ru_utime + used.ru_stime for used in own)
    tick = os.sysconf("SC_CLK_TCK")
    sessions = {process.pid for process in cluster.processes} if cluster else set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # After the name, which may hold spaces; children that were waited for count with their parent.
            fields = stat.read_text().rpartition(")")[2].split()
            parent, session = int(fields[1]), int(fields[3])
            if session in sessions or (cluster and parent == os.getpid()):
                seconds += sum(map(int, fields[11:15])) / tick
    return seconds


def _measure_in(folder: Path) -> Callable[[str, ExtractSettings], float]:
    def measure(store: str, settings: ExtractSettings) -> float:
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            output = run(folder / "corpus", folder / store, settings)
        rate = output.counts["utterances"] / (time.perf_counter() - start)
        print(store, f"{rate:.0f}/s", os.getloadavg(), file=sys.stderr, flush=True)
        return rate

    return measure


def _pool(folder: Path) -> float:
    """A plain process pool, one task per shard, which does not survive a crash."""
    start = time.perf_counter()
    unfinished = folder / "pool" / "unfinished"
    unfinished.mkdir(parents=True)
    intake = scan_manifest(folder / "corpus", ALONE, unfinished, folder / "store")
    tasks = plan_shards(intake, intake.clips != b"", ALONE, unfinished)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(_write, [(task, str(folder / "pool"), str(unfinished)) for task in tasks], chunksize=1)
    rate = len(intake.ids) / (time.perf_counter() - start)
    print("pool", f"{rate:.0f}/s", os.getloadavg(), file=sys.stderr, flush=True)
    return rate


def _write(task: ShardTask, store: str, unfinished: str) -> None:
    write_shard(task, ALONE, store, Path(unfinished))


def main() -> None:
    if sys.argv[1:2] == ["share"]:
        print_table(share_of_ours([int(size.replace(",", "")) for size in sys.argv[2:]] or list(SHARE_SIZES)))
        return
    print_table(distributed(int(sys.argv[1]) if len(sys.argv) > 1 else UTTERANCES))


if __name__ == "__main__":
    main()

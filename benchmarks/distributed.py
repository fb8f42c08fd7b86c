"""extract on a Flink cluster with one and with two workers, against the in-process runner and a plain process pool.

Wall time of the whole step, including the start of Beam's job server and the Python workers; the cluster itself is
running already. On two cores, two workers, two JVMs and the runner compete, so the rows show the overhead of
distribution, not how it scales over machines.

  python -m benchmarks.distributed [UTTERANCES]
"""

import contextlib
import io
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

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
    print_table(distributed(int(sys.argv[1]) if len(sys.argv) > 1 else UTTERANCES))


if __name__ == "__main__":
    main()

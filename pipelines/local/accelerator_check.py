"""Whether the accelerator of this machine trains as its CPU does, and how fast: `voxline check-accelerator`.

Recordings of tones go through ingest, convert and extract as in a run. Each network then trains on them in a process of
its own, in each precision: some steps whose losses are compared, and some that are timed. Where there is an
accelerator, a process without it computes the losses to compare with, by the CPU in float32; where there is none, the
steps in float32 are those. Both begin with the same weights and have the same batches. No network drops anything out,
because devices do not draw the same random numbers.

A network that does not end in time, or breaks, is a row that says so. The others are checked all the same.
"""

import collections
import contextlib
import dataclasses
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from voxline.data.dataset import Dataset
from voxline.errors import VoxlineError, WorkError
from voxline.families.family import find_family
from voxline.inference.tensorflow_import import has_accelerator_driver, start_tensorflow
from voxline.pipelines.config.load import load_config
from voxline.pipelines.local.checked_networks import NETWORKS, config_document, write_corpus
from voxline.pipelines.local.single_step import last_output, run_step
from voxline.progress import print_status
from voxline.store.scratch import scratch_root

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
COMPARED = 5
"""Steps whose losses are compared; the first of them builds the graph, so none is timed."""
CLOSE = {"float32": 0.01, "mixed_bfloat16": 0.05, "mixed_float16": 0.05}
"""Share of a loss by which it may differ from the CPU's in float32. NVIDIA's TF32 has 10 bits of a fraction."""
RATE = 1e-4
"""Learning rate: low, so that a difference comes from the computing, and not from a path that differs ever more."""
LEAST_TIMED = 3
LATE = "not in time"
DESCRIBED_SECONDS = 180.0
"""Time that a driver may take to start, as on a machine that was just booted."""
VOCODED_SECONDS = 10.0
ROUNDS = 3
SMI = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop-ms=200")
WORKER = ("-P", "-m", "voxline.pipelines.local.accelerator_check")
RESULT = "RESULT "
"""Begins a line of a worker that its parent reads; drivers print to standard output too."""


@dataclasses.dataclass(frozen=True)
class CheckOptions:
    """The extent of a check.

    Attributes:
      networks: of `NETWORKS`.
      steps: timed steps of each network in each precision, at most.
      small: networks of a few thousand weights on short recordings; None: where there is no accelerator.
      minutes: after which nothing more starts, and what runs is ended.
    """

    networks: tuple[str, ...] = tuple(NETWORKS)
    precisions: tuple[str, ...] = PRECISIONS
    steps: int = 50
    small: bool | None = None
    minutes: float = 8.0


@dataclasses.dataclass(frozen=True)
class TrainingRow:
    """A network that trained in a precision.

    Attributes:
      parameters: weights of the exported network.
      steps: timed ones.
      step_rate, utterance_rate: steps and utterances a second.
      data_wait: share of the time in which steps waited for their batches.
      memory: bytes in use at once; those of the whole process where a CPU trains.
      busy: share of its time that the device, or the processor's cores, worked; None: it does not tell.
      largest_batch: rows that fit the memory, of those tried; 0: none was tried.
      losses: of the compared steps.
      distance: largest difference of these from the CPU's, as a share; None: there is nothing to compare with.
      problem: why it did not train.
    """

    network: str
    precision: str
    parameters: int = 0
    steps: int = 0
    step_rate: float = 0.0
    utterance_rate: float = 0.0
    data_wait: float = 0.0
    memory: int = 0
    busy: float | None = None
    largest_batch: int = 0
    losses: tuple[float, ...] = ()
    distance: float | None = None
    problem: str = ""

    @property
    def verdict(self) -> str:
        if self.problem:
            return self.problem
        if self.distance is None:
            return "not compared"
        return "ok" if self.distance <= CLOSE[self.precision] else "DIFFERS"

    @property
    def is_bad(self) -> bool:
        return bool(self.problem) or self.verdict == "DIFFERS"


@dataclasses.dataclass(frozen=True)
class VocodingRow:
    """The speed of a vocoder in float32.

    Attributes:
      sample_rate: of its waveforms, in Hz.
      samples: made in a second.
    """

    network: str
    sample_rate: int = 0
    samples: float = 0.0
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class AcceleratorReport:
    """The outcome of a check.

    Attributes:
      accelerators: as they name themselves; empty: there is none.
      unchecked: networks that the time did not allow.
    """

    accelerators: tuple[str, ...]
    processor: str
    versions: str
    trainings: tuple[TrainingRow, ...]
    vocodings: tuple[VocodingRow, ...]
    unchecked: tuple[str, ...]

    @property
    def is_bad(self) -> bool:
        return any(row.is_bad for row in self.trainings) or any(row.problem for row in self.vocodings)

    def markdown(self) -> str:
        """Tables to paste."""
        lines = [
            f"Accelerator: {', '.join(self.accelerators) or _no_accelerator()}  ",
            f"Processor: {self.processor}  ",
            f"{self.versions}",
            "",
            "| network | weights | precision | steps/s | utterances/s | data wait | memory | busy | largest batch | "
            "loss beside the CPU's | verdict |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        lines += [_training_line(row) for row in self.trainings]
        if self.vocodings:
            lines += ["", "| vocoder | samples/s | times as fast as it plays | |", "| --- | --- | --- | --- |"]
            lines += [
                f"| {NETWORKS[row.network].title} | {row.samples:,.0f} | "
                f"{row.samples / max(row.sample_rate, 1):.3g} | {row.problem or 'ok'} |"
                for row in self.vocodings
            ]
        if self.unchecked:
            lines += ["", f"Not checked, because the time was over: {', '.join(self.unchecked)}"]
        return "\n".join(lines)


def _training_line(row: TrainingRow) -> str:
    title = NETWORKS[row.network].title
    if not row.steps:
        return f"| {title} | | {row.precision} | | | | | | | | {row.verdict} |"
    busy = "" if row.busy is None else f"{row.busy:.0%}"
    distance = "" if row.distance is None else f"{row.distance:.2%}"
    largest = f"{row.largest_batch:,}" if row.largest_batch else ""
    return (
        f"| {title} | {row.parameters:,} | {row.precision} | {row.step_rate:.3g} | {row.utterance_rate:.3g} | "
        f"{row.data_wait:.0%} | {row.memory / 1e9:.2f} GB | {busy} | {largest} | {distance} | {row.verdict} |"
    )


def check_networks(options: CheckOptions) -> AcceleratorReport:
    """Trains each network on this machine's accelerator, or on its CPU where there is none.

    Raises:
      WorkError: TensorFlow does not start.
    """
    deadline = time.monotonic() + 60 * options.minutes
    trainings: list[TrainingRow] = []
    vocodings: list[VocodingRow] = []
    unchecked: list[str] = []
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        folder = Path(scratch)

        # This process never imports TensorFlow: it would hold the accelerator's memory.
        with _Worker({"task": "describe"}, folder) as worker:
            found = list(worker.results(DESCRIBED_SECONDS))
        if not found:
            raise WorkError(f"TensorFlow does not start here: {worker.problem()}")
        (described,) = found
        accelerators = tuple(described["accelerators"])
        print_status(f"check-accelerator: {', '.join(accelerators) or _no_accelerator()}")
        small = not accelerators if options.small is None else options.small
        options = dataclasses.replace(options, small=small)
        write_corpus(folder / "corpus", small)

        # Each network may take its part of the time that is left, so what one does not use is the others'.
        for position, name in enumerate(options.networks):
            left = deadline - time.monotonic()
            if left <= 0:
                unchecked += options.networks[position:]
                break
            share = left / (len(options.networks) - position)
            check = _NetworkCheck(name, options, folder, bool(accelerators), share)
            trainings += check.train()
            vocodings += check.vocode()

    return AcceleratorReport(
        accelerators, _processor(), described["versions"], tuple(trainings), tuple(vocodings), tuple(unchecked)
    )


class _NetworkCheck:
    """The check of one network.

    Args:
      share: seconds that it may take; what then runs is ended.
    """

    def __init__(self, name: str, options: CheckOptions, folder: Path, has_accelerator: bool, share: float) -> None:
        self.name = name
        self.network = NETWORKS[name]
        self.options = options
        self.folder = folder
        self.has_accelerator = has_accelerator
        self.share = share
        self.deadline = time.monotonic() + share
        # The features of its recordings, as a run computes them; networks with the same ones share them.
        self.document = config_document(name, bool(options.small), folder)
        config = load_config([self.document])
        for step in ("ingest", "convert", "extract"):
            run_step(step, config, folder / "run" / name, {})
        self.dataset = last_output(folder / "run" / name, "extract") or ""

    def train(self) -> list[TrainingRow]:
        if not self.network.trains:
            return []

        # The losses to compare with are the CPU's: of a process that does not see the accelerator.
        reference = self.folder / f"{self.name}.npz"
        rows: list[TrainingRow] = []
        remaining = list(self.options.precisions)
        if self.has_accelerator or "float32" not in self.options.precisions:
            problem = self._write_reference(reference)
            if problem:
                rows.append(TrainingRow(self.name, "float32", problem=f"the CPU's own training: {problem}"))
                print_status(f"check-accelerator: {_summary(rows[-1])}")

        while remaining and time.monotonic() < self.deadline:
            with self._worker(task="train", precisions=remaining, on_cpu=False, reference=str(reference)) as worker:
                for values in worker.results(self.deadline - time.monotonic()):
                    row = TrainingRow(**{**values, "losses": tuple(values["losses"])})
                    remaining.remove(row.precision)
                    rows.append(row)
                    print_status(f"check-accelerator: {_summary(row)}")
            if remaining:  # a precision that breaks ends its process: the others get one of their own
                rows.append(TrainingRow(self.name, remaining.pop(0), problem=worker.problem()))
                print_status(f"check-accelerator: {_summary(rows[-1])}")
        return [*rows, *(TrainingRow(self.name, precision, problem=LATE) for precision in remaining)]

    def _write_reference(self, file: Path) -> str:
        """Lets the CPU train alone. Returns why it did not; empty: it did."""
        options: dict[str, Any] = {"precisions": ["float32"], "on_cpu": True, "steps": 0, "writes_reference": True}
        with self._worker(task="train", reference=str(file), **options) as worker:
            rows = list(worker.results(self.deadline - time.monotonic()))
        if not rows:
            return worker.problem()
        problem: str = rows[0]["problem"]
        return problem

    def vocode(self) -> list[VocodingRow]:
        if self.network.family != "vocoder":
            return []
        with self._worker(task="vocode", precisions=["float32"], on_cpu=False) as worker:
            rows = [VocodingRow(**values) for values in worker.results(self.deadline - time.monotonic())]
        rows = rows or [VocodingRow(self.name, problem=worker.problem())]
        for row in rows:
            print_status(f"check-accelerator: {self.network.title}: {row.problem or f'{row.samples:,.0f} samples/s'}")
        return rows

    def _worker(self, **request: Any) -> "_Worker":
        seconds = self.share / (len(self.options.precisions) + 1)
        shared = {"network": self.name, "document": self.document, "dataset": self.dataset, "seconds": seconds}
        shared["writes_reference"] = not self.has_accelerator
        return _Worker({**shared, "steps": self.options.steps, **request}, self.folder)


def _summary(row: TrainingRow) -> str:
    title = f"{NETWORKS[row.network].title}, {row.precision}"
    return f"{title}: {row.problem}" if row.problem else f"{title}: {row.step_rate:.3g} steps/s, {row.verdict}"


class _Worker:
    """A process that does one task, and its results as they come."""

    def __init__(self, request: dict[str, Any], folder: Path) -> None:
        self._log = folder / "worker.log"
        self._request = request
        self._is_late = False

    def __enter__(self) -> "_Worker":
        request = self._log.with_suffix(".json")
        request.write_text(json.dumps(self._request), encoding="utf-8")

        # Drivers and TensorFlow write much to standard error: its last line is kept for a process that breaks.
        with request.open("rb") as file, self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, *WORKER],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            )
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # Ctrl-C in the terminal reaches the worker too; any other end does not.
        if kind:
            self._process.kill()
        self._process.communicate()

    def results(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Yields what the process reports until it ends, or until the seconds are over."""
        timer = threading.Timer(min(max(seconds, 0.0), threading.TIMEOUT_MAX), self._end)
        timer.start()
        try:
            for line in self._process.stdout or ():
                if line.startswith(RESULT):
                    yield json.loads(line[len(RESULT) :])
            self._process.wait()
        finally:
            timer.cancel()

    def _end(self) -> None:
        self._is_late = True
        self._process.kill()

    def problem(self) -> str:
        """The reason for which it reported no more."""
        if self._is_late:
            return LATE

        # Python and TensorFlow write the reason last. A bar would end the table's cell.
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return said[-1][:200].replace("|", "/") if said else f"ended with status {self._process.returncode}"


def run_worker(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The task of a worker; yields its results."""
    start_tensorflow()
    from voxline.training import devices

    if request["task"] == "describe":
        tensorflow = sys.modules["tensorflow"]
        yield {
            "accelerators": devices.describe_accelerators(),
            "versions": f"Python {platform.python_version()}, TensorFlow {tensorflow.__version__}",
        }
        return

    # Before TensorFlow computes anything, or its devices are fixed.
    if request["on_cpu"]:
        devices.hide_accelerators()
    if request["task"] == "vocode":
        yield dataclasses.asdict(_vocode(request))
        return

    for precision in request["precisions"]:
        try:
            row = _train(request, precision)
        except VoxlineError as error:  # such as a network that a TPU cannot compile
            row = TrainingRow(request["network"], precision, problem=str(error))
        yield dataclasses.asdict(row)


def _build_task(request: dict[str, Any], precision: str) -> Any:
    config = load_config([request["document"], {"train": {"precision": precision}}])
    family = find_family(config.pipeline)
    settings = family.training_settings(config.section("train"))
    return family.build_task(settings, Dataset.read(request["dataset"]))


def _train(request: dict[str, Any], precision: str) -> TrainingRow:
    """Steps that are compared, steps that are timed, and the largest batch."""
    from voxline.training import memory
    from voxline.training.devices import has_accelerator

    task = _build_task(request, precision)
    module = task.module
    batches = task.train
    file = Path(request["reference"])
    reference: dict[str, Any] = {}
    # The first process begins with random weights, and all others with its.
    if file.exists():
        with np.load(file, allow_pickle=False) as arrays:
            reference = dict(arrays)
        expected = reference.pop("losses")
        module.restore({**module.state(), **reference})
    else:
        reference = module.state()
        expected = None

    # The sample has a few batches, so its epochs follow each other.
    memory.forget_peak_memory()
    endless = itertools.chain.from_iterable(map(batches.epoch, itertools.count()))
    compared = [
        module.train_step(batch, RATE, number).loss for number, batch in enumerate(itertools.islice(endless, COMPARED))
    ]
    if expected is None and precision == "float32" and request["writes_reference"]:
        np.savez(file, allow_pickle=False, losses=np.asarray(compared), **reference)
        expected = np.asarray(compared)
    distance = None if expected is None else float(np.max(np.abs(np.asarray(compared) / expected - 1)))
    # The CPU beside an accelerator is not timed.
    if not request["steps"]:
        return TrainingRow(request["network"], precision, losses=tuple(compared))

    # As the trainer does: the results of an accelerator are read some steps late, so that it waits for no step.
    late = task.settings.log_steps if has_accelerator() else 0
    unread: collections.deque[Any] = collections.deque()
    utterances = 0
    steps = 0
    waited = batches.waited
    with _busy_share() as busy:
        began = time.monotonic()
        for batch in itertools.islice(endless, request["steps"]):
            unread.append(module.train_step(batch, RATE, COMPARED + steps))
            if len(unread) > late:
                unread.popleft().loss  # noqa: B018 - read, the device has ended the step
            utterances += len(batch.ids)
            steps += 1
            if steps >= LEAST_TIMED and time.monotonic() - began > request["seconds"]:
                break
        for result in unread:
            result.loss  # noqa: B018
        seconds = time.monotonic() - began
        share = busy()

    # Before larger batches are tried, which take all the memory there is.
    used = memory.peak_memory()
    return TrainingRow(
        request["network"],
        precision,
        module.parameter_count,
        steps,
        steps / seconds,
        utterances / seconds,
        min((batches.waited - waited) / seconds, 1.0),
        used,
        share,
        _largest_batch(module, batches),
        tuple(compared),
        distance,
    )


def _largest_batch(module: Any, batches: Any) -> int:
    """Rows of the largest batch, of those tried, that fits an accelerator's memory; 0 where none is tried."""
    from voxline.training import devices, memory
    from voxline.training.batches import Batches
    from voxline.training.train_module import TrainModule

    if not devices.has_accelerator() or not isinstance(module, TrainModule) or not isinstance(batches, Batches):
        return 0
    batch = batches.read(memory.largest_plan(batches), 0, module.share)
    return len(batch.features) * memory.largest_multiple(module, batch)


def _vocode(request: dict[str, Any]) -> VocodingRow:
    """The speed of an exported vocoder, by TensorFlow on the device."""
    from voxline.inference.vocoder import Vocoder

    task = _build_task(request, "float32")
    features = task.dataset.features
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        model = Path(scratch) / "model"
        task.export(model, task.module.weights(), {})

        # ONNX Runtime's graph would run on the CPU.
        vocoder = Vocoder(model, engine="tensorflow")
        frames = round(VOCODED_SECONDS / features.hop_seconds)
        random = np.random.default_rng(0)
        mels = random.normal(-5, 1, (frames, features.mels)).astype(np.float32)
        vocoder.vocode([mels])  # builds the graph
        rates = []
        for _ in range(ROUNDS):
            began = time.monotonic()
            (waveform,) = vocoder.vocode([mels])
            rates.append(len(waveform) / (time.monotonic() - began))
    return VocodingRow(request["network"], features.sample_rate, statistics.median(rates))


@contextlib.contextmanager
def _busy_share() -> Iterator[Any]:
    """Yields a function that returns the share of the time that the device has worked; None: it does not tell."""
    from voxline.training.devices import has_accelerator

    # Of a CPU, the processor time of this process's threads.
    if not has_accelerator():
        began = time.monotonic(), time.process_time()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        yield lambda: (time.process_time() - began[1]) / max(time.monotonic() - began[0], 1e-9) / cores
        return

    # NVIDIA's program prints a share five times a second until it is stopped.
    try:
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
        command = [*SMI, f"--id={first}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603
    except OSError:  # a TPU, or a container without the program
        yield lambda: None
        return

    def share() -> float | None:
        process.terminate()
        output, _ = process.communicate()
        shares = [float(line) for line in output.split("\n") if line.strip().isdigit()]
        return statistics.fmean(shares) / 100 if shares else None

    try:
        yield share
    finally:
        process.kill()
        process.wait()


def _no_accelerator() -> str:
    if has_accelerator_driver():
        return "TensorFlow sees none, and this machine has a driver of one: see the extra gpu in docs/install.md"
    return "none: the processor trains"


def _processor() -> str:
    """The processor, its cores, and the vector instructions that decide how fast it computes."""
    with contextlib.suppress(OSError):
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        pairs = (line.split(":", 1) for line in described.split("\n") if ":" in line)
        values = {key.strip(): value.strip() for key, value in pairs}
        flags = values.get("flags", "").split()
        instructions = [name for flag, name in _INSTRUCTIONS.items() if flag in flags]
        return f"{values.get('model name', platform.machine())}, {os.cpu_count()} cores, {', '.join(instructions)}"
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"


_INSTRUCTIONS = {"avx2": "AVX2", "avx512f": "AVX-512", "amx_tile": "AMX"}


def main(arguments: Sequence[str] = ()) -> None:
    """Reads a request from standard input, and prints its results."""
    for result in run_worker(json.load(sys.stdin)):
        print(RESULT + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()

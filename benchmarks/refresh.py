"""What a refresh costs, as a share of a full one; and how fast a dataset is read after many refreshes.

A generated corpus is ingested, converted, validated, extracted and published; then it is changed and refreshed. The
steps are forks of one process that has loaded the config and imported what they share, as those of `voxline run` are;
each reads its settings from JSON, as a component does. Costs are processor time of that process, of the steps and of
their workers, including all imports and the config, so a busy machine matters little. What the command takes besides
is not in them: it imports kfp and its own modules, and writes the run's report, whatever the corpus.

  python -m benchmarks.refresh [UTTERANCES [SHORTEST LONGEST]]

Lengths are in seconds. The cost of a refresh depends on the lines of the corpus, that of a full run on its hours: the
shorter the utterances, the larger the shares.
"""

import contextlib
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.audio.worker_process import fork_workers
from voxline.garbage import collect_rarely, keep_all_objects, leave_garbage_at_exit
from voxline.idle_threads import let_idle_threads_sleep

if TYPE_CHECKING:
    from benchmarks.table import Row

# What only the process that measures needs is imported where it is used: the refresh has no part in it.

UTTERANCES = 20_000
LENGTHS = (2.0, 10.0)
"""Seconds: those of LJSpeech (1.1 to 10.1, 6.6 on average); LibriSpeech's are twice as long."""
RACY_SECONDS = 3.0
"""Ingest caches a file only if it is at least this old (components/ingest/audio_probe.py)."""
SMALLER = 10
"""Memory is compared with a corpus that is this many times smaller."""
REPEATS = 5
"""Refreshes after a small change, each after a change of its own, of which the median counts: one varies by 5%."""
EDITS, ROUNDS = 12, 9
RATE = 16_000
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TARGETS = {
    "nothing changed": 0.02,
    "1% changed": 0.02,
    "1% changed, spread over the corpus": 0.02,
    "10% changed": 0.15,
    "1% of the transcripts changed": 0.03,
    "all transcripts changed": 0.03,
}
_SHARED_BY_STEPS = (
    *("numpy", "voxline.store.step_cache", "voxline.store.local", "voxline.data.line_cache", "voxline.data.dataset"),
    "voxline.audio.decoding",
)
"""Of what the graph's process imports, the modules that the steps of a refresh use."""
TINY = 60
"""Utterances of a first refresh that writes byte code, which every installation has after its first run."""


def refreshes(utterances: int, lengths: tuple[float, float]) -> "list[Row]":
    """The cost of refreshes as shares of a full one, and memory against a smaller corpus."""
    import statistics
    import tempfile

    from benchmarks.table import Row

    what = f"refresh of {utterances:,} utterances of {lengths[0]:g} to {lengths[1]:g} s"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _refreshed(folder / "tiny", Corpus(folder / "tiny", TINY, lengths))
        small = _refreshed(folder / "small", Corpus(folder / "small", utterances // SMALLER, lengths))
        corpus = Corpus(folder / "large", utterances, lengths)
        time.sleep(RACY_SECONDS)  # real corpora are older
        full = _refreshed(folder / "large", corpus)
        print("full", full, file=sys.stderr)
        edits: dict[str, tuple[int, Callable[[], None]]] = {
            "nothing changed": (1, lambda: None),
            "1% changed": (REPEATS, lambda: corpus.record_again(utterances // 100)),
            "1% changed, spread over the corpus": (
                REPEATS,
                lambda: corpus.record_again(utterances // 100, spread=True),
            ),
            "10% changed": (1, lambda: corpus.record_again(utterances // 10)),
            "1% of the transcripts changed": (1, lambda: corpus.correct(utterances // 100)),
            "all transcripts changed": (1, lambda: corpus.correct(utterances)),
        }
        spent: dict[str, list[float]] = {}
        for change, (repeats, edit) in edits.items():
            spent[change] = []
            for _ in range(repeats):
                edit()
                time.sleep(RACY_SECONDS)  # as no night's refresh begins right after the last recording
                refresh = _refreshed(folder / "large", corpus)
                spent[change].append(refresh["seconds"])
                print(change, refresh, file=sys.stderr)

        # Once more in another store, for a machine may become slower or faster meanwhile.
        last = _refreshed(folder / "again", corpus)
        print("full", last, file=sys.stderr)
    whole = (full["seconds"] + last["seconds"]) / 2
    rows = []
    for change, seconds in spent.items():
        median = statistics.median(seconds)
        extremes = f" (of {min(seconds):.2f} to {max(seconds):.2f})" if len(seconds) > 1 else ""
        name = f"{what}, {change}, share of a full one"
        peer = f"{whole:.1f} s ({full['seconds']:.1f} before, {last['seconds']:.1f} after)"
        rows.append(Row.of(name, f"{median:.2f} s{extremes}", peer, median / whole, "<=", TARGETS[change]))
    for step, (of_small, of_large) in _pair_by_step(small["megabytes"], full["megabytes"]).items():
        what = f"memory of {step}, {utterances:,} utterances, x that of {utterances // SMALLER:,}"
        row = Row.of(what, f"{of_large:,.0f} MB", f"{of_small:,.0f} MB", of_large / of_small, "<=", 1.1)
        rows.append(row)
    return rows


def _pair_by_step(small: dict[str, float], large: dict[str, float]) -> dict[str, tuple[float, float]]:
    return {step: (small[step], large[step]) for step in large}


class Corpus:
    """Recordings of noise, FLAC, with a manifest."""

    def __init__(self, folder: Path, count: int, lengths: tuple[float, float]) -> None:
        import numpy as np

        self.folder, self._lengths = folder / "corpus", lengths
        self._random = np.random.default_rng(1)
        self._noise = np.cumsum(self._random.standard_normal(RATE * 60)) % 1 - 0.5
        self._texts = {number: " ".join(DIGITS[int(digit)] for digit in f"{number:05}") for number in range(count)}
        self._next = 0
        self.folder.mkdir(parents=True)
        for number in range(count):
            self._speak(number)
        self._write()

    def record_again(self, count: int, spread: bool = False) -> None:
        """Records utterances that follow each other, or that have the same number of others between them."""
        distance = len(self._texts) // count if spread else 1
        for _ in range(count):
            self._speak(self._next % len(self._texts))
            self._next += distance
        self._next += spread  # the next time others, also where these went once around

    def correct(self, count: int) -> None:
        self._texts |= {number: f"{text} zero" for number, text in list(self._texts.items())[:count]}
        self._write()

    def _speak(self, number: int) -> None:
        import soundfile

        samples, begin = int(self._random.uniform(*self._lengths) * RATE), int(self._random.integers(RATE * 45))
        level = self._random.uniform(0.1, 0.8)
        recording = self._noise[begin : begin + samples] * level
        soundfile.write(self.folder / f"{number:06}.flac", recording, RATE, subtype="PCM_16")

    def _write(self) -> None:
        with open(self.folder / "manifest.jsonl", "w", encoding="utf-8") as file:
            for number, text in self._texts.items():
                split = "test" if number % 20 == 0 else "dev" if number % 20 == 1 else "train"
                line = {"id": f"u{number:06}", "audio_filepath": f"{number:06}.flac", "text": text}
                file.write(json.dumps({**line, "speaker": f"s{number % 200:03}", "split": split}) + "\n")


def _refreshed(folder: Path, corpus: Corpus) -> dict[str, Any]:
    """Refreshes in a process of its own."""
    import subprocess

    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.refresh", "once", str(folder), str(corpus.folder)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder.parent / "byte-code")
    before = os.times()
    done = subprocess.run(
        command, cwd=Path(__file__).parent.parent, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": seconds, **json.loads(done.stdout.splitlines()[-1])}


def once(folder: Path, corpus: Path) -> None:
    """Runs one refresh; prints processor time and peak memory of each step."""
    store = folder / "store"
    datasets = folder / "datasets"
    used: dict[str, Any] = {"steps": {}, "megabytes": {}}
    # The first run starts Beam, as large corpora do, so both corpora that are compared include its memory.
    first = not (store / "extract").exists()

    # As the command does before it forks the process of a graph, and that process before it forks the steps.
    collect_rarely()
    leave_garbage_at_exit()
    let_idle_threads_sleep()
    section = _load_config(store, corpus, datasets, first)
    for module in _SHARED_BY_STEPS:
        importlib.import_module(module)

    def step(name: str, call: Callable[[], Any]) -> Path:
        """Runs a step in a fork, without the imports of other steps, as `pipelines/local/graph_process.py` does."""
        read, write = os.pipe()
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            status = 1
            keep_all_objects()
            try:
                fork_workers()
                os.write(write, str(call().folder).encode())
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        os.close(write)
        with open(read, "rb") as pipe:
            made = Path(pipe.read().decode())
        _, status, usage = os.wait4(child, 0)
        if status:
            sys.exit(f"{name} failed")
        used["steps"][name] = round(usage.ru_utime + usage.ru_stime, 2)
        used["megabytes"][name] = round(usage.ru_maxrss / 1024, 1)
        return made

    manifest = step("ingest", lambda: _ingest(store, section["corpus"]))
    wavs = step("convert", lambda: _convert(manifest, store, section["convert"]))
    step("validate", lambda: _validate(wavs, store, section["validate"]))
    dataset = step("extract", lambda: _extract(wavs, store, section["extract"]))
    step("publish", lambda: _publish(dataset, store, datasets, section["publish"]))
    print(json.dumps(used))


def _load_config(store: Path, corpus: Path, datasets: Path, first: bool) -> dict[str, str]:
    """Loads the config of the refresh; returns each section as JSON, as a step gets it."""
    from voxline.pipelines.config.load import load_config

    config = load_config(
        {
            "pipeline": "refresh",
            "name": "corpus",
            "store": str(store),
            "datasets": str(datasets),
            "corpus": {"uri": str(corpus), "format": "manifest"},
            "extract": {"beam_from_megabytes": 0} if first else {},
            "publish": {"dataset": "corpus"},
        },
        pipeline="refresh",
    )
    return {name: json.dumps(values) for name, values in config.plain().items()}


def _ingest(store: Path, settings: str) -> Any:
    from voxline.components.ingest.settings import CorporaSettings
    from voxline.components.ingest.step import run

    return run(store, CorporaSettings.of(settings))


def _convert(manifest: Path, store: Path, settings: str) -> Any:
    from voxline.components.convert.settings import ConvertSettings
    from voxline.components.convert.step import run

    return run(manifest, store, ConvertSettings.of(settings))


def _validate(wavs: Path, store: Path, settings: str) -> Any:
    from voxline.components.validate.settings import ValidateSettings
    from voxline.components.validate.step import run

    return run(wavs, store, ValidateSettings.of(settings))


def _extract(wavs: Path, store: Path, settings: str) -> Any:
    from voxline.components.extract.settings import ExtractSettings
    from voxline.components.extract.step import run

    return run(wavs, store, ExtractSettings.of(settings))


def _publish(dataset: Path, store: Path, datasets: Path, settings: str) -> Any:
    from voxline.components.publish.settings import PublishSettings
    from voxline.components.publish.step import run

    return run(dataset, store, datasets, PublishSettings.of(settings))


def reading() -> "Row":
    """Reads epochs of a dataset after many refreshes and of the same dataset extracted at once, alternately."""
    import statistics
    import tempfile

    import numpy as np
    import soundfile

    from benchmarks.table import Row
    from voxline.components.extract.settings import ExtractSettings
    from voxline.components.extract.step import run as extract
    from voxline.data.dataset import Dataset
    from voxline.data.manifest import Utterance, write_manifest
    from voxline.training.batches import Batches

    how = ExtractSettings(shard_megabytes=8)
    random = np.random.default_rng(2)
    noise = np.cumsum(random.standard_normal(RATE * 60)) % 1 - 0.5
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(sys.stderr):
        folder = Path(name)

        def spoken(number: int, take: int) -> Utterance:
            path, samples = folder / f"{number}-{take}.wav", int(random.uniform(1, 4) * RATE)
            soundfile.write(path, noise[take * RATE :][:samples], RATE, subtype="PCM_16")
            return Utterance(f"u{number}", str(path), samples / RATE, "some words", "s", "train", path.stem)

        corpus = {number: spoken(number, 0) for number in range(1_500)}
        for edit in range(EDITS):
            write_manifest(folder / "manifest.jsonl", corpus.values())
            edited = extract(folder, folder / "edited", how).folder
            for number in random.choice(1_500, 150, replace=False).tolist() if edit < EDITS - 1 else []:
                corpus[number] = spoken(number, edit + 1)
        fresh = extract(folder, folder / "fresh", how).folder
        datasets = [Dataset.read(edited), Dataset.read(fresh)]
        read = [Batches(dataset, "train", batch_size=16, time_stride=3, shuffled=True) for dataset in datasets]
        seconds: list[list[float]] = [[], []]
        for epoch in range(ROUNDS + 1):
            for which in (0, 1) if epoch % 2 else (1, 0):
                start = time.process_time()
                count = sum(len(batch.ids) for batch in read[which].epoch(epoch))
                seconds[which].append((time.process_time() - start) / count)
    ours, peer = ([one * 1e3 for one in each[1:]] for each in seconds)
    shards = [len(dataset.shards) for dataset in datasets]
    return Row.of(
        f"reading a dataset after {EDITS - 1} refreshes ({shards[0]} shards), x a fresh one ({shards[1]})",
        f"{statistics.median(ours):.3f} ms an utterance",
        f"{statistics.median(peer):.3f} ms an utterance",
        statistics.median(mine / theirs for mine, theirs in zip(ours, peer, strict=True)),
        "<=",
        1.05,
    )


def main() -> None:
    from benchmarks.table import print_table

    utterances = int(sys.argv[1]) if len(sys.argv) > 1 else UTTERANCES
    lengths = (float(sys.argv[2]), float(sys.argv[3])) if len(sys.argv) > 3 else LENGTHS
    print_table([reading(), *refreshes(utterances, lengths)])


if __name__ == "__main__":
    if sys.argv[1:2] == ["once"]:
        once(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()

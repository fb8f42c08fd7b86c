"""How cost grows with the corpus: processor time and memory per utterance of each step, as table and plot.

The recordings are tiny (0.12 s), to show the cost of an utterance besides its audio. Each step runs in a separate
process, and its child processes count, as do its imports. Memory is the peak of the largest process; the plot has
what is beyond that of the same step with ten utterances.

  python -m benchmarks.growth [UTTERANCES …]       default: 1,000 10,000 100,000, which also draws docs/growth.svg
  python -m benchmarks.growth lists [UTTERANCES …]   the steps that decode nothing; default: to 1,000,000
  python -m benchmarks.growth stores [UTTERANCES …]  a dataset is published and refreshed, and its store cleaned
  python -m benchmarks.growth contents [UTTERANCES …]  du and gc alone: a published dataset whose further rows are
                                                   generated, and their WAVs empty; default: to 1,000,000

The last three keep what they measure in benchmarks/growth.json, each size for itself, for `python -m benchmarks.hours`.
"""

import dataclasses
import functools
import hashlib
import json
import math
import multiprocessing
import os
import re
import shutil
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks.costs import Cost, record
from benchmarks.table import Row, print_table
from tests.extract.conftest import write_wav
from voxline.data.manifest import Utterance, write_manifest
from voxline.report.svg import Drawing, Scale
from voxline.store.hashing import hash_file

ROOT = Path(__file__).parent.parent
PLOT = ROOT / "docs" / "growth.svg"
SIZES = (1_000, 10_000, 100_000)
LONG_LISTS = (10_000, 100_000, 1_000_000)
LEAST_AGE = 3.0
"""Seconds; ingest reads a younger file again (components/ingest/audio_probe.py)."""
MOST_MEMORY = 1e9
NOTHING = 10
"""Utterances of the run whose memory counts as that of an empty corpus."""
RATE, SAMPLES = 16_000, 1_920

CONVERT = """
import sys
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
run(sys.argv[1], sys.argv[2], ConvertSettings(workers=1))
"""
EXTRACT = """
import sys
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run
run(sys.argv[1], sys.argv[2], ExtractSettings(beam_from_megabytes={from_megabytes}))
"""
INGEST = """
import sys
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.ingest.step import run
run(sys.argv[2], CorporaSettings.of({"uri": sys.argv[1], "format": "manifest"}))
"""
VALIDATE = """
import sys
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run
lenient = {"severity": "warning"}
run(sys.argv[1], sys.argv[2], ValidateSettings.of({"tfdv": "off", "unseen_characters": lenient}))
"""
AGAIN = " again"
OF_LISTS = {"ingest": INGEST, f"ingest{AGAIN}": INGEST, "validate": VALIDATE, f"validate{AGAIN}": VALIDATE}
"""The second time one text has changed."""
PUBLISH = """
import sys
from pathlib import Path
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run as extract
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.ingest.step import run as ingest
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run as validate
corpus, store = sys.argv[1:]
lenient = {"severity": "warning"}
ingested = ingest(store, CorporaSettings.of({"uri": corpus, "format": "manifest"})).folder
converted = convert(ingested, store, ConvertSettings(workers=1)).folder
validate(converted, store, ValidateSettings.of({"tfdv": "off", "unseen_characters": lenient}))
extracted = extract(converted, store, ExtractSettings(beam_from_megabytes=1e6)).folder
publish(extracted, store, Path(store) / "../datasets", PublishSettings())
"""
STORE = """
import shutil, sys
from pathlib import Path
from voxline.pipelines.cli.main import app
store = Path(sys.argv[2])
datasets = store / "../datasets"
command = ["store", *{command}, "--store", str(store), "--older-than", "0"]
if {needed}:
    command += ["--datasets", str(datasets)]
else:
    shutil.rmtree(datasets)
app(command)
"""
REFRESH = "refresh"
OF_STORES = {
    "publish": PUBLISH,
    REFRESH: PUBLISH,
    "store du": STORE.format(command=["du"], needed=True),
    "store gc, one refresh": STORE.format(command=["gc", "--yes"], needed=True),
    "store gc, everything": STORE.format(command=["gc", "--yes"], needed=False),
}
"""In one store: one text has changed before the refresh; at last no dataset needs anything."""
OF_CONTENTS = {
    "store du, generated rows": STORE.format(command=["du"], needed=True),
    "store gc of nothing, generated rows": STORE.format(command=["gc", "--yes"], needed=True),
    "store gc of everything, generated rows": STORE.format(command=["gc", "--yes"], needed=False),
}
KEPT = {"lists": OF_LISTS, "stores": OF_STORES, "contents": OF_CONTENTS}
STEPS = {
    "convert": CONVERT,
    "extract": EXTRACT.format(from_megabytes=1e6),
    "extract through Beam": EXTRACT.format(from_megabytes=0),
}
COLORS = {"--line": "#dfe1e5", "--series-1": "#2f6f9f", "--series-2": "#c4602f", "--series-3": "#4f8a4a"}
DARK = {"--line": "#353b43", "--series-1": "#74b3e0", "--series-2": "#ec9a6a", "--series-3": "#8cc785"}
"""Copied from the report's style.css, because a picture in a document has no style sheet."""


def growth(
    sizes: list[int], steps: Mapping[str, str], *, store: str = "", kept: bool = False
) -> dict[str, dict[int, Cost]]:
    """The costs of each step and corpus size.

    Args:
      steps: name → code. "… again" changes the list a little, and runs in the store of the step before it.
      store: name of that of all steps; empty: each has its own.
      kept: records each in benchmarks/growth.json.
    """
    costs: dict[str, dict[int, Cost]] = {step: {} for step in steps}
    for size in [NOTHING, *sizes]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            # In a process of its own: the peak of a child counts what its parent has in memory when it starts.
            generated = steps is OF_CONTENTS
            _in_a_process(write_corpus, folder / "corpus", NOTHING if generated else size)
            time.sleep(LEAST_AGE)
            if generated:
                _measured(PUBLISH, folder / "corpus", folder / store)
                _in_a_process(write_contents, folder, size)
            for step, code in steps.items():
                if step.endswith(AGAIN) or step == REFRESH:
                    _change_a_text(folder / "corpus" / "manifest.jsonl")
                store_folder = folder / (store or step.removesuffix(AGAIN))
                cost = _measured(code, folder / "corpus", store_folder)
                costs[step][size] = dataclasses.replace(cost, files=_count_files(store_folder))
                if kept and size != NOTHING:
                    record(step, size, costs[step][size])
                print(f"{step}, {size:,}: {costs[step][size].text}", file=sys.stderr, flush=True)
    return costs


def _in_a_process(write: Callable[[Path, int], None], folder: Path, size: int) -> None:
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(folder, size))
    writer.start()
    writer.join()
    if writer.exitcode:
        sys.exit(f"{write.__name__} failed: status {writer.exitcode}")


def _count_files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def _change_a_text(manifest: Path) -> None:
    """Every second call brings the list back to what it was, so that the next step has a change too."""
    changed = manifest.with_suffix(".changed")
    with open(manifest, "rb") as old, open(changed, "wb") as new:
        line = json.loads(old.readline())
        line["text"] = "other" if line["text"] != "other" else _text(0)
        new.write(json.dumps(line).encode() + b"\n")
        shutil.copyfileobj(old, new)
    changed.replace(manifest)


def write_corpus(folder: Path, size: int) -> None:
    """Noise, different in each recording."""
    write_manifest(folder / "manifest.jsonl", _recordings(folder, size))


def _recordings(folder: Path, size: int) -> Iterator[Utterance]:
    random = np.random.default_rng(7)
    for number in range(size):
        path = folder / "wavs" / f"{number // 1_000}" / f"{number}.wav"
        write_wav(path, random.standard_normal(SAMPLES) / 10, RATE)
        split = ("train", "train", "dev", "train", "test")[number % 5]
        yield Utterance(
            f"u{number:07}", str(path), SAMPLES / RATE, _text(number), f"s{number % 9}", split, hash_file(path)
        )


def write_hours(folder: Path, size: int) -> None:
    """Recordings of 5 s: 720 are an hour."""
    random = np.random.default_rng(7)
    utterances = []
    for number in range(size):
        path = folder / "wavs" / f"{number}.wav"
        write_wav(path, random.standard_normal(5 * RATE) / 10, RATE)
        utterances.append(
            Utterance(f"u{number:07}", str(path), 5.0, _text(number), f"s{number % 9}", "train", hash_file(path))
        )
    write_manifest(folder / "manifest.jsonl", utterances)


def write_contents(folder: Path, size: int) -> None:
    """Adds rows to the only version of a dataset, and to the store beside it their WAVs, which are empty."""
    (version,) = (folder / "datasets").glob("*/1/rows.jsonl")
    wavs = folder / "store" / "wavs"
    row = json.loads(version.read_text(encoding="utf-8").splitlines()[0])
    for number in range(256):
        (wavs / f"{number:02x}").mkdir(exist_ok=True)
    with open(version, "a", encoding="utf-8") as file:
        for number in range(NOTHING, size):
            key = hashlib.blake2b(b"%d" % number, digest_size=16).hexdigest()
            (wavs / key[:2] / f"{key}.wav").touch()
            file.write(json.dumps({**row, "id": f"u{number:07}", "text": _text(number), "audio_hash": key}) + "\n")


def rows(costs: dict[str, dict[int, Cost]]) -> list[Row]:
    """The cost per utterance of each corpus, against the smallest."""
    found = []
    for step, by_size in costs.items():
        (first, small), *larger = sorted((size, cost) for size, cost in by_size.items() if size != NOTHING)
        for size, cost in larger:
            ours, peer = (1e3 * one.seconds / many for one, many in ((cost, size), (small, first)))
            name = f"{step}: processor time an utterance of {size:,}, x of {first:,}"
            found.append(Row.of(name, f"{ours:.2f} ms", f"{peer:.2f} ms", ours / peer, "<=", 1.5))
    return found


def _text(number: int) -> str:
    """A text of its own for each of half a million."""
    return "".join(string.ascii_lowercase[number // 26**place % 26] for place in range(4))


def memory_rows(costs: dict[str, dict[int, Cost]]) -> list[Row]:
    """The memory of the largest corpus."""
    of_memory = []
    for step, by_size in costs.items():
        size, cost = max(by_size.items())
        share = cost.memory / MOST_MEMORY
        of_memory.append(Row.of(f"{step}: memory of {size:,}", f"{cost.memory / 1e6:.0f} MB", "1 GB", share, "<=", 1.0))
    return of_memory


def table(costs: dict[str, dict[int, Cost]]) -> str:
    """Costs an utterance."""
    lines = ["| step | utterances | processor time an utterance | memory an utterance |", "| --- | --- | --- | --- |"]
    for step, by_size in costs.items():
        memory = _memory_an_utterance(by_size)
        for size, cost in by_size.items():
            if size != NOTHING:
                time_each = f"{1e3 * cost.seconds / size:.2f} ms"
                lines.append(f"| {step} | {size:,} | {time_each} | {memory[size]:.2f} KB |")
    return "\n".join(lines)


def _memory_an_utterance(by_size: dict[int, Cost]) -> dict[int, float]:
    """KB, beyond the memory of the step with few utterances."""
    least = by_size[NOTHING].memory
    return {size: max(cost.memory - least, 0) / size / 1e3 for size, cost in by_size.items() if size != NOTHING}


def plot(costs: dict[str, dict[int, Cost]]) -> str:
    """Both figures over the size of the corpus, as one picture."""
    of_time = {
        step: {size: 1e3 * cost.seconds / size for size, cost in by_size.items() if size != NOTHING}
        for step, by_size in costs.items()
    }
    memory = {step: _memory_an_utterance(by_size) for step, by_size in costs.items()}
    return _standalone_svg([_curves(of_time, "ms an utterance"), _curves(memory, "KB an utterance")])


@dataclasses.dataclass(frozen=True)
class _OfSizes(Scale):
    """A logarithmic axis with a tick at each size."""

    sizes: tuple[int, ...] = ()

    @functools.cached_property
    def ticks(self) -> list[tuple[float, str]]:
        return [(math.log10(size), f"{size:,}") for size in self.sizes]


def _curves(values: dict[str, dict[int, float]], unit: str) -> str:
    sizes = tuple(sorted({size for of in values.values() for size in of}))
    room = 0.1
    drawing = Drawing(
        f"{unit} over the size of the corpus",
        "; ".join(f"{step}: {', '.join(f'{value:.2f}' for value in of.values())}" for step, of in values.items()),
        _OfSizes(math.log10(sizes[0]) - room, math.log10(sizes[-1]) + room, sizes=sizes),
        Scale(0.0, 1.06 * max(value for of in values.values() for value in of.values())),
        label="utterances",
        value_label=unit,
        series=list(values),
    )
    for place, of in enumerate(values.values()):
        points = [(math.log10(size), value) for size, value in of.items()]
        drawing.line(points, place, 1.5)
        drawing.dots(points, place, 1.9)
    return str(drawing.svg())


def _standalone_svg(pictures: list[str]) -> str:
    """The pictures next to each other in one SVG, with the colors that a page would define."""
    (width, height), *_ = [map(float, found) for found in re.findall(r'viewBox="0 0 (\S+) (\S+)"', pictures[0])]
    style = f"svg{{color:#23272e;{_css(COLORS)}}}@media(prefers-color-scheme:dark){{svg{{color:#dfe3e8;{_css(DARK)}}}}}"
    parts = [
        picture.replace("<svg ", f'<svg x="{place * (width + 20):g}" width="{width:g}" height="{height:g}" ', 1)
        for place, picture in enumerate(pictures)
    ]
    whole = len(pictures) * (width + 20) - 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole:g} {height:g}" width="{whole:g}" '
        f'font-family="sans-serif"><style>{style}</style>{"".join(parts)}</svg>\n'
    )


def _css(colours: dict[str, str]) -> str:
    return "".join(f"{name}:{colour};" for name, colour in colours.items())


def _measured(code: str, corpus: Path, store: Path) -> Cost:
    command = [sys.executable, "-W", "ignore", "-c", code, str(corpus), str(store)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    if status:
        sys.exit(f"a step failed: status {status}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def main() -> None:
    kind = sys.argv[1] if sys.argv[1:2] and sys.argv[1] in KEPT else ""
    sizes = [int(word.replace(",", "")) for word in sys.argv[2 if kind else 1 :]]
    if kind:
        default = SIZES if kind == "stores" else LONG_LISTS
        costs = growth(sizes or list(default), KEPT[kind], store="" if kind == "lists" else "store", kept=True)
        print(table(costs), file=sys.stderr)
        print_table([*rows(costs), *memory_rows(costs)])
        return
    costs = growth(sizes or list(SIZES), STEPS)
    print(table(costs), file=sys.stderr)
    if not sizes:
        PLOT.write_text(plot(costs), encoding="utf-8")
    print_table(rows(costs))


if __name__ == "__main__":
    main()

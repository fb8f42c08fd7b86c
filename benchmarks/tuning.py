"""A public recognizer before and after it is tuned on recordings of one person, beside one that starts from nothing.

  python -W ignore -m benchmarks.tuning PROMPTS TEXTS LIBRISPEECH PARENT    (make bench-parents PROMPTS=… does it too)

The recordings are the prompts of Debian's package asterisk-core-sounds-en-wav (CC BY-SA 3.0), of which TEXTS has a line
`name: text` each. A fifth is never trained on. The configs are those that `voxline config init` writes. What is tuned
writes as TEXTS does, with capitals and punctuation: errors are counted as written, and normalized: without case and
punctuation, numbers in words. What the parent forgets shows on the recordings of LibriSpeech, whose transcripts have
capitals alone. It resumes.
"""

import argparse
import contextlib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.leave_one_out import cpu_seconds
from benchmarks.table import Row, print_table
from voxline.metrics.evaluation import PROBE, BeforeInfo, Evaluation
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.scaffold import propose_config, write_config
from voxline.pipelines.graphs import steps_until
from voxline.pipelines.local.single_step import run_step
from voxline.store.files import write_text

LEFT_OUT = ("validate", "forecast", "push", "publish")
"""Steps of the graph that change no error rate."""
LOW_RANK = [
    "train.freeze=[]",
    "train.lora={rank: 8, alpha: 16, parts: [encoder/blocks/2-3, decoder/blocks]}",
    "train.learning_rate=1e-3",
]
"""Low-rank updates of the parts that the config of Whisper tiny trains."""
WAYS: dict[str, list[str]] = {"as the config says": [], "low-rank updates": LOW_RANK}


def rows(prompts: Path, texts: Path, librispeech: Path, parent: Path, folder: Path) -> list[Row]:
    """Error rates after tuning beside those before."""
    corpus = write_corpus(prompts, texts, folder / "corpus")
    config = write_config(propose_config(corpus, parent=str(parent)), folder / "tuned.yaml", replace=True)
    probe = _convert(librispeech, folder)

    table = []
    errors = []
    for number, (way, settings) in enumerate(WAYS.items()):
        start = cpu_seconds()
        values = [*settings, f"evaluate.probe={probe}"]
        evaluation = Evaluation.read(_run("evaluate", [config], values, folder / f"way-{number}"))
        spent = cpu_seconds() - start
        before = evaluation.info.before
        if before is None or before.missing:
            raise SystemExit(f"the parent was not measured: {before and before.missing}")

        after, untouched = _errors(before, "wer", "test")
        errors.append(after)
        name = f"{way}: prompts never trained on, as written"
        ours = f"{after:.1%}, {spent:.0f} CPU s"
        table.append(Row.of(name, ours, f"{untouched:.1%} before", after / untouched, "<=", _bound(untouched)))

        after, untouched = _errors(before, "wer_normalized", "test")
        name = f"{way}: prompts never trained on, normalized"
        before_text = f"{untouched:.1%} before"
        table.append(Row.of(name, f"{after:.1%}", before_text, after / untouched, "<=", _bound(untouched)))

        after, untouched = _errors(before, "wer_normalized", PROBE)
        name = f"{way}: LibriSpeech, difference"
        table.append(Row.of(name, f"{after:.1%}", f"{untouched:.1%} before", after - untouched, "<=", 0.01))

    difference = errors[1] - errors[0]
    name = "low-rank updates less as the config says, as written"
    table.append(Row.of(name, f"{errors[1]:.1%}", f"{errors[0]:.1%}", difference, "<=", 0.005))
    return table


def rows_from_nothing(folder: Path) -> list[Row]:
    """Error rates of a recognizer that starts from random weights, on the same split, without and with n-grams."""
    corpus = folder / "corpus"
    config = write_config(propose_config(corpus), folder / "nothing.yaml", replace=True)
    table = []
    for name, values in {"greedy": [], "with a language model": ["language.kind=ngram"]}.items():
        evaluation = Evaluation.read(_run("evaluate", [config], values, folder / "nothing"))
        error_rate = evaluation.info.metrics["wer"].value
        table.append(Row.of(f"from nothing, {name}, normalized", f"{error_rate:.1%}", "", error_rate or 0.0, "<=", 1.0))
    return table


def _bound(untouched: float) -> float:
    """The highest share of the parent's errors that may be left: half of them, or 3% of the words."""
    return round(max(0.5, 0.03 / untouched), 3)


def _errors(before: BeforeInfo, name: str, part: str) -> tuple[float, float]:
    """An error rate of the tuned model and of the parent."""
    metric = before.parts[part].metrics[name]
    if metric.value is None or metric.comparison is None or metric.comparison.champion_value is None:
        raise SystemExit(f"nothing was measured of {part}")
    return metric.value, metric.comparison.champion_value


def write_corpus(prompts: Path, texts: Path, folder: Path) -> Path:
    """The prompts that have a text, as LJSpeech's layout: metadata.csv and wavs."""
    (folder / "wavs").mkdir(parents=True, exist_ok=True)
    lines = []
    for line in texts.read_text(encoding="utf-8", errors="replace").splitlines():
        name, separator, text = line.partition(":")
        # A comment, or what is heard and is no speech: [this is a simple beep tone]
        spoken = re.sub(r"\s*\[.\]$", "", text.strip())
        recording = prompts / f"{name.strip().removesuffix('.wav')}.wav"
        if not separator or name.startswith(";") or not spoken or spoken[0] in "[<" or not recording.is_file():
            continue
        utterance = name.strip().removesuffix(".wav").replace("/", "_")
        shutil.copy(recording, folder / "wavs" / f"{utterance}.wav")
        lines.append(f"{utterance}|{spoken}|{spoken}\n")
    write_text(folder / "metadata.csv", "".join(lines))
    return folder


def _convert(librispeech: Path, folder: Path) -> Path:
    """The recordings of LibriSpeech as convert writes them, without a test split, so that all of them are measured."""
    corpus_values = [
        f"corpus.uri={librispeech.absolute()}",
        "corpus.split={by: utterance, dev: 0, test: 0}",
        "convert.frontend.kind=english_transcript",
    ]
    return _run("convert", [], corpus_values, folder / "probe")


def _run(last: str, files: list[Path], values: list[str], run_dir: Path) -> Path:
    """The folder of the last step."""
    names = [f"store={run_dir.parent / 'store'}", f"name={run_dir.name}"]
    config = load_config(files, [*values, *names], pipeline="asr")
    for name in steps_until("asr", last, config.optional_steps()):
        if name not in LEFT_OUT:
            with contextlib.redirect_stdout(sys.stderr):
                output: Any = run_step(name, config, run_dir, {})
    folder: Path = output.folder
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.tuning")
    parser.add_argument("prompts", type=Path, help="folder en_US_f_Allison of the package")
    parser.add_argument("texts", type=Path, help="file of lines `name: text`")
    parser.add_argument("librispeech", type=Path, help="folder in LibriSpeech's layout")
    parser.add_argument("parent", type=Path, help="folder of a public model")
    parser.add_argument("--folder", type=Path, default=Path("runs/tuning"), help="keeps what was trained")
    options = parser.parse_args()
    folder = options.folder.absolute()
    table = rows(options.prompts, options.texts, options.librispeech, options.parent, folder)
    # Those from nothing take a quarter of an hour more; a missed target shows with all rows.
    with contextlib.suppress(SystemExit):
        print_table(table)
    print_table([*table, *rows_from_nothing(folder)])

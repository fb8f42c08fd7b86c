"""A public recognizer before and after it is tuned on recordings of one person, beside one that starts from nothing.

  python -W ignore -m benchmarks.tuning PROMPTS TEXTS LIBRISPEECH PARENT    (make bench-parents PROMPTS=… does it too)

The recordings are the prompts of Debian's package asterisk-core-sounds-en-wav (CC BY-SA 3.0), of which TEXTS has a line
`name: text` each. They are five folds: each is tested by a model that was trained on the other four, so that all
prompts are measured, none by a model that heard it; a fold alone has too few words to tell a third from a half. The
configs are those that `voxline config init` writes. What is tuned writes as TEXTS does, with capitals and punctuation:
errors are counted as written, and normalized: without case and punctuation, numbers in words. What the parent forgets
shows on the recordings of LibriSpeech, whose transcripts have capitals alone. It resumes.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.table import Row, cpu_seconds, print_table, with_interval
from voxline.metrics.bootstrap import Bootstrap, SumAndWeight, aggregate
from voxline.metrics.evaluation import PROBE, Evaluation
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.scaffold import propose_config, write_config
from voxline.pipelines.graphs import steps_until
from voxline.pipelines.local.single_step import run_step
from voxline.store.files import write_text
from voxline.store.hashing import hash_value

LEFT_OUT = ("validate", "forecast", "push", "publish")
"""Steps of the graph that change no error rate."""
LOW_RANK = [
    "train.freeze=[]",
    "train.lora={rank: 12, alpha: 24, parts: [encoder/blocks/2-3, decoder/blocks]}",
    "train.learning_rate=3e-4",
    "train.rates={}",
]
"""Low-rank updates of the parts that the config of Whisper tiny trains, chosen on the dev split of a fold."""
FOLDS = 5
WAYS: dict[str, list[str]] = {"as the config says": [], "low-rank updates": LOW_RANK}


def rows(prompts: Path, texts: Path, librispeech: Path, parent: Path, folder: Path, count: int) -> list[Row]:
    """Error rates after tuning beside those before, over the first folds."""
    probe = _convert(librispeech, folder)
    table = []
    errors_after: dict[str, list[list[SumAndWeight]]] = {"as written": [], "normalized": []}
    for number, (way, settings) in enumerate(WAYS.items()):
        start = cpu_seconds()
        folds = []
        for fold in range(count):
            corpus = write_corpus(prompts, texts, folder / f"corpus-{fold}", fold)
            file = folder / f"tuned-{fold}.yaml"
            config = write_config(propose_config(corpus, parent=str(parent)), file, replace=True)
            values = [*settings, f"evaluate.probe={probe}"]
            folds.append(Evaluation.read(_run("evaluate", [config], values, folder / f"way-{number}-{fold}")))
            rates = [map(_rate, _errors(folds, name, "test")) for name in ("wer", "wer_normalized")]
            told = (f"{before:.1%} before and {after:.1%} after" for after, before in rates)
            print(f"{way}, {fold + 1} of {count} folds: {', normalized '.join(told)}", file=sys.stderr)
        spent = cpu_seconds() - start

        for counted, metric in {"as written": "wer", "normalized": "wer_normalized"}.items():
            after, before = _errors(folds, metric, "test")
            errors_after[counted].append(after)
            text, before_text = f"{with_interval(after)}, {spent:.0f} CPU s", f"{with_interval(before)} before"
            name = f"{way}: prompts never trained on, {counted}"
            table.append(Row.of(name, text, before_text, _rate(after) / _rate(before), "<=", _bound(before)))

        after, before = _errors(folds, "wer_normalized", PROBE)
        name = f"{way}: LibriSpeech, difference"
        difference = _rate(after) - _rate(before)
        table.append(Row.of(name, f"{_rate(after):.1%}", f"{_rate(before):.1%} before", difference, "<=", 0.01))

    for counted, (full, low_rank) in errors_after.items():
        name = f"low-rank updates less as the config says, {counted}"
        compared = Bootstrap().compare(low_rank, full, [""] * len(full))
        low, high = (f"{100 * end:+.1f}" for end in (compared.interval.low, compared.interval.high))
        text = f"{_rate(low_rank):.1%} ({low} to {high} points apart)"
        table.append(Row.of(name, text, f"{_rate(full):.1%}", compared.difference, "<=", 0.005))
    return table


def rows_from_nothing(folder: Path) -> list[Row]:
    """Error rates of a recognizer that starts from random weights, on the first fold, without and with n-grams."""
    corpus = folder / "corpus-0"
    config = write_config(propose_config(corpus), folder / "nothing.yaml", replace=True)
    table = []
    for name, values in {"greedy": [], "with a language model": ["language.kind=ngram"]}.items():
        evaluation = Evaluation.read(_run("evaluate", [config], values, folder / "nothing"))
        error_rate = evaluation.info.metrics["wer"].value
        table.append(Row.of(f"from nothing, {name}, normalized", f"{error_rate:.1%}", "", error_rate or 0.0, "<=", 1.0))
    return table


def _bound(before: list[SumAndWeight]) -> float:
    """The highest share of the parent's errors that may be left: half of them, or 3% of the words."""
    return round(max(0.5, 0.03 / _rate(before)), 3)


def _errors(folds: list[Evaluation], name: str, part: str) -> tuple[list[SumAndWeight], list[SumAndWeight]]:
    """Errors and words of each utterance of a part, by the tuned model and by the parent."""
    utterances = [utterance for evaluation in folds for utterance in evaluation.before_results(part)]
    before = [utterance.champion[name] for utterance in utterances if utterance.champion]
    if not utterances or len(before) < len(utterances):
        raise SystemExit(f"the parent was not measured on {part}")
    return [utterance.metrics[name] for utterance in utterances], before


def _rate(values: list[SumAndWeight]) -> float:
    return aggregate(values) or 0.0


def write_corpus(prompts: Path, texts: Path, folder: Path, fold: int) -> Path:
    """The prompts that have a text, with a manifest that has a fold as its test split."""
    (folder / "wavs").mkdir(parents=True, exist_ok=True)
    lines = []
    for name, spoken in read_texts(texts):
        recording = prompts / f"{name}.wav"
        if not recording.is_file():
            continue
        utterance = name.replace("/", "_")
        shutil.copy(recording, folder / "wavs" / f"{utterance}.wav")

        # A tenth of what is trained on validates. The name decides, so that other prompts move none.
        draw = int(hash_value(utterance), 16)
        split = "test" if draw % FOLDS == fold else "dev" if draw // FOLDS % 10 == 0 else "train"
        values = {"id": utterance, "audio_filepath": f"wavs/{utterance}.wav", "text": spoken, "split": split}
        lines.append(json.dumps(values, ensure_ascii=False) + "\n")
    write_text(folder / "manifest.jsonl", "".join(lines))
    return folder


def read_texts(texts: Path) -> Iterator[tuple[str, str]]:
    """The prompts that are speech: the name of each and what is said, without notes."""
    for line in texts.read_text(encoding="utf-8", errors="replace").splitlines():
        name, separator, text = line.partition(":")
        # A comment, or what is no speech: [this is a simple beep tone], (10 seconds of silence), IAX (note: …)
        spoken = re.sub(r"\s*\[.\]$|\s*\([^)]*\)$", "", text.strip())
        if separator and not name.startswith(";") and spoken and spoken[0] not in "[<(":
            yield name.strip().removesuffix(".wav"), spoken


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
    parser.add_argument("--folds", type=int, default=FOLDS, choices=range(1, FOLDS + 1), help="of five, how many")
    options = parser.parse_args()
    folder = options.folder.absolute()
    table = rows(options.prompts, options.texts, options.librispeech, options.parent, folder, options.folds)
    # Those from nothing take a quarter of an hour more; a missed target shows with all rows.
    with contextlib.suppress(SystemExit):
        print_table(table)
    print_table([*table, *rows_from_nothing(folder)])

"""A history of real runs over a corpus that changes, and what is forecast from it.

  python -m benchmarks.history [FOLDER] [RUNS]      (make bench-history; again, it resumes)

A small recognizer is trained again RUNS times (24), each time on the speakers of before and a new one, from the model
in service. Two faults are planted, and one run has no change:

  run 9    a third of the recordings of train are cut off in their header, as by a copy that failed
  run 12   the transcripts of half of train are exchanged among themselves
  run 15   the corpus is that of the run before

Then `voxline runs history` and `voxline runs forecast` print what they make of it. Dev and test never change.
"""

import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from voxline.store.files import read_json, write_text

RUNS, FIRST_SPEAKERS = 24, 10
CUT_OFF, EXCHANGED, UNCHANGED = 9, 12, 15
NAME = "weekly"
CONFIG = """
name: weekly
corpus: {{uri: {corpus}, max_reject_share: 0.5}}
convert: {{max_reject_share: 0.5}}
extract: {{features: {{mels: 24}}}}
train:
  epochs: {epochs}
  batch_size: 8
  learning_rate: {rate}
  start: {start}
  model: {{layers: 1, units: 64}}
  blank_plateau: {{severity: "off"}}
evaluate: {{bootstrap_samples: 500}}
push: {{limits: {{wer: 0.9}}}}
"""


def main(folder: Path, runs: int) -> None:
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    whole, registry = folder / "corpus", folder / "registry"
    size = ["train_speakers=33", "dev_speakers=2", "test_speakers=4", "utterances_per_speaker=16"]
    _voxline("corpus", "demo", str(whole), *[part for one in size for part in ("--set", one)])
    print("| run | train speakers | what is planted | verdict | wall s | CPU s |\n|" + " --- |" * 6, flush=True)
    for number in range(runs):
        run_dir = folder / f"run-{number:02d}"
        record = run_dir / "run.json"
        cost = ("before", "")
        if not record.is_file() or read_json(record)["status"] != "succeeded":
            corpus = _corpus_of(folder, whole / "LibriSpeech", number)
            text = CONFIG.format(
                corpus=corpus,
                epochs=3 if number else 16,
                rate=0.003 if number else 0.005,
                start="{model: asr@production, generations: 1000, replay: 0.8}" if number else "{}",
            )
            write_text(folder / "weekly.yaml", text)
            begin, before = time.monotonic(), _cpu_seconds()
            locations = [f"store={folder / 'store'}", f"registry={registry}"]
            settings = [part for one in locations for part in ("--set", one)]
            _voxline("run", "asr", "--config", str(folder / "weekly.yaml"), *settings, "--run-dir", str(run_dir))
            cost = (f"{time.monotonic() - begin:.0f}", f"{_cpu_seconds() - before:.0f}")
        planted = {CUT_OFF: "cut off", EXCHANGED: "transcripts exchanged", UNCHANGED: "no change"}.get(number, "")
        cells = (str(number), str(_speakers(number)), planted, read_json(record)["reason"], *cost)
        print(f"| {' | '.join(cells)} |", flush=True)
    for command in ("history", "forecast"):
        print(f"\n$ voxline runs {command} registry --name {NAME}", flush=True)
        _voxline("runs", command, str(registry), "--name", NAME, shown=True)


def _speakers(number: int) -> int:
    return FIRST_SPEAKERS + number - (number >= UNCHANGED)


def _corpus_of(folder: Path, whole: Path, number: int) -> Path:
    """The corpus of a run, whose recordings are links to those of the whole one."""
    corpus = folder / "corpora" / f"{number:02d}"
    shutil.rmtree(corpus, ignore_errors=True)
    for split in sorted(whole.iterdir()):
        if not split.is_dir():
            shutil.copyfile(split, _made(corpus / split.name))
            continue
        speakers = sorted(one for one in split.iterdir() if one.is_dir())
        if split.name.startswith("train"):
            speakers = speakers[: _speakers(number)]
        for file in (file for speaker in speakers for file in speaker.rglob("*") if file.is_file()):
            _made(corpus / file.relative_to(whole)).hardlink_to(file)
    chance = random.Random(number)
    train = [one for one in corpus.iterdir() if one.name.startswith("train")]
    if number == CUT_OFF:
        recordings = sorted(file for one in train for file in one.rglob("*.flac"))
        for file in chance.sample(recordings, len(recordings) // 3):
            _replace(file, file.read_bytes()[:20])
    if number == EXCHANGED:
        for file in sorted(file for one in train for file in one.rglob("*.trans.txt"))[::2]:
            lines = [line.split(" ", 1) for line in file.read_text(encoding="utf-8").splitlines()]
            texts = [text for _, text in lines]
            exchanged = texts[1:] + texts[:1]
            pairs = zip(lines, exchanged, strict=True)
            _replace(file, "".join(f"{name} {text}\n" for (name, _), text in pairs).encode())
    return corpus


def _made(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _replace(file: Path, content: bytes) -> None:
    """In place of a link, so that the whole corpus stays as it is."""
    file.unlink()
    file.write_bytes(content)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _voxline(*arguments: str, shown: bool = False) -> None:
    command = [sys.executable, "-P", "-m", "voxline", *arguments]
    done = subprocess.run(command, stdout=None if shown else sys.stderr, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[3:])}: status {done.returncode}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Path(given[0] if given else "runs/bench-history"), int(given[1]) if len(given) > 1 else RUNS)

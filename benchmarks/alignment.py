"""An hour of recording aligned with its text: edges, what is named, memory over 15, 30 and 60 minutes, and noise.

The utterances of a manifest are joined with silence between, until the recording is long enough; each time all have
been used, they come again in another order. Of 20 lines one is not spoken, and one that is spoken is not written.

  python -m benchmarks.alignment MODEL MANIFEST   # <registry>/<model>; of ingest, or of `voxline corpus demo`

`make bench-align` generates the utterances, of speakers and sentences that `make demo` does not have.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

import voxline
from benchmarks.table import Row, peak_memory, print_table
from voxline.data.manifest import Utterance
from voxline.inference.alignment import RecordingAlignment
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import read_model_info
from voxline.registry.models import find_model

MINUTES = (15, 30, 60)
EDGE_SECONDS = 0.05
MARGIN_SECONDS = 0.1
"""Before and after the speech of each generated utterance, exactly (`demo_corpus.acoustics.trim_silence`)."""
SILENCE, NOISE = 3e-5, 4e-3
"""Standard deviations of what is between utterances, and in a noisy recording also under them: -90 and -48 dB."""
ALIGN = "--align"


@dataclasses.dataclass(frozen=True)
class JoinedRecording:
    """Utterances that follow each other.

    Attributes:
      lines: the text.
      spoken: where the lines are that are spoken, in seconds, by number from 1: the generator knows it.
      missing: numbers of the lines that are not.
      extra: where something is spoken that is not in the text.
    """

    lines: list[str]
    spoken: dict[int, tuple[float, float]]
    missing: set[int]
    extra: list[tuple[float, float]]

    @classmethod
    def write(
        cls,
        file: Path,
        utterances: list[Utterance],
        rate: int,
        random: Any,
        minutes: float,
        noise: float = SILENCE,
    ) -> "JoinedRecording":
        """Writes the audio, block by block; all utterances are used once if `minutes` is 0."""
        made = cls([], {}, set(), [])
        length = 0
        with soundfile.SoundFile(file, "w", rate, 1) as out:

            def add(samples: Any) -> None:
                nonlocal length
                out.write((samples + noise * random.standard_normal(len(samples))).astype(np.float32))
                length += len(samples)

            for number, one in enumerate(_in_turn(utterances, random, once=not minutes)):
                if minutes and length > minutes * 60 * rate:
                    break
                if number % 20 != 14:
                    made.lines.append(one.text)
                if number % 20 == 9:
                    made.missing.add(len(made.lines))
                    continue
                add(np.zeros(int(random.uniform(0.2, 1.0) * rate)))
                samples = voxline.load_audio(one.audio_filepath, rate, one.offset, one.duration)
                margin, start = round(MARGIN_SECONDS * rate), length / rate
                add(samples[margin:-margin])
                if number % 20 == 14:
                    made.extra.append((start, length / rate))
                else:
                    made.spoken[len(made.lines)] = start, length / rate
            add(np.zeros(rate))
        return made

    def score(self, found: RecordingAlignment, where: str = "") -> list[Row]:
        """How much of it was found.

        Args:
          where: for the rows' names.
        """
        edges, words = [], 0
        for one in found.utterances:
            if one.line in self.spoken:
                words += len(one.words)
                if one.text == self.lines[one.line - 1]:
                    start, end = self.spoken[one.line]
                    edges += [abs(one.start - start), abs(one.end - end)]
        near = sum(edge <= EDGE_SECONDS for edge in edges)
        wanted = sum(len(self.lines[line - 1].split()) for line in self.spoken)
        named = {one.line for one in found.missing if one.text == self.lines[one.line - 1]}
        heard = sum(
            any(min(b, one.end) - max(a, one.start) > (b - a) / 2 for one in found.unwritten) for a, b in self.extra
        )
        wrong = len(named - self.missing) + len(found.unwritten) - heard
        told = f"{len(self.missing & named)} and {heard}; {wrong} wrong"
        share = (len(self.missing & named) + heard) / max(1, len(self.missing) + len(self.extra))
        name = f"edges within 50 ms (median {1000 * np.median(edges):.1f} ms), all of {len(self.spoken):,} lines{where}"
        all_edges = 2 * len(self.spoken)
        aligned = f"align {found.seconds:.0f} s: words placed{where}"
        return [
            Row.of(aligned, f"{words:,}", f"{wanted:,}", words / wanted, ">=", 0.99),
            Row.of(name, f"{near:,}", f"{all_edges:,}", near / all_edges, ">=", 0.97 if where else 0.99),
            Row.of(
                "lines not spoken, and utterances not written, that are named", told,
                f"{len(self.missing)} and {len(self.extra)}", share, ">=", 0.95,
            ),
        ]  # fmt: skip


def _in_turn(utterances: list[Utterance], random: Any, *, once: bool) -> Iterator[Utterance]:
    while True:
        yield from (utterances[index] for index in random.permutation(len(utterances)))
        if once:
            return


def _utterances(manifest: Path) -> Iterator[Utterance]:
    """Of a manifest whose paths may be relative, and which may have no durations: a generated corpus has them so."""
    for line in manifest.read_text(encoding="utf-8").splitlines():
        values = json.loads(line)
        file = manifest.parent / values["audio_filepath"]
        seconds = values.get("duration") or soundfile.info(file).duration
        yield Utterance(values["id"], str(file), seconds, values["text"], values["speaker"], values["split"])


def main(model: str, manifest: str) -> None:
    """Prints the table."""
    model = str(find_model(model))
    utterances = list(_utterances(Path(manifest).absolute()))
    rate = read_model_info(model).sample_rate
    rows: list[Row] = []
    peaks = []
    for minutes, noise in (*((minutes, SILENCE) for minutes in MINUTES), (MINUTES[-1], NOISE)):
        with tempfile.TemporaryDirectory() as work:
            recording, text = Path(work, "recording.flac"), Path(work, "text.txt")
            joined = JoinedRecording.write(recording, utterances, rate, np.random.default_rng(3), minutes, noise)
            text.write_text("\n".join(joined.lines), encoding="utf-8")
            command = [sys.executable, "-m", "benchmarks.alignment", ALIGN, model, str(recording), str(text)]
            done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        found = done["found"]
        if noise == NOISE:
            rows += joined.score(_read(found), ", in noise of -48 dB")[:2]
            break
        peaks.append(done["peak_mb"])
        if minutes == MINUTES[-1]:
            rows += joined.score(_read(found))
            spent = done["cpu_seconds"]
            rows.append(
                Row.of("CPU time", f"{spent:.1f} s", f"{found['seconds']:.0f} s", spent / found["seconds"], "<=", 0.1)
            )
    for minutes, peak in zip(MINUTES, peaks, strict=True):
        name = f"memory for {minutes} minutes, at its peak; peer: {MINUTES[0]} minutes"
        rows.append(Row.of(name, f"{peak:.0f} MB", f"{peaks[0]:.0f} MB", peak / peaks[0], "<=", 1.15))
    print_table(rows)


def _align(model: str, recording: str, text: str) -> None:
    """In a process of its own, whose peak is that of one recording."""
    recognizer = Recognizer(model, language_model=False)
    lines = Path(text).read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:  # compiles
        samples, rate = soundfile.read(recording, frames=20 * recognizer.sample_rate)
        soundfile.write(Path(folder, "start.flac"), samples, rate)
        voxline.align_recording(recognizer, Path(folder, "start.flac"), lines[:5])
    before = time.process_time()
    found = voxline.align_recording(recognizer, recording, lines)
    spent = time.process_time() - before
    peak = peak_memory() / 2**20
    print(json.dumps({"found": dataclasses.asdict(found), "cpu_seconds": spent, "peak_mb": peak}))


def _read(found: dict[str, Any]) -> RecordingAlignment:
    from voxline.inference.alignment import AlignedUtterance, MissingText, UnwrittenAudio

    return RecordingAlignment(
        [AlignedUtterance(**one) for one in found["utterances"]],
        [MissingText(**one) for one in found["missing"]],
        [UnwrittenAudio(**one) for one in found["unwritten"]],
        found["seconds"],
    )


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if sys.argv[1:2] == [ALIGN]:
        _align(*sys.argv[2:])
    else:
        main(*sys.argv[1:])

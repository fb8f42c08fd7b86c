"""How well a recognizer of FSDD's digits does on a speaker whom it has never heard, for each of the six.

  python -W ignore -m benchmarks.leave_one_out FSDD_FOLDER   (make leave-one-out FSDD=… SEEDS="1 2 3"; it resumes)

For each speaker `configs/asr/fsdd-unseen-speaker.yaml` is trained on the other five and on generated voices, and tested
on all 500 recordings of the sixth, by the pipeline's own steps. With `--parent FOLDER`, a public model as the Hub has
it, `configs/asr/fsdd-parent.yaml` is trained, without generated voices.

Where there are several choices of settings, the choice for a speaker is nested: it never looks at that speaker. The six
are two halves. Each choice is trained on one half and tested on the other, once each way. For a speaker, the choice
counts that has the fewest errors on the other two speakers of the speaker's half, by the network of the other half,
which has heard none of the three.

With `--parent` and `--hide 0.8`, four fifths of the training transcripts are hidden. For each speaker the same
settings are trained on the rest alone, on the rest and on drafts of the hidden (`voxline corpus label`: two trainings
on the rest, of two seeds, must agree), and on all transcripts. No draft is of the speaker who tests.

Intervals resample recordings, each with its errors at all seeds, for six speakers are too few to resample: they say how
exact an error rate is for these speakers, and not how much another speaker may differ.

CPU seconds are processor time of this process and its children; of the steps train and evaluate for a fold, since all
folds share the other steps' work, and of all steps in the last line.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

THREADS = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
os.environ |= {**THREADS, "TF_CPP_MIN_LOG_LEVEL": "2"}  # before TensorFlow is imported

from benchmarks.table import cpu_seconds, with_interval  # noqa: E402
from voxline.components.demo_corpus.settings import WordsCorpusSettings  # noqa: E402
from voxline.components.demo_corpus.step import run as generate  # noqa: E402
from voxline.components.ingest.corpora.fsdd import WORDS  # noqa: E402
from voxline.data.manifest import read_manifest  # noqa: E402
from voxline.feedback.drafting import DraftSettings, draft_corpus  # noqa: E402
from voxline.metrics.bootstrap import Bootstrap, SumAndWeight, aggregate  # noqa: E402
from voxline.metrics.evaluation import Evaluation, UtteranceResult  # noqa: E402
from voxline.pipelines.config.load import load_config  # noqa: E402
from voxline.pipelines.graphs import steps_until  # noqa: E402
from voxline.pipelines.local.single_step import run_step  # noqa: E402
from voxline.store.files import read_json, write_json, write_text  # noqa: E402
from voxline.store.hashing import hash_value  # noqa: E402

CONFIG = "configs/asr/fsdd-unseen-speaker.yaml"
OF_PARENT = "configs/asr/fsdd-parent.yaml"
HALVES = (("george", "jackson", "lucas"), ("nicolas", "theo", "yweweler"))
SPEAKERS = tuple(sorted(speaker for half in HALVES for speaker in half))
LEFT_OUT = ("validate", "forecast", "push", "publish")
"""Steps of the graph that change no error rate."""
OF_A_FOLD = ("train", "export", "language", "evaluate")

Choices = Mapping[str, Sequence[str]]
"""Name of a choice of settings → its assignments, such as `train.epochs=20`."""


@dataclasses.dataclass(frozen=True)
class Fold:
    """One training, tested on speakers whom it has not heard.

    Attributes:
      cpu_seconds: of the steps in `OF_A_FOLD`.
      model: train's folder.
    """

    results: list[UtteranceResult]
    cpu_seconds: float
    model: Path

    def errors(self, speaker: str) -> float:
        counted = [one.metrics["wer"].sum for one in self.results if one.slices["speaker"] == f"fsdd-{speaker}"]
        if not counted:
            raise ValueError(f"no recording of {speaker} was tested")
        return sum(counted)


class Folds:
    """Trainings in a folder; what is finished there is not trained again, and keeps the cost that it had.

    Of a training that was killed and continued, what it cost before is not known.

    Args:
      parent: folder of a public model to start from; None: from random weights, with generated voices.
    """

    def __init__(self, corpus: Path, folder: Path, parent: Path | None = None) -> None:
        self._corpus = corpus
        self._folder = folder.absolute()
        self._config = OF_PARENT if parent else CONFIG
        self._costs = self._folder / "costs.json"
        self._folder.mkdir(parents=True, exist_ok=True)
        if parent:
            self._data = {"corpus.uri": corpus, "train.start.model": parent.absolute()}
        else:
            with contextlib.redirect_stdout(sys.stderr):
                generated = generate(self._folder / "voices", WordsCorpusSettings())
            self._data = {"corpus.corpora.fsdd.uri": corpus, "corpus.corpora.voices.uri": generated.path("corpus")}
        self._split = "corpus.split" if parent else "corpus.corpora.fsdd.split"
        self.cpu_seconds = 0.0
        """Of all steps that this process has run."""

    def run(self, tested: Sequence[str], seed: int, assignments: Sequence[str] = ()) -> Fold:
        """Trains on all but the tested speakers."""
        run_dir = self._folder / f"without-{'-'.join(tested)}"
        given = {
            "name": run_dir.name,
            "store": self._folder / "store",
            **self._data,
            f"{self._split}.test_speakers": f"[{', '.join(tested)}]",
            "train.seed": seed,
        }
        values = [*(f"{key}={value}" for key, value in given.items()), *assignments]
        config = load_config([self._config], values, pipeline="asr")
        costs: dict[str, float] = read_json(self._costs) if self._costs.is_file() else {}
        seconds = 0.0
        model = Path()
        for name in steps_until("asr", "evaluate", config.optional_steps()):
            if name in LEFT_OUT:
                continue
            before = cpu_seconds()
            with contextlib.redirect_stdout(sys.stderr):
                output = run_step(name, config, run_dir, {})
            model = output.folder if name in ("train", "export") else model
            spent = cpu_seconds() - before
            self.cpu_seconds += spent
            spent = costs.setdefault(output.folder.name, spent)
            seconds += spent if name in OF_A_FOLD else 0.0
            write_json(self._costs, costs)
        return Fold(Evaluation.read(output.folder).results, seconds, model)


def choose(folds: Folds, choices: Choices) -> dict[str, str]:
    """The choice of settings for each speaker, by recordings of others; prints what decides."""
    if len(choices) == 1:
        return dict.fromkeys(SPEAKERS, next(iter(choices)))
    errors: dict[str, dict[str, float]] = {}
    for name, given in choices.items():
        tested = {half: folds.run(half, 1, given) for half in HALVES}
        errors[name] = {speaker: fold.errors(speaker) for half, fold in tested.items() for speaker in half}
    _show("trained on three speakers, tested on the other three", *SPEAKERS, "mean", "settings")
    _show(*["---"] * 9)
    for name, given in choices.items():
        rates = [errors[name][speaker] / 500 for speaker in SPEAKERS]
        _show(name, *(f"{rate:.1%}" for rate in rates), f"{sum(rates) / 6:.1%}", " ".join(given) or "as in the config")
    print()
    return nested_choice(errors)


def nested_choice(errors: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """The choice for each speaker: the one with the fewest errors on the others of its half; of equal ones the first.

    Args:
      errors: by choice and speaker, of networks that have heard nobody of the speaker's half.

    >>> errors = {"plain": dict.fromkeys(SPEAKERS, 50), "other": {**dict.fromkeys(SPEAKERS, 60), "george": 10}}
    >>> nested_choice(errors)["george"], nested_choice(errors)["lucas"], nested_choice(errors)["theo"]
    ('plain', 'other', 'plain')
    """
    return {
        speaker: min(errors, key=lambda name: sum(errors[name][other] for other in half if other != speaker))
        for half in HALVES
        for speaker in half
    }


def main(
    corpus: Path,
    seeds: Sequence[int],
    folder: Path,
    choices: Choices,
    speakers: Sequence[str],
    given: Sequence[str] = (),
    parent: Path | None = None,
) -> None:
    """
    Args:
      given: assignments to all settings, before those of a choice.
      parent: folder of a public model to start from.
    """
    folds, choices = Folds(corpus, folder, parent), {name: [*given, *one] for name, one in choices.items()}
    chosen = choose(folds, choices)
    several = len(choices) > 1
    columns = ["held out", "word error rate, 95% interval", "by seed", "CPU s a fold"]
    _show(*columns, *(["settings"] if several else []))
    _show(*["---"] * (len(columns) + several))
    together: list[SumAndWeight] = []
    each, spent = [], []
    for speaker in speakers:
        made = [folds.run([speaker], seed, choices[chosen[speaker]]) for seed in seeds]
        summed = _by_recording(made)
        together += summed
        each.append(aggregate(summed) or 0.0)
        spent += [fold.cpu_seconds for fold in made]
        seconds = sum(fold.cpu_seconds for fold in made) / len(seeds)
        by_seed = ", ".join(f"{aggregate(_by_recording([fold])):.1%}" for fold in made)
        _show(speaker, with_interval(summed), by_seed, f"{seconds:.0f}", *([chosen[speaker]] if several else []))
    mean = f"{sum(each) / len(each):.1%}"
    interval = Bootstrap().interval(together, [""] * len(together))
    highest = f"highest {max(each):.1%}, lowest {min(each):.1%}"
    seconds = sum(spent) / len(spent)
    _show(f"mean of {len(each)}", f"{mean} ({interval.low:.1%} to {interval.high:.1%})", highest, f"{seconds:.0f}")
    print(f"\n{len(spent)} trainings; {folds.cpu_seconds:.0f} CPU seconds of all steps now", flush=True)


def compare_with_drafts(
    corpus: Path, folder: Path, parent: Path, speakers: Sequence[str], seed: int, hidden: float, given: Sequence[str]
) -> None:
    """Prints the error rates of a few transcripts, of these with drafts, and of all transcripts.

    Args:
      hidden: share of the training speakers' transcripts.
    """
    _show("held out", "few transcripts, two seeds", "few, and drafts", "all transcripts", "drafts", "of these wrong")
    _show(*["---"] * 6)
    together: dict[str, list[SumAndWeight]] = {"few": [], "drafts": [], "all": []}
    drafted = wrong = recordings = 0
    for speaker in speakers:
        few, unlabeled, words = hide_transcripts(corpus, folder / f"hidden-from-{speaker}", speaker, hidden)
        folds = Folds(few, folder, parent)
        first, second = (folds.run([speaker], number, given) for number in (seed, seed + 100))
        drafts = folder / f"drafts-{speaker}-{first.model.name}"
        with contextlib.redirect_stdout(sys.stderr):
            bounds = DraftSettings(second=str(second.model / "model"), max_wer=0.0)
            draft_corpus(unlabeled, first.model / "model", drafts, bounds, ())
        folds_of = {
            "few": [first, second],
            "drafts": [folds.run([speaker], seed, [*given, f"corpus.pseudo.uri={drafts}"])],
            "all": [Folds(corpus, folder, parent).run([speaker], seed, given)],
        }
        texts = {line.id: line.text for line in read_manifest(drafts)}
        mistakes = sum(text != words[id] for id, text in texts.items())
        drafted += len(texts)
        wrong += mistakes
        recordings += len(words)
        cells = []
        for name, trained in folds_of.items():
            summed = _by_recording(trained)
            together[name] += summed
            cells.append(with_interval(summed))
        _show(speaker, *cells, f"{len(texts):,} of {len(words):,}", f"{mistakes / len(texts):.1%}")
    means = [with_interval(summed) for summed in together.values()]
    _show(f"all {len(speakers)}", *means, f"{drafted:,} of {recordings:,}", f"{wrong / drafted:.1%}")


def hide_transcripts(corpus: Path, folder: Path, tested: str, share: float) -> tuple[Path, Path, dict[str, str]]:
    """Parts the recordings of FSDD into a corpus with transcripts, which has all of a speaker, and a manifest without.

    Args:
      share: of each other speaker's recordings of each digit, whose transcripts are hidden; the same for any `tested`.

    Returns:
      The corpus, the manifest, and the word of each of its recordings by id.
    """
    few = folder / "recordings"
    few.mkdir(parents=True, exist_ok=True)
    lines, words = [], {}
    for file in sorted(corpus.rglob("*.wav")):
        digit, speaker, number = file.stem.split("_")
        if speaker == tested or int(hash_value([speaker, digit, number])[:8], 16) / 16**8 >= share:
            (few / file.name).unlink(missing_ok=True)
            (few / file.name).hardlink_to(file)
            continue
        id = hash_value(["hidden", file.name])[:16]
        words[id] = WORDS[int(digit)]
        lines.append({"id": id, "audio_filepath": str(file.absolute()), "speaker": speaker})
    manifest = folder / "unlabeled.jsonl"
    write_text(manifest, "".join(json.dumps(line) + "\n" for line in lines))
    return few, manifest, words


def _by_recording(folds: Sequence[Fold]) -> list[SumAndWeight]:
    """Errors and words of each recording, summed over seeds."""
    sums: dict[str, SumAndWeight] = {}
    for result in (result for fold in folds for result in fold.results):
        before, (errors, words) = sums.get(result.id, SumAndWeight(0, 0)), result.metrics["wer"]
        sums[result.id] = SumAndWeight(before.sum + errors, before.weight + words)
    return list(sums.values())


def _show(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.leave_one_out")
    parser.add_argument("corpus", type=Path, help="folder of FSDD")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="values of train.seed (1)")
    parser.add_argument("--folder", type=Path, default=Path("runs/leave-one-out"), help="keeps what was trained")
    parser.add_argument("--speakers", nargs="+", default=SPEAKERS, choices=SPEAKERS, help="held out (all six)")
    parser.add_argument(
        "--choice",
        action="append",
        default=[],
        metavar="NAME[: KEY=VALUE …]",
        help="settings to choose from, beside those of the config; repeatable",
    )
    parser.add_argument(
        "--set", dest="given", action="append", default=[], metavar="KEY=VALUE", help="for all trainings; repeatable"
    )
    parser.add_argument("--hide", type=float, help="share of transcripts that are hidden and drafted (none)")
    parser.add_argument("--parent", type=Path, help="folder of a public model to start from (none)")
    options = parser.parse_args()
    if options.hide:
        if not options.parent or options.choice:
            parser.error("--hide needs --parent, and takes no --choice")
        compare_with_drafts(
            options.corpus,
            options.folder,
            options.parent,
            options.speakers,
            options.seeds[0],
            options.hide,
            options.given,
        )
        sys.exit()
    alternatives = {}
    for one in options.choice:
        title, _, rest = one.partition(":")
        alternatives[title] = shlex.split(rest)
    main(
        options.corpus,
        options.seeds,
        options.folder,
        {"as shipped": [], **alternatives},
        options.speakers,
        options.given,
        options.parent,
    )

"""`voxline config init`: a short config for a folder of recordings, from what is found in it.

The format is the one whose reader finds most utterances. The length of training follows from their number: a CTC model
first learns to output nothing but blanks, and leaves that state only after some hundreds of steps. A small corpus gets
dropout and strong augmentation; `make first-corpus` measures what they are for, on recordings that the run never saw.
"""

import contextlib
import dataclasses
import io
import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import yaml

from voxline.components.convert.settings import ConvertSettings
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.staging import ProbedUtterance
from voxline.components.ingest.step import run as ingest
from voxline.errors import SettingsError, VoxlineError
from voxline.families.asr.settings import AsrPushSettings
from voxline.families.asr.transcripts import Spelling, choose_language_model, choose_spelling
from voxline.families.asr.tuning_config import TuningConfig, flow_mapping, quoted, tuning_config
from voxline.metrics.paired import EXPECTED_ERRORS, least_margin, look_confidence, proposed_margin
from voxline.pipelines.config.corpus_look import (
    CorpusLook,
    describe_corpus,
    describe_faults,
    look_at_corpus,
    spoken_seconds,
)
from voxline.pipelines.config.proposed_split import SplitProposal, propose_split
from voxline.pipelines.config.proposed_voice import VOICES, propose_voice
from voxline.store.files import write_text
from voxline.store.scratch import scratch_root
from voxline.text.alphabet import quote_text, split_words
from voxline.text.transcripts import normalize_transcript

PIPELINES = ("asr", *VOICES, "refresh")
"""The pipelines that a config is proposed for."""
WRITTEN = "# Written by `voxline config init`; `voxline config explain KEY` explains a key."
STEPS = 400
"""Training steps planned at least. 40 recordings of two words were learned after 160 to 240 without augmentation."""
OFTEN = 10
"""How often each word is said on average, from which on a language model allows no words but these."""
RARE_SHARE = 0.2
"""Of all words said, those of words said fewer than `OFTEN` times, above which a vocabulary is too large."""
WAYS = (
    ("from nothing", "8.8% wrong", "ten digits, of unseen speakers: make leave-one-out"),
    ("a public parent that is tuned", "1.6% wrong", "the same digits, whisper-tiny.en: make bench-parents"),
    ("a public parent as it comes", "10.1% wrong", "120 prompts of one person, whisper-tiny.en: make bench-parents"),
    ("… tuned on 384 other prompts", "6.0% wrong", "the same 120: make bench-parents"),
)
"""Ways to a recognizer, words wrong, and what was measured."""
OPEN_ERRORS = 0.1
"""Word error rate that is assumed of a recognizer of any words; with more errors margins must be wider."""
FAR_WORSE = 0.1
"""Margin of the word error rate above which a test split is too small to judge by."""
HIGHEST_RATE = 16_000
"""Hz of recordings for a recognizer: speech has little above 8 kHz."""
SAMPLE = 20
"""Utterances of each split that ingest reads of what is proposed."""
SPEEDS = 3
"""Copies of each training utterance, at three speeds."""


@dataclasses.dataclass(frozen=True)
class ConfigProposal:
    """A config for a corpus.

    Attributes:
      name: of the run.
      text: the YAML, with `corpus.uri` as an absolute path.
      corpus: that path.
      findings: lines that say what was found.
      entries: the utterances that were found.
      steps: of the training that is planned; 0 if their number is not known, or nothing is trained.
      validated: utterances in all of its validations.
    """

    name: str
    text: str
    corpus: Path
    findings: list[str]
    entries: Sequence[ProbedUtterance] = ()
    steps: int = 0
    validated: int = 0


def propose_config(
    folder: Path, name: str = "", parent: str = "", language: str = "", pipeline: str = "asr"
) -> ConfigProposal:
    """Looks at a folder, proposes a config for it, and has ingest read a sample of it as the config says.

    Raises:
      SettingsError: as of `_propose`; or ingest refuses what is proposed.
    """
    proposal = _propose(folder, name, parent, language, pipeline)
    corpus = yaml.safe_load(proposal.text)["corpus"]
    limits = dict.fromkeys(("train", "dev", "test"), SAMPLE)
    settings = CorpusSettings.of({**corpus, "limits": limits, "max_reject_share": 1.0}, "corpus")
    output = io.StringIO()
    with tempfile.TemporaryDirectory(dir=scratch_root()) as store, contextlib.redirect_stdout(output):
        try:
            counts = ingest(store, settings).counts
        except VoxlineError as error:
            raise SettingsError(f"{folder}: ingest refuses what would be proposed: {error}") from error
    splits = ", ".join(f"{counts[split]:,} {split}" for split in limits)
    tried = f"tried      ingest reads a sample of it: {splits}"
    return dataclasses.replace(proposal, findings=[*proposal.findings, tried, *_remarks(output.getvalue())])


def _remarks(output: str) -> list[str]:
    """Remarks of ingest about a corpus besides its counts: columns that it does not read, or takes for something."""
    lines = [line.removeprefix("▸ ") for line in output.splitlines() if line.startswith("▸ ")]
    marks = ("channel", "no end")
    remarks = (line for line in lines if not line.startswith("ingest: ") or any(mark in line for mark in marks))
    return [f"ingest     {line.removeprefix('ingest: ')}" for line in dict.fromkeys(remarks)]


def _propose(folder: Path, name: str, parent: str, language: str, pipeline: str) -> ConfigProposal:
    """Looks at a folder, and proposes a config for it.

    Args:
      parent: a public model to tune (`tuning_config`, `open_parent`); empty: a model from random weights.
      language: that it is asked for, or of a voice's texts.
      pipeline: of `PIPELINES`.

    Raises:
      SettingsError: it is not a folder, or no format finds an utterance in it; or the parent cannot be tuned.
    """
    # Mistakes of the command first: a look at a large corpus takes seconds.
    if pipeline not in PIPELINES:
        raise SettingsError(f"--pipeline {pipeline!r}: accepted: {', '.join(PIPELINES)}")
    if parent and pipeline == "refresh":
        raise SettingsError(f"--parent {parent}: public models are tuned by --pipeline asr, tts and vocoder")
    if not folder.is_dir():
        raise SettingsError(f"{folder}: no such folder; give the folder of the recordings and their transcripts")
    look = look_at_corpus(folder)

    # The name of the run must match `run_config.NAME_PATTERN`.
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name or folder.absolute().name).strip("-._")[:63] or "corpus"
    if pipeline in VOICES:
        return _voice(look, name, folder.absolute(), pipeline, language, parent)
    count = len(look.entries)
    small = look.complete and count < 1_000
    split = propose_split(look, small=small)
    corpus = [
        f"name: {quoted(name)}",
        "corpus:",
        f"  uri: {quoted(str(folder.absolute()))}",
        f"  format: {look.format}",
        *([f"  split: {flow_mapping(split.settings)}"] if split.settings else []),
        *_accept_rejects(look),
    ]
    spelling = choose_spelling([*look.texts, *look.further_texts], language)
    splits = [*split.splits, *("train" for _ in look.further_texts)]
    language_model, words_known = choose_language_model(spelling.texts, splits)
    closed = small and _has_few_words(spelling)
    gate = _gate(look, split, EXPECTED_ERRORS if closed else OPEN_ERRORS)
    if parent:
        texts = [*look.texts, *look.further_texts]
        tuning = tuning_config(parent, texts, language)
        if tuning.convert != spelling.settings:
            spelling = Spelling(tuning.convert, texts, [])  # written as they are, and none is lost
        tuning.convert.update(_accept_convert_rejects(folder, look, spelling.lost))
        unseen = _accept_unseen_characters(_unseen_characters(spelling, splits))
        return _tuned(look, name, folder.absolute(), corpus, split, tuning, [*unseen, *gate.lines], gate.finding)

    # Each utterance of train at three speeds.
    batch = 16
    steps_per_epoch = max(1, split.splits.count("train") * SPEEDS // batch)
    epochs = max(15, math.ceil(STEPS / steps_per_epoch)) if look.complete else 15

    # About 15 evaluations in all, however many epochs a small corpus needs.
    between = math.ceil(epochs / 15)
    seldom = f", evaluate_epochs: {between}" if epochs > 15 else ""
    network = ", units: 64, dropout: 0.2" if small else ""
    augment = (
        "{speed: 0.1, pitch: 0.15, volume: 15, tilt: 10, frequency_masks: 1}" if small else "{pitch: 0.05, volume: 3}"
    )

    convert = {
        "sample_rate": min(HIGHEST_RATE, look.sample_rate),
        **spelling.settings,
        **_accept_convert_rejects(folder, look, spelling.lost),
    }
    unseen = _unseen_characters(spelling, splits)
    only = "" if language_model.get("open_vocabulary") else "  # recognizes the words of the transcripts alone"

    # Text rather than a dump of values, so that the file has comments and related settings on one line.
    data = [
        *corpus,
        f"convert: {flow_mapping(convert)}",
        "extract: {features: {mels: 40}, speeds: [0.9, 1.0, 1.1]}",
        *_accept_unseen_characters(unseen),
    ]
    words = {word for text in spelling.texts for word in split_words(text)}
    more = "" if look.complete else " or more"
    data_findings = [
        describe_corpus(look),
        f"words      {len(words):,} different ones in {len(set(spelling.texts)):,} sentences",
        *split.findings,
    ]
    faults = [
        *spelling.findings,
        *([f"warning    not in train, only in dev or test: {' '.join(unseen[:20])}"] if unseen else []),
        *describe_faults(look),
    ]
    if pipeline == "refresh":
        return _refresh(name, folder.absolute(), data, [*data_findings, *faults])
    lines = [
        WRITTEN,
        *data,
        f"train: {{epochs: {epochs}, batch_size: {batch}, learning_rate: 0.004, length_noise: 1.0{seldom},",
        f"  model: {{convolutions: [{{stride: [2, 2]}}, {{stride: [1, 2]}}]{network}}},  # 50 frames a second",
        f"  augment: {augment},",
        "  export: {onnx: float32}}  # recognizes without TensorFlow",
        *([f"language: {flow_mapping(language_model)}{only}"] if language_model else []),
        *gate.lines,
    ]
    findings = [
        *data_findings,
        f"training   {epochs} epochs, about {steps_per_epoch * epochs:,} steps{more}",
        words_known,
        *faults,
        gate.finding,
        *_warn_of_vocabulary(look, spelling),
    ]
    return ConfigProposal(
        name,
        "\n".join([*lines, ""]),
        folder.absolute(),
        findings,
        look.entries,
        steps_per_epoch * epochs,
        math.ceil(epochs / between) * split.splits.count("dev"),
    )


def _voice(look: CorpusLook, name: str, folder: Path, pipeline: str, language: str, parent: str) -> ConfigProposal:
    """The config for a voice, or for a vocoder."""
    # A split of its own: one speaker is in all parts, and a voice is judged by few utterances.
    voice = propose_voice(pipeline, look, language, parent)
    head = [WRITTEN, f"pipeline: {pipeline}", f"name: {quoted(name)}"]
    corpus = [
        "corpus:",
        f"  uri: {quoted(str(folder))}",
        f"  format: {look.format}",
        *([f"  split: {flow_mapping(voice.split)}"] if voice.split else []),
        *_accept_rejects(look),
    ]
    # What convert rejects of these recordings must not end the run.
    convert = {**voice.convert, **_accept_convert_rejects(folder, look, voice.lost)}
    findings = [describe_corpus(look), *voice.findings, *describe_faults(look)]
    text = "\n".join([*head, *corpus, f"convert: {flow_mapping(convert)}", *voice.lines, ""])
    return ConfigProposal(name, text, folder, findings, look.entries, voice.steps, voice.validated)


def _refresh(name: str, folder: Path, data: list[str], findings: list[str]) -> ConfigProposal:
    """The config that publishes what `data` describes, as a recognizer's config reads it."""
    # No section train: what is published is for any network.
    lines = [
        WRITTEN,
        "pipeline: refresh",
        *data,
        f"publish: {{dataset: {quoted(name)}}}  # trained on by `corpus: {{dataset: {name}@latest}}`",
    ]
    findings.append(f"publishes  {name}: each run with a change makes a version")
    return ConfigProposal(name, "\n".join([*lines, ""]), folder, findings)


def _tuned(
    look: CorpusLook,
    name: str,
    folder: Path,
    corpus: list[str],
    split: SplitProposal,
    tuning: TuningConfig,
    gate: list[str],
    gate_finding: str,
) -> ConfigProposal:
    """The config that tunes a public model."""
    convert = {"sample_rate": 16_000, "min_seconds": 0.1, **tuning.convert}
    lines = [
        WRITTEN,
        *corpus,
        f"convert: {flow_mapping(convert)}",
        f"extract: {{features: {flow_mapping(tuning.features)}}}  # sizes follow from the model",
        f"train: {{{tuning.train[0]}",
        *(f"  {line}" for line in tuning.train[1:-1]),
        f"  {tuning.train[-1]}}}",
        *gate,
        "# evaluate: {probe: runs/other/store/convert/…}  # recordings that it must not forget, as convert writes them",
    ]
    model, how = tuning.findings
    findings = [
        describe_corpus(look),
        *split.findings,
        f"parent     {model}",
        f"tunes      {how}",
        gate_finding,
        *tuning.spelling,
        *describe_faults(look),
    ]
    return ConfigProposal(name, "\n".join([*lines, ""]), folder, findings)


def write_config(proposal: ConfigProposal, file: Path, *, replace: bool = False) -> Path:
    """Writes a proposed config; the path of the corpus becomes relative to it where it is below the same folder.

    Raises:
      SettingsError: the file exists, and `replace` is False.
    """
    if file.suffix not in (".yaml", ".yml"):
        raise SettingsError(f"--output {file}: a file whose name ends in .yaml is accepted")
    if file.exists() and not replace:
        raise SettingsError(f"{file}: it exists; give --output another file, or --force to replace it")

    # Relative to the config's folder, as `load_config` reads it: the two can then be moved together.
    text = proposal.text
    if proposal.corpus.is_relative_to(file.absolute().parent):
        relative = os.path.relpath(proposal.corpus, file.absolute().parent)
        text = text.replace(quoted(str(proposal.corpus)), quoted(relative), 1)

    write_text(file, text)
    return file


def _accept_rejects(look: CorpusLook) -> list[str]:
    """The limit on rejects, where more are in the folder than a run accepts: it would end at its first step."""
    if look.reject_share <= CorpusSettings().max_reject_share:
        return []
    share = math.ceil(100 * look.reject_share) / 100
    return [f"  max_reject_share: {share:g}  # faulty: {len(look.rejects):,}; mend them, and remove this line"]


def _accept_convert_rejects(folder: Path, look: CorpusLook, lost: int) -> dict[str, float]:
    """The limit of convert on rejects, where more recordings or transcripts than that cannot be used.

    Args:
      lost: utterances whose transcript it will reject.

    Raises:
      SettingsError: it will reject every utterance, so no config can run.
    """
    limits = ConvertSettings()
    lengths = map(spoken_seconds, look.entries)
    misfits = sum(length > limits.max_seconds or 0 < length < limits.min_seconds for length in lengths)
    count = len(look.entries) + len(look.further_texts)
    if count in (lost, misfits):
        raise SettingsError(
            f"{folder}: none of {count:,} utterances can be used: {lost:,} transcripts have no words that can be read, "
            f"such as {quote_text(look.texts[0])}, and {misfits:,} recordings last less than {limits.min_seconds:g} s "
            f"or more than {limits.max_seconds:g} s"
        )

    # An utterance may be lost by both, so the share is at most this.
    share = min(1.0, (lost + misfits + len(look.unreadable)) / (count + len(look.unreadable)))
    return {} if share <= limits.max_reject_share else {"max_reject_share": math.ceil(100 * share) / 100}


def _unseen_characters(spelling: Spelling, splits: list[str]) -> list[str]:
    """The characters of dev and test that train lacks: some Chinese ones in nearly every corpus."""
    train: set[str] = set()
    held_out: set[str] = set()
    for text, name in zip(spelling.texts, splits, strict=True):
        (train if name == "train" else held_out).update(text)
    return sorted(held_out - train)


def _accept_unseen_characters(unseen: list[str]) -> list[str]:
    """The setting without which validate refuses such a corpus: the model is right to get these wrong."""
    why = f"of dev and test, {len(unseen):,} are not in train"
    return [f"validate: {{unseen_characters: {{severity: warning}}}}  # {why}"] if unseen else []


@dataclasses.dataclass(frozen=True)
class _Gate:
    """The part of a config about the gate, and what the test split can show."""

    lines: list[str]
    finding: str


def _gate(look: CorpusLook, split: SplitProposal, error_rate: float) -> _Gate:
    """Proposes a margin that the test split can show; none where that of the defaults is wide enough.

    A model that is accepted may be worse by the margin. So a wider one is written into the config, for its person to
    see, and not taken in silence.

    Args:
      error_rate: that models of the corpus are thought to have.
    """
    test = [entry.text for entry, name in zip(look.entries, split.splits, strict=True) if name == "test"]
    words = sum(len(split_words(normalize_transcript(text))) for text in test)

    defaults = AsrPushSettings()
    least = least_margin(words, look_confidence(defaults.confidence, 1))
    margin = proposed_margin(words, error_rate, defaults.confidence)
    more = "" if look.complete else " or more"
    shown = f"gate       {words:,} words{more} in test show a difference of {_points(least)} points at best"
    if margin <= defaults.max_regression["wer"] or not look.complete:
        return _Gate([], shown)
    # A comment, since nobody would guess why the number is as large.
    few = margin > FAR_WORSE
    why = f"{words:,} words in test show no less: add some" if few else "less with more test utterances"
    relative = defaults.max_relative_regression["wer"]
    margins = f"max_regression: {{wer: {margin:g}}}, max_relative_regression: {{wer: {relative:g}}}"
    finding = f"{shown}; a new model may be {_points(margin)} points worse (push.max_regression.wer)"
    return _Gate([f"push: {{{margins}}}  # {why}"], finding + ": add test utterances" * few)


def _points(share: float) -> str:
    """A share as percentage points.

    >>> _points(0.0037), _points(0.527), _points(1.0)
    ('0.37', '53', '100')
    """
    return f"{100 * share:.2g}" if share < 0.995 else "100"


def _has_few_words(spelling: Spelling) -> bool:
    """True if the words are those of commands: few, and each said often."""
    words = [word for text in spelling.texts for word in text.split()]
    return bool(words) and len(words) >= OFTEN * len(set(words))


def _warn_of_vocabulary(look: CorpusLook, spelling: Spelling) -> list[str]:
    """Says of a corpus whose vocabulary is too large for its hours what each way was measured to give; else []."""
    word_counts = Counter(word for text in spelling.texts for word in split_words(text))
    total = word_counts.total()
    rare = sum(times for times in word_counts.values() if times < OFTEN)
    if not look.complete or rare <= RARE_SHARE * total:
        return []
    share = f"{rare / total:.0%} of the words said are of the {sum(times < OFTEN for times in word_counts.values()):,}"
    return [
        f"vocabulary {share} that are said fewer than {OFTEN} times: too few to learn them from nothing. Measured:",
        *(f"           {way:<32} {result:<18} {measured_on}" for way, result, measured_on in WAYS),
        "           next: voxline config init FOLDER --parent whisper-tiny.en   (docs/warm-start.md)",
    ]

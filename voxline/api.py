"""What `import voxline` offers in a notebook; each name is imported when it is first used.

Guide with examples: docs/library.md.
"""

import contextlib
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.errors import SettingsError, TransientError, VoxlineError, WorkError
from voxline.extras import naming_extras

if TYPE_CHECKING:
    from voxline.data.reader import DatasetReader
    from voxline.inference.recognizer import Recognizer
    from voxline.inference.synthesizer import Synthesizer
    from voxline.metrics.bootstrap import Interval
    from voxline.metrics.wer import EditCounts
    from voxline.pipelines.local.run_record import RunRecord


@naming_extras()
def load_recognizer(location: Path | str) -> "Recognizer":
    """Loads an exported ASR model.

    Args:
      location: an exported model (its folder or its `saved_model.pb`), train's output, a version's folder, or
        `<registry>/<model>` for the version in service; on a disk or in a bucket.

    Raises:
      WorkError: no ASR model is there, or it is damaged.

    Example:
      recognizer = voxline.load_recognizer("runs/demo/registry/asr")
      recognizer.transcribe("recording.flac")                # a file of any format and sample rate
      recognizer.transcribe(samples, sample_rate=44_100)     # mono; float in [-1, 1], or int16
    """
    from voxline.inference.recognizer import Recognizer

    return Recognizer(_model_folder(location))


@naming_extras()
def load_synthesizer(location: Path | str, vocoder: Path | str | None = None) -> "Synthesizer":
    """Loads an exported TTS model.

    Args:
      location: as for `load_recognizer`.
      vocoder: where an exported vocoder is, likewise; None: the one that the model ships with, or its own
        Griffin-Lim.

    Raises:
      WorkError: no TTS model or no vocoder is there, or it is damaged.
      SettingsError: the vocoder reads mels of other settings.

    Example:
      synthesizer = voxline.load_synthesizer("runs/demo-tts/registry/digits")
      speech = synthesizer.synthesize("Three, one, four.")
      voxline.write_wav("speech.wav", speech.waveform, synthesizer.sample_rate)
    """
    from voxline.inference.synthesizer import Synthesizer

    return Synthesizer(_model_folder(location), vocoder=None if vocoder is None else _model_folder(vocoder))


@naming_extras()
def load_model(location: Path | str) -> Any:
    """Loads an exported model of any family.

    Args:
      location: as for `load_recognizer`.

    Returns:
      As its family loads it: a `Recognizer`, a `Synthesizer`, a `Vocoder`, …

    Raises:
      WorkError: no model is there, or it is damaged.
      SettingsError: no installed package has its family.

    Example:
      vocoder = voxline.load_model("runs/demo-vocoder/registry/vocoder")
    """
    from voxline.families.family import find_family
    from voxline.inference.saved_model import exported_folder, read_model_info

    folder = exported_folder(_model_folder(location))
    return find_family(read_model_info(folder).family).load_model(folder)


@naming_extras()
def from_pretrained(location: Path | str, *, revision: str = "", language: str = "") -> Any:
    """Loads a model of the Hugging Face Hub, or one of this machine, of any family.

    Args:
      location: `owner/name` or `hf://owner/name[@commit]`: what `push_to_hub` wrote, or a public recognizer,
        voice or vocoder that Voxline knows, which is exported once; else as for `load_recognizer`.
      revision: a commit, branch or tag; empty: the newest commit, which a line says. A private model needs the token
        of `hf auth login`, or HF_TOKEN.
      language: of a public Whisper of several languages, such as "en".

    Returns:
      As for `load_model`.

    Raises:
      SettingsError: the Hub has no such model for you, it is of no network of ours, or takes no language.
      TransientError: the Hub cannot be reached, and the commit is not on this machine.
      WorkError: the model is damaged.

    Example:
      recognizer = voxline.from_pretrained("owner/digits", revision="COMMIT")
      recognizer.transcribe("recording.flac")
    """
    from voxline.pipelines.hub import find_pretrained

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return load_model(find_pretrained(location, revision, language))


@naming_extras()
def push_to_hub(
    model: Path | str, repository: str, *, public: bool = False, over: str = "", transformers: bool = False
) -> str:
    """Uploads a model to the Hugging Face Hub, as `voxline models push-to-hub` does.

    Args:
      model: as for `load_recognizer`.
      repository: `owner/name`; created, private unless `public`, if it is new.
      over: a commit that others made there, and that may be overwritten.
      transformers: in the form that `transformers` loads, which networks of public models have.

    Returns:
      `hf://owner/name@commit`.

    Raises:
      SettingsError: nobody is logged in, the Hub refuses, or the model's registry did not push its newest commit.
      TransientError: the Hub cannot be reached.
      WorkError: the model is damaged.
    """
    from voxline.pipelines.hub import OWN_FORM, TRANSFORMERS_FORM, push_model

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    form = TRANSFORMERS_FORM if transformers else OWN_FORM
    return push_model(str(model), repository, form=form, public=public, over=over).location


@naming_extras()
def open_dataset(location: Path | str) -> "DatasetReader":
    """Opens a dataset that extract or publish wrote.

    Args:
      location: the folder that holds `dataset.json`; on a disk or in a bucket.

    Raises:
      WorkError: there is no dataset, or a file of it is missing or damaged.

    Example:
      dataset = voxline.open_dataset("runs/demo-refresh/datasets/demo/1")
      for example in dataset.examples("dev"):              # one utterance after the other
          print(example.id, example.text, example.features.shape)
      test = dataset.arrays("test")                        # padded arrays
      batches = dataset.tf_data("train", batch_size=16)    # tf.data
    """
    from voxline.data.reader import DatasetReader

    return DatasetReader(location)


@dataclasses.dataclass(frozen=True)
class ErrorRate:
    """An error rate over all utterances. Prints as `3.1% (95% interval 2.0% to 4.4%)`.

    Attributes:
      rate: errors per reference word (or character); 0.031 is 3.1%.
      interval: bootstrap interval of the rate, over utterances, or over speakers if ten or more are given.
      edits: insertions, deletions and substitutions.
      confidence: of the interval.
    """

    rate: float
    interval: "Interval"
    edits: "EditCounts"
    confidence: float = 0.95

    def __float__(self) -> float:
        return self.rate

    def __str__(self) -> str:
        return f"{self.rate:.1%} ({self.confidence:.0%} interval {self.interval.low:.1%} to {self.interval.high:.1%})"


@naming_extras()
def wer(
    references: Sequence[str],
    hypotheses: Sequence[str],
    *,
    speakers: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> ErrorRate:
    """Word error rate with a bootstrap interval. Texts are compared as they are; normalize them first.

    Args:
      references, hypotheses: one text for each utterance.
      speakers: of the utterances; with ten speakers or more the interval is over speakers.
      confidence: of the interval, between 0 and 1.

    Raises:
      SettingsError: the lists differ in length or are empty, or the confidence is out of range.

    >>> rate = wer(["a red cat", "one two", "three", "four", "five"], ["a cat", "one two", "three", "for", "five"])
    >>> float(rate), rate.edits.deletions, rate.edits.substitutions
    (0.25, 1, 1)
    >>> print(rate)
    25.0% (95% interval 0.0% to 57.1%)
    """
    from voxline.metrics.wer import count_word_edits

    return _error_rate(count_word_edits, references, hypotheses, speakers, confidence)


@naming_extras()
def cer(
    references: Sequence[str],
    hypotheses: Sequence[str],
    *,
    speakers: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> ErrorRate:
    """Character error rate with a bootstrap interval; arguments and errors as `wer`.

    >>> float(cer(["abcd"], ["abce"]))
    0.25
    """
    from voxline.metrics.wer import count_character_edits

    return _error_rate(count_character_edits, references, hypotheses, speakers, confidence)


@naming_extras()
def run(
    pipeline: str,
    config: Path | str | Mapping[str, Any] | Sequence[Path | str],
    run_dir: Path | str | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
) -> "RunRecord":
    """Runs a pipeline on this machine, as `voxline run` does. Steps whose input is unchanged are reused.

    Args:
      pipeline: "refresh", or the family of the model to train, such as "asr" or "tts".
      config: a YAML file, or several, of which later ones override earlier ones; or the config itself, as a mapping
        or as YAML text. Relative paths in a mapping or a text start at the current folder.
      run_dir: for the record and the report; None: `runs/<name>`.
      overrides: values by dotted key, such as `{"train.epochs": 3}`.

    Returns:
      The content of `run.json`. A run that refuses to push a worse model has succeeded: `pushed` is False.

    Raises:
      SettingsError: the config is wrong. No step was started.
      WorkError: a step failed.
      TransientError: a storage or a network failed. The same call may succeed.
      KeyboardInterrupt: the run was interrupted. Its steps have ended, and the same call resumes it.

    Example:
      record = voxline.run("asr", "configs/asr/demo.yaml", overrides={"train.epochs": 5})
      record.metric("wer"), record.pushed, record.model
    """
    from voxline.pipelines.config.load import load_config
    from voxline.pipelines.console import Console
    from voxline.pipelines.graphs import check_pipeline
    from voxline.pipelines.local.runner import run_pipeline

    check_pipeline(pipeline)
    assignments = [f"{key}={_to_yaml(value)}" for key, value in (overrides or {}).items()]
    chosen = load_config(config, assignments, pipeline=pipeline)
    folder = Path(run_dir) if run_dir is not None else Path("runs") / chosen.name
    with _restored_signal_handlers():
        record, failure = run_pipeline(chosen, folder, Console(sys.stdout))
    if failure:
        errors: tuple[type[VoxlineError], ...] = (SettingsError, TransientError)
        kind = next((error for error in errors if error.exit_status == failure.exit_status), WorkError)
        raise kind(f"{record.failed_step or 'the graph'} failed: {failure.message}")
    return record


def _model_folder(location: Path | str) -> Path:
    from voxline.registry.models import find_model

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's search for a GPU is no news
    path = Path(location)
    return find_model(path.parent if path.is_file() else location)


def _error_rate(
    count_edits: Any,
    references: Sequence[str],
    hypotheses: Sequence[str],
    speakers: Sequence[str] | None,
    confidence: float,
) -> ErrorRate:
    from voxline.metrics.bootstrap import Bootstrap
    from voxline.metrics.wer import sum_edits

    if isinstance(references, str) or isinstance(hypotheses, str):
        raise SettingsError("references and hypotheses: lists of texts are accepted; wrap a single text in a list")
    lengths = {"references": len(references), "hypotheses": len(hypotheses)}
    if speakers is not None:
        lengths["speakers"] = len(speakers)
    if len(set(lengths.values())) > 1 or not len(references):
        found = ", ".join(f"{count:,} {name}" for name, count in lengths.items())
        raise SettingsError(f"{found}; one of each for every utterance is accepted, and at least one utterance")
    if not 0 < confidence < 1:
        raise SettingsError(f"confidence is {confidence!r}; a number between 0 and 1 is accepted")
    edits = count_edits(references, hypotheses)
    bootstrap = Bootstrap(confidence=confidence)
    names = [""] * len(edits) if speakers is None else list(speakers)
    interval = bootstrap.interval([one.as_metric for one in edits], names)
    total = sum_edits(edits)
    return ErrorRate(total.rate, interval, total, confidence)


@contextlib.contextmanager
def _restored_signal_handlers() -> Iterator[None]:
    """Restores the signal handlers after a run: the command ends then, but a notebook continues."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)


def _to_yaml(value: Any) -> str:
    import json

    return json.dumps(os.fspath(value) if isinstance(value, os.PathLike) else value, ensure_ascii=False)

"""How long an exported model takes, stage by stage: what `voxline time` prints.

An iteration is one batch, from its input on a disk or as text to its result on a disk. Loading the model and a first
batch of the same size, which builds the graph, are not counted. Computing is on this machine's processor, so there is
no transfer to a device to be counted.
"""

import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.errors import SettingsError, WorkError
from voxline.inference.onnx_model import Engine
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import exported_folder, read_model_info
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.vocoder import OWN_SAMPLING, Sampling, Vocoder
from voxline.inference.waveforms import read_waveform
from voxline.metrics.evaluation import CLIP_FILE, METRICS_FILE, EvaluationInfo
from voxline.store.files import read_json
from voxline.store.scratch import scratch_root
from voxline.store.versioned_json import parse_versioned

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]

PERCENTILES = (50, 90, 95, 99, 100)
SYMBOLS = 166
SECONDS = 10.0
"""Default length of a text, and of a recording."""
FIRST_CHUNK = 0.1
"""Seconds of speech in the first chunk of a stream."""


@dataclasses.dataclass
class TimedStage:
    """A part of the work.

    Attributes:
      unit: of what it makes or reads.
      items: of each iteration, in this unit.
      seconds: of each iteration.
      part_of: the stage whose work it repeats, so that it adds nothing to the whole; empty: none.
    """

    name: str
    unit: str
    part_of: str = ""
    items: list[float] = dataclasses.field(default_factory=list)
    seconds: list[float] = dataclasses.field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Mean, standard deviation and percentiles of the seconds; items a second.

        >>> TimedStage("vocoder", "samples", items=[8.0, 8.0], seconds=[1.0, 3.0]).to_dict()["items_per_second"]
        4.0
        """
        import numpy as np

        return {
            "stage": self.name,
            "unit": self.unit,
            "part_of": self.part_of,
            "items": float(np.mean(self.items)),
            "items_per_second": sum(self.items) / max(sum(self.seconds), 1e-9),
            "mean": float(np.mean(self.seconds)),
            "deviation": float(np.std(self.seconds, ddof=1)) if len(self.seconds) > 1 else 0.0,
            **{f"p{percentile}": float(np.percentile(self.seconds, percentile)) for percentile in PERCENTILES},
        }


@dataclasses.dataclass
class ModelTiming:
    """The stages of a model, in their order.

    Attributes:
      model: what was timed: name, family, kind, arithmetic, weights, and the vocoder of a voice.
      batch, iterations: texts or recordings at a time, and how often.
    """

    model: dict[str, Any]
    batch: int
    iterations: int
    stages: dict[str, TimedStage] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def stage(self, name: str, unit: str, part_of: str = "") -> Iterator[list[float]]:
        """Times the block as one iteration of a stage; the block appends the number of items to the list."""
        items: list[float] = []
        start = time.perf_counter()
        yield items
        seconds = time.perf_counter() - start
        stage = self.stages.setdefault(name, TimedStage(name, unit, part_of))
        stage.items.append(sum(items))
        stage.seconds.append(seconds)

    def whole(self, seconds_of_audio: float) -> TimedStage:
        """All stages of an iteration together, with the seconds of audio that it makes or reads."""
        parts = [stage.seconds for stage in self.stages.values() if not stage.part_of]
        totals = [sum(of_one) for of_one in zip(*parts, strict=True)]
        return TimedStage("all", "s of audio", "", [seconds_of_audio] * len(totals), totals)


@dataclasses.dataclass(frozen=True)
class TimingInput:
    """The input that a model is timed on.

    Attributes:
      text: for a voice; empty: that of the version's evaluation.
      audio: a recording, for a recognizer or a vocoder; None: the clip of the version's evaluation, or noise.
      length: symbols of a voice's text, seconds of a recording; what is shorter is repeated. None: a given input as it
        is, and another one of `SYMBOLS` or `SECONDS`.
      evaluation: folder of the model's evaluation, which has a text and a clip.
    """

    text: str = ""
    audio: Path | None = None
    length: float | None = None
    batch: int = 1
    iterations: int = 14
    evaluation: Path | None = None


def time_model(
    model: Path | str,
    timing_input: TimingInput,
    *,
    vocoder: Path | str | None = None,
    engine: Engine = "auto",
    sampling: Sampling = OWN_SAMPLING,
) -> dict[str, Any]:
    """Runs a model as often as wanted.

    Args:
      vocoder: for a voice, in place of the one that it ships with or of its Griffin-Lim.
      engine: that runs the network.
      sampling: of a WaveGlow, in place of its own.

    Returns:
      model, batch, iterations, and the stages as `TimedStage.to_dict` has them, "all" last; seconds throughout.

    Raises:
      SettingsError: the input is not for a model of this family, or the model cannot read it.
      WorkError: the model is damaged.
    """
    folder = exported_folder(model)
    info = read_model_info(folder)
    family = info.family
    if family not in _FAMILIES:
        raise WorkError(f"{folder}: a model of the family {family!r}; {', '.join(_FAMILIES)} are accepted")
    if timing_input.text and family != "tts":
        raise SettingsError(f"--text is for voices, and {folder} is of the family {family!r}; give --audio")
    if (timing_input.audio and family == "tts") or (vocoder and family != "tts"):
        raise SettingsError(f"--audio and --vocoder do not go with {folder}, which is of the family {family!r}")
    if not sampling.is_own and family not in ("tts", "vocoder"):
        raise SettingsError(f"--sigma and --denoiser are of a WaveGlow, and {folder} is of the family {family!r}")
    described = {"name": info.name, "family": info.family, "kind": info.kind}
    timing = ModelTiming(described, timing_input.batch, timing_input.iterations)

    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        options: dict[str, Any] = {"engine": engine} | ({"vocoder": vocoder} if family == "tts" else {})
        options |= {"sampling": sampling} if family in ("tts", "vocoder") else {}
        run = _FAMILIES[family](folder, timing_input, timing, Path(scratch), **options)
        # The first run of a batch size compiles, and is not counted.
        run()  # builds the graphs
        timing.stages.clear()
        seconds = [run() for _ in range(timing_input.iterations)]
    whole = timing.whole(sum(seconds) / len(seconds))
    stages = [stage.to_dict() for stage in (*timing.stages.values(), whole)]
    return {"model": timing.model, "batch": timing_input.batch, "iterations": timing_input.iterations, "stages": stages}


def format_timing(measured: dict[str, Any]) -> list[str]:
    """The lines of a Markdown table, with what was timed above it."""
    description = measured["model"]
    batch = measured["batch"]
    named = ", ".join(f"{name} {value}" for name, value in description.items() if name not in ("name", "family"))
    lines = [
        f"{description['name']} ({description['family']}): {named}; {measured['iterations']} iterations of {batch}",
        "",
    ]
    head = ["stage", "items", "items a second", "mean", "deviation", *(f"p{percentile}" for percentile in PERCENTILES)]
    rows = [head, ["---"] * len(head)]
    for stage in measured["stages"]:
        times = [stage["mean"], stage["deviation"], *(stage[f"p{percentile}"] for percentile in PERCENTILES)]
        name = f"{stage['stage']} (again)" if stage["part_of"] else stage["stage"]
        items = [f"{_count(stage['items'])} {stage['unit']}", _count(stage["items_per_second"])]
        rows.append([name, *items, *(_seconds(value) for value in times)])
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def _count(value: float) -> str:
    """
    >>> _count(2.5), _count(160_000.0)
    ('2.5', '160,000')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value >= 1 else f"{value * 1000:.2f} ms"


def _time_voice(
    folder: Path,
    timing_input: TimingInput,
    timing: ModelTiming,
    scratch: Path,
    *,
    vocoder: Path | str | None,
    engine: Engine,
    sampling: Sampling,
) -> Callable[[], float]:
    import numpy as np

    from voxline.audio.griffin_lim import features_to_waveform
    from voxline.audio.wav import to_int16, write_wav

    synthesizer = Synthesizer(folder, vocoder=vocoder, batch_size=timing_input.batch, engine=engine, sampling=sampling)

    texts = [_text(timing_input, synthesizer.text.alphabet.symbols)] * timing_input.batch
    lim = synthesizer.info.settings.get("griffin_lim", {"iterations": 60, "momentum": 0.99, "power": 1.0})
    made_by = synthesizer.vocoder
    timing.model["engine"] = synthesizer.engine
    timing.model["arithmetic"] = f"{synthesizer.info.arithmetic(synthesizer.engine)} decoder"
    if not synthesizer.makes_samples:
        timing.model["vocoder"] = "Griffin-Lim" if made_by is None else made_by.info.name
    network = "encoder and decoder" if synthesizer.has_mels_alone else "encoder, decoder and Griffin-Lim"

    def run() -> float:
        with timing.stage("text", "symbols") as items:
            # Symbols of the model need no frontend.
            symbols = [synthesizer.text.encode(text).symbols if timing_input.text else text for text in texts]
            items.append(sum(map(len, symbols)))
        if synthesizer.makes_samples:
            with timing.stage("network", "samples") as items:
                waveforms = [result.waveform for result in synthesizer.synthesize_symbols(symbols)]
                items.append(sum(map(len, waveforms)))
        else:
            with timing.stage(network, "mel frames") as items:
                mels = synthesizer.mels(symbols)
                items.append(sum(map(len, mels)))
            with timing.stage("vocoder", "samples") as items:
                if made_by is not None:
                    waveforms = made_by.vocode(mels)
                else:
                    waveforms = [features_to_waveform(frames, synthesizer.features, **lim) for frames in mels]
                items.append(sum(map(len, waveforms)))
        with timing.stage("storage", "samples") as items:
            # One file for each waveform, as synthesis writes them.
            for index, waveform in enumerate(waveforms):
                peak = float(np.abs(waveform).max(initial=1.0))
                write_wav(scratch / f"{index}.wav", to_int16(waveform / peak), synthesizer.sample_rate)
            items.append(sum(map(len, waveforms)))
        if made_by is not None:
            _time_first_chunk(timing, made_by, mels[0])
        return sum(map(len, waveforms)) / synthesizer.sample_rate

    return run


def _time_vocoder(
    folder: Path, timing_input: TimingInput, timing: ModelTiming, scratch: Path, *, engine: Engine, sampling: Sampling
) -> Callable[[], float]:
    from voxline.audio.features import compute_features
    from voxline.audio.wav import to_int16, write_wav

    vocoder = Vocoder(folder, engine=engine, sampling=sampling)
    timing.model["engine"] = vocoder.engine
    timing.model["arithmetic"] = vocoder.info.arithmetic(vocoder.engine)

    # The mels of one recording, as often as a batch has rows.
    file = _recording(timing_input, vocoder.sample_rate, scratch)
    samples = read_waveform(file, vocoder.sample_rate)
    mels = [compute_features(samples, vocoder.features)[:, vocoder.features.mel_columns]] * timing_input.batch

    def run() -> float:
        with timing.stage("vocoder", "samples") as items:
            waveforms = vocoder.vocode(mels)
            items.append(sum(map(len, waveforms)))
        with timing.stage("storage", "samples") as items:
            for index, waveform in enumerate(waveforms):
                write_wav(scratch / f"{index}.wav", to_int16(waveform.clip(-1, 1)), vocoder.sample_rate)
            items.append(sum(map(len, waveforms)))
        _time_first_chunk(timing, vocoder, mels[0])
        return sum(map(len, waveforms)) / vocoder.sample_rate

    return run


def _time_first_chunk(timing: ModelTiming, vocoder: Vocoder, mels: "Array") -> None:
    if vocoder.info.context_frames is not None:  # of an earlier version it cannot stream
        with timing.stage("first chunk of a stream", "samples", part_of="vocoder") as items:
            chunk = next(vocoder.stream([mels], chunk_seconds=FIRST_CHUNK), None)
            items.append(0 if chunk is None else len(chunk))


def _time_recognizer(
    folder: Path, timing_input: TimingInput, timing: ModelTiming, scratch: Path, *, engine: Engine
) -> Callable[[], float]:
    recognizer = Recognizer(folder, engine=engine)
    file = _recording(timing_input, recognizer.sample_rate, scratch)
    timing.model["engine"] = recognizer.engine
    timing.model["arithmetic"] = recognizer.info.arithmetic(recognizer.engine)
    timing.model["decoding"] = "greedy" if recognizer.language_model is None else "beam search, language model"

    def run() -> float:
        with timing.stage("reading", "samples") as items:
            waveforms = [read_waveform(file, recognizer.sample_rate) for _ in range(timing_input.batch)]
            items.append(sum(map(len, waveforms)))

        # Run again within the next stage, which cannot be timed in two parts.
        if recognizer.has_ctc:
            with timing.stage("network", "frames", part_of="network and decoding") as items:
                items.append(sum(map(len, recognizer.log_probabilities(waveforms))))
        with timing.stage("network and decoding", "samples") as items:
            transcripts = recognizer.recognize_waveforms(waveforms)
            items.append(sum(map(len, waveforms)))
        with timing.stage("storage", "transcripts") as items:
            text = json.dumps([dataclasses.asdict(transcript) for transcript in transcripts], ensure_ascii=False)
            (scratch / "transcripts.json").write_text(text, encoding="utf-8")
            items.append(len(transcripts))
        return sum(map(len, waveforms)) / recognizer.sample_rate

    return run


_FAMILIES: dict[str, Callable[..., Callable[[], float]]] = {
    "tts": _time_voice,
    "vocoder": _time_vocoder,
    "asr": _time_recognizer,
}
"""Of each family what loads a model and returns one iteration, which returns its seconds of audio."""


def _text(timing_input: TimingInput, alphabet: Sequence[str]) -> str:
    """A text of the wanted length; symbols of the model, unless one was given."""
    # Given, or of the version's evaluation, or the alphabet itself.
    text = timing_input.text
    if not text and timing_input.evaluation:
        file = timing_input.evaluation / METRICS_FILE
        smoke_test = parse_versioned(read_json(file), EvaluationInfo, file).smoke_test
        text = str((smoke_test or {}).get("symbols", ""))  # a purge may have removed it
    text = text or "".join(alphabet)
    length = round(timing_input.length) if timing_input.length is not None else 0 if timing_input.text else SYMBOLS
    return (text * -(-length // len(text)))[:length] if length else text


def _recording(timing_input: TimingInput, rate: int, scratch: Path) -> Path:
    """A WAV of the wanted length."""
    import numpy as np

    from voxline.audio.wav import to_int16, write_wav

    # Given, or of the evaluation, or a second of noise; repeated up to the wanted length.
    source = timing_input.audio or (timing_input.evaluation and timing_input.evaluation / CLIP_FILE)
    if source is None:
        samples = np.random.default_rng(0).normal(0, 0.1, rate).clip(-1, 1).astype(np.float32)
    else:
        samples = read_waveform(source, rate)
    length = round((SECONDS if timing_input.length is None else timing_input.length) * rate)
    if timing_input.audio and timing_input.length is None:
        length = len(samples)
    file = scratch / "input.wav"
    write_wav(file, to_int16(np.resize(samples, max(length, 1))), rate)
    return file

"""A public voice as it comes, beside its own runtime; one tuned from it on a person's recordings, and one from nothing.

  python -W ignore -m benchmarks.public_voices joe VOICE.onnx WHISPER TEXTS
  python -W ignore -m benchmarks.public_voices tuned VOICE.onnx WHISPER TEXTS PROMPTS ENCODER    (make bench-voices)
  python -W ignore -m benchmarks.public_voices nothing VOICE.onnx WHISPER TEXTS PROMPTS ENCODER

The texts are the prompts of Debian's packages asterisk-core-sounds-en-g722 and -wav (CC BY-SA 3.0), of which TEXTS has
a line `name: text` each. 60 of 4 to 40 words without spelled letters, by the hash of their first name, are the test: no
text of theirs is trained on. WHISPER is a Hub folder of Whisper tiny.en, which listens; errors are counted without case
and punctuation, with numbers in words. Its errors on the person's recordings are printed beside those on the voice.

ENCODER is the wheel of `benchmarks.speaker_likeness`. The config is the one that `voxline config init` writes, and
`--set` changes it. It resumes: Ctrl-C, SIGTERM and a crash cost what came behind the last checkpoint. What it spent is
beside the voice, and counts the runs that were stopped.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import numpy.typing as npt
import soundfile

from benchmarks.speaker_likeness import likeness, mean_place
from benchmarks.table import Row, cpu_seconds, print_table, with_interval
from benchmarks.tuning import LEFT_OUT, read_texts
from voxline.audio.ffmpeg import find_ffmpeg
from voxline.audio.speaker_encoder import SpeakerEncoder
from voxline.families.asr.spelling import normalize_english_words
from voxline.families.family import find_family
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.waveforms import read_waveform
from voxline.metrics.bootstrap import SumAndWeight, aggregate
from voxline.metrics.dnsmos import dnsmos
from voxline.metrics.wer import count_word_edits
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.scaffold import propose_config, write_config
from voxline.pipelines.graphs import steps_until
from voxline.pipelines.local.single_step import run_step
from voxline.serving.speech import FIRST_SECONDS
from voxline.store.files import atomic_folder, atomic_write, read_json, write_json, write_text
from voxline.store.hashing import hash_file, hash_value

Array = npt.NDArray[np.float32]

PROGRAMS = Path(os.environ.get("VOXLINE_PROGRAMS", Path(__file__).parents[1] / ".programs-venv")) / "bin"
TESTED, VALIDATED = 60, 16
LEAST_WORDS, MOST_WORDS = 4, 40
LONGEST = 8.0
"""Seconds of a recording that is trained on: a batch needs memory for its longest one."""
COMPARED = 60
"""Recordings of the person, and sentences of the parent, whose mean is where either is."""
PROMPT_RATE = 16_000
WARM, ROUNDS = 3, 3
LEDGER_SECONDS = 20.0
PEER = Path(__file__).parent / "peers" / "piper_speech.py"


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A recording of the person, or what is to be said in one.

    Attributes:
      name: of its first file, with "_" for "/".
      file: None where no recording is there.
    """

    name: str
    text: str
    split: str
    file: Path | None = None


def rows_as_it_comes(voice: Path, whisper: Path, texts: Path, folder: Path) -> list[Row]:
    """Words wrong of the imported voice, when its sentences begin to sound, and its processor time beside Piper's."""
    model = import_voice(voice, folder)
    recognizer = _recognizer(whisper, folder)
    prompts = [prompt for prompt in split_prompts(texts) if prompt.split == "test"]
    measured = measure(model, prompts, recognizer, folder / "as it comes")
    errors = [each.words for each in measured]
    name = f"{voice.stem}, {len(errors)} sentences, words wrong by Whisper tiny.en"
    table = [Row.of(name, with_interval(errors), "", _rate(errors), "<=", 0.05)]
    waits = sorted(_first_audio(Synthesizer(model), prompts))
    told = f"{1000 * statistics.median(waits):.0f} ms, {1000 * waits[-1]:.0f} ms at most"
    name = f"{voice.stem}, from a text to its first {FIRST_SECONDS:g} s of sound, streamed; median of {len(waits)}"
    table.append(Row.of(name, told, "", 1000 * statistics.median(waits), "<=", 150.0))
    if not (PROGRAMS / "piper").exists():
        print(
            f"public_voices: {PROGRAMS} has no Piper to compare with; make test-programs installs it", file=sys.stderr
        )
        return table

    # In turn, so that a busy machine slows both.
    own, peers = [], []
    for _ in range(ROUNDS):
        own.append(
            _pace([sys.executable, "-W", "ignore", "-m", "benchmarks.public_voices", "pace", str(model)], prompts)
        )
        peers.append(_pace([str(PROGRAMS / "python"), str(PEER), str(voice)], prompts))
    ours, theirs = map(statistics.median, (own, peers))
    name = f"{voice.stem}, processor time of a second of speech, one thread; peer: Piper's runtime"
    return [*table, Row.of(name, f"{ours:.4f} s", f"{theirs:.4f} s", ours / theirs, "<=", 1.0)]


def rows_tuned(
    voice: Path, whisper: Path, texts: Path, prompts: Path, wheel: Path, folder: Path, changes: Sequence[str]
) -> list[Row]:
    """What the tuned voice is worth, beside the recordings and beside the voice that it was tuned from."""
    corpus = write_prompts(prompts, texts, folder / "prompts")
    model, spent = train(corpus, folder / "tuned", str(voice), changes)
    listeners = Listeners(_recognizer(whisper, folder), SpeakerEncoder(wheel))
    judged = judge(model, texts, corpus, folder / "speech", listeners, import_voice(voice, folder))

    table = [Row.of("tuned: training", f"{spent / 3600:.2f} CPU hours", "", spent / 3600, "<=", 4.0)]
    name = f"tuned: {len(judged.wrong)} unseen prompts, words wrong by Whisper tiny.en"
    peer = f"{with_interval(judged.wrong_recorded)} of the recordings"
    table.append(Row.of(name, with_interval(judged.wrong), peer, _rate(judged.wrong), "<=", 0.10))
    name = "tuned: DNSMOS, as a share of the recordings'"
    share = judged.opinion / judged.opinion_recorded
    table.append(Row.of(name, f"{judged.opinion:.2f}", f"{judged.opinion_recorded:.2f}", share, ">=", 0.85))
    name = "tuned: sentences that sound nearer to the person than to the parent"
    of_parent = f"{judged.closeness:.2f} ({judged.closeness_to_parent:.2f} to the parent)"
    told = f"{judged.nearer} of {len(judged.wrong)}, likeness {of_parent}"
    peer = f"likeness {judged.closeness_recorded:.2f} of the recordings"
    return [*table, Row.of(name, told, peer, judged.nearer / len(judged.wrong), ">=", 0.95)]


def print_from_nothing(
    voice: Path, whisper: Path, texts: Path, prompts: Path, wheel: Path, folder: Path, changes: Sequence[str]
) -> None:
    """Prints what a voice is worth that `config init` trains from nothing on the same recordings; it has no bar."""
    corpus = write_prompts(prompts, texts, folder / "prompts")
    model, spent = train(corpus, folder / "nothing", "", changes)
    listeners = Listeners(_recognizer(whisper, folder), SpeakerEncoder(wheel))
    judged = judge(model, texts, corpus, folder / "speech from nothing", listeners, import_voice(voice, folder))

    share = judged.opinion / judged.opinion_recorded
    wrong = with_interval(judged.wrong)
    print(f"from nothing: training {spent / 3600:.2f} CPU hours")
    print(f"from nothing: {len(judged.wrong)} unseen prompts, words wrong by Whisper tiny.en {wrong}")
    print(f"from nothing: DNSMOS {judged.opinion:.2f}, {share:.2f} of the recordings'")
    print(
        f"from nothing: likeness to the person {judged.closeness:.2f} ({judged.closeness_recorded:.2f} of recordings)"
    )


@dataclasses.dataclass(frozen=True)
class Listeners:
    """Who hears a voice."""

    recognizer: Recognizer
    encoder: SpeakerEncoder


@dataclasses.dataclass(frozen=True)
class Judged:
    """What the test sentences of a voice are worth, and the recordings of the same texts.

    Attributes:
      wrong, wrong_recorded: words of each sentence.
      opinion, opinion_recorded: DNSMOS.
      closeness, closeness_recorded, closeness_to_parent: mean likeness to the person, and to the public voice.
      nearer: sentences that are more like the person than like the public voice.
    """

    wrong: list[SumAndWeight]
    wrong_recorded: list[SumAndWeight]
    opinion: float
    opinion_recorded: float
    closeness: float
    closeness_recorded: float
    closeness_to_parent: float
    nearer: int


def judge(model: Path, texts: Path, corpus: Path, speech: Path, listeners: Listeners, parent: Path) -> Judged:
    """Judges a voice by the test prompts; `speech` keeps its sound, and folders beside it that of the others."""
    all_prompts = split_prompts(texts, corpus)
    tested = [prompt for prompt in all_prompts if prompt.split == "test"]
    folder = speech.parent
    recognizer, encoder = listeners.recognizer, listeners.encoder
    recorded = measure(None, tested, recognizer, folder / "recordings", encoder)
    spoken = measure(model, tested, recognizer, speech, encoder)

    # Where she is, by recordings that are no part of the test; where the parent is, by the texts of these.
    known = [
        prompt
        for prompt in all_prompts
        if prompt.split == "train" and _is_sentence(normalize_english_words(prompt.text))
    ][:COMPARED]
    of_person, of_parent = (
        mean_place([each.place for each in measure(source, known, None, folder / place, encoder)])
        for source, place in ((None, "person"), (parent, "parent"))
    )
    to_person = [likeness(each.place, of_person) for each in spoken]
    to_parent = [likeness(each.place, of_parent) for each in spoken]
    return Judged(
        wrong=[each.words for each in spoken],
        wrong_recorded=[each.words for each in recorded],
        opinion=statistics.mean(each.opinion for each in spoken),
        opinion_recorded=statistics.mean(each.opinion for each in recorded),
        closeness=statistics.mean(to_person),
        closeness_recorded=statistics.mean(likeness(each.place, of_person) for each in recorded),
        closeness_to_parent=statistics.mean(to_parent),
        nearer=sum(person > other for person, other in zip(to_person, to_parent, strict=True)),
    )


def split_prompts(texts: Path, corpus: Path | None = None) -> list[Prompt]:
    """The prompts that are speech, in the order of the hashes of their names.

    Two prompts of one text are in one split; of test and dev only the first is kept.

    Args:
      corpus: of `write_prompts`; those that it lacks are left out.
    """
    by_text: dict[str, list[tuple[str, str]]] = {}
    for name, text in read_texts(texts):
        file = _wav(corpus, name) if corpus else None
        if file is None or file.is_file():
            by_text.setdefault(normalize_english_words(text), []).append((name, text))

    # The first name of a text decides, so that other prompts move none.
    drawn = sorted(by_text.items(), key=lambda item: hash_value(min(item[1])[0]))
    sentences = [words for words, _ in drawn if _is_sentence(words)]
    tested = set(sentences[:TESTED])
    validated = set(sentences[TESTED : TESTED + VALIDATED])
    prompts = []
    for words, named in drawn:
        split = "test" if words in tested else "dev" if words in validated else "train"
        kept = sorted(named) if split == "train" else [min(named)]
        prompts += [Prompt(_id(name), text, split, _wav(corpus, name) if corpus else None) for name, text in kept]
    return prompts


def write_prompts(prompts: Path, texts: Path, corpus: Path) -> Path:
    """The recordings as WAV of 16 kHz or less, with a manifest; those of the package -g722 are decoded by ffmpeg."""
    (corpus / "wavs").mkdir(parents=True, exist_ok=True)
    for name, _ in read_texts(texts):
        file = _wav(corpus, name)
        if (prompts / f"{name}.g722").is_file() and not file.exists():
            command = [find_ffmpeg(), "-v", "error", "-f", "g722", "-i", str(prompts / f"{name}.g722"), "-f", "wav"]
            content = subprocess.run([*command, "-bitexact", "pipe:1"], check=True, capture_output=True).stdout
        elif (prompts / f"{name}.wav").is_file() and not file.exists():
            content = (prompts / f"{name}.wav").read_bytes()
        else:
            continue
        with atomic_write(file) as out:
            out.write(content)
    lines = []
    for prompt in split_prompts(texts, corpus):
        # A batch has the memory of its longest recording, and few prompts are long.
        samples, rate = _sound(None, prompt)
        if prompt.split == "train" and len(samples) > LONGEST * rate:
            continue
        values = {"id": prompt.name, "audio_filepath": f"wavs/{prompt.name}.wav", "text": prompt.text}
        lines.append(json.dumps({**values, "split": prompt.split}, ensure_ascii=False) + "\n")
    write_text(corpus / "manifest.jsonl", "".join(lines))
    return corpus


def train(corpus: Path, run_dir: Path, parent: str, changes: Sequence[str]) -> tuple[Path, float]:
    """Trains as `config init` says, from a parent or from nothing (""), or resumes.

    Returns the exported voice, and processor seconds.
    """
    config_file = run_dir.with_suffix(".yaml")
    if not config_file.exists():
        write_config(propose_config(corpus, pipeline="tts", parent=parent), config_file)
    names = [f"store={run_dir.parent / 'store'}", f"name={run_dir.name}"]
    config = load_config([config_file], [*changes, *names], pipeline="tts")

    # What a run spends is written each few seconds, so that one that is killed counts too.
    ledger = run_dir.with_suffix(".seconds.json")
    before = read_json(ledger)["cpu_seconds"] if ledger.exists() else 0.0
    start = cpu_seconds()
    ended = threading.Event()

    def write_spent() -> None:
        while True:
            last = ended.wait(LEDGER_SECONDS)
            write_json(ledger, {"cpu_seconds": round(before + cpu_seconds() - start, 1)})
            if last:
                return

    writer = threading.Thread(target=write_spent)
    writer.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    output: Any = None
    try:
        for step in steps_until("tts", "export", config.optional_steps()):
            if step not in LEFT_OUT:
                with contextlib.redirect_stdout(sys.stderr):
                    output = run_step(step, config, run_dir, {})
    finally:
        ended.set()
        writer.join()
    return output.path("model"), read_json(ledger)["cpu_seconds"]


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured of a sentence.

    Attributes:
      words: wrong ones, and those of the text.
      opinion: DNSMOS.
      place: of the voice, [256]; empty without an encoder.
    """

    words: SumAndWeight
    opinion: float
    place: Array


def measure(
    model: Path | None,
    prompts: Sequence[Prompt],
    recognizer: Recognizer | None,
    folder: Path,
    encoder: SpeakerEncoder | None = None,
) -> list[Measured]:
    """Measures sentences that a voice says, or the recordings of `model` None; each once, if the voice stays the same.

    The sound of each is beside its figures.
    """
    synthesizer = Synthesizer(model) if model else None
    # Whatever is said, heard or listens otherwise is measured again.
    by = [model and model_digest(model), recognizer and model_digest(recognizer.folder), encoder and encoder.digest]
    folder.mkdir(parents=True, exist_ok=True)
    measured = []
    for prompt in prompts:
        file = folder / f"{prompt.name}.json"
        recorded = hash_file(prompt.file) if prompt.file and not model else ""
        key = hash_value([*by, prompt.text, recorded])
        known = read_json(file) if file.exists() else {}
        if known.get("key") != key:
            samples, rate = _sound(synthesizer, prompt)
            heard = recognizer.transcribe(samples, rate) if recognizer else ""
            edits = count_word_edits([normalize_english_words(prompt.text)], [normalize_english_words(heard)])[0]
            place = encoder.embed(samples, rate).tolist() if encoder else []
            opinion = (dnsmos(samples, rate) or 0.0) if recognizer and encoder else 0.0
            soundfile.write(folder / f"{prompt.name}.wav", samples, rate, subtype="PCM_16")
            known = {
                "key": key, "text": prompt.text, "heard": heard, "words": list(edits.as_metric), "opinion": opinion,
                "place": place,
            }  # fmt: skip
            write_json(file, known)
        measured.append(Measured(SumAndWeight(*known["words"]), known["opinion"], np.array(known["place"])))
    return measured


def import_voice(voice: Path, folder: Path) -> Path:
    """The voice as `voxline models import --onnx float32` has it."""
    return _import("tts", voice, voice, folder, {})


def _recognizer(whisper: Path, folder: Path) -> Recognizer:
    return Recognizer(_import("asr", whisper, whisper / "model.safetensors", folder, {"head": "decoder"}))


def _import(family_name: str, source: Path, weights: Path, folder: Path, values: dict[str, Any]) -> Path:
    """A public model, imported once; another one of the same name is another folder."""
    model = folder / "voices" / f"{source.stem}-{hash_file(weights)[:8]}"
    if not model.exists():
        family = find_family(family_name)
        parent = family.public_parent(str(source))
        if parent is None:
            sys.exit(f"{source}: no public model of the family {family_name}")
        with atomic_folder(model) as unfinished:
            family.export_published(parent, unfinished, values, source.stem, "float32")
    return model


def _sound(synthesizer: Synthesizer | None, prompt: Prompt) -> tuple[Array, int]:
    """What the voice says, or the recording of None: samples of -1 to 1, and their rate."""
    if synthesizer:
        return np.clip(synthesizer.speak(prompt.text).waveform, -1, 1), synthesizer.sample_rate
    if prompt.file is None:
        raise SystemExit(f"{prompt.name}: no recording")
    return read_waveform(prompt.file, PROMPT_RATE), PROMPT_RATE


def _first_audio(synthesizer: Synthesizer, prompts: Sequence[Prompt]) -> list[float]:
    """Seconds from each text to its first chunk, phonemes included."""
    waits = []
    for prompt in prompts:
        start = time.perf_counter()
        next(synthesizer.stream(prompt.text, first_seconds=FIRST_SECONDS))
        waits.append(time.perf_counter() - start)
    return waits


def _pace(command: list[str], prompts: Sequence[Prompt]) -> float:
    """Processor seconds of a second of speech; the command gets a file of texts."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.json"
        file.write_text(json.dumps([prompt.text for prompt in prompts]), encoding="utf-8")
        printed = subprocess.run([*command, str(file)], check=True, capture_output=True, text=True).stdout
    figures = json.loads(printed.splitlines()[-1])
    return float(figures["processor"] / figures["speech"])


def print_pace(model: Path, file: Path) -> None:
    """Speaks as the peer does, on one core, and prints the same; the process of espeak-ng counts too."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    synthesizer = Synthesizer(model, threads=1)
    texts = json.loads(file.read_text(encoding="utf-8"))
    for text in texts[:WARM]:
        synthesizer.speak(text)
    start = _family_seconds()
    before = synthesizer.audio_seconds
    for text in texts:
        synthesizer.speak(text)
    # Without the silence between sentences, which costs nothing and which the peer does not make.
    speech = synthesizer.audio_seconds - before
    print(json.dumps({"processor": _family_seconds() - start, "speech": speech}))


def _family_seconds() -> float:
    """Processor seconds of this process and of those that it has started, which run."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = file.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def _is_sentence(words: str) -> bool:
    """Whether a text can be judged by its words: long enough, none so long that it is a tenth of all, no letters."""
    told = words.split()
    return LEAST_WORDS <= len(told) <= MOST_WORDS and all(len(word) > 1 or word in ("a", "i") for word in told)


def _rate(values: Sequence[SumAndWeight]) -> float:
    return aggregate(values) or 0.0


def _id(name: str) -> str:
    return name.replace("/", "_")


def _wav(corpus: Path, name: str) -> Path:
    return corpus / "wavs" / f"{_id(name)}.wav"


def main() -> None:
    """Reads the command line, and prints the table of what it asks for."""
    parser = argparse.ArgumentParser(prog="benchmarks.public_voices")
    commands = parser.add_subparsers(dest="command", required=True)
    arguments = {
        "voice": "a Piper voice, NAME.onnx with NAME.onnx.json beside it", "whisper": "folder of Whisper tiny.en",
        "texts": "file of lines `name: text`", "prompts": "folder en_US_f_Allison of a package",
        "encoder": "wheel of Resemblyzer",
    }  # fmt: skip
    for command, needed in {"joe": list(arguments)[:3], "tuned": list(arguments), "nothing": list(arguments)}.items():
        subparser = commands.add_parser(command)
        for name in needed:
            subparser.add_argument(name, type=Path, help=arguments[name])
        subparser.add_argument("--folder", type=Path, default=Path("runs/public-voices"), help="keeps what was made")
        if command != "joe":
            subparser.add_argument("--set", action="append", default=[], help="KEY=VALUE of the config of the training")
    pace = commands.add_parser("pace")
    pace.add_argument("model", type=Path)
    pace.add_argument("file", type=Path)
    options = parser.parse_args()

    if options.command == "pace":
        print_pace(options.model, options.file)
        return
    folder = options.folder.absolute()
    of_voice = (options.voice, options.whisper, options.texts)
    if options.command == "joe":
        print_table(rows_as_it_comes(*of_voice, folder))
    elif options.command == "tuned":
        print_table(rows_tuned(*of_voice, options.prompts, options.encoder, folder, options.set))
    else:
        print_from_nothing(*of_voice, options.prompts, options.encoder, folder, options.set)


if __name__ == "__main__":
    main()

"""What `voxline config init` proposes runs: twelve corpora and a faulty one, from the folder to a trained step."""

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import soundfile
import tensorflow as tf

from voxline.components.convert.step import run as convert
from voxline.components.extract.step import run as extract
from voxline.components.ingest.step import run as ingest
from voxline.components.language.step import check as check_language
from voxline.components.validate.step import run as validate
from voxline.data.dataset import Dataset
from voxline.data.manifest import read_manifest
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.asr.task import AsrTask
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.scaffold import propose_config, write_config

pytestmark = pytest.mark.slow


class Spoken(NamedTuple):
    """An utterance that a corpus is made of: noise as long as its text needs, in 16-bit samples."""

    number: int
    text: str
    samples: "np.ndarray[tuple[int], np.dtype[np.int16]]"
    rate: int

    @property
    def speaker(self) -> str:
        return f"s{self.number % 8}"

    def save(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, self.samples, self.rate)


def speak(texts: list[str], count: int = 32, rate: int = 16_000) -> Iterator[Spoken]:
    """`count` utterances of the texts in turn; no two recordings are alike."""
    random = np.random.default_rng(0)
    for number in range(count):
        text = texts[number % len(texts)]
        # 80 ms a character: the fastest copy must have more frames than the text has characters.
        samples = random.normal(0, 3_000, int(rate * (0.4 + 0.08 * len(text) + 0.001 * number))).astype(np.int16)
        yield Spoken(number, text, samples, rate)


def write_lines(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def commands(folder: Path) -> None:
    """NeMo's manifest: two words of English, no speakers, 8 kHz."""
    lines = []
    for spoken in speak(["yes", "no"], 40, rate=8_000):
        spoken.save(folder / f"clips/{spoken.number}.wav")
        lines.append(json.dumps({"audio_filepath": f"clips/{spoken.number}.wav", "text": spoken.text}))
    write_lines(folder / "manifest.jsonl", lines)


def librispeech(folder: Path) -> None:
    """LibriSpeech: one split, capitals, eight speakers, FLAC; a recording without a transcript."""
    lines: dict[str, list[str]] = {}
    for spoken in speak(["THE TWO STRAY KITTENS", "IT'S WARMER", "AT HOME"]):
        speaker = str(10 + spoken.number % 8)
        id = f"{speaker}-7-{spoken.number:04}"
        spoken.save(folder / f"train-clean-5/{speaker}/7/{id}.flac")
        lines.setdefault(speaker, []).append(f"{id} {spoken.text}")
    for speaker, transcript in lines.items():
        write_lines(folder / f"train-clean-5/{speaker}/7/{speaker}-7.trans.txt", transcript)
    write_lines(folder / "train-clean-5/10/7/10-7.trans.txt", lines["10"][1:])


def ljspeech(folder: Path) -> None:
    """LJSpeech: one voice, English with numbers and money, 22,050 Hz."""
    lines = []
    for spoken in speak(["In 1455, the first book.", "It cost $3.50 & no more.", "Printing, then."], rate=22_050):
        spoken.save(folder / f"wavs/LJ001-{spoken.number:04}.wav")
        lines.append(f"LJ001-{spoken.number:04}|{spoken.text}|{spoken.text}")
    write_lines(folder / "metadata.csv", lines)


def common_voice(folder: Path) -> None:
    """Common Voice: German as MP3, digits in many sentences, a heart in one."""
    rows = ["client_id\tpath\tsentence"]
    for spoken in speak(["Schöne Grüße!", "Er hat 7 Äpfel.", "Das ist groß."], 60, rate=48_000):
        spoken.save(folder / f"cv/de/clips/common_voice_de_{spoken.number}.mp3")
        text = "Liebe ♥ ja" if spoken.number == 9 else spoken.text
        rows.append(f"{spoken.speaker}\tcommon_voice_de_{spoken.number}.mp3\t{text}")
    write_lines(folder / "cv/de/validated.tsv", rows)


def kaldi(folder: Path) -> None:
    """Kaldi: Russian, own splits, three utterances in a recording."""
    for split, count in (("train", 24), ("dev", 6), ("test", 9)):
        tables: dict[str, list[str]] = {"wav.scp": [], "text": [], "segments": [], "utt2spk": []}
        samples = []
        start = 0.0
        for spoken in speak(["ПРИВЕТ МИР", "КАК ДЕЛА", "ОЧЕНЬ ХОРОШО ЁЛКА"], count):
            id = f"{spoken.speaker}-{split}-{spoken.number}"
            talk = f"{split}-{spoken.number // 3}"
            end = start + len(spoken.samples) / spoken.rate
            tables["text"].append(f"{id} {spoken.text}")
            tables["segments"].append(f"{id} {talk} {start:.3f} {end:.3f}")
            tables["utt2spk"].append(f"{id} {spoken.speaker}")
            samples.append(spoken.samples + len(split))
            start = end
            if spoken.number % 3 == 2:
                spoken._replace(samples=np.concatenate(samples)).save(folder / f"audio/{talk}.wav")
                tables["wav.scp"].append(f"{talk} audio/{talk}.wav")
                samples.clear()
                start = 0.0
        for name, lines in tables.items():
            write_lines(folder / f"data/{split}/{name}", lines)


def deepspeech(folder: Path) -> None:
    """DeepSpeech's CSV: Spanish as Ogg Vorbis, own splits, no speakers."""
    for split, count in (("train", 30), ("dev", 6), ("test", 6)):
        rows = ["wav_filename,wav_filesize,transcript"]
        for spoken in speak(["el niño pequeño", "¿qué hora es?", "mañana, tal vez"], count, rate=24_000):
            file = folder / f"{split}/{spoken.number}.ogg"
            spoken._replace(samples=spoken.samples + len(split)).save(file)
            rows.append(f'{split}/{spoken.number}.ogg,{file.stat().st_size},"{spoken.text}"')
        write_lines(folder / f"{split}.csv", rows)


def thchs30(folder: Path) -> None:
    """THCHS-30: Mandarin with spaces between its words, pinyin beside it, own splits."""
    texts = [("绿 是 阳春", "lv4 shi4 yang2 chun1"), ("今天 很 好", "jin1 tian1 hen3 hao3")]
    for spoken in speak(["绿 是 阳春", "今天 很 好"], 36):
        split = ["train", "train", "train", "train", "dev", "test"][spoken.number % 6]
        file = folder / f"{split}/A{spoken.number % 8}_{spoken.number}.wav"
        spoken.save(file)
        write_lines(file.with_name(f"{file.name}.trn"), list(texts[spoken.number % 2]))


def mandarin(folder: Path) -> None:
    """A manifest of Mandarin with numbers and an English word, no speakers, 44,100 Hz, stereo."""
    lines = []
    for spoken in speak(["我有12个苹果", "今天很好。", "买 2 个 APP"], rate=44_100):
        spoken._replace(samples=np.stack([spoken.samples, spoken.samples], axis=1)).save(
            folder / f"{spoken.number}.wav"
        )
        lines.append(json.dumps({"audio_filepath": f"{spoken.number}.wav", "text": spoken.text}, ensure_ascii=False))
    write_lines(folder / "train_manifest.json", lines)


def fsdd(folder: Path) -> None:
    """FSDD: no transcripts, digits in the names of files, 8 kHz."""
    for spoken in speak(["zero", "one", "two", "three"], 48, rate=8_000):
        spoken.save(folder / f"recordings/{spoken.number % 4}_{spoken.speaker}_{spoken.number // 4}.wav")


def lhotse(folder: Path) -> None:
    """Lhotse's cuts: Japanese, whose characters are words to a language model."""
    lines = []
    for spoken in speak(["今日はいい天気です", "ありがとう", "また明日"], 36):
        spoken.save(folder / f"audio/{spoken.number}.flac")
        seconds = len(spoken.samples) / spoken.rate
        span = {"start": 0.0, "duration": seconds, "channel": 0}
        source = {"type": "file", "channels": [0], "source": f"audio/{spoken.number}.flac"}
        recording = {"id": "r", "sources": [source], "sampling_rate": 16_000, "num_samples": len(spoken.samples)}
        supervision = {"id": f"u{spoken.number}", "recording_id": "r", **span, "text": spoken.text}
        supervision["speaker"] = spoken.speaker
        cut = {"id": f"c{spoken.number}", **span, "type": "MonoCut", "supervisions": [supervision]}
        lines.append(json.dumps({**cut, "recording": {**recording, "duration": seconds}}))
    write_lines(folder / "cuts_train.jsonl", lines)


def huggingface(folder: Path) -> None:
    """A table of the Hub: Czech with many words, of 12 speakers, two of whom have most of the audio."""
    words = ["zdá", "se", "mi", "že", "tváří", "pitomě", "krůtí", "ještě", "ďábel", "úl", "ňadra", "tříšť", "óda"]
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(words, 3)) + f" {chr(97 + number % 26)}la" for number in range(60)]
    rows = []
    for spoken in speak(texts, 60):
        data = io.BytesIO()
        soundfile.write(data, spoken.samples, spoken.rate, format="FLAC")
        speaker = "ab"[spoken.number % 2] if spoken.number < 50 else f"s{spoken.number}"
        audio = {"bytes": data.getvalue(), "path": f"{spoken.number}.flac"}
        rows.append({"audio": audio, "sentence": spoken.text, "client_id": speaker})
    folder.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "train-00000-of-00001.parquet")


def webdataset(folder: Path) -> None:
    """An archive of pairs: Hindi."""
    folder.mkdir(parents=True)
    with tarfile.open(folder / "train-000000.tar", "w") as tar:
        for spoken in speak(["नमस्ते दुनिया", "क्या हाल है", "बहुत अच्छा"], 36):
            for name, data in ((f"{spoken.number}.wav", None), (f"{spoken.number}.txt", spoken.text.encode())):
                buffer = io.BytesIO(data or b"")
                if data is None:
                    soundfile.write(buffer, spoken.samples, spoken.rate, format="WAV")
                member = tarfile.TarInfo(name)
                member.size = len(buffer.getvalue())
                buffer.seek(0)
                tar.addfile(member, buffer)


def faulty(folder: Path) -> None:
    """A table of Ukrainian in which recordings are missing, cut short, broken and not named."""
    rows = ["path\tsentence\tspeaker_id"]
    for spoken in speak(["добрий день", "дякую, їжак", "до зустрічі"], 60):
        spoken.save(folder / f"clips/{spoken.number}.wav")
        rows.append(f"clips/{spoken.number}.wav\t{spoken.text}\t{spoken.speaker}")
    (folder / "clips/3.wav").unlink()
    (folder / "clips/4.wav").write_bytes((folder / "clips/4.wav").read_bytes()[:2_000])
    (folder / "clips/5.wav").write_bytes(b"no recording")
    rows += ["clips/6.wav\tще раз", "clips/7.wav\tдобрий день\ts7"]
    (folder / "clips/7.wav").rename(folder / "clips/unlisted.wav")
    write_lines(folder / "all.tsv", rows)


class Proposed(NamedTuple):
    """The expected config: faults are kinds of faulty lines and files that are named."""

    format: str
    split: str
    frontend: str = "transcript"
    letters: str = ""
    faults: int = 0


@pytest.mark.parametrize(
    ("make", "proposed"),
    [
        (commands, Proposed("manifest", "utterance")),
        (librispeech, Proposed("librispeech", "speaker", faults=1)),
        (ljspeech, Proposed("ljspeech", "utterance", "english_transcript")),
        (common_voice, Proposed("common_voice", "speaker", letters="ä7", faults=1)),
        (kaldi, Proposed("kaldi", "corpus", letters="ё", faults=1)),
        (deepspeech, Proposed("csv", "corpus", letters="ñ", faults=1)),
        (thchs30, Proposed("thchs30", "corpus", "mandarin_transcript", "绿春", faults=1)),
        (mandarin, Proposed("manifest", "utterance", "mandarin_transcript", "十a")),
        (fsdd, Proposed("fsdd", "corpus", faults=1)),
        (lhotse, Proposed("lhotse", "speaker", letters="今が")),
        (huggingface, Proposed("huggingface", "utterance", letters="ďř", faults=1)),
        (webdataset, Proposed("webdataset", "utterance", letters="न्")),
        (faulty, Proposed("csv", "speaker", letters="їі", faults=4)),
    ],
    ids=lambda value: value.__name__ if callable(value) else value.format,
)
def test_a_config_by_init_trains(tmp_path: Path, make: Callable[[Path], None], proposed: Proposed) -> None:
    make(tmp_path / "corpus")
    proposal = propose_config(tmp_path / "corpus")
    # The first as it is written; of the others one layer, since each costs seconds of building its graph.
    fewer_layers = [] if make is commands else ["train.model.layers=1"]
    run = load_config(write_config(proposal, tmp_path / "run.yaml"), fewer_layers)
    print(proposal.text, *proposal.findings, sep="\n")
    assert proposed.format == run.corpus.format
    assert proposed.split == run.corpus.split.by
    assert proposed.frontend == run.convert.frontend.kind
    assert set(proposed.letters) <= set(run.convert.alphabet)
    assert run.section("language").plain()["kind"] == "ngram"
    assert sum(line.startswith("warning") and "U+" not in line for line in proposal.findings) == proposed.faults
    store = tmp_path / "store"

    # The steps of the graph up to training, as a run takes them.
    manifest = convert(ingest(store, run.corpus).folder, store, run.convert).folder
    check_language(manifest, run.section("language"))
    validate(manifest, store, run.section("validate"))
    dataset = Dataset.read(extract(manifest, store, run.extract).folder)
    settings = run.section("train")
    assert isinstance(settings, AsrTrainSettings)
    task = AsrTask(settings, dataset)
    result = task.module.train_step(next(task.train.epoch(0)), 1e-3, 0)
    assert result.accepted
    assert np.isfinite(result.loss)

    splits = {utterance.split for utterance in read_manifest(manifest / "manifest.jsonl")}
    assert splits == {"train", "dev", "test"}
    tf.keras.backend.clear_session()

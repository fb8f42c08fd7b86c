"""The generated demo corpus: its layout, its repeatability, and what is left of a killed run."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import soundfile

from tests.waiting import PATIENCE_SECONDS
from voxline.components.demo_corpus.commands import COMMANDS, Language
from voxline.components.demo_corpus.grammar import Grammar
from voxline.components.demo_corpus.settings import DemoCorpusSettings, WordsCorpusSettings
from voxline.components.demo_corpus.speakers import ACCENTS, VARIANTS, draw_speakers
from voxline.components.demo_corpus.step import corpus_settings, run
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.demo_corpora import SENTENCE_SHARES
from voxline.families.family import DemoCorpus, Family, register, unregister
from voxline.store.files import hash_folder

TINY = {
    "train_speakers": 4,
    "dev_speakers": 1,
    "test_speakers": 1,
    "utterances_per_speaker": 5,
    "dev_utterances_per_speaker": 3,
    "min_snr": 20,
    "max_snr": 20,
}
GENERATE = """
import sys
from voxline.components.demo_corpus.grammar import Grammar
from voxline.components.demo_corpus.step import corpus_settings, run
run(sys.argv[1], corpus_settings(sys.argv[2]), workers=int(sys.argv[3]))
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "demo"
    run(folder, corpus_settings(TINY))
    return folder


@pytest.mark.slow
def test_a_fresh_process_with_another_number_of_workers_writes_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    time.sleep(1.1)  # espeak-ng seeds itself with the second of the day, which must not be heard
    for workers in (1, 3):
        again = tmp_path / f"by{workers}"
        _start(again, TINY, workers).wait()
        assert hash_folder(again) == hash_folder(corpus)


def test_every_line_of_a_transcript_has_its_recording_and_the_other_way_round(corpus: Path) -> None:
    texts = _transcripts(corpus)
    recordings = {path.stem: path for path in corpus.glob("LibriSpeech/*/*/*/*.flac")}
    assert sorted(texts) == sorted(recordings)
    assert len(texts) == 4 * 5 + 3 + 5
    for utterance, path in recordings.items():
        speaker, chapter, _ = utterance.split("-")
        assert path.parent.parts[-2:] == (speaker, chapter)


def test_recordings_are_16_khz_mono_16_bit_flac_of_plausible_length_and_level(corpus: Path) -> None:
    texts = _transcripts(corpus)
    for path in corpus.glob("LibriSpeech/*/*/*/*.flac"):
        info = soundfile.info(path)
        assert (info.samplerate, info.channels, info.format, info.subtype) == (16000, 1, "FLAC", "PCM_16")
        letters_a_second = len(texts[path.stem]) / (info.duration - 0.2)
        assert 9 < letters_a_second < 30, path.stem
        samples, _ = soundfile.read(path)
        assert 10 ** (-15.1 / 20) < np.abs(samples).max() < 10 ** (-2.9 / 20)


def test_no_speaker_is_in_two_splits_and_no_two_sound_alike(corpus: Path) -> None:
    speakers = [path.name for path in corpus.glob("LibriSpeech/*/*") if path.is_dir()]
    assert len(speakers) == len(set(speakers)) == 6
    listed = _speakers(corpus)
    assert sorted(listed) == sorted(speakers)
    assert len({name for _, _, _, name in listed.values()}) == 6
    for speaker, (sex, subset, minutes, name) in listed.items():
        assert (corpus / "LibriSpeech" / subset / speaker).is_dir()
        assert sex == name.split("+")[1][0].upper()
        seconds = sum(soundfile.info(path).duration for path in corpus.glob(f"LibriSpeech/*/{speaker}/*/*.flac"))
        assert float(minutes) == pytest.approx(seconds / 60, abs=0.006)


def test_transcripts_are_upper_case_words_of_the_grammar(corpus: Path) -> None:
    words = {word for text in _transcripts(corpus).values() for word in text.split()}
    known = COMMANDS["english"].grammar.words()
    assert len(known) == 69
    assert words <= {word.upper() for word in known}


def test_no_sentence_is_in_two_splits(corpus: Path) -> None:
    by_split: dict[str, set[str]] = {}
    for path in corpus.glob("LibriSpeech/*/*/*/*.trans.txt"):
        lines = path.read_text().splitlines()
        by_split.setdefault(path.parts[-4], set()).update(line.split(" ", 1)[1] for line in lines)
    assert len(by_split) == 3
    assert sum(map(len, by_split.values())) == len(set().union(*by_split.values()))


@pytest.mark.parametrize(
    ("language", "sizes"),
    [
        ("english", {"train": 1157, "dev": 168, "test": 332}),
        ("mandarin", {"train": 2260, "dev": 323, "test": 645}),
    ],
)
def test_every_word_is_in_a_sentence_of_train(language: Language, sizes: dict[str, int]) -> None:
    grammar = COMMANDS[language].grammar
    sentences = grammar.split(np.random.default_rng((1, 5)), SENTENCE_SHARES)
    assert {word for sentence in sentences["train"] for word in sentence.split()} == set(grammar.words())
    assert {split: len(of_split) for split, of_split in sentences.items()} == sizes


def test_a_manifest_lists_the_recordings_with_the_command_of_each(corpus: Path) -> None:
    texts, lines = _transcripts(corpus), _manifest(corpus)
    assert {line["id"]: line["text"].upper() for line in lines} == texts
    assert all((corpus / line["audio_filepath"]).is_file() for line in lines)
    first = {"turn": "switch", "call": "call", "add": "add_to_list", "remind": "remind_to", "play": "play_song"}
    for line in lines:
        assert line["command"].startswith(first.get(line["text"].split()[0], ""))
    splits = {line["id"].split("-")[0]: line["split"] for line in lines}
    assert sorted(splits.values()) == ["dev", "test", *["train"] * 4]


@pytest.mark.parametrize("language", ["english", "mandarin"])
def test_no_sentence_is_of_two_commands(language: Language) -> None:
    commands = COMMANDS[language]
    sentences = [each for template in commands.templates.values() for each in commands.grammar.sentences(template)]
    assert len(sentences) == len(set(map(commands.written, sentences))) == len(commands.names)


def test_mandarin_is_read_as_pinyin_with_a_tone_for_each_hanzi() -> None:
    commands = COMMANDS["mandarin"]
    for word in commands.grammar.words():
        assert len(commands.spoken(word).split()) == len(word), word
        assert re.fullmatch(r"([a-zv]+[1-5] ?)+", commands.spoken(word)), word


def test_mandarin_commands_are_written_in_hanzi(tmp_path: Path) -> None:
    few = {"train_speakers": 1, "dev_speakers": 1, "test_speakers": 1, "utterances_per_speaker": 1}
    run(tmp_path / "demo", corpus_settings({**few, "language": "mandarin", "dev_utterances_per_speaker": 1}))
    lines = _manifest(tmp_path / "demo")
    assert all(re.fullmatch(r"[\u4e00-\u9fff]+", line["text"]) for line in lines)
    assert {line["id"]: line["text"] for line in lines} == _transcripts(tmp_path / "demo")
    with pytest.raises(SettingsError, match="at most 13 are accepted for mandarin"):
        corpus_settings({"language": "mandarin"})


def test_the_noise_lies_as_far_below_the_speech_as_the_settings_say(corpus: Path) -> None:
    measured = []
    for path in corpus.glob("LibriSpeech/*/*/*/*.flac"):
        samples, rate = soundfile.read(path)
        noise = np.mean(samples[: round(0.08 * rate)] ** 2)  # 0.1 s is kept before the first word
        measured.append(10 * np.log10((np.mean(samples**2) - noise) / noise))
    assert np.median(measured) == pytest.approx(20, abs=1.5)


def test_the_same_settings_find_the_corpus_there(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in corpus.rglob("*")}
    work = run(corpus, corpus_settings(TINY))
    assert work.reused
    assert work.counts["utterances"] == 28
    assert "reused" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in corpus.rglob("*")} == before


@pytest.mark.slow
def test_a_corpus_of_other_settings_is_replaced_and_a_damaged_one_mended(corpus: Path, tmp_path: Path) -> None:
    one = {**TINY, "train_speakers": 1, "utterances_per_speaker": 1, "dev_utterances_per_speaker": 1}
    folder = tmp_path / "demo"
    run(folder, corpus_settings(one))
    whole = hash_folder(folder)
    next(folder.glob("LibriSpeech/test-clean/*/*/*.flac")).unlink()
    assert not run(folder, corpus_settings(one)).reused
    assert hash_folder(folder) == whole
    assert not run(folder, corpus_settings(TINY)).reused
    assert hash_folder(folder) == hash_folder(corpus)
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_files_that_were_not_generated_are_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(WorkError, match=r"not generated \(thesis.txt\)"):
        run(folder, corpus_settings(TINY))
    assert (folder / "thesis.txt").read_text() == "years of work"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(WorkError, match="file/demo: cannot write the corpus"):
        run(tmp_path / "file" / "demo", corpus_settings(TINY))


@pytest.mark.slow
def test_a_killed_run_leaves_nothing_that_looks_finished_and_the_next_one_finishes(
    corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "demo"
    process = _start(folder, TINY, 1)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(tmp_path.glob(".demo.part/**/*.flac")):
        assert time.monotonic() < deadline
        assert process.poll() is None, "it was done before it could be killed"
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not folder.exists()
    _start(folder, TINY, 2).wait()
    assert hash_folder(folder) == hash_folder(corpus)
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


@pytest.mark.slow
def test_two_processes_that_want_one_folder_take_turns(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    processes = [_start(folder, TINY, 1) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert hash_folder(folder) == hash_folder(corpus)
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_more_speakers_than_there_are_voices_are_refused() -> None:
    with pytest.raises(SettingsError, match="at most 104 are accepted for english"):
        corpus_settings({"train_speakers": 100})


def test_a_family_brings_its_corpus_and_no_two_bring_one_kind(tmp_path: Path) -> None:
    class ToneSettings(DemoCorpusSettings):
        kind: Literal["tone"] = "tone"

    def write(root: Path, settings: ToneSettings, workers: int) -> dict[str, int]:
        root.mkdir()
        (root / "tone.txt").write_text(settings.kind)
        return {"utterances": 1, "speakers": 1, "seconds": 1}

    class ToneFamily(Family):
        name = "tone"

        def demo_corpora(self) -> dict[str, DemoCorpus]:
            return {"tone": DemoCorpus(ToneSettings, write, layout="Tones")}

        def task(self) -> Any:
            raise NotImplementedError

    class OtherFamily(ToneFamily):
        name = "tuning"

    with pytest.raises(SettingsError, match=r"'kind' is 'tone'; accepted: commands, words, digits, .*round_trip$"):
        corpus_settings({"kind": "tone"})
    register(ToneFamily())
    try:
        corpus = run(tmp_path / "tone", corpus_settings({"kind": "tone"})).path("corpus")
        assert (corpus.name, (corpus / "tone.txt").read_text()) == ("Tones", "tone")
        register(OtherFamily())
        with pytest.raises(SettingsError, match="demo corpus 'tone': the families tone and tuning both declare it"):
            corpus_settings({"kind": "tone"})
    finally:
        unregister("tone")
        unregister("tuning")


@pytest.mark.slow
def test_each_speaker_says_each_word_once_natives_and_others(tmp_path: Path) -> None:
    given = {"kind": "words", "words": ["yes", "no"], "spellings": {"de": ["jess", "noh"]}, "speakers": 20}
    settings = WordsCorpusSettings.of(given)
    run(tmp_path / "words", settings, workers=2)
    texts, speakers = _transcripts(tmp_path / "words"), _speakers(tmp_path / "words")
    assert sorted(texts.values()) == ["NO"] * 20 + ["YES"] * 20
    assert {name.partition("+")[0] for _, _, _, name in speakers.values()} == {*ACCENTS, "de"}
    assert {subset for _, subset, _, _ in speakers.values()} == {"train-clean"}
    assert settings.spoken["de"] == ["jess", "noh"]
    assert settings.spoken["en-us"] == ["yes", "no"]
    recordings = sorted((tmp_path / "words").glob("LibriSpeech/*/*/*/*.flac"))
    assert len(recordings) == 40
    for recording in recordings:
        samples, rate = soundfile.read(recording)
        assert rate == 16000
        assert 0.15 < len(samples) / rate < 1.5
        assert abs(samples).max() == pytest.approx(10 ** (-6 / 20), abs=0.002)
    run(tmp_path / "again", settings, workers=1)
    assert hash_folder(tmp_path / "again") == hash_folder(tmp_path / "words")


def test_the_digits_have_spellings_and_other_words_none() -> None:
    assert {"de", "fr", "hi"} < set(WordsCorpusSettings().spoken)
    assert set(WordsCorpusSettings(words=["yes"]).spoken) == set(ACCENTS)


@pytest.mark.parametrize("accents", [1, 8, 13, 19])
def test_no_two_speakers_share_accent_and_variant_before_all_pairs_are_drawn(accents: int) -> None:
    names = [f"accent{number}" for number in range(accents)]
    drawn = draw_speakers(accents * len(VARIANTS), 1, 0.3, names)
    assert len({speaker.voice.name for speaker in drawn}) == len(drawn)


def _start(folder: Path, settings: dict[str, int], workers: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-P", "-c", GENERATE, folder, json.dumps(settings), str(workers)])


def _manifest(corpus: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (corpus / "manifest.jsonl").read_text().splitlines()]


def _transcripts(corpus: Path) -> dict[str, str]:
    texts = {}
    for path in corpus.glob("LibriSpeech/*/*/*/*.trans.txt"):
        for line in path.read_text().splitlines():
            utterance, text = line.split(" ", 1)
            texts[utterance] = text
    return texts


def _speakers(corpus: Path) -> dict[str, list[str]]:
    lines = (corpus / "LibriSpeech" / "SPEAKERS.TXT").read_text().splitlines()
    rows = [[field.strip() for field in line.split("|")] for line in lines if not line.startswith(";")]
    return {row[0]: row[1:] for row in rows}


def test_a_template_with_fewer_sentences_than_splits_is_refused() -> None:
    shares = {"train": 0.8, "dev": 0.1, "test": 0.1}
    with pytest.raises(ValueError, match=r"'good \{time\}' has 2 sentences, too few for train, dev, test"):
        Grammar(("good {time}",), {"time": ("day", "night")}).split(np.random.default_rng(0), shares)
    three = Grammar(("good {time}",), {"time": ("day", "night", "morning")}).split(np.random.default_rng(0), shares)
    assert [len(sentences) for sentences in three.values()] == [1, 1, 1]
    half = Grammar(("good {time}",), {"time": ("day", "night")})
    assert [len(one) for one in half.split(np.random.default_rng(0), {"train": 0.1, "test": 0.9}).values()] == [1, 1]

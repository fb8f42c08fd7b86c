"""Corpora for TTS and for the round-trip recognizer: layouts, sentences, repeatability."""

import re
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from voxline.components.demo_corpus.english import DIGIT_WORDS, PHRASES
from voxline.components.demo_corpus.grammar import Grammar, Sentence
from voxline.components.demo_corpus.mandarin import LEXICON, MANDARIN, syllable_phones
from voxline.components.demo_corpus.settings import SentenceKind
from voxline.components.demo_corpus.step import corpus_settings, run
from voxline.errors import SettingsError
from voxline.families.tts.demo_corpora import DRAW, draw_sentences
from voxline.store.files import hash_folder
from voxline.text.frontend import apply_frontend
from voxline.text.settings import FrontendSettings

SMALL = {"train": 60, "dev": 5, "test": 6, "long_sentences": 4}


def generated(folder: Path, **settings: object) -> Path:
    return run(folder, corpus_settings({**SMALL, **settings}), workers=2).path("corpus")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["digits", "phrases"])
def test_english_is_in_ljspeech_s_layout(tmp_path: Path, kind: str) -> None:
    corpus = generated(tmp_path / "voice", kind=kind)
    assert sorted(path.name for path in corpus.iterdir()) == ["metadata.csv", "wavs"]
    lines = [line.split("|") for line in (corpus / "metadata.csv").read_text().splitlines()]
    assert {len(fields) for fields in lines} == {3}
    assert sorted(f"{id}.wav" for id, _, _ in lines) == sorted(path.name for path in corpus.glob("wavs/*"))
    splits = [id.split("-")[0] for id, _, _ in lines]
    assert [splits.count(split) for split in ("train", "dev", "test")] == [60, 5, 10]
    assert len({normalised for _, _, normalised in lines}) == 75, "no sentence is in two splits"
    longest = max(len(text.split()) for id, _, text in lines if id.startswith("train"))
    assert all(len(text.split()) > longest for _, _, text in lines[-4:]) or kind == "phrases"


def test_digits_are_written_as_figures_and_read_as_words(tmp_path: Path) -> None:
    corpus = generated(tmp_path / "voice", kind="digits")
    for line in (corpus / "metadata.csv").read_text().splitlines():
        id, written, normalised = line.split("|")
        assert len(written.split()) == len(normalised.split())
        is_long = id in {f"test-{number:04d}" for number in range(71, 75)}
        assert len(written.split()) in (range(8, 11) if is_long else range(3, 7))
        assert re.fullmatch(r"[a-z ]+", normalised)


def test_hanzi_are_read_as_the_voice_says_them() -> None:
    how = FrontendSettings(kind="mandarin", sandhi=False)
    drawn = draw_sentences("mandarin", np.random.default_rng(5), {"train": 600, "test": 1}, long_sentences=100)
    for sentence in drawn["train"] + drawn["test"]:
        assert apply_frontend(sentence.written, how).normalized_text == sentence.normalized, sentence.written


@pytest.mark.parametrize(("kind", "rate"), [("digits", 22050), ("mandarin", 16000)])
def test_recordings_are_16_bit_at_the_rate_asked_for_and_hold_one_clean_voice(
    tmp_path: Path, kind: str, rate: int
) -> None:
    corpus = generated(tmp_path / "voice", kind=kind, sample_rate=rate)
    for path in corpus.rglob("*.wav"):
        info = soundfile.info(path)
        assert (info.samplerate, info.channels, info.subtype) == (rate, 1, "PCM_16")
        samples, _ = soundfile.read(path)
        assert 0.2 < np.abs(samples).max() < 1, path
        assert np.abs(samples[: round(0.04 * rate)]).max() < 0.01, "the margin is silent"
        assert np.abs(samples[round(0.045 * rate) : round(0.2 * rate)]).max() > 0.01, "speech begins after it"


def test_mandarin_stands_in_thchs_30s_layout(tmp_path: Path) -> None:
    corpus = generated(tmp_path / "voice", kind="mandarin")
    transcripts = {path.name: path.read_text().splitlines() for path in corpus.glob("data/*.trn")}
    assert sorted(transcripts) == sorted(f"{path.name}.trn" for path in corpus.glob("data/*.wav"))
    for hanzi, pinyin, spoken in transcripts.values():
        assert re.fullmatch(r"[\u4e00-\u9fff ]+", hanzi)
        syllables = pinyin.split()
        assert len(syllables) == len(hanzi.replace(" ", ""))
        assert all(re.fullmatch(r"[a-z]+[1-5]", syllable) for syllable in syllables)
        assert len(spoken.split()) == 2 * len(syllables)
    splits = {split: sorted((corpus / split).iterdir()) for split in ("train", "dev", "test")}
    assert {split: len(files) for split, files in splits.items()} == {"train": 60, "dev": 5, "test": 10}
    for path in (file for files in splits.values() for file in files):
        assert (path.parent / path.read_text().strip()).resolve() == corpus.resolve() / "data" / path.name


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["digits", "mandarin"])
def test_a_round_trip_corpus_has_the_tts_voice_most_and_others_too(tmp_path: Path, kind: str) -> None:
    corpus = generated(
        tmp_path / "voice",
        kind="round_trip",
        sentences=kind,
        train=8,
        other_voices=2,
        long_sentences=1,
        tts_voice_weight=3,
    )
    lines = [
        (path.parts[-4], int(path.parts[-3]), line.split(" ", 1))
        for path in corpus.rglob("*.trans.txt")
        for line in path.read_text().splitlines()
    ]
    counts = {
        subset: [sum(line[:2] == (subset, speaker) for line in lines) for speaker in (1001, 1002, 1003)]
        for subset in ("train-clean", "dev-clean", "test-clean")
    }
    assert counts == {"train-clean": [24, 8, 8], "dev-clean": [5, 5, 5], "test-clean": [7, 7, 7]}
    assert len({text for _, _, (_, text) in lines}) == len(lines), "no sentence is in two splits"
    assert sorted(id for _, _, (id, _) in lines) == sorted(path.stem for path in corpus.rglob("*.flac"))
    assert all(text == text.upper() for _, _, (_, text) in lines)
    listed = [line.split("|") for line in (corpus / "SPEAKERS.TXT").read_text().splitlines() if line[0] != ";"]
    assert listed[0][-1].strip() == {"digits": "en-us", "mandarin": "cmn-latn-pinyin"}[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["digits", "round_trip"])
def test_the_same_settings_write_the_same_bytes_whatever_the_number_of_workers(tmp_path: Path, kind: str) -> None:
    few = {
        **SMALL,
        **({"train": 8, "other_voices": 3, "tts_voice_weight": 2} if kind == "round_trip" else {}),
        "kind": kind,
    }
    settings = corpus_settings({**few, "seed": 3})
    run(tmp_path / "one", settings, workers=1)
    time.sleep(1.1)  # espeak-ng seeds itself with the second of the day, which must not be heard
    run(tmp_path / "two", settings, workers=3)
    assert hash_folder(tmp_path / "one") == hash_folder(tmp_path / "two")
    assert run(tmp_path / "two", settings).reused
    assert not run(tmp_path / "two", corpus_settings({**few, "seed": 4})).reused
    assert hash_folder(tmp_path / "one") != hash_folder(tmp_path / "two")


@pytest.mark.parametrize("kind", ["digits", "phrases", "mandarin"])
def test_train_does_not_change_with_the_size_of_test(kind: SentenceKind) -> None:
    few, many = (
        draw_sentences(kind, np.random.default_rng(1), {"train": 50, "dev": 5, "test": test}, more)
        for test, more in ((5, 3), (9, 30))
    )
    assert few["train"] == many["train"]
    assert few["dev"] == many["dev"]


def test_the_phrases_are_free_sentences_over_more_than_200_words() -> None:
    known = {word.strip(".,?").lower() for word in PHRASES.words()} - {""}
    splits = draw_sentences("phrases", np.random.default_rng(1), {"train": 600, "dev": 40, "test": 40}, 20)
    words = {
        split: {word.strip(".,?").lower() for one in sentences for word in one.normalized.split()}
        for split, sentences in splits.items()
    }
    assert len(known) > 350
    assert len(words["train"]) > 300
    assert words["train"] | words["dev"] | words["test"] <= known
    assert words["test"] <= words["train"], "test has new sentences, not new words"
    openings = {" ".join(one.normalized.split()[:3]) for one in splits["train"]}
    assert len(openings) > 200
    for sentence in splits["train"] + splits["test"]:
        assert re.fullmatch(r"[A-Z][A-Za-z, ]+[.?]", sentence.normalized)
        assert " i " not in sentence.normalized


def test_every_word_of_the_mandarin_grammar_has_a_syllable_a_hanzi() -> None:
    assert set(MANDARIN.words()) == set(LEXICON)
    for hanzi, pinyin in LEXICON.items():
        assert len(hanzi) == len(pinyin.split())


def test_the_pinyin_is_that_of_a_dictionary_but_for_neutral_tones() -> None:
    pypinyin = pytest.importorskip("pypinyin")
    for hanzi, pinyin in LEXICON.items():
        looked_up = [set(readings) for readings in pypinyin.pinyin(hanzi, pypinyin.Style.TONE3, heteronym=True)]
        for syllable, readings in zip(pinyin.split(), looked_up, strict=True):
            bare = {reading.rstrip("1234") for reading in readings}
            assert syllable in readings or (syllable[-1] == "5" and syllable[:-1] in bare), (hanzi, syllable, readings)


@pytest.mark.parametrize(
    ("syllables", "written"),
    [
        # The first sentence of the corpus, in its publisher's own phones.
        (
            "lv4 shi4 yang2 chun1 yan1 jing3 da4 kuai4 wen2 zhang1 de5 di3 se4 si4 yue4 de5 lin2 luan2 geng4 shi4",
            "l v4 sh ix4 ii iang2 ch un1 ii ian1 j ing3 d a4 k uai4 uu un2 zh ang1 d e5 d i3 s e4 s iy4 vv ve4 d e5 "
            "l in2 l uan2 g eng4 sh ix4",
        ),
        ("xian1 huo2 xiu4 mei4 yi4 ang4 ran2", "x ian1 h uo2 x iu4 m ei4 ii i4 aa ang4 r an2"),
        ("yuan2 yun2 yu3 xue2 quan2 wo3 wu3", "vv van2 vv vn2 vv v3 x ve2 q van2 uu uo3 uu u3"),
    ],
)
def test_syllables_are_parted_into_the_publishers_phones(syllables: str, written: str) -> None:
    assert " ".join(map(syllable_phones, syllables.split())) == written


def test_more_sentences_than_there_are_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # An entry of the table, since the kind with the fewest has 44,978: to draw them takes seconds.
    few = Grammar(("{digit} {digit}",), {"digit": DIGIT_WORDS})
    monkeypatch.setitem(DRAW, "digits", lambda rng, count, **_: [Sentence(text, text) for text in few.draw(rng, count)])
    with pytest.raises(SettingsError, match=r"cannot draw 200 different sentences of kind 'digits'.* ask for fewer"):
        draw_sentences("digits", np.random.default_rng(1), {"train": 200, "dev": 0, "test": 0}, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "digit"}, "'kind' is 'digit'; accepted: commands, words, digits, phrases, mandarin, round_trip"),
        ({"kind": "digits", "min_snr": 3}, "unknown key 'min_snr'"),
        ({"kind": "digits", "sample_rate": 8000}, "16000 or 22050"),
        ({"knid": "digits"}, "did you mean 'kind'"),
        ({"kind": "round_trip", "min_snr": 60}, "swap them"),
        ({"kind": "round_trip", "train": 5000}, "at most 9,999"),
        (
            {"kind": "words", "words": ["yes", "no"], "spellings": {"de": ["jess"]}},
            "spellings.de has 1 of 2 texts",
        ),
        ({"kind": "words", "words": ["yes", ""]}, "has an entry that has no text"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        corpus_settings(settings)

"""A folder that is almost a layout: the error names the layout, and what is missing."""

import re
import wave
from pathlib import Path

import pytest

from voxline.errors import SettingsError
from voxline.pipelines.config.corpus_look import look_at_corpus


def write(folder: Path, files: dict[str, str]) -> Path:
    """Writes texts by path; a recording where the name is one's."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".wav":
            with wave.open(str(file), "wb") as out:
                out.setnchannels(1)
                out.setsampwidth(2)
                out.setframerate(8_000)
                out.writeframes(bytes(8_000))
        else:
            file.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("files", "closest"),
    [
        (
            {"metadata.csv": "a|Good|morning|extra\n", "wavs/a.wav": ""},
            "ljspeech: CORPUS/metadata.csv: 4 fields, such as 'a|Good|morning|extra'; an id, a text and its reading",
        ),
        (
            {"list.txt": "a|Good|good\n", "wavs/a.wav": ""},
            "ljspeech: list.txt has its fields, separated by |, and not its name: metadata.csv is read",
        ),
        (
            {"metadata.csv": "a|Good|good\n", "audio/a.wav": ""},
            "ljspeech: 1 transcripts without a recording, such as metadata.csv:1: wavs/a.wav is not in the "
            "corpus CORPUS; the recording of that name is audio/a.wav",
        ),
        (
            {"cv/en/train.tsv": "client_id\tpath\tsentence\nx\ta.wav\tGood\n", "cv/en/clips/a.wav": ""},
            "common_voice: cv/en/train.tsv is there, and cv/en/validated.tsv is missing",
        ),
        (
            {"validated.tsv": "client\tpath\tsentence\nx\ta.wav\tGood\n", "clips/a.wav": ""},
            "common_voice: validated.tsv has no column client_id; its columns are client, path, sentence",
        ),
        (
            {"data/train/wav.scp": "a a.wav\n", "data/train/utt2spk": "a ann\n", "a.wav": ""},
            "kaldi: data/train/wav.scp is there, and data/train/text is missing",
        ),
        (
            {"data/train/text": "a GOOD\n", "a.wav": ""},
            "kaldi: data/train/text is there, and data/train/wav.scp is missing",
        ),
        (
            {"train.jsonl": '{"audio_filepath": "a.wav", "label": "good"}\n', "a.wav": ""},
            "manifest: train.jsonl:1 has the keys audio_filepath, label, and none names the text (text, transcript, "
            "transcription, sentence, …; corpus.columns.text says which does)",
        ),
        (
            {"train.json": '{"audio_filepath": "a.wav", "text": "good"}\n', "a.wav": ""},
            "manifest: train.json has its lines, and not its name: *.jsonl and *manifest*.json are read",
        ),
        (
            {"train.json": '[{"audio_filepath": "a.wav", "text": "good"}]', "a.wav": ""},
            "manifest: train.json has its lines, and not its name: *.jsonl and *manifest*.json are read",
        ),
        (
            {"train.csv": "path,inbound_transcript,outbound_transcript\na.wav,good,day\n", "a.wav": ""},
            "csv: CORPUS/train.csv: inbound_transcript and outbound_transcript are the two sides of a call: give each",
        ),
        (
            {"train.csv": "file,words\na.wav,good\n", "a.wav": ""},
            "csv: train.csv: none names the text (text, transcript, transcription, sentence, …; corpus.columns.text "
            "says which does); its columns are file, words",
        ),
        (
            {"train.csv": "a.wav,good\nb.wav,bad\n", "a.wav": ""},
            "csv: train.csv: its first row is a.wav, good; the names of the columns are needed above it",
        ),
        (
            {"train.csv": "path;words\na.wav;good\n", "a.wav": ""},
            "csv: train.csv: none names the text (text, transcript, transcription, sentence, …; corpus.columns.text "
            "says which does); its columns are path, words",
        ),
        (
            {"train.csv": 'path,text\na.wav,"good\n', "a.wav": ""},
            r"csv: CORPUS/train.csv: after row 1: unexpected end of data; is a quotation mark not closed?",
        ),
        (
            {"1988/24833/1988-24833.txt": "1988-24833-0000 THE CATS\n", "1988/24833/1988-24833-0000.wav": ""},
            "librispeech: 1988/24833/1988-24833.txt has its lines, and not its name: "
            "1988/24833/1988-24833.trans.txt is read",
        ),
        (
            {"supervisions.jsonl": '{"id": "a", "recording_id": "a", "text": "good"}\n', "a.wav": ""},
            "lhotse: supervisions.jsonl is there, and cuts are missing",
        ),
        (
            {"a.srt": "1\n00:00:00,000 --> 00:00:01,000\ngood\n", "a.wav": ""},
            "manifest: a.srt has texts with times, and no format reads such files",
        ),
        (
            {"data/A1_0.wav": "", "data/A1_0.wav.trn": "绿 是\n"},
            "thchs30: 1 lines cannot be read, such as data/A1_0.wav.trn: 1 lines; accepted: hanzi, pinyin and phones",
        ),
    ],
)
def test_the_closest_layout_is_named_with_what_it_lacks(tmp_path: Path, files: dict[str, str], closest: str) -> None:
    corpus = write(tmp_path / "corpus", files)
    with pytest.raises(SettingsError) as error:
        look_at_corpus(corpus)
    assert f"The closest is {closest.replace('CORPUS', str(corpus))}" in str(error.value)
    assert "Mend that, or write a manifest.jsonl" in str(error.value)


def test_a_pair_of_text_and_recording_is_read_from_an_archive(tmp_path: Path) -> None:
    import tarfile

    folder = write(tmp_path / "c", {"1.wav": "", "1.txt": "good morning\n", "2.wav": "", "2.txt": "good night\n"})
    with tarfile.open(tmp_path / "tars.tar", "w") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, file.name)
    (tmp_path / "d").mkdir()
    (tmp_path / "tars.tar").rename(tmp_path / "d" / "train.tar")
    look = look_at_corpus(tmp_path / "d")
    assert (look.format, sorted(look.texts)) == ("webdataset", ["good morning", "good night"])


def test_a_text_beside_each_recording_is_a_layout(tmp_path: Path) -> None:
    """Field case F13."""
    files = {"1.wav": "", "1.txt": "good morning\n", "2.wav": "", "2.txt": "good night\n"}
    look = look_at_corpus(write(tmp_path / "c", files | {"README.txt": "of ann"}))
    assert (look.format, look.texts, look.rejects) == ("text_files", ["good morning", "good night"], [])
    trees = {f"{tree}/p{speaker}/p{speaker}_001{ending}": "good day\n" for tree, ending in
             (("wav48", "_mic1.wav"), ("txt", ".txt")) for speaker in (225, 226)}  # fmt: skip
    look = look_at_corpus(write(tmp_path / "d", trees))
    assert (look.format, look.speakers, len(look.entries)) == ("text_files", 2, 2)


def test_lists_in_lists_are_no_manifest(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c", {"manifest.jsonl": "[" * 100_000 + "\n", "a.wav": ""})
    with pytest.raises(SettingsError, match=r"The closest is manifest: .*manifest\.jsonl: it is one value in JSON"):
        look_at_corpus(corpus)


def test_a_folder_of_which_a_format_reads_next_to_nothing_is_not_of_it(tmp_path: Path) -> None:
    lines = ["a|Good|good", *(f"x{number}" for number in range(40))]
    corpus = write(tmp_path / "c", {"metadata.csv": "\n".join(lines), "wavs/a.wav": ""})
    with pytest.raises(SettingsError, match=re.escape("metadata.csv:2: 1 fields in 'x0'")):
        look_at_corpus(corpus)


def test_a_folder_of_no_layout_is_answered_with_all_formats(tmp_path: Path) -> None:
    write(tmp_path, {"a.wav": "", "readme.md": "recordings"})
    with pytest.raises(SettingsError, match=r"1 recordings, and no format of librispeech, .* finds a transcript"):
        look_at_corpus(tmp_path)

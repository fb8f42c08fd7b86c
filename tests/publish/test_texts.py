"""Texts without recordings: published as a dataset, and trained on, evaluated and promoted by the pipeline intents."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.command import voxline_process
from voxline.components.publish.texts import publish_texts
from voxline.components.train.step import run as train
from voxline.data.dataset import Dataset, read_utterances
from voxline.data.rows import DatasetRow
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.intents import evaluate
from voxline.store.files import read_json

ROOMS = ("kitchen", "bedroom", "hall", "garden", "office", "bathroom")
DAYS = ("today", "tomorrow", "tonight", "now")
COMMANDS = [
    line
    for room in ROOMS
    for day in DAYS
    for line in (
        (f"Turn the {room} lights on {day}!", "switch"),
        (f"please switch the lamp in the {room} off {day}", "switch"),
        (f"will it rain {day} in the {room}?", "weather"),
        (f"how warm is the {room} {day}", "weather"),
    )
]


def write_table(file: Path, lines: list[tuple[str, ...]], header: str = "text,intent") -> Path:
    file.write_text("\n".join([header, *(",".join(line) for line in lines)]) + "\n", encoding="utf-8")
    return file


def rows(root: Path, number: int) -> dict[str, DatasetRow]:
    return {row.id: row for row in Dataset.read(root / "commands" / str(number)).rows()}


def test_a_table_is_a_version_whose_texts_keep_ids_and_splits(tmp_path: Path) -> None:
    root = tmp_path / "datasets"
    table = write_table(tmp_path / "commands.csv", [*COMMANDS, COMMANDS[0]])
    version = publish_texts(table, root, "commands")
    first = rows(root, 1)
    assert version.counts["utterances"] == len(first) == len(COMMANDS) + 1
    assert sorted(row.text for row in first.values() if "kitchen lights" in row.text) == [
        "turn the kitchen lights on now",
        *["turn the kitchen lights on today"] * 2,
        "turn the kitchen lights on tomorrow",
        "turn the kitchen lights on tonight",
    ]
    splits = {row.text: set[str]() for row in first.values()}
    for row in first.values():
        splits[row.text].add(row.split)
    assert all(len(of_text) == 1 for of_text in splits.values())
    assert {row.split for row in first.values()} == {"train", "dev", "test"}
    assert [utterance.audio_filepath for utterance in read_utterances(root / "commands/1")] == [""] * len(first)

    # The same content, in whatever form and order, is the same version; a text more leaves all others as they were.
    lines = [json.dumps({"text": text, "intent": intent}) + "\n" for text, intent in [COMMANDS[0], *reversed(COMMANDS)]]
    (tmp_path / "commands.jsonl").write_text("".join(lines), encoding="utf-8")
    assert publish_texts(tmp_path / "commands.jsonl", root, "commands").reused
    write_table(table, [("open the window", "window"), *COMMANDS, COMMANDS[0]])
    assert publish_texts(table, root, "commands").counts["version"] == 2
    second = rows(root, 2)
    added = second.keys() - first.keys()
    assert [second[id].text for id in added] == ["open the window"]
    assert all(
        (second[id].split, second[id].text, second[id].extra) == (row.split, row.text, row.extra)
        for id, row in first.items()
    )


def test_a_table_of_recordings_is_no_table_of_texts(tmp_path: Path) -> None:
    table = tmp_path / "manifest.jsonl"
    table.write_text(json.dumps({"audio_filepath": "a.wav", "text": "stop", "intent": "x"}) + "\n", encoding="utf-8")
    with pytest.raises(WorkError, match="line 1: audio_filepath names a recording, and only texts are published"):
        publish_texts(table, tmp_path / "datasets", "commands")


@pytest.mark.parametrize("alphabet", ["", " abcçdefgğhıijklmnoöprsştuüvyz"])
def test_capitals_of_texts_are_those_of_their_alphabet(alphabet: str, tmp_path: Path) -> None:
    lines = [("IŞIK aç", "on", "train"), ("ışık iyi", "on", "train"), ("İyi", "off", "test")]
    table = write_table(tmp_path / "commands.csv", lines, "text,intent,split")
    publish_texts(table, tmp_path / "datasets", "commands", alphabet=alphabet)
    assert sorted(row.text for row in rows(tmp_path / "datasets", 1).values()) == ["iyi", "ışık aç", "ışık iyi"]
    if alphabet:
        write_table(table, [*lines, ("naïve", "on", "train")], "text,intent,split")
        with pytest.raises(WorkError, match=r"line 5: 'ï' .* in 'naïve' is not in the alphabet"):
            publish_texts(table, tmp_path / "datasets", "commands", alphabet=alphabet)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,intent\na b,x\n!,y\n", "line 3: .*no words"),
        ("a.csv", b"text,intent\na b,x,y\n", "line 2: more or fewer cells"),
        ("a.csv", b"text,intent\na b\n", "line 2: more or fewer cells"),
        ("a.csv", b"words,intent\na b,x\n", "line 2: it has no text; columns of it: words, intent"),
        ("a.csv", b"text,split\na b,dev\nb,tset\n", "line 3: split is 'tset'; train, dev, test are accepted"),
        ("a.csv", b"text,id\na b,1\nb c,1\n", "line 3: the id '1' is that of line 2 too"),
        ("a.csv", b"text,split\na b,train\n", "no text for test"),
        ("a.csv", b"text\na\xff\n", "line 2: no text in UTF-8"),
        ("a.csv", b"text,intent,text\na b,x,c d\n", "line 1: 'text' names several columns"),
        ("a.csv", b'text,intent\n"a b,x\n', "line 2: no row of a table"),
        ("a.jsonl", b'{"text": "a b"}\n{"text": \n', "line 2: not JSON"),
        ("a.jsonl", b'["a b"]\n', "line 1: it is no mapping"),
        ("a.jsonl", b'{"text": 5}\n', "line 1: it has no text"),
        ("a.csv", b"", "no text for train and test"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_published(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WorkError, match=rf"{name}.*{message}"):
        publish_texts(tmp_path / name, tmp_path / "datasets", "commands")
    assert not (tmp_path / "datasets").exists()
    with pytest.raises(WorkError, match=r"absent\.csv: cannot be read"):
        publish_texts(tmp_path / "absent.csv", tmp_path / "datasets", "commands")


def test_what_needs_recordings_refuses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = publish_texts(write_table(tmp_path / "a.csv", COMMANDS), tmp_path / "datasets", "commands")
    with pytest.raises((WorkError, SettingsError), match="texts without recordings, and a model of the family asr"):
        train(version.folder, tmp_path / "store", AsrTrainSettings())
    utterances = read_utterances(version.folder)
    settings = SimpleNamespace(field="intent", split="test", batch_seconds=60.0)
    job: Any = SimpleNamespace(utterances=utterances, settings=settings, auxiliary_models={"recognizer": object()})
    with pytest.raises(WorkError, match=r"evaluate\.recognizer: the utterances are texts without recordings"):
        evaluate._texts(job)


@pytest.mark.slow
def test_one_run_trains_evaluates_and_promotes_a_classifier_of_texts(tmp_path: Path) -> None:
    # One that the classifier must get wrong, for the report's section of wrong texts, which has no players.
    lines = [
        (text, intent, "test" if "garden" in text else "dev" if "hall" in text else "train")
        for text, intent in COMMANDS
    ]
    table = write_table(tmp_path / "commands.csv", [*lines, ("turn on now", "alarm", "test")], "text,intent,split")
    config = "pipeline: intents\nname: commands\ndatasets: datasets\ncorpus: {dataset: commands@latest}\n"
    config += "train: {epochs: 20, learning_rate: 0.005}\npush: {limits: {text_intent_error_rate: 0.3}}\n"
    (tmp_path / "intents.yaml").write_text(config, encoding="utf-8")
    ended = voxline_process("datasets", "texts", table, "commands", "--datasets", "datasets", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("version 1 of commands: 64 train, 16 dev, 17 test\n")
    ended = voxline_process("run", "intents", "--config", "intents.yaml", "--run-dir", "run", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    record = read_json(tmp_path / "run/run.json")
    assert record["pushed"], record["reason"]
    assert 1 / 17 <= record["metrics"]["text_intent_error_rate"] < 0.3
    [report] = (tmp_path / "run/store/evaluate").glob("*/report.html")
    page = report.read_text(encoding="utf-8")
    assert "turn on now" in page
    assert "No player" not in page

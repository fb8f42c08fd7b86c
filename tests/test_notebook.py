"""`import voxline` in a notebook: light, typed, and as docs/library.md shows it."""

import ast
import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import yaml

import voxline
from tests.tone_asr_model import RATE, MakeAsrModel, render_words, write_corpus
from tests.tone_tts_model import MakeTtsModel
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.manifest import write_rejects
from voxline.data.testing import NewExample, write_dataset
from voxline.errors import SettingsError, TransientError, WorkError
from voxline.pipelines.local.run_record import RunRecord
from voxline.rejects import Reason, Reject
from voxline.text.alphabet import Alphabet

ROOT = Path(__file__).parents[1]


def test_the_bare_import_loads_no_library() -> None:
    program = "import sys; before = set(sys.modules); import voxline; print(*set(sys.modules) - before)"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names} == {"voxline"}
    assert len(loaded) < 20


def test_dir_lists_the_names_of_the_face_and_each_is_there() -> None:
    assert dir(voxline) == sorted(voxline.__all__)
    assert all(getattr(voxline, name) is not None for name in voxline.__all__)
    with pytest.raises(AttributeError, match=r"no attribute 'load_recogniser'; it has .*load_recognizer"):
        _ = voxline.load_recogniser  # type: ignore[attr-defined]


def test_type_checkers_see_the_names_where_they_are_defined() -> None:
    source = Path(voxline.__file__).read_text(encoding="utf-8")
    (block,) = (node for node in ast.parse(source).body if isinstance(node, ast.If))
    typed = {
        name.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for name in node.names
    }
    assert {*typed, "__version__"} == set(voxline.__all__)
    for name, module in typed.items():
        assert getattr(importlib.import_module(str(module)), name) is getattr(voxline, name)


def test_the_examples_of_the_guide_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_asr_model: MakeAsrModel, make_tts_model: MakeTtsModel
) -> None:
    monkeypatch.chdir(tmp_path)
    recording = tmp_path / "recording.flac"
    soundfile.write(recording, render_words(["three", "one"]), RATE)
    converted = write_corpus(tmp_path / "converted", [("a", "three one"), ("b", "four")])
    write_rejects(converted / "rejects.jsonl", [Reject("c", Reason.TRUNCATED, "cut short")])
    extracted = tmp_path / "extracted"
    features = [np.ones((frames, 8), np.float32) * frames for frames in (5, 3, 4)]
    examples = [NewExample(str(n), "one", "train", values) for n, values in enumerate(features)]
    write_dataset(extracted, examples, FeatureSettings(mels=8), Alphabet.from_name("english"), shards=2)
    names: dict[str, Any] = {
        "asr_model": make_asr_model(),
        "tts_model": make_tts_model(),
        "recording": recording,
        "converted": converted,
        "extracted": extracted,
        "registry_folder": tmp_path / "registry",
    }
    guide = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", guide, re.S):
        exec(compile(block, "docs/library.md", "exec"), names)  # noqa: S102
    assert names["text"] == "three one"
    assert names["texts"] == ["three one"] * 2
    assert soundfile.info("speech.wav").samplerate == RATE


def test_a_dataset_opens_as_arrays_and_as_tf_data(tmp_path: Path) -> None:
    features = {name: np.full((frames, 4), frames, np.float32) for name, frames in (("a", 5), ("b", 3), ("c", 4))}
    examples = [
        NewExample(name, text, "train", features[name]) for name, text in zip("abc", ("ab", "c", ""), strict=True)
    ]
    write_dataset(tmp_path, examples, FeatureSettings(mels=8, kind="mfcc", coefficients=4), Alphabet("abc"), shards=2)
    dataset = voxline.open_dataset(tmp_path)
    assert dataset.splits == ["train"]
    for example in dataset.examples("train"):
        np.testing.assert_array_equal(example.features, features[example.id])
    arrays = dataset.arrays("train")
    assert (arrays.ids, arrays.texts) == (["a", "b", "c"], ["ab", "c", ""])
    assert arrays.features.shape == (3, 5, 4)
    assert arrays.frames.tolist() == [5, 3, 4]
    assert arrays.labels.tolist() == [[0, 1], [2, 0], [0, 0]]
    assert arrays.label_counts.tolist() == [2, 1, 0]
    elements = list(dataset.tf_data("train"))
    assert [element["id"].numpy() for element in elements] == [b"a", b"b", b"c"]
    (batch,) = dataset.tf_data("train", batch_size=3)
    np.testing.assert_array_equal(batch["features"], arrays.features)
    np.testing.assert_array_equal(batch["frames"], arrays.frames)
    with pytest.raises(SettingsError, match=r"split 'dev': the dataset has 'train'"):
        next(dataset.examples("dev"))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    features = np.ones((50, 8), np.float32)
    info = write_dataset(tmp_path, [NewExample("a", "a", "train", features)], FeatureSettings(mels=8), Alphabet("ab"))
    (shard,) = info.files()
    modified = shard.stat().st_mtime_ns
    content = bytearray(shard.read_bytes())
    content[600] ^= 1
    shard.chmod(0o644)
    shard.write_bytes(content)
    os.utime(shard, ns=(modified, modified))
    with pytest.raises(WorkError, match=r"\.tfrecord: .*run extract again"):
        list(voxline.open_dataset(tmp_path).examples("train"))


def test_a_model_is_found_by_its_file(make_asr_model: MakeAsrModel) -> None:
    recognizer = voxline.load_recognizer(make_asr_model() / "saved_model.pb")
    assert recognizer.transcribe(render_words(["two"]), sample_rate=RATE) == "two"


@pytest.mark.parametrize(
    ("references", "hypotheses", "more", "message"),
    [
        (["a"], [], {}, "1 references, 0 hypotheses; one of each"),
        ([], [], {}, "at least one utterance"),
        ("a", "a", {}, "wrap a single text in a list"),
        (["a"], ["a"], {"speakers": []}, "0 speakers"),
        (["a"], ["a"], {"confidence": 95}, "confidence is 95; a number between 0 and 1"),
    ],
)
def test_texts_that_cannot_be_scored_are_refused(references: Any, hypotheses: Any, more: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        voxline.wer(references, hypotheses, **more)


def test_speakers_may_be_an_array() -> None:
    rate = voxline.wer(["a"] * 10, ["a"] * 10, speakers=np.arange(10).astype(str))
    assert rate.interval.over == "speakers"


@pytest.mark.parametrize(
    "config",
    [
        {"corpus": {"uri": "corpus"}, "train": {"epochs": "many"}},
        "corpus: {uri: corpus}\ntrain: {epochs: many}\n",
        "corpus: {uri: corpus, form: csv}",
    ],
)
def test_a_config_may_be_a_mapping_or_a_text_and_its_faults_are_named(config: Any) -> None:
    with pytest.raises(SettingsError, match=r"config.*'(train\.epochs|corpus\.form)'"):
        voxline.run("asr", config)


GRAPH = """
import json, os, signal, sys, time
if "voxline.pipelines.local.graph_process" in sys.orig_argv:
    epochs = json.load(open(sys.orig_argv[-1]))["config"]["train"]["epochs"]
    if epochs == 6:
        print("Traceback (most recent call last):", "voxline.errors.TransientError: disk full", sep="\\n", flush=True)
    if epochs == 7:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
    os._exit(epochs == 6)
"""
"""Takes the place of the graph's process, since to import kfp takes seconds; tests/pipelines/test_run.py runs it."""


def test_a_run_returns_its_record_and_leaves_the_signals_of_the_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, inherited))
    monkeypatch.chdir(tmp_path)
    for name in ("corpus", "a", "b", "hook"):
        (tmp_path / name).mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(GRAPH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hook"))

    def used(record: RunRecord) -> tuple[str, int]:
        config = yaml.safe_load((record.run_dir / "config.yaml").read_text())
        return config["corpus"]["uri"], config["train"]["epochs"]

    before = signal.getsignal(signal.SIGINT)
    config = {"name": "tiny", "corpus": {"uri": "corpus"}}
    record = voxline.run("asr", config, overrides={"train.epochs": 3})
    assert (record.status, record.pipeline, record.run_dir) == ("succeeded", "asr", tmp_path / "runs" / "tiny")
    assert used(record) == (str(tmp_path / "corpus"), 3)
    with pytest.raises(TransientError, match="the graph failed: disk full"):
        voxline.run("asr", config, overrides={"train.epochs": 6})
    with pytest.raises(KeyboardInterrupt):
        voxline.run("asr", config, overrides={"train.epochs": 7})
    assert signal.getsignal(signal.SIGINT) is before
    by_path = voxline.run("asr", {"corpus": {"uri": tmp_path / "a"}}, tmp_path / "x", overrides={"name": "2026"})
    assert used(by_path)[0] == str(tmp_path / "a")
    overridden = voxline.run("asr", config, tmp_path / "x", overrides={"corpus.uri": tmp_path / "b"})
    assert used(overridden)[0] == str(tmp_path / "b")

"""A model is a program: one whose graph reads files or calls Python is refused by evaluate, and by push."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.push.conftest import evaluated
from tests.tone_asr_model import MakeAsrModel
from voxline.components.push.step import run as push
from voxline.errors import WorkError
from voxline.families.asr.settings import AsrPushSettings as PushSettings
from voxline.inference.saved_model import model_digest
from voxline.metrics.evaluation import METRICS_FILE
from voxline.registry.registry import Registry


def _read_file(tf: Any, victim: Path) -> Any:
    return tf.io.read_file("/etc/hostname")


def _call_python(tf: Any, victim: Path) -> Any:
    return tf.py_function(lambda: victim.write_text("called") and "", [], tf.string)


def export_unsafe(honest: Path, folder: Path, *acts: Callable[[Any, Path], Any]) -> Path:
    """An exported model whose signature `transcribe` does this and returns the text that it got."""
    import tensorflow as tf

    shutil.copytree(honest, folder)
    module = tf.Module()
    victim = folder.parent / "victim.txt"

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.float32, "waveforms"),
            tf.TensorSpec([None], tf.int32, "lengths"),
        ]
    )
    def transcribe(waveforms: Any, lengths: Any) -> Any:
        text = tf.strings.join([tf.reshape(act(tf, victim), []) for act in acts])
        return {"text": tf.fill(tf.shape(lengths), text), "frames": lengths}

    module.transcribe = transcribe
    tf.saved_model.save(module, str(folder), signatures={"transcribe": transcribe})
    return folder


@pytest.mark.parametrize(("act", "op"), [(_read_file, "ReadFile"), (_call_python, "EagerPyFunc")])
def test_evaluate_refuses_it_by_the_name_of_the_op(
    act: Any, op: str, corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    model = export_unsafe(make_asr_model(), tmp_path / "unsafe", act)
    with pytest.raises(
        WorkError, match=rf"unsafe/saved_model.pb: the graph of this model uses {op}, and was not loaded"
    ):
        evaluated(model, corpus, tmp_path)
    assert not (tmp_path / "victim.txt").exists()


@pytest.mark.slow
def test_push_refuses_it_even_with_an_evaluation(corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path) -> None:
    """An evaluation in the store can be forged; the smoke test loads the model that is pushed."""
    honest = make_asr_model()
    model = export_unsafe(honest, tmp_path / "unsafe", _read_file, _call_python)
    evaluation = tmp_path / "forged"
    shutil.copytree(evaluated(honest, corpus, tmp_path), evaluation)
    (evaluation / "done.json").unlink()  # a forger can write other hashes
    metrics = json.loads((evaluation / METRICS_FILE).read_text(encoding="utf-8"))
    metrics["model"]["digest"] = model_digest(model)
    (evaluation / METRICS_FILE).write_text(json.dumps(metrics), encoding="utf-8")
    work = push(model, evaluation, tmp_path / "registry", tmp_path / "store", PushSettings(smoke_test=True))
    verdict = json.loads(work.path("verdict").read_text(encoding="utf-8"))
    assert not verdict["pushed"]
    (reason,) = verdict["reasons"]
    assert "the graph of this model uses EagerPyFunc, ReadFile, and was not loaded: ops can read or write" in reason
    assert Registry(tmp_path / "registry", "asr").versions() == []
    assert not (tmp_path / "victim.txt").exists()

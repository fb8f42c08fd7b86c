"""A model with an ONNX graph is transcribed without TensorFlow."""

import io
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
import soundfile
from onnx import TensorProto, helper, numpy_helper

from tests.causal_model import babble, export_causal_model
from tests.tone_asr_model import RATE, export_onnx_tones, render_words
from voxline.cancellation import Cancellation, WorkCancelledError
from voxline.errors import WorkError
from voxline.inference.onnx_model import load_session, run_session
from voxline.inference.recognizer import Recognizer
from voxline.pipelines.cli.main import main

TRANSCRIBE = """
import sys
from voxline.pipelines.cli.main import main
try:
    main()
finally:
    loaded = {"tensorflow", "keras", "librosa", "apache_beam", "kfp"} & set(sys.modules)
    assert not loaded, loaded
"""


def test_transcribe_loads_no_tensorflow(tmp_path: Path) -> None:
    model = export_onnx_tones(tmp_path / "model")
    soundfile.write(tmp_path / "a.wav", render_words(["three", "one"]), RATE)
    command = [sys.executable, "-c", TRANSCRIBE, "transcribe", str(tmp_path / "a.wav"), "--model", str(model)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "three one\n"), ran.stderr


def test_texts_words_and_probabilities_come_from_the_graph(tmp_path: Path) -> None:
    recognizer = Recognizer(export_onnx_tones(tmp_path / "model", {"two": "six"}))
    assert recognizer.engine == "onnx"
    found = recognizer.recognize([render_words(["six", "three"]), render_words(["two"])], sample_rate=RATE)
    assert [one.text for one in found] == ["six three", "six"]
    assert [(word.word, round(word.start, 4)) for word in found[0].words] == [("six", 0.0), ("three", 0.1)]


def test_words_have_the_times_of_the_frames_that_the_model_states(tmp_path: Path) -> None:
    model = export_onnx_tones(tmp_path / "model")
    about = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps({**about, "output_frames": {"seconds": 0.0125, "start": -0.1}}))
    words = Recognizer(model).recognize(render_words(["six", "three", "one"]), sample_rate=RATE).words
    assert [(word.word, round(word.start, 4)) for word in words] == [("six", 0.0), ("three", 0.0), ("one", 0.1)]
    assert [word.end for word in words] == [pytest.approx(end) for end in (0.0, 0.075, 0.1375)]


def test_batches_stay_in_the_cache(tmp_path: Path) -> None:
    model = export_onnx_tones(tmp_path / "model")
    assert (Recognizer(model).batch_seconds, Recognizer(model, batch_seconds=10.0).batch_seconds) == (24.0, 10.0)
    texts = ["three one", *["two"] * 100]
    assert Recognizer(model, batch_seconds=2.0).transcribe([render_words(one.split()) for one in texts], RATE) == texts


def test_standard_input_is_transcribed_while_it_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, waveform = export_causal_model(tmp_path / "model", seed=1), (babble(2 * RATE) * 32768).astype("<i2")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(waveform.tobytes())))
    with pytest.raises(SystemExit) as ended:
        main(["transcribe", "--stream", "-", "--endpoint-ms", "40", "--model", str(model)])
    assert ended.value.code == 0
    printed = capsys.readouterr()
    assert "PCM of 16 bits at 16,000 Hz" in printed.err
    segments = printed.out.splitlines()
    assert len(segments) > 1
    assert "".join(segments).replace(" ", "") == Recognizer(model).transcribe(waveform, RATE).replace(" ", "")


def test_a_damaged_graph_is_named(tmp_path: Path) -> None:
    model = export_onnx_tones(tmp_path / "model")
    (model / "model.onnx").write_bytes((model / "model.onnx").read_bytes()[:500])
    with pytest.raises(WorkError, match=r"model.onnx: ONNX Runtime does not load it .*train again"):
        Recognizer(model)


def _with_secret_in(place: str, location: str) -> onnx.ModelProto:
    """A graph of which a tensor is in another file."""
    tensor = TensorProto(name="weights", data_type=TensorProto.UINT8, dims=[6], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "6")):
        tensor.external_data.add(key=key, value=value)
    output = helper.make_tensor_value_info("bytes", TensorProto.UINT8, [6])
    if place == "initializer":
        nodes = [helper.make_node("Identity", ["weights"], ["bytes"])]
        graph = helper.make_graph(nodes, "secret", [], [output], [tensor])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    constant = helper.make_node("Constant", [], ["bytes"], value=tensor)
    if place == "function":
        imports = [helper.make_opsetid("", 17)]
        function = helper.make_function("local", "Secret", [], ["bytes"], [constant], imports)
        graph = helper.make_graph([helper.make_node("Secret", [], ["bytes"], domain="local")], "secret", [], [output])
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
        return helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=9)
    branch = helper.make_graph([constant], "branch", [], [output])
    condition = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
    chosen = helper.make_node("If", ["yes"], ["bytes"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph([condition, chosen], "secret", [], [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("place", ["initializer", "attribute of a branch", "function"])
def test_a_graph_whose_tensors_are_in_other_files_is_refused(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.bin").write_bytes(b"secret")
    (tmp_path / "model.onnx").write_bytes(_with_secret_in(place, "secret.bin").SerializeToString())
    with pytest.raises(
        WorkError, match=r"model.onnx: the tensor 'weights' is in another file, 'secret.bin', and was not"
    ):
        load_session(tmp_path / "model.onnx", 1)


def test_a_graph_with_ops_of_a_library_is_refused(tmp_path: Path) -> None:
    graph = helper.make_graph([helper.make_node("Read", [], ["bytes"], domain="evil")], "secret", [], [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("evil", 1)], ir_version=9)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(WorkError, match=r"model.onnx: the op Read is of the domain 'evil', and was not loaded"):
        load_session(tmp_path / "model.onnx", 1)


def test_a_graph_that_runs_ends_when_its_work_is_cancelled(tmp_path: Path) -> None:
    """A loop that would take hours."""
    values = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["goes_on"]), helper.make_node("Neg", ["value"], ["next_value"])],
        "body",
        [
            values("turn", TensorProto.INT64, []),
            values("go", TensorProto.BOOL, []),
            values("value", TensorProto.FLOAT, [1]),
        ],
        [values("goes_on", TensorProto.BOOL, []), values("next_value", TensorProto.FLOAT, [1])],
    )
    turns = numpy_helper.from_array(np.int64(1 << 60), "turns")
    go = numpy_helper.from_array(np.bool_(True), "first_go")
    graph = helper.make_graph(
        [helper.make_node("Loop", ["turns", "first_go", "x"], ["y"], body=body)],
        "endless",
        [values("x", TensorProto.FLOAT, [1])],
        [values("y", TensorProto.FLOAT, [1])],
        [turns, go],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "model.onnx"))
    session = load_session(tmp_path / "model.onnx", 1)
    cancellation = Cancellation()
    threading.Timer(0.3, cancellation.cancel).start()
    with pytest.raises(WorkCancelledError), cancellation.active():
        run_session(session, ["y"], {"x": np.ones(1, np.float32)})
    with pytest.raises(WorkCancelledError), cancellation.active():
        raise AssertionError("what follows does not begin")

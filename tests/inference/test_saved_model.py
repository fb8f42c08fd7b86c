"""An exported model is loaded from its bytes alone; damage is reported clearly."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import voxline
from tests.tone_asr_model import MakeAsrModel
from voxline.errors import WorkError
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import (
    ALLOWED_OPS,
    MORE_OPS_VARIABLE,
    batches_by_length,
    check_graph,
    exported_folder,
    model_digest,
    read_model_info,
    write_model_info,
)


@pytest.fixture
def copy_of_model(make_asr_model: MakeAsrModel, tmp_path: Path) -> Path:
    return Path(shutil.copytree(make_asr_model(), tmp_path / "copy"))


def test_the_digest_covers_the_model_and_not_other_files_in_its_folder(
    copy_of_model: Path, make_asr_model: MakeAsrModel
) -> None:
    assert model_digest(copy_of_model) == model_digest(make_asr_model())
    (copy_of_model / "model_card.md").write_text("# a card")
    assert model_digest(copy_of_model) == model_digest(make_asr_model())
    (copy_of_model / "model.json").write_text(json.dumps({**read_model_info(copy_of_model).to_dict(), "name": "other"}))
    assert model_digest(copy_of_model) != model_digest(make_asr_model())


def test_trains_output_folder_resolves_to_the_model_in_it(make_asr_model: MakeAsrModel) -> None:
    assert exported_folder(make_asr_model().parent) == make_asr_model()


@pytest.mark.parametrize("damage", ["graph cut", "graph empty", "variables cut", "variables gone"])
def test_a_damaged_model_is_named_and_not_loaded(copy_of_model: Path, damage: str) -> None:
    what, how = damage.split()
    victims = {
        "graph": [copy_of_model / "saved_model.pb"],
        "variables": sorted((copy_of_model / "variables").iterdir()),
    }
    for victim in victims[what]:
        if how == "gone":
            victim.unlink()
        else:
            victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2 if how == "cut" else 0])
    with pytest.raises(WorkError, match=r"copy: .*does not load"):
        Recognizer(copy_of_model)


def test_a_saved_model_without_the_signature_is_refused(tmp_path: Path, copy_of_model: Path) -> None:
    import tensorflow as tf

    tf.saved_model.save(tf.Module(), str(tmp_path / "other"))
    shutil.copy(copy_of_model / "model.json", tmp_path / "other")
    with pytest.raises(WorkError, match="no signature 'transcribe'"):
        Recognizer(tmp_path / "other")


def test_a_folder_without_a_model_is_refused(tmp_path: Path, copy_of_model: Path) -> None:
    with pytest.raises(WorkError, match=r"no saved_model.pb and no model.json"):
        model_digest(tmp_path)
    with pytest.raises(WorkError, match="no such folder"):
        model_digest(tmp_path / "nowhere")
    (copy_of_model / "model.json").write_text('{"name": "as')
    with pytest.raises(WorkError, match=r"model.json: not JSON"):
        read_model_info(copy_of_model)
    (copy_of_model / "model.json").write_text("[]")
    with pytest.raises(WorkError, match=r"model.json: no format number"):
        read_model_info(copy_of_model)


def test_a_model_json_of_another_format_is_refused_with_the_version_that_reads_it(copy_of_model: Path) -> None:
    written = json.loads((copy_of_model / "model.json").read_text())

    def refused(**changes: Any) -> str:
        (copy_of_model / "model.json").write_text(json.dumps({**written, **changes}))
        with pytest.raises(WorkError) as error:
            read_model_info(copy_of_model)
        return str(error.value)

    version = voxline.__version__
    later = refused(format=2, voxline="9.1.0")
    assert f"format 2, which Voxline 9.1.0 wrote; Voxline {version} reads format 1; install Voxline 9.1.0" in later
    assert "no format number" in refused(format=None)
    assert "run train again" in refused(format=None)
    assert "unknown field `alphabeth`" in refused(alphabeth="ab")
    assert "Expected `int`, got `str` - at `$.sample_rate`" in refused(sample_rate="16000")


def test_a_model_json_is_written_as_it_was_read(copy_of_model: Path) -> None:
    info = read_model_info(copy_of_model)
    write_model_info(copy_of_model, info)
    assert read_model_info(copy_of_model) == info
    written = json.loads((copy_of_model / "model.json").read_text())
    assert (written["format"], written["voxline"]) == (1, voxline.__version__)


@hypothesis.given(st.lists(st.integers(1, 500), max_size=60), st.integers(1, 2_000))
def test_every_item_is_in_one_batch_and_no_batch_exceeds_the_limit(lengths: list[int], limit: int) -> None:
    batches = batches_by_length(lengths, limit)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        assert len(batch) == 1 or longest * len(batch) <= limit
        assert longest <= 2 * min(lengths[index] for index in batch)


def _model_that(tmp_path: Path, action: Callable[[Path], Any], *, in_a_branch: bool) -> Path:
    """A recognizer whose `transcribe` also does something to a file."""
    import tensorflow as tf

    module, victim = tf.Module(), tmp_path / "victim.txt"

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.float32, "waveforms"),
            tf.TensorSpec([None], tf.int32, "lengths"),
        ]
    )
    def transcribe(waveforms: Any, lengths: Any) -> Any:
        if in_a_branch:  # two functions deep
            tf.cond(tf.size(lengths) > 0, lambda: action(victim), lambda: 0)
        else:
            action(victim)
        return {"texts": tf.as_string(lengths)}

    module.transcribe = transcribe
    tf.saved_model.save(module, str(tmp_path / "unsafe"), signatures={"transcribe": transcribe})
    return tmp_path / "unsafe"


@pytest.mark.parametrize("in_a_branch", [False, True])
@pytest.mark.parametrize("op", ["WriteFile", "ReadFile", "EagerPyFunc", "PrintV2", "SaveV2"])
def test_a_graph_that_reaches_out_is_refused_before_it_is_loaded(
    op: str, in_a_branch: bool, tmp_path: Path, copy_of_model: Path
) -> None:
    import tensorflow as tf

    def act(victim: Path) -> Any:
        if op == "WriteFile":
            tf.io.write_file(str(victim), "written")
        elif op == "ReadFile":
            return tf.strings.length(tf.io.read_file("/etc/hostname"))
        elif op == "EagerPyFunc":
            return tf.py_function(lambda: victim.write_text("called"), [], tf.int32)
        elif op == "PrintV2":
            tf.print("printed", output_stream=f"file://{victim}")
        else:
            tf.raw_ops.SaveV2(prefix=str(victim), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.zeros(1)])
        return 0

    model = _model_that(tmp_path, act, in_a_branch=in_a_branch)
    shutil.copy(copy_of_model / "model.json", model)
    with pytest.raises(WorkError, match=rf"unsafe/saved_model.pb: the graph of this model uses .*{op}.* not loaded"):
        Recognizer(model)
    assert not (tmp_path / "victim.txt").exists()


def _model_whose_saver(tmp_path: Path, act: Callable[[Any], Any], *, use: str) -> Path:
    """A recognizer in the older form, in which loading runs the saver's function that reads the weights.

    Args:
      act: the body of that function, which gets the name of the file of weights.
      use: what runs it: "restore", "save" (nothing), or "save" and an input of the graph, a signature, the main op.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    v1 = tf.compat.v1
    with v1.Session(graph=tf.Graph()) as session:
        waveforms = v1.placeholder(tf.float32, [None, None], "waveforms")
        file = v1.placeholder(tf.string, [], "saver_filename")
        saver = tf.function(act, input_signature=[tf.TensorSpec([], tf.string)])(file)
        text = tf.reduce_sum(waveforms) + (saver if use == "input" else 0.0)
        outputs = {"text": v1.saved_model.build_tensor_info(saver if use == "signature" else text)}
        inputs = {"waveforms": v1.saved_model.build_tensor_info(waveforms)}
        signature = v1.saved_model.build_signature_def(inputs, outputs, "tensorflow/serving/predict")
        builder = v1.saved_model.Builder(str(tmp_path / "older"))
        builder.add_meta_graph_and_variables(session, ["serve"], {"transcribe": signature})
        builder.save()
    file_of_graph = tmp_path / "older" / "saved_model.pb"
    saved = SavedModel.FromString(file_of_graph.read_bytes())
    definition = saved.meta_graphs[0].saver_def
    definition.filename_tensor_name = file.name
    definition.save_tensor_name = text.name if use == "restore" else saver.name
    definition.version = definition.V2
    definition.restore_op_name = saver.op.name if use in ("restore", "both") else ""
    if use == "main op":
        saved.meta_graphs[0].collection_def["saved_model_main_op"].node_list.value.append(saver.op.name)
    file_of_graph.write_bytes(saved.SerializeToString())
    (tmp_path / "older" / "variables").mkdir(exist_ok=True)
    (tmp_path / "older" / "variables" / "variables.index").touch()
    return tmp_path / "older"


@pytest.mark.parametrize("use", ["restore", "both", "input", "signature", "main op"])
def test_a_saver_that_writes_where_something_runs_it_is_refused(use: str, tmp_path: Path) -> None:
    """Else to load the model would write a file, of the model's choice, with the rights of the server."""
    import tensorflow as tf

    def write(given: Any) -> Any:
        done = tf.raw_ops.SaveV2(
            prefix=str(tmp_path / "victim"), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.zeros(1)]
        )
        with tf.control_dependencies([done]):
            return tf.identity(0.0)

    model = _model_whose_saver(tmp_path, write, use=use)
    with pytest.raises(WorkError, match="uses SaveV2, and was not loaded"):
        check_graph(model)
    if use == "restore":
        with tf.compat.v1.Session(graph=tf.Graph()) as session:  # as TensorFlow Serving loads it
            tf.compat.v1.saved_model.load(session, ["serve"], str(model))
        assert list(tmp_path.glob("victim*")), "the fault is real"


@pytest.mark.parametrize(("file", "refused"), [("given", False), ("other", True)])
def test_a_saver_reads_weights_from_the_model_alone(file: str, refused: bool, tmp_path: Path) -> None:
    """No digest covers the weights of another file."""
    import tensorflow as tf

    def read(given: Any) -> Any:
        prefix = given if file == "given" else tf.constant(str(tmp_path / "weights"))
        (value,) = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32])
        return tf.reshape(value, [])

    model = _model_whose_saver(tmp_path, read, use="restore")
    if refused:
        with pytest.raises(WorkError, match="uses RestoreV2, and was not loaded"):
            check_graph(model)
    else:
        check_graph(model)


def test_a_person_may_allow_the_ops_of_a_network_of_his_own(
    tmp_path: Path, copy_of_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    model = _model_that(tmp_path, lambda _: tf.acosh(2.0), in_a_branch=False)
    shutil.copy(copy_of_model / "model.json", model)
    with pytest.raises(WorkError, match=rf"uses Acosh, AsString, .* set {MORE_OPS_VARIABLE}=Acosh,AsString; else"):
        check_graph(model)
    monkeypatch.setenv(MORE_OPS_VARIABLE, "AsString, Acosh")
    check_graph(model)
    monkeypatch.setenv(MORE_OPS_VARIABLE, "AsString")
    with pytest.raises(WorkError, match="uses Acosh, and was not loaded"):
        check_graph(model)


def test_no_op_is_allowed_that_takes_a_file_or_an_address_or_has_an_effect_outside_of_the_model() -> None:
    """TensorFlow's own list of its ops is the oracle: their inputs and attributes have telling names."""
    import tensorflow  # noqa: F401
    from tensorflow.core.framework.op_def_pb2 import OpList
    from tensorflow.python.client import pywrap_tf_session as session

    ops = {op.name: op for op in OpList.FromString(session.TF_GetBuffer(session.TF_GetAllOpList())).op}
    tells = re.compile(
        r"(?:^|_)(?:files?|file_?names?|file_pattern|path|prefix|prefixes|log_?dir|directory|address|urls|region_name)$"
    )
    telling = {op.name for op in ops.values() if any(tells.search(part.name) for part in (*op.input_arg, *op.attr))}
    assert len(telling) > 40
    assert ops.keys() >= ALLOWED_OPS
    assert telling & ALLOWED_OPS == set()
    stateful = {name for name in ALLOWED_OPS if ops[name].is_stateful}
    weights = {"AssignVariableOp", "DisableCopyOnRead", "ReadVariableOp", "ResourceGather", "VarHandleOp"}
    assert stateful - weights == {"StatefulPartitionedCall", "While"}  # of functions, whose ops are looked at as well

"""The TensorFlow of the TensorFlow Serving that k8s/ pins reads a SavedModel of ours, which is of a later release.

Its server has no package. What could fail on it is what is tested here: the graph's versions, its ops and their
attributes, and the signatures, by the loader for graphs, without Python's objects.
"""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close
from tests.families.asr.test_onnx_export import ALPHABET, FORMS, network, recordings
from tests.tone_asr_model import minimal_model_json
from voxline.families.asr.export import AsrGraph
from voxline.inference.model_info import ModelInfo
from voxline.store.versioned_json import parse_versioned
from voxline.training.export import write_exported

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("VOXLINE_TENSORFLOW_SERVING", ROOT / ".tensorflow-serving-venv")) / "bin" / "python"
with_release = pytest.mark.skipif(
    not PYTHON.exists(), reason=f"no {PYTHON}: `make test-programs` installs TensorFlow Serving's release of TensorFlow"
)
LOAD = """
import sys
import numpy, tensorflow as tf

model, folder = sys.argv[1:]
given = numpy.load(f"{folder}/given.npz")
with tf.compat.v1.Session(graph=tf.Graph()) as session:
    graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], model)
    signature = graph.signature_def["serving_default"]
    wanted = {name: one.name for name, one in signature.outputs.items()}
    found = session.run(wanted, {signature.inputs[name].name: given[name] for name in given})
texts = numpy.array([text.decode() for text in found.pop("text")])
numpy.savez(f"{folder}/found.npz", text=texts, **found)
print(tf.__version__)
"""


def pinned_release() -> str:
    kustomization = (ROOT / "k8s/base/serving/kustomization.yaml").read_text()
    (found,) = re.findall(r"name: tensorflow/serving\n +newTag: (\S+)", kustomization)
    return str(found)


def test_the_release_that_is_tested_is_the_one_that_is_pinned() -> None:
    required = (ROOT / "benchmarks/tensorflow_serving.in").read_text()
    assert f"tensorflow-cpu=={pinned_release()}\n" in required


@with_release
@pytest.mark.parametrize("form", ["gru", "deepspeech"])
def test_the_pinned_release_computes_what_ours_computes(form: str, tmp_path: Path) -> None:
    model, features, _, _ = network(FORMS[form])
    module = AsrGraph(model, features, ALPHABET)
    signatures = {"transcribe": module.transcribe, "logits": module.logits, "serving_default": module.transcribe}
    write_exported(
        tmp_path / "model", module, signatures, parse_versioned(minimal_model_json("asr", "asr"), ModelInfo, "")
    )
    waveforms, lengths = recordings(features.sample_rate)
    np.savez(tmp_path / "given.npz", waveforms=waveforms, lengths=lengths)
    done = subprocess.run([PYTHON, "-c", LOAD, tmp_path / "model", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == pinned_release()
    found = np.load(tmp_path / "found.npz")
    expected = module.transcribe(tf.constant(waveforms), tf.constant(lengths))
    assert found["text"].tolist() == [text.decode() for text in expected["text"].numpy()]
    np.testing.assert_array_equal(found["frames"], expected["frames"])
    for row, count in enumerate(found["frames"]):
        ours = expected["log_probabilities"].numpy()[row, :count]
        assert_close(found["log_probabilities"][row, :count], ours, relative_to_peak=1e-4)

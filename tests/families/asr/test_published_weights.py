"""Mozilla's checkpoint as a parent: its logits, its alphabet, what is refused, and what the lineage says.

The checkpoint is of TensorFlow 1's format, written by its Saver; the network of reference is Mozilla's, by TensorFlow's
own ops (training/deepspeech_training/train.py, release 0.9.3).
"""

import dataclasses
import json
import shutil
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors import safe_open
from safetensors.numpy import save_file
from typer.testing import CliRunner

from tests.closeness import assert_close
from tests.training.test_warm_start import publish_with_list
from tests.training.tones import LETTERS, ToneUtterance, make_utterances, tiny_asr_settings, write_dataset
from voxline.components.push.model_card import _ancestors
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.published_weights import FEATURES, LSTM, VARIABLES, convert_checkpoint, find_published
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.asr.task import AsrTask
from voxline.families.family import find_family
from voxline.inference.model_info import Normalization
from voxline.inference.saved_model import read_model_info
from voxline.pipelines.cli.main import app
from voxline.pipelines.cli.model_views import format_training_data
from voxline.registry.parents import ancestors_of
from voxline.store.step_cache import StepWouldRunError, plan_steps
from voxline.training.warm_start import read_parent, start_from, with_normalization_of

UNITS, CONTEXT = 12, 9
SYMBOLS = " dcbax'"
"""Of the published weights: all letters of the tones in another order, and others."""


def random_variables(seed: int = 0, units: int = UNITS, classes: int = len(SYMBOLS) + 1) -> dict[str, np.ndarray]:
    """Weights by Mozilla's names and shapes, each layer large enough to be clipped at 20 now and then."""
    draw = np.random.default_rng(seed)
    sizes = {"layer_1": (26 * (2 * CONTEXT + 1), units), "layer_6": (units, classes)}
    found = {}
    for layer in ("layer_1", "layer_2", "layer_3", "layer_5", "layer_6"):
        shape = sizes.get(layer, (units, units))
        found[f"{layer}/weights"] = draw.normal(0, 3 / np.sqrt(shape[0]), shape).astype(np.float32)
        found[f"{layer}/bias"] = draw.normal(0, 0.5, shape[1]).astype(np.float32)
    found[f"{LSTM}/kernel"] = draw.normal(0, 0.05, (2 * units, 4 * units)).astype(np.float32)
    found[f"{LSTM}/bias"] = draw.normal(0, 0.5, 4 * units).astype(np.float32)
    return found


def save_checkpoint(folder: Path, variables: dict[str, np.ndarray], **others: float) -> Path:
    """As Mozilla's training saves it, with Adam's moments and the counters."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, values in variables.items():
            tf.compat.v1.get_variable(name, initializer=values)
            for slot in ("Adam", "Adam_1"):
                tf.compat.v1.get_variable(f"{name}/{slot}", initializer=0 * values)
        for name, value in {"beta1_power": 0.9, "beta2_power": 0.9, "learning_rate": 1e-4, **others}.items():
            tf.compat.v1.get_variable(name, initializer=np.float32(value))
        tf.compat.v1.get_variable("global_step", initializer=np.int64(7))
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver()
        return Path(saver.save(session, str(folder / "best_dev"), global_step=1_466_475, write_meta_graph=False))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, its alphabet, and what was converted from both."""
    folder = tmp_path_factory.mktemp("deepspeech-0.9.3-checkpoint")
    save_checkpoint(folder, random_variables())
    (folder / "alphabet.txt").write_text("# a comment\n" + "\n".join(SYMBOLS) + "\n# the end\n")
    names = ("best_dev-1466475", "--alphabet", "alphabet.txt", "--output", "published.safetensors")
    arguments = [name if name.startswith("--") else str(folder / name) for name in names]
    result = CliRunner().invoke(app, ["models", "import", *arguments])
    assert result.exit_code == 0, result.output
    assert "published.safetensors (" in result.output
    return folder


@pytest.fixture(scope="module")
def mozillas(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The tones, in the features that Mozilla's models hear."""

    def at_16_khz(one: ToneUtterance) -> ToneUtterance:
        return dataclasses.replace(one, waveform=np.repeat(one.waveform, 2))

    spoken = [at_16_khz(one) for one in make_utterances(16, 4)]
    return write_dataset(tmp_path_factory.mktemp("mozillas"), spoken, how=FEATURES)


def settings_from(model: Path | str, start: dict[str, Any] | None = None, **network: Any) -> AsrTrainSettings:
    sizes = {"kind": "deepspeech", "units": UNITS, "context": CONTEXT, "padding": 0, **network}
    return tiny_asr_settings(epochs=1, model=sizes, start={"model": str(model), **(start or {})})


def mozillas_logits(variables: dict[str, np.ndarray], features: np.ndarray, forget_bias: float = 0.0) -> np.ndarray:
    """`create_model` of release 0.9.3, of one utterance: [frames, 26] to [frames, classes]."""

    def dense(layer: str, x: Any, relu: bool = True) -> Any:
        x = tf.nn.bias_add(tf.matmul(x, variables[f"{layer}/weights"]), variables[f"{layer}/bias"])
        return tf.minimum(tf.nn.relu(x), 20.0) if relu else x

    width = 2 * CONTEXT + 1
    eye = np.eye(width * 26, dtype=np.float32).reshape(width, 26, width * 26)
    x = tf.nn.conv1d(features[None], eye, stride=1, padding="SAME")[0]
    for layer in ("layer_1", "layer_2", "layer_3"):
        x = dense(layer, x)
    assert 0.02 < np.mean(x == 20) < 0.9
    nothing = tf.zeros([1, UNITS])
    hidden = tf.raw_ops.BlockLSTM(
        seq_len_max=len(features), x=x[:, None], cs_prev=nothing, h_prev=nothing, w=variables[f"{LSTM}/kernel"],
        wci=nothing[0], wcf=nothing[0], wco=nothing[0], b=variables[f"{LSTM}/bias"], forget_bias=forget_bias,
        cell_clip=-1.0, use_peephole=False,
    ).h  # fmt: skip
    logits: np.ndarray = dense("layer_6", dense("layer_5", hidden[:, 0]), relu=False).numpy()
    return logits


def started(dataset: Dataset, file: Path, **how: Any) -> AsrTask:
    weights = read_parent(find_published(str(file)))
    task = AsrTask(settings_from(file, **how), with_normalization_of(dataset, weights))
    start_from(task, weights)
    return task


@pytest.mark.parametrize("forget_bias", [0.0, 1.0])
def test_the_network_gives_mozillas_logits(mozillas: Dataset, files: Path, tmp_path: Path, forget_bias: float) -> None:
    """On features as loud as speech, with symbols taken from where they are in the published alphabet."""
    file = convert_checkpoint(
        files / "best_dev-1466475", files / "alphabet.txt", tmp_path / "a.safetensors", forget_bias
    )
    task = started(mozillas, file)
    draw = np.random.default_rng(1)
    features = draw.normal(0, 4, (2, 57, 26)).astype(np.float32)
    logits, frames = task.module.model(features, np.array([57, 40]))
    assert frames.numpy().tolist() == [57, 40]
    columns = [*(SYMBOLS.index(letter) for letter in LETTERS), len(SYMBOLS)]
    for row, count in enumerate((57, 40)):
        expected = mozillas_logits(random_variables(), features[row, :count], forget_bias)
        assert expected.std(0).min() > 0.2
        assert_close(logits[row, :count], expected[:, columns], relative_to_peak=1e-4)


def test_the_converted_file_has_the_weights_and_nothing_else(files: Path) -> None:
    with safe_open(files / "published.safetensors", framework="np") as file:
        assert set(file.keys()) == set(VARIABLES)
        for name, values in random_variables().items():
            assert np.array_equal(file.get_tensor(name), values)
        assert json.loads(file.metadata()["alphabet"]) == list(SYMBOLS)


def test_an_alphabet_beside_the_file_does_and_is_part_of_the_digest(files: Path, tmp_path: Path) -> None:
    save_file(random_variables(), tmp_path / "bare.safetensors")
    with pytest.raises(SettingsError, match=r"alphabet\.txt: cannot be read .*published weights need their alphabet"):
        find_published(f"{tmp_path}/bare.safetensors")
    digests = set()
    for text in ("\n".join(SYMBOLS), "\n".join(reversed(SYMBOLS))):
        (tmp_path / "alphabet.txt").write_text(f"{text}\n")
        parent = find_published(f"{tmp_path}/bare.safetensors")
        assert parent.info.alphabet == text.split("\n")
        digests.add(parent.ancestor.digest)
    assert len(digests) == 2
    (tmp_path / "alphabet.txt").write_text("a\nb\n")
    with pytest.raises(WorkError, match="layer_6 has 8 classes, and the alphabet 2 symbols"):
        find_published(f"{tmp_path}/bare.safetensors")


@pytest.mark.slow
def test_a_training_starts_from_the_file_and_its_lineage_says_so(
    mozillas: Dataset, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_from(files / "published.safetensors")
    work = run(mozillas.folder, tmp_path / "store", settings)
    told = capsys.readouterr().out
    assert "a purge of a speaker does not find it by them" in told
    assert "starts from published.safetensors (" in told
    assert '13 of 13 weights; symbols that it no longer has: " x\'"' in told
    about = read_model_info(work.path("model"))
    (ancestor,) = ancestors_of(about)
    assert ancestor.is_published
    assert about.start
    assert about.start.training_data == "unknown"
    assert about.normalization == Normalization(mean=[0.0] * 26, deviation=[1.0] * 26)
    evaluated: Any = types.SimpleNamespace(model=types.SimpleNamespace(about=about), parent=None)
    card = _ancestors(evaluated)
    assert f"behind the published weights {ancestor.label}, whose speakers are not known; no purge finds them" in card
    publish_with_list(tmp_path / "registry", work.path("model"))
    listed = "\n".join(format_training_data(str(tmp_path / "registry"), "asr", 1, None))
    assert f"unknown   what {ancestor.label} was trained on, a file of published weights" in listed

    # The place of the file is not part of the key, its bytes are.
    moved = shutil.copyfile(files / "published.safetensors", tmp_path / "moved.safetensors")
    assert run(mozillas.folder, tmp_path / "store", settings_from(moved)).reused
    other = convert_checkpoint(
        save_checkpoint(tmp_path, random_variables(2)), files / "alphabet.txt", tmp_path / "other.safetensors"
    )
    with plan_steps(), pytest.raises(StepWouldRunError):
        run(mozillas.folder, tmp_path / "store", settings_from(other))


def test_what_does_not_fit_is_named_and_left_random_where_it_is_not_kept(
    mozillas: Dataset, files: Path, few: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    file = files / "published.safetensors"
    with pytest.raises(SettingsError, match=r"does not fit: train\.model\.units is 10, there 12; set the same"):
        started(mozillas, file, units=10)
    with pytest.raises(SettingsError, match=r"does not fit: train\.model\.context is 4, there 9; set the same"):
        started(mozillas, file, context=4)
    with pytest.raises(SettingsError, match=r"trained on other features: extract\.features\.cepstra"):
        started(few, file)
    task = started(mozillas, file, context=4, start={"keep": ["before/1", "before/2", "recurrent", "after"]})
    told = capsys.readouterr().out
    assert "9 of 13 weights" in told
    assert "left random: before/0, classifier" in told
    after = dict(zip(task.module.weight_names(), task.module.weights().values(), strict=True))["after/kernel"]
    assert np.array_equal(after, random_variables()["layer_5/weights"])
    with pytest.raises(SettingsError, match="tts models start from none"):
        find_family("tts").public_parent(str(file))
    with pytest.raises(SettingsError, match="the file is absent"):
        find_published(f"{file}.safetensors")


def test_damaged_and_foreign_files_are_refused(files: Path, tmp_path: Path) -> None:
    whole = (files / "published.safetensors").read_bytes()
    place = tmp_path / "a.safetensors"
    header = int.from_bytes(whole[:8], "little")
    longer = whole[8 : 8 + header].replace(b'"data_offsets":[0,', b'"data_offsets":[9,')
    assert longer != whole[8 : 8 + header]
    for data in (b"", whole[:100], whole[:-4], b"\xff" * 8 + whole[8:], whole[:8] + longer + whole[8 + header :]):
        place.write_bytes(data)
        with pytest.raises(WorkError, match="not a safetensors file, or damaged"):
            find_published(str(place))

    def refused(changes: dict[str, np.ndarray | None], metadata: dict[str, str] | None = None) -> str:
        variables = {name: one for name, one in (random_variables() | changes).items() if one is not None}
        save_file(variables, place, metadata or {"alphabet": json.dumps(list(SYMBOLS))})
        with pytest.raises(WorkError) as error:
            read_parent(find_published(str(place)))
        return str(error.value)

    zeros = np.zeros(UNITS, np.float32)
    assert "without layer_5/bias" in refused({"layer_5/bias": None})
    assert "with layer_1/LayerNorm/beta" in refused({"layer_1/LayerNorm/beta": zeros})
    assert "layer_2/bias [5]" in refused({"layer_2/bias": zeros[:5]})
    assert "layer_1/weights [468, 12]" in refused({"layer_1/weights": np.zeros((468, UNITS), np.float32)})
    assert f"{LSTM}/kernel [23, 48]" in refused({f"{LSTM}/kernel": np.zeros((23, 48), np.float32)})
    assert "layer_3/bias: not all are finite" in refused({"layer_3/bias": zeros + np.nan})
    assert "metadata 'alphabet' is 'abc'" in refused({}, {"alphabet": "abc"})
    assert "metadata 'alphabet' is '[[[" in refused({}, {"alphabet": "[" * 100_000})
    assert "a JSON list of characters" in refused({}, {"alphabet": '["a", "bb"]'})
    assert "each once" in refused({}, {"alphabet": '["a", "a"]'})
    assert "layer_2/bias is I64; F16, F32, F64 are accepted" in refused({"layer_2/bias": zeros.astype(np.int64)})
    told = refused({}, {"alphabet": json.dumps(list(SYMBOLS)), "forget_bias": "nan"})
    assert "metadata 'forget_bias' is 'nan'" in told


def test_a_checkpoint_of_another_network_is_not_converted(files: Path, tmp_path: Path) -> None:
    checkpoint = save_checkpoint(tmp_path, random_variables(), **{"layer_1/LayerNorm/beta": 1.0})
    alphabet = files / "alphabet.txt"
    with pytest.raises(WorkError, match="with layer_1/LayerNorm/beta; the 12 variables"):
        convert_checkpoint(checkpoint, alphabet, tmp_path / "a.safetensors")
    with pytest.raises(WorkError, match="not a checkpoint of TensorFlow"):
        convert_checkpoint(tmp_path / "absent", alphabet, tmp_path / "a.safetensors")
    with pytest.raises(SettingsError, match="alphabet"):
        convert_checkpoint(checkpoint, tmp_path / "alphabet.txt", tmp_path / "a.safetensors")
    with pytest.raises(SettingsError, match=r"ends in \.safetensors"):
        convert_checkpoint(checkpoint, alphabet, tmp_path / "a.pickle")
    assert not list(tmp_path.glob("*.safetensors"))

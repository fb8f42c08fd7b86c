"""`voxline models import`: a public model goes into a registry as it is, is served, and tuned from there."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from tests.conftest import ROOT
from tests.families.asr import test_attention, test_public_spelling
from tests.tone_asr_model import write_corpus
from voxline.components.evaluate.step import run as evaluate
from voxline.components.train.step import run as train
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.public_parents import find_public_parent
from voxline.families.asr.settings import AsrEvaluateSettings
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import read_model_info
from voxline.metrics.evaluation import Evaluation
from voxline.pipelines.cli.main import app
from voxline.pipelines.cli.model_views import format_training_data
from voxline.pipelines.cli.public_models import import_public_model
from voxline.registry.models import find_model
from voxline.registry.parents import ancestors_of, find_parent
from voxline.registry.registry import Registry
from voxline.text.alphabet import Alphabet
from voxline.training.warm_start import read_parent

pytestmark = pytest.mark.parents

HUB = ROOT / "tests" / "families" / "networks" / "hub"
CARD = "---\nlicense: cc-by-4.0\n---\n# A tiny Parakeet\n"


@pytest.fixture(scope="module")
def parakeet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "tiny-parakeet"
    shutil.copytree(HUB / "fastconformer", folder)
    (folder / "README.md").write_text(CARD)
    return folder


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "tiny-whisper"
    shutil.copytree(HUB / "whisper", folder)
    (folder / "README.md").write_text(CARD)
    (folder / "tokenizer.json").write_bytes(test_attention.tiny_tokenizer())
    return folder


def test_a_public_model_waits_as_a_candidate_and_nobody_judged_it(parakeet: Path, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    ended = CliRunner().invoke(app, ["models", "import", str(parakeet), "--registry", str(registry), "--name", "asr"])
    assert ended.exit_code == 0, ended.output
    assert "asr: version 1 is tiny-parakeet" in ended.output
    assert "as it is, a candidate; it was not judged" in ended.output
    assert "model: asr@1" in ended.output

    models = Registry(registry, "asr")
    assert (models.in_service(), models.candidate()) == (None, 1)
    card = (models.path(1) / "model_card.md").read_text()
    assert "licence: cc-by-4.0" in card
    assert "It was not judged" in card
    info = read_model_info(models.path(1))
    (origin,) = ancestors_of(info)
    assert (origin.name, origin.licence, origin.is_published) == ("tiny-parakeet", "cc-by-4.0", True)
    assert info.is_as_published
    with pytest.raises(WorkError, match="a public model as it comes; whose recordings it was trained on is not known"):
        format_training_data(str(registry), "asr", 1, None)

    # The very weights of the file.
    weights = read_parent(find_public_parent(str(parakeet)))
    parent = find_parent("asr@1", registry, family="asr", own_name="asr", generations=5)
    assert parent is not None
    exported = read_parent(parent)
    for name, values in weights.by_name(weights.names).items():
        np.testing.assert_array_equal(exported.by_name(exported.names)[name], values)

    # And served after a promotion.
    models.promote(1)
    recognizer = Recognizer(find_model(f"{registry}/asr"))
    waveform = 0.1 * np.random.default_rng(1).standard_normal(32_000).astype(np.float32)
    assert recognizer.transcribe(waveform, 16_000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parakeet", "whisper"])
def test_a_run_on_a_public_model_or_on_its_import_measures_it_as_it_came(
    kind: str, parakeet: Path, whisper: Path, tmp_path: Path
) -> None:
    """The same figures before tuning by both ways."""
    public = {"parakeet": parakeet, "whisper": whisper}[kind]
    settings_from: Callable[..., Any] = test_public_spelling.settings_from
    if kind == "whisper":
        settings_from = test_attention.settings_from
        spoken = test_attention.make_dataset(tmp_path / "dataset")
    else:
        spoken = test_public_spelling.make_dataset(tmp_path / "dataset", Alphabet.from_name("english"))
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three four five")])
    registry = tmp_path / "registry"
    store = tmp_path / "store"
    import_public_model(str(public), str(registry), "asr")
    settings = AsrEvaluateSettings(bootstrap_samples=200, worst_utterances=0, aligned_utterances=0)

    values = []
    for start in (public, Path("asr@1")):
        tuned = train(spoken.folder, store, settings_from(start, learning_rate=0.01), registry)
        before = Evaluation.read(evaluate(tuned.folder, corpus, registry, store, settings).folder).info.before
        assert before is not None
        assert (before.missing, before.licence, list(before.parts)) == ("", "cc-by-4.0", ["test"])
        assert before.label.startswith(start.name)
        cer = before.parts["test"].metrics["cer"]
        assert cer.comparison is not None
        values.append((cer.comparison.champion_value, before.version))
    assert values[0][0] == values[1][0]
    assert [version for _, version in values] == [None, 1]

    # The store has lost it: it is opened and exported again.
    shutil.rmtree(store / "parent")
    shutil.rmtree(store / "evaluate")
    tuned = train(spoken.folder, store, settings_from(public, learning_rate=0.01), registry)
    again = evaluate(tuned.folder, corpus, registry, store, settings)
    assert again.metrics["before_cer"] == pytest.approx(values[0][0], abs=1e-6)


def test_what_cannot_transcribe_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"whisper .*cannot transcribe as it comes: it has neither an output layer.*tune it"
    ):
        import_public_model(str(HUB / "whisper"), str(tmp_path / "registry"), "asr")
    assert not (tmp_path / "registry").exists()
    with pytest.raises(SettingsError, match="give --registry and --name"):
        CliRunner().invoke(app, ["models", "import", str(HUB / "whisper")], catch_exceptions=False)
    with pytest.raises(SettingsError, match=r"needs --alphabet and -o"):
        CliRunner().invoke(app, ["models", "import", str(tmp_path)], catch_exceptions=False)


@pytest.mark.slow
def test_with_a_test_split_the_gate_judges_it(parakeet: Path, tmp_path: Path) -> None:
    """A network of random weights hears nothing, and does not go into service."""
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three four five")])
    registry = tmp_path / "registry"
    lines, passed = import_public_model(
        str(parakeet), str(registry), "asr", test=str(corpus), store=str(tmp_path / "s")
    )
    assert not passed
    assert "Not pushed: word error rate" in lines[0]
    assert "above the limit of 30.00% (limits.wer)" in lines[0]
    (metrics,) = (tmp_path / "s" / "evaluate").glob("*/metrics.json")
    assert json.loads(metrics.read_text()).get("before") is None


@pytest.mark.slow
def test_the_graphs_of_a_model_with_a_decoder_are_compared_with_it(whisper: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three four five")])
    store = tmp_path / "store"
    lines, _ = import_public_model(
        str(whisper), str(tmp_path / "registry"), "asr", test=str(corpus), store=str(store), onnx="float32"
    )
    assert "Not pushed: word error rate" in lines[0]
    (file,) = store.glob("evaluate/*/metrics.json")
    compared = json.loads(file.read_text())["details"]["onnx"]
    assert (compared["precision"], compared["count"]) == ("float32", 0)


@pytest.mark.slow
def test_a_model_in_half_precision_is_judged_as_it_computes(parakeet: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three four five")])
    registry = str(tmp_path / "registry")
    store = tmp_path / "store"
    options = ("--test", str(corpus), "--store", str(store), "--precision", "mixed_bfloat16")
    command = ["models", "import", str(parakeet), "--registry", registry, "--name"]
    judged = CliRunner().invoke(app, [*command, "judged", *options])
    assert judged.exit_code == 1, judged.output
    assert "Not pushed: word error rate" in judged.output

    # Without a test split it is a candidate of this form: its logits are those of float32, rounded to eight bits.
    for name, precision in (("whole", "float32"), ("half", "mixed_bfloat16")):
        assert CliRunner().invoke(app, [*command, name, "--precision", precision]).exit_code == 0
    whole, half = (find_model(f"{registry}/{name}@1") for name in ("whole", "half"))
    assert (read_model_info(whole).precision, read_model_info(half).precision) == ("float32", "mixed_bfloat16")
    (evaluated,) = store.glob("evaluate/*/metrics.json")
    assert Evaluation.read(evaluated.parent).info.model.about.precision == "mixed_bfloat16"
    waveforms = (0.1 * np.random.default_rng(1).standard_normal((1, 32_000))).astype(np.float32)
    inputs = {"waveforms": tf.constant(waveforms), "lengths": tf.constant([32_000])}
    expected, rounded = (tf.saved_model.load(str(each)).signatures["logits"](**inputs) for each in (whole, half))
    difference = np.abs(rounded["logits"] - expected["logits"])
    assert 0 < difference.mean() < 0.02 * np.std(expected["logits"])


def test_a_precision_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    for kind in ("fastconformer", "vits"):
        with pytest.raises(SettingsError, match="precision is mixed_float16 and onnx is float32"):
            import_public_model(str(HUB / kind), str(tmp_path), "graph", onnx="float32", precision="mixed_float16")
        with pytest.raises(
            SettingsError, match="precision' is 'float16'; Input should be 'float32', 'mixed_bfloat16' or"
        ):
            import_public_model(str(HUB / kind), str(tmp_path), "none", precision="float16")
    with pytest.raises(SettingsError, match="--precision is for public models alone"):
        CliRunner().invoke(
            app, ["models", "import", str(tmp_path), "--precision", "mixed_float16"], catch_exceptions=False
        )
    assert not list(tmp_path.iterdir())

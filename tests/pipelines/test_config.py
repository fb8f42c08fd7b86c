"""The config of a run: strict, told where a fault stands, and completed in one place."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from voxline.errors import SettingsError
from voxline.pipelines.config.load import load_config, read_layers, resolve_layers, value_origins
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.graphs import pipeline_names

OURS = Path(__file__).parents[2] / "configs"
CONFIGS = sorted(file for pipeline in pipeline_names() for file in (OURS / pipeline).glob("*.yaml"))
OVERLAYS = sorted((OURS / "cluster").glob("*.yaml"))
SMALLEST = "name: small\ncorpus: {uri: recordings}\n"


def config(folder: Path, text: str = "", *assignments: str) -> RunConfig:
    file = folder / "run.yaml"
    file.write_text(SMALLEST + text, encoding="utf-8")
    return load_config(file, assignments)


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_every_config_of_ours_is_accepted(file: Path) -> None:
    corpora = load_config(file).corpus.corpora
    keys = [f"corpus.corpora.{name}.uri" for name in corpora] or ["corpus.uri"]
    config = load_config(file, [f"{key}=somewhere" for key in keys])
    assert {config.locations()[key] for key in keys} == {str(Path.cwd() / "somewhere")}


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda file: file.stem)
def test_every_overlay_can_be_merged_with_every_pipeline(overlay: Path) -> None:
    for pipeline in pipeline_names():
        chosen = load_config([OURS / pipeline / "demo.yaml", overlay])
        assert chosen.cluster.service_account == ("voxline-data" if pipeline == "refresh" else "voxline-train")


def test_every_default_works(tmp_path: Path) -> None:
    assert config(tmp_path).model == "asr"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("train: {epohcs: 3}", r"run\.yaml: unknown key 'train\.epohcs'; did you mean 'train\.epochs'\?"),
        ("trian: {epochs: 3}", r"run\.yaml: unknown key 'trian'; did you mean 'train'\?"),
        ("batch_size: 3", r"run\.yaml: unknown key 'batch_size'; did you mean 'train\.batch_size'\?"),
        (
            "train: {model: {kind: conformer, pooling: utterance}}",
            r"run\.yaml: unknown key 'train\.model\.pooling'; another kind of train\.model has it; known here: ",
        ),
        ("validate: {cliping: {}}", r"run\.yaml: unknown key 'validate\.cliping'; did you mean 'validate\.clipping'\?"),
        ("train: {epochs: many}", r"run\.yaml: 'train\.epochs' is 'many'; .*integer"),
        ("train: {epochs: 0}", r"run\.yaml: 'train\.epochs' is 0; .*greater than or equal to 1"),
        ("train: {epochs: true}", r"run\.yaml: 'train\.epochs' is 'true'; .*integer"),
        ("extract: {speeds: [true]}", r"run\.yaml: 'extract\.speeds\.0' is 'true'; .*number"),
        ("tracking: {wandb: team/speech/asr}", r"run\.yaml: 'tracking\.wandb' is 'team/speech/asr'; "),
        ("train: 3", r"run\.yaml: 'train' is 3; "),
        ("pipeline: ttx", r"run\.yaml: 'pipeline' is 'ttx'; accepted: 'asr', 'intents'"),
        ("convert: {alphabet: ' abc'}\ntrain: {subwords: 4}", r"train\.subwords is 4, .* has 4 characters"),
        ("convert: {alphabet: aab}", r"run\.yaml: 'convert\.alphabet' is 'aab'; .*repeated"),
    ],
)
def test_an_error_names_file_key_value_and_what_is_accepted(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        config(tmp_path, text)


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        config(tmp_path, "train: {epochs: 0}\npush: {max_wre: 1}\n")
    assert len(str(refused.value).splitlines()) == 2


def test_an_error_names_the_option_with_the_fault(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--set train\.epohcs: unknown key .* did you mean 'train\.epochs'\?"):
        config(tmp_path, "", "train.epohcs=3")
    with pytest.raises(SettingsError, match=r"^--set train\.epochs: 'train\.epochs' is -1"):
        config(tmp_path, "train: {epochs: 3}", "train.epochs=-1")


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    assert config(tmp_path, "train: {epochs: 3, seed: 7}", "train.epochs=4").train.epochs == 4


def test_paths_are_relative_to_the_file_and_on_the_command_line_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere é").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere é")
    assert config(tmp_path, "store: ../kept").corpus.uri == str(tmp_path / "recordings")
    assert config(tmp_path, "store: ../kept").store == str(tmp_path.parent / "kept")
    assert config(tmp_path, "", "corpus.uri=here").corpus.uri == str(tmp_path / "elsewhere é" / "here")
    assert config(tmp_path, "", "corpus.uri=gs://bucket/c").corpus.uri == "gs://bucket/c"


def test_a_path_in_a_section_on_the_command_line_is_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert config(tmp_path, "", "corpus={uri: here}").corpus.uri == str(tmp_path / "elsewhere" / "here")


@pytest.mark.parametrize(
    ("rate", "features"),
    [(8_000, {"window_seconds": 0.016, "fft_size": 128}), (22_050, {"highest_hz": 11_025.0})],
)
def test_features_are_checked_by_the_rate_that_convert_writes(rate: int, features: dict[str, float]) -> None:
    """They were checked by 16 kHz first, and refused."""
    corpus = {"uri": "corpus", "format": "csv"}
    given = {"name": "x", "corpus": corpus, "convert": {"sample_rate": rate}, "extract": {"features": features}}
    layers = read_layers([given], [])
    config: Any = resolve_layers(layers)
    assert config.extract.features.sample_rate == rate
    assert value_origins(config, layers)["extract.features.sample_rate"] == "from convert.sample_rate"
    assert "sample_rate" not in layers.document["extract"]["features"]
    with pytest.raises(SettingsError, match=f"half the sample rate .{rate / 2:g}."):
        load_config({**given, "extract": {"features": {"highest_hz": rate}}})


def test_derived_values_are_filled_in(tmp_path: Path) -> None:
    chosen = config(
        tmp_path,
        "model: digits\nconvert: {sample_rate: 8000, alphabet: ' ab'}\n"
        "train: {model: {convolutions: [{stride: [2, 1]}, {stride: [2, 2]}]}}\n",
    )
    assert (chosen.extract.features.sample_rate, chosen.extract.alphabet) == (8000, " ab")
    assert chosen.train.name == chosen.evaluate.model_name == chosen.push.model_name == "digits"
    assert chosen.validate_.frames_per_second == 25


def test_speech_played_faster_leaves_ctc_fewer_frames(tmp_path: Path) -> None:
    chosen = config(
        tmp_path, "train: {model: {convolutions: [{stride: [4, 1]}]}}\nextract: {speeds: [0.8, 1.0, 1.25]}\n"
    )
    assert chosen.validate_.frames_per_second == 20


def test_validate_does_not_count_the_labels_of_a_parents_tokenizer(tmp_path: Path) -> None:
    """They are fewer than the characters that it counts."""
    parent = ROOT / "tests" / "families" / "networks" / "hub" / "fastconformer"
    spelled = config(tmp_path, f"train: {{start: {{model: {parent}}}}}\n")
    assert (spelled.train.model.kind, spelled.extract.features.kind) == ("fastconformer", "nemo_mel")
    assert spelled.train.model.fixed_statistics
    assert spelled.validate_.frames_per_second is None
    own = config(tmp_path, f"train: {{start: {{model: {parent}, keep: encoder}}}}\n")
    assert own.validate_.frames_per_second == 12.5


def test_contradicting_values_are_refused_with_both_keys(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"'extract\.features\.sample_rate' is 16000, but 'convert\.sample_rate'"):
        config(tmp_path, "convert: {sample_rate: 8000}\nextract: {features: {sample_rate: 16000}}\n")
    with pytest.raises(SettingsError, match=r"^--set push\.model_name: .*'model'"):
        config(tmp_path, "", "push.model_name=other")


def test_the_effective_config_starts_the_same_run_again(tmp_path: Path) -> None:
    first = config(tmp_path, "convert: {sample_rate: 8000}\n", "extract.speeds=[0.9, 1.0]", "train.learning_rate=1e-4")
    again = tmp_path / "again" / "config.yaml"
    again.parent.mkdir()
    again.write_text(first.to_yaml(), encoding="utf-8")
    assert load_config(again) == first


def test_a_change_of_what_is_trained_changes_the_digest_that_a_publication_judges_by(tmp_path: Path) -> None:
    """A recorded config has the digest of its own settings, which a change of these replaces."""
    text = "publish: {dataset: digits, then: asr}\n"
    first = config(tmp_path, text)
    digests = [
        load_config(first.to_yaml(), settings).publish.training
        for settings in ([], ["convert.workers=3"], ["train.epochs=77"], ["push.limits.wer=0.2"])
    ]
    assert digests[:2] == [first.publish.training] * 2
    assert len(set(digests)) == 3

    # The form of the exported model, and how training starts from another one, are in no key of train.
    further = [
        "train.export.onnx=float32",
        "train.start.model=asr@production",
        "train.start.rate_share=0.5",
        "convert.workers=3",
    ]
    first = config(tmp_path, text + "train: {start: {model: asr@1}}\n")
    digests += [load_config(first.to_yaml(), [setting]).publish.training for setting in further]
    assert digests[-1] == first.publish.training
    assert len(set(digests)) == 7
    assert config(tmp_path, "publish: {dataset: digits}\n").publish.training == ""


def test_the_record_omits_the_default_cluster_section(tmp_path: Path) -> None:
    assert "cluster" not in config(tmp_path).to_yaml()
    assert "spot: true" in config(tmp_path, "cluster: {spot: true}\n").to_yaml()
    assert config(tmp_path, 'cluster: {service_account: ""}\n').cluster.service_account == ""


def test_a_config_may_be_a_mapping_or_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"name": "small", "corpus": {"uri": "recordings"}}
    assert load_config(given) == load_config(SMALLEST) == config(tmp_path)
    assert given["corpus"] == {"uri": "recordings"}
    with pytest.raises(SettingsError, match=r"^config: unknown key 'trian'"):
        load_config([given, {"trian": {}}])


def test_the_query_of_a_signed_address_is_not_recorded() -> None:
    signed = "https://bucket.example/a.zip?X-Signature=0f3c"
    archive = {"uri": signed, "sha256": "0" * 64}
    several = {"corpora": {"a": archive, "b": {"uri": "gs://b/what?"}}}
    for corpus in (archive, several):
        config = load_config({"name": "x", "corpus": corpus})
        assert signed in json.dumps(config.plain())  # what the run itself is given
        assert "0f3c" not in json.dumps(config.recorded())
        assert "0f3c" not in config.to_yaml()
        assert "https://bucket.example/a.zip" in config.to_yaml()
        assert not any("https" in path for path in config.unmounted_paths().values())


@pytest.mark.parametrize(
    ("train", "told"),
    [
        ("model: {top_db: 50}, export: {onnx: float32}", r"train\.export\.onnx: with train\.model\.top_db 50, .*to 0"),
        ("model: {pooling: utterance}, export: {onnx: float32}", r"export\.onnx: with train\.model\.pooling utterance"),
        ("model: {kind: conformer}, export: {onnx: float32}", r"export\.onnx: .*'conformer'; accepted: deepspeech"),
        ("export: {onnx: int8}", r"train\.export\.onnx: .*no 8-bit kernel for train\.model\.rnn 'gru'; set rnn to"),
        ("export: {onnx: float32, streaming: true}", r"train\.export\.streaming: .*directions 'concatenated'.*forward"),
        (
            "model: {directions: forward, top_db: 50}, export: {onnx: float32, streaming: true}",
            r"train\.export\.onnx: with train\.model\.top_db 50",
        ),
    ],
)
def test_a_form_of_export_that_the_network_cannot_have_is_refused_with_the_config(
    tmp_path: Path, train: str, told: str
) -> None:
    with pytest.raises(SettingsError, match=told):
        config(tmp_path, f"train: {{{train}}}")


def test_features_that_a_recognizer_cannot_compute_are_refused_with_the_config(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"extract\.features\.kind to log_mel, mfcc or linear"):
        config(tmp_path, "extract: {features: {kind: mel_and_prosody}}")
    with pytest.raises(SettingsError, match=r"set extract\.features\.spectrum to power"):
        config(tmp_path, "extract: {features: {spectrum: magnitude}}")
    with pytest.raises(SettingsError, match=r"hop_seconds is above window_seconds"):
        config(
            tmp_path,
            "extract: {features: {hop_seconds: 0.04}}\n"
            "train: {model: {directions: forward}, export: {onnx: float32, streaming: true}}",
        )


def test_a_config_is_checked_without_tensorflow_and_onnx(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(SMALLEST + "train: {model: {top_db: 50}, export: {onnx: int8}}")
    code = (
        "import sys; from voxline.errors import SettingsError; from voxline.pipelines.config.load import load_config\n"
        "try: load_config(sys.argv[1])\n"
        "except SettingsError as error: print('top_db' in str(error))\n"
        "print(*({'tensorflow', 'keras', 'onnx'} & {*sys.modules}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "run.yaml"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["True"]


def test_a_fallback_gives_the_config_what_a_public_model_fixes(tmp_path: Path) -> None:
    """A compiled pipeline has the same: the name is resolved where the step runs."""
    shutil.copytree(ROOT / "tests" / "families" / "networks" / "hub" / "whisper", tmp_path / "parent")
    (tmp_path / "run.yaml").write_text(
        "name: run\ncorpus: {uri: corpus}\n"
        "train: {epochs: 4, start: {model: asr@production, fallback: parent, epochs: 1}}\n"
    )
    config = load_config(tmp_path / "run.yaml").plain()
    assert (config["train"]["model"]["kind"], config["extract"]["features"]["kind"]) == ("whisper", "whisper")
    assert config["train"]["start"]["fallback"] == str(tmp_path / "parent")
    with pytest.raises(SettingsError, match=r"train\.start\.fallback is 'asr@1', and .* is there each night"):
        load_config(tmp_path / "run.yaml", ["train.start.fallback=asr@1", f"train.start.model={tmp_path}/parent"])


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        (
            "convert:\n  alphabet: |\n    abc d\n",
            r"'convert.alphabet' has the character U\+000A.*in quotes, on one line",
        ),
        ('convert: {alphabet: "ab\\x85"}', r"'convert.alphabet' has the character U\+0085"),
        ('convert: {alphabet: "ab\\u2028"}', r"U\+2028.*on one line"),
        ('convert: {alphabet: "ab\\x07"}', r"U\+0007, which no setting may have$"),
        ('convert: {alphabet: "ab\\ud83d"}', r"U\+D83D"),
        ('corpus: {columns: {text: "a\\ufffe"}}', r"'corpus.columns.text' has the character U\+FFFE"),
        ('convert: {alphabet: "ab\\U0010ffff"}', r"U\+10FFFF"),
        ('corpus: {columns: {text: "a\\tb"}}', r"'corpus.columns.text' has the character U\+0009"),
        ('language: {text: ["a.txt", "b\\0.txt"]}', r"'language.text\[1\]' has the character U\+0000"),
    ],
)
def test_a_character_that_no_file_holds_is_refused_by_its_key(written: str, fault: str) -> None:
    """Field case F10: what a compiled pipeline does not bring back."""
    with pytest.raises(SettingsError, match=fault):
        load_config(
            f"name: x\ncorpus: {{uri: corpus}}\n{written}" if "corpus:" not in written else f"name: x\n{written}"
        )


def test_the_two_halves_of_a_character_are_joined() -> None:
    """Field case F19: `json.dumps` writes an emoji as two halves, and YAML reads them as two characters."""
    config = load_config('{"name": "x", "corpus": {"uri": "c"}, "convert": {"alphabet": " ab\\ud83d\\ude00"}}\n')
    assert config.convert.alphabet == " ab\U0001f600"


def test_names_with_dots_stay_names() -> None:
    """The checks of characters once set a label's parts as sections of their own, which no config accepts."""
    labels = {"nvidia.com/gpu": "yes", "nvidia": "no"}
    config = load_config(
        {"name": "x", "corpus": {"uri": "c"}, "cluster": {"steps": {"train": {"node_selector": labels}}}}
    )
    assert config.cluster.steps.train.node_selector == labels

    with pytest.raises(SettingsError, match=r"node_selector\..*U\+000A"):
        load_config({"name": "x", "cluster": {"node_selector": {"a\nb": "c"}}})


def test_the_config_of_a_refresh_imports_no_family(tmp_path: Path) -> None:
    """A nightly refresh would pay for the settings of all networks."""
    file = tmp_path / "refresh.yaml"
    file.write_text(f"pipeline: refresh\n{SMALLEST}publish: {{dataset: small}}\n", encoding="utf-8")
    code = (
        "import sys\n"
        "from voxline.pipelines.config.load import load_config\n"
        f"load_config({str(file)!r}, pipeline='refresh')\n"
        "print(*[name for name in sys.modules if name.startswith(('voxline.families', 'voxline.training'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_no_pattern_of_a_setting_repeats_all_letters_of_unicode_many_times() -> None:
    r"""pydantic takes 50 ms to compile `\w{1,128}`, in each command that loads a config."""
    schema = (ROOT / "configs/schema.json").read_text(encoding="utf-8")
    patterns = re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', schema)
    assert len(patterns) > 20
    assert not [
        pattern for pattern in map(json.loads, patterns) if re.search(r"\\[wWdDsS][^\]]*\]?\{\d*,?\d{2,}\}", pattern)
    ]


def test_a_pipeline_that_is_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"'pipeline' is \['asr'\]; accepted: .*'refresh'"):
        config(tmp_path, "pipeline: [asr]\n")

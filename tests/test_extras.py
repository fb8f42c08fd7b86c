"""The core does its work with its own packages alone, and what else is needed is named with its extra."""

import ast
import importlib.metadata
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
import soundfile

from tests.closures import BUILDS, ROOT, closure, normalized, project, run_with
from tests.tone_asr_model import RATE, export_onnx_tones, render_words
from tests.tone_tts_model import export_onnx_voice
from voxline.extras import EXTRA_OF, missing_package
from voxline.inference import onnx_messages

HEAVY = {"tensorflow", "tensorflow-cpu", "keras", "apache-beam", "kfp", "boto3", "google-cloud-storage", "kubernetes"}
COPYLEFT = {"imageio-ffmpeg", "espeakng-loader"}
NO_EXTRA = {
    "mlflow",
    "wandb",
    "tensorflow_data_validation",
    "tensorflow_metadata",
    "tensorflow_model_analysis",
    "tfx_bsl",
    "farmhash",
    "tpu_info",
}
"""Imported where it is there: other people's programs, and TFX's, which has an image of its own."""
GOOGLE = ("google.cloud.storage", "google.auth", "google.api_core")


CALLS = """
import contextlib, io, json, sys
from voxline.pipelines.cli.main import main

for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            main(words)
        status = 0
    except SystemExit as end:
        status = end.code or 0
    print(json.dumps([words, status, said.getvalue()]), flush=True)
"""

LIBRARY = """
import sys, voxline

recording, model, voice = sys.argv[1:]
print(voxline.load_recognizer(model).transcribe(recording))
speech = voxline.load_synthesizer(voice).synthesize("31")
voxline.write_wav("speech.wav", speech.waveform, 16_000)
print(voxline.wer(["three one"], ["three"]).rate)
import voxline.serving.app, voxline.serving.server
print(sorted({"scipy", "tensorflow", "onnx", "librosa"} & set(sys.modules)))
"""


def imported_modules() -> Iterator[tuple[str, Path]]:
    """Modules that our code imports, with the file."""
    for folder in ("voxline", "components", "pipelines"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    yield from ((name.name, file) for name in node.names)
                elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                    yield node.module, file
                elif isinstance(node, ast.Call) and node.args:
                    argument = node.args[0]
                    if ast.unparse(node.func).endswith("import_module") and isinstance(argument, ast.Constant):
                        yield argument.value, file


def test_the_core_has_no_heavy_package_and_none_under_the_gpl() -> None:
    assert not closure() & (HEAVY | COPYLEFT | {"scipy", "librosa", "onnx", "matplotlib"})
    assert {"onnxruntime", "numpy", "tokenizers"} <= closure()


def test_every_module_that_we_import_is_the_cores_or_of_an_extra() -> None:
    packages = importlib.metadata.packages_distributions()
    strange = set()
    for module, file in imported_modules():
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names or top in ("voxline", *NO_EXTRA) or "validate/tfdv" in str(file):
            continue
        if top == "google":
            known = module.startswith(("google.protobuf", *GOOGLE, "google.cloud.aiplatform"))
            strange |= set() if known else {(module, str(file))}
            continue
        names = {normalized(package) for package in packages.get(top, [])}
        if not names & closure() and top not in EXTRA_OF:
            strange.add((module, str(file)))
    assert not strange


@pytest.mark.parametrize("module", sorted(EXTRA_OF))
def test_an_extra_brings_the_module_that_is_said_to_be_its(module: str) -> None:
    extra = EXTRA_OF[module]
    assert extra in project()
    if module.startswith("google"):
        assert {"gcp": "google-cloud-storage", "vertex": "google-cloud-aiplatform"}[extra] in closure(extra)
        return
    packages = importlib.metadata.packages_distributions().get(module)
    if packages is None:
        assert extra in {"signing", "mlmd"}  # not in the lock
        return
    names = {normalized(package) for package in packages}
    names |= {BUILDS[name] for name in names if name in BUILDS}
    assert names & closure(extra)
    assert not names & closure()


def test_the_readme_states_the_size_that_the_page_states() -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    measured = re.search(r"([\d,]+) MB, without byte code, of which it compiles\s+(\d+) MB", page)
    assert measured
    files, byte_code = measured.groups()
    said = re.search(r"`make setup` takes \[([\d.]+) GB\]", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert said
    assert float(said[1]) == round((int(files.replace(",", "")) + int(byte_code)) / 1000, 1) <= 2.5


def test_all_is_every_extra_but_the_developers() -> None:
    listed = re.findall(r"[a-z0-9]+", project()["all"][0].partition("[")[2])
    assert set(project()) - {"", "all", "dev", "signing", "gpu", "vertex", "mlmd", "networks"} == set(listed)


def test_the_core_transcribes_synthesizes_serves_and_scores(tmp_path: Path) -> None:
    recording = tmp_path / "a.wav"
    soundfile.write(recording, render_words(["three", "one"]), RATE)
    model = export_onnx_tones(tmp_path / "model")
    voice = export_onnx_voice(tmp_path / "voice")
    ran = run_with(closure(), LIBRARY, str(recording), str(model), str(voice), folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["three one", "0.5", "[]"]
    assert soundfile.info(tmp_path / "speech.wav").duration > 0.05


def test_a_command_names_the_extra_that_it_lacks_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("pipeline: asr\nname: nightly\ncorpus: {uri: corpus}\n", encoding="utf-8")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "manifest.jsonl").write_text('{"audio_filepath": "a.m4a", "text": "one"}\n')
    (tmp_path / "a.m4a").write_bytes(b"\0\0\0\x20ftypM4A \0\0\0\0M4A mp42isom\0\0\0\0" + bytes(2_000))
    model = export_onnx_tones(tmp_path / "model")
    plain = export_onnx_voice(tmp_path / "plain")
    (plain / "model.onnx").unlink()
    commands = {
        "client": ["compile", "asr", "-c", "run.yaml", "-o", "out.yaml"],
        "train": ["synthesize", "31", "--model", str(plain), "-o", "x.wav"],
        "gcp": ["models", "list", "--registry", "gs://example-speech/registry"],
        "s3": ["models", "list", "--registry", "s3://example-speech/registry"],
        "media": ["transcribe", "a.m4a", "--model", str(model)],
        "phonemes": ["corpus", "demo", "corpus-demo"],
    }
    ran = run_with(
        closure(), CALLS, json.dumps([*commands.values()]), folder=tmp_path, environment={"PATH": str(tmp_path)}
    )
    assert ran.returncode == 0, ran.stderr
    ended = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[[")]
    assert {extra: status for extra, (_, status, _) in zip(commands, ended, strict=True)} == dict.fromkeys(commands, 2)
    for extra, (words, _, said) in zip(commands, ended, strict=True):
        assert f"pip install 'voxline[{extra}]'" in said, (words, said)
        assert said.count("\n") == 1, said


def test_a_run_names_the_extra_of_its_steps(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("pipeline: asr\nname: nightly\ncorpus: {uri: corpus}\n", encoding="utf-8")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "manifest.jsonl").write_text('{"audio_filepath": "a.wav", "text": "one"}\n')
    words = [["run", "asr", "-c", "run.yaml"]]
    ran = run_with(closure(), CALLS, json.dumps(words), folder=tmp_path)
    _, status, said = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("[[")))
    assert (status, "Traceback" in said) == (2, False), said
    assert "is not installed; `pip install 'voxline[" in said


def test_a_package_of_nobody_is_in_all() -> None:
    assert str(missing_package("strange.part")) == "strange is not installed; `pip install 'voxline[all]'` adds it"


def test_every_message_of_onnx_that_leads_to_a_tensor_or_a_node_is_read() -> None:
    """The oracle: the messages of the package onnx."""
    ours = onnx_messages.model_class().DESCRIPTOR
    leads = _leading_messages(onnx.ModelProto.DESCRIPTOR)
    seen = set()
    waiting = [(onnx.ModelProto.DESCRIPTOR, ours)]
    while waiting:
        theirs, mine = waiting.pop()
        if theirs.name in seen:
            continue
        seen.add(theirs.name)
        for field in theirs.fields:
            if field.message_type is not None and field.message_type.name in leads:
                assert field.number in mine.fields_by_number, (theirs.name, field.name)
                read = mine.fields_by_number[field.number]
                assert (read.name, read.is_repeated) == (field.name, field.is_repeated)
                waiting.append((field.message_type, read.message_type))
    assert {"TensorProto", "NodeProto", "FunctionProto", "SparseTensorProto"} <= seen


def _leading_messages(root: object) -> set[str]:
    """Names of messages from which a tensor or a node can be reached."""
    fields: dict[str, set[str]] = {}
    waiting = [root]
    while waiting:
        message = waiting.pop()
        if message.name not in fields:  # type: ignore[attr-defined]
            below = [field.message_type for field in message.fields if field.message_type is not None]  # type: ignore[attr-defined]
            fields[message.name] = {one.name for one in below}  # type: ignore[attr-defined]
            waiting += below
    leads = {"TensorProto", "NodeProto"}
    while more := {name for name, below in fields.items() if below & leads} - leads:
        leads |= more
    return leads

"""Models to the Hub and from it, by the Hub's own client: `push-to-hub`, `from_pretrained`, and a training's parent."""

import dataclasses
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard, constants
from huggingface_hub.utils import _cache_assets
from safetensors.numpy import load_file

from tests.conftest import ROOT
from tests.families.test_exported_ops import recognizer
from tests.hub_server import TOKEN, Hub, Repository, serve_hub
from tests.push.test_before import WORSE, Night, checks
from tests.registry.published import exported, publish
from tests.registry.test_signing import write_keys
from tests.tone_asr_model import RATE, MakeAsrModel, write_corpus
from tests.waiting import wait_until
from voxline.api import from_pretrained
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.evaluate.step import run as evaluate
from voxline.components.push.step import run as push
from voxline.errors import SettingsError, TransientError, WorkError
from voxline.families.asr.settings import AsrEvaluateSettings, AsrPushSettings
from voxline.families.family import find_family
from voxline.inference.model_info import AS_PUBLISHED
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest, read_model_info, write_model_info
from voxline.pipelines.cli.main import main
from voxline.pipelines.hub import find_pretrained
from voxline.registry.hub import pin_location
from voxline.registry.hub_upload import read_uploads
from voxline.registry.models import find_model
from voxline.registry.parents import find_parent
from voxline.registry.registry import Registry
from voxline.registry.signing import PRIVATE_KEY_ENV, PUBLIC_KEY_ENV
from voxline.store.local import LocalStore
from voxline.training.warm_start import read_named_weights, read_parent

NAME = "voices/tiny"
PUBLIC = ROOT / "tests" / "families" / "networks" / "hub"
FEATURES = FeatureSettings(sample_rate=RATE, mels=20)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recognizer with random weights and an ONNX graph, judged by the gate and in service."""
    folder = tmp_path_factory.mktemp("registries")
    recognizer(FEATURES, kind="deepspeech", units=8, export={"onnx": "float32"})(folder / "model")
    info = read_model_info(folder / "model")
    info.dataset = changed_part(info.dataset, key="k", licences={"CC-BY-4.0": 7}, counts={"train": 7})
    write_model_info(folder / "model", info)

    corpus = write_corpus(folder / "corpus", [("ada-secret", "one two"), ("ben-secret", "three four five")])
    settings = AsrEvaluateSettings(model_name="tiny", bootstrap_samples=200, worst_utterances=1, aligned_utterances=0)
    evaluation = evaluate(folder / "model", corpus, folder / "registry", folder / "store", settings)
    gate = AsrPushSettings.of({"model_name": "tiny", "smoke_test": False, "limits": {"wer": 10.0}})
    pushed = push(folder / "model", evaluation.folder, folder / "registry", folder / "store", gate)
    assert json.loads(pushed.path("verdict").read_text())["pushed"]
    return folder / "registry"


def changed_part(part: Any, **values: Any) -> Any:
    """A copy of a part of model.json with other values."""
    return type(part)(**{name: getattr(part, name) for name in part.__struct_fields__} | values)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve_hub() as server:
        yield server


@dataclasses.dataclass
class Person:
    """Runs commands and Python as a person does who is logged in to the Hub."""

    hub: Hub
    home: Path
    patch: pytest.MonkeyPatch
    output: pytest.CaptureFixture[str]
    token: str = TOKEN

    def connect(self) -> None:
        """Lets the client of this process find the Hub, as it reads the environment when it is imported."""
        self.patch.setattr(constants, "ENDPOINT", self.hub.endpoint)
        template = f"{self.hub.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        self.patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        self.patch.setattr(constants, "HF_HUB_CACHE", str(self.home / "hub"))
        self.patch.setattr(constants, "HF_TOKEN_PATH", str(self.home / "token"))
        self.patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        self.patch.setenv("HF_TOKEN", self.token)

    def run(self, *words: str, status: int = 0) -> str:
        """A command of ours, in this process."""
        self.connect()
        self.output.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*words])
        said = "".join(self.output.readouterr())
        assert ended.value.code == status, said
        assert TOKEN not in said
        return said

    def push(self, model: Path | str, *options: str, status: int = 0) -> str:
        return self.run("models", "push-to-hub", str(model), NAME, *options, status=status)

    def python(self, text: str, *arguments: str) -> str:
        """Prints of a process of its own, whose environment says where the Hub is."""
        environment = {**os.environ, "HF_ENDPOINT": self.hub.endpoint, "HF_HOME": str(self.home)}
        environment |= {"PYTHONPATH": str(ROOT), "HF_HUB_DISABLE_XET": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_TOKEN": self.token}
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", text, *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        assert TOKEN not in ended.stdout + ended.stderr
        return ended.stdout + ended.stderr


@pytest.fixture
def person(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Person:
    return Person(hub, tmp_path / "home", monkeypatch, capsys)


HEAR = """
import sys, numpy, voxline
try:
    model = voxline.from_pretrained(sys.argv[1], **dict(word.split("=") for word in sys.argv[2:]))
    print(repr(model.transcribe(numpy.full(8000, 0.5, "f"), sample_rate=16000)))
except voxline.VoxlineError as error:
    print(type(error).__name__, error)
"""


def test_a_version_goes_to_the_hub_and_comes_back(registry: Path, person: Person, tmp_path: Path) -> None:
    said = person.push(f"{registry}/tiny")
    repository = person.hub.repositories[NAME]
    commit = repository.newest
    assert said.startswith(f"hf://{NAME}@{commit.id} (")
    assert "licence of its data: CC-BY-4.0" in said
    assert repository.private
    assert commit.message == "tiny, version 1"

    # The registry knows, and nothing of the version has changed.
    versions = Registry(registry, "tiny")
    (upload,) = read_uploads(versions)
    version = versions.path(1)
    assert (upload.repository, upload.revision, upload.version) == (NAME, commit.id, 1)
    assert upload.digest == versions.event(1).digest == model_digest(version)
    shown = person.run("models", "show", "tiny", "1", "--registry", str(registry))
    assert f"hub {NAME}" in shown
    assert commit.id in shown

    # What is there: the model, its weights by name, the card. No list of speakers, no evaluation.
    names = set(commit.files)
    assert {"model.json", "saved_model.pb", "model.onnx", "model.safetensors", "voxline.json", "README.md"} <= names
    assert not {name for name in names if name.startswith(("evaluation", "trained_on", "provenance", "version"))}
    assert not any(b"secret" in content for content in commit.files.values())
    (tmp_path / "weights").write_bytes(commit.files["model.safetensors"])
    published = load_file(tmp_path / "weights")
    expected = read_named_weights(read_model_info(version), version)
    assert published.keys() == expected.keys()
    assert all(np.array_equal(published[name], values) for name, values in expected.items())

    # By the name alone the newest commit is loaded, which is said; by the commit without a network.
    heard = person.python(HEAR, NAME)
    assert f"from_pretrained: {NAME} is hf://{NAME}@{commit.id}" in heard
    asked = len(person.hub.requests)
    again = person.python(HEAR, NAME, f"revision={commit.id}")
    assert len(person.hub.requests) == asked
    assert again in heard
    assert person.python(HEAR, f"{registry}/tiny").strip() == again.splitlines()[-1]


def test_a_private_model_is_nobody_else_s(registry: Path, person: Person) -> None:
    person.push(registry / "tiny" / "1")
    person.token = ""
    refused = person.python(HEAR, NAME)
    assert "SettingsError location is 'hf://voices/tiny': the Hub has no such model for you" in refused
    again = person.push(registry / "tiny" / "1", status=2)
    assert "nobody is logged in to the Hub; run `hf auth login`, or set HF_TOKEN" in again


def test_without_a_network_a_command_says_so(registry: Path, person: Person) -> None:
    person.hub.server_close()
    said = person.push(f"{registry}/tiny", status=75)
    assert f"hf://{NAME}: the Hub cannot be reached" in said
    with pytest.raises(TransientError, match=r"the Hub cannot be reached .* name its commit, and it is read"):
        find_pretrained(NAME)


def test_a_commit_of_others_is_not_overwritten_unseen(registry: Path, person: Person) -> None:
    person.push(f"{registry}/tiny", "--public")
    repository = person.hub.repositories[NAME]
    assert not repository.private
    first = repository.newest
    person.push(f"{registry}/tiny", "--note", "again")
    assert repository.newest.message == "again"

    # A colleague adds samples, and an earlier release had a graph that this one lacks.
    theirs = repository.commit({**repository.newest.files, "sample.wav": b"RIFF", "stream.onnx": b"old"}, "samples")
    refused = person.push(f"{registry}/tiny", status=2)
    assert f"is at the commit {theirs.id}, which was not pushed from this registry" in refused
    assert f"--over {theirs.id}" in refused
    assert repository.newest is theirs

    person.push(f"{registry}/tiny", "--over", theirs.id)
    newest = repository.newest
    assert "sample.wav" in newest.files
    assert "stream.onnx" not in newest.files
    assert first.files.keys() | {"sample.wav"} == newest.files.keys()
    assert read_uploads(Registry(registry, "tiny"))[-1].revision == newest.id

    # One that comes while the files go up.
    person.hub.before_commit = lambda: repository.commit({**newest.files, "b": b""}, "faster")
    assert f"another commit came after {newest.id}" in person.push(f"{registry}/tiny", status=1)
    assert repository.newest.message == "faster"


def test_nothing_is_left_out_in_silence(registry: Path, person: Person) -> None:
    person.hub.ignored = {"model.onnx"}
    assert "lacks model.onnx; see its .gitignore" in person.push(registry / "tiny" / "1", status=1)
    person.hub.broken_uploads = True
    person.hub.large.clear()
    assert "nothing was committed, push again" in person.push(
        registry / "tiny" / "1", "--over", person.hub.repositories[NAME].newest.id, status=75
    )


def test_a_registry_that_cannot_record_the_push_is_noticed_before_it(
    registry: Path, person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = Path(shutil.copytree(registry, tmp_path / "registry"))
    (copied / "tiny" / "hub.json").unlink(missing_ok=True)
    writes = LocalStore.write

    def refuse(store: LocalStore, path: str, *more: Any, **options: Any) -> Any:
        if path == "hub.json":
            raise PermissionError(errno.EROFS, "Read-only file system", path)
        return writes(store, path, *more, **options)

    with monkeypatch.context() as read_only:
        read_only.setattr(LocalStore, "write", refuse)
        assert "the registry cannot be changed (Read-only file system" in person.push(f"{copied}/tiny", status=1)
    assert person.hub.requests == []

    # It is full once the files are up: the commit is there, and is named.
    person.hub.before_commit = lambda: monkeypatch.setattr(LocalStore, "write", refuse)
    said = person.push(f"{copied}/tiny", status=1)
    commit = person.hub.repositories[NAME].newest.id
    assert f"hf://{NAME}@{commit} is on the Hub, and" in said
    assert f"the next push of this model there needs --over {commit}" in said


def test_licences_that_the_runs_refuse_are_refused_here_too(registry: Path, person: Person, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(f"name: tiny\ncorpus: {{uri: {tmp_path}}}\npush: {{licences: [CC0-1.0]}}\n")
    said = person.push(f"{registry}/tiny", "-c", str(config), status=2)
    assert "licences that push.licences does not accept: its data: CC-BY-4.0; accepted: CC0-1.0" in said
    assert person.hub.requests == []
    config.write_text(config.read_text().replace("CC0-1.0", "CC-BY-4.0"))
    person.push(f"{registry}/tiny", "-c", str(config))


def test_the_hub_s_own_parser_reads_the_card(registry: Path, person: Person) -> None:
    person.push(f"{registry}/tiny", "--language", "en")
    text = person.hub.repositories[NAME].newest.files["README.md"].decode()
    card = ModelCard(text)
    data = card.data
    assert (data.license, data.language, data.library_name) == ("cc-by-4.0", "en", "voxline")
    assert data.pipeline_tag == "automatic-speech-recognition"
    assert data.metrics[0] == "wer"
    wer = next(result for result in data.eval_results if result.metric_type == "wer")
    evaluation = json.loads((Registry(registry, "tiny").path(1) / "evaluation" / "metrics.json").read_text())
    assert wer.metric_value == round(100 * evaluation["metrics"]["wer"]["value"], 2)
    assert wer.task_type == "automatic-speech-recognition"
    assert 'voxline.from_pretrained("voices/tiny")' in card.text
    assert "Licences of the recordings: CC-BY-4.0 (7 utterances)" in card.text
    assert str(registry) not in text


def test_other_bytes_than_those_of_the_digest_are_not_loaded(registry: Path, person: Person) -> None:
    person.push(f"{registry}/tiny")
    repository = person.hub.repositories[NAME]
    whole = f"hf://{NAME}@{repository.newest.id}"
    changed = repository.commit({**repository.newest.files, "model.onnx": b"other"})
    with pytest.raises(WorkError, match="these files are not the ones that were published"):
        find_model(f"hf://{NAME}@{changed.id}")
    assert find_model(whole).name == whole.rpartition("@")[2]

    # A damaged copy of this machine.
    blob = (find_model(whole) / "model.json").resolve()
    blob.write_bytes(blob.read_bytes() + b" ")
    with pytest.raises(WorkError, match="these files are not the ones that were published") as refused:
        find_model(whole)

    # What the message says mends it.
    deleted = re.search(r"delete (\S+), and it is downloaded again", str(refused.value))
    assert deleted
    shutil.rmtree(deleted[1])
    assert (find_model(whole) / "model.json").is_file()


def test_a_signed_model_loads_beside_files_of_others(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("model_signing", reason="model-signing is not installed (the extra `signing`)")
    private, public = write_keys(tmp_path / "keys")
    monkeypatch.setenv(PRIVATE_KEY_ENV, str(private))
    monkeypatch.setenv(PUBLIC_KEY_ENV, str(public))
    signed = Registry(tmp_path / "signed", "asr")
    publish(signed, exported(tmp_path / "model", "graph"))
    person.push(signed.path(1))
    repository = person.hub.repositories[NAME]

    def find_with(**added: bytes) -> Path:
        files = {file.replace("__", "/"): content for file, content in added.items()}
        return find_model(f"hf://{NAME}@{repository.commit({**first, **files}).id}")

    first = repository.newest.files
    beside = {"LICENSE": b"MIT", "notes.txt": b"n", "samples__a.json": b"{}", "config.json": b"{}"}
    assert (find_with(**beside) / "LICENSE").is_file()
    for inside in ({"variables__more.json": b"{}"}, {"assets__words.txt": b"more"}, {"saved_model.pb": b"another"}):
        with pytest.raises(WorkError, match="these files are not the ones that were published"):
            find_with(**inside)

    # With the digest of the new files too: the signature tells.
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"another")
    about = {**json.loads(first["voxline.json"]), "digest": model_digest(tmp_path / "model")}
    with pytest.raises(WorkError, match="its signature is not valid"):
        find_with(**{"saved_model.pb": b"another", "voxline.json": json.dumps(about).encode()})


def test_a_training_starts_from_it_and_a_registry_imports_it(registry: Path, person: Person, tmp_path: Path) -> None:
    person.push(f"{registry}/tiny")
    commit = person.hub.repositories[NAME].newest.id
    location = f"hf://{NAME}@{commit}"
    parent = find_parent(location, "", family="asr", own_name="asr", generations=3)
    assert parent is not None
    assert (parent.label, parent.pinned) == (f"{NAME}@{commit[:8]}", location)
    assert parent.ancestor.licences == ["CC-BY-4.0"]
    assert parent.describe()["training_data"] == "unknown"
    assert read_parent(parent).names == parent.info.weights
    assert find_family("asr").config_defaults({"train": {"start": {"model": location}}}) == {}
    with pytest.raises(SettingsError, match="give the commit, 40 hexadecimal digits"):
        find_model(f"hf://{NAME}")

    imported = tmp_path / "imported"
    person.run("models", "import", location, "--registry", str(imported), "--name", "asr")
    versions = Registry(imported, "asr")
    assert versions.candidate() == 1
    assert versions.event(1).digest == Registry(registry, "tiny").event(1).digest
    assert location.rpartition("@")[2] in (versions.path(1) / "model_card.md").read_text()


def test_it_is_exported_in_another_form(registry: Path, person: Person, tmp_path: Path) -> None:
    person.push(f"{registry}/tiny")
    location = f"hf://{NAME}@{person.hub.repositories[NAME].newest.id}"
    export = ["models", "export", location, "--onnx", "none"]
    person.run(*export, "-o", str(tmp_path / "plain"))
    assert read_model_info(tmp_path / "plain").settings["export"]["onnx"] == "none"
    assert not (tmp_path / "plain" / "model.onnx").exists()
    said = person.run(*export, "--test", str(tmp_path), status=2)
    assert f"{location}: no registry has it; give -o FOLDER, or import it first" in said


@pytest.mark.parametrize("place", ["the Hub", "a folder"])
def test_a_model_tuned_from_an_import_that_was_pushed_is_measured_beside_it(
    place: str, person: Person, tmp_path: Path, make_asr_model: MakeAsrModel
) -> None:
    imported = Path(shutil.copytree(make_asr_model(WORSE), tmp_path / "imported"))
    info = read_model_info(imported)
    info.dataset = changed_part(info.dataset, key="")
    info.provenance = changed_part(info.provenance, trained={AS_PUBLISHED: True})
    write_model_info(imported, info)
    person.push(imported)
    location = f"hf://{NAME}@{person.hub.repositories[NAME].newest.id}" if place == "the Hub" else str(imported)
    parent = find_parent(location, "", family="asr", own_name="asr", generations=3)
    assert parent is not None

    night = Night(tmp_path / "night", make_asr_model)
    verdict = night.judge({}, ancestor=parent.ancestor.values(), start=location)
    assert verdict["pushed"], verdict["reasons"]
    ((status, detail),) = checks(verdict)
    assert status == "passed"
    assert f"against {parent.label} (22.22%)" in detail

    # Another model under that name is not taken for it.
    other = {**parent.ancestor.values(), "digest": "0f" * 32}
    assert "is another model today" in str(night.judge({}, ancestor=other, start=location)["reasons"])


@pytest.mark.parametrize("kind", ["tacotron2", "hifigan", "waveglow"])
def test_a_public_voice_or_vocoder_of_a_folder_is_loaded(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cache_assets, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    loaded = from_pretrained(PUBLIC / kind)
    assert type(loaded).__name__ == ("Synthesizer" if kind == "tacotron2" else "Vocoder")
    with pytest.raises(SettingsError, match=f"{kind}.*: language='en' is for a public Whisper of several languages"):
        find_pretrained(PUBLIC / kind, language="en")


def test_two_that_load_a_public_model_at_once_write_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_cache_assets, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    family = type(find_family("vocoder"))
    export = family.export_published
    second = ThreadPoolExecutor(1)
    loaded: list[Future[Path]] = []
    said: list[str] = []

    def export_while_another_comes(*arguments: Any) -> bool:
        loaded.append(second.submit(find_pretrained, PUBLIC / "hifigan"))
        if len(loaded) == 1:
            wait_until(lambda: said.append(capsys.readouterr().out) or loaded[0].done() or "waiting" in said[-1], "it")
        return export(*arguments)

    monkeypatch.setattr(family, "export_published", export_while_another_comes)
    folder = find_pretrained(PUBLIC / "hifigan")
    assert loaded[0].result() == folder
    assert len(loaded) == 1
    assert "waiting for another process that is making" in "".join(said)


def test_a_revision_or_a_language_that_says_nothing_is_refused(registry: Path, person: Person) -> None:
    with pytest.raises(SettingsError, match="s3://bucket/asr is in a bucket, and has no revision 'v1'; leave it out"):
        find_pretrained("s3://bucket/asr", revision="v1")
    with pytest.raises(SettingsError, match="is on this machine, and has no revision 'v1'; leave it out"):
        find_pretrained(registry / "tiny", revision="v1")
    person.push(f"{registry}/tiny")
    for location in ("s3://bucket/asr", registry / "tiny", NAME):
        with pytest.raises(SettingsError, match="language='en' is for a public Whisper of several languages"):
            find_pretrained(location, language="en")


@pytest.mark.slow
def test_a_public_network_comes_from_the_hub_and_goes_back_for_transformers(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cache_assets, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    public = {file.name: file.read_bytes() for file in (PUBLIC / "wav2vec2").iterdir() if file.is_file()}
    person.hub.repositories["somebody/public"] = Repository([])
    person.hub.repositories["somebody/public"].commit({**public, "README.md": b"---\nlicense: mit\n---\n"})
    waveform = (0.2 * np.random.default_rng(0).standard_normal(16_000)).astype(np.float32)

    person.connect()
    folder = find_pretrained("somebody/public")
    text = Recognizer(folder).transcribe(waveform, sample_rate=16_000)
    assert text
    written = (folder / "saved_model.pb").stat().st_mtime_ns
    assert (find_pretrained("hf://somebody/public") / "saved_model.pb").stat().st_mtime_ns == written
    with pytest.raises(SettingsError, match=r"a public model without voxline\.json: `voxline models import hf://"):
        find_model(pin_location("somebody/public"))

    said = person.push(folder, "--as", "transformers", "--language", "fr")
    assert "licence of somebody/public@" in said
    there = person.hub.repositories[NAME].newest.files
    assert {"config.json", "model.safetensors", "vocab.json"} <= there.keys()
    assert "saved_model.pb" not in there
    data = ModelCard(there["README.md"].decode()).data
    assert (data.base_model, data.license, data.library_name) == ("somebody/public", "mit", "transformers")
    assert data.language == "fr"
    assert Recognizer(find_pretrained(NAME)).transcribe(waveform, sample_rate=16_000) == text

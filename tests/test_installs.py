"""Each extra in an environment of its own: its size, and a use of it. `make test-extras` runs this."""

import os
import re
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.closures import ROOT
from tests.hub_server import TOKEN, Repository, serve_hub
from tests.tone_asr_model import RATE, export_onnx_tones, render_words
from tests.tone_tts_model import export_onnx_voice
from tests.waiting import wait_until
from voxline.audio.ffmpeg import write_encoded
from voxline.audio.wav import to_int16
from voxline.components.demo_corpus.step import corpus_settings
from voxline.components.demo_corpus.step import run as generate
from voxline.inference.recognizer import Recognizer
from voxline.pipelines.hub import write_release
from voxline.registry.models import find_model

pytestmark = pytest.mark.skipif(
    not os.environ.get("VOXLINE_TEST_EXTRAS"), reason="it installs each extra: make test-extras"
)
DEMO = ROOT / os.environ.get("RUN", "runs/demo") / "registry" / "asr"
CONFIG = """
name: tiny
corpus: {{uri: "{corpus}"}}
extract: {{features: {{mels: 16}}}}
train:
  epochs: 1
  batch_size: 8
  model: {{layers: 1, units: 8, rnn: simple, directions: forward, convolutions: [{{channels: 2, stride: [3, 2]}}]}}
evaluate: {{bootstrap_samples: 200}}
"""
ABSENT_IN_CORE = ("tensorflow", "keras", "apache_beam", "kfp", "boto3", "google.cloud", "imageio_ffmpeg", "scipy")


@dataclass
class Installed:
    """An environment with an extra, and a folder to work in.

    Attributes:
      size: of its files in MB, without byte code.
      compiled: with it, as pip installs.
      packages: how many.
    """

    python: Path
    folder: Path
    size: float
    compiled: float
    packages: int

    def run(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Runs Python with the installed package, not with this folder's code."""
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
        return subprocess.run(
            [str(self.python), "-P", *arguments],
            cwd=self.folder,
            env={**kept, "HOME": str(self.folder), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def voxline(self, *words: str, status: int = 0, **environment: str) -> str:
        ran = self.run("-m", "voxline", *words, **environment)
        assert ran.returncode == status, (words, ran.stdout[-2_000:], ran.stderr[-4_000:])
        return ran.stdout + ran.stderr

    def code(self, text: str, **environment: str) -> str:
        ran = self.run("-c", textwrap.dedent(text), **environment)
        assert ran.returncode == 0, ran.stderr[-4_000:]
        return ran.stdout.strip()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The versions of the lock."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([a-z0-9._-]+==[^\\\n]+?) *\\?$", lock, re.MULTILINE)
    file = tmp_path_factory.mktemp("constraints") / "constraints.txt"
    file.write_text("\n".join(pins), encoding="utf-8")

    # What the lock leaves out comes with an extra all the same.
    overrides = (ROOT / "requirements.override").read_text(encoding="utf-8").splitlines()
    kept = [line for line in overrides if "python_version" not in line]
    file.with_name("override.txt").write_text("\n".join(kept), encoding="utf-8")
    return file


@pytest.fixture
def install(wheel: Path, constraints: Path, tmp_path: Path) -> Iterator[Callable[[str], Installed]]:
    """Installs the wheel with an extra; "" is the core. The test prints its size, and compares it with the docs."""
    environment = tmp_path / "environment"

    def make(extra: str) -> Installed:
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
        python = environment / "bin" / "python"
        empty = _sizes(environment)
        asked = f"voxline[{extra}] @ {wheel.as_uri()}" if extra else f"voxline @ {wheel.as_uri()}"
        versions = ["-c", str(constraints), "--override", str(constraints.with_name("override.txt"))]
        command = [*uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), *versions, asked]
        subprocess.run(command, check=True)
        size, compiled = (after - before for before, after in zip(empty, _sizes(environment), strict=True))
        work = tmp_path / "work"
        work.mkdir()
        installed = Installed(python, work, size, compiled, len([*environment.rglob("*.dist-info")]))
        _compare_with_docs(extra, installed)
        return installed

    yield make
    subprocess.run(["rm", "-rf", str(environment)], check=True)


def _sizes(folder: Path) -> tuple[float, float]:
    """MB of the files without and with byte code."""
    files = [(file.suffix == ".pyc", file.lstat().st_size) for file in folder.rglob("*") if file.is_file()]
    return sum(size for is_code, size in files if not is_code) / 1e6, sum(size for _, size in files) / 1e6


def _compare_with_docs(extra: str, installed: Installed) -> None:
    """Prints the row of docs/install.md, and fails where its sizes are more than a tenth too small."""
    name = f"`voxline[{extra}]`" if extra else "`voxline`"
    row = f"| {name} | {installed.packages} | {installed.size:,.0f} MB | {installed.compiled:,.0f} MB |"
    print(f"\n{row}")
    if log := os.environ.get("VOXLINE_EXTRAS_TABLE"):
        with open(log, "a", encoding="utf-8") as file:
            file.write(row + "\n")
        return
    stated = re.search(
        rf"^\| {re.escape(name)} \| [\d,]+ \| ([\d,]+) MB \| (?:([\d,]+) MB|not measured) \|", _page(), re.MULTILINE
    )
    assert stated, f"docs/install.md has no row of {name}"
    assert installed.size <= 1.1 * float(stated[1].replace(",", "")), row
    if stated[2]:
        assert installed.compiled <= 1.1 * float(stated[2].replace(",", "")), row


def _page() -> str:
    return (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three generated speakers, one a split; FLAC."""
    chosen = corpus_settings(
        train_speakers=2, dev_speakers=1, test_speakers=1, utterances_per_speaker=10, dev_utterances_per_speaker=4
    )
    return generate(tmp_path_factory.mktemp("corpus"), chosen).path("corpus")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_the_core_transcribes_synthesizes_serves_and_scores(install: Callable[[str], Installed]) -> None:
    core = install("")
    assert core.compiled <= 500
    found = core.code(f"""
        import importlib.util
        names = [name for name in {ABSENT_IN_CORE} if "." not in name and importlib.util.find_spec(name)]
        print(names)
    """)
    assert found == "[]"
    soundfile.write(core.folder / "a.wav", render_words(["three", "one"]), RATE)
    model = export_onnx_tones(core.folder / "registry-less" / "model")
    voice = export_onnx_voice(core.folder / "voice")
    assert core.voxline("transcribe", "a.wav", "--model", str(model)).splitlines()[0] == "three one"
    core.voxline("synthesize", "31", "--model", str(voice), "-o", "speech.wav")
    assert soundfile.info(core.folder / "speech.wav").duration > 0.05
    assert core.code("import voxline; print(voxline.wer(['three one'], ['three']).rate)") == "0.5"
    if (DEMO / "1").is_dir():  # the demo's recognizer, with its language model
        clip = DEMO / "1" / "evaluation" / "clip.wav"
        said = core.voxline("transcribe", str(clip), "--model", str(DEMO)).strip()
        assert said == Recognizer(find_model(DEMO)).transcribe(clip)
        print(f"\nthe demo's recognizer: {said}")

    # One of the Hub, by its name.
    write_release(model, core.folder / "release", "voices/tones")
    files = {
        file.relative_to(core.folder / "release").as_posix(): file for file in (core.folder / "release").rglob("*")
    }
    with serve_hub() as hub:
        hub.repositories["voices/tones"] = Repository([])
        hub.repositories["voices/tones"].commit(
            {name: file.read_bytes() for name, file in files.items() if file.is_file()}
        )
        variables = {"HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": TOKEN}
        load = "import voxline; print(voxline.from_pretrained('voices/tones').transcribe('a.wav'))"
        assert core.code(load, **variables).splitlines()[-1] == "three one"

    # A model of another folder goes into a registry by the command.
    core.code(f"""
        from pathlib import Path
        from voxline.inference.saved_model import model_digest
        from voxline.registry.journal import PRODUCTION
        from voxline.registry.registry import Registry
        model = Path({str(model)!r})
        registry = Registry(Path("registry"), "asr")
        with registry.locked(), registry.publishing(model, model_digest(model), "push", alias=PRODUCTION):
            pass
    """)
    port = _free_port()
    arguments = ["-P", "-m", "voxline", "serve", "--registry", "registry", "--port", str(port)]
    server = subprocess.Popen([str(core.python), *arguments], cwd=core.folder, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(f"http://127.0.0.1:{port}/v1/models"), "the server answers")
        ran = core.code(f"""
            import requests
            url = "http://127.0.0.1:{port}/v1/audio/transcriptions"
            print(requests.post(url, files={{"file": open("a.wav", "rb")}}, data={{"model": "asr"}}).json()["text"])
        """)
        assert ran == "three one"
    finally:
        server.terminate()
        server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - this machine
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def test_pipeline_makes_a_dataset(install: Callable[[str], Installed], corpus: Path) -> None:
    pipeline = install("pipeline")
    (pipeline.folder / "tiny.yaml").write_text(CONFIG.format(corpus=corpus))
    said = pipeline.voxline("run", "asr", "-c", "tiny.yaml", "--until", "extract")
    assert "extract" in said
    said = pipeline.voxline("run", "asr", "-c", "tiny.yaml", status=2)
    assert "tensorflow is not installed; `pip install 'voxline[train]'` adds it" in said
    assert "Traceback" not in said


def test_train_trains_on_a_dataset_and_runs_saved_models(install: Callable[[str], Installed], corpus: Path) -> None:
    train = install("train")
    (train.folder / "tiny.yaml").write_text(CONFIG.format(corpus=corpus))
    here = [sys.executable, "-P", "-m", "voxline", "run", "asr", "-c", "tiny.yaml", "--until", "extract"]
    kept = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*here, "--run-dir", "made"], cwd=train.folder, env=kept, check=True, capture_output=True)
    dataset = next(file.parent for file in (train.folder / "made").rglob("dataset.json"))
    said = train.voxline("step", "train", "-c", "tiny.yaml", "--dataset", str(dataset))
    model = re.search(r"^model +(\S+)$", said, re.MULTILINE)
    assert model, said
    clip = next(corpus.rglob("*.flac"))
    train.voxline("transcribe", str(clip), "--model", model[1], TF_CPP_MIN_LOG_LEVEL="2")


def test_client_and_cluster_compile(install: Callable[[str], Installed]) -> None:
    cluster = install("cluster")
    (cluster.folder / "run.yaml").write_text(
        "pipeline: asr\nname: nightly\nstore: gs://example/store\nregistry: gs://example/registry\n"
        "corpus: {uri: gs://example/corpus}\n"
    )
    cluster.voxline("compile", "asr", "-c", "run.yaml", "-o", "asr.yaml", VOXLINE_IMAGE_TAG="1")
    assert (cluster.folder / "asr.yaml").stat().st_size > 10_000
    cluster.code("import opentelemetry.exporter.otlp.proto.http.metric_exporter, boto3, google.cloud.storage")


def test_client_compiles(install: Callable[[str], Installed]) -> None:
    client = install("client")
    (client.folder / "run.yaml").write_text(
        "pipeline: asr\nname: nightly\nstore: s3://example/store\nregistry: s3://example/registry\n"
        "corpus: {uri: s3://example/corpus}\n"
    )
    client.voxline("compile", "asr", "-c", "run.yaml", "-o", "asr.yaml", VOXLINE_IMAGE_TAG="1")
    assert (client.folder / "asr.yaml").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("extra", "location", "connection"),
    [("gcp", "gs", "voxline.store.gcs.GcsConnection"), ("s3", "s3", "voxline.store.s3_client.S3Connection")],
)
def test_storages_connect(extra: str, location: str, connection: str, install: Callable[[str], Installed]) -> None:
    storage = install(extra)
    port = _free_port()
    variables = {
        "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
        "NO_GCE_CHECK": "true", "VOXLINE_BUCKETS_DEADLINE_SECONDS": "2",
    }  # fmt: skip
    # Nobody listens there: the client was asked, and the answer of its library is translated.
    ran = storage.run("-m", "voxline", "models", "list", "--registry", f"{location}://bucket/registry", **variables)
    assert ran.returncode == 75, ran.stderr
    assert "not installed" not in ran.stderr


def test_media_reads_and_writes_compressed_audio(install: Callable[[str], Installed]) -> None:
    media = install("media")
    samples = to_int16(np.concatenate([render_words(["three", "one"]), np.zeros(RATE // 4, np.float32)]))
    write_encoded(media.folder / "a.m4a", samples, RATE)
    model = export_onnx_tones(media.folder / "model")
    voice = export_onnx_voice(media.folder / "voice")
    media.voxline("transcribe", "a.m4a", "--model", str(model))
    media.voxline("synthesize", "31", "--model", str(voice), "-o", "speech.mp3")
    assert soundfile.info(media.folder / "speech.mp3").duration > 0.05


def test_phonemes_speak_italian(install: Callable[[str], Installed]) -> None:
    phonemes = install("phonemes")
    told = phonemes.code(
        "from voxline.text.phonemes import phonemize_language; print(phonemize_language('ciao', 'it'))"
    )
    assert told == "tʃˈao"


def test_judges_judge(install: Callable[[str], Installed]) -> None:
    judges = install("judges")
    told = judges.code("""
        import numpy as np
        from voxline.metrics.dnsmos import dnsmos
        import librosa
        tone = np.sin(2 * np.pi * 220 * np.arange(160_000) / 16_000).astype(np.float32) / 4
        f0, voiced, _ = librosa.pyin(tone[:16_000], fmin=60, fmax=400, sr=16_000)
        print(round(float(np.nanmedian(f0))), 0 < dnsmos(tone, 16_000) < 5)
    """)
    assert told == "220 True"


def test_vertex_has_its_client(install: Callable[[str], Installed]) -> None:
    vertex = install("vertex")
    assert "aiplatform" in vertex.code("from voxline.pipelines.cluster.vertex import client; print(client().__name__)")


def test_the_environment_of_make_setup_is_as_small_as_said(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(environment / "bin" / "python")]
    for lock in ("requirements.bootstrap", "requirements.lock"):
        subprocess.run([*command, "--require-hashes", "--no-deps", "-r", str(ROOT / lock)], check=True)
    strip = [sys.executable, str(ROOT / "docker" / "tidy.py"), "--strip", str(environment / "lib")]
    subprocess.run(strip, check=True)
    size, _ = _sizes(environment)
    print(f"\nmake setup: {size:,.0f} MB without byte code")
    stated = re.search(r"([\d,]+) MB, without byte code, of which", _page())
    assert stated
    # It compiles about 115 MB of byte code.
    assert size <= float(stated[1].replace(",", "")) + 5 <= 2_385
    subprocess.run(["rm", "-rf", str(environment)], check=True)


def test_all_runs_a_pipeline_to_its_end(install: Callable[[str], Installed], corpus: Path) -> None:
    everything = install("all")
    (everything.folder / "tiny.yaml").write_text(CONFIG.format(corpus=corpus))
    said = everything.voxline("run", "asr", "-c", "tiny.yaml")
    assert "Not pushed: word error rate" in said  # it has learned nothing

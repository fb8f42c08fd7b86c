"""Every pipeline against the specs of KFP servers from 2.5 on, parsed strictly, as a server parses an upload."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.k8s.fetched import TOOLS
from voxline.pipelines.cluster.compiler import RUN_LIMITS_SINCE, compile_pipeline
from voxline.pipelines.config.load import load_config
from voxline.pipelines.search.kfp_trials import compile_trials
from voxline.pipelines.search.space import Space

ROOT = Path(__file__).resolve().parents[3]
SPECS = (
    *("0.2.2", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0"),
    *("2.14.0", "2.14.3", "2.14.6", "2.15.0", "2.15.1", "2.15.2", "2.16.0", "2.16.1", "2.17.0", "2.17.3"),
)
"""Every release of kfp-pipeline-spec since that of KFP 2.5 (0.2.2). KFP 2.8 has 0.3.0, 2.10 has 0.4.0, 2.11 to 2.13
have 0.6.0; since 2.14 the numbers are KFP's."""
RUNS = {
    "asr": ("configs/asr/librispeech.yaml", "configs/cluster/gke-gpu.yaml"),
    "tts": ("configs/tts/ljspeech.yaml", "configs/cluster/one-node.yaml"),
    "vocoder": ("configs/vocoder/ljspeech-vocos.yaml", "configs/cluster/gke-gpu.yaml"),
    "intents": ("configs/intents/demo.yaml", "configs/cluster/one-node.yaml"),
    "refresh": ("configs/refresh/librispeech.yaml", "configs/cluster/one-node.yaml"),
}
PARSE = """
import ast, json, sys
from google.protobuf import any_pb2, descriptor_pool, duration_pb2, json_format, message_factory, struct_pb2
from google.rpc import status_pb2
import yaml

# The descriptor alone: code that old releases generated does not run with today's protobuf.
with open(sys.argv[1], encoding="utf-8") as opened:
    constants = [node.value for node in ast.walk(ast.parse(opened.read())) if isinstance(node, ast.Constant)]
largest = max((value for value in constants if isinstance(value, bytes)), key=len)
pool = descriptor_pool.DescriptorPool()
for needed in (any_pb2, duration_pb2, struct_pb2, status_pb2):
    pool.AddSerializedFile(needed.DESCRIPTOR.serialized_pb)
pool.AddSerializedFile(largest)
kinds = [
    message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ml_pipelines.{name}"))
    for name in ("PipelineSpec", "PlatformSpec")
]
refused = {}
for file in sys.argv[2:]:
    with open(file, encoding="utf-8") as opened:
        documents = list(yaml.load_all(opened, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    try:
        for kind, document in zip(kinds, documents, strict=True):
            json_format.ParseDict(document, kind(), descriptor_pool=pool)
    except json_format.ParseError as error:
        refused[file] = str(error)
print(json.dumps(refused))
"""


@functools.cache
def spec_file(version: str) -> Path:
    """`pipeline_spec_pb2.py` of one version, fetched once."""
    folder = TOOLS / "specs" / version
    file = folder / "kfp" / "pipeline_spec" / "pipeline_spec_pb2.py"
    if not file.is_file():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
        fetch = [*command, "--target", str(folder), f"kfp-pipeline-spec=={version}"]
        done = subprocess.run(fetch, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            pytest.skip(f"kfp-pipeline-spec {version} cannot be fetched here: {done.stderr.strip()[-200:]}")
    return file


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, list[str]]:
    """The files of each graph, for servers that take the limits of a run, and for others."""
    folder = tmp_path_factory.mktemp("versions")
    found: dict[bool, list[str]] = {True: [], False: []}
    images = ["cluster.images.registry=registry.example/voxline", "cluster.images.tag=v1"]
    for graph, files in RUNS.items():
        given = [*images, *(["datasets=gs://speech/datasets"] if graph == "refresh" else [])]
        config = load_config([ROOT / file for file in files], given, pipeline=graph)
        for limits, version in ((True, (2, 17)), (False, ())):
            file = folder / f"{graph}-{limits}.yaml"
            compile_pipeline(config, file, version)
            found[limits].append(str(file))
            if graph == "asr":
                search = folder / f"search-{limits}.yaml"
                space = Space({"train.learning_rate": [1e-3, 5e-3], "train.model.units": [512, 800]})
                compile_trials(config, space, search, metric="dev_wer", method="grid", jobs=2, kfp_version=version)
                found[limits].append(str(search))
    return found


def refused(version: str, files: list[str]) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(spec_file(version)), *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("version", SPECS)
def test_each_server_takes_what_is_compiled_for_it(version: str, compiled: dict[bool, list[str]]) -> None:
    limits = tuple(map(int, version.split("."))) >= RUN_LIMITS_SINCE
    assert refused(version, compiled[limits]) == {}
    assert refused(version, compiled[False]) == {}, "a file that is compiled for no version fits every server"
    if not limits:
        assert len(refused(version, compiled[True])) == len(RUNS) + 1, "otherwise RUN_LIMITS_SINCE is too new"

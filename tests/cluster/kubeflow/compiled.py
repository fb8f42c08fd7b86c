"""Every config on every overlay, compiled for KFP 2.17 as `voxline submit` compiles it."""

import itertools
from pathlib import Path

from voxline.pipelines.cluster.submit import CompiledPipeline
from voxline.pipelines.config.load import load_config
from voxline.pipelines.graphs import pipeline_names
from voxline.pipelines.search.kfp_trials import MAX_TRIALS, compile_trials
from voxline.pipelines.search.space import Space

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = sorted(file for graph in pipeline_names() for file in ROOT.glob(f"configs/{graph}/*.yaml"))
OVERLAYS = sorted(file for file in ROOT.glob("configs/cluster/*.yaml") if file.stem != "vertex")
PLACES = ["store=/mnt/store", "registry=/mnt/registry", "datasets=/mnt/store/datasets"]
REFUSED = {
    ("librispeech-960", "gke-tpu"): "image model-gpu cannot use the accelerator",
    ("librispeech-conformer-960", "gke-tpu"): "image model-gpu cannot use the accelerator",
    ("fastspeech", "gke-tpu"): "accelerator is a TPU, and XLA cannot compile the alignment",
    ("phrases", "gke-tpu"): "accelerator is a TPU, and XLA cannot compile the alignment",
    ("people", "gke-tpu"): "accelerator is a TPU, and train.model.head is decoder",
}
"""A config and an overlay that do not go together, with why: an image is for GPUs; a TPU runs what XLA compiles."""
MAY_SKIP = (
    ROOT / "configs/asr/demo.yaml",
    ROOT / "configs/cluster/one-node.yaml",
    "forecast.skip_below=0.05 notify.history=/mnt/store/history",
)
"""A run that trains nothing where its forecast says so."""
VERSION = (2, 17, 0)
IMAGES = ["cluster.images.registry=registry.example/voxline", "cluster.images.tag=v1"]
SEARCH_FILES = [ROOT / "configs/asr/librispeech.yaml", ROOT / "configs/cluster/one-node.yaml"]
RANGES = {"train.learning_rate": {"log": [1e-4, 2e-2]}, "train.weight_decay": {"linear": [0, 0.01]}}


def accepted_runs() -> dict[str, tuple[Path, Path, str]]:
    """By the name of a run: its config, its overlay and further settings, separated by spaces."""
    pairs = [pair for pair in itertools.product(CONFIGS, OVERLAYS) if (pair[0].stem, pair[1].stem) not in REFUSED]
    runs = {f"{graph_of(config)}-{config.stem}-{overlay.stem}": (config, overlay, "") for config, overlay in pairs}
    return {**runs, "asr-demo-one-node-may-skip": MAY_SKIP}


def compile_run(config: Path, overlay: Path, settings: str = "") -> CompiledPipeline:
    """The file that `voxline submit` uploads, and the parameters of its run.

    Raises:
      SettingsError: the two do not go together.
    """
    graph = graph_of(config)
    places = [place for place in PLACES if graph == "refresh" or not place.startswith("datasets")]
    loaded = load_config([config, overlay], [*places, *IMAGES, *settings.split()], pipeline=graph)
    return CompiledPipeline.of(loaded, VERSION)


def compile_search(file: Path) -> None:
    """Writes a graph with as many trials as are accepted, for `kfp run create -f`, which gives no parameters."""
    loaded = load_config(SEARCH_FILES, [*PLACES[:2], *IMAGES])
    compile_trials(loaded, Space(RANGES), file, metric="dev_wer", trials=MAX_TRIALS, jobs=4, kfp_version=VERSION)


def graph_of(config: Path) -> str:
    if config.parent.name == "tts" and "recognizer" in config.stem:
        return "asr"
    return config.parent.name

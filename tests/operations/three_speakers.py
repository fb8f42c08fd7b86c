"""A store, datasets and a registry made from a corpus with three speakers, in folders or in a bucket."""

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.evaluations import evaluation_info
from tests.extract.conftest import write_wav
from tests.publish.conftest import HOW
from tests.registry.published import exported
from tests.registry.published import publish as push
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.extract.step import run as extract
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run as ingest
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.data.dataset import Dataset
from voxline.data.manifest import read_manifest, write_manifest
from voxline.metrics.evaluation import METRICS_FILE, REPORT_FILE, UTTERANCES_FILE, SummaryInfo
from voxline.notify.history import FOLDER
from voxline.registry.registry import EVALUATION, Registry
from voxline.registry.training_data import TRAINED_ON, training_data_of
from voxline.store.bucket_cache import local_path
from voxline.store.files import write_json
from voxline.store.localize import localize
from voxline.store.objects import ObjectStore, open_store
from voxline.store.step_cache import StepOutput
from voxline.store.storage import ABSENT

GONE = "zenobia"
COUNT = 18


def make(folder: Path, base: str, count: int = COUNT) -> None:
    """Two versions of a dataset, one of another, and a model.

    Args:
      folder: for the corpus, on this machine.
      base: below which the store, datasets and registry come to lie; a folder or gs://…
    """
    corpus(folder, count)
    for version in (1, 2):
        converted, extracted = refresh(folder, base, version)
        published = publish(extracted.uri, f"{base}/store", f"{base}/datasets", PublishSettings(dataset="three"))
    others = [one for one in read_manifest(converted.folder) if one.speaker != GONE]
    write_manifest(folder / "manifest.jsonl", others)
    without = extract(folder / "manifest.jsonl", f"{base}/store", HOW)
    publish(without.uri, f"{base}/store", f"{base}/datasets", PublishSettings(dataset="two"))
    dataset = Dataset.read(localize(published.uri), shards=False)
    model = train(local_path(f"{base}/store") / "train" / "0123", dataset)
    register(f"{base}/registry", model, dataset)
    for location in ("registry", "datasets"):
        for number, named in enumerate(("ada", GONE)):
            note_run(open_store(f"{base}/{location}") / FOLDER, number, f"train: step 7 skipped ({named}-2, bo-1)")


def corpus(folder: Path, count: int) -> None:
    random = np.random.default_rng(0)
    lines = []
    for number in range(count):
        speaker = ("ada", "bo", GONE)[number % 3]
        wav = write_wav(folder / "corpus" / f"{number}.wav", random.standard_normal(4_000 + 500 * number) / 10)
        split = ("train", "train", "dev", "test")[number % 4]
        lines.append(
            {
                "id": f"{speaker}-{number}",
                "audio_filepath": wav.name,
                "duration": (4_000 + 500 * number) / 16_000,
                "text": f"{speaker} says one",
                "speaker": speaker,
                "split": split,
            }
        )
    _list(folder, lines)


def refresh(folder: Path, base: str, version: int, without: str = "") -> tuple[StepOutput, StepOutput]:
    """Converts and extracts the corpus, in which one text differs by version."""
    lines = [json.loads(line) for line in (folder / "corpus" / "manifest.jsonl").read_text().splitlines()]
    lines[0]["text"] = "one" * version
    _list(folder, [line for line in lines if line["speaker"] != without])
    with tarfile.open(folder / "corpus.tar", "w") as archive:
        archive.add(folder / "corpus", "corpus")
    settings = CorpusSettings.of({"format": "manifest", "uri": str(folder / "corpus.tar")})
    ingested = ingest(f"{base}/store", settings)
    converted = convert(ingested.uri, f"{base}/store", ConvertSettings.of({"workers": 1}))
    return converted, extract(converted.uri, f"{base}/store", HOW)


def _list(folder: Path, lines: list[dict[str, Any]]) -> None:
    (folder / "corpus" / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def train(folder: Path, dataset: Dataset) -> Path:
    """Writes the output of a training; returns the model's folder."""
    exported(folder / "model", "weights")
    training_data_of(dataset).write(folder / "model" / TRAINED_ON)
    (folder / "logs").mkdir()
    (folder / "logs" / "events.out.tfevents.1").write_bytes(f"{GONE} says one".encode())
    (folder / "logs" / "curves.json").write_text("{}")
    done = {"inputs": {"dataset": dataset.key}, "counts": {}, "metrics": {}, "outputs": {"model": "model"}}
    write_json(folder / "done.json", done)
    return folder / "model"


def register(registry: str, model: Path, dataset: Dataset) -> None:
    """Publishes a version that was trained on the dataset and evaluated on its test split."""
    versions = Registry(registry, "asr")
    place = versions.folder / str(push(versions, model))
    training_data_of(dataset).write(place / TRAINED_ON)
    write_json(place / "provenance.json", {"dataset": {"key": dataset.key}})
    judged = [row for row in dataset.rows() if row.split == "test"]
    (place / EVALUATION).mkdir()
    with open(place / EVALUATION / UTTERANCES_FILE, "w") as file:
        for row in judged:
            line = {"id": row.id, "speaker": row.speaker, "duration": 1.0, "slices": {"speaker": row.speaker}}
            file.write(json.dumps({**line, "metrics": {"wer": [0, 3]}, "champion": None, "reference": row.text}) + "\n")
    clip = next(row for row in judged if row.speaker == GONE)
    summary = SummaryInfo(utterances=3, seconds=3.0, metrics={})
    info = evaluation_info(
        utterances=len(judged),
        slices={"speaker": {GONE: summary, "ada": summary}},
        smoke_test={"id": clip.id, "reference": clip.text, "text": clip.text},
    )
    write_json(place / EVALUATION / METRICS_FILE, info.to_dict())
    (place / EVALUATION / "clip.wav").write_bytes(b"her voice")
    (place / EVALUATION / REPORT_FILE).write_text(f"<p>{clip.id}</p>")


def note_run(history: ObjectStore, number: int, reason: str) -> None:
    """Adds a run that failed to a history."""
    run = {"name": "nightly", "model": "asr", "ended": f"2026-01-0{number + 1}T00:00:00Z"}
    record = {"schema": "voxline.run/1", "run": run, "verdict": "failed", "reason": reason}
    history.write(f"2026010{number + 1}T000000Z-{number}.json", json.dumps(record).encode(), if_version=ABSENT)

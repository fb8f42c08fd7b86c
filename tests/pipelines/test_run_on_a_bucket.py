"""Every step in a pod of its own, with an empty disk: nothing but a bucket leads from one to the next."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.buckets.emulator import Storage
from tests.buckets.s3_server import S3Storage
from tests.buckets.storages import EVERY_STORAGE
from tests.pipelines.conftest import CONFIG
from tests.training.processes import read_log, start_process
from voxline.errors import SettingsError, WorkError
from voxline.inference.saved_model import read_model_info
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.local.single_step import run_step
from voxline.store.bucket_step import BucketStep
from voxline.store.files import read_json
from voxline.store.localize import localize
from voxline.store.step_cache import StepOutput

TO_A_DATASET = ("ingest", "convert", "validate", "extract")

Pod = Callable[[], Path]


class Cluster:
    """Runs steps, each on a machine of its own: all that they share is the bucket, and where in it the work lies."""

    def __init__(self, storage: Storage | S3Storage, fresh_pod: Pod, folder: Path, corpus: str) -> None:
        self.storage, self.fresh_pod, self.run_dir = storage, fresh_pod, folder / "run"
        self.file = folder / "tiny.yaml"
        self.file.write_text(CONFIG.format(corpus=corpus), encoding="utf-8")
        self.settings = [f"store={storage.uri}/store", f"registry={storage.uri}/registry"]

    def config(self, *settings: str) -> RunConfig:
        return load_config(self.file, [*self.settings, *settings])

    def run(self, *steps: str, settings: tuple[str, ...] = ()) -> dict[str, StepOutput]:
        made = {}
        for step in steps:
            self.disk = self.fresh_pod()
            made[step] = run_step(step, self.config(*settings), self.run_dir, {})
        return made


@pytest.fixture
def cluster(request: pytest.FixtureRequest, fresh_pod: Pod, tmp_path: Path, corpus: Path) -> Cluster:
    return Cluster(request.getfixturevalue(getattr(request, "param", "gcs")), fresh_pod, tmp_path, str(corpus))


on_each_storage = pytest.mark.parametrize("cluster", EVERY_STORAGE, indirect=True)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.slow
@on_each_storage
def test_pods_with_empty_disks_reuse_each_others_outputs(cluster: Cluster) -> None:
    first = cluster.run(*TO_A_DATASET)
    assert [work.reused for work in first.values()] == [False] * 4
    assert {work.uri.partition("/store/")[0] for work in first.values()} == {cluster.storage.uri}
    before = cluster.storage.names()
    again = cluster.run(*TO_A_DATASET)
    assert [work.reused for work in again.values()] == [True] * 4
    assert [work.uri for work in again.values()] == [work.uri for work in first.values()]
    assert sorted(cluster.storage.names()) == sorted(before)  # its age says that it is in use
    assert not [path for path in files(cluster.disk) if path.suffix in (".wav", ".tfrecord")]


@pytest.mark.slow
def test_a_second_convert_decodes_only_new_recordings(cluster: Cluster) -> None:
    cluster.run("ingest", "convert")
    again = cluster.run("convert", settings=("convert.max_seconds=20",))["convert"]
    assert not again.reused
    assert again.counts["decoded"] == 0
    assert not [path for path in files(cluster.disk) if path.suffix == ".wav"]


@pytest.mark.slow
def test_an_interrupted_convert_leaves_no_marker(cluster: Cluster) -> None:
    cluster.run("ingest")
    cluster.storage.fails("status", "POST", after=20, times=1_000, code=403)
    with pytest.raises(WorkError, match="permission denied"):
        cluster.run("convert")
    cluster.storage.proxy.faults.clear()
    assert not [name for name in cluster.storage.names() if name.startswith("store/convert/") and "done.json" in name]
    assert not cluster.run("convert")["convert"].reused


@pytest.mark.slow
def test_the_report_embeds_recordings_that_must_be_downloaded(cluster: Cluster) -> None:
    cluster.run("ingest", "convert")
    strict = ("validate.level.min_db=-10", "validate.level.severity=warning", "validate.level.threshold=0")
    judged = cluster.run("validate", settings=strict)["validate"]
    assert "data:audio" in judged.path("report").read_text(encoding="utf-8")
    assert 0 < len([path for path in files(cluster.disk) if path.suffix == ".wav"]) < judged.counts["utterances"]


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["s3"], indirect=True)  # the other tests: what comes before it, on GCS
def test_preempted_training_resumes_in_another_pod_and_its_model_is_pushed(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from voxline.pipelines.cli.model_views import format_models
    from voxline.registry.models import find_model

    cluster.run(*TO_A_DATASET)
    long = ("train.epochs=6", "train.checkpoint_steps=2", "train.evaluate_epochs=3")
    _train_until_it_is_preempted(cluster, long, tmp_path / "preempted.log")
    trained = cluster.run("train", settings=long)["train"]
    assert "resuming from the checkpoint of step 2" in capsys.readouterr().out
    assert trained.metrics["steps"] == 18
    assert not [name for name in cluster.storage.names() if "/checkpoints/" in name or name.endswith("progress.json")]
    made = cluster.run("evaluate", "push", settings=(*long, "push.limits.wer=10", "push.smoke_test=false"))
    assert read_json(localize(made["push"].output_uri("verdict")))["model"] == f"{cluster.storage.uri}/registry/asr/1"
    assert not files(cluster.fresh_pod())
    assert format_models(f"{cluster.storage.uri}/registry")[0].startswith("asr  version 1")
    assert (find_model(f"{cluster.storage.uri}/registry/asr") / "saved_model.pb").is_file()


@pytest.mark.slow
def test_pods_publish_a_version_to_a_bucket_and_train_on_it(cluster: Cluster) -> None:
    datasets = f"datasets={cluster.storage.uri}/datasets"
    published = cluster.run(*TO_A_DATASET, "publish", settings=(datasets, "publish.dataset=commands"))["publish"]
    assert published.uri == f"{cluster.storage.uri}/datasets/commands/1"

    # Its features are the version's: the config's other value is refused where a person gave it, the default included.
    on_version = (datasets, "corpus.uri=''", "corpus.dataset=commands@latest")
    for mels in (20, 80):
        with pytest.raises(SettingsError, match=f"mels is {mels}, and commands@1 was made with 16; leave it out"):
            cluster.run("dataset", settings=(*on_version, f"extract.features.mels={mels}"))
    made = cluster.run(
        "dataset", "train", "evaluate", "push", settings=(*on_version, "push.limits.wer=10", "push.smoke_test=false")
    )
    assert made["dataset"].counts["version"] == 1
    assert read_model_info(localize(made["train"].output_uri("model"))).dataset.key == published.key
    verdict = read_json(localize(made["push"].output_uri("verdict")))
    assert (verdict["dataset"], verdict["model"]) == ("commands@1", f"{cluster.storage.uri}/registry/asr/1")


def _train_until_it_is_preempted(cluster: Cluster, settings: tuple[str, ...], log: Path) -> None:
    """Trains in a process of its own, which is killed once it has uploaded a checkpoint."""
    cluster.fresh_pod()
    arguments = (cluster.config(*settings), cluster.run_dir)
    process = start_process(train_and_be_preempted, *arguments, log=log, **os.environ)
    process.join()
    assert process.exitcode == -signal.SIGKILL, read_log(log)


def train_and_be_preempted(config: RunConfig, run_dir: Path) -> None:
    begin_partial = BucketStep.begin_partial

    def upload_and_die(step: BucketStep) -> None:
        upload = begin_partial(step)
        assert upload is not None
        upload()
        os.kill(os.getpid(), signal.SIGKILL)

    BucketStep.begin_partial = upload_and_die  # type: ignore[method-assign, assignment]
    run_step("train", config, run_dir, {})

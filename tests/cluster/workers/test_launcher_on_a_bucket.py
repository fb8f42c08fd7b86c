"""Workers that share nothing but a bucket: each pod starts with an empty disk."""

import json
from pathlib import Path

import pytest

from tests.buckets.emulator import Storage
from tests.cluster.workers.conftest import Namespace, worker_settings
from tests.cluster.workers.test_launcher import _text, _wait
from voxline.data.dataset import Dataset

pytestmark = pytest.mark.timeout(2400)


def test_restarted_workers_resume_from_the_uploaded_checkpoint(
    namespace: Namespace, tones: Dataset, gcs: Storage, tmp_path: Path
) -> None:
    files = [path.relative_to(tones.folder).as_posix() for path in Path(tones.folder).rglob("*") if path.is_file()]
    gcs.bucket("dataset").upload(Path(tones.folder), files)
    operator = namespace.operate()
    settings = worker_settings(epochs=20, evaluate_epochs=5, checkpoint_steps=10)
    log = tmp_path / "launcher.log"
    launcher = namespace.launch(f"{gcs.uri}/dataset", settings, log, store=f"{gcs.uri}/store")
    _wait(lambda: any("/checkpoints/" in name for name in gcs.names()), 300)
    _wait(lambda: any(name.endswith("/progress.json") for name in gcs.names()))
    operator.kill_worker(namespace.jobs()[0]["metadata"]["name"], 0)  # the chief
    assert launcher.wait(900) == 0, _text(log)
    assert "▸ train: resuming from the checkpoint of step" in _text(log)
    assert len(operator.processes) == 4
    disks = [path for path in (tmp_path / "disks").iterdir() if path.name in operator.processes]
    assert len(disks) == 4, "each pod had its own"
    (marker,) = (name for name in gcs.names() if name.endswith("/done.json"))
    done = json.loads(gcs.client().bucket(gcs.name).blob(marker).download_as_bytes())
    assert done["metrics"]["steps"] == 20 * 12
    folder = f"{marker.removesuffix('done.json')}{done['attempt']}/"
    assert f"{folder}model/saved_model.pb" in gcs.names()
    assert {name for name in gcs.names() if name.startswith("store/train/")} == {
        marker,
        *(name for name in gcs.names() if name.startswith(folder)),
    }, "what the attempt before had sent is tidied away"

"""TensorFlow Serving gets verified versions alone, and follows promotions."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.registry.published import exported
from tests.waiting import wait_until
from voxline.errors import WorkError
from voxline.inference.saved_model import model_digest
from voxline.pipelines.cli.main import main
from voxline.registry.journal import CANDIDATE, PRODUCTION
from voxline.registry.models_config import served_versions, write_models_config
from voxline.registry.registry import Registry
from voxline.registry.verified_copy import VerifiedCopy

Run = Callable[..., int]


def push(registry: Registry, model: Path, alias: str = PRODUCTION) -> None:
    with registry.locked(), registry.publishing(model, model_digest(model), "push", alias=alias) as (_, incoming):
        (incoming / "model_card.md").write_text("# a card")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """asr: 1 and 2 were in production, 3 is the candidate. other: 1 is in production."""
    registry = Registry(tmp_path / "registry", "asr")
    for content, alias in (("a", PRODUCTION), ("b", PRODUCTION), ("c", CANDIDATE)):
        push(registry, exported(tmp_path / content, content), alias)
    push(Registry(tmp_path / "registry", "other"), tmp_path / "a")
    write_models_config(tmp_path / "registry")
    return tmp_path / "registry"


@pytest.fixture
def run(root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `voxline models verify`. Returns its exit status."""

    def call(*further: str) -> int:
        monkeypatch.setattr("sys.argv", ["voxline", "models", "verify", "--registry", str(root), *further])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    return call


def damage(root: Path, version: int, model: str = "asr") -> None:
    (root / model / str(version) / "saved_model.pb").write_text("x")


def test_what_is_in_service_is_copied_and_named(root: Path, tmp_path: Path, run: Run) -> None:
    assert run("--to", str(tmp_path / "models")) == 0
    config = (tmp_path / "models" / "models.config").read_text()
    assert f'base_path: "{tmp_path}/models/asr"' in config
    assert served_versions(tmp_path / "models") == {"asr": 2, "asr@candidate": 3, "other": 1}
    copied = tmp_path / "models" / "asr" / "2"
    assert model_digest(copied) == Registry(root, "asr").event(2).digest
    assert not (copied / "model_card.md").exists(), "the model alone"
    assert not (tmp_path / "models" / "asr" / "1").exists()


def test_a_damaged_version_is_not_copied_and_the_last_intact_one_is(
    root: Path, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(root, 2)
    damage(root, 3)
    assert run("--to", str(tmp_path / "models")) == 0
    assert "not the ones that were published" in capsys.readouterr().out
    assert served_versions(tmp_path / "models") == {"asr": 1, "other": 1}
    assert sorted(path.name for path in (tmp_path / "models" / "asr").iterdir()) == ["1"]


def test_a_model_that_cannot_be_read_keeps_no_other_from_being_served(
    root: Path, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "other" / "007").mkdir()
    assert run("--to", str(tmp_path / "models")) == 0
    assert "007: TensorFlow Serving takes this folder for version 7" in capsys.readouterr().out
    assert served_versions(tmp_path / "models") == {"asr": 2, "asr@candidate": 3}
    push(Registry(root, "asr"), tmp_path / "c")
    write_models_config(root)
    assert served_versions(root) == {"asr": 4, "other": 1}, "a push of one model does not fail by another"


def test_it_ends_with_an_error_if_no_version_can_be_served(root: Path, tmp_path: Path, run: Run) -> None:
    for model, version in (("asr", 1), ("asr", 2), ("asr", 3), ("other", 1)):
        damage(root, version, model)
    assert run("--to", str(tmp_path / "models")) == 1
    assert not (tmp_path / "models" / "models.config").exists()


def test_it_follows_promotions_and_keeps_what_serves(root: Path, tmp_path: Path) -> None:
    registry, target = Registry(root, "asr"), tmp_path / "models"
    copy = VerifiedCopy(root, target)
    assert copy.update()["asr"] == 2
    registry.promote(CANDIDATE)
    assert copy.update() == {"asr": 3, "other": 1}
    assert (target / "asr" / "2").is_dir(), "the server may still load it"

    push(registry, exported(tmp_path / "d", "d"))
    damage(root, 4)
    assert copy.update()["asr"] == 3
    damage(root, 3)
    assert copy.update()["asr"] == 3, "its copy is whole"
    (root / "asr" / "journal.jsonl").unlink()
    assert copy.update()["asr"] == 3

    (target / "asr" / "3" / "saved_model.pb").write_text("x")
    assert VerifiedCopy(root, target).update().get("asr") is None, "a process that starts verifies what is there"


def test_a_graph_that_reads_files_is_not_copied(root: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    class Spy(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
        def __call__(self, path: tf.Tensor) -> tf.Tensor:
            return tf.io.read_file(path)

    tf.saved_model.save(Spy(), str(tmp_path / "spy"))
    (tmp_path / "spy" / "model.json").write_text("{}")
    push(Registry(root, "asr"), tmp_path / "spy")
    assert VerifiedCopy(root, tmp_path / "models").update()["asr"] == 2


def test_without_a_folder_it_names_each_version(root: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    damage(root, 1)
    capsys.readouterr()
    assert run() == 1
    shown = capsys.readouterr()
    assert "asr/2  verified" in shown.out
    assert "asr/1  " in shown.out
    assert "1 version cannot be served" in shown.err


@pytest.mark.slow
def test_the_sidecar_waits_for_the_first_push_and_goes_on(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "models"
    moved = root.rename(tmp_path / "elsewhere")
    root.mkdir()
    command = [sys.executable, "-m", "voxline", "models", "verify", "--registry", str(root), "--to", str(target)]
    with subprocess.Popen([*command, "--follow", "0.1"], stdout=subprocess.PIPE, text=True) as sidecar:
        try:
            assert sidecar.stdout
            assert "no version in the registry" in sidecar.stdout.readline()
            root.rmdir()
            moved.rename(root)
            wait_until((target / "models.config").is_file, "the first models")
            Registry(root, "asr").promote(CANDIDATE)
            wait_until(lambda: served_versions(target)["asr"] == 3, "the promotion")
        finally:
            sidecar.terminate()


def test_an_unknown_registry_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="no registry here"):
        VerifiedCopy(tmp_path / "none", tmp_path / "models").update()

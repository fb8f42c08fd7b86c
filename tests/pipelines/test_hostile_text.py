"""What a corpus says is printed as text, and what a run writes of it is not for other users."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.validate.takes import SMALL, fit, of, written
from voxline.progress import neutralize

ID = "id\x1b]0;PWNED\x07"
"""Sets the title of a terminal."""
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


Run = subprocess.CompletedProcess[str]


def voxline(folder: Path, *arguments: str) -> Run:
    """Runs the command in a process of its own, under a usual umask."""
    command = [sys.executable, "-P", "-m", "voxline", *arguments]
    return subprocess.run(command, cwd=folder, umask=0o022, capture_output=True, text=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A run, over a corpus whose largest speaker has a hostile name, and two entries a hostile id."""
    folder = tmp_path_factory.mktemp("hostile")
    takes = fit()
    for take in of(takes, "train")[:20]:
        take.speaker = ID
    corpus = written(folder / "corpus", takes)
    with open(corpus / "manifest.jsonl", "a", encoding="utf-8") as manifest:
        for number in range(2):
            manifest.write(json.dumps({"id": f"{ID}{number}", "audio_filepath": "0.wav", "text": 7}) + "\n")
    config = {
        "name": "hostile",
        "corpus": {"uri": str(corpus), "format": "manifest", "max_reject_share": 0.1},
        "validate": {
            "small_splits": SMALL["small_splits"],
            "tfdv": "off",
            "dominant_speaker": {"severity": "error", "threshold": 0.1},
        },
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return folder, voxline(folder, "run", "asr", "-c", "run.yaml", "--until", "validate")


def test_control_characters_of_a_corpus_reach_no_terminal_and_no_log(run: tuple[Path, Run]) -> None:
    """By the messages of validate and ingest, on the screen and in run.log."""
    folder, validated = run
    log = (folder / "runs" / "hostile" / "run.log").read_text(encoding="utf-8")
    arguments = ["-c", "run.yaml", "--run-dir", "again", "--set", "corpus.max_reject_share=0"]
    ingested = voxline(folder, "step", "ingest", *arguments)
    assert (validated.returncode, ingested.returncode) == (1, 1), validated.stdout + ingested.stdout
    for printed in (validated.stderr, log, ingested.stderr):
        assert neutralize(ID) in printed
    for printed in (validated.stdout, validated.stderr, log, ingested.stdout, ingested.stderr):
        assert not CONTROLS.search(printed)


def test_other_users_cannot_read_what_a_run_writes(run: tuple[Path, Run]) -> None:
    store = run[0] / "runs" / "hostile" / "store"
    written_files = [store, *store.rglob("*")]
    assert any(path.suffix == ".wav" for path in written_files)
    assert [str(path) for path in written_files if path.stat().st_mode & 0o007] == []
    assert {path.stat().st_mode & 0o070 for path in written_files if path.is_dir()} == {0o050}  # as the umask says


PUBLISH = """
import sys
from pathlib import Path
from tests.registry.published import exported, publish
from voxline.registry.models_config import write_models_config
from voxline.registry.registry import Registry
from voxline.store.files import use_private_umask
use_private_umask()
folder = Path(sys.argv[1])
publish(Registry(folder / "registry", "asr"), exported(folder / "model", "a"))
write_models_config(folder / "registry")
(folder / "after").touch()
"""


def test_a_registry_keeps_the_umask_of_the_user(tmp_path: Path) -> None:
    """A server under another user, such as TensorFlow Serving, reads it."""
    subprocess.run([sys.executable, "-c", PUBLISH, str(tmp_path)], cwd=ROOT, umask=0o022, check=True)
    files = [tmp_path / "registry", *(tmp_path / "registry").rglob("*")]
    assert {"models.config", "saved_model.pb", "journal.jsonl"} <= {path.name for path in files}
    modes = {oct(path.stat().st_mode & 0o777) for path in files if not path.is_dir() and "lock" not in path.name}
    assert modes == {"0o644"}
    assert {oct(path.stat().st_mode & 0o777) for path in files if path.is_dir()} == {"0o755"}
    assert (tmp_path / "after").stat().st_mode & 0o777 == 0o640

"""A push in processes of its own: the smoke test, pushes at once, and one that is killed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evaluations import evaluation_info
from tests.push.conftest import QUICK, evaluated
from tests.tone_asr_model import MakeAsrModel
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.components.push.gate import GateCheck
from voxline.components.push.smoke_test import run_smoke_test
from voxline.components.push.step import run as push
from voxline.families.asr.push import AsrPushFamily
from voxline.inference.saved_model import model_digest
from voxline.metrics.evaluation import Evaluation
from voxline.registry.registry import Registry

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_the_smoke_test_catches_damage_and_another_output_in_any_folder(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder named components where the command was typed is not ours."""
    (tmp_path / "components").mkdir()
    (tmp_path / "components" / "__init__.py").write_text("raise ImportError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    damaged = Path(shutil.copytree(make_asr_model(), tmp_path / "damaged"))
    weights = damaged / "variables" / "variables.data-00000-of-00001"
    weights.write_bytes(weights.read_bytes()[:3])
    shutil.copy(corpus / "wavs" / "0001.wav", tmp_path / "clip.wav")

    def smoke_test(model: Path, text: str, seconds: float = 120) -> GateCheck:
        recorded = {"id": "a", "reference": text, "text": text}
        evaluation = Evaluation(tmp_path, evaluation_info(smoke_test=recorded), [])
        return run_smoke_test("asr", AsrPushFamily(), model, evaluation, seconds)

    check = smoke_test(damaged, "anything")
    assert not check.passed
    assert "does not load" in check.detail
    check = smoke_test(make_asr_model(), "another text")
    assert not check.passed
    assert "evaluate as 'another text'" in check.detail
    check = smoke_test(make_asr_model(), "", seconds=0.05)
    assert not check.passed
    assert "smoke_test_seconds" in check.detail


PUSH = """
import os, sys
from voxline.components.push import step
from voxline.families.asr.settings import AsrPushSettings
if len(sys.argv) > 4:
    describe = step._describe
    def slow(folder, *rest):
        describe(folder, *rest)
        open(sys.argv[4], "w").close()
        import time; time.sleep(6_000)
    step._describe = slow
model, evaluation, folder = sys.argv[1:4]
settings = AsrPushSettings(smoke_test=False, max_regression={"wer": 1}, max_slice_regression={"wer": 1})
step.run(model, evaluation, folder + "/registry", folder + "/store", settings)
"""


@pytest.mark.slow
def test_concurrent_pushes_all_succeed_in_order(corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path) -> None:
    models = [make_asr_model(mishears) for mishears in ({"one": "two"}, {"two": "one"}, {"three": "one"})]
    evaluations = [evaluated(model, corpus, tmp_path) for model in models]
    racing = [
        subprocess.Popen([sys.executable, "-c", PUSH, str(model), str(evaluation), str(tmp_path)], cwd=ROOT)
        for model, evaluation in zip(models, evaluations, strict=True)
    ]
    assert [process.wait(PATIENCE_SECONDS) for process in racing] == [0, 0, 0]
    versions = Registry(tmp_path / "registry", "asr")
    assert versions.versions() == [1, 2, 3]
    assert {model_digest(versions.path(version)) for version in (1, 2, 3)} == {model_digest(model) for model in models}
    assert [(change.version, change.replaces) for change in versions.journal()] == [(1, None), (2, 1), (3, 2)]


def test_a_killed_push_leaves_nothing_and_can_be_repeated(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    model = make_asr_model()
    evaluation, flag = evaluated(model, corpus, tmp_path), tmp_path / "copied"
    command = [sys.executable, "-c", PUSH, str(model), str(evaluation), str(tmp_path), str(flag)]
    process = subprocess.Popen(command, cwd=ROOT)
    wait_until(flag.exists, "the model to be copied")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    versions = Registry(tmp_path / "registry", "asr")
    assert list((tmp_path / "registry" / "asr").glob(".incoming-*"))
    assert versions.versions() == []
    assert versions.journal() == []
    assert push(model, evaluation, tmp_path / "registry", tmp_path / "store", QUICK).counts["pushed"] == 1
    assert not list((tmp_path / "registry" / "asr").glob(".incoming-*"))
    assert [change.version for change in versions.journal()] == [1]

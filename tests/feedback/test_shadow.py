"""A candidate on the clips that the version in service heard, without and with labels."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.feedback.judged_model import capture, push_judged, recordings, sentences
from voxline.errors import SettingsError
from voxline.feedback.captures import CaptureStore
from voxline.feedback.labeling import collect_labels, write_selection
from voxline.feedback.shadow import compare_in_shadow
from voxline.pipelines.cli.main import app
from voxline.registry.journal import CANDIDATE
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, TrainingData


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In production a model that takes "two" for "six"; the candidate hears well. The labels are what was said."""
    folder = tmp_path_factory.mktemp("service")
    push_judged(folder / "registry", folder / "deaf", {"two": "six"})
    texts = sentences(40, seed=5)
    clips = capture(folder / "registry", folder / "captures", texts, recordings(texts, 6))
    push_judged(folder / "registry", folder / "good", {}, CANDIDATE)
    write_selection(CaptureStore(folder / "captures"), clips, folder / "to-label")
    said = [{"id": clip.id, "text": " ".join(text)} for clip, text in zip(clips, texts, strict=True)]
    (folder / "labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in said))
    collect_labels(folder / "labels.jsonl", folder / "to-label", folder / "corpus")
    return folder


def shadow(service: Path, *more: object, version: str = "asr@candidate") -> Result:
    where = ["--registry", service / "registry", "--captures", service / "captures"]
    return CliRunner().invoke(app, ["captures", "shadow", version, *map(str, [*where, *more])])


def test_disagreements_are_shown_before_anybody_gets_the_candidate(service: Path) -> None:
    found = compare_in_shadow(service / "registry", "asr@candidate", service / "captures")
    clips = {clip.id: clip for clip in CaptureStore(service / "captures").clips()}
    assert len(found.disagreements) > 5
    for one in found.disagreements:
        assert "two" in one.shadow.split()
        assert one.in_service == clips[one.id].text == one.shadow.replace("two", "six")
    assert (found.clips, found.verdict, found.comparison) == (40, "undecided", None)
    assert found.disagreements[0].words >= found.disagreements[-1].words
    output = shadow(service).output
    assert f"{len(found.disagreements)} of 40 clips are heard differently" in output
    assert "undecided" in output.splitlines()[-1]


@pytest.mark.slow
def test_labels_decide_and_a_worse_version_has_a_status_of_its_own(service: Path) -> None:
    better = shadow(service, "--labeled", service / "corpus")
    assert better.exit_code == 0, better.output
    assert better.output.splitlines()[-1] == "better"
    CliRunner().invoke(app, ["models", "promote", "asr", "--registry", str(service / "registry")])
    texts = sentences(40, seed=5)
    capture(service / "registry", service / "captures", texts, recordings(texts, 6))
    worse = shadow(service, "--labeled", service / "corpus", "--json", version="asr@1")
    assert worse.exit_code == 3
    values = json.loads(worse.output)
    assert (values["verdict"], values["labeled"], values["wer_in_service"]) == ("worse", 40, 0.0)
    assert values["wer"] > 0.05
    with_list = Registry(service / "registry", "asr").path(2) / TRAINED_ON
    lines = [{"id": f"service-capture-{number:016x}", "split": split} for number, split in ((3, "train"), (4, "dev"))]
    TrainingData("d", "r", 0, lines).write(with_list)
    again = shadow(service, "--labeled", service / "corpus", version="asr@1")
    assert "2 labeled clips are left out: one of the versions was trained on them" in again.output
    assert "WER on 38 labeled clips" in again.output
    with pytest.raises(SettingsError, match="asr is what serves already"):
        compare_in_shadow(service / "registry", "asr", service / "captures")

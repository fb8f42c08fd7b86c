"""One public model through everything that ours go through: from the Hub's folder to the purge of a speaker."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from tests.conftest import ROOT
from tests.families.asr.test_attention import tiny_tokenizer
from tests.serving.test_server import Served
from tests.tone_asr_model import RATE, WORDS, render_words, write_corpus
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.data.manifest import read_manifest, write_manifest
from voxline.feedback.canary_state import CanarySettings
from voxline.feedback.captures import CaptureStore
from voxline.inference.saved_model import read_model_info
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.load import load_config
from voxline.pipelines.graphs import graph_of
from voxline.pipelines.local.single_step import run_step
from voxline.registry.parents import ancestors_of
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, read_training_data
from voxline.serving.capture import Capture, CaptureSettings
from voxline.store.step_cache import StepOutput

pytestmark = pytest.mark.parents

CALLER = "p-7"
"""The pseudonym of a person who speaks to the server, and is erased at the end."""
LAX = {"wer": 1.0}
CONFIG: dict[str, Any] = {
    "name": "life",
    "model": "asr",
    "corpus": {"format": "manifest"},
    "convert": {"min_seconds": 0.05},
    "train": {
        "epochs": 1, "batch_size": 8, "learning_rate": 0.02, "warm_up_steps": 2, "strategy": "one",
        "model": {"head": "decoder"},
        "start": {"model": "asr@production", "rate_share": 1.0},
    },
    "evaluate": {"bootstrap_samples": 100, "worst_utterances": 1, "aligned_utterances": 0},
    # Random weights learn little from tones in a minute: the way is what is tested, not how well the model hears.
    "push": {
        "limits": {"wer": 9.0}, "max_regression": LAX, "max_relative_regression": LAX, "max_slice_regression": LAX,
        "max_relative_slice_regression": LAX, "min_slice_utterances": 1000, "below_parent": "warn", "smoke_test": False,
    },
}  # fmt: skip


class House:
    """A folder with a store and a registry, in which nights are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store, self.registry = folder / "store", folder / "registry"
        self.captures, self.labeled = folder / "captures", folder / "labeled"
        self.said = ""

    @property
    def versions(self) -> Registry:
        return Registry(self.registry, "asr")

    def command(self, *arguments: object) -> str:
        ended = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        assert ended.exit_code == 0, ended.output
        return ended.output

    def night(self, corpora: dict[str, Path], captured: pytest.CaptureFixture[str], **push: str) -> dict[str, Any]:
        """Runs every step of the pipeline; returns the verdict."""
        values = json.loads(json.dumps(CONFIG)) | {"store": str(self.store), "registry": str(self.registry)}
        values["push"] |= push
        values["corpus"] = {
            "corpora": {
                name: {"uri": str(uri), "format": "manifest", "split": {"dev": 0}} for name, uri in corpora.items()
            }
        }
        # Whatever the name in the registry, the network is that of the public model.
        network = read_model_info(self.versions.path(1)).model_settings
        values["train"]["model"] = network | values["train"]["model"]
        values["extract"] = {"features": {"kind": "whisper", "mels": 8}}
        config = load_config(values)
        output: StepOutput | None = None
        for step in graph_of("asr"):
            if step not in ("validate", "forecast", "language"):
                output = run_step(step, config, self.folder / "run", {})
        assert output is not None
        self.said = captured.readouterr().out
        verdict: dict[str, Any] = json.loads(output.path("verdict").read_text())
        assert verdict["pushed"], verdict["reasons"]
        return verdict

    def trained_on(self, version: int) -> set[str]:
        """The speakers that a version was trained on, through its ancestors too."""
        file = self.versions.path(version) / TRAINED_ON
        listed = read_training_data(file.read_bytes(), str(file)).utterances
        return {str(line["speaker"]) for line in listed if line["split"] == "train"}


SENTENCES = [f"{first} {second}" for first in WORDS for second in WORDS]


def write_sentences(folder: Path, splits: dict[str, tuple[str, int]], first: int) -> Path:
    """A corpus of two words each, none of them said twice in any corpus.

    Args:
      splits: split → speaker and number of recordings.
      first: number of its first sentence.
    """
    order = np.random.default_rng(0).permutation(len(SENTENCES))
    lines = []
    for split, (speaker, count) in splits.items():
        said = [(speaker, SENTENCES[number]) for number in order[first : first + count]]
        first += count
        part = write_corpus(folder / split, said, split)
        lines += [line.replace(audio_hash="", extra={}) for line in read_manifest(part)]
        (part / "manifest.jsonl").unlink()
    write_manifest(folder / "manifest.jsonl", lines)
    return folder


def wav(words: str, seed: int) -> bytes:
    file = io.BytesIO()
    samples = render_words(words.split())
    noise = 0.002 * np.random.default_rng(seed).standard_normal(len(samples))
    soundfile.write(file, np.clip(samples + noise, -1, 1), RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


def test_a_public_whisper_from_the_hub_to_the_purge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    house = House(tmp_path)
    hub = tmp_path / "whisper-tiny"
    shutil.copytree(ROOT / "tests" / "families" / "networks" / "hub" / "whisper", hub)
    (hub / "tokenizer.json").write_bytes(tiny_tokenizer())
    (hub / "README.md").write_text("---\nlicense: mit\n---\n# A small Whisper\n")
    ours = write_sentences(tmp_path / "ours", {"train": ("ada", 10), "dev": ("ben", 2), "test": ("cyd", 4)}, 0)

    # Day one: the public model as it is, in service.
    imported = house.command("models", "import", hub, "--registry", house.registry, "--name", "asr")
    assert "asr: version 1 is whisper-tiny" in imported
    assert "as it is, a candidate; it was not judged" in imported
    house.command("models", "promote", "asr", "--registry", house.registry)

    # Night one: a warm start from it. It is measured before and after.
    house.night({"ours": ours}, capsys)
    assert house.versions.in_service() == 2
    assert "starts from asr@1" in house.said
    assert "; before: " in house.said
    assert "normalized before: " in house.said
    started = [(ancestor.label, ancestor.licence) for ancestor in ancestors_of(read_model_info(house.versions.path(2)))]
    assert started == [("asr@1", ""), (started[1][0], "mit")]

    # Night two: new recordings, and as many again of those that it was trained on before.
    more = write_sentences(tmp_path / "more", {"train": ("dee", 6)}, 16)
    house.night({"ours": ours, "more": more}, capsys)
    assert house.versions.in_service() == 3
    assert "seen before" in house.said
    assert house.trained_on(3) == {"ours-ada", "more-dee"}

    # In service: what a caller says is kept with consent, labeled by a person, and becomes a corpus.
    kept = Capture(CaptureSettings(str(house.captures), 1.0, 30))
    served = Served(house.registry, capture=kept)
    texts = [f"{WORDS[number % 9]} {WORDS[(2 * number + 1) % 9]}" for number in range(8)]
    try:
        headers = {"x-voxline-consent": "yes:terms-1", "x-voxline-speaker": CALLER}
        said = {served.send(wav(text, number), headers).headers["x-voxline-capture"]: text
                for number, text in enumerate(texts)}  # fmt: skip
        wait_until(lambda: kept.counts.total() == len(texts), "the clips")
    finally:
        served.stop()
    assert {clip.speaker for clip in CaptureStore(house.captures).clips()} == {CALLER}
    to_label = tmp_path / "to-label"
    house.command(
        "captures", "select", "asr", "--registry", house.registry, "--captures", house.captures, "-o", to_label
    )
    selected = [json.loads(line) for line in (to_label / "manifest.jsonl").read_text().splitlines()]
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps({"id": line["id"], "text": said[line["id"]]}) + "\n" for line in selected))
    house.command(
        "captures", "label", labels, "--selection", to_label, "-o", house.labeled, "--test-share", 0, "--dev-share", 0
    )

    # Night three: tuned on them, as a candidate.
    house.night({"ours": ours, "more": more, "labeled": house.labeled}, capsys, promote="candidate")
    assert (house.versions.in_service(), house.versions.candidate()) == (3, 4)
    assert house.trained_on(4) == {"ours-ada", "more-dee", f"labeled-{CALLER}"}

    # The canary: some callers hear the candidate, until it is known to be no worse by a wide margin.
    served = Served(house.registry, canary=CanarySettings(0.5, 0.5))
    arms = set()
    try:
        with httpx.Client(timeout=PATIENCE_SECONDS) as client:
            for number in range(400):
                files = {"file": ("a.wav", wav(texts[number % 8], number))}
                url = f"{served.url}/v1/audio/transcriptions"
                arms.add(client.post(url, data={"model": "asr"}, files=files).headers.get("x-voxline-version"))
                if served.canaries[0].describe()["verdict"] == "promotable":
                    break
        assert served.canaries[0].describe()["verdict"] == "promotable"
    finally:
        served.stop()
    assert arms >= {"3", "4"}
    house.command("models", "promote", "asr", "--registry", house.registry, "--note", "the canary")
    assert house.versions.in_service() == 4

    # A person rolls it back: the older model, which is the third, gets a new number.
    house.command("models", "rollback", "asr", "--to", 3, "--registry", house.registry, "--note", "worse on names")
    assert house.versions.in_service() == 5
    assert house.versions.event(5).digest == house.versions.event(3).digest
    house.command("models", "rollback", "asr", "--to", 4, "--registry", house.registry, "--note", "a mistake")

    # The caller asks to be forgotten: recordings, rows and lists go, and the models that heard them are named. Behind
    # the name of a corpus, the pseudonym is another name.
    where = ["--store", house.store, "--registry", house.registry]
    kept_in = ["--captures", house.captures, "--captures", house.labeled, "--captures", to_label]
    listed = house.command("datasets", "purge", "--speaker", f"labeled-{CALLER}", *where)
    assert "asr/4" in listed
    assert "asr/6, in production" in listed
    assert "asr/3" not in listed
    for speaker in (CALLER, f"labeled-{CALLER}"):
        purge = ["datasets", "purge", "--speaker", speaker, *where, *kept_in, "--yes", "--note", "asked by telephone"]
        house.command(*purge)
    assert list(CaptureStore(house.captures).clips()) == []
    assert not list((house.labeled / "audio").iterdir())

    # Night four starts from the last model that never heard them.
    house.night({"ours": ours, "more": more}, capsys)
    assert "was trained on utterances that were purged since" in house.said
    started = [ancestor.label for ancestor in ancestors_of(read_model_info(house.versions.path(7)))]
    assert started[:3] == ["asr@3", "asr@2", "asr@1"]
    assert house.trained_on(7) == {"ours-ada", "more-dee"}

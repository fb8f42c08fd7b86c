"""From a public Whisper in the registry to a model that was tuned on its drafts, and says so."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from tests.conftest import ROOT
from tests.families.asr import test_attention
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run as extract
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.ingest.step import run as ingest
from voxline.components.train.step import run as train
from voxline.data.dataset import Dataset
from voxline.data.drafts import DISAGREEMENT, DRAFTED_BY
from voxline.data.manifest import read_manifest, read_rejects, write_manifest
from voxline.errors import WorkError
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.pipelines.cli.main import app
from voxline.pipelines.cli.public_models import import_public_model
from voxline.registry.models import find_model
from voxline.registry.parents import ancestors_of
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, read_training_data

pytestmark = pytest.mark.parents

HUB = ROOT / "tests" / "families" / "networks" / "hub"
RATE = 16_000
LETTERS = " " + test_attention.LETTERS


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with two public models as they are: `asr`, a Whisper with its decoder, and `other`, a Parakeet."""
    hub = tmp_path_factory.mktemp("hub")
    shutil.copytree(HUB / "whisper", hub / "tiny-whisper")
    (hub / "tiny-whisper" / "tokenizer.json").write_bytes(test_attention.tiny_tokenizer())
    registry = tmp_path_factory.mktemp("registry")
    for folder, name in ((hub / "tiny-whisper", "asr"), (HUB / "fastconformer", "other")):
        import_public_model(str(folder), str(registry), name)
        Registry(registry, name).promote(1)
    return registry


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calls")
    for number in range(6):
        random = np.random.default_rng(number)
        envelope = np.repeat(random.uniform(0.01, 0.4, 10), RATE // 20)
        soundfile.write(folder / f"{number}.wav", envelope * random.standard_normal(len(envelope)), RATE)
    return folder


def label(calls: Path, registry: Path, output: Path, *options: str) -> str:
    words = ["corpus", "label", str(calls), "--model", f"{registry}/asr", "-o", str(output), *options]
    ended = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return str(ended.output)


def test_drafts_are_what_the_public_model_writes(calls: Path, registry: Path, tmp_path: Path) -> None:
    model = find_model(f"{registry}/asr")
    label(calls, registry, tmp_path / "noise", "--noise-db", "120")
    drafts = read_manifest(tmp_path / "noise")
    assert {line.extra[DRAFTED_BY] for line in drafts} == {f"asr@1 ({model_digest(model)[:12]})"}

    # The noise is inaudible, so that every text is kept.
    recognizer = Recognizer(model)
    written = {file.stem: recognizer.transcribe(file) for file in sorted(calls.iterdir())}
    assert {line.id: line.text for line in drafts} == {id: text for id, text in written.items() if text}
    assert len(drafts) > 1

    # Greedy beside four texts that the decoder follows.
    label(calls, registry, tmp_path / "beams", "--second", "decoding", "--max-wer", "1")
    followed = Recognizer(model, beams=4)
    for line in read_manifest(tmp_path / "beams"):
        same = line.text.casefold() == followed.transcribe(calls / f"{line.id}.wav").casefold()
        assert not same or line.extra[DISAGREEMENT] == 0

    # Two random models hear nothing alike.
    label(calls, registry, tmp_path / "two", "--second", f"{registry}/other")
    assert not read_manifest(tmp_path / "two")
    reasons = {str(reject.reason) for reject in read_rejects(tmp_path / "two")}
    assert "disagreement" in reasons
    with pytest.raises(WorkError, match="7"):
        label(calls, registry, tmp_path / "none", "--second", f"{registry}/other@7")


@pytest.mark.slow
def test_a_model_that_is_tuned_on_drafts_of_its_parent_says_so(calls: Path, registry: Path, tmp_path: Path) -> None:
    label(calls, registry, tmp_path / "drafts", "--noise-db", "120")

    # Random weights write texts as long as they can, which is longer than they can be trained on.
    drafts = [line.replace(text=line.text[:6]) for line in read_manifest(tmp_path / "drafts")]
    write_manifest(tmp_path / "drafts" / "manifest.jsonl", drafts)
    people = tmp_path / "people"
    people.mkdir()
    lines = []
    for number, text in enumerate(test_attention.TEXTS * 2):
        waveform = np.random.default_rng(90 + number).standard_normal(RATE // 2) / 10
        soundfile.write(people / f"{number}.wav", waveform, RATE)
        lines.append({"id": str(number), "audio_filepath": f"{number}.wav", "text": text, "speaker": f"p{number}"})
        lines[-1]["split"] = ("train", "dev", "test")[number % 3]
    (people / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    store = tmp_path / "store"
    corpus = {"uri": str(people), "format": "manifest", "pseudo": {"uri": str(tmp_path / "drafts")}}
    ingested = ingest(store, CorporaSettings.of(corpus))
    spelled = {"alphabet": LETTERS, "frontend": {"kind": "as_is"}}
    converted = convert(ingested.uri, store, ConvertSettings.of({"workers": 1, **spelled}))
    features = {"features": {"kind": "whisper", "mels": 8}, **spelled}
    extracted = extract(converted.uri, store, ExtractSettings.of(features))
    usable = {line.id for line in Dataset.read(extracted.folder).rows() if DRAFTED_BY in line.extra}
    assert usable == {f"pseudo-{line.id}" for line in drafts if set(line.text) <= set(LETTERS)}
    assert usable

    tuned = train(extracted.folder, store, test_attention.settings_from(Path("asr@1")), registry)
    info = read_model_info(tuned.path("model"))
    ((model, count),) = info.dataset.drafts.items()
    assert (model, count) == (drafts[0].extra[DRAFTED_BY], len(usable))
    assert ancestors_of(info)[0].label == "asr@1"
    listed = read_training_data((tuned.path("model") / TRAINED_ON).read_bytes(), "")
    assert {line["id"] for line in listed.utterances if line.get(DRAFTED_BY) == model} == usable

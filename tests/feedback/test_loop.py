"""The whole loop, with networks that learn: shift, capture, watch, label, refresh, warm start, gate, promotion."""

import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from tests.serving.test_server import Served
from tests.training.tones import FEATURES, LETTERS, tiny_asr_settings
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.evaluate.step import run as evaluate
from voxline.components.export.step import run as export
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run as extract
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.ingest.step import run as ingest
from voxline.components.push.step import run as push
from voxline.components.train.step import run as train
from voxline.data.manifest import Utterance, read_manifest, write_manifest
from voxline.families.asr.settings import AsrEvaluateSettings, AsrPushSettings
from voxline.pipelines.cli.main import app
from voxline.registry.registry import Registry
from voxline.serving.capture import Capture, CaptureSettings

RATE = FEATURES.sample_rate
HIGHER = 1.3
"""The shift: another instrument, whose tones lie between those that the model knows."""
RANDOM = np.random.default_rng(4)


def render(text: str, pitch: float = 1.0) -> np.ndarray:
    """Each letter is a tenth of a second of its own tone, with a breath of noise after it."""
    parts = []
    for letter in text:
        samples = int(RANDOM.uniform(600, 900))
        hz = 300 * 1.7 ** LETTERS.index(letter) * pitch
        parts += [np.sin(2 * np.pi * hz * np.arange(samples) / RATE) * RANDOM.uniform(0.2, 0.6)]
        parts += [np.zeros(int(RANDOM.uniform(300, 500)))]
    waveform = np.concatenate(parts)
    return (waveform + 0.003 * RANDOM.standard_normal(len(waveform))).astype(np.float32)


def texts(count: int) -> list[str]:
    return ["".join(RANDOM.choice(list(LETTERS), RANDOM.integers(2, 5))) for _ in range(count)]


def write_corpus(folder: Path) -> None:
    (folder / "audio").mkdir(parents=True)
    utterances = []
    for split, count in (("train", 80), ("dev", 8), ("test", 40)):
        for number, text in enumerate(texts(count)):
            file, samples = folder / "audio" / f"{split}-{number}.wav", render(text)
            soundfile.write(file, samples, RATE, subtype="PCM_16")
            speaker = f"{split[0]}{number % 4}"
            utterances.append(Utterance(f"{split}-{number}", str(file), len(samples) / RATE, text, speaker, split))
    write_manifest(folder / "manifest.jsonl", utterances)


def refresh(root: Path, corpora: list[str], **changes: Any) -> dict[str, Any]:
    """The steps of the pipeline on these corpora; returns the gate's verdict."""
    uris = {name: {"uri": str(root / name), "format": "manifest"} for name in corpora}
    made = ingest(root / "store", CorporaSettings.of({"corpora": uris}, "corpus"))
    wavs = convert(made.folder, root / "store", ConvertSettings.of({"sample_rate": RATE}, "convert"))
    features = {"features": FEATURES.plain(), "alphabet": LETTERS}
    dataset = extract(wavs.folder, root / "store", ExtractSettings.of(features, "extract"))
    settings = tiny_asr_settings(export={"onnx": "float32"}, **changes)
    trained = train(dataset.folder, root / "store", settings, root / "registry")
    model = export(trained.folder, root / "store", settings).path("model")
    judged = evaluate(model, wavs.folder, root / "registry", root / "store", AsrEvaluateSettings(bootstrap_samples=200))
    # On 40 words the gate can rule out no more than this; a real test split has thousands.
    margins = {"limits": {"wer": 1.0}, "max_regression": {"wer": 0.2}}
    alias = "candidate" if changes else "production"
    gate = AsrPushSettings.of({"smoke_test": False, "promote": alias, **margins}, "push")
    verdict = push(model, judged.folder, root / "registry", root / "store", gate)
    return dict(json.loads(verdict.path("verdict").read_text(encoding="utf-8")))


def command(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def wav(samples: np.ndarray) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


class Caller:
    """Sends recordings over one connection."""

    def __init__(self, served: Served) -> None:
        self._client = httpx.Client(base_url=served.url, timeout=PATIENCE_SECONDS)

    def send(self, samples: np.ndarray, **fields: str) -> httpx.Response:
        form = {"model": "asr", **fields}
        return self._client.post("/v1/audio/transcriptions", data=form, files={"file": ("a.wav", wav(samples))})

    def errors(self, spoken: list[tuple[str, np.ndarray]]) -> float:
        """The share of recordings that are not heard right."""
        return float(np.mean([self.send(samples).json()["text"] != text for text, samples in spoken]))


@pytest.mark.slow
def test_what_callers_send_makes_the_next_model_better(tmp_path: Path) -> None:
    write_corpus(tmp_path / "base")
    assert refresh(tmp_path, ["base"])["pushed"]
    known, new = ([(text, render(text, pitch)) for text in texts(40)] for pitch in (1.0, HIGHER))
    served = Served(tmp_path / "registry", capture=Capture(CaptureSettings(str(tmp_path / "captures"), share=1.0)))
    caller = Caller(served)
    try:
        before = {"known": caller.errors(known), "new": caller.errors(new)}
        assert before["known"] < 0.2
        assert before["new"] > 0.4
        said = {}
        for text in texts(80):  # callers with the other instrument
            answer = caller.send(render(text, HIGHER), consent="yes")
            said[answer.headers["x-voxline-capture"]] = text
        captures = ["--registry", tmp_path / "registry", "--captures", tmp_path / "captures"]
        wait_until(lambda: len(list((tmp_path / "captures").rglob("*.json"))) == 81, "the clips")
        watched = command("watch", "asr", *captures)
        assert watched.exit_code == 3, watched.output
        assert "1000-2000 Hz (dB)" in watched.output.splitlines()[-1]

        # By what convert wrote, and by the dataset: both lead to the recordings that the version was trained on.
        for step in ("convert", "extract"):
            (training,) = (tmp_path / "store" / step).glob("*/")
            skewed = command("watch", "asr", *captures, "--train", training)
            assert skewed.exit_code == 3, skewed.output
            assert "80 clips, beside 80 of 80 recordings of the training" in skewed.output
            assert "speaking_rate" in skewed.output.splitlines()[-1], "the model hears fewer letters than it was taught"

        selected = command("captures", "select", "asr", *captures, "--count", 80, "-o", tmp_path / "to-label")
        assert selected.exit_code == 0, selected.output
        lines = [{"id": one.id, "text": said[one.id]} for one in read_manifest(tmp_path / "to-label/manifest.jsonl")]
        (tmp_path / "labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        labels = [tmp_path / "labels.jsonl", "--selection", tmp_path / "to-label", "-o", tmp_path / "service"]
        labels += ["--test-share", 0.4]  # shadow judges by these alone
        assert command("captures", "label", *labels).exit_code == 0

        start = {"model": "asr@production", "epochs": 5, "rate_share": 0.5}
        verdict = refresh(tmp_path, ["base", "service"], start=start)
        assert verdict["pushed"], verdict
        assert served.models[0].current.version == 1, "a candidate serves nobody yet"
        shadow = command("captures", "shadow", "asr@candidate", *captures, "--labeled", tmp_path / "service")
        assert shadow.output.splitlines()[-1] == "better", shadow.output
        assert command("models", "promote", "asr", "--registry", tmp_path / "registry").exit_code == 0
        assert served.models[0].refresh()
        after = {"known": caller.errors(known), "new": caller.errors(new)}
        assert after["new"] <= before["new"] / 2
        assert after["known"] <= before["known"] + 0.05
    finally:
        served.stop()
    registry = Registry(tmp_path / "registry", "asr")
    assert [event.action for event in registry.journal()] == ["push", "push", "promote"]

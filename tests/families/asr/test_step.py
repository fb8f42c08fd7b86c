"""The train step for ASR as a whole: trained, exported, killed and resumed, with several workers."""

import contextlib
import json
import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close
from tests.training.processes import (
    read_log,
    run_train_step,
    run_train_step_and_count,
    run_train_step_until_killed,
    start_process,
)
from tests.training.tones import LETTERS, ONE_LOOP, make_utterances, tiny_asr_settings
from voxline.audio import features as spectra
from voxline.components.export.step import run as export
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.families.asr.networks.settings import build_ctc_model
from voxline.families.asr.settings import AsrExportSettings, AsrTrainSettings
from voxline.families.asr.task import AsrTask
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.registry.training_data import TRAINED_ON, read_training_data
from voxline.store.files import DONE
from voxline.store.finished import read_done
from voxline.training.batches import Batch


@pytest.fixture(scope="module")
def trained(tones: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, AsrTrainSettings]:
    network = {"rnn": "simple", "rnn_batch_norm": True, "layers": 2}  # other loops take longer to build
    settings = tiny_asr_settings(epochs=4, model=network)
    return run(tones.folder, tmp_path_factory.mktemp("store"), settings), settings


@pytest.mark.slow
def test_learns_the_tones_and_records_metrics_and_curves(trained: tuple[Any, AsrTrainSettings]) -> None:
    work, _ = trained
    assert work.metrics["dev_wer"] <= 0.1
    assert work.metrics["steps"] == 4 * 20
    assert work.counts == {"utterances": 160, "dev": 24, "infeasible": 0, "skipped_steps": 0}
    curves = json.loads((work.path("logs") / "curves.json").read_text())
    assert [point["step"] for point in curves["train"]] == [20, 40, 60, 80]
    assert [point["epoch"] for point in curves["dev"]] == [1, 2, 3, 4]
    assert curves["train"][-1]["loss"] < curves["train"][0]["loss"]


def test_too_few_steps_are_told_before_training(tones: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """160 utterances in batches of 8: 20 steps an epoch. The check is not part of the key."""

    def check(epochs: int, **blank_plateau: object) -> str:
        AsrTask(tiny_asr_settings(epochs=epochs, blank_plateau=blank_plateau), tones).check_length()
        return capsys.readouterr().out

    told = check(4, steps=90)
    assert "train: warning: 4 epochs of 20 steps are 80 steps, and a CTC model needs about 90" in told
    assert "raise train.epochs to 5, or lower train.batch_size (8)" in told
    assert check(5, steps=90) == check(4, steps=90, severity="off") == ""
    with pytest.raises(WorkError, match="80 steps, and a CTC model needs about 90"):
        check(4, steps=90, severity="error")
    strict = tiny_asr_settings(epochs=4, blank_plateau={"severity": "error", "steps": 9})
    assert strict.key_values() == tiny_asr_settings(epochs=4).key_values()


@pytest.mark.slow
def test_the_training_data_is_listed_next_to_the_model(trained: tuple[Any, AsrTrainSettings], tones: Dataset) -> None:
    lineage = read_training_data((trained[0].path("model") / TRAINED_ON).read_bytes(), TRAINED_ON)
    assert lineage.dataset == tones.key
    assert len(lineage.utterances) == tones.counts["train"] + tones.counts["dev"]


@pytest.mark.slow
def test_tensorboard_reads_the_logs(trained: tuple[Any, AsrTrainSettings]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained[0].path("logs")))
    events.Reload()
    assert {
        "train/loss",
        "train/learning_rate",
        "train/gradient_norm",
        "dev/wer",
        "dev/loss",
        "dev/transcripts",
        "dev/cer",
        "dev/deletion_rate",
        "config",
        "data",
        "_hparams_/session_start_info",
    } <= set(events.Tags()["tensors"])
    step = int(trained[0].metrics["best_step"])
    with np.load(trained[0].folder / "best" / f"step-{step:08d}" / "arrays.npz") as arrays:
        kernel = arrays["model/0"]  # of the first convolution
    name = "weights/convolutions/0/convolution/kernel"  # not Keras' own, which counts the layers of a process
    shown = {event.step: float(tf.make_ndarray(event.tensor_proto)) for event in events.Tensors(f"{name}/deviation")}
    assert shown[step] == pytest.approx(float(kernel.std()), rel=1e-4)
    buckets = tf.make_ndarray(events.Tensors(name)[0].tensor_proto)
    assert buckets[:, 2].sum() == kernel.size
    moments = [tag for tag in events.Tags()["tensors"] if tag.startswith("gradients/") and tag.endswith("/mean")]
    assert len(moments) == sum(tag.startswith("weights/") and tag.endswith("/mean") for tag in events.Tags()["tensors"])


@pytest.mark.slow
def test_tensorboard_has_settings_to_compare_and_what_the_model_hears(
    trained: tuple[Any, AsrTrainSettings], tones: Dataset
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    events = EventAccumulator(str(trained[0].path("logs")), size_guidance={"tensors": 0})
    events.Reload()
    tags = events.Tags()["tensors"]
    data = plugin_data_pb2.HParamsPluginData.FromString(
        events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    )
    assert data.session_start_info.hparams["model.layers"].number_value == 2
    text = events.Tensors("config")[0].tensor_proto.string_val[0].decode()
    assert "| model.rnn_batch_norm | true |" in text
    assert f"| train | {tones.counts['train']:,} |" in events.Tensors("data")[0].tensor_proto.string_val[0].decode()
    images = [tag for tag in tags if tag.startswith("dev/posteriors")]
    heard = [tag for tag in tags if tag.startswith("dev/features")]
    assert (len(images), len(heard)) == (3, 3)
    assert (len(events.Tensors(images[0])), len(events.Tensors(heard[0]))) == (4, 1)
    _, height, png = events.Tensors(images[0])[0].tensor_proto.string_val[:3]
    assert int(height) > tones.features.bins * 3
    assert png.startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_exported_model_transcribes_unseen_utterances(trained: tuple[Any, AsrTrainSettings]) -> None:
    recogniser = Recognizer(trained[0].folder)
    unheard = make_utterances(0, 30, seed=99)
    texts = recogniser.transcribe([each.waveform for each in unheard])
    assert sum(text == each.text for text, each in zip(texts, unheard, strict=True)) >= 26


@pytest.mark.slow
def test_the_onnx_graph_of_a_trained_model_writes_the_same(trained: tuple[Any, AsrTrainSettings]) -> None:
    work, settings = trained
    form = settings.model_copy(update={"export": AsrExportSettings(onnx="float32")})
    model = export(work.folder, work.folder.parent.parent, form).path("model")
    waveforms = [each.waveform for each in make_utterances(0, 12, seed=7)]
    graph, saved_model = Recognizer(model), Recognizer(model, engine="tensorflow")
    assert graph.engine == "onnx"
    assert graph.transcribe_waveforms(waveforms) == saved_model.transcribe_waveforms(waveforms)
    pairs = zip(graph.log_probabilities(waveforms), saved_model.log_probabilities(waveforms), strict=True)
    for ours, theirs in pairs:
        assert_close(ours, theirs, relative_to_peak=1e-4)


@pytest.mark.slow
def test_the_exported_model_equals_the_trained_one(trained: tuple[Any, AsrTrainSettings], tones: Dataset) -> None:
    work, settings = trained
    model = build_ctc_model(settings.model, tones, seed=settings.seed, precision=settings.precision)
    step = int(work.metrics["best_step"])
    with np.load(work.folder / "best" / f"step-{step:08d}" / "arrays.npz") as arrays:
        for index, variable in enumerate(model.weights):
            variable.assign(arrays[f"model/{index}"])
    exported = tf.saved_model.load(str(work.path("model")))
    spoken = make_utterances(0, 6, seed=5)
    lengths = np.array([len(each.waveform) for each in spoken], np.int32)
    waveforms = np.zeros((6, lengths.max() + 777), np.float32)
    for row, each in zip(waveforms, spoken, strict=True):
        row[: len(each.waveform)] = each.waveform
    batch = {"waveforms": tf.constant(waveforms), "lengths": tf.constant(lengths)}
    found = exported.signatures["logits"](**batch)
    text = exported.signatures["transcribe"](**batch)
    assert_close(text["log_probabilities"], tf.nn.log_softmax(found["logits"]), relative_to_peak=1e-5)
    for row, each in enumerate(spoken):
        features = spectra.compute_features(each.waveform, tones.features)[None]
        logits, frames = model(features, np.array([features.shape[1]]))
        assert found["frames"][row] == frames[0]
        assert_close(found["logits"][row, : frames[0]], logits[0], relative_to_peak=1e-3)
        assert text["text"][row].numpy().decode() == Recognizer(work.folder).transcribe([each.waveform])[0]


@pytest.mark.slow
def test_model_json_records_settings_dataset_and_provenance(
    trained: tuple[Any, AsrTrainSettings], tones: Dataset
) -> None:
    work, settings = trained
    model_info = read_model_info(work.folder)
    assert model_info.alphabet == LETTERS
    assert model_info.sample_rate == 8_000
    assert model_info.features == tones.features.plain()
    assert model_info.settings == settings.plain()
    assert model_info.dataset.key == tones.key
    assert model_info.provenance.trained["dev_wer"] == work.metrics["dev_wer"]
    assert {"tensorflow", "keras"} <= set(model_info.provenance.versions)


@pytest.mark.slow
def test_a_second_run_reuses_the_output(trained: tuple[Any, AsrTrainSettings], tones: Dataset) -> None:
    work, settings = trained
    before = model_digest(work.folder)
    again = run(tones.folder, work.folder.parent.parent, settings)
    assert again.reused
    assert again.metrics == work.metrics
    assert model_digest(again.folder) == before


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_result(tones: Dataset, tmp_path: Path) -> None:
    settings = tiny_asr_settings(
        epochs=8,
        evaluate_epochs=2,
        checkpoint_steps=7,
        summary_steps=5,
        model={**ONE_LOOP, "dropout": 0.1},
        augment={"speed": 0.1, "volume": 3, "noise": 0.3, "time_masks": 1},
        average={"ema_decay": 0.9, "best_checkpoints": 2},
    )
    whole = start_process(run_train_step, tones.folder, tmp_path / "whole", settings, log=tmp_path / "whole.log")
    # After a validation, within an epoch, six steps after a checkpoint.
    log, arguments = tmp_path / "killed.log", (tones.folder, tmp_path / "killed", settings, 62)
    process = start_process(run_train_step_until_killed, *arguments, log=log)
    process.join()
    assert process.exitcode == -signal.SIGKILL, read_log(log)
    log = tmp_path / "resumed.log"
    process = start_process(run_train_step, tones.folder, tmp_path / "killed", settings, log=log)
    process.join()
    whole.join()
    assert whole.exitcode == 0, read_log(tmp_path / "whole.log")
    assert process.exitcode == 0, read_log(log)
    assert "resuming from the checkpoint" in read_log(log)
    one, two = (next((tmp_path / name).glob(f"train/*/{DONE}")).parent for name in ("whole", "killed"))
    expected, found = read_done(one), read_done(two)
    assert found["key"] == expected["key"]
    assert found["counts"] == expected["counts"]
    assert {**found["metrics"], "data_wait": 0} == pytest.approx({**expected["metrics"], "data_wait": 0}, rel=1e-4)
    curves = [json.loads((folder / "logs" / "curves.json").read_text()) for folder in (one, two)]
    for left, right in zip(curves[0]["train"], curves[1]["train"], strict=True):
        assert left == pytest.approx(right, rel=1e-3)
    step = expected["metrics"]["best_step"]
    weights = [np.load(folder / "best" / f"step-{step:08d}" / "arrays.npz") for folder in (one, two)]
    for name in weights[0].files:
        assert_close(weights[0][name], weights[1][name], relative_to_peak=1e-4)


@pytest.mark.slow
def test_two_workers_train_one_model(tones: Dataset, tmp_path: Path) -> None:
    average = {"ema_decay": 0.9, "best_checkpoints": 2}
    settings = tiny_asr_settings(epochs=3, strategy="multi_worker", summary_steps=1, average=average)
    addresses = [f"127.0.0.1:{_free_port()}" for _ in range(2)]
    logs = [tmp_path / f"worker-{index}.log" for index in range(2)]
    workers = []
    for index, log in enumerate(logs):
        cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        workers.append(
            start_process(
                run_train_step_and_count,
                *(tones.folder, tmp_path / "store", settings, tmp_path / f"read-{index}.json"),
                log=log,
                TF_CONFIG=json.dumps(cluster),
            )
        )
    for worker in workers:
        worker.join(900)
    with contextlib.suppress(ProcessLookupError):
        for worker in workers:
            worker.kill()
    assert [worker.exitcode for worker in workers] == [0, 0], "\n".join(map(read_log, logs))[-6_000:]
    assert "on 2 devices" in read_log(logs[0])
    done = next((tmp_path / "store").glob(f"train/*/{DONE}"))
    assert read_done(done.parent)["metrics"]["dev_wer"] <= 0.2
    assert _looks(logs[0]) == _looks(logs[1])
    read = [json.loads((tmp_path / f"read-{index}.json").read_text()) for index in range(2)]
    assert [len(each) for each in read] == [3 * 80] * 2  # 160 utterances in 3 epochs: half of them each
    assert all(len(set(each)) > 80 for each in read)  # other ones in each epoch
    curve = json.loads((done.parent / "logs" / "curves.json").read_text())["train"]
    assert curve[0]["loss"] == pytest.approx(_loss_of_two_halves(tones), rel=1e-4)
    text = Recognizer(done.parent).transcribe([make_utterances(1)[0].waveform])[0]
    assert text == make_utterances(1)[0].text


def _loss_of_two_halves(dataset: Dataset) -> float:
    """The loss of the first step in this process: each device normalizes by the statistics of its own rows."""
    task = AsrTask(tiny_asr_settings(epochs=3), dataset)
    batch, start, losses = next(task.train.epoch(0)), task.module.state(), []
    for half in (np.arange(0, 8, 2), np.arange(1, 8, 2)):
        task.module.restore(start)
        names = [batch.ids[row] for row in half], [batch.texts[row] for row in half]
        arrays = (array[half] for array in (batch.features, batch.frames, batch.labels, batch.counts))
        losses.append(task.module.train_step(Batch(*names, *arrays), 0.0, 0).loss)
    return float(np.mean(losses))


def _looks(log: Path) -> list[str]:
    return [line for line in read_log(log).splitlines() if "dev WER" in line and "exported" not in line]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port

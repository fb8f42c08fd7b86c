"""The train step for TTS as a whole: trained, killed and resumed, exported, loaded by others."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close
from tests.training.processes import read_log, run_train_step, run_train_step_until_killed, start_process
from tests.training.tones import LETTERS, tiny_tts_settings
from voxline.audio import features as spectra
from voxline.audio import griffin_lim
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.families.tts.settings import TtsTrainSettings
from voxline.families.tts.train_module import TtsTrainModule
from voxline.store.files import DONE
from voxline.store.finished import read_done
from voxline.store.step_cache import StepOutput
from voxline.training.batches import Batches


@pytest.fixture(scope="module")
def trained(tones: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[StepOutput, TtsTrainSettings]:
    settings = tiny_tts_settings(
        epochs=2,
        evaluate_steps=20,
        checkpoint_steps=7,
        summary_steps=5,
        guided_attention={"weight": 0.5, "decay_steps": 50},
        mel_ctc={"weight": 0.1, "units": 8},
        # The network can make 4 frames in a step, and never makes more than 3.
        reduction_schedule=[{"step": 0, "reduction": 3}, {"step": 24, "reduction": 2}],
        # Little to build, as it is built three times; the convolutions have the statistics to be kept.
        model={"reduction": 4, "dropped_frames": 0.1, "encoder_lstm": 0, "decoder_layers": 1, "postnet_layers": 1},
    )
    return run(tones.folder, tmp_path_factory.mktemp("store"), settings), settings.weights_alone()


@pytest.mark.slow
def test_model_json_records_what_synthesis_needs(trained: tuple[StepOutput, TtsTrainSettings], tones: Dataset) -> None:
    work, settings = trained
    model_info = json.loads((work.path("model") / "model.json").read_text())
    assert model_info["kind"] == "tacotron2"
    assert model_info["alphabet"] == LETTERS
    assert model_info["frontend"] == tones.frontend
    assert model_info["settings"] == settings.plain()
    frames = tones.features.count_frames(round(settings.max_seconds * tones.features.sample_rate))
    assert model_info["max_steps"] == -(-frames // settings.trained_reduction(int(work.metrics["best_step"])))
    assert model_info["provenance"]["trained"]["dev_mel_dtw"] == work.metrics["dev_mel_dtw"]


@pytest.mark.slow
def test_the_exported_model_equals_the_trained_one(
    trained: tuple[StepOutput, TtsTrainSettings], tones: Dataset
) -> None:
    work, settings = trained
    module, step = TtsTrainModule(settings, tones, tf.distribute.get_strategy()), int(work.metrics["best_step"])
    with np.load(work.folder / "best" / f"step-{step:08d}" / "arrays.npz") as arrays:
        for index, variable in enumerate(module.model.weights):
            variable.assign(arrays[f"model/{index}"])
    exported = tf.saved_model.load(str(work.path("model")))
    batch = next(Batches(tones, "dev", batch_size=4).epoch(0))
    text = {"symbols": tf.constant(batch.labels), "lengths": tf.constant(batch.counts)}

    ours = module.synthesize(
        batch, step, tones.features.count_frames(round(settings.max_seconds * tones.features.sample_rate))
    )
    outputs = {name: value.numpy() for name, value in exported.signatures["synthesize"](**text).items()}
    np.testing.assert_array_equal(outputs["frames"], ours.frames)
    np.testing.assert_array_equal(outputs["hit_limit"], ours.hit_limit)
    assert_close(outputs["alignments"], ours.alignment, relative_to_peak=1e-4)
    mels = module.denormalize(ours)[0].numpy()
    for row, frames in enumerate(ours.frames):
        assert_close(outputs["mels"][row, :frames], mels[row, :frames], relative_to_peak=1e-4)
        assert not outputs["mels"][row, frames:].any()
        samples = outputs["samples"][row]
        assert samples == tones.features.count_samples(int(frames))
        # By their spectra: Griffin-Lim makes much of a rounding.
        wanted = griffin_lim.features_to_waveform(
            mels[row, :frames], tones.features, iterations=settings.griffin_lim.iterations
        )
        spectra_of_both = [
            spectra.compute_features(sound, tones.features) for sound in (outputs["waveforms"][row, :samples], wanted)
        ]
        np.testing.assert_allclose(spectra_of_both[0].mean(0), spectra_of_both[1].mean(0), atol=1e-2)

    spoken = exported.signatures["speak"](**text)
    assert set(spoken) == set(outputs) - {"waveforms", "samples"}
    for name, value in spoken.items():
        assert_close(value, outputs[name], relative_to_peak=1e-5)

    recorded = {"features": tf.constant(batch.features), "frames": tf.constant(batch.frames)}
    forced = {name: value.numpy() for name, value in exported.signatures["teacher_forced"](**text, **recorded).items()}
    for row, out in module.run_eval(batch, step):
        frames = batch.frames[row]
        apart = np.abs(forced["mels"][row, :frames] - batch.features[row, :frames])
        assert forced["mel_l1"][row] == pytest.approx(apart.mean(), rel=1e-4)
        assert out["loss"] == pytest.approx((apart / np.array(tones.deviation)).mean(), rel=1e-4)


@pytest.mark.slow
def test_a_text_sounds_the_same_alone_and_in_a_batch(
    trained: tuple[StepOutput, TtsTrainSettings], tones: Dataset
) -> None:
    work, _ = trained
    voice = tf.saved_model.load(str(work.path("model"))).signatures["synthesize"]
    batch = next(Batches(tones, "dev", batch_size=4).epoch(0))
    together = voice(symbols=tf.constant(batch.labels), lengths=tf.constant(batch.counts))
    for row, count in enumerate(batch.counts):
        alone = voice(symbols=tf.constant(batch.labels[row : row + 1, :count]), lengths=tf.constant([count]))
        frames = int(alone["frames"][0])
        assert frames == together["frames"][row]
        assert_close(alone["mels"][0], together["mels"][row, :frames], relative_to_peak=1e-4)


FRESH = """
import json, sys
import tensorflow as tf
voice = tf.saved_model.load(sys.argv[1]).signatures["synthesize"]
made = voice(symbols=tf.constant([[0, 1, 2, 3]]), lengths=tf.constant([4]))
ours = [name for name in sys.modules if name.startswith("voxline")]
mean = float(tf.reduce_mean(made["mels"]))
print(json.dumps({"frames": made["frames"].numpy().tolist(), "mean": mean, "ours": ours}))
"""


@pytest.mark.slow
def test_the_export_works_in_a_process_without_voxline(
    trained: tuple[StepOutput, TtsTrainSettings], tmp_path: Path
) -> None:
    work, _ = trained
    process = subprocess.run(
        [sys.executable, "-P", "-c", FRESH, str(work.path("model"))], cwd=tmp_path, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-2_000:]
    printed = json.loads(process.stdout.splitlines()[-1])
    voice = tf.saved_model.load(str(work.path("model"))).signatures["synthesize"]
    made = voice(symbols=tf.constant([[0, 1, 2, 3]]), lengths=tf.constant([4]))
    assert printed["ours"] == []
    assert printed["frames"] == made["frames"].numpy().tolist()
    assert printed["mean"] == pytest.approx(float(tf.reduce_mean(made["mels"])), abs=1e-4)


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_result(
    trained: tuple[StepOutput, TtsTrainSettings], tones: Dataset, tmp_path: Path
) -> None:
    whole, settings = trained
    log = tmp_path / "killed.log"
    arguments = (tones.folder, tmp_path / "killed", settings)
    # After a validation and the start of the second reduction stage.
    process = start_process(run_train_step_until_killed, *arguments, 30, log=log)
    process.join()
    assert process.exitcode == -signal.SIGKILL, read_log(log)
    process = start_process(run_train_step, *arguments, log=log)
    process.join()
    assert process.exitcode == 0, read_log(log)
    assert read_log(log).count("resuming from the checkpoint") == 1
    one, two = whole.folder, next((tmp_path / "killed").glob(f"train/*/{DONE}")).parent
    expected, found = read_done(one), read_done(two)
    assert found["counts"] == expected["counts"]
    assert {**found["metrics"], "data_wait": 0} == pytest.approx({**expected["metrics"], "data_wait": 0}, rel=1e-3)
    curves = [json.loads((folder / "logs" / "curves.json").read_text()) for folder in (one, two)]
    for left, right in zip(curves[0]["train"], curves[1]["train"], strict=True):
        # The order of sums differs from process to process; the norm of steep gradients magnifies that.
        assert left.pop("gradient_norm") == pytest.approx(right.pop("gradient_norm"), rel=2e-2)
        assert left == pytest.approx(right, rel=1e-3)
    for path in sorted((one / "checkpoints").glob("step-*/arrays.npz")):
        with np.load(path) as left, np.load(two / path.relative_to(one)) as right:
            for name in left.files:
                # Adam divides by small gradients, so sums in another order move single weights by 0.002.
                apart = np.linalg.norm(left[name] - right[name])
                assert apart <= 0.01 * np.linalg.norm(left[name]) + 1e-3, name

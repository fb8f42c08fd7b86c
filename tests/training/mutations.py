"""Puts faults into a copy of the training code, one at a time, and runs the tests that must see them: `make mutations`.

Each fault was chosen because training would still work with it: the loss falls, and the model is a little worse.
Exits 1 if a fault passes the tests. First of all they must pass without one.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FAMILIES = "voxline/families"
ORACLES = "tests/families/networks/test_against_numpy.py"
TTS = "tests/families/tts/test_train_module.py"
AVERAGING = "tests/training/test_averaging.py"
FASTSPEECH = "tests/families/tts/test_fastspeech.py::test_the_network_equals_numpy_with_the_same_weights"
FASTCONFORMER = "tests/families/networks/test_fastconformer.py"
RECOGNIZERS = "tests/families/networks/test_recognizers.py"
CONVERSION = "tests/families/conversion/test_conversion.py"
BEFORE = "tests/push/test_before.py"
SHARPENING = "tests/families/tts/test_sharpening.py::test_the_penalty_is_the_critics_gradient"


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A fault: in `file`, `old` becomes `new`; `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str = ORACLES


MUTATIONS = [
    Mutation(
        "attention ignores the previous weights",
        f"{FAMILIES}/tts/networks/attention.py",
        "channels = [previous, cumulative] if",
        "channels = [cumulative, cumulative] if",
    ),
    Mutation(
        "the update gate of Tacotron's GRUs is turned round",
        f"{FAMILIES}/tts/networks/tacotron.py",
        "previous = update * previous + (1 - update) * candidate",
        "previous = (1 - update) * previous + update * candidate",
    ),
    Mutation(
        "zoneout has no expectation at inference",
        f"{FAMILIES}/tts/networks/tacotron2.py",
        "output = (1 - rate) * output + rate * states[0]",
        "pass",
    ),
    Mutation(
        "zoneout in training keeps nothing",
        f"{FAMILIES}/tts/networks/tacotron2.py",
        "output = new_output * output + (1 - new_output) * states[0]",
        "output = new_output * output",
    ),
    Mutation(
        "dropped frames are fed all the same",
        f"{FAMILIES}/tts/networks/decoding.py",
        "uniform >= dropout_rate, fed",
        "uniform >= -1.0, fed",
    ),
    Mutation(
        "the auxiliary CTC teaches the voice nothing",
        f"{FAMILIES}/tts/train_module.py",
        "output.mels[:, : tf.shape(target)[1]]",
        "tf.stop_gradient(output.mels[:, : tf.shape(target)[1]])",
        TTS,
    ),
    Mutation(
        "guided attention teaches the voice nothing",
        f"{FAMILIES}/tts/train_module.py",
        "guided_attention_loss(output.alignment,",
        "guided_attention_loss(tf.stop_gradient(output.alignment),",
        TTS,
    ),
    Mutation(
        "Deep Speech 2 has no ceiling",
        f"{FAMILIES}/asr/networks/deepspeech2.py",
        "ops.clip(self.norm(x, frames, training=training), 0.0, self.ceiling)",
        "ops.relu(self.norm(x, frames, training=training))",
    ),
    Mutation(
        "Deep Speech 2 normalizes its last layer by nothing",
        f"{FAMILIES}/asr/networks/deepspeech2.py",
        "x = self.output_norm(x, frames, training=training)",
        "pass",
    ),
    Mutation(
        "DeepSpeech has no ceiling",
        f"{FAMILIES}/asr/networks/deepspeech.py",
        "ops.clip(x, 0.0, self.settings.relu_clip)",
        "ops.relu(x)",
    ),
    Mutation(
        "DeepSpeech's LSTM reads backward",
        f"{FAMILIES}/asr/networks/deepspeech.py",
        "return_sequences=True,",
        "return_sequences=True, go_backwards=True,",
    ),
    Mutation(
        "DeepSpeech's LSTM begins with its forget gate half shut",
        f"{FAMILIES}/asr/networks/deepspeech.py",
        "unit_forget_bias=True",
        "unit_forget_bias=False",
        RECOGNIZERS,
    ),
    Mutation(
        "DeepSpeech's layers share the first dropout rate",
        f"{FAMILIES}/asr/networks/deepspeech.py",
        "self.settings.dropout[layer]",
        "self.settings.dropout[0]",
        RECOGNIZERS,
    ),
    Mutation(
        "the padding of a batch reaches DeepSpeech's window",
        f"{FAMILIES}/asr/networks/deepspeech.py",
        "ops.cast(mask_padding(x, frames), self.compute_dtype)",
        "ops.cast(x, self.compute_dtype)",
        RECOGNIZERS,
    ),
    Mutation(
        "the moving average moves with a step that was refused",
        "voxline/training/averaging.py",
        "assign_if(average, weight + decay * (average - weight), accept)",
        "average.assign(weight + decay * (average - weight))",
        AVERAGING,
    ),
    Mutation(
        "the moving average keeps its decay from the first step",
        "voxline/training/averaging.py",
        "tf.minimum(self.decay, (count - 1) / (count + 8))",
        "self.decay",
        AVERAGING,
    ),
    Mutation(
        "training continues from the moving average",
        "voxline/training/trainer.py",
        "            self.module.load_weights(weights)\n",
        "            pass\n",
        AVERAGING,
    ),
    Mutation(
        "the mean of the best is exported though it is worse",
        "voxline/training/trainer.py",
        "best_results([best, averaged])[0] is averaged",
        "True",
        AVERAGING,
    ),
    Mutation(
        "pitch is a mean over unvoiced frames too",
        f"{FAMILIES}/tts/networks/fastspeech.py",
        'ops.cast(voicing > 0.5, "float32")',
        "ops.ones_like(voicing)",
        FASTSPEECH,
    ),
    Mutation(
        "pitch is normalized by the mean over unvoiced frames too",
        f"{FAMILIES}/tts/networks/fastspeech.py",
        "return voiced_mean, max(",
        "return mean, max(",
        FASTSPEECH,
    ),
    Mutation(
        "the ONNX graph of a voice leaves pitch out",
        f"{FAMILIES}/tts/onnx.py",
        "(model.pitch, model.higher)",
        "(None, None)",
        "tests/families/tts/test_onnx_voice.py",
    ),
    Mutation(
        "Conformer's feed-forward modules count in full",
        f"{FAMILIES}/asr/networks/conformer.py",
        "x = x + 0.5 * feed_forward(x, self.second, 4)",
        "x = x + feed_forward(x, self.second, 4)",
    ),
    Mutation(
        "Conformer's positions do not turn",
        f"{FAMILIES}/asr/networks/conformer.py",
        "left * cosine - right * sine, left * sine + right * cosine",
        "left, right",
    ),
    Mutation(
        "Conformer's gate is not gated",
        f"{FAMILIES}/asr/networks/conformer.py",
        "value * ops.sigmoid(gate)",
        "value * gate",
    ),
    Mutation(
        "Conformer's attention hears the padding of a batch",
        f"{FAMILIES}/asr/networks/conformer.py",
        ", mask=real",
        "",
        RECOGNIZERS,
    ),
    Mutation(
        "Conformer's convolution hears the padding of a batch",
        f"{FAMILIES}/asr/networks/conformer.py",
        "mask_padding(value * ops.sigmoid(gate), frames)",
        "value * ops.sigmoid(gate)",
        RECOGNIZERS,
    ),
    Mutation(
        "the views of CR-CTC teach each other both ways at once",
        "voxline/training/ctc.py",
        "target = ops.stop_gradient(target)",
        "pass",
        "tests/training/test_ctc.py",
    ),
    Mutation(
        "the post-net is ReLU, the last layer too",
        f"{FAMILIES}/tts/networks/tacotron2.py",
        'activation=None if index == settings.postnet_layers - 1 else "tanh"',
        'activation="relu"',
    ),
    Mutation(
        "a highway carries nothing",
        f"{FAMILIES}/tts/networks/cbhg.py",
        "y = transform(y) * share + y * (1 - share)",
        "y = transform(y)",
    ),
    Mutation(
        "smoothing is a softmax",
        f"{FAMILIES}/tts/networks/attention.py",
        "if not self.settings.smoothing:",
        "if True:",
    ),
    Mutation(
        "AttGAN injects the attributes once",
        f"{FAMILIES}/conversion/networks/attgan.py",
        "x = _inject(ops.concatenate([x, short_cut], axis=-1), attributes)",
        "x = _inject(ops.concatenate([x, short_cut], axis=-1), 0 * attributes)",
        CONVERSION,
    ),
    Mutation(
        "AttGAN has no short cut",
        f"{FAMILIES}/conversion/networks/attgan.py",
        "_inject(ops.concatenate([x, short_cut], axis=-1), attributes)",
        "_inject(ops.concatenate([x, 0 * short_cut], axis=-1), attributes)",
        CONVERSION,
    ),
    Mutation(
        "the penalty is at the converted mels",
        f"{FAMILIES}/conversion/task.py",
        "between = share * recorded + (1 - share) * converted",
        "between = converted",
        CONVERSION,
    ),
    Mutation(
        "the converter learns from the classifier that judges it",
        f"{FAMILIES}/conversion/task.py",
        "score, logits = self.critic(converted)",
        "score, logits = self.critic(converted)[0], self.model.classifier(converted)[1]",
        CONVERSION,
    ),
    Mutation(
        "the converter has the first step and not the last",
        f"{FAMILIES}/conversion/task.py",
        "if (step + 1) % (self.settings.critic_steps + 1) == 0",
        "if step % (self.settings.critic_steps + 1) == 0",
        CONVERSION,
    ),
    Mutation(
        "attributes in use have the strength of training",
        "voxline/inference/voice_converter.py",
        "size = strength if name in targets else TRAINING_STRENGTH",
        "size = TRAINING_STRENGTH",
        CONVERSION,
    ),
    Mutation(
        "a recognizer hears each frame of a voice's mels twice",
        f"{FAMILIES}/tts/listener.py",
        "weights[number, rows, first] += 1 - (position - first)",
        "weights[number, rows, first] += 1",
        SHARPENING,
    ),
    Mutation(
        "the detail of mels is that of their normalized values",
        f"{FAMILIES}/tts/sharpening.py",
        "return mels * self.deviation + self.mean",
        "return mels * self.deviation",
        SHARPENING,
    ),
    Mutation(
        "the level of detail is compared by frame",
        f"{FAMILIES}/tts/sharpening.py",
        "tf.reduce_mean(tf.abs(step), axis=1) for step in steps",
        "tf.reduce_mean(tf.abs(step), axis=2) for step in steps",
        SHARPENING,
    ),
    Mutation(
        "FastConformer's distances have the other sign",
        f"{FAMILIES}/asr/networks/fastconformer.py",
        "length - 1 - ops.arange(2 * length - 1)",
        "ops.arange(2 * length - 1) - length + 1",
        FASTCONFORMER,
    ),
    Mutation(
        "FastConformer's convolutions read beyond the end",
        f"{FAMILIES}/asr/networks/fastconformer.py",
        "ops.where(real, ops.relu(x), ops.zeros((), x.dtype)), frames",
        "ops.relu(x), frames",
        FASTCONFORMER,
    ),
    Mutation(
        "the gate takes the model's own figures for those of its untouched parent",
        "components/push/gate.py",
        "{result.id: result.champion or {} for result in results}",
        "{result.id: result.metrics for result in results}",
        BEFORE,
    ),
    Mutation(
        "a model without figures of before passes",
        "components/push/gate.py",
        "[GateCheck(title, None if warns else False, detail)]\n    if not before.transcribes",
        "[]\n    if not before.transcribes",
        BEFORE,
    ),
    Mutation(
        "a probe is measured though the model was trained on it",
        "components/evaluate/before.py",
        "_recording(utterance) not in trained_on",
        "utterance.id",
        BEFORE,
    ),
]


def survives(mutation: Mutation) -> bool:
    """Whether the tests pass with the fault in a copy of the project.

    Raises:
      ValueError: the code no longer holds the text that the fault replaces.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("voxline", "components", "pipelines", "tests"):
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "conftest.py"):
            shutil.copyfile(ROOT / name, copy / name)
        source = (copy / mutation.file).read_text(encoding="utf-8")
        if source.count(mutation.old) != 1:
            raise ValueError(
                f"{mutation.file}: {mutation.old!r} occurs {source.count(mutation.old)} times; "
                f"write the fault {mutation.name!r} for the code as it is now"
            )
        (copy / mutation.file).write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutation.tests]
        ran = subprocess.run(
            command, cwd=copy, env={**os.environ, "PYTHONPATH": folder}, capture_output=True, text=True, check=False
        )
        if ran.returncode not in (0, 1):  # 1: a test failed; more: none ran
            raise ValueError(f"{mutation.name}: the tests did not run:\n{ran.stdout[-2_000:]}{ran.stderr[-2_000:]}")
        return ran.returncode == 0


def main() -> int:
    """The exit status: 1 if a fault passed the tests. Arguments: parts of the names of the faults to try."""
    mutations = [mutation for mutation in MUTATIONS if all(part in mutation.name for part in sys.argv[1:])]
    for tests in {mutation.tests: None for mutation in mutations}:
        unchanged = next(mutation for mutation in mutations if mutation.tests == tests)
        if not survives(dataclasses.replace(unchanged, new=unchanged.old)):
            raise ValueError(f"{tests} fails without a fault too, so it shows nothing; run it by pytest, and mend it")
    passed = []
    for mutation in mutations:
        alive = survives(mutation)
        print(f"mutations: {'✗ NOT SEEN' if alive else '✓ seen'}: {mutation.name}", flush=True)
        passed += [mutation.name] if alive else []
    print(f"mutations: {len(mutations) - len(passed)} of {len(mutations)} faults fail a test")
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())

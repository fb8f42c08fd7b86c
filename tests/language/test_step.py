"""The step language with real models: what ships has its language model, and was judged with it."""

import gzip
import html
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest

from tests.store.test_step_cache import flip
from tests.tone_asr_model import MakeAsrModel, render_words, write_corpus
from voxline.components.evaluate.champion import ModelVersion
from voxline.components.evaluate.speech import RoundTripRecognizer
from voxline.components.evaluate.step import run as evaluate
from voxline.components.language.settings import LanguageSettings
from voxline.components.language.step import _make_ngrams, _read_splits
from voxline.components.language.step import run as language
from voxline.components.push.hub_card import release_card
from voxline.components.push.step import run as push
from voxline.data.language_text import LanguageText
from voxline.data.manifest import Utterance, read_manifest, write_manifest
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.settings import AsrEvaluateSettings, AsrPushSettings, AsrTrainSettings
from voxline.inference.ngram import NgramModel
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.pipelines.config.load import load_config
from voxline.pipelines.graphs import graph_of
from voxline.pipelines.kfp_graph import load_pipeline
from voxline.pipelines.local.plan import _changed_settings
from voxline.registry.parents import licences_of
from voxline.store.step_cache import StepOutput
from voxline.text.settings import LanguageTextSettings

SETTINGS = LanguageSettings(kind="ngram", order=2, alphas=[0.5, 2.0], betas=[0.0, 1.0], width=32)
SPLITS = {
    "train": ["one six", "six one", "two one six", "one six two"],
    "dev": ["six two one", "one one six"],
    "test": ["two two one six", "six one six"],
}
WRONG = {"six": "seven"}
"""The network hears "seven" for "six"; the text of train has no such word."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    parts = [
        write_corpus(folder / split, [(f"{split}-ada", text) for text in texts], split)
        for split, texts in SPLITS.items()
    ]
    write_manifest(folder / "manifest.jsonl", [one for part in parts for one in read_manifest(part)])
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def made(corpus: Path, store: Path, make_asr_model: MakeAsrModel) -> StepOutput:
    return language(make_asr_model(WRONG), corpus, store, SETTINGS)


def test_the_model_gets_a_language_model_that_is_tuned_on_dev(
    made: StepOutput, corpus: Path, store: Path, make_asr_model: MakeAsrModel
) -> None:
    about = json.loads((made.path("model") / "language_model" / "language_model.json").read_text())
    assert made.metrics["dev_wer_greedy"] == pytest.approx(2 / 6)
    assert made.metrics["dev_wer"] == 0
    assert about["tuned_on"] == {"split": "dev", "utterances": 2, "words": 6, "wer": 0.0, "wer_greedy": 2 / 6}
    assert about["text"]["sentences"] == 4
    assert NgramModel.read_arpa(made.path("arpa")).vocabulary == ("one", "six", "two")
    assert model_digest(made.path("model")) != model_digest(make_asr_model(WRONG))
    again = language(make_asr_model(WRONG), corpus, store, SETTINGS)
    assert (again.reused, again.key) == (True, made.key)


def test_changed_ngrams_are_named_and_made_again(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the store, and in the model that ships: the beam search would use them in silence."""
    model, settings = make_asr_model(WRONG), SETTINGS.model_copy(update={"alpha": 1.0, "beta": 0.5})
    made = language(model, corpus, tmp_path, settings)
    digest = model_digest(made.path("model"))
    ngrams, shipped = next(tmp_path.glob("ngrams/*/ngrams.npz")), next(made.folder.glob("model/language_model/*.npz"))
    for file in (ngrams, shipped):
        flip(file, file.stat().st_size // 2)
    again = language(model, corpus, tmp_path, settings)
    told = capsys.readouterr().out
    assert f"ngrams: making it again: {ngrams.parent}: ngrams.npz (its hash is " in told
    assert f"language: making it again: {made.folder}: model/language_model/{shipped.name} (its hash is " in told
    assert (again.reused, model_digest(again.path("model"))) == (False, digest)


def test_only_what_people_wrote_is_counted(corpus: Path, store: Path, made: StepOutput, tmp_path: Path) -> None:
    """A model's drafts have the words that its own language model likes."""
    drafts = [
        line.replace(id=f"pseudo-{line.id}", text="seven seven", extra={"drafted_by": "asr@1 (4f1c09aa2be0)"})
        for line in read_manifest(corpus)
        if line.split == "train"
    ]
    write_manifest(tmp_path / "manifest.jsonl", [*read_manifest(corpus), *drafts])
    settings = SETTINGS.model_copy(update={"alpha": 1.0, "beta": 0.5})
    assert (
        _make_ngrams(_read_splits(tmp_path), store, settings).key
        == _make_ngrams(_read_splits(corpus), store, settings).key
    )


def test_another_model_or_weight_needs_no_new_ngrams(
    made: StepOutput, corpus: Path, store: Path, make_asr_model: MakeAsrModel
) -> None:
    fixed = SETTINGS.model_copy(update={"alpha": 1.0, "beta": 0.5, "width": 8})
    other = language(make_asr_model(), corpus, store, fixed)
    assert other.key != made.key
    assert "dev_wer" not in other.metrics
    assert len(list((store / "ngrams").glob("*/done.json"))) == 1


def test_a_recognizer_uses_it_by_default(made: StepOutput) -> None:
    waveform = render_words(["one", "six"])
    recognizer = Recognizer(made.path("model"), n_best=3)
    (decoded,) = recognizer.decode_waveforms([waveform])
    assert (decoded.text, decoded.greedy) == ("one six", "one seven")
    transcript = recognizer.recognize(waveform, sample_rate=16_000)
    assert [word.word for word in transcript.words] == ["one", "six"]
    assert transcript.alternatives[0].text == "one six"
    assert sum(one.confidence for one in transcript.alternatives) == pytest.approx(1)
    assert Recognizer(made.path("model"), language_model=False).transcribe_waveforms([waveform]) == ["one seven"]
    judge = RoundTripRecognizer(ModelVersion("asr", 1, "", made.path("model")))  # of a voice, which it must not correct
    assert judge.transcribe([waveform], 16_000) == ["one seven"]
    hot = Recognizer(made.path("model"), hot_words={"seven": 5.0})
    assert hot.transcribe_waveforms([waveform]) == ["one seven"]
    with pytest.raises(SettingsError, match="hot word 'sïx'"):
        Recognizer(made.path("model"), hot_words={"sïx": 5.0})


def test_what_ships_is_what_was_judged(made: StepOutput, corpus: Path, store: Path, tmp_path: Path) -> None:
    measured = evaluate(made.folder, corpus, tmp_path / "registry", store, AsrEvaluateSettings(bootstrap_samples=100))
    metrics = json.loads(measured.path("metrics").read_text())
    assert metrics["metrics"]["wer"]["value"] == 0
    assert metrics["details"]["greedy"]["words"]["substitutions"] == 3
    assert "with the language model" in measured.path("report").read_text()
    lines = [json.loads(line) for line in measured.path("utterances").read_text().splitlines()]
    assert {line["greedy_hypothesis"] for line in lines} == {"two two one seven", "seven one seven"}
    limits = AsrPushSettings(smoke_test=False, limits={"wer": 0.1})
    verdict = push(made.folder, measured.folder, tmp_path / "registry", store, limits)
    assert json.loads(verdict.path("verdict").read_text())["pushed"]
    version = tmp_path / "registry" / "asr" / "1"
    assert model_digest(version) == model_digest(made.path("model"))
    assert "2-gram language model of 3 words" in (version / "model_card.md").read_text()
    assert Recognizer(version).transcribe_waveforms([render_words(["six"])]) == ["six"]
    (version / "language_model" / "language_model.json").write_text('{"alpha": "much"}')
    with pytest.raises(WorkError, match=r"language_model\.json: damaged"):
        Recognizer(version)


def test_text_with_sentences_of_test_is_refused_dropped_or_kept(
    corpus: Path, store: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    text = tmp_path / "more.txt.gz"
    text.write_bytes(gzip.compress("Seven eight.\n\nTwo, two — one SIX!\nsix one six\n".encode()))
    fixed = SETTINGS.model_copy(update={"alpha": 1.0, "beta": 0.5, "text": [str(text)]})
    with pytest.raises(WorkError) as refused:
        language(make_asr_model(), corpus, store, fixed)
    for part in ("holds 1 of the 1 sentences", "'two two one six'", "line 3", "language.held_out: drop"):
        assert part in str(refused.value)  # "six one six" is too short to count
    words = {}
    for held_out in ("drop", "keep"):
        output = language(make_asr_model(), corpus, store, fixed.model_copy(update={"held_out": held_out}))
        about = json.loads((output.path("model") / "language_model" / "language_model.json").read_text())["text"]
        words[held_out] = (about["held_out_dropped"], about["sentences"])
    assert words == {"drop": (1, 6), "keep": (0, 7)}


@pytest.mark.parametrize(
    ("sentence", "line", "leaks"),
    [
        ("two two one six one two six six", "He said: two two one six one two six six, and left.", True),
        ("two two one six one two six six", "he said two two one six one two six", False),
        ("two two one six", "he said two two one six and left", False),  # short, so common in any text
        ("今天天气很好", "今天 天气很好。", True),  # a character is a word
    ],
)
def test_a_sentence_of_test_is_found_within_a_line(tmp_path: Path, sentence: str, line: str, leaks: bool) -> None:
    (tmp_path / "text.txt").write_text(f"six one\n{line}\n", encoding="utf-8")
    splits = {"train": [], "dev": [], "test": [Utterance("a", "a.wav", 1.0, sentence, split="test")]}
    settings = LanguageSettings(kind="ngram", text=[str(tmp_path / "text.txt")], transcripts=False)
    if leaks:
        with pytest.raises(WorkError, match=r"holds 1 of the 1 sentences .*line 2"):
            _make_ngrams(splits, tmp_path / "store", settings)
    else:
        assert _make_ngrams(splits, tmp_path / "store", settings).counts["sentences"] == 2


def test_the_alphabet_decides_what_is_a_letter_of_the_text(tmp_path: Path) -> None:
    """Field case F8, for a language model's text."""
    (tmp_path / "text.txt").write_text("IŞIK, İyi!\n", encoding="utf-8")
    turkish = {"text": [str(tmp_path / "text.txt")], "alphabet": " abcçdefgğhıijklmnoöprsştuüvyz"}
    assert list(LanguageText(LanguageTextSettings.of(turkish), set()).lines()) == [["ışık", "iyi"]]
    config = load_config(
        {"name": "x"}, ["convert.alphabet=abc çı", "language.kind=ngram", "corpus.uri=x"], pipeline="asr"
    )
    language_settings = config.section("language")
    assert isinstance(language_settings, LanguageSettings)
    assert language_settings.alphabet == "abc çı"


def test_text_that_cannot_be_read_is_named(
    corpus: Path, store: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    for name, content, message in (
        ("absent.txt", None, "it does not exist"),
        ("latin.txt", b"caf\xe9\n", "text in UTF-8"),
        ("damaged.gz", gzip.compress(b"one two " * 9)[:12] + bytes(20), "cannot be read"),
    ):
        if content:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(WorkError, match=rf"language\.text: .*{name}: .*{message}"):
            language(make_asr_model(), corpus, store, SETTINGS.model_copy(update={"text": [str(tmp_path / name)]}))


def test_a_model_that_is_there_takes_the_place_of_text(
    corpus: Path,
    store: Path,
    made: StepOutput,
    make_asr_model: MakeAsrModel,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arpa = tmp_path / "words.arpa.gz"
    arpa.write_bytes(made.path("arpa").read_bytes())
    settings = SETTINGS.model_copy(update={"arpa": str(arpa)})
    output = language(make_asr_model(WRONG), corpus, store, settings)
    assert output.key != made.key
    assert output.path("arpa").read_bytes() == arpa.read_bytes()
    assert output.metrics == made.metrics
    assert "warning" not in capsys.readouterr().out

    # Another model under the same name is another key.
    text = gzip.decompress(arpa.read_bytes()).decode()
    arpa.write_bytes(gzip.compress(text.replace("two", "too").encode()))
    assert language(make_asr_model(WRONG), corpus, store, settings).key != output.key
    assert "20% of the words of train are unknown to words.arpa.gz, such as two" in capsys.readouterr().out

    arpa.write_bytes(gzip.compress(re.sub("one|two|six", lambda word: word[0].upper(), text).encode()))
    with pytest.raises(WorkError, match=r"language\.arpa: .*knows no word of the transcripts of train, such as one"):
        language(make_asr_model(WRONG), corpus, store, settings)
    absent = SETTINGS.model_copy(update={"arpa": str(tmp_path / "absent.arpa")})
    with pytest.raises(WorkError, match=r"language\.arpa: .*absent\.arpa: it does not exist"):
        language(make_asr_model(WRONG), corpus, store, absent)
    with pytest.raises(pydantic.ValidationError, match="arpa names a model that is there"):
        LanguageSettings(kind="ngram", arpa="a.arpa", text=["b.txt"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("kenlm.bin", b"mmap lm http://kheafield.com/code format version 5\n\x00" + bytes(range(256)), "line"),
        ("words.txt", "one two six\n" * 20, "line"),
        ("cut.arpa", "\\data\\\nngram 1=4\n\n\\1-grams:\n-1\t<unk>\n", "line|ends"),
        ("plain.arpa.gz", "\\data\\\n", "gzip"),
    ],
)
def test_a_file_that_is_no_arpa_file_is_refused_by_its_key(
    corpus: Path,
    store: Path,
    make_asr_model: MakeAsrModel,
    tmp_path: Path,
    name: str,
    content: str | bytes,
    message: str,
) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    settings = SETTINGS.model_copy(update={"arpa": str(tmp_path / name)})
    with pytest.raises(WorkError, match=rf"^language\.arpa: .*{re.escape(name)}.*({message})"):
        language(make_asr_model(), corpus, store, settings)


@pytest.mark.parametrize("name", ["kenlm.arpa", "kenlm.arpa.gz"])
def test_a_model_that_kenlm_wrote_decodes_with_its_own_words(
    corpus: Path, store: Path, make_asr_model: MakeAsrModel, tmp_path: Path, name: str
) -> None:
    """A file of KenLM's lmplz, three of whose words are those of the network that hears "seven" for "six"."""
    text = gzip.decompress((Path(__file__).parents[1] / "training/lmplz/3.arpa.gz").read_bytes()).decode()
    words = {"w0": "six", "w1": "two", "w2": "one"}
    text = re.sub(r"\bw[012]\b", lambda word: words[word[0]], text)
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    settings = SETTINGS.model_copy(update={"arpa": str(tmp_path / name)})
    output = language(make_asr_model(WRONG), corpus, store, settings)
    about = json.loads((output.path("model") / "language_model" / "language_model.json").read_text())
    assert (about["order"], about["ngrams"]) == (3, [1076, 3200, 3837])
    assert (output.metrics["dev_wer"], output.metrics["dev_wer_greedy"]) == (0, pytest.approx(2 / 6))
    assert NgramModel.read_arpa(output.path("arpa")).counts == [1076, 3200, 3837]


def test_text_is_checked_before_a_model_is_trained_for_it(corpus: Path, tmp_path: Path) -> None:
    """A run refuses a file that is absent; train refuses what the step language would, and has the same key."""
    from voxline.families.asr.task import AsrTask

    text = tmp_path / "more é.txt"
    given = ["language.kind=ngram", f"language.text={json.dumps([str(text)])}", "convert.frontend.kind=as_is"]
    (tmp_path / "asr.yaml").write_text(f"pipeline: asr\nname: x\ncorpus: {{uri: {corpus}}}\n", encoding="utf-8")
    config = load_config(tmp_path / "asr.yaml", given)
    with pytest.raises(SettingsError, match=r"language\.text: .*more é\.txt: it does not exist"):
        config.check_inputs()
    with pytest.raises(SettingsError, match=rf"language\.arpa: {tmp_path}/words\.arpa: it does not exist"):
        load_config(
            tmp_path / "asr.yaml", ["language.kind=ngram", f"language.arpa={tmp_path}/words.arpa"]
        ).check_inputs()
    text.write_text("two two one six\n", encoding="utf-8")
    config.check_inputs()
    settings = config.section("train")
    assert isinstance(settings, AsrTrainSettings)
    assert settings.language_text.frontend.kind == "as_is"
    assert settings.key_values() == AsrTrainSettings.of(settings.plain() | {"language_text": {}}).key_values()
    rows = [SimpleNamespace(split=split, text=one) for split, texts in SPLITS.items() for one in texts]
    task = SimpleNamespace(settings=settings, dataset=SimpleNamespace(rows=lambda: rows))
    with pytest.raises(WorkError, match=r"holds 1 of the 1 sentences .*'two two one six'"):
        AsrTask.check_length(task)  # type: ignore[arg-type]


def test_a_plan_does_not_take_the_text_for_a_change() -> None:
    made_with = LanguageSettings(kind="ngram").key_values()  # a step's output does not name its text
    wanted = LanguageSettings(kind="ngram", order=4, text=["a.txt"])
    assert _changed_settings({"settings": made_with}, wanted) == ["order 3 → 4"]


def test_the_graph_has_the_step_where_the_config_turns_it_on() -> None:
    assert "language" not in graph_of("asr")
    assert list(graph_of("asr", ["language"]))[-3:] == ["language", "evaluate", "push"]
    assert "language" not in load_pipeline("asr").pipeline_spec.root.dag.tasks
    tasks = load_pipeline("asr", optional=("language",)).pipeline_spec.root.dag.tasks
    for step in ("evaluate", "push"):
        selected = tasks[step].inputs.artifacts["model"].task_output_artifact
        assert (selected.producer_task, selected.output_artifact_key) == ("language", "model_with_language")


def test_a_language_model_without_text_is_refused() -> None:
    with pytest.raises(SettingsError, match="needs text"):
        LanguageSettings.of({"kind": "ngram", "transcripts": False})
    with pytest.raises(SettingsError, match="0 for single words"):
        LanguageSettings.of({"prune": [1, 1]})
    with pytest.raises(SettingsError, match=r"'alphas\.0' is -5"):
        LanguageSettings.of({"alphas": [-5]})


# Licences


class Licensed:
    """A model of data under CC-BY-4.0, and the gate that accepts that licence alone."""

    def __init__(self, model: Path, corpus: Path, store: Path, folder: Path) -> None:
        self.model = Path(shutil.copytree(model, folder / "licensed"))
        about = json.loads((self.model / "model.json").read_text())
        about["dataset"]["licences"] = {"CC-BY-4.0": 4}
        (self.model / "model.json").write_text(json.dumps(about))
        self.corpus = corpus
        self.store = store
        self.folder = folder

    def made(self, **settings: Any) -> StepOutput:
        plain = SETTINGS.plain() | {"alpha": 1.0, "beta": 0.5} | settings
        return language(self.model, self.corpus, self.store, LanguageSettings.of(plain))

    def judged(self, **settings: Any) -> tuple[str, str, str]:
        """The reason against the model, or "" of one that was pushed; its report; its card."""
        language_output = self.made(**settings)
        registry = self.folder / language_output.key
        evaluation = evaluate(
            language_output.folder, self.corpus, registry, self.store, AsrEvaluateSettings(bootstrap_samples=100)
        )
        gate = AsrPushSettings(smoke_test=False, limits={"wer": 0.5}, licences=["CC-BY-4.0"])
        verdict = push(language_output.folder, evaluation.folder, registry, self.store, gate)
        reasons = json.loads(verdict.path("verdict").read_text())["reasons"]
        card = registry / "asr" / "1" / "model_card.md"
        return (
            "; ".join(reasons),
            html.unescape(evaluation.path("report").read_text()),
            card.read_text() if card.is_file() else "",
        )


@pytest.fixture
def licensed(corpus: Path, store: Path, make_asr_model: MakeAsrModel, tmp_path: Path) -> Licensed:
    return Licensed(make_asr_model(WRONG), corpus, store, tmp_path)


def test_the_gate_refuses_a_text_by_its_licence(licensed: Licensed, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("six two two\n")
    reason, report, card = licensed.judged(text=[str(text)], licences=["cc-by-nc-4.0"])
    assert reason == (
        "licences that push.licences does not accept: the texts of its language model: CC-BY-NC-4.0; accepted: "
        "CC-BY-4.0"
    )
    assert "Licences of the texts of its language model: CC-BY-NC-4.0." in report
    assert not card

    reason, _, card = licensed.judged(text=[str(text)], licences=["CC-BY-4.0"])
    assert not reason
    assert "Licences of the texts of its language model: CC-BY-4.0." in card

    # One file of several suffices.
    (tmp_path / "more.txt").write_text("two two one\n")
    both = [str(text), str(tmp_path / "more.txt")]
    reason, *_ = licensed.judged(text=both, licences=["CC-BY-4.0", "MIT"])
    assert "the texts of its language model: MIT; accepted" in reason
    reason, *_ = licensed.judged(text=both, licences=["CC-BY-4.0", ""])
    assert "the texts of its language model: not stated; accepted" in reason


def test_texts_of_no_stated_licence_are_refused_where_there_is_a_rule(
    licensed: Licensed, made: StepOutput, tmp_path: Path
) -> None:
    """An ARPA file has no licence of its own, and says of no sentence where it comes from."""
    arpa = tmp_path / "words.arpa.gz"
    arpa.write_bytes(made.path("arpa").read_bytes())
    reason, report, _ = licensed.judged(arpa=str(arpa))
    assert reason == (
        "licences that push.licences does not accept: the texts of its language model: not stated; accepted: "
        "CC-BY-4.0; language.licences states those of the texts"
    )
    assert "A 2-gram model of 3 words, from a file of n-grams." in report
    reason, _, card = licensed.judged(arpa=str(arpa), licences=["CC-BY-4.0"])
    assert not reason
    assert "Licences of the texts of its language model: CC-BY-4.0." in card


def test_transcripts_have_the_licence_of_their_corpus(licensed: Licensed) -> None:
    reason, report, card = licensed.judged()
    assert not reason
    assert "Licences of train and dev: CC-BY-4.0" in card
    assert "texts of its language model" not in card + report


def test_another_licence_is_another_model_of_the_same_ngrams(licensed: Licensed, store: Path, tmp_path: Path) -> None:
    """It reaches the gate, whatever a store has of before."""
    text = tmp_path / "text.txt"
    text.write_text("two six two\n")
    unstated = licensed.made(text=[str(text)])
    ngrams = set((store / "ngrams").glob("*/done.json"))
    stated = licensed.made(text=[str(text)], licences=["MIT"])
    assert stated.key != unstated.key
    assert model_digest(stated.path("model")) != model_digest(unstated.path("model"))
    assert set((store / "ngrams").glob("*/done.json")) == ngrams
    about = json.loads((unstated.path("model") / "language_model" / "language_model.json").read_text())
    assert "licences" not in about["text"]
    assert licences_of(read_model_info(unstated.path("model")), unstated.path("model")) == {
        "its data": ["CC-BY-4.0"],
        "the texts of its language model": ["not stated"],
    }

    # Where the weights go without the language model, its texts do not count.
    assert licences_of(read_model_info(stated.path("model"))) == {"its data": ["CC-BY-4.0"]}


def test_the_card_on_the_hub_names_the_licences_of_the_texts(licensed: Licensed, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("two one two\n")
    model = licensed.made(text=[str(tmp_path / "text.txt")], licences=["CC-BY-NC-4.0"]).path("model")
    card = release_card(model, read_model_info(model), "ours/words")
    assert "license: other\nlicense_name: CC-BY-4.0 and CC-BY-NC-4.0\n" in card
    assert "Licences of the texts of its language model: CC-BY-NC-4.0." in card


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"licences": ["MIT"]}, "those of `text` or `arpa`, and neither is named"),
        ({"text": ["a", "b", "c"], "licences": ["MIT", "MIT"]}, "has 2, and 3 files are named"),
        ({"arpa": "a", "licences": ["MIT", "MIT"]}, "has 2, and 1 files are named"),
        ({"text": ["a"], "licences": ["CCBY-4.0"]}, "do you mean CC-BY-4.0"),
    ],
)
def test_licences_of_no_file_or_of_no_name_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        LanguageSettings.of({"kind": "ngram", **values})

"""`voxline config init --pipeline`: what it writes for each pipeline runs, from the folder to a trained step."""

import json
import random
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.conftest import ROOT
from tests.families.networks.pytorch_oracle import write_hub_models
from tests.families.tts.test_vits import write_piper_voice
from voxline.components.demo_corpus.step import corpus_settings
from voxline.components.demo_corpus.step import run as generate
from voxline.errors import SettingsError
from voxline.families.asr.tuning_config import _fits_a_graph
from voxline.families.tts.vits.parents import open_public_voice
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.saved_model import read_model_info
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.corpus_look import look_at_corpus
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.proposed_voice import _tell_speakers
from voxline.pipelines.config.scaffold import propose_config, write_config
from voxline.pipelines.graphs import steps_until
from voxline.pipelines.local.single_step import run_step
from voxline.registry.parents import ancestors_of
from voxline.store.step_cache import StepOutput

HUB = ROOT / "tests" / "families" / "networks" / "hub"


def speech(folder: Path, **settings: Any) -> Path:
    """A generated voice: 12 sentences to train on."""
    sizes = {"train": 12, "dev": 4, "test": 4, "long_sentences": 0}
    return generate(folder, corpus_settings({**sizes, **settings})).path("corpus")


def noises(folder: Path, texts: list[str], rate: int = 16_000, **keys: str) -> Path:
    """Half a second of noise for every text."""
    lines = []
    for number, text in enumerate(texts):
        file = folder / "clips" / f"{number}.wav"
        file.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(file), "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(rate)
            out.writeframes(random.Random(number).randbytes(rate))
        line = {"audio_filepath": f"clips/{number}.wav", "text": text}
        lines.append(json.dumps({**line, **{key: value.format(number % 3) for key, value in keys.items()}}))
    (folder / "manifest.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def run_until(last: str, corpus: Path, pipeline: str, run_dir: Path) -> StepOutput:
    """Runs the config that init proposes; a training has one epoch."""
    file = write_config(propose_config(corpus, pipeline=pipeline), run_dir.with_suffix(".yaml"))
    trains = pipeline != "refresh"
    config = load_config(file, ["train.epochs=1", "train.batch_size=4"] if trains else [], pipeline=pipeline)
    for name in steps_until(pipeline, last, config.optional_steps()):
        output = run_step(name, config, run_dir, {})
    return output


WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None  # an import of it fails
import voxline
model = voxline.load_{kind}(sys.argv[1])
print({call})
print({{"tensorflow", "keras"}} & {{name for name, module in sys.modules.items() if module}})
"""


@pytest.mark.parametrize("names", [["ann"], ["ann", "ben", "eve"]])
@pytest.mark.parametrize("known", [(), ("joe", "ann")])
def test_a_public_voice_is_tuned_in_its_own_size(names: list[str], known: tuple[str, ...], tmp_path: Path) -> None:
    voice, _ = write_piper_voice(tmp_path / "voice", known)
    corpus = noises(tmp_path / "clips", ["hello world.", "tell me!"] * 15, speaker="{}")
    lines = [json.loads(line) for line in (corpus / "manifest.jsonl").read_text().splitlines()]
    spoken = [{**line, "speaker": names[number % len(names)]} for number, line in enumerate(lines)]
    (corpus / "manifest.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in spoken))

    proposal = propose_config(corpus, pipeline="tts", parent=str(voice))
    config: Any = load_config(proposal.text, pipeline="tts")
    train = config.train
    parent = open_public_voice(str(voice))
    sizes = parent.info.settings["model"]
    assert config.convert.frontend.kind == "phonemes"
    assert (config.convert.sample_rate, config.convert.alphabet) == (parent.info.sample_rate, "ipa")
    train.model.check_features(config.extract.features)
    assert train.start.model == str(voice)

    # Speakers of a corpus of several are those of the corpus: their rows follow from it.
    free = {"speakers", "speaker_units", "speaker"} if len(names) > 1 else set()
    plain = train.model.plain()
    assert {key: plain[key] for key in sizes.keys() - free} == {key: sizes[key] for key in sizes.keys() - free}
    assert all(plain[key] == 0 for key in free)
    told = [line for line in proposal.findings if line.startswith("speakers")]
    assert [line.partition(":")[0] for line in told] == (
        ["speakers   3, and the voice speaks as each of them"] if len(names) > 1 else []
    )
    assert any(line.startswith("parent     tiny (CC0)") for line in proposal.findings)


def test_what_is_no_voice_is_refused_as_its_parent(tmp_path: Path) -> None:
    corpus = noises(tmp_path / "clips", ["hello world."] * 4)
    with pytest.raises(SettingsError, match=r"--parent whisper-tiny.en: a Piper voice is accepted .*hf://owner/name"):
        propose_config(corpus, pipeline="tts", parent="whisper-tiny.en")
    voice, _ = write_piper_voice(tmp_path / "voice")
    with pytest.raises(SettingsError, match="a HiFi-GAN or a WaveGlow is accepted"):
        propose_config(corpus, pipeline="vocoder", parent=str(voice))
    with pytest.raises(SettingsError, match="by --pipeline asr, tts and vocoder"):
        propose_config(corpus, pipeline="refresh", parent=str(voice))


@pytest.mark.parametrize("kind", ["tacotron2", "vits", "fastspeech"])
def test_what_a_voice_of_a_kind_makes_of_several_speakers_is_said(kind: str, tmp_path: Path) -> None:
    corpus = noises(tmp_path / "clips", ["hello world.", "tell me!"] * 3, speaker="{}")
    first, *warned = _tell_speakers(look_at_corpus(corpus), kind)
    assert not warned
    if kind == "tacotron2":
        assert first.startswith("warning    3 speakers, and a Tacotron 2 makes one voice of all")
    else:
        assert first.startswith("speakers   3, and the voice speaks as each of them")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pipeline", "kind", "script"),
    [
        ("vocoder", "hifigan", "public_vocoders.py"),
        ("vocoder", "waveglow", "public_vocoders.py"),
        ("tts", "tacotron2", "public_tacotron2.py"),
    ],
)
def test_a_public_network_is_tuned_as_its_authors_have_it(
    pipeline: str, kind: str, script: str, tmp_path: Path
) -> None:
    write_hub_models(script)
    parent = str(HUB / kind)
    corpus = noises(tmp_path / "clips", ["hello world.", "tell me!"] * 6, rate=22_050)
    file = write_config(propose_config(corpus, pipeline=pipeline, parent=parent), tmp_path / "tuned.yaml")
    config: Any = load_config(file, ["train.epochs=1"], pipeline=pipeline)
    assert config.train.start.model == parent
    for step in steps_until(pipeline, "train", config.optional_steps()):
        output = run_step(step, config, tmp_path / "run", {})
    info = read_model_info(output.path("model"))
    assert (info.kind, ancestors_of(info)[0].name) == (kind, kind)


def without_tensorflow(model: Path, kind: str, call: str, *arguments: str) -> list[str]:
    """What a process prints in which TensorFlow cannot be imported."""
    code = WITHOUT_TENSORFLOW.format(kind=kind, call=call)
    ended = subprocess.run(
        [sys.executable, "-c", code, str(model), *arguments], capture_output=True, text=True, encoding="utf-8"
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.slow
def test_a_recognizer_is_trained_and_the_command_transcribes_without_tensorflow(tmp_path: Path) -> None:
    corpus = noises(tmp_path / "words", ["yes", "no"] * 20)
    model = run_until("language", corpus, "asr", tmp_path / "run").path("model")
    code = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "from voxline.pipelines.cli.main import app\n"
        "app(sys.argv[1:], standalone_mode=False)\n"
        "print({'tensorflow', 'keras'} & {name for name, module in sys.modules.items() if module})"
    )
    arguments = ("transcribe", str(corpus / "clips" / "0.wav"), "--model", str(model))
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert ended.returncode == 0, ended.stderr
    *_, loaded = ended.stdout.splitlines()
    assert loaded == "set()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "frontend", "text"),
    [
        ({"kind": "digits"}, "english_phonemes", "three one."),
        ({"kind": "mandarin"}, "mandarin", "今天很好。"),
    ],
)
def test_a_voice_is_trained_and_speaks_without_tensorflow(
    settings: dict[str, Any], frontend: str, text: str, tmp_path: Path
) -> None:
    corpus = speech(tmp_path / "voice", **settings)
    exported = run_until("export", corpus, "tts", tmp_path / "run")
    config = load_config(tmp_path / "run.yaml").plain()
    assert (config["convert"]["frontend"]["kind"], config["convert"]["sample_rate"]) == (frontend, 16_000)
    model = exported.path("model")
    assert (model / ONNX_FILE).is_file()
    samples, loaded = without_tensorflow(
        model, "synthesizer", "len(model.synthesize([sys.argv[2]])[0].waveform) > 1000", text
    )
    assert (samples, loaded) == ("True", "set()")


@pytest.mark.slow
def test_a_vocoder_is_trained_on_what_its_voice_is_trained_on(tmp_path: Path) -> None:
    corpus = speech(tmp_path / "voice", kind="digits")
    model = run_until("export", corpus, "vocoder", tmp_path / "run").path("model")
    assert (model / ONNX_FILE).is_file()
    voice = load_config(propose_config(corpus, pipeline="tts").text).plain()
    vocoder = load_config(tmp_path / "run.yaml").plain()
    for section in ("convert", "extract"):
        assert voice[section] == vocoder[section]


@pytest.mark.slow
def test_a_corpus_is_published_and_its_version_trained_on(tmp_path: Path) -> None:
    corpus = noises(tmp_path / "words", ["yes", "no"] * 20)
    published = run_until("publish", corpus, "refresh", tmp_path / "run")
    assert published.counts["version"] == 1
    assert (tmp_path / "run" / "datasets" / "words" / "1").is_dir()
    assert run_until_again(tmp_path / "run").counts["version"] == 1

    # The config of a recognizer trains on it, in place of the corpus.
    asr = load_config(propose_config(corpus).text).plain()
    refresh = load_config(tmp_path / "run.yaml").plain()
    for section in ("convert", "extract"):
        assert asr[section] == refresh[section]


def run_until_again(run_dir: Path) -> StepOutput:
    config = load_config(run_dir.with_suffix(".yaml"))
    return run_step("publish", config, run_dir, {})


@pytest.mark.parametrize(("rate", "sample_rate"), [(8_000, 8_000), (22_050, 22_050), (48_000, 22_050)])
def test_a_voice_has_the_rate_of_its_recordings_and_a_recognizer_at_most_16_khz(
    rate: int, sample_rate: int, tmp_path: Path
) -> None:
    corpus = noises(tmp_path / "words", ["good morning", "good night"], rate)
    for pipeline in ("tts", "vocoder"):
        config = load_config(propose_config(corpus, pipeline=pipeline).text)
        assert config.convert.sample_rate == sample_rate
    for pipeline in ("asr", "refresh"):
        assert load_config(propose_config(corpus, pipeline=pipeline).text).convert.sample_rate == min(rate, 16_000)


def test_a_model_of_each_pipeline_is_exported_for_use_without_tensorflow(tmp_path: Path) -> None:
    corpus = noises(tmp_path / "words", ["good morning", "good night"] * 8)
    for pipeline in ("asr", "tts", "vocoder"):
        config = load_config(propose_config(corpus, pipeline=pipeline).text)
        assert config.plain()["train"]["export"]["onnx"] == "float32"
        assert config.optional_steps()[0] == "export"


@pytest.mark.parametrize(
    ("model", "config", "fits"),
    [
        ("hf://openai/whisper-small@c", {}, True),
        ("hf://openai/whisper-large-v3@c", {}, False),
        ("hf://nvidia/parakeet-ctc-0.6b@c", {}, False),
        ("a", {"d_model": 1024, "encoder_layers": 24, "encoder_ffn_dim": 4096}, True),
        ("a", {"d_model": 1280, "encoder_layers": 32, "encoder_ffn_dim": 5120}, False),
        ("a", {"encoder_config": {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}}, False),
        ("a", {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}, True),
    ],
)
def test_no_graph_is_asked_of_a_public_model_above_2_gb(model: str, config: dict[str, Any], fits: bool) -> None:
    assert _fits_a_graph(config, model) is fits


@pytest.mark.parametrize(
    ("texts", "language", "kind", "said"),
    [
        (["Good morning!"], "", "english_phonemes", "of another language, give --language"),
        (["Good morning!"], "en", "english_phonemes", "English phonemes"),
        (["Ciao, come stai?"], "it", "as_is", "letters as they are"),
        (["Schöne Grüße"], "", "as_is", "letters as they are"),
        (["今天很好", "明天也好"], "", "mandarin", "hanzi become pinyin"),
        (["jin1 tian1 hao3"], "", "pinyin", "in pinyin with tones"),
        (["chong2 ming2, hao3."], "zh", "pinyin", "in pinyin with tones"),
    ],
)
def test_the_frontend_of_a_voice_follows_from_its_texts(
    texts: list[str], language: str, kind: str, said: str, tmp_path: Path
) -> None:
    proposal = propose_config(noises(tmp_path / "voice", texts * 4), language=language, pipeline="tts")
    assert load_config(proposal.text).convert.frontend.kind == kind
    assert any(line.startswith("text ") and said in line for line in proposal.findings)
    assert not any(line.startswith("warning") for line in proposal.findings)


def test_texts_that_a_voice_cannot_learn_are_named_and_so_are_its_speakers(tmp_path: Path) -> None:
    texts = ["Guten Tag", "Gute Nacht", "Zimmer 7"] * 3 + ["Ñandú"]
    proposal = propose_config(noises(tmp_path / "voice", texts, speaker="s{}"), language="de", pipeline="tts")
    warnings = [line for line in proposal.findings if line.startswith("warning")]
    assert "speakers   3, and the voice speaks as each of them: s0 has 4 of 10 utterances, s2 3" in proposal.findings
    assert any("too few to learn their sound: " in line and "Ñ" in line for line in warnings)
    assert any("digits, which nothing spells out" in line for line in warnings)
    nameless = noises(tmp_path / "nameless", texts, speaker="s{}")
    lines = (nameless / "manifest.jsonl").read_text(encoding="utf-8")
    (nameless / "manifest.jsonl").write_text(lines.replace('"s2"', '""'), encoding="utf-8")
    findings = propose_config(nameless, language="de", pipeline="tts").findings
    assert any("3 of 10 utterances name no speaker, and train refuses them" in line for line in findings)
    spoken = [json.loads(line) for line in lines.splitlines()]
    own = [{**line, "split": "test" if line["speaker"] == "s2" else "train"} for line in spoken]
    (nameless / "manifest.jsonl").write_text("\n".join(map(json.dumps, own)), encoding="utf-8")
    findings = propose_config(nameless, language="de", pipeline="tts").findings
    assert "speakers   2, and the voice speaks as each of them: s0 has 4 of 7 utterances to train on, s1 3" in findings
    (strangers,) = [line for line in findings if "not in train" in line]
    assert strangers.startswith("warning    1 speakers of dev and test are not in train, and train refuses them: s2; ")
    assert "train.fastspeech.speakers to one" in strangers
    mixed = propose_config(noises(tmp_path / "mixed", ["good", "今天"]), language="en", pipeline="tts")
    few, unread = [line for line in mixed.findings if line.startswith("warning")]
    assert "2 utterances are too few for train, dev and test" in few
    assert "50.0% of the texts cannot be read and become rejects, such as '今天'" in unread
    assert load_config(mixed.text).convert.max_reject_share == 0.5


def test_a_voice_of_few_test_utterances_has_a_margin_that_they_can_show(tmp_path: Path) -> None:
    few = propose_config(noises(tmp_path / "few", ["good morning"] * 50), pipeline="tts")
    assert load_config(few.text).plain()["push"]["max_regression"]["mcd"] == 0.27  # 10 of them
    assert any("10 test utterances: a new voice may be 0.27 dB worse" in line for line in few.findings)
    many = propose_config(noises(tmp_path / "many", ["good morning"] * 100), pipeline="tts")
    assert "push:" not in many.text


def test_a_pipeline_without_a_proposal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--pipeline 'intents': accepted: asr, tts, vocoder, refresh"):
        propose_config(tmp_path, pipeline="intents")
    with pytest.raises(SettingsError, match=r"by --pipeline asr, tts and vocoder"):
        propose_config(tmp_path, parent="whisper-tiny.en", pipeline="refresh")


def test_the_command_names_the_pipeline_to_run_next(tmp_path: Path) -> None:
    corpus = noises(tmp_path / "words", ["yes", "no"] * 20)
    file = tmp_path / "words.yaml"
    ended = CliRunner().invoke(app, ["config", "init", str(corpus), "-o", str(file), "--pipeline", "refresh"])
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.splitlines()[-1] == f"wrote {file}; next: voxline run refresh --config {file}"

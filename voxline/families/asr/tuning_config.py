"""What a config needs that tunes a public model: its name, its transcripts' form, and rates that keep what it knows.

`voxline config init --parent` writes it. Nothing is downloaded but config.json; without the Hub, the kind of a model
follows from its name.
"""

import dataclasses
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from voxline.errors import SettingsError, TransientError
from voxline.families.asr.export_checks import LARGEST_FILE
from voxline.families.asr.transcripts import Spelling, choose_spelling
from voxline.registry.hub import HUB_SCHEME, is_hub_location, open_hub_model, todays_commit
from voxline.text.alphabet import Alphabet, is_mandarin
from voxline.text.transcripts import normalize_transcript

SETTING = "--parent"
OWNERS = {"whisper": "openai", "wav2vec2": "facebook", "mms": "facebook", "hubert": "facebook", "parakeet": "nvidia"}
"""First part of a short name → whose model it is on the Hub."""
KINDS = {"whisper": "whisper", "parakeet": "parakeet_ctc", "hubert": "hubert"}
"""The same → `model_type` of its config.json; of the others, wav2vec2."""
ENGLISH_TOKENS = 51_864
COMMIT = "<commit>"
"""In place of the commit, where the Hub cannot be asked for it."""
_LARGE = re.compile(r"whisper-(?:large|turbo)|1b|[12]\.1b|0\.6b|xlarge")
"""In names of models that take 2 GB or more."""
_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}")
WHISPER_SIZES = {"tiny": (4, 384), "base": (6, 512), "small": (12, 768), "medium": (24, 1024), "large": (32, 1280)}
"""Second part of a Whisper's name → blocks and units of its encoder."""
WHISPER_RATES = {384: 1.5e-3, 512: 1.0e-3, 768: 5.0e-4, 1024: 2.5e-4, 1280: 1.75e-4}
"""Units of a Whisper → the highest learning rate of its training (Radford et al. 2022, appendix F)."""
MOST_WORDS = 100
"""Different words at most, of recordings of one word each, each of which is a class."""


@dataclasses.dataclass(frozen=True)
class TuningConfig:
    """The parts of a config that tunes a public model.

    Attributes:
      convert: values of the section.
      features: those of `extract`, whose sizes follow from the model.
      train: the section's values, as lines of a flow mapping.
      findings: which model it is, and what of it is tuned.
      spelling: lines on the alphabet; none where it writes the transcripts as they are.
    """

    model: str
    convert: dict[str, Any]
    features: dict[str, Any]
    train: list[str]
    findings: list[str]
    spelling: list[str]


def tuning_config(parent: str, texts: Sequence[str], language: str = "") -> TuningConfig:
    """Proposes how to tune a public model on transcripts.

    Args:
      parent: a folder as the Hub has it, `hf://owner/name@commit`, or a short name such as whisper-tiny.en.
      texts: transcripts as the corpus has them.
      language: of a Whisper of several, such as "de"; empty: English or Mandarin, if the letters suggest it.

    Raises:
      SettingsError: the model does not exist, is of none of our networks, or needs a language.
    """
    model, kind, hub_config, files, note = _find(parent)
    train = [f"start: {{model: {quoted(model)}, rate_share: 1.0"]
    network: dict[str, Any] = {}
    spelling = choose_spelling(texts, language)

    # Each word is a class, where a recording has one word.
    words = {normalize_transcript(text) for text in texts}
    single = len(words) <= MOST_WORDS and all(word and " " not in word for word in words)

    if kind == "whisper" and single:
        convert = spelling.settings
        symbols = len(Alphabet.from_name(convert.get("alphabet", "english")).symbols)
        symbols += sum(len(word) for word in words)
        network = {"kind": "whisper", "pooling": "utterance"}
        train[-1] += "}, freeze: [encoder],"
        train += [
            f"model: {flow_mapping(network)}, subwords: {symbols},  # so many that each word is a symbol",
            f"epochs: {_epochs(texts, 64, 20, 300)}, batch_size: 64, learning_rate: 0.001, warm_up_steps: 20,",
            "weight_decay: 0.1, evaluate_epochs: 5",
        ]
        how = f"its encoder, frozen, with a new output layer for {len(words):,} words, one a recording"
    elif kind == "whisper" and files.get("tokenizer", True):
        convert, written = _written(texts, spelling)
        network = {"kind": "whisper", "head": "decoder", "training_silence": 1}
        prompt = _prompt(hub_config, model, texts, language)
        network |= {"prompt": prompt} if prompt else {}
        frozen, rate, tuned = _upper_half(hub_config, model)
        train[-1] += "},"
        train += [
            f"freeze: [{', '.join(frozen)}], rates: {{decoder: 0.3}},",
            f"model: {flow_mapping(network)},",
            f"epochs: {_epochs(texts, 16, 6, 120)}, batch_size: 16, learning_rate: {rate}, warm_up_steps: 10,",
            "evaluate_epochs: 2",
        ]
        how = f"{tuned}, which writes {written}"
    else:
        # Batches of a minute have about 15 utterances.
        convert = spelling.settings
        epochs = f"epochs: {_epochs(texts, 15, 12, 300)}, batch_seconds: 60, warm_up_steps: 50, learning_rate:"
        if kind == "whisper":
            train[-1] += ", head_epochs: 4}, freeze: [encoder/convolutions], rates: {encoder: 0.05},"
            train += ["model: {kind: whisper},", f"{epochs} 0.001"]
            how = "its encoder, with a new output layer, which is trained first: it has no tokenizer.json"
        elif kind == "parakeet_ctc":
            train[-1] += "},"
            train += ["model: {kind: fastconformer},", f"{epochs} 1.0e-4"]
            how = "all of it, with its tokenizer"
        else:
            pretrained = not files.get("head", True)
            train[-1] += (", head_epochs: 2" if pretrained else "") + "}, freeze: [convolutions],"
            train += ["model: {kind: wav2vec2},", f"{epochs} 5.0e-5"]
            new = ", with a new output layer, which is trained first" if pretrained else ""
            how = f"all of it but its convolutions{new}"

    if network.get("pooling") != "utterance" and _fits_a_graph(hub_config, model):
        train[-1] += ","
        train.append("export: {onnx: float32}")
    features = {"whisper": "whisper", "parakeet_ctc": "nemo_mel"}.get(kind, "waveform")
    spelled = spelling.findings if convert == spelling.settings else []
    return TuningConfig(model, convert, {"kind": features}, train, [note, how], spelled)


def _find(parent: str) -> tuple[str, str, Mapping[str, Any], dict[str, bool], str]:
    """The value of `train.start.model`, the model's kind, its config.json, which parts it has, and a line about it."""
    from voxline.families.asr.public_parents import public_config

    folder = Path(parent).expanduser()
    if not parent.startswith(HUB_SCHEME) and is_hub_location(str(folder)):
        location = str(folder.absolute())
        public_config(location)  # refuses another network
        model = open_hub_model(location, SETTING, weights=True)
        architectures = model.config.get("architectures") or ["ForCTC"]
        files = {"tokenizer": (folder / "tokenizer.json").is_file(), "head": str(architectures[0]).endswith("ForCTC")}
        return location, str(model.config["model_type"]), model.config, files, f"{model.label}, a folder"

    # A name on the Hub, with its commit or without. A path that is mistyped is none.
    name, _, commit = parent.removeprefix(HUB_SCHEME).partition("@")
    first = name.rpartition("/")[2].partition("-")[0]
    is_path = not parent.startswith(HUB_SCHEME) and "/" in parent and folder.parent.is_dir()
    if is_path or not _NAME.fullmatch(name) or ("/" not in name and first not in OWNERS):
        raise SettingsError(
            f"{SETTING} {parent!r}: neither a folder with config.json nor a short name, such as whisper-tiny.en, "
            "wav2vec2-base-960h or parakeet-ctc-0.6b; hf://owner/name@commit is accepted too"
        )
    if "/" not in name:
        name = f"{OWNERS[first]}/{name}"
    commit = commit or todays_commit(name)
    location = f"{HUB_SCHEME}{name}@{commit or COMMIT}"
    kind = KINDS.get(first, "wav2vec2" if first in OWNERS else "")
    if not commit:
        _require_kind(kind, name)
        return location, kind, {}, {}, (
            f"{name}; the Hub does not answer here, so write its commit in place of {COMMIT} "
            f"(https://huggingface.co/{name}/commits/main)"
        )  # fmt: skip
    try:
        public_config(location)
        model = open_hub_model(location, SETTING, weights=False)
    except TransientError:
        _require_kind(kind, name)
        return location, kind, {}, {}, f"{name} at {commit[:8]}, which is not on this machine: its name tells its kind"
    architectures = model.config.get("architectures") or ["ForCTC"]
    files = {"head": str(architectures[0]).endswith("ForCTC")}
    return location, str(model.config["model_type"]), model.config, files, f"{model.label} (licence: {model.licence})"


def _upper_half(hub_config: Mapping[str, Any], model: str) -> tuple[list[str], str, str]:
    """The parts of a Whisper that are frozen, the learning rate, and what is tuned, in words.

    A room and a microphone change what the upper blocks of the encoder hear, and its lower ones still fit; the decoder
    alone learns the spelling of a corpus, and then its texts by heart. The rate is a 15th of the one that the model was
    trained with.
    """
    size = model.rpartition("/")[2].removeprefix("whisper-").partition("@")[0].partition("-")[0].partition(".")[0]
    blocks, units = WHISPER_SIZES.get(size, (0, 0))
    if hub_config:
        blocks = int(hub_config["encoder_layers"])
        units = int(hub_config["d_model"])
    nearest = min(WHISPER_RATES, key=lambda known: abs(known - units)) if units else max(WHISPER_RATES)
    rate = f"{WHISPER_RATES[nearest] / 15:.1e}"

    decoder = ["decoder/embedding", "decoder/positions"]
    if blocks < 2:
        return ["encoder", *decoder], rate, "its decoder"
    lower = f"encoder/blocks/0-{blocks // 2 - 1}" if blocks > 3 else "encoder/blocks/0"
    frozen = ["encoder/positions", "encoder/convolutions", lower, *decoder]
    return frozen, rate, "the upper half of its encoder, and its decoder"


def _fits_a_graph(hub_config: Mapping[str, Any], model: str) -> bool:
    """Whether the weights fit a file of ONNX, which has 2 GB at most; by the model's name, where no more is known."""
    if not hub_config:
        return not _LARGE.search(model.rpartition("/")[2])
    encoder = hub_config.get("encoder_config", hub_config)
    sizes = [
        ("d_model", "hidden_size"),
        ("encoder_layers", "num_hidden_layers"),
        ("encoder_ffn_dim", "intermediate_size"),
    ]
    units, layers, inner = (int(encoder.get(first, encoder.get(second, 0))) for first, second in sizes)

    # Four matrices of attention, two of a feed-forward layer; a Conformer has two of these, and convolutions.
    is_conformer = "encoder_config" in hub_config
    block = (7 if is_conformer else 4) * units**2 + (4 if is_conformer else 2) * units * inner
    return 4 * layers * block < 0.9 * LARGEST_FILE


def _require_kind(kind: str, name: str) -> None:
    if not kind:
        raise SettingsError(
            f"{SETTING} {name}: the Hub does not answer here, and the name does not tell which network it is; give a "
            "folder of it"
        )


def _written(texts: Sequence[str], spelling: Spelling) -> tuple[dict[str, Any], str]:
    """The section convert for a model that writes any text, and what it will write, in words."""
    characters = {character for text in texts for character in unicodedata.normalize("NFC", text)}
    cased = any(character != character.lower() for character in characters) and any(
        character != character.upper() for character in characters
    )
    marks = any(unicodedata.category(character).startswith("P") and character not in "'’-" for character in characters)
    if cased or marks:
        return {"frontend": {"kind": "as_is"}, "alphabet": "".join(sorted({" ", *characters} - {"\n", "\t", "\r"}))}, (
            "capitals and punctuation as the transcripts have them"
        )
    return spelling.settings, "words alone, as the transcripts do"


def _prompt(hub_config: Mapping[str, Any], model: str, texts: Sequence[str], language: str) -> dict[str, str]:
    """The prompt of a Whisper of several languages; {} of an English-only one."""
    several = int(hub_config["vocab_size"]) > ENGLISH_TOKENS if hub_config else ".en@" not in model
    if not several:
        if language not in ("", "en"):
            raise SettingsError(
                f"--language {language}: {model} knows English alone; leave it out, or name another model"
            )
        return {}
    letters = {character for text in texts for character in text if character.isalpha()}
    if not language and is_mandarin(letters):
        language = "zh"
    elif not language and letters and all(letter.isascii() for letter in letters):
        language = "en"
    if not language:
        raise SettingsError(f"{model} knows many languages; give --language, such as --language de")
    return {"language": language, "task": "transcribe"}


def _epochs(texts: Sequence[str], batch: int, least: int, steps: int) -> int:
    """Passes over 70% of the utterances, which are left to train on: so many that there are some hundreds of steps."""
    return max(least, min(60, math.ceil(steps / max(1, 0.7 * len(texts) / batch))))


def flow_mapping(values: Mapping[str, Any]) -> str:
    """A mapping in one line of YAML.

    >>> flow_mapping({"kind": "whisper", "prompt": {"language": "de"}, "alphabet": " a'b"})
    "{kind: whisper, prompt: {language: de}, alphabet: ' a''b'}"
    """
    parts = []
    for key, value in values.items():
        text = flow_mapping(value) if isinstance(value, Mapping) else _scalar(value)
        parts.append(f"{key}: {text}")
    return f"{{{', '.join(parts)}}}"


def _scalar(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def quoted(text: str) -> str:
    """A text as a value of YAML, in quotes unless it is a plain word or path.

    >>> quoted("data/a-b.c"), quoted("on"), quoted(".5"), quoted("it's")
    ('data/a-b.c', "'on'", "'.5'", "'it''s'")
    """
    # Some plain words, such as `on` and `.5`, are other values of YAML.
    plain = re.fullmatch(r"[A-Za-z_/.][A-Za-z0-9_./-]*", text) and yaml.safe_load(text) == text
    return text if plain else "'" + text.replace("'", "''") + "'"

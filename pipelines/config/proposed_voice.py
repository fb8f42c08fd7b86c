"""The configs of `voxline config init` for models that make speech: a voice, and the vocoder that it speaks through.

A model begins with random weights, or with those of a public one (`--parent`), whose rate, texts and sizes it has then.
Both read the same recordings in the same way, so that a voice can ship its vocoder. The sizes of the networks and the
steps planned are those of `configs/tts/phrases.yaml` and `configs/vocoder/demo.yaml`, which docs/voices.md and
docs/vocoders.md measure.
"""

import dataclasses
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.audio.feature_settings import FeatureSettings
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.splits import assign_splits
from voxline.errors import SettingsError
from voxline.families.asr.tuning_config import flow_mapping, quoted
from voxline.families.tts.family import FRONTEND_ALPHABETS
from voxline.families.tts.published_tacotron2 import is_tacotron2, open_tacotron2
from voxline.families.tts.settings import TtsPushSettings, TtsTrainSettings
from voxline.families.tts.speakers import name_speakers
from voxline.families.tts.vits.parents import is_public_voice, open_public_voice
from voxline.families.tts.vits.settings import VitsSettings
from voxline.families.vocoder.parents import is_public_vocoder, open_public_vocoder
from voxline.families.vocoder.settings import VocoderTrainSettings
from voxline.inference.tensorflow_import import has_accelerator_driver
from voxline.pipelines.config.corpus_look import CorpusLook
from voxline.registry.hub import HUB_SCHEME
from voxline.registry.parents import Parent
from voxline.settings import Settings
from voxline.text.alphabet import Alphabet, is_ideograph
from voxline.text.frontend import apply_frontend
from voxline.text.settings import FrontendKind, FrontendSettings

VOICES = ("tts", "vocoder")
"""The pipelines whose configs are here."""
FRONTENDS: dict[str, FrontendKind] = {"en": "english_phonemes", "zh": "mandarin"}
"""Language → the frontend of its texts; any other language is read by its letters."""
HIGHEST_RATE = 24_000
"""Hz; recordings of a higher rate become 22,050 Hz."""
STEPS = {"tts": 2_000, "vocoder": 1_800}
"""Training steps planned at least. A generated voice of 359 words needed 1,504, and a vocoder 1,800."""
EPOCHS = {"tts": 8, "vocoder": 12}
"""Passes over the training split at least."""
EVALUATED = 500
"""Steps between validations."""
BATCH = {"tts": 16, "vocoder": 4}
TUNED_STEPS = 2_500
"""Of a public VITS, with those in which its posterior encoder learns (`vits.posterior_steps`): one that had learned in
200 aligned even the voice's own speech a frame off, and the words were lost."""
TUNED_BATCH = 8
TUNED_RATE = "1.0e-04"
"""Learning rate of a public Tacotron 2 or vocoder: its weights are good already."""
TESTED = 40
"""Utterances to test on, if there are enough; half as many are for dev."""
MCD_SPREAD = 0.5
"""dB that is assumed: how much the distortion of one text differs between two voices, as a standard deviation."""
FEW_TESTED = 20
"""Utterances of test below which the default margin of the distortion is narrower than what they show."""
TEXTS_TRIED = 300
"""Texts that are read by the frontend; of more, some from all over the corpus."""
_PINYIN = re.compile(r"[a-zü:]+[1-5]")


@dataclasses.dataclass(frozen=True)
class VoiceProposal:
    """The parts of a config, and what was found.

    Attributes:
      split, convert: values of `corpus.split` and of `convert`.
      lines: YAML of the sections after them.
      findings: lines for the terminal.
      lost: utterances whose text cannot be read.
      steps: of the training.
      validated: utterances in all of its validations.
    """

    split: dict[str, Any]
    convert: dict[str, Any]
    lines: list[str]
    findings: list[str]
    lost: int
    steps: int
    validated: int


@dataclasses.dataclass(frozen=True)
class PublicModel:
    """A public voice or vocoder, as far as a config repeats it.

    Attributes:
      name: with its licence, for the terminal.
      location: for `train.start.model`.
      kind: of network.
      convert: the keys about text; a vocoder has none.
      features: of `extract`.
      model: of `train.model`: what differs from the defaults.
    """

    name: str
    location: str
    kind: str
    sample_rate: int
    convert: dict[str, Any]
    features: dict[str, Any]
    model: dict[str, Any]


def open_parent(parent: str, look: CorpusLook, pipeline: str = "tts") -> PublicModel:
    """Reads a public voice or vocoder for a config that tunes it.

    Args:
      pipeline: tts or vocoder.

    Raises:
      SettingsError: the pipeline trains no such model, or it does not exist.
      TransientError: the Hub cannot be reached.
      WorkError: a file of it is damaged.
    """
    if pipeline == "vocoder":
        if not is_public_vocoder(parent):
            raise SettingsError(
                f"--parent {parent}: a HiFi-GAN or a WaveGlow is accepted, as its authors have it: a folder with "
                "config.json and model.safetensors, or hf://owner/name@commit"
            )
        return _public_model(open_public_vocoder(parent), parent, {})
    if is_public_voice(parent):
        return _public_vits(open_public_voice(parent), parent, look)
    if is_tacotron2(parent):
        voice = open_tacotron2(parent)
        return _public_model(voice, parent, {"frontend": {"kind": voice.info.frontend["kind"]}})
    raise SettingsError(
        f"--parent {parent}: a Piper voice is accepted (NAME.onnx with NAME.onnx.json beside it), a VITS of "
        "the Hub (hf://owner/name@commit), and a Tacotron 2 of NVIDIA's (a folder with config.json and "
        "model.safetensors)"
    )


def _public_vits(voice: Parent, parent: str, look: CorpusLook) -> PublicModel:
    info = voice.info
    sizes = VitsSettings.of(info.settings["model"])

    # Rows of speakers follow from a corpus of several; that of one keeps the table, and tunes the first row.
    table = ("speakers", "speaker_units", "speaker") if look.speakers > 1 else ()
    plain = VitsSettings().plain()
    changed = {key: value for key, value in sizes.plain().items() if value != plain[key] and key not in table}

    # Phonemes of its language, or the letters that it knows.
    kept = ("kind", "language") if info.frontend["kind"] == "phonemes" else ("kind",)
    frontend = {key: info.frontend[key] for key in kept}
    letters = {} if frontend["kind"] == "phonemes" else {"alphabet": info.alphabet}
    features = {"mels": 80, **{key: round(info.features[key], 10) for key in ("hop_seconds", "window_seconds")}}
    model = _public_model(voice, parent, {"frontend": frontend, **letters})
    return dataclasses.replace(model, features=features, model={"kind": info.kind, **changed})


def _public_model(model: Parent, parent: str, convert: dict[str, Any]) -> PublicModel:
    info = model.info
    features = FeatureSettings.of(info.features).key_values()
    features.pop("sample_rate", None)  # convert's
    train: type[Settings] = VocoderTrainSettings if info.family == "vocoder" else TtsTrainSettings
    sizes = train.of({"model": info.model_settings}).key_values().get("model", {})
    licence = f" ({model.ancestor.licence})" if model.ancestor.licence else ""
    return PublicModel(
        f"{model.ancestor.name}{licence}",
        parent if parent.startswith(HUB_SCHEME) else str(Path(parent).absolute()),
        info.kind,
        info.sample_rate,
        convert,
        {"mels": info.features["mels"], **features},
        {"kind": info.kind} | sizes,
    )


def propose_voice(pipeline: str, look: CorpusLook, language: str = "", parent: str = "") -> VoiceProposal:
    """Proposes a config for a voice, or for a vocoder of its recordings.

    Args:
      pipeline: tts or vocoder.
      language: of the texts, such as en, zh or it; empty: by their letters, or the parent's.
      parent: a public voice or vocoder to tune; empty: random weights.

    Raises:
      SettingsError, TransientError, WorkError: as `open_parent`.
    """
    public = open_parent(parent, look, pipeline) if parent else None

    # Rates up to that of published voices are kept; 80 mels show little of higher ones.
    count = len(look.entries)
    rate = look.sample_rate if look.sample_rate <= HIGHEST_RATE else 22_050
    texts = [*look.texts, *look.further_texts]
    text, read_as = _text(texts, language)
    if public:
        rate = public.sample_rate
    if public and public.convert:
        text = public.convert
        read_as = f"as the parent reads it: {flow_mapping(text['frontend'])}"
    lost, warnings = _warn_of_texts(texts, text)

    # A voice needs few utterances to be judged by, and all others to learn from. Dev has half of what test has.
    test = 0.0 if look.has_test else min(0.2, max(0.02, round(TESTED / count, 3)))
    dev = round(test / 2, 4)
    held_out = "the corpus' own" if look.has_test else f"{round(test * count):,} utterances to test"

    # So many steps as a network of this size needs, however few utterances there are.
    is_vits = public is not None and public.kind == "vits"
    batch = TUNED_BATCH if is_vits else BATCH[pipeline]
    in_epoch = max(1, math.floor((0.85 if look.has_test else 1 - test - dev) * count / batch))
    least = TUNED_STEPS if is_vits else STEPS[pipeline]
    epochs = max(EPOCHS[pipeline], math.ceil(least / in_epoch))
    if public:
        train = _tuned_vits(public, epochs, batch) if is_vits else _tuned(public, epochs, batch)
        features = flow_mapping(public.features)
    else:
        train = _voice(epochs, batch) if pipeline == "tts" else _vocoder(epochs, batch, rate)
        features = _features(rate)
    rare = "the parent knows them" if public else "few texts have a rare sound"
    lenient = bool(public) or count < 1_000
    validate = [f"validate: {{unseen_characters: {{severity: warning}}}}  # {rare}"] * lenient
    gate, finding = _gate(round(test * count), look) if pipeline == "tts" else ([], [])

    steps = epochs * in_epoch
    # The terminal shows the same kinds of lines for each pipeline.
    findings = [
        f"split      {held_out}",
        *([f"parent     {public.name}"] if public else []),
        f"text       {read_as}",
        f"sound      {rate:,} Hz, 80 mels, quiet ends cut off",
        f"training   {epochs:,} epochs, about {steps:,} steps{'' if look.complete else ' or more'}",
        *(
            [f"warning    {count:,} utterances are too few for train, dev and test: add recordings"]
            if count < 3
            else []
        ),
        *(_tell_speakers(look, public.kind if public else "fastspeech") if pipeline == "tts" else []),
        *warnings,
        *finding,
    ]
    return VoiceProposal(
        split={} if look.has_test else {"by": "utterance", "test": test, "dev": dev},
        convert={"sample_rate": rate, **text, "trim_db": 40},
        lines=[*validate, f"extract: {{features: {features}}}", *train, *gate],
        findings=findings,
        lost=lost,
        # The graph of a VITS takes longer to build than a few of its steps.
        steps=0 if public else steps,
        validated=math.ceil(steps / EVALUATED) * round(dev * count),
    )


def _voice(epochs: int, batch: int) -> list[str]:
    # FastSpeech in place of a Tacotron: it cannot skip or repeat a word, and has an ONNX graph.
    return [
        f"train: {{epochs: {epochs}, batch_size: {batch}, learning_rate: 0.003, warm_up_steps: 100,",
        "  model: {kind: fastspeech, channels: 160, hidden: 480, encoder_layers: 3, decoder_layers: 4, kernel: 7},",
        f"  evaluate_steps: {EVALUATED}, export: {{onnx: float32}}}}  # speaks without TensorFlow",
    ]


def _tuned_vits(public: PublicModel, epochs: int, batch: int) -> list[str]:
    # What the exported voice does not keep is smaller where a CPU trains it.
    width = "" if has_accelerator_driver() else "width: 0.25, "
    small = "" if has_accelerator_driver() else "posterior_layers: 8, "
    judges = f"discriminators: {{{width}start_step: 1000}}"
    model = flow_mapping(public.model)
    return [
        f"train: {{epochs: {epochs}, batch_size: {batch}, evaluate_steps: {EVALUATED},",
        f"  start: {{model: {quoted(public.location)}, rate_share: 1.0}},",
        f"  model: {model},  # the parent's",
        # First the posterior encoder alone, then the voice by mels, then before discriminators.
        f"  vits: {{{small}posterior_steps: 700, posterior_rate: 1.0e-03, {judges}}},",
        # Else both learn from recordings that a young posterior encoder aligns, and the speech loses its words.
        "  freeze: [encoder/blocks, encoder/statistics, durations], rates: {encoder: 0.01},",
        "  export: {onnx: float32}}  # speaks without TensorFlow",
    ]


def _tuned(public: PublicModel, epochs: int, batch: int) -> list[str]:
    """The section train for a Tacotron 2 or a vocoder."""
    frames = _segment_frames(public.features["hop_seconds"])
    segments = "" if public.kind == "tacotron2" else f"segment_frames: {frames}, "
    # The vocoder's discriminators were not published: random ones first make a good one worse.
    loss = "loss: {bands: 2, estoi: 1}, " if public.kind == "hifigan" else ""
    onnx = "none" if public.kind == "waveglow" else "float32"
    return [
        f"train: {{epochs: {epochs}, batch_size: {batch}, {segments}learning_rate: {TUNED_RATE}, "
        f"evaluate_steps: {EVALUATED},",
        f"  start: {{model: {quoted(public.location)}, rate_share: 1.0}},",
        f"  model: {flow_mapping(public.model)},  # the parent's",
        f"  {loss}export: {{onnx: {onnx}}}}}",
    ]


def _segment_frames(hop_seconds: float) -> int:
    """Frames of 0.6 seconds or a little more, of which ESTOI compares at least 0.4."""
    return 16 * math.ceil(0.6 / hop_seconds / 16)


def _vocoder(epochs: int, batch: int, rate: int) -> list[str]:
    _, hop = _window_and_hop(rate)
    frames = _segment_frames(hop)
    return [
        f"train: {{epochs: {epochs}, batch_size: {batch}, segment_frames: {frames}, learning_rate: 0.002,",
        f"  final_rate_share: 0.02, evaluate_steps: {EVALUATED}, model: {{kind: vocos}}, loss: {{bands: 2, estoi: 1}},",
        "  export: {onnx: float32}}  # speaks without TensorFlow",
    ]


def _features(rate: int) -> str:
    """Windows of 50 ms, or of the 1,024 samples that voices of 22,050 Hz and more have."""
    window, hop = _window_and_hop(rate)
    return (
        f"{{mels: 80, window_seconds: {window}, hop_seconds: {hop}, fft_size: 1024, spectrum: magnitude, "
        "log_floor: 1.0e-5}"
    )


def _window_and_hop(rate: int) -> tuple[float, float]:
    # 1,024 samples are the longest window that a transform of this size takes.
    return (0.05, 0.0125) if rate <= 20_480 else (round(1024 / rate, 7), round(256 / rate, 7))


def _text(texts: Sequence[str], language: str) -> tuple[dict[str, Any], str]:
    """The keys of `convert` about text, and in words how texts are read."""
    # Hanzi, then pinyin with a tone behind each syllable, then any letters.
    letters = Counter(character for text in texts for character in text if character.isalpha())
    hanzi = sum(times for letter, times in letters.items() if is_ideograph(letter))
    words = " ".join(texts).lower().split()
    pinyin = words and sum(bool(_PINYIN.fullmatch(word.strip(".,;:!?"))) for word in words) > 0.9 * len(words)

    if language in ("", "zh") and hanzi > letters.total() / 2:
        return {"frontend": {"kind": FRONTENDS["zh"]}}, "Mandarin: hanzi become pinyin with tones (mandarin)"
    if language in ("", "zh") and pinyin:
        return {"frontend": {"kind": "pinyin"}}, "Mandarin in pinyin with tones (pinyin)"
    if language == "en" or (not language and all(letter.isascii() for letter in letters)):
        guessed = "" if language else "; of another language, give --language, such as --language it"
        return {"frontend": {"kind": FRONTENDS["en"]}}, f"English phonemes (english_phonemes){guessed}"

    # Of other languages a voice learns the letters, capitals and marks as the transcripts have them.
    symbols = Counter(character for text in texts for character in set(unicodedata.normalize("NFC", text)))
    alphabet = "".join(sorted({" ", *(symbol for symbol in symbols if symbol.isprintable())}))
    return {
        "frontend": {"kind": "as_is"},
        "alphabet": alphabet,
    }, f"letters as they are (as_is), {len(alphabet)} symbols"


def _warn_of_texts(texts: Sequence[str], convert: dict[str, Any]) -> tuple[int, list[str]]:
    """Counts the texts that the frontend cannot read, and warns of them and of letters too rare to be learned."""
    settings = FrontendSettings.of(convert["frontend"])
    alphabet = Alphabet.from_name(convert.get("alphabet") or FRONTEND_ALPHABETS[settings.kind])
    # Each text by the frontend that convert will call; some of many, since espeak-ng takes a millisecond each.
    tried = texts[:: max(1, len(texts) // TEXTS_TRIED)][:TEXTS_TRIED]
    faults: list[str] = []
    for text in tried:
        try:
            unknown = alphabet.unknown(apply_frontend(text, settings).symbols)
        except ValueError as error:
            faults.append(f"{text!r}: {error}")
        else:
            faults += [f"{text!r}: {unknown} is not in the alphabet"] if unknown else []

    # A few rejects are normal; a frontend of another language rejects most of a corpus.
    lines = []
    if faults:
        share = f"{len(faults) / len(tried):.1%}"
        lines.append(f"warning    {share} of the texts cannot be read and become rejects, such as {faults[0]}")
    # Of letters as they are, each must be heard some times, and a digit has no sound of its own.
    if settings.kind == "as_is":
        used = Counter(symbol for text in texts for symbol in set(text) if symbol != " ")
        if rare := [symbol for symbol, times in sorted(used.items()) if times < 3]:
            lines.append(f"warning    in fewer than 3 texts, too few to learn their sound: {' '.join(rare[:20])}")
        if any(symbol.isdigit() for symbol in used):
            lines.append("warning    texts have digits, which nothing spells out in this language: write them as words")
    return math.ceil(len(faults) / len(tried) * len(texts)), lines


def _tell_speakers(look: CorpusLook, kind: str) -> list[str]:
    """Whom a voice of a kind of network speaks as; a vocoder has no input for the speaker, and needs none."""
    # Those whom it learns from: of the corpus' own split, train's.
    splits = {entry.split for entry in look.entries} if look.has_test else set()
    becomes = assign_splits(splits, lambda: iter(()), CorpusSettings()).by_corpus_split
    learned = [entry for entry in look.entries if becomes.get(entry.split, "train") == "train"]
    times = Counter(entry.speaker for entry in learned)
    times.pop("", None)
    if len(times) < 2:
        return []
    if kind == "tacotron2":
        return [
            f"warning    {len(times):,} speakers, and a Tacotron 2 makes one voice of all: give the recordings of one, "
            "or leave out --parent: a FastSpeech speaks as each"
        ]

    entries = len(look.entries)
    (most, most_times), *_, (least, least_times) = times.most_common()
    of_train = " to train on" if look.has_test else ""
    lines = [
        f"speakers   {len(times):,}, and the voice speaks as each of them: {most} has {most_times:,} of "
        f"{len(learned):,} utterances{of_train}, {least} {least_times:,}"
    ]
    one_voice = f"set train.{kind}.speakers to one, which makes one voice of all"
    if nobodys := sum(not entry.speaker for entry in look.entries):
        lines.append(
            f"warning    {nobodys:,} of {entries:,} utterances name no speaker, and train refuses them beside others: "
            f"name who speaks, or {one_voice}"
        )
    if strangers := sorted({entry.speaker for entry in look.entries if entry.speaker} - times.keys()):
        among = "" if look.complete else f" among the first {entries:,} utterances"
        lines.append(
            f"warning    {len(strangers):,} speakers of dev and test are not in train{among}, and train refuses them: "
            f"{name_speakers(strangers)}; split each speaker's utterances (corpus.split.by: utterance), or {one_voice}"
        )
    return lines


def _gate(tested: int, look: CorpusLook) -> tuple[list[str], list[str]]:
    """The margin of the mel cepstral distortion that so many utterances can show, and what is said of it.

    No margin is written where that of the default is wide enough.
    """
    heard = "no recognizer hears the voice; name one in evaluate.round_trip_recognizer or public_recognizer"
    if look.has_test or tested >= FEW_TESTED:
        return [], [f"gate       {heard}"]

    # The upper bound of a mean of n differences, at 95%, with no difference at all.
    default = TtsPushSettings().max_regression["mcd"]
    margin = max(default, math.ceil(100 * 1.65 * MCD_SPREAD / math.sqrt(max(tested, 1))) / 100)
    finding = f"{tested:,} test utterances: a new voice may be {margin:g} dB worse (push.max_regression.mcd)"
    line = f"push: {{max_regression: {{mcd: {margin:g}}}}}  # dB; less with more test utterances"
    return [line], [f"gate       {finding}; {heard}"]

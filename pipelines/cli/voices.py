"""`voxline voices`: train a converter of voices on a dataset, measure it, and listen to it."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from voxline.errors import SettingsError
from voxline.inference.voice_converter import STRENGTH
from voxline.pipelines.cli.options import AsJson, Assignments, CommandGroup, exit_on_signal, machine_path

voice_commands = CommandGroup(help="Convert speech to other voices: the same words.", no_args_is_help=True)

DatasetFolder = Annotated[str, typer.Argument(metavar="DATASET", help="A dataset: folder or URI of extract's output.")]
Strength = Annotated[float, typer.Option(min=0, max=4, help="Of what is changed; 0.5 is that of training.")]
Model = Annotated[Path, typer.Argument(parser=machine_path, metavar="MODEL", help="An exported converter.")]


@voice_commands.command("train")
def train(
    dataset: DatasetFolder,
    store: Annotated[str, typer.Option(help="Store of all step outputs, a folder or URI.")],
    set_: Assignments = None,
) -> None:
    """Train a converter of voices on a dataset; it resumes.

    The dataset is that of a recognizer (log_mel), up to extract. Its manifest must have the attributes.

    \b
    Example:
      voxline run asr -c digits.yaml --until extract
      voxline voices train runs/store/extract/0f3c --store runs/store --set 'attributes=[{field: sex}]'
    """
    from voxline.components.train.step import run
    from voxline.families.conversion.settings import ConversionTrainSettings
    from voxline.pipelines.config.load import apply_assignments

    # A converter has no pipeline: it is no service with a gate, so its one step is run by itself.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    settings = ConversionTrainSettings.of(apply_assignments({}, set_ or [])[0], "--set")
    with exit_on_signal("run the same command to resume"):
        output = run(dataset, store, settings)
    typer.echo(output.path("model"))


@voice_commands.command("convert")
def convert(
    model: Model,
    recordings: Annotated[
        list[Path], typer.Argument(parser=machine_path, metavar="AUDIO...", help="Recordings, of any format.")
    ],
    to: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="An attribute, such as sex=F; others stay. Repeatable.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", parser=machine_path, metavar="FOLDER", help="For the WAVs, by stem.")
    ],
    strength: Strength = STRENGTH,
    as_json: AsJson = False,
) -> None:
    """Convert recordings to another voice: the same words.

    Prints what the classifier reads before and after. Waveforms are made by Griffin-Lim.

    \b
    Example:
      voxline voices convert runs/digits/model seven.wav --to sex=F -o converted
    """
    import numpy as np

    from voxline.audio.features import compute_features
    from voxline.audio.griffin_lim import features_to_waveform
    from voxline.audio.wav import write_wav
    from voxline.inference.voice_converter import VoiceConverter
    from voxline.inference.waveforms import read_waveform

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    pairs = [_attribute(argument) for argument in to]
    attributes = dict(pairs)
    if len(attributes) < len(pairs):
        raise SettingsError("--to names an attribute twice; it has one value")

    # Outputs are named by stems alone: none may replace another one, a recording or a file of an earlier call.
    stems = [recording.stem for recording in recordings]
    if repeated := sorted({stem for stem in stems if stems.count(stem) > 1}):
        raise SettingsError(f"two recordings are called {repeated[0]}; convert them to different folders")
    if any((output / f"{recording.stem}.wav").resolve() == recording.resolve() for recording in recordings):
        raise SettingsError(f"--output {output}: a recording would be replaced; choose another folder")
    if existing := [file for stem in stems if (file := output / f"{stem}.wav").exists()]:
        raise SettingsError(f"--output {output}: {existing[0].name} is there already; choose another folder")

    converter = VoiceConverter(model)
    output.mkdir(parents=True, exist_ok=True)
    for recording in recordings:
        samples = read_waveform(recording, converter.features.sample_rate)
        mels = compute_features(samples, converter.features).astype(np.float32)  # [frames, mels]
        converted_mels = converter.convert(mels, attributes, strength)

        # Griffin-Lim may exceed full scale by a little.
        file = output / f"{recording.stem}.wav"
        waveform = features_to_waveform(converted_mels, converter.features)
        write_wav(file, np.clip(waveform, -1, 1), converter.features.sample_rate)

        # Attribute → value → probability, by the classifier that learned from recordings.
        before = converter.read(mels)
        after = converter.read(converted_mels)
        if as_json:
            typer.echo(json.dumps({"file": str(file), "before": before, "after": after}, ensure_ascii=False))
            continue
        verdicts = [
            f"{name} {_likeliest(before[name])} → {_likeliest(after[name])} ({max(after[name].values()):.0%})"
            for name in after
        ]
        typer.echo(f"{file}  {', '.join(verdicts)}")


@voice_commands.command("evaluate")
def evaluate(
    model: Model,
    dataset: DatasetFolder,
    recognizer: Annotated[str, typer.Option(help="An exported ASR model, or <registry>/<model>, that listens.")] = "",
    split: Annotated[str, typer.Option(help="Of the dataset.")] = "test",
    strength: Strength = STRENGTH,
    as_json: AsJson = False,
) -> None:
    """Measure whether the wanted voice and the words are heard.

    \b
    Example:
      voxline voices evaluate runs/digits/model runs/store/extract/0f3c --recognizer runs/demo/registry/asr
    """
    from voxline.families.conversion.evaluate import evaluate_conversion
    from voxline.inference.recognizer import Recognizer
    from voxline.inference.voice_converter import VoiceConverter
    from voxline.registry.models import find_model

    # Greedily: a language model would guess words that are no longer heard.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    listener = Recognizer(find_model(recognizer), language_model=False) if recognizer else None
    shares = evaluate_conversion(VoiceConverter(model), dataset, split, listener, strength)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(share) for share in shares]))
        return
    for share in shares:
        typer.echo(
            f"{share.name:<32} {share.value:>6.1%}  {share.low:.1%} to {share.high:.1%}  {share.count:,} utterances"
        )


def _attribute(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise SettingsError(f"--to {text}: NAME=VALUE is accepted, such as sex=F")
    return name, value


def _likeliest(probabilities: dict[str, float]) -> str:
    return max(probabilities, key=probabilities.__getitem__)

"""The commands of models: transcribe, synthesize, and what a registry holds. They parse, call and print."""

import os
import unicodedata
from pathlib import Path
from typing import Annotated, Any

import typer

from voxline.errors import SettingsError
from voxline.pipelines.cli import datasets
from voxline.pipelines.cli.alignment import align
from voxline.pipelines.cli.options import AsJson, CommandGroup, Denoiser, Pauses, Sigma, machine_path
from voxline.pipelines.cli.publishing import export_model, push_model_to_hub
from voxline.pipelines.cli.serve import serve, show_canary, verify_models

RegistryDir = Annotated[
    str, typer.Option("--registry", metavar="LOCATION", help="Folder or URI of the registry, with <model>/<version>/.")
]


def add_model_commands(app: typer.Typer) -> None:
    """Adds the commands to the `voxline` command."""
    app.command()(transcribe)
    app.command()(align)
    app.command()(synthesize)
    app.command("time")(time_stages)
    app.command()(serve)
    models = CommandGroup(help="List, show, promote and roll back models of a registry.", no_args_is_help=True)
    models.command("list")(show_models)
    models.command("show")(show_model)
    models.command("promote")(promote_model)
    models.command("rollback")(roll_back_model)
    models.command("verify")(verify_models)
    models.command("recover")(recover_model)
    models.command("export")(export_model)
    models.command("import")(import_checkpoint)
    models.command("enrol")(enrol_person)
    models.command("push-to-hub")(push_model_to_hub)
    models.command("canary")(show_canary)
    models.command("rollout")(roll_out_model)
    models.command("anchor")(anchor_model)
    models.command("serving-config")(show_serving_config)
    models.command("trained-on")(datasets.show_training_data)

    # `voxline models --help` lists them in this order: to look, to decide, then the rarer ones.
    app.add_typer(models, name="models")


def transcribe(
    audio: Annotated[
        list[Path],
        typer.Argument(
            parser=machine_path,
            metavar="AUDIO",
            help="Recordings of any format and sample rate, folders of them, or - for stdin.",
        ),
    ],
    model: Annotated[
        str, typer.Option(help="An exported model, or <registry>/<model>, with @candidate or @7 for another version.")
    ],
    as_json: AsJson = False,
    language_model: Annotated[
        bool,
        typer.Option("--language-model/--no-language-model", help="Use the model's own, if it has one."),
    ] = True,
    hot_words: Annotated[
        list[str] | None,
        typer.Option(
            "--hot-words", metavar="WORDS", help="Words to expect, such as 'anna peter' or anna:12 (default: 8)."
        ),
    ] = None,
    n_best: Annotated[
        int, typer.Option("--n-best", min=1, max=1000, help="Alternatives of each transcript, in --json.")
    ] = 1,
    beams: Annotated[
        int,
        typer.Option("--beams", min=1, max=100, help="Texts that a model with a decoder follows; 1: greedy."),
    ] = 1,
    pauses: Pauses = "level",
    itn: Annotated[
        str,
        typer.Option("--itn", metavar="LANGUAGE", help="Inverse text normalization: 7:30, $3.50, 12 km. en or zh."),
    ] = "",
    punctuate: Annotated[bool, typer.Option("--punctuate", help="Full stops at pauses, and capitals.")] = False,
    max_seconds: Annotated[
        float, typer.Option(min=1, help="Longest recording, in seconds; its decoder's memory grows with it.")
    ] = 14_400.0,
    stream: Annotated[
        bool, typer.Option("--stream", help="Transcribe 16-bit PCM at the model's rate from stdin while it arrives.")
    ] = False,
    endpoint_ms: Annotated[
        float, typer.Option(min=1, help="With --stream: a line ends after so many milliseconds of silence.")
    ] = 700.0,
) -> None:
    """Transcribe recordings, one line each.

    One file gives its text; several, or a folder, give "file TAB text". --json gives an object a line: file, text,
    seconds, confidence, words (word, start, end, confidence), note; with --n-best alternatives (text, confidence). A
    file that cannot be read is named on stderr, and the others are transcribed; the exit status is then 1.

    \b
    Examples:
      voxline transcribe a.flac b.mp3 --model runs/demo/registry/asr
      voxline transcribe recordings --json --model runs/demo/registry/asr
      voxline transcribe a.flac --model runs/demo/registry/asr --itn en --punctuate
      voxline transcribe a.flac --model runs/demo/registry/asr --hot-words "anna peter" --n-best 3 --json
      arecord -f S16_LE -r 16000 -t raw | voxline transcribe --stream - --model runs/live/registry/asr
    """
    from voxline.inference.written_transcript import WritingChoices
    from voxline.pipelines.cli.transcription import DecodingChoices, transcribe_files, transcribe_stream
    from voxline.registry.models import find_model

    _silence_tensorflow()
    writing = WritingChoices(itn, punctuate)
    if n_best > 1 and not as_json:
        raise SettingsError("--n-best: alternatives are written as JSON; add --json")

    # The model is looked up after the recordings were checked: one in a bucket is downloaded then.
    decoding = DecodingChoices(language_model, tuple(hot_words or ()), n_best, beams, pauses)
    if stream:
        if [str(path) for path in audio] != ["-"]:
            raise SettingsError("--stream: standard input is transcribed while it arrives; give - as the recording")
        transcribe_stream(
            lambda: find_model(model), as_json=as_json, endpoint_ms=endpoint_ms, decoding=decoding, writing=writing
        )
    elif not transcribe_files(
        audio, lambda: find_model(model), as_json=as_json, decoding=decoding, writing=writing, max_seconds=max_seconds
    ):
        raise typer.Exit(1)


def synthesize(
    model: Annotated[str, typer.Option(help="An exported TTS model, a registry's version, or <registry>/<model>.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            parser=machine_path,
            help="The file to write: .wav, .mp3, .m4a, .ogg, .opus, .webm or .flac; of several texts a folder.",
        ),
    ],
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="The text, or SSML; - reads standard input.", show_default=False),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts", metavar="FILE", parser=machine_path, help="A file with one text a line, or - for stdin."
        ),
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Of the files in a folder: mp3, flac, and so on.  [default: wav]")
    ] = None,
    vocoder: Annotated[
        str,
        typer.Option(help="An exported vocoder, or <registry>/<model>.  [default: the voice's own, or Griffin-Lim]"),
    ] = "",
    sigma: Sigma = None,
    denoiser: Denoiser = None,
    iterations: Annotated[
        int | None,
        typer.Option(help="Of Griffin-Lim.  [default: the voice's own]", show_default=False, min=0, max=1_000),
    ] = None,
    symbol_seconds: Annotated[
        tuple[float, float],
        typer.Option(metavar="FROM TO", help="Least and most seconds a symbol; other speech is not whole."),
    ] = (0.02, 0.3),
    speaker: Annotated[
        str, typer.Option(help="Who speaks, of a voice of several.  [default: as the voice was exported]")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Synthesize texts to WAV or compressed files.

    A text is cut at its sentences, and the pieces are joined with a pause. One that begins with <speak> is SSML: break,
    prosody rate, phoneme, sub, p and s.

    Several texts, or a file of them, become <output>/0001.wav, 0002.wav and so on. A text that cannot be spoken is
    named on stderr, and the others are spoken; the exit status is then 1. The same command, repeated, keeps the files
    of texts that have not changed. --json gives an object a line: text, file, status, seconds, pieces, reason, error.

    \b
    Examples:
      voxline synthesize "3 1 4" --model runs/demo-tts/registry/digits -o out.wav
      voxline synthesize "3 1 4" --model runs/demo-tts/registry/digits --vocoder runs/demo-tts/registry/vocoder -o a.wav
      voxline synthesize "3 1 4" --model runs/demo-tts/registry/digits --iterations 200 -o a.wav
      voxline synthesize "<speak>3 <break time='1s'/> 1 4</speak>" --model runs/demo-tts/registry/digits -o out.wav
      voxline synthesize --texts prompts.txt --model runs/demo-tts/registry/digits -o prompts --format mp3 --json
    """
    from voxline.pipelines.cli import synthesis
    from voxline.registry.models import find_model

    _silence_tensorflow()
    if not (text or texts) or (text and texts):
        raise SettingsError("give a TEXT, or several, or --texts FILE with one text a line")
    many = texts is not None or len(text or ()) > 1
    if format_ is not None and not many:
        raise SettingsError("--format is of the files in a folder; the name of --output says the format of one text")

    # The output is checked before the texts are read: standard input may be a person who types.
    extension = f".{(format_ or 'wav').lower().removeprefix('.')}"
    if many:
        synthesis.check_output_folder(output, extension)
    else:
        synthesis.check_output(output)
    if texts:
        lines = synthesis.read_texts(texts)
    else:
        lines = [synthesis.read_text_argument(argument) for argument in text or ()]

    model_folder = find_model(model)
    vocoder_folder = find_model(vocoder) if vocoder else None
    sound: dict[str, Any] = {} if iterations is None else {"iterations": iterations}
    if sigma is not None or denoiser is not None:
        from voxline.inference.vocoder import Sampling

        sound["sampling"] = Sampling(sigma, denoiser)
    # Only where it is asked for: it is in the key by which files are kept.
    if symbol_seconds != (0.02, 0.3):
        from voxline.inference.pace import Pace

        sound["pace"] = Pace(*symbol_seconds)
    if speaker:
        sound["speaker"] = unicodedata.normalize("NFC", speaker)
    if not many:
        _print(synthesis.synthesize_to_file(output, lines[0], model_folder, vocoder_folder, as_json=as_json, **sound))
    elif not synthesis.synthesize_many(
        output, lines, extension, model_folder, vocoder_folder, as_json=as_json, **sound
    ):
        raise typer.Exit(1)


def time_stages(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An exported model, or <registry>/<model>.")],
    text: Annotated[str, typer.Option(help="A voice's text.  [default: that of its evaluation]")] = "",
    audio: Annotated[
        Path | None,
        typer.Option(parser=machine_path, help="A recording.  [default: the evaluation's clip, or noise]"),
    ] = None,
    length: Annotated[
        float | None,
        typer.Option(min=0.1, help="Symbols of the text, or seconds of audio; repeated.  [default: 166, or 10 s]"),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=4096, help="Texts or recordings at a time.")] = 1,
    iterations: Annotated[int, typer.Option(min=1, max=1_000_000, help="How often.")] = 14,
    vocoder: Annotated[str, typer.Option(help="For a voice: an exported vocoder, or <registry>/<model>.")] = "",
    sigma: Sigma = None,
    denoiser: Denoiser = None,
    engine: Annotated[str, typer.Option(help="What runs the network: auto, onnx or tensorflow.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Time the stages of a voice, a recognizer or a vocoder.

    Items a second, mean, deviation and percentiles, in the arithmetic that the model was exported in. taskset -c 0 in
    front of it times one core.

    \b
    Examples:
      voxline time runs/demo-tts/registry/digits --vocoder runs/demo-tts/registry/vocoder
      taskset -c 0 voxline time runs/demo/registry/asr --length 5 --batch 8 --json
    """
    import json
    from typing import get_args

    from voxline.inference.onnx_model import Engine
    from voxline.inference.timing import TimingInput, format_timing, time_model
    from voxline.inference.vocoder import Sampling
    from voxline.registry.models import find_model
    from voxline.registry.registry import EVALUATION

    _silence_tensorflow()
    if engine not in get_args(Engine):
        raise SettingsError(f"--engine is {engine!r}; {', '.join(get_args(Engine))} are accepted")
    model_folder = find_model(model)
    vocoder_folder = find_model(vocoder) if vocoder else None

    # A version in a registry has its evaluation beside it, with a text or a clip that is typical of its use.
    evaluation = model_folder / EVALUATION
    timing_input = TimingInput(text, audio, length, batch, iterations, evaluation if evaluation.is_dir() else None)
    measured = time_model(
        model_folder,
        timing_input,
        vocoder=vocoder_folder,
        engine=engine,  # type: ignore[arg-type]
        sampling=Sampling(sigma, denoiser),
    )
    _print([json.dumps(measured)] if as_json else format_timing(measured))


def show_models(registry: RegistryDir) -> None:
    """List the models and the versions in service.

    Example: voxline models list --registry runs/demo/registry
    """
    from voxline.pipelines.cli.model_views import format_models

    _print(format_models(registry))


def show_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    registry: RegistryDir,
    version: Annotated[
        int | None, typer.Argument(metavar="VERSION", help="Show the details of one version.", show_default=False)
    ] = None,
) -> None:
    """Show a model's history, or one version.

    Example: voxline models show asr 1 --registry runs/demo/registry
    """
    from voxline.pipelines.cli.model_views import format_journal, format_model_version

    _print(format_journal(registry, model) if version is None else format_model_version(registry, model, version))


def roll_out_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    registry: RegistryDir,
    percent: Annotated[int, typer.Option(help="Share of the traffic: 100 promotes the version, 0 sends all back.")],
    version: Annotated[str, typer.Option(help="The version, or candidate.")] = "production",
    name: Annotated[str, typer.Option(help="Of the InferenceService.  [default: the model's name]")] = "",
    namespace: Annotated[str, typer.Option(help="Of the InferenceService.")] = "voxline",
    storage: Annotated[str, typer.Option(help="The registry as pods see it.")] = "pvc://voxline-registry",
) -> None:
    """Print KServe manifests for a share of the traffic.

    KServe sends the rest to the version that last had everything. To go back, print the same version with --percent 0.

    \b
    Examples:
      voxline models rollout asr --registry /mnt/registry --percent 10 | kubectl apply -f -
      voxline models rollout asr --registry /mnt/registry --percent 100 | kubectl apply -f -
    """
    from voxline.notify.kserve import manifest_text, serving_objects
    from voxline.notify.settings import KserveSettings
    from voxline.registry.registry import Registry

    settings = KserveSettings.of({"name": name, "namespace": namespace, "storage": storage}, "rollout")

    # The digest is among the annotations, so that a person sees which model a pod should have.
    versions = Registry(registry, model)
    number = versions.resolve(version)
    digest = versions.event(number).digest
    typer.echo(manifest_text(serving_objects(model, number, digest, settings, percent)), nl=False)


def promote_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    registry: RegistryDir,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The version.")] = "candidate",
    alias: Annotated[str, typer.Option("--to", help="What it becomes: production or candidate.")] = "production",
    note: Annotated[str, typer.Option(help="The reason, for the journal.")] = "",
) -> None:
    """Put a version into service, or name it the candidate.

    The gate, serving and transcribe follow the version in service. Its files stay as they are, and the journal records
    the reason. To take a bad version out, use rollback: it gives the older model a new number.

    \b
    Examples:
      voxline models promote asr --registry runs/demo/registry
      voxline models promote asr 7 --registry runs/demo/registry --note "listened to by Mara"
    """
    from voxline.pipelines.cli.model_views import promote

    typer.echo(promote(registry, model, version, alias, note))


def enrol_person(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The voice's name.")],
    recording: Annotated[
        Path, typer.Argument(parser=machine_path, metavar="RECORDING", help="Ten seconds of the person, or more.")
    ],
    registry: RegistryDir,
    speaker: Annotated[str, typer.Option(help="A pseudonym for the person, never a name.")],
    consent: Annotated[str, typer.Option(help="yes: and the terms that they agreed to, such as yes:voice-terms-2026.")],
    encoder: Annotated[
        Path, typer.Option(parser=machine_path, metavar="FILE", help="The wheel of train.fastspeech.speaker_encoder.")
    ],
    version: Annotated[str, typer.Option(help="The version that gets them.")] = "production",
) -> None:
    """Add a person who agreed to a voice.

    Ten seconds of theirs are enough, and nothing is trained. The voice must have been trained with
    train.fastspeech.speaker_encoder. The new version is a candidate that was not judged; it records the terms and the
    time, and voxline datasets purge finds it by the pseudonym.

    \b
    Examples:
      voxline models enrol family p-7.wav --registry registry --speaker p-7 --consent yes:voice-terms-2026 \\
        --encoder Resemblyzer-0.1.4-py3-none-any.whl
    """
    from voxline.pipelines.cli.enrolment import enrol

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for line in enrol(registry, model, version, speaker=speaker, recording=recording, encoder=encoder, consent=consent):
        typer.echo(line)


def import_checkpoint(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="hf://owner/name@commit, a folder as the Hub has it, a Piper voice's .onnx, or the prefix of a "
            "checkpoint of DeepSpeech.",
        ),
    ],
    registry: Annotated[
        str, typer.Option("--registry", metavar="LOCATION", help="Registry that a public model goes into.")
    ] = "",
    name: Annotated[str, typer.Option(help="Its name there.")] = "",
    test: Annotated[
        str, typer.Option("--test", metavar="LOCATION", help="Manifest with a test split that judges it.")
    ] = "",
    store: Annotated[
        str, typer.Option(metavar="LOCATION", help="Store that keeps the evaluation.  [default: none]")
    ] = "",
    language: Annotated[str, typer.Option(help="Of a Whisper of several languages, such as en.")] = "",
    onnx: Annotated[
        str, typer.Option(help="ONNX graphs beside the SavedModel: none, float32 or int8, as train.export.onnx.")
    ] = "none",
    precision: Annotated[
        str, typer.Option(help="Of the SavedModel, for GPUs: float32, mixed_bfloat16 or mixed_float16.")
    ] = "float32",
    speaker: Annotated[int, typer.Option(min=0, help="Of a voice of several, by its number.")] = 0,
    alphabet: Annotated[
        Path | None, typer.Option(parser=machine_path, metavar="FILE", help="DeepSpeech's data/alphabet.txt.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", parser=machine_path, metavar="FILE", help="The checkpoint's .safetensors."),
    ] = None,
    forget_bias: Annotated[float, typer.Option(help="What DeepSpeech's LSTM adds to its forget gate.")] = 0.0,
) -> None:
    """Put a public model into a registry as it is.

    With --test the gate judges a recognizer or a vocoder, and it goes into production; without, it is a candidate that
    was not judged, as a voice always is: Piper's, a VITS as the Hub has it, or NVIDIA's Tacotron 2. Vocoders are
    HiFi-GAN and WaveGlow by their authors' config.json.
    A checkpoint of Mozilla DeepSpeech 0.7 to 0.9 is converted to a file that train.start.model takes. Nothing is
    unpickled.

    \b
    Examples:
      voxline models import hf://nvidia/parakeet-ctc-0.6b@COMMIT --registry runs/demo/registry --name asr
      voxline models import en_US-joe-medium.onnx --registry registry --name joe --onnx float32
      voxline models import best_dev-1466475 --alphabet alphabet.txt -o deepspeech.safetensors
    """
    from voxline.families.asr.published_weights import convert_checkpoint
    from voxline.families.tts.vits.piper import is_piper_voice
    from voxline.pipelines.cli.public_models import import_public_model
    from voxline.registry.hub import is_hub_location

    _silence_tensorflow()
    # Options of the other kind would do nothing, so both refuse them.
    if is_hub_location(model) or is_piper_voice(model) or registry or name:
        if not registry or not name:
            raise SettingsError(f"{model}: a public model goes into a registry; give --registry and --name")
        if alphabet or output:
            raise SettingsError(f"{model}: --alphabet and -o are for checkpoints of DeepSpeech; leave them out")
        lines, passed = import_public_model(
            model,
            registry,
            name,
            test=test,
            store=store,
            language=language,
            onnx=onnx,
            precision=precision,
            speaker=speaker,
        )
        _print(lines)
        raise typer.Exit(0 if passed else 1)

    # A checkpoint becomes a file, which nothing judges.
    of_public_models = {"--test": test, "--store": store, "--language": language, "--onnx": onnx.replace("none", "")}
    of_public_models["--precision"] = precision.replace("float32", "")
    if unused := [option for option, value in of_public_models.items() if value]:
        raise SettingsError(
            f"{model}: {', '.join(unused)} is for public models alone; give --registry and --name, or leave it out"
        )
    if alphabet is None or output is None:
        raise SettingsError(f"{model}: no folder of a public model; a checkpoint of DeepSpeech needs --alphabet and -o")
    path = convert_checkpoint(machine_path(model), alphabet, output, forget_bias)
    typer.echo(f"{path} ({path.stat().st_size:,} bytes)")


def show_serving_config(
    registry: RegistryDir,
    at: Annotated[str, typer.Option(help="The registry's folder as the server sees it, if it is another.")] = "",
) -> None:
    """Print what TensorFlow Serving is to load.

    Every push, promotion and rollback writes the same to <registry>/models.config, which a server follows with
    --model_config_file and --model_config_file_poll_wait_seconds; --at is for one that mounts the registry elsewhere.

    Example: voxline models serving-config --registry runs/demo/registry --at /mnt/registry
    """
    from voxline.registry.models_config import models_config

    typer.echo(models_config(registry, at), nl=False)


def roll_back_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    registry: RegistryDir,
    to: Annotated[int | None, typer.Option(help="The version.  [default: the one before]")] = None,
    note: Annotated[str, typer.Option(help="The reason, for the journal.")] = "",
) -> None:
    """Put an older version back into service.

    It gets a new number, and the journal records the reason.

    Example: voxline models rollback asr --to 1 --registry runs/demo/registry --note "worse on names"
    """
    from voxline.pipelines.cli.model_views import roll_back

    typer.echo(roll_back(registry, model, to, note))


def recover_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    registry: RegistryDir,
    production: Annotated[
        int | None, typer.Option(help="The version that is in production.  [required]", show_default=False)
    ] = None,
    candidate: Annotated[
        int | None, typer.Option(help="The version that waits to be promoted.  [default: none]", show_default=False)
    ] = None,
    note: Annotated[str, typer.Option(help="The reason, for the journal.")] = "",
) -> None:
    """Rebuild a journal that was lost or damaged.

    Each version says how it was published. Promotions are in the journal alone, so name the version in production;
    without it, this command shows what is known. The damaged file stays beside the new one.

    \b
    Examples:
      voxline models recover asr --registry runs/demo/registry
      voxline models recover asr --production 2 --registry runs/demo/registry --note "restored backup"
    """
    from voxline.pipelines.cli.model_views import recover

    _print(recover(registry, model, production, candidate, note))


def anchor_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    registry: RegistryDir,
    version: Annotated[int | None, typer.Option(help="Name this version.", show_default=False)] = None,
    best: Annotated[bool, typer.Option("--best", help="Go back to the best version so far.")] = False,
    note: Annotated[str, typer.Option(help="The reason, kept in the registry.")] = "",
) -> None:
    """Show or name the anchor that new versions are held to.

    It is a version that new ones are compared with, as with the one in service, so that margins cannot add up.

    Example: voxline models anchor asr --best --registry runs/demo/registry
    """
    from voxline.pipelines.cli.model_views import format_anchor, set_anchor

    if best and version is not None:
        raise SettingsError("--best and --version exclude each other; give one of them")

    # Without an option the command only shows; `version` is None for --best, which takes a named anchor back.
    if best or version is not None:
        set_anchor(registry, model, version, note)
    typer.echo(format_anchor(registry, model))


def _silence_tensorflow() -> None:
    """Hides TensorFlow's notes on missing GPUs, unless the user has set a level."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _print(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)

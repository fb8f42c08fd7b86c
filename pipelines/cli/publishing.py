"""The commands that give a model to others: another form of it, a folder for other programs, the Hugging Face Hub."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from voxline.errors import SettingsError
from voxline.pipelines.cli.options import Denoiser, Sigma, machine_path


def push_model_to_hub(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="An exported model, or <registry>/<model>, with @7 or @candidate.")
    ],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="On the Hub; created if it is new.")],
    form: Annotated[
        str,
        typer.Option("--as", metavar="FORM", help="voxline: the exported model, of any family; or transformers."),
    ] = "voxline",
    public: Annotated[bool, typer.Option("--public", help="A new repository is open to all, not private.")] = False,
    over: Annotated[
        str, typer.Option("--over", metavar="COMMIT", help="A commit that others made, which you have seen.")
    ] = "",
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", parser=machine_path, help="Of its runs: push.licences hold here too."),
    ] = None,
    language: Annotated[str, typer.Option(help="For the card, by ISO 639, such as en.")] = "",
    note: Annotated[str, typer.Option(help="The commit's message.  [default: the model and its version]")] = "",
) -> None:
    """Upload a model to the Hugging Face Hub, with its card.

    The token is that of `hf auth login`, or of HF_TOKEN. A new repository is private. The newest commit there must be
    the one that the model's registry pushed last; any other is overwritten with --over alone. The registry records the
    commit. Weights go as model.safetensors too.

    \b
    Examples:
      voxline models push-to-hub runs/demo/registry/asr OWNER/digits
      voxline models push-to-hub runs/demo/registry/asr@7 OWNER/digits --public -c configs/asr/people.yaml
      voxline models push-to-hub registry/asr OWNER/digits-whisper --as transformers
    """
    from voxline.pipelines.hub import push_model

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # its notes on missing GPUs
    pushed = push_model(
        model,
        repository,
        form=form,
        public=public,
        over=over,
        config=config or (),
        language=language,
        note=note,
    )
    typer.echo(f"{pushed.location} ({pushed.files} files, {pushed.size:,} bytes)")
    # Who pushes answers for them: the Hub shows the card's one name alone.
    for source, names in pushed.licences.items():
        typer.echo(f"  licence of {source}: {', '.join(names)}")


def export_model(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="An exported model, or <registry>/<model>, with @7 or @candidate.")
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="For other programs: hub, sherpa-onnx, piper or tfma.")
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", parser=machine_path, metavar="FOLDER", help="That does not exist yet."),
    ] = None,
    onnx: Annotated[str | None, typer.Option(help="ONNX graphs: none, float32 or int8.", show_default=False)] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Of the SavedModel, for GPUs: float32, mixed_bfloat16 or mixed_float16.", show_default=False),
    ] = None,
    streaming: Annotated[
        bool | None, typer.Option("--streaming/--no-streaming", help="A recognizer's graph for audio that arrives.")
    ] = None,
    vocoder: Annotated[
        str | None, typer.Option(help="A voice's, such as vocoder@3 of its registry.", show_default=False)
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Of a voice's Griffin-Lim.", show_default=False, min=0, max=1_000)
    ] = None,
    sigma: Sigma = None,
    denoiser: Denoiser = None,
    language: Annotated[str, typer.Option(help="For the card of --to hub, by ISO 639, such as en.")] = "",
    test: Annotated[
        str, typer.Option("--test", metavar="LOCATION", help="Manifest with a test split that judges it.")
    ] = "",
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", parser=machine_path, help="Of its runs: how it is measured and judged."),
    ] = None,
    store: Annotated[
        str, typer.Option(metavar="LOCATION", help="Store that keeps the evaluation.  [default: none]")
    ] = "",
) -> None:
    """Export a model in another form, or for other programs.

    Nothing is trained. --onnx, --precision and the options after them are settings of train.export; others stay as the
    model has them. With --test the gate judges the new form, and it becomes a version of the model's registry; with -o
    it becomes a folder.

    --to hub: a folder that transformers loads, with a card, of networks that public models have: Whisper with its
    decoder, wav2vec 2.0 and its kin, FastConformer. Nothing is uploaded: `models push-to-hub` does that.

    --to sherpa-onnx: files that it loads as a model of Whisper or as one of Omnilingual ASR, and decodes greedily.

    --to piper: a VITS that reads phonemes, as piper-tts and sherpa-onnx load it.

    --to tfma: the evaluation that a version was pushed with, and what TensorFlow Model Analysis says of its thresholds.

    \b
    Examples:
      voxline models export runs/demo/registry/asr@1 --onnx int8 --test runs/demo/store/convert/KEY/manifest.jsonl
      voxline models export runs/waveglow/registry/vocoder --denoiser 0.05 -o vocoder-0.05
      voxline models export runs/demo/registry/asr --to hub -o asr-hub
      voxline models export runs/demo/registry/asr --to sherpa-onnx -o asr-sherpa
      voxline models export registry/joe@candidate --to piper -o joe-piper
      voxline models export runs/demo/registry/asr@2 --to tfma -o asr-tfma
      sherpa-onnx-offline --omnilingual-asr-model=asr-sherpa/model.onnx --tokens=asr-sherpa/tokens.txt a.wav
    """
    from voxline.inference.model_info import ATTENTION
    from voxline.inference.saved_model import read_model_info
    from voxline.registry.models import find_model

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    form = {
        "export.onnx": onnx,
        "export.precision": precision,
        "export.streaming": streaming,
        "export.vocoder": vocoder,
        "griffin_lim.iterations": iterations,
        "model.sampling_sigma": sigma,
        "model.denoiser": denoiser,
    }
    changes = {key: value for key, value in form.items() if value is not None}

    if language and to != "hub":
        raise SettingsError("--language is for the card that --to hub writes; leave it out")

    # A form of our own: what is not given stays as the model has it.
    if not to:
        if not changes:
            raise SettingsError(
                "give --to hub, sherpa-onnx, piper or tfma, or the form to export: --onnx int8, --streaming, ..."
            )
        if (output is None) == (not test):
            raise SettingsError("give --test, so that the gate decides and the registry gets the model, or -o FOLDER")
        from voxline.pipelines.cli.exports import export_in_form

        lines, passed = export_in_form(model, changes, output=output, test=test, store=store, config=config or ())
        typer.echo("\n".join(lines))
        raise typer.Exit(0 if passed else 1)

    # A form for others: it has no settings of ours, and their programs judge it.
    if to not in ("hub", "sherpa-onnx", "piper", "tfma"):
        raise SettingsError(f"--to {to}: accepted: hub, sherpa-onnx, piper, tfma")
    if changes or test or config or output is None:
        raise SettingsError(f"--to {to}: takes -o FOLDER alone; other options are for a form of our own, without --to")
    folder = find_model(model)
    if to == "hub":
        from voxline.families.asr.hub_export import export_to_hub

        export: Callable[[Path, Path], list[Path]] = functools.partial(export_to_hub, language=language)
    elif to == "piper":
        from voxline.families.tts.vits.export import export_to_piper as export
    elif to == "tfma":
        from voxline.components.push.model_analysis import export_version_to_tfma as export
    elif read_model_info(folder).kind == ATTENTION:
        from voxline.families.asr.sherpa_whisper import export_sherpa_whisper as export
    else:
        from voxline.inference.sherpa_onnx import export_sherpa_onnx as export
    for file in export(folder, output):
        typer.echo(f"{file} ({file.stat().st_size:,} bytes)")

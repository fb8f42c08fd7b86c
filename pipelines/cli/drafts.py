"""`voxline corpus label`: models draft the transcripts of recordings without one. It parses, calls and prints."""

import os
from pathlib import Path
from typing import Annotated

import typer

from voxline.pipelines.cli.options import AsJson, Pauses, exit_on_signal, machine_path


def draft_transcripts(
    audio: Annotated[
        Path,
        typer.Argument(
            parser=machine_path, metavar="AUDIO", help="Folder of recordings; or a manifest whose lines have no text."
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help="Writes the drafts: an exported model, or <registry>/<model>, with @candidate or @7 for another one."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", parser=machine_path, metavar="FOLDER", help="The corpus of drafts."),
    ],
    second: Annotated[
        str,
        typer.Option(
            help="What must agree: another model; noise: the same one in noise; decoding: the same one with its other "
            "decoding, by a language model or by several texts of a decoder."
        ),
    ] = "noise",
    max_wer: Annotated[
        float, typer.Option(help="Largest word error rate between both drafts of a recording that is kept, 0 to 1.")
    ] = 0.1,
    min_confidence: Annotated[float, typer.Option(help="Smallest confidence of a draft that is kept, 0 to 1.")] = 0.0,
    noise_db: Annotated[float, typer.Option(help="Level of the noise below that of the recording, in dB.")] = 20.0,
    max_seconds: Annotated[float, typer.Option(help="Longest recording, in seconds; cut longer ones before.")] = 30.0,
    speakers_by_folder: Annotated[
        bool, typer.Option("--speakers-by-folder", help="The first folder of a recording's path is its speaker.")
    ] = False,
    pauses: Pauses = "level",
    as_json: AsJson = False,
) -> None:
    """Draft transcripts of recordings, to train on (corpus.pseudo).

    Each recording is heard twice, and the draft is kept where both agree. Writes a corpus, and rejects.jsonl with what
    was left out and why. The same command resumes, and hears further recordings alone; other bounds hear none again.

    \b
    Examples:
      voxline corpus label calls --model runs/demo/registry/asr -o corpora/drafts
      voxline corpus label calls --model runs/demo/registry/asr --second runs/demo/registry/asr@candidate -o drafts
    """
    import contextlib
    import dataclasses
    import json
    import sys

    from voxline.feedback.drafting import DECODING, NOISE, DraftSettings, draft_corpus
    from voxline.pipelines.cli.transcription import EXTENSIONS
    from voxline.registry.models import find_model

    # TensorFlow's notes on missing GPUs say nothing here.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # A model in a bucket is downloaded here, before the first recording is read.
    other = second if second in (NOISE, DECODING) else str(find_model(second))
    settings = DraftSettings(other, max_wer, min_confidence, noise_db, max_seconds, speakers_by_folder, pauses)
    with exit_on_signal("the same command resumes"), contextlib.ExitStack() as stack:
        if as_json:  # standard output is the document alone
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        counts = draft_corpus(audio, find_model(model), output, settings, EXTENSIONS)

    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(counts), ensure_ascii=False))
        return

    # What was left out matters as much as what was not.
    drafts = f"{counts.drafts:,} drafts by {counts.drafted_by}, {counts.seconds / 3600:,.2f} h"
    typer.echo(f"{output}: {drafts}; {counts.rejects:,} recordings left out (rejects.jsonl)")
    for line in counts.reasons:
        typer.echo(f"  {line}")
    if counts.drafts:
        typer.echo(f"To train on them too: --set corpus.pseudo.uri={output}")

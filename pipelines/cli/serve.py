"""The command that serves models, and the one that shows how a candidate does beside production."""

from pathlib import Path
from typing import Annotated, Any

import typer

from voxline.errors import WorkError
from voxline.pipelines.cli.options import AsJson, Pauses, machine_path


def serve(
    registry: Annotated[
        str, typer.Option(metavar="LOCATION", help="Folder or URI of the registry, with <model>/<version>/.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(help="A model to serve: asr, asr@candidate or asr@7. Repeatable.  [default: all ASR models]"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8080,
    api_key_file: Annotated[
        str,
        typer.Option(metavar="FILE", help="Lines name:token; a request needs a token. Read again when changed."),
    ] = "",
    allow_anonymous: Annotated[
        bool, typer.Option("--allow-anonymous", help="Let others reach a server without keys, behind a gateway.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name of this server, beside localhost, --host and IP addresses; *.example.org. Repeatable.",
        ),
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="A site whose pages may call: https://app.example.org. Repeatable."),
    ] = None,
    health_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port for /healthz and /metrics that answers whatever the load."),
    ] = None,
    follow: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks at the registry.")] = 5.0,
    verify_minutes: Annotated[
        float, typer.Option(min=0, help="Minutes between two checks of the served files; 0: none.")
    ] = 60.0,
    concurrency: Annotated[int, typer.Option(min=1, help="Recordings transcribed at a time.")] = 2,
    queue: Annotated[int, typer.Option(min=0, help="Further ones that wait; more are refused with 429.")] = 16,
    max_mb: Annotated[float, typer.Option(min=0.01, help="Largest recording, in MB.")] = 25.0,
    max_seconds: Annotated[float, typer.Option(min=1, help="Longest recording, in seconds.")] = 600.0,
    request_seconds: Annotated[
        float, typer.Option(min=1, help="Seconds from a whole request to its answer; then 503.")
    ] = 120.0,
    decode_seconds: Annotated[float, typer.Option(min=1, help="Seconds that decoding a recording may take.")] = 30.0,
    symbol_seconds: Annotated[
        tuple[float, float],
        typer.Option(metavar="FROM TO", help="Least and most seconds of speech a symbol; beyond: 500."),
    ] = (0.02, 0.3),
    pauses: Pauses = "level",
    streams: Annotated[int, typer.Option(min=0, help="Sessions on a WebSocket at a time.")] = 32,
    capture: Annotated[
        str, typer.Option(metavar="LOCATION", help="Folder or bucket URI for recordings of callers who agree.")
    ] = "",
    capture_share: Annotated[float, typer.Option(help="Share of those recordings to keep, 0 to 1.")] = 0.0,
    capture_days: Annotated[int, typer.Option(help="Days after which a kept recording is deleted.")] = 30,
    capture_gb: Annotated[float, typer.Option(help="Most GB to keep; further recordings are dropped.")] = 1.0,
    canary: Annotated[float, typer.Option(help="Share of requests and sessions for the candidate, 0 to 0.5.")] = 0.0,
    canary_margin: Annotated[
        float, typer.Option(help="By how much a share of requests may be worse; 0.02: 2%.")
    ] = 0.02,
    canary_alpha: Annotated[float, typer.Option(help="Probability of withdrawing one that is not worse.")] = 0.05,
    itn: Annotated[
        str,
        typer.Option("--itn", metavar="LANGUAGE", help="Inverse text normalization, en or zh, unless a request says."),
    ] = "",
    punctuate: Annotated[bool, typer.Option("--punctuate", help="Full stops at pauses, and capitals.")] = False,
    canary_promote: Annotated[bool, typer.Option("--canary-promote", help="Promote one that is not worse.")] = False,
) -> None:
    """Serve recognizers over HTTP, with OpenAI's routes.

    It follows the registry: a version that is promoted or rolled back to takes over without a lost request, and one
    whose bytes are not those that were judged does not. Where that one is in production at the start, the last intact
    version serves that was in production before. / is a page with a microphone and a text box. An address that others
    can reach needs --api-key-file, or --allow-anonymous behind a gateway. A recording is kept only with --capture and
    --capture-share, and if its request has the header x-voxline-consent: yes. With --canary the candidate answers a
    share of the requests; one that is worse is withdrawn.

    \b
    Examples:
      voxline serve --registry runs/demo/registry
      voxline serve --registry runs/demo/registry --host 0.0.0.0 --api-key-file keys --allowed-host asr.example.org
      curl -F model=asr -F file=@a.flac http://127.0.0.1:8080/v1/audio/transcriptions
    """
    from voxline.feedback.canary_state import CanarySettings
    from voxline.inference.pace import Pace
    from voxline.inference.written_transcript import WritingChoices
    from voxline.serving.access import AccessSettings
    from voxline.serving.capture import CaptureSettings
    from voxline.serving.limits import ServingLimits
    from voxline.serving.server import run_server

    # Options are grouped as the server takes them; MB and GB are decimal. Each settings class checks its own ranges.
    limits = ServingLimits(
        concurrency,
        queue,
        max_bytes=round(max_mb * 1e6),
        max_seconds=max_seconds,
        streams=streams,
        request_seconds=request_seconds,
        decode_seconds=decode_seconds,
        pace=Pace(*symbol_seconds),
    )
    captures = CaptureSettings(capture, capture_share, capture_days, capture_gb * 1e9)
    canary_settings = CanarySettings(canary, canary_margin, canary_alpha, canary_promote)
    access = AccessSettings(allowed_host or [], allowed_origin or [], api_key_file)
    run_server(
        registry,
        model or [],
        host,
        port,
        follow,
        limits,
        captures,
        canary_settings,
        verify_minutes,
        access,
        allow_anonymous,
        health_port,
        pauses,
        WritingChoices(itn, punctuate),
    )


def verify_models(
    registry: Annotated[str, typer.Option(metavar="LOCATION", help="Folder or bucket URI of the registry.")],
    to: Annotated[
        Path | None,
        typer.Option(
            parser=machine_path, metavar="FOLDER", help="Copy what is in service here, for TensorFlow Serving."
        ),
    ] = None,
    follow: Annotated[
        float, typer.Option(min=0, help="With --to: seconds between two looks at the registry; 0: one look.")
    ] = 0.0,
) -> None:
    """Verify the models of a registry.

    The digest of each version, its signature if a public key is configured, and the ops of its graph. With --to, the
    versions in service are copied to a folder, verified there, and named in its models.config: TensorFlow Serving
    checks nothing itself. It is no other command's folder.

    \b
    Examples:
      voxline models verify --registry runs/demo/registry
      voxline models verify --registry /mnt/registry --to /models --follow 30
    """
    import os

    from voxline.registry.models import model_names
    from voxline.registry.registry import Registry
    from voxline.registry.verified_copy import VerifiedCopy, verify_version

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

    # A copy for TensorFlow Serving: intact models are served although others are damaged.
    if to is not None:
        copy = VerifiedCopy(registry, to)
        if follow:
            copy.follow(follow)
        if not copy.update():
            raise WorkError(f"{registry}: no version can be served")
        return

    # Every version is looked at, so that one run of the command names all that are damaged.
    damaged = 0
    for model in model_names(registry):
        versions = Registry(registry, model)
        for version in versions.versions():
            try:
                verify_version(versions, version)
                typer.echo(f"{model}/{version}  verified")
            except WorkError as error:
                damaged += 1
                typer.echo(f"{model}/{version}  {error}")
    if damaged:
        raise WorkError(f"{registry}: {damaged} version{'s' * (damaged != 1)} cannot be served")


def show_canary(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    registry: Annotated[str, typer.Option(metavar="LOCATION", help="Folder or bucket URI of the registry.")],
    as_json: AsJson = False,
) -> None:
    """Show how the candidate does beside production.

    What all servers with --canary have counted, and the verdict: continue, promotable, or roll back.

    Example: voxline models canary asr --registry runs/demo/registry
    """
    import json

    from voxline.feedback.canary_state import describe_canary
    from voxline.registry.models import model_names

    if model not in model_names(registry):
        raise WorkError(f"{registry}: no model {model!r} here; voxline models list names them")
    canary = describe_canary(registry, model)
    for line in [json.dumps(canary, ensure_ascii=False)] if as_json else format_canary(canary):
        typer.echo(line)


def format_canary(canary: dict[str, Any]) -> list[str]:
    """The verdict on a candidate and a line for each measure.

    Args:
      canary: of `describe_canary`.
    """
    if canary["verdict"] == "none":
        last = canary["withdrawn"]
        before = f"; version {last['version']} was withdrawn at {last['at']}: {last['note']}" if last else ""
        return [f"{canary['model']}: no candidate{before}"]
    from voxline.feedback.canary_state import MEASURES

    lines = [
        f"{canary['model']}: {canary['verdict']}: version {canary['candidate']}, the candidate, beside version "
        f"{canary['production']}: {canary['of_candidate']:,} of {canary['requests']:,} requests, "
        f"{canary['servers']:,} server{'s' * (canary['servers'] != 1)}",
        f"{'':<26}{'production':>11}{'candidate':>11}{'worse':>9}{'safe':>9}   {canary['enough']:,.0f} is enough",
    ]

    # Shares of requests, then the evidence that the candidate is worse, and that it is safe; it may be astronomic.
    for name, measure in canary["measures"].items():
        arms = [f"{'-' if measure[arm] is None else f'{measure[arm]:.1%}':>11}" for arm in ("production", "candidate")]
        evidence = [f"{min(measure[kind], 1e6):>9.2f}" for kind in ("harm", "safe")]
        lines.append(f"{MEASURES[name]:<26}{''.join(arms + evidence)}")
    return [*lines, f"{'all together':<26}{'':>22}{min(canary['harm'], 1e6):>9.2f}   margin {canary['margin']:.1%}"]

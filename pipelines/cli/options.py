"""Options that several commands share, and what the commands of a cluster have in common."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voxline.errors import SettingsError
from voxline.pipelines.graph import PIPELINES

if TYPE_CHECKING:
    from voxline.pipelines.cluster.kfp_client import KfpServer
    from voxline.pipelines.config.run_config import RunConfig


def machine_path(text: str) -> Path:
    """Parses an option that takes a path of this machine: a URI would become a folder of that name."""
    from voxline.store.uris import check_local

    try:
        check_local(text)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None
    return Path(text)


Pipeline = Annotated[str, typer.Argument(help=f"The pipeline: {', '.join(PIPELINES)}.", metavar="PIPELINE")]
Config = Annotated[
    list[Path],
    typer.Option(
        "--config",
        "-c",
        parser=machine_path,
        metavar="FILE",
        help="Config, such as configs/asr/demo.yaml. Repeatable; later files override earlier ones.",
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a config value: --set train.epochs=3. Repeatable."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
RunDir = Annotated[
    Path | None,
    typer.Option(parser=machine_path, help="Folder of the run's record and report.  [default: runs/<name>]"),
]
Host = Annotated[
    str, typer.Option(help="URL of the KFP server.  [default: KF_PIPELINES_ENDPOINT, or the cluster's own]")
]
Namespace = Annotated[str, typer.Option(help="Namespace of the runs on a multi-user server.  [VOXLINE_KFP_NAMESPACE]")]
TokenFile = Annotated[str, typer.Option(help="File with a bearer token.  [VOXLINE_KFP_TOKEN(_FILE)]")]
Ca = Annotated[str, typer.Option("--ca", help="PEM file of the server's certificate authority.  [VOXLINE_KFP_CA]")]
Deadline = Annotated[float, typer.Option(min=1, help="Seconds to wait for one response, retries included.")]
Experiment = Annotated[str, typer.Option(help="Experiment of the run.")]
PipelineRoot = Annotated[str, typer.Option(help="Where the server keeps artifacts.  [default: the server's setting]")]
Run = Annotated[str, typer.Argument(help="Id or name of the run.", metavar="RUN")]


def connect(host: str, namespace: str, token_file: str, ca: str, deadline: float) -> "KfpServer":
    from voxline.pipelines.cluster.access import KfpEndpoint
    from voxline.pipelines.cluster.kfp_client import KfpServer

    access = KfpEndpoint.resolve(host=host, namespace=namespace, token_file=token_file, ca=ca, env=os.environ)
    return KfpServer(access, deadline=deadline)


def service_account(config: Any) -> str:
    return str(config.cluster.service_account) if hasattr(config, "cluster") else ""


def warn_unmounted_paths(config: "RunConfig") -> None:
    """Warns of paths that no pod sees: the run would start, and fail."""
    for line in config.unmounted_paths():
        typer.echo(f"voxline: {line}", err=True)


@contextlib.contextmanager
def exit_on_signal(next_step: str) -> Iterator[None]:
    """On Ctrl-C or SIGTERM ends this command but nothing on the cluster; the last line says what to do next."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except KeyboardInterrupt as interrupt:
        number = interrupt.args[0] if interrupt.args else signal.SIGINT
        typer.echo(f"voxline: stopped; {next_step}", err=True)
        sys.exit(128 + int(number))
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)

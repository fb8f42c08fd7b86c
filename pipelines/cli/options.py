"""What the commands of a cluster share: their options, the server that these lead to, and how they are stopped."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from voxline.pipelines.cluster.kfp_client import KfpServer
    from voxline.pipelines.config.run_config import RunConfig


Pipeline = Annotated[str, typer.Argument(help="Which graph: asr, tts or refresh.", metavar="PIPELINE")]
Config = Annotated[list[Path], typer.Option("--config", "-c", help="The run's YAML. Repeated: the later lies over.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Lays a value over the config. Repeatable.")
]
Host = Annotated[str, typer.Option(help="The KFP server.  [default: KF_PIPELINES_ENDPOINT, or that of the cluster]")]
Namespace = Annotated[str, typer.Option(help="Of the runs, on a server of several users.  [VOXLINE_KFP_NAMESPACE]")]
TokenFile = Annotated[str, typer.Option(help="File that holds a bearer token.  [VOXLINE_KFP_TOKEN(_FILE)]")]
Ca = Annotated[str, typer.Option("--ca", help="PEM file of the authority of the server.  [VOXLINE_KFP_CA]")]
Deadline = Annotated[float, typer.Option(min=1, help="Seconds that one answer may take, retries included.")]
Experiment = Annotated[str, typer.Option(help="The experiment that the run belongs to.")]
PipelineRoot = Annotated[str, typer.Option(help="Where the server keeps artifacts.  [default: its own]")]
Run = Annotated[str, typer.Argument(help="A run's id, or its name.", metavar="RUN")]


def connect(host: str, namespace: str, token_file: str, ca: str, deadline: float) -> "KfpServer":
    from voxline.pipelines.cluster.access import KfpEndpoint
    from voxline.pipelines.cluster.kfp_client import KfpServer

    access = KfpEndpoint.found(host=host, namespace=namespace, token_file=token_file, ca=ca, env=os.environ)
    return KfpServer(access, deadline=deadline)


def service_account(config: Any) -> str:
    return str(config.cluster.service_account) if hasattr(config, "cluster") else ""


def warn_unmounted_paths(config: "RunConfig") -> None:
    """Warns of paths that no pod sees: the run would start, and fail."""
    for line in config.unmounted_paths():
        typer.echo(f"voxline: {line}", err=True)


@contextlib.contextmanager
def exit_on_signal(what_now: str) -> Iterator[None]:
    """Ctrl-C and a polite kill end this command and nothing on the cluster; the last line says what goes on there."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except KeyboardInterrupt as interrupt:
        by = interrupt.args[0] if interrupt.args else signal.SIGINT
        typer.echo(f"voxline: stopped; {what_now}", err=True)
        sys.exit(128 + int(by))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Options that several commands share, and what the commands of a cluster have in common."""

import contextlib
import functools
import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from voxline.errors import SettingsError

if TYPE_CHECKING:
    from voxline.pipelines.cluster.access import KfpEndpoint
    from voxline.pipelines.cluster.kfp_client import KfpServer
    from voxline.pipelines.cluster.vertex import VertexProject
    from voxline.pipelines.config.run_config import RunConfig


Pauses = Annotated[
    str,
    typer.Option("--pauses", help="How pauses are found, at which long audio is cut: level, silero, off or FILE.onnx."),
]
"""Of what hears recordings; `voxline.inference.pauses.pause_finder` checks it."""
Sigma = Annotated[
    float | None,
    typer.Option(help="Of a WaveGlow's noise.  [default: its sampling_sigma]", show_default=False, min=0, max=10),
]
Denoiser = Annotated[
    float | None,
    typer.Option(help="Share of a WaveGlow's tone to subtract.  [default: its own]", show_default=False, min=0, max=10),
]
"""Of what speaks with a WaveGlow, and of its export."""

# Type of an option → the word for its value in help texts.
_VALUES = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "Path": "PATH"}


class _PlainCommand(TyperCommand):
    """Names arguments and values as our docs do: FOLDER and TEXT, not {FOLDER} and <list[str]>."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        for option in self.params:
            if isinstance(option, TyperOption) and not option.is_flag and option.metavar is None:
                option.metavar = _VALUES[re.sub(r"list\[(.+)\]", r"\1", option.bare_type())]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"\{(.+)\}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]


class CommandGroup(typer.Typer):
    """A group of commands with our usage lines."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": _PlainCommand, **options})


def machine_path(text: str) -> Path:
    """Parses an option that takes a path of this machine: a URI would become a folder of that name."""
    from voxline.store.uris import check_local

    try:
        check_local(text)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None
    return Path(text)


Pipeline = Annotated[
    str, typer.Argument(help="The pipeline: a family of models, such as asr or tts; or refresh.", metavar="PIPELINE")
]
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
Platform = Annotated[
    str, typer.Option(metavar="NAME", help="kfp: Kubeflow Pipelines on Kubernetes. vertex: Vertex AI Pipelines.")
]
Run = Annotated[str, typer.Argument(help="Id or name of the run.", metavar="RUN")]


@dataclass(frozen=True)
class Connection:
    """The user's options about the KFP server, which every command of a cluster takes."""

    host: str
    namespace: str
    token_file: str
    ca: str
    deadline: float

    def endpoint(self) -> "KfpEndpoint":
        from voxline.pipelines.cluster.access import KfpEndpoint

        return KfpEndpoint.resolve(
            host=self.host, namespace=self.namespace, token_file=self.token_file, ca=self.ca, env=os.environ
        )

    def given(self) -> dict[str, str]:
        """The options about the server that the user gave."""
        options = {"host": self.host, "namespace": self.namespace, "token_file": self.token_file, "ca": self.ca}
        return {name: value for name, value in options.items() if value}

    def open(self) -> "KfpServer":
        # The client is imported here, since most commands need none.
        from voxline.pipelines.cluster.kfp_client import KfpServer

        return KfpServer(self.endpoint(), deadline=self.deadline)


def takes_connection(deadline: float = 120) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates a command: its last parameter, `connection`, is replaced by the options of a `Connection`.

    Args:
      deadline: default of --deadline, in seconds.
    """
    options: dict[str, tuple[Any, Any]] = {
        "host": (Host, ""),
        "namespace": (Namespace, ""),
        "token_file": (TokenFile, ""),
        "ca": (Ca, ""),
        "deadline": (Deadline, deadline),
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(**values: Any) -> None:
            own_values = {name: value for name, value in values.items() if name not in options}
            command(**own_values, connection=Connection(**{name: values[name] for name in options}))

        # Typer reads the signature and the annotations of a command; both have the command's own parameters first, so
        # that its help lists the options of the connection last.
        signature = inspect.signature(command)
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in signature.parameters.items()
            if name != "connection"
        ]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in options.items()
        ]
        with_options.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *added]}
        return with_options

    return decorate


def check_platform(platform: str, **only_kfp: Any) -> bool:
    """Returns whether a command is for Vertex AI.

    Args:
      only_kfp: option → its value, falsy by default; Vertex AI has nothing like it.

    Raises:
      SettingsError: the platform is unknown, or Vertex AI does not have an option.
    """
    if platform not in ("kfp", "vertex"):
        raise SettingsError(f"--platform {platform!r}: accepted: kfp, vertex")

    # An option that would have no effect is refused: the user expects one.
    for option, value in only_kfp.items():
        if platform == "vertex" and value:
            raise SettingsError(f"--{option.replace('_', '-')}: not for --platform vertex; leave it out")
    return platform == "vertex"


def load_for_vertex(
    pipeline: str, files: list[Path], settings: list[str] | None, pipeline_root: str
) -> "tuple[RunConfig, VertexProject]":
    """The config of a command for Vertex AI, and where it goes."""
    from voxline.pipelines.cluster.vertex import VertexProject
    from voxline.pipelines.config.load import load_config

    # --pipeline-root stands for a setting here, so it overrides the files as --set does.
    root = [f"cluster.vertex.pipeline_root={pipeline_root}"] if pipeline_root else []
    config = load_config(files, [*(settings or []), *root], pipeline=pipeline)
    return config, VertexProject(**config.cluster.vertex.plain(), labels=config.cluster.labels)


@contextlib.contextmanager
def compiled_for_vertex(config: "RunConfig") -> Iterator[Path]:
    """A temporary file with the pipeline for Vertex AI; says which settings have no effect there."""
    import tempfile

    from voxline.pipelines.cluster.submit import CompiledPipeline
    from voxline.pipelines.cluster.vertex import check_config
    from voxline.store.scratch import scratch_root

    for line in check_config(config):
        typer.echo(f"voxline: {line}", err=True)

    # Vertex AI's client takes a file, and has read it when the block ends.
    with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_bytes(CompiledPipeline.of(config, platform="vertex").text)
        yield file


def service_account(config: Any) -> str:
    return str(config.cluster.service_account) if hasattr(config, "cluster") else ""


def refuse_unmounted_paths(config: "RunConfig") -> None:
    """Refuses paths that no pod sees: the run would start, wait for nodes, and fail.

    Raises:
      SettingsError: names the keys, and the volumes that there are.
    """
    paths = config.unmounted_paths()
    if not paths:
        return

    listed = ", ".join(f"{key} ({path})" for key, path in paths.items())
    mounts = ", ".join(claim.mount for claim in config.cluster.claims)
    accepted = f"folders of {mounts} (cluster.claims) and" if mounts else "folders of volumes (cluster.claims) and"
    raise SettingsError(
        f"{config.name}: pods do not see {listed}; accepted: {accepted} bucket URIs, such as --set "
        f"{next(iter(paths))}={config.cluster.claims[0].mount if mounts else 'gs://bucket'}/folder"
    )


@contextlib.contextmanager
def exit_on_signal(next_step: str) -> Iterator[None]:
    """Ends this command on Ctrl-C or SIGTERM, but nothing on the cluster; the last line says what to do next."""

    # SIGTERM is made an interrupt too, so that the block is left in order: locks are released, files removed.
    def stop(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except KeyboardInterrupt as interrupt:
        number = interrupt.args[0] if interrupt.args else signal.SIGINT
        typer.echo(f"voxline: stopped; {next_step}", err=True)
        sys.exit(128 + int(number))  # as a shell reports a signal
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)

"""The commands of a cluster: submit, schedule, status, logs, cancel, doctor. They parse, call and print."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from pipelines.cluster.client import Cluster

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


class ScheduleGroup(TyperGroup):
    """`schedule asr --config …` sets one; `schedule list` and `schedule remove` are commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if not args or args[0] in self.commands else ["set", *args])


schedule = typer.Typer(
    cls=ScheduleGroup,
    help="Starts a pipeline by the clock: schedule PIPELINE --config FILE --cron '0 2 * * *'.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Adds the commands to the `voxline` command."""
    for command in (submit, status, logs, cancel, doctor):
        app.command()(command)
    app.add_typer(schedule, name="schedule")


def submit(
    pipeline: Pipeline,
    config: Config,
    set_: Assignments = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follows the run; its end is the exit status.")] = False,
    experiment: Experiment = "voxline",
    pipeline_root: PipelineRoot = "",
    host: Host = "",
    namespace: Namespace = "",
    token_file: TokenFile = "",
    ca: Ca = "",
    deadline: Deadline = 120,
    poll: Annotated[float, typer.Option(min=0.05, hidden=True)] = 5,
) -> None:
    """Starts a pipeline on a cluster, as a version of it that is uploaded once for each content."""
    from pipelines.cluster import following, submission
    from pipelines.config import load_config

    chosen = load_config(config, set_ or [], pipeline=pipeline)
    cluster = _cluster(host, namespace, token_file, ca, deadline)
    name = submission.new_run_name(chosen)
    with _interrupted(f"no run may have been started yet; `voxline status {name}` tells"):
        compiled = submission.Compiled.of(chosen)
        version = submission.uploaded(cluster, compiled)
        typer.echo(f"version  {version.name}" + ("" if version.uploaded else ", uploaded before"))
        run_id = submission.started(
            cluster,
            version,
            name,
            experiment=experiment,
            pipeline_root=pipeline_root,
            service_account=_service_account(chosen),
        )
    typer.echo(f"run      {name}\nid       {run_id}\nsee      {cluster.page('runs', run_id)}")
    if wait:
        going_on = f"the run goes on; `voxline status {run_id}` follows it, `voxline cancel {run_id}` ends it"
        with _interrupted(going_on):
            run = following.follow(cluster, run_id, typer.echo, poll=poll)
        following.verdict(run)
        typer.echo("succeeded")


@schedule.command("set")
def set_schedule(
    pipeline: Pipeline,
    config: Config,
    cron: Annotated[str, typer.Option(help="Minute, hour, day, month, weekday: '0 2 * * *' is two at night.")],
    set_: Assignments = None,
    name: Annotated[str, typer.Option(help="Of the schedule.  [default: that of the config]")] = "",
    time_zone: Annotated[str, typer.Option(help="Of the cron.  [default: the cluster's]")] = "",
    cluster_time_zone: Annotated[str, typer.Option(help="In which the cluster reads every cron.")] = "UTC",
    experiment: Experiment = "voxline",
    pipeline_root: PipelineRoot = "",
    host: Host = "",
    namespace: Namespace = "",
    token_file: TokenFile = "",
    ca: Ca = "",
    deadline: Deadline = 120,
) -> None:
    """Sets the schedule of a name, or changes it; one run at a time, and none for what was missed."""
    from datetime import UTC, datetime

    from pipelines.cluster import submission
    from pipelines.cluster.cron import Cron, zone_of
    from pipelines.cluster.schedules import Schedule, Schedules
    from pipelines.config import load_config

    chosen = load_config(config, set_ or [], pipeline=pipeline)
    moments = Cron.read(cron).moved(time_zone or cluster_time_zone, cluster_time_zone)
    cluster = _cluster(host, namespace, token_file, ca, deadline)
    with _interrupted("start the same command again; it leaves one schedule, whatever was half done"):
        version = submission.uploaded(cluster, submission.Compiled.of(chosen))
        wanted = Schedule(
            name=name or chosen.name,
            version=version,
            cron=moments,
            experiment=experiment,
            pipeline_root=pipeline_root,
            service_account=_service_account(chosen),
        )
        Schedules(cluster).set(wanted, typer.echo, zone=cluster_time_zone)
    next_ = next(moments.firings(datetime.now(UTC).astimezone(zone_of(cluster_time_zone, "--cluster-time-zone"))))
    typer.echo(f"version  {version.name}\ncron     {moments}, read in {cluster_time_zone}\nnext     {next_:%F %T %Z}")


@schedule.command("list")
def list_schedules(
    host: Host = "", namespace: Namespace = "", token_file: TokenFile = "", ca: Ca = "", deadline: Deadline = 120
) -> None:
    """Names each schedule, and whether it is enabled."""
    from pipelines.cluster.schedules import Schedules, lines_of

    for line in lines_of(Schedules(_cluster(host, namespace, token_file, ca, deadline)).all()):
        typer.echo(line)


@schedule.command("remove")
def remove_schedule(
    name: Annotated[str, typer.Argument(help="The schedule's name.")],
    host: Host = "",
    namespace: Namespace = "",
    token_file: TokenFile = "",
    ca: Ca = "",
    deadline: Deadline = 120,
) -> None:
    """Ends a schedule; runs that it has started go on."""
    from pipelines.cluster.schedules import Schedules

    Schedules(_cluster(host, namespace, token_file, ca, deadline)).remove(name)
    typer.echo(f"{name}: removed")


def status(
    run: Run,
    host: Host = "",
    namespace: Namespace = "",
    token_file: TokenFile = "",
    ca: Ca = "",
    deadline: Deadline = 120,
) -> None:
    """Prints how far a run is, a line a step."""
    from pipelines.cluster.following import lines_of, run_named

    for line in lines_of(run_named(_cluster(host, namespace, token_file, ca, deadline), run)):
        typer.echo(line)


def logs(
    run: Run,
    step: Annotated[str, typer.Argument(help="A step of it.  [default: all]", show_default=False)] = "",
    host: Host = "",
    namespace: Namespace = "",
    token_file: TokenFile = "",
    ca: Ca = "",
    deadline: Deadline = 120,
) -> None:
    """Prints what a step of a run has printed."""
    from pipelines.cluster.following import run_named
    from pipelines.cluster.logs import print_logs

    cluster = _cluster(host, namespace, token_file, ca, deadline)
    print_logs(cluster, run_named(cluster, run), step, typer.echo)


def cancel(
    run: Run,
    host: Host = "",
    namespace: Namespace = "",
    token_file: TokenFile = "",
    ca: Ca = "",
    deadline: Deadline = 120,
) -> None:
    """Ends a run; what its steps have finished is reused by the next one."""
    from pipelines.cluster.following import run_named
    from pipelines.cluster.steps import OVER, state_of

    cluster = _cluster(host, namespace, token_file, ca, deadline)
    found = run_named(cluster, run)
    if state_of(found) in OVER:
        typer.echo(f"{found.display_name}: over already, {state_of(found).lower()}")
        return
    cluster.client.runs.run_service_terminate_run(found.run_id)
    typer.echo(f"{found.display_name}: being cancelled")


def doctor(
    config: Annotated[
        list[Path] | None, typer.Option("--config", "-c", help="Also its images, buckets and corpus.")
    ] = None,
    set_: Assignments = None,
    host: Host = "",
    namespace: Namespace = "",
    token_file: TokenFile = "",
    ca: Ca = "",
    deadline: Deadline = 20,
) -> None:
    """Checks all that a run needs before anything is booked, and says what mends each problem."""
    from pipelines.cluster.access import Access
    from pipelines.cluster.doctor import Asked, config_of, examine

    def access() -> Access:
        return Access.found(host=host, namespace=namespace, ca=ca, token_file=token_file, env=os.environ)

    well = True
    for finding in examine(Asked(access, config_of(config, set_ or []) if config else None, deadline)):
        typer.echo(finding.line)
        well = well and not finding.is_problem
    if not well:
        sys.exit(1)


def _cluster(host: str, namespace: str, token_file: str, ca: str, deadline: float) -> "Cluster":
    from pipelines.cluster.access import Access
    from pipelines.cluster.client import Cluster

    access = Access.found(host=host, namespace=namespace, token_file=token_file, ca=ca, env=os.environ)
    return Cluster(access, deadline=deadline)


def _service_account(config: Any) -> str:
    return str(config.cluster.service_account) if hasattr(config, "cluster") else ""


@contextlib.contextmanager
def _interrupted(what_now: str) -> Iterator[None]:
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

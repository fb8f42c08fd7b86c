"""The commands of a cluster: submit, status, logs, cancel, doctor. They parse, call and print."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from voxline.pipelines.cli.options import (
    Assignments,
    Ca,
    Config,
    Deadline,
    Experiment,
    Host,
    Namespace,
    Pipeline,
    PipelineRoot,
    Run,
    TokenFile,
    connect,
    exit_on_signal,
    service_account,
    warn_unmounted_paths,
)


def add_cluster_commands(app: typer.Typer) -> None:
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
    from voxline.pipelines.cluster import runs as following
    from voxline.pipelines.cluster import submit as submission
    from voxline.pipelines.config.load import load_config

    chosen = load_config(config, set_ or [], pipeline=pipeline)
    cluster = connect(host, namespace, token_file, ca, deadline)
    name = submission.new_run_name(chosen)
    with exit_on_signal(f"no run may have been started yet; `voxline status {name}` tells"):
        compiled = submission.CompiledPipeline.of(chosen)
        warn_unmounted_paths(chosen)
        version = submission.upload_version(cluster, compiled)
        typer.echo(f"version  {version.name}" + ("" if version.uploaded else ", uploaded before"))
        run_id = submission.start_run(
            cluster,
            version,
            name,
            experiment=experiment,
            pipeline_root=pipeline_root,
            service_account=service_account(chosen),
        )
    typer.echo(f"run      {name}\nid       {run_id}\nsee      {cluster.page('runs', run_id)}")
    if wait:
        going_on = f"the run goes on; `voxline status {run_id}` follows it, `voxline cancel {run_id}` ends it"
        with exit_on_signal(going_on):
            run = following.follow_run(cluster, run_id, typer.echo, poll=poll)
        following.raise_if_failed(run)
        typer.echo("succeeded")


def status(
    run: Run,
    host: Host = "",
    namespace: Namespace = "",
    token_file: TokenFile = "",
    ca: Ca = "",
    deadline: Deadline = 120,
) -> None:
    """Prints how far a run is, a line a step."""
    from voxline.pipelines.cluster.runs import find_run, format_run

    for line in format_run(find_run(connect(host, namespace, token_file, ca, deadline), run)):
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
    from voxline.pipelines.cluster.runs import find_run, print_logs

    cluster = connect(host, namespace, token_file, ca, deadline)
    print_logs(cluster, find_run(cluster, run), step, typer.echo)


def cancel(
    run: Run,
    host: Host = "",
    namespace: Namespace = "",
    token_file: TokenFile = "",
    ca: Ca = "",
    deadline: Deadline = 120,
) -> None:
    """Ends a run; what its steps have finished is reused by the next one."""
    from voxline.pipelines.cluster.runs import TERMINAL_STATES, find_run, run_state

    cluster = connect(host, namespace, token_file, ca, deadline)
    found = find_run(cluster, run)
    if run_state(found) in TERMINAL_STATES:
        typer.echo(f"{found.display_name}: over already, {run_state(found).lower()}")
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
    from voxline.pipelines.cluster.access import KfpEndpoint
    from voxline.pipelines.cluster.doctor import DoctorRequest, config_loader, diagnose

    def access() -> KfpEndpoint:
        return KfpEndpoint.found(host=host, namespace=namespace, ca=ca, token_file=token_file, env=os.environ)

    well = True
    for finding in diagnose(DoctorRequest(access, config_loader(config, set_ or []) if config else None, deadline)):
        typer.echo(finding.line)
        well = well and not finding.is_problem
    if not well:
        sys.exit(1)


class ScheduleGroup(TyperGroup):
    """`schedule asr --config …` sets one; `schedule list` and `schedule remove` are commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if not args or args[0] in self.commands else ["set", *args])


schedule = typer.Typer(
    cls=ScheduleGroup,
    help="Starts a pipeline by the clock: schedule PIPELINE --config FILE --cron '0 2 * * *'.",
    no_args_is_help=True,
)


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

    from voxline.pipelines.cluster import submit
    from voxline.pipelines.cluster.cron import Cron, load_time_zone
    from voxline.pipelines.cluster.schedules import Schedule, Schedules
    from voxline.pipelines.config.load import load_config

    chosen = load_config(config, set_ or [], pipeline=pipeline)
    moments = Cron.read(cron).moved(time_zone or cluster_time_zone, cluster_time_zone)
    cluster = connect(host, namespace, token_file, ca, deadline)
    with exit_on_signal("start the same command again; it leaves one schedule, whatever was half done"):
        compiled = submit.CompiledPipeline.of(chosen)
        warn_unmounted_paths(chosen)
        version = submit.upload_version(cluster, compiled)
        wanted = Schedule(
            name=name or chosen.name,
            version=version,
            cron=moments,
            experiment=experiment,
            pipeline_root=pipeline_root,
            service_account=service_account(chosen),
        )
        Schedules(cluster).set(wanted, typer.echo, zone=cluster_time_zone)
    next_ = next(
        moments.firings(datetime.now(UTC).astimezone(load_time_zone(cluster_time_zone, "--cluster-time-zone")))
    )
    typer.echo(f"version  {version.name}\ncron     {moments}, read in {cluster_time_zone}\nnext     {next_:%F %T %Z}")


@schedule.command("list")
def list_schedules(
    host: Host = "", namespace: Namespace = "", token_file: TokenFile = "", ca: Ca = "", deadline: Deadline = 120
) -> None:
    """Names each schedule, and whether it is enabled."""
    from voxline.pipelines.cluster.schedules import Schedules, format_schedules

    for line in format_schedules(Schedules(connect(host, namespace, token_file, ca, deadline)).all()):
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
    from voxline.pipelines.cluster.schedules import Schedules

    Schedules(connect(host, namespace, token_file, ca, deadline)).remove(name)
    typer.echo(f"{name}: removed")

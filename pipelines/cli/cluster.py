"""The commands of a cluster: submit, status, logs, cancel, doctor, schedule. They parse, call and print."""

import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from voxline.errors import SettingsError, VoxlineError, WorkError
from voxline.pipelines.cli.options import (
    AsJson,
    Assignments,
    CommandGroup,
    Config,
    Connection,
    Experiment,
    Pipeline,
    PipelineRoot,
    Platform,
    Run,
    RunDir,
    check_platform,
    compiled_for_vertex,
    exit_on_signal,
    load_for_vertex,
    machine_path,
    refuse_unmounted_paths,
    service_account,
    takes_connection,
)

if TYPE_CHECKING:
    from voxline.pipelines.config.run_config import RunConfig


Local = Annotated[bool, typer.Option("--local", help="On this machine, by systemd or cron, without a cluster.")]


def add_cluster_commands(app: typer.Typer) -> None:
    """Adds the commands to the `voxline` command."""
    for command in (submit, status, logs, cancel, doctor):
        app.command()(command)
    app.add_typer(schedule, name="schedule")


def _show_estimate(config: "RunConfig") -> None:
    """Prints what a run will take.

    Raises:
      SettingsError: that may be more than its budget.
    """
    from voxline.pipelines.local.cost_estimate import estimate_submission, refuse_above_budget

    # Before the server is asked for anything.
    estimate = estimate_submission(config)
    remark = refuse_above_budget(estimate, config)
    for line in [*estimate.lines, *([remark] if remark else [])]:
        typer.echo(line)


@takes_connection()
def submit(
    pipeline: Pipeline,
    config: Config,
    set_: Assignments = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the run until it ends; its result is the exit status.")
    ] = False,
    resubmit: Annotated[
        int,
        typer.Option(
            min=0,
            max=20,
            help="With --wait: start a failed run again, at most so often, unless its error is permanent.",
        ),
    ] = 0,
    experiment: Experiment = "voxline",
    pipeline_root: PipelineRoot = "",
    platform: Platform = "kfp",
    poll: Annotated[float, typer.Option(min=0.05, hidden=True)] = 5,
    *,
    connection: Connection,
) -> None:
    """Start a run on a cluster.

    The compiled pipeline is uploaded; unchanged content is the same version.

    \b
    Examples:
      voxline submit asr -c configs/asr/librispeech.yaml -c configs/cluster/gke-gpu.yaml --wait
      voxline submit asr -c configs/asr/librispeech.yaml -c configs/cluster/vertex.yaml --platform vertex
    """
    from voxline.pipelines.cluster import runs as following
    from voxline.pipelines.cluster import submit as submission
    from voxline.pipelines.cluster.run_logs import find_outcome, find_step_error
    from voxline.pipelines.config.load import load_config

    if resubmit and not wait:
        raise SettingsError("--resubmit: it needs --wait, because only a command that waits can start the run again")
    if check_platform(platform, resubmit=resubmit, **connection.given()):
        run_config, vertex = load_for_vertex(pipeline, config, set_, pipeline_root)
        if run_config.cost.budget:
            typer.echo("estimate   not known on Vertex AI, which keeps no history of runs: cost.budget is not checked")
        with compiled_for_vertex(run_config) as file, exit_on_signal("the console shows whether the run has started"):
            vertex.submit(file, submission.new_run_name(run_config), typer.echo, wait=wait)
        return

    # The server's version decides which fields the compiled pipeline may have. The version of the pipeline is named by
    # its content, so that a nightly run uploads only what has changed.
    run_config = load_config(config, set_ or [], pipeline=pipeline)
    refuse_unmounted_paths(run_config)
    _show_estimate(run_config)
    cluster = connection.open()
    with exit_on_signal("nothing was started; run the same command again"):
        compiled = submission.CompiledPipeline.of(run_config, cluster.version)
        version = submission.upload_version(cluster, compiled)
        typer.echo(f"version  {version.name}" + ("" if version.uploaded else ", already uploaded"))

    for attempt in range(resubmit + 1):
        # A signal in this call may come before or after the server has the run: only the name tells which.
        name = submission.new_run_name(run_config)
        with exit_on_signal(f"the run may not have started; check with `voxline status {name}`"):
            run_id = submission.start_run(
                cluster,
                version,
                name,
                experiment=experiment,
                pipeline_root=pipeline_root,
                service_account=service_account(run_config),
            )
        typer.echo(f"run      {name}\nid       {run_id}\nsee      {cluster.page('runs', run_id)}")
        if not wait:
            return

        # A signal ends the command here, not the run.
        next_step = f"the run continues; `voxline status {run_id}` shows it, `voxline cancel {run_id}` ends it"
        with exit_on_signal(next_step):
            run = following.follow_run(cluster, run_id, typer.echo, poll=poll)
            error = find_step_error(cluster, run) if run.failed_step else None
            outcome = find_outcome(cluster, run) if run.state == "SUCCEEDED" else ""

        # Finished steps are reused, so a run that is started again does only what is left. An error of the config or
        # of the data would come again; a run that a person canceled must not.
        try:
            following.raise_if_failed(run, error.message if error else "")
        except WorkError as failure:
            if attempt == resubmit or run.state == "CANCELED" or (error and error.is_permanent):
                raise
            typer.echo(f"voxline: {failure}; submitting it again ({attempt + 1} of {resubmit})", err=True)
        else:
            if outcome:
                typer.echo(outcome)
            typer.echo("succeeded")
            return


@takes_connection()
def status(
    run: Run,
    *,
    connection: Connection,
) -> None:
    """Print the state of a run, a line per step.

    Example: voxline status nightly-2026-01-31
    """
    from voxline.pipelines.cluster.run_logs import find_outcome
    from voxline.pipelines.cluster.runs import find_run, format_run

    cluster = connection.open()
    cluster_run = find_run(cluster, run)
    for line in format_run(cluster_run):
        typer.echo(line)

    # Steps are skipped where the forecast decided against a training; its log says why.
    if any(step.state == "SKIPPED" for step in cluster_run.steps) and (outcome := find_outcome(cluster, cluster_run)):
        typer.echo(f"  {outcome}")


@takes_connection()
def logs(
    run: Run,
    step: Annotated[
        str, typer.Argument(metavar="STEP", help="One of its steps.  [default: all]", show_default=False)
    ] = "",
    *,
    connection: Connection,
) -> None:
    """Print the logs of a run's steps.

    Example: voxline logs nightly-2026-01-31 train
    """
    from voxline.pipelines.cluster.run_logs import print_logs
    from voxline.pipelines.cluster.runs import find_run

    cluster = connection.open()
    print_logs(cluster, find_run(cluster, run), step, typer.echo)


@takes_connection()
def cancel(
    run: Run,
    *,
    connection: Connection,
) -> None:
    """Cancel a run; the next one reuses its finished steps.

    Example: voxline cancel nightly-2026-01-31
    """
    from voxline.pipelines.cluster.runs import find_run

    cluster = connection.open()
    cluster_run = find_run(cluster, run)
    if cluster_run.has_ended:
        typer.echo(f"{cluster_run.name}: already ended, {cluster_run.state.lower()}")
        return
    cluster.client.runs.run_service_terminate_run(cluster_run.id)
    typer.echo(f"{cluster_run.name}: canceling")  # the server ends the pods after this


@takes_connection(deadline=20)
def doctor(
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", parser=machine_path, help="Check its images, buckets and corpus, too."),
    ] = None,
    set_: Assignments = None,
    run_dir: RunDir = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Check a cluster.  [default: if a host, or the config, names one]")
    ] = False,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """Check this machine, or a cluster, before a run.

    Each problem has a fix; nothing is changed. Exit status 1: there is a problem.

    \b
    Examples:
      voxline doctor -c configs/asr/demo.yaml
      voxline doctor --cluster -c configs/asr/librispeech.yaml -c configs/cluster/gke-gpu.yaml
    """
    from voxline.pipelines.cluster.access import HOST

    def loaded() -> "RunConfig":
        from voxline.pipelines.config.load import load_config

        return load_config(config or [], set_ or [])

    # In a pod, or where a server or a config names it, the user asks about the cluster; --run-dir is of a run here.
    has_host = bool(connection.host or os.environ.get(HOST) or "KUBERNETES_SERVICE_HOST" in os.environ)
    if cluster or has_host or (config and not run_dir and _names_kubernetes(loaded)):
        from voxline.pipelines.cluster.doctor import DoctorRequest, diagnose

        access = connection.endpoint if cluster or has_host else None
        diagnostics = diagnose(DoctorRequest(access, loaded if config else None, connection.deadline))
    else:
        from voxline.pipelines.local.doctor import diagnose_machine

        diagnostics = diagnose_machine(loaded if config else None, run_dir)

    # Each line is printed when its check ends: one that asks a server may take seconds.
    finished = []
    for diagnostic in diagnostics:
        finished.append(diagnostic)
        if not as_json:
            typer.echo(diagnostic.line)
    if as_json:
        document = [dataclasses.asdict(diagnostic) for diagnostic in finished]
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    if any(diagnostic.is_problem for diagnostic in finished):
        sys.exit(1)


def _names_kubernetes(load: Callable[[], "RunConfig"]) -> bool:
    """True if a config is for a cluster; one that does not load is a problem that either diagnosis reports."""
    try:
        return load().cluster.names_kubernetes
    except VoxlineError:
        return False


class ScheduleGroup(TyperGroup):
    """`schedule asr --config …` sets a schedule; `schedule list` and `schedule remove` are subcommands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if not args or args[0] in self.commands else ["set", *args])


schedule = CommandGroup(
    cls=ScheduleGroup,
    help="Run a pipeline on a schedule: schedule PIPELINE --cron …",
    epilog="Example: voxline schedule asr --config nightly.yaml --cron '0 2 * * *'",
    no_args_is_help=True,
)


@schedule.command("set")
@takes_connection()
def set_schedule(
    pipeline: Pipeline,
    config: Config,
    cron: Annotated[str, typer.Option(metavar="EXPRESSION", help="Cron expression: '0 2 * * *' is 02:00 daily.")],
    set_: Assignments = None,
    name: Annotated[str, typer.Option(help="Name of the schedule.  [default: the config's name]")] = "",
    time_zone: Annotated[str, typer.Option(help="Time zone of --cron.  [default: the cluster's]")] = "",
    cluster_time_zone: Annotated[str, typer.Option(help="Time zone in which the cluster reads cron.")] = "UTC",
    experiment: Experiment = "voxline",
    pipeline_root: PipelineRoot = "",
    platform: Platform = "kfp",
    local: Local = False,
    run_dir: RunDir = None,
    scheduler: Annotated[
        str, typer.Option("--with", metavar="SCHEDULER", help="With --local: systemd or cron.  [default: what runs]")
    ] = "",
    print_only: Annotated[
        bool, typer.Option("--print", help="With --local: print the units or the line of the crontab; set nothing.")
    ] = False,
    *,
    connection: Connection,
) -> None:
    """Create or change a schedule of a cluster, or of this machine.

    --local: of this machine. One run at a time; a cluster makes up for no missed time, systemd does.

    \b
    Examples:
      voxline schedule asr --config nightly.yaml --cron '0 2 * * *'
      voxline schedule asr --config nightly.yaml --cron '0 2 * * *' --local
      voxline schedule asr --config nightly.yaml --platform vertex --cron '0 2 * * *' --time-zone Europe/Berlin
    """
    from datetime import UTC, datetime

    from voxline.pipelines.cluster import submit
    from voxline.pipelines.cluster.schedules import Schedule, Schedules
    from voxline.pipelines.config.load import load_config
    from voxline.pipelines.local.cron import Cron, load_time_zone

    # An option that would have no effect is refused.
    if local:
        elsewhere = {**connection.given(), "pipeline_root": pipeline_root, "platform": platform != "kfp"}
        for option in [option for option, value in elsewhere.items() if value]:
            raise SettingsError(f"--{option.replace('_', '-')}: not with --local; leave it out")
        _schedule_here(pipeline, config, set_ or [], cron, name, time_zone, run_dir, scheduler, print_only=print_only)
        return
    for option, value in {"run-dir": run_dir, "with": scheduler, "print": print_only}.items():
        if value:
            raise SettingsError(f"--{option}: with --local only")

    # Vertex AI knows time zones, and keeps the expression as it is.
    if check_platform(platform, **connection.given()):
        run_config, vertex = load_for_vertex(pipeline, config, set_, pipeline_root)
        load_time_zone(time_zone or "UTC", "--time-zone")
        next_step = "run the same command again; it leaves one schedule"
        with compiled_for_vertex(run_config) as file, exit_on_signal(next_step):
            vertex.schedule(file, name or run_config.name, str(Cron.read(cron)), time_zone or "UTC", typer.echo)
        return

    # KFP reads all expressions in one zone, so this one is converted to it.
    run_config = load_config(config, set_ or [], pipeline=pipeline)
    refuse_unmounted_paths(run_config)
    schedule_cron = Cron.read(cron).converted(time_zone or cluster_time_zone, cluster_time_zone)
    cluster = connection.open()
    with exit_on_signal("run the same command again; it leaves exactly one schedule"):
        compiled = submit.CompiledPipeline.of(run_config, cluster.version)
        version = submit.upload_version(cluster, compiled)
        new_schedule = Schedule(
            name=name or run_config.name,
            version=version,
            cron=schedule_cron,
            experiment=experiment,
            pipeline_root=pipeline_root,
            service_account=service_account(run_config),
        )
        Schedules(cluster).set(new_schedule, typer.echo, zone=cluster_time_zone)

    # The next time, so that a mistake in the expression is seen now and not at night.
    next_ = next(
        schedule_cron.firings(datetime.now(UTC).astimezone(load_time_zone(cluster_time_zone, "--cluster-time-zone")))
    )
    typer.echo(
        f"version  {version.name}\ncron     {schedule_cron}, read in {cluster_time_zone}\nnext     {next_:%F %T %Z}"
    )


def _schedule_here(
    pipeline: str,
    config: list[Path],
    assignments: list[str],
    expression: str,
    name: str,
    time_zone: str,
    run_dir: Path | None,
    scheduler: str,
    *,
    print_only: bool,
) -> None:
    """Sets a schedule of this user on this machine, or prints it."""
    from datetime import datetime

    from voxline.pipelines.config.load import load_config
    from voxline.pipelines.config.run_config import NAME_PATTERN
    from voxline.pipelines.local import schedule as local_schedule
    from voxline.pipelines.local.cron import Cron, load_time_zone
    from voxline.pipelines.local.runner import check_run
    from voxline.pipelines.local.single_step import make_run_dir

    run_config = load_config(config, assignments, pipeline=pipeline)
    name = name or run_config.name
    if not re.fullmatch(NAME_PATTERN, name):
        raise SettingsError(f"--name {name!r}: accepted: letters, digits, '.', '_' and '-'")
    zone = load_time_zone(time_zone, "--time-zone") if time_zone else None

    # A run that would be refused at night is refused now.
    folder = (run_dir or Path("runs") / run_config.name).absolute()
    check_run(run_config.for_this_machine(folder), folder, "", [])
    arguments = ["run", pipeline]
    for file in config:
        arguments += ["--config", str(file.absolute())]
    for assignment in assignments:
        arguments += ["--set", assignment]
    arguments += ["--run-dir", str(folder)]
    planned = local_schedule.LocalSchedule(name, Cron.read(expression), tuple(arguments), folder, Path.cwd(), time_zone)

    chosen = local_schedule.check_scheduler(scheduler) if scheduler else local_schedule.scheduler_of_machine()
    if print_only:
        typer.echo(
            planned.crontab_line() if chosen == "cron" else f"{planned.service()}\n{planned.timer()}",
            nl=chosen == "cron",
        )
        return
    make_run_dir(folder)
    local_schedule.install(planned, chosen)

    # The next time, so that a mistake in the expression is seen now and not at night.
    next_ = next(planned.cron.firings(datetime.now(zone) if zone else datetime.now().astimezone()))
    typer.echo(f"{chosen:<8} {name}\nlog      {planned.log}\nnext     {next_:%F %T %Z}")
    if chosen == "systemd" and not local_schedule.lingers():
        typer.echo("voxline: it runs only while you are logged in; `loginctl enable-linger` changes that", err=True)
    if not run_config.notify.addresses():
        typer.echo(
            "voxline: no setting of notify sends the outcome of a night anywhere; notify.webhook.url does", err=True
        )


@schedule.command("list")
@takes_connection()
def list_schedules(
    local: Local = False,
    *,
    connection: Connection,
) -> None:
    """List the schedules and whether they are enabled."""
    if local:
        from voxline.pipelines.local.schedule import installed

        for name, scheduler, times in installed():
            typer.echo(f"{name}  {scheduler}  {times}")
        return
    from voxline.pipelines.cluster.schedules import Schedules, format_schedules

    for line in format_schedules(Schedules(connection.open()).all()):
        typer.echo(line)


@schedule.command("remove")
@takes_connection()
def remove_schedule(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")],
    local: Local = False,
    *,
    connection: Connection,
) -> None:
    """Remove a schedule; runs that it started continue."""
    if local:
        from voxline.pipelines.local.schedule import remove

        remove(name)
        typer.echo(f"{name}: removed")
        return
    from voxline.pipelines.cluster.schedules import Schedules

    Schedules(connection.open()).remove(name)
    typer.echo(f"{name}: removed")

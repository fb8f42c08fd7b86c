"""`voxline schedule`: sets, changes, lists and removes what starts by the clock."""

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
    TokenFile,
    connect,
    exit_on_signal,
    service_account,
    warn_unmounted_paths,
)


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

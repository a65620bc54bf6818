"""`parley demo`: negotiate the pods of some manifests in a simulated cluster, and print the outcome."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from parley.api.exits import Exit
from parley.api.wording import printable_lines
from parley.cli import logs
from parley.cli.extender import PARLEY
from parley.cli.logs import LogFormat
from parley.cli.outcomes import show_outcome
from parley.cli.output import Format, NoHeaders, Output
from parley.cli.timeline import story, summary
from parley.explain.text import console
from parley.simulate import virtual_time
from parley.simulate.cluster import SimulatedCluster, second_schedulers
from parley.simulate.manifests import read
from parley.simulate.namespaces import with_namespaces
from parley.simulate.objects import BadManifests, Manifest
from parley.simulate.outcome import SimulationOutcome, outcome_of
from parley.simulate.priorities import prioritized
from parley.simulate.workloads import expanded

FailOnWaiting = Annotated[bool, typer.Option("--fail-on-waiting", help="Exit with status 10 if a pod waits.")]
SchedulerNames = Annotated[
    list[str],
    typer.Option(help="A schedulerName whose pods a second scheduler places, with Parley as its extender."),
]

_NO_PODS = (
    "There are no pods in the input: add one whose spec.resourceClaims names a ResourceClaim or "
    "ResourceClaimTemplate, or a workload with such pods."
)


def demo(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="YAML files, as for kubectl apply -f; - is stdin.")
    ],
    scheduler_name: SchedulerNames = [PARLEY],  # noqa: B006 - typer copies it
    fail_on_waiting: FailOnWaiting = False,
    no_headers: NoHeaders = False,
    output: Format = Output.TEXT,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print the controller's log, too.")] = False,
) -> None:
    """Negotiate for pods in a simulated cluster, without Kubernetes.

    The files hold Nodes, ResourceSlices, ResourceClasses, ResourceClaimTemplates, ResourceClaims and Pods, or
    workloads with pods: Deployments, StatefulSets, DaemonSets, Jobs. PriorityClasses and the labels of Namespaces
    count, too.
    """
    logs.configure(LogFormat.TEXT) if verbose else logs.silence()
    try:
        manifests = with_namespaces(prioritized(expanded(read(files))))
    except BadManifests as error:
        refuse(error)
    outcome = virtual_time.run(negotiated(manifests, scheduler_name))
    if output is Output.TEXT:
        _show(outcome)
    else:
        show_outcome(outcome, output, headings=not no_headers)
    finish(outcome, fail_on_waiting=fail_on_waiting)


def _show(outcome: SimulationOutcome) -> None:
    out = console(soft_wrap=True)
    for record in outcome.pods:
        out.print(story(record))
    out.print(summary(outcome))


def refuse(error: Exception) -> NoReturn:
    """Print the faults of the input, one per line, and end the command."""
    for fault in getattr(error, "faults", (error,)):
        typer.echo(f"error: {printable_lines(str(fault))}", err=True)
    raise typer.Exit(Exit.WRONG_INPUT) from None


def finish(outcome: SimulationOutcome, *, fail_on_waiting: bool) -> None:
    """Say what is missing if there were no pods, and end the command with a status of its own if pods wait, or are
    gone, and that counts as a failure."""
    if not outcome.pods:
        typer.echo(_NO_PODS, err=True)
    if fail_on_waiting and not all(record.runs for record in outcome.pods):
        raise typer.Exit(Exit.WAITING)


async def negotiated(
    manifests: Sequence[Manifest], scheduler_names: Collection[str] = (PARLEY,)
) -> SimulationOutcome:
    """The outcome of pods and claims, once the cluster has settled, or after an hour of its time."""
    async with SimulatedCluster(settings=second_schedulers(manifests, scheduler_names)) as cluster:
        await cluster.apply(manifests)
        await cluster.settle()
        return await outcome_of(cluster.client, cluster.recording.pods)

"""`parley demo`: negotiate the pods of some manifests in a simulated cluster, and tell how it went."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from parley.api.resources import NODES
from parley.cli import logs
from parley.cli.extender import PARLEY
from parley.cli.logs import LogFormat
from parley.cli.timeline import story, summary
from parley.simulate import virtual_time
from parley.simulate.cluster import SimulatedCluster, second_schedulers
from parley.simulate.manifests import BadManifests, Manifest, read
from parley.simulate.recording import PodRecord

WRONG_INPUT = 2

SchedulerNames = Annotated[
    list[str],
    typer.Option(help="A schedulerName whose pods a second scheduler places, with Parley as its extender."),
]


def demo(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML files, as for kubectl apply -f.")],
    scheduler_name: SchedulerNames = [PARLEY],  # noqa: B006 - typer copies it
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print the controller's log, too.")] = False,
) -> None:
    """Negotiate the pods in FILE... in a simulated cluster, no Kubernetes needed.

    The files hold Nodes, ResourceSlices, ResourceClasses, ResourceClaimTemplates, ResourceClaims and Pods.
    """
    logs.configure(LogFormat.TEXT) if verbose else logs.silence()
    try:
        manifests = read(files)
    except BadManifests as error:
        for fault in error.faults:
            typer.echo(f"error: {fault}", err=True)
        raise typer.Exit(WRONG_INPUT) from None
    records = virtual_time.run(negotiated(manifests, scheduler_name))
    if json:
        typer.echo(orjson.dumps(outcome(records), option=orjson.OPT_INDENT_2).decode())
        return
    console = Console(highlight=False, soft_wrap=True)
    nodes = [manifest.name for manifest in manifests if manifest.resource == NODES]
    for record in records:
        console.print(story(record, nodes))
    console.print(summary(records))


async def negotiated(
    manifests: Sequence[Manifest], scheduler_names: Collection[str] = (PARLEY,)
) -> list[PodRecord]:
    """What became of the pods, once nothing moves any more, or after an hour of the cluster's time."""
    async with SimulatedCluster(settings=second_schedulers(manifests, scheduler_names)) as cluster:
        await cluster.apply(manifests)
        await cluster.settle()
        return cluster.recording.pods


def outcome(records: Sequence[PodRecord]) -> dict[str, Any]:
    """The JSON form."""
    return {"pods": [_pod(record) for record in records]}


def _pod(record: PodRecord) -> dict[str, Any]:
    return {
        "namespace": record.namespace,
        "name": record.name,
        "node": record.node or None,
        "reason": record.reason,
        "claims": [
            {"name": claim.entry, "claim": claim.claim, "driver": claim.driver, "devices": list(claim.devices)}
            for claim in record.claims.values()
        ],
    }

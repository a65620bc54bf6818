"""`parley simulate`: what a cluster, as it is or with changes, would do with its pods."""

import gc
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from parley.api.wording import printable_lines
from parley.cli import logs
from parley.cli.demo import FailOnWaiting, SchedulerNames, finish, refuse
from parley.cli.extender import PARLEY
from parley.cli.outcomes import show_outcome
from parley.cli.output import Format, NoHeaders, Output
from parley.cli.timeline import summary
from parley.explain.text import console
from parley.simulate import virtual_time
from parley.simulate.cluster import SimulatedCluster, second_schedulers
from parley.simulate.cluster_import import import_objects, pods_of
from parley.simulate.manifests import read_dump
from parley.simulate.namespaces import with_namespaces
from parley.simulate.objects import BadManifests, Manifest
from parley.simulate.outcome import SimulationOutcome, outcome_of
from parley.simulate.priorities import prioritized
from parley.simulate.recording import Recording
from parley.simulate.what_if import NoSuchObject, WhatIf, changed
from parley.simulate.workloads import expanded

_EVERY = 5.0
"""Seconds between two lines about the progress."""

_WHYS = 20

_UNSETTLED = (
    "The cluster still changes after an hour of simulated time, as when something is tried again and again: what "
    "follows is its state at that time. The reasons of the pods that wait say what to change."
)


def simulate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="YAML or JSON: manifests, or what `kubectl get -o yaml` printed; - is stdin."
        ),
    ],
    add: Annotated[
        list[Path] | None, typer.Option(help="More objects; can be repeated.", show_default=False)
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave out pod/NAMESPACE/NAME, node/NAME or device/NODE/NAME; can be repeated.",
            show_default=False,
        ),
    ] = None,
    drain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE", help="Cordon this node, and recreate its pods; can be repeated.", show_default=False
        ),
    ] = None,
    scheduler_name: SchedulerNames = [PARLEY],  # noqa: B006 - typer copies it
    fail_on_waiting: FailOnWaiting = False,
    no_headers: NoHeaders = False,
    output: Format = Output.TEXT,
) -> None:
    """Show where pods would run, in a simulated copy of a cluster.

    The files hold manifests, or a dump of a live cluster; no Kubernetes is needed.

    Pods that are bound keep their nodes and what they hold. To simulate a live cluster, save the output of
    `kubectl get
    namespaces,nodes,resourceslices,prclasses,prtemplates,prclaims,prreleases,pods,resourceclaims,resourceclaimtemplates
    -A -o json`, and the ConfigMaps that `parametersRef` names: all of these kinds matter; others are ignored.
    Deployments, StatefulSets, DaemonSets and Jobs add the pods that they lack.
    """
    logs.silence()
    try:
        manifests = _manifests(files, WhatIf((), remove or (), drain or ()), add or ())
    except (BadManifests, NoSuchObject) as error:
        refuse(error)
    with _rare_collections():
        outcome = virtual_time.run(_simulated(manifests, scheduler_name))
    if output is Output.TEXT:
        _show(outcome)
    else:
        show_outcome(outcome, output, headings=not no_headers)
    finish(outcome, fail_on_waiting=fail_on_waiting)


def _manifests(files: Sequence[Path], changes: WhatIf, add: Sequence[Path]) -> list[Manifest]:
    manifests, left_out = read_dump(files)
    _tell_left_out(left_out)
    added, left_out = read_dump(add)
    _tell_left_out(left_out)
    found = changed(manifests, WhatIf(added, changes.removed, changes.drained))
    return with_namespaces(prioritized(expanded(found)))


def _tell_left_out(left_out: Mapping[str, int]) -> None:
    if left_out:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(left_out.items()))
        typer.echo(f"left out, as nothing depends on it here: {kinds}", err=True)


async def _simulated(manifests: Sequence[Manifest], scheduler_names: Sequence[str]) -> SimulationOutcome:
    cluster = SimulatedCluster(settings=second_schedulers(manifests, scheduler_names))
    with _progress(cluster.recording, pods_of(manifests)):
        cluster.keep_prepared(await import_objects(cluster.client, manifests))
        async with cluster:
            await cluster.controller.ready.wait()
            if not await cluster.settle():
                typer.echo(_UNSETTLED, err=True)
            return await outcome_of(cluster.client, cluster.recording.pods)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collects garbage rarely within the block: a simulation's objects live as long as it does, and searching them
    would take a sixth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _progress(recording: Recording, pods: int) -> Iterator[None]:
    """Print progress on stderr, from another thread, so that the simulation never waits."""
    ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(recording, pods, ended), daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def _tell(recording: Recording, pods: int, ended: threading.Event) -> None:
    terminal = sys.stderr.isatty()
    while not ended.wait(0.5 if terminal else _EVERY):
        text = f"simulating: {recording.bound} of {pods} pods are bound"
        print(f"\r{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)
    if terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _show(outcome: SimulationOutcome) -> None:
    out = console(soft_wrap=True)
    out.print(summary(outcome))
    whys: dict[str, list[str]] = {}
    for record in outcome.pods:
        if not record.runs:
            whys.setdefault(record.reason or "waits", []).append(f"{record.namespace}/{record.name}")
    for why, names in list(whys.items())[:_WHYS]:
        shown = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        out.print(f"\n{shown}: {printable_lines(why)}")
    if len(whys) > _WHYS:
        out.print(f"\nand {len(whys) - _WHYS} more reasons (-o json has all)")

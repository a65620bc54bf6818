"""`parley uninstall`: checks whether Parley can be removed from a cluster now, and cleans up afterwards.

The chart's hooks run both before and after `helm uninstall`; without helm an administrator does (docs/install.md).
"""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from parley.api.exits import Exit
from parley.api.wording import counted
from parley.cli.asking import As, AsGroup, Context, Who, asked
from parley.cli.failures import end
from parley.cli.leading import NAMESPACE, Kubeconfig, Options, api_client
from parley.cli.output import Format, NoHeaders, Output, print_names, printed
from parley.control import removal
from parley.control.removal import Use
from parley.explain.text import print_rows
from parley.kube.client import Client
from parley.kube.http import HttpClient

_COLUMNS = ("NAMESPACE", "CLAIM", "PODS", "NODES")

_AFTER_FORCE = (
    "warning: these claims were in use. Where the node plugin is gone, a pod that is deleted stays Terminating: "
    "install Parley again, and the pod ends at once"
)

Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Name the claims in use and the pods that hold them; exit code 11 if there are any."
    ),
]
Release = Annotated[
    bool,
    typer.Option(
        "--release-finalizers",
        help="After the controller was removed: remove its finalizers from what is left, so that it can be "
        "deleted.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Release finalizers although claims are in use.")]
Wait = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for controllers to stop leading.")
]

Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        help="The only namespace to look for the controller's lease in; by default all are.",
        show_default=False,
    ),
]


def uninstall(
    check: Check = False,
    release_finalizers: Release = False,
    force: Force = False,
    wait: Wait = 60,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    as_user: As = "",
    as_group: AsGroup = None,
    no_headers: NoHeaders = False,
    output: Format = Output.TEXT,
) -> None:
    """Check whether Parley can be removed, or clean up afterwards. Removes neither programs nor CRDs."""
    if check == release_finalizers:
        raise typer.BadParameter("give one of --check and --release-finalizers")
    if force and check:
        raise typer.BadParameter("--force goes with --release-finalizers: a check changes nothing")
    if release_finalizers and output is not Output.TEXT:
        raise typer.BadParameter("--output goes with --check: what is released is reported as text")
    who = Who(kubeconfig, context, as_user, tuple(as_group or ()))

    async def act(client: Client) -> Sequence[Use]:
        found = await removal.uses(client)
        if release_finalizers and (force or not found):
            places = [namespace] if namespace else await removal.lease_namespaces(client, Options.lease_name)
            for place in places or [NAMESPACE]:
                await removal.wait_until_nobody_leads(client, place, Options.lease_name, wait)
            changed = await removal.release(client, typer.echo)
            typer.echo(f"{counted(changed, 'object')} changed; no object has a finalizer of Parley any more.")
        return found

    used = asked(lambda: _client(who), act)
    _show(used, output, headings=not no_headers)
    if used and force:
        typer.echo(_AFTER_FORCE, err=True)
    elif used:
        some = f"{counted(len(used), 'claim')} {'is' if len(used) == 1 else 'are'}"
        end(f"{some} in use: Parley cannot be removed without harm to the pods named above", Exit.IN_USE)
    elif check and output is Output.TEXT:
        typer.echo("No claim is in use.")


def _client(who: Who) -> HttpClient:
    """Unless something else is asked for, in a pod that of its service account: the chart's jobs are pods."""
    return api_client(None) if who == Who() else who.client()


def _show(used: Sequence[Use], output: Output, *, headings: bool) -> None:
    if output is Output.TEXT:
        for use in used:
            typer.echo(use.sentence())
    elif output is Output.WIDE:
        print_rows(_COLUMNS, map(_cells, used), headed=headings)
    elif output is Output.NAME:
        print_names(f"resourceclaim.resource.k8s.io/{use.name}" for use in used)
    else:
        printed("ClaimUseList", {"items": [_item(use) for use in used]}, output)


def _cells(use: Use) -> tuple[str, ...]:
    return use.namespace, use.name, ",".join(use.pods) or "-", ",".join(use.nodes) or "-"


def _item(use: Use) -> dict[str, Any]:
    return {"namespace": use.namespace, "name": use.name, "pods": list(use.pods), "nodes": list(use.nodes)}

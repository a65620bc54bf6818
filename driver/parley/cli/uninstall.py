"""`parley uninstall`: whether Parley can be removed from a cluster now, and what has to be done after it.

The chart's hooks run both before and after `helm uninstall`; without helm an administrator does (docs/install.md).
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from parley.api.exits import Exit
from parley.api.wording import counted
from parley.cli.asking import asked
from parley.cli.failures import end
from parley.cli.leading import NAMESPACE, Kubeconfig, Namespace, Options, api_client
from parley.control import removal
from parley.control.removal import Use
from parley.kube.client import Client

_AFTER_FORCE = (
    "warning: these claims were in use. Where the node plugin is gone, a pod that is deleted stays Terminating: "
    "install Parley again, and it ends at once"
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
        help="After the controller was removed: take its finalizers off what is left, which can be deleted then.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Release finalizers although claims are in use.")]
Wait = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How long to wait until no controller leads any more.")
]


def uninstall(
    check: Check = False,
    release_finalizers: Release = False,
    force: Force = False,
    wait: Wait = 60,
    namespace: Namespace = NAMESPACE,
    kubeconfig: Kubeconfig = None,
) -> None:
    """See whether Parley can be removed, or clean up after it was. Removes neither programs nor kinds."""
    if check == release_finalizers:
        raise typer.BadParameter("give one of --check and --release-finalizers")
    if force and check:
        raise typer.BadParameter("--force goes with --release-finalizers: a check changes nothing")

    async def act(client: Client) -> Sequence[Use]:
        found = await removal.uses(client)
        if release_finalizers and (force or not found):
            await removal.wait_until_nobody_leads(client, namespace, Options.lease_name, wait)
            changed = await removal.release(client, typer.echo)
            typer.echo(f"{counted(changed, 'object')} changed; nothing has a finalizer of Parley's any more.")
        return found

    used = asked(lambda: api_client(kubeconfig), act)
    for use in used:
        typer.echo(use.sentence())
    if used and force:
        typer.echo(_AFTER_FORCE, err=True)
    elif used:
        some = f"{counted(len(used), 'claim')} {'is' if len(used) == 1 else 'are'}"
        end(f"{some} in use: Parley cannot be removed without harm to the pods named above", Exit.IN_USE)
    elif check:
        typer.echo("No claim is in use.")

"""`parley explain pod NAME`: why a pod waits, or why it is where it is."""

from typing import Annotated

import typer

from parley.cli.asking import (
    AllNamespaces,
    Context,
    Format,
    Kubeconfig,
    Namespace,
    Output,
    answered,
    namespace_of,
    printed,
)
from parley.explain.explaining import explain as explain_one
from parley.explain.explaining import explain_waiting, namespaces_of
from parley.explain.model import Explanation
from parley.explain.text import console, show
from parley.kube.client import Client
from parley.kube.clock import utc

_PODS = ("pod", "pods", "po")


def explain(
    what: Annotated[
        list[str],
        typer.Argument(metavar="pod [NAME]", help="`pod NAME` or `pod/NAME`; without a name, all pods that wait."),
    ],
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    output: Format = Output.TEXT,
) -> None:
    """Tell why a pod waits, or why it is where it is.

    Says which claims it has and what they hold, which nodes come into question and why not, who has yet to answer,
    what scheduler, kubelet and node plugin said, and what would help. Reads the API only.
    """
    name = _name(what)
    place = namespace or namespace_of(kubeconfig, context)

    async def ask(client: Client) -> list[Explanation]:
        if name:
            places = await namespaces_of(client, name) if all_namespaces else [place]
            return [await explain_one(client, utc(), where, name) for where in places]
        return await explain_waiting(client, utc(), place, everywhere=all_namespaces)

    explanations = answered(kubeconfig, context, ask)
    if output is not Output.TEXT:
        printed({"pods": explanations}, output)
        return
    _show(explanations, "in any namespace" if all_namespaces else f"in namespace {place}")


def _name(what: list[str]) -> str:
    """The pod's name, "" for all."""
    kind, slash, name = what[0].partition("/")
    if kind not in _PODS or len(what) > 2 or (slash and len(what) > 1):
        raise typer.BadParameter(f"{' '.join(what)!r}: only pods can be explained: write `pod NAME` or `pod/NAME`")
    return name or (what[1] if len(what) > 1 else "")


def _show(explanations: list[Explanation], where: str) -> None:
    out = console()
    if not explanations:
        out.print(f"No pod with claims of Parley's waits {where}.")
    for number, told in enumerate(explanations):
        if number:
            out.print()
        show(out, told)

"""`parley doctor`: finds what is wrong with Parley in a cluster, and how to fix it."""

from importlib.metadata import version
from typing import Annotated

import typer

from parley.api.exits import Exit
from parley.cli.asking import As, AsGroup, Context, Kubeconfig, Who, answered
from parley.cli.output import Format, NoHeaders, Output, print_names, printed
from parley.doctor.diagnosing import Diagnosis, diagnose
from parley.doctor.findings import Severity
from parley.doctor.text import COLUMNS, cells, data, lines
from parley.explain.text import print_rows
from parley.kube.client import Client
from parley.kube.clock import utc

_STATUS = {Severity.ERROR: Exit.TO_MEND, Severity.UNKNOWN: Exit.NOT_CHECKED}


def doctor(
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", help="The namespace of Parley's programs.  [default: where the controller leads]"
        ),
    ] = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    as_user: As = "",
    as_group: AsGroup = None,
    no_headers: NoHeaders = False,
    output: Format = Output.TEXT,
) -> None:
    """Check Parley in a cluster: what is wrong, and how to fix it.

    Versions, kinds, policies, permissions, controller, drivers, nodes, claims. Reads the API only. Exits
    with 0 if nothing has to be fixed, 8 if something has, 9 if something could not be checked (docs/doctor.md).
    """

    async def ask(client: Client) -> Diagnosis:
        return await diagnose(client, utc(), namespace, version("parley"))

    found = answered(Who(kubeconfig, context, as_user, tuple(as_group or ())), ask)
    if output is Output.TEXT:
        for line in lines(found):
            typer.echo(line)
    elif output is Output.WIDE:
        print_rows(COLUMNS, map(cells, found.findings), headed=not no_headers)
    elif output is Output.NAME:
        print_names(f"check/{one.check}" for one in found.findings if one.severity is not Severity.OK)
    else:
        printed("Diagnosis", data(found), output)
    raise typer.Exit(_STATUS.get(found.verdict, Exit.DONE))

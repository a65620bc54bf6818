"""`parley driver conformance`: whether a standalone driver, in any language, keeps to docs/driver-protocol.md."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from parley.api.exits import Exit
from parley.cli import logs
from parley.cli.asking import Context, Kubeconfig, Who
from parley.cli.demo import refuse
from parley.cli.failures import address_errors, end
from parley.cli.output import Format, NoHeaders, Output, print_names, printed
from parley.conformance import report
from parley.conformance.checks import CHECKS
from parley.conformance.kit import ConformanceSettings, NoSuchCheck, RunningKit, results, verify
from parley.conformance.results import CheckOutcome, CheckResult
from parley.conformance.stage import Patience
from parley.conformance.subject import BadSubject, Subject
from parley.explain.text import print_rows
from parley.kube.faults import Unanswerable, readable_errors
from parley.simulate.manifests import read_dump
from parley.simulate.objects import BadManifests

_DEFAULTS = Patience()

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE...",
        help="Manifests: a class of the driver, a claim or a template of it, and what else the driver reads.",
    ),
]
Start = Annotated[
    str,
    typer.Option(
        metavar="COMMAND",
        help="Starts the driver, with $KUBECONFIG and $API_SERVER; without it, start the driver yourself.",
        show_default=False,
    ),
]
ClassName = Annotated[
    str, typer.Option("--class", help="The class to use, if the files have several.", show_default=False)
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="CHECK", help="Run only this check; can be repeated.", show_default=False),
]
Skipped = Annotated[
    list[str] | None,
    typer.Option(metavar="CHECK", help="Leave out this check; can be repeated.", show_default=False),
]
Timeout = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="How long the driver may take for a step.")]
Settle = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="How long to watch for what must not happen.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port to serve at; 0 takes a free one.")]
Real = Annotated[
    bool, typer.Option("--real", help="Use the cluster of --kubeconfig, not one in memory.", show_default=False)
]
DriverAs = Annotated[
    str,
    typer.Option(metavar="USER", help="With --real: the account as which the driver acts.", show_default=False),
]
Listing = Annotated[bool, typer.Option("--list", help="List the checks, and run none.")]


def conformance(
    files: Files = None,
    start: Start = "",
    class_name: ClassName = "",
    check: Only = None,
    skip: Skipped = None,
    timeout: Timeout = _DEFAULTS.limit,
    settle: Settle = _DEFAULTS.settle,
    port: Port = 0,
    real: Real = False,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    driver_as: DriverAs = "",
    list_checks: Listing = False,
    no_headers: NoHeaders = False,
    output: Format = Output.TEXT,
) -> None:
    """Check a standalone driver against the driver protocol.

    The driver may be in any language. Plays the controller on an API server in memory, which the driver reaches by
    $KUBECONFIG or $API_SERVER: no cluster is needed. Exits with 0 if no check failed, 12 if one did.
    """
    if list_checks:
        for one in CHECKS:
            typer.echo(f"{one.name:<26} {one.section}: {one.rule}")
        return
    if (kubeconfig or context or driver_as) and not real:
        raise typer.BadParameter("--kubeconfig, --context and --driver-as choose a cluster: give --real as well")
    logs.silence()
    subject = _subject(files or [], class_name, [*(check or ()), *(skip or ())])
    who, account = Who(kubeconfig, context), Who(kubeconfig, context, driver_as)
    settings = ConformanceSettings(
        start=start,
        port=port,
        patience=Patience(timeout, settle),
        checks=tuple(check or ()),
        skip=tuple(skip or ()),
        admin=who.client() if real else None,
        driver=account.client() if real else None,
    )
    found = _results(subject, settings, output)
    failed = [result for result in found if result.outcome is CheckOutcome.FAILED]
    if output is Output.WIDE:
        print_rows(report.COLUMNS, map(report.cells, found), headed=not no_headers)
    elif output is Output.NAME:
        print_names(f"check/{result.check.name}" for result in failed)
    elif output is not Output.TEXT:
        items = [report.data(result) for result in found]
        printed("ConformanceReport", {"driver": subject.driver, "items": items}, output)
    if failed:
        raise typer.Exit(Exit.NOT_CONFORMING)


def _subject(files: Sequence[Path], class_name: str, checks: Sequence[str]) -> Subject:
    try:
        verify(checks)
        return Subject.of(read_dump(files)[0], class_name)
    except (BadManifests, BadSubject, NoSuchCheck) as error:
        refuse(error)


def _results(subject: Subject, settings: ConformanceSettings, output: Output) -> list[CheckResult]:
    process = None

    def begun(played: RunningKit) -> None:
        nonlocal process
        process = played.process
        if process is None:
            typer.echo(
                f"start {subject.driver} now, with KUBECONFIG={played.kubeconfig} or at {played.server}", err=True
            )

    def seen(result: CheckResult) -> None:
        if output is Output.TEXT:
            for text in (report.line(result), *report.details(result)):
                typer.echo(text)
        if result.outcome is CheckOutcome.FAILED and process is not None and process.ended is not None:
            typer.echo(f"the driver ended with {process.ended}. The end of its output:", err=True)
            typer.echo(process.output(), err=True)

    async def main() -> list[CheckResult]:
        with readable_errors():
            return await results(subject, settings, begun, seen)

    try:
        with address_errors():
            found = asyncio.run(main())
    except BadSubject as error:
        refuse(error)
    except Unanswerable as error:
        end(error, error.status)
    if output is Output.TEXT:
        typer.echo(f"\n{subject.driver}: {report.summary(found)}")
    return found

"""What became of the pods of a simulated cluster, as `parley demo` and `parley simulate` print it but for text."""

from collections.abc import Sequence
from typing import Any

import typer
from rich.text import Text

from parley.cli.output import Output, printed
from parley.explain.text import console, print_plain, table
from parley.simulate.recording import PodRecord

OUTCOME = "PodOutcomeList"

_COLUMNS = ("NAMESPACE", "POD", "NODE", "HOLDS", "REASON")


def show_outcome(records: Sequence[PodRecord], output: Output, *, headings: bool) -> None:
    """A row for each pod (`wide`), their names, or all of it as data of kind OUTCOME."""
    if output is Output.NAME:
        for name in dict.fromkeys(f"pod/{record.name}" for record in records):
            typer.echo(name)
    elif output is Output.WIDE:
        shown = table(_COLUMNS, [[Text(cell) for cell in _cells(record)] for record in records])
        shown.show_header = headings
        print_plain(console(), shown)
    else:
        printed(OUTCOME, {"items": [_pod(record) for record in records]}, output)


def _cells(record: PodRecord) -> tuple[str, ...]:
    holds = ", ".join(device for claim in record.claims.values() for device in claim.devices)
    return (record.namespace, record.name, record.node or "-", holds or "-", record.reason or "-")


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

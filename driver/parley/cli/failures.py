"""Ends a command that failed: one sentence on stderr, and the exit status."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from parley.api.exits import Exit
from parley.api.wording import printable_lines

_NO_ADDRESS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)
"""Nothing can be served where it was asked for."""


def end(message: object, status: Exit) -> NoReturn:
    """Print the message and exit."""
    typer.echo(f"error: {printable_lines(str(message))}", err=True)
    raise typer.Exit(status)


@contextmanager
def address_errors() -> Iterator[None]:
    """Within the block, an address that cannot be served on ends the command."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ADDRESS:
            raise
        why = os.strerror(error.errno).lower()
        end(f"cannot serve {_where(error)}: {why}: give another port or address", Exit.ADDRESS_TAKEN)


def _where(error: OSError) -> str:
    """The address, which asyncio writes into the sentence."""
    text = str(error.strerror or error)
    _, found, rest = text.partition("(")
    host, _, port = rest.partition(")")[0].partition(", ")
    return f"at {host.strip(chr(39))}:{port.partition(',')[0]}" if found and port else "there"

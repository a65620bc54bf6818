"""`parley web`: serves the web page; the controller can serve the same page."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import structlog
import typer

from parley.cli import logs
from parley.cli.asking import As, AsGroup, Context, Kubeconfig, Namespace, Who, namespace_of
from parley.cli.endpoints import served
from parley.cli.failures import address_errors, end
from parley.kube.client import Client
from parley.kube.faults import Unanswerable, readable_errors
from parley.kube.http import HttpClient
from parley.web.server import application
from parley.web.snapshots import Snapshots, Thread

log = structlog.get_logger(__name__)

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class ServingAddress:
    """Where the page is served. `names` are those that browsers may use, besides addresses and localhost."""

    host: str
    port: int
    names: tuple[str, ...] = ()


Names = Annotated[
    list[str] | None,
    typer.Option(
        "--web-host",
        help="A host name under which browsers may open the page, such as that of a proxy; can be repeated.",
        show_default=False,
    ),
]
OfController = Annotated[
    str,
    typer.Option(
        metavar="[HOST:]PORT",
        help=f"Serve the page of `parley web` at this address; HOST defaults to {LOOPBACK}. Default: not served. "
        "Whoever can connect sees the names of all namespaces' pods (docs/web.md).",
        show_default=False,
    ),
]


def place(text: str, names: Sequence[str] | None = None) -> ServingAddress:
    """Of [HOST:]PORT; an IPv6 address stands in brackets. Raises typer.BadParameter."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise typer.BadParameter(f"{text!r}: write PORT or HOST:PORT, such as 8080, 127.0.0.1:8080 or [::1]:8080")
    return ServingAddress(host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port), tuple(names or ()))


def web(
    address: Annotated[
        str, typer.Option(metavar="[HOST:]PORT", help="The address to serve at.")
    ] = f"{LOOPBACK}:8080",
    names: Names = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    as_user: As = "",
    as_group: AsGroup = None,
) -> None:
    """Serve a page that shows why pods wait and who holds what.

    The page follows the cluster. Reads the API only, with your kubeconfig's rights: whoever can connect sees what
    you may see. If you may not read all namespaces, only --namespace is read.
    """
    logs.silence()
    who = Who(kubeconfig, context, as_user, tuple(as_group or ()))
    where, own = place(address, names), namespace or namespace_of(who)

    async def main() -> None:
        async with who.client() as client, serving(client, where, own) as url:
            typer.echo(f"{url}  (ends with Ctrl-C)")
            await asyncio.Event().wait()

    _run(main)


def _run(main: Callable[[], Coroutine[None, None, None]]) -> None:
    """Until Ctrl-C; what keeps it from running is printed on stderr."""
    try:
        with address_errors(), readable_errors():
            asyncio.run(main())
    except KeyboardInterrupt:
        pass  # how it is meant to end
    except Unanswerable as error:
        end(error, error.status)


@asynccontextmanager
async def serving(client: Client, where: ServingAddress, namespace: str = "default") -> AsyncIterator[str]:
    """Serve the page within the block; gives its URL. Nothing is read before somebody looks."""
    aside = Thread()
    snapshots = Snapshots(client, namespace, aside=aside)
    try:
        async with served(application(snapshots, where.names), where.port, where.host) as port:
            host = f"[{where.host}]" if ":" in where.host else where.host
            yield f"http://{host}:{port}/"
    finally:
        await snapshots.close()
        aside.close()


@asynccontextmanager
async def beside(client: Callable[[], HttpClient], where: ServingAddress) -> AsyncIterator[None]:
    """Serve the page beside something else within the block, with connections and caches of its own: what it takes
    to make a page is no part of that."""
    async with client() as own, serving(own, where) as url:
        log.info("the page is served", url=url)
        yield

"""`parley driver run`: a driver outside of the controller, which talks through API objects only."""

from typing import Annotated

import typer

from parley.cli import logs
from parley.cli.drivers import driver_class
from parley.cli.leading import (
    NAMESPACE,
    Format,
    Identity,
    Kubeconfig,
    Leader,
    LeaseDuration,
    Level,
    MetricsPort,
    Namespace,
    Options,
    run,
    unique,
)
from parley.cli.logs import LogFormat, LogLevel
from parley.control.metrics import Metrics
from parley.kube.client import Client
from parley.sdk.standalone import StandaloneDriver

app = typer.Typer(help="Drivers outside of the controller.", no_args_is_help=True)


@app.callback()
def drivers() -> None:
    """Drivers outside of the controller."""


@app.command("run")
def run_driver(
    driver: Annotated[str, typer.Argument(help="device, tokens, or MODULE:CLASS of your own.", metavar="DRIVER")],
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = NAMESPACE,
    lease_name: Annotated[
        str, typer.Option(help="Default: parley-driver-NAME, by the driver's name.", show_default=False)
    ] = "",
    lease_duration: LeaseDuration = Options.lease_duration,
    identity: Identity = "",
    metrics_port: MetricsPort = None,
    log_format: Format = LogFormat.TEXT,
    log_level: Level = LogLevel.INFO,
) -> None:
    """Run a driver in this process. Several may run at once: the one that holds the lease works."""
    logs.configure(log_format, log_level.number)
    found = driver_class(driver)
    lease = lease_name or f"parley-driver-{found.name}"

    def make(client: Client, metrics: Metrics) -> Leader:
        made = StandaloneDriver(client, found())
        metrics.read_caches(made.caches)
        return made

    run(kubeconfig, Options(unique(identity), namespace, lease, metrics_port, lease_duration), make)

"""`parley driver run`: a standalone driver, which works through API objects alone."""

from typing import Annotated

import typer
import yaml

from parley.cli import logs
from parley.cli.drivers import driver_class, driver_name
from parley.cli.lazily import command_group
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
    OneAtATime,
    Options,
    identities,
    run,
)
from parley.cli.logs import LogFormat, LogLevel
from parley.cli.permissions import lease_name as own_lease
from parley.cli.permissions import permissions
from parley.control.telemetry.metrics import Metrics
from parley.kube.client import Client
from parley.sdk.standalone import StandaloneDriver

LAZY = ("conformance",)
"""Commands of this group that are imported when they are needed."""

app = command_group("driver", "Standalone drivers.", *LAZY)


@app.callback()
def drivers() -> None:
    """Standalone drivers."""


@app.command("run")
def run_driver(
    driver: Annotated[
        str, typer.Argument(help="device, tokens, workspace, or MODULE:CLASS of your own.", metavar="DRIVER")
    ],
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = NAMESPACE,
    lease_name: Annotated[
        str, typer.Option(help="Default: parley-driver-NAME, by the driver's name.", show_default=False)
    ] = "",
    lease_duration: LeaseDuration = Options.lease_duration,
    identity: Identity = "",
    one_at_a_time: OneAtATime = False,
    metrics_port: MetricsPort = None,
    log_format: Format = LogFormat.TEXT,
    log_level: Level = LogLevel.INFO,
) -> None:
    """Run a driver in this process. Several processes may run: the one that holds the lease works."""
    logs.configure(log_format, log_level.number)
    found = driver_class(driver)
    lease = lease_name or own_lease(found.name)

    def make(client: Client, metrics: Metrics) -> Leader:
        made = StandaloneDriver(client, found())
        metrics.read_caches(made.caches)
        return made

    own, replaced = identities(identity, one_at_a_time=one_at_a_time)
    run(kubeconfig, Options(own, namespace, lease, metrics_port, lease_duration, replaced=replaced), make)


@app.command("permissions")
def print_permissions(
    driver: Annotated[
        str,
        typer.Argument(help="device, tokens, workspace, MODULE:CLASS, or the driver's name.", metavar="DRIVER"),
    ],
    namespace: Annotated[str, typer.Option(help="The namespace of the account and its lease.")] = NAMESPACE,
) -> None:
    """Print a driver's service account with its permissions.

    For `kubectl apply -f -`.
    """
    typer.echo(yaml.safe_dump_all(permissions(driver_name(driver), namespace), sort_keys=False), nl=False)

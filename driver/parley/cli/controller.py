"""`parley controller`: take part in the election, lead, stop cleanly on SIGTERM."""

from typing import Annotated

import typer

from parley.cli import logs
from parley.cli.drivers import driver_class
from parley.cli.leading import (
    NAMESPACE,
    FollowLease,
    Format,
    Identity,
    Kubeconfig,
    Leader,
    LeaseDuration,
    LeaseName,
    Level,
    MetricsPort,
    Namespace,
    Options,
    run,
    unique,
)
from parley.cli.logs import LogFormat, LogLevel
from parley.control.metrics import Metrics
from parley.drivers import BUILT_IN
from parley.kube.client import Client
from parley.scheduler.controller import Controller, Settings


def controller(
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = NAMESPACE,
    lease_name: LeaseName = Options.lease_name,
    lease_duration: LeaseDuration = Options.lease_duration,
    follow_lease: FollowLease = Options.follow_lease,
    identity: Identity = "",
    driver: Annotated[
        list[str] | None,
        typer.Option(
            help="A driver to run inside: device, tokens, or MODULE:CLASS of your own; can be repeated. "
            "Default: all that come with Parley.",
            show_default=False,
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    log_format: Format = LogFormat.TEXT,
    log_level: Level = LogLevel.INFO,
) -> None:
    """Run the controller: negotiate for the pods of a cluster."""
    logs.configure(log_format, log_level.number)
    classes = [driver_class(name) for name in driver or BUILT_IN]
    options = Options(unique(identity), namespace, lease_name, metrics_port, lease_duration, follow_lease)

    def make(client: Client, metrics: Metrics) -> Leader:
        settings = Settings(instance=options.identity)
        return Controller(client, [driver() for driver in classes], settings, metrics=metrics)

    run(kubeconfig, options, make)

"""`parley controller`: take part in the election, lead, stop cleanly on SIGTERM."""

from functools import partial
from typing import Annotated

import typer

from parley.cli import extender, logs, web
from parley.cli.drivers import driver_classes
from parley.cli.leading import (
    NAMESPACE,
    Beside,
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
    OneAtATime,
    Options,
    api_client,
    identities,
    run,
)
from parley.cli.logs import LogFormat, LogLevel
from parley.control.telemetry.metrics import Metrics
from parley.drivers import BUILT_IN
from parley.kube.client import Client
from parley.negotiation.rounds import DEFAULT_CANDIDATES, MAX_CANDIDATES
from parley.scheduler.controller import Controller
from parley.scheduler.extender.path import ExtenderPath
from parley.scheduler.reporting import PodSchedulings
from parley.scheduler.settings import ControllerSettings

EmbeddedDrivers = Annotated[
    list[str] | None,
    typer.Option(
        help="A driver to run inside: device, tokens, workspace, or MODULE:CLASS of your own; can be repeated. "
        "Default: all that come with Parley.",
        show_default=False,
    ),
]
Candidates = Annotated[
    int, typer.Option(min=1, max=MAX_CANDIDATES, help="How many nodes drivers are asked about at a time.")
]
WhichPods = Annotated[
    PodSchedulings,
    typer.Option(help="Which pods get a PodScheduling: all, or only those that had to wait."),
]


ReservationSchedulers = Annotated[
    list[str] | None,
    typer.Option(
        "--reservation-pods-for",
        help="A scheduler whose pods are kept out of what claims reserve with `hold: Nominated`; can be repeated. "
        "Default: none, and no reservation pods.",
        show_default=False,
    ),
]
ReservationPriority = Annotated[
    str,
    typer.Option(
        help="The PriorityClass of reservation pods; on Kubernetes 1.36 with `preemptionPolicy: Never`. "
        "Default: the cluster's.",
        show_default=False,
    ),
]


def controller(
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = NAMESPACE,
    lease_name: LeaseName = Options.lease_name,
    lease_duration: LeaseDuration = Options.lease_duration,
    follow_lease: FollowLease = Options.follow_lease,
    identity: Identity = "",
    one_at_a_time: OneAtATime = False,
    driver: EmbeddedDrivers = None,
    metrics_port: MetricsPort = None,
    extender_address: extender.Address = "",
    scheduler_name: extender.SchedulerName = None,
    managed_resource: extender.ManagedResource = None,
    extender_tls_cert: extender.Certificate = None,
    extender_tls_key: extender.PrivateKey = None,
    extender_client_ca: extender.ClientCa = None,
    extender_service: extender.ServiceName = "",
    pod_ip: extender.PodIp = "",
    candidates: Candidates = DEFAULT_CANDIDATES,
    web_address: web.OfController = "",
    web_host: web.Names = None,
    pod_schedulings: WhichPods = "Always",
    reservation_pods_for: ReservationSchedulers = None,
    reservation_priority: ReservationPriority = "",
    log_format: Format = LogFormat.TEXT,
    log_level: Level = LogLevel.INFO,
) -> None:
    """Run the controller: negotiate for the pods of a cluster."""
    logs.configure(log_format, log_level.number)
    classes = driver_classes(driver or BUILT_IN)
    entry = extender.entry(extender_address, extender_tls_cert, extender_tls_key, extender_client_ca)
    page = web.place(web_address, web_host) if web_address else None
    own, replaced = identities(identity, one_at_a_time=one_at_a_time)
    options = Options(own, namespace, lease_name, metrics_port, lease_duration, follow_lease, replaced)

    settings = ControllerSettings(
        candidates=candidates,
        instance=options.identity,
        scheduler_names=tuple(scheduler_name or (extender.PARLEY,)) if entry is not None else (),
        managed_resources=tuple(managed_resource or ()) if entry is not None else (),
        pod_schedulings=pod_schedulings,
        namespace=namespace,
        reservation_schedulers=tuple(reservation_pods_for or ()),
        reservation_priority=reservation_priority,
        endpoint=extender.endpoint(entry, extender_service, pod_ip),
    )
    made: list[Controller] = []

    def make(client: Client, metrics: Metrics) -> Leader:
        made.append(Controller(client, [driver() for driver in classes], settings, metrics=metrics))
        return made[0]

    def leading() -> ExtenderPath | None:
        return made[0].extender if made and made[0].ready.is_set() else None

    beside: list[Beside] = [partial(entry.serving, leading)] if entry is not None else []
    if page is not None:
        beside.append(partial(web.beside, partial(api_client, kubeconfig), page))
    run(kubeconfig, options, make, beside)

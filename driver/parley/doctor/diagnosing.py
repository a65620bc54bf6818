"""Runs the checks, in the order in which a cluster is repaired: later findings often follow from earlier ones."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from parley.doctor.checks import controller, drivers, installation, nodes, objects, runtime, server
from parley.doctor.facts import Facts, Unreadable, gather, installed, namespace_of_controller
from parley.doctor.findings import Finding, Severity, error, unknown, worst
from parley.kube.client import Client
from parley.kube.clock import rfc3339

Check = Callable[[Facts], Iterable[Finding]]

CHECKS: Mapping[str, Check] = {
    "api-server": server.api_server,
    "kubelets": server.kubelets,
    "dra": server.dra,
    "device-class": server.device_class,
    "crds": installation.crds,
    "policies": installation.policies,
    "permissions": installation.permissions,
    "lane": installation.lane,
    "controller": controller.controllers,
    "leader": controller.leader,
    "scheduler": controller.second_scheduler,
    "drivers": drivers.drivers,
    "answers": drivers.answers,
    "node-plugin": nodes.plugin,
    "slices": nodes.slices,
    "cdi": runtime.cdi,
    "kubelet-folder": runtime.folders,
    "deleted-claims": objects.deleted_claims,
    "releases": objects.releases,
    "undecodable": objects.undecodable,
}

_NOT_INSTALLED = error(
    "Parley is not installed in this cluster: the API server knows none of its kinds",
    "install it with helm or kustomize (docs/install.md), or choose another cluster with --context",
    "",
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, in the checks' order."""

    findings: tuple[Finding, ...]
    namespace: str
    program: str
    now: str

    @property
    def verdict(self) -> Severity:
        """The worst severity of all findings."""
        return worst(self.findings)


async def diagnose(client: Client, now: datetime, namespace: str, program: str) -> Diagnosis:
    """Look at the cluster, at Parley's programs in `namespace`, or with "" where the controller's Lease is.

    Raises what keeps an API server from answering at all (see `facts.gather`).
    """
    namespace = namespace or await namespace_of_controller(client)
    facts = await gather(client, now, namespace, program)
    return Diagnosis(tuple(examined(facts)), namespace, program, rfc3339(now))


def examined(facts: Facts) -> Iterator[Finding]:
    """The findings of the checks; if Parley is not installed, only of those about the API server."""
    there = installed(facts)
    for name, check in CHECKS.items():
        if name == "crds" and not there:
            yield replace(_NOT_INSTALLED, check=name)
            return
        try:
            found = list(check(facts))
        except Unreadable as refused:
            found = [unknown(f"could not be checked: {refused}", refused.remedy)]
        yield from (replace(finding, check=name) for finding in found)

"""Drivers: those of the classes answer, and no Lease of a standalone one is old."""

from collections.abc import Iterator, Mapping

from parley.api.builtin import Lease
from parley.api.models import PodScheduling
from parley.api.names import driver_lease
from parley.api.reasons import DRIVER_NOT_ANSWERING
from parley.api.resources import CLASSES, LEASES, POD_SCHEDULINGS
from parley.api.wording import listed
from parley.doctor.facts import Facts
from parley.doctor.findings import Finding, error, ok, warning
from parley.doctor.kinds import DEPLOYMENTS
from parley.doctor.leases import age, fresh
from parley.doctor.workloads import command, containers, runs
from parley.drivers import BUILT_IN
from parley.explain.times import span

_PREFIX = driver_lease("")
_OPTION = "--driver"


def drivers(facts: Facts) -> Iterator[Finding]:
    """Every class has a driver that works: one in the controller, or a standalone one that holds its Lease."""
    by_driver: dict[str, list[str]] = {}
    for class_ in facts.all(CLASSES):
        by_driver.setdefault(class_.driver_name, []).append(class_.metadata.name)
    leases = _leases(facts)
    embedded, others = _embedded(facts)
    for driver, classes in sorted(by_driver.items()):
        lease = leases.get(driver)
        if lease is None and driver not in embedded:
            yield _nobody(driver, classes, others, facts.namespace)
    for driver, lease in sorted(leases.items()):
        yield _standalone(facts, driver, lease, by_driver.get(driver, []))
    if served := sorted(set(by_driver) & set(embedded)):
        yield ok(f"{listed(served)} {'run' if len(served) > 1 else 'runs'} in the controller")
    if not by_driver:
        yield ok("there are no classes, so no driver is needed")


def _leases(facts: Facts) -> Mapping[str, Lease]:
    """Of standalone drivers, by the driver's name."""
    return {
        lease.metadata.name.removeprefix(_PREFIX): lease
        for lease in facts.all(LEASES)
        if lease.metadata.name.startswith(_PREFIX)
    }


def _embedded(facts: Facts) -> tuple[frozenset[str], list[str]]:
    """The names of the drivers in the controllers, and the Python classes of those whose names do not show."""
    asked: list[str] = []
    for deployment in facts.named(DEPLOYMENTS).values():
        if runs(deployment, "parley", "controller"):
            for container in containers(deployment):
                asked += _options(command(container))
    known = [name for name in asked if name in BUILT_IN] if asked else list(BUILT_IN)
    return frozenset(BUILT_IN[name].name for name in known), [name for name in asked if name not in BUILT_IN]


def _options(line: list[str]) -> Iterator[str]:
    for word, following in zip(line, [*line[1:], ""], strict=True):
        if word == _OPTION:
            yield following
        elif word.startswith(f"{_OPTION}="):
            yield word.partition("=")[2]


def _nobody(driver: str, classes: list[str], others: list[str], namespace: str) -> Finding:
    about = f"ResourceClass {listed(classes)}"
    if others:
        return warning(
            f"driver {driver} has no Lease, so it runs only if it is one of {listed(others)} in the controller",
            f"make sure that it is, or run it standalone: parley driver run (its Lease is in {namespace})",
            about,
        )
    return error(
        f"driver {driver} does not run: pods that request these classes wait",
        f"run it (parley driver run, in namespace {namespace}), or correct driverName of the class",
        about,
    )


def _standalone(facts: Facts, driver: str, lease: Lease, classes: list[str]) -> Finding:
    about = f"Lease {facts.namespace}/{lease.metadata.name}"
    seconds, holder = age(lease, facts.now), lease.spec.holder_identity
    if fresh(lease, facts.now):
        return ok(f"driver {driver} runs: {holder} renewed its Lease {span(seconds or 0.0)} ago", about)
    last = "not held" if seconds is None else f"{holder or 'nobody'} holds it, renewed {span(seconds)} ago"
    remedy = f"start driver {driver}, and see its log; or, if it is gone for good, delete its Lease and classes"
    if classes:
        return error(f"driver {driver} does not run ({last}): class {listed(classes)} waits", remedy, about)
    return warning(f"driver {driver} does not run ({last}), and no class names it", remedy, about)


def answers(facts: Facts) -> Iterator[Finding]:
    """No pod waits for a driver that is silent."""
    waiting: dict[str, list[str]] = {}
    for scheduling in facts.all(POD_SCHEDULINGS):
        if scheduling.status.waiting_for == DRIVER_NOT_ANSWERING:
            pod = f"{scheduling.metadata.namespace}/{scheduling.metadata.name}"
            for claim in scheduling.spec.claims:
                if _silent(claim.name, scheduling):
                    waiting.setdefault(claim.driver_name, []).append(pod)
    for driver, pods in sorted(waiting.items()):
        yield error(
            f"driver {driver} does not answer: {_pods(pods)}",
            "see the driver's log and its permissions (parley driver permissions), and restart it",
        )
    if not waiting:
        yield ok("no pod waits for a driver's answer")


def _silent(claim: str, scheduling: PodScheduling) -> bool:
    """Whether the last question about the claim has no answer."""
    answered = (one.name == claim and one.round >= scheduling.spec.round for one in scheduling.status.claims)
    return not any(answered)


def _pods(pods: list[str]) -> str:
    return f"{'pods' if len(pods) > 1 else 'pod'} {listed(pods)} {'wait' if len(pods) > 1 else 'waits'}"

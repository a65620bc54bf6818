"""Checks of drivers: those of the classes answer, and no Lease of a standalone driver is old."""

from collections.abc import Collection, Iterator, Mapping

from parley.api.builtin import Lease
from parley.api.models import PodScheduling
from parley.api.names import driver_lease
from parley.api.reasons import DRIVER_NOT_ANSWERING, IN_CONTROLLER, READY
from parley.api.resources import CLASSES, LEASES, POD_SCHEDULINGS
from parley.api.wording import listed
from parley.doctor.facts import Facts
from parley.doctor.findings import Finding, error, ok, warning
from parley.doctor.kinds import DEPLOYMENTS
from parley.doctor.leases import fresh, renewed
from parley.doctor.workloads import command, containers, runs
from parley.drivers import BUILT_IN

_PREFIX = driver_lease("")
_OPTION = "--driver"
_TWICE = "Both allocate claims with allocationMode Immediate, so the same may be handed out twice"
_STOP_ONE = (
    f"stop one of the two: leave it out of the controller's {_OPTION} options (drivers.embedded of the chart), "
    "or delete the Deployment that runs it standalone"
)


def drivers(facts: Facts) -> Iterator[Finding]:
    """Every class has a driver that works, either in the controller or standalone with a Lease of its own."""
    by_driver: dict[str, list[str]] = {}
    for class_ in facts.all(CLASSES):
        by_driver.setdefault(class_.driver_name, []).append(class_.metadata.name)
    leases = _leases(facts)
    controllers = list(_lines(facts, "parley", "controller"))
    loads = [load for _, line in controllers for load in _options(line)] or list(BUILT_IN)
    embedded = frozenset(BUILT_IN[load].name for load in loads if load in BUILT_IN)
    others = [load for load in loads if load not in BUILT_IN]
    for driver, classes in sorted(by_driver.items()):
        if driver not in leases and driver not in embedded:
            yield _nobody(driver, classes, others, facts.namespace)
    here = _in_controller(facts) | (embedded if controllers else frozenset())  # one outside may run less than all
    for driver, lease in sorted(leases.items()):
        if driver in here:
            yield _both(facts, driver, lease)
        else:
            yield _standalone(facts, driver, lease, by_driver.get(driver, []))
    yield from _same_class(facts, others)
    if served := sorted(set(by_driver) & set(embedded)):
        yield ok(f"{listed(served)} {'run' if len(served) > 1 else 'runs'} in the controller")
    if not by_driver:
        yield ok("there are no classes, so no driver is needed")


def _in_controller(facts: Facts) -> frozenset[str]:
    """The drivers that are embedded in a controller, wherever it runs, by the status of their classes."""
    return frozenset(
        class_.driver_name
        for class_ in facts.all(CLASSES)
        if any(one.type == READY and one.reason == IN_CONTROLLER for one in class_.status.conditions)
    )


def _leases(facts: Facts) -> Mapping[str, Lease]:
    """The Leases of standalone drivers, by the driver's name."""
    return {
        lease.metadata.name.removeprefix(_PREFIX): lease
        for lease in facts.all(LEASES)
        if lease.metadata.name.startswith(_PREFIX)
    }


def _lines(facts: Facts, *words: str) -> Iterator[tuple[str, list[str]]]:
    """The Deployments with a container whose command begins with these words, each with these commands."""
    for name, deployment in facts.named(DEPLOYMENTS).items():
        if runs(deployment, *words):
            for container in containers(deployment):
                yield name, command(container)


def _options(line: list[str]) -> Iterator[str]:
    for word, following in zip(line, [*line[1:], ""], strict=True):
        if word == _OPTION:
            yield following
        elif word.startswith(f"{_OPTION}="):
            yield word.partition("=")[2]


def _both(facts: Facts, driver: str, lease: Lease) -> Finding:
    """A finding about a driver that is embedded in the controller and also has a standalone driver's Lease."""
    about, holder = f"Lease {facts.namespace}/{lease.metadata.name}", lease.spec.holder_identity
    delete = f"kubectl -n {facts.namespace} delete lease {lease.metadata.name}"
    if not fresh(lease, facts.now):
        return warning(
            f"driver {driver} runs in the controller, and this Lease is left of a standalone one",
            f"{delete}; or, if it should run standalone, start it, and leave it out of the controller's {_OPTION} "
            "options (drivers.embedded of the chart)",
            about,
        )
    seen = f"{holder} renewed its Lease {renewed(lease, facts.now)}"
    return warning(
        f"driver {driver} runs twice: in the controller, and standalone ({seen}). {_TWICE}",
        f"{_STOP_ONE}, and {delete}",
        about,
    )


def _same_class(facts: Facts, others: Collection[str]) -> Iterator[Finding]:
    """Of Python classes in the controller, whose drivers' names do not show, those that run standalone, too."""
    for name, line in _lines(facts, "parley", "driver", "run"):
        if others and (load := next(iter(line[3:]), "")) in others:
            about = f"Deployment {facts.namespace}/{name}"
            yield warning(f"driver {load} runs twice: in the controller, and here. {_TWICE}", _STOP_ONE, about)


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
    when, holder = renewed(lease, facts.now), lease.spec.holder_identity
    if fresh(lease, facts.now):
        return ok(f"driver {driver} runs: {holder} renewed its Lease {when}", about)
    last = "not held" if when == "never" else f"{holder or 'nobody'} holds it, renewed {when}"
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
    """Whether the last question about the claim was not answered."""
    answered = (one.name == claim and one.round >= scheduling.spec.round for one in scheduling.status.claims)
    return not any(answered)


def _pods(pods: list[str]) -> str:
    return f"{'pods' if len(pods) > 1 else 'pod'} {listed(pods)} {'wait' if len(pods) > 1 else 'waits'}"

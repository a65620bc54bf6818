"""The controller: its pods, and which of them leads; and the second scheduler's."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parley.api.names import CONTROLLER_LEASE, RESERVED_CLAIM_LABEL
from parley.api.resources import LEASES
from parley.api.versions import COUNTS_GATED_NOMINATIONS, of_server, written
from parley.doctor.facts import RAW_PODS, Facts, NotReadable
from parley.doctor.findings import Finding, error, ok, warning
from parley.doctor.kinds import DEPLOYMENTS, Body
from parley.doctor.leases import fresh, renewed
from parley.doctor.workloads import has_option, pods_of, refused, runs, trouble

_SCHEDULER = "parley-scheduler"
"""The Deployment of the second scheduler."""
_VERSION_LABEL = "app.kubernetes.io/version"


def controllers(facts: Facts) -> Iterator[Finding]:
    """The Deployment's pods are ready. A controller may also run outside of the cluster: then there is none."""
    found = [one for one in facts.named(DEPLOYMENTS).values() if runs(one, "parley", "controller")]
    pods = facts.all(RAW_PODS)
    for deployment in found:
        yield from _deployment(facts, deployment, pods)
    if not found and not any(fresh(lease, facts.now) for lease in _leases(facts)):
        yield error(
            f"no Deployment of namespace {facts.namespace} runs `parley controller`",
            "install it (docs/install.md), or name the namespace that it is in with --namespace",
        )
    elif not found:
        yield ok(f"none in namespace {facts.namespace}: the one that leads runs elsewhere")


def _deployment(facts: Facts, deployment: Body, pods: Sequence[Body]) -> Iterator[Finding]:
    about = _title(facts, deployment)
    yield _readiness(facts, deployment, pods, "no claims are negotiated")
    if deployment["spec"].get("replicas", 1):
        yield from _version(facts, deployment, about)
        yield from _reservation_pods(facts, deployment, pods, about)


def second_scheduler(facts: Facts) -> Iterator[Finding]:
    """Where it has pods of its own, they are ready. Beside the controller it is in that one's pods."""
    found = facts.named(DEPLOYMENTS).get(_SCHEDULER)
    if found is not None:
        yield _readiness(facts, found, facts.all(RAW_PODS), "no pods that name it are placed")
    else:
        yield ok("none in pods of its own")


def _title(facts: Facts, deployment: Body) -> str:
    return f"Deployment {facts.namespace}/{deployment['metadata']['name']}"


def _readiness(facts: Facts, deployment: Body, pods: Sequence[Body], without: str) -> Finding:
    """Whether all pods of the Deployment are ready; `without` is the consequence of having none."""
    about, name = _title(facts, deployment), deployment["metadata"]["name"]
    wanted = deployment["spec"].get("replicas", 1)
    ready = (deployment.get("status") or {}).get("readyReplicas", 0)
    if wanted == 0:
        scale = f"kubectl -n {facts.namespace} scale deployment/{name} --replicas=2"
        return error(f"is scaled to 0: {without}", scale, about)
    if ready >= wanted:
        return ok(f"{ready} of {wanted} pods are ready", about)
    own, unknown = pods_of(deployment, pods), "the conditions of the pods do not say why"
    why = next(filter(None, map(trouble, own)), refused(deployment) or unknown)
    text, remedy = f"{ready} of {wanted} pods are ready: {why}", _see(facts.namespace, deployment)
    return warning(text, remedy, about) if ready else error(text, remedy, about)


def _see(namespace: str, workload: Body) -> str:
    labels = workload["spec"]["selector"].get("matchLabels") or {}
    chosen = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return f"see kubectl -n {namespace} describe pods -l {chosen}, and their logs"


def _version(facts: Facts, deployment: Body, about: str) -> Iterator[Finding]:
    labels: Mapping[str, Any] = deployment["metadata"].get("labels") or {}
    version = str(labels.get(_VERSION_LABEL, ""))
    if version and version.replace("-rc.", "rc") != facts.program:  # as Python writes it
        yield warning(
            f"is Parley {version}, and this program is {facts.program}: other findings may only be due to that",
            f"run the doctor of version {version}",
            about,
        )


def _reservation_pods(facts: Facts, deployment: Body, pods: Sequence[Body], about: str) -> Iterator[Finding]:
    """What its reservation pods hold is held over a restart of the scheduler, too."""
    server = None if isinstance(facts.version, NotReadable) else of_server(facts.version)
    if not server or server >= COUNTS_GATED_NOMINATIONS or not has_option(deployment, "--reservation-pods-for"):
        return
    made = [pod for pod in pods if RESERVED_CLAIM_LABEL in (pod["metadata"].get("labels") or {})]
    if any(pod["spec"].get("preemptionPolicy") != "Never" for pod in made):
        yield warning(
            "its reservation pods have no PriorityClass with `preemptionPolicy: Never`: a kube-scheduler of "
            f"Kubernetes {written(server)} that restarts drops their nominations, and ordinary pods may take "
            "reserved room then",
            "let reservationPods.priorityClassName of the chart be empty, or name a class with that policy; then "
            f"kubectl -n {facts.namespace} delete pods -l {RESERVED_CLAIM_LABEL}. Parley makes them again",
            about,
        )


def _leases(facts: Facts) -> list[Any]:
    return [lease for lease in facts.all(LEASES) if lease.metadata.name == CONTROLLER_LEASE]


def leader(facts: Facts) -> Iterator[Finding]:
    """Somebody holds the Lease and renews it."""
    about = f"Lease {facts.namespace}/{CONTROLLER_LEASE}"
    logs = f"kubectl -n {facts.namespace} logs -l app.kubernetes.io/name=parley-controller"
    remedy = f"see the controllers' logs: {logs}"
    leases = _leases(facts)
    if not leases:
        yield error("is missing: no controller has ever led here", remedy, about)
        return
    (lease,) = leases
    holder, when = lease.spec.holder_identity, renewed(lease, facts.now)
    if not holder:
        yield error("nobody holds it: no claims are negotiated", remedy, about)
    elif not fresh(lease, facts.now):
        yield error(f"held by {holder}, who renewed it {when}: no claims are negotiated", remedy, about)
    else:
        yield ok(f"{holder} leads, and renewed its Lease {when}", about)

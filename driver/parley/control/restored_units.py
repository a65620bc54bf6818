"""How many units a restored allocation counts for in the limits of its class: as recorded with it, or else as its
driver counts its parameters now. Until class and parameters are known, it counts for one.
"""

from collections.abc import Iterable, Mapping

from parley.api.builtin import BuiltinClaim
from parley.api.models import ResourceClaim
from parley.control.caches.cluster import ClusterCache
from parley.control.holding import Holding
from parley.control.objects.class_request import class_request, of_spec
from parley.control.objects.mirror import recorded_units
from parley.control.state import State
from parley.sdk import PodReference
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.immediate import no_pod
from parley.sdk.parameters import RawClaim
from parley.sdk.referenced import ParametersUnavailable

Drivers = Mapping[str, EmbeddedDriver]


def count_units(state: State, holding: Holding) -> None:
    """Set how many units the restored holding counts for, and whether they are recorded with it."""
    holding.records_units = _recorded_units(state.cluster, holding) is not None
    _count(state, holding)


def _count(state: State, holding: Holding) -> None:
    units = _units(state.cluster, state.drivers, holding)
    holding.counted, holding.units = units is not None, holding.units if units is None else units


def count_again(state: State, class_name: str) -> None:
    """Count the class's holdings that could not be counted before: it, or its parameters' object, is known now."""
    _count_all(state, (holding for holding in state.ledger if holding.class_name == class_name))


def count_again_for(state: State, pod: PodReference) -> None:
    """Count the pod's holdings that could not be counted before: a claim of it was created again."""
    _count_all(state, state.ledger.of_pod(pod))


def _count_all(state: State, holdings: Iterable[Holding]) -> None:
    for holding in holdings:
        if not holding.counted:
            _count(state, holding)
            state.ledger.limits.count(holding.uid, holding.class_name, holding.namespace, holding.units)


def _units(cluster: ClusterCache, drivers: Drivers, holding: Holding) -> int | None:
    """The units that the driver counts for the parameters; None if these are unknown or rejected."""
    class_, claim = cluster.class_(holding.class_name), _claim_of(cluster, holding)
    mirror = _mirror_of(cluster, holding)
    by_mirror = class_request(mirror) if mirror is not None and (claim is None or not holding.named) else None
    asks = by_mirror or (of_spec(claim.spec) if claim is not None else None)
    driver, recorded = drivers.get(holding.driver), _recorded_units(cluster, holding)
    if recorded is not None:
        return recorded
    if driver is None or class_ is None or asks is None:
        return None
    raw = RawClaim(
        name=holding.entry,
        uid=holding.uid,
        namespace=holding.namespace,
        claim=holding.claim,
        class_name=holding.class_name,
        parameters=asks.parameters,
        class_parameters=class_.parameters,
        reference=asks.reference,
        class_reference=class_.parameters_ref,
    )
    try:
        (claim_request,) = driver.request(no_pod(holding.namespace), (raw,)).claims
        return driver.units(claim_request)
    except (BadParameters, ParametersUnavailable, DriverFault):
        return None


def _recorded_units(cluster: ClusterCache, holding: Holding) -> int | None:
    """The units recorded with an allocation: class or parameters may have changed since."""
    if holding.standalone:
        return None
    claim, mirror = _claim_of(cluster, holding), _mirror_of(cluster, holding)
    if holding.named and claim is not None and claim.status.allocation is not None:
        return claim.status.allocation.units
    return recorded_units(mirror) if mirror is not None else None


def _claim_of(cluster: ClusterCache, holding: Holding) -> ResourceClaim | None:
    """The claim of the holding's name, unless it replaced the one that the holding was allocated for."""
    key = (holding.namespace, holding.claim)
    return cluster.claim_with_uid(key, holding.uid) if holding.named else cluster.claim(key)


def _mirror_of(cluster: ClusterCache, holding: Holding) -> BuiltinClaim | None:
    """The mirror of the holding's name; if a generated one was created again, that which its pod has now."""
    mirror = cluster.mirror((holding.namespace, holding.claim))
    if mirror is not None or holding.named:
        return mirror
    pods = filter(None, map(cluster.pod_with_uid, holding.pods.values()))
    return next(filter(None, (cluster.generated.of_entry(pod, holding.entry) for pod in pods)), None)

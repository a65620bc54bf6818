"""Rebuilds the ledger and the drivers' state from the API: at start, and when an unknown allocation appears.

Foreign allocations (ordinary DRA allocated a device of a driver that Parley runs) are reported to the driver as
devices in use. Nothing is decided and nothing written here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.conditions import is_condition_true
from parley.api.models import ClaimRelease, ResourceClaim, ResourceClass
from parley.api.names import CONDITION_RELEASING, GENERATED_LABEL, POD_CLAIM_NAME_ANNOTATION
from parley.control.caches.cluster import ClusterCache
from parley.control.caches.entries import number_of
from parley.control.holding import Holding, Phase, PreparedOn, Written
from parley.control.objects.class_request import class_request
from parley.control.objects.mirror import (
    counted,
    driver_of,
    is_mirror,
    is_offer,
    is_shareable,
    may_be_shared,
    named_claim_uid,
    nodes_of,
    owner_pod,
    owner_pod_uid,
    stands_for_another,
)
from parley.control.objects.pod import is_done, is_terminal, reference
from parley.control.objects.standin import is_stand_in, stands_for
from parley.control.release.receipts import REMOVING_DATA, is_of, owed, prepared_by
from parley.control.restored_units import count_units
from parley.control.state import State
from parley.kube.clock import moment
from parley.sdk import Allocation, Device, Held, PodReference
from parley.sdk.checks import DriverFault
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.immediate import is_pending
from parley.sdk.recorded import driver_of_record, held_as_recorded, must_be_deallocated, read_allocation, recorded

Drivers = Mapping[str, EmbeddedDriver]


def restore(state: State, newer: Mapping[str, BuiltinClaim] = MappingProxyType({})) -> set[str]:
    """Restore all recorded allocations. Returns the UIDs of users that the pod cache does not have.

    `newer` has built-in claims, by UID, that are newer than those in the cache.
    """
    claims = [newer.get(claim.metadata.uid, claim) for claim in state.cluster.mirrors()]
    mirrors = [claim for claim in claims if is_mirror(claim)]
    for claim in claims:
        if not is_mirror(claim):
            count_foreign(state.drivers, claim)
    for mirror in mirrors:
        if owner_pod(mirror) is not None or _has_successor(state.cluster, mirror):
            adopt(state, mirror)
    for record in state.cluster.claims():
        adopt_record(state, record)
    for mirror in mirrors:
        if state.ledger.of_claim(mirror.metadata.namespace, mirror.metadata.name) is None:
            adopt(state, mirror)
    for release in owed(state.cluster.releases()):
        _adopt_release(state, release)
    for mirror in mirrors:
        state.moved.mirror_changed(None, mirror)
    users = {user for holding in state.ledger for user in holding.pods.values()}
    return {user.uid for user in users if not state.cluster.has_pod(user)}


def count_unbound(state: State) -> None:
    """Count unbound pods for the node on which their claims are allocated, as the controller before did."""
    for holding in state.ledger:
        for user in holding.pods.values() if holding.only_node is not None else ():
            pod = state.cluster.pod_with_uid(user)
            if pod is not None and not pod.spec.node_name and not is_done(pod):
                state.cluster.usage.assume(pod, holding.node)


def count_begun(state: State) -> None:
    """Count for limits what standalone drivers have begun for pods that are gone by now, or have yet to
    deallocate. Called when it is known what they are allocating."""
    ledger = state.ledger
    for claim in state.cluster.claims():
        meta, class_ = claim.metadata, state.cluster.class_(claim.spec.resource_class_name)
        key = (meta.namespace, meta.name)
        if class_ is None or class_.driver_name in state.drivers or not state.cluster.has_begun(key):
            continue
        known = ledger.of_claim(*key) is not None or ledger.expected_for(*key) is not None
        if not known and not is_pending(claim):
            ledger.count_begun(key, meta.uid, class_.metadata.name)


def adopt(state: State, mirror: BuiltinClaim, *, standalone: bool = False) -> None:
    """Add a holding for a mirror's own allocation, if that is definite and the driver is embedded.

    Its users are the pods that the mirror is reserved for, and its owner, if it has one. `standalone`: even if the
    driver is not embedded; its own record, the stand-in, must be gone then.
    """
    allocation = mirror.status.allocation
    if allocation is None:
        return
    driver, claim_uid = driver_of(allocation), named_claim_uid(mirror)
    uid = claim_uid or mirror.metadata.uid
    found, asks = counted(mirror, driver), class_request(mirror)
    if (driver not in state.drivers and not standalone) or found is None or state.ledger.get(uid) is not None:
        return
    users = _users(state.cluster, mirror)
    node = _node_of(state.cluster, users, mirror, found)
    if not node and is_offer(allocation):  # it may be prepared on any of them
        found = replace(found, available_on=nodes_of(allocation))
    class_name = asks.class_name if asks is not None else ""
    class_ = state.cluster.class_(class_name)
    holding = Holding(
        uid=uid,
        namespace=mirror.metadata.namespace,
        claim=mirror.metadata.name,
        entry=mirror.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION, ""),
        named=bool(claim_uid),
        driver=driver,
        node=node,
        allocation=found,
        pods={user.uid: user for user in users},
        class_name=class_name,
        shareable=may_be_shared(mirror, class_),
        standalone=driver not in state.drivers,
        used=True,
        node_part=bool(allocation.devices.results),
        written=Written.YES,
        offered=is_offer(allocation),
        shown_by={mirror.metadata.uid: mirror.metadata.name},
        known_nodes=state.cluster,
    )
    if not users and holding.node_part and not holding.standalone:
        # It is not known which pod it was for, and whether that has ended.
        holding.owed = {PreparedOn(mirror.metadata.uid, node) for node in holding.nodes or ()}
        holding.phase = Phase.UNRESERVING if holding.owed else Phase.HELD
    _take_over(state, holding)


def _users(cluster: ClusterCache, mirror: BuiltinClaim) -> list[PodReference]:
    """The pods that the mirror is reserved for, and its owner pod, which may be about to be bound."""
    namespace, owner = mirror.metadata.namespace, owner_pod(mirror)
    users = [PodReference(namespace, user.name, user.uid) for user in mirror.status.reserved_for]
    if owner is None or owner in users or not _may_own(cluster.pod((namespace, owner.name)), owner, mirror):
        return users
    return [owner, *users]


def _may_own(pod: Pod | None, owner: PodReference, mirror: BuiltinClaim) -> bool:
    """Whether the mirror may be generated for the pod: users can set an owner reference by hand."""
    if pod is None or pod.metadata.uid != owner.uid:
        return True
    entry = mirror.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION, "")
    if number_of(pod) > len(pod.spec.resource_claims):
        return True  # not all of its entries are kept
    return any(e.name == entry and e.resource_claim_template_name for e in pod.spec.resource_claims)


def _node_of(cluster: ClusterCache, users: Sequence[PodReference], mirror: BuiltinClaim, found: Allocation) -> str:
    """The allocation's node, if it has only one; otherwise the node of one of the pods, or of the devices; or
    ""."""
    assert mirror.status.allocation is not None
    nodes = nodes_of(mirror.status.allocation)
    if len(nodes) == 1:
        return nodes[0]
    pods = [pod for user in users if (pod := cluster.pod((user.namespace, user.name))) is not None]
    pools = [node for node in nodes if any(device.pool == node for device in found.devices)]
    chosen = next((pod.spec.node_name or pod.status.nominated_node_name for pod in pods), "")
    return chosen or next(iter(pools), "")


def adopt_record(state: State, claim: ResourceClaim) -> Holding | None:
    """Add a holding for the allocation in a Parley claim's own record, unless its driver is about to deallocate
    it.

    Returns the holding if it is new. It has no users if no pod uses the claim yet.
    """
    meta, driver = claim.metadata, driver_of_record(claim)
    found = recorded(claim, state.cluster.nodes())
    mirror = _mirror_of(state.cluster, claim)
    uid = mirror.metadata.uid if mirror is not None and is_stand_in(claim) else meta.uid
    is_void = _is_being_deallocated(claim, state.drivers) or not _may_be_recorded(state, claim)
    if found is None or is_void or _is_held(state, claim, uid):
        return None
    users = _owner(state.cluster, claim, mirror) if is_stand_in(claim) else _reserved(claim)
    if is_stand_in(claim) and not users:
        return None
    node, allocation = found
    if driver not in state.drivers:
        allocation = replace(allocation, reserve=None)  # a standalone driver reserves nothing
    class_ = state.cluster.class_(claim.spec.resource_class_name)
    written = Written.YES if mirror is not None and mirror.status.allocation is not None else Written.NO
    if written is Written.NO and users and not is_stand_in(claim):
        written = Written.MAYBE  # its mirror was cleared, or a write of an earlier leader is still to arrive
    holding = Holding(
        uid=uid,
        namespace=meta.namespace,
        claim=meta.name,
        entry=meta.labels.get(GENERATED_LABEL, ""),
        named=not is_stand_in(claim),
        driver=driver,
        node=node,
        allocation=allocation,
        pods={user.uid: user for user in users},
        class_name=claim.spec.resource_class_name,
        shareable=_shareable(claim, mirror, class_),
        immediate=claim.spec.allocation_mode == "Immediate",
        standalone=driver not in state.drivers,
        used=True,
        kept_until=moment(claim.status.kept_until) if claim.status.kept_until else None,
        node_part=_node_part(mirror, class_) or _may_have_data(state, driver, node),
        written=written,
        record_written=Written.YES,
        shown_by={mirror.metadata.uid: mirror.metadata.name} if mirror is not None else {},
        known_nodes=state.cluster,
    )
    if not holding.standalone and not users and is_condition_true(claim.status.conditions, CONDITION_RELEASING):
        holding.phase = Phase.RELEASING
        if any((c.type, c.reason) == (CONDITION_RELEASING, REMOVING_DATA) for c in claim.status.conditions):
            holding.owe_removal()  # some nodes have answered by now: these do so again
            holding.phase = Phase.UNRESERVING
    _take_over(state, holding)
    return holding


def _adopt_release(state: State, release: ClaimRelease) -> None:
    """Add to the ledger what a node may still have prepared, of a claim that exists or of one that is gone."""
    spec, user = release.spec, _running_pod(state.cluster, release)
    holding = state.ledger.get(spec.holding_uid)
    if holding is None and user is not None and spec.running is not None:
        holding = state.ledger.of_entry(user, spec.running.pod_claim_name)  # the claim was recreated
    if holding is not None:
        late = spec.remove_data and (bool(holding.pods) or not is_of(release, holding))  # `Releases` deletes it
        if not holding.standalone and not late:
            holding.owed.add(prepared_by(release))
            holding.removing = holding.only_data = holding.removing or spec.remove_data
            holding.phase = holding.phase if holding.pods else Phase.UNRESERVING
        return
    if spec.driver_name not in state.drivers:
        return
    node, allocation = read_allocation(spec.allocation, state.cluster.nodes())
    named = spec.running is None and spec.holding_uid != spec.claim.uid
    written = Written.MAYBE if named else Written.NO  # which pods use a named claim is not recorded any more
    holding = Holding(
        uid=spec.holding_uid,
        namespace=spec.claim.namespace,
        claim=spec.claim.name,
        entry=spec.running.pod_claim_name if spec.running is not None else "",
        named=named,
        driver=spec.driver_name,
        node=node,
        allocation=allocation,
        pods={user.uid: user} if user is not None else {},
        class_name=spec.resource_class_name,
        units=spec.units,
        used=True,
        written=Written.YES if user is not None else written,
        phase=Phase.HELD if user is not None else Phase.UNRESERVING,
        owed={prepared_by(release)},
        removing=spec.remove_data,
        only_data=spec.remove_data,
        shown_by={spec.claim.uid: spec.claim.name},
        known_nodes=state.cluster,
    )
    _add_holding(state, holding)


def _running_pod(cluster: ClusterCache, release: ClaimRelease) -> PodReference | None:
    """The pod that runs with the ClaimRelease's allocation (`spec.running`), if it has not ended."""
    running = release.spec.running
    pod = cluster.pod((release.spec.claim.namespace, running.name)) if running is not None else None
    there = pod is not None and running is not None and pod.metadata.uid == running.uid and not is_terminal(pod)
    return reference(pod) if pod is not None and there else None


def _stands_for(claim: ResourceClaim, mirror: BuiltinClaim) -> bool:
    entry = mirror.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION, "")
    return stands_for(claim, owner_pod_uid(mirror), entry, class_request(mirror))


def _node_part(mirror: BuiltinClaim | None, class_: ResourceClass | None) -> bool:
    """Whether a plugin prepares the claim, by its mirror if that shows it, or else by its class as it is now."""
    if mirror is not None and mirror.status.allocation is not None:
        return bool(mirror.status.allocation.devices.results)
    return class_ is None or class_.node_part == "Required"


def _may_have_data(state: State, driver: str, node: str) -> bool:
    """Whether the node may have data of the claim, whatever its class says now. Without a plugin on the node
    nothing could be removed."""
    embedded = state.drivers.get(driver)
    return embedded is not None and embedded.leaves_data and state.cluster.plugins.is_alive(driver, node)


def _has_successor(cluster: ClusterCache, mirror: BuiltinClaim) -> bool:
    """Whether another named claim than the mirror's has its name by now."""
    claim = cluster.claim((mirror.metadata.namespace, mirror.metadata.name))
    return claim is not None and stands_for_another(mirror, claim.metadata.uid)


def _is_held(state: State, claim: ResourceClaim, uid: str) -> bool:
    """Whether the ledger has the claim's holding, or one of another claim of the name, for whose end a standalone
    driver's claim waits. An embedded driver has to know of all that it has allocated."""
    held = state.ledger.of_claim(claim.metadata.namespace, claim.metadata.name)
    waits = held is not None and driver_of_record(claim) not in state.drivers
    return waits or state.ledger.get(uid) is not None


def is_of_another_driver(state: State, claim: ResourceClaim) -> bool:
    """Whether a standalone driver recorded an allocation of the claim before its class existed, which is another
    driver's, and does not deallocate it."""
    class_ = state.cluster.class_(claim.spec.resource_class_name)
    is_kept = claim.status.allocation is not None and not _is_being_deallocated(claim, state.drivers)
    return class_ is not None and is_kept and not _may_be_recorded(state, claim)


def _may_be_recorded(state: State, claim: ResourceClaim) -> bool:
    """Whether the driver in the claim's record may have allocated it. As long as a named claim's class does not
    exist, the API server lets any standalone driver do so; but then there is no mirror, and so no pod's use."""
    class_, driver = state.cluster.class_(claim.spec.resource_class_name), driver_of_record(claim)
    is_usable = is_stand_in(claim) or _mirror_of(state.cluster, claim) is not None or claim.status.reserved_for
    return bool(is_usable) or driver in state.drivers or (class_ is not None and class_.driver_name == driver)


def _mirror_of(cluster: ClusterCache, claim: ResourceClaim) -> BuiltinClaim | None:
    """The claim's mirror, not that of another claim of the name."""
    mirror = cluster.mirror((claim.metadata.namespace, claim.metadata.name))
    return mirror if mirror is not None and not stands_for_another(mirror, claim.metadata.uid) else None


def _is_being_deallocated(claim: ResourceClaim, drivers: Drivers) -> bool:
    """Whether a standalone driver deallocates the claim as soon as it sees it."""
    return driver_of_record(claim) not in drivers and must_be_deallocated(claim)


def _owner(cluster: ClusterCache, claim: ResourceClaim, mirror: BuiltinClaim | None) -> list[PodReference]:
    """The stand-in's pod, if it exists and has not ended, and has its mirror; a bound pod's will be recreated."""
    for owner in claim.metadata.owner_references:
        pod = cluster.pod((claim.metadata.namespace, owner.name))
        if pod is not None and pod.metadata.uid == owner.uid and not is_terminal(pod):
            is_used = _stands_for(claim, mirror) if mirror is not None else bool(pod.spec.node_name)
            return [reference(pod)] if is_used else []
    return []


def _reserved(claim: ResourceClaim) -> list[PodReference]:
    return [PodReference(claim.metadata.namespace, user.name, user.uid) for user in claim.status.reserved_for]


def _shareable(claim: ResourceClaim, mirror: BuiltinClaim | None, class_: ResourceClass | None) -> bool:
    """Whether the claim is shareable by its record, or else by its mirror. Never if the mirror is exclusive, as
    schedulers and policies go by that: the class may have changed while a driver allocated."""
    allocation = claim.status.allocation
    if allocation is None:
        return may_be_shared(mirror, class_)
    return allocation.shareable and (mirror is None or is_shareable(mirror))


def _take_over(state: State, holding: Holding) -> None:
    count_units(state, holding)
    _add_holding(state, holding)


def _add_holding(state: State, holding: Holding) -> None:
    if not holding.standalone:
        held = held_as_recorded(holding.uid, holding.node, holding.allocation)
        local = holding.allocation.available_on == ()
        state.drivers[holding.driver].restore(held, holding.path, local=local)
        holding.uses = _uses(state.drivers[holding.driver], held)
    state.ledger.add(holding)


def _uses(driver: EmbeddedDriver, held: Held) -> tuple[str, ...]:
    """The UIDs of the claims that the held one uses; none if the driver fails to say."""
    try:
        return tuple(driver.uses(held))
    except DriverFault:
        return ()


def count_foreign(drivers: Drivers, claim: BuiltinClaim) -> bool:
    """Report the devices that an ordinary claim has to their drivers; returns whether there are any."""
    meta, taken = claim.metadata, taken_by_foreign(drivers, claim)
    for driver, devices in taken.items():
        drivers[driver].restore(Held(meta.uid, None, devices, None), f"{meta.namespace}/{meta.name}")
    return bool(taken)


def taken_by_foreign(drivers: Drivers, claim: BuiltinClaim | None) -> Mapping[str, tuple[Device, ...]]:
    """The devices that an ordinary claim has, by driver. Those with administrator access are left out: such access
    does not exclude other users of the device."""
    allocation = claim.status.allocation if claim is not None else None
    taken: dict[str, tuple[Device, ...]] = {}
    for result in allocation.devices.results if allocation else ():
        if result.driver in drivers and not result.admin_access:
            taken[result.driver] = (*taken.get(result.driver, ()), Device(result.pool, result.device))
    return taken

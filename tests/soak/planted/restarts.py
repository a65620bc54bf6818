"""Planted bugs of a controller that starts, or that has to stop: what it restores, and its lease."""

from collections.abc import Mapping

from tests.soak.planted.bug import Bug, no_result

from parley.api.models import ClaimRelease, ResourceClaim
from parley.control import restoring
from parley.control.holding import Holding
from parley.control.state import State
from parley.drivers.tokens import TokensDriver
from parley.kube.lease import LeaseElector
from parley.sdk import recorded as sdk_records


def _adopt_used(state: State, claim: ResourceClaim) -> Holding | None:
    return _ADOPT_RECORD(state, claim) if claim.status.reserved_for else None


_ADOPT_RECORD = restoring.adopt_record


def _adopt_without_data(state: State, release: ClaimRelease) -> None:
    known = state.ledger.get(release.spec.holding_uid)
    _ADOPT_RELEASE(state, release)
    if known is None and (holding := state.ledger.get(release.spec.holding_uid)) is not None:
        holding.named = False


_ADOPT_RELEASE = restoring._adopt_release

OF_RESTARTS: Mapping[str, Bug] = {
    "a leader never gives up": Bug(
        ((LeaseElector, "_remaining", lambda _self: 1.0),), ("wrote without lease",), lease=True
    ),
    "a restart forgets named claims": Bug(
        ((restoring, "adopt_record", no_result),),
        ("handed out twice", "left over", "moved under a pod", "not reserved", "freed while kept"),
        interference=True,
        kept_claims=True,
    ),
    "a restart forgets generated claims": Bug(
        ((restoring, "adopt", no_result),), ("handed out twice", "left over", "moved under a pod")
    ),
    "a restart forgets what nodes owe": Bug(
        ((restoring, "_adopt_release", no_result),), ("handed out twice", "left over"), interference=True
    ),
    "a restart forgets that claims which are gone left data": Bug(
        ((restoring, "_adopt_release", _adopt_without_data),),
        ("handed out twice", "left over"),
        interference=True,
        node_data=True,
    ),
    "a restart forgets until when claims are kept": Bug(
        ((restoring, "moment", no_result),), ("freed while kept",), kept_claims=True
    ),
    "a restart forgets claims without users": Bug(
        ((restoring, "adopt_record", _adopt_used),), ("handed out twice", "freed while kept"), kept_claims=True
    ),
    "a restart forgets what allocations need": Bug(
        ((restoring, "_uses", lambda *_: ()),), ("freed under a view",), views=True
    ),
    "a restart forgets what is reserved": Bug(
        ((sdk_records, "_reserve", no_result),), ("reserved twice",), reserved_room="Ledger", kept_claims=True
    ),
    "a restart takes shared claims for exclusive": Bug(
        ((restoring, "_shareable", lambda *_: False),), ("lost in a restart",)
    ),
    "a restart forgets tokens": Bug(((TokensDriver, "restore", no_result),), ("over the limit",), tokens=True),
}

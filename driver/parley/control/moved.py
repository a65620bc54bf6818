"""Generated claims that a driver allocated inside the controller, and does not know of now that it is standalone.

A standalone driver restores itself from the claims of `parley.dev`. The generated claims that it allocated when it
was embedded have no such record, so it would allocate their devices a second time. Therefore it is asked about no
pod until these claims have ended. In memory, no effects.
"""

from collections import defaultdict
from collections.abc import Collection

from parley.api.builtin import BuiltinClaim
from parley.api.names import GENERATED_LABEL, POD_CLAIM_NAME_ANNOTATION
from parley.api.wording import counted, listed
from parley.control.caches.cluster import ClusterCache
from parley.control.ledger import Ledger
from parley.control.objects.mirror import counted as allocated
from parley.control.objects.mirror import driver_of, owner_pod
from parley.kube.cache import Key
from parley.sdk import PodReference

_MOST = 3
"""The number of claims that a message names."""


class MovedClaims:
    """Finds such claims, by driver. `here` are the embedded drivers."""

    def __init__(self, cluster: ClusterCache, ledger: Ledger, here: Collection[str]) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._here = here
        self._by_driver: defaultdict[str, dict[str, Key]] = defaultdict(dict)
        self._driver_of: dict[str, str] = {}

    def mirror_changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> str:
        """Handle a mirror that was read or has changed. Returns the driver that may be asked again now, or ""."""
        if new is not None and (old is None or not _may_be_used(old)) and self._is_unknown(new):
            driver, meta = allocator(new), new.metadata
            self._by_driver[driver][meta.uid] = (meta.namespace, meta.name)
            self._driver_of[meta.uid] = driver
        if old is None or (new is not None and new.metadata.uid == old.metadata.uid and _may_be_used(new)):
            return ""
        return self._forget(old.metadata.uid)

    def _is_unknown(self, mirror: BuiltinClaim) -> bool:
        driver, pod = allocator(mirror), owner_pod(mirror)
        if driver in self._here or pod is None or allocated(mirror, driver) is None or not _may_be_used(mirror):
            return False
        return self._ledger.get(mirror.metadata.uid) is None and not self._has_stand_in(mirror, pod)

    def _has_stand_in(self, mirror: BuiltinClaim, pod: PodReference) -> bool:
        """Whether the driver has a record of the claim. If the built-in claim was deleted and recreated, the
        record has the name of the earlier one."""
        entry = mirror.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION, "")
        return any(one.metadata.labels.get(GENERATED_LABEL) == entry for one in self._cluster.stand_ins(pod))

    def _forget(self, uid: str) -> str:
        driver = self._driver_of.pop(uid, "")
        if not driver:
            return ""
        del self._by_driver[driver][uid]
        if self._by_driver[driver]:
            return ""
        del self._by_driver[driver]
        return driver

    def is_embedded(self, driver: str) -> bool:
        """Whether the driver is an embedded one."""
        return driver in self._here

    def problem(self, driver: str, namespace: str | None = None) -> str:
        """Why the driver is not asked about pods, with the remedy; "" if it is. The message names only claims of
        the namespace, or all if that is None."""
        if driver not in self._by_driver:
            return ""
        keys = sorted(self._by_driver[driver].values())
        shown = ["/".join(key) for key in keys if namespace in (None, key[0])]
        others = len(keys) - len(shown)
        which = [listed(shown, _MOST)] if shown else []
        which += [f"{others} in other namespaces"] if others else []
        them = "it" if len(keys) == 1 else "them"
        return (
            f"driver {driver} allocated {counted(len(keys), 'generated claim')} inside the controller"
            f" ({', '.join(which)}), where it does not run any more, and does not know of {them}: wait until the"
            f" pods that use {them} have ended, delete these, or run the driver in the controller again"
        )


def _may_be_used(mirror: BuiltinClaim) -> bool:
    """Whether the mirror is allocated, and a pod uses it or still can. Of one that is being deleted and that
    finalizers hold, reserved for nobody, no driver has to know."""
    ended = bool(mirror.metadata.deletion_timestamp) and not mirror.status.reserved_for
    return mirror.status.allocation is not None and not ended


def allocator(mirror: BuiltinClaim) -> str:
    """The driver that allocated the claim; "" if none has."""
    return driver_of(mirror.status.allocation) if mirror.status.allocation is not None else ""

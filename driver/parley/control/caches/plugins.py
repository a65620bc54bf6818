"""Where the node plugins of drivers are alive: a plugin publishes ResourceSlices even if it has no devices, and
the kubelet removes them half a minute after the plugin is gone.

A driver that has not published for any node since this process began may have plugins that publish nothing, so no
node counts as without a plugin. That a driver publishes is concluded only from slices with the label that the
policy `published-slices` guards: a node may publish a slice of any driver, and would so take the driver from all
other nodes.
"""

from collections import Counter

from parley.api.builtin import ResourceSlice
from parley.api.models import ResourceClass
from parley.api.names import PUBLISHED_BY_LABEL


class Plugins:
    """Tells on which nodes a driver's plugin is alive, by the number of ResourceSlices for each driver and
    node."""

    def __init__(self) -> None:
        self._slices: Counter[tuple[str, str]] = Counter()
        self._publishing: set[str] = set()

    def slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Handle the event of a ResourceSlice."""
        if old is not None and old.spec.node_name:
            key = (old.spec.driver, old.spec.node_name)
            self._slices[key] -= 1
            if not self._slices[key]:
                del self._slices[key]
        if new is not None and new.spec.node_name:
            self._slices[new.spec.driver, new.spec.node_name] += 1
            if PUBLISHED_BY_LABEL in new.metadata.labels:
                self._publishing.add(new.spec.driver)

    def is_alive(self, driver: str, node: str) -> bool:
        """Whether the driver's plugin is on the node."""
        return (driver, node) in self._slices

    def missing(self, class_: ResourceClass, node: str) -> str:
        """Why claims of the class can't be used on the node; "" if its driver's plugin is there or not needed."""
        driver = class_.driver_name
        if class_.node_part != "Required" or driver not in self._publishing or self.is_alive(driver, node):
            return ""
        return f"the node plugin of driver {driver} does not run there"

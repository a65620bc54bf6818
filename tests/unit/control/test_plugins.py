"""A node plugin is where it publishes ResourceSlices; a driver without the label that says so may publish none."""

from tests.unit.control.builders import TOKENS, a_class, read

from parley.api.builtin import ResourceSlice
from parley.api.names import NODE_PLUGIN, PUBLISHED_BY_LABEL
from parley.api.resources import RESOURCE_SLICES
from parley.control.caches.plugins import Plugins


def a_slice(node: str, driver: str = TOKENS, name: str = "one", by: str = NODE_PLUGIN) -> ResourceSlice:
    """Without the label if `by` is empty."""
    labels = {PUBLISHED_BY_LABEL: by} if by else {}
    spec = {"driver": driver, "nodeName": node}
    return read(RESOURCE_SLICES, {"metadata": {"name": name, "labels": labels}, "spec": spec})


MISSING = f"the node plugin of driver {TOKENS} does not run there"


def test_of_a_driver_that_never_published_nothing_is_missing() -> None:
    plugins = Plugins()
    plugins.slice_changed(None, a_slice("node-1", "other.example.com"))
    assert plugins.missing(a_class(), "node-1") == ""


def test_a_driver_that_published_anywhere_has_to_publish_for_the_node() -> None:
    plugins = Plugins()
    plugins.slice_changed(None, a_slice("node-1"))
    assert [plugins.missing(a_class(), node) for node in ("node-1", "node-2")] == ["", MISSING]


def test_a_node_takes_a_driver_that_publishes_no_slices_from_no_other_node() -> None:
    plugins = Plugins()
    plugins.slice_changed(None, a_slice("hostile", by=""))
    assert [plugins.missing(a_class(), node) for node in ("hostile", "node-2")] == ["", ""]


def test_a_class_without_a_node_part_needs_no_plugin() -> None:
    plugins = Plugins()
    plugins.slice_changed(None, a_slice("node-1"))
    assert plugins.missing(a_class(nodePart="None"), "node-2") == ""


def test_the_plugin_is_gone_with_its_last_slice_and_stays_missed() -> None:
    plugins = Plugins()
    slices = [a_slice("node-1", name=name) for name in ("one", "two")]
    for published in slices:
        plugins.slice_changed(None, published)
    plugins.slice_changed(slices[0], None)
    assert plugins.missing(a_class(), "node-1") == ""
    plugins.slice_changed(slices[1], None)
    assert plugins.missing(a_class(), "node-1") == MISSING


def test_a_changed_slice_counts_once_and_one_of_no_node_not_at_all() -> None:
    plugins = Plugins()
    plugins.slice_changed(None, a_slice(""))
    assert plugins.missing(a_class(), "node-1") == ""
    published = a_slice("node-1")
    plugins.slice_changed(None, published)
    plugins.slice_changed(published, published)
    plugins.slice_changed(published, None)
    assert plugins.missing(a_class(), "node-1") == MISSING

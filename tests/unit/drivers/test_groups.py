"""Groups of claims are kept on one node, or in one domain of nodes, for as long as one member is there."""

from parley.api.builtin import Node, ObjectMeta
from parley.drivers.groups import HOSTNAME, Group, Groups, record, recorded

ZONE = "topology.kubernetes.io/zone"
BUILD = Group("team", "build")


def zoned(name: str, zone: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels={ZONE: zone}))


def test_the_first_member_decides_until_the_last_one_is_gone() -> None:
    groups = Groups()
    assert groups.rule(BUILD, HOSTNAME).broken_by("a") == ""
    groups.hold("u-1", BUILD, "a")
    groups.hold("u-2", BUILD, "a")
    assert groups.rule(BUILD, HOSTNAME).broken_by("a") == ""
    assert groups.rule(BUILD, HOSTNAME).broken_by("b") == "group build is on node a"
    assert groups.rule(BUILD, HOSTNAME, {"u-1"}).broken_by("b") == "group build is on node a"
    assert groups.rule(BUILD, HOSTNAME, {"u-1", "u-2"}).broken_by("b") == ""
    assert groups.rule(Group("other", "build"), HOSTNAME).broken_by("b") == ""
    groups.release("u-1")
    groups.release("u-1")
    assert groups.rule(BUILD, HOSTNAME).broken_by("b")
    groups.hold("u-2", BUILD, "b")
    assert groups.rule(BUILD, HOSTNAME).broken_by("a") == "group build is on node b"
    groups.release("u-2")
    assert groups.rule(BUILD, HOSTNAME).broken_by("a") == ""


def test_a_zone_is_all_nodes_with_the_same_label() -> None:
    groups = Groups()
    for name, zone in (("a", "east"), ("b", "east"), ("c", "west")):
        assert groups.observe(None, zoned(name, zone))
    assert groups.observe(None, Node(metadata=ObjectMeta(name="bare")))
    assert groups.rule(BUILD, ZONE).broken_by("c") == ""
    groups.hold("u-1", BUILD, "a")
    rule = groups.rule(BUILD, ZONE)
    assert rule.broken_by("b") == ""
    assert rule.broken_by("c") == f"group build is on node a, with {ZONE}=east"
    for unlabelled in ("bare", "unknown"):
        assert rule.broken_by(unlabelled) == f"has no label {ZONE}, by which group build is kept together"


def test_a_node_is_judged_by_one_member_of_each_domain_however_many_there_are() -> None:
    """A pod may ask for 128 claims of such groups, and each node of a large cluster is judged for all of them."""
    groups = Groups()
    for i in range(1000):
        groups.observe(None, zoned(f"n{i:04}", "east"))
        groups.hold(f"u-{i}", BUILD, f"n{i:04}")
    rule = groups.rule(BUILD, ZONE)
    assert dict(rule.domains) == {"n0000": "east"}
    assert rule.broken_by("n0999") == ""
    groups.observe(zoned("n0500", "east"), zoned("n0500", "west"))
    assert groups.rule(BUILD, ZONE).broken_by("n0999") == f"group build is on node n0500, with {ZONE}=west"


def test_members_on_a_node_without_the_label_keep_the_group_from_all_others() -> None:
    """Where the data is nobody else can be near; a node that is gone may come back."""
    groups = Groups()
    groups.observe(None, zoned("a", "east"))
    groups.observe(None, zoned("b", "east"))
    groups.hold("u-1", BUILD, "a")
    assert groups.observe(zoned("a", "east"), None)
    assert groups.rule(BUILD, ZONE).broken_by("b") == f"group build is on node a, with {ZONE}=(none)"


def test_only_a_change_of_labels_is_one() -> None:
    groups = Groups()
    groups.observe(None, zoned("a", "east"))
    assert not groups.observe(zoned("a", "east"), zoned("a", "east"))
    assert groups.observe(zoned("a", "east"), zoned("a", "west"))
    assert groups.rule(BUILD, ZONE).broken_by("a") == ""


def test_what_an_allocation_records_is_read_again_and_damage_is_no_group() -> None:
    assert recorded(record(BUILD)) == BUILD
    assert recorded({}) is None
    assert recorded({"namespace": "team", "group": 7}) is None

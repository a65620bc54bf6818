"""Groups of claims that have to be near each other: on one node, or in one zone.

Claims of a namespace that name the same group are its members. The place of the first one determines that of the
others, as long as one of them is allocated.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from parley.api.builtin import Node

HOSTNAME = "kubernetes.io/hostname"
"""The topology key of single nodes. With it, a node's domain is its name, not the value of its label."""


class Group(NamedTuple):
    """A group by its namespace and name."""

    namespace: str
    name: str


class Groups:
    """The nodes of the members of all groups, and the labels of all nodes."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self._members: defaultdict[Group, dict[str, str]] = defaultdict(dict)
        self._group_of: dict[str, Group] = {}
        self._rules: defaultdict[Group, dict[str, GroupRule]] = defaultdict(dict)
        """The rules of groups with members, by topology key, until members or labels change."""

    def observe(self, old: Node | None, new: Node | None) -> bool:
        """Takes over a node that appeared, changed or vanished. Returns whether its labels changed."""
        before, after = (node.metadata.labels if node is not None else None for node in (old, new))
        if old is not None:
            self._labels.pop(old.metadata.name, None)
        if new is not None:
            self._labels[new.metadata.name] = new.metadata.labels
        if before != after:
            self._rules.clear()
        return before != after

    def hold(self, uid: str, group: Group, node: str) -> None:
        """Adds the claim with this UID to the group, on the node."""
        self.release(uid)
        self._rules.pop(group, None)
        self._group_of[uid] = group
        self._members[group][uid] = node

    def release(self, uid: str) -> None:
        """Removes the claim from its group. Idempotent."""
        group = self._group_of.pop(uid, None)
        if group is not None:
            del self._members[group][uid]
            self._rules.pop(group, None)
            if not self._members[group]:
                del self._members[group]

    def rule(self, group: Group, topology_key: str, without: Collection[str] = ()) -> "GroupRule":
        """The rule for a claim of the group, as if the members with the UIDs `without` were not allocated."""
        members = self._members.get(group, {})
        if without or not members:
            return self._rule(group, topology_key, members, without)
        known = self._rules[group]
        if topology_key not in known:
            known[topology_key] = self._rule(group, topology_key, members)
        return known[topology_key]

    def _rule(
        self, group: Group, topology_key: str, members: Mapping[str, str], without: Collection[str] = ()
    ) -> "GroupRule":
        nodes = {node for uid, node in members.items() if uid not in without}
        first: dict[str | None, str] = {}
        for node in sorted(nodes):
            first.setdefault(_domain(node, topology_key, self._labels), node)
        return GroupRule(group, topology_key, {node: domain for domain, node in first.items()}, self._labels)


Labels = Mapping[str, Mapping[str, str]]
"""The labels of nodes, by the nodes' names."""


def _domain(node: str, key: str, labels: Labels) -> str | None:
    return node if key == HOSTNAME else labels.get(node, {}).get(key)


class GroupRule(NamedTuple):
    """The nodes that a claim may use because of its group. `domains` are those with members, each by the first of
    their nodes there, so that checking a node is fast. None: that node has no label with the topology key."""

    group: Group
    topology_key: str
    domains: Mapping[str, str | None]
    labels: Labels

    @property
    def only(self) -> Collection[str] | None:
        """The only nodes that the rule allows, if these are few; None if each node has to be checked."""
        return self.domains if self.domains and self.topology_key == HOSTNAME else None

    def broken_by(self, node: str) -> str:
        """Why the claim may not go to the node; "" if it may."""
        key = self.topology_key
        own = _domain(node, key, self.labels)
        if own is None:
            return f"has no label {key}, by which group {self.group.name} is kept together"
        apart = next((member for member, domain in self.domains.items() if domain != own), None)
        if apart is None:
            return ""
        if key == HOSTNAME:
            return f"group {self.group.name} is on node {apart}"
        return f"group {self.group.name} is on node {apart}, with {key}={self.domains[apart] or '(none)'}"


def recorded(data: Mapping[str, Any]) -> Group | None:
    """The group in an allocation's data, as written by `record`; None if it has none."""
    namespace, name = data.get("namespace"), data.get("group")
    return Group(namespace, name) if isinstance(namespace, str) and isinstance(name, str) else None


def record(group: Group) -> Mapping[str, str]:
    """The fields of an allocation's data that record the group."""
    return {"namespace": group.namespace, "group": group.name}

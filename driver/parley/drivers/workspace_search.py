"""Searches nodes with room for the workspaces of a request, by its rules and what of each disk is promised."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from parley.api.wording import bytes_text
from parley.drivers.disks import Disks
from parley.drivers.groups import GroupRule
from parley.drivers.views import ViewRule


@dataclass(frozen=True, slots=True)
class WorkspaceSearch:
    """A search for nodes with the wanted room that the rules allow. With a `fault` there are none; `freed` counts
    as free, too. If `enforcing` is given, only these nodes are viable."""

    disks: Disks
    fault: str
    wanted: int
    rules: Sequence[GroupRule | ViewRule]
    freed: Mapping[str, int]
    enforcing: Collection[str] | None

    def lacking(self, node: str) -> str:
        """Why the node is not viable, "" if it is."""
        near = (why for rule in self.rules if (why := rule.broken_by(node)))
        return self.fault or next(near, "") or self._lacking_room(node)

    def fullest(self) -> Iterator[str]:
        """The viable nodes, those with the least room first."""
        few = [rule.only for rule in self.rules if rule.only is not None]
        nodes = iter(few[0]) if few else self.disks.fullest(self.wanted)
        return (node for node in (() if self.fault else nodes) if not self.lacking(node))

    def has_room_anywhere(self) -> bool:
        """Whether a node is viable. Hundreds of requests may be asked after each change, each of another group,
        but groups in one zone restrict them to the same nodes: these are searched once."""
        if self.fault or any(rule.only is not None for rule in self.rules):
            return next(self.fullest(), None) is not None
        allowed = frozenset((rule.topology_key, *rule.domains.values()) for rule in self._group_rules())
        return self.disks.most_free((allowed, self.enforcing is not None), self._allows) >= self.wanted

    def _group_rules(self) -> Iterator[GroupRule]:
        return (rule for rule in self.rules if isinstance(rule, GroupRule))

    def _allows(self, node: str) -> bool:
        """Whether the node is viable if it has room."""
        able = self.enforcing is None or node in self.enforcing
        return able and not any(rule.broken_by(node) for rule in self.rules)

    def _lacking_room(self, node: str) -> str:
        if node not in self.disks:
            return "has no disk for workspaces: its node plugin publishes none"
        if self.enforcing is not None and node not in self.enforcing:
            return "can't keep workspaces to their sizes (enforce=Image): its node plugin has no loop devices"
        free = max(self.disks.free(node) + self.freed.get(node, 0), 0)
        if self.wanted <= free:
            return ""
        left, size = bytes_text(free), bytes_text(self.disks.size(node))
        return f"{left} of {size} free for workspaces, {bytes_text(self.wanted)} wanted"

"""What kube-scheduler and an extender say to each other, as JSON with Go's casing.

Source of the shapes: k8s.io/kube-scheduler/extender/v1 of Kubernetes 1.37, `nodeCacheCapable`: nodes are names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from parley.api.builtin import Pod
from parley.api.resources import PODS


class BadCall(Exception):
    """Raised when a body is not what kube-scheduler sends."""


class _Pascal(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    pass


class _Meta(msgspec.Struct, frozen=True, gc=False):
    uid: str = ""


class _HeadPod(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta


class Head(_Pascal, frozen=True):
    """As much of a question about nodes as tells whether it was answered before."""

    pod: _HeadPod
    node_names: msgspec.Raw

    @property
    def uid(self) -> str:
        """The pod's."""
        return self.pod.metadata.uid

    def nodes(self) -> list[str]:
        """Their names; none for whole nodes."""
        return _NAMES.decode(self.node_names) or []


class _Nodes(_Pascal, frozen=True):
    pod: msgspec.Raw
    node_names: list[str] | None = None


class _Wish(msgspec.Struct, frozen=True, rename="camel", gc=False):
    preferred_during_scheduling_ignored_during_execution: list[msgspec.Raw] | None = None


class _Wishes(msgspec.Struct, frozen=True, rename="camel", gc=False):
    node_affinity: _Wish | None = None
    pod_affinity: _Wish | None = None
    pod_anti_affinity: _Wish | None = None


class _WishingSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    affinity: _Wishes | None = None
    topology_spread_constraints: list[msgspec.Raw] | None = None


class _Wishing(msgspec.Struct, frozen=True, gc=False):
    spec: _WishingSpec

    @property
    def choosy(self) -> bool:
        affinity = self.spec.affinity or _Wishes()
        wishes = (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity)
        return bool(self.spec.topology_spread_constraints) or any(
            wish is not None and wish.preferred_during_scheduling_ignored_during_execution for wish in wishes
        )


@dataclass(frozen=True, slots=True)
class Proposed:
    """A pod and the nodes that pass its scheduler's filters. `choosy`: it would rather have some of them."""

    pod: Pod
    nodes: Sequence[str]
    choosy: bool


class Bind(_Pascal, frozen=True):
    """Bind the pod to the node."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class _Preemption(_Pascal, frozen=True):
    pod: msgspec.Raw
    node_name_to_meta_victims: dict[str, msgspec.Raw] | None = None


_NAMES = msgspec.json.Decoder(list[str] | None)
_HEAD = msgspec.json.Decoder(Head)
_NODES = msgspec.json.Decoder(_Nodes)
_WISHING = msgspec.json.Decoder(_Wishing)
_BIND = msgspec.json.Decoder(Bind)
_PREEMPTION = msgspec.json.Decoder(_Preemption)


def head(body: bytes) -> Head:
    """Raises BadCall."""
    found: Head = _decoded(_HEAD, body)
    return found


def proposed(body: bytes) -> Proposed:
    """What filter and prioritize ask about. Raises BadCall, also for whole nodes instead of names."""
    asked = _decoded(_NODES, body)
    if asked.node_names is None:
        raise BadCall("NodeNames is missing: set nodeCacheCapable: true for this extender")
    pod = bytes(asked.pod)
    return Proposed(PODS.decode(pod), asked.node_names, _decoded(_WISHING, pod).choosy)


def bind(body: bytes) -> Bind:
    """Raises BadCall."""
    found: Bind = _decoded(_BIND, body)
    return found


def preemption(body: bytes) -> tuple[Pod, Mapping[str, msgspec.Raw]]:
    """A pod, and who would have to go from each node for it. Raises BadCall."""
    asked = _decoded(_PREEMPTION, body)
    if asked.node_name_to_meta_victims is None:
        raise BadCall("NodeNameToMetaVictims is missing: set nodeCacheCapable: true for this extender")
    return PODS.decode(bytes(asked.pod)), asked.node_name_to_meta_victims


def _decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise BadCall(f"not what kube-scheduler sends: {error}") from None


def all_pass(names: msgspec.Raw) -> bytes:
    """A filter's answer: each of the nodes, given as the JSON list that was asked about, will do."""
    return b'{"NodeNames":' + bytes(names) + b',"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'


def passed(names: Sequence[str], refused: Iterable[str], why: str) -> bytes:
    """A filter's answer: these nodes will do; on the others no preemption would help."""
    failed = dict.fromkeys(refused, why)
    return orjson.dumps({"NodeNames": names, "FailedNodes": {}, "FailedAndUnresolvableNodes": failed, "Error": ""})


def scores(by_node: Mapping[str, int]) -> bytes:
    """A prioritize's answer, 0 (worst) to 10."""
    return orjson.dumps([{"Host": node, "Score": score} for node, score in by_node.items()])


def victims(by_node: Mapping[str, msgspec.Raw]) -> bytes:
    """A preempt's answer: the nodes where preemption helps, with those who would have to go."""
    return msgspec.json.encode({"NodeNameToMetaVictims": by_node})


def bound(error: str) -> bytes:
    """A bind's answer: "" if the pod is bound."""
    return orjson.dumps({"Error": error})

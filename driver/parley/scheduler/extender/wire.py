"""What kube-scheduler and an extender say to each other, as JSON with Go's casing.

Source of the shapes: k8s.io/kube-scheduler/extender/v1 of Kubernetes 1.37, `nodeCacheCapable`: nodes are names.
"""

from collections.abc import Iterable, Mapping, Sequence
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


class Proposed(_Pascal, frozen=True):
    """A pod and the nodes that pass its scheduler's filters, decoded as far as it is asked for.

    Each raises BadCall where it is not what kube-scheduler sends.
    """

    pod_as_sent: msgspec.Raw = msgspec.field(name="Pod")
    names_as_sent: msgspec.Raw = msgspec.field(name="NodeNames")

    @property
    def uid(self) -> str:
        """The pod's."""
        head: _HeadPod = _decoded(_HEAD, self.pod_as_sent)
        return head.metadata.uid

    def pod(self) -> Pod:
        """All that Parley reads of it."""
        return PODS.decode(bytes(self.pod_as_sent))

    def nodes(self) -> Sequence[str]:
        """Their names."""
        names: list[str] | None = _decoded(_NAMES, self.names_as_sent)
        if names is None:
            raise BadCall("NodeNames is missing: set nodeCacheCapable: true for this extender")
        return names

    def choosy(self) -> bool:
        """Whether the pod would rather have some of the nodes than others."""
        wishing: _Wishing = _decoded(_WISHING, self.pod_as_sent)
        return wishing.choosy


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
_HEAD = msgspec.json.Decoder(_HeadPod)
_PROPOSED = msgspec.json.Decoder(Proposed)
_WISHING = msgspec.json.Decoder(_Wishing)
_BIND = msgspec.json.Decoder(Bind)
_PREEMPTION = msgspec.json.Decoder(_Preemption)


def proposed(body: bytes) -> Proposed:
    """What filter and prioritize ask about. Raises BadCall."""
    found: Proposed = _decoded(_PROPOSED, body)
    return found


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


def _decoded(decoder: msgspec.json.Decoder[Any], body: bytes | msgspec.Raw) -> Any:
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

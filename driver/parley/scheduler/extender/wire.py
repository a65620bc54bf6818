"""The calls of kube-scheduler to an extender and their responses, as JSON with Go's casing.

Source of the schemas: k8s.io/kube-scheduler/extender/v1 of Kubernetes 1.37, `nodeCacheCapable`: nodes are names.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import orjson

from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.negotiation.requests import requested
from parley.sdk import PodReference

_NOT_SENT = "not what kube-scheduler sends"


class BadCall(Exception):
    """Raised when a body is not what kube-scheduler sends."""


class _Pascal(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    pass


class _Meta(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _HeadPod(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta


class _Preferred(msgspec.Struct, frozen=True, rename="camel", gc=False):
    preferred_during_scheduling_ignored_during_execution: list[msgspec.Raw] | None = None


class _Affinity(msgspec.Struct, frozen=True, rename="camel", gc=False):
    node_affinity: _Preferred | None = None
    pod_affinity: _Preferred | None = None
    pod_anti_affinity: _Preferred | None = None


class _PreferringSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    affinity: _Affinity | None = None
    topology_spread_constraints: list[msgspec.Raw] | None = None


class _PreferringPod(msgspec.Struct, frozen=True, gc=False):
    spec: _PreferringSpec

    @property
    def has_preferences(self) -> bool:
        affinity = self.spec.affinity or _Affinity()
        terms = (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity)
        return bool(self.spec.topology_spread_constraints) or any(
            term is not None and term.preferred_during_scheduling_ignored_during_execution for term in terms
        )


class Proposed(_Pascal, frozen=True):
    """A pod and the nodes that pass its scheduler's filters. Each part is decoded when it is asked for.

    Decoding raises BadCall if the part is not what kube-scheduler sends.
    """

    pod_as_sent: msgspec.Raw = msgspec.field(name="Pod")
    names_as_sent: msgspec.Raw = msgspec.field(name="NodeNames")

    @property
    def user(self) -> PodReference:
        """The pod that the call is about."""
        head: _HeadPod = _decoded(_HEAD, self.pod_as_sent)
        return PodReference(head.metadata.namespace, head.metadata.name, head.metadata.uid)

    def pod(self) -> Pod:
        """The pod as the caller has it. What the cache has of a pod counts for more."""
        return _pod(self.pod_as_sent)

    def nodes(self) -> Sequence[str]:
        """The names of the nodes."""
        names: list[str] | None = _decoded(_NAMES, self.names_as_sent)
        if names is None:
            raise BadCall("NodeNames is missing: set nodeCacheCapable: true for this extender")
        return names

    def has_preferences(self) -> bool:
        """Whether the pod prefers some nodes to others, by preferred affinity or topology spread."""
        preferring: _PreferringPod = _decoded(_PREFERRING, self.pod_as_sent)
        return preferring.has_preferences


_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z", max_length=253)]
"""A name that an object may have: the API server is asked about it."""


class Bind(_Pascal, frozen=True):
    """The request to bind a pod to a node."""

    pod_name: _Name
    pod_namespace: _Name
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class _Preemption(_Pascal, frozen=True):
    pod: msgspec.Raw
    node_name_to_meta_victims: dict[str, msgspec.Raw] | None = None


_NAMES = msgspec.json.Decoder(list[str] | None)
_HEAD = msgspec.json.Decoder(_HeadPod)
_PROPOSED = msgspec.json.Decoder(Proposed)
_PREFERRING = msgspec.json.Decoder(_PreferringPod)
_BIND = msgspec.json.Decoder(Bind)
_PREEMPTION = msgspec.json.Decoder(_Preemption)


def proposed(body: bytes) -> Proposed:
    """Decodes a filter or prioritize call. Raises BadCall."""
    found: Proposed = _decoded(_PROPOSED, body)
    return found


def bind(body: bytes) -> Bind:
    """Decodes a bind call. Raises BadCall."""
    found: Bind = _decoded(_BIND, body)
    return found


def preemption(body: bytes) -> tuple[Pod, Mapping[str, msgspec.Raw]]:
    """Decodes a preempt call: the pod, and the victims on each node, undecoded. Raises BadCall."""
    asked = _decoded(_PREEMPTION, body)
    if asked.node_name_to_meta_victims is None:
        raise BadCall("NodeNameToMetaVictims is missing: set nodeCacheCapable: true for this extender")
    return _pod(asked.pod), asked.node_name_to_meta_victims


def _pod(sent: msgspec.Raw) -> Pod:
    try:
        pod = PODS.decode(bytes(sent))
        requested(pod)  # raises ValueError for what is no quantity
    except ValueError as error:
        raise BadCall(f"Pod: {_NOT_SENT}: {error}") from None
    return pod


def _decoded(decoder: msgspec.json.Decoder[Any], body: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadCall(f"{_NOT_SENT}: {error}") from None


def all_pass(names: msgspec.Raw) -> bytes:
    """The response to filter if all nodes are viable; `names` is their JSON list as in the call."""
    return b'{"NodeNames":' + bytes(names) + b',"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'


def passed(names: Sequence[str], refused: Iterable[str], why: str) -> bytes:
    """The response to filter: the viable nodes, and the rejected ones, where no preemption would help."""
    failed = dict.fromkeys(refused, why)
    return orjson.dumps({"NodeNames": names, "FailedNodes": {}, "FailedAndUnresolvableNodes": failed, "Error": ""})


def failed(error: str) -> bytes:
    """The response to filter if the call can't be answered: the scheduler reports it and tries the pod again."""
    return orjson.dumps({"NodeNames": [], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": error})


def scores(by_node: Mapping[str, int]) -> bytes:
    """The response to prioritize: scores from 0 (worst) to 10."""
    return orjson.dumps([{"Host": node, "Score": score} for node, score in by_node.items()])


def victims(by_node: Mapping[str, msgspec.Raw]) -> bytes:
    """The response to preempt: the nodes where preemption helps, with their victims."""
    return msgspec.json.encode({"NodeNameToMetaVictims": by_node})


def bound(error: str) -> bytes:
    """The response to bind: the error, "" if the pod is bound."""
    return orjson.dumps({"Error": error})

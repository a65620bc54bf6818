"""kube-scheduler's calls to an extender, and its handling of the responses, as JSON in Go's casing.

Every call has a timeout, as with `httpTimeout`: after it the scheduler goes on, while the extender may still
process the call. `extended_cycle` and `preemption` decide when to call. Source: pkg/scheduler/extender.go of
Kubernetes 1.37, with `nodeCacheCapable`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from parley.api.builtin import Pod

Extender = Callable[[str, bytes], Awaitable[bytes]]
"""Called with a verb ("filter", "prioritize", "preempt", "bind") and a body; returns the body of the answer.

Raises ExtenderUnavailable."""

Victims = Mapping[str, Sequence[str]]
"""UIDs of the pods that would be evicted, by node."""

ANSWER_TIMEOUT = 5.0
"""Seconds for all verbs but `bind`."""

BIND_TIMEOUT = 60.0
"""Seconds."""


class ExtenderUnavailable(Exception):
    """Raised if the extender does not answer: no connection, or 503."""


class ExtenderFailed(Exception):
    """Raised if a call brought no usable answer; its message becomes that of the pod's condition."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """The result of the filter verb: the nodes that passed, and why others failed; evictions can't help on
    `unresolvable` ones."""

    nodes: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


class ExtenderCalls:
    """Calls the extender's verbs. Each raises ExtenderFailed."""

    def __init__(self, extender: Extender) -> None:
        self._extender = extender
        self._under_way: set[asyncio.Task[bytes]] = set()

    async def filter(self, pod: Pod, nodes: Sequence[str]) -> Filtered:
        """Filter the nodes."""
        answer = await self._send("filter", _question(pod, nodes))
        _raise_error(answer)
        passed = tuple(answer.get("NodeNames") or ())
        for name in passed:
            if name not in nodes:
                raise ExtenderFailed(
                    f'extender "{URL}" claims a filtered node "{name}" which is not found in the input node list'
                )
        unresolvable = answer.get("FailedAndUnresolvableNodes") or {}
        failed = answer.get("FailedNodes") or {}
        return Filtered(passed, {n: why for n, why in failed.items() if n not in unresolvable}, unresolvable)

    async def prioritize(self, pod: Pod, nodes: Sequence[str]) -> Mapping[str, int]:
        """The extender's scores from 0 to 10, by node."""
        answer = await self._send("prioritize", _question(pod, nodes))
        return {entry["Host"]: entry["Score"] for entry in answer or ()}

    async def preempt(self, pod: Pod, victims: Victims) -> dict[str, tuple[str, ...]]:
        """The nodes, with their victims, that the extender leaves as candidates for preemption."""
        meta = {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for node, uids in victims.items()
        }
        question = {"Pod": _whole(pod), "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
        answer = await self._send("preempt", question)
        chosen = answer.get("NodeNameToMetaVictims") or {}
        left = {node: tuple(entry["UID"] for entry in one["Pods"] or ()) for node, one in chosen.items()}
        for node, uids in left.items():
            if not uids:
                raise ExtenderFailed(f'expected at least one victim pod on node "{node}"')
        return left

    async def bind(self, pod: Pod, node: str) -> None:
        """Have the extender bind the pod; returns when it is bound."""
        meta = pod.metadata
        body = {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": node}
        _raise_error(await self._send("bind", body, BIND_TIMEOUT))

    async def _send(self, verb: str, body: Any, seconds: float = ANSWER_TIMEOUT) -> Any:
        task = asyncio.ensure_future(self._extender(verb, orjson.dumps(body)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise ExtenderFailed(
                f'Post "{URL}/{verb}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
            )
        try:
            return orjson.loads(task.result())
        except ExtenderUnavailable:
            raise ExtenderFailed(f"failed {verb} with extender at URL {URL}, code 503") from None


URL = "http://127.0.0.1:8090"


def _whole(pod: Pod) -> Any:
    """The pod as JSON, with the fields of Parley's structs."""
    return orjson.loads(msgspec.json.encode(pod))


def _question(pod: Pod, nodes: Sequence[str]) -> dict[str, Any]:
    return {"Pod": _whole(pod), "Nodes": None, "NodeNames": list(nodes)}


def _raise_error(answer: Mapping[str, Any]) -> None:
    if error := answer.get("Error"):
        raise ExtenderFailed(error)

"""An explanation as data: what `parley explain -o json` prints, in camelCase; see docs/explain.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from pydantic.alias_generators import to_camel

from parley.api.wording import printable_lines
from parley.explain.times import without_ages


@dataclass(frozen=True, slots=True)
class ClaimDetails:
    """One of the pod's claims. `state` is allocated, offered, pending, released (the pod has ended), or the reason
    code of the claim's problem; `message` explains it. `holds` are devices as "pool/device", or other values that
    the driver recorded."""

    entry: str
    source: str
    claim: str
    class_name: str
    driver: str
    state: str
    message: str = ""
    nodes: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    since: str = ""
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """The answer for one claim on one node: viable, not viable (`why` is the reason), or not known (None)."""

    claim: str
    viable: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node. `verdict` is selected, viable, notViable, doesNotFit (`fit` is the reason) or unknown; `asked` is
    whether it was among the last candidates."""

    node: str
    verdict: str
    fit: str
    asked: bool
    claims: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class PodFinding:
    """A report about the pod, or the lack of an expected one. `by` is controller, scheduler, kubelet, node plugin,
    kube-controller-manager or "driver NAME"; `code` is the reason code, if there is one."""

    by: str
    code: str
    text: str
    at: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that would help. `kind` is podEnds, claimEnds, preemption, node, addNode, noNode, alternative or
    advice."""

    kind: str
    text: str
    pods: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a pod waits, or is where it is. `state` is waits, bound, ended, deleting or gated; `since` is when it
    was bound, or else created. `ahead` are pods that wait longer for the same classes. `recorded` is False if the
    PodScheduling could not be read: then `round`, `candidates` and `viable` are meaningless."""

    namespace: str
    name: str
    state: str
    phase: str
    node: str
    since: str
    code: str
    message: str
    round: int
    candidates: int
    viable: int
    recorded: bool
    claims: tuple[ClaimDetails, ...]
    nodes: tuple[NodeRow, ...]
    findings: tuple[PodFinding, ...]
    remedies: tuple[Remedy, ...]
    ahead: tuple[str, ...]
    unread: tuple[str, ...]
    now: str

    @property
    def title(self) -> str:
        """The pod as namespace/name."""
        return f"{self.namespace}/{self.name}"


def readable(value: Any) -> Any:
    """The value with all strings in it, at any depth, made safe to print on a terminal."""
    return _with_texts(value, printable_lines)


def timeless(explanation: Explanation) -> Explanation:
    """The explanation without times that pass: equal for two that differ only in when they were made."""
    found: Explanation = _with_texts(replace(explanation, now=""), without_ages)
    return found


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_with_texts(one, change) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _with_texts(getattr(value, f.name), change) for f in fields(value)})
    return value


def wire(value: Any) -> Any:
    """The value as JSON: dataclasses become objects with camelCase names, every field present."""
    if is_dataclass(value) and not isinstance(value, type):
        return {to_camel(f.name): wire(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: wire(inner) for key, inner in value.items()}
    return [wire(item) for item in value] if isinstance(value, tuple | list) else value

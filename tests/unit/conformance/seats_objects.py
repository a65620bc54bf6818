"""What the driver of seats reads in the API's objects."""

from collections.abc import Mapping, Sequence
from typing import Any

NAME = "seats.example.com"
Object = dict[str, Any]


class WrongParameters(Exception):
    """Raised with the reason that users read."""


def seats(claim: Object, *, reads: bool = False) -> int:
    """How many the claim wants. Raises WrongParameters."""
    if "parametersRef" in claim["spec"] and not reads:
        raise WrongParameters("parametersRef is no number of seats: this driver reads no objects")
    parameters = claim["spec"].get("parameters") or {}
    wanted = parameters.get("seats", 1)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 < wanted < 1000:
        raise WrongParameters(f"claim {claim['metadata']['name']}: seats={wanted!r:.100} is no number of seats")
    return wanted


def was_answered(question: Mapping[str, Any]) -> bool:
    """Whether the question was answered before."""
    return any(entry["driverName"] == NAME for entry in entries_of(question))


def allocation_of(claim: Mapping[str, Any]) -> Object:
    found: Object = (claim.get("status") or {}).get("allocation") or {}
    return found


def is_anothers(claim: Mapping[str, Any]) -> bool:
    return any(handle["driverName"] != NAME for handle in allocation_of(claim).get("handles") or ())


def entries_of(question: Mapping[str, Any]) -> Sequence[Object]:
    return (question.get("status") or {}).get("claims") or ()


def is_suitable(class_: Mapping[str, Any], node: str) -> bool:
    selector_ = class_.get("suitableNodes")
    if selector_ is None:
        return True
    return any(
        field["values"] == [node] for term in selector_["nodeSelectorTerms"] for field in term["matchFields"]
    )


def begun(claims: Mapping[str, Object], finalizer: str) -> list[Object]:
    """Those with that finalizer and nothing allocated."""
    return [
        c for c in claims.values() if finalizer in c["metadata"].get("finalizers", ()) and not allocation_of(c)
    ]

"""The admission policy `exclusive-mirrors` of `deploy/base/mirrors.yaml`, for the writes of the simulated cluster.

Built-in resource allocation knows no exclusive claims, so that without it kube-scheduler and claim controller let
a second pod in, or say who is next. The API server in memory has no admission; the models ask here before they
write. Pure.
"""

from collections.abc import Mapping, Sequence

from parley.api.builtin import BuiltinClaim
from parley.control.mirror import is_mirror, is_shareable, owner_pod_uid


def refusal(claim: BuiltinClaim, after: Sequence[Mapping[str, str]], *, allocates: bool = False) -> str:
    """Why `status.reservedFor` of the claim can't become `after`, or "".

    `allocates`: whoever asks holds the verb `allocate`, as Parley does; scheduler and claim controller do not.
    """
    if not is_mirror(claim) or is_shareable(claim):
        return ""
    title = f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}"
    if len(after) > 1:
        pods = ", ".join(consumer["name"] for consumer in after)
        return (
            f"{title} is exclusive, and status.reservedFor would hold {len(after)} pods ({pods}): "
            "wait until the first pod is gone, or use a ResourceClass that has shareable: true."
        )
    before = claim.status.reserved_for
    if len(before) == len(after) == 1 and before[0].uid != after[0]["uid"]:
        return (
            f"{title} is exclusive and reserved for pod {before[0].name} (UID {before[0].uid}); "
            f"status.reservedFor cannot pass to pod {after[0]['name']} (UID {after[0]['uid']}) in one step: "
            "clear it first, when the first pod is gone."
        )
    known = {owner_pod_uid(claim), *(consumer.uid for consumer in before)}
    strangers = [consumer["name"] for consumer in after if consumer["uid"] not in known]
    if strangers and not allocates:
        return (
            f"{title} is exclusive, and Parley says whose turn it is: wait until it adds pod {strangers[0]} to "
            "status.reservedFor, which takes the verb allocate on resourceclaims.parley.dev."
        )
    return ""

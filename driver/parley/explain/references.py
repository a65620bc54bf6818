"""The objects that `parametersRef` names, read once for a snapshot, with the user's own permissions.

Read are only those of unallocated claims, and of their classes, whose driver comes with Parley, and at most MOST:
claims whose object is not among these can't be explained.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from parley.api import reasons
from parley.api.models import ParametersReference
from parley.control.caches.cluster import ClusterCache
from parley.control.objects.class_request import ClassRequest, class_request, of_spec
from parley.control.objects.mirror import is_mirror
from parley.kube.client import ApiError, Call, Client, OutcomeUnknown
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.reference_reader import why_not_read
from parley.sdk.referenced import (
    InvalidParametersObject,
    ParametersObject,
    ParametersUnavailable,
    object_of,
    parameters_in,
)

MOST = 64
"""The most objects that are read for a snapshot."""


class SnapshotReferences:
    """The content of parameters objects, as read for a snapshot; implements `References`."""

    def __init__(self) -> None:
        self._found: dict[ParametersObject, bytes | ParametersUnavailable] = {}

    async def read(self, client: Client, cluster: ClusterCache, drivers: Mapping[str, EmbeddedDriver]) -> None:
        """Get the objects that claims and classes in the caches name. Namespaces, and the classes, take turns: one
        that names many objects does not keep those of others from being read."""
        turns = Counter[str]()
        wanted = dict[ParametersObject, int]()
        for one in _named(cluster, drivers):
            if one not in wanted:
                wanted[one] = turns[one.payer]
                turns[one.payer] += 1
        first = sorted(wanted, key=wanted.__getitem__)[:MOST]
        await asyncio.gather(*(self._read(client, one) for one in first))

    async def _read(self, client: Client, wanted: ParametersObject) -> None:
        try:
            answer = await client.request(Call("get", wanted.resource, wanted.namespace or None, wanted.name))
            self._found[wanted] = parameters_in(wanted, answer)
        except InvalidParametersObject as error:
            self._found[wanted] = ParametersUnavailable(
                reasons.PARAMETERS_INVALID, f"{wanted} {error}", wanted.topic
            )
        except (ApiError, OutcomeUnknown) as error:
            self._found[wanted] = ParametersUnavailable(*why_not_read(wanted, error), wanted.topic)

    def get(self, wanted: ParametersObject, since: float) -> Mapping[str, Any]:  # noqa: ARG002 - as References has it
        """The object's content when the snapshot was read. Raises ParametersUnavailable."""
        found = self._found.get(wanted)
        if found is None:
            raise ParametersUnavailable(reasons.PARAMETERS_NOT_READ, f"{wanted} was not read", wanted.topic)
        if isinstance(found, ParametersUnavailable):
            raise found
        content: Mapping[str, Any] = orjson.loads(found)
        return content

    def reread_later(self, wanted: ParametersObject) -> None:
        """Does nothing: a snapshot is not read again."""


def _named(cluster: ClusterCache, drivers: Mapping[str, EmbeddedDriver]) -> Iterator[ParametersObject]:
    for namespace, request in _pending(cluster):
        class_ = cluster.class_(request.class_name)
        driver = drivers.get(class_.driver_name) if class_ is not None else None
        if class_ is None or driver is None:
            continue
        of_class: ParametersReference | None = class_.parameters_ref
        for reference, payer in ((request.reference, namespace), (of_class, "")):
            if reference is not None:
                try:
                    yield object_of(reference, payer, driver.driver.parameter_kinds)
                except InvalidParametersObject:
                    pass  # reported when the parameters are validated


def _pending(cluster: ClusterCache) -> Iterator[tuple[str, ClassRequest]]:
    """The requests of unallocated claims, each with its namespace."""
    for claim in cluster.claims():
        if claim.status.allocation is None:
            yield claim.metadata.namespace, of_spec(claim.spec)
    for mirror in cluster.mirrors():
        if (
            is_mirror(mirror)
            and mirror.status.allocation is None
            and (request := class_request(mirror)) is not None
        ):
            yield mirror.metadata.namespace, request

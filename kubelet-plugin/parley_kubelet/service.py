# ruff: noqa: ARG002, N802 - the protocol gives the names, and arguments that not every answer needs
"""The gRPC edge to the kubelet: DRA v1, NodePrepareResources and NodeUnprepareResources.

Translates between messages and `preparation`, and sees that every claim of a call gets its own answer: the
kubelet treats a missing one as a failure of all. A call that the kubelet gives up ends where it waits, which
is before anything was written.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

import structlog

from parley_kubelet.cdi import device_id
from parley_kubelet.checkpoint import CheckpointError, PreparedClaim
from parley_kubelet.devices import NameTaken
from parley_kubelet.handle import Refused
from parley_kubelet.preparation import ClaimName, Preparation
from parley_kubelet.proto import dra_v1_pb2 as dra
from parley_kubelet.proto.dra_v1_pb2_grpc import DRAPluginServicer

log = structlog.get_logger(__name__)


class DraService(DRAPluginServicer):
    """Answers the kubelet for one driver."""

    def __init__(self, preparation: Preparation, driver: str) -> None:
        self._preparation = preparation
        self._driver = driver

    async def NodePrepareResources(
        self, request: dra.NodePrepareResourcesRequest, context: Any
    ) -> dra.NodePrepareResourcesResponse:
        """Prepare each claim; one that cannot be prepared does not hinder the others."""
        answers = await asyncio.gather(*(self._prepare(claim) for claim in _names(request.claims)))
        return dra.NodePrepareResourcesResponse(claims=dict(answers))

    async def NodeUnprepareResources(
        self, request: dra.NodeUnprepareResourcesRequest, context: Any
    ) -> dra.NodeUnprepareResourcesResponse:
        """Unprepare each claim."""
        answers = await asyncio.gather(*(self._unprepare(claim) for claim in _names(request.claims)))
        return dra.NodeUnprepareResourcesResponse(claims=dict(answers))

    async def _prepare(self, claim: ClaimName) -> tuple[str, dra.NodePrepareResourceResponse]:
        answer = dra.NodePrepareResourceResponse()
        answer.error, entry = await _attempt("prepare", claim, self._preparation.prepare(claim))
        if entry is not None:
            answer.devices.extend(self._devices(entry))
            log.info("claim prepared", claim=str(claim), uid=claim.uid, devices=[d.name for d in entry.devices])
        return claim.uid, answer

    async def _unprepare(self, claim: ClaimName) -> tuple[str, dra.NodeUnprepareResourceResponse]:
        error, _ = await _attempt("unprepare", claim, self._preparation.unprepare(claim))
        if not error:
            log.info("claim unprepared", claim=str(claim), uid=claim.uid)
        return claim.uid, dra.NodeUnprepareResourceResponse(error=error)

    def _devices(self, entry: PreparedClaim) -> Iterable[dra.Device]:
        """Every result carries the CDI device of the whole claim; container runtimes add it once."""
        for result in entry.results:
            yield dra.Device(
                request_names=[result.request],
                pool_name=result.pool,
                device_name=result.device,
                cdi_device_ids=[device_id(self._driver, entry.uid)],
            )


async def _attempt(
    action: str, claim: ClaimName, work: Awaitable[PreparedClaim | None]
) -> tuple[str, PreparedClaim | None]:
    """The error for the kubelet, "" if there was none, and what the work returned."""
    try:
        return "", await work
    except Refused as error:
        message = str(error)
    except (CheckpointError, NameTaken) as error:
        message = f"claim {claim}: {error}"
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        message = f"claim {claim}: {path}{error.strerror}: see to the node's disk, the kubelet will try again"
    except Exception as error:
        log.exception("unexpected error", action=action, claim=str(claim), uid=claim.uid)
        message = f"claim {claim}: unexpected {type(error).__name__}: see the log of parley-kubelet on this node"
    log.warning("claim refused", action=action, claim=str(claim), uid=claim.uid, reason=message)
    return message, None


def _names(claims: Iterable[dra.Claim]) -> tuple[ClaimName, ...]:
    return tuple(ClaimName(claim.namespace, claim.name, claim.uid) for claim in claims)

# ruff: noqa: ARG002, N802 - the protocol gives the names, and arguments that not every answer needs
"""The gRPC edge to the kubelet: NodePrepareResources and NodeUnprepareResources of DRA v1 and v1beta1.

Translates between messages and `claims.preparation`, and sees that every claim of a call gets its own answer: the
kubelet treats a missing one as a failure of all. The two versions have the same fields, so far as they are used.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

import structlog

from parley_kubelet.cdi.specifications import device_ids
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.hooks import Refused
from parley_kubelet.proto.dra_v1_pb2_grpc import DRAPluginServicer as V1Servicer
from parley_kubelet.proto.dra_v1beta1_pb2_grpc import DRAPluginServicer as V1Beta1Servicer
from parley_kubelet.state.checkpoint import CheckpointError, Entry, HeldDevice

log = structlog.get_logger(__name__)


class DraService(V1Servicer, V1Beta1Servicer):
    """Answers by claim UID, in the messages of one `version`: `dra_v1_pb2` for kubelets from 1.34,
    `dra_v1beta1_pb2` for older ones."""

    def __init__(self, preparation: Preparation, version: Any) -> None:
        self._preparation = preparation
        self._version = version

    async def NodePrepareResources(self, request: Any, context: Any) -> Any:
        """Prepare each claim; one that cannot be prepared does not hinder the others."""
        answers = await asyncio.gather(*map(self._prepare, _names(request.claims)))
        return self._version.NodePrepareResourcesResponse(claims=dict(answers))

    async def NodeUnprepareResources(self, request: Any, context: Any) -> Any:
        """Unprepare each claim."""
        answers = await asyncio.gather(*map(self._unprepare, _names(request.claims)))
        return self._version.NodeUnprepareResourcesResponse(claims=dict(answers))

    async def _prepare(self, claim: ClaimName) -> tuple[str, Any]:
        answer = self._version.NodePrepareResourceResponse()
        answer.error, entry = await self._attempt("prepare", claim, self._preparation.prepare(claim))
        if entry is not None:
            answer.devices.extend(self._devices(entry))
            told = [device.name for device in entry.devices]
            log.info("claim prepared", driver=self._driver, claim=str(claim), uid=claim.uid, devices=told)
        return claim.uid, answer

    async def _unprepare(self, claim: ClaimName) -> tuple[str, Any]:
        error, _ = await self._attempt("unprepare", claim, self._preparation.unprepare(claim))
        if not error:
            log.info("claim unprepared", driver=self._driver, claim=str(claim), uid=claim.uid)
        return claim.uid, self._version.NodeUnprepareResourceResponse(error=error)

    def _devices(self, entry: Entry) -> Iterable[Any]:
        for result in entry.results:
            held = HeldDevice(pool=result.pool, name=result.device)
            yield self._version.Device(
                request_names=[result.request],
                pool_name=result.pool,
                device_name=result.device,
                cdi_device_ids=device_ids(self._driver, entry, held if held in entry.devices else None),
            )

    @property
    def _driver(self) -> str:
        return self._preparation.driver.name

    async def _attempt(
        self, action: str, claim: ClaimName, work: Awaitable[Entry | None]
    ) -> tuple[str, Entry | None]:
        """The error for the kubelet, "" if there was none, and what the work returned."""
        try:
            return "", await work
        except Refused as error:
            message = _with_claim(claim, str(error))
        except CheckpointError as error:
            message = f"claim {claim}: {error}"
        except OSError as error:
            path = f"{error.filename}: " if error.filename else ""
            message = f"claim {claim}: {path}{error.strerror}: see to the node's disk, the kubelet will try again"
        except Exception as error:
            log.exception("unexpected error", driver=self._driver, action=action, claim=str(claim), uid=claim.uid)
            message = (
                f"claim {claim}: unexpected {type(error).__name__}: see the log of parley-kubelet on this node"
            )
        log.warning(
            "claim refused",
            driver=self._driver,
            action=action,
            claim=str(claim),
            uid=claim.uid,
            reason=message,
        )
        return message, None


def _with_claim(claim: ClaimName, message: str) -> str:
    """Authors of drivers need not name the claim."""
    return message if str(claim) in message else f"claim {claim}: {message}"


def _names(claims: Iterable[Any]) -> tuple[ClaimName, ...]:
    return tuple(ClaimName(claim.namespace, claim.name, claim.uid) for claim in claims)

# ruff: noqa: ARG002, N802 - the protocol gives the names, and arguments that not every answer needs
"""The gRPC service for the kubelet: NodePrepareResources and NodeUnprepareResources of DRA v1.

Translates between messages and `claims.preparation`. Every claim of a call gets its own answer: the kubelet treats
a missing one as a failure of all.
"""

import asyncio
import time
from collections.abc import Awaitable, Iterable
from typing import Any, Final

import structlog

from parley_kubelet.cdi.specifications import device_ids
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.hooks import Refused
from parley_kubelet.proto import dra_v1_pb2 as dra
from parley_kubelet.proto.dra_v1_pb2_grpc import DRAPluginServicer
from parley_kubelet.state.checkpoint import CheckpointEntry, CheckpointError, HeldDevice
from parley_kubelet.telemetry.exposition import Histogram

log = structlog.get_logger(__name__)


_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 20, 40)


def call_seconds() -> Histogram:
    """The histogram of call durations, by driver, call (`prepare`, `unprepare`) and outcome (`ok`, `refused`,
    `failed`)."""
    text = "Duration of preparing or unpreparing one claim."
    return Histogram("parley_node_call_seconds", text, ("driver", "call", "outcome"), _SECONDS)


class DraService(DRAPluginServicer):
    """The DRA service of one driver. Durations are observed in `calls`, if given."""

    def __init__(self, preparation: Preparation, calls: Histogram | None = None) -> None:
        self._preparation = preparation
        self._calls = calls if calls is not None else call_seconds()

    async def NodePrepareResources(
        self, request: dra.NodePrepareResourcesRequest, context: Any
    ) -> dra.NodePrepareResourcesResponse:
        """Prepare each claim; one that cannot be prepared does not affect the others."""
        answers = await asyncio.gather(*map(self._prepare, _names(request.claims)))
        return dra.NodePrepareResourcesResponse(claims=dict(answers))

    async def NodeUnprepareResources(
        self, request: dra.NodeUnprepareResourcesRequest, context: Any
    ) -> dra.NodeUnprepareResourcesResponse:
        """Unprepare each claim."""
        answers = await asyncio.gather(*map(self._unprepare, _names(request.claims)))
        return dra.NodeUnprepareResourcesResponse(claims=dict(answers))

    async def _prepare(self, claim: ClaimName) -> tuple[str, dra.NodePrepareResourceResponse]:
        answer = dra.NodePrepareResourceResponse()
        answer.error, entry = await self._attempt("prepare", claim, self._preparation.prepare(claim))
        if entry is not None:
            answer.devices.extend(self._devices(entry))
            devices = [device.name for device in entry.devices]
            log.info("claim prepared", driver=self._driver, claim=str(claim), uid=claim.uid, devices=devices)
        return claim.uid, answer

    async def _unprepare(self, claim: ClaimName) -> tuple[str, dra.NodeUnprepareResourceResponse]:
        error, _ = await self._attempt("unprepare", claim, self._preparation.unprepare(claim))
        if not error:
            log.info("claim unprepared", driver=self._driver, claim=str(claim), uid=claim.uid)
        return claim.uid, dra.NodeUnprepareResourceResponse(error=error)

    def _devices(self, entry: CheckpointEntry) -> Iterable[dra.Device]:
        for result in entry.results:
            held = HeldDevice(pool=result.pool, name=result.device)
            yield dra.Device(
                request_names=[result.request],
                pool_name=result.pool,
                device_name=result.device,
                cdi_device_ids=device_ids(self._driver, entry, held if held in entry.devices else None),
            )

    @property
    def _driver(self) -> str:
        return self._preparation.driver.name

    async def _attempt(
        self, action: str, claim: ClaimName, work: Awaitable[CheckpointEntry | None]
    ) -> tuple[str, CheckpointEntry | None]:
        """The error for the kubelet, "" if there was none, and the entry that `work` returned."""
        started, outcome = time.monotonic(), "failed"
        try:
            entry = await work
            outcome = "ok"
            return "", entry
        except Refused as error:
            message, outcome = _with_claim(claim, str(error)), "refused"
        except CheckpointError as error:
            message = f"claim {claim}: {error}"
        except Exception as error:
            message = self._failure(action, claim, error)
        finally:
            self._calls.observe(time.monotonic() - started, self._driver, action, outcome)
        log.warning(
            "claim refused",
            driver=self._driver,
            action=action,
            claim=str(claim),
            uid=claim.uid,
            reason=message,
        )
        return message.encode(errors="backslashreplace").decode(), None  # a file's name may be no valid UTF-8

    def _failure(self, action: str, claim: ClaimName, error: Exception) -> str:
        """The message for the kubelet about an error that names neither claim nor remedy."""
        if isinstance(error, OSError) and error.errno is not None:  # a mere TimeoutError has none
            path = f"{error.filename}: " if error.filename else ""
            return f"claim {claim}: {path}{error.strerror}: check the node's disk; the kubelet will try again"
        about = {"driver": self._driver, "action": action, "claim": str(claim), "uid": claim.uid}
        log.error("unexpected error", exc_info=error, **about)
        return f"claim {claim}: unexpected {type(error).__name__}: see the log of parley-kubelet on this node"


def _with_claim(claim: ClaimName, message: str) -> str:
    """The message with the claim's name, which authors of drivers need not add."""
    return message if str(claim) in message else f"claim {claim}: {message}"


def _names(claims: Iterable[dra.Claim]) -> tuple[ClaimName, ...]:
    return tuple(ClaimName(claim.namespace, claim.name, claim.uid) for claim in claims)

"""Checks whether the plugin answers on its own sockets, by calling them as the kubelet does.

Both calls have no effect: GetInfo, and NodePrepareResources without a claim. Each check opens new connections: an
existing one would be answered even if its socket was removed. After `health.go` of Kubernetes' dra-example-driver.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

import grpc.aio

from parley_kubelet.proto import dra_v1_pb2 as dra
from parley_kubelet.proto import registration_v1_pb2 as registration
from parley_kubelet.proto.dra_v1_pb2_grpc import DRAPluginStub
from parley_kubelet.proto.registration_v1_pb2_grpc import RegistrationStub
from parley_kubelet.serving.sockets import Sockets

LIMIT: Final = 3.0
"""Seconds for both calls: less than the probe's timeout, so that its answer names the socket."""

_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


async def check_sockets(sockets: Sockets) -> str:
    """Which of the two sockets does not answer, and why; "" if both do."""
    faults = await asyncio.gather(
        _fault(
            sockets.registration, lambda channel: RegistrationStub(channel).GetInfo(registration.InfoRequest())
        ),
        _fault(
            sockets.plugin,
            lambda channel: DRAPluginStub(channel).NodePrepareResources(dra.NodePrepareResourcesRequest()),
        ),
    )
    return "; ".join(fault for fault in faults if fault)


async def _fault(path: Path, call: Any) -> str:
    try:
        async with asyncio.timeout(LIMIT), grpc.aio.insecure_channel(f"unix:{path}", _OWN_CONNECTION) as channel:
            await call(channel)
    except TimeoutError:
        return f"socket {path}: no answer within {LIMIT:g} s"
    except grpc.aio.AioRpcError as error:
        return f"socket {path}: {error.code().name}: {error.details()}"
    return ""

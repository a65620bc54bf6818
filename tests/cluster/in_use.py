"""Who really has which device: read from the processes of the containers on real nodes, again and again.

What the API shows may be ahead or behind; here a device that two pods have is seen if both run for a moment.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from parley_devcluster import Cluster, machine

_PAUSE: Final = 0.3
_VARIABLE: Final = b"PARLEY_DEVICE_"
_POD: Final = "/pod"


@asynccontextmanager
async def no_device_in_two_pods(cluster: Cluster, may_share: Callable[[str, str], bool]) -> AsyncIterator[None]:
    """Fails at the end of the block if a device was seen in two pods within it. `may_share` tells of a device's
    variable and a pod's UID whether the pod may have it beside others that may, too."""
    faults: set[str] = set()

    async def look() -> None:
        while True:
            users = await asyncio.to_thread(_users, cluster)
            for device, pods in users.items():
                if len(pods) > 1 and not all(may_share(device, pod) for pod in pods):
                    faults.add(f"{device} is in pods {', '.join(sorted(pods))}")
            await asyncio.sleep(_PAUSE)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    assert looking.cancelled(), f"looking at containers ended by itself: {looking}"
    assert not faults, "\n".join(sorted(faults))


def _users(cluster: Cluster) -> Mapping[str, frozenset[str]]:
    """The UIDs of the pods whose processes have it, by device."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for node in cluster.nodes:
        for pid in machine.cgroup_processes(node.scope):
            for device, pod in _devices(Path(f"/proc/{pid}")):
                found[device].add(pod)
    return {device: frozenset(pods) for device, pods in found.items()}


def _devices(process: Path) -> Iterator[tuple[str, str]]:
    try:
        variables = (process / "environ").read_bytes().split(b"\0")
        groups = (process / "cgroup").read_text()
    except OSError:
        return  # it has just ended
    if _POD in groups:
        pod = groups.partition(_POD)[2].partition("/")[0]
        for variable in variables:
            if variable.startswith(_VARIABLE):
                yield variable.partition(b"=")[0].decode(), pod

"""What a cluster is burdened with before a workload runs in it: devices that others hold, and pods that wait."""

from functools import partial

from benchmarks import objects
from benchmarks.objects import NEVER
from benchmarks.stage import Stage
from benchmarks.workloads import Workload
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, POD_SCHEDULINGS, PODS, TEMPLATES


class Burden:
    """One workload's, in a namespace of its own."""

    def __init__(self, stage: Stage, workload: Workload) -> None:
        self._stage = stage
        self._api = stage.api
        self._workload = workload
        self._namespace = f"burden-{workload.name}"

    @property
    def namespaces(self) -> list[str]:
        """What has to go for the burden to go."""
        return [self._namespace] if self._workload.taken or self._workload.waiting else []

    async def put(self) -> None:
        """Lay it on the cluster: as Parley sees it, too."""
        for namespace in self.namespaces:
            await self._api.create_namespace(namespace)
        await self._take()
        if self._workload.waiting:
            await self._api.request("POST", TEMPLATES.path(self._namespace), objects.template(NEVER))
            await self._stage.until(
                partial(self._api.has, BUILTIN_TEMPLATES, self._namespace, 1), "the template has a mirror"
            )
            await self._let_wait(self._workload.waiting)

    async def _take(self) -> None:
        """All devices of the first nodes are allocated to claims of ordinary DRA."""
        claims = BUILTIN_CLAIMS.path(self._namespace)
        for claim in (
            claim for node in self._stage.nodes[: self._workload.taken] for claim in objects.takers(node)
        ):
            await self._api.request("POST", claims, claim)
            await self._api.request("PATCH", f"{claims}/{claim['metadata']['name']}/status", claim)

    async def _let_wait(self, count: int) -> None:
        """So many pods wait for what no node has, and their users have been told."""
        pods = (objects.pod(number, [NEVER]) for number in range(count))
        await self._api.create_all(PODS.path(self._namespace), pods)
        told = partial(self._api.has, POD_SCHEDULINGS, self._namespace, count)
        await self._stage.until(told, f"{count} pods wait")

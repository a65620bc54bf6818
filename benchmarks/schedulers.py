"""The second scheduler of a benchmark: as it is shipped, or the same one without Parley, as a yardstick.

A kube-scheduler that runs costs something even if no pod names it, so there is one at a time, or none.
"""

import asyncio
from pathlib import Path
from typing import Any

from benchmarks.api import Api, Refused
from parley.api.resources import LEASES
from parley_devcluster import Cluster
from parley_devcluster.second_scheduler import (
    SCHEDULER_NAME,
    SECOND_SCHEDULER,
    configuration,
    start_second_scheduler,
)

DEFAULT = ""
"""The cluster's own scheduler."""

EXTENDER = SCHEDULER_NAME
"""The second one, which asks Parley."""

BARE = "bare"
"""The same without an extender."""

_NAMESPACE = "parley-system"


class SecondScheduler:
    """At most one runs, by the name that pods call it; its component is `component`, "" if none runs."""

    def __init__(self, cluster: Cluster, api: Api, deploy: Path, address: str) -> None:
        self._cluster = cluster
        self._api = api
        self._deploy = deploy
        self._address = address
        self._name = DEFAULT

    @property
    def component(self) -> str:
        return {DEFAULT: "", EXTENDER: SECOND_SCHEDULER, BARE: "bare-scheduler"}[self._name]

    async def use(self, name: str) -> None:
        """Let that one run, and no other. It leads a moment later."""
        if name == self._name:
            return
        if self.component:
            await asyncio.to_thread(self._cluster.component(self.component).stop)
        await self._forget_lease()
        self._name = name
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        if self._name == DEFAULT:
            return
        if self._name == EXTENDER:
            start_second_scheduler(self._cluster, self._deploy, self._address)
        else:
            self._cluster.add_scheduler(self.component, self._without_extender())

    def _without_extender(self) -> dict[str, Any]:
        account = self._cluster.kubeconfig_for_service_account(_NAMESPACE, SECOND_SCHEDULER)
        shipped = configuration(self._deploy, account, self._address)
        profiles = [{**profile, "schedulerName": BARE} for profile in shipped["profiles"]]
        return {**shipped, "profiles": profiles, "extenders": []}

    async def _forget_lease(self) -> None:
        """So that who comes next need not wait for the end of it."""
        try:
            await self._api.request("DELETE", LEASES.path(_NAMESPACE, SECOND_SCHEDULER))
        except Refused as error:
            if error.status != 404:
                raise

    async def leads(self) -> bool:
        """Whether the one that runs places pods by now."""
        leases = await self._api.get(LEASES.path(_NAMESPACE))
        return not self.component or any(
            lease["metadata"]["name"] == SECOND_SCHEDULER and lease["spec"].get("holderIdentity")
            for lease in leases["items"]
        )

"""Objects that hold parameters, and a client that lets nobody read them."""

import asyncio
from typing import Any

from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.conftest import NAMESPACE, World

from parley.api.resources import CLAIMS, CLASSES, CONFIG_MAPS, TEMPLATES
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Forbidden

ACCOUNT = "system:serviceaccount:parley-system:parley-controller"
GRANTED = {"apiGroup": "", "kind": "ConfigMap", "name": "size"}


async def put_size(world: World, text: str, name: str = "size", namespace: str = NAMESPACE) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"parameters": text}}
    await world.client.create(CONFIG_MAPS, body, namespace)


async def put_class(world: World, **fields: Any) -> None:
    given = fields or {"parameters": {"pool": 4}}
    body = {"metadata": {"name": "licence"}, "driverName": TokensDriver.name, "nodePart": "None", **given}
    await world.create(CLASSES, body)


async def put_template(world: World, name: str = "one", reference: dict[str, str] | None = None) -> None:
    spec = {"resourceClassName": "licence", "parametersRef": reference or GRANTED}
    body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"spec": spec}}
    await world.create(TEMPLATES, body)


async def put_claim(world: World, name: str = "mine", **more: Any) -> None:
    spec = {"resourceClassName": "licence", "parametersRef": GRANTED, **more}
    await world.create(CLAIMS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})


async def said(world: World, pod: str) -> tuple[str, str]:
    status = (await world.scheduling(pod)).status
    return status.waiting_for, status.message


class Refusing(FaultClient):
    """Lets nobody read ConfigMaps while it is `closed`, and counts who tries."""

    def __init__(self, world: World) -> None:
        super().__init__(world.server.client(), before=self._look)
        self.closed = True
        self.reads: list[float] = []

    def _look(self, call: NumberedCall) -> None:
        if call.resource.plural != "configmaps":
            return
        assert call.verb == "get", "ConfigMaps are neither listed nor watched"
        self.reads.append(asyncio.get_running_loop().time())
        if self.closed:
            raise Forbidden(
                403,
                "Forbidden",
                f'configmaps "{call.name}" is forbidden: User "{ACCOUNT}"'
                f' cannot get resource "configmaps" in API group "" in the namespace "{call.namespace}"',
            )


FORBIDDEN = (
    f"account {ACCOUNT} may not read ConfigMap default/size: grant it the verb get on"
    " the resource configmaps of the apiGroup '' in namespace default"
)

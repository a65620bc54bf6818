"""Parameters from objects, read with the rights that the controller's account has."""

from typing import Any

import pytest
from tests.cluster.manifests import pod, resource_class
from tests.cluster.namespace import Namespace
from tests.integration.native.conftest import Devices, Parley

from parley.api import reasons
from parley.api.resources import CONFIG_MAPS, TEMPLATES, Resource
from parley.control.objects.mirror import is_offer, recorded_units
from parley.kube.client import Client
from parley_devcluster.parley import NAMESPACE

pytestmark = pytest.mark.cluster

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", True, dict[str, Any])
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True, dict[str, Any])
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:parley-controller"


@pytest.fixture
async def shop(team: Namespace, devices: Devices) -> Namespace:
    """A namespace with three devices, and a template that takes its parameters from the ConfigMap `size`."""
    await devices(node_0=1, node_1=2)
    spec = {"resourceClassName": "gpu", "parametersRef": {"kind": "ConfigMap", "name": "size"}}
    await team.client.create(TEMPLATES, {"metadata": {"name": "one"}, "spec": {"spec": spec}}, team.name)
    return team


async def grant(client: Client, namespace: str) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    await client.create(ROLES, {"metadata": {"name": "parameters"}, "rules": [rule]}, namespace)
    role = {"apiGroup": ROLES.group, "kind": "Role", "name": "parameters"}
    subject = {"apiGroup": ROLES.group, "kind": "User", "name": ACCOUNT}
    body = {"metadata": {"name": "parameters"}, "roleRef": role, "subjects": [subject]}
    await client.create(BINDINGS, body, namespace)


async def write(team: Namespace, text: str) -> None:
    body = {"metadata": {"name": "size"}, "data": {"parameters": text}}
    await team.client.apply(CONFIG_MAPS, "size", body, team.name, field_manager="test")


async def test_refused_then_missing_then_misunderstood_then_allocated_for_good(
    shop: Namespace, parley: Parley
) -> None:
    await shop.create(pod("first", templates={"gpu": "one"}))
    assert await shop.waits("first", reasons.PARAMETERS_FORBIDDEN) == (
        f"parametersRef of template {shop.name}/one: account {ACCOUNT} may not read ConfigMap {shop.name}/size: "
        f"grant it the verb get on the resource configmaps of the apiGroup '' in namespace {shop.name}"
    )
    await grant(shop.client, shop.name)
    assert await shop.waits("first", reasons.PARAMETERS_NOT_FOUND) == (
        f"parametersRef of template {shop.name}/one: ConfigMap {shop.name}/size does not exist: create it"
    )
    await write(shop, "count: s3cret")
    assert await shop.waits("first", reasons.PARAMETERS_INVALID) == (
        f"parameters of template {shop.name}/one, in ConfigMap {shop.name}/size: count: input should be a valid "
        "integer (known parameters: count, memory, model, shared)"
    )
    await write(shop, "count: 2")
    await shop.bound("first")

    await write(shop, "count: 1")
    await parley.kill()
    await parley.start()
    await shop.create(pod("second", templates={"gpu": "one"}))
    await shop.bound("second")
    assert (await shop.client.get(CONFIG_MAPS, "size", shop.name)).data == {"parameters": "count: 1"}


async def test_an_offer_records_what_an_object_asked_for(shop: Namespace, devices: Devices) -> None:
    """The API server takes that, and what the driver found, from an allocation that was offered."""
    await devices(node_2=2)
    await grant(shop.client, shop.name)
    await write(shop, "count: 2")
    spec = {"resourceClassName": "exact", "parametersRef": {"kind": "ConfigMap", "name": "size"}}
    await shop.create(resource_class("exact", placement="Exact"))
    await shop.client.create(TEMPLATES, {"metadata": {"name": "offered"}, "spec": {"spec": spec}}, shop.name)

    await shop.create(pod("patient", templates={"gpu": "offered"}))

    await shop.bound("patient")
    (mirror,) = await shop.mirrors("patient")
    assert mirror.status.allocation is not None
    assert is_offer(mirror.status.allocation)
    assert recorded_units(mirror) == 2
    assert len(await shop.devices("patient")) == 2

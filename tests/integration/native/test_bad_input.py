"""What users get wrong: each mistake has its own words, troubles nobody else, and is over once it is mended."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from tests.cluster.manifests import claim, ordinary_claim, ordinary_class, pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.integration.native.conftest import Devices

from parley.api import reasons
from parley.api.models import ResourceClaim
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, PODS, TEMPLATES

pytestmark = pytest.mark.cluster

KNOWN = "(known parameters: count, memory, model, shared)"


@pytest.fixture
async def shop(team: Namespace, devices: Devices) -> AsyncIterator[Namespace]:
    """A namespace with two devices; at the end `bad`, mended, and a pod that made no mistake are both bound."""
    await devices(node_0=1, node_1=1)
    await team.create(template("good"), pod("good", templates={"gpu": "good"}))
    await team.bound("good")
    yield team
    await team.bound("bad")
    scheduling = await team.scheduling("bad", lambda s: not s.status.waiting_for, "waits for nothing")
    assert scheduling.status.message == ""


async def complaint(team: Namespace, code: str) -> str:
    """What the pod's PodScheduling and event say alike."""
    message = await team.waits("bad", code)
    assert await team.told("bad", code) == message
    return message


async def accepted(team: Namespace, name: str, code: str) -> str:
    """The message of the claim's condition Accepted, once it has that reason."""

    def condition(found: ResourceClaim) -> Mapping[str, tuple[str, str]]:
        return {c.reason: (c.status, c.message) for c in found.status.conditions if c.type == reasons.ACCEPTED}

    found = await team.parley_claim(name, lambda c: code in condition(c), f"has the condition {code}")
    status, message = condition(found)[code]
    assert status == ("True" if code == reasons.ACCEPTED else "False")
    return message


async def test_an_unknown_class(shop: Namespace) -> None:
    await shop.create(template("one", "gpux"), claim("mine", "gpux"))
    await shop.create(pod("bad", templates={"gpu": "one"}))

    mirrored = await shop.client.list(BUILTIN_CLAIMS, shop.name)
    message = await complaint(shop, reasons.CLASS_NOT_FOUND)

    assert message == (
        f"template {shop.name}/one: spec.resourceClassName='gpux' does not exist: create that ResourceClass"
    )
    assert "mine" not in {c.metadata.name for c in mirrored.items}
    assert await accepted(shop, "mine", reasons.CLASS_NOT_FOUND) == (
        f"claim {shop.name}/mine: spec.resourceClassName='gpux' does not exist: create that ResourceClass"
    )

    await shop.create(resource_class("gpux"))

    assert await accepted(shop, "mine", reasons.ACCEPTED) == "class, driver and parameters are known"


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ({"count": "two"}, "count='two': input should be a valid integer"),
        ({"count": 0}, "count=0: input should be greater than or equal to 1"),
        ({"memory": "40 GB"}, "memory='40 GB': '40 GB' is not a quantity; write a number such as 2, 250m or 16Gi"),
        ({"modell": "a100"}, "modell='a100' is not a parameter of this driver"),
    ],
)
async def test_parameters_that_fail_the_schema(shop: Namespace, parameters: dict[str, Any], fault: str) -> None:
    await shop.create(claim("mine", **parameters), pod("bad", claims={"gpu": "mine"}))

    expected = f"parameters of claim {shop.name}/mine: {fault} {KNOWN}"
    assert await complaint(shop, reasons.PARAMETERS_INVALID) == expected
    assert await accepted(shop, "mine", reasons.PARAMETERS_INVALID) == expected

    # A claim's spec is immutable: fixing it means recreating it, under the waiting pod.
    await shop.delete(CLAIMS, "mine")
    await shop.create(claim("mine"))


async def test_a_template_whose_parameters_fail_the_schema(shop: Namespace) -> None:
    await shop.create(template("one", count=0), pod("bad", templates={"gpu": "one"}))

    message = await complaint(shop, reasons.PARAMETERS_INVALID)

    assert message == (
        f"parameters of template {shop.name}/one: count=0: input should be greater than or equal to 1 {KNOWN}"
    )

    await shop.delete(TEMPLATES, "one")
    await shop.gone(BUILTIN_TEMPLATES, "one")
    await shop.delete(PODS, "bad")
    await shop.create(template("one"), pod("bad", templates={"gpu": "one"}))


async def test_a_missing_claim(shop: Namespace) -> None:
    await shop.create(pod("bad", claims={"gpu": "mine"}))

    assert await shop.told("bad", reasons.CLAIM_NOT_FOUND) == (
        f"claim {shop.name}/mine does not exist: "
        "create a ResourceClaim of parley.dev (or of resource.k8s.io) with that name"
    )

    await shop.create(claim("mine"))


async def test_a_missing_template(shop: Namespace) -> None:
    await shop.create(pod("bad", templates={"gpu": "one"}))

    assert await shop.told("bad", reasons.CLAIM_NOT_FOUND) == (
        f"template {shop.name}/one of claim 'gpu' does not exist: "
        "create a ResourceClaimTemplate of parley.dev (or of resource.k8s.io) with that name"
    )

    await shop.create(template("one"))


async def test_a_built_in_claim_of_the_same_name(shop: Namespace) -> None:
    await shop.create(ordinary_class("nothing", "false"), ordinary_claim("mine", "nothing"))
    await shop.create(claim("mine"), pod("bad", claims={"gpu": "mine"}))

    expected = (
        f"a resource.k8s.io ResourceClaim {shop.name}/mine exists that Parley did not create: "
        "delete it, or give the parley.dev ResourceClaim another name"
    )
    assert await complaint(shop, reasons.NAME_TAKEN) == expected
    assert await accepted(shop, "mine", reasons.NAME_TAKEN) == expected

    await shop.client.delete(BUILTIN_CLAIMS, "mine", shop.name)

    await accepted(shop, "mine", reasons.ACCEPTED)


async def test_a_built_in_template_of_the_same_name(shop: Namespace) -> None:
    foreign = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one"},
        "spec": {"spec": ordinary_claim("", "nothing")["spec"]},
    }
    await shop.create(ordinary_class("nothing", "false"), foreign, template("one"))

    assert await shop.told("one", reasons.NAME_TAKEN, "ResourceClaimTemplate") == (
        f"a resource.k8s.io ResourceClaimTemplate {shop.name}/one exists that Parley did not create: "
        "delete it, or give the parley.dev ResourceClaimTemplate another name"
    )

    await shop.client.delete(BUILTIN_TEMPLATES, "one", shop.name)
    await shop.create(pod("bad", templates={"gpu": "one"}))


async def test_a_template_whose_mirror_the_api_server_refuses(shop: Namespace) -> None:
    strange = template("one")
    strange["spec"]["metadata"] = {"labels": {"colour": "light blue"}}
    await shop.create(strange, pod("bad", templates={"gpu": "one"}))

    message = await complaint(shop, reasons.WRITE_REFUSED)

    assert message.startswith(
        "the API server refused the resource.k8s.io ResourceClaimTemplate that stands for "
        f"{shop.name}/one: ResourceClaimTemplate.resource.k8s.io"
    )
    assert "'light blue'" in message or '"light blue"' in message
    assert message.endswith(": change what it names; Parley tries again")
    assert await shop.told("one", reasons.WRITE_REFUSED, "ResourceClaimTemplate") == message

    await shop.delete(TEMPLATES, "one")
    await shop.gone(TEMPLATES, "one")
    await shop.create(template("one"))

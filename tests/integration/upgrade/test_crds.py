"""The kinds change version, forward and back, while claims are in use: nothing is lost, stuck or given twice."""

import copy
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cluster.manifests import claim, pod, resource_class, resource_slice, template
from tests.cluster.namespace import Namespace
from tests.integration.upgrade.conftest import TOKENS, Crd, Parley, crds_before, crds_now

from parley.api.models import PodScheduling
from parley.api.resources import (
    BUILTIN_CLAIMS,
    CLAIMS,
    CLASSES,
    POD_SCHEDULINGS,
    PODS,
    TEMPLATES,
    Resource,
)
from parley.kube.client import Client, Invalid

pytestmark = pytest.mark.cluster

KINDS: tuple[Resource[Any], ...] = (CLASSES, CLAIMS, TEMPLATES, POD_SCHEDULINGS)
HOLD = ("driverName", "allocation", "reservedFor", "deallocationRequested")
"""Fields of a claim's status that tell who holds what, in every version."""

USERS = ("device", "licence", "own-device", "own-licence")


@pytest.fixture
async def in_use(parley: Parley, team: Namespace) -> AsyncIterator[Namespace]:
    """All three devices and both tokens are taken: named and generated claims, of both kinds of drivers, and a
    claim that was allocated without a pod. Nothing of Parley runs now."""
    parley.install(crds_now())
    await parley.start()
    await team.create(
        resource_class("gpu"), resource_class("licences", TOKENS, parameters={"pool": 2}, nodePart="None")
    )
    await team.create(resource_slice("fake-0", ["gpu-0", "gpu-1"]), resource_slice("fake-1", ["gpu-0"]))
    await team.create(template("own-device"), template("own-licence", "licences"))
    at_once = claim("kept")
    at_once["spec"]["allocationMode"] = "Immediate"
    await team.create(claim("device"), claim("licence", "licences"), at_once)
    await team.parley_claim("kept", lambda it: it.status.allocation is not None, "is allocated")
    for name in USERS:
        own = name.startswith("own-")
        await team.create(pod(name, templates={"it": name} if own else None, claims=None if own else {"it": name}))
        await team.bound(name)
    await team.scheduling("own-licence", _served, "was served")
    await parley.stop()
    yield team
    parley.install(crds_now())
    await parley.controllers.follow()
    await parley.drivers.follow()


def _served(scheduling: PodScheduling) -> bool:
    return not scheduling.status.waiting_for


async def holdings(team: Namespace) -> dict[str, Any]:
    """Who holds what by the records of Parley's claims and of the built-in ones."""
    found = {}
    for kind in (CLAIMS, BUILTIN_CLAIMS):
        for it in (await team.client.list(kind.untyped(), team.name)).items:
            shown = {field: value for field in HOLD if (value := it.get("status", {}).get(field))}
            meta = it["metadata"]
            found[f"{kind.group} {meta['name']}"] = (meta["uid"], sorted(meta.get("finalizers", ())), shown)
    return found


async def touch(client: Client, team: Namespace) -> int:
    """Change a label of every object of Parley's kinds, which writes it anew as the schema has it now."""
    written = 0
    for kind in KINDS:
        for it in (await client.list(kind.untyped(), team.name if kind.namespaced else None)).items:
            body = {"metadata": {"labels": {"touched": uuid.uuid4().hex}}}
            await client.patch(kind.untyped(), it["metadata"]["name"], body, it["metadata"].get("namespace"))
            written += 1
    return written


def _status(crd: Crd) -> dict[str, Any]:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return dict(schema["properties"]["status"]["properties"])


async def write_as_before(client: Client, team: Namespace) -> None:
    """What the earlier version's controller records beside: fields of claims that this one may not have."""
    (claims,) = (crd for crd in crds_before() if crd["metadata"]["name"].startswith("resourceclaims."))
    assert "state" in _status(claims)
    for it in (await client.list(CLAIMS.untyped(), team.name)).items:
        state = "allocated,reserved" if it["status"].get("reservedFor") else "allocated"
        body = {"status": {"state": state}}
        await client.patch(CLAIMS.untyped(), it["metadata"]["name"], body, team.name, subresource="status")


async def ends(team: Namespace, parley: Parley) -> None:
    """What is held is still held, and what is released is free, once."""
    await team.create(template("late"), template("late-licence", "licences"))
    await team.create(pod("late", templates={"it": "late"}), pod("late-licence", templates={"it": "late-licence"}))
    for name in ("late", "late-licence"):
        await team.scheduling(name, lambda s: bool(s.status.waiting_for), "waits")
    for ended, served in (("own-device", "late"), ("licence", "late-licence")):
        await team.delete(PODS, ended)
        await team.bound(served)


async def test_claims_in_use_survive_an_upgrade_a_rollback_and_an_upgrade(
    admin: Client, parley: Parley, in_use: Namespace
) -> None:
    before = await holdings(in_use)
    assert sum(bool(shown) for *_, shown in before.values()) == 8

    for _ in range(2):
        parley.install(crds_before())
        assert await touch(admin, in_use) >= 9
        await write_as_before(admin, in_use)
        assert await holdings(in_use) == before
        parley.install(crds_now())
        assert await touch(admin, in_use) >= 9
        assert await holdings(in_use) == before

    await parley.start()
    await ends(in_use, parley)
    after = await holdings(in_use)
    untouched = {name for name, was in before.items() if after.get(name) == was}
    kept = {f"{group} {name}" for group in ("parley.dev", "resource.k8s.io") for name in ("kept", "device")}
    assert kept <= untouched


def stricter(crds: list[Crd]) -> list[Crd]:
    """A version that refuses what is stored now, and knows one field less."""
    found = {crd["metadata"]["name"].partition(".")[0]: crd for crd in copy.deepcopy(crds)}
    schemas = {name: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for name, crd in found.items()}
    claims, classes = schemas["resourceclaims"]["properties"], schemas["resourceclasses"]["properties"]
    spec, status = claims["spec"]["properties"], claims["status"]["properties"]
    spec["resourceClassName"]["pattern"] = "^of-the-next-version$"
    status["driverName"]["maxLength"] = 1
    status["allocation"]["x-kubernetes-validations"].append({"rule": "size(self.handles) > 9", "message": "more"})
    classes["driverName"]["pattern"] = "^of-the-next-version$"
    del classes["scoreWeight"]
    return list(found.values())


async def test_what_a_new_rule_refuses_can_still_be_used_changed_and_given_back(
    admin: Client, parley: Parley, in_use: Namespace
) -> None:
    before = await holdings(in_use)
    parley.install(stricter(crds_now()))
    with pytest.raises(Invalid, match=r"spec\.resourceClassName"):
        await in_use.create(claim("new"))

    assert await touch(admin, in_use) >= 9
    assert await holdings(in_use) == before
    await parley.start()
    for name in USERS:
        await in_use.delete(PODS, name)
    for name in ("device", "licence", "kept"):
        await in_use.delete(CLAIMS, name)
    assert [name for name, (*_, shown) in (await holdings(in_use)).items() if shown] == []
    await parley.stop()

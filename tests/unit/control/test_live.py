"""A pod is read live where the cache may be behind; one that came later under its name is another."""

import pytest
from tests.unit.control.builders import NAMESPACE, World, played

from parley.api.resources import PODS
from parley.control.live import live_pod
from parley.control.objects.pod import reference
from parley.kube.client import Call, Forbidden


def test_what_the_api_server_has_now_is_read_whatever_the_cache_shows() -> None:
    async def story(world: World) -> None:
        user = reference(await world.pod("p"))
        await world.admin.patch(PODS, "p", {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")

        live = await live_pod(world.client, user)

        assert live is not None
        assert live.status.phase == "Succeeded"

    played(story)


def test_a_pod_that_is_gone_is_none_and_so_is_another_of_its_name() -> None:
    async def story(world: World) -> None:
        user = reference(await world.pod("p"))
        await world.delete(PODS, "p")
        assert await live_pod(world.client, user) is None

        await world.pod("p")
        assert await live_pod(world.client, user) is None

    played(story)


def test_a_refusal_is_not_taken_for_an_absence() -> None:
    async def story(world: World) -> None:
        user = reference(await world.pod("p"))

        def refuse(_: Call) -> None:
            raise Forbidden(403, "Forbidden", "not yours")

        world.before = refuse
        with pytest.raises(Forbidden):
            await live_pod(world.client, user)

    played(story)
